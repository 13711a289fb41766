#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "exchange.h"

/* How long a client pauses before it tries again to connect, and after how long
 * it prints that it is still trying. */
#define PAUSE_NS (100 * NS_PER_MS)
#define SILENT_NS (1 * NS_PER_S)

/* The addresses of @host, for freeaddrinfo(3); or NULL after a message. */
static struct addrinfo *look_up(const char *host, int tcp_port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	char service[sizeof("65535")];
	int err;

	snprintf(service, sizeof(service), "%d", tcp_port);
	err = getaddrinfo(host, service, &hints, &list);
	if (err == 0)
		return list;

	print_error(err == EAI_SYSTEM ? errno : 0, "server \"%s\": %s", host,
		    gai_strerror(err));
	if (err == EAI_NONAME)
		print_hint("the argument must be a host name or an IP address");
	return NULL;
}

/*
 * Wait until connect(2) has finished, which is when the socket becomes
 * writable. Returns 0 or an errno value.
 */
static int wait_connected(int sock, long long deadline)
{
	struct pollfd fd = { .fd = sock, .events = POLLOUT };
	int ready = poll_until(&fd, 1, deadline);
	int err = 0;
	socklen_t size = sizeof(err);

	if (ready == 0)
		return ETIMEDOUT;
	if (ready < 0)
		return errno ? errno : EIO;
	if (getsockopt(sock, SOL_SOCKET, SO_ERROR, &err, &size))
		return errno;
	return err;
}

/* Connect to one address. Returns the socket, or -1 and errno. */
static int connect_one(const struct addrinfo *ai, long long deadline)
{
	int sock = socket(ai->ai_family,
			  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = 0;

	if (sock < 0)
		return -1;

	if (connect(sock, ai->ai_addr, ai->ai_addrlen))
		err = errno == EINPROGRESS ? wait_connected(sock, deadline)
					   : errno;
	/* From here on it is an ordinary socket, whose calls may wait. */
	if (!err && fcntl(sock, F_SETFL, 0))
		err = errno;
	if (!err)
		return sock;

	close(sock);
	errno = err;
	return -1;
}

/*
 * If all addresses of a host fail, the error with the largest weight is
 * reported. A host that refuses is there, and only the server is missing, so
 * that error has the largest one.
 */
static int weight(int err)
{
	switch (err) {
	case 0:
		return -1;
	case EAFNOSUPPORT:
		return 0;
	case ECONNREFUSED:
		return 3;
	case ETIMEDOUT:
		return 2;
	default:
		return 1;
	}
}

/*
 * Try each address once; together they have until @deadline. Returns a socket,
 * or -1 and the errno that says most.
 */
static int connect_any(const struct addrinfo *list, long long deadline)
{
	int left = 0, err = 0;

	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next)
		left++;

	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next, left--) {
		long long now = clock_ns(CLOCK_MONOTONIC);
		int sock = connect_one(ai, now + (deadline - now) / left);

		if (sock >= 0)
			return sock;
		if (weight(errno) > weight(err))
			err = errno;
	}
	errno = err;
	return -1;
}

int exchange_connect(const char *host, int tcp_port, int timeout)
{
	const long long start = clock_ns(CLOCK_MONOTONIC);
	const long long deadline = deadline_after(timeout);
	struct addrinfo *list = look_up(host, tcp_port);
	bool said = false;
	int sock, err;

	if (!list)
		return -1;

	for (;;) {
		long long now;

		sock = connect_any(list, deadline);
		err = errno;
		now = clock_ns(CLOCK_MONOTONIC);
		if (sock >= 0 || err != ECONNREFUSED ||
		    now + PAUSE_NS > deadline)
			break;

		if (!said && now > start + SILENT_NS) {
			print_error(0, "no server at %s port %d yet, still "
				    "trying", host, tcp_port);
			said = true;
		}
		poll_until(NULL, 0, now + PAUSE_NS);
	}
	freeaddrinfo(list);

	if (sock < 0) {
		print_error(err, "connecting to %s port %d", host, tcp_port);
		if (err == ECONNREFUSED || err == ETIMEDOUT)
			print_hint("is a server running there, with the same "
				   "port?");
		else if (err == ECONNRESET)
			print_hint("the server ended meanwhile; its messages "
				   "may say why");
		return -1;
	}
	if (exchange_set_timeout(sock, timeout)) {
		close(sock);
		return -1;
	}
	return sock;
}
