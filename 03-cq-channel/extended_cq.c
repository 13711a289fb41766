/*
 * extended_cq.c - take completions with an iterator: the extended CQ
 *
 * ibv_poll_cq() copies every completion whole. An extended CQ hands out one at
 * a time, in place: its status and wr_id are members of the CQ, and functions
 * read the other fields, those that were asked for when the CQ was created.
 * That is cheaper, and has room for more, e.g. the time of the completion.
 *
 * New since cq_channel.c: ibv_create_cq_ex() and what a completion is to carry;
 * ibv_start_poll(), ibv_next_poll() and ibv_end_poll() around each batch.
 * All else is the same: ibv_cq_ex_to_cq() gives the CQ to arm and to destroy.
 *
 *	extended_cq		on the first device
 *	extended_cq -d rxe_0	on the device of that name
 *
 *	$ extended_cq
 *	device: rxe_0, the first
 *	fields: qp_num and completion_ts: EOPNOTSUPP
 *	fields: qp_num
 *	CQ:     asked for 37 completions, granted 63
 *	before: completions: 0
 *	  wr_id 1, Work Request Flushed Error (status 5), QPN 0x000011
 *	  wr_id 2, Work Request Flushed Error (status 5), QPN 0x000011
 *	  wr_id 3, Work Request Flushed Error (status 5), QPN 0x000011
 *	  wr_id 4, Work Request Flushed Error (status 5), QPN 0x000011
 *	  wr_id 5, Work Request Flushed Error (status 5), QPN 0x000011
 *	after:  completions: 5, batches: 1
 *	released: ibv_destroy_qp
 *	released: ibv_destroy_cq
 *	released: ibv_dealloc_pd
 *	released: ibv_close_device
 *	released: ibv_free_device_list
 *
 * See ibv_create_cq_ex(3), which describes all of these functions.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/options.h"

/* Completions to have room for, and to make. */
#define CQ_SIZE 37
#define BURST 5

/* In seconds: the completions come at once, or something is wrong. */
#define DEADLINE 3

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static struct ibv_device *find_device(struct ibv_device **list,
				      const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!name || strcmp(name, ibv_get_device_name(list[i])) == 0)
			return list[i];

	print_error(0, "no device called %s", name);
	for (int i = 0; list[i]; i++)
		print_hint("there is %s", ibv_get_device_name(list[i]));
	return NULL;
}

/* Create a CQ whose completions tell the QP number and, if can be, the time. */
static struct ibv_cq_ex *create_cq(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQ_SIZE,
		.wc_flags = IBV_WC_EX_WITH_QP_NUM |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

	/* All or nothing: for a field that it lacks, a device gives no CQ. */
	if (!cq && errno == EOPNOTSUPP) {
		printf("fields: qp_num and completion_ts: EOPNOTSUPP\n");
		attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
		cq = ibv_create_cq_ex(context, &attr);
	}

	if (!cq) {
		print_error(errno, "ibv_create_cq_ex(%d)", CQ_SIZE);
		print_hint("a device without extended CQs has those of "
			   "ibv_create_cq(): see cq_channel.c");
		return NULL;
	}

	printf("fields: qp_num%s\n",
	       attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ?
	       " and completion_ts" : "");
	printf("CQ:     asked for %d completions, granted %d\n", CQ_SIZE,
	       ibv_cq_ex_to_cq(cq)->cqe);
	return cq;
}

/* The prop of cq_channel.c: a queue pair, until chapter 04 explains it. */
static struct ibv_qp *create_prop(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = BURST },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

/* The prop at work: @n completions, whose wr_id is 1 to @n. */
static int complete(struct ibv_qp *prop, int n)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;
	int err = ibv_modify_qp(prop, &init, IBV_QP_STATE | IBV_QP_PORT |
				IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);

	while (!err && wr.wr_id++ < (uint64_t)n)
		err = ibv_post_recv(prop, &wr, &bad_wr);
	if (!err)
		err = ibv_modify_qp(prop, &error, IBV_QP_STATE);
	if (err)
		print_error(err, "the prop: making %d completions", n);
	return err;
}

/*
 * Take a batch of at most @most completions. Returns how many, or -1.
 *
 * When ibv_next_poll() has found nothing, ibv_end_poll() has to follow all the
 * same. There the rxe provider of rdma-core 44 loses count: from then on the
 * CQ gives completions that never came. So nothing is asked for that cannot be
 * there; rdma-core 56 has it right.
 */
static int drain(struct ibv_cq_ex *cq, int most)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	int n = 0, err = ibv_start_poll(cq, &attr);

	/* Nothing there, so nothing was started: no ibv_end_poll(). */
	if (err == ENOENT)
		return 0;

	while (!err) {
		n++;
		printf("  wr_id %d, %s (status %d), QPN 0x%06x\n",
		       (int)cq->wr_id, ibv_wc_status_str(cq->status),
		       cq->status, ibv_wc_read_qp_num(cq));
		if (n == most)
			break;
		err = ibv_next_poll(cq);
	}
	/* Now the device may use the places of what was read again. */
	if (n > 0)
		ibv_end_poll(cq);

	if (!err || err == ENOENT)
		return n;
	print_error(err, n ? "ibv_next_poll" : "ibv_start_poll");
	return -1;
}

int main(int argc, char *argv[])
{
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device (the first)", .text = &name },
		{ 0 }
	};
	struct ibv_device **list = NULL;
	struct ibv_device *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq_ex *cq = NULL;
	struct ibv_qp *prop = NULL;
	int n, batches = 0, completions = 0;
	int status = EXIT_FAILURE;
	time_t start;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, context and protection domain: chapters 01 and 02. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = find_device(list, name);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (!context) {
		print_error(errno, "ibv_open_device");
		print_hint("may you read and write /dev/infiniband/%s?",
			   device->dev_name);
		goto out;
	}
	pd = ibv_alloc_pd(context);
	if (!pd) {
		print_error(errno, "ibv_alloc_pd");
		goto out;
	}
	printf("device: %s, %s\n", ibv_get_device_name(device),
	       name ? "given with -d" : "the first");

	/* 2. Extended CQ: which fields shall a completion have? */
	cq = create_cq(context);
	if (!cq)
		goto out;
	prop = create_prop(pd, ibv_cq_ex_to_cq(cq));
	if (!prop) {
		print_error(errno, "ibv_create_qp");
		goto out;
	}

	/* 3. Drain, while it is empty. */
	n = drain(cq, BURST);
	if (n < 0)
		goto out;
	printf("before: completions: %d\n", n);

	/* 4. Drain, until all is there. */
	if (complete(prop, BURST))
		goto out;
	start = seconds();
	while (completions < BURST && seconds() - start <= DEADLINE) {
		n = drain(cq, BURST - completions);
		if (n < 0)
			goto out;
		batches += n > 0;
		completions += n;
	}
	printf("after:  completions: %d, batches: %d\n", completions, batches);
	if (completions < BURST) {
		print_error(ETIMEDOUT, "%d of %d completions came in %d s",
			    completions, BURST, DEADLINE);
		print_hint("is the device still there? make run-01 shows it");
		goto out;
	}
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, prop);
	if (cq)
		status |= RELEASE(ibv_destroy_cq, ibv_cq_ex_to_cq(cq));
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
