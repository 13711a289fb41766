/*
 * pingpong.c - the ten steps of a verbs program, between two processes
 *
 * Two sides send each other messages in turn over a reliable connection (RC)
 * and verify every byte. rdma-core's ibv_rc_pingpong can take either side.
 *
 * New since chapter 04: the peer is another process, perhaps on another host.
 * So the two queue pairs learn each other's addresses over TCP, and every wait
 * has a deadline, because a peer can die.
 *
 * Sides: server and client; make run-05 starts both
 *
 *	pingpong			the server waits for a client
 *	pingpong 10.9.0.1		the client connects, and sends first
 *
 *	$ pingpong 10.9.0.1
 *	...
 *	  local address:  LID 0x0000, QPN 0x000012, PSN 0xe22fe2, GID ...
 *	  remote address: LID 0x0000, QPN 0x000011, PSN 0xd78876, GID ...
 *	8192000 bytes in 0.17 seconds = 388.62 Mbit/sec
 *	1000 iters in 0.17 seconds = 168.64 usec/iter
 *	verified: every byte of 1000 of 1000 messages
 *
 * See ibv_create_qp(3), ibv_modify_qp(3), ibv_post_recv(3), ibv_post_send(3),
 * ibv_poll_cq(3), ibv_rc_pingpong(1); IBTA volume 1, 9.7 reliable service.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/measure.h"
#include "../common/pattern.h"
#include "../common/settings.h"

/* Our wr_id values. If a request fails, only wr_id shows which kind it was. */
enum { WRID_RECEIVE = 1, WRID_SEND };

#define SPINS 1000	/* empty polls before a look at clock and peer */

/* 7. Create a queue pair, and take it to INIT. The caller destroys *@qp. */
static int create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int port_num,
		     struct ibv_qp **qp)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,	/* the default partition */
		.port_num = port_num,
		.qp_access_flags = 0,	/* the peer may not read or write */
	};

	*qp = ibv_create_qp(pd, &init);
	if (missing(*qp, "ibv_create_qp"))
		return -1;
	return failed(ibv_modify_qp(*qp, &attr,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		      "ibv_modify_qp(RESET -> INIT)");
}

/* 7. Post a receive: the next message goes into the second half of @mr. */
static int post_receive(struct ibv_qp *qp, const struct ibv_mr *mr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr + mr->length / 2,
		.length = mr->length / 2,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr *bad_wr, wr = {
		.wr_id = WRID_RECEIVE, .sg_list = &sge, .num_sge = 1,
	};

	return failed(ibv_post_recv(qp, &wr, &bad_wr), "ibv_post_recv");
}

/* 8. INIT -> RTR -> RTS: connected to @remote, it can receive, then send. */
static int connect_qp(struct ibv_qp *qp, const struct path *path,
		      const struct address *local, const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path->mtu,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,	/* no receive: the peer waits 0.64 ms */
		.ah_attr = {
			.dlid = remote->lid,
			.port_num = path->port_num,
			.is_global = !gid_is_zero(&remote->gid),
			.grh = { .dgid = remote->gid,
				 .sgid_index = path->gid.gid_index,
				 .hop_limit = 64 },
		},
	};

	if (address_check(remote, &path->port))	/* prints it, too */
		return -1;
	if (failed(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp(INIT -> RTR)")) {
		print_hint("can these two GIDs reach each other? "
			   "-g N takes another GID of this side");
		return -1;
	}

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;	/* send again after 4.096 us * 2^14 = 67 ms */
	attr.retry_cnt = 7;	/* seven times; Soft-RoCE: for ever */
	attr.rnr_retry = 7;	/* for ever: the peer will post a receive */
	attr.sq_psn = local->psn;
	attr.max_rd_atomic = 1;
	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/* 8. Exchange addresses over TCP, and connect. The caller closes *@sock. */
static int introduce(struct ibv_qp *qp, const struct settings *opt,
		     const struct path *path, int *sock)
{
	struct address remote = { 0 }, local = {
		.lid = path->port.lid,
		.qpn = qp->qp_num,
		.psn = random_psn(),
		.gid = path->gid.gid,
	};

	address_print("local address:", &local);
	if (opt->server) {	/* its name: we are the client */
		*sock = exchange_connect(opt->server, opt->tcp_port,
					 opt->timeout);
		if (*sock < 0 || exchange_send_address(*sock, &local) ||
		    exchange_receive_address(*sock, &remote) ||
		    exchange_send_done(*sock) ||
		    connect_qp(qp, path, &local, &remote))
			return -1;
	} else {
		*sock = exchange_serve_address(opt->tcp_port, opt->timeout,
					       &remote);
		if (*sock < 0 || connect_qp(qp, path, &local, &remote) ||
		    exchange_send_address(*sock, &local) ||
		    exchange_receive_done(*sock))
			return -1;
	}
	return exchange_agree(sock, &remote, opt);
}

/* 9. Send the first half of @mr, and ask for a completion. */
static int post_send(struct ibv_qp *qp, const struct ibv_mr *mr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = mr->length / 2,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.wr_id = WRID_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	return failed(ibv_post_send(qp, &wr, &bad_wr), "ibv_post_send");
}

/* 10. Wait at most @timeout seconds for a completion, and for a success. */
static int next_completion(struct ibv_cq *cq, int sock, int timeout,
			   struct ibv_wc *wc)
{
	const long long deadline = deadline_after(timeout);
	unsigned int polls = 0;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
		if (++polls % SPINS != 0)
			continue;
		if (exchange_check_peer(sock))
			return -1;
		if (clock_ns(CLOCK_MONOTONIC) > deadline)
			return failed(ETIMEDOUT, "waiting for a completion");
		sched_yield();	/* a peer on this CPU can run now */
	}
	if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
		return -1;
	}
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	print_wc_error(wc, wc->wr_id == WRID_SEND ? "send" : "receive");
	return -1;
}

/* Transfer all messages. @sock is -1 if the peer is an ibv_rc_pingpong. */
static int transfer(struct ibv_qp *qp, const struct ibv_mr *mr,
		    const struct settings *opt, int sock,
		    const struct pattern *pattern)
{
	const long long start = clock_ns(CLOCK_MONOTONIC);
	const bool client = opt->server != NULL;
	uint8_t *out = mr->addr, *in = out + opt->size;
	int posted = 0, sent = 0, received = 0;
	struct ibv_wc wc;

	while (sent < opt->iters || received < opt->iters) {
		/* The client begins, and then the two sides take turns. */
		bool our_turn = client ? received == posted : received > posted;

		/* 9. Until the previous send has completed, @out is in use. */
		if (our_turn && sent == posted && posted < opt->iters) {
			pattern_fill(pattern, out, posted);
			if (post_send(qp, mr))
				return -1;
			posted++;
		}

		/* 10. The completion of a send or of a receive. */
		if (next_completion(qp->send_cq, sock, opt->timeout, &wc)) {
			print_hint("%d sent and %d received of %d; if the peer "
				   "is alive, does it use the same -n?", sent,
				   received, opt->iters);
			return -1;
		}
		if (wc.wr_id == WRID_SEND) {
			sent++;
			continue;
		}

		/* That receive is used up. Post another before we answer. */
		if (pattern_check(pattern, in, wc.byte_len, received) ||
		    post_receive(qp, mr))
			return -1;
		received++;
	}

	print_rates(opt->size, opt->iters, clock_ns(CLOCK_MONOTONIC) - start);
	return 0;
}

int main(int argc, char *argv[])
{
	struct settings opt;
	struct ibv_device **list = NULL, *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	struct path path = { 0 };
	struct pattern pattern = { 0 };
	uint8_t *buf = NULL;
	int sock = -1, status = EXIT_FAILURE;

	start_output();
	if (settings_parse(argc, argv, &opt, NULL))
		return EXIT_USAGE;

	/* 1. Device: one that has an ACTIVE port. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, opt.device, &path.port_num);
	if (!device)
		goto out;

	/* 2. Context: the open device, and the way that packets take. */
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device") ||
	    path_find(context, &opt, &path))
		goto out;

	/* 3. Protection domain: our queue pair may use only regions in it. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;

	/* 4. Memory region: the message to send, then the one received. */
	buf = calloc(2, opt.size);
	if (missing(buf, "calloc(2, %d)", opt.size) ||
	    pattern_create(&pattern, &opt))
		goto out;
	mr = ibv_reg_mr(pd, buf, 2 * (size_t)opt.size, IBV_ACCESS_LOCAL_WRITE);
	if (missing(mr, "ibv_reg_mr(%zu bytes)", 2 * (size_t)opt.size)) {
		print_hint("ENOMEM: ulimit -l limits what may be registered");
		goto out;
	}

	/* 5. Completion channel: none, since we poll. rc_pingpong has one. */

	/* 6. Completion queue: with room for one send and one receive. */
	cq = ibv_create_cq(context, 2, NULL, NULL, 0);
	if (missing(cq, "ibv_create_cq"))
		goto out;

	/* 7. Queue pair: its receive is posted before the peer can send. */
	if (create_qp(pd, cq, path.port_num, &qp) || post_receive(qp, mr))
		goto out;

	/* 8. Exchange: the two queue pairs learn each other's address. */
	if (introduce(qp, &opt, &path, &sock))
		goto out;

	/* 9. and 10. Transfer. With an ibv_rc_pingpong, sock is -1 by now. */
	pattern.own_kind = sock >= 0;
	if (transfer(qp, mr, &opt, sock, &pattern)) {
		port_explain(context, path.port_num);	/* is it down? */
		goto out;
	}
	pattern_report(&pattern, pattern.own_kind ? opt.iters : 0);

	/* The queue pair must live until the peer has our last ACK. */
	if (exchange_goodbye(sock) == 0)
		status = EXIT_SUCCESS;

out:
	if (sock >= 0)
		close(sock);
	status |= RELEASE(ibv_destroy_qp, qp);
	status |= RELEASE(ibv_destroy_cq, cq);
	status |= RELEASE(ibv_dereg_mr, mr);
	free(pattern.table);
	free(buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
