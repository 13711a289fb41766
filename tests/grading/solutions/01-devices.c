/*
 * exercise.c - choose a device, a port and a GID to send from
 *
 * You write the configuration check of a backup service. It runs on machines
 * that you don't know, so it can't assume "rxe_0, port 1, GID index 1": it has
 * to look. Choose the first device whose first ACTIVE port has a GID of RoCE v2
 * that holds an IPv4 address; pass over devices that can't be opened. If there
 * is no such device, the exit status is 77, also if other devices exist. If the
 * query of a port fails, look at no further port of that device. If a GID
 * cannot be queried, pass over its entry, whatever the error is.
 *
 * devices.c does everything that you need, but chooses differently: it accepts
 * the best GID of the first ACTIVE port, even one without IPv4. Write the
 * bodies marked TODO, in any order. Run it with "make try-01", see how far you
 * are with "make check-01", and get help with "make hint-01".
 *
 * See ibv_query_port(3), ibv_query_gid_ex(3), ibv_open_device(3).
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/error.h"
#include "../common/gid.h"

/*
 * TODO 01.1: return the number of the device's first ACTIVE port, or 0 if it
 * has none, or if a query fails before you find one. Ports count from 1. See
 * print_device() and print_port() in devices.c.
 */
static int active_port(struct ibv_context *context)
{
#ifdef STARTER
	todo("01.1");
	return 0;
#else
	struct ibv_port_attr port;

	for (int n = 1; ibv_query_port(context, n, &port) == 0; n++)
		if (port.state == IBV_PORT_ACTIVE)
			return n;
	return 0;
#endif
}

/*
 * TODO 01.2: return whether this GID is of type RoCE v2 and holds an IPv4
 * address, as ::ffff:10.9.0.1 does. See rank_of() in devices.c.
 */
static bool is_ipv4_v2(const struct ibv_gid_entry *entry)
{
#ifdef STARTER
	todo("01.2");
	return false;
#else
	struct in6_addr ip;

	memcpy(&ip, &entry->gid, sizeof(ip));
	return entry->gid_type == IBV_GID_TYPE_ROCE_V2 &&
	       IN6_IS_ADDR_V4MAPPED(&ip);
#endif
}

/*
 * TODO 01.3: find the port's first GID for which is_ipv4_v2() is true, and put
 * it into *@gid. Return 0, or -1 if there is none or ibv_query_port() fails.
 * The table has gid_tbl_len entries; look at the first GID_INDEXES at most. If
 * the query of an entry fails, pass over it. See read_gids() in devices.c.
 */
static int find_gid(struct ibv_context *context, int port,
		    struct ibv_gid_entry *gid)
{
#ifdef STARTER
	return todo("01.3");
#else
	struct ibv_port_attr attr;

	if (ibv_query_port(context, port, &attr))
		return -1;
	for (int i = 0; i < attr.gid_tbl_len && i < GID_INDEXES; i++)
		if (ibv_query_gid_ex(context, port, i, gid, 0) == 0 &&
		    is_ipv4_v2(gid))
			return 0;
	return -1;
#endif
}

/*
 * TODO 01.4: open the first device in the list that has an ACTIVE port and, on
 * the first such port, a GID for which is_ipv4_v2() is true. Set *@gid, and
 * return the open device. Close every device that you opened and did not
 * choose. If one can't be opened, go on with the next. Return NULL if no device
 * has both. See show() in devices.c.
 */
static struct ibv_context *choose(struct ibv_device **list,
				  struct ibv_gid_entry *gid)
{
#ifdef STARTER
	todo("01.4");
	return NULL;
#else
	for (int i = 0; list[i]; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		int port;

		if (!context)
			continue;
		port = active_port(context);
		if (port && find_gid(context, port, gid) == 0)
			return context;
		ibv_close_device(context);
	}
	return NULL;
#endif
}

/*
 * TODO 01.5: return the exit status when nothing was chosen. @list_err is the
 * errno value of ibv_get_device_list(), or 0 if that returned a list. Return
 * EXIT_NO_DEVICE, which is 77, if there was a list, or if the kernel has no
 * RDMA, which is ENOSYS; return EXIT_FAILURE for any other error. See
 * no_device() in common/error.c.
 */
static int nothing_chosen(int list_err)
{
#ifdef STARTER
	return todo("01.5");
#else
	return !list_err || list_err == ENOSYS ? EXIT_NO_DEVICE : EXIT_FAILURE;
#endif
}

/*
 * Given: call your functions for one device, and print what they have found
 * when they are done, so that nothing they print gets into that line.
 */
static void show(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_gid_entry gid = { 0 };
	int port = context ? active_port(context) : 0;
	int err = port ? find_gid(context, port, &gid) : -1;

	if (err)
		printf("device %s: port %d, no GID\n",
		       ibv_get_device_name(device), port);
	else
		printf("device %s: port %d, GID index %u\n",
		       ibv_get_device_name(device), port, gid.gid_index);
	if (context)
		ibv_close_device(context);
}

int main(void)
{
	struct ibv_device **list;
	struct ibv_context *context = NULL;
	struct ibv_gid_entry gid = { 0 };
	char text[INET6_ADDRSTRLEN];
	int err, status = EXIT_SUCCESS;

	start_output();

	/* 1. What each device has. */
	list = ibv_get_device_list(NULL);
	err = list ? 0 : errno;
	for (int i = 0; list && list[i]; i++)
		show(list[i]);

	/* 2. The choice. */
	if (list)
		context = choose(list, &gid);
	if (context)
		printf("chosen: %s port %u index %u %s\n",
		       ibv_get_device_name(context->device), gid.port_num,
		       gid.gid_index, gid_text(&gid.gid, text));
	else
		status = nothing_chosen(err);
	checkpoint("chosen");

	/* 3. Release both. */
	if (list)
		ibv_free_device_list(list);
	if (context)
		ibv_close_device(context);
	return status;
}
