#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "exchange.h"

/* The bytes that exchange_same() sends; the peer must send as many. */
#define SAME_SIZE 64

int exchange_same(int sock, const char *text, const char *what)
{
	char ours[SAME_SIZE] = "", theirs[SAME_SIZE], shown[SAME_SIZE];

	if (snprintf(ours, sizeof(ours), "%s", text) >= SAME_SIZE) {
		print_error(0, "%s: more than %d characters", what,
			    SAME_SIZE - 1);
		return -1;
	}
	if (exchange_send(sock, ours, sizeof(ours), what) ||
	    exchange_receive(sock, theirs, sizeof(theirs), what))
		return -1;
	if (memcmp(ours, theirs, sizeof(ours)) == 0)
		return 0;

	printable(theirs, strnlen(theirs, sizeof(theirs)), shown,
		  sizeof(shown));
	print_error(0, "%s: we sent \"%s\", the peer sent \"%s\"", what, ours,
		    shown);
	print_hint("start the same program with the same options on both "
		   "sides");
	return -1;
}

int exchange_agree(int *sock, const struct address *remote,
		   const struct settings *settings)
{
	char terms[SAME_SIZE];

	if (!remote->own_kind) {
		close(*sock);
		*sock = -1;
		return 0;
	}

	snprintf(terms, sizeof(terms), "-s %d -n %d -m %d", settings->size,
		 settings->iters, settings->mtu);
	return exchange_same(*sock, terms, "the options");
}

int exchange_goodbye(int sock)
{
	return sock < 0 ? 0 : exchange_same(sock, "bye", "\"bye\"");
}
