/*
 * rdma_ping.c - a connection by the RDMA connection manager, and rping over it
 *
 * The connection manager (CM, librdmacm) finds the device by an IP address,
 * exchanges the addresses of the queue pairs, and takes both of them through
 * the states of chapter 04. The program prints each call and each event, with
 * the queue pair's state before and after it.
 *
 * New since chapter 06: there is no TCP connection, and the program chooses
 * neither device nor GID. Either side may be rdma-core's rping.
 *
 * Sides: server and client; make run-07 starts both
 *
 *	rdma_ping			the server waits for a client
 *	rdma_ping 10.9.0.1		the client connects
 *
 *	$ rdma_ping 10.9.0.1
 *	...
 *	   9.790 ms  rdma_connect                            INIT -> INIT
 *	  12.120 ms  ESTABLISHED        success              INIT -> RTS
 *	3 rounds of 64 bytes
 *	  19.508 ms  rdma_disconnect                         RTS -> ERR
 *	...
 *
 * See rdma_cm(7), rdma_create_id(3), rdma_resolve_addr(3), rdma_create_qp(3),
 * rdma_connect(3), rdma_accept(3), rdma_get_cm_event(3), rping(1).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../common/clock.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/names.h"
#include "arguments.h"
#include "events.h"
#include "rounds.h"

/*
 * A packet without an ACK is sent again after 4.096 us * 2^14 = 67 ms. With the
 * value that the CM chooses it would be up to 2.1 s.
 */
#define ACK_TIMEOUT 14
/* A sender that finds no receive waits 0.64 ms. The CM would set 655 ms. */
#define RNR_TIMER 12

#define NO_SERVER 1		/* nobody listens there, perhaps not yet */
#define PAUSE_US (250 * 1000)	/* before we try again; then twice that */

struct connection {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;	/* the server's, for new clients */
	struct rdma_cm_id *id;		/* this end of the connection */
	uint8_t initiator_depth;	/* how many READs the client serves */
	enum ibv_qp_state state;	/* at the last report(); RESET: no QP */
	long long start;		/* when the program began */
	int timeout;			/* of every wait, in seconds */
};

/* Print a call or an event, and the queue pair's state before and after it. */
static int report(struct connection *c, const char *what, const char *status)
{
	enum ibv_qp_state before = c->state;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;

	if (c->id && c->id->qp &&
	    failed(ibv_query_qp(c->id->qp, &attr, IBV_QP_STATE, &init),
		   "ibv_query_qp"))
		return -1;
	c->state = attr.qp_state;
	printf("%8.3f ms  %-18s %-20s %s -> %s\n",
	       (double)(clock_ns(CLOCK_MONOTONIC) - c->start) / NS_PER_MS, what,
	       status, before == IBV_QPS_RESET ? "-" : qp_state_name(before),
	       c->state == IBV_QPS_RESET ? "-" : qp_state_name(c->state));
	return 0;
}

/* Report a call that returned @result, -1 with errno. Returns 0, or -1. */
static int called(struct connection *c, const char *name, int result)
{
	if (result)
		return cm_failed(name);
	return report(c, name, "");
}

/*
 * Take the next event, which must be @wanted, and acknowledge it. Returns 0,
 * NO_SERVER, or -1 after an error message.
 */
static int expect(struct connection *c, enum rdma_cm_event_type wanted)
{
	const long long deadline = deadline_after(c->timeout);
	struct pollfd fd = { .fd = c->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	char words[32];
	int status, ready, err;

	/* EAGAIN: that event was for the library only, so we poll again. */
	do {
		ready = poll_until(&fd, 1, deadline);
		if (ready < 0)
			return -1;
		if (ready == 0)
			return failed(ETIMEDOUT, "waiting for %s",
				      event_name(wanted));
		status = rdma_get_cm_event(c->channel, &event);
	} while (status && errno == EAGAIN);
	if (status)
		return failed(errno, "rdma_get_cm_event");

	/* After the acknowledgement the event is gone. Keep what we need. */
	type = event->event;
	status = event->status;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		c->id = event->id;
		c->initiator_depth = event->param.conn.initiator_depth;
	}
	event_status(status, words, sizeof(words));
	err = report(c, event_name(type), words);
	if (rdma_ack_cm_event(event))
		return failed(errno, "rdma_ack_cm_event");
	if (err)
		return -1;
	if (type == wanted && status == 0)
		return 0;
	if (type == RDMA_CM_EVENT_REJECTED && status == REASON_NOBODY_LISTENS)
		return NO_SERVER;
	print_error(0, "expected %s, but %s (%s) came", event_name(wanted),
		    event_name(type), words);
	event_hint(type, status);
	return -1;
}

/* 2. The server's identifier listens, until a client asks. */
static int wait_for_client(struct connection *c, struct sockaddr *addr)
{
	if (called(c, "rdma_create_id",
		   rdma_create_id(c->channel, &c->listener, NULL,
				  RDMA_PS_TCP)) ||
	    called(c, "rdma_bind_addr", rdma_bind_addr(c->listener, addr)) ||
	    called(c, "rdma_listen", rdma_listen(c->listener, 1)) ||
	    expect(c, RDMA_CM_EVENT_CONNECT_REQUEST))
		return -1;
	/* One client is enough. Others that ask are refused from now on. */
	if (RELEASE(rdma_destroy_id, c->listener))
		return -1;
	c->listener = NULL;
	return 0;
}

/* 2. The client's identifier learns its device, and the way to the server. */
static int find_server(struct connection *c, struct sockaddr *addr)
{
	int ms = c->timeout * 500;	/* half: this event comes first */

	if (called(c, "rdma_create_id",
		   rdma_create_id(c->channel, &c->id, NULL, RDMA_PS_TCP)) ||
	    called(c, "rdma_resolve_addr",
		   rdma_resolve_addr(c->id, NULL, addr, ms)) ||
	    expect(c, RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    called(c, "rdma_resolve_route", rdma_resolve_route(c->id, ms)))
		return -1;
	return expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* 3. Queue pair, memory and a receive: needed before a message can come. */
static int prepare(struct connection *c, struct rounds *r, bool client)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 8, .max_send_sge = 1,
			 .max_recv_wr = 2, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	uint8_t timeout = ACK_TIMEOUT;

	if (rounds_create_cq(r, c->id->verbs))
		return -1;
	init.send_cq = r->cq;
	init.recv_cq = r->cq;
	if (called(c, "rdma_create_qp", rdma_create_qp(c->id, NULL, &init)))
		return -1;
	r->qp = c->id->qp;
	if (rounds_register(r, c->id->pd, client) || rounds_post_receive(r))
		return -1;
	return called(c, "rdma_set_option",
		      rdma_set_option(c->id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
				      sizeof(timeout)));
}

/* 4. Connect, or accept. Then both queue pairs are in RTS. */
static int establish(struct connection *c, bool client)
{
	struct rdma_conn_param param = {
		.responder_resources = client ? 1 : 0,	/* READs we serve */
		.initiator_depth = client ? 0 : 1,	/* READs we post */
		.retry_count = 7,	/* the client's holds for both sides */
		.rnr_retry_count = 7,	/* the peer's sends: try for ever */
	};
	struct ibv_qp_attr attr = { .min_rnr_timer = RNR_TIMER };
	int err;

	if (!client && c->initiator_depth < 1) {
		print_error(0, "the client does not allow RDMA READs");
		print_hint("use rping or rdma_ping as the client");
		return -1;
	}
	if (client ? called(c, "rdma_connect", rdma_connect(c->id, &param))
		   : called(c, "rdma_accept", rdma_accept(c->id, &param)))
		return -1;
	err = expect(c, RDMA_CM_EVENT_ESTABLISHED);
	/* If the peer has gone already, play() gets DISCONNECTED. */
	if (err || c->state != IBV_QPS_RTS)
		return err;
	return failed(ibv_modify_qp(c->id->qp, &attr, IBV_QP_MIN_RNR_TIMER),
		      "ibv_modify_qp(MIN_RNR_TIMER)");
}

/* 5. The rounds; the server plays until the client disconnects. */
static int play(struct connection *c, struct rounds *r,
		const struct arguments *args)
{
	const int rounds = args->count ? args->count : 3;
	int err = 0;

	while (!err && (!args->client || r->done < rounds))
		err = args->client ? rounds_client(r) : rounds_server(r);
	if (err == ROUNDS_EVENT) {
		/* Only the client may end, and only between two rounds. */
		bool complete = !args->client && !r->within && r->done > 0 &&
				(!args->count || r->done == args->count);

		err = expect(c, RDMA_CM_EVENT_DISCONNECTED);
		if (!err && !complete) {
			print_error(0, "the peer disconnected %s round %d",
				    r->within ? "in" : "after",
				    r->done + r->within);
			event_hint(RDMA_CM_EVENT_DISCONNECTED, 0);
			err = -1;
		}
	}
	if (!err)
		printf("%d round%s of %d bytes\n", r->done,
		       r->done == 1 ? "" : "s", r->size);
	return err;
}

/*
 * Steps 2 to 6. @r is a copy, so that each attempt begins with the same values.
 * Returns 0, NO_SERVER, or -1.
 */
static int connect_and_play(struct connection *c, struct rounds r,
			    const struct arguments *args)
{
	struct sockaddr *addr = args->list->ai_addr;
	int err, status;

	err = args->client ? find_server(c, addr) : wait_for_client(c, addr);
	if (!err)
		err = prepare(c, &r, args->client);
	if (!err)
		err = establish(c, args->client);
	if (!err)
		err = play(c, &r, args);

	/* 6. The client disconnects first, and waits until the server has. */
	if (!err)
		err = called(c, "rdma_disconnect", rdma_disconnect(c->id));
	if (!err && args->client)
		err = expect(c, RDMA_CM_EVENT_DISCONNECTED);

	if (c->id && c->id->qp) {
		rdma_destroy_qp(c->id);
		released("rdma_destroy_qp", 0);
	}
	status = rounds_release(&r);
	status |= RELEASE(rdma_destroy_id, c->id);
	status |= RELEASE(rdma_destroy_id, c->listener);
	if (status)
		err = -1;
	c->id = NULL;
	c->listener = NULL;
	c->state = IBV_QPS_RESET;
	return err;
}

int main(int argc, char *argv[])
{
	struct connection c = { 0 };
	struct arguments args;
	struct rounds rounds;
	long long deadline;
	int err, status;

	start_output();
	if (arguments_parse(argc, argv, &args, &rounds))
		return EXIT_USAGE;

	status = device_required();
	if (status)
		return status;
	status = EXIT_FAILURE;
	if (arguments_look_up(&args))
		goto out;

	/* 1. Event channel. rdma_get_cm_event(3) has no deadline, so it must
	 * not wait: poll(2) does that. */
	c.channel = rdma_create_event_channel();
	if (missing(c.channel, "rdma_create_event_channel")) {
		print_hint("is /dev/infiniband/rdma_cm there? If not, as root: "
			   "modprobe rdma_ucm");
		goto out;
	}
	if (failed(fcntl(c.channel->fd, F_SETFL, O_NONBLOCK) ? errno : 0,
		   "fcntl(O_NONBLOCK)"))
		goto out;
	rounds.cm_fd = c.channel->fd;
	c.start = clock_ns(CLOCK_MONOTONIC);
	c.timeout = args.timeout;

	/* 2. to 6. A client may be earlier than its server. */
	deadline = deadline_after(args.timeout);
	err = connect_and_play(&c, rounds, &args);
	for (int us = PAUSE_US; err == NO_SERVER; us *= 2) {
		print_error(0, "no server at %s port %d", args.host,
			    args.port);
		event_hint(RDMA_CM_EVENT_REJECTED, REASON_NOBODY_LISTENS);
		if (clock_ns(CLOCK_MONOTONIC) + us * 1000LL > deadline)
			break;
		usleep(us);
		err = connect_and_play(&c, rounds, &args);
	}
	if (!err)
		status = EXIT_SUCCESS;

out:
	status |= RELEASE_VOID(rdma_destroy_event_channel, c.channel);
	if (args.list)
		freeaddrinfo(args.list);
	return status;
}
