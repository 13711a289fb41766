/*
 * sweep.h - closes what a program has left in messages that nobody can receive
 *
 * A descriptor in a message on a Unix socket stays open when the process has
 * ended, if the socket itself is in such a message, too. The kernel looks for
 * these when any Unix socket is closed: unix_gc() in net/unix/garbage.c. Until
 * then a port that we need could be in use, or a queue pair could go on.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include <sys/socket.h>
#include <unistd.h>

static inline void sweep(void)
{
	int sock = socket(AF_UNIX, SOCK_STREAM, 0);

	if (sock >= 0)
		close(sock);
}

#endif
