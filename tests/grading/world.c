/*
 * world.c - what Soft-RoCE cannot be, and errors that it never has
 *
 * Loaded into the student's program, in the sandbox, by /etc/ld.so.preload. The
 * settings, a name and a value in each line, come from descriptor 9, which is
 * closed before the program begins: so it can neither read nor change them. A
 * program that is started without them ends.
 *
 * The link of a port is always up, also where the port is not ACTIVE; such a
 * port is ARMED here or ACTIVE_DEFER, and not DOWN.
 *
 * The five devices that are named by "three-ports" have three: their own is the
 * third one. Of the other two, the first is ARMED, and the second ACTIVE_DEFER;
 * the first one has two GIDs of RoCE v2, of 169.254.0.1 and 169.254.1.1, but
 * those of the last two devices are of IPv6. And of the third device the first
 * port is ACTIVE, of the fourth one the second. The first device has no ACTIVE
 * port at all, although its interface is up. The second ports have no GIDs at
 * all.
 *
 * The tables of these devices are smaller, because ibv_query_gid_table() cannot
 * ask for the GIDs of several tables of Soft-RoCE: the length of an answer has
 * 16 bits. The two devices that are named by "closed" cannot be opened: the
 * number behind them is the errno value.
 *
 * Soft-RoCE has GIDs of RoCE v2 only. Here, those that hold an address of
 * 10.N.0.0/16 are said to be of RoCE v1, where N is the value of "v1", or, if
 * the next byte is even, of InfiniBand, as no port of Ethernet has them. Each
 * table has one more GID, just too far behind for any address to name it; and
 * the last one that an address can name is that of fe80::ff. Of the empty
 * entries one in 64 is a GID of zeros, as other devices have them, which
 * ibv_query_gid_ex() takes for one.
 *
 * Where the members byte_len and imm_data of struct ibv_wc have no meaning,
 * they are NO_NUMBER, and not what they are by chance on Soft-RoCE. Of a
 * completion that is made to fail only the status is changed, so that nothing
 * else shows the failure. And a P_Key that the table of Soft-RoCE does not have
 * is refused, as on other devices, and so is an attribute of a queue pair that
 * does not fit into its bits.
 *
 * If there is a "sent", ibv_query_qp() says that a queue pair has sent as many
 * packets already, and received as many as "received" says. The member state of
 * struct ibv_qp is wrong then, if it was RTS: a program must print the state
 * that the device has reported.
 *
 * "failing" is a verb, the number of the call that is the first to fail, and an
 * errno value. The calls after it fail, too, because a program may try again.
 * There are three exceptions, so that a program which does not look at the
 * failure goes on, and is seen to go on: only one completion fails, and only
 * one ibv_dereg_mr(); and of the requests to ibv_post_send() and
 * ibv_post_recv() only the same one fails, by its wr_id, as often as it is
 * tried.
 *
 * Verbs that release fail after they have done it, and so do rdma_reject() and
 * ibv_query_qp(). Of the calls of ibv_get_cq_event() only the first one after
 * each arming counts, because some programs take events until there are none;
 * once one has failed, all of them do. ibv_modify_qp() has the name of the
 * state that it is to reach, and "again-" before it if a queue pair has been
 * taken to ERR meanwhile. Of ibv_post_recv(), which stands for
 * ibv_post_srq_recv() as well, each request in a list counts. If "completion"
 * fails, a completion has no success, and if "SEND", "RECV" or "WRITE" does,
 * one of a send, a receive or an RDMA WRITE; if rdma_get_cm_event() does, it
 * says of an address that was resolved that it was not.
 *
 * While a send or a WRITE is under way, its bytes must not change, and nothing
 * else may be sent from there. On Soft-RoCE it is complete at once, so no harm
 * would be seen. Here the grader is told; and which events were acknowledged,
 * too. It believes only who knows the number "key". It is told, too, if a queue
 * pair is to send to another GID than that of the IPv4 address "peer", which is
 * a hexadecimal number.
 *
 * With "spoil", the first bytes of a place change when it is posted for another
 * message. On Soft-RoCE they stay until that message comes, so without this
 * nobody would see that a program reads the message before it too late. It has
 * two numbers: how many slots there are, and how many messages. The grader is
 * told if more receives are posted than there are slots; and if credits are
 * given for receives that are not posted, as long as messages may need them.
 *
 * "slots" has two numbers: how many sends may be under way, and how many there
 * are in all. As long as the program could send, because it has a credit and a
 * free slot, completions are hidden: see too_early(). After a second or two
 * they are shown, and the grader is told that fewer sends were under way. It is
 * told, too, if the sends come from more places than there are slots.
 *
 * If there is a "late", ibv_req_notify_cq() tells the grader that it was
 * called, and waits as long as the grader has a file in /work, whose path is
 * "wait". Then it arms the queue, and waits for an event, for as many
 * milliseconds. Nothing else makes sure that a message comes just before the
 * arming, or between the arming and the next look at the queue. Without a
 * "late", ibv_get_cq_event() waits in the same way, when it has an event.
 *
 * If there is a "lag", the first completion of a WRITE comes only with that of
 * the next request, or after so many milliseconds, because a peer may
 * acknowledge two requests at once.
 *
 * The grader is told if an empty queue was polled SPINS times in a row.
 *
 * "spread" is how many numbers, or a few more, are left out behind each queue
 * pair, so that nobody can tell the number of the next one.
 *
 * When a program ends, the grader is told whether it has waited for its WRITEs,
 * and released its regions.
 *
 * It is told what a program asks a device for, a port or GIDs, when that
 * changes.
 *
 * It is told if ibv_reg_mr() has failed, and the program asks for the name of
 * another error.
 *
 * It is told if a COMPARE_AND_SWAP from 0 has worked, which takes the lock, and
 * another one comes before the lock is released.
 *
 * What a READ or an atomic brings is there at once, too. Here it comes with the
 * completion, or, if it asks for none, with the next one.
 *
 * A request for a connection, and a refusal, always have as many bytes of
 * private data as a packet has room for. Here they have as many as
 * "private-data" says, a number for each, one after the other: 255 changes
 * nothing, and if it is 0, the pointer is NULL. The grader is told if
 * rdma_connect() has another number of them than a struct hello of chapter 07
 * has bytes. If there is a "reason", that is the status of each REJECTED: a
 * server cannot choose it.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define FAR 256		/* an address has a byte for the index */
#define LAST (FAR - 1)
#define LINK_UP 5	/* a phys_state, see ibv_query_port(3) */
#define PORTS 3
#define GIDS 512	/* room in the table of each of them; FAR is in it */

int ioctl(int fd, unsigned long request, ...);

#define SETTINGS 9	/* the descriptor */

static char wait_file[32] = "/work/";	/* of the grader's, if it is there */

/* Names of devices. */
#define WITH_THREE 5
#define RIGHT 2		/* of them, from 1: to be chosen, with a GID at LAST */
static char closed[2][64], with_three_ports[WITH_THREE][64];
static unsigned int v1_net, sent, received, peer, slots, in_all;
static unsigned long long key;

static int closed_err;
static int late, lag;	/* milliseconds */
static int spoils;	/* how many receives may be posted, or 0 */
static int spread;	/* numbers of queue pairs that are left out */
static int reason;	/* why a request for a connection was rejected */
static bool newly_armed;	/* and no event was asked for since */
static struct ibv_cq *with_events;	/* whose event was taken last */

/* The verb that fails. */
static struct {
	char verb[32];
	int from, err, calls;
} failing;

/* Bytes of private data, of each request for a connection, and refusal. */
#define REQUESTS 64
static int data_sizes[REQUESTS];
static int sizes, cm_requests;

/* Which of with_three_ports is open there, from 1; 0 is any other device. */
#define DESCRIPTORS 256
static int open_there[DESCRIPTORS];

/* What the grader is told: see tell(). The runner reads these names here. */
enum word {
	FAILED = 1,	/* the verb has failed */
	REUSED = 2,	/* sent from where a send is under way */
	CHANGED = 3,	/* the bytes of a send that was under way */
	SENT = 4,	/* a SEND was posted */
	UNFINISHED = 5,	/* WRITEs, when the program ends */
	ELSEWHERE = 6,	/* a queue pair is to send to another address */
	FEWER = 7,	/* sends under way than there are slots */
	RECV = 8,	/* a receive was posted */
	ARMS = 9,	/* a queue, in a moment */
	TAKEN = 10,	/* an event of the RDMA CM */
	RETURNED = 11,	/* such an event, by rdma_ack_cm_event() */
	SPINNING = 12,	/* with an empty queue */
	WAITS = 13,	/* with an event of a queue */
	WRITTEN = 14,	/* the completion of an RDMA WRITE was taken */
	WRITES = 15,	/* one was posted */
	TO_RESET = 16,	/* ibv_modify_qp(), whatever comes of it */
	TO_INIT = 17,
	TO_RTR = 18,
	TO_RTS = 19,
	RECEIVED = 20,	/* the completion of a receive was taken */
	AGAIN = 30,	/* tries to take the lock, which it has already */
	OTHER_ERROR = 31,	/* its name is wanted: strerrorname_np() */
	REGIONS = 32,	/* that were not released, when the program ends */
	NO_HELLO = 33,	/* rdma_connect() has other private data */
	ASKS_PORT = 34,	/* the state of a port: see tell_change() */
	ASKS_GID = 35,	/* for a GID, or for all */
	POSTS = 36,	/* something to send, which may crash */
	REFUSED = 37,	/* a request to send, with EINVAL */
	RENAMED = 38,	/* a slot, or two slots have one wr_id */
	SILENT = 39,	/* a SEND that asks for no completion */
	STOCKS = 40,	/* more receives are posted than there are slots */
	GOES_ON = 41,	/* with an immediate value: see goes_on() */
	SENT_IMM = 42,	/* a SEND with an immediate value was posted */
	EARLY = 43,	/* credits for receives that are not posted */
	BLIND = 44,	/* slept without a poll: see arm() */
	ACKED = 1000,	/* ibv_ack_cq_events(); and the number of events */
};

#define MOST_ACKED 3000
#define MOST_CHANGES 1000	/* told by tell_change(): more fill the trace */
#define NO_NUMBER 0x5a5a5a5a
#define HELLO 32	/* bytes of a struct hello, see chapter 07 */
#define MOST_PRIVATE_DATA 56	/* bytes, in a request: see rdma_connect(3) */
#define SPINS 1000	/* a millisecond, emulated; no short try */
#define MOST_QUEUES 64	/* that are told apart when empty polls are counted */

/* A piece of the @send'th send or WRITE under way; @sum is its checksum. */
struct under_way {
	uint64_t wr_id, addr;
	uint32_t length, sum;
	unsigned int send;
};

#define MOST_PIECES 1024	/* 32 requests, of 32 SGEs each */
static struct under_way under_way[MOST_PIECES];
static int pieces;
/*
 * The same for WRITEs that ask for no completion. Their bytes must not change
 * either, before the completion of a later request says that they are sent.
 */
static struct under_way quiet[MOST_PIECES];
static int quiet_pieces;
static unsigned int sends, ended;
static unsigned int started;	/* sends, and WRITEs that will complete */
static unsigned int shown;	/* sends whose completions may be seen */
static unsigned long long credits;	/* taken, besides those for all slots */
static unsigned long long posted;	/* receives */
static unsigned long long came;	/* completions of receives, taken */
static unsigned long long given;	/* credits */
static bool blind;	/* see arm() */
static int writes;	/* of them no completion was taken, but it will come */
static bool polls;	/* and so it is seen which sends have ended */

/*
 * One thread may post while another one polls. And a signal may come meanwhile
 * whose handler polls, too.
 */
static pthread_mutex_t queues = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* Lock it. No thread can be cancelled then. For unlock_queues(). */
static int lock_queues(void)
{
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_mutex_lock(&queues);
	return cancel_state;
}

static void unlock_queues(int cancel_state)
{
	pthread_mutex_unlock(&queues);
	pthread_setcancelstate(cancel_state, NULL);
}

/* What the @request'th one has brought to @at, and will when it completes. */
struct result {
	uint64_t wr_id;
	void *at;
	uint32_t length;
	unsigned int request;
	bool signaled;
	unsigned char bytes[64];
};

#define MOST_RESULTS 1024
static struct result results[MOST_RESULTS];
static int held;
/* What stands now where those that are posted next will bring something. */
static struct result awaited[MOST_RESULTS];
static int expected;
static unsigned int requested;
/* The request that is being made by the extended functions. */
static struct ibv_send_wr building = { .opcode = IBV_WR_SEND };

static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
			     struct ibv_send_wr **);
static int (*real_req_notify_cq)(struct ibv_cq *, int);
static int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *,
			     struct ibv_recv_wr **);
static int (*real_post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *,
				 struct ibv_recv_wr **);
static int (*real_query_device_ex)(struct ibv_context *,
				   const struct ibv_query_device_ex_input *,
				   struct ibv_device_attr_ex *, size_t);
static struct ibv_cq_ex *(*real_create_cq_ex)(struct ibv_context *,
					      struct ibv_cq_init_attr_ex *);
static struct ibv_qp *(*real_create_qp_ex)(struct ibv_context *,
					   struct ibv_qp_init_attr_ex *);
/* Of an extended completion queue, and of an extended queue pair. */
static int (*real_start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
static int (*real_next_poll)(struct ibv_cq_ex *);
static void (*real_wr_send)(struct ibv_qp_ex *);
static void (*real_wr_send_imm)(struct ibv_qp_ex *, __be32);
static void (*real_wr_rdma_write)(struct ibv_qp_ex *, uint32_t, uint64_t);
static void (*real_wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t, uint64_t,
				      __be32);
static void (*real_wr_rdma_read)(struct ibv_qp_ex *, uint32_t, uint64_t);
static void (*real_wr_atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t, uint64_t,
				      uint64_t, uint64_t);
static void (*real_wr_atomic_fetch_add)(struct ibv_qp_ex *, uint32_t, uint64_t,
					uint64_t);
static int (*real_wr_complete)(struct ibv_qp_ex *);
static void (*real_wr_abort)(struct ibv_qp_ex *);
static void (*real_wr_set_sge)(struct ibv_qp_ex *, uint32_t, uint64_t,
			       uint32_t);
static void (*real_wr_set_sge_list)(struct ibv_qp_ex *, size_t,
				    const struct ibv_sge *);

static int place_of(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS ? open_there[fd] : 0;
}

/* End the program: what it does would not be seen. */
static void give_up(const char *why)
{
	(void)!write(STDERR_FILENO, why, strlen(why));
	_exit(126);
}

/*
 * A constructor runs before main(). tcc, which compiles this file on the web
 * site, does not know that attribute; there the first verb calls this.
 */
__attribute__((constructor)) static void read_settings(void)
{
	static const struct {
		const char *name, *format;
		void *to;
	} numbers[] = {
		{ "spread", "%d", &spread }, { "late", "%d", &late },
		{ "lag", "%d", &lag }, { "reason", "%d", &reason },
		{ "v1", "%u", &v1_net }, { "sent", "%u", &sent },
		{ "received", "%u", &received }, { "peer", "%x", &peer },
		{ "key", "%llu", &key },
	};
	static bool begun;
	char name[32];
	FILE *file;

	if (begun)
		return;
	begun = true;
	file = fdopen(SETTINGS, "r");
	if (!file)
		give_up("a program that another one has started cannot be"
			" checked\n");
	while (fscanf(file, "%31s", name) == 1) {
		int read = 0;

		for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
			if (strcmp(name, numbers[i].name) == 0)
				read = fscanf(file, numbers[i].format,
					      numbers[i].to);
		if (strcmp(name, "closed") == 0) {
			read = fscanf(file, "%63s %63s %d", closed[0],
				      closed[1], &closed_err) == 3;
		} else if (strcmp(name, "three-ports") == 0) {
			read = 1;
			for (int i = 0; i < WITH_THREE; i++)
				read &= fscanf(file, "%63s",
					       with_three_ports[i]) == 1;
		} else if (strcmp(name, "spoil") == 0) {
			read = fscanf(file, "%d %u", &spoils, &in_all) == 2;
		} else if (strcmp(name, "slots") == 0) {
			read = fscanf(file, "%u %u", &slots, &in_all) == 2;
		} else if (strcmp(name, "wait") == 0) {
			read = fscanf(file, "%24s", strchr(wait_file, '\0'));
		} else if (strcmp(name, "failing") == 0) {
			read = fscanf(file, "%31s %d %d", failing.verb,
				      &failing.from, &failing.err) == 3;
		} else if (strcmp(name, "private-data") == 0) {
			read = 1;
			while (sizes < REQUESTS &&
			       fscanf(file, "%d", &data_sizes[sizes]) == 1)
				sizes++;
		}
		if (read != 1)
			give_up("the grader's settings cannot be read\n");
	}
	fclose(file);
}

/*
 * Tell the grader something. It sees where somebody seeks in /dev/null, and
 * what it has seen no program can undo. Without open(), lseek() and close(), in
 * whose place a program may have functions of its own.
 */
static void tell(int word)
{
	const int before = errno;
	const int fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null",
				    O_RDONLY | O_CLOEXEC);

	read_settings();
	if (fd < 0)
		give_up("the grader needs a file descriptor, and this program"
			" has left none\n");
	syscall(SYS_lseek, fd, (long)key << 12 | word, SEEK_SET);
	syscall(SYS_close, fd);
	errno = before;
}

/* The same, but not again before something else is told in this way. */
static void tell_change(int word)
{
	static int last, times;

	if (word != last && times++ < MOST_CHANGES)
		tell(word);
	last = word;
}

/* Tell the grader this word, which is less than 64, but only the first time. */
static void tell_once(int word)
{
	static bool told[64];

	if (!told[word]) {
		told[word] = true;
		tell(word);
	}
}

/* Set *@real, a pointer to a function, to the library's own @name. */
static void find_real(void *real, const char *name)
{
	*(void **)real = dlsym(RTLD_NEXT, name);
}

/* The errno value with which this call of @verb has to fail, or 0. */
static int error_of(const char *verb)
{
	read_settings();
	if (strcmp(verb, failing.verb) != 0)
		return 0;
	failing.calls++;
	if (failing.calls < failing.from)
		return 0;
	/* Once: a program that tries for ever must not fill the trace. */
	if (failing.calls == failing.from)
		tell(FAILED);
	else if (strcmp(verb, "completion") == 0 ||
		 strcmp(verb, "SEND") == 0 || strcmp(verb, "RECV") == 0 ||
		 strcmp(verb, "WRITE") == 0 ||
		 strcmp(verb, "ibv_dereg_mr") == 0)
		return 0;
	return failing.err;
}

/*
 * As error_of(), for a request. A program may try this one again, and it fails
 * again. Once the program posts another one, nothing fails any more.
 */
static int error_of_request(const char *verb, uint64_t wr_id)
{
	static uint64_t failed;
	const bool again = failing.calls >= failing.from;
	const int err = error_of(verb);

	if (err && !again)
		failed = wr_id;
	if (!err || wr_id == failed)
		return err;
	failing.verb[0] = '\0';
	return 0;
}

/*
 * A verb that returns its error need not set errno. Here errno is 0 then, so
 * that a program which looks there sees no error; and it is also 0 when nothing
 * has failed, so that it tells nothing.
 */
static int returned(int err)
{
	errno = 0;
	return err;
}

static bool completion_fails(enum ibv_wc_opcode opcode)
{
	return error_of("completion") ||
	       (opcode == IBV_WC_SEND && error_of("SEND")) ||
	       ((opcode == IBV_WC_RECV ||
		 opcode == IBV_WC_RECV_RDMA_WITH_IMM) && error_of("RECV")) ||
	       (opcode == IBV_WC_RDMA_WRITE && error_of("WRITE"));
}

/* That of the last real GID; those that we make up have it, too. */
static uint32_t interface = 2;

/*
 * Make it the GID at @index of @port: that of 169.254.N.1, where N is the last
 * byte of @index, or that of fe80::ff.
 */
static void set_entry(struct ib_uverbs_gid_entry *entry, uint32_t port,
		      uint32_t index, bool has_ipv4)
{
	const unsigned char ipv4[16] = {
		[10] = 0xff, 0xff, 169, 254, (unsigned char)index, 1
	};
	const unsigned char ipv6[16] = { 0xfe, 0x80, [15] = 0xff };

	memcpy(entry->gid, has_ipv4 ? ipv4 : ipv6, sizeof(ipv4));
	entry->netdev_ifindex = interface;
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = IB_UVERBS_GID_TYPE_ROCE_V2;
}

/* Make it the GID at @index of the first of three ports, 0 or 1. */
static void set_first(struct ib_uverbs_gid_entry *entry, uint32_t index, int fd)
{
	set_entry(entry, 1, index, place_of(fd) < 4);
}

/* Change what the kernel says of a GID. */
static void change_gid(struct ib_uverbs_gid_entry *entry)
{
	const unsigned char prefix[] = {
		[10] = 0xff, 0xff, 10, (unsigned char)v1_net
	};
	const unsigned char *gid = (const unsigned char *)entry->gid;

	if (entry->netdev_ifindex)
		interface = entry->netdev_ifindex;
	if (memcmp(gid, prefix, sizeof(prefix)) == 0)
		entry->gid_type = gid[14] % 2 ?
			IB_UVERBS_GID_TYPE_ROCE_V1 : IB_UVERBS_GID_TYPE_IB;
}

/* The attribute of this number: libibverbs gives each one that is used here. */
static struct ib_uverbs_attr *attribute(struct ib_uverbs_ioctl_hdr *hdr, int id)
{
	for (int i = 0; i < hdr->num_attrs; i++)
		if (hdr->attrs[i].attr_id == id)
			return &hdr->attrs[i];
	abort();
}

static void *memory_of(const struct ib_uverbs_attr *attr)
{
	return (void *)(uintptr_t)attr->data;
}

/* Ask the kernel about @port. It has one, and says the same of all @three. */
static int ask_of_port(int fd, struct ib_uverbs_ioctl_hdr *hdr,
		       struct ib_uverbs_attr *port, bool three)
{
	const uint64_t asked = port->data;
	int result;

	if (three && asked <= PORTS)
		port->data = !!asked;
	result = (int)syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, hdr);
	port->data = asked;
	return result;
}

static int query_port(int fd, struct ib_uverbs_ioctl_hdr *hdr, bool three)
{
	/* Besides the third one; 0 is none. */
	static const uint8_t active[WITH_THREE + 1] = { [3] = 1, [4] = 2 };
	struct ib_uverbs_attr *port =
		attribute(hdr, UVERBS_ATTR_QUERY_PORT_PORT_NUM);
	struct ib_uverbs_query_port_resp_ex *resp =
		memory_of(attribute(hdr, UVERBS_ATTR_QUERY_PORT_RESP));
	const int result = ask_of_port(fd, hdr, port, three);
	uint8_t *state;

	tell_change(ASKS_PORT);
	if (result)
		return result;
	resp->legacy_resp.phys_state = LINK_UP;
	/* The third port, which may be the right one, has another number. */
	if (three)
		resp->legacy_resp.gid_tbl_len =
			port->data == 1 ? 2 : GIDS;
	state = &resp->legacy_resp.state;
	if (three && port->data == active[place_of(fd)])
		*state = IBV_PORT_ACTIVE;
	else if (three && port->data == 2)
		*state = IBV_PORT_ACTIVE_DEFER;
	else if ((three && port->data == 1) || place_of(fd) == 1 ||
		 *state != IBV_PORT_ACTIVE)
		*state = IBV_PORT_ARMED;
	return 0;
}

static int query_gid(int fd, struct ib_uverbs_ioctl_hdr *hdr, bool three)
{
	const int id = UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY;
	struct ib_uverbs_gid_entry *entry = memory_of(attribute(hdr, id));
	struct ib_uverbs_attr *port =
		attribute(hdr, UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
	const uint64_t index =
		attribute(hdr, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)->data;

	tell_change(ASKS_GID);
	if (index == FAR) {
		set_entry(entry, (uint32_t)port->data, FAR, true);
		return 0;
	}
	if (three && port->data == 1 && index <= 1) {
		set_first(entry, (uint32_t)index, fd);
		return 0;
	}
	if (three && port->data < PORTS) {
		errno = ENODATA;
		return -1;
	}
	if (index == LAST && place_of(fd) != RIGHT) {
		set_entry(entry, (uint32_t)port->data, LAST, false);
		return 0;
	}
	if (ask_of_port(fd, hdr, port, three)) {
		if (errno != ENODATA || index % 64)
			return -1;
		memset(entry, 0, sizeof(*entry));
		entry->gid_index = (uint32_t)index;
	}
	entry->port_num = (uint32_t)port->data;
	change_gid(entry);
	return 0;
}

/* With three ports, the GID at index 0 gives its place to that of the first. */
static int query_gids(int fd, struct ib_uverbs_ioctl_hdr *hdr, bool three)
{
	const struct ib_uverbs_attr *answer =
		attribute(hdr, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
	const int id = UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES;
	uint64_t *count = memory_of(attribute(hdr, id));
	struct ib_uverbs_gid_entry *entries = memory_of(answer);
	const size_t room = answer->len / sizeof(*entries);

	tell_change(ASKS_GID);
	if (syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, hdr))
		return -1;
	for (size_t i = 0; i < *count; i++) {
		change_gid(&entries[i]);
		if (three)
			entries[i].port_num = PORTS;
		if (three && entries[i].gid_index == 0)
			set_first(&entries[i], 0, fd);
	}
	if (three && *count < room)
		set_first(&entries[(*count)++], 1, fd);
	if (*count < room && place_of(fd) != RIGHT)
		set_entry(&entries[(*count)++], three ? PORTS : 1, LAST,
			  false);
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	const bool three = place_of(fd) != 0;
	struct ib_uverbs_ioctl_hdr *hdr;
	va_list args;

	va_start(args, request);
	hdr = va_arg(args, void *);
	va_end(args);

	if (request == RDMA_VERBS_IOCTL &&
	    hdr->object_id == UVERBS_OBJECT_DEVICE) {
		if (hdr->method_id == UVERBS_METHOD_QUERY_PORT)
			return query_port(fd, hdr, three);
		if (hdr->method_id == UVERBS_METHOD_QUERY_GID_ENTRY)
			return query_gid(fd, hdr, three);
		if (hdr->method_id == UVERBS_METHOD_QUERY_GID_TABLE)
			return query_gids(fd, hdr, three);
	}
	return (int)syscall(SYS_ioctl, fd, request, hdr);
}

#define MOST_REGIONS 1000
static struct region {
	const struct ibv_mr *mr;
	/* As they were at first: the program may write to its struct ibv_mr. */
	uint32_t lkey;
	char *addr;
	size_t length;
	uint64_t iova;		/* where it begins for requests */
} registered[MOST_REGIONS];	/* and not released */
static int regions;
/* A region was released while a WRITE without a completion was under way. */
static bool released_early;

static struct ibv_mr *region_begins(struct ibv_mr *mr, uint64_t iova)
{
	if (!mr)
		return NULL;
	if (regions == MOST_REGIONS)
		give_up("this program registers more regions than the grader"
			" has room for\n");
	if (released_early)
		tell_once(CHANGED);
	registered[regions++] = (struct region){
		.mr = mr, .lkey = mr->lkey, .addr = mr->addr,
		.length = mr->length, .iova = iova,
	};
	return mr;
}

/*
 * The memory of a region may be gone soon, and nobody may read it then. To
 * release it while a WRITE is under way is as wrong as to change its bytes,
 * unless the program ends: so it is told when there is another region.
 */
static void region_ends(const struct ibv_mr *mr)
{
	const int cancel_state = lock_queues();
	int left = 0;

	for (int i = 0; i < regions; i++) {
		const struct region gone = registered[i];

		if (gone.mr != mr)
			continue;
		registered[i] = registered[--regions];
		for (int j = 0; j < quiet_pieces; j++)
			if (quiet[j].addr - (uintptr_t)gone.addr >= gone.length)
				quiet[left++] = quiet[j];
		released_early |= left < quiet_pieces;
		quiet_pieces = left;
		break;
	}
	unlock_queues(cancel_state);
}

/* The region with the key of @sge, or NULL. */
static const struct region *region_of(const struct ibv_sge *sge)
{
	for (int i = 0; i < regions; i++)
		if (registered[i].lkey == sge->lkey)
			return &registered[i];
	return NULL;
}

/* Where the bytes of @sge are for the program. */
static void *memory_at(const struct ibv_sge *sge)
{
	const struct region *region = region_of(sge);

	if (!region)
		return (void *)(uintptr_t)sge->addr;
	return region->addr + (sge->addr - region->iova);
}

/*
 * A checksum of some of @length bytes at @addr, because a processor may be
 * emulated. The program does not know which ones: that depends on the key.
 */
static uint32_t sum_of(uint64_t addr, uint32_t length)
{
	const unsigned char *bytes = (const void *)(uintptr_t)addr;
	const uint32_t step = 1 + length / 1024;
	uint32_t sum = 2166136261;	/* FNV-1a */

	for (uint32_t i = (uint32_t)key % step; i < length; i += step)
		sum = (sum ^ bytes[i]) * 16777619;
	return sum;
}

/*
 * A message is sent from @addr. A place counts as a slot if messages come from
 * no more of them than slots. If its @wr_id was another one before, or that of
 * another place, the grader is told.
 */
static bool is_slot(uint64_t addr, uint64_t wr_id)
{
	static struct {
		uint64_t addr, wr_id;
	} places[MOST_PIECES];
	static unsigned int n;

	for (unsigned int i = 0; i < n; i++) {
		const bool same_place = places[i].addr == addr;

		if (same_place != (places[i].wr_id == wr_id))
			tell_once(RENAMED);
		if (same_place)
			return true;
	}
	if (n == slots || n == MOST_PIECES)
		return false;
	places[n].addr = addr;
	places[n++].wr_id = wr_id;
	return true;
}

/* Which bytes @sge has. Those of an @inlined one may be used again at once. */
static void remember(struct under_way *new, const struct ibv_sge *sge,
		     bool inlined)
{
	new->addr = (uintptr_t)memory_at(sge);
	new->length = inlined ? 0 : sge->length;
	new->sum = sum_of(new->addr, new->length);
}

/* One piece of a send; most have one. */
static void piece_begins(const struct ibv_send_wr *wr,
			 const struct ibv_sge *sge)
{
	static unsigned int looked_at;
	bool wrong = false;
	struct under_way *new;

	/* A slot begins where the first piece of a message has bytes. */
	if (slots && sge->length && looked_at != started) {
		wrong = !is_slot((uintptr_t)memory_at(sge), wr->wr_id);
		looked_at = started;
	}
	if (pieces == MOST_PIECES)	/* the oldest has to go */
		memmove(under_way, under_way + 1, --pieces * sizeof(*new));
	new = &under_way[pieces];
	new->wr_id = wr->wr_id;
	new->send = started;
	remember(new, sge, wr->send_flags & IBV_SEND_INLINE);
	for (int i = 0; i < pieces; i++)
		if (polls && under_way[i].addr == new->addr && new->length)
			wrong = true;
	if (wrong)
		tell_once(REUSED);
	pieces++;
}

static void quiet_begins(const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_SIGNALED)
		return;
	for (int i = 0; i < wr->num_sge && quiet_pieces < MOST_PIECES; i++)
		remember(&quiet[quiet_pieces++], &wr->sg_list[i],
			 wr->send_flags & IBV_SEND_INLINE);
}

/* Some request has completed: before that, nothing may have changed. */
static void quiet_ends(void)
{
	for (int i = 0; i < quiet_pieces; i++)
		if (quiet[i].sum != sum_of(quiet[i].addr, quiet[i].length))
			tell_once(CHANGED);
	quiet_pieces = 0;
}

static void write_begins(unsigned int flags)
{
	tell(WRITES);
	writes += !!(flags & IBV_SEND_SIGNALED);
}

static void send_counts(unsigned int flags)
{
	tell(SENT);
	if (!(flags & IBV_SEND_SIGNALED))
		tell_once(SILENT);
	sends++;
}

/*
 * A request with an immediate value is posted: those in 05 are the credits, and
 * in 06 the answers. What comes after the failure is told, but only so often
 * that it cannot fill the trace.
 */
static void goes_on(void)
{
	static int times;

	if (failing.from && failing.calls >= failing.from && times++ < 64)
		tell(GOES_ON);
}

/* In 05, credits must not come before the receives that they are for. */
static void credit_begins(__be32 imm)
{
	given += ntohl(imm);
	if (spoils && given + spoils > posted && posted < in_all)
		tell_once(EARLY);
}

static void send_begins(const struct ibv_send_wr *wr)
{
	if (wr->opcode == IBV_WR_SEND_WITH_IMM)
		tell_once(SENT_IMM);
	if (wr->opcode == IBV_WR_SEND_WITH_IMM ||
	    wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		goes_on();
		credit_begins(wr->imm_data);
	}
	if (wr->opcode == IBV_WR_RDMA_WRITE ||
	    wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		if (wr->opcode == IBV_WR_RDMA_WRITE)
			write_begins(wr->send_flags);
		else	/* told as no WRITE: the answers of 06 have it */
			writes += !!(wr->send_flags & IBV_SEND_SIGNALED);
		quiet_begins(wr);
		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			return;
	} else if (wr->opcode == IBV_WR_SEND) {
		send_counts(wr->send_flags);
	} else {
		return;
	}
	started++;
	for (int i = 0; i < wr->num_sge; i++)
		piece_begins(wr, &wr->sg_list[i]);
}

/* All pieces of the first send or WRITE with this wr_id. Returns its number. */
static unsigned int send_ends(uint64_t wr_id)
{
	unsigned int send = 0;
	int left = 0;

	for (int i = 0; i < pieces; i++) {
		const struct under_way piece = under_way[i];

		if (!send && piece.wr_id == wr_id)
			send = piece.send;
		if (piece.send != send)
			under_way[left++] = piece;
		else if (piece.sum != sum_of(piece.addr, piece.length))
			tell(CHANGED);
	}
	pieces = left;
	return send;
}

/* The program takes a completion that is a success; without an @imm, 0. */
static void request_ends(uint64_t wr_id, enum ibv_wc_opcode opcode,
			 __be32 imm)
{
	if (!(opcode & IBV_WC_RECV))
		quiet_ends();
	if (opcode == IBV_WC_SEND) {
		const unsigned int send = send_ends(wr_id);

		/* So have those before it that ask for no completion. */
		ended++;
		if (send > ended)
			ended = send;
		shown -= !!shown;
	} else if (opcode == IBV_WC_RDMA_WRITE) {
		writes--;
		send_ends(wr_id);
		tell(WRITTEN);
	} else if (opcode == IBV_WC_RECV) {
		credits += ntohl(imm);
		came++;
		tell(RECEIVED);
	}
}

__attribute__((destructor)) static void program_ends(void)
{
	if (writes > 0)
		tell(UNFINISHED);
	if (regions)
		tell(REGIONS);
}

/* Does it ask for bytes from the peer? */
static bool brings(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ ||
	       wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/*
 * Keep in @awaited what stands now where these requests will bring few bytes:
 * a result for each piece, of which there are MOST_RESULTS at most.
 */
static void before_requests(const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next) {
		requested++;
		for (int i = 0; brings(wr) && i < wr->num_sge; i++) {
			const struct ibv_sge *sge = &wr->sg_list[i];
			struct result *this = &awaited[expected];

			if (expected == MOST_RESULTS || sge->length == 0 ||
			    sge->length > sizeof(this->bytes))
				continue;
			this->wr_id = wr->wr_id;
			this->request = requested;
			this->signaled = wr->send_flags & IBV_SEND_SIGNALED;
			this->at = memory_at(sge);
			this->length = sge->length;
			memcpy(this->bytes, this->at, sge->length);
			expected++;
		}
	}
}

/* If the bytes at result->at have changed already, keep them, and undo that. */
static void hold_back(struct result result)
{
	unsigned char old[sizeof(result.bytes)];

	memcpy(old, result.bytes, result.length);
	memcpy(result.bytes, result.at, result.length);
	if (memcmp(old, result.bytes, result.length) == 0)
		return;
	if (held == MOST_RESULTS) {	/* the oldest has to go */
		memcpy(results[0].at, results[0].bytes, results[0].length);
		memmove(results, results + 1, --held * sizeof(*results));
	}
	memcpy(result.at, old, result.length);
	results[held++] = result;
}

static void hold_all_back(void)
{
	for (int i = 0; i < expected; i++)
		hold_back(awaited[i]);
	expected = 0;
}

/*
 * All pieces of the first request with this wr_id, and those of the requests
 * that have no completion of their own.
 */
static void deliver(uint64_t wr_id)
{
	unsigned int request = 0;
	int left = 0;

	for (int i = 0; i < held; i++) {
		const struct result result = results[i];

		if (!request && result.signaled && result.wr_id == wr_id)
			request = result.request;
		if (result.signaled && result.request != request)
			results[left++] = result;
		else
			memcpy(result.at, result.bytes, result.length);
	}
	held = left;
}

/* The last atomic, and whether the program had the lock before it. */
static struct {
	const uint64_t *old_value;	/* where it is to come */
	uint64_t compare_add;
	bool takes, releases, had_lock;
} last_atomic;
static int atomics;	/* that are to complete */
static bool has_lock;

/*
 * To be called for each request, of which atomics alone count. A
 * COMPARE_AND_SWAP from 0 tries to take the lock. One from another number to 0
 * releases it, or a FETCH_AND_ADD of anything but 0; whether it does is known
 * when its old value has come.
 */
static void atomic_begins(const struct ibv_send_wr *wr)
{
	const bool swaps = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	const uint64_t compare_add = wr->wr.atomic.compare_add;

	if ((!swaps && wr->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) ||
	    !wr->num_sge)
		return;
	last_atomic.takes = swaps && compare_add == 0;
	last_atomic.releases = compare_add && !(swaps && wr->wr.atomic.swap);
	if (last_atomic.takes && has_lock)
		tell(AGAIN);
	last_atomic.old_value = NULL;
	if (wr->send_flags & IBV_SEND_SIGNALED) {
		last_atomic.old_value = memory_at(wr->sg_list);
		atomics++;
	}
	last_atomic.compare_add = compare_add;
	last_atomic.had_lock = has_lock;
	if (last_atomic.releases)
		has_lock = false;
}

/* A request has completed. Was it the last atomic, and has that worked? */
static void atomic_ends(enum ibv_wc_opcode opcode)
{
	const uint64_t operand = last_atomic.compare_add;
	const bool swaps = opcode == IBV_WC_COMP_SWAP;
	uint64_t old;

	if (!swaps && opcode != IBV_WC_FETCH_ADD)
		return;
	if (--atomics > 0 || !last_atomic.old_value)
		return;
	memcpy(&old, last_atomic.old_value, sizeof(old));
	if (last_atomic.takes)
		has_lock = old == 0;
	else if (swaps ? old != operand : old + operand != 0)
		has_lock = last_atomic.had_lock;	/* nothing released */
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **(*real)(int *);
	const int err = error_of("ibv_get_device_list");

	if (err) {
		errno = err;
		return NULL;
	}
	find_real(&real, "ibv_get_device_list");
	return real(count);
}

/*
 * Does the program wait although it could send? One that could not is shown
 * the completion of one send, if all slots were in use, and may take all that a
 * single poll brings. Otherwise it may take those of all that are under way.
 */
static bool too_early(void)
{
	const unsigned int open = sends - ended;
	const bool could_send = sends < in_all && open < slots &&
				sends < slots + credits;
	static time_t hidden_until;
	static int hidden_polls;	/* a slow program makes only a few */
	struct timespec now;

	if (!could_send)
		shown = open == slots && sends < in_all ? 1 : open;
	if (!could_send || shown || sends == 0) {
		hidden_until = hidden_polls = 0;
		return false;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (hidden_until == 0)
		hidden_until = now.tv_sec + 2;
	if (++hidden_polls < 100 || now.tv_sec < hidden_until)
		return true;
	tell(FEWER);
	slots = 0;
	return false;
}

/* See SPINS. Told once: a program that goes on must not fill the trace. */
static void count_empty_polls(const struct ibv_cq *cq, int taken)
{
	static struct {
		const struct ibv_cq *cq;
		int empty;
	} polled[MOST_QUEUES];
	int i = 0;

	while (i < MOST_QUEUES - 1 && polled[i].cq && polled[i].cq != cq)
		i++;
	polled[i].cq = cq;
	if (taken)
		polled[i].empty = 0;
	else if (++polled[i].empty == SPINS)
		tell(SPINNING);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* ibv_poll_cq(), with the first completion of a WRITE as late as "lag" says. */
static int poll_with_lag(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	static enum { FIRST, KEPT, SECOND, OVER } state;
	static struct ibv_wc kept;
	static struct ibv_cq *kept_of;
	static long long lag_end;	/* when it comes */
	/* Of a completion that is kept no event would tell. */
	const bool may_sleep = cq->channel;
	int taken;

	if (count > 0 && cq == kept_of &&
	    (state == SECOND || (state == KEPT && now_ms() >= lag_end))) {
		state = OVER;
		*wc = kept;
		return 1;
	}
	taken = real_poll_cq(cq, count, wc);
	for (int i = 0; lag && i < taken && state < OVER; i++) {
		const struct ibv_wc this = wc[i];

		if (state == FIRST && !may_sleep &&
		    this.status == IBV_WC_SUCCESS &&
		    this.opcode == IBV_WC_RDMA_WRITE) {
			taken--;
			memmove(&wc[i], &wc[i + 1], (taken - i) * sizeof(*wc));
			i--;
			lag_end = now_ms() + lag;
			kept = this;
			kept_of = cq;
			state = KEPT;
		} else if (state != FIRST && cq == kept_of &&
			   !(this.opcode & IBV_WC_RECV)) {
			/* What was posted behind it does not overtake it. */
			wc[i] = kept;
			kept = this;
			state = SECOND;
		}
	}
	return taken;
}

static int take(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int taken;

	polls = true;
	blind = false;
	if (error_of("ibv_poll_cq"))
		return -2;	/* any negative number says so */
	if (too_early())
		return 0;
	taken = poll_with_lag(cq, count, wc);
	count_empty_polls(cq, taken);
	for (int i = 0; i < taken; i++) {
		if (wc[i].status == IBV_WC_SUCCESS)
			request_ends(wc[i].wr_id, wc[i].opcode,
				     wc[i].wc_flags & IBV_WC_WITH_IMM ?
					     wc[i].imm_data : 0);
		deliver(wc[i].wr_id);
		if (wc[i].status == IBV_WC_SUCCESS)
			atomic_ends(wc[i].opcode);
		/*
		 * The opcode of a request that has failed is not valid, so it
		 * may be another one, or happen to be the right one.
		 */
		if (completion_fails(wc[i].opcode)) {
			wc[i].status = IBV_WC_WR_FLUSH_ERR;
			if (strcmp(failing.verb, "WRITE") != 0)
				wc[i].opcode = 0;
		}
		if (wc[i].opcode == IBV_WC_SEND ||
		    wc[i].opcode == IBV_WC_RDMA_WRITE)
			wc[i].byte_len = NO_NUMBER;
		if (!(wc[i].wc_flags & IBV_WC_WITH_IMM))
			wc[i].imm_data = NO_NUMBER;
	}
	return taken;
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	const int cancel_state = lock_queues();
	const int taken = take(cq, count, wc);

	unlock_queues(cancel_state);
	return taken;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_send_wr **bad_wr)
{
	int err;

	expected = 0;
	before_requests(wr);
	err = real_post_send(qp, wr, bad_wr);
	if (err)
		expected = 0;
	hold_all_back();
	/* Without a *bad_wr the kernel has refused them all. */
	for (; wr && !(err && (!*bad_wr || wr == *bad_wr)); wr = wr->next) {
		send_begins(wr);
		atomic_begins(wr);
	}
	return err;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr)
{
	int err, cancel_state;

	if (!bad_wr)	/* EINVAL */
		return real_post_send(qp, wr, NULL);
	err = error_of_request("ibv_post_send", wr->wr_id);
	tell_change(POSTS);
	if (err) {
		*bad_wr = wr;
		return returned(err);
	}
	cancel_state = lock_queues();
	err = post(qp, wr, bad_wr);
	unlock_queues(cancel_state);
	if (err == EINVAL)
		tell_once(REFUSED);
	return returned(err);
}

/* Without access(), in whose place a program may have a function of its own. */
static bool has_to_wait(void)
{
	return syscall(SYS_faccessat, AT_FDCWD, wait_file, F_OK) == 0;
}

/* For as long as its file is there, but not for ever. */
static void wait_for_grader(void)
{
	for (int i = 0; i < 6000 && has_to_wait(); i++)
		poll(NULL, 0, 10);
}

/*
 * Arm @cq late, and return late, so that something may come before. A message
 * that is under way now may have come before, too: then no event tells of it,
 * so a program that does not poll is blind for it.
 */
static int arm(struct ibv_cq *cq, int solicited_only)
{
	const int cancel_state = lock_queues();
	struct pollfd event = { .events = POLLIN };
	int err;

	blind = sends > came;
	unlock_queues(cancel_state);

	if (late) {
		tell(ARMS);
		wait_for_grader();
	}
	err = real_req_notify_cq(cq, solicited_only);
	newly_armed = true;
	if (late && cq->channel) {
		event.fd = cq->channel->fd;
		poll(&event, 1, late);
	}
	return err;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	const int err = error_of("ibv_req_notify_cq");

	return returned(err ? err : arm(cq, solicited_only));
}

/*
 * See "spoil". What belongs to no region is left alone: then the receive fails,
 * as it does without us.
 */
static void spoil(const struct ibv_sge *sge)
{
	const struct region *region = region_of(sge);
	const uint64_t begin = region ? sge->addr - region->iova : 0;
	uint64_t length = sge->length < 8 ? sge->length : 8;

	if (!region || begin >= region->length)
		return;
	if (length > region->length - begin)
		length = region->length - begin;
	memset(memory_at(sge), 0xa5, length);
}

/* Into the receive queue of @qp, or, if that is NULL, into the shared one. */
static int post_receives(struct ibv_qp *qp, struct ibv_srq *srq,
			 struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr alone = *wr, *bad;
		int err = error_of_request("ibv_post_recv", wr->wr_id);
		int cancel_state;

		alone.next = NULL;
		if (!err) {
			for (int i = 0; spoils && i < wr->num_sge; i++)
				spoil(&wr->sg_list[i]);
			err = qp ? real_post_recv(qp, &alone, &bad) :
				   real_post_srq_recv(srq, &alone, &bad);
		}
		if (err) {
			*bad_wr = wr;
			return returned(err);
		}
		tell(RECV);
		cancel_state = lock_queues();
		posted++;
		if (spoils && posted > came + spoils)
			tell_once(STOCKS);
		unlock_queues(cancel_state);
	}
	return returned(0);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	if (!bad_wr)	/* EINVAL */
		return real_post_recv(qp, wr, NULL);
	return post_receives(qp, NULL, wr, bad_wr);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	if (!bad_wr)	/* EINVAL */
		return real_post_srq_recv(srq, wr, NULL);
	return post_receives(NULL, srq, wr, bad_wr);
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	const int err = real_query_device_ex(context, input, attr, size);

	if (!err && place_of(context->cmd_fd)) {
		attr->orig_attr.phys_port_cnt = PORTS;
		if (size >= sizeof(*attr))
			attr->phys_port_cnt_ex = PORTS;
	}
	return err;
}

/* The completion that @cq shows now, by the extended functions. */
static void take_extended(struct ibv_cq_ex *cq)
{
	if (cq->status == IBV_WC_SUCCESS)
		request_ends(cq->wr_id, ibv_wc_read_opcode(cq),
			     cq->read_imm_data &&
			     ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM ?
				     ibv_wc_read_imm_data(cq) : 0);
	deliver(cq->wr_id);
	if (cq->status == IBV_WC_SUCCESS)
		atomic_ends(ibv_wc_read_opcode(cq));
	if (completion_fails(ibv_wc_read_opcode(cq)))
		cq->status = IBV_WC_WR_FLUSH_ERR;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	int err, cancel_state = lock_queues();
	bool hidden;

	polls = true;
	blind = false;
	err = error_of("ibv_poll_cq");
	hidden = !err && too_early();
	unlock_queues(cancel_state);
	if (err || hidden)
		return err ? err : ENOENT;

	/* Without our lock: the library keeps its own until ibv_end_poll(). */
	err = real_start_poll(cq, attr);
	cancel_state = lock_queues();
	count_empty_polls(ibv_cq_ex_to_cq(cq), !err);
	if (!err)
		take_extended(cq);
	unlock_queues(cancel_state);
	return err;
}

static int next_poll(struct ibv_cq_ex *cq)
{
	const int err = real_next_poll(cq);
	int cancel_state;

	if (!err) {
		cancel_state = lock_queues();
		take_extended(cq);
		unlock_queues(cancel_state);
	}
	return err;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context,
				      struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *cq = real_create_cq_ex(context, attr);

	if (cq) {
		real_start_poll = cq->start_poll;
		cq->start_poll = start_poll;
		real_next_poll = cq->next_poll;
		cq->next_poll = next_poll;
	}
	return cq;
}

/* As the device, it takes wr_id and flags now, and not when the pieces come. */
static void kind_begins(const struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
	building.opcode = opcode;
	building.wr_id = qp->wr_id;
	building.send_flags = qp->wr_flags;
}

/* SENDs that ibv_wr_abort() would give up. */
static unsigned int built_sends;

/* The SEND that is being made by the extended functions. */
static void wr_send(struct ibv_qp_ex *qp)
{
	const bool refused = strcmp(failing.verb, "ibv_post_send") == 0 &&
			     failing.calls + 1 >= failing.from;
	int cancel_state;

	/* wr_complete() may refuse it. */
	if (!refused) {
		cancel_state = lock_queues();
		send_counts(qp->wr_flags);
		started++;
		built_sends++;
		unlock_queues(cancel_state);
	}
	kind_begins(qp, IBV_WR_SEND);
	real_wr_send(qp);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey,
			 uint64_t remote_addr)
{
	kind_begins(qp, IBV_WR_RDMA_READ);
	real_wr_rdma_read(qp, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	kind_begins(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
	building.wr.atomic.compare_add = compare;
	building.wr.atomic.swap = swap;
	real_wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
				uint64_t remote_addr, uint64_t add)
{
	kind_begins(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
	building.wr.atomic.compare_add = add;
	real_wr_atomic_fetch_add(qp, rkey, remote_addr, add);
}

/* With an immediate value, both count as SENDs here. */
static void imm_begins(const struct ibv_qp_ex *qp, __be32 imm)
{
	const int cancel_state = lock_queues();

	credit_begins(imm);
	unlock_queues(cancel_state);
	kind_begins(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	imm_begins(qp, imm);
	real_wr_send_imm(qp, imm);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t remote_addr, __be32 imm)
{
	imm_begins(qp, imm);
	real_wr_rdma_write_imm(qp, rkey, remote_addr, imm);
}

/* A request gets its pieces, after one of the functions above. */
static void built(const struct ibv_sge *sge, size_t count)
{
	/* As for send_begins(). */
	const bool watched = building.opcode == IBV_WR_SEND ||
			     (building.opcode == IBV_WR_RDMA_WRITE &&
			      building.send_flags & IBV_SEND_SIGNALED);
	const int cancel_state = lock_queues();

	building.sg_list = (struct ibv_sge *)sge;
	building.num_sge = (int)count;
	before_requests(&building);
	atomic_begins(&building);
	if (building.opcode == IBV_WR_RDMA_WRITE)
		quiet_begins(&building);
	for (size_t i = 0; watched && i < count; i++)
		piece_begins(&building, &sge[i]);
	unlock_queues(cancel_state);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey,
			  uint64_t remote_addr)
{
	const int cancel_state = lock_queues();

	write_begins(qp->wr_flags);
	started += !!(qp->wr_flags & IBV_SEND_SIGNALED);
	kind_begins(qp, IBV_WR_RDMA_WRITE);
	unlock_queues(cancel_state);
	real_wr_rdma_write(qp, rkey, remote_addr);
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	expected = 0;
	sends -= built_sends;
	built_sends = 0;
	real_wr_abort(qp);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	int err = error_of("ibv_post_send");
	const int cancel_state = lock_queues();

	if (err)
		ibv_wr_abort(qp);
	else
		err = real_wr_complete(qp);
	built_sends = 0;
	if (err)
		expected = 0;
	hold_all_back();
	unlock_queues(cancel_state);
	return returned(err);
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count,
			    const struct ibv_sge *sge)
{
	built(sge, count);
	real_wr_set_sge_list(qp, count, sge);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	const struct ibv_sge sge = {
		.addr = addr, .length = length, .lkey = lkey,
	};

	built(&sge, 1);
	real_wr_set_sge(qp, lkey, addr, length);
}

/* Put the function @name of ours in its place, if this queue pair has it. */
#define REPLACE(ex, name)				\
	do {						\
		if ((ex)->name) {			\
			real_##name = (ex)->name;	\
			(ex)->name = name;		\
		}					\
	} while (0)

/* See "spread": the device gives each queue pair the next number. */
static void skip_numbers(struct ibv_pd *pd, const struct ibv_qp *qp)
{
	struct ibv_qp *(*create)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*destroy)(struct ibv_qp *);
	const int before = errno;
	/* Not as many behind each of them. */
	const int more = qp ? (int)((key >> (qp->qp_num % 16)) & 7) : 0;

	find_real(&create, "ibv_create_qp");
	find_real(&destroy, "ibv_destroy_qp");
	for (int i = 0; qp && spread && i < spread + more; i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = qp->send_cq, .recv_cq = qp->recv_cq,
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 1, .max_recv_wr = 1,
				 .max_send_sge = 1, .max_recv_sge = 1 },
		};
		struct ibv_qp *unused = create(pd, &attr);

		if (unused)
			destroy(unused);
	}
	errno = before;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *);
	struct ibv_qp *qp;

	find_real(&real, "ibv_create_qp");
	qp = real(pd, attr);
	skip_numbers(pd, qp);
	return qp;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = real_create_qp_ex(context, attr);
	struct ibv_qp_ex *(*to_ex)(struct ibv_qp *), *ex;

	skip_numbers(attr->pd, qp);
	if (qp && attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		find_real(&to_ex, "ibv_qp_to_qp_ex");
		ex = to_ex(qp);
		REPLACE(ex, wr_send);
		REPLACE(ex, wr_send_imm);
		REPLACE(ex, wr_rdma_write);
		REPLACE(ex, wr_rdma_write_imm);
		REPLACE(ex, wr_rdma_read);
		REPLACE(ex, wr_atomic_cmp_swp);
		REPLACE(ex, wr_atomic_fetch_add);
		REPLACE(ex, wr_complete);
		REPLACE(ex, wr_abort);
		REPLACE(ex, wr_set_sge);
		REPLACE(ex, wr_set_sge_list);
	}
	return qp;
}

/*
 * It returns an errno value. What it leaves in errno means nothing, so that is
 * always the same error here.
 */
int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	int (*real)(struct ibv_context *, uint32_t, uint32_t,
		    struct ibv_gid_entry *, uint32_t, size_t);
	int err;

	find_real(&real, "_ibv_query_gid_ex");
	err = real(context, port, index, entry, flags, size);
	errno = EINVAL;
	return err;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int (*real)(struct ibv_context *, struct ibv_device_attr *);
	int err;

	find_real(&real, "ibv_query_device");
	err = real(context, attr);
	if (!err && place_of(context->cmd_fd))
		attr->phys_port_cnt = PORTS;
	return err;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*real)(struct ibv_device *), *context;
	struct verbs_context *verbs;

	read_settings();
	if (strcmp(closed[0], device->name) == 0 ||
	    strcmp(closed[1], device->name) == 0) {
		errno = closed_err;
		return NULL;
	}
	find_real(&real, "ibv_open_device");
	context = real(device);
	if (!context)
		return NULL;
	if (context->cmd_fd >= 0 && context->cmd_fd < DESCRIPTORS) {
		open_there[context->cmd_fd] = 0;
		for (int i = 0; i < WITH_THREE; i++)
			if (strcmp(with_three_ports[i], device->name) == 0)
				open_there[context->cmd_fd] = i + 1;
	}

	/* These have no symbol: the header calls them by pointers. */
	real_poll_cq = context->ops.poll_cq;
	context->ops.poll_cq = poll_cq;
	real_req_notify_cq = context->ops.req_notify_cq;
	context->ops.req_notify_cq = req_notify_cq;
	real_post_send = context->ops.post_send;
	context->ops.post_send = post_send;
	real_post_recv = context->ops.post_recv;
	context->ops.post_recv = post_recv;
	real_post_srq_recv = context->ops.post_srq_recv;
	context->ops.post_srq_recv = post_srq_recv;
	verbs = verbs_get_ctx(context);
	if (verbs) {
		real_query_device_ex = verbs->query_device_ex;
		verbs->query_device_ex = query_device_ex;
		real_create_cq_ex = verbs->create_cq_ex;
		if (real_create_cq_ex)
			verbs->create_cq_ex = create_cq_ex;
		real_create_qp_ex = verbs->create_qp_ex;
		if (real_create_qp_ex)
			verbs->create_qp_ex = create_qp_ex;
	}
	return context;
}

/* All that register memory are "ibv_reg_mr": the macro calls one of them. */
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr,
				(unsigned int)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t,
			       unsigned int);
	const int err = error_of("ibv_reg_mr");

	if (err) {
		errno = err;
		return NULL;
	}
	find_real(&real, "ibv_reg_mr_iova2");
	return region_begins(real(pd, addr, length, iova, access), iova);
}

/*
 * Tells the grader if the program wants the name of a number that is no error,
 * or of another error than that which ibv_reg_mr() has failed with.
 */
const char *strerrorname_np(int err)
{
	const char *(*real)(int), *name;

	find_real(&real, "strerrorname_np");
	name = real(err);
	if (!name || (strcmp(failing.verb, "ibv_reg_mr") == 0 &&
		      failing.calls >= failing.from && err > 0 &&
		      err != failing.err))
		tell(OTHER_ERROR);
	return name;
}

/*
 * What could not be released is gone all the same, so that the kernel has
 * nothing left of it. Who tries again is told the same once more.
 */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	static struct ibv_mr *failed;
	const int err = error_of("ibv_dereg_mr");
	int (*real)(struct ibv_mr *);
	int result;

	if (failed && mr == failed)
		return returned(failing.err);
	if (err)
		failed = mr;
	find_real(&real, "ibv_dereg_mr");
	region_ends(mr);
	result = real(mr);
	return returned(err ? err : result);
}

/* As where the driver lacks it: so a region has the rights it began with. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_CMD;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	static struct ibv_pd *failed;
	const int err = error_of("ibv_dealloc_pd");
	int (*real)(struct ibv_pd *);
	int result;

	if (failed && pd == failed)
		return returned(failing.err);
	if (err)
		failed = pd;
	find_real(&real, "ibv_dealloc_pd");
	result = real(pd);
	return returned(err ? err : result);
}

static bool was_in_err;	/* a queue pair has been */
static bool is_set_up_again;	/* such a queue pair, from RESET on */

/*
 * Does each attribute that @mask names fit into its bits, and the P_Key index
 * into a table of one? On other devices it must. A struct whose members were
 * not all set may have anything there.
 */
static bool in_range(const struct ibv_qp_attr *attr, int mask)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;

	return !((mask & IBV_QP_PKEY_INDEX && attr->pkey_index) ||
		 (mask & IBV_QP_AV && ah->sl > 15) ||
		 (mask & IBV_QP_AV && ah->grh.flow_label > 0xfffff) ||
		 (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
		 (mask & IBV_QP_TIMEOUT && attr->timeout > 31) ||
		 (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
		 (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7));
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static const char *const names[][2] = {
		[IBV_QPS_RESET] = { "RESET", "again-RESET" },
		[IBV_QPS_INIT] = { "INIT", "again-INIT" },
		[IBV_QPS_RTR] = { "RTR", "again-RTR" },
		[IBV_QPS_RTS] = { "RTS", "again-RTS" },
	};
	const uint32_t address = htonl(peer);
	unsigned char gid[16] = { [10] = 0xff, 0xff };
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int err = 0;

	if ((mask & IBV_QP_STATE) && attr->qp_state <= IBV_QPS_RTS) {
		tell(TO_RESET + (int)attr->qp_state);
		err = error_of(names[attr->qp_state][was_in_err]);
		if (was_in_err)
			is_set_up_again = true;
	} else if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) {
		was_in_err = true;
	}
	memcpy(&gid[12], &address, sizeof(address));
	if ((mask & IBV_QP_AV) && peer &&
	    memcmp(&attr->ah_attr.grh.dgid, gid, sizeof(gid)) != 0)
		tell(ELSEWHERE);
	/* In SQD a request waits, and its result comes when nobody looks. */
	if (!err && ((mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_SQD) ||
		     !in_range(attr, mask)))
		err = EINVAL;
	if (err)
		return returned(err);
	find_real(&real, "ibv_modify_qp");
	return returned(real(qp, attr, mask));
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int,
		    struct ibv_qp_init_attr *);
	const int err = error_of("ibv_query_qp");
	int result;

	/* Where it fails the struct looks as if it had not. */
	find_real(&real, "ibv_query_qp");
	result = real(qp, attr, mask, init);
	/*
	 * After the way out of ERR nothing can have been sent yet. In the
	 * struct there is the state that was asked for last, which need not be
	 * the one that the device is in: who has asked the device prints that.
	 */
	if (sent && !is_set_up_again) {
		if (qp->state == IBV_QPS_RTS)
			qp->state = IBV_QPS_UNKNOWN;
		/* One that was never connected has sent nothing. */
		if (attr->qp_state >= IBV_QPS_RTS) {
			attr->sq_psn = (attr->sq_psn + sent) & 0xffffff;
			attr->rq_psn = (attr->rq_psn + received) & 0xffffff;
		}
	}
	return returned(err ? err : result);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	int (*real)(struct ibv_comp_channel *, struct ibv_cq **, void **);
	static int err;		/* stays: a program may try again */
	int result;

	if (newly_armed && !err)
		err = error_of("ibv_get_cq_event");
	newly_armed = false;
	if (err) {
		errno = err;
		return -1;
	}
	if (blind)
		tell_once(BLIND);
	find_real(&real, "ibv_get_cq_event");
	result = real(channel, cq, cq_context);
	if (!result)
		with_events = *cq;
	if (!result && !late && has_to_wait()) {
		tell(WAITS);
		wait_for_grader();
	}
	return result;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	void (*real)(struct ibv_cq *, unsigned int);

	if (!with_events || cq == with_events)
		tell(ACKED + (count < MOST_ACKED ? (int)count : MOST_ACKED));
	find_real(&real, "ibv_ack_cq_events");
	real(cq, count);
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	int (*real)(struct rdma_event_channel *, struct rdma_cm_event **);
	int err, size = 255;

	read_settings();
	find_real(&real, "rdma_get_cm_event");
	err = real(channel, event);
	if (err == 0)
		tell(TAKEN);
	if (err == 0 && cm_requests < sizes &&
	    ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
	     (*event)->event == RDMA_CM_EVENT_REJECTED))
		size = data_sizes[cm_requests++];
	if (err == 0 && (*event)->event == RDMA_CM_EVENT_REJECTED && reason)
		(*event)->status = reason;
	if (err == 0 && (*event)->event == RDMA_CM_EVENT_ADDR_RESOLVED &&
	    error_of("rdma_get_cm_event")) {
		(*event)->event = RDMA_CM_EVENT_ADDR_ERROR;
		(*event)->status = -ETIMEDOUT;
	}
	if (size < 255) {
		(*event)->param.conn.private_data_len = (uint8_t)size;
		if (size == 0)
			(*event)->param.conn.private_data = NULL;
	}
	return err;
}

/* Behind a struct hello there may be zeros, as in what the other side gets. */
static bool has_hello(const struct rdma_conn_param *param)
{
	const char *data = param->private_data;

	if (!data || param->private_data_len < HELLO ||
	    param->private_data_len > MOST_PRIVATE_DATA)
		return false;
	for (int i = HELLO; i < param->private_data_len; i++)
		if (data[i])
			return false;
	return true;
}

/* The other side cannot know how long the data was: see "private-data". */
static void look_for_hello(const struct rdma_conn_param *param)
{
	if (param && !has_hello(param))
		tell(NO_HELLO);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*real)(struct rdma_cm_id *, struct rdma_conn_param *);

	look_for_hello(param);
	find_real(&real, "rdma_connect");
	return real(id, param);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*real)(struct rdma_cm_id *, struct rdma_conn_param *);

	look_for_hello(param);
	find_real(&real, "rdma_accept");
	return real(id, param);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	int (*real)(struct rdma_cm_event *);
	int err;

	find_real(&real, "rdma_ack_cm_event");
	/* It is freed now. A program must not see that it still looks whole. */
	if (event)
		memset(event, NO_NUMBER & 0xff, sizeof(*event));
	err = real(event);
	if (!err)
		tell(RETURNED);
	return err;
}

/* Refused is refused, but the program is told of an error. */
static int after_reject(int result)
{
	const int err = error_of("rdma_reject");

	if (!err)
		return result;
	errno = err;
	return -1;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t size)
{
	int (*real)(struct rdma_cm_id *, const void *, uint8_t);

	find_real(&real, "rdma_reject");
	return after_reject(real(id, data, size));
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t size)
{
	int (*real)(struct rdma_cm_id *, const void *, uint8_t);

	find_real(&real, "rdma_reject_ece");
	return after_reject(real(id, data, size));
}
