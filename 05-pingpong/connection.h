/*
 * connection.h - steps 7, 8 and 10 of pingpong.c, for programs with two sides
 *
 *	connection_init()	RESET -> INIT, with the rights of the peer
 *	connection_start()	INIT -> RTR -> RTS, when the peer is known
 *	connection_join()	the same for a peer in this process
 *	connection_introduce()	find the peer over TCP, then start
 *	connection_wait()	wait for the next completion
 *
 * The rights of the peer, and its RDMA reads and atomics, belong to chapter 06.
 * Programs that only send and receive messages pass 0 for the rights.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <errno.h>
#include <sched.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/error.h"
#include "../common/exchange.h"
#include "../common/gid.h"
#include "../common/settings.h"

#define CONNECTION_SPINS 1000	/* empty polls between looks at the clock */
#define CONNECTION_TIMEOUT 14	/* send again after 4.096 us * 2^14 = 67 ms */

/*
 * For chapter 06: how many RDMA reads and atomics may be outstanding at a time,
 * @mine that we post and the peer serves, and @peers that the peer posts and we
 * serve. Sends are not limited by these numbers.
 */
struct connection_depth {
	uint8_t mine;
	uint8_t peers;
};

/* RESET -> INIT. @access is what the peer may do through this queue pair. */
static inline int connection_init(struct ibv_qp *qp, int port_num, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port_num,
		.qp_access_flags = access,
	};

	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		      "ibv_modify_qp(RESET -> INIT)");
}

/*
 * INIT -> RTR -> RTS: connected to @remote. The device sends a packet again if
 * no ACK has come after 4.096 us * 2^@timeout; if @timeout is 0, it never does.
 */
static inline int connection_start(struct ibv_qp *qp, const struct path *path,
				   struct connection_depth depth,
				   uint8_t timeout, const struct address *local,
				   const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path->mtu,
		.dest_qp_num = remote->qpn,
		.rq_psn = remote->psn,
		.max_dest_rd_atomic = depth.peers,
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

	if (failed(ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp(INIT -> RTR)")) {
		print_hint("can these two GIDs reach each other?");
		return -1;
	}

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = timeout;
	attr.retry_cnt = 7;	/* seven times; Soft-RoCE: for ever */
	attr.rnr_retry = 7;	/* for ever: the peer will post a receive */
	attr.sq_psn = local->psn;
	attr.max_rd_atomic = depth.mine;
	return failed(ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		      "ibv_modify_qp(RTR -> RTS)");
}

/*
 * INIT -> RTR -> RTS: connected to @peer, a queue pair on the same port. Both
 * begin with PSN 0; between two hosts it should be random (chapter 04).
 */
static inline int connection_join(struct ibv_qp *qp, const struct ibv_qp *peer,
				  const struct path *path,
				  struct connection_depth depth)
{
	const struct address local = { .psn = 0 }, remote = {
		.lid = path->port.lid,
		.qpn = peer->qp_num,
		.gid = path->gid.gid,
	};

	return connection_start(qp, path, depth, CONNECTION_TIMEOUT,
				&local, &remote);
}

/*
 * Exchange addresses over TCP, connect with one READ or atomic at a time each
 * way, and make sure that the peer is the same program with the same options.
 * The caller closes *@sock. Returns 0, or -1 after an error message.
 */
static inline int connection_introduce(struct ibv_qp *qp,
				       const struct settings *opt,
				       const struct path *path, int *sock)
{
	const struct connection_depth depth = { .mine = 1, .peers = 1 };
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
		    address_check(&remote, &path->port) ||
		    connection_start(qp, path, depth, CONNECTION_TIMEOUT,
				     &local, &remote))
			return -1;
	} else {
		*sock = exchange_serve_address(opt->tcp_port, opt->timeout,
					       &remote);
		if (*sock < 0 || address_check(&remote, &path->port) ||
		    connection_start(qp, path, depth, CONNECTION_TIMEOUT,
				     &local, &remote) ||
		    exchange_send_address(*sock, &local) ||
		    exchange_receive_done(*sock))
			return -1;
	}
	if (exchange_agree(sock, &remote, opt))
		return -1;
	if (*sock < 0) {
		print_error(0, "the peer is an ibv_rc_pingpong");
		print_hint("start the same program on both sides");
		return -1;
	}
	return exchange_same(*sock, program_invocation_short_name,
			     "the programs");
}

/*
 * Wait at most @timeout seconds for a completion in @cq. Returns 0 with it in
 * @wc if it is a success, whatever request it belongs to, or -1 after an error
 * message, in which @what is the name of the request.
 */
static inline int connection_wait(struct ibv_cq *cq, int sock, int timeout,
				  struct ibv_wc *wc, const char *what)
{
	const long long deadline = deadline_after(timeout);
	unsigned int polls = 0;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
		if (++polls % CONNECTION_SPINS != 0)
			continue;
		if (exchange_check_peer(sock))
			return -1;
		if (clock_ns(CLOCK_MONOTONIC) > deadline)
			return failed(ETIMEDOUT, "waiting for %s", what);
		sched_yield();	/* a peer on this CPU can run now */
	}
	if (n < 0) {
		print_error(0, "ibv_poll_cq returned %d", n);
		return -1;
	}
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	print_wc_error(wc, what);
	return -1;
}

#endif
