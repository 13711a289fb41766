/*
 * hello.c - one message, from a queue pair to itself
 *
 * Makes one object of every kind that a message needs, sends "hello", and
 * releases everything. Each comment names the chapter that explains the step.
 *
 *	$ hello
 *	device:  rxe_0, port 1
 *	GID:     index 1, ::ffff:10.9.0.1, RoCE v2 from IPv4, the port's best
 *	memory:  32 bytes, registered
 *	QP:      number 0x000011, connected to itself
 *	receive: success, 5 bytes arrived: hello
 *	send:    success
 *	released: ibv_destroy_qp
 *	released: ibv_destroy_cq
 *	released: ibv_dereg_mr
 *	released: ibv_dealloc_pd
 *	released: ibv_close_device
 *	released: ibv_free_device_list
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/options.h"

#define DEADLINE_MS 3000	/* far more than this message takes */

/* Our numbers for the requests. The wr_id of a completion is one of them. */
enum { RECEIVE = 1, SEND };

/* What the device reads and what it writes. */
struct memory {
	char to_send[16];
	char arrived[16];
};

/*
 * Connect @qp to itself: from the state RESET to RTS. Returns 0, or -1 after
 * an error message. Chapter 04.
 */
static int connect_to_itself(struct ibv_qp *qp, int port_num,
			     const struct ibv_port_attr *port,
			     const struct ibv_gid_entry *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port_num,
		.dest_qp_num = qp->qp_num,
		.ah_attr = { .port_num = port_num, .dlid = port->lid,
			     .is_global = !gid_is_zero(&gid->gid),
			     .grh = { .dgid = gid->gid, .hop_limit = 64,
				      .sgid_index = gid->gid_index } },
		.path_mtu = port->active_mtu,
		/* timeout and min_rnr_timer are codes, not milliseconds. */
		.timeout = 14,		/* send again after 67 ms with no ACK */
		.retry_cnt = 6,		/* do so six times at most */
		.min_rnr_timer = 12,	/* no receive: again after 0.64 ms */
		.rnr_retry = 3,		/* do so three times at most */
	};

	if (failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
				 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
		   "ibv_modify_qp(RESET -> INIT)"))
		return -1;

	attr.qp_state = IBV_QPS_RTR;	/* ready to receive */
	if (failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				 IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp(INIT -> RTR)"))
		return -1;

	attr.qp_state = IBV_QPS_RTS;	/* ready to send */
	return failed(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
				    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/*
 * Post a receive: the next message goes to @to. ibv_post_recv() takes a list
 * of requests, here of one. If it refuses one, bad points to that. Returns 0,
 * or -1 after an error message. Chapter 04.
 */
static int post_receive(struct ibv_qp *qp, void *to, size_t size, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = size,
			       .lkey = lkey };
	struct ibv_recv_wr *bad, wr = {
		.wr_id = RECEIVE, .sg_list = &sge, .num_sge = 1,
	};

	return failed(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

/*
 * Post a send of the @size bytes at @from, as one message. Returns 0, or -1
 * after an error message. Chapter 04.
 */
static int post_send(struct ibv_qp *qp, void *from, size_t size, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from, .length = size,
			       .lkey = lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	return failed(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/*
 * Wait for one completion, and put it into *@wc. Returns 0 if its status is
 * success. Otherwise, or after DEADLINE_MS, prints an error and returns -1.
 * Chapter 03.
 */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	long long start = clock_ns(CLOCK_MONOTONIC);
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
	} while (n == 0 && clock_ns(CLOCK_MONOTONIC) - start <
			   DEADLINE_MS * NS_PER_MS);

	if (n == 0)
		print_error(0, "no completion within %d ms", DEADLINE_MS);
	else if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	else if (wc->status != IBV_WC_SUCCESS)
		print_wc_error(wc, wc->wr_id == SEND ? "send" : "receive");
	return n == 1 && wc->status == IBV_WC_SUCCESS ? 0 : -1;
}

int main(int argc, char *argv[])
{
	static const struct option_spec no_options[] = { { 0 } };
	struct memory memory = { .to_send = "hello" };
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_qp_init_attr qp_init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,	/* reliable, connected */
	};
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_wc wc;
	int port_num = 0, status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, no_options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. A device, one of its ports, and its address. Chapter 01. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	/* The first with an ACTIVE port; port_num gets that port's number. */
	device = device_choose(list, NULL, &port_num);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, port_num, &port), "ibv_query_port"))
		goto out;
	printf("device:  %s, port %d\n", ibv_get_device_name(device), port_num);
	/* No index is given (-1), so the best GID is chosen. */
	if (gid_choose(context, port_num, &port, -1, &gid))
		goto out;
	gid_print(&gid, "the port's best");

	/* 2. Memory that the device may read and write. Chapter 02. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	mr = ibv_reg_mr(pd, &memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	if (missing(mr, "ibv_reg_mr(%zu bytes)", sizeof(memory)))
		goto out;
	printf("memory:  %zu bytes, registered\n", mr->length);

	/* 3. A queue for the two completions. Chapter 03. */
	cq = ibv_create_cq(context, 2, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;

	/* 4. A queue pair: room for one send and one receive. Chapter 04. */
	qp_init.send_cq = cq;
	qp_init.recv_cq = cq;
	qp = ibv_create_qp(pd, &qp_init);
	if (missing(qp, "ibv_create_qp"))
		goto out;

	/* 5. The connection, with itself in place of a peer. Chapter 04. */
	if (connect_to_itself(qp, port_num, &port, &gid))
		goto out;
	printf("QP:      number 0x%06x, connected to itself\n", qp->qp_num);

	/* 6. First a place for the message, then the message. Chapter 04. */
	if (post_receive(qp, memory.arrived, sizeof(memory.arrived),
			 mr->lkey) ||
	    post_send(qp, memory.to_send, strlen(memory.to_send), mr->lkey))
		goto out;

	/* 7. Two completions, one for each request. Chapter 03. */
	for (int i = 0; i < 2; i++) {
		if (next_completion(cq, &wc))
			goto out;
		if (wc.wr_id == SEND)
			printf("send:    success\n");
		else
			printf("receive: success, %u bytes arrived: %.*s\n",
			       wc.byte_len, (int)wc.byte_len, memory.arrived);
	}
	status = EXIT_SUCCESS;

out:
	if (status == EXIT_FAILURE)
		print_hint("search docs/errors.md for the words of this error");

	/* 8. Release everything; what was made last goes first. Chapter 02. */
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, mr);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
