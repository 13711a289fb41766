/*
 * broken.c - a message from queue pair 0 to queue pair 1 that never arrives
 *
 *	broken PSN_0 PSN_1
 *
 * Both queue pairs reach RTS, and no call fails. But if PSN_0 is below PSN_1,
 * the receive never completes; if it is above, the send fails. Repair it, so
 * that messages can go both ways, and connect each queue pair once, as now. The
 * first packet of queue pair 0 has the number PSN_0; queue pair 1 begins with
 * PSN_1. At the CHECKPOINT, rdma -d resource show qp shows both queue pairs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/completion.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/options.h"

static int connect_qp(struct ibv_qp *qp, uint32_t peer_qpn,
		      const struct ibv_gid_entry *gid, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid->gid, .hop_limit = 64,
				      .sgid_index = gid->gid_index } },
		.path_mtu = IBV_MTU_1024, .dest_qp_num = peer_qpn,
		.rq_psn = psn, .sq_psn = psn, .min_rnr_timer = 12,
		.timeout = 8, .retry_cnt = 2, .rnr_retry = 2,
	};
	const int masks[] = {
		IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
		IBV_QP_ACCESS_FLAGS,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
	};

	for (int i = 0; i < 3; i++) {
		attr.qp_state = IBV_QPS_INIT + i;
		if (failed(ibv_modify_qp(qp, &attr, masks[i]),
			   "ibv_modify_qp, step %d of 3", i + 1))
			return -1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp[2] = { NULL };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int found = 0, status = EXIT_FAILURE;

	start_output();
	if (argc != 3) {
		fprintf(stderr, "usage: broken PSN_0 PSN_1\n");
		return EXIT_USAGE;
	}
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, 1, &port), "ibv_query_port") ||
	    gid_choose(context, 1, &port, -1, &gid))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = cq;
	for (int i = 0; i < 2; i++) {
		qp[i] = ibv_create_qp(pd, &init);
		if (missing(qp[i], "ibv_create_qp"))
			goto out;
	}
	if (connect_qp(qp[0], qp[1]->qp_num, &gid, strtoul(argv[1], NULL, 0)) ||
	    connect_qp(qp[1], qp[0]->qp_num, &gid, strtoul(argv[2], NULL, 0)))
		goto out;
	checkpoint("connected");
	if (failed(ibv_post_recv(qp[1], &receive, &bad_receive), "receive") ||
	    failed(ibv_post_send(qp[0], &send, &bad_send), "send"))
		goto out;
	for (int n = 0; n < 2 && found >= 0 && !wc.status; n += found)
		found = ibv_poll_cq(cq, 1, &wc);
	if (found < 0) {
		print_error(0, "ibv_poll_cq returned %d", found);
	} else if (wc.status) {
		print_wc_error(&wc, "a request");
	} else {
		puts("received");
		status = EXIT_SUCCESS;
	}

out:
	for (int i = 0; i < 2; i++)
		status |= RELEASE(ibv_destroy_qp, qp[i]);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
