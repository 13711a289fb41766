/*
 * connection.h - the connections of chapter 05, and where the peer's memory is
 *
 * Queue pairs are connected by the functions of ../05-pingpong/connection.h.
 * Programs that use the peer's memory also need:
 *
 *	connection_offer()	tell the peer where our memory is
 *	connection_take()	learn where the peer's memory is
 *	connection_tell()	send the peer one byte
 *	connection_hear()	receive it
 */
#ifndef CONNECTION_MEMORY_H
#define CONNECTION_MEMORY_H

#include <endian.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "../05-pingpong/connection.h"

/* A peer's memory: the two numbers that a request for it must contain. */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

/*
 * Tell the peer where @mr is: send its address and its rkey over TCP, in
 * network byte order. Returns 0, or -1 after an error message.
 */
static inline int connection_offer(int sock, const struct ibv_mr *mr)
{
	const uint64_t numbers[] = { htobe64((uintptr_t)mr->addr),
				     htobe64(mr->rkey) };

	return exchange_send(sock, numbers, sizeof(numbers),
			     "our address and rkey");
}

/*
 * Receive what the peer's connection_offer() has sent, into *@remote. Returns
 * 0, or -1 after an error message.
 */
static inline int connection_take(int sock, struct remote *remote)
{
	uint64_t numbers[2];

	if (exchange_receive(sock, numbers, sizeof(numbers),
			     "the peer's address and rkey"))
		return -1;
	remote->addr = be64toh(numbers[0]);
	remote->rkey = (uint32_t)be64toh(numbers[1]);
	return 0;
}

/* Send a byte over TCP. Returns 0, or -1 after an error message. */
static inline int connection_tell(int sock, char word)
{
	return exchange_send(sock, &word, 1, "a byte");
}

/*
 * Wait for a byte from the peer. Returns 0 with it in *@word, or -1 after an
 * error message.
 */
static inline int connection_hear(int sock, char *word)
{
	return exchange_receive(sock, word, 1, "a byte");
}

#endif
