/*
 * cm_stranger.c - a peer of rdma_ping that does not keep to rping's protocol
 *
 * Usage: cm_stranger client|server MODE, which is one of those in the code
 *
 * It uses the synchronous calls, always port 7174, and as a client 10.9.0.1.
 * Modes that end in "dies" kill the program in that step; the others go on as
 * far as they can, and then wait to be killed.
 */
#include <endian.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

struct message {
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
};

struct memory {
	struct message received, sent[2];	/* [1]: for too long ones */
	char text[64];
};

static const char *mode;

static bool mode_is(const char *name)
{
	return !strcmp(mode, name);
}

static void die_if(bool failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(EXIT_FAILURE);
	}
}

/* One of the steps in which this side may die, or go silent. */
static void step(const char *dies, const char *stays)
{
	if (mode_is(dies))
		raise(SIGKILL);
	while (mode_is(stays))
		pause();
}

static void send_bytes(struct rdma_cm_id *id, struct ibv_mr *mr, size_t size)
{
	struct memory *memory = mr->addr;

	die_if(rdma_post_send(id, NULL, memory->sent, size, mr,
			      IBV_SEND_SIGNALED),
	       "rdma_post_send");
}

static void receive(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	struct memory *memory = mr->addr;
	struct ibv_wc wc = { 0 };

	die_if(rdma_get_recv_comp(id, &wc) != 1 || wc.status, "receive");
	die_if(rdma_post_recv(id, NULL, &memory->received, 16, mr),
	       "rdma_post_recv");
}

static void client(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {
		.responder_resources = !mode_is("serves-no-read"),
		.initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	struct memory *memory = mr->addr;

	/* With a channel, rdma_connect() does not wait for the answer. */
	if (mode_is("asks-only") || mode_is("asks-dies"))
		die_if(rdma_migrate_id(id, channel), "rdma_migrate_id");
	die_if(rdma_connect(id, &param), "rdma_connect");
	step("asks-dies", "asks-only");
	step("connected-dies", "connected-silent");

	memory->sent[0].addr = htobe64((uintptr_t)memory->text);
	memory->sent[0].rkey = htobe32(mr->rkey ^ mode_is("wrong-key"));
	memory->sent[0].size =
		htobe32(mode_is("too-big") ? 65536 : sizeof(memory->text));
	if (mode_is("no-end"))
		memset(memory->text, '\a', sizeof(memory->text));
	send_bytes(id, mr, mode_is("short") ? 15 : mode_is("long") ? 17 :
			   mode_is("empty") ? 0 : 16);
	if (mode_is("twice"))
		send_bytes(id, mr, 16);
	step("sent-dies", "twice");
	receive(id, mr);
	step("read-dies", "read-silent");
	if (mode_is("wrong-sink"))
		memory->sent[0].rkey ^= htobe32(1);
	send_bytes(id, mr, mode_is("long-sink") ? 17 : 16);
	receive(id, mr);
}

static void server(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	if (mode_is("rejects")) {
		die_if(rdma_reject(id, "no", 3), "rdma_reject");
		return;
	}
	step("asked-dies", "asked-silent");
	die_if(rdma_accept(id, NULL), "rdma_accept");
	step("accepted-dies", "accepted-silent");
	if (mode_is("early")) {
		send_bytes(id, mr, 16);
		send_bytes(id, mr, 16);
	}
	receive(id, mr);
	step("heard-dies", "heard-silent");
	send_bytes(id, mr, mode_is("short") ? 15 : mode_is("long") ? 17 : 16);
	receive(id, mr);
	step("answered-dies", "answered-silent");
	send_bytes(id, mr, 16);
}

int main(int argc, char *argv[])
{
	bool serves = argc > 2 && !strcmp(argv[1], "server");
	struct rdma_addrinfo *list, hints = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_flags = serves ? RAI_PASSIVE : 0,
	};
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 8, .max_send_sge = 1,
			 .max_recv_wr = 2, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct memory *memory = calloc(1, sizeof(*memory));
	struct rdma_cm_id *id, *listener = NULL;
	struct ibv_mr *mr;

	die_if(argc < 3 || !memory, "usage: cm_stranger client|server MODE");
	mode = argv[2];
	die_if(rdma_getaddrinfo("10.9.0.1", "7174", &hints, &list),
	       "rdma_getaddrinfo");
	die_if(rdma_create_ep(&id, list, NULL, &init), "rdma_create_ep");
	if (serves) {
		listener = id;
		die_if(rdma_listen(listener, 1), "rdma_listen");
		puts("listening");
		fflush(stdout);
		step("", "never-looks");
		die_if(rdma_get_request(listener, &id), "rdma_get_request");
	}
	mr = ibv_reg_mr(id->pd, memory, sizeof(*memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE);
	die_if(!mr, "ibv_reg_mr");
	die_if(rdma_post_recv(id, NULL, &memory->received, 16, mr),
	       "rdma_post_recv");
	if (serves)
		server(id, mr);
	else
		client(id, mr);
	for (;;)
		pause();
}
