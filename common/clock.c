#include <errno.h>
#include <limits.h>

#include "clock.h"
#include "error.h"

long long clock_ns(clockid_t clock)
{
	struct timespec now = { 0 };

	clock_gettime(clock, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

long long deadline_after(int seconds)
{
	return clock_ns(CLOCK_MONOTONIC) + seconds * NS_PER_S;
}

int poll_until(struct pollfd *fds, nfds_t count, long long deadline)
{
	for (;;) {
		long long left = deadline - clock_ns(CLOCK_MONOTONIC);
		long long ms = (left + NS_PER_MS - 1) / NS_PER_MS;
		int ready;

		if (ms < 0)
			ms = 0;
		if (ms > INT_MAX)
			ms = INT_MAX;
		ready = poll(fds, count, (int)ms);
		if (ready >= 0)
			return ready;
		if (errno != EINTR)
			return failed(errno, "poll");
	}
}
