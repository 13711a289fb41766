/*
 * exercise.c - a loop that misses no completion, and does not spin
 *
 *	exercise HOST PORT COUNT
 *
 * Somebody at HOST sends COUNT messages, some of them at moments that are bad
 * for you: between the last look at the completion queue and the arming. Take
 * the first by hand: arm, sleep, poll. Take the others in a loop that sleeps
 * whenever there is nothing to do. Each message has a number with it, which
 * take() prints.
 *
 * arm() has a CHECKPOINT: it waits for Enter, so that messages can come just
 * then. Leave it there. Write the bodies marked TODO; make check-03 is the
 * sender. The queue pair is a prop here, which chapters 04 and 05 explain.
 *
 * See ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_ack_cq_events(3),
 * ibv_poll_cq(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/exercise.h"
#include "../common/gid.h"

#define EXIT_USAGE 2
#define EXIT_NO_DEVICE 77

#define ROOM 256		/* receives posted, and completions */
#define TIMEOUT 10		/* seconds, for the sender's next sign */

/* What there is, and what has been done. */
struct receiver {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int taken;		/* completions */
	unsigned int events;	/* got and not acknowledged yet */
};

/* Given: what one does with a completion. Returns 0, or -1 if it failed. */
static int take(struct receiver *r, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		print_error(0, "completion: %s (%d)",
			    ibv_wc_status_str(wc->status), wc->status);
		return -1;
	}
	printf("got 0x%08x\n", ntohl(wc->imm_data));
	r->taken++;
	return 0;
}

/* TODO 03.1: ask for one event, when any next completion arrives. */
static int arm(struct receiver *r)
{
	checkpoint("arming");
	(void)r;
	return todo("03.1");
}

/*
 * TODO 03.2: sleep until there is an event, get it, and count it in
 * r->events. Returns 0, or -1 if there was an error.
 */
static int next_event(struct receiver *r)
{
	(void)r;
	return todo("03.2");
}

/*
 * TODO 03.3: poll until the queue is empty and take() each completion.
 * Returns 0, or -1 if polling or a completion failed.
 */
static int drain(struct receiver *r)
{
	(void)r;
	(void)take;
	return todo("03.3");
}

/*
 * TODO 03.4: use the three above until @count completions were taken. Never
 * sleep when there is one in the queue; always sleep when there is none.
 */
static int take_all(struct receiver *r, int count)
{
	(void)r;
	(void)count;
	return todo("03.4");
}

/*
 * TODO 03.5: acknowledge all events that were got: without that,
 * ibv_destroy_cq() waits for ever.
 */
static void acknowledge(struct receiver *r)
{
	(void)r;
	todo("03.5");
}

/* Given, the prop: a queue pair that can receive ROOM messages. */
static struct ibv_qp *create_prop(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = ROOM },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		return NULL;
	errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
			      IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	for (int i = 0; i < ROOM && !errno; i++)
		errno = ibv_post_recv(qp, &wr, &bad_wr);
	if (!errno)
		return qp;
	ibv_destroy_qp(qp);
	return NULL;
}

/* Given: the sender's queue pair and ours get to know each other. */
static int introduce(struct ibv_qp *qp, int sock)
{
	struct address local = { .qpn = qp->qp_num }, remote;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .is_global = 1, .port_num = 1 },
		.min_rnr_timer = 12,
	};
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	int err;

	if (ibv_query_port(qp->context, 1, &port) ||
	    gid_find(qp->context, 1, &port, -1, &gid))
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
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		print_error(err, "ibv_modify_qp(RTR)");
	return err;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_qp *prop = NULL;
	struct receiver r = { 0 };
	int sock = -1, status = EXIT_FAILURE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 4) {
		fprintf(stderr, "usage: exercise HOST PORT COUNT\n");
		return EXIT_USAGE;
	}

	/* 1. What chapter 03 has made so far, and the prop. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		print_error(list ? 0 : errno, "no RDMA device");
		status = EXIT_NO_DEVICE;
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (context) {
		pd = ibv_alloc_pd(context);
		r.channel = ibv_create_comp_channel(context);
	}
	if (pd && r.channel)
		r.cq = ibv_create_cq(context, ROOM, NULL, r.channel, 0);
	if (r.cq)
		prop = create_prop(pd, r.cq);
	if (!prop) {
		print_error(errno, "a queue pair and what it needs");
		goto out;
	}
	sock = exchange_connect(argv[1], atoi(argv[2]), TIMEOUT);
	if (sock < 0 || introduce(prop, sock))
		goto out;

	/* 2. The first one by hand: arm, sleep, poll. */
	if (arm(&r))
		goto out;
	checkpoint("armed");
	if (next_event(&r))
		goto out;
	puts("awake");
	if (drain(&r))
		goto out;
	checkpoint("drained");

	/* 3. All the others. */
	if (take_all(&r, atoi(argv[3])))
		goto out;
	puts("all");
	status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	if (r.cq)
		acknowledge(&r);
	status |= RELEASE(ibv_destroy_qp, prop);
	status |= RELEASE(ibv_destroy_cq, r.cq);
	status |= RELEASE(ibv_destroy_comp_channel, r.channel);
	checkpoint("clean");
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
