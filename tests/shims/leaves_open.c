/*
 * leaves_open.c - a submission that leaves files open when it has ended
 *
 * Its standard input, and with the argument "device" a file of the verbs, are
 * in a message on a Unix socket, and so are both ends of that socket: so no
 * socket is closed when the program ends, and the kernel keeps all of them
 * until it looks for such messages. Prints "sent", and waits until it is ended.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
	int ends[2], fds[4];
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(fds))];
	} control = { .header = {
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
		.cmsg_len = CMSG_LEN(sizeof(fds)),
	} };
	struct iovec byte = { "", 1 };
	struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	const char *file = argc > 1 && strcmp(argv[1], "device") == 0 ?
		"/dev/infiniband/uverbs0" : "/dev/null";

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	fds[0] = STDIN_FILENO;
	fds[1] = open(file, O_RDWR);
	fds[2] = ends[0];
	fds[3] = ends[1];
	if (fds[1] < 0)
		return 1;
	memcpy(CMSG_DATA(&control.header), fds, sizeof(fds));
	if (sendmsg(ends[0], &message, 0) != 1)
		return 1;
	puts("sent");
	fflush(stdout);
	pause();
	return 0;
}
