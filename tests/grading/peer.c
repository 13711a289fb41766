/*
 * peer.c - the other side of the exercises of chapters 03 and 05
 *
 *	peer burst PORT
 *	peer nonce PORT SIZE ITERS [HOST]
 *
 * burst: waits for a receiver, then reads numbers from stdin: 5 sends five
 * messages with random immediate values, and prints each of them.
 *
 * nonce: server, or client of HOST. ITERS times writes SIZE random bytes into
 * the other side's buffer, with a random immediate value, and wants them back
 * in its own with that value plus one.
 *
 * All that it sends is from the kernel's random numbers, so that nothing that
 * the other side can see or guess, such as a seed, tells it what will come.
 *
 * What it prints on stdout is what a grade stands on. The other side may send
 * anything or nothing: no wait is for ever.
 *
 * Exit status: 0 done; 1 the other side did not do its part; 2 usage; 3 the
 * peer itself failed, so that nothing can be said about the other side.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../../common/error.h"
#include "../../common/exchange.h"
#include "../../common/gid.h"
#include "../../common/options.h"

#define PORT 1
#define ROOM 256		/* work requests in each queue */
#define TIMEOUT 8		/* seconds, of every wait */
#define MAX_SIZE (1 << 20)
#define MAX_ITERS 1000000
#define REGION_SIZE sizeof("aaaaaaaaaaaaaaaa:kkkkkkkk")

#define EXIT_OWN_FAULT 3

struct peer {
	bool own_fault;		/* something of our own failed */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_gid_entry gid;
	struct address local;
};

/* Fill @size bytes. The kernel may give fewer at once. */
static void fill_randomly(void *buf, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = getrandom((char *)buf + done, size - done, 0);

		if (n > 0)
			done += (size_t)n;
	}
}

static uint32_t random32(void)
{
	uint32_t value;

	fill_randomly(&value, sizeof(value));
	return value;
}

static int set_up(struct peer *p)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
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

	p->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!p->context || ibv_query_port(p->context, PORT, &port) ||
	    gid_choose(p->context, PORT, &port, -1, &p->gid))
		return -1;

	p->pd = ibv_alloc_pd(p->context);
	p->cq = ibv_create_cq(p->context, 2 * ROOM, NULL, NULL, 0);
	init.send_cq = init.recv_cq = p->cq;
	p->qp = p->pd && p->cq ? ibv_create_qp(p->pd, &init) : NULL;
	if (!p->qp)
		return -1;

	p->local.qpn = p->qp->qp_num;
	p->local.psn = random32() & 0xffffff;
	p->local.gid = p->gid.gid;
	return 0;
}

static int connect_qp(struct peer *p, const struct address *remote)
{
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = {
				.dgid = remote->gid,
				.sgid_index = p->gid.gid_index,
				.hop_limit = 64,
			},
		},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.sq_psn = p->local.psn,
		.max_rd_atomic = 1,
		.timeout = 14,
		.retry_cnt = 7,
		/* Not for ever: perhaps no receive is ever posted. */
		.rnr_retry = 6,
	};
	int err = ibv_modify_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_PORT |
				IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);

	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
				    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(p->qp, &attr, IBV_QP_STATE |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
				    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY);
	for (int i = 0; i < ROOM && !err; i++)
		err = ibv_post_recv(p->qp, &receive, &bad);
	if (err)
		print_error(err, "connecting to QPN 0x%06x", remote->qpn);
	return err;
}

/* The next completion, within the timeout. Returns 0, or -1 without one. */
static int completion(struct peer *p, struct ibv_wc *wc)
{
	time_t deadline = time(NULL) + TIMEOUT;
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, wc)) == 0) {
		if (time(NULL) > deadline) {
			puts("nothing comes back");
			return -1;
		}
		usleep(200);	/* the other side needs the CPU */
	}
	if (n < 0) {
		/* There is no completion then: *wc holds nothing. */
		print_error(0, "ibv_poll_cq failed: %d", n);
		p->own_fault = true;
		return -1;
	}
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	printf("wc.status %d (%s)\n", wc->status,
	       ibv_wc_status_str(wc->status));
	return -1;
}

/* Returns ibv_post_send()'s result, after an error message if it is one. */
static int post_send(struct peer *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(p->qp, wr, &bad);

	if (err) {
		print_error(err, "ibv_post_send");
		p->own_fault = true;
	}
	return err;
}

static int burst(struct peer *p, int sock)
{
	struct address remote;
	struct ibv_wc wc;
	int n;

	if (exchange_receive_address(sock, &remote) || connect_qp(p, &remote) ||
	    exchange_send_address(sock, &p->local))
		return -1;
	puts("connected");

	while (scanf("%d", &n) == 1) {
		for (int i = 0; i < n; i++) {
			struct ibv_send_wr wr = {
				.opcode = IBV_WR_SEND_WITH_IMM,
				.send_flags = IBV_SEND_SIGNALED,
				.imm_data = htonl(random32()),
			};

			if (post_send(p, &wr) || completion(p, &wc))
				return -1;
			printf("sent 0x%08x\n", ntohl(wr.imm_data));
		}
		puts("sent");
	}
	return 0;
}

/* @out is what we send. The other side can write to @in, and only there. */
static int round_trip(struct peer *p, struct ibv_mr *out, struct ibv_mr *in,
		      size_t size, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)out->addr,
		.length = size,
		.lkey = out->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	uint32_t imm = random32();

	fill_randomly(out->addr, size);
	memset(in->addr, 0, size);
	wr.imm_data = htonl(imm);
	if (post_send(p, &wr))
		return -1;
	printf("sent 0x%08x\n", imm);

	for (int sent = 0, received = 0; !sent || !received;) {
		struct ibv_wc wc;

		if (completion(p, &wc))
			return -1;
		if (wc.opcode == IBV_WC_RDMA_WRITE) {
			sent = 1;
			puts("written");
			continue;
		}
		received = 1;
		if (!(wc.wc_flags & IBV_WC_WITH_IMM))
			puts("an answer without an immediate value");
		else if (ntohl(wc.imm_data) != imm + 1)
			printf("immediate 0x%08x, not 0x%08x\n",
			       ntohl(wc.imm_data), imm + 1);
		else if (memcmp(out->addr, in->addr, size) != 0)
			puts("other bytes than were sent");
		else
			puts("answered");
	}
	return 0;
}

static int nonce(struct peer *p, int sock, size_t size, int iters)
{
	struct ibv_mr *out = NULL, *in = NULL;
	struct address remote;
	char msg[REGION_SIZE + 1] = "";
	char *buf = calloc(2, size);
	uint64_t addr;
	uint32_t rkey;
	int status = -1;

	if (buf)
		out = ibv_reg_mr(p->pd, buf, size, 0);
	if (out)
		in = ibv_reg_mr(p->pd, buf + size, size,
				IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE);
	if (!in) {
		print_error(errno, "a buffer of 2 * %zu bytes", size);
		p->own_fault = true;
		goto end;
	}
	snprintf(msg, sizeof(msg), "%016" PRIx64 ":%08x",
		 (uint64_t)(uintptr_t)in->addr, in->rkey);
	if (exchange_send_address(sock, &p->local) ||
	    exchange_send(sock, msg, REGION_SIZE, "our region") ||
	    exchange_receive_address(sock, &remote) ||
	    exchange_receive(sock, msg, REGION_SIZE, "the region"))
		goto end;
	if (sscanf(msg, "%16" SCNx64 ":%8x", &addr, &rkey) != 2) {
		print_error(0, "not a region: %s", msg);
		goto end;
	}
	printf("region rkey 0x%08x, QPN 0x%06x\n", rkey, remote.qpn);

	if (connect_qp(p, &remote) ||
	    exchange_same(sock, "ready", "the states"))
		goto end;
	puts("connected");

	while (iters-- > 0)
		if (round_trip(p, out, in, size, addr, rkey))
			goto end;
	puts("all");
	if (exchange_same(sock, "bye", "the goodbyes") == 0)
		status = 0;
end:
	ibv_destroy_qp(p->qp);
	if (in)
		ibv_dereg_mr(in);
	if (out)
		ibv_dereg_mr(out);
	free(buf);
	return status;
}

/* A whole number from @min to @max, or -1: its text comes from the grader. */
static long number(const char *text, long min, long max)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		return -1;
	return value;
}

static int usage(void)
{
	fprintf(stderr, "usage: peer burst PORT\n"
		"       peer nonce PORT SIZE ITERS [HOST]\n"
		"SIZE is in bytes, up to %d\n", MAX_SIZE);
	return EXIT_USAGE;
}

int main(int argc, char *argv[])
{
	struct peer p = { 0 };
	bool is_nonce = argc >= 5 && strcmp(argv[1], "nonce") == 0;
	bool is_burst = argc == 3 && strcmp(argv[1], "burst") == 0;
	const char *host = argc == 6 ? argv[5] : NULL;
	long port, size = 0, iters = 0;
	int sock, err;

	start_output();
	if ((!is_nonce && !is_burst) || argc > 6)
		return usage();
	port = number(argv[2], 1, 65535);
	if (is_nonce) {
		size = number(argv[3], 1, MAX_SIZE);
		iters = number(argv[4], 1, MAX_ITERS);
	}
	if (port < 0 || size < 0 || iters < 0)
		return usage();

	if (set_up(&p)) {
		print_error(errno, "setting up");
		return EXIT_OWN_FAULT;
	}

	/* The kernel releases everything when this process ends. */
	sock = host ? exchange_connect(host, port, TIMEOUT) :
		      exchange_serve(port, TIMEOUT);
	if (sock < 0)
		return EXIT_FAILURE;
	err = is_burst ? burst(&p, sock) : nonce(&p, sock, size, iters);
	if (p.own_fault)
		return EXIT_OWN_FAULT;
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
