/* The time, for deadlines and measurements. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <poll.h>
#include <time.h>

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

/*
 * Returns the time on @clock in nanoseconds. Use CLOCK_MONOTONIC for
 * deadlines, because nobody can set it back or forth; CLOCK_THREAD_CPUTIME_ID
 * is the CPU time that this thread has used.
 */
long long clock_ns(clockid_t clock);

/* The time @seconds from now, in nanoseconds on CLOCK_MONOTONIC. */
long long deadline_after(int seconds);

/*
 * poll(2) until one of the @count descriptors is ready or @deadline has
 * passed, whatever signals come meanwhile. It looks at least once, also after
 * the deadline. Returns how many are ready, 0 at the deadline, or -1 after an
 * error message.
 */
int poll_until(struct pollfd *fds, nfds_t count, long long deadline);

#endif
