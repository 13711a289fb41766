/*
 * bad_luck.c - preloaded, it makes calls fail that hardly ever do
 *
 * Preload it: LD_PRELOAD=bad_luck.so SHIM=MODE program. The modes are
 *
 *	setsockopt	setsockopt() fails with ENOMEM
 *	poll		poll() fails with ENOMEM
 *	accept		from listen() on there is no descriptor left: EMFILE
 *	no-ipv6		there are no IPv6 sockets, as on a kernel without IPv6
 *	idle-events	events arrive every 300 ms, and no completion with them
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/verbs.h>

static bool bad(const char *what)
{
	const char *luck = getenv("SHIM");

	return luck && strcmp(luck, what) == 0;
}

int setsockopt(int sock, int level, int name, const void *value, socklen_t size)
{
	int (*real)(int, int, int, const void *, socklen_t);

	*(void **)&real = dlsym(RTLD_NEXT, "setsockopt");
	if (bad("setsockopt")) {
		errno = ENOMEM;
		return -1;
	}
	return real(sock, level, name, value, size);
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
	int (*real)(struct pollfd *, nfds_t, int);

	*(void **)&real = dlsym(RTLD_NEXT, "poll");
	if (bad("poll")) {
		errno = ENOMEM;
		return -1;
	}
	if (bad("idle-events") && count == 2) {
		usleep(300 * 1000);
		fds[0].revents = POLLIN;
		fds[1].revents = 0;
		return 1;
	}
	return real(fds, count, ms);
}

int listen(int sock, int backlog)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	int (*real)(int, int);

	*(void **)&real = dlsym(RTLD_NEXT, "listen");
	if (bad("accept") && setrlimit(RLIMIT_NOFILE, &limit) == 0) {
		while (fcntl(sock, F_DUPFD, 0) >= 0)
			continue;
	}
	return real(sock, backlog);
}

int socket(int family, int type, int protocol)
{
	int (*real)(int, int, int);

	*(void **)&real = dlsym(RTLD_NEXT, "socket");
	if (bad("no-ipv6") && family == AF_INET6) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	return real(family, type, protocol);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	int (*real)(struct ibv_comp_channel *, struct ibv_cq **, void **);

	*(void **)&real = dlsym(RTLD_NEXT, "ibv_get_cq_event");
	if (bad("idle-events"))
		return 0;
	return real(channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	void (*real)(struct ibv_cq *, unsigned int);

	*(void **)&real = dlsym(RTLD_NEXT, "ibv_ack_cq_events");
	if (!bad("idle-events"))
		real(cq, count);
}
