#include <stdio.h>

#include "measure.h"

void print_rates(int size, int iters, long long ns)
{
	long long bytes = 2LL * size * iters;
	double usec = (double)ns / 1e3;

	printf("%lld bytes in %.2f seconds = %.2f Mbit/sec\n", bytes,
	       usec / 1e6, (double)bytes * 8 / usec);
	printf("%d iters in %.2f seconds = %.2f usec/iter\n", iters,
	       usec / 1e6, usec / iters);
}

/*
 * The slot of a duration is its highest HISTOGRAM_BITS + 1 bits, together with
 * the number of bits below them. Small durations have a slot each.
 */
static int slot_of(unsigned long long ns)
{
	int shift = 0;

	while (ns >> shift >= 2ULL << HISTOGRAM_BITS)
		shift++;
	return (shift << HISTOGRAM_BITS) + (int)(ns >> shift);
}

/* Returns the longest duration that slot_of() maps to @slot. */
static long long longest_in(int slot)
{
	int shift = (slot >> HISTOGRAM_BITS) - 1;

	if (shift < 0)
		shift = 0;
	return (((long long)slot - ((long long)shift << HISTOGRAM_BITS) + 1)
		<< shift) - 1;
}

void histogram_add(struct histogram *histogram, long long ns)
{
	if (ns < 0)
		ns = 0;
	histogram->count++;
	if (ns > histogram->most)
		histogram->most = ns;
	histogram->slots[slot_of((unsigned long long)ns)]++;
}

long long histogram_percentile(const struct histogram *histogram, int percent)
{
	/* Rounded up: the median of 3 is the second. */
	long long rank = (histogram->count * percent + 99) / 100;

	if (rank == 0)
		return 0;

	for (int slot = 0; slot < HISTOGRAM_SLOTS; slot++) {
		rank -= histogram->slots[slot];
		if (rank <= 0) {
			long long ns = longest_in(slot);

			return ns < histogram->most ? ns : histogram->most;
		}
	}
	return histogram->most;
}
