/*
 * pingpong.c - the ten steps of a verbs program, between two processes
 *
 * Two sides send each other a message in turn over a reliable connection (RC),
 * verify what arrives and measure the round trip. Either side can be replaced
 * by rdma-core's ibv_rc_pingpong: the wire format and the options are its own.
 *
 * New since chapter 04: the peer is another process, so the two queue pairs
 * are introduced over TCP; messages carry data; work requests complete, or
 * fail and say why.
 *
 * Sides: server and client; make run-05 starts both
 *
 *	pingpong			the server waits for a client
 *	pingpong 10.9.0.1		the client connects, and sends first
 *
 *	$ pingpong 10.9.0.1
 *	device:  rxe_0, the first with an ACTIVE port
 *	port:    1, ACTIVE, path MTU 1024 of at most 1024
 *	GID:     index 1, ::ffff:10.9.0.2, RoCE v2 from IPv4, the port's best
 *	  local address:  LID 0x0000, QPN 0x000011, PSN 0xe22fe2, GID ...
 *	  remote address: LID 0x0000, QPN 0x000011, PSN 0xd78876, GID ...
 *	8192000 bytes in 0.17 seconds = 388.62 Mbit/sec
 *	1000 iters in 0.17 seconds = 168.64 usec/iter
 *	round trip: median 143.09, 99th percentile 428.20, maximum 4375.69 usec
 *	verified: every byte of 1000 of 1000 messages
 *	released: ibv_destroy_qp
 *	...
 *
 * See ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), ibv_poll_cq(3),
 * ibv_get_cq_event(3), ibv_rc_pingpong(1); and the InfiniBand Architecture
 * Specification, volume 1 (IBTA): 9.7 reliable service, 10.3.1 queue pair
 * states, 11.6.2 completion status.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/options.h"

#define WRID_RECEIVE 1		/* all that tells what a failed one was */
#define WRID_SEND 2
#define PATTERN_PERIOD 251	/* a prime, and so no multiple of a packet */
#define STOCK_PAGE 4096		/* ibv_rc_pingpong -c wants a zero on each */
#define SPINS 1000		/* empty polls before a look at the clock */
#define NSEC_PER_SEC 1000000000LL

struct options {
	const char *server;	/* NULL: be the server */
	const char *device;	/* NULL: the first with an ACTIVE port */
	int tcp_port;
	int ib_port;		/* 0: the first that is ACTIVE */
	int size;		/* of a message, in bytes */
	int mtu;		/* of the path, in bytes */
	int rx_depth;		/* receives kept posted */
	int iters;		/* messages each way */
	int sl;			/* service level */
	int gid_index;		/* -1: choose one */
	int timeout;		/* of every wait, in seconds */
	bool events;		/* sleep until there is a completion */
	bool check;		/* verify what ibv_rc_pingpong sends, too */
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

/* If @err, an errno value, isn't 0: say what failed. Returns @err. */
static int failed(int err, const char *what)
{
	if (err)
		print_error(err, "%s", what);
	return err;
}

/* Open the first device with an ACTIVE port, among those asked for. */
static struct ibv_context *open_device(struct ibv_device **list,
				       struct options *opt,
				       struct ibv_port_attr *port)
{
	bool found = false;

	for (int i = 0; list[i]; i++) {
		const char *name = ibv_get_device_name(list[i]);
		struct ibv_context *context;

		if (opt->device && strcmp(opt->device, name) != 0)
			continue;

		found = true;
		context = ibv_open_device(list[i]);
		if (!context) {
			print_error(errno, "ibv_open_device(%s)", name);
			print_hint("may this user, or this container, use "
				   "/dev/infiniband/uverbs*?");
			continue;
		}

		/* Ports count from 1; the query fails after the last. */
		for (int n = 1; ibv_query_port(context, n, port) == 0; n++) {
			if (port->state == IBV_PORT_ACTIVE &&
			    (!opt->ib_port || opt->ib_port == n)) {
				opt->ib_port = n;
				return context;
			}
		}
		RELEASE(ibv_close_device, context);
	}

	if (!found)
		print_error(0, "no device called %s", opt->device);
	else if (opt->ib_port)
		print_error(0, "no ACTIVE port %d", opt->ib_port);
	else
		print_error(0, "no ACTIVE port");
	for (int i = 0; list[i]; i++)
		print_hint("there is %s; make run-01 shows its ports",
			   ibv_get_device_name(list[i]));
	return NULL;
}

/* Is the value of an option more than the device or the port can do? */
static bool exceeds(const char *option, long long value, long long max)
{
	if (value <= max)
		return false;

	print_error(0, "%s %lld is more than this port can do", option, value);
	print_hint("%lld is the most; chapter 01's attributes lists all", max);
	return true;
}

/* RESET -> INIT: the queue pair belongs to a port, and can take receives. */
static int bind_qp(struct ibv_qp *qp, const struct options *opt)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,	/* the default partition */
		.port_num = opt->ib_port,
		.qp_access_flags = 0,	/* messages only: nothing remote */
	};

	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE |
				    IBV_QP_PKEY_INDEX |
				    IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS),
		      "ibv_modify_qp(RESET -> INIT)");
}

/* Receive into the second half of the memory region. */
static int post_receive(struct ibv_qp *qp, const struct ibv_mr *mr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr + mr->length / 2,
		.length = mr->length / 2,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr *bad_wr, wr = {
		.wr_id = WRID_RECEIVE,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return failed(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}

static void print_address(const char *whose, const struct address *address)
{
	char text[INET6_ADDRSTRLEN];

	printf("  %-15s LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n", whose,
	       address->lid, address->qpn, address->psn,
	       gid_text(&address->gid, text));
}

/* Receive the peer's address, and see that it leads anywhere from our port. */
static int receive_address(int sock, const struct ibv_port_attr *port,
			   struct address *remote)
{
	if (exchange_receive_address(sock, remote))
		return -1;

	print_address("remote address:", remote);
	if (!gid_is_zero(&remote->gid) ||
	    (remote->lid && port->link_layer != IBV_LINK_LAYER_ETHERNET))
		return 0;

	print_error(0, "the peer sent no GID, which RoCE needs");
	print_hint("ibv_rc_pingpong sends one if started with -g N");
	return -1;
}

/* INIT -> RTR -> RTS: it knows its peer, and can receive, then send. */
static int connect_qp(struct ibv_qp *qp, const struct options *opt,
		      const struct address *local,
		      const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = ffs(opt->mtu / 128) - 1,	/* IBV_MTU_256 is 1 */
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,	/* "no receive, come in 0.64 ms" */
		.ah_attr = {
			.dlid = remote->lid,
			.sl = opt->sl,
			.port_num = opt->ib_port,
			.is_global = !gid_is_zero(&remote->gid),
			.grh = {
				.dgid = remote->gid,
				.sgid_index = opt->gid_index,
				.hop_limit = 64,	/* 1 ends at a router */
			},
		},
	};
	int err = ibv_modify_qp(qp, &attr,
				IBV_QP_STATE |
				IBV_QP_AV |
				IBV_QP_PATH_MTU |
				IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER);

	if (failed(err, "ibv_modify_qp(INIT -> RTR)")) {
		print_hint("can these two GIDs reach each other? "
			   "-g takes another of ours");
		return err;
	}

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;	/* 4.096 us * 2^14 = 67 ms without an ACK, */
	attr.retry_cnt = 7;	/* 7 times again; Soft-RoCE: for ever */
	attr.rnr_retry = 7;	/* for ever: the peer will post a receive */
	attr.sq_psn = local->psn;
	attr.max_rd_atomic = 1;
	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE |
				    IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/* Send the first half of the memory region. */
static int post_send(struct ibv_qp *qp, const struct ibv_mr *mr,
		     unsigned int flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = mr->length / 2,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.wr_id = WRID_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = flags,
	};

	return failed(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send");
}

/* Wait for one completion: poll, or with a channel sleep until an event. */
static int next_completion(struct ibv_cq *cq, int sock, int timeout,
			   struct ibv_wc *wc)
{
	struct ibv_comp_channel *channel = cq->channel;
	long long deadline = now_ns() + timeout * NSEC_PER_SEC;
	struct pollfd fds[] = {
		{ .fd = channel ? channel->fd : -1, .events = POLLIN },
		{ .fd = sock, .events = POLLRDHUP },
	};
	bool armed = false;
	void *unused;
	int n = 0;

	for (;;) {
		for (int i = 0; i < (channel ? 1 : SPINS) && n == 0; i++)
			n = ibv_poll_cq(cq, 1, wc);
		if (n > 0)
			return 0;
		if (n < 0) {
			print_error(0, "ibv_poll_cq returned %d", n);
			return -1;
		}

		/* What came before the CQ was armed gives no event: poll. */
		if (channel && !armed) {
			armed = true;
			if (failed(ibv_req_notify_cq(cq, 0),
				   "ibv_req_notify_cq"))
				return -1;
			continue;
		}

		poll(fds, 2, channel ? timeout * 1000 : 0);
		if (fds[0].revents) {
			if (ibv_get_cq_event(channel, &cq, &unused))
				return failed(errno, "ibv_get_cq_event");
			/* At once: ibv_destroy_cq() would wait for it. */
			ibv_ack_cq_events(cq, 1);
			armed = false;
		} else if (fds[1].revents) {
			print_error(0, "the peer gave up or died");
			return -1;
		} else if (now_ns() > deadline) {
			return failed(ETIMEDOUT, "waiting for a completion");
		} else {
			/* With one CPU, what we wait for needs it. */
			sched_yield();
		}
	}
}

/* What usually makes a completion fail, and where to look. */
static const char *likely_cause(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "nobody acknowledged it: the peer died, ended early "
		       "(-n), or isn't at that GID and QPN";
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:	/* so says Soft-RoCE, */
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:		/* and to the sender this */
		return "the message was longer than the receive: "
		       "give both sides the same -s";
	case IBV_WC_LOC_PROT_ERR:
		return "the SGE is not inside the memory region of its lkey";
	case IBV_WC_WR_FLUSH_ERR:
		return "the queue pair was in ERR before; what put it there?";
	default:
		return "ibv_poll_cq(3) lists the status codes";
	}
}

/* Did send or receive @number succeed, and with all of its bytes? */
static int check_completion(const struct ibv_wc *wc, int number, int size)
{
	if (wc->status != IBV_WC_SUCCESS) {
		print_error(0, "%s %d: %s (status %d), wr_id %d, vendor_err %u",
			    wc->wr_id == WRID_SEND ? "send" : "receive", number,
			    ibv_wc_status_str(wc->status), wc->status,
			    (int)wc->wr_id, wc->vendor_err);
		print_hint("%s", likely_cause(wc->status));
		return -1;
	}

	if (wc->wr_id == WRID_RECEIVE && wc->byte_len != (uint32_t)size) {
		print_error(0, "message %d has %u bytes, not %d", number,
			    wc->byte_len, size);
		print_hint("give both sides the same -s");
		return -1;
	}

	return 0;
}

/* Compare every byte of message number @n with what its sender meant. */
static int verify(const uint8_t *got, const uint8_t *meant, int size, int n)
{
	int offset = 0;

	if (memcmp(got, meant, size) == 0)
		return 0;

	while (got[offset] == meant[offset])
		offset++;
	print_error(0, "iteration %d, offset %d: 0x%02x came, not 0x%02x", n,
		    offset, got[offset], meant[offset]);
	print_hint("did a sender refill its buffer before the completion?");
	return -1;
}

static int ascending(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

/* Two lines as ibv_rc_pingpong has them, and one on @count round trips. */
static void report(const struct options *opt, long long ns, long long *trips,
		   long long count)
{
	long long bytes = 2LL * opt->size * opt->iters;
	long long median = (count - 1) / 2, p99 = (count - 1) * 99 / 100;
	double usec = ns / 1e3;

	printf("%lld bytes in %.2f seconds = %.2f Mbit/sec\n", bytes,
	       usec / 1e6, bytes * 8 / usec);
	printf("%d iters in %.2f seconds = %.2f usec/iter\n", opt->iters,
	       usec / 1e6, usec / opt->iters);

	if (count == 0) {
		printf("round trip: none, nobody answers the last message\n");
		return;
	}

	qsort(trips, count, sizeof(*trips), ascending);
	printf("round trip: median %.2f, 99th percentile %.2f, "
	       "maximum %.2f usec\n", trips[median] / 1e3, trips[p99] / 1e3,
	       trips[count - 1] / 1e3);
}

/*
 * Send and receive all messages. Each is a window on a @table of bytes that
 * count up, and the next is one byte further: neighbours begin, and so go on,
 * differently. Only our own kind of peer still has a @sock.
 */
static int transfer(struct ibv_qp *qp, const struct ibv_mr *mr,
		    unsigned int send_flags, const struct options *opt,
		    int sock, const uint8_t *table, long long *trips)
{
	const bool client = opt->server, own_kind = sock >= 0;
	const uint8_t *ours = table + (client ? 0 : PATTERN_PERIOD / 2);
	const uint8_t *theirs = table + (client ? PATTERN_PERIOD / 2 : 0);
	uint8_t *out = mr->addr, *in = out + opt->size;
	int posted = 0, sent = 0, received = 0, verified = 0;
	long long start = now_ns(), posted_at = start;
	const uint8_t *meant;
	struct ibv_wc wc;

	while (sent < opt->iters || received < opt->iters) {
		/*
		 * 9. Transfer: the client may send when all it sent has been
		 * answered, the server when it owes an answer; and only when
		 * the send before has completed, because it uses the buffer.
		 */
		if (posted < opt->iters && sent == posted &&
		    received + client > posted) {
			memcpy(out, ours + posted % PATTERN_PERIOD, opt->size);
			for (int i = 0; i < opt->size && !own_kind;
			     i += STOCK_PAGE)
				out[i] = 0;

			posted_at = now_ns();
			if (post_send(qp, mr, send_flags))
				return -1;
			posted++;
		}

		/* 10. Completions: one of a send, or of a receive. */
		if (next_completion(qp->send_cq, sock, opt->timeout, &wc)) {
			print_hint("%d sent and %d received of %d; is the peer "
				   "alive, at that address, with the same -n?",
				   sent, received, opt->iters);
			return -1;
		}
		if (check_completion(&wc, wc.wr_id == WRID_SEND ? sent :
				     received, opt->size))
			return -1;
		if (wc.wr_id == WRID_SEND) {
			sent++;
			continue;
		}

		if (posted > 0)
			trips[received - !client] = now_ns() - posted_at;

		/* One buffer for both ways makes ibv_rc_pingpong an echo. */
		meant = own_kind ? theirs + received % PATTERN_PERIOD : out;
		if (own_kind || (opt->check && posted > 0)) {
			if (verify(in, meant, opt->size, received))
				return -1;
			verified++;
		}

		if (post_receive(qp, mr))
			return -1;
		received++;
	}

	report(opt, now_ns() - start, trips, opt->iters - !client);
	if (verified > 0)
		printf("verified: every byte of %d of %d messages\n", verified,
		       received);
	else
		printf("verified: nothing; -c checks what an "
		       "ibv_rc_pingpong returns\n");
	return 0;
}

static int parse_options(int argc, char *argv[], struct options *opt)
{
	const struct option_spec specs[] = {
		{ 'p', "port", "PORT", "TCP port of the server (18515)",
		  .number = &opt->tcp_port, .min = 1, .max = 65535 },
		{ 'd', "ib-dev", "NAME",
		  "device (the first with an ACTIVE port)",
		  .text = &opt->device },
		{ 'i', "ib-port", "PORT",
		  "port of the device (the first ACTIVE)",
		  .number = &opt->ib_port, .min = 1, .max = 255 },
		{ 's', "size", "BYTES", "size of a message (4096)",
		  .number = &opt->size, .min = 1, .max = 1 << 30 },
		{ 'm', "mtu", "BYTES", "path MTU (1024)",
		  .number = &opt->mtu, .min = 256, .max = 4096 },
		{ 'r', "rx-depth", "N", "receives kept posted (500)",
		  .number = &opt->rx_depth, .min = 1, .max = INT_MAX - 1 },
		{ 'n', "iters", "N", "messages each way (1000)",
		  .number = &opt->iters, .min = 1, .max = 100000000 },
		{ 'l', "sl", "N", "service level (0)",
		  .number = &opt->sl, .min = 0, .max = 15 },
		{ 'e', "events", NULL, "sleep until a completion, don't poll",
		  .flag = &opt->events },
		{ 'g', "gid-idx", "N", "index of our GID (the port's best)",
		  .number = &opt->gid_index, .min = 0, .max = 255 },
		{ 'c', "chk", NULL, "check an ibv_rc_pingpong's messages too",
		  .flag = &opt->check },
		{ 1, "timeout", "SECS", "longest wait for anything (10)",
		  .number = &opt->timeout, .min = 1, .max = 3600 },
		{ 0 }
	};

	if (options_parse(argc, argv, specs, "SERVER",
			  "Without SERVER, it is the server, for one client.\n"
			  "Both sides need the same -p, -s, -m and -n. Every\n"
			  "byte received is checked if the peer is this\n"
			  "program. An ibv_rc_pingpong returns what it\n"
			  "received; -c checks that."))
		return -1;
	opt->server = argv[optind];

	/* 256 to 4096, and a power of two. */
	if (opt->mtu & (opt->mtu - 1)) {
		print_error(0, "-m %d is no path MTU", opt->mtu);
		print_hint("it's 256, 512, 1024, 2048 or 4096");
		return -1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct options opt = {
		.tcp_port = 18515,
		.size = 4096,
		.mtu = 1024,
		.rx_depth = 500,
		.iters = 1000,
		.gid_index = -1,
		.timeout = 10,
	};
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_qp_init_attr init = { 0 };
	struct address local = { 0 }, remote = { 0 };
	unsigned int send_flags = IBV_SEND_SIGNALED;
	size_t buf_size;
	uint8_t *buf = NULL, *table = NULL;
	long long *trips = NULL;
	int sock = -1, status = EXIT_FAILURE;
	char done[] = "done", terms[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt))
		return EXIT_USAGE;

	/* 1. Device: what is there? */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}

	/* 2. Context: an open device. Where is it, and what can it do? */
	context = open_device(list, &opt, &port);
	if (!context || failed(ibv_query_device(context, &device),
			       "ibv_query_device"))
		goto out;

	printf("device:  %s, %s\n", ibv_get_device_name(context->device),
	       opt.device ? "given with -d" : "the first with an ACTIVE port");
	printf("port:    %d, ACTIVE, path MTU %d of at most %d\n", opt.ib_port,
	       opt.mtu, 128 << port.active_mtu);
	if (exceeds("-m", opt.mtu, 128 << port.active_mtu) ||
	    exceeds("-s", opt.size, port.max_msg_sz) ||
	    exceeds("-r", opt.rx_depth, device.max_qp_wr) ||
	    exceeds("-r", opt.rx_depth, device.max_cqe - 1) ||
	    gid_find(context, opt.ib_port, &port, opt.gid_index, &gid))
		goto out;
	opt.gid_index = gid.gid_index;

	/* 3. Protection domain: what is made in it can work together. */
	pd = ibv_alloc_pd(context);
	if (!pd) {
		print_error(errno, "ibv_alloc_pd");
		goto out;
	}

	/* 4. Memory region: the message to send, then the one received. */
	buf_size = 2 * (size_t)opt.size;
	buf = malloc(buf_size);
	table = malloc(opt.size + 2 * PATTERN_PERIOD);
	trips = malloc(opt.iters * sizeof(*trips));
	if (!buf || !table || !trips) {
		print_error(errno, "memory for -s %d and -n %d", opt.size,
			    opt.iters);
		goto out;
	}
	for (int i = 0; i < opt.size + 2 * PATTERN_PERIOD; i++)
		table[i] = i % PATTERN_PERIOD;

	mr = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		print_error(errno, "ibv_reg_mr(%zu bytes)", buf_size);
		print_hint("ENOMEM: ulimit -l limits what may be registered");
		goto out;
	}

	/* 5. Completion channel: something to sleep on. */
	if (opt.events) {
		channel = ibv_create_comp_channel(context);
		if (!channel) {
			print_error(errno, "ibv_create_comp_channel");
			goto out;
		}
	}

	/* 6. Completion queue: with room for all receives and one send. */
	cq = ibv_create_cq(context, opt.rx_depth + 1, NULL, channel, 0);
	if (!cq) {
		print_error(errno, "ibv_create_cq(%d)", opt.rx_depth + 1);
		goto out;
	}

	/* 7. Queue pair: ready to receive before anybody knows its number. */
	init.send_cq = cq;
	init.recv_cq = cq;
	init.cap.max_send_wr = 1;
	init.cap.max_recv_wr = opt.rx_depth;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_sge = 1;
	init.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(pd, &init);
	if (!qp) {
		print_error(errno, "ibv_create_qp");
		goto out;
	}
	if (bind_qp(qp, &opt))
		goto out;

	/* All into one buffer: there is never more than one on its way. */
	for (int i = 0; i < opt.rx_depth; i++)
		if (post_receive(qp, mr))
			goto out;

	/* init.cap is what we got now. Inline, the CPU copies; no DMA. */
	if (init.cap.max_inline_data >= (uint32_t)opt.size)
		send_flags |= IBV_SEND_INLINE;

	/*
	 * 8. Exchange: learn where the peer is, and tell it where we are. The
	 * server can receive before it answers; "done" says the answer came.
	 */
	local.lid = port.lid;
	local.qpn = qp->qp_num;
	local.psn = random_psn();
	local.gid = gid.gid;
	print_address("local address:", &local);
	if (opt.server) {
		sock = exchange_connect(opt.server, opt.tcp_port, opt.timeout);
		if (sock < 0 ||
		    exchange_send_address(sock, &local) ||
		    receive_address(sock, &port, &remote) ||
		    exchange_send(sock, done, sizeof(done), "\"done\"") ||
		    connect_qp(qp, &opt, &local, &remote))
			goto out;
	} else {
		sock = exchange_serve(opt.tcp_port, opt.timeout);
		if (sock < 0 ||
		    receive_address(sock, &port, &remote) ||
		    connect_qp(qp, &opt, &local, &remote) ||
		    exchange_send_address(sock, &local) ||
		    exchange_receive(sock, done, sizeof(done), "\"done\""))
			goto out;
	}

	/* Our own kind agrees on terms and stays connected. */
	snprintf(terms, sizeof(terms), "-s %d -n %d -m %d", opt.size, opt.iters,
		 opt.mtu);
	if (!remote.own_kind) {
		close(sock);
		sock = -1;
	} else if (exchange_same(sock, terms, "the options")) {
		goto out;
	}

	/* 9 and 10. Transfer and completions. */
	if (transfer(qp, mr, send_flags, &opt, sock, table, trips))
		goto out;

	/* A queue pair must live until the peer has its last ACK. */
	if (sock >= 0 && exchange_same(sock, "bye", "the goodbyes"))
		goto out;
	status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_destroy_comp_channel, channel);
	status |= RELEASE(ibv_dereg_mr, mr);
	free(trips);
	free(table);
	free(buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
