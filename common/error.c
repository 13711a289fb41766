#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

/* A line is one write(2): two programs on one terminal don't mix theirs. */
#define LINE_SIZE 512

void print_error(int err, const char *format, ...)
{
	char text[LINE_SIZE], what[128] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (err) {
		/* The kernel has a few that the C library doesn't know. */
		const char *name = strerrorname_np(err);

		snprintf(what, sizeof(what), ": %s (%s)",
			 name ? name : "errno", strerror(err));
	}

	fflush(stdout);
	fprintf(stderr, "%s: %s%s\n", program_invocation_short_name, text,
		what);
}

void print_hint(const char *format, ...)
{
	char text[LINE_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "  hint: %s\n", text);
}

int no_device(int err)
{
	print_error(err, "no RDMA device");
	print_hint("tests/lab/lab run -- %s has one; make doctor says more",
		   program_invocation_name);
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
