/*
 * exercise.c - register a buffer with the rights that were asked for
 *
 *	exercise LENGTH RIGHTS...
 *
 * Registers one buffer of LENGTH bytes, once for each RIGHTS. The letters are L
 * for IBV_ACCESS_LOCAL_WRITE, W for REMOTE_WRITE, R for REMOTE_READ and A for
 * REMOTE_ATOMIC; a - adds no right. Don't check yourself whether the letters
 * fit together: pass each combination to ibv_reg_mr(), because the device
 * decides, and it refuses some of them. Such a refusal is not a failure of your
 * program: print the name of the error and go on.
 *
 *	$ exercise 3000 L LR W
 *	L: lkey 0x00000bd6 rkey 0x00000000
 *	LR: lkey 0x00000cf1 rkey 0x00000cf1
 *	W: refused EINVAL
 *	CHECKPOINT registered
 *	CHECKPOINT clean
 *
 * At a CHECKPOINT the program waits for Enter, so that you, or make check-02,
 * can look at its regions from outside, with rdma resource show mr.
 *
 * Write the bodies marked TODO. make try-02 runs the program with the
 * arguments above and shows you the kernel's list of its regions; make check-02
 * checks it.
 *
 * See ibv_reg_mr(3), ibv_dereg_mr(3), ibv_dealloc_pd(3), strerrorname_np(3).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/error.h"
#include "../common/options.h"

#define MAX_RIGHTS 32

/*
 * TODO 02.1: return the access flags that the letters in @rights stand for, or
 * -1 if one of them is not L, W, R, A or -. If there are no letters, return 0.
 * Read register_all() in context_pd_mr.c: it combines flags, too.
 */
static int access_flags(const char *rights)
{
#ifdef STARTER
	return todo("02.1");
#else
	int flags = 0;

	for (; *rights; rights++) {
		switch (*rights) {
		case 'L':
			flags |= IBV_ACCESS_LOCAL_WRITE;
			break;
		case 'W':
			flags |= IBV_ACCESS_REMOTE_WRITE;
			break;
		case 'R':
			flags |= IBV_ACCESS_REMOTE_READ;
			break;
		case 'A':
			flags |= IBV_ACCESS_REMOTE_ATOMIC;
			break;
		case '-':
			break;
		default:
			return -1;
		}
	}
	return flags;
#endif
}

/*
 * TODO 02.2: register @length bytes at @buf with the access flags @flags.
 * Return 0 and set *@mr to the new region; or return the errno value and set
 * *@mr to NULL, so that report() and release() know that there is none.
 * Read step 4 in main() of context_pd_mr.c.
 */
static int register_buffer(struct ibv_pd *pd, void *buf, size_t length,
			   int flags, struct ibv_mr **mr)
{
#ifdef STARTER
	*mr = NULL;
	return todo("02.2");
#else
	*mr = ibv_reg_mr(pd, buf, length, flags);
	return *mr ? 0 : errno;
#endif
}

/*
 * TODO 02.3: print the line about one registration, in exactly the form shown
 * at the top of this file, where a key has eight digits. If @mr is NULL, the
 * registration was refused with the errno value @err.
 * Read register_all() in context_pd_mr.c, and try_memory() for error names.
 */
static void report(const char *rights, const struct ibv_mr *mr, int err)
{
#ifdef STARTER
	todo("02.3");
#else
	if (mr)
		printf("%s: lkey 0x%08x rkey 0x%08x\n", rights, mr->lkey,
		       mr->rkey);
	else
		printf("%s: refused %s\n", rights, strerrorname_np(err));
#endif
}

/*
 * TODO 02.4: release the regions and the protection domain, in the order that
 * works. @mr has @count entries; those of refused registrations are NULL.
 * If one cannot be released, try the others, and return -1. Otherwise return 0.
 * Read steps 7 and 8 in main() of context_pd_mr.c.
 */
static int release(struct ibv_mr *mr[], int count, struct ibv_pd *pd)
{
#ifdef STARTER
	return todo("02.4");
#else
	int result = 0;

	while (count-- > 0)
		if (mr[count] && ibv_dereg_mr(mr[count]))
			result = -1;
	return ibv_dealloc_pd(pd) ? -1 : result;
#endif
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr[MAX_RIGHTS] = { NULL };
	void *buf = NULL;
	size_t length;
	int count = argc - 2, status = EXIT_FAILURE;

	start_output();
	if (count < 1 || count > MAX_RIGHTS) {
		fprintf(stderr, "usage: exercise LENGTH RIGHTS...\n");
		return EXIT_USAGE;
	}
	length = strtoul(argv[1], NULL, 0);

	/* 1. Device, context, protection domain and memory. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;
	buf = calloc(1, length);
	if (missing(buf, "calloc(%zu bytes)", length))
		goto out;

	/* 2. Register the buffer once for each argument. */
	for (int i = 0; i < count; i++) {
		const char *rights = argv[i + 2];
		int flags = access_flags(rights);
		int err;

		if (flags < 0) {
			print_error(0, "access_flags() refuses %s", rights);
			status = EXIT_USAGE;
			goto out;
		}
		err = register_buffer(pd, buf, length, flags, &mr[i]);
		errno = 0;	/* report() must not need it: it has @err */
		report(rights, mr[i], err);
		if ((err == 0) != (mr[i] != NULL))
			print_error(0, "register_buffer() returned %d, and *mr "
				    "is %p", err, (void *)mr[i]);
	}
	checkpoint("registered");
	status = EXIT_SUCCESS;

out:
	/* 3. Release. At this checkpoint the context is still open. */
	if (pd && release(mr, count, pd))
		status = EXIT_FAILURE;
	checkpoint("clean");
	free(buf);
	if (context && ibv_close_device(context)) {
		print_error(errno, "ibv_close_device");
		status = EXIT_FAILURE;
	}
	if (list)
		ibv_free_device_list(list);
	return status;
}
