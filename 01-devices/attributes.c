/*
 * attributes.c - everything that a device and its ports say of themselves
 *
 * Prints what `ibv_devinfo -v` prints, but under the names that it has in C,
 * and with a few words on each. Most are limits, of which the later chapters
 * use a few.
 *
 * New since devices.c: ibv_query_device_ex(), which gives all that
 * ibv_query_device() (chapter 02) does, as orig_attr, and what came later. And
 * ibv_query_gid(), which knows no types, so sysfs is asked for them.
 *
 *	attributes		all devices
 *	attributes -d rxe_0	only this one
 *
 *	$ attributes | grep -e max_qp_wr -e active_mtu -e ::
 *	    max_qp_wr                 1048576             # requests in a queue
 *	    active_mtu                3 IBV_MTU_1024      # as set up now
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
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/options.h"

/* A code or a flag, and what it's called. The last of a list has no text. */
struct name {
	uint64_t value;
	const char *text;
	const char *meaning;
};

#define CODE(constant) { constant, #constant, NULL }
#define FLAG(constant, meaning) { constant, #constant, meaning }

/* How to print a member: the last two use a list of names. */
enum kind { NUMBER, HEX, GUID, TEXT, ONE_OF, ALL_OF };

struct attribute {
	const char *member;	/* NULL ends a list */
	size_t offset, size;	/* in bytes */
	enum kind kind;
	const struct name *names;
	const char *meaning;
};

#define MEMBER(type, member, kind, names, meaning) \
	{ #member, offsetof(struct type, member), \
	  sizeof(((struct type *)NULL)->member), kind, names, meaning }
#define DEVICE(...) MEMBER(ibv_device, __VA_ARGS__)
#define CONTEXT(...) MEMBER(ibv_context, __VA_ARGS__)
#define ATTR(...) MEMBER(ibv_device_attr, __VA_ARGS__)
#define EX(...) MEMBER(ibv_device_attr_ex, __VA_ARGS__)
#define PORT(...) MEMBER(ibv_port_attr, __VA_ARGS__)

static const struct name node_types[] = {
	CODE(IBV_NODE_CA),
	CODE(IBV_NODE_SWITCH),
	CODE(IBV_NODE_ROUTER),
	CODE(IBV_NODE_RNIC),
	CODE(IBV_NODE_USNIC),
	CODE(IBV_NODE_USNIC_UDP),
	CODE(IBV_NODE_UNSPECIFIED),
	{ 0 }
};

static const struct name transports[] = {
	CODE(IBV_TRANSPORT_IB),
	CODE(IBV_TRANSPORT_IWARP),
	CODE(IBV_TRANSPORT_USNIC),
	CODE(IBV_TRANSPORT_USNIC_UDP),
	CODE(IBV_TRANSPORT_UNSPECIFIED),
	{ 0 }
};

static const struct name capabilities[] = {
	FLAG(IBV_DEVICE_RESIZE_MAX_WR, "queues can be resized"),
	FLAG(IBV_DEVICE_BAD_PKEY_CNTR, "counts wrong partitions"),
	FLAG(IBV_DEVICE_BAD_QKEY_CNTR, "counts wrong Q_Keys"),
	FLAG(IBV_DEVICE_RAW_MULTI, "raw packets to many"),
	FLAG(IBV_DEVICE_AUTO_PATH_MIG, "QPs move to a second path"),
	FLAG(IBV_DEVICE_CHANGE_PHY_PORT, "QPs move to another port"),
	FLAG(IBV_DEVICE_UD_AV_PORT_ENFORCE, "a datagram's port is checked"),
	FLAG(IBV_DEVICE_CURR_QP_STATE_MOD, "takes IBV_QP_CUR_STATE"),
	FLAG(IBV_DEVICE_SHUTDOWN_PORT, "ports can be shut down"),
	FLAG(IBV_DEVICE_INIT_TYPE, "init_type_reply is set"),
	FLAG(IBV_DEVICE_PORT_ACTIVE_EVENT, "event: a port gets ACTIVE"),
	FLAG(IBV_DEVICE_SYS_IMAGE_GUID, "sys_image_guid is set"),
	FLAG(IBV_DEVICE_RC_RNR_NAK_GEN, "says if there is no receive"),
	FLAG(IBV_DEVICE_SRQ_RESIZE, "shared queues can be resized"),
	FLAG(IBV_DEVICE_N_NOTIFY_CQ, "event after N completions"),
	FLAG(IBV_DEVICE_MEM_WINDOW, "memory windows"),
	FLAG(IBV_DEVICE_UD_IP_CSUM, "IP checksums in datagrams"),
	FLAG(IBV_DEVICE_XRC, "connections share receives"),
	FLAG(IBV_DEVICE_MEM_MGT_EXTENSIONS, "registers by work request"),
	FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2A, "windows bound to a QP"),
	FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2B, "the same, to a QP and a PD"),
	FLAG(IBV_DEVICE_RC_IP_CSUM, "IP checksums over RC"),
	FLAG(IBV_DEVICE_RAW_IP_CSUM, "IP checksums in raw packets"),
	FLAG(IBV_DEVICE_MANAGED_FLOW_STEERING, "rules choose a packet's QP"),
	{ 0 }
};

static const struct name more_capabilities[] = {
	FLAG(IBV_DEVICE_RAW_SCATTER_FCS, "raw packets with checksums"),
	FLAG(IBV_DEVICE_PCI_WRITE_END_PADDING, "writes whole cache lines"),
	{ UINT32_MAX, NULL, NULL }	/* the lower half, as named above */
};

static const struct name atomics[] = {
	CODE(IBV_ATOMIC_NONE),
	CODE(IBV_ATOMIC_HCA),
	CODE(IBV_ATOMIC_GLOB),
	{ 0 }
};

static const struct name paging[] = {
	FLAG(IBV_ODP_SUPPORT, "needs no pinned pages"),
	FLAG(IBV_ODP_SUPPORT_IMPLICIT, "one region for all memory"),
	{ 0 }
};

static const struct name paging_for[] = {
	FLAG(IBV_ODP_SUPPORT_SEND, "sends"),
	FLAG(IBV_ODP_SUPPORT_RECV, "receives"),
	FLAG(IBV_ODP_SUPPORT_WRITE, "RDMA writes"),
	FLAG(IBV_ODP_SUPPORT_READ, "RDMA reads"),
	FLAG(IBV_ODP_SUPPORT_ATOMIC, "atomics"),
	FLAG(IBV_ODP_SUPPORT_SRQ_RECV, "shared receives"),
	{ 0 }
};

static const struct name qp_types[] = {
	FLAG(1 << IBV_QPT_RC, "reliable connections"),
	FLAG(1 << IBV_QPT_UC, "unreliable connections"),
	FLAG(1 << IBV_QPT_UD, "datagrams"),
	FLAG(1 << IBV_QPT_RAW_PACKET, "raw packets"),
	{ 0 }
};

static const struct name raw_capabilities[] = {
	FLAG(IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, "takes VLAN tags off"),
	FLAG(IBV_RAW_PACKET_CAP_SCATTER_FCS, "delivers checksums too"),
	FLAG(IBV_RAW_PACKET_CAP_IP_CSUM, "handles IP checksums"),
	FLAG(IBV_RAW_PACKET_CAP_DELAY_DROP, "waits a while for receives"),
	{ 0 }
};

static const struct name tag_matching[] = {
	FLAG(IBV_TM_CAP_RC, "reliable connections"),
	{ 0 }
};

static const struct name atomic_sizes[] = {
	FLAG(IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP, "4 bytes"),
	FLAG(IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP, "8 bytes"),
	FLAG(IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP, "16 bytes"),
	{ 0 }
};

static const struct name states[] = {
	CODE(IBV_PORT_NOP),
	CODE(IBV_PORT_DOWN),
	CODE(IBV_PORT_INIT),
	CODE(IBV_PORT_ARMED),
	CODE(IBV_PORT_ACTIVE),
	CODE(IBV_PORT_ACTIVE_DEFER),
	{ 0 }
};

static const struct name mtus[] = {
	CODE(IBV_MTU_256),
	CODE(IBV_MTU_512),
	CODE(IBV_MTU_1024),
	CODE(IBV_MTU_2048),
	CODE(IBV_MTU_4096),
	{ 0 }
};

static const struct name link_layers[] = {
	CODE(IBV_LINK_LAYER_UNSPECIFIED),
	CODE(IBV_LINK_LAYER_INFINIBAND),
	CODE(IBV_LINK_LAYER_ETHERNET),
	{ 0 }
};

/* The codes below have no constants: see PortInfo, IBTA 14.2.5.6. */
static const struct name widths[] = {
	{ 1, "1 lane", NULL },
	{ 2, "4 lanes", NULL },
	{ 4, "8 lanes", NULL },
	{ 8, "12 lanes", NULL },
	{ 16, "2 lanes", NULL },
	{ 0 }
};

static const struct name speeds[] = {
	{ 1, "2.5 Gbit/s", NULL },	/* SDR */
	{ 2, "5.0 Gbit/s", NULL },	/* DDR */
	{ 4, "10.0 Gbit/s", NULL },	/* QDR */
	{ 8, "10.0 Gbit/s", NULL },	/* FDR10 */
	{ 16, "14.0 Gbit/s", NULL },	/* FDR */
	{ 32, "25.0 Gbit/s", NULL },	/* EDR */
	{ 64, "50.0 Gbit/s", NULL },	/* HDR */
	{ 128, "100.0 Gbit/s", NULL },	/* NDR */
	{ 0 }
};

static const struct name physical_states[] = {
	{ 1, "Sleep", NULL },
	{ 2, "Polling", NULL },
	{ 3, "Disabled", NULL },
	{ 4, "PortConfigurationTraining", NULL },
	{ 5, "LinkUp", NULL },
	{ 6, "LinkErrorRecovery", NULL },
	{ 7, "PhyTest", NULL },
	{ 0 }
};

static const struct name virtual_lanes[] = {
	{ 1, "1 lane", NULL },
	{ 2, "2 lanes", NULL },
	{ 3, "4 lanes", NULL },
	{ 4, "8 lanes", NULL },
	{ 5, "15 lanes", NULL },
	{ 0 }
};

static const struct attribute device_members[] = {
	DEVICE(node_type, ONE_OF, node_types, "CA: channel adapter"),
	DEVICE(transport_type, ONE_OF, transports, "IB: InfiniBand or RoCE"),
	{ 0 }
};

static const struct attribute context_members[] = {
	CONTEXT(num_comp_vectors, NUMBER, NULL, "interrupts for completions"),
	{ 0 }
};

static const struct attribute attr_members[] = {
	ATTR(fw_ver, TEXT, NULL, "version of the firmware"),
	ATTR(node_guid, GUID, NULL, "name of the device"),
	ATTR(sys_image_guid, GUID, NULL, "name of what it is a part of"),
	ATTR(max_mr_size, HEX, NULL, "bytes in a memory region"),
	ATTR(page_size_cap, HEX, NULL, "page sizes: bit 12 is 4096"),
	ATTR(vendor_id, HEX, NULL, "vendor, as IEEE numbers them"),
	ATTR(vendor_part_id, NUMBER, NULL, "and the vendor's product"),
	ATTR(hw_ver, HEX, NULL, "version of the hardware"),
	ATTR(max_qp, NUMBER, NULL, "queue pairs"),
	ATTR(max_qp_wr, NUMBER, NULL, "requests in a queue"),
	ATTR(device_cap_flags, ALL_OF, capabilities, "what else it can do"),
	ATTR(max_sge, NUMBER, NULL, "pieces of memory a request"),
	ATTR(max_sge_rd, NUMBER, NULL, "the same, RDMA reads"),
	ATTR(max_cq, NUMBER, NULL, "completion queues"),
	ATTR(max_cqe, NUMBER, NULL, "completions in a queue"),
	ATTR(max_mr, NUMBER, NULL, "memory regions"),
	ATTR(max_pd, NUMBER, NULL, "protection domains"),
	ATTR(max_qp_rd_atom, NUMBER, NULL, "reads a QP answers at a time"),
	ATTR(max_ee_rd_atom, NUMBER, NULL, "the same, an EE context"),
	ATTR(max_res_rd_atom, NUMBER, NULL, "the same, all QPs together"),
	ATTR(max_qp_init_rd_atom, NUMBER, NULL, "reads a QP starts at a time"),
	ATTR(max_ee_init_rd_atom, NUMBER, NULL, "the same, an EE context"),
	ATTR(atomic_cap, ONE_OF, atomics, "HCA: among its own requests"),
	ATTR(max_ee, NUMBER, NULL, "EE contexts, for RD: unused"),
	ATTR(max_rdd, NUMBER, NULL, "RD domains: unused"),
	ATTR(max_mw, NUMBER, NULL, "memory windows"),
	ATTR(max_raw_ipv6_qp, NUMBER, NULL, "QPs for raw IPv6"),
	ATTR(max_raw_ethy_qp, NUMBER, NULL, "QPs for raw Ethertype"),
	ATTR(max_mcast_grp, NUMBER, NULL, "multicast groups"),
	ATTR(max_mcast_qp_attach, NUMBER, NULL, "QPs in a group"),
	ATTR(max_total_mcast_qp_attach, NUMBER, NULL, "QPs in all groups"),
	ATTR(max_ah, NUMBER, NULL, "address handles"),
	ATTR(max_fmr, NUMBER, NULL, "fast memory regions: gone"),
	ATTR(max_map_per_fmr, NUMBER, NULL, "uses of one: gone"),
	ATTR(max_srq, NUMBER, NULL, "shared receive queues"),
	ATTR(max_srq_wr, NUMBER, NULL, "requests in one of these"),
	ATTR(max_srq_sge, NUMBER, NULL, "pieces of memory a request"),
	ATTR(max_pkeys, NUMBER, NULL, "partitions"),
	ATTR(local_ca_ack_delay, NUMBER, NULL, "ACK within 4.096 us * 2^n"),
	ATTR(phys_port_cnt, NUMBER, NULL, "ports"),
	{ 0 }
};

static const struct attribute ex_members[] = {
	EX(odp_caps.general_caps, ALL_OF, paging, "on-demand paging"),
	EX(odp_caps.per_transport_caps.rc_odp_caps, ALL_OF, paging_for, "RC"),
	EX(odp_caps.per_transport_caps.uc_odp_caps, ALL_OF, paging_for, "UC"),
	EX(odp_caps.per_transport_caps.ud_odp_caps, ALL_OF, paging_for, "UD"),
	EX(xrc_odp_caps, ALL_OF, paging_for, "XRC"),
	EX(completion_timestamp_mask, HEX, NULL, "bits of a time stamp"),
	EX(hca_core_clock, NUMBER, NULL, "kHz of their clock"),
	EX(device_cap_flags_ex, ALL_OF, more_capabilities, "now 64 bits"),
	EX(tso_caps.max_tso, NUMBER, NULL, "bytes cut into packets"),
	EX(tso_caps.supported_qpts, ALL_OF, qp_types, "for which QPs"),
	EX(rss_caps.supported_qpts, ALL_OF, qp_types, "spreading receives"),
	EX(rss_caps.max_rwq_indirection_tables, NUMBER, NULL, "tables"),
	EX(rss_caps.max_rwq_indirection_table_size, NUMBER, NULL, "entries"),
	EX(rss_caps.rx_hash_function, HEX, NULL, "ibv_rx_hash_function_flags"),
	EX(rss_caps.rx_hash_fields_mask, HEX, NULL, "ibv_rx_hash_fields"),
	EX(max_wq_type_rq, NUMBER, NULL, "receive queues without QP"),
	EX(packet_pacing_caps.qp_rate_limit_min, NUMBER, NULL, "kbit/s"),
	EX(packet_pacing_caps.qp_rate_limit_max, NUMBER, NULL, "kbit/s"),
	EX(packet_pacing_caps.supported_qpts, ALL_OF, qp_types, "which QPs"),
	EX(raw_packet_caps, ALL_OF, raw_capabilities, "with raw packets"),
	EX(tm_caps.max_num_tags, NUMBER, NULL, "tag matching: receives"),
	EX(tm_caps.max_rndv_hdr_size, NUMBER, NULL, "bytes"),
	EX(tm_caps.flags, ALL_OF, tag_matching, "over which QPs"),
	EX(tm_caps.max_ops, NUMBER, NULL, "list operations at a time"),
	EX(tm_caps.max_sge, NUMBER, NULL, "pieces of memory a receive"),
	EX(cq_mod_caps.max_cq_count, NUMBER, NULL, "completions an event"),
	EX(cq_mod_caps.max_cq_period, NUMBER, NULL, "us before an event"),
	EX(max_dm_size, NUMBER, NULL, "bytes of the device's memory"),
	EX(pci_atomic_caps.fetch_add, ALL_OF, atomic_sizes, "over PCI"),
	EX(pci_atomic_caps.swap, ALL_OF, atomic_sizes, "over PCI"),
	EX(pci_atomic_caps.compare_swap, ALL_OF, atomic_sizes, "over PCI"),
	EX(phys_port_cnt_ex, NUMBER, NULL, "the same, in 32 bits"),
	{ 0 }
};

static const struct attribute port_members[] = {
	PORT(state, ONE_OF, states, "ACTIVE: it works"),
	PORT(max_mtu, ONE_OF, mtus, "bytes in a packet, at most"),
	PORT(active_mtu, ONE_OF, mtus, "as set up now"),
	PORT(gid_tbl_len, NUMBER, NULL, "size of the table of GIDs"),
	PORT(port_cap_flags, HEX, NULL, "ibv_port_cap_flags"),
	PORT(port_cap_flags2, HEX, NULL, "ibv_port_cap_flags2"),
	PORT(max_msg_sz, NUMBER, NULL, "bytes in a message"),
	PORT(bad_pkey_cntr, NUMBER, NULL, "packets of wrong partitions"),
	PORT(qkey_viol_cntr, NUMBER, NULL, "datagrams with wrong Q_Keys"),
	PORT(pkey_tbl_len, NUMBER, NULL, "size of the partition table"),
	PORT(lid, NUMBER, NULL, "address on InfiniBand"),
	PORT(lmc, NUMBER, NULL, "2^n LIDs"),
	PORT(sm_lid, NUMBER, NULL, "the subnet manager's address"),
	PORT(sm_sl, NUMBER, NULL, "and its service level"),
	PORT(max_vl_num, ONE_OF, virtual_lanes, "virtual lanes"),
	PORT(subnet_timeout, NUMBER, NULL, "a way takes 4.096 us * 2^n"),
	PORT(init_type_reply, NUMBER, NULL, "how it was initialised"),
	PORT(active_width, ONE_OF, widths, "lanes used"),
	PORT(active_speed, ONE_OF, speeds, "of a lane"),
	PORT(phys_state, ONE_OF, physical_states, "the link itself"),
	PORT(link_layer, ONE_OF, link_layers, "Ethernet: this is RoCE"),
	PORT(flags, HEX, NULL, "1: a GRH is required"),
	{ 0 }
};

/* The unsigned number, or the code, of @size bytes that @from points to. */
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

static const char *text_of(const struct name *names, uint64_t value)
{
	for (; names->text; names++)
		if (names->value == value)
			return names->text;
	return "unknown";
}

static void print_flags(const struct name *names, uint64_t value)
{
	for (; names->text; names++) {
		if (value & names->value)
			printf("      %-43s # %s\n", names->text,
			       names->meaning);
		value &= ~names->value;
	}
	value &= ~names->value;
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

/* The type of a GID, from sysfs: "RoCE v2", or "IB/RoCE v1" for the others. */
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

static int print_gids(struct ibv_context *context, int port, int count)
{
	static const union ibv_gid zero;

	printf("  union ibv_gid, port %d\n", port);
	for (int i = 0; i < count; i++) {
		char text[INET6_ADDRSTRLEN], type[16];
		union ibv_gid gid;

		/* One of the few that give -1, and errno. */
		if (ibv_query_gid(context, port, i, &gid)) {
			print_error(errno, "ibv_query_gid(%d)", i);
			return -1;
		}
		if (memcmp(&gid, &zero, sizeof(gid)) == 0)
			continue;

		read_gid_type(context->device, port, i, type);
		inet_ntop(AF_INET6, &gid, text, sizeof(text));
		printf("    %-5d %-39s # %s\n", i, text, type);
	}
	return 0;
}

static int print_device(struct ibv_context *context)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	int err = ibv_query_device_ex(context, NULL, &attr);

	if (err) {
		print_error(err, "ibv_query_device_ex");
		return -1;
	}

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
		err = ibv_query_port(context, i, &port);
		if (err) {
			print_error(err, "ibv_query_port(%d)", i);
			return -1;
		}
		printf("  struct ibv_port_attr, port %d\n", i);
		print_members(&port, port_members);
		if (print_gids(context, i, port.gid_tbl_len))
			return -1;
	}
	return 0;
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

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (options_parse(argc, argv, options, NULL, NULL))
		return EXIT_USAGE;

	/* 1. The list of devices, as in devices.c. */
	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}

	/* 2. Each device: the same queries, for all their answers. */
	for (int i = 0; list[i]; i++) {
		struct ibv_context *context;

		if (name && strcmp(name, ibv_get_device_name(list[i])) != 0)
			continue;

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
		if (print_device(context))
			status = EXIT_FAILURE;
		if (ibv_close_device(context)) {
			print_error(errno, "ibv_close_device");
			status = EXIT_FAILURE;
		}
	}
	if (!found) {
		print_error(0, "no device called %s", name);
		for (int i = 0; list[i]; i++)
			print_hint("there is %s", ibv_get_device_name(list[i]));
		status = EXIT_FAILURE;
	}

out:
	/* 3. The list, which nothing needs any more. */
	if (list)
		ibv_free_device_list(list);
	return status;
}
