#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

void print_error(int err, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (err) {
		/* The kernel has a few that the C library doesn't know. */
		const char *name = strerrorname_np(err);

		fprintf(stderr, ": %s (%s)", name ? name : "errno",
			strerror(err));
	}
	fputc('\n', stderr);
}

void print_hint(const char *format, ...)
{
	va_list args;

	fputs("  hint: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int no_device(int err)
{
	print_error(err, "no RDMA device");
	print_hint("make run-01 brings one; make doctor says more");
	/* ENOSYS: the kernel knows nothing of RDMA. */
	return !err || err == ENOSYS ? EXIT_NO_DEVICE : EXIT_FAILURE;
}

int released(const char *destroy, int result)
{
	if (result == 0) {
		printf("released: %s\n", destroy);
		return 0;
	}

	/* An errno value, but for ibv_close_device(), which gives -1. */
	print_error(result < 0 ? errno : result, "%s", destroy);
	print_hint("EBUSY means: something made from it is still there");
	return 1;
}
