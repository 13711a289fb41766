/*
 * The options that all programs with two sides share, such as the ping-pong;
 * and the port, GID and MTU that these programs then choose on this machine.
 */
#ifndef COMMON_SETTINGS_H
#define COMMON_SETTINGS_H

#include <infiniband/verbs.h>

#include "options.h"

/* What the user asked for. */
struct settings {
	const char *server;	/* the server's host; NULL: be the server */
	const char *device;	/* -d; NULL: the first with an ACTIVE port */
	int tcp_port;		/* -p */
	int size;		/* -s, of a message, in bytes */
	int mtu;		/* -m, of the path, in bytes */
	int iters;		/* -n, messages each way */
	int gid_index;		/* -g; -1: the port's best */
	int timeout;		/* --timeout of every wait, in seconds */
};

/*
 * Fill in @settings: the defaults, and what the command line has. @more is a
 * table of further options that the program has, or NULL. One argument that is
 * not an option is accepted: the server. Returns 0, or -1 after an error
 * message; then exit with EXIT_USAGE.
 */
int settings_parse(int argc, char *argv[], struct settings *settings,
		   const struct option_spec *more);

/* What was found: where packets leave this machine. */
struct path {
	int port_num;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	enum ibv_mtu mtu;
};

/*
 * Fill in @path, whose port_num is set already: query this port, check that it
 * can do what @settings ask for, choose a GID, and print the lines "device:",
 * "port:" and "GID:". Returns 0, or -1 after an error message.
 */
int path_find(struct ibv_context *context, const struct settings *settings,
	      struct path *path);

#endif
