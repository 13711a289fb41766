/*
 * fence.c - send what was just read: with a fence, and without one
 *
 * The client posts two requests at once: an RDMA READ of the server's memory
 * into a buffer, and a send of that buffer. Without a fence the send may begin
 * before the bytes of the READ have come, and then it carries the old ones. The
 * server looks at each message, and tells the client over TCP whether there
 * were old bytes in it.
 *
 * New since one_sided.c: two requests of one list, and IBV_SEND_FENCE. (A fence
 * is about the order of two requests. The program also prints whether the
 * device promises the order of the bytes within one.)
 *
 * Sides: server and client; run it between two guests, as README.md says
 *
 *	fence				the server has the new bytes
 *	fence 10.9.0.1			the client reads and sends them
 *
 *	$ fence -n 100 10.9.0.1
 *	...
 *	promised byte order: SEND no, READ no, WRITE no
 *	without a fence: 100 of 100 messages had old bytes
 *	with a fence:    0 of 100 messages had old bytes
 *
 * See ibv_post_send(3), ibv_query_qp_data_in_order(3); IBTA volume 1, 10.8.3
 * on fences.
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
#include "connection.h"

/* The client's buffer is full of OLD before it reads the server's memory. */
enum { OLD = 'o', NEW = 'n' };

struct side {
	const struct settings *opt;
	int sock;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;		/* -s bytes to read, then -s bytes to receive */
	struct remote server;	/* where the client reads */
};

/* Is there an old byte among those at @bytes? */
static bool has_old(const struct side *side, const char *bytes)
{
	return memchr(bytes, OLD, side->opt->size);
}

/* 7. Post a receive: a message goes into the second half of the buffer. */
static int post_receive(const struct side *side)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->buf + side->opt->size,
		.length = side->opt->size,
		.lkey = side->mr->lkey,
	};
	struct ibv_recv_wr *bad_wr, wr = { .sg_list = &sge, .num_sge = 1 };

	return failed(ibv_post_recv(side->qp, &wr, &bad_wr), "ibv_post_recv");
}

/* 9. The client: read into the buffer, and send it with these @flags. */
static int post_read_and_send(const struct side *side, int flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->buf,
		.length = side->opt->size,
		.lkey = side->mr->lkey,
	};
	struct ibv_send_wr send = {
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | flags,
	};
	struct ibv_send_wr *bad_wr, read = {
		.next = &send,
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = side->server.addr,
			     .rkey = side->server.rkey },
	};

	return failed(ibv_post_send(side->qp, &read, &bad_wr),
		      "ibv_post_send(READ, SEND)");
}

/* 9. Wait for a completion of either queue: both have the same CQ. */
static int wait_for(const struct side *side, const char *what)
{
	struct ibv_wc wc;

	return connection_wait(side->qp->send_cq, side->sock,
			       side->opt->timeout, &wc, what);
}

/* 9. The client: all rounds with these @flags. The server says what came. */
static int read_and_send(const struct side *side, int flags, const char *how)
{
	int old = 0;
	char word;

	for (int i = 0; i < side->opt->iters; i++) {
		memset(side->buf, OLD, side->opt->size);
		if (post_read_and_send(side, flags) ||
		    wait_for(side, "the READ") || wait_for(side, "the send") ||
		    connection_hear(side->sock, &word))
			return -1;
		if (has_old(side, side->buf))
			return failed(EBADMSG, "READ %d left old bytes", i + 1);
		old += word == OLD;
	}
	printf("%-17s%d of %d messages had old bytes\n", how, old,
	       side->opt->iters);
	if (old && flags)
		return failed(EBADMSG, "%d fences had no effect", old);
	return 0;
}

/* 9. The server: look at each message, and tell the client what it is. */
static int receive(const struct side *side)
{
	const char *message = side->buf + side->opt->size;

	for (int i = 0; i < 2 * side->opt->iters; i++) {
		char word;

		if (wait_for(side, "the receive"))
			return -1;
		word = has_old(side, message) ? OLD : NEW;
		if (post_receive(side) || connection_tell(side->sock, word))
			return -1;
	}
	return 0;
}

/* Is it promised that the bytes of one @operation arrive in order? */
static const char *order_of(struct ibv_qp *qp, enum ibv_wr_opcode operation)
{
	return ibv_query_qp_data_in_order(qp, operation, 0) > 0 ? "yes" : "no";
}

int main(int argc, char *argv[])
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 2, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct settings opt;
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct path path = { 0 };
	struct side side = { .opt = &opt, .sock = -1 };
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

	/* 4. Memory region: the client may read the server's. */
	side.buf = calloc(2, opt.size);
	if (!side.buf) {
		print_error(errno, "calloc(2, %d)", opt.size);
		goto out;
	}
	memset(side.buf, NEW, opt.size);
	access = opt.server ? 0 : IBV_ACCESS_REMOTE_READ;
	side.mr = ibv_reg_mr(pd, side.buf, 2 * (size_t)opt.size,
			     IBV_ACCESS_LOCAL_WRITE | access);
	if (missing(side.mr, "ibv_reg_mr(%zu bytes)", 2 * (size_t)opt.size))
		goto out;

	/* 6. and 7. CQ and queue pair, with a receive that the server needs. */
	cq = ibv_create_cq(context, 3, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	init.send_cq = init.recv_cq = cq;
	side.qp = ibv_create_qp(pd, &init);
	if (missing(side.qp, "ibv_create_qp") ||
	    connection_init(side.qp, path.port_num, access) ||
	    post_receive(&side))
		goto out;

	/* 8. Connect. The client, with an opt.server, learns where to read. */
	if (connection_introduce(side.qp, &opt, &path, &side.sock) ||
	    (opt.server ? connection_take(side.sock, &side.server)
			: connection_offer(side.sock, side.mr)))
		goto out;
	printf("promised byte order: SEND %s, READ %s, WRITE %s\n",
	       order_of(side.qp, IBV_WR_SEND),
	       order_of(side.qp, IBV_WR_RDMA_READ),
	       order_of(side.qp, IBV_WR_RDMA_WRITE));

	/* 9. All rounds without a fence, and again with one. */
	if (opt.server ? read_and_send(&side, 0, "without a fence:") ||
			 read_and_send(&side, IBV_SEND_FENCE, "with a fence:")
		       : receive(&side)) {
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
	free(side.buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
