#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "error.h"
#include "exchange.h"

/* Listen on all addresses of one kind. Returns a socket, or -1 and errno. */
static int listen_on(const struct sockaddr *address, socklen_t size)
{
	const int on = 1, off = 0;
	int sock = socket(address->sa_family,
			  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (sock < 0)
		return -1;

	/*
	 * SO_REUSEADDR allows a restart on the same port at once. Without
	 * IPV6_V6ONLY the IPv6 socket accepts IPv4 clients as well.
	 */
	if (setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    (address->sa_family != AF_INET6 ||
	     setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ==
		     0) &&
	    bind(sock, address, size) == 0 && listen(sock, SOMAXCONN) == 0)
		return sock;

	err = errno;
	close(sock);
	errno = err;
	return -1;
}

int exchange_listen(int tcp_port)
{
	struct sockaddr_in6 any6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons((uint16_t)tcp_port),
		.sin6_addr = in6addr_any,
	};
	struct sockaddr_in any4 = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)tcp_port),
	};
	int sock = listen_on((struct sockaddr *)&any6, sizeof(any6));
	int err;

	/* A machine without IPv6. */
	if (sock < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
		sock = listen_on((struct sockaddr *)&any4, sizeof(any4));
	if (sock >= 0)
		return sock;

	err = errno;
	print_error(err, "listening on TCP port %d", tcp_port);
	if (err == EADDRINUSE || err == EACCES)
		print_hint("take another port, on both sides");
	return -1;
}
