/*
 * qp_states.c - a queue pair's states, and how to get from one to another
 *
 * A queue pair is born in RESET. ibv_modify_qp() takes it by INIT and RTR
 * (ready to receive) to RTS (ready to send), and wants certain attributes at
 * each step. What fails puts it into ERR; out of there, it must begin again.
 *
 * New since chapter 03: the queue pair, which was a prop there. Two of them in
 * one process connect to each other, and a message goes through. A third one
 * tries all that the device refuses.
 *
 *	qp_states		on the first device with an ACTIVE port
 *	qp_states -p		wait for Enter after each step, to look from the
 *				outside: rdma -d resource show qp
 *
 *	$ qp_states
 *	device:  rxe_0, port 1, ACTIVE, MTU 1024
 *	GID:     index 1, ::ffff:10.9.0.1, RoCE v2 from IPv4, the port's best
 *	A:       QPN 0x000011, PSN 0x0a0a0a, room for 2 sends and 2 receives
 *	B:       QPN 0x000012, PSN 0x0b0b0b, room for 2 sends and 2 receives
 *	...
 *	RESET -> INIT
 *	  STATE PKEY_INDEX PORT ACCESS_FLAGS
 *	  A: INIT, port 1, pkey_index 0, access 0x0
 *	...
 *	INIT -> RTR
 *	  STATE AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
 *	  A: RTR, path_mtu 1024, dest_qpn 0x000012, rq_psn 0x0b0b0b
 *	...
 *	a message:
 *	  B: receive, success (status 0)
 *	  A: send, success (status 0)
 *	  B has received "Hello B, this is A"
 *	...
 *	C tries, with something missing or wrong:
 *	  RESET -> INIT without PKEY_INDEX         EINVAL
 *	...
 *	  INIT  -> RTR  sgid_index 255             ENODATA
 *	  INIT  -> RTR  path_mtu 4096, not 1024    accepted
 *	all pairs (state alone, or with attrs; !: the specification differs)
 *	  from/to  RESET   INIT    RTR    RTS    SQD    SQE    ERR
 *	  RESET    state  attrs      -      -      -      -     !-
 *	...
 *	ERR: A uses a wrong lkey, and its next send is flushed
 *	  A: send, local QP operation error (status 2)
 *	  A: send, Work Request Flushed Error (status 5)
 *	...
 *	released: ibv_free_device_list
 *
 * See ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3),
 * ibv_post_recv(3), ibv_post_send(3), rdma-resource(8); IBTA volume 1, 10.3.1
 * queue pair states.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/gid.h"
#include "../common/options.h"

/* Work requests in each queue, and so at most completions: of two pairs. */
#define QUEUE_SIZE 2
#define CQ_SIZE (2 * 2 * QUEUE_SIZE)

/* All that tells what a failed completion was: ibv_poll_cq(3). */
#define WRID_RECEIVE 1
#define WRID_SEND 2

#define MESSAGE_SIZE 64		/* bytes; a packet can have 256 at least */
#define DEADLINE 3		/* of every wait, in seconds */

/* No device has such a port, or a GID at this index. */
#define NOT_THERE 255

static const char *const state_names[] = {
	[IBV_QPS_RESET] = "RESET",
	[IBV_QPS_INIT] = "INIT",
	[IBV_QPS_RTR] = "RTR",
	[IBV_QPS_RTS] = "RTS",
	[IBV_QPS_SQD] = "SQD",
	[IBV_QPS_SQE] = "SQE",
	[IBV_QPS_ERR] = "ERR",
	[IBV_QPS_UNKNOWN] = "unknown",
};

/* The bits of the masks below, in the order of ibv_modify_qp(3). */
static const struct {
	int bit;
	const char *name;
} attribute_names[] = {
	{ IBV_QP_STATE, "STATE" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ 0, NULL },
};

struct options {
	const char *device;	/* NULL: the first with an ACTIVE port */
	int ib_port;		/* 0: the first that is ACTIVE */
	int gid_index;		/* -1: choose one */
	bool pause;		/* after each step */
};

/* The way from one queue pair to the other: out of the port, and back in. */
struct path {
	uint8_t port;
	uint16_t lid;		/* where InfiniBand has no GID */
	struct ibv_gid_entry gid;
	enum ibv_mtu mtu;
};

/* One end of a connection. */
struct end {
	const char *name;
	uint32_t psn;		/* of the first packet it sends, 24 bits */
	struct ibv_qp *qp;
	const struct end *peer;
	const struct path *path;
};

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
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

/* RESET -> INIT: it belongs to a port. Returns the mask, as do the others. */
static int init_attributes(const struct end *end, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,	/* the default partition */
		.port_num = end->path->port,
		.qp_access_flags = 0,	/* nothing, but for messages */
	};
	return IBV_QP_STATE |
	       IBV_QP_PKEY_INDEX |	/* the partition it is in */
	       IBV_QP_PORT |		/* the port it uses */
	       IBV_QP_ACCESS_FLAGS;	/* what the peer may do to our memory */
}

/* INIT -> RTR: it knows its peer, and can receive. */
static int rtr_attributes(const struct end *end, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {
			.dlid = end->path->lid,
			.port_num = end->path->port,
			.is_global = !gid_is_zero(&end->path->gid.gid),
			.grh = {	/* global route header: the GIDs */
				.dgid = end->path->gid.gid,
				.sgid_index = end->path->gid.gid_index,
				.hop_limit = 64, /* routers on the way */
			},
		},
		.path_mtu = end->path->mtu,
		.dest_qp_num = end->peer->qp->qp_num,
		.rq_psn = end->peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,	/* 0.64 ms */
	};
	return IBV_QP_STATE |
	       IBV_QP_AV |		/* the way to the peer: its address */
	       IBV_QP_PATH_MTU |	/* the largest packet on it */
	       IBV_QP_DEST_QPN |	/* the peer's queue pair number */
	       IBV_QP_RQ_PSN |		/* its first packet's number */
	       IBV_QP_MAX_DEST_RD_ATOMIC | /* its reads of our memory at once */
	       IBV_QP_MIN_RNR_TIMER;	/* its pause, if we can't receive yet */
}

/* RTR -> RTS: it can send, too, and cope with loss. */
static int rts_attributes(const struct end *end, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = end->psn,
		.max_rd_atomic = 1,
		.retry_cnt = 6,		/* 7 is "for ever" to Soft-RoCE */
		.rnr_retry = 7,		/* for ever */
		.timeout = 14,		/* 4.096 us * 2^14 = 67 ms */
	};
	return IBV_QP_STATE |
	       IBV_QP_SQ_PSN |		/* our first packet's number */
	       IBV_QP_MAX_QP_RD_ATOMIC | /* our reads of its memory at once */
	       IBV_QP_RETRY_CNT |	/* how often we send again, */
	       IBV_QP_RNR_RETRY |	/* and if it couldn't receive yet, */
	       IBV_QP_TIMEOUT;		/* when no ACK comes for so long */
}

/* What a queue pair needs to enter the state @to, however it is meant. */
static int attributes(const struct end *end, enum ibv_qp_state to,
		      struct ibv_qp_attr *attr)
{
	switch (to) {
	case IBV_QPS_INIT:
		return init_attributes(end, attr);
	case IBV_QPS_RTR:
		return rtr_attributes(end, attr);
	case IBV_QPS_RTS:
		return rts_attributes(end, attr);
	default:
		*attr = (struct ibv_qp_attr){ .qp_state = to };
		return IBV_QP_STATE;
	}
}

static int modify(const struct end *end, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr;
	int mask = attributes(end, to, &attr);
	int err = ibv_modify_qp(end->qp, &attr, mask);

	if (err) {
		print_error(err, "ibv_modify_qp(%s, %s -> %s)", end->name,
			    state_names[end->qp->state], state_names[to]);
		print_hint("dmesg may know more; make run-01 shows ports and "
			   "GIDs, and -g takes another GID");
	}
	return err;
}

/* Ask the device in which state it is, and for what its last step has set. */
static int show(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(end->qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			       IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MTU |
			       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
			       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT, &init);

	if (err) {
		print_error(err, "ibv_query_qp(%s)", end->name);
		return err;
	}

	printf("  %s: %s", end->name, state_names[attr.qp_state]);
	switch (attr.qp_state) {
	case IBV_QPS_INIT:
		printf(", port %d, pkey_index %d, access 0x%x", attr.port_num,
		       attr.pkey_index, attr.qp_access_flags);
		break;
	case IBV_QPS_RTR:
		printf(", path_mtu %d, dest_qpn 0x%06x, rq_psn 0x%06x",
		       128 << attr.path_mtu, attr.dest_qp_num, attr.rq_psn);
		break;
	case IBV_QPS_RTS:
		printf(", sq_psn 0x%06x, rq_psn 0x%06x, timeout %d, "
		       "retry_cnt %d", attr.sq_psn, attr.rq_psn, attr.timeout,
		       attr.retry_cnt);
		break;
	default:
		break;
	}
	putchar('\n');
	return 0;
}

/* Take both ends one step further, and show it. */
static int step(const struct end *a, const struct end *b,
		enum ibv_qp_state to)
{
	struct ibv_qp_attr unused;
	int mask = attributes(a, to, &unused);

	printf("%s -> %s\n ", state_names[a->qp->state], state_names[to]);
	for (int i = 0; attribute_names[i].name; i++)
		if (mask & attribute_names[i].bit)
			printf(" %s", attribute_names[i].name);
	putchar('\n');

	return modify(a, to) || modify(b, to) || show(a) || show(b);
}

static int post_receive(const struct end *end, struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = {
		.wr_id = WRID_RECEIVE,
		.sg_list = sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad_wr;
	int err = ibv_post_recv(end->qp, &wr, &bad_wr);

	if (err)
		print_error(err, "ibv_post_recv(%s)", end->name);
	return err;
}

static int post_send(const struct end *end, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {
		.wr_id = WRID_SEND,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad_wr;
	int err = ibv_post_send(end->qp, &wr, &bad_wr);

	if (err)
		print_error(err, "ibv_post_send(%s)", end->name);
	return err;
}

/* Print @n completions of these two. Returns 0 if all came in time. */
static int completions(struct ibv_cq *cq, const struct end *a,
		       const struct end *b, int n)
{
	time_t start = seconds();
	struct ibv_wc wc;

	while (n > 0 && seconds() - start <= DEADLINE) {
		int found = ibv_poll_cq(cq, 1, &wc);

		if (found < 0) {
			print_error(0, "ibv_poll_cq returned %d", found);
			return -1;
		}
		if (found == 0)
			continue;

		n--;
		printf("  %s: %s, %s (status %d)\n",
		       wc.qp_num == a->qp->qp_num ? a->name : b->name,
		       wc.wr_id == WRID_SEND ? "send" : "receive",
		       ibv_wc_status_str(wc.status), wc.status);
	}

	if (n > 0) {
		print_error(ETIMEDOUT, "%d completions did not come", n);
		print_hint("is the port ACTIVE? are there receives? "
			   "do the PSNs agree?");
	}
	return n;
}

/* Send @text from @a to @b, through the two halves of the buffer. */
static int send_message(struct ibv_cq *cq, struct ibv_mr *mr,
			const struct end *a, const struct end *b,
			const char *text)
{
	char *out = mr->addr, *in = out + MESSAGE_SIZE;
	struct ibv_sge out_sge = { (uintptr_t)out, MESSAGE_SIZE, mr->lkey };
	struct ibv_sge in_sge = { (uintptr_t)in, MESSAGE_SIZE, mr->lkey };

	printf("a message:\n");
	snprintf(out, MESSAGE_SIZE, "%s", text);
	memset(in, 0, MESSAGE_SIZE);
	if (post_receive(b, &in_sge) || post_send(a, &out_sge) ||
	    completions(cq, a, b, 2))
		return -1;

	if (memcmp(in, out, MESSAGE_SIZE) != 0) {
		print_error(0, "%s has not received what %s sent", b->name,
			    a->name);
		print_hint("the lines above say which request failed");
		return -1;
	}
	printf("  %s has received \"%s\"\n", b->name, in);
	/* One packet each: the PSNs have moved. */
	return show(a) || show(b);
}

/* Take it over RESET to a state, by the shortest way. */
static int bring(const struct end *end, enum ibv_qp_state to)
{
	enum ibv_qp_state last = to == IBV_QPS_ERR ? IBV_QPS_INIT : to;
	struct ibv_qp_attr attr = { .sq_draining = to == IBV_QPS_SQD };
	struct ibv_qp_init_attr init;
	time_t start = seconds();
	int err = 0;

	/* While it drains, newer kernels let it leave SQD for ERR only. */
	if (end->qp->state == IBV_QPS_SQD)
		err = modify(end, IBV_QPS_ERR);
	for (int state = IBV_QPS_RESET; state <= (int)last && !err; state++)
		err = modify(end, state);
	if (to == IBV_QPS_ERR && !err)
		err = modify(end, to);

	/* From SQD, sends being done, it goes on when they are done. */
	while (!err && attr.sq_draining && seconds() - start <= DEADLINE) {
		err = ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init);
		if (err)
			print_error(err, "ibv_query_qp(%s)", end->name);
	}
	return err;
}

/* Try a step with these attributes; print what comes of it. */
static int attempt(const struct end *end, enum ibv_qp_state from,
		   struct ibv_qp_attr *attr, int mask, const char *what)
{
	int err = bring(end, from);

	if (err)
		return err;

	err = ibv_modify_qp(end->qp, attr, mask);
	printf("  %-5s -> %-4s %-26s %s\n", state_names[from],
	       state_names[attr->qp_state], what,
	       err ? strerrorname_np(err) : "accepted");
	return 0;
}

/* Leave out what a step needs, and then ask for what isn't there. */
static int refusals(const struct end *end)
{
	struct ibv_qp_attr attr;
	char what[32];
	int mask, err = 0;

	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		mask = attributes(end, to, &attr);
		for (int i = 1; attribute_names[i].name; i++) {
			int bit = attribute_names[i].bit;

			if (!(mask & bit))
				continue;
			snprintf(what, sizeof(what), "without %s",
				 attribute_names[i].name);
			err |= attempt(end, to - 1, &attr, mask & ~bit, what);
		}
	}

	mask = init_attributes(end, &attr);
	attr.port_num = NOT_THERE;
	err |= attempt(end, IBV_QPS_RESET, &attr, mask, "port_num 255");

	mask = rtr_attributes(end, &attr);
	attr.ah_attr.is_global = 0;
	err |= attempt(end, IBV_QPS_INIT, &attr, mask, "is_global 0");

	mask = rtr_attributes(end, &attr);
	attr.ah_attr.grh.sgid_index = NOT_THERE;
	err |= attempt(end, IBV_QPS_INIT, &attr, mask, "sgid_index 255");

	mask = rtr_attributes(end, &attr);
	attr.path_mtu = IBV_MTU_4096;
	snprintf(what, sizeof(what), "path_mtu 4096, not %d",
		 128 << end->path->mtu);
	if (end->path->mtu < attr.path_mtu)
		err |= attempt(end, IBV_QPS_INIT, &attr, mask, what);
	return err;
}

/*
 * From every state to every other: with the state alone, or with attributes?
 * Only the device takes a queue pair to SQE, and never one of type RC. And it
 * is Linux, not the device, that refuses RESET -> ERR.
 */
static int all_pairs(const struct end *end)
{
	/* IBTA 10.3.1, with a column for each state, in the same order. */
	static const char specified[][8] = {
		[IBV_QPS_RESET] = "yy----y",
		[IBV_QPS_INIT] = "yyy---y",
		[IBV_QPS_RTR] = "y--y--y",
		[IBV_QPS_RTS] = "y--yy-y",
		[IBV_QPS_SQD] = "y--yy-y",
		[IBV_QPS_SQE] = "",
		[IBV_QPS_ERR] = "y-----y",
	};
	struct ibv_qp_attr attr;

	printf("  %-7s", "from/to");
	for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
		printf(" %6s", state_names[to]);
	putchar('\n');

	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		if (!*specified[from])
			continue;

		printf("  %-7s", state_names[from]);
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			int mask = attributes(end, to, &attr);
			const char *taken = "-";
			bool differs;

			if (bring(end, from))
				return -1;
			if (!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE))
				taken = "state";
			else if (!ibv_modify_qp(end->qp, &attr, mask))
				taken = "attrs";
			differs = (*taken == '-') !=
				  (specified[from][to] == '-');
			printf(" %*s%s", 6 - (int)strlen(taken),
			       differs ? "!" : "", taken);
		}
		putchar('\n');
	}
	return 0;
}

/* Time to look: rdma -d resource show qp. The end of the input goes on, too. */
static void pause_if(bool wanted)
{
	int c;

	if (!wanted)
		return;
	printf("pause: Enter goes on\n");
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

int main(int argc, char *argv[])
{
	struct options opt = { .gid_index = -1 };
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME",
		  "device (the first with an ACTIVE port)",
		  .text = &opt.device },
		{ 'i', "ib-port", "PORT",
		  "port of the device (the first ACTIVE)",
		  .number = &opt.ib_port, .min = 1, .max = 255 },
		{ 'g', "gid-idx", "N", "index of the GID (the port's best)",
		  .number = &opt.gid_index, .min = 0, .max = 255 },
		{ 'p', "pause", NULL, "wait for Enter after each step",
		  .flag = &opt.pause },
		{ 0 }
	};
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_port_attr port;
	struct path path;
	/* A and B are each other's peers; C is its own. */
	struct end a = { .name = "A", .psn = 0x0a0a0a, .path = &path };
	struct end b = { .name = "B", .psn = 0x0b0b0b, .path = &path };
	struct end c = { .name = "C", .psn = 0x0c0c0c, .path = &path };
	struct end *ends[] = { &a, &b, &c };
	struct ibv_sge good, bad;
	char buf[2 * MESSAGE_SIZE] = "";
	int status = EXIT_FAILURE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, port and GID: chapter 01. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = open_device(list, &opt, &port);
	if (!context)
		goto out;
	printf("device:  %s, port %d, ACTIVE, MTU %d\n",
	       ibv_get_device_name(context->device), opt.ib_port,
	       128 << port.active_mtu);
	path.port = opt.ib_port;
	path.lid = port.lid;
	path.mtu = port.active_mtu;
	if (gid_find(context, opt.ib_port, &port, opt.gid_index, &path.gid))
		goto out;

	/* 2. Protection domain, memory region, CQ: chapters 02 and 03. */
	pd = ibv_alloc_pd(context);
	if (!pd) {
		print_error(errno, "ibv_alloc_pd");
		goto out;
	}
	mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		print_error(errno, "ibv_reg_mr(%zu bytes)", sizeof(buf));
		print_hint("ulimit -l limits what a user can register");
		goto out;
	}
	cq = ibv_create_cq(context, CQ_SIZE, NULL, NULL, 0);
	if (!cq) {
		print_error(errno, "ibv_create_cq(%d)", CQ_SIZE);
		goto out;
	}

	/* 3. Three queue pairs, in RESET. */
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {
				.max_send_wr = QUEUE_SIZE,
				.max_recv_wr = QUEUE_SIZE,
				.max_send_sge = 1,
				.max_recv_sge = 1,
			},
			.qp_type = IBV_QPT_RC,	/* reliable connection */
		};

		ends[i]->qp = ibv_create_qp(pd, &init);
		if (!ends[i]->qp) {
			print_error(errno, "ibv_create_qp(%s)", ends[i]->name);
			goto out;
		}
		/* The device may grant more, and has told us in init. */
		printf("%s:       QPN 0x%06x, PSN 0x%06x, "
		       "room for %u sends and %u receives\n",
		       ends[i]->name, ends[i]->qp->qp_num, ends[i]->psn,
		       init.cap.max_send_wr, init.cap.max_recv_wr);
	}
	a.peer = &b;
	b.peer = &a;
	c.peer = &c;
	if (show(&a) || show(&b))
		goto out;
	pause_if(opt.pause);

	/* 4. to 6. RESET -> INIT -> RTR -> RTS. */
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
		if (step(&a, &b, to))
			goto out;
		pause_if(opt.pause);
	}

	/* 7. A message. */
	if (send_message(cq, mr, &a, &b, "Hello B, this is A"))
		goto out;
	pause_if(opt.pause);

	/* 8. What C tries in vain, and where it can go from where. */
	printf("C tries, with something missing or wrong:\n");
	if (refusals(&c))
		goto out;
	printf("all pairs (state alone, or with attrs; "
	       "!: the specification differs)\n");
	if (all_pairs(&c))
		goto out;

	/*
	 * 9. ERR: A by a mistake, B because it is told to. The mistake is a
	 * LOC_PROT_ERR by the specification, but rxe says LOC_QP_OP_ERR.
	 */
	good = (struct ibv_sge){ (uintptr_t)buf, MESSAGE_SIZE, mr->lkey };
	bad = good;
	bad.lkey++;
	printf("ERR: A uses a wrong lkey, and its next send is flushed\n");
	if (post_send(&a, &bad) || post_send(&a, &good) ||
	    completions(cq, &a, &b, 2))
		goto out;
	printf("ERR: B is told to, and its two receives are flushed\n");
	if (post_receive(&b, &good) || post_receive(&b, &good) ||
	    modify(&b, IBV_QPS_ERR) || completions(cq, &a, &b, 2) ||
	    show(&a) || show(&b))
		goto out;
	pause_if(opt.pause);

	/* 10. Back to RESET, where all is forgotten, and to RTS again. */
	for (int to = IBV_QPS_RESET; to <= IBV_QPS_RTS; to++) {
		if (step(&a, &b, to))
			goto out;
	}
	pause_if(opt.pause);
	if (send_message(cq, mr, &a, &b, "Hello again"))
		goto out;
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, c.qp);
	status |= RELEASE(ibv_destroy_qp, b.qp);
	status |= RELEASE(ibv_destroy_qp, a.qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, mr);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
