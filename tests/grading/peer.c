/*
 * peer.c - the other side of the exercises of chapters 03, 05 and 06
 *
 *	peer burst PORT
 *	peer sink PORT SIZE COUNT
 *	peer source PORT SIZE COUNT HOST
 *	peer write PORT SIZE ITERS [HOST]
 *	peer lock PORT
 *	peer sweep
 *
 * burst: waits for a receiver, then reads numbers from stdin: 5 sends five
 * messages with random immediate values, and prints each of them.
 *
 * sink: receives COUNT messages of SIZE bytes, and never has more receives
 * posted than it has given credits for.
 *
 * source: a client of HOST. Sends COUNT messages of 0 to SIZE random bytes, as
 * many as there are credits for. After the first four of more it reads "one"
 * from stdin and sends one more, whose credit is about to come. After eight it
 * waits until it has had five credits at least: a receiver may keep three, but
 * not four.
 *
 * write: server, or client of HOST. ITERS times writes SIZE random bytes into
 * the other side's buffer, with a random immediate value, and wants them back
 * in its own with that value plus one.
 *
 * lock: has a lock and a counter in its memory, for one client, and is a client
 * itself. It holds the lock until it reads "release" from stdin. "look" prints
 * both numbers, "contend 5" adds 1 to the counter five times, each time with
 * the lock, and prints what had been added before each time; "end" says goodbye
 * and prints what was added by all.
 *
 * sweep: only closes what a program has left open: see sweep.h.
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
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "../../common/clock.h"
#include "../../common/error.h"
#include "../../common/exchange.h"
#include "../../common/gid.h"
#include "../../common/options.h"
#include "sweep.h"

#define PORT 1
#define ROOM 256		/* work requests in each queue */
#define TIMEOUT 30		/* seconds, of every wait, on a busy machine */
#define MAX_SIZE (1 << 20)
#define MAX_ITERS 1000000
#define SLOTS 4			/* credits of each side at the beginning */
#define MOST 10			/* receives that sink has posted at most */
#define PAUSE 300		/* ms in which a sink gives no credits */
#define MOMENT 10		/* ms in which a source waits for credits */

#define EXIT_OWN_FAULT 3

struct peer {
	bool own_fault;		/* something of our own failed */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_gid_entry gid;
	struct address local;
	int access;		/* what the other side may do */
	int sock;		/* to the other side, or -1 */
};

/* The memory of peer lock, and a client of its own. */
struct lock {
	struct peer own;	/* connected to itself, in a PD of its own */
	struct ibv_mr *mr;	/* all of the memory, for our own client */
	uint64_t *result;	/* of an operation of our own client */
	volatile uint64_t *word, *counter;
	uint64_t first;		/* the counter, without the additions of 1 */
	uint64_t number;	/* of our own client */
	uint64_t other;		/* of the other side's client */
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

/* A queue pair in a protection domain of its own. Returns 0 or -1. */
static int create_qp(struct peer *p)
{
	struct ibv_qp_init_attr init = {
		.cap = {
			.max_send_wr = ROOM,
			.max_recv_wr = ROOM,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	p->pd = ibv_alloc_pd(p->context);
	p->cq = ibv_create_cq(p->context, 2 * ROOM, NULL, NULL, 0);
	init.send_cq = init.recv_cq = p->cq;
	p->qp = p->pd && p->cq ? ibv_create_qp(p->pd, &init) : NULL;
	if (!p->qp)
		return -1;

	p->local.qpn = p->qp->qp_num;
	/* Not one that is the same with its bytes swapped. */
	do
		p->local.psn = random32() & 0xffffff;
	while ((p->local.psn & 0xff) == p->local.psn >> 16);
	p->local.gid = p->gid.gid;
	return 0;
}

/*
 * Of several IPv4 addresses, ours is the last one: the program takes the first
 * one, and so there is a difference between its GID and ours.
 */
static void choose_last_gid(struct peer *p)
{
	const uint8_t ipv4[12] = { [10] = 0xff, 0xff };
	struct ibv_gid_entry gids[64];
	ssize_t count = ibv_query_gid_table(p->context, gids, 64, 0);

	for (ssize_t i = 0; i < count; i++)
		if (gids[i].port_num == PORT &&
		    gids[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(gids[i].gid.raw, ipv4, sizeof(ipv4)) == 0)
			p->gid = gids[i];
}

static int set_up(struct peer *p)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	p->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!p->context || ibv_query_port(p->context, PORT, &port) ||
	    gid_choose(p->context, PORT, &port, -1, &p->gid))
		return -1;
	choose_last_gid(p);
	return create_qp(p);
}

static int connect_qp(struct peer *p, const struct address *remote)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = p->access,
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
	if (err)
		print_error(err, "connecting to QPN 0x%06x", remote->qpn);
	return err;
}

/* Returns @err, after words about @call, which is ours, if it is an error. */
static int own_call(struct peer *p, int err, const char *call)
{
	if (err) {
		print_error(err, "%s", call);
		p->own_fault = true;
	}
	return err;
}

/* Post @count receives without a buffer. Returns 0, or an error after words. */
static int post_receives(struct peer *p, int count)
{
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad;
	int err = 0;

	while (count-- > 0 && !err)
		err = ibv_post_recv(p->qp, &receive, &bad);
	return own_call(p, err, "ibv_post_recv");
}

/* What is in the CQ. Returns 1; 0 without a completion; or -1 after words. */
static int poll_once(struct peer *p, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(p->cq, 1, wc);

	if (n < 0) {
		/* There is no completion then: *wc holds nothing. */
		print_error(0, "ibv_poll_cq failed: %d", n);
		p->own_fault = true;
	} else if (n > 0 && wc->status != IBV_WC_SUCCESS) {
		printf("wc.status %d (%s)\n", wc->status,
		       ibv_wc_status_str(wc->status));
		n = -1;
	}
	return n;
}

/* The next completion, within the timeout. Returns 0, or -1 without one. */
static int completion(struct peer *p, struct ibv_wc *wc)
{
	const long long deadline = deadline_after(TIMEOUT);
	bool gone = false;
	int n;

	while ((n = poll_once(p, wc)) == 0) {
		if (gone || clock_ns(CLOCK_MONOTONIC) > deadline) {
			puts(gone ? "the other side is gone" :
				    "nothing comes back");
			return -1;
		}
		/* It may have sent something just before it went. */
		gone = exchange_check_peer(p->sock) != 0;
		usleep(200);	/* the other side needs the CPU */
	}
	return n < 0 ? -1 : 0;
}

/* Returns ibv_post_send()'s result, after an error message if it is one. */
static int post_send(struct peer *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return own_call(p, ibv_post_send(p->qp, wr, &bad), "ibv_post_send");
}

static int burst(struct peer *p)
{
	struct address remote;
	uint32_t sent[ROOM];
	struct ibv_wc wc;
	int n;

	if (exchange_receive_address(p->sock, &remote) ||
	    connect_qp(p, &remote) ||
	    exchange_send_address(p->sock, &p->local))
		return -1;
	puts("connected");

	while (scanf("%d", &n) == 1) {
		if (n < 1 || n > ROOM)
			return -1;
		for (int i = 0; i < n; i++) {
			struct ibv_send_wr wr = {
				.opcode = IBV_WR_SEND_WITH_IMM,
				.send_flags = IBV_SEND_SIGNALED,
				.imm_data = htonl(random32()),
			};

			if (post_send(p, &wr))
				return -1;
			sent[i] = ntohl(wr.imm_data);
		}
		/* They come to an end in the order in which they began. */
		for (int i = 0; i < n; i++) {
			if (completion(p, &wc))
				return -1;
			printf("sent 0x%08x\n", sent[i]);
		}
		puts("sent");
	}
	return 0;
}

/* @out is what we send. The other side can write to @in, and only there. */
static int round_trip(struct peer *p, struct ibv_mr *out, struct ibv_mr *in,
		      size_t size, uint64_t addr, uint32_t rkey, uint32_t imm)
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

	fill_randomly(out->addr, size);
	memset(in->addr, 0, size);
	wr.imm_data = htonl(imm);
	if (post_send(p, &wr))
		return -1;
	printf("sent 0x%08x\n", imm);

	for (int sent = 0, received = 0; !sent || !received;) {
		struct ibv_wc wc;

		if (completion(p, &wc)) {
			if (memcmp(out->addr, in->addr, size) == 0)
				puts("your bytes came, and no immediate value");
			return -1;
		}
		if (wc.opcode == IBV_WC_RDMA_WRITE) {
			sent = 1;
			puts("written");
			continue;
		}
		received = 1;
		if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
			puts("your answer is not a WRITE_WITH_IMM");
		else if (ntohl(wc.imm_data) != imm + 1)
			printf("your value is 0x%08x, not 0x%08x\n",
			       ntohl(wc.imm_data), imm + 1);
		else if (memcmp(out->addr, in->addr, size) != 0)
			puts("your answer has other bytes than ours");
		else
			puts("answered");
	}
	return 0;
}

/* A receive for a message of sink, in slot @slot. */
static int post_slot(struct peer *p, const struct ibv_mr *mr, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr + slot * (mr->length / MOST),
		.length = mr->length / MOST,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = slot, .sg_list = &sge, .num_sge = 1,
	}, *bad;

	return own_call(p, ibv_post_recv(p->qp, &wr, &bad), "ibv_post_recv");
}

/* Is the message @wc the one with @number? Says so, or what is wrong. */
static void look_at(const struct ibv_mr *mr, const struct ibv_wc *wc,
		    int number)
{
	const size_t size = mr->length / MOST;
	const uint8_t *bytes = (uint8_t *)mr->addr + wc->wr_id * size;

	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		printf("message %d has an immediate value\n", number);
		return;
	}
	if (wc->byte_len != size) {
		printf("message %d has %u bytes, not %zu\n", number,
		       wc->byte_len, size);
		return;
	}
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != (uint8_t)(bytes[0] + i)) {
			printf("message %d is not what was to be sent\n",
			       number);
			return;
		}
	}
	if (bytes[0] == (uint8_t)number)
		printf("message %d\n", number);
	else
		printf("message %d has the bytes of message %d\n", number,
		       bytes[0]);
}

/* Meet the other side, which sends us messages or gets them from us. */
static int introduce(struct peer *p)
{
	struct address remote;

	if (exchange_send_address(p->sock, &p->local) ||
	    exchange_receive_address(p->sock, &remote) ||
	    connect_qp(p, &remote))
		return -1;
	return 0;
}

/*
 * How many credits the other side gets now. At first none as long as it has
 * one, and then a pause, so that a message which is sent without one is found;
 * three, so that whoever takes each message of credits for one is found in any
 * case; and all, which are more than it has slots. After that three to five at
 * a time, while it still has some: fewer would be more messages than it has
 * receives for. In all as many as messages are @left: none may be lost. The
 * last four it gets when it has none; sink() calls them 65536. They come in
 * four messages at once: so after a number of messages that is a multiple of
 * neither two nor three, as some programs post their receives again only when
 * two, three or four are used up. The four before them come in as many messages
 * as that takes.
 */
static int credits_for(int arrived, int posted, int free_slots, int left,
		       int messages)
{
	/* From each remainder by 6 to the next one that is 1 or 5. */
	static const int steps[] = { 1, 4, 3, 2, 1, 2 };
	/* Receives that are posted with the first credits and the next ones. */
	const int with_three = SLOTS + 3, with_all = with_three + MOST;
	const bool has_one = arrived < posted;
	int credits;

	if (left <= 2 * SLOTS) {
		if (has_one)
			return 0;
		if (left <= SLOTS)
			return left;
		/* One each for the other messages up to the last four. */
		return left - SLOTS - (steps[messages % 6] - 1);
	}
	if (posted < with_all && has_one)
		return 0;
	if (posted == with_three)
		credits = free_slots;
	else if (posted < with_all)
		credits = 3;
	else if (posted == with_all)
		/* Not three again: who takes all for three is not right. */
		credits = 4 + (int)(random32() % 2);
	else
		credits = 3 + (int)(random32() % 3);
	if (credits > free_slots)
		return 0;
	return credits < left - 2 * SLOTS ? credits : left - 2 * SLOTS;
}

static int sink(struct peer *p, const struct ibv_mr *mr, int count)
{
	int arrived = 0, posted = 0, slots[MOST], free_slots = 0, messages = 0;
	/*
	 * After so many credits it gets no more as long as it has one: what
	 * credits_for() does at first, once more at a moment that nobody knows.
	 */
	const int dry_at = SLOTS + 3 + MOST + 3 + (int)(random32() % 4);
	bool was_dry = false;
	struct ibv_wc wc;

	if (introduce(p))
		return -1;
	for (int slot = MOST - 1; slot >= 0; slot--)
		slots[free_slots++] = slot;
	for (; posted < SLOTS; posted++)
		if (post_slot(p, mr, slots[--free_slots]))
			return -1;
	if (exchange_same(p->sock, "ready", "\"ready\""))
		return -1;
	puts("connected");

	while (arrived < count) {
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_SEND_WITH_IMM,
			.send_flags = IBV_SEND_SIGNALED,
		}, spare[SLOTS - 1];
		int credits;

		if (completion(p, &wc))
			return -1;
		if (wc.opcode != IBV_WC_RECV)
			continue;	/* our own credits */
		look_at(mr, &wc, arrived++);
		slots[free_slots++] = wc.wr_id;
		if (posted >= dry_at && !was_dry) {
			if (arrived < posted)
				continue;
			was_dry = true;
		}
		credits = credits_for(arrived, posted, free_slots,
				      count - posted, messages);
		if (!credits)
			continue;
		messages++;
		if (posted == SLOTS)
			puts("four");
		if (arrived == posted && count - posted > 2 * SLOTS)
			usleep(PAUSE * 1000);
		for (int i = 0; i < credits; i++, posted++)
			if (post_slot(p, mr, slots[--free_slots]))
				return -1;
		/* More than a number of 8 or 16 bits can hold. */
		wr.imm_data = htonl(posted < count ? credits : 1 << 16);
		/*
		 * Spare ones come with the last ones, so that they stand in
		 * its queue before the completions of its last sends.
		 */
		for (int i = 0; posted == count && i < SLOTS - 1; i++) {
			spare[i] = wr;
			spare[i].imm_data = htonl(1);
			spare[i].next = wr.next;
			wr.next = &spare[i];
		}
		if (post_send(p, &wr))
			return -1;
	}
	puts("all");
	if (exchange_same(p->sock, "bye", "\"bye\""))
		return -1;
	while (poll_once(p, &wc) > 0)
		if (wc.opcode == IBV_WC_RECV)
			printf("message %d is one too many\n", arrived++);
	return 0;
}

/* Message @number of source, of random bytes, or of none. Prints it. */
static int send_bytes(struct peer *p, const struct ibv_mr *mr, int number,
		      bool empty)
{
	const size_t size = mr->length / SLOTS;
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr + number % SLOTS * size,
		/* The first one fills its slot. */
		.length = number ? size - random32() % (size / 2) : size,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	uint32_t begin = 0;

	fill_randomly((void *)(uintptr_t)sge.addr, size);
	if (empty)
		wr.num_sge = sge.length = 0;
	else
		memcpy(&begin, (void *)(uintptr_t)sge.addr, sizeof(begin));
	if (post_send(p, &wr))
		return -1;
	printf("sent %u bytes 0x%08x\n", sge.length, ntohl(begin));
	return 0;
}

/* Add the credits that have come. Returns 0, or -1 after words. */
static int take_credits(const struct ibv_wc *wc, int posted, int *given)
{
	if (!(wc->wc_flags & IBV_WC_WITH_IMM)) {
		puts("a message without credits");
		return -1;
	}
	if (!wc->imm_data) {
		puts("a message gives no credit back");
		return -1;
	}
	/*
	 * The credit for a message may come before we know that the message was
	 * sent: its acknowledgement is on its way as well.
	 */
	*given += ntohl(wc->imm_data);
	if (*given < 1 || *given > posted) {
		printf("credits for %d messages, but %d were sent\n", *given,
		       posted);
		return -1;
	}
	return 0;
}

static int source(struct peer *p, const struct ibv_mr *mr, int count)
{
	/* Behind those that fill the slots, and soon. */
	const int empty = SLOTS + 1 + random32() % SLOTS;
	int credits = SLOTS, given = 0, posted = 0, sent = 0, tries = 200;
	bool asked = false;
	struct ibv_wc wc;
	char what[8];

	if (introduce(p) || post_receives(p, ROOM) ||
	    exchange_same(p->sock, "ready", "\"ready\""))
		return -1;
	puts("connected");

	while (sent < count) {
		/* A receiver that keeps four credits back gets no message. */
		const bool waits = posted == 2 * SLOTS &&
				   given <= posted - SLOTS;
		const bool may_send = posted < count && credits > 0 &&
				      posted - sent < SLOTS && !waits;
		int n = 0;

		if (waits && !asked) {
			printf("waits for %d credits in all\n",
			       posted - SLOTS + 1);
			asked = true;
		}

		/*
		 * Who gives too many credits gives more than we have sent, if
		 * we wait for all of them before we go on.
		 */
		if (may_send && posted == sent) {
			usleep(MOMENT * 1000);
			n = poll_once(p, &wc);
		}
		if (may_send && n == 0) {
			if (send_bytes(p, mr, posted, posted == empty))
				return -1;
			posted++;
			credits--;
			continue;
		}
		if (n < 0 || (n == 0 && completion(p, &wc)))
			return -1;
		if (wc.opcode == IBV_WC_SEND) {
			if (++sent != SLOTS || sent == count)
				continue;
			/* The credit for one more is on its way, or will be. */
			puts("four");
			if (scanf("%7s", what) != 1)
				return -1;
			if (send_bytes(p, mr, posted++, false) ||
			    completion(p, &wc))
				return -1;
			if (wc.opcode != IBV_WC_SEND) {
				puts("a credit came before CHECKPOINT credit");
				return -1;
			}
			sent++;
			credits--;
			puts("one more");
			continue;
		}
		if (take_credits(&wc, posted, &given))
			return -1;
		credits += ntohl(wc.imm_data);
	}
	puts("all");
	/* The credits of the last messages may still be on their way. */
	while (given < count && exchange_check_peer(p->sock) == 0 &&
	       tries-- > 0) {
		const int n = poll_once(p, &wc);

		if (n < 0 || (n > 0 && take_credits(&wc, posted, &given)))
			return -1;
		usleep(MOMENT * 1000);
	}
	if (given < count)
		printf("%d credits came for %d messages: some are missing\n",
		       given, count);
	if (exchange_same(p->sock, "bye", "\"bye\""))
		return -1;
	while (poll_once(p, &wc) > 0)
		if (wc.opcode == IBV_WC_RECV &&
		    take_credits(&wc, posted, &given))
			return -1;
	return 0;
}

/* Messages of @size bytes at most: to us if @is_sink, otherwise from us. */
static int messages(struct peer *p, size_t size, int count,
		    bool is_sink)
{
	const int slots = is_sink ? MOST : SLOTS;
	char *buf = calloc(slots, size);
	struct ibv_mr *mr = NULL;

	if (buf)
		mr = ibv_reg_mr(p->pd, buf, slots * size,
				IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		print_error(errno, "a buffer of %d * %zu bytes", slots, size);
		p->own_fault = true;
		free(buf);
		return -1;
	}
	/* The process ends soon, and its memory with it. */
	return is_sink ? sink(p, mr, count) : source(p, mr, count);
}

/* Where @mr is and its rkey, as connection_offer() of chapter 06 sends them. */
static int offer(int sock, const struct ibv_mr *mr)
{
	const uint64_t numbers[] = { htobe64((uintptr_t)mr->addr),
				     htobe64(mr->rkey) };

	return exchange_send(sock, numbers, sizeof(numbers), "our region");
}

/* The same of the other side's memory. */
static int take(int sock, uint64_t *addr, uint32_t *rkey)
{
	uint64_t numbers[2];

	if (exchange_receive(sock, numbers, sizeof(numbers), "the region"))
		return -1;
	*addr = be64toh(numbers[0]);
	*rkey = (uint32_t)be64toh(numbers[1]);
	return 0;
}

static int write_rounds(struct peer *p, size_t size, int iters)
{
	struct ibv_mr *out = NULL, *in = NULL;
	struct address remote;
	char *buf = calloc(2, size);
	uint64_t addr;
	uint32_t rkey;
	int zero, status = -1;

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
	if (exchange_send_address(p->sock, &p->local) || offer(p->sock, in) ||
	    exchange_receive_address(p->sock, &remote) ||
	    take(p->sock, &addr, &rkey))
		goto end;
	printf("region rkey 0x%08x, QPN 0x%06x\n", rkey, remote.qpn);

	if (connect_qp(p, &remote) || post_receives(p, ROOM) ||
	    exchange_same(p->sock, "ready", "\"ready\""))
		goto end;
	puts("connected");

	/*
	 * One number is 0, which some take for none; and one is the largest, so
	 * that its answer is 0.
	 */
	zero = (int)(random32() % (unsigned int)iters);
	for (int i = 0; i < iters; i++) {
		uint32_t number = random32();

		if (i == zero)
			number = 0;
		else if (i == (zero + iters / 2) % iters)
			number = UINT32_MAX;
		if (round_trip(p, out, in, size, addr, rkey, number))
			goto end;
	}
	puts("all");
	if (exchange_same(p->sock, "bye", "\"bye\"") == 0)
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

/*
 * An operation of our own client on @target. The result, or what to WRITE, is
 * in @l->result. Whatever goes wrong is our own fault.
 */
static int operate(struct lock *l, enum ibv_wr_opcode opcode,
		   volatile uint64_t *target, uint64_t compare, uint64_t swap)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)l->result,
		.length = sizeof(*l->result),
		.lkey = l->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)target;
		wr.wr.atomic.rkey = l->mr->rkey;
		wr.wr.atomic.compare_add = compare;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)target;
		wr.wr.rdma.rkey = l->mr->rkey;
	}
	if (post_send(&l->own, &wr) == 0 && completion(&l->own, &wc) == 0)
		return 0;
	l->own.own_fault = true;
	return -1;
}

/* The counter must still be @counter, and the lock ours: release it. */
static int release(struct lock *l, uint64_t counter)
{
	if (operate(l, IBV_WR_RDMA_READ, l->counter, 0, 0))
		return -1;
	if (*l->result != counter) {
		puts("the counter changed while we held the lock");
		return -1;
	}
	if (operate(l, IBV_WR_ATOMIC_CMP_AND_SWP, l->word, l->number, 0))
		return -1;
	if (*l->result == l->number)
		return 0;
	printf("the lock became 0x%" PRIx64 " while we held it\n", *l->result);
	return -1;
}

/*
 * Take the lock, add 1 to the counter as slowly as we can, release the lock. We
 * also set its lower half to ones: the next addition carries through all of it.
 */
static int contend(struct lock *l)
{
	const long long deadline = deadline_after(TIMEOUT);
	uint64_t counter;

	do {
		if (clock_ns(CLOCK_MONOTONIC) > deadline) {
			puts("the lock was never free");
			return -1;
		}
		usleep(100);
		if (operate(l, IBV_WR_ATOMIC_CMP_AND_SWP, l->word, 0,
			    l->number))
			return -1;
		if (*l->result != 0 && *l->result != l->other) {
			printf("the lock was held by 0x%" PRIx64
			       ", which is no client's number\n", *l->result);
			return -1;
		}
	} while (*l->result != 0);

	if (operate(l, IBV_WR_RDMA_READ, l->counter, 0, 0))
		return -1;
	counter = *l->result;
	printf("before +%" PRIu64 "\n", counter - l->first);
	usleep(2000);
	if (operate(l, IBV_WR_RDMA_READ, l->counter, 0, 0))
		return -1;
	if (*l->result != counter) {
		puts("the counter changed while we held the lock");
		return -1;
	}
	counter++;
	l->first += UINT32_MAX - (uint32_t)counter;
	counter |= UINT32_MAX;
	*l->result = counter;
	if (operate(l, IBV_WR_RDMA_WRITE, l->counter, 0, 0))
		return -1;
	return release(l, counter);
}

/* The memory, and our own client, which holds the lock at first. */
static int set_up_lock(struct lock *l, const struct peer *p)
{
	const size_t numbers = 512;
	uint64_t *memory = aligned_alloc(4096, numbers * sizeof(*memory));

	l->own = *p;
	l->own.sock = -1;
	if (!memory || create_qp(&l->own) || connect_qp(&l->own, &l->own.local))
		return -1;
	l->mr = ibv_reg_mr(l->own.pd, memory, numbers * sizeof(*memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (!l->mr)
		return -1;
	fill_randomly(memory, numbers * sizeof(*memory));
	/* Not twice the same place. */
	l->result = &memory[0];
	l->word = &memory[1 + random32() % 200];
	l->counter = &memory[201 + random32() % 200];
	/* The first addition carries through all 8 bytes. */
	*l->counter |= UINT64_MAX >> 8;
	l->first = *l->counter;
	/*
	 * Never the number of a queue pair. Its lower half is 0, and its first
	 * bit is not, so that whoever keeps 32 bits of it, or takes it for a
	 * number that can be negative, takes the lock for free.
	 */
	l->number = (*l->word | 1ULL << 63) & ~(uint64_t)UINT32_MAX;
	*l->word = l->number;
	return 0;
}

static int lock(struct peer *p)
{
	struct ibv_mr *word, *counter;
	struct lock l = { .first = 0 };
	struct address remote;
	uint64_t addr;
	uint32_t rkey;
	char what[16];
	int n;

	if (set_up_lock(&l, p)) {
		print_error(errno, "the lock");
		p->own_fault = true;
		return -1;
	}
	/* Nothing but what the exercise is about works. */
	word = ibv_reg_mr(p->pd, (void *)l.word, sizeof(*l.word),
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	counter = ibv_reg_mr(p->pd, (void *)l.counter, sizeof(*l.counter),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_WRITE);
	if (!word || !counter) {
		print_error(errno, "two regions");
		p->own_fault = true;
		return -1;
	}
	if (exchange_send_address(p->sock, &p->local) || offer(p->sock, word) ||
	    offer(p->sock, counter) ||
	    exchange_receive_address(p->sock, &remote) ||
	    take(p->sock, &addr, &rkey) || connect_qp(p, &remote) ||
	    exchange_same(p->sock, "ready", "\"ready\""))
		return -1;
	printf("held 0x%016" PRIx64 "\n", l.number);
	l.other = remote.qpn;

	while (scanf("%15s", what) == 1) {
		if (strcmp(what, "look") == 0) {
			printf("lock 0x%" PRIx64 ", counter %+" PRId64 "\n",
			       *l.word, (int64_t)(*l.counter - l.first));
			puts("looked");
		} else if (strcmp(what, "release") == 0) {
			if (release(&l, l.first))
				break;
			/*
			 * From now on a number that a real client can have,
			 * though not that of the program: a queue pair's number
			 * has 24 bits.
			 */
			l.number = random32() % (1U << 24) |
				   1U << (24 + random32() % 8);
			puts("released");
		} else if (strcmp(what, "contend") == 0) {
			if (scanf("%d", &n) != 1)
				break;
			puts("contending");
			while (n > 0 && contend(&l) == 0)
				n--;
			if (n)
				break;
			puts("contended");
		} else {
			n = exchange_same(p->sock, "bye", "\"bye\"");
			printf("sum %" PRId64 "\n",
			       (int64_t)(*l.counter - l.first));
			return n;
		}
	}
	p->own_fault |= l.own.own_fault;
	return -1;
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
		"       peer sink PORT SIZE COUNT\n"
		"       peer source PORT SIZE COUNT HOST\n"
		"       peer write PORT SIZE ITERS [HOST]\n"
		"       peer lock PORT\n"
		"       peer sweep\n"
		"SIZE is in bytes, up to %d\n", MAX_SIZE);
	return EXIT_USAGE;
}

int main(int argc, char *argv[])
{
	struct peer p = { .access = IBV_ACCESS_REMOTE_WRITE };
	const char *mode = argc > 1 ? argv[1] : "";
	const bool is_burst = argc == 3 && strcmp(mode, "burst") == 0;
	const bool is_lock = argc == 3 && strcmp(mode, "lock") == 0;
	const bool is_sink = argc == 5 && strcmp(mode, "sink") == 0;
	const bool is_source = argc == 6 && strcmp(mode, "source") == 0;
	const bool is_write = (argc == 5 || argc == 6) &&
			      strcmp(mode, "write") == 0;
	const char *host = argc == 6 ? argv[5] : NULL;
	long port, size = 0, iters = 0;
	int sock, err;

	start_output();
	sweep();
	if (strcmp(mode, "sweep") == 0)
		return EXIT_SUCCESS;
	if (!is_burst && !is_lock && !is_sink && !is_source && !is_write)
		return usage();
	port = number(argv[2], 1, 65535);
	if (argc > 3) {
		size = number(argv[3], is_source ? 8 : 1, MAX_SIZE);
		iters = number(argv[4], 1, MAX_ITERS);
	}
	if (port < 0 || size < 0 || iters < 0)
		return usage();

	if (is_lock)
		p.access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	if (set_up(&p)) {
		print_error(errno, "setting up");
		return EXIT_OWN_FAULT;
	}

	/* The kernel releases everything when this process ends. */
	sock = host ? exchange_connect(host, port, TIMEOUT) :
		      exchange_serve(port, TIMEOUT);
	if (sock < 0)
		return EXIT_FAILURE;
	p.sock = sock;
	if (is_burst)
		err = burst(&p);
	else if (is_lock)
		err = lock(&p);
	else if (is_write)
		err = write_rounds(&p, size, iters);
	else
		err = messages(&p, size, iters, is_sink);
	if (p.own_fault)
		return EXIT_OWN_FAULT;
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
