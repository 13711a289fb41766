/*
 * violations.c - what both sides see of an operation that is not allowed
 *
 * Queue pair A is the initiator and B the target, both in this process. For
 * each mistake they are created and connected, and A posts one request. Then we
 * look at what both see of it: the status of A's completion, the states of both
 * queue pairs, and how many of B's two receives came back flushed.
 *
 * New since one_sided.c: there is no new verb, only mistakes.
 *
 *	$ violations
 *	...
 *	what is wrong             what A gets                            A   ...
 *	nothing                   status 0, success                      RTS ...
 *	lkey in place of the rkey status 0, success                      RTS ...
 *	rkey                      status 10, remote access error         ERR ...
 *
 * See ibv_post_send(3), ibv_query_qp(3); IBTA volume 1, 9.7.5.2.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/device.h"
#include "../common/names.h"
#include "connection.h"

#define SIZE 64			/* of a message and of a region, in bytes */
#define POSTED 2		/* receives, on each side */
#define DEADLINE_MS 2000	/* how long we wait for A's completion */
#define SETTLE_MS 100		/* ERR may follow a completion this late */

#define RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)

/* The regions around A's bytes, and those around B's. */
enum { A_WRITABLE, A_READ_ONLY, A_REGIONS };
enum { B_OPEN, B_READ_ONLY, B_OTHER_PD, B_RELEASED, B_REGIONS };

/* How an attempt differs from a correct RDMA WRITE of SIZE bytes. */
static const struct mistake {
	const char *name;
	enum ibv_wr_opcode opcode;	/* 0 is IBV_WR_RDMA_WRITE */
	int a, b;			/* the regions */
	int rkey, lkey, address;	/* added to the right value */
	bool use_lkey, no_bytes;	/* B's lkey as rkey; a length of 0 */
	bool no_rights;			/* in the queue pair of B */
	bool no_depth_a, no_depth_b;	/* for reads and atomics */
} mistakes[] = {
	{ .name = "nothing" },
	{ "lkey in place of the rkey", .use_lkey = true },
	{ "rkey", .rkey = 1 },
	{ "rkey, but 0 bytes", .rkey = 1, .no_bytes = true },
	{ "rkey of another PD", .b = B_OTHER_PD },
	{ "rkey of a released region", .b = B_RELEASED },
	{ "1 byte beyond the region", .address = 1 },
	{ "region is read-only", .b = B_READ_ONLY },
	{ "queue pair has no right", .no_rights = true },
	{ "address of an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, .address = 1 },
	{ "max_dest_rd_atomic is 0", IBV_WR_RDMA_READ, .no_depth_b = true },
	{ "max_rd_atomic is 0", IBV_WR_RDMA_READ, .no_depth_a = true },
	{ "lkey", .lkey = 1 },
	{ "own region is read-only", IBV_WR_RDMA_READ, .a = A_READ_ONLY },
};

/* What all attempts have in common. */
struct world {
	struct path path;
	struct ibv_pd *pd, *other_pd;
	uint64_t a[SIZE / 8], b[SIZE / 8];	/* the bytes of both */
	struct ibv_mr *a_mr[A_REGIONS], *b_mr[B_REGIONS];
	uint32_t rkey[B_REGIONS];
};

/* One end of a connection. */
struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct connection_depth depth;
	int access;
};

/* A queue pair in INIT, with a CQ of its own, and with receives. */
static int create(struct end *end, const struct world *world)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = POSTED },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_recv_wr *bad_wr, receive = { 0 };

	end->cq = ibv_create_cq(world->pd->context, 1 + POSTED, NULL, NULL, 0);
	if (missing(end->cq, "ibv_create_cq"))
		return -1;
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(world->pd, &init);
	if (missing(end->qp, "ibv_create_qp") ||
	    connection_init(end->qp, world->path.port_num, end->access))
		return -1;
	for (int i = 0; i < POSTED; i++) {
		if (failed(ibv_post_recv(end->qp, &receive, &bad_wr),
			   "ibv_post_recv"))
			return -1;
	}
	return 0;
}

/* Release both objects. Prints nothing: it runs once for each mistake. */
static int destroy(struct end *end)
{
	int status = 0;

	if (end->qp)
		status |= failed(ibv_destroy_qp(end->qp), "ibv_destroy_qp");
	if (end->cq)
		status |= failed(ibv_destroy_cq(end->cq), "ibv_destroy_cq");
	return status;
}

/* Let A post a request with this @mistake. Returns 0 or the errno value. */
static int post(const struct end *a, const struct world *world,
		const struct mistake *mistake)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)world->a,
		.length = SIZE,
		.lkey = world->a_mr[mistake->a]->lkey + mistake->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.opcode = mistake->opcode, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = mistake->no_bytes ? 0 : 1,
	};
	uint64_t addr = (uintptr_t)world->b + mistake->address;
	uint32_t rkey = world->rkey[mistake->b] + mistake->rkey;

	if (mistake->use_lkey)
		rkey = world->b_mr[mistake->b]->lkey;
	if (mistake->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = sizeof(uint64_t);
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = -1;	/* makes an 'a' of a 'b' */
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(a->qp, &wr, &bad_wr);
}

/* Wait at most @ms. Returns 1 with a completion, 0 without, -1 on error. */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	const long long deadline = clock_ns(CLOCK_MONOTONIC) + ms * NS_PER_MS;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
	} while (n == 0 && clock_ns(CLOCK_MONOTONIC) < deadline);
	if (n < 0)
		print_error(0, "ibv_poll_cq returned %d", n);
	return n;
}

/* Returns the state of @end, or -1 after an error message. */
static int state_of(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (failed(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init),
		   "ibv_query_qp"))
		return -1;
	return attr.qp_state;
}

/* Print the rest of a line: what has become of both sides. */
static int print_states(const struct end *a, const struct end *b)
{
	int state_a, state_b, n, flushed = 0;
	struct ibv_wc wc;

	/* ERR may come a moment after the completion. */
	usleep(SETTLE_MS * 1000);
	state_a = state_of(a);
	state_b = state_of(b);
	if (state_a < 0 || state_b < 0)
		return -1;

	while ((n = next_completion(b->cq, &wc, 0)) > 0) {
		if (wc.status != IBV_WC_WR_FLUSH_ERR) {
			print_wc_error(&wc, "receive of B");
			return -1;
		}
		flushed++;
	}
	printf(" %-3s %-3s %d\n", qp_state_name(state_a),
	       qp_state_name(state_b), flushed);
	return n;
}

/* 4. Try one @mistake, and print a line of the table. */
static int attempt(struct world *world, const struct mistake *mistake)
{
	struct end a = { .depth = { .mine = !mistake->no_depth_a } };
	struct end b = { .depth = { .peers = !mistake->no_depth_b },
			 .access = mistake->no_rights ? 0 : RIGHTS };
	const bool correct = mistake == mistakes;	/* only the first is */
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int n = 0, err, status = -1;
	char got[64];
	bool written, success;

	memset(world->a, 'a', SIZE);
	memset(world->b, 'b', SIZE);
	if (create(&a, world) || create(&b, world) ||
	    connection_join(a.qp, b.qp, &world->path, a.depth) ||
	    connection_join(b.qp, a.qp, &world->path, b.depth))
		goto out;

	err = post(&a, world, mistake);
	if (!err)
		n = next_completion(a.cq, &wc, DEADLINE_MS);
	if (n < 0)
		goto out;
	if (n == 0 && correct) {
		print_error(err ? err : ETIMEDOUT, "the WRITE");
		goto out;
	}
	if (err)
		snprintf(got, sizeof(got), "ibv_post_send refused it: %s",
			 strerrorname_np(err));
	else if (n == 0)
		snprintf(got, sizeof(got), "nothing in %d ms", DEADLINE_MS);
	else
		snprintf(got, sizeof(got), "status %d, %s", wc.status,
			 ibv_wc_status_str(wc.status));
	printf("%-25s %-38s", mistake->name, got);
	if (print_states(&a, &b))
		goto out;

	/* A refused request writes no byte, and the correct one writes all. */
	written = memchr(world->b, 'a', SIZE) || memchr(world->a, 'b', SIZE);
	success = !err && n > 0 && wc.status == IBV_WC_SUCCESS;
	if ((written && !success) ||
	    (correct && memcmp(world->b, world->a, SIZE) != 0))
		print_error(0, "%s: %s, but memory has the wrong bytes",
			    mistake->name, got);
	else
		status = 0;
out:
	status |= destroy(&a);
	status |= destroy(&b);
	return status;
}

static int reg(struct ibv_mr **mr, struct ibv_pd *pd, void *bytes, int access)
{
	*mr = ibv_reg_mr(pd, bytes, SIZE, access);
	return missing(*mr, "ibv_reg_mr(%d bytes)", SIZE);
}

/* 3. All regions, around the same bytes of A and of B. */
static int register_all(struct world *world)
{
	struct ibv_mr **a = world->a_mr, **b = world->b_mr;
	const int write = IBV_ACCESS_LOCAL_WRITE;

	if (reg(&a[A_WRITABLE], world->pd, world->a, write) ||
	    reg(&a[A_READ_ONLY], world->pd, world->a, 0) ||
	    reg(&b[B_OPEN], world->pd, world->b, write | RIGHTS) ||
	    reg(&b[B_READ_ONLY], world->pd, world->b, IBV_ACCESS_REMOTE_READ) ||
	    reg(&b[B_OTHER_PD], world->other_pd, world->b, write | RIGHTS) ||
	    reg(&b[B_RELEASED], world->pd, world->b, write | RIGHTS))
		return -1;

	for (int i = 0; i < B_REGIONS; i++)
		world->rkey[i] = b[i]->rkey;
	if (failed(ibv_dereg_mr(b[B_RELEASED]), "ibv_dereg_mr"))
		return -1;
	b[B_RELEASED] = NULL;
	return 0;
}

int main(int argc, char *argv[])
{
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device", .text = &name }, { 0 }
	};
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct world world = { .path = { 0 } };
	struct path *path = &world.path;
	int status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device, port and GID. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, name, &path->port_num);
	if (!device)
		goto out;
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, path->port_num, &path->port),
		   "ibv_query_port(%d)", path->port_num) ||
	    gid_choose(context, path->port_num, &path->port, -1, &path->gid))
		goto out;
	path->mtu = path->port.active_mtu;

	/* 2. Two protection domains, and 3. the regions. */
	world.pd = ibv_alloc_pd(context);
	if (missing(world.pd, "ibv_alloc_pd"))
		goto out;
	world.other_pd = ibv_alloc_pd(context);
	if (missing(world.other_pd, "ibv_alloc_pd") || register_all(&world))
		goto out;

	/* 4. The mistakes. */
	printf("%-25s %-38s A   B   flushed\n", "what is wrong", "what A gets");
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		if (attempt(&world, &mistakes[i]))
			goto out;
	}
	status = EXIT_SUCCESS;

out:
	for (int i = B_REGIONS - 1; i >= 0; i--)
		status |= RELEASE(ibv_dereg_mr, world.b_mr[i]);
	for (int i = A_REGIONS - 1; i >= 0; i--)
		status |= RELEASE(ibv_dereg_mr, world.a_mr[i]);
	status |= RELEASE(ibv_dealloc_pd, world.other_pd);
	status |= RELEASE(ibv_dealloc_pd, world.pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
