/*
 * sends_ahead.c - a ping-pong client that does not take turns
 *
 *	sends_ahead COUNT SIZE	SIZE is at most 1 MiB
 *
 * Connects to the server on this host as an ibv_rc_pingpong would, then sends
 * COUNT messages at once. It posts no receive, so that none of the server's
 * own sends can complete. Ends when the server has gone.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../../common/error.h"
#include "../../common/exchange.h"
#include "../../common/gid.h"

#define PORT 1
#define TCP_PORT 18515
#define PSN 0x123456 /* lower case in the address: not our kind */

static int connect_qp(struct ibv_qp *qp, const struct ibv_gid_entry *gid,
		      const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = remote->gid,
				.sgid_index = gid->gid_index,
				.hop_limit = 64,
			},
		},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.sq_psn = PSN,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 7,
	};

	if (failed(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PORT |
					 IBV_QP_PKEY_INDEX |
					 IBV_QP_ACCESS_FLAGS),
		   "INIT"))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (failed(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC |
					 IBV_QP_MIN_RNR_TIMER),
		   "RTR"))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT |
					    IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC),
		      "RTS");
}

static int send_all(struct ibv_qp *qp, const struct ibv_mr *mr, int count)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = (uint32_t)mr->length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
	}, *bad;

	for (int i = 0; i < count; i++) {
		if (failed(ibv_post_send(qp, &wr, &bad), "ibv_post_send"))
			return -1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct address local = { .psn = PSN }, remote;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	static char buf[1 << 20];
	int count, sock;

	if (argc != 3 || !list || !list[0])
		return EXIT_FAILURE;
	count = atoi(argv[1]);
	context = ibv_open_device(list[0]);
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, buf, strtoul(argv[2], NULL, 0), 0) : NULL;
	if (!mr || ibv_query_port(context, PORT, &port) ||
	    gid_choose(context, PORT, &port, -1, &gid))
		return EXIT_FAILURE;

	init.send_cq = ibv_create_cq(context, count + 1, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = (uint32_t)count,
					.max_recv_wr = 1,
					.max_send_sge = 1,
					.max_recv_sge = 1 };
	qp = init.send_cq ? ibv_create_qp(pd, &init) : NULL;
	if (!qp)
		return EXIT_FAILURE;

	local.qpn = qp->qp_num;
	local.gid = gid.gid;
	sock = exchange_connect("localhost", TCP_PORT, 10);
	if (sock < 0 || exchange_send_address(sock, &local) ||
	    exchange_receive_address(sock, &remote) ||
	    connect_qp(qp, &gid, &remote) ||
	    exchange_send(sock, "done", sizeof("done"), "\"done\"") ||
	    send_all(qp, mr, count))
		return EXIT_FAILURE;

	/* The kernel releases everything when this process is killed. */
	sleep(20);
	return EXIT_SUCCESS;
}
