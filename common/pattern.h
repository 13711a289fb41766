/* The contents of messages, so that a receiver can check every byte. */
#ifndef COMMON_PATTERN_H
#define COMMON_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "settings.h"

struct pattern {
	uint8_t *table;		/* bytes that count up; free(3) it */
	size_t length;		/* of the table */
	uint32_t size;		/* of a message */
	int count;		/* messages each way */
	bool client;		/* we are the client */
	bool own_kind;		/* if not, no bytes are compared */
};

/*
 * Prepare for the messages of @settings. Returns 0, or -1 after an error
 * message. The caller sets own_kind if the peer is one of our programs. The
 * bytes of the table begin again after 251. Message number n is the part of the
 * table that begins n % 251 bytes from its start, and the server's begin 125
 * bytes later than the client's. So two messages in a row differ in every byte,
 * and old data is noticed.
 */
int pattern_create(struct pattern *pattern, const struct settings *settings);

/*
 * Write our message number @n to @message. For an ibv_rc_pingpong the first
 * byte of every 4096 becomes 0: that is what its option -c looks at.
 */
void pattern_fill(const struct pattern *pattern, uint8_t *message, int n);

/*
 * Returns the place in the table where our message number @n begins, so that it
 * can be sent from there without a copy. Do not use this for a peer that is an
 * ibv_rc_pingpong, because its messages need the zeros of pattern_fill().
 */
const uint8_t *pattern_message(const struct pattern *pattern, int n);

/*
 * Check that @message, of @size bytes, is the peer's message number @n. Returns
 * 0, or -1 after an error message, which names the first byte that differs. If
 * the peer is an ibv_rc_pingpong, only the number and the size are checked.
 */
int pattern_check(const struct pattern *pattern, const uint8_t *message,
		  uint32_t size, int n);

/* The same for a message that must be equal to @meant, whoever sent it. */
int pattern_compare(const uint8_t *message, const uint8_t *meant, uint32_t size,
		    int n);

/* Print that @verified messages were verified; if it is 0, that none was. */
void pattern_report(const struct pattern *pattern, int verified);

#endif
