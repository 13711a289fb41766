/*
 * exchange.c - feeds the side channel of the ping-pong with anything
 *
 * A harness for libFuzzer. The input is first read as the text of an address.
 * Then it comes through a socket, as a peer would send it: in pieces, whose
 * sizes are taken from the input as well, and after that the connection is
 * closed. Nothing may be read or written past its end, and nothing may be
 * printed that a terminal obeys.
 *
 * `tests/torture/fuzz/fuzz exchange` builds and runs it: see docs/torture.md.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../common/address.h"
#include "../../../common/exchange.h"

/*
 * A socket is slow, so only one input in so many goes through it. The last
 * byte decides, because libFuzzer needs the same path for the same input.
 */
#define SOCKET_EVERY 16

/* Each piece takes room in a socket, which holds about 200 of them. */
#define LEAST 8
#define SOCKET_MOST 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is an address has to be the same one after it was written and read. */
static void read_text(const char *text, size_t size)
{
	struct address first = { 0 }, second = { 0 };
	char again[ADDRESS_SIZE], shown[64];

	address_begins(text, size);
	printable(text, size, shown, sizeof(shown));
	for (const char *c = shown; *c; c++)
		if (*c < ' ' || *c > '~')
			abort();
	if (!address_parse(text, size, &first))
		return;
	if (size != ADDRESS_SIZE)
		abort();
	address_write(&first, again);
	if (!address_parse(again, sizeof(again), &second) ||
	    first.lid != second.lid || first.qpn != second.qpn ||
	    first.psn != second.psn ||
	    memcmp(&first.gid, &second.gid, sizeof(first.gid)) != 0)
		abort();
}

static void read_socket(const uint8_t *data, size_t size)
{
	struct address theirs;
	char message[5];
	int socks[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks))
		abort();
	exchange_set_timeout(socks[0], 1);
	exchange_set_timeout(socks[1], 1);
	for (size_t sent = 0; sent < size; ) {
		size_t piece = data[sent] % 64 + LEAST;

		if (piece > size - sent)
			piece = size - sent;
		if (send(socks[1], data + sent, piece, MSG_NOSIGNAL) < 0)
			abort();
		sent += piece;
	}
	shutdown(socks[1], SHUT_WR);

	/* In the order of a server: the address, "done", the options. */
	if (exchange_receive_address(socks[0], &theirs) == 0 &&
	    exchange_receive(socks[0], message, sizeof(message), "it") == 0)
		exchange_same(socks[0], "-s 64 -n 10 -m 1024", "the options");
	exchange_check_peer(socks[0]);
	close(socks[0]);
	close(socks[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_text((const char *)data, size);
	if (size > 0 && size <= SOCKET_MOST &&
	    data[size - 1] % SOCKET_EVERY == 0)
		read_socket(data, size);
	return 0;
}
