/*
 * exercise.c - register a buffer, with the rights that were asked for
 *
 *	exercise LENGTH RIGHTS...
 *
 * Registers one buffer of LENGTH bytes once for each RIGHTS: L for
 * IBV_ACCESS_LOCAL_WRITE, W for REMOTE_WRITE, R for REMOTE_READ, A for
 * REMOTE_ATOMIC, or - for none of them. Some of it the device has to refuse:
 * that is no failure, but has to be told with the error's name.
 *
 *	$ exercise 3000 L LR W
 *	L: lkey 0x00000bd6 rkey 0x00000000
 *	LR: lkey 0x00000cf1 rkey 0x00000cf1
 *	W: refused EINVAL
 *	CHECKPOINT registered
 *	CHECKPOINT clean
 *
 * At a CHECKPOINT the program waits for Enter, and you, or make check-02, can
 * look from outside: rdma resource show mr. Write the bodies marked TODO.
 *
 * See ibv_reg_mr(3), ibv_dereg_mr(3), ibv_dealloc_pd(3), strerrorname_np(3).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exercise.h"

#define EXIT_USAGE 2
#define EXIT_NO_DEVICE 77

#define MAX_RIGHTS 32

/*
 * TODO 02.1: the access flags that the letters in @rights stand for; -1 if one
 * of them is none of L, W, R, A and -.
 */
static int access_flags(const char *rights)
{
	(void)rights;
	return todo("02.1");
}

/*
 * TODO 02.2: register @length bytes at @buf. Returns 0 and sets @mr, or
 * returns the errno value; @mr is NULL then.
 */
static int register_buffer(struct ibv_pd *pd, void *buf, size_t length,
			   int flags, struct ibv_mr **mr)
{
	(void)pd;
	(void)buf;
	(void)length;
	(void)flags;
	*mr = NULL;
	return todo("02.2");
}

/*
 * TODO 02.3: print the line about one registration, in exactly the form shown
 * above. @mr is NULL if it was refused, with the errno value @err.
 */
static void report(const char *rights, const struct ibv_mr *mr, int err)
{
	(void)rights;
	(void)mr;
	(void)err;
	todo("02.3");
}

/*
 * TODO 02.4: release the regions that there are, of @count in @mr, and the
 * protection domain, in the order in which that works. Returns 0, or -1 if a
 * release failed.
 */
static int release(struct ibv_mr *mr[], int count, struct ibv_pd *pd)
{
	(void)mr;
	(void)count;
	(void)pd;
	return todo("02.4");
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

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count < 1 || count > MAX_RIGHTS) {
		fprintf(stderr, "usage: exercise LENGTH RIGHTS...\n");
		return EXIT_USAGE;
	}
	length = strtoul(argv[1], NULL, 0);

	/* 1. Device, context, protection domain and memory. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		print_error(list ? 0 : errno, "no RDMA device");
		status = EXIT_NO_DEVICE;
		goto out;
	}
	context = ibv_open_device(list[0]);
	pd = context ? ibv_alloc_pd(context) : NULL;
	buf = calloc(1, length);
	if (!pd || !buf) {
		print_error(errno, "a protection domain and %zu bytes", length);
		goto out;
	}

	/* 2. Register, and tell. */
	for (int i = 0; i < count; i++) {
		const char *rights = argv[i + 2];
		int flags = access_flags(rights);
		int err;

		if (flags < 0) {
			print_error(0, "no rights: %s", rights);
			status = EXIT_USAGE;
			goto out;
		}
		err = register_buffer(pd, buf, length, flags, &mr[i]);
		report(rights, mr[i], err);
	}
	checkpoint("registered");
	status = EXIT_SUCCESS;

out:
	/* 3. Release; the context is still open when you are asked to look. */
	if (pd && release(mr, count, pd))
		status = EXIT_FAILURE;
	checkpoint("clean");
	free(buf);
	if (context)
		ibv_close_device(context);
	if (list)
		ibv_free_device_list(list);
	return status;
}
