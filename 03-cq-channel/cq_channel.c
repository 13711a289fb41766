/*
 * cq_channel.c - wait for completions: miss none, and don't spin
 *
 * When the device has done what you asked for, it puts a completion into a
 * completion queue (CQ). This program sleeps until that happens, as a server
 * sleeps in poll(2) until a socket is readable: first one round by hand,
 * step by step, and then in the loop that you can copy, wait_for().
 *
 * New since chapter 02: the completion channel and the CQ; arming the CQ,
 * taking and acknowledging an event, draining the CQ. The messages that
 * complete come from loopback.h, which chapter 04 explains.
 *
 *	cq_channel		on the first device with an ACTIVE port
 *	cq_channel -d rxe_0	on the device of that name
 *
 *	$ cq_channel
 *	device:  rxe_0, port 1
 *	channel: file descriptor 5
 *	CQ:      asked for 37 completions, granted 63
 *	one round by hand: 5 messages
 *	  armed
 *	  the messages have arrived
 *	  woken by an event, acknowledged
 *	  completion: wr_id 1, success (status 0)
 *	  completion: wr_id 2, success (status 0)
 *	  completion: wr_id 3, success (status 0)
 *	  completion: wr_id 4, success (status 0)
 *	  completion: wr_id 5, success (status 0)
 *	  events: 1, completions: 5, polls: 3
 *	the loop: 3 messages, 50 ms apart
 *	  completion: wr_id 6, success (status 0)
 *	  completion: wr_id 7, success (status 0)
 *	  completion: wr_id 8, success (status 0)
 *	  events: 3, completions: 3, polls: 7
 *	released: ibv_destroy_qp
 *	released: ibv_destroy_cq
 *	released: ibv_destroy_cq
 *	released: ibv_destroy_comp_channel
 *	released: ibv_dealloc_pd
 *	released: ibv_close_device
 *	released: ibv_free_device_list
 *
 * See ibv_create_comp_channel(3), ibv_destroy_comp_channel(3),
 * ibv_create_cq(3), ibv_destroy_cq(3), ibv_req_notify_cq(3),
 * ibv_get_cq_event(3), ibv_ack_cq_events(3), ibv_poll_cq(3); IBTA volume 1,
 * 11.4.2 completion queue operations.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/options.h"
#include "loopback.h"

/* Completions that the CQ must have room for. The device may round it up. */
#define CQ_SIZE 37

/* Messages in the round by hand. One poll takes at most BATCH completions, so
 * that emptying the CQ needs more than one. */
#define BURST 5
#define BATCH 4

/* Messages for the loop, and the time before each. */
#define LATE_MESSAGES 3
#define PAUSE_MS 50

/* If no event has come by then, something is wrong. */
#define DEADLINE_MS 3000

/* What has happened so far. */
struct counts {
	int events;
	int completions;
	int polls;
};

/* Ask for one event when the next completion arrives. Returns 0, or -1. */
static int arm(struct ibv_cq *cq)
{
	int solicited_only = 0;	/* any completion raises the event */

	return failed(ibv_req_notify_cq(cq, solicited_only),
		      "ibv_req_notify_cq");
}

/*
 * Sleep until an event comes, take it and acknowledge it. Returns 0, or -1
 * after an error message, also if none comes within DEADLINE_MS.
 */
static int sleep_until_event(struct ibv_comp_channel *channel,
			     struct counts *counts)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;
	int n;

	/* ibv_get_cq_event() alone could sleep for ever; poll(2) can't. */
	n = poll(&fd, 1, DEADLINE_MS);
	if (n < 0) {
		print_error(errno, "poll");
		return -1;
	}
	if (n == 0) {
		print_error(ETIMEDOUT, "no event in %d ms", DEADLINE_MS);
		print_hint("was the CQ armed before the completion came?");
		return -1;
	}

	if (ibv_get_cq_event(channel, &cq, &cq_context)) {
		print_error(errno, "ibv_get_cq_event");
		return -1;
	}
	counts->events++;

	/* ibv_destroy_cq() waits until each event taken is acknowledged. */
	ibv_ack_cq_events(cq, 1);
	return 0;
}

/*
 * Poll until the CQ is empty, because one event can stand for many completions.
 * Returns 0, or -1 after an error message, also if a completion has failed.
 */
static int drain(struct ibv_cq *cq, struct counts *counts)
{
	struct ibv_wc wc[BATCH];
	int n;

	do {
		n = ibv_poll_cq(cq, BATCH, wc);
		counts->polls++;
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				print_wc_error(&wc[i], "a receive");
				return -1;
			}
			printf("  completion: wr_id %d, %s (status %d)\n",
			       (int)wc[i].wr_id,
			       ibv_wc_status_str(wc[i].status), wc[i].status);
			counts->completions++;
		}
	} while (n > 0);

	if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
		print_hint("the CQ is broken: has it overflowed?");
		return -1;
	}
	return 0;
}

/*
 * The loop of this chapter: take completions until there were @want. It sleeps
 * while there is nothing to take, and it misses nothing. Returns 0, or -1 after
 * an error message.
 */
static int wait_for(struct ibv_comp_channel *channel, struct ibv_cq *cq,
		    int want, struct counts *counts)
{
	while (counts->completions < want) {
		/* From now on the next completion raises an event. */
		if (arm(cq))
			return -1;

		/* A message from before the arming raised no event: look. */
		if (drain(cq, counts))
			return -1;

		/* Nothing can be lost any more, so it is safe to sleep. */
		if (counts->completions < want &&
		    sleep_until_event(channel, counts))
			return -1;
	}
	return 0;
}

/* A thread that sends while main() sleeps. Returns @loop if it has failed. */
static void *send_late(void *loop)
{
	for (int i = 0; i < LATE_MESSAGES; i++) {
		usleep(PAUSE_MS * 1000);
		if (loopback_send(loop, 1))
			return loop;
	}
	return NULL;
}

static void print_counts(const struct counts *counts)
{
	printf("  events: %d, completions: %d, polls: %d\n", counts->events,
	       counts->completions, counts->polls);
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
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq = NULL;
	struct loopback loop = { 0 };
	struct counts by_hand = { 0 }, in_loop = { 0 };
	pthread_t sender;
	void *sender_failed;
	int err, port = 0, status = EXIT_FAILURE;

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
	printf("device:  %s, port %d\n", ibv_get_device_name(device), port);

	/* 2. Completion channel: a file descriptor where events arrive. */
	channel = ibv_create_comp_channel(context);
	if (missing(channel, "ibv_create_comp_channel"))
		goto out;
	printf("channel: file descriptor %d\n", channel->fd);

	/* 3. Completion queue, whose events go to the channel. */
	cq = ibv_create_cq(context, CQ_SIZE, NULL, channel, 0);
	if (missing(cq, "ibv_create_cq(%d)", CQ_SIZE)) {
		print_hint("attributes (chapter 01) shows max_cq and max_cqe");
		goto out;
	}
	printf("CQ:      asked for %d completions, granted %d\n", CQ_SIZE,
	       cq->cqe);

	/* 4. A queue pair connected to itself, so that there are messages. */
	if (loopback_create(&loop, pd, cq, port))
		goto out;

	/* 5. Arm, while the CQ is still empty. */
	printf("one round by hand: %d messages\n", BURST);
	if (arm(cq))
		goto out;
	printf("  armed\n");
	if (loopback_send(&loop, BURST))
		goto out;
	printf("  the messages have arrived\n");

	/* 6. The event is there already: take it, acknowledge it. */
	if (sleep_until_event(channel, &by_hand))
		goto out;
	printf("  woken by an event, acknowledged\n");

	/* 7. Drain: there was one event for all of the messages. */
	if (drain(cq, &by_hand))
		goto out;
	print_counts(&by_hand);

	/* 8. The loop, for messages that come one by one, and late. */
	printf("the loop: %d messages, %d ms apart\n", LATE_MESSAGES, PAUSE_MS);
	err = pthread_create(&sender, NULL, send_late, &loop);
	if (failed(err, "pthread_create"))
		goto out;
	err = wait_for(channel, cq, LATE_MESSAGES, &in_loop);
	if (failed(pthread_join(sender, &sender_failed), "pthread_join") ||
	    err || sender_failed)
		goto out;
	print_counts(&in_loop);
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
