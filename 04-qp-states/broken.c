/*
 * broken.c - a message from queue pair 0 to queue pair 1, which never arrives
 *
 *	broken PSN_0 PSN_1
 *
 * Both queue pairs reach RTS, and no call fails; but see what completes. What
 * does the kernel say of them? rdma -d resource show qp, at the CHECKPOINT.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exercise.h"
#include "../common/gid.h"

static int connect_qp(struct ibv_qp *qp, uint32_t peer,
		      const struct ibv_gid_entry *gid, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid->gid, .hop_limit = 64,
				      .sgid_index = gid->gid_index } },
		.path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.rq_psn = psn, .sq_psn = psn, .min_rnr_timer = 12,
		.timeout = 8, .retry_cnt = 2, .rnr_retry = 2,
	};

	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
		      IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ?
				      ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq =
		pd ? ibv_create_cq(context, 4, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	struct ibv_qp *qp[2] = { NULL };
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };

	for (int i = 0; i < 2 && cq; i++)
		qp[i] = ibv_create_qp(pd, &init);
	if (argc != 3 || !qp[1] || ibv_query_port(context, 1, &port) ||
	    gid_find(context, 1, &port, -1, &gid))
		return EXIT_FAILURE;
	for (int i = 0; i < 2; i++)
		if (connect_qp(qp[i], qp[!i]->qp_num, &gid,
			       strtoul(argv[1 + i], NULL, 0)))
			return EXIT_FAILURE;
	checkpoint("connected");
	if (ibv_post_recv(qp[1], &receive, &bad_receive) ||
	    ibv_post_send(qp[0], &send, &bad_send))
		return EXIT_FAILURE;
	for (int n = 0; n < 2 && wc.status == IBV_WC_SUCCESS;)
		n += ibv_poll_cq(cq, 1, &wc);
	puts(wc.status ? ibv_wc_status_str(wc.status) : "received");
	return wc.status != IBV_WC_SUCCESS;
}
