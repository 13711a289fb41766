/*
 * cq_channel.c - wait for completions: miss none, and don't spin
 *
 * Work that is done leaves a completion in a completion queue (CQ). Polling
 * the queue until it does costs a CPU. To sleep until an event comes from a
 * completion channel costs next to nothing, but has a gap that completions
 * slip through, unless one looks again after arming.
 *
 * New since chapter 02: the channel and the CQ; arming the CQ, taking and
 * acknowledging the event, draining the CQ; and what each way of waiting costs.
 *
 *	cq_channel		on the first device
 *	cq_channel -d rxe_0	on the device of that name
 *
 *	$ cq_channel
 *	device:  rxe_0, the first
 *	channel: file descriptor 5
 *	CQ:      asked for 37 completions, granted 63
 *	one round: arm, sleep, take the event, acknowledge, drain
 *	  completion: wr_id 1, Work Request Flushed Error (status 5)
 *	  completion: wr_id 2, Work Request Flushed Error (status 5)
 *	  completion: wr_id 3, Work Request Flushed Error (status 5)
 *	  completion: wr_id 4, Work Request Flushed Error (status 5)
 *	  completion: wr_id 5, Work Request Flushed Error (status 5)
 *	  events: 1, completions: 5, polls: 3
 *	the gap: one slips in after the last empty poll
 *	  arm, sleep:
 *	  events: 0, completions: 0
 *	  completion: wr_id 1, Work Request Flushed Error (status 5)
 *	  missed: 1
 *	  arm, poll again, sleep:
 *	  completion: wr_id 1, Work Request Flushed Error (status 5)
 *	  events: 0, completions: 1
 *	  missed: 0
 *	the cost: one comes in 200 ms
 *	  completion: wr_id 1, Work Request Flushed Error (status 5)
 *	  asleep: 248.7 ms, CPU time: 12.7 ms, events: 1, polls: 4
 *	  completion: wr_id 1, Work Request Flushed Error (status 5)
 *	  awake:  214.8 ms, CPU time: 214.8 ms, events: 0, polls: 1094422
 *	released: ibv_destroy_qp
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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/options.h"

/* Completions to have room for. The device rounds it up, as it likes. */
#define CQ_SIZE 37

/* Completions for one event; and for one poll, fewer: it takes several. */
#define BURST 5
#define BATCH 4

/* No sleep is longer: for an event that must come, and for one that can't. */
#define DEADLINE_MS 3000
#define NO_EVENT_MS 100

/* How far away the completion is that shows the cost of waiting. */
#define AWAY_MS 200

/* How to wait; and what came of it. */
struct wait {
	int want;		/* completions */
	struct ibv_qp *prop;	/* lets one slip in before the arming */
	bool careless;		/* does not look again after the arming */

	int completions;
	int events;
	long polls;
};

static double clock_ms(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
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

/*
 * The prop: something that completes, without a network. A queue pair in the
 * state ERR gives back the receives posted to it, as "flushed". Chapter 04 is
 * about queue pairs and their states; these two functions can wait until then.
 */
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
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;
	int err = ibv_modify_qp(prop, &reset, IBV_QP_STATE);

	if (!err)
		err = ibv_modify_qp(prop, &init, IBV_QP_STATE | IBV_QP_PORT |
				    IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	while (!err && wr.wr_id++ < (uint64_t)n)
		err = ibv_post_recv(prop, &wr, &bad_wr);
	if (!err)
		err = ibv_modify_qp(prop, &error, IBV_QP_STATE);
	if (err)
		print_error(err, "the prop: making %d completions", n);
	return err;
}

/* Ask for one event, when the next completion arrives. */
static int arm(struct ibv_cq *cq)
{
	int any = 0;	/* not only those that failed, or were solicited */
	int err = ibv_req_notify_cq(cq, any);

	if (err)
		print_error(err, "ibv_req_notify_cq");
	return err;
}

/* Sleep until there is an event: 1; or for @ms: 0. */
static int next_event(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;
	int n;

	/* ibv_get_cq_event() would sleep for ever; poll(2) has a deadline. */
	n = poll(&fd, 1, ms);
	if (n == 0)
		return 0;

	if (n < 0 || ibv_get_cq_event(channel, &cq, &cq_context)) {
		print_error(errno, n < 0 ? "poll" : "ibv_get_cq_event");
		return -1;
	}

	/* For every event, or ibv_destroy_cq() waits for ever. */
	ibv_ack_cq_events(cq, 1);
	return 1;
}

/* Poll until the CQ is empty: an event doesn't say how many there are. */
static int drain(struct ibv_cq *cq, struct wait *wait)
{
	struct ibv_wc wc[BATCH];
	int n;

	do {
		n = ibv_poll_cq(cq, BATCH, wc);
		wait->polls++;
		for (int i = 0; i < n; i++) {
			printf("  completion: wr_id %d, %s (status %d)\n",
			       (int)wc[i].wr_id,
			       ibv_wc_status_str(wc[i].status), wc[i].status);
			wait->completions++;
		}
	} while (n > 0);

	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	return n;
}

static int too_late(const struct wait *wait)
{
	print_error(ETIMEDOUT, "%d of %d completions came in %d ms",
		    wait->completions, wait->want, DEADLINE_MS);
	print_hint("has the CQ overflowed? is the device still there?");
	return -1;
}

/*
 * Let one slip in, and be sure that it's there, which only an event can tell
 * without polling. The CQ is as before then: not armed, and no event to come.
 */
static int slip_in(struct ibv_comp_channel *channel, struct ibv_cq *cq,
		   const struct wait *wait)
{
	int n;

	if (arm(cq) || complete(wait->prop, 1))
		return -1;

	n = next_event(channel, DEADLINE_MS);
	return n == 0 ? too_late(wait) : n - 1;
}

/* The loop that neither misses nor spins. */
static int wait_asleep(struct ibv_comp_channel *channel, struct ibv_cq *cq,
		       struct wait *wait)
{
	bool armed = false;
	int n;

	for (;;) {
		if (drain(cq, wait))
			return -1;
		if (wait->completions >= wait->want)
			return 0;

		if (!armed) {
			if (wait->prop && slip_in(channel, cq, wait))
				return -1;
			if (arm(cq))
				return -1;
			armed = true;
			/* What came before the arming gives no event: look. */
			if (!wait->careless)
				continue;
		}

		n = next_event(channel,
			       wait->careless ? NO_EVENT_MS : DEADLINE_MS);
		if (n < 0)
			return -1;
		if (n == 0)
			return wait->careless ? 0 : too_late(wait);
		wait->events++;
		armed = false;
	}
}

/* The same, but spinning. */
static int wait_awake(struct ibv_cq *cq, struct wait *wait)
{
	double deadline = clock_ms(CLOCK_MONOTONIC) + DEADLINE_MS;

	do {
		if (drain(cq, wait))
			return -1;
		if (wait->completions >= wait->want)
			return 0;
	} while (clock_ms(CLOCK_MONOTONIC) < deadline);

	return too_late(wait);
}

static void *complete_later(void *prop)
{
	usleep(AWAY_MS * 1000);
	return complete(prop, 1) ? prop : NULL;
}

/* What it costs to wait for the prop; without a @channel, awake. */
static int measure(struct ibv_comp_channel *channel, struct ibv_cq *cq,
		   struct ibv_qp *prop)
{
	struct wait wait = { .want = 1 };
	double elapsed = clock_ms(CLOCK_MONOTONIC);
	double cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
	pthread_t thread;
	void *failed;
	int err = pthread_create(&thread, NULL, complete_later, prop);

	if (err) {
		print_error(err, "pthread_create");
		return -1;
	}

	err = channel ? wait_asleep(channel, cq, &wait) :
			wait_awake(cq, &wait);
	elapsed = clock_ms(CLOCK_MONOTONIC) - elapsed;
	cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
	pthread_join(thread, &failed);
	if (err || failed)
		return -1;

	printf("  %s %.1f ms, CPU time: %.1f ms, events: %d, polls: %ld\n",
	       channel ? "asleep:" : "awake: ", elapsed, cpu, wait.events,
	       wait.polls);
	return 0;
}

int main(int argc, char *argv[])
{
	struct wait round = { .want = BURST };
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device (the first)", .text = &name },
		{ 0 }
	};
	struct ibv_device **list = NULL;
	struct ibv_device *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_comp_channel *channel = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *prop = NULL;
	int status = EXIT_FAILURE;

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
	printf("device:  %s, %s\n", ibv_get_device_name(device),
	       name ? "given with -d" : "the first");

	/* 2. Completion channel: where events come from, a file descriptor. */
	channel = ibv_create_comp_channel(context);
	if (!channel) {
		print_error(errno, "ibv_create_comp_channel");
		goto out;
	}
	printf("channel: file descriptor %d\n", channel->fd);

	/* 3. Completion queue, whose events go to the channel. */
	cq = ibv_create_cq(context, CQ_SIZE, NULL, channel, 0);
	if (!cq) {
		print_error(errno, "ibv_create_cq(%d)", CQ_SIZE);
		print_hint("attributes (chapter 01) shows max_cq and max_cqe");
		goto out;
	}
	printf("CQ:      asked for %d completions, granted %d\n", CQ_SIZE,
	       cq->cqe);

	prop = create_prop(pd, cq);
	if (!prop) {
		print_error(errno, "ibv_create_qp");
		goto out;
	}

	/* 4. Arm, while there is nothing yet. */
	printf("one round: arm, sleep, take the event, acknowledge, drain\n");
	if (arm(cq) || complete(prop, BURST))
		goto out;

	/* 5. Sleep, take the event, acknowledge it. */
	round.events = next_event(channel, DEADLINE_MS);
	if (round.events < 1) {
		if (round.events == 0)
			too_late(&round);
		goto out;
	}

	/* 6. Drain: one event was for all, even for those yet to come. */
	if (wait_awake(cq, &round))
		goto out;
	printf("  events: %d, completions: %d, polls: %ld\n", round.events,
	       round.completions, round.polls);

	/* 7. The gap: between the last empty poll and the arming. */
	printf("the gap: one slips in after the last empty poll\n");
	for (int careful = 0; careful <= 1; careful++) {
		struct wait gap = {
			.want = 1, .prop = prop, .careless = !careful
		};
		int found;

		printf("  arm, %s:\n", careful ? "poll again, sleep" : "sleep");
		if (wait_asleep(channel, cq, &gap))
			goto out;
		found = gap.completions;
		printf("  events: %d, completions: %d\n", gap.events, found);

		/* What it missed is in the CQ; nothing would have told. */
		if (drain(cq, &gap))
			goto out;
		printf("  missed: %d\n", gap.completions - found);
	}

	/* 8. The cost of waiting for a completion that is not there yet. */
	printf("the cost: one comes in %d ms\n", AWAY_MS);
	if (measure(channel, cq, prop) || measure(NULL, cq, prop))
		goto out;
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
