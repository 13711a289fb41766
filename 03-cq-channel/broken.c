/*
 * broken.c - takes ROUNDS completions, one at a time; or does it?
 *
 *	broken ROUNDS
 *
 * It takes the first and then sleeps for ever. The prop makes completions, as
 * in cq_channel.c; there is nothing wrong with it.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/error.h"

static int complete(struct ibv_qp *prop)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET, .port_num = 1 };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;

	ibv_modify_qp(prop, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_INIT;
	ibv_modify_qp(prop, &attr, IBV_QP_STATE | IBV_QP_PORT |
		      IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	ibv_post_recv(prop, &wr, &bad_wr);
	attr.qp_state = IBV_QPS_ERR;
	return ibv_modify_qp(prop, &attr, IBV_QP_STATE);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ?
				      ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_comp_channel *channel =
		context ? ibv_create_comp_channel(context) : NULL;
	struct ibv_cq *cq = channel ?
			    ibv_create_cq(context, 8, NULL, channel, 0) : NULL;
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *prop = pd && cq ? ibv_create_qp(pd, &init) : NULL;
	int rounds = argc == 2 ? atoi(argv[1]) : 3, status = EXIT_FAILURE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!prop || ibv_req_notify_cq(cq, 0))
		goto out;

	for (int i = 1; i <= rounds; i++) {
		void *cq_context;
		struct ibv_wc wc;

		if (complete(prop) ||
		    ibv_get_cq_event(channel, &cq, &cq_context))
			goto out;
		ibv_ack_cq_events(cq, 1);
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			printf("round %d: wr_id %d\n", i, (int)wc.wr_id);
	}
	printf("all %d rounds\n", rounds);
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_destroy_qp, prop);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_destroy_comp_channel, channel);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
