/* Reporting how fast messages went. */
#ifndef COMMON_MEASURE_H
#define COMMON_MEASURE_H

#include <stdint.h>

/*
 * Print the two lines with which ibv_rc_pingpong ends: @iters messages of
 * @size bytes went each way in @ns nanoseconds.
 */
void print_rates(int size, int iters, long long ns);

/*
 * How often each duration occurred. Its size does not grow with the number of
 * durations, because similar ones are counted together: they differ by less
 * than 1 part in 128. Begin with all zero.
 */
#define HISTOGRAM_BITS 7
#define HISTOGRAM_SLOTS ((64 - HISTOGRAM_BITS) << HISTOGRAM_BITS)

struct histogram {
	long long count;	/* of all durations */
	long long most;		/* the longest, exactly */
	uint32_t slots[HISTOGRAM_SLOTS];
};

void histogram_add(struct histogram *histogram, long long ns);

/*
 * The duration that @percent of all durations do not exceed, in nanoseconds.
 * It is too large by at most 1 part in 128. 0 if there are none.
 */
long long histogram_percentile(const struct histogram *histogram, int percent);

#endif
