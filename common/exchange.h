/*
 * The TCP side channel, over which two queue pairs learn of each other before
 * either can send. It speaks the language of rdma-core's ibv_rc_pingpong.
 *
 * @timeout is in seconds. exchange_connect(), exchange_serve() and
 * exchange_serve_address() give up with ETIMEDOUT when they have waited so
 * long. They also store @timeout in the socket that they return, so that every
 * later call on this socket gives up after the same time. (Only looking up a
 * host's name may take longer: the system's resolver has its own limits.)
 *
 * The functions that return a socket return -1 after an error message; all
 * others return 0, or -1 after an error message.
 */
#ifndef COMMON_EXCHANGE_H
#define COMMON_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "address.h"
#include "settings.h"

/* Connect to a server. If it is not there yet, try until the timeout. */
int exchange_connect(const char *host, int tcp_port, int timeout);

/* Be the server for the first client that connects. */
int exchange_serve(int tcp_port, int timeout);

/*
 * Be the server for the first client that sends an address, which is put into
 * @theirs. Any other connection meanwhile, such as that of a port scanner, is
 * closed, so that it keeps nobody waiting. The first nine are reported.
 */
int exchange_serve_address(int tcp_port, int timeout, struct address *theirs);

/* Listen for clients by IPv6 and IPv4, for the two functions above. The socket
 * has no timeout, and accept(2) on it does not wait: poll(2) first. */
int exchange_listen(int tcp_port);

/* Give @sock its timeout, as the first three functions do. */
int exchange_set_timeout(int sock, int timeout);

/* Send or receive all of @size bytes; error messages call them @what. */
int exchange_send(int sock, const void *msg, size_t size, const char *what);
int exchange_receive(int sock, void *msg, size_t size, const char *what);

int exchange_send_address(int sock, const struct address *ours);
int exchange_receive_address(int sock, struct address *theirs);

/*
 * The client sends "done" as soon as it has the server's address, because
 * ibv_rc_pingpong does so. Its queue pair may not be in RTR yet, so in the
 * ping-pong the client sends the first message. The server counts the bytes,
 * and does not look at them.
 */
int exchange_send_done(int sock);
int exchange_receive_done(int sock);

/*
 * Both sides call this; it fails unless both have the same @text, which has
 * at most 63 characters. @what names it in messages.
 */
int exchange_same(int sock, const char *text, const char *what);

/*
 * After the exchange of addresses. A program of our own kind stays connected:
 * fail unless it has the same @settings. An ibv_rc_pingpong closes the
 * connection here, and so do we; *@sock becomes -1.
 */
int exchange_agree(int *sock, const struct address *remote,
		   const struct settings *settings);

/*
 * Both sides call this at the end. It returns when the peer has called it, too.
 * With @sock -1 there is nobody to wait for.
 */
int exchange_goodbye(int sock);

/*
 * Fail if the peer has closed the connection. When a program dies, its kernel
 * closes it, too. Does not wait. With @sock -1 there is no connection, and so
 * nothing can be wrong. Returns 0, or -1 after an error message.
 */
int exchange_check_peer(int sock);

#endif
