/*
 * sync_ping.c - the same connection with calls that wait by themselves
 *
 * Without an event channel, a call of the CM waits until it is done. But you
 * cannot give it a deadline: if a peer goes silent, this program never ends.
 * The peer may also be rdma-core's rdma_server or rdma_client.
 *
 * Sides: server and client; make run-07 PROGRAM=sync_ping starts both
 *
 *	sync_ping			the server waits for a client
 *	sync_ping 10.9.0.1		the client connects, and sends first
 *
 *	$ sync_ping 10.9.0.1
 *	...
 *	received 16 bytes: from the server
 *
 * See rdma_getaddrinfo(3), rdma_create_ep(3), rdma_get_request(3),
 * rdma_post_send(3), rdma_get_recv_comp(3), rdma_server(1), rdma_client(1).
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../common/address.h"
#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/options.h"
#include "events.h"

#define MESSAGE_SIZE 16		/* that of rdma_server and rdma_client */

struct endpoint {
	struct rdma_cm_id *listener;	/* the server's */
	struct rdma_cm_id *id;		/* this end of the connection */
	struct ibv_mr *mr;		/* of both messages */
	long long since;		/* when the last call returned */
	char messages[2][MESSAGE_SIZE];	/* the one received, the one sent */
};

/* Print how long call @name took. @result: 0, or -1 and errno. Returns it. */
static int took(struct endpoint *e, const char *name, int result)
{
	long long ns = clock_ns(CLOCK_MONOTONIC) - e->since;

	if (result)
		return cm_failed(name);
	printf("%8.3f ms  %s\n", (double)ns / NS_PER_MS, name);
	e->since = clock_ns(CLOCK_MONOTONIC);
	return 0;
}

/*
 * 1. Create an identifier. If @addr is passive (RAI_PASSIVE), it is bound, so
 * that it can listen, and rdma_get_request() makes a queue pair like @init for
 * each client. Otherwise the identifier gets its queue pair now. @init has no
 * CQs, so the library makes one for each direction, for rdma_get_send_comp()
 * and rdma_get_recv_comp().
 */
static int create(struct endpoint *e, struct rdma_addrinfo *addr,
		  struct rdma_cm_id **id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,	/* each send has a completion */
	};

	e->since = clock_ns(CLOCK_MONOTONIC);
	return took(e, "rdma_create_ep", rdma_create_ep(id, addr, NULL, &init));
}

/* 2. Memory, and a receive, before the peer can send. */
static int prepare(struct endpoint *e)
{
	e->mr = rdma_reg_msgs(e->id, e->messages, sizeof(e->messages));
	if (took(e, "rdma_reg_msgs", e->mr ? 0 : -1))
		return -1;
	return took(e, "rdma_post_recv",
		    rdma_post_recv(e->id, NULL, e->messages[0], MESSAGE_SIZE,
				   e->mr));
}

/* 3. The server: listen, and accept the first client. */
static int serve(struct endpoint *e, struct rdma_addrinfo *addr)
{
	return create(e, addr, &e->listener) ||
	       took(e, "rdma_listen", rdma_listen(e->listener, 1)) ||
	       took(e, "rdma_get_request",
		    rdma_get_request(e->listener, &e->id)) ||
	       prepare(e) ||
	       took(e, "rdma_accept", rdma_accept(e->id, NULL));
}

/*
 * 3. The client: connect. If nobody listens, the server may start later, so try
 * for 10 s. errno is ECONNREFUSED after every refusal. The reason is in the
 * event, which e->id keeps until the next call.
 */
static int connect_to(struct endpoint *e, struct rdma_addrinfo *addr)
{
	for (int tries = 1;; tries++) {
		int err = create(e, addr, &e->id) || prepare(e);

		if (err)
			return err;
		err = rdma_connect(e->id, NULL);
		if (!err || errno != ECONNREFUSED || tries == 20 ||
		    e->id->event->status != REASON_NOBODY_LISTENS)
			return took(e, "rdma_connect", err);
		/* Refused: this queue pair is in ERR. Make another one. */
		rdma_destroy_qp(e->id);
		if (rdma_dereg_mr(e->mr))
			return cm_failed("rdma_dereg_mr");
		rdma_destroy_ep(e->id);
		e->mr = NULL;
		e->id = NULL;
		usleep(500 * 1000);
	}
}

/* 4. Send our message, and wait for its completion. */
static int send_message(struct endpoint *e)
{
	struct ibv_wc wc = { 0 };
	int err = rdma_post_send(e->id, NULL, e->messages[1], MESSAGE_SIZE,
				 e->mr, 0);

	if (took(e, "rdma_post_send", err))
		return -1;
	err = rdma_get_send_comp(e->id, &wc) < 0 ? -1 : 0;
	if (took(e, "rdma_get_send_comp", err))
		return -1;
	if (wc.status)
		print_wc_error(&wc, "send");
	return wc.status ? -1 : 0;
}

/* 4. Wait for the peer's message, which may be any bytes, and print it. */
static int receive_message(struct endpoint *e)
{
	char text[MESSAGE_SIZE + 1];
	struct ibv_wc wc = { 0 };
	int err = rdma_get_recv_comp(e->id, &wc) < 0 ? -1 : 0;

	if (took(e, "rdma_get_recv_comp", err))
		return -1;
	if (wc.status)
		print_wc_error(&wc, "receive");
	else
		printf("received %u bytes: %s\n", wc.byte_len,
		       printable(e->messages[0],
				 strnlen(e->messages[0], wc.byte_len), text,
				 sizeof(text)));
	return wc.status ? -1 : 0;
}

int main(int argc, char *argv[])
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *addr = NULL;
	struct endpoint e = { 0 };
	const char *port = "7471", *server, *address;
	const struct option_spec specs[] = {
		{ 'p', "port", "PORT", "port of the server (7471)",
		  .text = &port },
		{ 0 }
	};
	int err, status;

	start_output();
	if (options_parse(argc, argv, specs, "SERVER", NULL))
		return EXIT_USAGE;
	server = argv[optind];	/* or NULL: be the server */
	address = server ? server : "0.0.0.0";
	hints.ai_flags = server ? 0 : RAI_PASSIVE;
	snprintf(e.messages[1], MESSAGE_SIZE, "from the %s",
		 server ? "client" : "server");

	status = device_required();
	if (status)
		return status;
	status = EXIT_FAILURE;
	err = rdma_getaddrinfo(address, port, &hints, &addr);
	if (err) {
		print_error(err == -1 ? errno : 0, "no address \"%s\", port %s",
			    address, port);
		if (err != -1)
			print_hint("%s", gai_strerror(err));
		goto out;
	}
	if (server)
		err = connect_to(&e, addr) || send_message(&e) ||
		      receive_message(&e);
	else
		err = serve(&e, addr) || receive_message(&e) ||
		      send_message(&e);

	/*
	 * 5. Disconnect. If the peer has done so first, this is our answer. The
	 * client's queue pair goes to ERR here. If its last ACK was lost, the
	 * server's send never completes, so in a program of your own let the
	 * side that has sent last disconnect first.
	 */
	if (!err && !took(&e, "rdma_disconnect", rdma_disconnect(e.id)))
		status = EXIT_SUCCESS;

out:
	/* The queue pair first, because it uses the region. */
	if (e.id && e.id->qp)
		rdma_destroy_qp(e.id);
	status |= RELEASE(rdma_dereg_mr, e.mr);
	status |= RELEASE_VOID(rdma_destroy_ep, e.id);
	status |= RELEASE_VOID(rdma_destroy_ep, e.listener);
	status |= RELEASE_VOID(rdma_freeaddrinfo, addr);
	return status;
}
