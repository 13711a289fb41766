#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "pattern.h"

/*
 * The bytes count from 0 to PERIOD - 1 and begin again. PERIOD is prime, so
 * that neighbouring packets of a message never carry the same bytes.
 */
#define PERIOD 251
#define STOCK_PAGE 4096

int pattern_create(struct pattern *pattern, const struct settings *settings)
{
	/* A message may begin anywhere in the first two periods. */
	size_t length = (size_t)settings->size + 2 * (size_t)PERIOD;

	*pattern = (struct pattern){
		.table = calloc(1, length),
		.length = length,
		.size = settings->size,
		.count = settings->iters,
		.client = settings->server != NULL,
	};
	if (missing(pattern->table, "calloc(%zu bytes)", length))
		return -1;

	for (size_t i = 0; i < length; i++)
		pattern->table[i] = i % PERIOD;
	return 0;
}

static const uint8_t *message_of(const struct pattern *pattern,
				 bool from_client, int n)
{
	return pattern->table + (from_client ? 0 : PERIOD / 2) + n % PERIOD;
}

const uint8_t *pattern_message(const struct pattern *pattern, int n)
{
	return message_of(pattern, pattern->client, n);
}

void pattern_fill(const struct pattern *pattern, uint8_t *message, int n)
{
	memcpy(message, message_of(pattern, pattern->client, n), pattern->size);
	for (uint32_t i = 0; i < pattern->size && !pattern->own_kind;
	     i += STOCK_PAGE)
		message[i] = 0;
}

int pattern_check(const struct pattern *pattern, const uint8_t *message,
		  uint32_t size, int n)
{
	if (n >= pattern->count) {
		print_error(0, "message %d is one too many", n);
		print_hint("give both sides the same -n");
		return -1;
	}
	if (size != pattern->size) {
		print_error(0, "message %d has %u bytes, not %u", n, size,
			    pattern->size);
		print_hint("give both sides the same -s");
		return -1;
	}
	if (!pattern->own_kind)
		return 0;
	return pattern_compare(message, message_of(pattern, !pattern->client,
						   n), size, n);
}

int pattern_compare(const uint8_t *message, const uint8_t *meant, uint32_t size,
		    int n)
{
	uint32_t offset = 0;

	if (memcmp(message, meant, size) == 0)
		return 0;

	while (message[offset] == meant[offset])
		offset++;
	print_error(0, "message %d: byte %u should be 0x%02x, and is 0x%02x",
		    n, offset, meant[offset], message[offset]);
	print_hint("did the sender fill its buffer again before its send had "
		   "completed?");
	return -1;
}

void pattern_report(const struct pattern *pattern, int verified)
{
	if (verified > 0)
		printf("verified: every byte of %d of %d messages\n", verified,
		       pattern->count);
	else
		printf("verified: nothing; rc_pingpong -c compares what an "
		       "ibv_rc_pingpong returns\n");
}
