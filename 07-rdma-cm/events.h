/*
 * events.h - what the connection manager's events and errors mean, in words
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "../common/error.h"

/* Reasons of REJECTED, as the InfiniBand specification numbers them. */
#define REASON_TIMEOUT 4
#define REASON_NOBODY_LISTENS 8
#define REASON_STALE 10
#define REASON_PROGRAM 28

/*
 * Returns the name of an event without the RDMA_CM_EVENT_ with which all names
 * begin, for example "ADDR_RESOLVED".
 */
static inline const char *event_name(enum rdma_cm_event_type type)
{
	const char *name = rdma_event_str(type), front[] = "RDMA_CM_EVENT_";
	const size_t length = strlen(front);

	/* An event that the library does not know is "UNKNOWN EVENT". */
	return strncmp(name, front, length) ? name : name + length;
}

/*
 * The @status of an event: 0; a reason above 0; or, below 0, an errno value of
 * the kernel, or -1 if a call inside librdmacm has failed. Returns @text, which
 * has room for @size bytes.
 */
static inline const char *event_status(int status, char *text, size_t size)
{
	const char *name = status < 0 ? strerrorname_np(-status) : NULL;

	if (status == 0)
		snprintf(text, size, "success");
	else if (status == REASON_NOBODY_LISTENS)
		snprintf(text, size, "%d, nobody listens", status);
	else if (status == REASON_PROGRAM)
		snprintf(text, size, "%d, program refused", status);
	else if (status == REASON_TIMEOUT)
		snprintf(text, size, "%d, timeout", status);
	else if (status == REASON_STALE)
		snprintf(text, size, "%d, stale connection", status);
	else if (status == -1)
		snprintf(text, size, "-1, in librdmacm");
	else if (name)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "%d", status);
	return text;
}

/* An event came that the program did not want. What can the user do? */
static inline void event_hint(enum rdma_cm_event_type type, int status)
{
	if (type == RDMA_CM_EVENT_REJECTED && status == REASON_NOBODY_LISTENS)
		print_hint("is the server running, with the same -p?");
	else if (type == RDMA_CM_EVENT_REJECTED)
		print_hint("the peer's program refused, or has ended: look at "
			   "its output");
	else if (type == RDMA_CM_EVENT_ADDR_ERROR && status == -ENODEV)
		print_hint("the way to that address leads through an interface "
			   "without an RDMA device: see rdma link");
	else if (type == RDMA_CM_EVENT_ADDR_ERROR)
		print_hint("no machine answers at that address: try ping");
	else if (type == RDMA_CM_EVENT_DISCONNECTED)
		print_hint("the peer gave up or died: look at its output");
	else
		print_hint("docs/errors.md explains the events");
}

/* Print that call @name of librdmacm failed with errno. Returns -1. */
static inline int cm_failed(const char *name)
{
	int err = errno;

	print_error(err, "%s", name);
	if (err == ENODEV)
		print_hint("take the address of the RDMA device's network "
			   "interface, not 127.0.0.1");
	else if (err == EADDRINUSE)
		print_hint("another program listens there; -p takes another "
			   "port, on both sides");
	else if (err == EADDRNOTAVAIL)
		print_hint("is -a an address of this machine, and -p free?");
	else if (err == ECONNREFUSED)
		print_hint("is the server running, with the same -p?");
	else if (err == EINVAL)
		print_hint("has the peer given up meanwhile?");
	else if (err == ENETUNREACH)
		print_hint("no route leads to that address: try ping");
	return -1;
}

#endif
