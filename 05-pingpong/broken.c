/*
 * broken.c - send COUNT messages from a queue pair to itself
 *
 *	broken COUNT
 *
 * The first message arrives. The second never does, and there is no error. See
 * the chapter's box "A receive must be waiting", and what rnr_retry 7 means.
 *
 * sq_sig_all makes every send signaled, as IBV_SEND_SIGNALED does for one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/completion.h"
#include "../common/error.h"
#include "../common/gid.h"

static int connect_to_itself(struct ibv_qp *qp, const struct ibv_gid_entry *gid)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid->gid, .hop_limit = 64,
				      .sgid_index = gid->gid_index } },
		.path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
	};
	const int masks[] = {
		IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
		IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
	};
	int err = 0;

	for (int i = 0; i < 3 && !err; i++) {
		attr.qp_state = IBV_QPS_INIT + i;
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | masks[i]);
	}
	return failed(err, "ibv_modify_qp to state %d", attr.qp_state);
}

/* Wait for two successful completions: of the send, and of the receive. */
static int wait_for_both(struct ibv_cq *cq)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int n = 0;

	for (int done = 0; done < 2 && n >= 0 && !wc.status; done += n)
		n = ibv_poll_cq(cq, 1, &wc);
	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	if (wc.status)
		print_wc_error(&wc, "a request");
	return n < 0 || wc.status ? -1 : 0;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 } };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	int count = argc == 2 ? atoi(argv[1]) : 10, status = EXIT_FAILURE;

	start_output();
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
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	if (missing(qp, "ibv_create_qp") || connect_to_itself(qp, &gid))
		goto out;

	if (failed(ibv_post_recv(qp, &receive, &bad_receive), "receive"))
		goto out;
	for (int i = 0; i < count; i++) {
		if (failed(ibv_post_send(qp, &send, &bad_send), "send") ||
		    wait_for_both(cq))
			goto out;
	}
	printf("received %d messages\n", count);
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
