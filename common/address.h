/*
 * The address of a queue pair: what the peer must know to send to it. As text
 * it has the form that rdma-core's ibv_rc_pingpong uses.
 */
#ifndef COMMON_ADDRESS_H
#define COMMON_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include <infiniband/verbs.h>

struct address {
	unsigned int lid;	/* local identifier; 0 on RoCE */
	unsigned int qpn;	/* queue pair number, 24 bits */
	unsigned int psn;	/* first packet sequence number, 24 bits */
	union ibv_gid gid;	/* global identifier; all zero for none */
	bool own_kind;		/* it was sent by one of our own programs */
};

/*
 * An address as text is always this long: LID, QPN, PSN and the 16 bytes of
 * the GID, all in hex, and a NUL at the end.
 */
#define ADDRESS_SIZE \
	sizeof("llll:qqqqqq:pppppp:gggggggggggggggggggggggggggggggg")

/*
 * A random PSN to start with, so that late packets of an earlier connection do
 * not fit into this one. Its first hex digit is a letter: see address_write().
 */
unsigned int random_psn(void);

/*
 * Write @address into @text. ibv_rc_pingpong writes hex digits in lower case
 * and reads either case. Our programs write the PSN in upper case, and its
 * first digit is always a letter. So a receiver can tell our programs from an
 * ibv_rc_pingpong: if the PSN begins with a capital, it is one of ours.
 */
void address_write(const struct address *address, char text[ADDRESS_SIZE]);

/*
 * Returns true if the @size bytes at @text can be the beginning of an address.
 * A receiver calls this after each piece that arrives. So if a web browser has
 * connected by mistake, the receiver does not wait for more bytes from it.
 */
bool address_begins(const char *text, size_t size);

/*
 * Read an address from @text, which may hold anything. Returns true if it has
 * exactly the form of an address and fills exactly @size bytes; otherwise
 * @address stays as it was. Prints nothing.
 */
bool address_parse(const char *text, size_t size, struct address *address);

/* Print a line "  local address:  LID ..."; @whose is "local address:". */
void address_print(const char *whose, const struct address *address);

/*
 * Print the peer's address @remote, and check that we can send to it from our
 * @port: RoCE needs a GID, and InfiniBand a GID or a LID. Returns 0, or -1
 * after an error message.
 */
int address_check(const struct address *remote,
		  const struct ibv_port_attr *port);

/*
 * Copy @size bytes, or as many as fit, of what a peer has sent into @text, of
 * @room bytes, with a dot in place of whatever a terminal would not print.
 * Returns @text, which ends with a NUL.
 */
const char *printable(const char *bytes, size_t size, char *text, size_t room);

#endif
