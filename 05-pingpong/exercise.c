/*
 * exercise.c - four messages under way, and no more than there is room for
 *
 *	exercise PORT SIZE COUNT		the server receives
 *	exercise PORT SIZE COUNT HOST		the client sends
 *
 * COUNT messages go over one connection, all in one direction. PORT is a TCP
 * port. Your side has SLOTS slots of SIZE bytes in its memory (a peer may have
 * more). Each message is sent from one slot and received into another, so SLOTS
 * messages can be under way.
 *
 * A sender must know how many receives the peer has posted, because a message
 * for which there is none is refused (RNR). At the beginning there are SLOTS,
 * so the sender has SLOTS credits. Each message costs one. When the receiver
 * has posted receives again, it sends the sender as many credits, in a message
 * without bytes: the number is its immediate value.
 *
 * pingpong.c shows everything except the slots and the credits. make try-05
 * runs this program as the client together with its peer; with ARGS=receive,
 * as the server. Write the bodies marked TODO.
 *
 *	$ exercise 18515 3000 6
 *	exchanged
 *	CHECKPOINT connected
 *	got 3000 bytes 0x6b8b4567
 *	CHECKPOINT credit
 *	got 2712 bytes 0x327b23c6
 *	...
 *
 * See ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/options.h"

#define PORT 1			/* of the device */
#define SLOTS 4			/* messages under way at a time */
#define TIMEOUT 10		/* of every wait, in seconds */

struct side {
	struct ibv_cq *cq;	/* of sends and receives */
	struct ibv_qp *qp;
	struct ibv_mr *mr;	/* of SLOTS * @size bytes at @memory */
	uint8_t *memory;
	size_t size;		/* of a slot, and of a message at most */
	bool told;		/* a credit has been sent */
};

/*
 * TODO 05.1: take the queue pair from RESET to RTS, connected to @remote, with
 * a path MTU of 1024. PORT above is the device's port, and not the TCP port of
 * the command line. If an ibv_modify_qp() fails, return its value, otherwise 0.
 * See create_qp() and connect_qp() in pingpong.c; leave out address_check(),
 * which needs a struct that this program does not have.
 */
static int connect_qp(struct ibv_qp *qp, int gid_index,
		      const struct address *local, const struct address *remote)
{
	return todo("05.1");
}

/*
 * TODO 05.2: post a receive into slot @slot: @side->size bytes, which begin
 * @slot * @side->size bytes after @side->memory. Let the number of the slot be
 * its wr_id. Return 0, or -1 if it failed. See post_receive() in pingpong.c.
 */
static int post_receive(const struct side *side, int slot)
{
	return todo("05.2");
}

/*
 * TODO 05.3: send all bytes of slot @slot, without an immediate value
 * (IBV_WR_SEND), and ask for a completion (IBV_SEND_SIGNALED). Let the number
 * of the slot be the wr_id. Return 0, or -1 if it failed. See post_send() in
 * pingpong.c.
 */
static int post_send(const struct side *side, int slot)
{
	return todo("05.3");
}

/*
 * Given: send the peer @count credits, because we have posted @count receives
 * again. No bytes go, only the immediate value. Returns 0, or -1 after an error
 * message.
 */
static int give_credits(struct side *side, uint32_t count)
{
	struct ibv_send_wr wr = {
		.wr_id = SLOTS,		/* no number of a slot */
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(count),
	}, *bad_wr;

	if (!side->told)
		checkpoint("credit");
	side->told = true;
	return failed(ibv_post_send(side->qp, &wr, &bad_wr), "a credit");
}

/* Given: print size and first bytes of the message in slot @slot. Returns 0. */
static int take(const struct side *side, uint64_t slot, size_t size)
{
	uint32_t begin = 0;

	if (slot < SLOTS)
		memcpy(&begin, side->memory + slot * side->size,
		       size < sizeof(begin) ? size : sizeof(begin));
	printf("got %zu bytes 0x%08x\n", size, ntohl(begin));
	return 0;
}

/* Given: fill slot @slot with message @number. The next one has other bytes. */
static void fill(const struct side *side, int slot, int number)
{
	for (size_t i = 0; i < side->size; i++)
		side->memory[slot * side->size + i] = number + i;
}

/*
 * Given: wait for one completion, of a receive or of a send. Returns 0, or -1
 * after an error message if none came in time or it is not a success.
 */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	const long long deadline = deadline_after(TIMEOUT);
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
	} while (n == 0 && clock_ns(CLOCK_MONOTONIC) <= deadline);

	if (n <= 0)
		return failed(n ? EIO : ETIMEDOUT, "no completion");
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	print_wc_error(wc, "a request");
	return -1;
}

/*
 * TODO 05.4: send messages 0 to @count - 1, in order, each with fill() and
 * post_send(). Begin with SLOTS credits; later there may be more, because the
 * peer may have more slots. Send as long as you have a credit and a slot that
 * is free: one that was never used, or whose last send has completed (opcode
 * IBV_WC_SEND). Otherwise wait for a completion. If it is that of a receive
 * (IBV_WC_RECV), credits have come: wc.imm_data is how many, in network byte
 * order. That receive, of slot wc.wr_id, is used up: post it again. Return 0
 * when all sends have completed, or -1 if anything failed. See the sketch under
 * "Exercise" in the chapter, and send_all() in send_window.c.
 */
static int send_all(const struct side *side, int count)
{
	return todo("05.4");
}

/*
 * TODO 05.5: receive @count messages. For each, in this order: give take() its
 * slot (wc.wr_id) and its length (wc.byte_len), post a receive into this slot
 * again, and give the peer a credit. Several credits may go together, but after
 * SLOTS messages at the latest, because then the peer has none left. In the end
 * the peer must have got a credit for every message, also for the last ones. A
 * credit is a send, and its completion comes to the same queue: skip each whose
 * opcode is not IBV_WC_RECV. You need not wait for those of the last credits.
 * Return 0, or -1 if anything failed. See transfer() in pingpong.c.
 */
static int receive_all(struct side *side, int count)
{
	return todo("05.5");
}

/*
 * Given: connect, and then post a receive into each slot. pingpong.c does it in
 * the other order; here nobody sends before both sides have said "ready".
 */
static int introduce(const struct side *side, struct ibv_context *context,
		     int sock)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct address remote, local = {
		.qpn = side->qp->qp_num,
		.psn = random_psn(),
	};
	int err;

	if (failed(ibv_query_port(context, PORT, &port), "ibv_query_port") ||
	    gid_choose(context, PORT, &port, -1, &gid))
		return -1;
	local.gid = gid.gid;
	local.lid = port.lid;
	if (exchange_send_address(sock, &local) ||
	    exchange_receive_address(sock, &remote))
		return -1;
	puts("exchanged");
	err = connect_qp(side->qp, gid.gid_index, &local, &remote);
	if (err) {
		print_error(err > 0 ? err : 0, "connecting the queue pair");
		return -1;
	}
	for (int i = 0; i < SLOTS; i++)
		if (post_receive(side, i))
			return -1;
	return exchange_same(sock, "ready", "\"ready\"");
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct side side = { .size = 0 };
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = 2 * SLOTS,	/* and credits */
			.max_recv_wr = SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	int count, sock = -1, status = EXIT_FAILURE;

	start_output();
	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: exercise PORT SIZE COUNT [HOST]\n");
		return EXIT_USAGE;
	}
	side.size = strtoul(argv[2], NULL, 0);
	count = atoi(argv[3]);

	/* 1. to 7. The first device, a region, a CQ and a queue pair. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device"))
		goto out;
	side.memory = calloc(SLOTS, side.size);
	if (missing(side.memory, "calloc"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	side.mr = ibv_reg_mr(pd, side.memory, SLOTS * side.size,
			     IBV_ACCESS_LOCAL_WRITE);
	if (missing(side.mr, "ibv_reg_mr"))
		goto out;
	side.cq = ibv_create_cq(context, 3 * SLOTS, NULL, NULL, 0);
	if (missing(side.cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = side.cq;
	side.qp = ibv_create_qp(pd, &init);
	if (missing(side.qp, "ibv_create_qp"))
		goto out;

	/* 8. Exchange addresses, connect, post receives. */
	sock = argc == 5 ? exchange_connect(argv[4], atoi(argv[1]), TIMEOUT) :
			   exchange_serve(atoi(argv[1]), TIMEOUT);
	if (sock < 0 || introduce(&side, context, sock))
		goto out;
	checkpoint("connected");

	/* 9. and 10. Transfer; then wait until the peer is done, too. */
	if (argc == 5 ? send_all(&side, count) : receive_all(&side, count))
		goto out;
	checkpoint("done");
	if (exchange_goodbye(sock) == 0)
		status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	status |= RELEASE(ibv_destroy_qp, side.qp);
	status |= RELEASE(ibv_destroy_cq, side.cq);
	status |= RELEASE(ibv_dereg_mr, side.mr);
	free(side.memory);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
