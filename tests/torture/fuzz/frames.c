/*
 * frames.c - fuzzes what reads the frames of a lab, at both ends
 *
 * The bytes of an input are what the other end sends, and they arrive in
 * pieces, as sockets deliver them. The first byte of an input says at which end
 * they arrive, and whether zeros follow, since the longest frame is longer than
 * any input; the second byte says how long the pieces are. lab-host sets a
 * guest up and carries its streams; a guest takes parameters. Nothing outside
 * of this process is touched: the calls that would do so are replaced below.
 *
 * `tests/torture/fuzz/fuzz frames` builds and runs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 1000, CONSOLE, ELSEWHERE };

static const uint8_t *input;
static size_t input_left, zeros_left, piece;
static jmp_buf ended; /* a process that would end */

static ssize_t fuzz_read(int fd, void *buf, size_t len)
{
	size_t n = len < piece ? len : piece;

	if (fd != PORT)
		return 0;
	if (input_left == 0) {
		n = len < zeros_left ? len : zeros_left;
		zeros_left -= n;
		memset(buf, 0, n);
		return (ssize_t)n;
	}
	if (n > input_left)
		n = input_left;
	memcpy(buf, input, n);
	input += n;
	input_left -= n;
	return (ssize_t)n;
}

/* Looks at every byte, so that a sanitizer sees what is not to be read. */
static ssize_t fuzz_write(int fd, const void *buf, size_t len)
{
	static volatile uint8_t sum;

	(void)fd;
	for (size_t i = 0; i < len; i += 64)
		sum += ((const uint8_t *)buf)[i];
	if (len)
		sum += ((const uint8_t *)buf)[len - 1];
	return (ssize_t)len;
}

static int fuzz_poll(struct pollfd *fds, nfds_t count, int timeout)
{
	(void)timeout;
	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = fds[i].fd == PORT ? fds[i].events : 0;
	return 1;
}

static _Noreturn void fuzz_exit(int status)
{
	(void)status;
	longjmp(ended, 1);
}

static int nothing(void)
{
	return 0;
}

#define read fuzz_read
#define write fuzz_write
#define poll fuzz_poll
#define main host_main
#define fprintf(...) nothing()
#define perror(text) nothing()
#define ioctl(...) nothing()
#define isatty(fd) 1
#define getrandom(buf, len, flags) ((ssize_t)(len))
#define umask(mode) 022
#define close(fd) nothing()
#define exit fuzz_exit
#include "../../lab/host.c"
#undef main
#undef exit

/* host.c and guest.c have some names in common. */
#define main guest_main
#define STREAM_CHUNK GUEST_STREAM_CHUNK
#define reboot(how) nothing()
#define sync() nothing()
#define _exit fuzz_exit
#define clock_settime(clock, time) nothing()
#define sethostname(name, len) nothing()
#define open(...) ELSEWHERE
#define strdup fuzz_strdup
#define malloc fuzz_malloc
#define free(p) nothing()

/* A guest frees nothing before it ends; here an input is its whole life. */
static void *taken[4096];
static size_t taken_count;

static void *fuzz_malloc(size_t size)
{
	void *p = (calloc)(1, size);

	if (taken_count == sizeof(taken) / sizeof(taken[0]))
		fuzz_exit(1);
	return taken[taken_count++] = p;
}

static char *fuzz_strdup(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(fuzz_malloc(size), text, size);
}

#include "../../lab/guest.c"
#undef main
#undef free

static void fuzz_host(bool labelled)
{
	static char *command[] = { (char *)"true", NULL };
	static char *no_environment[] = { NULL };
	struct guest *g = &guests[0];

	environ = no_environment;
	free(g->queue);
	memset(g, 0, sizeof(*g));
	g->out.label = g->err.label = labelled ? "server | " : NULL;
	g->command = (struct words){ command, 1 };
	g->port = PORT;
	g->monitor = g->console = -1;
	g->until = now() + 3600;
	guest_count = 1;
	queue_frame(g, FRAME_HELLO, 0);
	if (!setjmp(ended))
		carry(-1);
}

static void fuzz_guest(void)
{
	static struct frame f;
	static struct job job;

	job.argc = job.envc = job.group_count = 0;
	if (!setjmp(ended))
		while (!frame_read(PORT, &f) && f.type == FRAME_PARAM)
			take_parameter(PORT, &job, (char *)f.data);
	while (taken_count)
		(free)(taken[--taken_count]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	input = data + 2;
	input_left = size - 2;
	zeros_left = data[0] & 0x80 ? FRAME_DATA_MAX + FRAME_HEAD : 0;
	piece = (size_t)data[1] * data[1] + 1;
	if ((data[0] & 3) == 2)
		fuzz_guest();
	else
		fuzz_host(data[0] & 1);
	return 0;
}
