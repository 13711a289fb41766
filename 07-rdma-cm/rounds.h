/*
 * rounds.h - the rounds that rping plays, with the verbs of chapters 03 to 06
 *
 * Nothing here is new. In each round the client has a text, which the server
 * fetches from its memory, and writes back to another place:
 *
 *	client                                   server
 *	   | -- SEND: my text is here -----------> |
 *	   | <----------------------- RDMA READ -- |
 *	   | <---------------------- SEND: done -- |
 *	   | -- SEND: write it there ------------> |
 *	   | <---------------------- RDMA WRITE -- |
 *	   | <---------------------- SEND: done -- |
 *
 * Functions that wait return 0, ROUNDS_EVENT if the connection manager has an
 * event for us instead, or -1 after an error message.
 */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/clock.h"
#include "../common/completion.h"
#include "../common/error.h"

#define ROUNDS_EVENT 1

/* The fewest bytes of a text, and the most: those of rping. */
#define ROUNDS_SIZE_MIN 23
#define ROUNDS_SIZE_MAX 65535

/* Our wr_id values. */
enum { WRID_RECEIVE = 1, WRID_SEND, WRID_RDMA };

/*
 * Every message, in network byte order: where the sender has memory for the
 * peer. The server's messages say "done", and their contents mean nothing.
 */
struct message {
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
};

struct rounds {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct message *messages;	/* the one received, and two to send */
	char *source, *sink;		/* the client's text, and its echo */
	struct ibv_mr *messages_mr, *source_mr, *sink_mr;
	int cm_fd;		/* readable when there is an event */
	int size;		/* of source and of sink */
	int timeout;		/* of each wait, in seconds */
	bool verbose;		/* print the texts */
	bool validate;		/* compare them */
	bool within;		/* a round has begun and has not ended */
	int done;		/* rounds */
};

/* A completion channel, and a queue with room for all that can be posted. */
static inline int rounds_create_cq(struct rounds *r, struct ibv_context *verbs)
{
	r->channel = ibv_create_comp_channel(verbs);
	if (missing(r->channel, "ibv_create_comp_channel"))
		return -1;
	r->cq = ibv_create_cq(verbs, 16, NULL, r->channel, 0);
	return missing(r->cq, "ibv_create_cq");
}

/* Register @size bytes at @bytes as *@mr. Returns 0, or -1 after a message. */
static inline int rounds_reg(struct ibv_mr **mr, struct ibv_pd *pd, void *bytes,
			     int size, int rights)
{
	*mr = ibv_reg_mr(pd, bytes, size, rights);
	if (*mr)
		return 0;
	print_error(errno, "ibv_reg_mr(%d bytes)", size);
	print_hint("ENOMEM: ulimit -l limits what may be registered");
	return -1;
}

/*
 * Allocate and register memory. The client lets its peer read the source and
 * write the sink. The server's regions have no remote rights, because it posts
 * the RDMA operations itself; the source is where it keeps the text.
 */
static inline int rounds_register(struct rounds *r, struct ibv_pd *pd,
				  bool client)
{
	int source_rights = client ? IBV_ACCESS_REMOTE_READ
				   : IBV_ACCESS_LOCAL_WRITE;
	int sink_rights = client ? IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_WRITE : 0;

	r->messages = calloc(3, sizeof(*r->messages));
	r->source = calloc(1, r->size);
	r->sink = calloc(1, r->size);
	if (!r->messages || !r->source || !r->sink)
		return failed(ENOMEM, "calloc(%d)", r->size);

	if (rounds_reg(&r->messages_mr, pd, r->messages,
		       3 * sizeof(*r->messages), IBV_ACCESS_LOCAL_WRITE) ||
	    rounds_reg(&r->source_mr, pd, r->source, r->size, source_rights) ||
	    rounds_reg(&r->sink_mr, pd, r->sink, r->size, sink_rights))
		return -1;
	if (client) {
		r->messages[1].addr = htobe64((uintptr_t)r->source);
		r->messages[1].rkey = htobe32(r->source_mr->rkey);
		r->messages[1].size = htobe32((uint32_t)r->size);
		r->messages[2].addr = htobe64((uintptr_t)r->sink);
		r->messages[2].rkey = htobe32(r->sink_mr->rkey);
		r->messages[2].size = htobe32((uint32_t)r->size);
	}
	return 0;
}

/*
 * Release what rounds_create_cq() and rounds_register() made. Returns 0, or 1
 * if that failed.
 */
static inline int rounds_release(struct rounds *r)
{
	int status = 0;

	status |= RELEASE(ibv_dereg_mr, r->sink_mr);
	status |= RELEASE(ibv_dereg_mr, r->source_mr);
	status |= RELEASE(ibv_dereg_mr, r->messages_mr);
	status |= RELEASE(ibv_destroy_cq, r->cq);
	status |= RELEASE(ibv_destroy_comp_channel, r->channel);
	free(r->sink);
	free(r->source);
	free(r->messages);
	return status;
}

/* Post a receive: the next message goes to messages[0]. */
static inline int rounds_post_receive(struct rounds *r)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&r->messages[0],
		.length = sizeof(r->messages[0]),
		.lkey = r->messages_mr->lkey,
	};
	struct ibv_recv_wr *bad_wr, wr = {
		.wr_id = WRID_RECEIVE, .sg_list = &sge, .num_sge = 1,
	};

	return failed(ibv_post_recv(r->qp, &wr, &bad_wr), "ibv_post_recv");
}

/*
 * Send messages[@which]. Nobody writes to it again, so we need not wait until
 * the send has completed.
 */
static inline int rounds_post_send(struct rounds *r, int which)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&r->messages[which],
		.length = sizeof(r->messages[which]),
		.lkey = r->messages_mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.wr_id = WRID_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	return failed(ibv_post_send(r->qp, &wr, &bad_wr), "ibv_post_send");
}

/* Wait until the request @wr_id completes. No other one may fail meanwhile. */
static inline int rounds_wait(struct rounds *r, uint64_t wr_id,
			      struct ibv_wc *wc)
{
	static const char *const names[] = { "", "a message", "the send",
					     "the RDMA operation" };
	const long long deadline = deadline_after(r->timeout);
	struct pollfd fds[] = { { .fd = r->channel->fd, .events = POLLIN },
				{ .fd = r->cm_fd, .events = POLLIN } };
	struct ibv_cq *cq;
	void *context;
	int n, ready;

	for (;;) {
		n = ibv_poll_cq(r->cq, 1, wc);
		if (n == 0) {
			if (failed(ibv_req_notify_cq(r->cq, 0),
				   "ibv_req_notify_cq"))
				return -1;
			n = ibv_poll_cq(r->cq, 1, wc);
		}
		if (n < 0) {
			print_error(0, "ibv_poll_cq returned %d", n);
			return -1;
		}
		if (n > 0 && wc->status != IBV_WC_SUCCESS) {
			print_wc_error(wc, names[wc->wr_id]);
			return -1;
		}
		if (n > 0 && wc->wr_id == wr_id)
			return 0;
		if (n > 0 && wc->wr_id == WRID_RECEIVE) {
			print_error(0, "a message came too early, in round %d",
				    r->done + 1);
			print_hint("use rping or rdma_ping as the peer");
			return -1;
		}
		if (n > 0)
			continue;	/* a send, for which nobody waits */

		ready = poll_until(fds, 2, deadline);
		if (ready < 0)
			return -1;
		if (ready == 0)
			return failed(ETIMEDOUT, "waiting for %s in round %d",
				      names[wr_id], r->done + 1);
		if (!fds[0].revents)
			return ROUNDS_EVENT;
		if (ibv_get_cq_event(r->channel, &cq, &context))
			return failed(errno, "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
}

/* Wait for a message, and post a receive for the next one. */
static inline int rounds_hear(struct rounds *r, struct message *message)
{
	struct ibv_wc wc;
	int err = rounds_wait(r, WRID_RECEIVE, &wc);

	if (err)
		return err;
	if (wc.byte_len != sizeof(*message)) {
		print_error(0, "a message of %u bytes, not %zu", wc.byte_len,
			    sizeof(*message));
		print_hint("use rping or rdma_ping as the peer");
		return -1;
	}
	message->addr = be64toh(r->messages[0].addr);
	message->rkey = be32toh(r->messages[0].rkey);
	message->size = be32toh(r->messages[0].size);
	return rounds_post_receive(r);
}

/* RDMA READ or WRITE between the source and the peer, and wait for it. */
static inline int rounds_rdma(struct rounds *r, enum ibv_wr_opcode opcode,
			      const struct message *peer, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->source,
		.length = length,
		.lkey = r->source_mr->lkey,
	};
	struct ibv_send_wr *bad_wr, wr = {
		.wr_id = WRID_RDMA, .sg_list = &sge, .num_sge = 1,
		.opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = peer->addr, .rkey = peer->rkey },
	};
	struct ibv_wc wc;

	if (failed(ibv_post_send(r->qp, &wr, &bad_wr), "ibv_post_send"))
		return -1;
	return rounds_wait(r, WRID_RDMA, &wc);
}

/* Print a text of a peer. A terminal must not obey it. */
static inline void rounds_print(const char *what, const char *text, size_t n)
{
	printf("%s: ", what);
	for (size_t i = 0; i < n; i++)
		putchar(isprint((unsigned char)text[i]) ? text[i] : '.');
	putchar('\n');
}

/* One round of the client. */
static inline int rounds_client(struct rounds *r)
{
	struct message go_on;
	int err, n;

	/* rping's text: a number, then letters. Each round begins one letter
	 * further on. */
	n = snprintf(r->source, r->size, "rdma-ping-%d: ", r->done);
	for (int i = 0; n + i < r->size; i++)
		r->source[n + i] = (char)('A' + (i + r->done) % 58);
	r->source[r->size - 1] = '\0';
	memset(r->sink, 0, r->size);

	r->within = true;
	for (int which = 1; which <= 2; which++) {
		if (rounds_post_send(r, which))
			return -1;
		err = rounds_hear(r, &go_on);
		if (err)
			return err;
	}
	r->within = false;

	if (r->validate && memcmp(r->source, r->sink, r->size) != 0)
		return failed(EBADMSG, "a changed text came back in round %d",
			      r->done + 1);
	if (r->verbose)
		rounds_print("ping data", r->sink,
			     strnlen(r->sink, r->size));
	r->done++;
	return 0;
}

/* One round of the server. */
static inline int rounds_server(struct rounds *r)
{
	struct message source, sink;
	uint32_t length;
	int err;

	err = rounds_hear(r, &source);
	if (err)
		return err;
	r->within = true;
	if (source.size > (uint32_t)r->size) {
		print_error(0, "the client's text has %u bytes, our buffer has "
			    "%d", source.size, r->size);
		print_hint("start both sides with the same -S");
		return -1;
	}
	err = rounds_rdma(r, IBV_WR_RDMA_READ, &source, source.size);
	if (err)
		return err;

	length = (uint32_t)strnlen(r->source, source.size);
	if (r->verbose)
		rounds_print("server ping data", r->source, length);
	if (rounds_post_send(r, 1))
		return -1;

	err = rounds_hear(r, &sink);
	if (err)
		return err;
	if (length < source.size)
		length++;	/* with the zero at the end, as rping does */
	if (length > sink.size)
		length = sink.size;
	err = rounds_rdma(r, IBV_WR_RDMA_WRITE, &sink, length);
	if (err)
		return err;
	if (rounds_post_send(r, 1))
		return -1;
	r->within = false;
	r->done++;
	return 0;
}

#endif
