/*
 * exercise.c - write into a peer's memory, and take a lock that lives there
 *
 *	exercise write PORT SIZE ITERS		be the server
 *	exercise write PORT SIZE ITERS HOST	be the client
 *	exercise lock PORT ROUNDS HOST		be a client of the lock
 *
 * PORT is a TCP port.
 *
 * write: in each of ITERS rounds the peer writes SIZE bytes into our memory, by
 * RDMA WRITE with an immediate value. We print that value as "got", and answer:
 * we write the same bytes into the peer's memory, with the immediate value plus
 * one, so that the peer can see that both have come to us.
 *
 * lock: the peer has two numbers of 8 bytes in its memory, a lock and a
 * counter. A lock that is 0 is free; otherwise it is the number of the client
 * that holds it. Our number is that of our queue pair. In each of ROUNDS rounds
 * we take the lock, add 1 to the counter, and release the lock. Other clients
 * do the same, and nobody's 1 may be lost. The peer permits nothing but atomics
 * on the lock, and nothing but READ and WRITE on the counter.
 *
 * make try-06 runs it together with the peer; make try-06 ARGS=lock is the
 * second half. Write the bodies marked TODO.
 *
 *	$ exercise lock 18515 3 10.9.0.1
 *	exchanged
 *	found 0x0000a1b200000000
 *	CHECKPOINT tried
 *	CHECKPOINT locked
 *	CHECKPOINT added
 *	added 3
 *	released: ibv_destroy_qp
 *	...
 *
 * See ibv_reg_mr(3), ibv_post_send(3), ibv_poll_cq(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../06-one-sided/connection.h"
#include "../common/checkpoint.h"
#include "../common/completion.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/options.h"

#define PORT_NUM 1		/* of the device */
#define ROOM 16			/* receives that are kept posted */
#define TIMEOUT 10		/* of every wait, in seconds */

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;	/* the region around our memory */
	uint64_t *memory;	/* our memory; lock: two numbers */
	size_t size;		/* of our memory, in bytes */
	int sock;		/* the TCP connection to the peer */
	struct remote buffer;	/* write: the peer's memory */
	struct remote lock;	/* lock: the peer's lock */
	struct remote counter;	/* lock: the peer's counter */
};

/*
 * TODO 06.1: permit the peer to write into our memory, and nothing else.
 * Permission is given in two places: register the @side->size bytes at
 * @side->memory, and let the region be @side->mr; then take @side->qp from
 * RESET to INIT by connection_init(), with the device's port PORT_NUM. Only
 * the region needs LOCAL_WRITE as well, so that our own device can write there.
 * Return 0, or -1 if anything failed. See step 4 in one_sided.c, create_qp().
 */
static int permit(struct side *side, struct ibv_pd *pd)
{
	return todo("06.1");
}

/*
 * Given: post a receive for the next immediate value. It has no buffer. Returns
 * 0, or -1 after an error message.
 */
static int post_receive(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;

	return failed(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}

/*
 * Given: wait for one completion, of a receive or of a request of ours. Returns
 * 0, or -1 after an error message if none came in time or it is not a success.
 */
static int next_completion(const struct side *side, struct ibv_wc *wc)
{
	return connection_wait(side->cq, side->sock, TIMEOUT, wc, "a request");
}

/*
 * TODO 06.2: wait until the peer has written, and set *@imm to the immediate
 * value of that write, in host byte order. It is a nonce, which is a number
 * that is used only once. The completion that shows this has the opcode
 * IBV_WC_RECV_RDMA_WITH_IMM; completions of our own writes may come before it.
 * A receive is used up then: post another. Return 0, or -1 if anything failed.
 * See look() in one_sided.c.
 */
static int receive_nonce(const struct side *side, uint32_t *imm)
{
	return todo("06.2");
}

/*
 * TODO 06.3: write all bytes of our memory into @side->buffer, by RDMA WRITE
 * with the immediate value @imm, which is in host byte order. Ask for a
 * completion (IBV_SEND_SIGNALED), but don't wait for it here: the next call of
 * receive_nonce() takes it out of the queue. Return 0 or an errno value, as
 * ibv_post_send() does. See perform() in one_sided.c.
 */
static int answer(const struct side *side, uint32_t imm)
{
	return todo("06.3");
}

/*
 * TODO 06.4: if the peer's lock, whose address and key are in @side->lock, is
 * @compare, replace it by @swap, as one operation. Let the old value come to
 * side->memory[0], wait for the completion, and set *@found to that old value.
 * It is not an error if nothing was replaced. Return 0, or -1 if anything
 * failed. See perform() in one_sided.c, and next_completion() above.
 */
static int compare_and_swap(const struct side *side, uint64_t compare,
			    uint64_t swap, uint64_t *found)
{
	return todo("06.4");
}

/*
 * TODO 06.5: take the lock: try to replace 0 by @number until that has worked.
 * Only the old value shows whether it has: see "The operations" in the chapter.
 * Try again at once. No deadline is needed here, because the only other client
 * is in the peer's program, and next_completion() notices if that dies. (A
 * program of your own needs one: a client that holds the lock may be stopped.)
 * Return 0 when the lock is ours, or -1 if anything failed.
 */
static int take_lock(const struct side *side, uint64_t number)
{
	return todo("06.5");
}

/*
 * TODO 06.6: add 1 to the peer's counter, while we hold the lock: READ it into
 * side->memory[1], wait for the completion, add 1 there (both machines have the
 * same byte order here), WRITE it back, and wait for that completion, too: the
 * next wait would return with it. Return 0, or -1 if anything failed.
 */
static int add_one(const struct side *side)
{
	return todo("06.6");
}

/* Given: take what the peer writes, and answer, @iters times. */
static int write_and_answer(const struct side *side, int iters)
{
	for (int i = 0; i < iters; i++) {
		uint32_t imm = 0;
		int err;

		if (receive_nonce(side, &imm))
			return -1;
		printf("got 0x%08x\n", imm);
		err = answer(side, imm + 1);
		if (err) {
			print_error(err > 0 ? err : 0, "answering");
			return -1;
		}
	}
	checkpoint("answered");
	return 0;
}

/* Given: add 1 to the counter, @rounds times, each time with the lock. */
static int use_lock(const struct side *side, int rounds)
{
	const uint64_t number = side->qp->qp_num;
	uint64_t found = 0;

	/* Try once. The peer holds the lock when we come, so it must fail. */
	if (compare_and_swap(side, 0, number, &found))
		return -1;
	printf("found 0x%016" PRIx64 "\n", found);
	checkpoint("tried");
	if (found == 0) {
		print_error(0, "expected a lock that is taken, but it was 0");
		return -1;
	}

	for (int i = 0; i < rounds; i++) {
		if (take_lock(side, number))
			return -1;
		if (i == 0)
			checkpoint("locked");
		if (add_one(side))
			return -1;
		if (i == 0)
			checkpoint("added");
		if (compare_and_swap(side, number, 0, &found))
			return -1;
		if (found != number) {
			print_error(0, "the lock was 0x%" PRIx64 ", not ours",
				    found);
			return -1;
		}
		usleep(1000);	/* others want it, too */
	}
	printf("added %d\n", rounds);
	return 0;
}

/* Given: each side tells the other its address and memory; then connect. */
static int introduce(struct side *side, struct ibv_context *context, bool lock)
{
	const struct connection_depth depth = { .mine = 1, .peers = 1 };
	struct path path = { .port_num = PORT_NUM, .mtu = IBV_MTU_1024 };
	struct address remote, local = {
		.qpn = side->qp->qp_num,
		.psn = random_psn(),
	};

	if (failed(ibv_query_port(context, PORT_NUM, &path.port),
		   "ibv_query_port") ||
	    gid_choose(context, PORT_NUM, &path.port, -1, &path.gid))
		return -1;
	local.gid = path.gid.gid;
	local.lid = path.port.lid;
	if (exchange_send_address(side->sock, &local) ||
	    connection_offer(side->sock, side->mr) ||
	    exchange_receive_address(side->sock, &remote) ||
	    connection_take(side->sock, lock ? &side->lock : &side->buffer) ||
	    (lock && connection_take(side->sock, &side->counter)))
		return -1;
	puts("exchanged");
	/*
	 * The timeout is 0, so nothing is sent again. Otherwise a READ to which
	 * you give a fence might hang on Soft-RoCE: see docs/errors.md. (You
	 * need no fence here.) Only this exercise may do that, because on one
	 * machine no packet is lost.
	 */
	return connection_start(side->qp, &path, depth, 0, &local, &remote);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct side side = { .sock = -1 };
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = ROOM,
			.max_recv_wr = ROOM,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	const char *host = NULL;
	bool lock = argc == 5 && strcmp(argv[1], "lock") == 0;
	int count, status = EXIT_FAILURE;

	start_output();
	if (!lock &&
	    (argc < 5 || argc > 6 || strcmp(argv[1], "write") != 0)) {
		fprintf(stderr, "usage: exercise write PORT SIZE ITERS [HOST]\n"
			"       exercise lock PORT ROUNDS HOST\n");
		return EXIT_USAGE;
	}
	side.size = lock ? 2 * sizeof(*side.memory) : strtoul(argv[3], NULL, 0);
	count = atoi(lock ? argv[3] : argv[4]);
	if (lock)
		host = argv[4];
	else if (argc == 6)
		host = argv[5];

	/* 1. The first device, and what requests need. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device"))
		goto out;
	side.memory = calloc(1, side.size);
	if (missing(side.memory, "calloc"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	side.cq = ibv_create_cq(context, 2 * ROOM, NULL, NULL, 0);
	if (missing(side.cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = side.cq;
	side.qp = ibv_create_qp(pd, &init);
	if (missing(side.qp, "ibv_create_qp"))
		goto out;

	/* 2. Permit the peer to write, and connect. */
	if (permit(&side, pd))
		goto out;
	if (!side.mr) {
		print_error(0, "permit() left no memory region in side->mr");
		goto out;
	}
	side.sock = host ? exchange_connect(host, atoi(argv[2]), TIMEOUT) :
			   exchange_serve(atoi(argv[2]), TIMEOUT);
	if (side.sock < 0 || introduce(&side, context, lock))
		goto out;

	/* 3. Post receives. The peer waits for our "ready". */
	for (int i = 0; i < ROOM; i++) {
		if (post_receive(side.qp))
			goto out;
	}
	if (!lock)
		checkpoint("connected");
	if (exchange_same(side.sock, "ready", "\"ready\""))
		goto out;

	/* 4. The rounds. Keep the queue pair until the peer is done, too. */
	if (lock ? use_lock(&side, count) : write_and_answer(&side, count))
		goto out;
	if (exchange_goodbye(side.sock) == 0)
		status = EXIT_SUCCESS;

out:
	if (side.sock >= 0)
		close(side.sock);
	status |= RELEASE(ibv_destroy_qp, side.qp);
	status |= RELEASE(ibv_destroy_cq, side.cq);
	status |= RELEASE(ibv_dereg_mr, side.mr);
	free(side.memory);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
