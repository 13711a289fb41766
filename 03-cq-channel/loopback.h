/*
 * loopback.h - something that completes: a queue pair connected to itself
 *
 * A queue pair (QP) is one end of a connection, as a socket is. This one is
 * both ends: it receives what it sends. Chapter 00 did the same with a single
 * message, and chapter 04 explains every line of this file. Until then you
 * need no more than the three calls at the end:
 *
 *	loopback_create()	makes the QP
 *	loopback_send()		sends messages, each of which makes a completion
 *	loopback_destroy()	releases the QP
 *
 * To be exact, a message makes two completions: one for its receive and one
 * for its send. The receives complete in your CQ. The sends complete in a
 * second CQ, which only this file uses, so that your CQ gets exactly one
 * completion for each message.
 */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <errno.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/error.h"
#include "../common/gid.h"

/* A message to oneself takes well below a millisecond. */
#define LOOPBACK_DEADLINE_MS 3000

/*
 * Room for receives. A receive may keep its place until its completion has been
 * taken from your CQ. So you can send this many messages before you poll, and
 * no more than your CQ has room for.
 */
#define LOOPBACK_ROOM 64

/* Owned by the caller, who sets it to { 0 } first. */
struct loopback {
	struct ibv_cq *send_cq;
	struct ibv_qp *qp;
	int sent;		/* messages */
};

/* Take @qp from the state RESET to RTS, with itself as its peer. */
static inline int loopback_connect(struct ibv_qp *qp, int port_num)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port_num,
		.dest_qp_num = qp->qp_num,
		.ah_attr = { .port_num = port_num },
		.timeout = 14,		/* send again after 67 ms with no ACK */
		.retry_cnt = 6,		/* do so six times at most */
		.min_rnr_timer = 12,	/* no receive: again after 0.64 ms */
		.rnr_retry = 6,		/* do so six times at most */
	};
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;

	if (failed(ibv_query_port(qp->context, port_num, &port),
		   "ibv_query_port(%d)", port_num) ||
	    gid_choose(qp->context, port_num, &port, -1, &gid))
		return -1;
	attr.path_mtu = port.active_mtu;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.is_global = !gid_is_zero(&gid.gid);
	attr.ah_attr.grh.dgid = gid.gid;
	attr.ah_attr.grh.sgid_index = gid.gid_index;
	attr.ah_attr.grh.hop_limit = 64;

	if (failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
				 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		   "ibv_modify_qp(RESET -> INIT)"))
		return -1;

	attr.qp_state = IBV_QPS_RTR;
	if (failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				 IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp(INIT -> RTR)"))
		return -1;

	attr.qp_state = IBV_QPS_RTS;
	return failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
				    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/*
 * Wait until a send has completed, which means that the receiving device has
 * the message. Returns 0 if it succeeded, or -1 after an error message.
 */
static inline int loopback_wait_sent(struct loopback *loop)
{
	long long start = clock_ns(CLOCK_MONOTONIC);
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(loop->send_cq, 1, &wc);
	} while (n == 0 && clock_ns(CLOCK_MONOTONIC) - start <
			   LOOPBACK_DEADLINE_MS * NS_PER_MS);

	if (n == 0) {
		print_error(ETIMEDOUT, "message %d did not arrive in %d ms",
			    loop->sent, LOOPBACK_DEADLINE_MS);
		print_hint("is the device still there? make run-01 shows it");
	} else if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
	} else if (wc.status != IBV_WC_SUCCESS) {
		print_wc_error(&wc, "the send of a message to ourselves");
	}
	return n == 1 && wc.status == IBV_WC_SUCCESS ? 0 : -1;
}

/*
 * Make a QP that is connected to itself through port @port_num, and whose
 * receives complete in @cq. Returns 0, or -1 after an error message; call
 * loopback_destroy() in both cases.
 */
static inline int loopback_create(struct loopback *loop, struct ibv_pd *pd,
				  struct ibv_cq *cq, int port_num)
{
	struct ibv_qp_init_attr init = {
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = LOOPBACK_ROOM },
		.qp_type = IBV_QPT_RC,
	};

	loop->send_cq = ibv_create_cq(pd->context, 1, NULL, NULL, 0);
	if (missing(loop->send_cq, "ibv_create_cq(1)"))
		return -1;

	init.send_cq = loop->send_cq;
	loop->qp = ibv_create_qp(pd, &init);
	if (missing(loop->qp, "ibv_create_qp"))
		return -1;
	return loopback_connect(loop->qp, port_num);
}

/*
 * Send @count empty messages, one after the other. Their receives have the
 * wr_id 1, 2, 3 and so on, over all calls. Returns 0 when the device has
 * acknowledged the last one, or -1 after an error message. On Soft-RoCE all
 * completions are in the CQ by then; on an adapter they may come a bit later.
 */
static inline int loopback_send(struct loopback *loop, int count)
{
	struct ibv_recv_wr receive = { 0 }, *bad_receive;
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;

	while (count-- > 0) {
		receive.wr_id = ++loop->sent;
		if (failed(ibv_post_recv(loop->qp, &receive, &bad_receive),
			   "ibv_post_recv") ||
		    failed(ibv_post_send(loop->qp, &send, &bad_send),
			   "ibv_post_send") ||
		    loopback_wait_sent(loop))
			return -1;
	}
	return 0;
}

/* Release the QP and its CQ, as far as they exist. 0, or 1 after an error. */
static inline int loopback_destroy(struct loopback *loop)
{
	int status = RELEASE(ibv_destroy_qp, loop->qp);

	return status | RELEASE(ibv_destroy_cq, loop->send_cq);
}

#endif
