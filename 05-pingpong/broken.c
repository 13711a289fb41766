/*
 * broken.c - COUNT messages from a queue pair to itself; or fewer?
 *
 *	broken COUNT
 *
 * The first message arrives. Of the second nothing is heard, no error either:
 * see what chapter 05 says of rnr_retry, and ibv_post_recv(3).
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/gid.h"

static int connect_to_itself(struct ibv_qp *qp, const struct ibv_gid_entry *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid->gid, .hop_limit = 64,
				      .sgid_index = gid->gid_index } },
		.path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
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
		pd ? ibv_create_cq(context, 8, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int count = argc == 2 ? atoi(argv[1]) : 10;

	if (!qp || ibv_query_port(context, 1, &port) ||
	    gid_find(context, 1, &port, -1, &gid) ||
	    connect_to_itself(qp, &gid))
		return EXIT_FAILURE;

	if (ibv_post_recv(qp, &receive, &bad_receive))
		return EXIT_FAILURE;
	for (int i = 0; i < count; i++) {
		if (ibv_post_send(qp, &send, &bad_send))
			return EXIT_FAILURE;

		/* What was sent, and what was received. */
		for (int n = 0; n < 2;) {
			n += ibv_poll_cq(cq, 1, &wc);
			if (wc.status != IBV_WC_SUCCESS)
				return EXIT_FAILURE;
		}
	}
	printf("received %d messages\n", count);
	return EXIT_SUCCESS;
}
