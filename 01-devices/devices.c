/*
 * devices.c - which RDMA devices are there, and how are they addressed?
 *
 * Lists the devices of this machine with their ports, and the GIDs by which a
 * port is reached. A star marks the GID that the later chapters choose.
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
 *	  this port: it is the first ACTIVE one
 *	  this GID: RoCE v2 and IPv4, which two hosts most likely share
 *	released: ibv_free_device_list
 *	rxe_0 is still open: an open device needs no list
 *	released: ibv_close_device
 *
 * See ibv_get_device_list(3), ibv_free_device_list(3), ibv_get_device_name(3),
 * ibv_get_device_guid(3), ibv_open_device(3), ibv_close_device(3),
 * ibv_node_type_str(3), ibv_query_port(3), ibv_port_state_str(3),
 * ibv_query_gid_ex(3); and the InfiniBand Architecture Specification, volume 1
 * (IBTA): annexes A16 on RoCE and A17 on RoCE v2.
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
#include "../common/options.h"

/* An address names its GID's index in 8 bits: struct ibv_global_route. */
#define USABLE_GIDS 256

/* Kinds of GIDs, from worst to best. */
enum rank { INFINIBAND, ROCE_V1, LINK_LOCAL, IPV6, IPV4 };

static enum rank rank_of(const struct ibv_gid_entry *entry)
{
	struct in6_addr ip;

	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return entry->gid_type == IBV_GID_TYPE_ROCE_V1 ? ROCE_V1 :
		       INFINIBAND;

	/* A RoCE GID is an IPv6 address; ::ffff: begins an IPv4 one in it. */
	memcpy(&ip, &entry->gid, sizeof(ip));
	if (IN6_IS_ADDR_V4MAPPED(&ip))
		return IPV4;
	return IN6_IS_ADDR_LINKLOCAL(&ip) ? LINK_LOCAL : IPV6;
}

/*
 * Read what is in use of a port's GID table into @gids. Returns how many GIDs
 * these are, or -1.
 *
 * Where ibv_query_gid_ex() is missing, in rdma-core before 32, ibv_query_gid()
 * and sysfs tell the same: attributes.c asks them. An older kernel does not
 * matter: there ibv_query_gid_ex() asks sysfs itself.
 */
static int read_gids(struct ibv_context *context, int port, int size,
		     struct ibv_gid_entry gids[USABLE_GIDS])
{
	int used = 0;

	for (int i = 0; i < size && i < USABLE_GIDS; i++) {
		int err = ibv_query_gid_ex(context, port, i, &gids[used], 0);

		/* The table has gaps, where addresses were removed. */
		if (err == ENODATA)
			continue;
		if (err) {
			print_error(err, "ibv_query_gid_ex(%d)", i);
			return -1;
		}
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

/* Print a port. The first ACTIVE one sets @chosen, whose port was 0 before. */
static int print_port(struct ibv_context *context, int number,
		      const struct ibv_port_attr *port,
		      struct ibv_gid_entry *chosen)
{
	bool choose = port->state == IBV_PORT_ACTIVE && !chosen->port_num;
	struct ibv_gid_entry gids[USABLE_GIDS];
	int used, best = 0;

	/* MTUs are codes: 1 for 256 bytes, 2 for 512, up to 5 for 4096. */
	printf("  port %d: %s\n"
	       "    link layer: %s\n"
	       "    MTU: %d bytes active, %d at most\n"
	       "    GID table: %d entries; in use are\n"
	       "      index  type        net device       GID\n",
	       number, ibv_port_state_str(port->state),
	       port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" :
	       "InfiniBand", 128 << port->active_mtu, 128 << port->max_mtu,
	       port->gid_tbl_len);

	used = read_gids(context, number, port->gid_tbl_len, gids);
	if (used < 0)
		return -1;

	/* The best is chosen, of equal ones the first. */
	for (int i = 1; i < used; i++)
		if (rank_of(&gids[i]) > rank_of(&gids[best]))
			best = i;
	if (choose && used > 0)
		*chosen = gids[best];
	for (int i = 0; i < used; i++)
		print_gid(&gids[i], choose && i == best ? '*' : ' ');

	return 0;
}

static int print_device(struct ibv_context *context,
			struct ibv_gid_entry *chosen)
{
	/* In network byte order, as nearly all that others are to read. */
	uint64_t guid = be64toh(ibv_get_device_guid(context->device));
	struct ibv_port_attr port;
	int err, number = 1;

	printf("  node GUID: %04x:%04x:%04x:%04x\n"
	       "  node type: %s\n"
	       "  transport: %s\n",
	       (unsigned int)(guid >> 48), (unsigned int)(guid >> 32) & 0xffff,
	       (unsigned int)(guid >> 16) & 0xffff, (unsigned int)guid & 0xffff,
	       ibv_node_type_str(context->device->node_type),
	       context->device->transport_type == IBV_TRANSPORT_IB ?
	       "InfiniBand" : "other than InfiniBand");

	/* Ports count from 1; EINVAL: there is none of that number. */
	while ((err = ibv_query_port(context, number, &port)) == 0) {
		if (print_port(context, number, &port, chosen))
			return -1;
		number++;
	}
	if (err == EINVAL && number > 1)
		return 0;

	print_error(err, "ibv_query_port(%d)", number);
	return -1;
}

static int close_device(struct ibv_context *context)
{
	if (!context)
		return 0;
	if (ibv_close_device(context)) {
		print_error(errno, "ibv_close_device");
		return 1;
	}
	puts("released: ibv_close_device");
	return 0;
}

int main(int argc, char *argv[])
{
	static const char *const reason[] = {
		[INFINIBAND] = "unused; on InfiniBand the LID is enough",
		[ROCE_V1] = "RoCE v1, which no router passes on; no v2 there",
		[LINK_LOCAL] = "RoCE v2, link-local; no other address there",
		[IPV6] = "RoCE v2 and IPv6; no IPv4 there",
		[IPV4] = "RoCE v2 and IPv4, which two hosts most likely share",
	};
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

	/* A line at a time, into a pipe as well: in order with the errors. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. The list: what devices are there? A NULL ends it. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}

	for (int i = 0; list[i]; i++) {
		struct ibv_context *context;

		if (name && strcmp(name, ibv_get_device_name(list[i])) != 0)
			continue;

		/* 2. Each device: its name is known, the rest takes opening. */
		found++;
		printf("device name: %s\n", ibv_get_device_name(list[i]));
		context = ibv_open_device(list[i]);
		if (!context) {
			print_error(errno, "ibv_open_device");
			print_hint("may you read and write /dev/infiniband/%s?",
				   list[i]->dev_name);
			status = EXIT_FAILURE;
			continue;
		}
		if (print_device(context, &chosen))
			status = EXIT_FAILURE;

		if (chosen.port_num && !kept)
			kept = context;
		else
			status |= close_device(context);
	}
	if (!found) {
		print_error(0, "no device called %s", name);
		for (int i = 0; list[i]; i++)
			print_hint("there is %s", ibv_get_device_name(list[i]));
		status = EXIT_FAILURE;
		goto out;
	}

	/* 3. The choice: where the later chapters send from. */
	if (kept)
		printf("* later chapters choose %s, port %u, GID index %u\n"
		       "  this port: it is the first ACTIVE one\n"
		       "  this GID: %s\n", ibv_get_device_name(kept->device),
		       chosen.port_num, chosen.gid_index,
		       reason[rank_of(&chosen)]);
	else if (status == EXIT_SUCCESS)
		puts("no port is ACTIVE, which later chapters need");

out:
	/* 4. The end of the list: its devices are gone, but for open ones. */
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
