/*
 * qp_transitions.c - which steps between two states are accepted, or refused
 *
 * Tries all steps with one queue pair, its own peer. One struct has the values
 * of all attributes, because a call's mask chooses which members are read. The
 * program leaves each attribute in turn out of the mask, then gives some a
 * wrong value, and at the end tries to go from every state to every other.
 *
 *	qp_transitions [-d NAME]
 *
 *	$ qp_transitions
 *	C: QPN 0x000011 on rxe_0
 *	the mask is wrong, and all values are right
 *	  RESET -> INIT without PKEY_INDEX         EINVAL
 *	...
 *	  INIT  -> RTR  path_mtu 4096, not 1024    accepted
 *	from every state to every other
 *	  from/to  RESET   INIT    RTR    RTS    SQD    SQE    ERR
 *	  RESET    state  attrs      -      -      -      -     !-
 *	...
 *	released: ibv_free_device_list
 *
 * See docs/qp-states.md about the table; ibv_modify_qp(3), ibv_query_qp(3).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/names.h"
#include "../common/options.h"

#define PSN 0x0c0c0c		/* any will do: nothing is sent */
#define NOT_THERE 255		/* as a port number, and as a GID index */
#define DEADLINE 3		/* in seconds; draining takes much less */
#define STATES (IBV_QPS_ERR + 1)

/* What each step to a state needs, apart from IBV_QP_STATE. */
static const int needed[STATES] = {
	[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER,
	[IBV_QPS_RTS] = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

/*
 * IBTA 10.3.1: may a queue pair of type RC go from the state of a row to that
 * of a column? An RC queue pair is never in SQE; UC and UD are.
 */
static const bool specified[STATES][STATES] = {
	/*               RESET INIT RTR RTS SQD SQE ERR */
	[IBV_QPS_RESET] = { 1,   1,  0,  0,  0,  0,  1 },
	[IBV_QPS_INIT] =  { 1,   1,  1,  0,  0,  0,  1 },
	[IBV_QPS_RTR] =   { 1,   0,  0,  1,  0,  0,  1 },
	[IBV_QPS_RTS] =   { 1,   0,  0,  1,  1,  0,  1 },
	[IBV_QPS_SQD] =   { 1,   0,  0,  1,  1,  0,  1 },
	[IBV_QPS_SQE] =   { 0,   0,  0,  0,  0,  0,  0 },
	[IBV_QPS_ERR] =   { 1,   0,  0,  0,  0,  0,  1 },
};

/* The queue pair to try, and values with which each of its steps succeeds. */
struct subject {
	struct ibv_qp *qp;
	struct ibv_qp_attr right;	/* attributes of all three steps */
};

/* All attributes, for a queue pair that is its own peer. */
static struct ibv_qp_attr right_values(const struct ibv_qp *qp, int port_num,
				       const struct ibv_port_attr *port,
				       const struct ibv_gid_entry *gid)
{
	return (struct ibv_qp_attr){
		.port_num = port_num,		/* RESET -> INIT */
		.ah_attr = {			/* INIT -> RTR */
			.dlid = port->lid,
			.port_num = port_num,
			.is_global = !gid_is_zero(&gid->gid),
			.grh = {
				.dgid = gid->gid,
				.sgid_index = gid->gid_index,
			},
		},
		.path_mtu = port->active_mtu,
		.dest_qp_num = qp->qp_num,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.sq_psn = PSN,			/* RTR -> RTS */
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
}

/*
 * Try a step to @to. Returns 0, or -1 after an error message.
 *
 * If @refusal is not NULL, the device may refuse the step with EINVAL or
 * ENODATA: *@refusal becomes that value, or 0 if the step was accepted. Every
 * other error is a failure of the program, and so is any if @refusal is NULL.
 */
static int modify(const struct subject *c, struct ibv_qp_attr attr,
		  enum ibv_qp_state to, int mask, int *refusal)
{
	int err;

	attr.qp_state = to;
	err = ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | mask);
	if (refusal && (!err || err == EINVAL || err == ENODATA)) {
		*refusal = err;
		return 0;
	}
	return failed(err, "ibv_modify_qp(C, %s -> %s)",
		      qp_state_name(c->qp->state), qp_state_name(to));
}

/* A step that has to succeed. */
static int step(const struct subject *c, enum ibv_qp_state to)
{
	return modify(c, c->right, to, needed[to], NULL);
}

/* SQD -> RTS is allowed only when the sends that have begun are finished. */
static int wait_until_drained(const struct subject *c)
{
	long long start = clock_ns(CLOCK_MONOTONIC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	do {
		if (failed(ibv_query_qp(c->qp, &attr, IBV_QP_STATE, &init),
			   "ibv_query_qp(C)"))
			return -1;
	} while (attr.sq_draining &&
		 clock_ns(CLOCK_MONOTONIC) - start < DEADLINE * NS_PER_S);
	return attr.sq_draining ? failed(ETIMEDOUT, "draining") : 0;
}

/* Reset the queue pair, then bring it to state @to by the shortest way. */
static int bring(const struct subject *c, enum ibv_qp_state to)
{
	enum ibv_qp_state last = to == IBV_QPS_ERR ? IBV_QPS_INIT : to;

	/* On Soft-RoCE a queue pair that still drains can only go to ERR. */
	if (c->qp->state == IBV_QPS_SQD && step(c, IBV_QPS_ERR))
		return -1;

	for (int state = IBV_QPS_RESET; state <= (int)last; state++)
		if (step(c, state))
			return -1;
	if (to == IBV_QPS_ERR)
		return step(c, to);
	return to == IBV_QPS_SQD ? wait_until_drained(c) : 0;
}

/* Try the step from @from to the next state, and print what came of it. */
static int try_step(const struct subject *c, enum ibv_qp_state from,
		    struct ibv_qp_attr attr, int mask, const char *what)
{
	int refusal = 0;

	if (bring(c, from) || modify(c, attr, from + 1, mask, &refusal))
		return -1;
	printf("  %-5s -> %-4s %-26s %s\n", qp_state_name(from),
	       qp_state_name(from + 1), what,
	       refusal ? strerrorname_np(refusal) : "accepted");
	return 0;
}

/* The values are right each time; the mask has a bit less, or one too many. */
static int try_wrong_masks(const struct subject *c)
{
	char what[32];

	for (int from = IBV_QPS_RESET; from < IBV_QPS_RTS; from++) {
		int mask = needed[from + 1];

		for (int i = 0; qp_attr_names[i].name; i++) {
			if (!(mask & qp_attr_names[i].bit))
				continue;
			snprintf(what, sizeof(what), "without %s",
				 qp_attr_names[i].name);
			if (try_step(c, from, c->right,
				     mask & ~qp_attr_names[i].bit, what))
				return -1;
		}
	}
	return try_step(c, IBV_QPS_RESET, c->right,
			needed[IBV_QPS_INIT] | IBV_QP_TIMEOUT, "with TIMEOUT");
}

/* The mask is right each time, and one value is wrong. */
static int try_wrong_values(const struct subject *c)
{
	struct ibv_qp_attr port = c->right, local = c->right, gid = c->right,
			   mtu = c->right;
	char what[32];

	port.port_num = NOT_THERE;
	local.ah_attr.is_global = 0;
	gid.ah_attr.grh.sgid_index = NOT_THERE;
	mtu.path_mtu = IBV_MTU_4096;
	if (try_step(c, IBV_QPS_RESET, port, needed[IBV_QPS_INIT],
		     "port_num 255") ||
	    try_step(c, IBV_QPS_INIT, local, needed[IBV_QPS_RTR],
		     "is_global 0") ||
	    try_step(c, IBV_QPS_INIT, gid, needed[IBV_QPS_RTR],
		     "sgid_index 255"))
		return -1;

	snprintf(what, sizeof(what), "path_mtu 4096, not %d",
		 mtu_bytes(c->right.path_mtu));
	return c->right.path_mtu == IBV_MTU_4096 ? 0 :
	       try_step(c, IBV_QPS_INIT, mtu, needed[IBV_QPS_RTR], what);
}

/*
 * Try to go from @from to @to: first with the new state alone, then with the
 * attributes of a step to @to. Print which of them was accepted, with a "!" in
 * front if the specification differs.
 */
static int try_pair(const struct subject *c, enum ibv_qp_state from,
		    enum ibv_qp_state to)
{
	const char *accepted = "-";
	int refusal = 0;

	if (bring(c, from) || modify(c, c->right, to, 0, &refusal))
		return -1;
	if (!refusal)
		accepted = "state";
	else if (modify(c, c->right, to, needed[to], &refusal))
		return -1;
	else if (!refusal)
		accepted = "attrs";

	printf(" %*s%s", 6 - (int)strlen(accepted),
	       specified[from][to] == (accepted[0] == '-') ? "!" : "",
	       accepted);
	return 0;
}

static int try_all_pairs(const struct subject *c)
{
	int no_sqd = 0;

	/* Some adapters, those of mlx5 for one, have no step to SQD. */
	if (bring(c, IBV_QPS_RTS) ||
	    modify(c, c->right, IBV_QPS_SQD, 0, &no_sqd))
		return -1;

	printf("  %-7s", "from/to");
	for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
		printf(" %6s", qp_state_name(to));
	putchar('\n');

	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		if (from == IBV_QPS_SQE || (from == IBV_QPS_SQD && no_sqd))
			continue;
		printf("  %-7s", qp_state_name(from));
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++)
			if (try_pair(c, from, to))
				return -1;
		putchar('\n');
	}
	return 0;
}

int main(int argc, char *argv[])
{
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device", .text = &name }, { 0 }
	};
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct subject c = { .qp = NULL };
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	int port_num = 0, status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. A queue pair, and what it needs: as in qp_states.c. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, name, &port_num);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, port_num, &port),
		   "ibv_query_port(%d)", port_num) ||
	    gid_choose(context, port_num, &port, -1, &gid))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = init.cap.max_recv_wr = 1;
	c.qp = ibv_create_qp(pd, &init);
	if (missing(c.qp, "ibv_create_qp(C)"))
		goto out;
	c.right = right_values(c.qp, port_num, &port, &gid);
	printf("C: QPN 0x%06x on %s\n", c.qp->qp_num,
	       ibv_get_device_name(device));

	/* 2. Steps with a wrong mask, then with a wrong value. */
	printf("the mask is wrong, and all values are right\n");
	if (try_wrong_masks(&c))
		goto out;
	printf("the mask is right, and one value is wrong\n");
	if (try_wrong_values(&c))
		goto out;

	/* 3. From every state to every other. */
	printf("from every state to every other\n");
	if (try_all_pairs(&c))
		goto out;
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, c.qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
