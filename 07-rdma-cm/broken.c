/*
 * broken.c - should find the device for an address COUNT times, and hangs
 *
 *	broken ADDRESS COUNT
 *
 * Asks COUNT times for the same IPv4 address, each time with an identifier of
 * its own. It prints the first answer at once, and never prints the second.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../common/error.h"
#include "../common/options.h"

#define TIMEOUT_MS 5000

/* Returns 0, or -1 after an error message. */
static int ask(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct rdma_cm_event *event;

	if (failed(rdma_resolve_addr(id, NULL, addr, TIMEOUT_MS) ? errno : 0,
		   "rdma_resolve_addr") ||
	    failed(rdma_get_cm_event(id->channel, &event) ? errno : 0,
		   "rdma_get_cm_event"))
		return -1;
	if (event->event != RDMA_CM_EVENT_ADDR_RESOLVED) {
		print_error(0, "%s", rdma_event_str(event->event));
		return -1;
	}
	printf("device %s\n", ibv_get_device_name(id->verbs->device));
	return 0;
}

int main(int argc, char *argv[])
{
	struct rdma_event_channel *channel;
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int count, status = EXIT_SUCCESS;

	start_output();
	if (argc != 3 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1) {
		print_error(0, "usage: broken ADDRESS COUNT");
		return EXIT_USAGE;
	}
	count = atoi(argv[2]);

	channel = rdma_create_event_channel();
	if (missing(channel, "rdma_create_event_channel"))
		return EXIT_FAILURE;

	for (int i = 0; i < count && status == EXIT_SUCCESS; i++) {
		struct rdma_cm_id *id = NULL;

		if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
			print_error(errno, "rdma_create_id");
			status = EXIT_FAILURE;
			break;
		}
		if (ask(id, (struct sockaddr *)&addr))
			status = EXIT_FAILURE;
		status |= RELEASE(rdma_destroy_id, id);
	}

	status |= RELEASE_VOID(rdma_destroy_event_channel, channel);
	return status;
}
