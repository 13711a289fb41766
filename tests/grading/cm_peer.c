/*
 * cm_peer.c - the other side of the exercise of chapter 07
 *
 *	cm_peer client PORT VERSION KIND ADDRESS
 *	cm_peer server PORT accept|empty|short|magic=WORD|silent|WORD
 *
 * client: asks with private data of KIND: a `hello` with VERSION, the same with
 * the text of the exercise (`given`), or with WORD as its magic (`magic=WORD`,
 * four letters), or `none`. Prints what it got for an answer.
 *
 * server: accepts one client with an empty text, as the server of the exercise
 * does, or refuses it (any other WORD), both with a random version. The others
 * refuse it: with version 0 and an empty text (empty), with a text that has a
 * zero in its middle (short), with WORD as its magic (magic=WORD), or without
 * data (silent). Prints what the client has asked, and what it was told.
 *
 * Other texts are random, and have no zero at their end. Behind the hello,
 * there are more letters.
 *
 * What it prints on stdout is what a grade stands on. The other side may send
 * anything or nothing: no wait is for ever. With a connection, it waits for
 * the end of its input.
 *
 * Exit status: 0 done; 1 the other side did not do its part; 2 usage; 3 the
 * peer itself failed, so that nothing can be said about the other side.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../../common/checkpoint.h"
#include "../../common/clock.h"
#include "../../common/error.h"
#include "sweep.h"

#define TIMEOUT 60		/* seconds, of every wait */
#define EXIT_OWN_FAULT 3

#define CLIENT_TEXT "please accept a client"	/* as in the exercise */

/* As in the exercise. */
struct hello {
	char magic[4];
	uint32_t version;
	char text[24];
};

/* What we send. */
struct message {
	struct hello hello;
	char behind[24];	/* as much as a request has room for */
};

static void own_fault(bool failed, const char *what)
{
	if (failed) {
		print_error(errno, "%s", what);
		exit(EXIT_OWN_FAULT);
	}
}

/* The next event, or NULL if none came in time. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll_until(&fd, 1, deadline_after(TIMEOUT)) != 1) {
		puts("nothing came");
		return NULL;
	}
	own_fault(rdma_get_cm_event(channel, &event) != 0, "rdma_get_cm_event");
	return event;
}

/* What came, in words. A text may hold anything, and is not printed. */
static void print_data(const char *what, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct hello hello;

	if (!param->private_data || param->private_data_len < sizeof(hello)) {
		printf("%s nothing\n", what);
		return;
	}
	memcpy(&hello, param->private_data, sizeof(hello));
	if (memcmp(hello.magic, "ping", sizeof(hello.magic)) != 0)
		printf("%s other\n", what);
	else if (!memchr(hello.text, '\0', sizeof(hello.text)))
		printf("%s hello %u, a text without its zero\n", what,
		       ntohl(hello.version));
	else
		printf("%s hello %u%s\n", what, ntohl(hello.version),
		       !hello.text[0] ? " without a text" :
		       strncmp(hello.text, CLIENT_TEXT, sizeof(hello.text)) ?
			       "" : " with its text");
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	own_fault(rdma_create_qp(id, NULL, &init) != 0, "rdma_create_qp");
}

static void expect(struct rdma_event_channel *channel,
		   enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel);

	own_fault(!event || event->event != wanted, rdma_event_str(wanted));
	rdma_ack_cm_event(event);
}

/* All but the version, which it returns: a random number. */
static uint32_t fill(struct message *message)
{
	struct hello *hello = &message->hello;
	uint32_t random[2];

	own_fault(getrandom(message, sizeof(*message), 0) != sizeof(*message) ||
		  getrandom(random, sizeof(random), 0) != sizeof(random),
		  "getrandom");
	memcpy(hello->magic, "ping", sizeof(hello->magic));
	/* The magic stands in the text as well. */
	snprintf(hello->text, sizeof(hello->text), "%%x, a ping %08x and",
		 random[1]);
	hello->text[sizeof(hello->text) - 1] = 'x';
	/* No zero ends the text there, and it can be printed. */
	for (size_t i = 0; i < sizeof(message->behind); i++)
		message->behind[i] = 'a' + (message->behind[i] & 15);
	return random[0];
}

/* With @kind magic=WORD, @magic becomes that word of four letters. */
static void set_magic(char magic[4], const char *kind)
{
	static const char option[] = "magic=";
	const size_t length = sizeof(option) - 1;

	if (!strncmp(kind, option, length) && strlen(kind) == length + 4)
		memcpy(magic, kind + length, 4);
}

static int client(struct rdma_event_channel *channel, struct sockaddr_in *addr,
		  uint32_t version, const char *kind)
{
	struct message message;
	struct rdma_conn_param param = {
		.private_data = &message, .private_data_len = sizeof(message),
		.retry_count = 6,
	};
	struct rdma_cm_event *event;
	char what[32];
	bool connected;
	struct rdma_cm_id *id;

	(void)fill(&message);
	message.hello.version = htonl(version);
	set_magic(message.hello.magic, kind);
	if (!strcmp(kind, "given"))
		snprintf(message.hello.text, sizeof(message.hello.text),
			 "%s", CLIENT_TEXT);
	if (!strcmp(kind, "none"))
		param.private_data_len = 0;
	own_fault(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0 ||
		  rdma_resolve_addr(id, NULL, (struct sockaddr *)addr, 5000),
		  "rdma_resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	own_fault(rdma_resolve_route(id, 5000) != 0, "rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(id);
	own_fault(rdma_connect(id, &param) != 0, "rdma_connect");
	event = next_event(channel);
	if (!event)
		return EXIT_FAILURE;
	connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
	snprintf(what, sizeof(what), connected ? "accepted" : "rejected %d",
		 event->status);
	if (connected || event->event == RDMA_CM_EVENT_REJECTED)
		print_data(what, event);
	else
		puts(rdma_event_str(event->event));
	rdma_ack_cm_event(event);
	fflush(stdout);
	if (connected)
		wait_for_enter();
	return EXIT_SUCCESS;
}

static int server(struct rdma_event_channel *channel, struct sockaddr_in *addr,
		  const char *answer)
{
	struct message message;
	struct hello *hello = &message.hello;
	struct rdma_conn_param param = {
		.private_data = &message, .private_data_len = sizeof(message),
	};
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	hello->version = htonl(fill(&message) | 1U << 31);
	if (!strcmp(answer, "short"))
		hello->version &= htonl(INT32_MAX);
	if (!strcmp(answer, "empty"))
		hello->version = 0;
	if (!strcmp(answer, "empty") || !strcmp(answer, "accept"))
		hello->text[0] = '\0';
	if (!strcmp(answer, "short"))
		hello->text[1 + message.behind[0] - 'a'] = '\0';
	set_magic(hello->magic, answer);
	own_fault(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0 ||
		  rdma_bind_addr(listener, (struct sockaddr *)addr) ||
		  rdma_listen(listener, 1), "rdma_listen");
	puts("listening");
	event = next_event(channel);
	if (!event)
		return EXIT_FAILURE;
	id = event->id;
	printf("retries %u\n", event->param.conn.retry_count);
	print_data("asked", event);
	rdma_ack_cm_event(event);
	printf("told version %u, %.23s\n", ntohl(hello->version), hello->text);
	if (!strcmp(answer, "silent")) {
		own_fault(rdma_reject(id, NULL, 0) != 0, "rdma_reject");
	} else if (strcmp(answer, "accept") != 0) {
		own_fault(rdma_reject(id, &message, sizeof(message)) != 0,
			  "rdma_reject");
	} else {
		create_qp(id);
		if (rdma_accept(id, &param))
			return EXIT_FAILURE;
	}
	wait_for_enter();
	return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	const bool is_server = argc == 4 && strcmp(argv[1], "server") == 0;
	const bool is_client = argc == 6 && strcmp(argv[1], "client") == 0;
	struct rdma_event_channel *channel;

	start_output();
	sweep();
	if (!is_server && !is_client) {
		fputs("usage: see the head of cm_peer.c\n", stderr);
		return 2;
	}
	addr.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 0));
	channel = rdma_create_event_channel();
	own_fault(!channel, "rdma_create_event_channel");
	if (is_server)
		return server(channel, &addr, argv[3]);
	own_fault(inet_pton(AF_INET, argv[5], &addr.sin_addr) != 1, argv[5]);
	return client(channel, &addr, (uint32_t)strtoul(argv[3], NULL, 0),
		      argv[4]);
}
