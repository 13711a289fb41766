/*
 * hostile.c - a peer for a ping-pong that speaks its language, and lies
 *
 *	hostile MODE PORT [HOST]
 *
 * Without HOST it is the server. MODE says what is wrong with it:
 *
 *	many		sends 40 messages at once, without waiting for answers
 *	long		sends a message of 3 times the agreed size
 *	short		sends a message of one byte
 *	early		sends although it is the other side's turn
 *	immediate	sends with immediate data, which nobody asked for
 *	write		writes to memory that nobody gave it the key of
 *	wrong-qpn	says it is a queue pair that does not exist
 *	other-qpn	says it is the queue pair that the peer has itself
 *	wrong-psn	says its messages have other numbers than they have
 *	zero		says its address is all zero
 *	silent		introduces itself, and then does nothing
 *	hang-up		introduces itself, and closes the TCP connection
 *	chatty		sends 1 MB over TCP after its address
 *	terms		tells other options than the peer has
 *	escapes		tells options that are control characters
 *	wrong-data	plays along, but every message holds zeros
 *
 * The modes from `terms` on tell that they are of the peer's own kind: they
 * write their PSN in upper case. It stays for 3 seconds, whatever happens, and
 * exits with 0 if it could do what it meant to.
 */
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define SIZE 64			/* what the peer is told to use with -s */
#define ITERS 10		/* and with -n */
#define MANY 40
#define ROOM_OUT 256L		/* bytes of memory to send from */
#define ROOM_IN 256L		/* and behind it, to receive into */
#define ROOM 128		/* work requests in each queue */
#define STAY 3			/* seconds */
#define ADDRESS_SIZE 52
#define TERMS_SIZE 64

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_port_attr port;
	union ibv_gid gid;
	char *memory;
};

static void die(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static void check(int err, const char *what)
{
	if (err) {
		errno = err;
		die(what);
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Exits if something is missing: nobody cares what this program leaves. */
static void set_up(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = ROOM, .max_recv_wr = ROOM,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
	};

	s->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!s->context)
		die("opening the device");
	check(ibv_query_port(s->context, 1, &s->port), "ibv_query_port");
	if (ibv_query_gid(s->context, 1, 1, &s->gid))
		die("ibv_query_gid");
	s->pd = ibv_alloc_pd(s->context);
	s->memory = calloc(1, ROOM_OUT + ROOM_IN);
	if (!s->pd || !s->memory)
		die("memory");
	s->mr = ibv_reg_mr(s->pd, s->memory, ROOM_OUT + ROOM_IN,
			   IBV_ACCESS_LOCAL_WRITE);
	s->cq = ibv_create_cq(s->context, 4 * ROOM, NULL, NULL, 0);
	if (!s->mr || !s->cq)
		die("ibv_reg_mr, ibv_create_cq");
	init.send_cq = s->cq;
	init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		die("ibv_create_qp");
	check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

static void post_receive(struct side *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory + ROOM_OUT,
		.length = ROOM_IN, .lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad_wr;

	check(ibv_post_recv(s->qp, &wr, &bad_wr), "ibv_post_recv");
}

static void post(struct side *s, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory, .length = length,
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = 4096, .rkey = 0x1234 },
	}, *bad_wr;

	check(ibv_post_send(s->qp, &wr, &bad_wr), "ibv_post_send");
}

/* The server waits for a client; the client tries until there is a server. */
static int connection(const char *port, const char *host)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	struct timeval wait = { .tv_sec = 10 };
	int sock, listener, on = 1;

	if (getaddrinfo(host ? host : "0.0.0.0", port, &hints, &list))
		die("getaddrinfo");
	for (int tries = 0; host; tries++) {
		sock = socket(list->ai_family, SOCK_STREAM, 0);
		if (sock >= 0 &&
		    !connect(sock, list->ai_addr, list->ai_addrlen))
			break;
		close(sock);
		if (tries == 100)
			die("connect");
		usleep(100000);
	}
	if (!host) {
		listener = socket(list->ai_family, SOCK_STREAM, 0);
		if (listener < 0)
			die("socket");
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(listener, list->ai_addr, list->ai_addrlen) ||
		    listen(listener, 1))
			die("listen");
		sock = accept(listener, NULL, NULL);
		if (sock < 0)
			die("accept");
	}
	freeaddrinfo(list);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return sock;
}

/* Sends our address, or a false one. */
static void tell(int sock, const struct side *s, const char *mode,
		 bool own_kind, uint32_t peer_qpn)
{
	char text[ADDRESS_SIZE + 1];
	uint32_t qpn = s->qp->qp_num, psn = 0xabcdef;
	int n;

	if (!strcmp(mode, "wrong-qpn"))
		qpn = 0xfffff0;
	if (!strcmp(mode, "other-qpn"))
		qpn = peer_qpn ? peer_qpn : 0x11;
	if (!strcmp(mode, "wrong-psn"))
		psn = 0xabc000;
	n = snprintf(text, sizeof(text), own_kind ? "%04x:%06x:%06X:" :
		     "%04x:%06x:%06x:", s->port.lid, qpn, psn);
	for (int i = 0; i < 16; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x",
			      s->gid.raw[i]);
	if (!strcmp(mode, "zero"))
		snprintf(text, sizeof(text), "%04d:%06d:%06d:%032d", 0, 0, 0,
			 0);
	if (send(sock, text, ADDRESS_SIZE, MSG_NOSIGNAL) != ADDRESS_SIZE)
		die("sending the address");
}

static void hear(int sock, uint32_t *qpn, uint32_t *psn)
{
	char text[ADDRESS_SIZE + 1] = "";
	unsigned int lid;

	if (recv(sock, text, ADDRESS_SIZE, MSG_WAITALL) != ADDRESS_SIZE)
		die("receiving the address");
	if (sscanf(text, "%x:%x:%x:", &lid, qpn, psn) != 3)
		die("reading the address");
}

static void connect_qp(struct side *s, uint32_t qpn, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn, .rq_psn = psn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 6,
		.rnr_retry = 6, .sq_psn = 0xabcdef, .max_rd_atomic = 1,
		.ah_attr = { .port_num = 1, .is_global = 1,
			     .grh = { .dgid = s->gid, .sgid_index = 1,
				      .hop_limit = 64 } },
	};

	check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* What this mode sends once the queue pairs are connected. */
static void misbehave(struct side *s, const char *mode)
{
	if (!strcmp(mode, "many"))
		for (int i = 0; i < MANY; i++)
			post(s, IBV_WR_SEND, SIZE);
	else if (!strcmp(mode, "long"))
		post(s, IBV_WR_SEND, 3 * SIZE);
	else if (!strcmp(mode, "short"))
		post(s, IBV_WR_SEND, 1);
	else if (!strcmp(mode, "early") || !strcmp(mode, "wrong-psn"))
		for (int i = 0; i < 2; i++)
			post(s, IBV_WR_SEND, SIZE);
	else if (!strcmp(mode, "immediate"))
		post(s, IBV_WR_SEND_WITH_IMM, SIZE);
	else if (!strcmp(mode, "write"))
		post(s, IBV_WR_RDMA_WRITE, SIZE);
}

/* The conversation of the peer's own kind: its terms must be those of ours. */
static void agree(int sock, const char *mode)
{
	char ours[TERMS_SIZE] = "", theirs[TERMS_SIZE];

	if (recv(sock, theirs, sizeof(theirs), MSG_WAITALL) !=
	    (ssize_t)sizeof(theirs))
		die("receiving the terms");
	memcpy(ours, theirs, sizeof(ours));
	if (!strcmp(mode, "terms"))
		snprintf(ours, sizeof(ours), "-s 1 -n 1 -m 1");
	if (!strcmp(mode, "escapes"))
		memset(ours, '\033', sizeof(ours));
	if (send(sock, ours, sizeof(ours), MSG_NOSIGNAL) < 0)
		die("sending the terms");
}

int main(int argc, char *argv[])
{
	const char *mode = argc > 2 ? argv[1] : "";
	const char *host = argc > 3 ? argv[3] : NULL;
	bool own_kind = !strcmp(mode, "terms") || !strcmp(mode, "escapes") ||
			!strcmp(mode, "wrong-data");
	struct side s = { 0 };
	uint32_t qpn = 0, psn = 0;
	double end;
	int sock;

	if (argc < 3) {
		fprintf(stderr, "usage: hostile MODE PORT [HOST]\n");
		return 2;
	}
	set_up(&s);
	for (int i = 0; i < ROOM; i++)
		post_receive(&s);

	/* The client speaks first: ibv_rc_pingpong's order. */
	sock = connection(argv[2], host);
	if (!host)
		hear(sock, &qpn, &psn);
	tell(sock, &s, mode, own_kind, qpn);
	if (!strcmp(mode, "chatty")) {
		static const char flood[1 << 20];

		send(sock, flood, sizeof(flood), MSG_NOSIGNAL);
		sleep(STAY);
		return EXIT_SUCCESS;
	}
	if (!strcmp(mode, "zero") || !strcmp(mode, "silent")) {
		sleep(STAY);
		return EXIT_SUCCESS;
	}
	if (host)
		hear(sock, &qpn, &psn);
	connect_qp(&s, qpn, psn);
	if (host && send(sock, "done", 5, MSG_NOSIGNAL) != 5)
		die("sending \"done\"");
	if (!host) {
		char done[5];

		recv(sock, done, sizeof(done), MSG_WAITALL);
	}
	if (own_kind)
		agree(sock, mode);
	if (!strcmp(mode, "hang-up"))
		close(sock);
	misbehave(&s, mode);

	/* Answer what comes, in the mode that plays along. */
	end = now() + STAY;
	if (host && !strcmp(mode, "wrong-data"))
		post(&s, IBV_WR_SEND, SIZE);
	while (now() < end) {
		struct ibv_wc wc;

		if (ibv_poll_cq(s.cq, 1, &wc) <= 0) {
			usleep(100);
			continue;
		}
		if (!strcmp(mode, "wrong-data") && wc.wr_id == 0 &&
		    wc.status == IBV_WC_SUCCESS)
			post(&s, IBV_WR_SEND, SIZE);
	}
	return EXIT_SUCCESS;
}
