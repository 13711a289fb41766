/*
 * broken.c - should take ROUNDS messages, one in each round, and has one bug
 *
 *	broken ROUNDS
 *
 * In each round a message should raise an event, and the program should take
 * its completion. But it takes the first message and then sleeps for ever. The
 * messages do arrive: loopback.h, which sends them, is right.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "loopback.h"

static int arm(struct ibv_cq *cq)
{
	return failed(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

/* Sleep until there is an event, take it, and acknowledge it. */
static int next_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *cq_context;

	if (ibv_get_cq_event(channel, &cq, &cq_context)) {
		print_error(errno, "ibv_get_cq_event");
		return -1;
	}
	ibv_ack_cq_events(cq, 1);
	return 0;
}

/* Take every completion that is in the CQ. */
static int drain(struct ibv_cq *cq, int round)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			print_wc_error(&wc, "a receive");
			return -1;
		}
		printf("round %d: wr_id %d\n", round, (int)wc.wr_id);
	}
	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	return n;
}

int main(int argc, char *argv[])
{
	int rounds = argc == 2 ? atoi(argv[1]) : 3, status = EXIT_FAILURE;
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq = NULL;
	struct loopback loop = { 0 };
	int port = 0;

	start_output();
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, NULL, &port);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	channel = ibv_create_comp_channel(context);
	if (missing(channel, "ibv_create_comp_channel"))
		goto out;
	cq = ibv_create_cq(context, 8, NULL, channel, 0);
	if (missing(cq, "ibv_create_cq") ||
	    loopback_create(&loop, pd, cq, port) || arm(cq))
		goto out;

	for (int i = 1; i <= rounds; i++) {
		if (loopback_send(&loop, 1))
			goto out;
		if (next_event(channel) || drain(cq, i))
			goto out;
	}
	printf("all %d rounds\n", rounds);
	status = EXIT_SUCCESS;

out:
	status |= loopback_destroy(&loop);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_destroy_comp_channel, channel);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
