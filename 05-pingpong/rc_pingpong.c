/*
 * rc_pingpong.c - the ping-pong as a tool, with ibv_rc_pingpong's usual options
 *
 * It is pingpong.c with more options: it can sleep for completions, keep many
 * receives posted, send inline, and check what an ibv_rc_pingpong sends back.
 * It also prints the median and the slowest of the round trips. It is faster
 * for two reasons: it sends from the table of bytes itself, without a copy, and
 * it answers a message before it compares its bytes. With -e it is slower,
 * because it sleeps until each message comes. Read pingpong.c first.
 * This command shows you what is new:
 *
 *	diff -u 05-pingpong/pingpong.c 05-pingpong/rc_pingpong.c
 *
 * Sides: server and client; make run-05 PROGRAM=rc_pingpong starts both
 *
 *	rc_pingpong -e			the server waits for a client
 *	rc_pingpong -e 10.9.0.1		the client connects, and sends first
 *
 *	$ rc_pingpong -e 10.9.0.1
 *	...
 *	8192000 bytes in 0.40 seconds = 162.38 Mbit/sec
 *	1000 iters in 0.40 seconds = 403.60 usec/iter
 *	round trip: median 372.74, 99th percentile 655.36, maximum 5651.06 usec
 *	verified: every byte of 1000 of 1000 messages
 *
 * See ibv_get_cq_event(3), ibv_req_notify_cq(3), ibv_create_qp(3) on inline
 * data, ibv_rc_pingpong(1); and those of pingpong.c.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/measure.h"
#include "../common/pattern.h"
#include "../common/settings.h"

/* Our wr_id values. If a request fails, only wr_id shows which kind it was. */
enum { WRID_RECEIVE = 1, WRID_SEND };

#define SENDS 2		/* sends that may be under way at a time */
#define SPINS 1000	/* empty polls before a look at clock and peer */

/* The options that pingpong.c does not have. */
struct more {
	int ib_port;		/* -i; 0: the first that is ACTIVE */
	int rx_depth;		/* -r, receives kept posted */
	int sl;			/* -l, service level: the class of traffic */
	bool events;		/* -e, sleep until there is a completion */
	bool check;		/* -c, verify an ibv_rc_pingpong's messages */
};

static int parse_options(int argc, char *argv[], struct settings *opt,
			 struct more *more)
{
	const struct option_spec specs[] = {
		{ 'i', "ib-port", "PORT",
		  "port of the device (the first ACTIVE)",
		  .number = &more->ib_port, .min = 1, .max = 255 },
		{ 'r', "rx-depth", "N", "receives kept posted (500)",
		  .number = &more->rx_depth, .min = 1, .max = INT_MAX - 1 },
		{ 'l', "sl", "N", "service level (0)",
		  .number = &more->sl, .min = 0, .max = 15 },
		{ 'e', "events", NULL, "sleep for completions, do not poll",
		  .flag = &more->events },
		{ 'c', "chk", NULL, "verify an ibv_rc_pingpong's messages too",
		  .flag = &more->check },
		{ 0 }
	};

	*more = (struct more){ .rx_depth = 500 };
	return settings_parse(argc, argv, opt, specs);
}

/* 2. Can the device keep rx_depth receives, and a CQ for all of them? */
static int check_depth(struct ibv_context *context, const struct more *more)
{
	struct ibv_device_attr device;

	if (failed(ibv_query_device(context, &device), "ibv_query_device") ||
	    option_at_most("-r", more->rx_depth, device.max_qp_wr))
		return -1;
	return option_at_most("-r", more->rx_depth, device.max_cqe - SENDS);
}

/*
 * 7. Create a queue pair, and take it to INIT. The caller destroys *@qp.
 * *@max_inline becomes the size of the longest message that can go inline.
 */
static int create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int port_num,
		     int rx_depth, struct ibv_qp **qp, uint32_t *max_inline)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = SENDS, .max_send_sge = 1,
			 .max_recv_wr = rx_depth, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,	/* the default partition */
		.port_num = port_num,
		.qp_access_flags = 0,	/* the peer may not read or write */
	};

	*qp = ibv_create_qp(pd, &init);
	if (missing(*qp, "ibv_create_qp"))
		return -1;
	*max_inline = init.cap.max_inline_data;
	return failed(ibv_modify_qp(*qp, &attr,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		      "ibv_modify_qp(RESET -> INIT)");
}

/*
 * Where in @mr message number @n arrives. Two buffers take turns: while one
 * message is being compared, the next one can arrive in the other.
 */
static uint8_t *place_of(const struct ibv_mr *mr, int n)
{
	size_t size = mr->length / 3;

	return (uint8_t *)mr->addr + (n % 2 ? 2 : 1) * size;
}

/* 7. Post the receive for message number @n. */
static int post_receive(struct ibv_qp *qp, const struct ibv_mr *mr, int n)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)place_of(mr, n),
		.length = mr->length / 3,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr *bad_wr, wr = {
		.wr_id = WRID_RECEIVE, .sg_list = &sge, .num_sge = 1,
	};

	return failed(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}

/* 8. INIT -> RTR -> RTS: connected to @remote, it can receive, then send. */
static int connect_qp(struct ibv_qp *qp, const struct path *path, int sl,
		      const struct address *local, const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path->mtu,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,	/* no receive: the peer waits 0.64 ms */
		.ah_attr = {
			.dlid = remote->lid,
			.sl = sl,
			.port_num = path->port_num,
			.is_global = !gid_is_zero(&remote->gid),
			.grh = { .dgid = remote->gid,
				 .sgid_index = path->gid.gid_index,
				 .hop_limit = 64 },
		},
	};

	if (address_check(remote, &path->port))	/* RoCE needs a GID */
		return -1;
	if (failed(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp(INIT -> RTR)")) {
		print_hint("can these two GIDs reach each other? "
			   "-g N takes another GID of this side");
		return -1;
	}

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;	/* send again after 4.096 us * 2^14 = 67 ms */
	attr.retry_cnt = 7;	/* seven times; Soft-RoCE: for ever */
	attr.rnr_retry = 7;	/* for ever: the peer will post a receive */
	attr.sq_psn = local->psn;
	attr.max_rd_atomic = 1;
	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/* 8. Exchange addresses over TCP, and connect. The caller closes *@sock. */
static int introduce(struct ibv_qp *qp, const struct settings *opt,
		     const struct path *path, int sl, int *sock)
{
	struct address remote = { 0 }, local = {
		.lid = path->port.lid,
		.qpn = qp->qp_num,
		.psn = random_psn(),
		.gid = path->gid.gid,
	};

	address_print("local address:", &local);
	if (opt->server) {	/* its name: we are the client */
		*sock = exchange_connect(opt->server, opt->tcp_port,
					 opt->timeout);
		if (*sock < 0 || exchange_send_address(*sock, &local) ||
		    exchange_receive_address(*sock, &remote) ||
		    exchange_send_done(*sock) ||
		    connect_qp(qp, path, sl, &local, &remote))
			return -1;
	} else {
		*sock = exchange_serve_address(opt->tcp_port, opt->timeout,
					       &remote);
		if (*sock < 0 || connect_qp(qp, path, sl, &local, &remote) ||
		    exchange_send_address(*sock, &local) ||
		    exchange_receive_done(*sock))
			return -1;
	}
	return exchange_agree(sock, &remote, opt);
}

/* 9. Send @size bytes of @mr from @message on, and ask for a completion. */
static int post_send(struct ibv_qp *qp, const struct ibv_mr *mr,
		     const uint8_t *message, int size, unsigned int flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)message,
		.length = size,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.wr_id = WRID_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = flags,
	};

	return failed(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send");
}

/*
 * 10. Sleep until there is an event on @channel or @deadline has passed.
 * Returns 0, or -1 after an error message; it is an error if the peer closes
 * @sock meanwhile.
 */
static int sleep_until_event(struct ibv_comp_channel *channel, int sock,
			     long long deadline)
{
	struct pollfd fds[] = {
		{ .fd = channel->fd, .events = POLLIN },
		{ .fd = sock, .events = POLLRDHUP },
	};
	struct ibv_cq *cq;
	void *unused;

	if (poll_until(fds, 2, deadline) < 0)
		return -1;
	if (!fds[0].revents)
		return exchange_check_peer(sock);

	if (ibv_get_cq_event(channel, &cq, &unused))
		return failed(errno, "ibv_get_cq_event");
	/* ibv_destroy_cq() waits until each event taken is acknowledged. One
	 * call for many would be faster, because each call takes a lock. */
	ibv_ack_cq_events(cq, 1);
	return 0;
}

/* 10. Between two looks at the CQ: sleep, or let another process run. */
static int pass_time(struct ibv_cq *cq, int sock, long long deadline)
{
	if (clock_ns(CLOCK_MONOTONIC) > deadline)
		return failed(ETIMEDOUT, "waiting for a completion");
	if (cq->channel)
		return sleep_until_event(cq->channel, sock, deadline);
	if (exchange_check_peer(sock))
		return -1;
	sched_yield();	/* a peer on this CPU can run now */
	return 0;
}

/* 10. Wait for a completion until @deadline; it must be a success. */
static int next_completion(struct ibv_cq *cq, int sock, long long deadline,
			   struct ibv_wc *wc)
{
	const int spins = cq->channel ? 1 : SPINS;
	int n = 0;

	for (;;) {
		for (int i = 0; i < spins && n == 0; i++)
			n = ibv_poll_cq(cq, 1, wc);

		/* Arm the CQ and poll once more: chapter 03 says why. */
		if (n == 0 && cq->channel) {
			if (failed(ibv_req_notify_cq(cq, 0),
				   "ibv_req_notify_cq"))
				return -1;
			n = ibv_poll_cq(cq, 1, wc);
		}
		if (n != 0)
			break;
		if (pass_time(cq, sock, deadline))
			return -1;
	}
	if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
		return -1;
	}
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	print_wc_error(wc, wc->wr_id == WRID_SEND ? "send" : "receive");
	return -1;
}

static void print_round_trips(const struct histogram *trips)
{
	if (trips->count == 0)
		printf("round trip: none: no message got an answer\n");
	else
		printf("round trip: median %.2f, 99th percentile %.2f, "
		       "maximum %.2f usec\n",
		       (double)histogram_percentile(trips, 50) / 1e3,
		       (double)histogram_percentile(trips, 99) / 1e3,
		       (double)trips->most / 1e3);
}

/*
 * Compare message number @n, of @bytes bytes, with what the peer should have
 * sent. An ibv_rc_pingpong sends from the buffer into which it receives, so
 * from it we get back what we sent last, which is still in @out.
 */
static int compare(const struct pattern *pattern, const struct ibv_mr *mr,
		   uint32_t bytes, int n, const uint8_t *out)
{
	if (pattern_check(pattern, place_of(mr, n), bytes, n))
		return -1;
	return out ? pattern_compare(place_of(mr, n), out, bytes, n) : 0;
}

/*
 * Transfer all messages. They are sent from @table, the region of the pattern's
 * table. If the peer is an ibv_rc_pingpong (@sock is -1), its messages differ
 * from the table; so each is first written into the first third of @mr, and
 * sent from there.
 */
static int transfer(struct ibv_qp *qp, const struct ibv_mr *mr,
		    const struct ibv_mr *table, const struct settings *opt,
		    const struct more *more, int sock,
		    const struct pattern *pattern, unsigned int flags)
{
	const long long start = clock_ns(CLOCK_MONOTONIC);
	const bool client = opt->server != NULL, own_kind = pattern->own_kind;
	int posted = 0, sent = 0, received = 0, compared = 0, verified = 0;
	long long last, now = start;	/* when a message came, or the start */
	struct histogram trips = { 0 };
	struct ibv_wc wc, message = { 0 };
	uint8_t *out = mr->addr;

	while (sent < opt->iters || compared < opt->iters) {
		/* The client begins, and then the two sides take turns. */
		bool our_turn = client ? received == posted : received > posted;

		/* @out is in use until its send has completed and what an
		 * ibv_rc_pingpong returns has been compared with it. */
		if (!own_kind && (sent < posted || compared < received))
			our_turn = false;

		/* 9. The answer goes out first. Comparing and measuring can
		 * wait until it is on its way. */
		if (our_turn && posted < opt->iters && posted - sent < SENDS) {
			const uint8_t *from = out;

			if (own_kind)
				from = pattern_message(pattern, posted);
			else
				pattern_fill(pattern, out, posted);
			if (post_send(qp, own_kind ? table : mr, from,
				      opt->size, flags))
				return -1;
			posted++;
		}

		/* Compare the message. Then its buffer is free: message
		 * n + 2 will come there. */
		if (compared < received) {
			bool echo = more->check && !own_kind && posted > 0;

			last = now;
			now = clock_ns(CLOCK_MONOTONIC);
			/* The first message to the server answers nothing. */
			if (client || compared > 0)
				histogram_add(&trips, now - last);
			if (compare(pattern, mr, message.byte_len, compared,
				    echo ? out : NULL) ||
			    post_receive(qp, mr, compared + more->rx_depth))
				return -1;
			compared++;
			verified += echo || own_kind;
			continue;
		}

		/* 10. The completion of a send or of a receive. */
		if (next_completion(qp->send_cq, sock,
				    now + opt->timeout * NS_PER_S, &wc)) {
			print_hint("%d sent and %d received of %d; if the peer "
				   "is alive, does it use the same -n?", sent,
				   received, opt->iters);
			return -1;
		}
		if (wc.wr_id == WRID_SEND) {
			sent++;
			continue;
		}

		message = wc;
		received++;
	}

	print_rates(opt->size, opt->iters, clock_ns(CLOCK_MONOTONIC) - start);
	print_round_trips(&trips);
	pattern_report(pattern, verified);
	return 0;
}

int main(int argc, char *argv[])
{
	struct settings opt;
	struct more more;
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL, *table = NULL;
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct path path = { 0 };
	struct pattern pattern = { 0 };
	uint8_t *buf = NULL;
	unsigned int flags = IBV_SEND_SIGNALED;
	uint32_t max_inline;
	int sock = -1, status = EXIT_FAILURE;

	start_output();
	if (parse_options(argc, argv, &opt, &more))
		return EXIT_USAGE;

	/* 1. Device: one that has an ACTIVE port. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	path.port_num = more.ib_port;
	device = device_choose(list, opt.device, &path.port_num);
	if (!device)
		goto out;

	/* 2. Context: the open device, and the way that packets take. */
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    path_find(context, &opt, &path) || check_depth(context, &more))
		goto out;

	/* 3. Protection domain: our queue pair may use only regions in it. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;

	/* 4. Memory regions: a message to send and two received; and the table,
	 * which the device only reads, so that it needs no right at all. */
	buf = calloc(3, opt.size);
	if (missing(buf, "calloc(3, %d)", opt.size) ||
	    pattern_create(&pattern, &opt))
		goto out;
	mr = ibv_reg_mr(pd, buf, 3 * (size_t)opt.size, IBV_ACCESS_LOCAL_WRITE);
	if (missing(mr, "ibv_reg_mr(%zu bytes)", 3 * (size_t)opt.size)) {
		print_hint("ENOMEM: ulimit -l limits what may be registered");
		goto out;
	}
	table = ibv_reg_mr(pd, pattern.table, pattern.length, 0);
	if (missing(table, "ibv_reg_mr(%zu bytes)", pattern.length))
		goto out;

	/* 5. Completion channel: something to sleep on. */
	if (more.events) {
		channel = ibv_create_comp_channel(context);
		if (missing(channel, "ibv_create_comp_channel"))
			goto out;
	}

	/* 6. Completion queue: with room for all sends and all receives. */
	cq = ibv_create_cq(context, more.rx_depth + SENDS, NULL, channel, 0);
	if (missing(cq, "ibv_create_cq(%d)", more.rx_depth + SENDS))
		goto out;

	/* 7. Queue pair: all receives are posted before the peer can send. Two
	 * buffers are enough, as one message at a time is under way. */
	if (create_qp(pd, cq, path.port_num, more.rx_depth, &qp, &max_inline))
		goto out;
	for (int i = 0; i < more.rx_depth; i++) {
		if (post_receive(qp, mr, i))
			goto out;
	}
	/* Inline, the CPU copies the message into the request, so that the
	 * device need not fetch it separately. */
	if ((uint32_t)opt.size <= max_inline)
		flags |= IBV_SEND_INLINE;

	/* 8. Exchange: the two queue pairs learn each other's address. */
	if (introduce(qp, &opt, &path, more.sl, &sock))
		goto out;

	/* 9. and 10. Transfer. With an ibv_rc_pingpong, sock is -1 by now. */
	pattern.own_kind = sock >= 0;
	if (transfer(qp, mr, table, &opt, &more, sock, &pattern, flags)) {
		port_explain(context, path.port_num);	/* is it down? */
		goto out;
	}

	/* The queue pair must live until the peer has our last ACK. */
	if (exchange_goodbye(sock) == 0)
		status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_destroy_comp_channel, channel);
	status |= RELEASE(ibv_dereg_mr, table);
	status |= RELEASE(ibv_dereg_mr, mr);
	free(pattern.table);
	free(buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
