/*
 * broken.c - write SIZE bytes into another region, in pieces of 1000
 *
 *	broken SIZE
 *
 * Queue pair A writes, and B is the target, both in this process. The address
 * and the rkey are right, and so are the rights. All pieces arrive except the
 * last one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/checkpoint.h"
#include "connection.h"

#define PIECE 1000
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* Fill all of @to with letters, another one in each piece. */
static int write_all(struct ibv_qp *qp, struct ibv_mr *from, struct ibv_mr *to)
{
	const size_t size = to->length;
	struct ibv_wc wc;

	for (size_t done = 0; done < size; done += PIECE) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)from->addr,
			.length = PIECE,
			.lkey = from->lkey,
		};
		struct ibv_send_wr *bad_wr, write = {
			.sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = (uintptr_t)to->addr + done,
				     .rkey = to->rkey },
		};

		memset(from->addr, 'a' + (int)(done / PIECE % 26), PIECE);
		if (failed(ibv_post_send(qp, &write, &bad_wr), "WRITE") ||
		    connection_wait(qp->send_cq, -1, 10, &wc, "a WRITE"))
			return -1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *a = NULL, *b = NULL;
	struct ibv_mr *from = NULL, *to = NULL;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	const struct connection_depth depth = { .mine = 1, .peers = 1 };
	struct path path = { .port_num = 1, .mtu = IBV_MTU_1024 };
	int size = argc == 2 ? atoi(argv[1]) : 2999, status = EXIT_FAILURE;
	char *buf = calloc(1, size), piece[PIECE];

	start_output();
	if (missing(buf, "calloc"))
		goto out;
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device") ||
	    failed(ibv_query_port(context, 1, &path.port), "ibv_query_port") ||
	    gid_choose(context, 1, &path.port, -1, &path.gid))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	from = ibv_reg_mr(pd, piece, PIECE, 0);
	if (missing(from, "ibv_reg_mr"))
		goto out;
	to = ibv_reg_mr(pd, buf, size, RIGHTS);
	if (missing(to, "ibv_reg_mr"))
		goto out;
	init.send_cq = init.recv_cq = cq;
	a = ibv_create_qp(pd, &init);
	if (missing(a, "ibv_create_qp"))
		goto out;
	b = ibv_create_qp(pd, &init);
	if (missing(b, "ibv_create_qp") ||
	    connection_init(a, 1, 0) || connection_init(b, 1, RIGHTS) ||
	    connection_join(a, b, &path, depth) ||
	    connection_join(b, a, &path, depth))
		goto out;

	checkpoint("registered");
	if (write_all(a, from, to))
		goto out;
	status = EXIT_SUCCESS;
	for (int i = 0; i < size; i++)
		if (buf[i] != 'a' + i / PIECE % 26)
			status = EXIT_FAILURE;
	printf("%s %d bytes\n", status ? "wrong letters in" : "arrived:", size);

out:
	status |= RELEASE(ibv_destroy_qp, b);
	status |= RELEASE(ibv_destroy_qp, a);
	status |= RELEASE(ibv_dereg_mr, to);
	status |= RELEASE(ibv_dereg_mr, from);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	free(buf);
	return status;
}
