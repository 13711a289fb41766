/*
 * devices.c - which RDMA devices are there, and how are they addressed?
 *
 * Lists the devices of this machine, their ports, and the GIDs of each port. A
 * star marks the GID that the programs of the later chapters choose.
 *
 *	devices			all devices
 *	devices -d rxe_0	only this one
 *
 *	$ devices
 *	device name: rxe_0
 *	  node GUID: 5054:00ff:fe09:0001
 *	  node type: InfiniBand channel adapter
 *	  transport: InfiniBand
 *	  port 1: active
 *	    link layer: Ethernet
 *	    MTU: 1024 bytes active, 4096 at most
 *	    GID table: 1024 entries; in use are
 *	      index  type        net device       GID
 *	          0  RoCE v2     eth0             fe80::5054:ff:fe09:1
 *	    *     1  RoCE v2     eth0             ::ffff:10.9.0.1
 *	* later chapters choose rxe_0, port 1, GID index 1
 *	  this port: it is the first ACTIVE one that has a GID
 *	  this GID: RoCE v2 and IPv4, which two hosts most likely share
 *	released: ibv_free_device_list
 *	rxe_0 is still open: an open device needs no list
 *	released: ibv_close_device
 *
 * See ibv_get_device_list(3), ibv_free_device_list(3), ibv_get_device_name(3),
 * ibv_get_device_guid(3), ibv_open_device(3), ibv_close_device(3),
 * ibv_node_type_str(3), ibv_query_device(3), ibv_query_port(3),
 * ibv_port_state_str(3), ibv_query_gid_ex(3); and the InfiniBand Architecture
 * Specification, volume 1 (IBTA): annexes A16 on RoCE and A17 on RoCE v2.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/gid.h"
#include "../common/names.h"
#include "../common/options.h"

/*
 * Kinds of GIDs: docs/gid.md. Those of RoCE go from worst to best. A port has
 * either these or INFINIBAND, never both.
 */
enum rank { INFINIBAND, ROCE_V1, LINK_LOCAL, IPV6, IPV4 };

static enum rank rank_of(const struct ibv_gid_entry *entry)
{
	struct in6_addr ip;

	if (entry->gid_type == IBV_GID_TYPE_IB)
		return INFINIBAND;
	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return ROCE_V1;

	/*
	 * A GID of RoCE v2 has the form of an IPv6 address. One that begins
	 * with ::ffff: holds an IPv4 address.
	 */
	memcpy(&ip, &entry->gid, sizeof(ip));
	if (IN6_IS_ADDR_V4MAPPED(&ip))
		return IPV4;
	return IN6_IS_ADDR_LINKLOCAL(&ip) ? LINK_LOCAL : IPV6;
}

/*
 * Read the GID table of a port, which has @size entries, and put those that are
 * in use into @gids. Returns how many they are, or -1 after an error message.
 *
 * Only the first GID_INDEXES entries are read, because a queue pair names its
 * GID by an index of 8 bits (sgid_index).
 */
static int read_gids(struct ibv_context *context, int port, int size,
		     struct ibv_gid_entry gids[GID_INDEXES])
{
	int used = 0;

	for (int i = 0; i < size && i < GID_INDEXES; i++) {
		int err = ibv_query_gid_ex(context, port, i, &gids[used], 0);

		/* Skip an empty entry: a removed address leaves one. */
		if (err == ENODATA || (!err && gid_is_zero(&gids[used].gid)))
			continue;
		if (failed(err, "ibv_query_gid_ex(port %d, index %d)", port, i))
			return -1;
		used++;
	}
	return used;
}

static void print_gid(const struct ibv_gid_entry *entry, char mark)
{
	static const char *const type[] = {
		[IBV_GID_TYPE_IB] = "InfiniBand",
		[IBV_GID_TYPE_ROCE_V1] = "RoCE v1",	/* Ethernet frames */
		[IBV_GID_TYPE_ROCE_V2] = "RoCE v2",	/* UDP, port 4791 */
	};
	char name[IF_NAMESIZE], text[INET6_ADDRSTRLEN];

	printf("    %c %5u  %-10s  %-15s  %s\n", mark, entry->gid_index,
	       entry->gid_type > IBV_GID_TYPE_ROCE_V2 ? "unknown" :
	       type[entry->gid_type],
	       if_indextoname(entry->ndev_ifindex, name) ? name : "-",
	       inet_ntop(AF_INET6, &entry->gid, text, sizeof(text)));
}

/*
 * Print port @number. If it is ACTIVE, and @chosen is still empty (its port_num
 * is 0), put the port's best GID into @chosen. Returns 0, or -1 after an error
 * message.
 */
static int print_port(struct ibv_context *context, int number,
		      const struct ibv_port_attr *port,
		      struct ibv_gid_entry *chosen)
{
	bool choose = port->state == IBV_PORT_ACTIVE && !chosen->port_num;
	struct ibv_gid_entry gids[GID_INDEXES];
	int used, best = 0;

	printf("  port %d: %s\n"
	       "    link layer: %s\n"
	       "    MTU: %d bytes active, %d at most\n"
	       "    GID table: %d entries; in use are\n"
	       "      index  type        net device       GID\n",
	       number, ibv_port_state_str(port->state),
	       port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" :
	       "InfiniBand", mtu_bytes(port->active_mtu),
	       mtu_bytes(port->max_mtu), port->gid_tbl_len);

	used = read_gids(context, number, port->gid_tbl_len, gids);
	if (used < 0)
		return -1;

	/* If several are equally good, choose the first of them. */
	for (int i = 1; i < used; i++)
		if (rank_of(&gids[i]) > rank_of(&gids[best]))
			best = i;
	if (choose && used > 0)
		*chosen = gids[best];
	for (int i = 0; i < used; i++)
		print_gid(&gids[i], choose && i == best ? '*' : ' ');

	return 0;
}

/* Print an open device and its ports. Returns 0, or -1 after a message. */
static int print_device(struct ibv_context *context,
			struct ibv_gid_entry *chosen)
{
	/* The verb returns the GUID in network byte order. */
	uint64_t guid = be64toh(ibv_get_device_guid(context->device));
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	printf("  node GUID: %04x:%04x:%04x:%04x\n"
	       "  node type: %s\n"
	       "  transport: %s\n",
	       (unsigned int)(guid >> 48), (unsigned int)(guid >> 32) & 0xffff,
	       (unsigned int)(guid >> 16) & 0xffff, (unsigned int)guid & 0xffff,
	       ibv_node_type_str(context->device->node_type),
	       context->device->transport_type == IBV_TRANSPORT_IB ?
	       "InfiniBand" : "other than InfiniBand");

	if (failed(ibv_query_device(context, &device), "ibv_query_device"))
		return -1;
	/* Ports count from 1. */
	for (int i = 1; i <= device.phys_port_cnt; i++) {
		if (failed(ibv_query_port(context, i, &port),
			   "ibv_query_port(port %d)", i) ||
		    print_port(context, i, &port, chosen))
			return -1;
	}
	return 0;
}

/* Returns the status to exit with: 0, or 1 after an error message. */
static int close_device(struct ibv_context *context)
{
	if (!context)
		return EXIT_SUCCESS;

	/* This verb returns -1 and sets errno. */
	if (ibv_close_device(context)) {
		print_error(errno, "ibv_close_device");
		return EXIT_FAILURE;
	}
	puts("released: ibv_close_device");
	return EXIT_SUCCESS;
}

/*
 * Open a device from the list, print it, and close it. But if the chosen GID
 * belongs to this device, leave the device open and put it into *@kept; the
 * caller closes it. Returns the status to exit with.
 */
static int show(struct ibv_device *device, struct ibv_context **kept,
		struct ibv_gid_entry *chosen)
{
	struct ibv_context *context;
	int status = EXIT_SUCCESS;

	printf("device name: %s\n", ibv_get_device_name(device));
	context = ibv_open_device(device);
	if (missing(context, "ibv_open_device")) {
		print_hint("do you have permission to read and write "
			   "/dev/infiniband/%s?", device->dev_name);
		return EXIT_FAILURE;
	}

	if (print_device(context, chosen))
		status = EXIT_FAILURE;
	if (chosen->port_num && !*kept) {
		*kept = context;
		return status;
	}
	return status | close_device(context);
}

static void print_choice(const struct ibv_context *context,
			 const struct ibv_gid_entry *chosen)
{
	static const char *const reason[] = {
		[INFINIBAND] = "not needed, because InfiniBand has the LID",
		[ROCE_V1] = "RoCE v1, which no router passes on; no v2 there",
		[LINK_LOCAL] = "RoCE v2, link-local; no other address there",
		[IPV6] = "RoCE v2 and IPv6; no IPv4 there",
		[IPV4] = "RoCE v2 and IPv4, which two hosts most likely share",
	};

	printf("* later chapters choose %s, port %u, GID index %u\n"
	       "  this port: it is the first ACTIVE one that has a GID\n"
	       "  this GID: %s\n", ibv_get_device_name(context->device),
	       chosen->port_num, chosen->gid_index, reason[rank_of(chosen)]);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *kept = NULL;
	struct ibv_gid_entry chosen = { 0 };
	const char *name = NULL;
	const struct option_spec options[] = {
		{ 'd', "ib-dev", "NAME", "only this device (all)",
		  .text = &name },
		{ 0 }
	};
	int found = 0, status = EXIT_SUCCESS;

	start_output();
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. The list of devices, which ends with a NULL pointer. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}

	/* 2. Each device, its ports and their GIDs. */
	for (int i = 0; list[i]; i++) {
		if (name && strcmp(name, ibv_get_device_name(list[i])) != 0)
			continue;
		found++;
		status |= show(list[i], &kept, &chosen);
	}
	if (!found) {
		print_error(0, "no device called %s", name);
		for (int i = 0; list[i]; i++)
			print_hint("there is %s", ibv_get_device_name(list[i]));
		status = EXIT_FAILURE;
	}

	/* 3. The choice: what the later chapters send from. */
	if (kept)
		print_choice(kept, &chosen);
	else if (status == EXIT_SUCCESS)
		puts("no ACTIVE port with a GID, which later chapters need");

out:
	/* 4. Free the list, and with it the devices that are not open. */
	if (list) {
		ibv_free_device_list(list);
		puts("released: ibv_free_device_list");
	}
	if (kept)
		printf("%s is still open: an open device needs no list\n",
		       ibv_get_device_name(kept->device));
	status |= close_device(kept);
	return status;
}
