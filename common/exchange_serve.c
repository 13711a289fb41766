#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "exchange.h"

#define CLIENTS_MAX 16	/* connections that are read at once */
#define REPORTS_MAX 10	/* from this one on, they are not reported */

/* A client that has yet to send its address. */
struct client {
	int sock; /* -1: this place is free */
	char host[INET6_ADDRSTRLEN];
	char text[ADDRESS_SIZE];
	size_t got; /* bytes of text that have come */
};

struct clients {
	struct client at[CLIENTS_MAX];
	int next; /* the place of the next one to come */
	int ignored; /* how many were closed */
};

/* Write the client's IP address into @host. An IPv4 one may come as IPv6. */
static void name_client(int sock, char host[INET6_ADDRSTRLEN])
{
	struct sockaddr_in6 from = { 0 };
	socklen_t size = sizeof(from);
	const struct sockaddr_in *from4 = (struct sockaddr_in *)&from;
	const struct in6_addr *ip = &from.sin6_addr;

	if (getpeername(sock, (struct sockaddr *)&from, &size) == 0 &&
	    from.sin6_family == AF_INET)
		inet_ntop(AF_INET, &from4->sin_addr, host, INET6_ADDRSTRLEN);
	else if (IN6_IS_ADDR_V4MAPPED(ip))
		inet_ntop(AF_INET, &ip->s6_addr[12], host, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, ip, host, INET6_ADDRSTRLEN);
}

/*
 * Accept a client. Returns 0, or -1 after an error message. @client->sock
 * stays -1 if the client has gone meanwhile.
 */
static int accept_client(int listener, int timeout, struct client *client)
{
	int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	*client = (struct client){ .sock = -1 };
	if (sock < 0) {
		/* With any other error it was the client that failed. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM)
			return failed(errno, "accept");
		return 0;
	}
	if (exchange_set_timeout(sock, timeout)) {
		close(sock);
		return -1;
	}
	name_client(sock, client->host);
	client->sock = sock;
	return 0;
}

/* Close a client that is not the one we wait for, and say @why. */
static void ignore_client(struct clients *clients, struct client *client,
			  const char *why)
{
	char text[ADDRESS_SIZE];

	close(client->sock);
	client->sock = -1;
	clients->ignored++;
	if (clients->ignored < REPORTS_MAX)
		print_error(0,
			    "ignored a connection from %s: %s; it sent %zu "
			    "bytes \"%s\"",
			    client->host, why, client->got,
			    printable(client->text, client->got, text,
				      sizeof(text)));
	else if (clients->ignored == REPORTS_MAX)
		print_error(0, "ignored %d connections; more are not reported",
			    clients->ignored);
}

/* Read what a client has sent. Is it a whole address now? */
static bool read_client(struct clients *clients, struct client *client,
			struct address *theirs)
{
	ssize_t n = recv(client->sock, client->text + client->got,
			 sizeof(client->text) - client->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		ignore_client(clients, client,
			      n == 0 ? "it closed the connection"
				     : strerror(errno));
		return false;
	}

	client->got += (size_t)n;
	if (!address_begins(client->text, client->got)) {
		ignore_client(clients, client, "it did not send an address");
		return false;
	}
	return address_parse(client->text, client->got, theirs);
}

/* Close all clients except @chosen, and say @why. */
static void ignore_others(struct clients *clients, const struct client *chosen,
			  const char *why)
{
	for (int i = 0; i < CLIENTS_MAX; i++) {
		if (clients->at[i].sock >= 0 && &clients->at[i] != chosen)
			ignore_client(clients, &clients->at[i], why);
	}
}

/*
 * Wait for the first client that sends an address; with @theirs NULL, for the
 * first one that connects. Returns it; or NULL, and then *@err is 0 if the
 * deadline has passed and -1 after an error message.
 */
static struct client *find_client(int listener, int timeout,
				  struct clients *clients,
				  struct address *theirs, int *err)
{
	const long long deadline = deadline_after(timeout);
	struct pollfd fds[CLIENTS_MAX + 1];

	do {
		struct client *newest = &clients->at[clients->next];

		for (int i = 0; i < CLIENTS_MAX; i++)
			fds[i] = (struct pollfd){ .fd = clients->at[i].sock,
						  .events = POLLIN };
		fds[CLIENTS_MAX] =
			(struct pollfd){ .fd = listener, .events = POLLIN };
		*err = poll_until(fds, CLIENTS_MAX + 1, deadline);
		if (*err <= 0)
			return NULL;

		for (int i = 0; i < CLIENTS_MAX; i++) {
			if (fds[i].revents &&
			    read_client(clients, &clients->at[i], theirs))
				return &clients->at[i];
		}

		if (!fds[CLIENTS_MAX].revents)
			continue;
		if (newest->sock >= 0)
			ignore_client(clients, newest, "it was slow, and a "
				      "newer client needed its place");
		*err = accept_client(listener, timeout, newest);
		if (*err)
			return NULL;
		if (newest->sock >= 0 && !theirs)
			return newest;
		clients->next = (clients->next + 1) % CLIENTS_MAX;
	} while (clock_ns(CLOCK_MONOTONIC) < deadline);
	*err = 0;
	return NULL;
}

int exchange_serve_address(int tcp_port, int timeout, struct address *theirs)
{
	struct clients clients = { .ignored = 0 };
	int err, listener = exchange_listen(tcp_port);
	struct client *client;

	if (listener < 0)
		return -1;

	for (int i = 0; i < CLIENTS_MAX; i++)
		clients.at[i].sock = -1;
	client = find_client(listener, timeout, &clients, theirs, &err);
	ignore_others(&clients, client,
		      client ? "another client sent its address first"
			     : "it did not send a whole address in time");
	close(listener);
	if (client)
		return client->sock;

	if (err == 0) {
		print_error(ETIMEDOUT, "no client on TCP port %d", tcp_port);
		print_hint("start the client, with this machine's name or "
			   "address");
	}
	return -1;
}

int exchange_serve(int tcp_port, int timeout)
{
	return exchange_serve_address(tcp_port, timeout, NULL);
}
