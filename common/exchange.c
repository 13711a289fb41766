#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "exchange.h"

int exchange_set_timeout(int sock, int timeout)
{
	struct timeval wait = { .tv_sec = timeout };

	if (setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) ||
	    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)))
		return failed(errno, "setsockopt(SO_RCVTIMEO)");
	return 0;
}

/*
 * The timeout that exchange_set_timeout() gave to @sock, in seconds, or -1
 * after an error message.
 */
static int timeout_of(int sock)
{
	struct timeval wait = { 0 };
	socklen_t size = sizeof(wait);

	if (getsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, &size))
		return failed(errno, "getsockopt(SO_RCVTIMEO)");
	return (int)wait.tv_sec;
}

int exchange_send(int sock, const void *msg, size_t size, const char *what)
{
	const int timeout = timeout_of(sock);
	long long deadline = deadline_after(timeout);
	struct pollfd fd = { .fd = sock, .events = POLLOUT };
	size_t sent = 0;

	if (timeout < 0)
		return -1;

	/*
	 * ibv_rc_pingpong reads only once, so the whole message should go in
	 * one call. The loop is for a kernel that takes less.
	 */
	while (sent < size) {
		int ready = poll_until(&fd, 1, deadline);
		ssize_t n;

		if (ready < 0)
			return -1;
		if (ready == 0)
			return failed(ETIMEDOUT, "sending %s", what);

		n = send(sock, (const char *)msg + sent, size - sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			print_error(errno, "sending %s", what);
			print_hint("has the peer ended? its output says why");
			return -1;
		}
		if (n > 0)
			sent += (size_t)n;
	}
	return 0;
}

/*
 * Receive @size bytes, in as many pieces as they come. *@got becomes the
 * number that came. Returns 0, or -1 after an error message.
 */
static int receive(int sock, char *msg, size_t size, const char *what,
		   size_t *got)
{
	const int timeout = timeout_of(sock);
	long long deadline = deadline_after(timeout);
	struct pollfd fd = { .fd = sock, .events = POLLIN };
	char text[ADDRESS_SIZE];
	ssize_t n = 0;
	int ready = 1;

	*got = 0;
	if (timeout < 0)
		return -1;

	while (*got < size) {
		ready = poll_until(&fd, 1, deadline);
		if (ready < 0)
			return -1;
		if (ready == 0)
			break;

		n = recv(sock, msg + *got, size - *got, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		if (n > 0)
			*got += (size_t)n;
	}
	if (*got == size)
		return 0;

	if (ready == 0)
		print_error(ETIMEDOUT,
			    "receiving %s: %zu of %zu bytes came "
			    "in %d s",
			    what, *got, size, timeout);
	else
		print_error(n < 0 ? errno : 0,
			    "receiving %s: the connection ended "
			    "after %zu of %zu bytes",
			    what, *got, size);
	if (*got > 0)
		print_hint("this came: \"%s\"",
			   printable(msg, *got, text, sizeof(text)));
	if (ready == 0)
		print_hint("look at the other side: is this program "
			   "running there, or was it stopped?");
	else
		print_hint("read the peer's output to see why");
	return -1;
}

int exchange_receive(int sock, void *msg, size_t size, const char *what)
{
	size_t got;

	return receive(sock, msg, size, what, &got);
}

int exchange_send_address(int sock, const struct address *ours)
{
	char text[ADDRESS_SIZE];

	address_write(ours, text);
	return exchange_send(sock, text, sizeof(text), "our address");
}

/*
 * Has the peer closed the connection? Returns 1 or 0, or -1 after an error
 * message. Does not wait.
 */
static int peer_closed(int sock)
{
	struct pollfd fd = { .fd = sock, .events = POLLRDHUP };

	return poll_until(&fd, 1, 0);
}

int exchange_receive_address(int sock, struct address *theirs)
{
	char text[ADDRESS_SIZE], shown[ADDRESS_SIZE];
	size_t got;

	if (receive(sock, text, sizeof(text), "the peer's address", &got)) {
		/* An ibv_rc_pingpong without -g has read our GID and ends now,
		 * because it has no GID of its own to send from. */
		if (got == 0 && peer_closed(sock) == 1)
			print_hint("if it is an ibv_rc_pingpong, it needs -g "
				   "on RoCE");
		return -1;
	}
	if (address_parse(text, sizeof(text), theirs))
		return 0;

	print_error(0, "not an address: \"%s\"",
		    printable(text, sizeof(text), shown, sizeof(shown)));
	print_hint("another program uses this TCP port: choose a free one with "
		   "-p, on both sides");
	return -1;
}

int exchange_send_done(int sock)
{
	return exchange_send(sock, "done", sizeof("done"), "\"done\"");
}

int exchange_receive_done(int sock)
{
	char done[sizeof("done")];

	return exchange_receive(sock, done, sizeof(done), "\"done\"");
}

int exchange_check_peer(int sock)
{
	int closed = peer_closed(sock);

	if (closed <= 0)
		return closed;

	print_error(0, "the peer gave up or died");
	print_hint("read the peer's output to see why");
	return -1;
}
