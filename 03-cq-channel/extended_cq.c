/*
 * extended_cq.c - read completions one at a time: the extended CQ
 *
 * ibv_poll_cq() copies each completion whole. With an extended CQ you read one
 * completion at a time, in the queue itself. When you create the CQ, you choose
 * which fields a completion must have. The other fields are not filled in,
 * which is cheaper, and there is room for new fields, such as the time at which
 * the completion was made.
 *
 * New since cq_channel.c: ibv_create_cq_ex(); and ibv_start_poll(),
 * ibv_next_poll() and ibv_end_poll() in place of ibv_poll_cq(). Arming and
 * releasing stay as they were: ibv_cq_ex_to_cq() gives the CQ for that.
 *
 *	extended_cq		on the first device with an ACTIVE port
 *	extended_cq -d rxe_0	on the device of that name
 *
 *	$ extended_cq
 *	device: rxe_0, port 1
 *	fields: qp_num and completion_ts: EOPNOTSUPP
 *	fields: qp_num
 *	CQ:     asked for 37 completions, granted 63
 *	before: completions: 0
 *	  wr_id 1, success (status 0), QPN 0x000011
 *	  wr_id 2, success (status 0), QPN 0x000011
 *	  wr_id 3, success (status 0), QPN 0x000011
 *	  wr_id 4, success (status 0), QPN 0x000011
 *	  wr_id 5, success (status 0), QPN 0x000011
 *	after:  completions: 5
 *	released: ibv_destroy_qp
 *	released: ibv_destroy_cq
 *	released: ibv_destroy_cq
 *	released: ibv_dealloc_pd
 *	released: ibv_close_device
 *	released: ibv_free_device_list
 *
 * See ibv_create_cq_ex(3), which describes all of these functions except
 * ibv_cq_ex_to_cq(): that one is in <infiniband/verbs.h>.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/options.h"
#include "loopback.h"

/* Completions that the CQ must have room for, and messages to send. */
#define CQ_SIZE 37
#define BURST 5

#define TIMEOUT 3		/* seconds for all messages */

/*
 * Create a CQ whose completions have the QP number and, if the device can do
 * that, the time. Returns the CQ, or NULL after an error message.
 */
static struct ibv_cq_ex *create_cq(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQ_SIZE,
		.wc_flags = IBV_WC_EX_WITH_QP_NUM |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

	/* A device that lacks one of the fields refuses the whole CQ. */
	if (!cq && errno == EOPNOTSUPP) {
		printf("fields: qp_num and completion_ts: EOPNOTSUPP\n");
		attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
		cq = ibv_create_cq_ex(context, &attr);
	}

	if (!cq) {
		print_error(errno, "ibv_create_cq_ex(%d)", CQ_SIZE);
		print_hint("if the device has no extended CQs, use "
			   "ibv_create_cq(), as cq_channel.c does");
		return NULL;
	}

	printf("fields: qp_num%s\n",
	       attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ?
	       " and completion_ts" : "");
	printf("CQ:     asked for %d completions, granted %d\n", CQ_SIZE,
	       ibv_cq_ex_to_cq(cq)->cqe);
	return cq;
}

/*
 * Take up to @most completions in one batch, which is what lies between
 * ibv_start_poll() and ibv_end_poll(), and set @taken to their number.
 * Returns 0, or -1 after an error message, also if a completion has failed.
 *
 * The loop stops at @most, so that it does not call ibv_next_poll() when no
 * completion is left. That call would return ENOENT, and ibv_end_poll(), which
 * must follow, makes rxe's provider in rdma-core 44 lose count: from then on
 * the CQ gives completions that never happened. rdma-core 56 does not have this
 * bug.
 */
static int take_batch(struct ibv_cq_ex *cq, int most, int *taken)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	int err = ibv_start_poll(cq, &attr);

	*taken = 0;
	/* The CQ is empty. No batch has begun, so none has to be ended. */
	if (err == ENOENT)
		return 0;
	if (failed(err, "ibv_start_poll"))
		return -1;

	/* cq->wr_id and the other members describe the current completion. */
	while (!err) {
		(*taken)++;
		printf("  wr_id %d, %s (status %d), QPN 0x%06x\n",
		       (int)cq->wr_id, ibv_wc_status_str(cq->status),
		       cq->status, ibv_wc_read_qp_num(cq));
		if (cq->status != IBV_WC_SUCCESS)
			status = cq->status;
		if (*taken == most)
			break;
		err = ibv_next_poll(cq);
	}

	/* The device may use the places of these completions again. */
	ibv_end_poll(cq);

	if (status != IBV_WC_SUCCESS) {
		print_error(0, "a receive: %s (status %d)",
			    ibv_wc_status_str(status), status);
		print_hint("docs/errors.md explains the status codes");
		return -1;
	}
	return err == ENOENT ? 0 : failed(err, "ibv_next_poll");
}

int main(int argc, char *argv[])
{
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME",
		  "device (the first with an ACTIVE port)", .text = &name },
		{ 0 }
	};
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq_ex *cq = NULL;
	struct loopback loop = { 0 };
	int taken, all, port = 0, status = EXIT_FAILURE;
	long long deadline;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, context and protection domain: chapters 01 and 02. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, name, &port);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	printf("device: %s, port %d\n", ibv_get_device_name(device), port);

	/* 2. Extended CQ: choose the fields that a completion must have. */
	cq = create_cq(context);
	if (!cq || loopback_create(&loop, pd, ibv_cq_ex_to_cq(cq), port))
		goto out;

	/* 3. What happens while the CQ is empty? */
	if (take_batch(cq, BURST, &taken))
		goto out;
	printf("before: completions: %d\n", taken);

	/* 4. Take batches until all messages have come; here it is one. */
	if (loopback_send(&loop, BURST))
		goto out;
	deadline = deadline_after(TIMEOUT);
	for (all = 0; all < BURST; all += taken) {
		if (take_batch(cq, BURST - all, &taken))
			goto out;
		if (taken == 0 && clock_ns(CLOCK_MONOTONIC) > deadline) {
			print_error(ETIMEDOUT, "%d of %d completions are "
				    "missing", BURST - all, BURST);
			goto out;
		}
	}
	printf("after:  completions: %d\n", all);
	status = EXIT_SUCCESS;

out:
	status |= loopback_destroy(&loop);
	if (cq)
		status |= RELEASE(ibv_destroy_cq, ibv_cq_ex_to_cq(cq));
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
