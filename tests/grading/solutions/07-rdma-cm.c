/*
 * exercise.c - two sides that agree on a version before they are connected
 *
 *	exercise PORT VERSION			be the server
 *	exercise PORT VERSION HOST		be the client
 *
 * PORT is a port of the RDMA CM, in RDMA_PS_TCP. VERSION has 32 bits. The
 * client tells it in the private data of its request. The server accepts a
 * client with its own version, and tells it the version once more. It refuses
 * all others, tells them which version it speaks, and waits for the next one.
 * The client prints what became of its request.
 *
 * make try-07 runs it as the server, with a client as its peer; make try-07
 * ARGS=refuse as the client. Write the bodies marked TODO.
 *
 *	$ exercise 7471 3 10.9.0.1
 *	refused: version 4, take the new one
 *	released: rdma_destroy_id
 *	...
 *
 * See rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_get_cm_event(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../common/checkpoint.h"
#include "../common/clock.h"
#include "../common/error.h"
#include "../common/options.h"

#define TIMEOUT 60		/* seconds for each wait, on a busy machine */
#define TIMEOUT_MS (500 * TIMEOUT)	/* ends before our TIMEOUT */
#define MAGIC "ping"

/* The private data, in both directions. */
struct hello {
	char magic[4];		/* MAGIC, without a zero at the end */
	uint32_t version;	/* in network byte order, while it travels */
	char text[24];		/* why it was refused, for example */
};

/*
 * TODO 07.1: fill in @hello with MAGIC, and with @version in network byte order
 * (htonl(3)); leave the text as it is; and make @hello the private data of
 * @param. All other members of @param stay as the caller has set them. See
 * struct rdma_conn_param in rdma_connect(3).
 */
static void say_hello(struct rdma_conn_param *param, struct hello *hello,
		      uint32_t version)
{
#ifdef STARTER
	todo("07.1");
#else
	memcpy(hello->magic, MAGIC, sizeof(hello->magic));
	hello->version = htonl(version);
	param->private_data = hello;
	param->private_data_len = sizeof(*hello);
#endif
}

/*
 * TODO 07.2: the peer's private data stands at @data and has @size bytes, which
 * can be more than a struct hello has: then the hello stands at the beginning.
 * Copy that to @hello, with the version in the byte order of this machine.
 * Return 0, or -1 if it is not a hello: shorter than a struct hello, or without
 * the right magic. @data can be NULL if there is none. Anybody can send
 * anything, so the peer's text may lack the zero at its end. The text in @hello
 * must have it. After -1, @hello may hold anything.
 */
static int read_hello(const void *data, size_t size, struct hello *hello)
{
#ifdef STARTER
	return todo("07.2");
#else
	if (!data || size < sizeof(*hello))
		return -1;
	memcpy(hello, data, sizeof(*hello));
	hello->version = ntohl(hello->version);
	hello->text[sizeof(hello->text) - 1] = '\0';
	return memcmp(hello->magic, MAGIC, sizeof(hello->magic)) ? -1 : 0;
#endif
}

/*
 * TODO 07.3: refuse the client @id, and tell it which @version we speak. With
 * say_hello(), fill in a struct hello and a struct rdma_conn_param of your own,
 * and pass its private_data and private_data_len to rdma_reject().
 * The client gets all bytes of the hello, so set its text, too: any words of at
 * most 23 bytes, and zeros behind them.
 * Return what rdma_reject() returns.
 */
static int refuse(struct rdma_cm_id *id, uint32_t version)
{
#ifdef STARTER
	return todo("07.3");
#else
	struct hello hello = { .text = "take the new one" };
	struct rdma_conn_param param = { 0 };

	say_hello(&param, &hello, version);
	return rdma_reject(id, param.private_data, param.private_data_len);
#endif
}

/*
 * TODO 07.4: our request was refused, and @event is the event REJECTED. If its
 * private data is a hello, print "refused: version V, TEXT" with the version of
 * the peer, an unsigned number, and its text, which can be empty. Otherwise
 * print "refused: reason R" with the status of the event. Private data is in
 * event->param.conn. The text of a peer can hold any bytes, and a terminal
 * obeys some of them. A program of your own should use printable() of
 * common/address.h. Here you may also print the text as it is.
 */
static void print_refusal(const struct rdma_cm_event *event)
{
#ifdef STARTER
	todo("07.4");
#else
	struct hello hello;

	if (read_hello(event->param.conn.private_data,
		       event->param.conn.private_data_len, &hello))
		printf("refused: reason %d\n", event->status);
	else
		printf("refused: version %u, %s\n", hello.version, hello.text);
#endif
}

/*
 * TODO 07.5: @event is the CONNECT_REQUEST of a client. Return 1 if its private
 * data is a hello with our @version, and otherwise 0.
 */
static int is_welcome(const struct rdma_cm_event *event, uint32_t version)
{
#ifdef STARTER
	return todo("07.5");
#else
	struct hello hello;

	return read_hello(event->param.conn.private_data,
			  event->param.conn.private_data_len, &hello) == 0 &&
	       hello.version == version;
#endif
}

/*
 * Given: wait for the next event, which the caller acknowledges. NULL after an
 * error. It may wait without a deadline: step 1 of rdma_ping.c prevents that.
 */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event = NULL;
	int ready = poll_until(&fd, 1, deadline_after(TIMEOUT));

	if (ready == 0)
		print_error(ETIMEDOUT, "waiting for an event");
	else if (ready > 0 && rdma_get_cm_event(channel, &event))
		print_error(errno, "rdma_get_cm_event");
	return event;
}

/*
 * Given: wait for the next event, which must be @wanted and has no data that we
 * need. Returns 0, or -1 after an error message.
 */
static int expect(struct rdma_event_channel *channel,
		  enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel);
	enum rdma_cm_event_type type;

	if (!event)
		return -1;
	type = event->event;
	if (failed(rdma_ack_cm_event(event) ? errno : 0, "rdma_ack_cm_event"))
		return -1;
	if (type == wanted)
		return 0;
	print_error(0, "expected %s, but %s came", rdma_event_str(wanted),
		    rdma_event_str(type));
	return -1;
}

/* Given: a queue pair for @id. The library makes its CQs; nobody polls them. */
static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return failed(rdma_create_qp(id, NULL, &init) ? errno : 0,
		      "rdma_create_qp");
}

/*
 * Given: the server. *@id becomes the client that was accepted, and *@listener
 * is gone then. Returns 0, or -1 after an error, or if 07.5 is not written yet.
 */
static int serve(struct rdma_cm_id **listener, uint32_t version,
		 struct rdma_cm_id **id)
{
	struct rdma_event_channel *channel = (*listener)->channel;
	struct rdma_conn_param param = { 0 };
	struct hello hello = { .text = "" };
	struct rdma_cm_event *event;
	int welcome;

	say_hello(&param, &hello, version);
	for (;;) {
		event = next_event(channel);
		if (!event)
			return -1;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;	/* an earlier client has gone */
		}
		*id = event->id;
		welcome = is_welcome(event, version);
		rdma_ack_cm_event(event);
		if (welcome < 0)
			return -1;
		if (welcome)
			break;
		if (failed(refuse(*id, version) ? errno : 0, "rdma_reject") ||
		    failed(rdma_destroy_id(*id) ? errno : 0,
			   "rdma_destroy_id"))
			return -1;
		*id = NULL;
		puts("refused a client");
	}
	/* No more requests: the next event is to be ESTABLISHED. */
	if (failed(rdma_destroy_id(*listener) ? errno : 0, "rdma_destroy_id"))
		return -1;
	*listener = NULL;
	if (create_qp(*id) ||
	    failed(rdma_accept(*id, &param) ? errno : 0, "rdma_accept"))
		return -1;
	return expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

/* Given: the client. Returns 0 if it was accepted, and otherwise -1. */
static int ask(struct rdma_cm_id *id, struct sockaddr *addr, uint32_t version)
{
	struct rdma_conn_param param = { .retry_count = 6 };
	struct hello hello = { .text = "please accept a client" };
	struct rdma_cm_event *event;
	int err = -1;

	if (failed(rdma_resolve_addr(id, NULL, addr, TIMEOUT_MS) ? errno : 0,
		   "rdma_resolve_addr") ||
	    expect(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    failed(rdma_resolve_route(id, TIMEOUT_MS) ? errno : 0,
		   "rdma_resolve_route") ||
	    expect(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED) || create_qp(id))
		return -1;
	say_hello(&param, &hello, version);
	if (failed(rdma_connect(id, &param) ? errno : 0, "rdma_connect"))
		return -1;
	event = next_event(id->channel);
	if (!event)
		return -1;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		print_refusal(event);
	else if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		print_error(0, "no answer: %s", rdma_event_str(event->event));
	else if (read_hello(event->param.conn.private_data,
			    event->param.conn.private_data_len, &hello))
		print_error(0, "read_hello() found no hello from the server");
	else
		err = 0;
	rdma_ack_cm_event(event);
	if (!err)
		printf("accepted: version %u\n", hello.version);
	return err;
}

int main(int argc, char *argv[])
{
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_id *id = NULL, *listener = NULL, *with_qp;
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int err = -1, status = EXIT_FAILURE;
	uint32_t version;

	start_output();
	if (argc < 3 || argc > 4 ||
	    (argc == 4 && inet_pton(AF_INET, argv[3], &addr.sin_addr) != 1)) {
		print_error(0, "usage: exercise PORT VERSION [HOST]");
		return EXIT_USAGE;
	}
	addr.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 0));
	version = (uint32_t)strtoul(argv[2], NULL, 0);

	channel = rdma_create_event_channel();
	if (missing(channel, "rdma_create_event_channel"))
		goto out;
	if (argc == 4) {
		err = rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
		if (!failed(err ? errno : 0, "rdma_create_id"))
			err = ask(id, (struct sockaddr *)&addr, version);
	} else if (!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) &&
		   !rdma_bind_addr(listener, (struct sockaddr *)&addr) &&
		   !rdma_listen(listener, 4)) {
		puts("listening");
		err = serve(&listener, version, &id);
	} else {
		print_error(errno, "listening on port %s", argv[1]);
	}
	if (!err) {
		checkpoint("connected");
		status = EXIT_SUCCESS;
	}

out:
	with_qp = id && id->qp ? id : NULL;
	status |= RELEASE_VOID(rdma_destroy_qp, with_qp);
	status |= RELEASE(rdma_destroy_id, id);
	status |= RELEASE(rdma_destroy_id, listener);
	status |= RELEASE_VOID(rdma_destroy_event_channel, channel);
	return status;
}
