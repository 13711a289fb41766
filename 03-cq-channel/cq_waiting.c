/*
 * cq_waiting.c - how a wake-up gets lost, and what waiting costs
 *
 * Two loops wait for a message that arrives at the worst moment. The wrong one
 * drains the CQ and then arms it: it goes to sleep with work in the CQ, and
 * nothing wakes it. The right one arms first and then drains. Then the program
 * measures the CPU time of waiting, asleep and awake. No verb is new.
 *
 *	cq_waiting		on the first device with an ACTIVE port
 *	cq_waiting -d rxe_0	on the device of that name
 *
 *	$ cq_waiting
 *	device: rxe_0, port 1
 *	the wrong loop: drain, arm, sleep
 *	  drained, completions so far: 0
 *	  a message arrives
 *	  armed
 *	  slept 100 ms, no event
 *	  a message arrives
 *	  slept, woken by an event
 *	  drained, completions so far: 2
 *	the right loop: arm, drain, sleep
 *	...
 *	asleep, for a message that comes in 200 ms
 *	...
 *	  waited 203.3 ms, CPU time: 1.7 ms, polls: 3
 *	awake, for a message that comes in 200 ms
 *	  waited 203.5 ms, CPU time: 203.4 ms, polls: 1094422
 *	...
 *
 * See ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_poll_cq(3).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/options.h"
#include "loopback.h"

#define CQ_SIZE 8	/* more completions than there ever are at once */

/*
 * The longest sleeps, in milliseconds: DEADLINE_MS if an event must come,
 * NO_EVENT_MS after a lost wake-up, when no event can come.
 */
#define DEADLINE_MS 3000
#define NO_EVENT_MS 100

/* To measure the cost of waiting, we send a message after this time. */
#define LATE_MS 200

/* What a loop waits on, and what has happened so far. */
struct waiter {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct loopback *loop;
	int surprises;		/* messages that will arrive at a bad moment */
	int completions;
	long polls;
};

/*
 * Called at a bad moment: if w->surprises is not 0, subtract 1 and send one
 * message. Returns 0, or -1 after an error message.
 */
static int surprise(struct waiter *w)
{
	if (w->surprises == 0)
		return 0;

	w->surprises--;
	printf("  a message arrives\n");
	return loopback_send(w->loop, 1);
}

static int arm(struct waiter *w)
{
	if (failed(ibv_req_notify_cq(w->cq, 0), "ibv_req_notify_cq"))
		return -1;

	printf("  armed\n");
	return 0;
}

/* Poll until the CQ is empty. Prints nothing: wait_awake() calls it often. */
static int drain(struct waiter *w)
{
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(w->cq, 1, &wc);
		w->polls++;
		w->completions += n > 0;
	} while (n > 0 && wc.status == IBV_WC_SUCCESS);

	if (n > 0)
		print_wc_error(&wc, "a receive");
	if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
		print_hint("the CQ is broken: has it overflowed?");
	}
	return n ? -1 : 0;
}

/*
 * Sleep until an event comes, or for @ms milliseconds. If one came, take and
 * acknowledge it, and set *@woken to true; otherwise set it to false. Returns
 * 0 in both cases, or -1 after an error message.
 */
static int sleep_for_event(struct waiter *w, int ms, bool *woken)
{
	struct pollfd fd = { .fd = w->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;
	int n = poll(&fd, 1, ms);

	if (n < 0)
		return failed(errno, "poll");
	*woken = n > 0;
	if (!*woken) {
		printf("  slept %d ms, no event\n", ms);
		return 0;
	}

	if (ibv_get_cq_event(w->channel, &cq, &cq_context))
		return failed(errno, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	printf("  slept, woken by an event\n");
	return 0;
}

static int too_late(const struct waiter *w, int want)
{
	print_error(ETIMEDOUT, "%d of %d completions came in %d ms",
		    w->completions, want, DEADLINE_MS);
	print_hint("is the device still there? make run-01 shows it");
	return -1;
}

/*
 * WRONG: it drains first and arms then. If a message arrives between the two,
 * its completion raises no event, and nobody looks into the CQ any more.
 * Returns 0, also if no event came, or -1 after an error message.
 */
static int wait_wrong(struct waiter *w, int want)
{
	bool woken;

	while (w->completions < want) {
		if (drain(w))
			return -1;
		printf("  drained, completions so far: %d\n", w->completions);
		if (w->completions >= want)
			return 0;

		if (surprise(w) || arm(w) ||
		    sleep_for_event(w, NO_EVENT_MS, &woken))
			return -1;
		/* Without that limit this loop might sleep for ever. */
		if (!woken)
			return 0;
	}
	return 0;
}

/*
 * Right: it arms first and drains then. If a message arrives before the arming,
 * the drain finds its completion; if it arrives later, there is an event.
 */
static int wait_right(struct waiter *w, int want)
{
	bool woken;

	while (w->completions < want) {
		if (surprise(w) || arm(w) || drain(w))
			return -1;
		printf("  drained, completions so far: %d\n", w->completions);
		if (w->completions >= want)
			return 0;

		if (surprise(w) || sleep_for_event(w, DEADLINE_MS, &woken))
			return -1;
		if (!woken)
			return too_late(w, want);
	}
	return 0;
}

/* Right, too, but it never sleeps: it polls until the completions are there. */
static int wait_awake(struct waiter *w, int want)
{
	long long start = clock_ns(CLOCK_MONOTONIC);

	while (w->completions < want) {
		if (drain(w))
			return -1;
		if (clock_ns(CLOCK_MONOTONIC) - start > DEADLINE_MS * NS_PER_MS)
			return too_late(w, want);
	}
	return 0;
}

/*
 * Let one wake-up get lost, and show that the next event brings two messages.
 * @w is a copy, so that each experiment begins with the same counts.
 */
static int show_wrong(struct waiter w)
{
	bool woken;

	w.surprises = 1;
	if (wait_wrong(&w, 1))
		return -1;
	if (w.completions) {
		/* Some adapters also raise an event for a completion that was
		 * in the CQ before the arming. */
		puts("  not lost: an event came all the same");
		return 0;
	}

	/* The CQ is still armed. So the next message raises an event. */
	w.surprises = 1;
	if (surprise(&w) || sleep_for_event(&w, DEADLINE_MS, &woken))
		return -1;
	if (!woken)
		return too_late(&w, 2);
	if (drain(&w))
		return -1;
	printf("  drained, completions so far: %d\n", w.completions);
	return 0;
}

/* Two messages at bad moments: before the arming, and before the sleep. */
static int show_right(struct waiter w)
{
	w.surprises = 2;
	return wait_right(&w, 2);
}

/* A thread that sends one message, late. NULL if all went well. */
static void *send_late(void *loop)
{
	usleep(LATE_MS * 1000);
	return loopback_send(loop, 1) ? loop : NULL;
}

/* Measure what it costs to wait for a late message with @wait, called @how. */
static int measure(struct waiter w, const char *how,
		   int (*wait)(struct waiter *w, int want))
{
	long long elapsed = clock_ns(CLOCK_MONOTONIC);
	long long cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	pthread_t sender;
	void *sender_failed;
	int err = pthread_create(&sender, NULL, send_late, w.loop);

	if (failed(err, "pthread_create"))
		return -1;

	printf("%s, for a message that comes in %d ms\n", how, LATE_MS);
	err = wait(&w, 1);
	elapsed = clock_ns(CLOCK_MONOTONIC) - elapsed;
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	if (failed(pthread_join(sender, &sender_failed), "pthread_join") ||
	    err || sender_failed)
		return -1;

	printf("  waited %.1f ms, CPU time: %.1f ms, polls: %ld\n",
	       (double)elapsed / NS_PER_MS, (double)cpu / NS_PER_MS, w.polls);
	return 0;
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
	struct loopback loop = { 0 };
	struct waiter w = { .loop = &loop };
	int port = 0, status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, PD, channel, CQ and QP, as in cq_channel.c. */
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
	w.channel = ibv_create_comp_channel(context);
	if (missing(w.channel, "ibv_create_comp_channel"))
		goto out;
	w.cq = ibv_create_cq(context, CQ_SIZE, NULL, w.channel, 0);
	if (missing(w.cq, "ibv_create_cq(%d)", CQ_SIZE) ||
	    loopback_create(&loop, pd, w.cq, port))
		goto out;
	printf("device: %s, port %d\n", ibv_get_device_name(device), port);

	/* 2. The wrong loop loses a wake-up. */
	printf("the wrong loop: drain, arm, sleep\n");
	if (show_wrong(w))
		goto out;

	/* 3. The right loop loses none, whenever messages arrive. */
	printf("the right loop: arm, drain, sleep\n");
	if (show_right(w))
		goto out;

	/* 4. The cost of waiting, asleep and awake. */
	if (measure(w, "asleep", wait_right) || measure(w, "awake", wait_awake))
		goto out;
	status = EXIT_SUCCESS;

out:
	status |= loopback_destroy(&loop);
	status |= RELEASE(ibv_destroy_cq, w.cq);
	status |= RELEASE(ibv_destroy_comp_channel, w.channel);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
