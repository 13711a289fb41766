/*
 * exercise.c - one-sided: the peer writes into our memory, we into its own
 *
 *	exercise PORT SIZE ITERS		be the server
 *	exercise PORT SIZE ITERS HOST		be the client
 *
 * In each round the peer writes SIZE bytes into our buffer, by RDMA WRITE with
 * an immediate value. Only the immediate tells us that something came: it
 * takes a receive from the queue, which holds no buffer. The answer writes the
 * same bytes into the peer's buffer, with the immediate plus one.
 *
 * pingpong.c shows everything but this: a peer may write only where it was
 * given the address and the key, rkey, of a region that allows it. The
 * messages over TCP: the address as in pingpong.c, then the region's. Both
 * sides send first and then receive.
 *
 * make check-05 is the peer. Write the bodies marked TODO.
 *
 * See ibv_reg_mr(3), ibv_modify_qp(3), ibv_post_send(3), ibv_poll_cq(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/exercise.h"
#include "../common/gid.h"

#define EXIT_USAGE 2
#define EXIT_NO_DEVICE 77

#define PORT 1
#define ROOM 16			/* receives posted */
#define TIMEOUT 10		/* seconds, of every wait */
#define PSN 0x123456

/* A region as it is told to a peer: "%016PRIx64:%08x" and a NUL. */
#define REGION_SIZE sizeof("aaaaaaaaaaaaaaaa:kkkkkkkk")

/* What a side must know of the other. */
struct side {
	struct address address;
	uint64_t addr;		/* of its buffer */
	uint32_t rkey;
};

/* TODO 05.1: register @size bytes at @buf, where a peer may write. */
static struct ibv_mr *register_buffer(struct ibv_pd *pd, void *buf, size_t size)
{
#ifdef STARTER
	(void)pd;
	(void)buf;
	(void)size;
	todo("05.1");
	return NULL;
#else
	return ibv_reg_mr(pd, buf, size,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
#endif
}

/*
 * TODO 05.2: send our address and our region over @sock, receive the peer's.
 * Returns 0 or -1.
 */
static int exchange_sides(int sock, const struct side *local,
			  struct side *remote)
{
#ifdef STARTER
	(void)sock;
	(void)local;
	(void)remote;
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
 * a path MTU of 1024. The peer is going to write into our memory. Returns 0 or
 * an errno value.
 */
static int connect_qp(struct ibv_qp *qp, int gid_index,
		      const struct address *local, const struct address *remote)
{
#ifdef STARTER
	(void)qp;
	(void)gid_index;
	(void)local;
	(void)remote;
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

/* Given: a receive for the next immediate; the data needs none. */
static int post_receive(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad_wr;

	return ibv_post_recv(qp, &wr, &bad_wr);
}

/* Given: the next completion. Returns 0, or -1 if none came or it failed. */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t deadline = time(NULL) + TIMEOUT;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0 && time(NULL) <= deadline)
		;
	if (n <= 0) {
		print_error(n ? EIO : ETIMEDOUT, "no completion");
		return -1;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		print_error(0, "wc.status = %d (%s)", wc->status,
			    ibv_wc_status_str(wc->status));
		return -1;
	}
	return 0;
}

/*
 * TODO 05.4: wait for the peer's write. Completions of our own sends may come
 * first. Set @imm to the immediate value, in host byte order, and post another
 * receive. Returns 0 or -1.
 */
static int receive_nonce(struct ibv_cq *cq, struct ibv_qp *qp, uint32_t *imm)
{
#ifdef STARTER
	(void)cq;
	(void)qp;
	(void)imm;
	(void)post_receive;
	(void)next_completion;
	return todo("05.4");
#else
	struct ibv_wc wc;

	do {
		if (next_completion(cq, &wc))
			return -1;
	} while (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM);

	*imm = ntohl(wc.imm_data);
	return post_receive(qp) ? -1 : 0;
#endif
}

/*
 * TODO 05.5: write the @size bytes at @mr into the peer's buffer, by RDMA
 * WRITE with the immediate @imm. Returns 0 or an errno value.
 */
static int answer(struct ibv_qp *qp, const struct ibv_mr *mr, size_t size,
		  const struct side *remote, uint32_t imm)
{
#ifdef STARTER
	(void)qp;
	(void)mr;
	(void)size;
	(void)remote;
	(void)imm;
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

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: exercise PORT SIZE ITERS [HOST]\n");
		return EXIT_USAGE;
	}
	size = strtoul(argv[2], NULL, 0);
	iters = atoi(argv[3]);

	/* 1. All that a message needs. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		print_error(list ? 0 : errno, "no RDMA device");
		status = EXIT_NO_DEVICE;
		goto out;
	}
	context = ibv_open_device(list[0]);
	buf = calloc(1, size);
	if (context && buf) {
		pd = ibv_alloc_pd(context);
		cq = ibv_create_cq(context, 2 * ROOM, NULL, NULL, 0);
	}
	if (pd && cq) {
		init.send_cq = cq;
		init.recv_cq = cq;
		mr = register_buffer(pd, buf, size);
		qp = ibv_create_qp(pd, &init);
	}
	if (!mr || !qp) {
		print_error(0, "there is no memory region or no queue pair");
		goto out;
	}
	if (ibv_query_port(context, PORT, &port) ||
	    gid_find(context, PORT, &port, -1, &gid))
		goto out;

	/* 2. Introduce the two sides to each other. */
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

	/* 3. Connect; and be ready to receive before the peer knows it. */
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

	/* 4. Take what comes, and answer. */
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

	/* 5. The queue pair must live until the peer has everything. */
	if (exchange_same(sock, "bye", "the goodbyes"))
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
