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

/*
 * Reads what has come of a frame; *have counts its bytes and is 0 at first.
 * Returns 1 when the frame is whole, and *have is 0 again; 0 when more of it
 * has to come; -1 when the other end is gone, or with EPROTO when it sent
 * something that is not a frame. Calls read(2) once, so it does not block
 * after poll(2), not even in the middle of a frame.
 */
static inline int frame_receive(int fd, struct frame *f, size_t *have)
{
	size_t want = *have < FRAME_HEAD ? FRAME_HEAD : FRAME_HEAD + f->len;
	ssize_t n = read(fd, (uint8_t *)f + *have, want - *have);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n == 0)
		errno = EPIPE;
	if (n <= 0)
		return -1;

	*have += (size_t)n;
	if (*have < FRAME_HEAD)
		return 0;
	if (f->len > FRAME_DATA_MAX) {
		errno = EPROTO;
		return -1;
	}
	if (*have < FRAME_HEAD + f->len)
		return 0;

	f->data[f->len] = '\0';
	*have = 0;
	return 1;
}

/*
 * The two below are for a descriptor that blocks, so for the guest's end. Both
 * return 0, or -1 when the other end is gone.
 */
static inline int frame_read(int fd, struct frame *f)
{
	size_t have = 0;
	int whole;

	do {
		whole = frame_receive(fd, f, &have);
	} while (whole == 0);
	return whole < 0 ? -1 : 0;
}

/* Sends f with `len` bytes that already stand in f->data. */
static inline int frame_send(int fd, struct frame *f, enum frame_type type,
			     size_t len)
{
	size_t done = 0;

	f->type = type;
	f->len = (uint32_t)len;
	while (done < FRAME_HEAD + len) {
		ssize_t n = write(fd, (const uint8_t *)f + done,
				  FRAME_HEAD + len - done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return -1;
	}
	return 0;
}

#endif
