/*
 * context_pd_mr.c - memory that a device may use, and what is refused
 *
 * Registers a buffer, so that the device can use it; then registers the same
 * buffer once for every combination of four access flags. Tries what must be
 * refused, and releases everything in the order that works.
 *
 * New since chapter 01: a protection domain (PD) is a boundary, because a queue
 * pair can use only the memory of its own PD. A memory region (MR) is memory
 * that was registered in a PD: its pages are pinned, and it has two keys. Our
 * own requests name it by its lkey, a peer's requests by its rkey.
 *
 *	context_pd_mr		on the first device
 *	context_pd_mr -p	wait before the releases: look with
 *				rdma resource show mr
 *
 *	$ context_pd_mr
 *	device:  rxe_0, the first
 *	...
 *	PD:      allocated
 *	MR:      3000 bytes at 0x7f1a58377000, lkey 0x000001f4, rkey 0x00000000
 *	flags:   what the device may do, apart from reading for our sends
 *	  ...
 *	  flags  lkey        rkey
 *	  ...
 *	  -WRA   refused: EINVAL
 *	  LWRA   0x00000bd6  0x00000bd6
 *	...
 *	  NULL, which is not mapped refused: EFAULT (Bad address)
 *	...
 *	ibv_dealloc_pd with 11 MRs: refused: EBUSY (Device or resource busy)
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

#include "../common/checkpoint.h"
#include "../common/device.h"
#include "../common/error.h"
#include "../common/options.h"

/* In bytes. Any length can be registered; the kernel pins whole pages. */
#define SIZE 3000

/* The compiler puts this into memory that the program can only read. */
static const char constant[SIZE];

#define MEMLOCK_HINT                                                           \
	"ulimit -l shows how much you may register; "                          \
	"docs/setup.md says how to raise it"

#define FLAGS 4
#define COMBINATIONS (1 << FLAGS)

static const struct {
	int flag;
	char letter;
	const char *text;
} access_flags[FLAGS] = {
	{ IBV_ACCESS_LOCAL_WRITE, 'L',
	  "LOCAL_WRITE    write, for our own requests" },
	{ IBV_ACCESS_REMOTE_WRITE, 'W', "REMOTE_WRITE   write, for a peer" },
	{ IBV_ACCESS_REMOTE_READ, 'R', "REMOTE_READ    read, for a peer" },
	{ IBV_ACCESS_REMOTE_ATOMIC, 'A',
	  "REMOTE_ATOMIC  change 8 bytes in one step, for a peer" },
};

/*
 * Print the limits of the device, and the kernel's limit for this process.
 * Returns 0, or -1 after an error message.
 */
static int print_limits(struct ibv_context *context)
{
	struct ibv_device_attr attr;
	struct rlimit limit;

	if (failed(ibv_query_device(context, &attr), "ibv_query_device"))
		return -1;
	if (getrlimit(RLIMIT_MEMLOCK, &limit)) {
		print_error(errno, "getrlimit(RLIMIT_MEMLOCK)");
		return -1;
	}

	printf("limits:  %d PDs, %d MRs, 0x%" PRIx64 " bytes in an MR\n",
	       attr.max_pd, attr.max_mr, attr.max_mr_size);

	if (limit.rlim_cur == RLIM_INFINITY)
		puts("         no RLIMIT_MEMLOCK");
	else
		printf("         RLIMIT_MEMLOCK: %ju bytes pinned in all, "
		       "except for root\n", (uintmax_t)limit.rlim_cur);
	return 0;
}

/*
 * Register @buf once for every combination of access flags. Each region that
 * is granted goes to the end of @mr and adds 1 to @count, so that the caller
 * can release it. Returns 0, or -1 after an error message.
 */
static int register_all(struct ibv_pd *pd, void *buf, struct ibv_mr *mr[],
			int *count)
{
	for (int i = 0; i < COMBINATIONS; i++) {
		char letters[FLAGS + 1] = "----";
		struct ibv_mr *region;
		int access = 0;

		for (int j = 0; j < FLAGS; j++) {
			if (i & (1 << j)) {
				access |= access_flags[j].flag;
				letters[j] = access_flags[j].letter;
			}
		}

		region = ibv_reg_mr(pd, buf, SIZE, access);
		if (region) {
			printf("  %s   0x%08x  0x%08x\n", letters, region->lkey,
			       region->rkey);
			mr[(*count)++] = region;
		} else if (errno == EINVAL) {
			printf("  %s   refused: EINVAL\n", letters);
		} else {
			print_error(errno, "ibv_reg_mr(%d bytes, %s)", SIZE,
				    letters);
			print_hint(MEMLOCK_HINT);
			return -1;
		}
	}
	return 0;
}

/*
 * Try to register @buf, which is described by @what, and print the result. A
 * refusal is not an error here. A region that is granted is released at once.
 * Returns 0, or -1 after an error message.
 */
static int try_memory(struct ibv_pd *pd, const void *buf, const char *what)
{
	struct ibv_mr *mr =
		ibv_reg_mr(pd, (void *)buf, SIZE, IBV_ACCESS_LOCAL_WRITE);

	if (!mr) {
		const int err = errno;
		const char *name = strerrorname_np(err);	/* or NULL */

		printf("  %-25s refused: %s (%s)\n", what,
		       name ? name : "errno", strerror(err));
		return 0;
	}
	printf("  %-25s granted\n", what);
	return failed(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_device *device;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr[1 + COMBINATIONS];
	void *buf = MAP_FAILED;
	const char *name = NULL;
	bool pause = false;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "device (the first)", .text = &name },
		{ 'p', "pause", NULL, "wait for Enter before the releases",
		  .flag = &pause },
		{ 0 }
	};
	int err, count = 0, status = EXIT_FAILURE;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. Device and context, as in chapter 01. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	device = device_choose(list, name, NULL);
	if (!device)
		goto out;
	printf("device:  %s, %s\n", ibv_get_device_name(device),
	       name ? "given with -d" : "the first");

	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device")) {
		print_hint("do you have permission to read and write "
			   "/dev/infiniband/%s?",
			   device->dev_name);
		goto out;
	}
	printf("context: /dev/infiniband/%s, file descriptor %d\n",
	       device->dev_name, context->cmd_fd);

	/* 2. Limits: how much may we register? */
	if (print_limits(context))
		goto out;

	/* 3. Protection domain: a queue pair can use only MRs of its own PD. */
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	puts("PD:      allocated");

	/*
	 * 4. Memory region. Memory of malloc() would do, too. But that of
	 * mmap() begins where a page begins, so our region lies in one page.
	 */
	buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED) {
		print_error(errno, "mmap(%d bytes)", SIZE);
		goto out;
	}
	mr[0] = ibv_reg_mr(pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (missing(mr[0], "ibv_reg_mr(%d bytes)", SIZE)) {
		print_hint(MEMLOCK_HINT);
		goto out;
	}
	count = 1;
	printf("MR:      %d bytes at %p, lkey 0x%08x, rkey 0x%08x\n", SIZE,
	       mr[0]->addr, mr[0]->lkey, mr[0]->rkey);

	/* 5. Access flags: the same buffer again, with all combinations. */
	puts("flags:   what the device may do, apart from reading for our "
	     "sends");
	for (int i = 0; i < FLAGS; i++)
		printf("  %c  IBV_ACCESS_%s\n", access_flags[i].letter,
		       access_flags[i].text);
	puts("  flags  lkey        rkey");
	if (register_all(pd, buf, mr, &count))
		goto out;
	puts("  W and A need L: our own device does the writing for a peer");

	/* 6. Memory that we cannot write to: the device must not either. */
	puts("other memory, with L:");
	if (try_memory(pd, NULL, "NULL, which is not mapped") ||
	    try_memory(pd, constant, "a constant"))
		goto out;

	/* 7. The wrong order: the kernel sees that the PD is still in use. */
	err = ibv_dealloc_pd(pd);
	if (err != EBUSY) {
		print_error(err, "ibv_dealloc_pd did not return EBUSY");
		if (!err)
			pd = NULL;	/* it is released after all */
		goto out;
	}
	printf("ibv_dealloc_pd with %d MRs: refused: EBUSY (%s)\n", count,
	       strerror(err));
	if (pause) {
		puts("pause: press Enter to go on");
		wait_for_enter();
	}
	status = EXIT_SUCCESS;

out:
	/* 8. The right order: release first what was made last. */
	while (count > 0) {
		err = ibv_dereg_mr(mr[--count]);
		if (err) {
			print_error(err, "ibv_dereg_mr");
			status = EXIT_FAILURE;
		} else {
			puts("released: ibv_dereg_mr");
		}
	}

	/* After its regions, because until then the device can write to it. */
	if (buf != MAP_FAILED && munmap(buf, SIZE)) {
		print_error(errno, "munmap");
		status = EXIT_FAILURE;
	}

	/*
	 * In the other programs RELEASE(ibv_dealloc_pd, pd), in
	 * common/error.h, stands for such a block.
	 */
	if (pd) {
		err = ibv_dealloc_pd(pd);
		if (err) {
			print_error(err, "ibv_dealloc_pd");
			status = EXIT_FAILURE;
		} else {
			puts("released: ibv_dealloc_pd");
		}
	}

	/*
	 * ibv_close_device() returns -1 and sets errno. Call it after
	 * everything that was made in this context is released. Otherwise the
	 * kernel releases the rest, but the library leaks memory.
	 */
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
