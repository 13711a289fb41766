/*
 * calls.c - makes one chosen call of a program fail, and counts what it leaves
 *
 * Preload it: LD_PRELOAD=calls.so. It stands between a program and its
 * libraries, and looks only at calls that come from the program's own code
 * (TORTURE_WHOSE=library: only at those of the libraries).
 *
 *	TORTURE="FUNCTION SITE NUMBER FAULT"
 *
 * makes call NUMBER of FUNCTION from the place SITE fail with FAULT: the name
 * of an errno value, or one of the words in special[] below. "kill", "stop"
 * and "off" are possible everywhere. A SITE is the return address as an offset
 * in the program. Without TORTURE nothing fails.
 *
 * At the end it writes to the file TORTURE_REPORT, one line each:
 *
 *	call FUNCTION SITE COUNT FAULT...	all calls, and how they may fail
 *	failed FUNCTION SITE NUMBER FAULT	the call that was made fail
 *	leaked KIND SITE			made, and never released
 *	twice KIND SITE				released, and not there any more
 *
 * The static inline verbs are no symbols. They call pointers in the context,
 * in the extended CQ or in the extended QP, which are replaced here as soon
 * as the object exists.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* The header turns these names into macros; the functions are wanted here. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

#define SITES_MAX 1024
#define OBJECTS_MAX 8192
#define TABLES_MAX 64

/* Faults that are no errno value. Statuses of a completion: STATUS + n. */
enum {
	SHORT = 1000,	/* transfer half of the bytes */
	END,		/* as if the peer had closed the connection */
	NOTHING,	/* as if the time had passed without an event */
	EMPTY,		/* a list with nothing in it */
	NEGATIVE,	/* -1, which is not an errno value */
	KILL,		/* the program dies before the call */
	STOP,		/* the program is stopped before the call */
	OFF,		/* the machine, a guest, ends before the call */
	EAI = 2000,	/* an error of getaddrinfo(), which is negative */
	STATUS = 3000,
};

static const struct {
	const char *name;
	int fault;
} special[] = {
	{ "short", SHORT },
	{ "end", END },
	{ "nothing", NOTHING },
	{ "empty", EMPTY },
	{ "negative", NEGATIVE },
	{ "kill", KILL },
	{ "stop", STOP },
	{ "off", OFF },
	{ "EAI_AGAIN", EAI - EAI_AGAIN },
	{ "EAI_FAIL", EAI - EAI_FAIL },
	{ "EAI_MEMORY", EAI - EAI_MEMORY },
	{ "EAI_NONAME", EAI - EAI_NONAME },
	{ "EAI_SYSTEM", EAI - EAI_SYSTEM },
};

/* All statuses that a failed completion can have. */
#define STATUSES "status1 status2 status3 status4 status5 status6 status7 " \
	"status8 status9 status10 status11 status12 status13 status14 " \
	"status15 status16 status17 status18 status19 status20 status21 " \
	"status22 status23"

enum kind {
	DEVICE_LIST, CONTEXT, PD, MR, MW, CHANNEL, CQ, QP, AH, SRQ,
	MEMORY, MAPPING, DESCRIPTOR, STREAM, ADDRESSES, THREAD,
	EVENT_CHANNEL, CM_ID, CM_EVENT, CM_QP, CM_ADDRESSES
};

static const char *const kind_name[] = {
	"device-list", "context", "pd", "mr", "mw", "channel", "cq", "qp",
	"ah", "srq", "memory", "mapping", "descriptor", "stream", "addresses",
	"thread", "event-channel", "cm-id", "cm-event", "cm-qp", "cm-addresses"
};

struct site {
	const char *function;
	const char *faults;
	const void *address;
	char place[64];
	int count;
};

struct object {
	const void *object;
	const void *site;	/* where it was made; NULL: a free entry */
	enum kind kind;
	bool tried;		/* to release it, in vain */
};

/* The functions that stood in a context or a CQ before ours. */
struct table {
	const void *owner;
	struct ibv_context_ops ops;
	struct verbs_context verbs;
	struct ibv_cq_ex cq;
	int (*wr_complete)(struct ibv_qp_ex *qp);
};

static struct site sites[SITES_MAX];
static struct object objects[OBJECTS_MAX];
static struct table tables[TABLES_MAX];
static int site_count, table_count;
static atomic_flag locked = ATOMIC_FLAG_INIT;
static uintptr_t program_base, program_end;
static const char *report_path;
static bool ready, library_calls, injected, release_refused;

static char wanted_function[64], wanted_site[64], wanted_word[32];
static int wanted_number, wanted_fault;

/* Declares `next`, the definition of @function that comes after ours. */
#define NEXT(function)						\
	static __typeof__(function) *next;			\
								\
	if (!next)						\
		*(void **)&next = dlsym(RTLD_NEXT, #function)

#define HERE __builtin_return_address(0)

/* Counts this call of @function. The fault that it has to fail with, or 0. */
#define FAULT(function, faults) fault_at(#function, faults, HERE)

static void lock(void)
{
	while (atomic_flag_test_and_set(&locked))
		;
}

static void unlock(void)
{
	atomic_flag_clear(&locked);
}

static bool in_program(const void *address)
{
	uintptr_t a = (uintptr_t)address;

	return a >= program_base && a < program_end;
}

/* Libraries whose calls have to succeed: sanitizers, the loader and this. */
static bool is_exempt(const char *library)
{
	return strstr(library, "san.so") || strncmp(library, "ld-", 3) == 0 ||
	       strcmp(library, "calls.so") == 0 || !*library;
}

/* Writes the place @address as text: an offset, in a library with its name. */
static void place(const void *address, char text[64])
{
	const char *name;
	Dl_info info;

	text[0] = '\0';
	if (in_program(address)) {
		snprintf(text, 64, "0x%zx", (uintptr_t)address - program_base);
	} else if (dladdr(address, &info) && info.dli_fname) {
		name = strrchr(info.dli_fname, '/');
		name = name ? name + 1 : info.dli_fname;
		if (!is_exempt(name))
			snprintf(text, 64, "%s+0x%zx", name,
				 (size_t)((const char *)address -
					  (const char *)info.dli_fbase));
	}
}

/* Resets the machine without a word to anybody, see sysrq in proc(5). */
static void machine_off(void)
{
	long sysrq = syscall(SYS_open, "/proc/sysrq-trigger", O_WRONLY);

	if (sysrq < 0 || syscall(SYS_write, sysrq, "b", 1) != 1)
		abort();
	for (;;)
		syscall(SYS_pause);
}

static int fault_at(const char *function, const char *faults,
		    const void *address)
{
	struct site *site = NULL;
	int fault = 0;

	if (!ready || in_program(address) == library_calls)
		return 0;

	lock();
	for (int i = 0; i < site_count && !site; i++)
		if (sites[i].address == address &&
		    strcmp(sites[i].function, function) == 0)
			site = &sites[i];
	if (!site && site_count < SITES_MAX) {
		site = &sites[site_count++];
		site->function = function;
		site->faults = faults;
		site->address = address;
		place(address, site->place);
	}
	if (site && ++site->count == wanted_number && !injected &&
	    strcmp(function, wanted_function) == 0 &&
	    strcmp(site->place, wanted_site) == 0) {
		injected = true;
		fault = wanted_fault;
	}
	unlock();

	if (fault == OFF)
		machine_off();
	if (fault == KILL || fault == STOP) {
		raise(fault == KILL ? SIGKILL : SIGSTOP);
		fault = 0;
	}
	return fault;
}

/* --- what exists --- */

static struct object *find_object(enum kind kind, const void *object)
{
	for (int i = 0; i < OBJECTS_MAX; i++)
		if (objects[i].site && objects[i].object == object &&
		    objects[i].kind == kind)
			return &objects[i];
	return NULL;
}

/*
 * The program made @object, by a call from @site. The standard descriptors stay
 * open until the end.
 */
static void made(enum kind kind, const void *object, const void *site)
{
	if (!ready || !in_program(site) ||
	    (kind == DESCRIPTOR && (intptr_t)object <= STDERR_FILENO))
		return;

	lock();
	for (int i = 0; i < OBJECTS_MAX; i++) {
		if (!objects[i].site) {
			objects[i] = (struct object){
				.object = object, .site = site, .kind = kind
			};
			break;
		}
	}
	unlock();
}

static void line(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* Adds a line to the report. stdio would disturb the program's own. */
static void line(const char *format, ...)
{
	char text[512];
	va_list args;
	long fd;
	int n;

	if (!report_path)
		return;
	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fd = syscall(SYS_openat, AT_FDCWD, report_path,
		     O_WRONLY | O_APPEND | O_CREAT, 0644);
	if (fd >= 0) {
		syscall(SYS_write, fd, text, (size_t)n);
		syscall(SYS_close, fd);
	}
}

/* Is there anything to release? If not, the program releases it twice. */
static bool exists(enum kind kind, const void *object, const void *site)
{
	char where[64];
	bool found;

	if (!ready || !in_program(site))
		return true;
	lock();
	found = find_object(kind, object);
	unlock();
	if (!found) {
		place(site, where);
		line("twice %s %s\n", kind_name[kind], where);
	}
	return found;
}

/* The release of @object gave @result; not 0: it is still there. */
static void released(enum kind kind, const void *object, int result)
{
	struct object *o;

	lock();
	o = find_object(kind, object);
	if (o && result)
		o->tried = true;
	else if (o)
		*o = (struct object){ 0 };
	/* Most likely, because a call of the library's was made fail. */
	if (result && library_calls && injected)
		release_refused = true;
	unlock();
}

/* A release was made fail: what depends on @object cannot be released. */
static void refused(enum kind kind, const void *object)
{
	release_refused = true;
	released(kind, object, -1);
}

static const void *descriptor(int fd)
{
	return (const void *)(intptr_t)fd;
}

/* --- begin and end --- */

static int fault_number(const char *name)
{
	int status;

	for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (strcmp(name, special[i].name) == 0)
			return special[i].fault;
	if (sscanf(name, "status%d", &status) == 1)
		return STATUS + status;
	for (int err = 1; err < 134; err++) {
		const char *known = strerrorname_np(err);

		if (known && strcmp(name, known) == 0)
			return err;
	}
	return 0;
}

/* The first object of the process is the program itself. */
static int find_program(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	program_base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t end = info->dlpi_addr + header->p_vaddr +
				header->p_memsz;

		if (header->p_type == PT_LOAD && end > program_end)
			program_end = end;
	}
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	const char *wanted = getenv("TORTURE");
	const char *whose = getenv("TORTURE_WHOSE");

	report_path = getenv("TORTURE_REPORT");
	library_calls = whose && strcmp(whose, "library") == 0;
	if (wanted && sscanf(wanted, "%63s %63s %d %31s", wanted_function,
			     wanted_site, &wanted_number, wanted_word) == 4)
		wanted_fault = fault_number(wanted_word);
	dl_iterate_phdr(find_program, NULL);
	ready = true;
}

__attribute__((destructor)) static void end(void)
{
	char where[64];

	ready = false;
	for (int i = 0; i < site_count; i++)
		if (sites[i].place[0]) /* otherwise its library is exempt */
			line("call %s %s %d %s\n", sites[i].function,
			     sites[i].place, sites[i].count, sites[i].faults);
	if (injected)
		line("failed %s %s %d %s\n", wanted_function, wanted_site,
		     wanted_number, wanted_word);
	for (int i = 0; i < OBJECTS_MAX; i++) {
		struct object *o = &objects[i];

		if (o->site && !(o->tried && release_refused)) {
			place(o->site, where);
			line("leaked %s %s\n", kind_name[o->kind], where);
		}
	}
	line("end\n");
}

/* Names of functions and types cannot stand in parentheses. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* --- verbs that make something, and give NULL and errno --- */

#define MAKES(kind, type, function, faults, parameters, arguments)	\
	type *function parameters					\
	{								\
		int fault = FAULT(function, faults);			\
		type *object;						\
									\
		NEXT(function);						\
		if (fault) {						\
			errno = fault;					\
			return NULL;					\
		}							\
		object = next arguments;				\
		if (object)						\
			made(kind, object, HERE);			\
		return object;						\
	}

/* --- verbs that release something, and give an errno value --- */

#define RELEASES(kind, type, function)					\
	int function(type *object)					\
	{								\
		int fault = FAULT(function, "EBUSY EIO");		\
		int result;						\
									\
		NEXT(function);						\
		if (fault) {						\
			refused(kind, object);				\
			return fault;					\
		}							\
		if (!exists(kind, object, HERE))			\
			return EINVAL;					\
		result = next(object);					\
		released(kind, object, result);				\
		return result;						\
	}

/* --- verbs that give an errno value, and have nothing to count --- */

#define DOES(function, faults, parameters, arguments)			\
	int function parameters						\
	{								\
		int fault = FAULT(function, faults);			\
									\
		NEXT(function);						\
		return fault ? fault : next arguments;			\
	}

/* NOLINTEND(bugprone-macro-parentheses) */

MAKES(PD, struct ibv_pd, ibv_alloc_pd, "ENOMEM EIO",
      (struct ibv_context *context), (context))
RELEASES(PD, struct ibv_pd, ibv_dealloc_pd)

MAKES(MR, struct ibv_mr, ibv_reg_mr, "ENOMEM EINVAL EFAULT EAGAIN",
      (struct ibv_pd *pd, void *addr, size_t length, int access),
      (pd, addr, length, access))
MAKES(MR, struct ibv_mr, ibv_reg_mr_iova, "ENOMEM EINVAL EFAULT",
      (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
       int access), (pd, addr, length, iova, access))
MAKES(MR, struct ibv_mr, ibv_reg_mr_iova2, "ENOMEM EINVAL EFAULT EAGAIN",
      (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
       unsigned int access), (pd, addr, length, iova, access))
RELEASES(MR, struct ibv_mr, ibv_dereg_mr)

MAKES(CHANNEL, struct ibv_comp_channel, ibv_create_comp_channel,
      "ENOMEM EMFILE", (struct ibv_context *context), (context))
RELEASES(CHANNEL, struct ibv_comp_channel, ibv_destroy_comp_channel)

MAKES(CQ, struct ibv_cq, ibv_create_cq, "ENOMEM EINVAL",
      (struct ibv_context *context, int cqe, void *cq_context,
       struct ibv_comp_channel *channel, int comp_vector),
      (context, cqe, cq_context, channel, comp_vector))
RELEASES(CQ, struct ibv_cq, ibv_destroy_cq)

MAKES(QP, struct ibv_qp, ibv_create_qp, "ENOMEM EINVAL",
      (struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (pd, attr))
RELEASES(QP, struct ibv_qp, ibv_destroy_qp)

MAKES(AH, struct ibv_ah, ibv_create_ah, "ENOMEM EINVAL",
      (struct ibv_pd *pd, struct ibv_ah_attr *attr), (pd, attr))
RELEASES(AH, struct ibv_ah, ibv_destroy_ah)

MAKES(SRQ, struct ibv_srq, ibv_create_srq, "ENOMEM EINVAL",
      (struct ibv_pd *pd, struct ibv_srq_init_attr *attr), (pd, attr))
RELEASES(SRQ, struct ibv_srq, ibv_destroy_srq)

DOES(ibv_query_device, "EIO ENOMEM",
     (struct ibv_context *context, struct ibv_device_attr *attr),
     (context, attr))
DOES(ibv_query_qp, "EIO ENOMEM EINVAL",
     (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
      struct ibv_qp_init_attr *init), (qp, attr, mask, init))
DOES(ibv_modify_qp, "EINVAL ENOMEM EIO ETIMEDOUT ENETUNREACH",
     (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask),
     (qp, attr, mask))
DOES(ibv_modify_srq, "EINVAL ENOMEM",
     (struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask),
     (srq, attr, mask))
DOES(ibv_resize_cq, "ENOMEM EINVAL", (struct ibv_cq *cq, int cqe), (cq, cqe))

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	int fault = FAULT(ibv_query_gid, "EIO ENODATA");

	NEXT(ibv_query_gid);
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(context, port, index, gid);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
		   __be16 *pkey)
{
	int fault = FAULT(ibv_query_pkey, "EIO");

	NEXT(ibv_query_pkey);
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(context, port, index, pkey);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	int fault = fault_at("ibv_query_gid_ex", "EIO ENOMEM ENODATA", HERE);

	NEXT(_ibv_query_gid_ex);
	return fault ? fault : next(context, port, index, entry, flags, size);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	int fault = FAULT(ibv_get_cq_event, "EIO EINTR EAGAIN");

	NEXT(ibv_get_cq_event);
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(channel, cq, cq_context);
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	int fault = FAULT(ibv_get_async_event, "EIO EINTR EAGAIN");

	NEXT(ibv_get_async_event);
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(context, event);
}

struct ibv_device **ibv_get_device_list(int *count)
{
	int fault = FAULT(ibv_get_device_list, "ENOMEM EPERM ENOSYS empty");
	struct ibv_device **list;

	NEXT(ibv_get_device_list);
	if (fault && fault != EMPTY) {
		errno = fault;
		return NULL;
	}
	list = next(count);
	if (list)
		made(DEVICE_LIST, (void *)list, HERE);
	if (list && fault)
		list[0] = NULL;
	if (fault && count)
		*count = 0;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	NEXT(ibv_free_device_list);
	if (!exists(DEVICE_LIST, (void *)list, HERE))
		return;
	next(list);
	released(DEVICE_LIST, (void *)list, 0);
}

/* --- the inline verbs --- */

static struct table *table_of(const void *owner)
{
	for (int i = table_count - 1; i >= 0; i--)
		if (tables[i].owner == owner)
			return &tables[i];
	abort();
}

/* An address may come again, after the object that had it was released. */
static struct table *new_table(const void *owner)
{
	for (int i = 0; i < table_count; i++) {
		if (tables[i].owner == owner) {
			tables[i] = (struct table){ .owner = owner };
			return &tables[i];
		}
	}
	if (table_count == TABLES_MAX)
		abort();
	tables[table_count] = (struct table){ .owner = owner };
	return &tables[table_count++];
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr)
{
	int fault = FAULT(ibv_post_send, "EINVAL ENOMEM EIO");

	if (fault) {
		*bad_wr = wr;
		return fault;
	}
	return table_of(qp->context)->ops.post_send(qp, wr, bad_wr);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	int fault = FAULT(ibv_post_recv, "EINVAL ENOMEM");

	if (fault) {
		*bad_wr = wr;
		return fault;
	}
	return table_of(qp->context)->ops.post_recv(qp, wr, bad_wr);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	int fault = FAULT(ibv_post_srq_recv, "EINVAL ENOMEM");

	if (fault) {
		*bad_wr = wr;
		return fault;
	}
	return table_of(srq->context)->ops.post_srq_recv(srq, wr, bad_wr);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int fault = FAULT(ibv_req_notify_cq, "EINVAL EIO");

	if (fault)
		return fault;
	return table_of(cq->context)->ops.req_notify_cq(cq, solicited_only);
}

/* Polls that find nothing are as many as they like, and so not counted. */
static int poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	int count = table_of(cq->context)->ops.poll_cq(cq, entries, wc);
	int fault = count > 0 ? FAULT(ibv_poll_cq, "negative " STATUSES) : 0;

	if (fault == NEGATIVE)
		return -1;
	if (fault >= STATUS && (int)wc->status == fault - STATUS)
		injected = false;	/* it is what came anyway */
	else if (fault >= STATUS)
		*wc = (struct ibv_wc){
			.wr_id = wc->wr_id,
			.qp_num = wc->qp_num,
			.status = fault - STATUS,
		};
	return count;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr, size_t size)
{
	int fault = FAULT(ibv_query_port, "EIO ENOMEM EINVAL");

	if (fault)
		return fault;
	return table_of(context)->verbs.query_port(context, port, attr, size);
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	int fault = FAULT(ibv_query_device_ex, "EIO ENOMEM");

	if (fault)
		return fault;
	return table_of(context)->verbs.query_device_ex(context, input, attr,
							 size);
}

static void end_poll(struct ibv_cq_ex *cq)
{
	table_of(cq)->cq.end_poll(cq);
}

static int completion_ex(struct ibv_cq_ex *cq, int fault)
{
	if (fault < STATUS)
		return fault;
	if ((int)cq->status == fault - STATUS)
		injected = false;
	cq->status = fault - STATUS;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	int result = table_of(cq)->cq.start_poll(cq, attr);
	int fault = result ? 0 : FAULT(ibv_start_poll, "EIO " STATUSES);

	/* A poll that could not start is not ended, either. */
	if (fault && fault < STATUS)
		table_of(cq)->cq.end_poll(cq);
	return result ? result : completion_ex(cq, fault);
}

static int next_poll(struct ibv_cq_ex *cq)
{
	int result = table_of(cq)->cq.next_poll(cq);

	return result ? result :
	       completion_ex(cq, FAULT(ibv_next_poll, "EIO " STATUSES));
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context,
				      struct ibv_cq_init_attr_ex *attr)
{
	int fault = FAULT(ibv_create_cq_ex, "ENOMEM EINVAL EOPNOTSUPP");
	struct ibv_cq_ex *cq;

	if (fault) {
		errno = fault;
		return NULL;
	}
	cq = table_of(context)->verbs.create_cq_ex(context, attr);
	if (cq) {
		made(CQ, ibv_cq_ex_to_cq(cq), HERE);
		new_table(cq)->cq = *cq;
		cq->start_poll = start_poll;
		cq->next_poll = next_poll;
		cq->end_poll = end_poll;
	}
	return cq;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	int fault = FAULT(ibv_wr_complete, "EINVAL ENOMEM");

	if (fault) {
		ibv_wr_abort(qp);
		return fault;
	}
	return table_of(qp)->wr_complete(qp);
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr)
{
	int fault = FAULT(ibv_create_qp_ex, "ENOMEM EINVAL EOPNOTSUPP");
	struct ibv_qp *qp;

	if (fault) {
		errno = fault;
		return NULL;
	}
	qp = table_of(context)->verbs.create_qp_ex(context, attr);
	if (!qp)
		return NULL;
	made(QP, qp, HERE);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

		new_table(ex)->wr_complete = ex->wr_complete;
		ex->wr_complete = wr_complete;
	}
	return qp;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	int fault = FAULT(ibv_alloc_mw, "ENOMEM EINVAL");
	struct ibv_mw *mw;

	if (fault) {
		errno = fault;
		return NULL;
	}
	mw = table_of(pd->context)->ops.alloc_mw(pd, type);
	if (mw)
		made(MW, mw, HERE);
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int fault = FAULT(ibv_dealloc_mw, "EBUSY EIO"), result;

	if (fault) {
		refused(MW, mw);
		return fault;
	}
	if (!exists(MW, mw, HERE))
		return EINVAL;
	result = table_of(mw->context)->ops.dealloc_mw(mw);
	released(MW, mw, result);
	return result;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int fault = FAULT(ibv_open_device, "ENOENT EACCES ENOMEM EMFILE");
	struct verbs_context *verbs;
	struct ibv_context *context;
	struct table *table;

	NEXT(ibv_open_device);
	if (fault) {
		errno = fault;
		return NULL;
	}
	context = next(device);
	if (!context)
		return NULL;

	made(CONTEXT, context, HERE);
	table = new_table(context);
	table->ops = context->ops;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.poll_cq = poll_cq;
	context->ops.alloc_mw = alloc_mw;
	context->ops.dealloc_mw = dealloc_mw;

	verbs = verbs_get_ctx(context);
	if (verbs) {
		table->verbs = *verbs;
		verbs->query_port = query_port;
		verbs->query_device_ex = query_device_ex;
		verbs->create_cq_ex = create_cq_ex;
		verbs->create_qp_ex = create_qp_ex;
	}
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	int fault = FAULT(ibv_close_device, "EIO"), result;

	NEXT(ibv_close_device);
	if (fault) {
		refused(CONTEXT, context);
		errno = fault;
		return -1;
	}
	if (!exists(CONTEXT, context, HERE)) {
		errno = EINVAL;
		return -1;
	}
	result = next(context);
	released(CONTEXT, context, result);
	return result;
}

/* --- memory --- */

/*
 * AddressSanitizer has to be the first to see these, and reports by itself
 * what happens to memory: calls.so for a program built with it has none.
 */
#ifndef SANITIZED

/* dlsym() may want memory before it can say where malloc() is. */
static char early_memory[4096];
static size_t early_used;

static void *early(size_t size)
{
	void *memory = early_memory + early_used;

	early_used += (size + 15) & ~(size_t)15;
	if (early_used > sizeof(early_memory))
		abort();
	return memory;
}

static bool is_early(const void *memory)
{
	const char *m = memory;

	return m >= early_memory && m < early_memory + sizeof(early_memory);
}

void *malloc(size_t size)
{
	static bool looking;
	int fault = FAULT(malloc, "ENOMEM");
	void *memory;

	if (looking)
		return early(size);
	looking = true;
	NEXT(malloc);
	looking = false;
	if (fault) {
		errno = fault;
		return NULL;
	}
	memory = next(size);
	if (memory)
		made(MEMORY, memory, HERE);
	return memory;
}

void *calloc(size_t count, size_t size)
{
	static bool looking;
	int fault = FAULT(calloc, "ENOMEM");
	void *memory;

	if (looking)
		return early(count * size);
	looking = true;
	NEXT(calloc);
	looking = false;
	if (fault) {
		errno = fault;
		return NULL;
	}
	memory = next(count, size);
	if (memory)
		made(MEMORY, memory, HERE);
	return memory;
}

void *realloc(void *old, size_t size)
{
	int fault = FAULT(realloc, "ENOMEM");
	void *memory;

	NEXT(realloc);
	if (fault) {
		errno = fault;
		return NULL;
	}
	memory = next(old, size);
	if (memory) {
		if (old)
			released(MEMORY, old, 0);
		made(MEMORY, memory, HERE);
	}
	return memory;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	int fault = FAULT(aligned_alloc, "ENOMEM");
	void *memory;

	NEXT(aligned_alloc);
	if (fault) {
		errno = fault;
		return NULL;
	}
	memory = next(alignment, size);
	if (memory)
		made(MEMORY, memory, HERE);
	return memory;
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	int fault = FAULT(posix_memalign, "ENOMEM"), result;

	NEXT(posix_memalign);
	if (fault)
		return fault;
	result = next(memory, alignment, size);
	if (!result)
		made(MEMORY, *memory, HERE);
	return result;
}

void free(void *memory)
{
	NEXT(free);
	if (!memory || is_early(memory))
		return;
	if (ready)
		released(MEMORY, memory, 0);
	next(memory);
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd,
	   off_t offset)
{
	int fault = FAULT(mmap, "ENOMEM EAGAIN");
	void *memory;

	NEXT(mmap);
	if (fault) {
		errno = fault;
		return MAP_FAILED;
	}
	memory = next(addr, length, prot, flags, fd, offset);
	if (memory != MAP_FAILED)
		made(MAPPING, memory, HERE);
	return memory;
}

int munmap(void *addr, size_t length)
{
	int fault = FAULT(munmap, "ENOMEM"), result;

	NEXT(munmap);
	if (fault) {
		refused(MAPPING, addr);
		errno = fault;
		return -1;
	}
	result = next(addr, length);
	if (ready)
		released(MAPPING, addr, result);
	return result;
}

#endif /* SANITIZED */

/* --- functions that give -1 and errno --- */

#define CALL(type, function, faults, parameters, arguments)		\
	type function parameters					\
	{								\
		int fault = FAULT(function, faults);			\
									\
		NEXT(function);						\
		if (fault) {						\
			errno = fault;					\
			return -1;					\
		}							\
		return next arguments;					\
	}

/* The same for those that give a new file descriptor. */
#define OPENS(function, faults, parameters, arguments)			\
	int function parameters						\
	{								\
		int fault = FAULT(function, faults);			\
		int opened;						\
									\
		NEXT(function);						\
		if (fault) {						\
			errno = fault;					\
			return -1;					\
		}							\
		opened = next arguments;				\
		if (opened >= 0)					\
			made(DESCRIPTOR, descriptor(opened), HERE);	\
		return opened;						\
	}

OPENS(socket, "EMFILE ENOBUFS EAFNOSUPPORT",
      (int domain, int type, int protocol), (domain, type, protocol))
OPENS(accept, "EMFILE ECONNABORTED EINTR EAGAIN ENOMEM",
      (int fd, __SOCKADDR_ARG addr, socklen_t *size), (fd, addr, size))
OPENS(accept4, "EMFILE ECONNABORTED EINTR EAGAIN ENOMEM",
      (int fd, __SOCKADDR_ARG addr, socklen_t *size, int flags),
      (fd, addr, size, flags))
OPENS(eventfd, "EMFILE ENOMEM", (unsigned int value, int flags),
      (value, flags))
OPENS(dup, "EMFILE", (int fd), (fd))

CALL(int, bind, "EADDRINUSE EACCES EADDRNOTAVAIL",
     (int fd, __CONST_SOCKADDR_ARG addr, socklen_t size), (fd, addr, size))
CALL(int, listen, "EADDRINUSE ENOBUFS", (int fd, int backlog), (fd, backlog))
CALL(int, connect, "ECONNREFUSED ETIMEDOUT ENETUNREACH EINTR",
     (int fd, __CONST_SOCKADDR_ARG addr, socklen_t size), (fd, addr, size))
CALL(int, getsockname, "ENOBUFS",
     (int fd, __SOCKADDR_ARG addr, socklen_t *size), (fd, addr, size))
CALL(int, getpeername, "ENOTCONN",
     (int fd, __SOCKADDR_ARG addr, socklen_t *size), (fd, addr, size))
CALL(int, getsockopt, "ENOPROTOOPT ENOBUFS",
     (int fd, int level, int option, void *value, socklen_t *size),
     (fd, level, option, value, size))
CALL(int, shutdown, "ENOTCONN", (int fd, int how), (fd, how))
CALL(int, setrlimit, "EPERM", (__rlimit_resource_t resource,
     const struct rlimit *limit), (resource, limit))
CALL(int, nanosleep, "EINTR",
     (const struct timespec *time, struct timespec *left), (time, left))
CALL(int, usleep, "EINTR", (useconds_t usec), (usec))
CALL(ssize_t, getrandom, "ENOSYS EINTR",
     (void *buffer, size_t size, unsigned int flags), (buffer, size, flags))
CALL(int, mlock, "ENOMEM EPERM", (const void *addr, size_t size),
     (addr, size))
CALL(pid_t, fork, "EAGAIN ENOMEM", (void), ())

/* --- librdmacm, which gives -1 and errno as well --- */

/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Those that put a new object into *@object. */
#define OBTAINS(kind, function, faults, parameters, arguments, object)	\
	int function parameters						\
	{								\
		int fault = FAULT(function, faults);			\
		int result;						\
									\
		NEXT(function);						\
		if (fault) {						\
			errno = fault;					\
			return -1;					\
		}							\
		result = next arguments;				\
		if (result == 0)					\
			made(kind, object, HERE);			\
		return result;						\
	}

/* Those that release @object; if they are made to fail, it stays. */
#define GIVES_BACK(kind, type, function)				\
	int function(type *object)					\
	{								\
		int fault = FAULT(function, "EIO");			\
		int result;						\
									\
		NEXT(function);						\
		if (fault) {						\
			refused(kind, object);				\
			errno = fault;					\
			return -1;					\
		}							\
		if (!exists(kind, object, HERE)) {			\
			errno = EINVAL;					\
			return -1;					\
		}							\
		result = next(object);					\
		released(kind, object, result);				\
		return result;						\
	}

/* Those that release @object and cannot fail. */
#define DISPOSES(kind, type, function)					\
	void function(type *object)					\
	{								\
		NEXT(function);						\
		if (!exists(kind, object, HERE))			\
			return;						\
		next(object);						\
		released(kind, object, 0);				\
	}

/* NOLINTEND(bugprone-macro-parentheses) */

MAKES(EVENT_CHANNEL, struct rdma_event_channel, rdma_create_event_channel,
      "ENOENT EMFILE", (void), ())
DISPOSES(EVENT_CHANNEL, struct rdma_event_channel, rdma_destroy_event_channel)

OBTAINS(CM_ID, rdma_create_id, "ENOMEM ENODEV",
	(struct rdma_event_channel *channel, struct rdma_cm_id **id,
	 void *context, enum rdma_port_space ps),
	(channel, id, context, ps), *id)
GIVES_BACK(CM_ID, struct rdma_cm_id, rdma_destroy_id)

OBTAINS(CM_ID, rdma_create_ep, "ENOMEM EADDRINUSE ETIMEDOUT",
	(struct rdma_cm_id **id, struct rdma_addrinfo *addr, struct ibv_pd *pd,
	 struct ibv_qp_init_attr *init), (id, addr, pd, init), *id)
OBTAINS(CM_ID, rdma_get_request, "ENOMEM EINTR",
	(struct rdma_cm_id *listener, struct rdma_cm_id **id),
	(listener, id), *id)
DISPOSES(CM_ID, struct rdma_cm_id, rdma_destroy_ep)

OBTAINS(CM_EVENT, rdma_get_cm_event, "EAGAIN EIO",
	(struct rdma_event_channel *channel, struct rdma_cm_event **event),
	(channel, event), *event)

OBTAINS(CM_ADDRESSES, rdma_getaddrinfo, "EINVAL",
	(const char *node, const char *service,
	 const struct rdma_addrinfo *hints, struct rdma_addrinfo **list),
	(node, service, hints, list), *list)
DISPOSES(CM_ADDRESSES, struct rdma_addrinfo, rdma_freeaddrinfo)

OBTAINS(CM_QP, rdma_create_qp, "ENOMEM EINVAL",
	(struct rdma_cm_id *id, struct ibv_pd *pd,
	 struct ibv_qp_init_attr *init), (id, pd, init), id)
DISPOSES(CM_QP, struct rdma_cm_id, rdma_destroy_qp)

CALL(int, rdma_bind_addr, "EADDRINUSE EADDRNOTAVAIL",
     (struct rdma_cm_id *id, struct sockaddr *addr), (id, addr))
CALL(int, rdma_listen, "EADDRINUSE ENOMEM",
     (struct rdma_cm_id *id, int backlog), (id, backlog))
CALL(int, rdma_resolve_addr, "ENODEV ENETUNREACH",
     (struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
      int ms), (id, from, to, ms))
CALL(int, rdma_resolve_route, "ENODEV EINVAL",
     (struct rdma_cm_id *id, int ms), (id, ms))
CALL(int, rdma_set_option, "EINVAL ENOSYS",
     (struct rdma_cm_id *id, int level, int name, void *value, size_t size),
     (id, level, name, value, size))
CALL(int, rdma_connect, "ECONNREFUSED EINVAL ENOMEM",
     (struct rdma_cm_id *id, struct rdma_conn_param *param), (id, param))
CALL(int, rdma_accept, "EINVAL ENOMEM",
     (struct rdma_cm_id *id, struct rdma_conn_param *param), (id, param))
CALL(int, rdma_disconnect, "EINVAL EIO", (struct rdma_cm_id *id), (id))

/* With the event of a request comes a new identifier. */
int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	int fault = FAULT(rdma_ack_cm_event, "EIO");
	struct rdma_cm_id *id = NULL;
	int result;

	NEXT(rdma_ack_cm_event);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		id = event->id;
	if (!exists(CM_EVENT, event, HERE)) {
		errno = EINVAL;
		return -1;
	}
	/* Without it, rdma_destroy_id() would wait for ever. */
	result = next(event);
	released(CM_EVENT, event, result);
	if (id)
		made(CM_ID, id, HERE);
	if (fault) {
		errno = fault;
		return -1;
	}
	return result;
}

/* For a socket option, the option is a part of the function's name. */
int setsockopt(int fd, int level, int option, const void *value,
	       socklen_t size)
{
	const char *name = "setsockopt";
	int fault;

	NEXT(setsockopt);
	if (level == SOL_SOCKET && option == SO_RCVTIMEO)
		name = "setsockopt(SO_RCVTIMEO)";
	if (level == SOL_SOCKET && option == SO_SNDTIMEO)
		name = "setsockopt(SO_SNDTIMEO)";
	fault = fault_at(name, "ENOBUFS EINVAL", HERE);
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(fd, level, option, value, size);
}

/* Those that transfer bytes: half of them, or the end. */
#define TRANSFERS(function, faults, parameters, whole, half)		\
	ssize_t function parameters					\
	{								\
		int fault = FAULT(function, faults);			\
									\
		NEXT(function);						\
		if (fault == END)					\
			return 0;					\
		if (fault == SHORT && size > 1)				\
			return next half;				\
		if (fault && fault != SHORT) {				\
			errno = fault;					\
			return -1;					\
		}							\
		return next whole;					\
	}

TRANSFERS(recv, "ECONNRESET EAGAIN EINTR short end",
	  (int fd, void *buffer, size_t size, int flags),
	  (fd, buffer, size, flags), (fd, buffer, size / 2, flags))
TRANSFERS(send, "EPIPE ECONNRESET EAGAIN EINTR short",
	  (int fd, const void *buffer, size_t size, int flags),
	  (fd, buffer, size, flags), (fd, buffer, size / 2, flags))
TRANSFERS(read, "EIO EINTR short end",
	  (int fd, void *buffer, size_t size),
	  (fd, buffer, size), (fd, buffer, size / 2))
TRANSFERS(write, "EIO ENOSPC EINTR short",
	  (int fd, const void *buffer, size_t size),
	  (fd, buffer, size), (fd, buffer, size / 2))

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	int fault = FAULT(poll, "ENOMEM EINTR nothing");

	NEXT(poll);
	if (fault == NOTHING) {
		for (nfds_t i = 0; i < count; i++)
			fds[i].revents = 0;
		return 0;
	}
	if (fault) {
		errno = fault;
		return -1;
	}
	return next(fds, count, timeout);
}

int close(int fd)
{
	int fault = FAULT(close, "EIO EINTR"), result;

	NEXT(close);
	result = next(fd);
	if (ready)
		released(DESCRIPTOR, descriptor(fd), result);
	if (fault) {	/* Linux has closed it all the same */
		errno = fault;
		return -1;
	}
	return result;
}

int open(const char *path, int flags, ...)
{
	int fault = FAULT(open, "EMFILE EACCES ENOENT"), fd;
	va_list args;
	mode_t mode;

	NEXT(open);
	if (fault) {
		errno = fault;
		return -1;
	}
	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	fd = next(path, flags, mode);
	if (fd >= 0)
		made(DESCRIPTOR, descriptor(fd), HERE);
	return fd;
}

/* F_GETFD and F_GETFL fail only on a descriptor that is closed. */
int fcntl(int fd, int command, ...)
{
	bool safe = command == F_GETFD || command == F_GETFL;
	int fault = safe ? 0 : FAULT(fcntl, "EINVAL EMFILE");
	va_list args;
	void *argument;

	NEXT(fcntl);
	if (fault) {
		errno = fault;
		return -1;
	}
	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	return next(fd, command, argument);
}

int ioctl(int fd, unsigned long request, ...)
{
	int fault = FAULT(ioctl, "EIO ENOMEM EINVAL");
	va_list args;
	void *argument;

	NEXT(ioctl);
	if (fault) {
		errno = fault;
		return -1;
	}
	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	return next(fd, request, argument);
}

int prctl(int option, ...)
{
	int fault = FAULT(prctl, "EINVAL");
	unsigned long arg[4];
	va_list args;

	NEXT(prctl);
	if (fault) {
		errno = fault;
		return -1;
	}
	va_start(args, option);
	for (int i = 0; i < 4; i++)
		arg[i] = va_arg(args, unsigned long);
	va_end(args);
	return next(option, arg[0], arg[1], arg[2], arg[3]);
}

int pipe2(int fds[2], int flags)
{
	int fault = FAULT(pipe2, "EMFILE"), result;

	NEXT(pipe2);
	if (fault) {
		errno = fault;
		return -1;
	}
	result = next(fds, flags);
	for (int i = 0; i < 2 && !result; i++)
		made(DESCRIPTOR, descriptor(fds[i]), HERE);
	return result;
}

int pipe(int fds[2])
{
	int fault = FAULT(pipe, "EMFILE"), result;

	NEXT(pipe);
	if (fault) {
		errno = fault;
		return -1;
	}
	result = next(fds);
	for (int i = 0; i < 2 && !result; i++)
		made(DESCRIPTOR, descriptor(fds[i]), HERE);
	return result;
}

/* --- the rest of the C library --- */

int getaddrinfo(const char *node, const char *service,
		const struct addrinfo *hints, struct addrinfo **list)
{
	int fault = FAULT(getaddrinfo, "EAI_AGAIN EAI_FAIL EAI_MEMORY "
			  "EAI_NONAME EAI_SYSTEM");
	int result;

	NEXT(getaddrinfo);
	if (fault) {
		errno = EMFILE;
		return EAI - fault;
	}
	result = next(node, service, hints, list);
	if (!result)
		made(ADDRESSES, *list, HERE);
	return result;
}

void freeaddrinfo(struct addrinfo *list)
{
	NEXT(freeaddrinfo);
	if (!exists(ADDRESSES, list, HERE))
		return;
	released(ADDRESSES, list, 0);
	next(list);
}

FILE *fopen(const char *path, const char *mode)
{
	int fault = FAULT(fopen, "EMFILE EACCES ENOENT");
	FILE *stream;

	NEXT(fopen);
	if (fault) {
		errno = fault;
		return NULL;
	}
	stream = next(path, mode);
	if (stream)
		made(STREAM, stream, HERE);
	return stream;
}

int fclose(FILE *stream)
{
	int fault = FAULT(fclose, "EIO"), result;

	NEXT(fclose);
	if (ready)
		released(STREAM, stream, 0);
	result = next(stream);
	if (fault) {
		errno = fault;
		return EOF;
	}
	return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
		   void *(*start)(void *), void *arg)
{
	int fault = FAULT(pthread_create, "EAGAIN"), result;

	NEXT(pthread_create);
	if (fault)
		return fault;
	result = next(thread, attr, start, arg);
	if (!result)
		made(THREAD, (const void *)*thread, HERE);
	return result;
}

int pthread_join(pthread_t thread, void **result)
{
	NEXT(pthread_join);
	if (ready)
		released(THREAD, (const void *)thread, 0);
	return next(thread, result);
}
