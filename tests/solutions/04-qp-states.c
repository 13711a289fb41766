/*
 * exercise.c - connect two queue pairs in one process, and mend one
 *
 *	exercise PSN_A PSN_B PSN_C VICTIM
 *
 * Takes the queue pairs A and B by INIT and RTR to RTS, each the other's peer;
 * A's first packet has the number PSN_A, B's PSN_B. Then VICTIM, A or B, is
 * put into ERR, and you bring it back to RTS, where it shall begin with PSN_C.
 *
 *	$ exercise 0x111111 0x222222 0x333333 B
 *	A: QPN 0x000011
 *	B: QPN 0x000012
 *	RESET -> RTR: EINVAL
 *	CHECKPOINT init
 *	...
 *	A: state 3, sq_psn 0x111111, rq_psn 0x222222
 *	...
 *
 * At each CHECKPOINT rdma -d resource show qp shows what the kernel thinks of
 * it, and so does make check-04. Write the bodies marked TODO.
 *
 * See ibv_modify_qp(3), ibv_query_qp(3); chapter 04's table of the states.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exercise.h"
#include "../common/gid.h"

#define EXIT_USAGE 2
#define EXIT_NO_DEVICE 77

#define PORT 1
#define CQ_SIZE 4

/* What a queue pair needs to know of the other one. */
struct peer {
	struct ibv_gid_entry gid;
	uint32_t qpn;
	uint32_t psn;
};

/* TODO 04.1: RESET -> INIT, on PORT. Returns 0 or an errno value. */
static int to_init(struct ibv_qp *qp)
{
#ifdef STARTER
	(void)qp;
	return todo("04.1");
#else
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS);
#endif
}

/*
 * TODO 04.2: INIT -> RTR: it expects packets of @peer, the first of which has
 * the number peer->psn. The path MTU is 1024. Returns 0 or an errno value.
 */
static int to_rtr(struct ibv_qp *qp, const struct peer *peer)
{
#ifdef STARTER
	(void)qp;
	(void)peer;
	return todo("04.2");
#else
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = peer->gid.gid,
				.sgid_index = peer->gid.gid_index,
				.hop_limit = 64,
			},
		},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
#endif
}

/* TODO 04.3: RTR -> RTS: its own first packet has the number @psn. */
static int to_rts(struct ibv_qp *qp, uint32_t psn)
{
#ifdef STARTER
	(void)qp;
	(void)psn;
	return todo("04.3");
#else
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.max_rd_atomic = 1,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.timeout = 14,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT);
#endif
}

/*
 * TODO 04.4: ask the device, and print "NAME: state N, sq_psn 0x..., rq_psn
 * 0x..." with the PSNs in six hex digits.
 */
static void read_back(const char *name, struct ibv_qp *qp)
{
#ifdef STARTER
	(void)name;
	(void)qp;
	todo("04.4");
#else
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init))
		return;
	printf("%s: state %d, sq_psn 0x%06x, rq_psn 0x%06x\n", name,
	       attr.qp_state, attr.sq_psn, attr.rq_psn);
#endif
}

/*
 * TODO 04.5: bring a queue pair from ERR back to RTS, with the same @peer and
 * @psn as its own first number. Returns 0 or an errno value.
 */
static int recover(struct ibv_qp *qp, const struct peer *peer, uint32_t psn)
{
#ifdef STARTER
	(void)qp;
	(void)peer;
	(void)psn;
	return todo("04.5");
#else
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	int err = ibv_modify_qp(qp, &reset, IBV_QP_STATE);

	if (!err)
		err = to_init(qp);
	if (!err)
		err = to_rtr(qp, peer);
	if (!err)
		err = to_rts(qp, psn);
	return err;
#endif
}

/* Given: did a step succeed? */
static int failed(const char *step, int err)
{
	if (err > 0)
		print_error(err, "%s", step);
	return err;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

int main(int argc, char *argv[])
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp[2] = { NULL };
	struct peer end[2];	/* end[0] is A, as B sees it */
	struct ibv_port_attr port;
	uint32_t mended;
	int v, err, status = EXIT_FAILURE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5) {
		fprintf(stderr, "usage: exercise PSN_A PSN_B PSN_C VICTIM\n");
		return EXIT_USAGE;
	}
	v = strcmp(argv[4], "B") == 0;
	mended = strtoul(argv[3], NULL, 0);

	/* 1. Two queue pairs, and the way from one to the other. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		print_error(list ? 0 : errno, "no RDMA device");
		status = EXIT_NO_DEVICE;
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (context) {
		pd = ibv_alloc_pd(context);
		cq = ibv_create_cq(context, CQ_SIZE, NULL, NULL, 0);
	}
	for (int i = 0; i < 2 && pd && cq; i++)
		qp[i] = create_qp(pd, cq);
	if (!qp[0] || !qp[1]) {
		print_error(errno, "two queue pairs and what they need");
		goto out;
	}
	if (ibv_query_port(context, PORT, &port) ||
	    gid_find(context, PORT, &port, -1, &end[0].gid))
		goto out;
	end[1] = end[0];
	for (int i = 0; i < 2; i++) {
		end[i].qpn = qp[i]->qp_num;
		end[i].psn = strtoul(argv[1 + i], NULL, 0);
		printf("%c: QPN 0x%06x\n", 'A' + i, end[i].qpn);
	}

	/* 2. Straight to RTR: what does the device say to that? */
	err = to_rtr(qp[0], &end[1]);
	if (err > 0)
		printf("RESET -> RTR: %s\n", strerrorname_np(err));

	/* 3. Step by step. */
	for (int i = 0; i < 2; i++)
		if (failed("RESET -> INIT", to_init(qp[i])))
			goto out;
	checkpoint("init");
	for (int i = 0; i < 2; i++)
		if (failed("INIT -> RTR", to_rtr(qp[i], &end[!i])))
			goto out;
	checkpoint("rtr");
	for (int i = 0; i < 2; i++)
		if (failed("RTR -> RTS", to_rts(qp[i], end[i].psn)))
			goto out;
	checkpoint("rts");
	read_back("A", qp[0]);
	read_back("B", qp[1]);

	/* 4. Broken, and mended. */
	if (failed("RTS -> ERR", ibv_modify_qp(qp[v], &error, IBV_QP_STATE)))
		goto out;
	checkpoint("error");
	if (failed("ERR -> RTS", recover(qp[v], &end[!v], mended)))
		goto out;
	checkpoint("recovered");
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, qp[1]);
	status |= RELEASE(ibv_destroy_qp, qp[0]);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
