#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "error.h"
#include "exchange.h"

/*
 * An address in transit: LID, QPN, PSN and the GID's bytes in hex, and a NUL.
 * ibv_rc_pingpong writes lower case and reads either. We write the PSN in
 * upper case, and so know our own kind by the PSN's first digit.
 */
#define ADDRESS_SIZE \
	sizeof("llll:qqqqqq:pppppp:gggggggggggggggggggggggggggggggg")
#define MARK_OFFSET (sizeof("llll:qqqqqq:") - 1)

/* With these bits set, the first hex digit is a letter. */
#define PSN_MARK 0xc00000

/* How often a client looks again for a server that isn't there yet. */
#define TRIES_PER_SECOND 10

unsigned int random_psn(void)
{
	unsigned int psn = 0;

	/* Random, so that late packets of an earlier run don't fit. */
	if (getrandom(&psn, sizeof(psn), 0) < 0)
		psn = (unsigned int)getpid();
	return (psn & 0xffffff) | PSN_MARK;
}

/*
 * Get a socket and @use it, to connect() or to bind(). Returns it, or -1 and
 * errno, which is 0 if the error was printed already.
 */
static int open_socket(const char *host, int tcp_port, int timeout,
		       int (*use)(int, const struct sockaddr *, socklen_t))
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct timeval wait = { .tv_sec = timeout };
	struct addrinfo *list;
	char service[sizeof("65535")];
	int on = 1, off = 0, sock = -1, err;

	snprintf(service, sizeof(service), "%d", tcp_port);
	err = getaddrinfo(host, service, &hints, &list);
	if (err) {
		print_error(0, "server \"%s\": %s", host, gai_strerror(err));
		print_hint("the one argument is the server's name or address");
		errno = 0;
		return -1;
	}

	for (struct addrinfo *ai = list; ai && sock < 0; ai = ai->ai_next) {
		sock = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (sock < 0) {
			err = errno;
			continue;
		}

		/* No call waits longer, accept()ed sockets too: socket(7). */
		setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
		setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
		/* For a server: at once again, and for IPv4 clients as well. */
		setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));

		if (use(sock, ai->ai_addr, ai->ai_addrlen)) {
			/* One address that took too long is enough. */
			if (err != ETIMEDOUT)
				err = errno == EINPROGRESS ? ETIMEDOUT : errno;
			close(sock);
			sock = -1;
		}
	}

	freeaddrinfo(list);
	errno = err;
	return sock;
}

int exchange_connect(const char *host, int tcp_port, int timeout)
{
	int sock = open_socket(host, tcp_port, timeout, connect);

	for (int tries = 1; sock < 0 && errno == ECONNREFUSED &&
	     tries < timeout * TRIES_PER_SECOND; tries++) {
		if (tries == TRIES_PER_SECOND)
			print_error(0, "no server at %s port %d yet, trying on",
				    host, tcp_port);
		usleep(1000000 / TRIES_PER_SECOND);
		sock = open_socket(host, tcp_port, timeout, connect);
	}

	if (sock < 0 && errno) {
		print_error(errno, "connecting to %s port %d", host, tcp_port);
		print_hint("is a server running there, with the same -p?");
	}
	return sock;
}

int exchange_serve(int tcp_port, int timeout)
{
	int listener = open_socket("::", tcp_port, timeout, bind);
	int sock = -1;

	if (listener < 0 && errno == EAFNOSUPPORT)	/* no IPv6 here */
		listener = open_socket("0.0.0.0", tcp_port, timeout, bind);

	if (listener < 0 || listen(listener, 1)) {
		print_error(errno, "listening on TCP port %d", tcp_port);
		print_hint("-p takes another one, on both sides");
	} else {
		sock = TEMP_FAILURE_RETRY(accept(listener, NULL, NULL));
		if (sock < 0) {
			print_error(errno == EAGAIN ? ETIMEDOUT : errno,
				    "no client on TCP port %d", tcp_port);
			print_hint("start one with this machine's name; "
				   "--timeout waits longer");
		}
	}

	if (listener >= 0)
		close(listener);
	return sock;
}

int exchange_send(int sock, const void *msg, size_t size, const char *what)
{
	/* All at once: ibv_rc_pingpong reads only once. */
	ssize_t n = TEMP_FAILURE_RETRY(send(sock, msg, size, MSG_NOSIGNAL));

	if (n == (ssize_t)size)
		return 0;

	print_error(n < 0 ? errno : 0, "sending %s", what);
	print_hint("the peer is gone; its messages may say why");
	return -1;
}

int exchange_receive(int sock, void *msg, size_t size, const char *what)
{
	ssize_t n = TEMP_FAILURE_RETRY(recv(sock, msg, size, MSG_WAITALL));

	if (n == (ssize_t)size)
		return 0;

	if (n < 0 && errno == EAGAIN) {
		print_error(ETIMEDOUT, "receiving %s", what);
		print_hint("is the peer a ping-pong program, and not stopped?");
	} else {
		print_error(n < 0 ? errno : 0, "receiving %s: the peer sent "
			    "%zd of %zu bytes", what, n < 0 ? 0 : n, size);
		print_hint("its messages may say why; "
			   "ibv_rc_pingpong on RoCE needs -g");
	}
	return -1;
}

int exchange_same(int sock, const char *text, const char *what)
{
	char ours[64] = "", theirs[64];

	snprintf(ours, sizeof(ours), "%s", text);
	if (exchange_send(sock, ours, sizeof(ours), what) ||
	    exchange_receive(sock, theirs, sizeof(theirs), what))
		return -1;

	theirs[sizeof(theirs) - 1] = '\0';
	if (strcmp(ours, theirs) == 0)
		return 0;

	print_error(0, "here %s are %s, at the peer %s", what, ours, theirs);
	print_hint("they must be the same on both sides");
	return -1;
}

int exchange_send_address(int sock, const struct address *ours)
{
	char msg[ADDRESS_SIZE];
	int n = snprintf(msg, sizeof(msg), "%04x:%06x:%06X:", ours->lid,
			 ours->qpn, ours->psn);

	for (int i = 0; i < 16; i++)
		n += snprintf(msg + n, sizeof(msg) - (size_t)n, "%02x",
			      ours->gid.raw[i]);
	return exchange_send(sock, msg, sizeof(msg), "our address");
}

int exchange_receive_address(int sock, struct address *theirs)
{
	char msg[ADDRESS_SIZE + 1] = "";
	char gid[sizeof("gggggggggggggggggggggggggggggggg")];
	int end = 0;

	if (exchange_receive(sock, msg, ADDRESS_SIZE, "the peer's address"))
		return -1;

	sscanf(msg, "%4x:%6x:%6x:%32[0-9A-Fa-f]%n", &theirs->lid, &theirs->qpn,
	       &theirs->psn, gid, &end);
	if (end != ADDRESS_SIZE - 1) {
		for (char *c = msg; *c; c++)
			*c = isprint((unsigned char)*c) ? *c : '.';
		print_error(0, "not an address: \"%s\"", msg);
		print_hint("what uses this TCP port is no ping-pong program");
		return -1;
	}

	for (size_t i = 0; i < 16; i++)
		sscanf(gid + 2 * i, "%2hhx", &theirs->gid.raw[i]);
	theirs->own_kind = isupper((unsigned char)msg[MARK_OFFSET]);
	return 0;
}
