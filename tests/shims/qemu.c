/*
 * qemu.c - a QEMU that misbehaves, for the tests of lab-host
 *
 * Usage: qemu HOW    with the options that lab-host adds
 *
 * lab-host must cope with guests and QEMUs that stop in the middle, talk
 * nonsense or never answer, which real ones do once in a thousand starts. This
 * program has their descriptors and speaks their two languages, the frames of
 * the port and the monitor's QMP. HOW it misbehaves:
 *
 *   well          not at all: the command prints its input, and exits with 3
 *   ends-well     the same with status 0
 *   prints        10000 numbered lines on each stream, in pieces
 *   listens       says so, after half a second
 *   late-reader   prints 8 MB before it reads any input
 *   deaf          neither reads nor prints once the command has started
 *   half-frame    sends half a frame and no more
 *   failed        says at once that it could not be set up
 *   gives-up      says so while it is sent its parameters, and ends
 *   too-long      claims a frame of 4 GiB
 *   no-status     ends the command without a status
 *   dies          ends when the command has started
 *   stuck         never completes a migration
 *   refuses       to migrate
 *   half-snapshot writes half of it, then says that the migration failed
 *   slow          completes it after it closed the pipe
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../lab/frames.h"

enum { CHUNK = 32 * 1024, LINES = 10000 };

static const char snapshot[] = "what QEMU would have written";

static bool is(const char *how, const char *what)
{
	return !strcmp(how, what);
}

/* One command of the monitor; *passed is the descriptor sent with it. */
static bool read_command(int monitor, char *text, size_t size, int *passed)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec into = { text, size - 1 };
	struct msghdr message = { .msg_iov = &into,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(monitor, &message, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	if (CMSG_FIRSTHDR(&message))
		memcpy(passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return true;
}

/* The status comes among other things, as those of QEMU 7 to 10 do. */
static void serve_monitor(int monitor, const char *how)
{
	char text[1024];
	int out = -1, asked = 0;

	dprintf(monitor,
		"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n");
	while (read_command(monitor, text, sizeof(text), &out)) {
		if (strstr(text, "\"migrate\"") && is(how, "refuses")) {
			dprintf(monitor,
				"{\"error\": {\"class\": \"GenericError\", "
				"\"desc\": \"it is blocked\"}}\n");
			continue;
		}
		if (strstr(text, "\"migrate\"") && !is(how, "stuck")) {
			size_t len = sizeof(snapshot) - 1;

			if (is(how, "half-snapshot"))
				len /= 2;
			if (out < 0 ||
			    write(out, snapshot, len) != (ssize_t)len)
				exit(1);
			close(out);
		}
		if (strstr(text, "query-migrate")) {
			bool active = is(how, "stuck") ||
				      (is(how, "slow") && asked++ < 3);

			dprintf(monitor,
				"{\"timestamp\": {\"seconds\": 1}, "
				"\"event\": \"STOP\"}\n"
				"{\"return\": {\"blocked\": false, "
				"\"status\": \"%s\", \"total-time\": 9}}\n",
				is(how, "half-snapshot") ? "failed"
				: active		 ? "active"
							 : "completed");
			continue;
		}
		dprintf(monitor, "{\"return\": {}}\n");
	}
}

static void print(int port, struct frame *f, size_t len)
{
	memset(f->data, 'x', len);
	f->data[len - 1] = '\n';
	if (frame_send(port, f, FRAME_OUT, len))
		exit(1);
}

/* The same on both streams, cut without regard to the lines. */
static void print_lines(int port, struct frame *f)
{
	static char text[LINES * 40];
	size_t len = 0, piece = 1000;

	for (int i = 1; i <= LINES; i++)
		len += (size_t)sprintf(text + len, "a line, number %d\n", i);
	for (size_t at = 0; at < len; at += piece) {
		if (piece > len - at)
			piece = len - at;
		memcpy(f->data, text + at, piece);
		if (frame_send(port, f, FRAME_OUT, piece) ||
		    frame_send(port, f, FRAME_ERR, piece))
			exit(1);
	}
}

static void listen_late(int port, struct frame *f)
{
	usleep(500000);
	print(port, f, 8);
	frame_send(port, f, FRAME_LISTENING, 0);
}

static void run_command(int port, struct frame *f, const char *how)
{
	uint8_t head[FRAME_HEAD] = { 0xff, 0xff, 0xff, 0xff, FRAME_OUT };

	if (is(how, "dies"))
		exit(1);
	if (is(how, "deaf"))
		pause();
	if (is(how, "too-long"))
		(void)!write(port, head, sizeof(head));
	if (is(how, "no-status"))
		frame_send(port, f, FRAME_EXIT, 0);
	if (is(how, "prints"))
		print_lines(port, f);
	if (is(how, "listens"))
		listen_late(port, f);
	if (is(how, "late-reader"))
		for (int i = 0; i < 256; i++)
			print(port, f, CHUNK);

	while (!frame_read(port, f)) {
		if (f->type != FRAME_IN)
			continue;
		if (f->len == 0)
			break;
		if (frame_send(port, f, FRAME_OUT, f->len))
			exit(1);
	}
	f->data[0] = is(how, "ends-well") ? 0 : 3;
	frame_send(port, f, FRAME_EXIT, 1);
	pause();
}

static void serve_port(int port, const char *how)
{
	static struct frame f;
	static const char why[] = "the wrong kind of machine";

	if (frame_send(port, &f, FRAME_BOOTED, 0) || frame_read(port, &f))
		exit(1);
	if (is(how, "half-frame")) {
		(void)!write(port, "\x20", 1);
		pause();
	}
	memcpy(f.data, why, sizeof(why));
	if (is(how, "failed")) {
		frame_send(port, &f, FRAME_FAILED, sizeof(why) - 1);
		exit(0);
	}
	frame_send(port, &f, FRAME_READY, 0);
	if (is(how, "gives-up")) {
		memcpy(f.data, why, sizeof(why));
		frame_send(port, &f, FRAME_FAILED, sizeof(why) - 1);
		exit(0);
	}
	do {
		if (frame_read(port, &f))
			exit(1);
	} while (f.type != FRAME_END);
	frame_send(port, &f, FRAME_SET_UP, 0);
	if (frame_read(port, &f) || f.type != FRAME_GO)
		exit(1);
	run_command(port, &f, how);
}

int main(int argc, char *argv[])
{
	int port = -1, monitor = -1;

	for (int i = 2; i < argc; i++) {
		sscanf(argv[i], "socket,id=lab,fd=%d", &port);
		sscanf(argv[i], "socket,id=monitor,fd=%d", &monitor);
	}
	if (port < 0 || monitor < 0) {
		fprintf(stderr, "usage: qemu HOW, by lab-host\n");
		return 2;
	}
	printf("the console of a guest that behaves %s\n", argv[1]);
	fflush(stdout);
	if (fork() == 0) {
		close(port);
		serve_monitor(monitor, argv[1]);
	} else {
		close(monitor);
		serve_port(port, argv[1]);
	}
	return 0;
}
