/*
 * attributes.c - everything that a device and its ports report about themselves
 *
 * Prints what "ibv_devinfo -v" prints, but under the names that C programs use,
 * with a few words on each. Most of them are limits. The tables of what to
 * print are in attributes.h.
 *
 * New since devices.c: ibv_query_device_ex(), which returns everything that
 * ibv_query_device() does, as orig_attr, and much that was added later. And
 * ibv_query_gid(), which is older than ibv_query_gid_ex() and does not report a
 * GID's type, so the type is read from sysfs.
 *
 *	attributes		all devices
 *	attributes -d rxe_0	only this one
 *
 *	$ attributes | grep -e max_qp_wr -e active_mtu -e ::
 *	    max_qp_wr                 1048576             # requests in a queue
 *	    active_mtu                3 IBV_MTU_1024      # largest payload now
 *	    0     fe80::5054:ff:fe09:1                    # RoCE v2
 *	    1     ::ffff:10.9.0.1                         # RoCE v2
 *
 * See ibv_query_device_ex(3), ibv_query_device(3), ibv_query_port(3),
 * ibv_query_gid(3), ibv_devinfo(1); and the InfiniBand Architecture
 * Specification, volume 1 (IBTA): 11.2.1 on devices, 14.2.5.6 on ports.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/gid.h"
#include "../common/options.h"
#include "attributes.h"

/* Read an unsigned number or a code of @size bytes, which @from points to. */
static uint64_t load(const void *from, size_t size)
{
	union {
		uint8_t of1;
		uint16_t of2;
		uint32_t of4;
		uint64_t of8;
	} value = { 0 };

	memcpy(&value, from, size);
	switch (size) {
	case sizeof(value.of1):
		return value.of1;
	case sizeof(value.of2):
		return value.of2;
	case sizeof(value.of4):
		return value.of4;
	default:
		return value.of8;
	}
}

/* The name of a code, or "unknown". */
static const char *text_of(const struct name *names, uint64_t value)
{
	for (; names->text; names++)
		if (names->value == value)
			return names->text;
	return "unknown";
}

/* Print the flags that are set, one in a line; unknown ones as a number. */
static void print_flags(const struct name *names, uint64_t value)
{
	for (; names->text; names++) {
		if (value & names->value)
			printf("      %-43s # %s\n", names->text,
			       names->meaning);
		value &= ~names->value;
	}

	value &= ~names->value;		/* these have names in another list */
	if (value)
		printf("      unknown 0x%" PRIx64 "\n", value);
}

/* Print the members of the struct at @base. */
static void print_members(const void *base, const struct attribute *members)
{
	for (; members->member; members++) {
		const char *from = (const char *)base + members->offset;
		char text[128];
		uint64_t value = 0;
		int n = snprintf(text, sizeof(text), "%-25s ", members->member);
		size_t left = sizeof(text) - n;

		if (members->kind != TEXT)
			value = load(from, members->size);

		switch (members->kind) {
		case NUMBER:
			snprintf(text + n, left, "%" PRIu64, value);
			break;
		case HEX:
		case ALL_OF:
			snprintf(text + n, left, "0x%" PRIx64, value);
			break;
		case GUID:
			snprintf(text + n, left, "0x%016" PRIx64,
				 be64toh(value));
			break;
		case TEXT:
			snprintf(text + n, left, "%s", from);
			break;
		case ONE_OF:
			snprintf(text + n, left, "%" PRIu64 " %s", value,
				 text_of(members->names, value));
			break;
		}

		printf("    %-45s # %s\n", text, members->meaning);
		if (members->kind == ALL_OF)
			print_flags(members->names, value);
	}
}

/* Read a GID's type from sysfs: "RoCE v2", or "IB/RoCE v1" for the others. */
static void read_gid_type(const struct ibv_device *device, int port, int index,
			  char type[16])
{
	char path[sizeof(device->ibdev_path) + 64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/ports/%d/gid_attrs/types/%d",
		 device->ibdev_path, port, index);
	file = fopen(path, "re");
	if (!file || fscanf(file, "%15[^\n]", type) != 1)
		snprintf(type, 16, "unknown");
	if (file)
		fclose(file);
}

/* Print the entries in use of a GID table. Returns 0, or -1 after a message. */
static int print_gids(struct ibv_context *context, int port, int count)
{
	printf("  union ibv_gid, port %d\n", port);
	for (int i = 0; i < count; i++) {
		char text[INET6_ADDRSTRLEN], type[16];
		union ibv_gid gid;

		/* One of the few verbs that return -1 and set errno. */
		if (ibv_query_gid(context, port, i, &gid)) {
			print_error(errno, "ibv_query_gid(port %d, index %d)",
				    port, i);
			return -1;
		}
		if (gid_is_zero(&gid))
			continue;

		read_gid_type(context->device, port, i, type);
		inet_ntop(AF_INET6, &gid, text, sizeof(text));
		printf("    %-5d %-39s # %s\n", i, text, type);
	}
	return 0;
}

/* Print everything about one device. Returns 0, or -1 after a message. */
static int print_device(struct ibv_context *context)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;

	if (failed(ibv_query_device_ex(context, NULL, &attr),
		   "ibv_query_device_ex"))
		return -1;

	puts("  struct ibv_device");
	print_members(context->device, device_members);
	puts("  struct ibv_context");
	print_members(context, context_members);
	puts("  struct ibv_device_attr");
	print_members(&attr.orig_attr, attr_members);
	puts("  struct ibv_device_attr_ex");
	print_members(&attr, ex_members);

	/* Ports count from 1. */
	for (int i = 1; i <= attr.orig_attr.phys_port_cnt; i++) {
		if (failed(ibv_query_port(context, i, &port),
			   "ibv_query_port(port %d)", i))
			return -1;
		printf("  struct ibv_port_attr, port %d\n", i);
		print_members(&port, port_members);
		if (print_gids(context, i, port.gid_tbl_len))
			return -1;
	}
	return 0;
}

/* Open a device, print it, and close it. Returns the status to exit with. */
static int show(struct ibv_device *device)
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

	if (print_device(context))
		status = EXIT_FAILURE;
	if (ibv_close_device(context)) {
		print_error(errno, "ibv_close_device");
		status = EXIT_FAILURE;
	}
	return status;
}

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
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

	/* 1. The list of devices, as in devices.c. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}

	/* 2. Each device: the same queries, but everything they return. */
	for (int i = 0; list[i]; i++) {
		if (name && strcmp(name, ibv_get_device_name(list[i])) != 0)
			continue;
		found++;
		status |= show(list[i]);
	}
	if (!found) {
		print_error(0, "no device called %s", name);
		for (int i = 0; list[i]; i++)
			print_hint("there is %s", ibv_get_device_name(list[i]));
		status = EXIT_FAILURE;
	}

out:
	/* 3. Free the list. */
	if (list)
		ibv_free_device_list(list);
	return status;
}
