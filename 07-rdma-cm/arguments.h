/*
 * arguments.h - the options of rping, and the address that they name
 *
 * Nothing here is about RDMA.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <getopt.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>

#include "../common/error.h"
#include "../common/options.h"
#include "rounds.h"

struct arguments {
	const char *host;	/* the server; or where to listen, or NULL */
	int port;
	bool client;
	int count;		/* of rounds; 0: not given */
	int timeout;		/* of every wait, in seconds */
	struct addrinfo *list;	/* host and port; freeaddrinfo(3) it */
};

/*
 * Fill in @args, and in @r what the rounds need. Returns 0, or -1 after an
 * error message; then exit with EXIT_USAGE.
 */
static inline int arguments_parse(int argc, char *argv[],
				  struct arguments *args, struct rounds *r)
{
	bool server = false;
	const struct option_spec specs[] = {
		{ 's', "server", NULL, "be the server (the default)",
		  .flag = &server },
		{ 'c', "client", NULL, "be the client of the server at -a",
		  .flag = &args->client },
		{ 'a', "address", "HOST", "server: address to listen on (any)",
		  .text = &args->host },
		{ 'p', "port", "PORT", "port of the server (7174)",
		  .number = &args->port, .min = 1, .max = 65535 },
		{ 'C', "count", "N",
		  "rounds (client: 3; server: until the client ends)",
		  .number = &args->count, .min = 1, .max = 100000000 },
		{ 'n', "iters", "N", "the same as -C",
		  .number = &args->count, .min = 1, .max = 100000000 },
		{ 'S', "size", "BYTES", "size of the text (64)",
		  .number = &r->size,
		  .min = ROUNDS_SIZE_MIN, .max = ROUNDS_SIZE_MAX },
		{ 'v', "verbose", NULL, "print the texts",
		  .flag = &r->verbose },
		{ 'V', "validate", NULL, "client: compare the texts",
		  .flag = &r->validate },
		{ 1, "timeout", "SECS", "longest wait for anything (10)",
		  .number = &args->timeout, .min = 1, .max = 3600 },
		{ 0 }
	};

	*args = (struct arguments){ .port = 7174, .timeout = 10 };
	*r = (struct rounds){ .size = 64 };
	if (options_parse(argc, argv, specs, "SERVER",
			  "SERVER is short for -c -a SERVER.\n"
			  "Both sides need the same -p and -S."))
		return -1;
	if (argv[optind]) {
		args->client = true;
		args->host = argv[optind];
	}
	r->timeout = args->timeout;
	if (!args->client || (args->host && !server))
		return 0;
	print_error(0, server ? "-s cannot go with -c or SERVER"
			      : "-c needs the server's address");
	print_hint("a server: -s [-a HOST]; a client: SERVER, or -c -a SERVER");
	return -1;
}

/* Look up host and port. Returns 0, or -1 after an error message. */
static inline int arguments_look_up(struct arguments *args)
{
	const struct addrinfo hints = {
		/* Without a host, any address: here, any IPv4 address. */
		.ai_family = args->host ? AF_UNSPEC : AF_INET,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = args->client ? 0 : AI_PASSIVE,
	};
	char service[sizeof("65535")];
	int err;

	snprintf(service, sizeof(service), "%d", args->port);
	err = getaddrinfo(args->host, service, &hints, &args->list);
	if (err == 0)
		return 0;
	print_error(err == EAI_SYSTEM ? errno : 0, "address \"%s\": %s",
		    args->host ? args->host : "any", gai_strerror(err));
	return -1;
}

#endif
