/*
 * qp_states.c - two queue pairs on their way from RESET to RTS
 *
 * A queue pair is one end of a connection, and a new one is in the state
 * RESET. ibv_modify_qp() takes it through INIT and RTR (ready to receive) to
 * RTS (ready to send). Each of the three steps needs certain attributes; after
 * each, the program asks the device what it has set.
 *
 * New since chapter 03: the queue pair, which earlier programs have used
 * without explaining it. qp_errors.c sends messages between two such queue
 * pairs; qp_transitions.c tries the steps that are refused.
 *
 *	qp_states		on the first device with an ACTIVE port
 *	qp_states -p		wait for Enter after each step, so that you can
 *				look from outside: rdma -d resource show qp
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
 *	RTR -> RTS
 *	  STATE SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT
 *	  A: RTS, sq_psn 0x0a0a0a, rq_psn 0x0b0b0b, timeout 14, retry_cnt 6
 *	...
 *	released: ibv_free_device_list
 *
 * See ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_destroy_qp(3),
 * rdma-resource(8); IBTA volume 1, 10.3.1 queue pair states.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/names.h"
#include "../common/options.h"

/*
 * The requests that each queue has room for. The CQ has room for the
 * completions of all four queues.
 */
#define QUEUE_SIZE 2
#define CQ_SIZE (4 * QUEUE_SIZE)

struct options {
	const char *device;	/* NULL: the first with an ACTIVE port */
	int port;		/* 0: the first that is ACTIVE */
	int gid_index;		/* -1: choose one */
	bool pause;		/* after each step */
};

/* How packets get from one queue pair to the other. */
struct path {
	uint8_t port_num;	/* they leave and arrive at the same port */
	uint16_t lid;		/* its address on InfiniBand; 0 on RoCE */
	struct ibv_gid_entry gid;	/* its address on RoCE */
	enum ibv_mtu mtu;
};

/* One end of a connection. */
struct end {
	const char *name;
	uint32_t psn;		/* number of the first packet it sends */
	struct ibv_qp *qp;
	const struct end *peer;
	const struct path *path;
};

/* Create the queue pair of @end, in RESET. Returns 0, or -1 on error. */
static int create(struct end *end, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,		/* where sends complete */
		.recv_cq = cq,		/* where receives complete */
		.cap = {		/* at least this much is granted */
			.max_send_wr = QUEUE_SIZE,
			.max_recv_wr = QUEUE_SIZE,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,	/* reliable connection */
	};

	end->qp = ibv_create_qp(pd, &init);
	if (missing(end->qp, "ibv_create_qp(%s)", end->name))
		return -1;

	/* The verb has written into init.cap what the device grants. */
	printf("%s:       QPN 0x%06x, PSN 0x%06x, room for %u sends and "
	       "%u receives\n", end->name, end->qp->qp_num, end->psn,
	       init.cap.max_send_wr, init.cap.max_recv_wr);
	return 0;
}

/* Print the step that @end is about to make, and the bits of its mask. */
static void print_step(const struct end *end, enum ibv_qp_state to, int mask)
{
	printf("%s -> %s\n ", qp_state_name(end->qp->state),
	       qp_state_name(to));
	for (int i = 0; qp_attr_names[i].name; i++) {
		if (mask & qp_attr_names[i].bit)
			printf(" %s", qp_attr_names[i].name);
	}
	putchar('\n');
}

static int modify(const struct end *end, struct ibv_qp_attr *attr, int mask)
{
	if (failed(ibv_modify_qp(end->qp, attr, mask),
		   "ibv_modify_qp(%s, %s -> %s)", end->name,
		   qp_state_name(end->qp->state),
		   qp_state_name(attr->qp_state))) {
		print_hint("ibv_modify_qp(3) lists what each step needs; for "
			   "INIT -> RTR try another GID (-g N)");
		return -1;
	}
	return 0;
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | \
		   IBV_QP_ACCESS_FLAGS)

/* RESET -> INIT: attributes for which we need not know the peer. */
static int to_init(const struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,	/* the default partition */
		.port_num = end->path->port_num,
		.qp_access_flags = 0,	/* the peer may send, nothing else */
	};

	return modify(end, &attr, INIT_MASK);
}

#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | \
		  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

/* INIT -> RTR: attributes that the peer tells us, and how we receive. */
static int to_rtr(const struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {		/* the address vector, AV */
			.dlid = end->path->lid,
			.port_num = end->path->port_num,
			.is_global = !gid_is_zero(&end->path->gid.gid),
			.grh = {
				.dgid = end->path->gid.gid,
				.sgid_index = end->path->gid.gid_index,
				.hop_limit = 64, /* RoCE: the kernel chooses */
			},
		},
		.path_mtu = end->path->mtu,
		.dest_qp_num = end->peer->qp->qp_num,
		.rq_psn = end->peer->psn,
		.max_dest_rd_atomic = 1, /* READs and atomics that we serve */
		.min_rnr_timer = 12,	/* no receive: the peer waits 0.64 ms */
	};

	return modify(end, &attr, RTR_MASK);
}

#define RTS_MASK (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | \
		  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
		  IBV_QP_MAX_QP_RD_ATOMIC)

/* RTR -> RTS: how we send, and what happens if no ACK comes. */
static int to_rts(const struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = end->psn,
		.timeout = 14,		/* send again after 67 ms with no ACK */
		.retry_cnt = 6,		/* do so six times at most */
		.rnr_retry = 7,		/* no receive there: try for ever */
		.max_rd_atomic = 1,
	};

	return modify(end, &attr, RTS_MASK);
}

/* Ask the device for the state and for what the last step has set. */
static int show(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int mask = INIT_MASK | RTR_MASK | RTS_MASK;

	if (failed(ibv_query_qp(end->qp, &attr, mask, &init),
		   "ibv_query_qp(%s)", end->name))
		return -1;

	printf("  %s: %s", end->name, qp_state_name(attr.qp_state));
	if (attr.qp_state == IBV_QPS_INIT)
		printf(", port %d, pkey_index %d, access 0x%x", attr.port_num,
		       attr.pkey_index, attr.qp_access_flags);
	if (attr.qp_state == IBV_QPS_RTR)
		printf(", path_mtu %d, dest_qpn 0x%06x, rq_psn 0x%06x",
		       mtu_bytes(attr.path_mtu), attr.dest_qp_num,
		       attr.rq_psn);
	if (attr.qp_state == IBV_QPS_RTS)
		printf(", sq_psn 0x%06x, rq_psn 0x%06x, timeout %d, "
		       "retry_cnt %d", attr.sq_psn, attr.rq_psn, attr.timeout,
		       attr.retry_cnt);
	putchar('\n');
	return 0;
}

static void pause_after_step(bool wanted)
{
	if (wanted) {
		printf("pause: press Enter to go on\n");
		wait_for_enter();
	}
}

static int read_options(int argc, char *argv[], struct options *opt)
{
	const struct option_spec specs[] = {
		{ 'd', "ib-dev", "NAME",
		  "device (the first with an ACTIVE port)",
		  .text = &opt->device },
		{ 'i', "ib-port", "PORT",
		  "port of the device (the first ACTIVE)",
		  .number = &opt->port, .min = 1, .max = 255 },
		{ 'g', "gid-idx", "N", "index of the GID (the port's best)",
		  .number = &opt->gid_index, .min = 0,
		  .max = GID_INDEXES - 1 },
		{ 'p', "pause", NULL, "wait for Enter after each step",
		  .flag = &opt->pause },
		{ 0 }
	};

	return options_parse(argc, argv, specs, NULL, NULL);
}

int main(int argc, char *argv[])
{
	struct options opt = { .gid_index = -1 };
	struct ibv_device **list = NULL;
	struct ibv_device *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_port_attr port;
	struct path path;
	struct end a = { .name = "A", .psn = 0x0a0a0a, .path = &path };
	struct end b = { .name = "B", .psn = 0x0b0b0b, .path = &path };
	int status = EXIT_FAILURE;

	start_output();
	if (read_options(argc, argv, &opt))
		return EXIT_USAGE;

	/* 1. Device, port and GID: chapter 01. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, opt.device, &opt.port);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device"))
		goto out;
	if (failed(ibv_query_port(context, opt.port, &port),
		   "ibv_query_port(%d)", opt.port) ||
	    gid_choose(context, opt.port, &port, opt.gid_index, &path.gid))
		goto out;
	path.port_num = opt.port;
	path.lid = port.lid;
	path.mtu = port.active_mtu;
	printf("device:  %s, port %d, ACTIVE, MTU %d\n",
	       ibv_get_device_name(device), opt.port, mtu_bytes(path.mtu));
	gid_print(&path.gid, opt.gid_index < 0 ? "the port's best" :
		  "given with -g");

	/* 2. Protection domain and CQ: chapters 02 and 03. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, CQ_SIZE, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq(%d)", CQ_SIZE))
		goto out;

	/* 3. Two queue pairs in RESET. Each is to be the other's peer. */
	if (create(&a, pd, cq) || create(&b, pd, cq))
		goto out;
	a.peer = &b;
	b.peer = &a;
	if (show(&a) || show(&b))
		goto out;
	pause_after_step(opt.pause);

	/* 4. RESET -> INIT. */
	print_step(&a, IBV_QPS_INIT, INIT_MASK);
	if (to_init(&a) || to_init(&b) || show(&a) || show(&b))
		goto out;
	pause_after_step(opt.pause);

	/* 5. INIT -> RTR. */
	print_step(&a, IBV_QPS_RTR, RTR_MASK);
	if (to_rtr(&a) || to_rtr(&b) || show(&a) || show(&b))
		goto out;
	pause_after_step(opt.pause);

	/* 6. RTR -> RTS. */
	print_step(&a, IBV_QPS_RTS, RTS_MASK);
	if (to_rts(&a) || to_rts(&b) || show(&a) || show(&b))
		goto out;
	pause_after_step(opt.pause);
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, b.qp);
	status |= RELEASE(ibv_destroy_qp, a.qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
