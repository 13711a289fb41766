/*
 * exercise.c - connect two queue pairs, and bring one of them back from ERR
 *
 *	exercise PSN_A PSN_B PSN_C VICTIM
 *
 * The program takes the queue pairs A and B through INIT and RTR to RTS, each
 * as the other's peer. A's first packet has the number PSN_A, B's PSN_B. Then
 * it puts VICTIM, which is A or B, into ERR. You bring it back to RTS, where
 * its first packet has the number PSN_C.
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
 * At each CHECKPOINT the program waits for Enter, so that make check-04 can ask
 * the kernel what it knows of A and B. make try-04 shows it to you.
 *
 * Write the bodies marked TODO; the function of qp_states.c or qp_errors.c to
 * read first is named in each. See also ibv_modify_qp(3), ibv_query_qp(3).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/options.h"

#define PORT 1
#define CQ_SIZE 4

/* What a queue pair needs to know about the other one. */
struct peer {
	struct ibv_gid_entry gid;
	uint32_t qpn;
	uint32_t psn;		/* number of the first packet that it sends */
};

/*
 * TODO 04.1: take the queue pair from RESET to INIT, on port PORT. Return what
 * ibv_modify_qp() returns: 0 or an errno value. See to_init() in qp_states.c.
 * Attributes that no TODO of this file names, such as rights and timers, may
 * have any value that the device accepts.
 */
static int to_init(struct ibv_qp *qp)
{
	return todo("04.1");
}

/*
 * TODO 04.2: INIT -> RTR. From now on the queue pair expects packets from
 * @peer; the first has the number peer->psn. The path MTU is 1024. The index of
 * your own GID is peer->gid.gid_index here, because both queue pairs use the
 * same port. (Each of two hosts has its own index.) A LID (dlid) is not needed
 * on RoCE. Return what ibv_modify_qp() returns. See to_rtr() in qp_states.c.
 */
static int to_rtr(struct ibv_qp *qp, const struct peer *peer)
{
	return todo("04.2");
}

/*
 * TODO 04.3: RTR -> RTS. The queue pair's own first packet has the number
 * @psn. Return what ibv_modify_qp() returns. See to_rts() in qp_states.c.
 */
static int to_rts(struct ibv_qp *qp, uint32_t psn)
{
	return todo("04.3");
}

/*
 * TODO 04.4: ask the device for the state and for both PSNs, and print them as
 * "NAME: state 3, sq_psn 0x111111, rq_psn 0x222222": the state as a number, the
 * PSNs in six hex digits. Ask for at least these three, with one mask or with
 * several. If asking fails, print no such line. See show() in qp_errors.c.
 */
static void read_back(const char *name, struct ibv_qp *qp)
{
	todo("04.4");
}

/*
 * TODO 04.5: bring a queue pair in ERR back to RTS. @peer has not changed. The
 * first packet that we send has the number @psn now. Return 0, or the errno
 * value of the failed step. (|| would make it 1.) See step 6 of qp_errors.c.
 */
static int recover(struct ibv_qp *qp, const struct peer *peer, uint32_t psn)
{
	return todo("04.5");
}

/* Given: report a step that failed. @err is -1 if it is not written yet. */
static int step_failed(const char *step, int err)
{
	if (err > 0)
		print_error(err, "%s", step);
	return err;
}

/* Given: create a queue pair. NULL, and errno is set, if that has failed. */
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
	struct peer end[2];	/* what to know of A, and of B */
	struct ibv_port_attr port;
	uint32_t new_psn;
	int victim, err, status = EXIT_FAILURE;

	start_output();
	if (argc != 5) {
		fprintf(stderr, "usage: exercise PSN_A PSN_B PSN_C VICTIM\n");
		return EXIT_USAGE;
	}
	new_psn = strtoul(argv[3], NULL, 0);
	victim = strcmp(argv[4], "B") == 0;	/* 0 is A, 1 is B */

	/* 1. Two queue pairs, and what each needs to know about the other. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, PORT, &port), "ibv_query_port") ||
	    gid_choose(context, PORT, &port, -1, &end[0].gid))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, CQ_SIZE, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	end[1] = end[0];	/* the same port, so the same GID */
	for (int i = 0; i < 2; i++) {
		qp[i] = create_qp(pd, cq);
		if (missing(qp[i], "ibv_create_qp"))
			goto out;
		end[i].qpn = qp[i]->qp_num;
		end[i].psn = strtoul(argv[1 + i], NULL, 0);
		printf("%c: QPN 0x%06x\n", 'A' + i, end[i].qpn);
	}

	/* 2. Straight to RTR: that has to be refused. */
	err = to_rtr(qp[0], &end[1]);
	if (err > 0)
		printf("RESET -> RTR: %s\n", strerrorname_np(err));

	/* 3. Step by step. */
	for (int i = 0; i < 2; i++)
		if (step_failed("RESET -> INIT", to_init(qp[i])))
			goto out;
	checkpoint("init");
	for (int i = 0; i < 2; i++)
		if (step_failed("INIT -> RTR", to_rtr(qp[i], &end[!i])))
			goto out;
	checkpoint("rtr");
	for (int i = 0; i < 2; i++)
		if (step_failed("RTR -> RTS", to_rts(qp[i], end[i].psn)))
			goto out;
	checkpoint("rts");
	read_back("A", qp[0]);
	read_back("B", qp[1]);

	/* 4. One goes into ERR, and you bring it back. */
	err = ibv_modify_qp(qp[victim], &error, IBV_QP_STATE);
	if (step_failed("RTS -> ERR", err))
		goto out;
	checkpoint("error");
	err = recover(qp[victim], &end[!victim], new_psn);
	if (step_failed("ERR -> RTS", err))
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
