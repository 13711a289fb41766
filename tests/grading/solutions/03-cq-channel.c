/*
 * exercise.c - a receiver that misses no message and does not spin
 *
 *	exercise HOST PORT COUNT
 *
 * A sensor far away sends COUNT messages, some in bursts, some after a long
 * silence, and each with a number. Your receiver must print every number, in
 * order, and use no CPU time while nothing comes. COUNT is at most ROOM: each
 * message uses up one of the ROOM receives that are posted at the start.
 *
 * Given: main(), a queue pair that is connected to the sensor, and take(),
 * which prints the number in a completion. You write the five bodies marked
 * TODO. main() calls the first three by hand for the first burst; your loop,
 * take_all(), takes all others.
 *
 * arm() prints CHECKPOINT arming and waits for Enter. Leave that before your
 * arming, because from the second time on the sensor sends while arm() waits
 * there. It sends the first burst while main() waits at CHECKPOINT armed. At
 * drained and clean nothing is sent: make check-03 looks at your program there.
 *
 *	make try-03	runs it with a sensor, and shows what both do
 *	make check-03	checks it
 *	make hint-03	helps
 *
 * See ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_ack_cq_events(3),
 * ibv_poll_cq(3). Chapters 04 and 05 explain the queue pair.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/options.h"

#define ROOM 256		/* receives that are posted, and completions */
#define TIMEOUT 10		/* seconds, to connect to the sensor */

/* What the receiver has, and what it has done so far. */
struct receiver {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int taken;		/* completions */
	unsigned int events;	/* taken, and not acknowledged yet */
};

/*
 * Given: print the number of a message, and count it in r->taken. The number is
 * the immediate value, 4 bytes that come with the completion, in network byte
 * order: see chapter 05. Returns 0, or -1 if the receive has failed.
 */
static int take(struct receiver *r, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		print_wc_error(wc, "a receive");
		return -1;
	}
	printf("got 0x%08x\n", ntohl(wc->imm_data));
	r->taken++;
	return 0;
}

/*
 * TODO 03.1: ask for one event when the next completion of any kind arrives.
 * Returns 0, or -1 after an error message. Read arm() in cq_channel.c first.
 */
static int arm(struct receiver *r)
{
	checkpoint("arming");
#ifdef STARTER
	return todo("03.1");
#else
	return failed(ibv_req_notify_cq(r->cq, 0), "ibv_req_notify_cq");
#endif
}

/*
 * TODO 03.2: sleep until there is an event, take it, and add 1 to r->events.
 * Leave the acknowledging to TODO 03.5. Returns 0, or -1 after an error
 * message. Read sleep_until_event() in cq_channel.c first. Leave out its
 * deadline, because the sensor may be silent for a long time: return 0 only
 * when you have taken an event.
 */
static int next_event(struct receiver *r)
{
#ifdef STARTER
	return todo("03.2");
#else
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(r->channel, &cq, &context)) {
		print_error(errno, "ibv_get_cq_event");
		return -1;
	}
	r->events++;
	return 0;
#endif
}

/*
 * TODO 03.3: poll until the queue is empty, and give each completion to take().
 * Returns 0, or -1 if a poll or a completion has failed. Read drain() in
 * cq_channel.c first.
 */
static int drain(struct receiver *r)
{
#ifdef STARTER
	return todo("03.3");
#else
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(r->cq, 1, &wc)) > 0)
		if (take(r, &wc))
			return -1;
	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	return n;
#endif
}

/*
 * TODO 03.4: call the three functions above, in the right order, until r->taken
 * is @count. The messages of the first burst are in r->taken already. A message
 * that comes just before you arm raises no event. Sleep while no message comes.
 * Returns 0, or -1 if one of the three functions returned -1. Read wait_for()
 * in cq_channel.c first.
 */
static int take_all(struct receiver *r, int count)
{
#ifdef STARTER
	return todo("03.4");
#else
	while (r->taken < count) {
		if (arm(r) || drain(r))
			return -1;
		if (r->taken < count && (next_event(r) || drain(r)))
			return -1;
	}
	return 0;
#endif
}

/*
 * TODO 03.5: acknowledge all events that were taken, because ibv_destroy_cq()
 * waits until they are. Use one call for all of them, because each call takes a
 * lock. sleep_until_event() in cq_channel.c acknowledges one event at a time.
 */
static void acknowledge(struct receiver *r)
{
#ifdef STARTER
	todo("03.5");
#else
	ibv_ack_cq_events(r->cq, r->events);
	r->events = 0;
#endif
}

/* Given: a queue pair with ROOM receives posted. NULL after a message. */
static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int port)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = ROOM },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port,
	};
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (missing(qp, "ibv_create_qp"))
		return NULL;
	if (failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
				 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		   "ibv_modify_qp(RESET -> INIT)"))
		goto fail;
	for (int i = 0; i < ROOM; i++)
		if (failed(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv"))
			goto fail;
	return qp;

fail:
	RELEASE(ibv_destroy_qp, qp);
	return NULL;
}

/* Given: exchange addresses with the sensor over TCP, and connect to it. */
static int connect_to_sender(struct ibv_qp *qp, int port_num, int sock)
{
	struct address local = { .qpn = qp->qp_num }, remote;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .is_global = 1, .port_num = port_num },
		.min_rnr_timer = 12,
	};
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;

	if (failed(ibv_query_port(qp->context, port_num, &port),
		   "ibv_query_port(%d)", port_num) ||
	    gid_choose(qp->context, port_num, &port, -1, &gid))
		return -1;
	local.gid = gid.gid;
	if (exchange_send_address(sock, &local) ||
	    exchange_receive_address(sock, &remote))
		return -1;

	attr.ah_attr.grh.dgid = remote.gid;
	attr.ah_attr.grh.sgid_index = gid.gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	attr.dest_qp_num = remote.qpn;
	attr.rq_psn = remote.psn;
	return failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
		      "ibv_modify_qp(INIT -> RTR)");
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_qp *qp = NULL;
	struct receiver r = { 0 };
	int sock = -1, port = 0, status = EXIT_FAILURE;

	start_output();
	if (argc != 4 || atoi(argv[3]) > ROOM) {
		fprintf(stderr, "usage: exercise HOST PORT COUNT\n"
				"COUNT: at most %d\n", ROOM);
		return EXIT_USAGE;
	}

	/* 1. Device, PD, channel and CQ, as in the chapter, and a QP. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, NULL, &port);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	r.channel = ibv_create_comp_channel(context);
	if (missing(r.channel, "ibv_create_comp_channel"))
		goto out;
	r.cq = ibv_create_cq(context, ROOM, NULL, r.channel, 0);
	if (missing(r.cq, "ibv_create_cq(%d)", ROOM))
		goto out;
	qp = create_qp(pd, r.cq, port);
	if (!qp)
		goto out;
	sock = exchange_connect(argv[1], atoi(argv[2]), TIMEOUT);
	if (sock < 0 || connect_to_sender(qp, port, sock))
		goto out;

	/* 2. The first burst by hand: arm, sleep, drain. */
	if (arm(&r))
		goto out;
	checkpoint("armed");
	if (next_event(&r))
		goto out;
	puts("awake");
	if (drain(&r))
		goto out;
	checkpoint("drained");

	/* 3. All others in the loop. */
	if (take_all(&r, atoi(argv[3])))
		goto out;
	puts("all");
	status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	if (r.cq)
		acknowledge(&r);
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, r.cq);
	status |= RELEASE(ibv_destroy_comp_channel, r.channel);
	checkpoint("clean");
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
