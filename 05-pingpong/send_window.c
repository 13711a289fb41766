/*
 * send_window.c - many messages under way at a time
 *
 * The client sends as fast as it can, and keeps up to 128 messages under way.
 * The server receives them, verifies every byte, and answers nothing.
 *
 * New since pingpong.c: many sends and receives are posted, in lists, and only
 * some of the sends produce a completion. Steps 7 and 8 of pingpong.c stand in
 * connection.h, as functions that chapter 06 uses, too.
 *
 * Sides: server and client; make run-05 PROGRAM=send_window starts both
 *
 *	send_window			the server waits for a client
 *	send_window 10.9.0.1		the client connects, and sends
 *
 *	$ send_window 10.9.0.1
 *	...
 *	window:  128 sends, 1 of 32 signaled
 *	4096000 bytes in 0.08 seconds = 409.60 Mbit/sec
 *	1000 messages: 32 calls of ibv_post_send, 32 completions
 *	...
 *
 * See ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3), ibv_create_qp(3).
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/device.h"
#include "../common/pattern.h"
#include "connection.h"

#define BATCH 32	/* longest list of requests, most taken in one poll */
#define SPINS 1000	/* empty polls before a look at clock and peer */

struct side {
	const struct settings *opt;
	int depth;		/* -t, sends under way at a time */
	int receives;		/* -r, receives kept posted by the server */
	int every;		/* -q, one of this many sends is signaled */
	struct pattern pattern;
	int sock;
	struct ibv_qp *qp;
	struct ibv_mr *mr;	/* what the client sends, or what has come */
};

static int parse_options(int argc, char *argv[], struct settings *opt,
			 struct side *side)
{
	const struct option_spec specs[] = {
		{ 't', "tx-depth", "N", "sends under way at a time (128)",
		  .number = &side->depth, .min = 1, .max = 4096 },
		{ 'r', "rx-depth", "N", "receives kept posted (2 x -t)",
		  .number = &side->receives, .min = 1, .max = 8192 },
		{ 'q', "signal", "N", "one of N sends is signaled (-t / 4)",
		  .number = &side->every, .min = 1, .max = 4096 },
		{ 0 }
	};

	side->depth = 128;
	if (settings_parse(argc, argv, opt, specs))
		return -1;
	if (side->receives == 0)
		side->receives = 2 * side->depth;
	if (side->every == 0)
		side->every = (side->depth + 3) / 4;
	if (side->every <= side->depth)
		return 0;

	print_error(0, "no send would be signaled: -t %d is less than -q %d",
		    side->depth, side->every);
	print_hint("choose a -q that is not above -t");
	return -1;
}

/* 7. Create a queue pair, and take it to INIT. The caller destroys it. */
static int create_qp(struct side *side, struct ibv_pd *pd, struct ibv_cq *cq,
		     int port_num)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = side->depth, .max_send_sge = 1,
			 .max_recv_wr = side->receives, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 0,	/* each send says if it is signaled */
	};

	side->qp = ibv_create_qp(pd, &init);
	if (missing(side->qp, "ibv_create_qp(%d sends, %d receives)",
		    side->depth, side->receives))
		return -1;
	return connection_init(side->qp, port_num, 0);
}

/* Where message @n arrives: receives are used up in the order of posting. */
static uint8_t *place_of(const struct side *side, int n)
{
	size_t slot = n % side->receives;

	return (uint8_t *)side->mr->addr + slot * side->opt->size;
}

/* 7. Post the receives for @count messages from @first on, as a list. */
static int post_receives(const struct side *side, int first, int count)
{
	struct ibv_recv_wr wr[BATCH], *bad_wr;
	struct ibv_sge sge[BATCH];

	for (int i = 0; i < count; i++) {
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)place_of(side, first + i),
			.length = side->opt->size,
			.lkey = side->mr->lkey,
		};
		wr[i] = (struct ibv_recv_wr){
			.wr_id = first + i, .sg_list = &sge[i], .num_sge = 1,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
		};
	}
	return failed(ibv_post_recv(side->qp, wr, &bad_wr), "ibv_post_recv");
}

/* 9. Post the sends of @count messages from @first on, as a list. */
static int post_sends(const struct side *side, int first, int count)
{
	struct ibv_send_wr wr[BATCH], *bad_wr;
	struct ibv_sge sge[BATCH];

	for (int i = 0; i < count; i++) {
		const int n = first + i;
		/* The last send is signaled, too, because no later completion
		 * can show that it is done. */
		bool signaled = (n + 1) % side->every == 0 ||
				n + 1 == side->opt->iters;

		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)pattern_message(&side->pattern, n),
			.length = side->opt->size,
			.lkey = side->mr->lkey,
		};
		wr[i] = (struct ibv_send_wr){
			.wr_id = n, .sg_list = &sge[i], .num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
		};
	}
	return failed(ibv_post_send(side->qp, wr, &bad_wr), "ibv_post_send");
}

/*
 * 10. Wait until there are completions, and take up to BATCH of them into @wc.
 * Returns how many, or -1 after an error message. All must be successes.
 */
static int take_completions(const struct side *side, struct ibv_wc *wc)
{
	const long long deadline = deadline_after(side->opt->timeout);
	unsigned int polls = 0;
	int n;

	while ((n = ibv_poll_cq(side->qp->send_cq, BATCH, wc)) == 0) {
		if (++polls % SPINS != 0)
			continue;
		if (exchange_check_peer(side->sock))
			return -1;
		if (clock_ns(CLOCK_MONOTONIC) > deadline)
			return failed(ETIMEDOUT, "waiting for a completion");
		sched_yield();	/* a peer on this CPU can run now */
	}
	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			print_wc_error(&wc[i], "a message");
			return -1;
		}
	}
	return n;
}

static void print_throughput(const struct settings *opt, long long start)
{
	double usec = (double)(clock_ns(CLOCK_MONOTONIC) - start) / 1e3;
	long long bytes = (long long)opt->size * opt->iters;

	printf("%lld bytes in %.2f seconds = %.2f Mbit/sec\n", bytes,
	       usec / 1e6, (double)bytes * 8 / usec);
}

/* The client: keep the window full until all messages have been sent. */
static int send_all(const struct side *side)
{
	const int iters = side->opt->iters, depth = side->depth;
	const long long start = clock_ns(CLOCK_MONOTONIC);
	int posted = 0, sent = 0, calls = 0, completions = 0;
	struct ibv_wc wc[BATCH];

	while (sent < iters) {
		int room = depth - (posted - sent), n = iters - posted;

		if (n > room)
			n = room;
		if (n > BATCH)
			n = BATCH;

		/* 9. As many as there is room for, with one call. */
		if (n > 0) {
			if (post_sends(side, posted, n))
				return -1;
			posted += n;
			calls++;
			continue;
		}

		/* 10. A completion shows that all sends before it are done. */
		n = take_completions(side, wc);
		if (n < 0)
			return -1;
		sent = (int)wc[n - 1].wr_id + 1;
		completions += n;
	}
	printf("window:  %d sends, 1 of %d signaled\n", depth, side->every);
	print_throughput(side->opt, start);
	printf("%d messages: %d calls of ibv_post_send, %d completions\n",
	       iters, calls, completions);
	return 0;
}

/* The server: verify what has come, and post its receives again. */
static int receive_all(const struct side *side)
{
	const long long start = clock_ns(CLOCK_MONOTONIC);
	const int iters = side->opt->iters;
	int received = 0, most = 0;
	struct ibv_wc wc[BATCH];

	while (received < iters) {
		/* 10. What has come since the last look, up to BATCH. */
		int n = take_completions(side, wc);

		if (n < 0)
			return -1;
		for (int i = 0; i < n; i++) {
			if (pattern_check(&side->pattern,
					  place_of(side, received + i),
					  wc[i].byte_len, received + i))
				return -1;
		}

		/* These n places are free again: for the n next messages. */
		if (post_receives(side, received + side->receives, n))
			return -1;
		received += n;
		most = n > most ? n : most;
	}
	print_throughput(side->opt, start);
	printf("%d messages: at most %d from one ibv_poll_cq\n", iters, most);
	pattern_report(&side->pattern, received);
	return 0;
}

int main(int argc, char *argv[])
{
	struct settings opt;
	struct side side = { .opt = &opt, .sock = -1 };
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct path path = { 0 };
	uint8_t *buf = NULL;
	size_t size;
	int status = EXIT_FAILURE;

	start_output();
	if (parse_options(argc, argv, &opt, &side))
		return EXIT_USAGE;

	/* 1. to 3. Device, context, protection domain. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, opt.device, &path.port_num);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    path_find(context, &opt, &path))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd") || pattern_create(&side.pattern, &opt))
		goto out;
	side.pattern.own_kind = true;	/* no ibv_rc_pingpong can be the peer */

	/* 4. Memory region: the server's has a place for each receive. The
	 * client sends from the pattern's table, which needs no right. */
	size = opt.server ? side.pattern.length
			  : (size_t)side.receives * opt.size;
	buf = opt.server ? side.pattern.table : calloc(1, size);
	if (missing(buf, "calloc(%zu bytes)", size))
		goto out;
	side.mr = ibv_reg_mr(pd, buf, size,
			     opt.server ? 0 : IBV_ACCESS_LOCAL_WRITE);
	if (missing(side.mr, "ibv_reg_mr(%zu bytes)", size))
		goto out;

	/* 5. to 7. A CQ with room for all requests, because a queue pair that
	 * fails flushes all of them into it; and a queue pair. */
	cq = ibv_create_cq(context, side.depth + side.receives, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq") ||
	    create_qp(&side, pd, cq, path.port_num))
		goto out;
	/* One by one: a list has BATCH at most, and this need not be fast. */
	for (int i = 0; i < side.receives && !opt.server; i++) {
		if (post_receives(&side, i, 1))
			goto out;
	}

	/* 8. Exchange: the two queue pairs learn each other's address. */
	if (connection_introduce(side.qp, &opt, &path, &side.sock))
		goto out;

	/* 9. and 10. Transfer. */
	if (opt.server ? send_all(&side) : receive_all(&side)) {
		port_explain(context, path.port_num);	/* is it down? */
		goto out;
	}
	if (exchange_goodbye(side.sock) == 0)
		status = EXIT_SUCCESS;

out:
	if (side.sock >= 0)
		close(side.sock);
	status |= RELEASE(ibv_destroy_qp, side.qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, side.mr);
	free(opt.server ? NULL : buf);	/* the client's is the table */
	free(side.pattern.table);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
