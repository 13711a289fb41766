/*
 * The TCP side channel, over which two queue pairs learn of each other before
 * either can send. It speaks the language of rdma-core's ibv_rc_pingpong.
 * No call here waits longer than the timeout, in seconds, for the peer's next
 * sign. All print their own errors and then return -1.
 */
#ifndef COMMON_EXCHANGE_H
#define COMMON_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include <infiniband/verbs.h>

/* What a queue pair must know of its peer. */
struct address {
	unsigned int lid;	/* local identifier; 0 on RoCE */
	unsigned int qpn;	/* queue pair number, 24 bits */
	unsigned int psn;	/* first packet sequence number, 24 bits */
	union ibv_gid gid;	/* global identifier; all zero for none */
	bool own_kind;		/* received from one of our own programs */
};

/* A random PSN to start with, of a kind that can carry our mark. */
unsigned int random_psn(void);

/* Connect to the server, which may be late; or be the server for one client. */
int exchange_connect(const char *host, int tcp_port, int timeout);
int exchange_serve(int tcp_port, int timeout);

/* Send or receive all of @size bytes; @what they are goes into messages. */
int exchange_send(int sock, const void *msg, size_t size, const char *what);
int exchange_receive(int sock, void *msg, size_t size, const char *what);

/* Both sides call this; it fails unless both have the same short @text. */
int exchange_same(int sock, const char *text, const char *what);

int exchange_send_address(int sock, const struct address *ours);
int exchange_receive_address(int sock, struct address *theirs);

#endif
