/*
 * exercise.c - the peer writes into our memory, and we write into the peer's
 *
 *	exercise PORT SIZE ITERS		be the server
 *	exercise PORT SIZE ITERS HOST		be the client
 *
 * PORT is a TCP port. In each of ITERS rounds the peer writes SIZE bytes into
 * our buffer, by RDMA WRITE with an immediate value. That uses up one posted
 * receive and so produces a completion, which contains the immediate value. The
 * receive needs no buffer, because the data goes to the address that the peer
 * named. We print the immediate value as "got", and answer: we write the same
 * bytes into the peer's buffer, with the immediate value plus one, so that the
 * peer can see that both have come to us.
 *
 * pingpong.c shows everything except this: a peer can write into a region only
 * if that allows it, and if the peer knows where it begins and its key (rkey).
 * So over TCP each side sends the address of its queue pair, as in pingpong.c,
 * and then these two of its region. Both send first and receive afterwards.
 *
 * make try-05 runs it together with the peer. Write the bodies marked TODO;
 * the chapter explains RDMA WRITE in one page.
 *
 *	$ exercise 18515 3000 2 10.9.0.1
 *	exchanged
 *	CHECKPOINT connected
 *	got 0x6b8b4567
 *	got 0x327b23c6
 *	released: ibv_destroy_qp
 *	...
 *
 * See ibv_reg_mr(3), ibv_modify_qp(3), ibv_post_send(3), ibv_poll_cq(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
#define ROOM 16			/* receives that are kept posted */
#define TIMEOUT 10		/* of every wait, in seconds */
#define PSN 0x123456

/*
 * A region is sent as text: its address in 16 hex digits, a colon, its rkey in
 * 8 hex digits, and a NUL.
 */
#define REGION_SIZE sizeof("aaaaaaaaaaaaaaaa:kkkkkkkk")

/* What a side must know about the other. */
struct side {
	struct address address;
	uint64_t addr;		/* of its buffer */
	uint32_t rkey;
};

/*
 * TODO 05.1: register the @size bytes at @buf, so that the peer may write
 * there. Return what ibv_reg_mr() returns. See step 4 in pingpong.c, and the
 * access flags in chapter 02.
 */
static struct ibv_mr *register_buffer(struct ibv_pd *pd, void *buf, size_t size)
{
#ifdef STARTER
	todo("05.1");
	return NULL;
#else
	return ibv_reg_mr(pd, buf, size,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
#endif
}

/*
 * TODO 05.2: send our address and our region over @sock, and then receive the
 * peer's address and region into @remote. Return 0, or -1 if anything failed.
 * See introduce() in pingpong.c. For the text of a region, which you make and
 * read here, common/exchange.h has exchange_send() and exchange_receive().
 */
static int exchange_sides(int sock, const struct side *local,
			  struct side *remote)
{
#ifdef STARTER
	return todo("05.2");
#else
	char msg[REGION_SIZE];

	snprintf(msg, sizeof(msg), "%016" PRIx64 ":%08x", local->addr,
		 local->rkey);
	if (exchange_send_address(sock, &local->address) ||
	    exchange_send(sock, msg, sizeof(msg), "our region") ||
	    exchange_receive_address(sock, &remote->address) ||
	    exchange_receive(sock, msg, sizeof(msg), "the peer's region"))
		return -1;
	return sscanf(msg, "%16" SCNx64 ":%8x", &remote->addr,
		      &remote->rkey) == 2 ? 0 : -1;
#endif
}

/*
 * TODO 05.3: take the queue pair from RESET to RTS, connected to @remote, with
 * a path MTU of 1024. The peer is going to write into our memory, and the
 * queue pair must allow that, too. If an ibv_modify_qp() fails, return its
 * value, otherwise 0. See create_qp() and connect_qp() in pingpong.c.
 */
static int connect_qp(struct ibv_qp *qp, int gid_index,
		      const struct address *local, const struct address *remote)
{
#ifdef STARTER
	return todo("05.3");
#else
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = remote->gid,
				.sgid_index = gid_index,
				.hop_limit = 64,
			},
		},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = local->psn,
		.max_rd_atomic = 1,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.timeout = 14,
	};
	int err;

	err = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!err)
		err = ibv_modify_qp(qp, &rtr,
				    IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	if (!err)
		err = ibv_modify_qp(qp, &rts,
				    IBV_QP_STATE | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_TIMEOUT);
	return err;
#endif
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
 * TODO 05.4: wait until the peer has written, and set *@imm to its immediate
 * value, a nonce (a number used once), in host byte order. The completion that
 * shows this has the opcode IBV_WC_RECV_RDMA_WITH_IMM; completions of our own
 * writes may come before it. A receive is used up then: post another. Return
 * 0, or -1 if anything failed. See transfer() in pingpong.c.
 */
static int receive_nonce(struct ibv_cq *cq, struct ibv_qp *qp, uint32_t *imm)
{
#ifdef STARTER
	return todo("05.4");
#else
	struct ibv_wc wc;

	do {
		if (next_completion(cq, &wc))
			return -1;
	} while (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM);

	*imm = ntohl(wc.imm_data);
	return post_receive(qp);
#endif
}

/*
 * TODO 05.5: write the @size bytes of @mr into the peer's buffer, by RDMA
 * WRITE with the immediate value @imm, which is in host byte order. Return
 * what ibv_post_send() returns. See post_send() in pingpong.c.
 */
static int answer(struct ibv_qp *qp, const struct ibv_mr *mr, size_t size,
		  const struct side *remote, uint32_t imm)
{
#ifdef STARTER
	return todo("05.5");
#else
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = size,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm),
		.wr.rdma = {
			.remote_addr = remote->addr,
			.rkey = remote->rkey,
		},
	}, *bad_wr;

	return ibv_post_send(qp, &wr, &bad_wr);
#endif
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = ROOM,
			.max_recv_wr = ROOM,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct side local = { 0 }, remote = { 0 };
	void *buf = NULL;
	size_t size;
	int err, iters, sock = -1, status = EXIT_FAILURE;

	start_output();
	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: exercise PORT SIZE ITERS [HOST]\n");
		return EXIT_USAGE;
	}
	size = strtoul(argv[2], NULL, 0);
	iters = atoi(argv[3]);

	/* 1. The first device, and what messages need. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	buf = calloc(1, size);
	if (missing(context, "ibv_open_device") || missing(buf, "calloc"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	cq = ibv_create_cq(context, 2 * ROOM, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;
	init.send_cq = cq;
	init.recv_cq = cq;
	errno = 0;
	mr = register_buffer(pd, buf, size);
	if (missing(mr, "there is no memory region"))
		goto out;
	qp = ibv_create_qp(pd, &init);
	if (missing(qp, "ibv_create_qp"))
		goto out;
	if (failed(ibv_query_port(context, PORT, &port), "ibv_query_port") ||
	    gid_choose(context, PORT, &port, -1, &gid))
		goto out;

	/* 2. The two sides learn each other's address and region. */
	local.address.qpn = qp->qp_num;
	local.address.psn = PSN;
	local.address.gid = gid.gid;
	local.addr = (uintptr_t)buf;
	local.rkey = mr->rkey;
	sock = argc == 5 ? exchange_connect(argv[4], atoi(argv[1]), TIMEOUT) :
			   exchange_serve(atoi(argv[1]), TIMEOUT);
	if (sock < 0 || exchange_sides(sock, &local, &remote))
		goto out;
	puts("exchanged");

	/* 3. Connect, and post receives. The peer waits for our "ready". */
	err = connect_qp(qp, gid.gid_index, &local.address, &remote.address);
	if (err) {
		print_error(err > 0 ? err : 0, "connecting the queue pair");
		goto out;
	}
	for (int i = 0; i < ROOM; i++) {
		if (post_receive(qp))
			goto out;
	}
	checkpoint("connected");
	if (exchange_same(sock, "ready", "the states"))
		goto out;

	/* 4. Take what the peer writes, and answer. */
	for (int i = 0; i < iters; i++) {
		uint32_t imm = 0;

		if (receive_nonce(cq, qp, &imm))
			goto out;
		printf("got 0x%08x\n", imm);
		err = answer(qp, mr, size, &remote, imm + 1);
		if (err) {
			print_error(err > 0 ? err : 0, "answering");
			goto out;
		}
	}

	/* 5. The queue pair must live until the peer has received the rest. */
	if (exchange_goodbye(sock))
		goto out;
	status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, mr);
	free(buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
