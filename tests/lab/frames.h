/*
 * frames.h - what the two ends of a lab say to each other
 *
 * One virtio-serial port joins lab-host (host.c, a process of the machine) and
 * process 1 of the guest (guest.c). Everything crosses it in order, cut into
 * frames, so a program's last byte of output always arrives before its exit
 * status and nothing is lost when the guest is switched off.
 */
#ifndef LAB_FRAMES_H
#define LAB_FRAMES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* The longest string execve(2) takes, MAX_ARG_STRLEN, and a parameter's key. */
#define FRAME_DATA_MAX (128 * 1024 + 64)

enum frame_type {
	/* guest to machine */
	FRAME_BOOTED = 'B', /* modules loaded, nothing mounted; once a boot */
	FRAME_READY = 'R', /* answers FRAME_HELLO: send the parameters */
	FRAME_SET_UP = 'S', /* mounted, network up: FRAME_GO may come */
	FRAME_OUT = 'O', /* bytes the command wrote to standard output */
	FRAME_ERR = 'E', /* bytes the command wrote to standard error */
	FRAME_LISTENING = 'L', /* the command opened a listening TCP socket */
	FRAME_EXIT = 'X', /* uint8_t: the command's exit status; the last */
	FRAME_FAILED = 'F', /* text: why the guest could not be set up */

	/* machine to guest */
	FRAME_HELLO = 'H', /* somebody is there; also after a restore */
	FRAME_PARAM = 'P', /* text: KEY=VALUE, see guest.c:take_parameter() */
	FRAME_END = 'Q', /* no more parameters: set up */
	FRAME_GO = 'G', /* run the command */
	FRAME_IN = 'I', /* bytes for standard input; none: end of file */
	FRAME_SIZE = 'W', /* struct winsize: the terminal was resized */
};

struct frame {
	uint32_t len; /* bytes of data in use */
	uint32_t type; /* enum frame_type */
	uint8_t data[FRAME_DATA_MAX + 1]; /* room for a NUL after a text */
};

#define FRAME_HEAD offsetof(struct frame, data)

/* Both return 0, or -1 when the other end is gone. */
static inline int read_all(int fd, void *buf, size_t len)
{
	uint8_t *at = buf;

	while (len > 0) {
		ssize_t n = read(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static inline int write_all(int fd, const void *buf, size_t len)
{
	const uint8_t *at = buf;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static inline int frame_read(int fd, struct frame *f)
{
	if (read_all(fd, f, FRAME_HEAD) || f->len > FRAME_DATA_MAX ||
	    read_all(fd, f->data, f->len))
		return -1;

	f->data[f->len] = '\0';
	return 0;
}

/* Sends f with `len` bytes that already stand in f->data. */
static inline int frame_send(int fd, struct frame *f, enum frame_type type,
			     size_t len)
{
	f->type = type;
	f->len = (uint32_t)len;
	return write_all(fd, f, FRAME_HEAD + len);
}

#endif
