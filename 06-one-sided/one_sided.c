/*
 * one_sided.c - read, write and change the memory of a process that sleeps
 *
 * The target registers memory, tells the initiator where it is, and sleeps.
 * The initiator reads, writes and changes that memory. At first it wakes the
 * target after each operation, so that you can see what the memory holds.
 *
 * New since chapter 05: the target tells the initiator an address and an rkey,
 * and permits the access twice: in the memory region and in the queue pair.
 *
 * Sides: server and client; make run-06 starts both
 *
 *	one_sided			the server is the target
 *	one_sided 10.9.0.1		the client is the initiator
 *
 *	$ one_sided
 *	...
 *	WRITE               number 100, "initiator's text,", no completion
 *	...
 *	slept 0.63 s, and used 0.08 ms of CPU time
 *
 * See ibv_reg_mr(3), ibv_post_send(3), ibv_poll_cq(3); IBTA volume 1, 9.4.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/device.h"
#include "connection.h"

/* The initiator's rights: the target's region and queue pair both need them. */
#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

/* The region of each side. The initiator works on the target's. */
struct memory {
	uint64_t number;	/* atomics need a multiple of 8 as address */
	char text[];		/* -s bytes, and room for a copy of them */
};

struct side {
	const struct settings *opt;
	int sock;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct memory *memory;
	struct remote target;	/* initiator: the target's memory */
};

struct operation {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint64_t compare_add;	/* what to add, or what to compare with */
	uint64_t swap;		/* if that is equal, the new number */
	uint64_t old;		/* what the number must have been before */
};

/* The operations of step 9, in order. Both sides print these names. */
static const struct operation each[] = {
	{ "READ", IBV_WR_RDMA_READ, 0, 0, 0 },
	{ "WRITE", IBV_WR_RDMA_WRITE, 0, 0, 0 },
	{ "FETCH_AND_ADD 5", IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, 100 },
	{ "CMP_AND_SWP 105, 7", IBV_WR_ATOMIC_CMP_AND_SWP, 105, 7, 105 },
	{ "CMP_AND_SWP 105, 8", IBV_WR_ATOMIC_CMP_AND_SWP, 105, 8, 7 },
	{ "WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0 },
};
#define KINDS (int)(sizeof(each) / sizeof(each[0]))
#define FIRST_NUMBER 100	/* of the target, before each[] */
#define LAST_NUMBER 7		/* of the target, after each[] */
#define IMMEDIATE 0x1234

/* The initiator sends these bytes over TCP. The target answers each LOOK. */
enum {
	LOOK = 'l',	/* print your memory, then answer with LOOK */
	BUSY = 'b',	/* there will be more operations */
	END = 'e',	/* there will be none */
};

/* Fill our text with @words, again and again. */
static void fill(const struct side *side, const char *words)
{
	const size_t length = strlen(words);

	for (int i = 0; i < side->opt->size; i++)
		side->memory->text[i] = words[i % length];
}

/* Print what our memory holds after the operation @name, and a @note. */
static void print_memory(const struct side *side, const char *name,
			 const char *note)
{
	char text[18];

	printf("%-19s number %" PRIu64 ", \"%s\"%s\n", name,
	       side->memory->number,
	       printable(side->memory->text, side->opt->size, text, 18), note);
}

/* 9. Carry out @op on the target's memory: post it, and wait for its end. */
static int perform(const struct side *side, const struct operation *op)
{
	struct memory *ours = side->memory;
	struct ibv_sge sge = { .lkey = side->mr->lkey };
	struct ibv_send_wr *bad_wr, wr = {
		.opcode = op->opcode, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1,
	};
	struct ibv_wc wc;
	const bool atomic = op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
			    op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	if (atomic) {
		/* The device writes the old number into our own one. */
		sge.addr = (uintptr_t)&ours->number;
		sge.length = sizeof(ours->number);
		wr.wr.atomic.remote_addr = side->target.addr +
					   offsetof(struct memory, number);
		wr.wr.atomic.rkey = side->target.rkey;
		wr.wr.atomic.compare_add = op->compare_add;
		wr.wr.atomic.swap = op->swap;
	} else {
		sge.addr = (uintptr_t)ours->text;
		sge.length = side->opt->size;
		wr.wr.rdma.remote_addr = side->target.addr +
					 offsetof(struct memory, text);
		wr.wr.rdma.rkey = side->target.rkey;
		wr.imm_data = htonl(IMMEDIATE);	/* only WITH_IMM sends it */
	}

	if (failed(ibv_post_send(side->qp, &wr, &bad_wr), "ibv_post_send(%s)",
		   op->name) ||
	    connection_wait(side->qp->send_cq, side->sock, side->opt->timeout,
			    &wc, op->name))
		return -1;
	if (atomic && ours->number != op->old)
		return failed(EBADMSG, "%s: expected %ju, but found %ju",
			      op->name, (uintmax_t)op->old,
			      (uintmax_t)ours->number);
	return 0;
}

/* 9. The initiator: every operation once. The target looks after each. */
static int perform_each(const struct side *side)
{
	char seen;

	for (int i = 0; i < KINDS; i++) {
		if (each[i].opcode == IBV_WR_RDMA_WRITE)
			fill(side, "initiator's text, ");
		if (perform(side, &each[i]))
			return -1;
		print_memory(side, each[i].name, "");
		/* The target must print before its memory changes again. A byte
		 * over TCP can overtake our WRITE, but not on Soft-RoCE. */
		if (connection_tell(side->sock, LOOK) ||
		    connection_hear(side->sock, &seen))
			return -1;
	}
	return 0;
}

/* 10. The initiator: many operations, at which the target need not look. */
static int perform_many(const struct side *side)
{
	const struct operation *read = &each[0], *write = &each[1];
	struct operation add = { "FETCH_AND_ADD 1",
				 IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 0 };
	const int size = side->opt->size, rounds = side->opt->iters;
	char *text = side->memory->text, *copy = text + size;
	long long start = clock_ns(CLOCK_MONOTONIC), told = start, now = start;

	for (int i = 0; i < rounds; i++) {
		memset(text, 'a' + i % 26, size);
		memcpy(copy, text, size);
		if (perform(side, write))
			return -1;
		memset(text, 0, size);
		if (perform(side, read))
			return -1;
		if (memcmp(text, copy, size) != 0)
			return failed(EBADMSG, "READ %d: wrong bytes", i + 1);
		add.old = LAST_NUMBER + i;
		if (perform(side, &add))
			return -1;

		/* The target gives up if it hears nothing for --timeout. */
		now = clock_ns(CLOCK_MONOTONIC);
		if (now - told > NS_PER_S / 4) {
			if (connection_tell(side->sock, BUSY))
				return -1;
			told = now;
		}
	}
	printf("%lld operations in %.2f s; all bytes and numbers were right\n",
	       3LL * rounds, (double)(now - start) / NS_PER_S);
	return connection_tell(side->sock, END);
}

/* The target: print what its memory holds after @op, and what completed. */
static int look(const struct side *side, const struct operation *op)
{
	char note[32] = ", no completion";
	struct ibv_wc wc;

	if (op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		if (connection_wait(side->qp->recv_cq, side->sock,
				    side->opt->timeout, &wc, "the receive"))
			return -1;
		if (!(wc.wc_flags & IBV_WC_WITH_IMM))
			return failed(EBADMSG, "no immediate value");
		snprintf(note, sizeof(note), ", received 0x%x",
			 ntohl(wc.imm_data));
	} else if (ibv_poll_cq(side->qp->recv_cq, 1, &wc) != 0) {
		return failed(EBADMSG, "%s left a completion, or an error",
			      op->name);
	}
	print_memory(side, op->name, note);
	return 0;
}

/* 9. and 10. The target: sleep, and look when the initiator asks for it. */
static int sleep_and_look(const struct side *side)
{
	long long start = clock_ns(CLOCK_MONOTONIC), cpu = 0;
	int looks = 0;
	char word = 0;

	while (word != END) {
		if (connection_hear(side->sock, &word))
			return -1;
		if (word == LOOK && looks < KINDS) {
			if (look(side, &each[looks++]) ||
			    connection_tell(side->sock, LOOK))
				return -1;
			start = clock_ns(CLOCK_MONOTONIC);
			cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		}
	}
	printf("slept %.2f s, and used %.2f ms of CPU time\n",
	       (double)(clock_ns(CLOCK_MONOTONIC) - start) / NS_PER_S,
	       (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / NS_PER_MS);
	puts("the device did the work; Soft-RoCE does it in the kernel");
	return 0;
}

/* 7. A queue pair in INIT, and a receive, which only the target uses. */
static int create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int port_num,
		     int access, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_recv_wr *bad_wr, receive = { 0 };	/* it needs no buffer */

	*qp = ibv_create_qp(pd, &init);
	if (missing(*qp, "ibv_create_qp") ||
	    connection_init(*qp, port_num, access))
		return -1;
	return failed(ibv_post_recv(*qp, &receive, &bad_wr), "ibv_post_recv");
}

int main(int argc, char *argv[])
{
	struct settings opt;
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct path path = { 0 };
	struct side side = { .opt = &opt, .sock = -1 };
	size_t size;
	int access, status = EXIT_FAILURE;

	start_output();
	if (settings_parse(argc, argv, &opt, NULL))
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
	if (missing(pd, "ibv_alloc_pd"))
		goto out;

	/* 4. Memory region: only the target's has remote rights. */
	access = opt.server ? 0 : RIGHTS;
	size = sizeof(struct memory) + 2 * (size_t)opt.size;
	side.memory = calloc(1, size);
	if (missing(side.memory, "calloc(%zu)", size))
		goto out;
	side.mr = ibv_reg_mr(pd, side.memory, size,
			     IBV_ACCESS_LOCAL_WRITE | access);
	if (missing(side.mr, "ibv_reg_mr(%zu bytes)", size))
		goto out;

	/* 6. and 7. No channel (5): the target sleeps in connection_hear(). */
	cq = ibv_create_cq(context, 2, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq") ||
	    create_qp(pd, cq, path.port_num, access, &side.qp))
		goto out;

	/* 8. Connect. The client, which has opt.server, is the initiator. */
	side.memory->number = opt.server ? 0 : FIRST_NUMBER;
	fill(&side, opt.server ? "nothing, " : "target's text, ");
	if (connection_introduce(side.qp, &opt, &path, &side.sock) ||
	    (opt.server ? connection_take(side.sock, &side.target)
			: connection_offer(side.sock, side.mr)))
		goto out;

	/* 9. Each operation once, and 10. many of them. */
	if (opt.server ? perform_each(&side) || perform_many(&side)
		       : sleep_and_look(&side)) {
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
	free(side.memory);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
