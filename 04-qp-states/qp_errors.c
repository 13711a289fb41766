/*
 * qp_errors.c - a message, an error that stops everything, and the way back
 *
 * A message goes from A to B. Then A names its memory by a key that does not
 * exist: the request fails, A is in the state ERR, and its other requests come
 * back flushed. B is put into ERR on purpose. From ERR both must go to RESET
 * before they can work again.
 *
 * New since qp_states.c: requests are posted. One struct has the attributes of
 * all three steps, because the mask chooses which members are read.
 *
 *	$ qp_errors
 *	...
 *	a message from A to B
 *	  B: receive, success (status 0)
 *	  A: send, success (status 0)
 *	  B has received "Hello B, this is A"
 *	...
 *	A sends with a wrong lkey, and then with the right one
 *	  A: send, local QP operation error (status 2)
 *	  A: send, Work Request Flushed Error (status 5)
 *	...
 *	released: ibv_free_device_list
 *
 * See ibv_post_recv(3), ibv_post_send(3), ibv_poll_cq(3), ibv_modify_qp(3).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/gid.h"
#include "../common/names.h"
#include "../common/options.h"

/* Each of the four queues has room for 2 requests, the CQ for all of them. */
#define QUEUE_SIZE 2
#define CQ_SIZE (4 * QUEUE_SIZE)

/* Our wr_id values. If a request fails, only wr_id shows which kind it was. */
#define WRID_RECEIVE 1
#define WRID_SEND 2

#define MESSAGE_SIZE 64		/* in bytes */
#define DEADLINE 3		/* in seconds; the device tries for 0.47 */

/* One end of a connection. */
struct end {
	const char *name;
	uint32_t psn;			/* of the first packet it sends */
	struct ibv_qp *qp;
	struct ibv_qp_attr attr;	/* of all three steps to RTS */
};

/* The memory of both ends. */
struct buffers {
	char out[MESSAGE_SIZE];		/* messages are sent from here */
	char in[MESSAGE_SIZE];		/* and received here */
};

static int create(struct end *end, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = QUEUE_SIZE, .max_send_sge = 1,
			 .max_recv_wr = QUEUE_SIZE, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	end->qp = ibv_create_qp(pd, &init);
	return missing(end->qp, "ibv_create_qp(%s)", end->name);
}

/* The attributes of all three steps to RTS. */
static struct ibv_qp_attr attributes(const struct end *self,
				     const struct end *peer, int port_num,
				     const struct ibv_port_attr *port,
				     const struct ibv_gid_entry *gid)
{
	return (struct ibv_qp_attr){
		.port_num = port_num,		/* RESET -> INIT */
		.ah_attr = {			/* INIT -> RTR */
			.dlid = port->lid,
			.port_num = port_num,
			.is_global = !gid_is_zero(&gid->gid),
			.grh = { .dgid = gid->gid, .hop_limit = 64,
				 .sgid_index = gid->gid_index },
		},
		.path_mtu = port->active_mtu,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.sq_psn = self->psn,		/* RTR -> RTS */
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
}

static int modify(struct end *end, enum ibv_qp_state to, int mask)
{
	end->attr.qp_state = to;
	return failed(ibv_modify_qp(end->qp, &end->attr, IBV_QP_STATE | mask),
		      "ibv_modify_qp(%s, %s -> %s)", end->name,
		      qp_state_name(end->qp->state), qp_state_name(to));
}

/* From RESET to RTS. */
static int bring_up(struct end *end)
{
	if (modify(end, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS) ||
	    modify(end, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	return modify(end, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
		      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		      IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Ask the device for the state, and in RTS for the PSNs that come next. */
static int show(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN;

	if (failed(ibv_query_qp(end->qp, &attr, mask, &init),
		   "ibv_query_qp(%s)", end->name))
		return -1;

	printf("  %s: %s", end->name, qp_state_name(attr.qp_state));
	if (attr.qp_state == IBV_QPS_RTS)
		printf(", sq_psn 0x%06x, rq_psn 0x%06x", attr.sq_psn,
		       attr.rq_psn);
	putchar('\n');
	return 0;
}

/* Post a receive for one message, which will be written to @buf. */
static int post_receive(const struct end *end, char *buf, uint32_t lkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buf,
		.length = MESSAGE_SIZE,
		.lkey = lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = WRID_RECEIVE,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad_wr;

	return failed(ibv_post_recv(end->qp, &wr, &bad_wr), "ibv_post_recv");
}

/* Post a send of the message in @buf. */
static int post_send(const struct end *end, char *buf, uint32_t lkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buf,
		.length = MESSAGE_SIZE,
		.lkey = lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WRID_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad_wr;

	return failed(ibv_post_send(end->qp, &wr, &bad_wr), "ibv_post_send");
}

/* Wait for a completion. Returns 0 with *@wc set, or -1 after a message. */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	long long start = clock_ns(CLOCK_MONOTONIC);
	int found;

	do {
		found = ibv_poll_cq(cq, 1, wc);
		if (found > 0)
			return 0;
	} while (!found &&
		 clock_ns(CLOCK_MONOTONIC) - start < DEADLINE * NS_PER_S);

	if (found < 0) {
		print_error(0, "ibv_poll_cq returned %d", found);
	} else {
		print_error(ETIMEDOUT, "waiting for a completion");
		print_hint("is a receive posted? do the PSNs agree?");
	}
	return -1;
}

/* Print two completions, and fail unless both are as we expect. */
static int two_completions(struct ibv_cq *cq, bool expect_success)
{
	for (int n = 0; n < 2; n++) {
		struct ibv_wc wc;
		const char *what;

		if (next_completion(cq, &wc))
			return -1;
		what = wc.wr_id == WRID_SEND ? "A: send" : "B: receive";
		printf("  %s, %s (status %d)\n", what,
		       ibv_wc_status_str(wc.status), wc.status);
		if (expect_success == (wc.status == IBV_WC_SUCCESS))
			continue;
		if (wc.status)
			print_wc_error(&wc, what);
		else
			print_error(0, "%s: success was not expected", what);
		return -1;
	}
	return 0;
}

/* Send @text from @a to @b, and compare what arrives with it. */
static int send_message(struct ibv_cq *cq, const struct end *a,
			const struct end *b, struct buffers *buf,
			uint32_t lkey, const char *text)
{
	printf("a message from A to B\n");
	snprintf(buf->out, MESSAGE_SIZE, "%s", text);
	memset(buf->in, 0, MESSAGE_SIZE);
	if (post_receive(b, buf->in, lkey) || post_send(a, buf->out, lkey) ||
	    two_completions(cq, true))
		return -1;

	if (memcmp(buf->in, buf->out, MESSAGE_SIZE) != 0) {
		print_error(0, "B has not received what A sent");
		return -1;
	}
	printf("  B has received \"%s\"\n", buf->in);
	/* The message was one packet, so one PSN of each end has moved. */
	return show(a) || show(b) ? -1 : 0;
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
	struct ibv_mr *mr = NULL;
	struct ibv_cq *cq = NULL;
	struct end a = { .name = "A", .psn = 0x0a0a0a };
	struct end b = { .name = "B", .psn = 0x0b0b0b };
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct buffers buf = { .out = "" };
	int port_num = 0, status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, port and GID. */
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

	/* 2. Two queue pairs, connected to each other: qp_states.c. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	mr = ibv_reg_mr(pd, &buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	if (missing(mr, "ibv_reg_mr(%zu bytes)", sizeof(buf)))
		goto out;
	cq = ibv_create_cq(context, CQ_SIZE, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq(%d)", CQ_SIZE) ||
	    create(&a, pd, cq) || create(&b, pd, cq))
		goto out;
	a.attr = attributes(&a, &b, port_num, &port, &gid);
	b.attr = attributes(&b, &a, port_num, &port, &gid);
	if (bring_up(&a) || bring_up(&b) || show(&a) || show(&b))
		goto out;

	/* 3. A message. */
	if (send_message(cq, &a, &b, &buf, mr->lkey, "Hello B, this is A"))
		goto out;

	/* 4. ERR after a mistake. B does not notice. */
	printf("A sends with a wrong lkey, and then with the right one\n");
	if (post_send(&a, buf.out, mr->lkey + 1) ||
	    post_send(&a, buf.out, mr->lkey) ||
	    two_completions(cq, false) || show(&a) || show(&b))
		goto out;

	/* 5. ERR on purpose. */
	printf("B has two receives posted, and is put into ERR\n");
	if (post_receive(&b, buf.in, mr->lkey) ||
	    post_receive(&b, buf.in, mr->lkey) ||
	    modify(&b, IBV_QPS_ERR, 0) || two_completions(cq, false) ||
	    show(&b))
		goto out;

	/* 6. To RESET, which forgets everything, and up again. */
	printf("both go to RESET, and then to RTS again\n");
	if (modify(&a, IBV_QPS_RESET, 0) || modify(&b, IBV_QPS_RESET, 0) ||
	    show(&a) || show(&b) || bring_up(&a) || bring_up(&b) ||
	    show(&a) || show(&b))
		goto out;

	/* 7. A message again. */
	if (send_message(cq, &a, &b, &buf, mr->lkey, "Hello again"))
		goto out;
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, b.qp);
	status |= RELEASE(ibv_destroy_qp, a.qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, mr);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
