#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

/* A longer message is cut off. */
#define TEXT_SIZE 512

/* Runs when the program exits. */
static void check_output(void)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		print_error(errno, "writing to standard output");
		print_hint("some of the output is lost; is the disk full?");
		_exit(EXIT_FAILURE);
	}
}

void start_output(void)
{
	/*
	 * If a standard descriptor is closed, the next open(2) would get its
	 * number, and our output would be written to an RDMA device. So fill
	 * the gap with something that refuses it: read(2) and write(2) fail
	 * with EBADF here.
	 */
	static int filled[3];	/* they stay open until the program ends */

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		filled[fd] = open("/dev/null", fd ? O_RDONLY : O_WRONLY);
		if (filled[fd] != fd)
			_exit(EXIT_FAILURE);
	}

	setvbuf(stdout, NULL, _IOLBF, 0);
	atexit(check_output);
}

static void print_line(int err, const char *format, va_list args)
{
	char text[TEXT_SIZE], reason[128] = "";

	vsnprintf(text, sizeof(text), format, args);
	if (err) {
		/* Some errno values of the kernel have no name in libc. */
		const char *name = strerrorname_np(err);

		snprintf(reason, sizeof(reason), ": %s (%s)",
			 name ? name : "errno", strerror(err));
	}

	/*
	 * One call for the whole line: stderr is unbuffered, so two would be
	 * two writes, and the lines of a server and a client on one terminal
	 * would mix.
	 */
	fflush(stdout);
	fprintf(stderr, "%s: %s%s\n", program_invocation_short_name, text,
		reason);
}

void print_error(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_line(err, format, args);
	va_end(args);
}

void print_hint(const char *format, ...)
{
	char text[TEXT_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "  hint: %s\n", text);
}

int failed(int err, const char *format, ...)
{
	va_list args;

	if (!err)
		return 0;

	va_start(args, format);
	print_line(err, format, args);
	va_end(args);
	return -1;
}

int missing(const void *obj, const char *format, ...)
{
	int err = errno;
	va_list args;

	if (obj)
		return 0;

	va_start(args, format);
	print_line(err, format, args);
	va_end(args);
	return -1;
}

int no_device(int err)
{
	/* ENOSYS: this kernel has no RDMA, or has not loaded ib_uverbs. */
	if (err && err != ENOSYS) {
		print_error(err, "ibv_get_device_list");
		return EXIT_FAILURE;
	}

	print_error(err, "no RDMA device");
	print_hint("a guest of the lab has one: tests/lab/lab run -- %s",
		   program_invocation_name);
	return EXIT_NO_DEVICE;
}

int released(const char *destroy, int result)
{
	/* ibv_close_device(3) and the calls of librdmacm return -1 and set
	 * errno. The other verbs return the errno value. */
	int err = result < 0 ? errno : result;

	if (result == 0) {
		printf("released: %s\n", destroy);
		return 0;
	}

	print_error(err, "%s", destroy);
	if (err == EBUSY)
		print_hint("release first what was made from this object");
	return 1;
}
