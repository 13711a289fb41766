/*
 * context_pd_mr.c - memory that a device may use, and what is refused
 *
 * Registers one buffer once for every combination of four access flags, tries
 * what must be refused, and releases all of it in the only order there is.
 *
 * New since chapter 01: a protection domain (PD), the boundary within which
 * things may be used together; and in it memory regions (MR), which pin pages
 * so that a device can use them. A region has two keys: requests of our own
 * name it by its lkey, those of a peer by its rkey.
 *
 *	context_pd_mr		on the first device
 *	context_pd_mr -p	wait at the end: time for rdma resource show
 *
 *	$ context_pd_mr
 *	device:  rxe_0, the first
 *	context: /dev/infiniband/uverbs0, file descriptor 3
 *	limits:  1048576 PDs, 524287 MRs, 0xffffffffffffffff bytes in an MR
 *	         RLIMIT_MEMLOCK: 8388608 bytes in all MRs
 *	PD:      allocated
 *	MRs:     3000 bytes at 0x7f1a58377000, where the device may
 *	  L  IBV_ACCESS_LOCAL_WRITE    write, for us
 *	  ...
 *	  flags  lkey        rkey
 *	  ----   0x0000029c  0x00000000
 *	  ...
 *	  -WRA   refused: EINVAL
 *	  LWRA   0x00000bd6  0x00000bd6
 *	  W and A need L: writing for a peer is writing
 *	other tries, with L:
 *	  unmapped memory                    refused: EFAULT (Bad address)
 *	  ...
 *	ibv_dealloc_pd with 10 MRs: refused: EBUSY (Device or resource busy)
 *	released: ibv_dereg_mr
 *	...
 *	released: ibv_dealloc_pd
 *	released: ibv_close_device
 *	released: ibv_free_device_list
 *
 * See ibv_query_device(3), ibv_alloc_pd(3), ibv_dealloc_pd(3), ibv_reg_mr(3),
 * ibv_dereg_mr(3), getrlimit(2), mmap(2); and the InfiniBand Architecture
 * Specification, volume 1 (IBTA): 10.2.3 on protection domains, 10.6 on memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/options.h"

/* Bytes: any number will do, though it's whole pages that must stay. */
#define SIZE 3000

#define FLAGS 4
#define COMBINATIONS (1 << FLAGS)

/* What the device may do to a region, besides reading it for our sends. */
static const struct {
	int flag;
	char letter;
	const char *text;
} access_flags[FLAGS] = {
	{ IBV_ACCESS_LOCAL_WRITE, 'L', "LOCAL_WRITE    write, for us" },
	{ IBV_ACCESS_REMOTE_WRITE, 'W', "REMOTE_WRITE   write, for a peer" },
	{ IBV_ACCESS_REMOTE_READ, 'R', "REMOTE_READ    read, for a peer" },
	{ IBV_ACCESS_REMOTE_ATOMIC, 'A', "REMOTE_ATOMIC  read and write "
	  "8 bytes at once, for a peer" },
};

static struct ibv_device *find_device(struct ibv_device **list,
				      const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!name || strcmp(name, ibv_get_device_name(list[i])) == 0)
			return list[i];

	print_error(0, "no device called %s", name);
	for (int i = 0; list[i]; i++)
		print_hint("there is %s", ibv_get_device_name(list[i]));
	return NULL;
}

/* Map enough memory, with what mmap(2) calls @prot. NULL and errno if not. */
static void *map_memory(int prot)
{
	void *buf = mmap(NULL, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return buf == MAP_FAILED ? NULL : buf;
}

/* Register @buf once for every combination of flags; NULL if it is refused. */
static int register_all(struct ibv_pd *pd, void *buf,
			struct ibv_mr *mr[COMBINATIONS])
{
	for (int i = 0; i < COMBINATIONS; i++) {
		char letters[FLAGS + 1] = "----";
		int access = 0;

		for (int j = 0; j < FLAGS; j++) {
			if (i & 1 << j) {
				access |= access_flags[j].flag;
				letters[j] = access_flags[j].letter;
			}
		}

		mr[i] = ibv_reg_mr(pd, buf, SIZE, access);
		if (mr[i]) {
			printf("  %s   0x%08x  0x%08x\n", letters, mr[i]->lkey,
			       mr[i]->rkey);
		} else if (errno == EINVAL) {
			printf("  %s   refused: EINVAL\n", letters);
		} else {
			print_error(errno, "ibv_reg_mr(%d bytes, %s)", SIZE,
				    letters);
			print_hint("ulimit -l limits what may be registered");
			return -1;
		}
	}
	return 0;
}

/* Try to register @buf, and tell what comes of it. */
static int try_memory(struct ibv_pd *pd, void *buf, const char *what)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE);
	int err;

	if (!mr) {
		printf("  %-34s refused: %s (%s)\n", what,
		       strerrorname_np(errno), strerror(errno));
		return 0;
	}

	printf("  %-34s granted\n", what);
	err = ibv_dereg_mr(mr);
	if (err)
		print_error(err, "ibv_dereg_mr");
	return err;
}

/* Time to look: rdma resource show mr. The end of the input goes on, too. */
static void pause_if(bool wanted)
{
	int c;

	if (!wanted)
		return;
	puts("pause: Enter goes on");
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_device *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr[COMBINATIONS] = { NULL };
	struct ibv_device_attr attr;
	struct rlimit limit, low;
	void *buf = NULL, *constant = NULL, *gone;
	const char *name = NULL;
	bool pause = false;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device (the first)", .text = &name },
		{ 'p', "pause", NULL, "wait for Enter before the releases",
		  .flag = &pause },
		{ 0 }
	};
	int err, alive = 0, status = EXIT_FAILURE;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device: the first there is, or the one asked for. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = find_device(list, name);
	if (!device)
		goto out;
	printf("device:  %s, %s\n", ibv_get_device_name(device),
	       name ? "given with -d" : "the first");

	/* 2. Context: an open device, which to the kernel is an open file. */
	context = ibv_open_device(device);
	if (!context) {
		print_error(errno, "ibv_open_device");
		print_hint("may you read and write /dev/infiniband/%s?",
			   device->dev_name);
		goto out;
	}
	printf("context: /dev/infiniband/%s, file descriptor %d\n",
	       device->dev_name, context->cmd_fd);

	/* 3. Limits: the device's, and the kernel's for this process. */
	err = ibv_query_device(context, &attr);
	if (err) {
		print_error(err, "ibv_query_device");
		goto out;
	}
	printf("limits:  %d PDs, %d MRs, 0x%" PRIx64 " bytes in an MR\n",
	       attr.max_pd, attr.max_mr, attr.max_mr_size);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		puts("         no RLIMIT_MEMLOCK");
	else
		printf("         RLIMIT_MEMLOCK: %ju bytes in all MRs\n",
		       (uintmax_t)limit.rlim_cur);

	/* 4. Protection domain: the boundary. */
	pd = ibv_alloc_pd(context);
	if (!pd) {
		print_error(errno, "ibv_alloc_pd");
		goto out;
	}
	puts("PD:      allocated");

	/* 5. Memory regions: all of one buffer, each with other rights. */
	buf = map_memory(PROT_READ | PROT_WRITE);
	constant = map_memory(PROT_READ);
	gone = map_memory(PROT_READ | PROT_WRITE);
	if (!buf || !constant || !gone) {
		print_error(errno, "mmap(%d bytes)", SIZE);
		goto out;
	}
	printf("MRs:     %d bytes at %p, where the device may\n", SIZE, buf);
	for (int i = 0; i < FLAGS; i++)
		printf("  %c  IBV_ACCESS_%s\n", access_flags[i].letter,
		       access_flags[i].text);
	puts("  flags  lkey        rkey");
	if (register_all(pd, buf, mr))
		goto out;
	puts("  W and A need L: writing for a peer is writing");

	/* 6. Refusals: not our memory; not to be written; more than we may. */
	puts("other tries, with L:");
	munmap(gone, SIZE);
	if (try_memory(pd, gone, "unmapped memory") ||
	    try_memory(pd, constant, "read-only memory"))
		goto out;

	/* With 0 it would be EPERM. CAP_IPC_LOCK, which root has, exempts. */
	low = limit;
	low.rlim_cur = 1;
	setrlimit(RLIMIT_MEMLOCK, &low);
	err = try_memory(pd, buf, "RLIMIT_MEMLOCK of 1, but for root");
	setrlimit(RLIMIT_MEMLOCK, &limit);
	if (err)
		goto out;

	/* 7. The wrong order. It does no harm: the kernel keeps count. */
	for (int i = 0; i < COMBINATIONS; i++)
		alive += mr[i] != NULL;
	err = ibv_dealloc_pd(pd);
	if (err != EBUSY) {
		print_error(err, "ibv_dealloc_pd, not EBUSY");
		if (!err)
			pd = NULL;
		goto out;
	}
	printf("ibv_dealloc_pd with %d MRs: refused: EBUSY (%s)\n", alive,
	       strerror(err));
	pause_if(pause);
	status = EXIT_SUCCESS;

out:
	/*
	 * 8. The right order: what was made last goes first. From chapter 03
	 * on, RELEASE(ibv_dereg_mr, mr) in common/error.h stands for such a
	 * block: is there one? then release it, say so, and if that failed,
	 * fail.
	 */
	for (int i = COMBINATIONS - 1; i >= 0; i--) {
		if (!mr[i])
			continue;
		err = ibv_dereg_mr(mr[i]);
		if (err) {
			print_error(err, "ibv_dereg_mr");
			status = EXIT_FAILURE;
		} else {
			puts("released: ibv_dereg_mr");
		}
	}

	/* Only now: a device might still have written to the pages. */
	if (constant)
		munmap(constant, SIZE);
	if (buf)
		munmap(buf, SIZE);

	if (pd) {
		err = ibv_dealloc_pd(pd);
		if (err) {
			print_error(err, "ibv_dealloc_pd");
			status = EXIT_FAILURE;
		} else {
			puts("released: ibv_dealloc_pd");
		}
	}

	/* This one gives -1 and errno; and it would take all else along. */
	if (context) {
		if (ibv_close_device(context)) {
			print_error(errno, "ibv_close_device");
			status = EXIT_FAILURE;
		} else {
			puts("released: ibv_close_device");
		}
	}

	if (list) {
		ibv_free_device_list(list);
		puts("released: ibv_free_device_list");
	}
	return status;
}
