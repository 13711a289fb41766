/*
 * attributes.h - the tables of attributes.c: what there is to print
 *
 * For each member of a struct: its name and place, how to print it, and a few
 * words on its meaning, at most 28 characters. For each code or flag: the name
 * of its constant. Nothing in here is executed.
 */
#ifndef ATTRIBUTES_H
#define ATTRIBUTES_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/*
 * A code or a flag: the name of its constant, and for a flag what it means. An
 * entry without a name ends a list. The bits in its value have their names in
 * another list, so print_flags() does not print them as unknown ones.
 */
struct name {
	uint64_t value;
	const char *text;
	const char *meaning;
};

#define CODE(constant) { constant, #constant, NULL }
#define FLAG(constant, meaning) { constant, #constant, meaning }

/* How to print a member. */
enum kind {
	NUMBER,
	HEX,
	GUID,		/* a HEX number in network byte order */
	TEXT,
	ONE_OF,		/* a code, with its name from a list */
	ALL_OF,		/* flags, each with its name from a list */
};

/* A member of a struct: where it is, and how to print it. */
struct attribute {
	const char *member;	/* NULL ends a list */
	size_t offset, size;	/* in bytes */
	enum kind kind;
	const struct name *names;	/* for ONE_OF and ALL_OF */
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
	FLAG(IBV_DEVICE_RESIZE_MAX_WR, "queues can change in size"),
	FLAG(IBV_DEVICE_BAD_PKEY_CNTR, "counts wrong partition keys"),
	FLAG(IBV_DEVICE_BAD_QKEY_CNTR, "counts wrong Q_Keys"),
	FLAG(IBV_DEVICE_RAW_MULTI, "raw packets to multicast"),
	FLAG(IBV_DEVICE_AUTO_PATH_MIG, "QPs can change to a 2nd path"),
	FLAG(IBV_DEVICE_CHANGE_PHY_PORT, "QPs can change their port"),
	FLAG(IBV_DEVICE_UD_AV_PORT_ENFORCE, "checks a datagram's port"),
	FLAG(IBV_DEVICE_CURR_QP_STATE_MOD, "accepts IBV_QP_CUR_STATE"),
	FLAG(IBV_DEVICE_SHUTDOWN_PORT, "ports can be shut down"),
	FLAG(IBV_DEVICE_INIT_TYPE, "init_type_reply is set"),
	FLAG(IBV_DEVICE_PORT_ACTIVE_EVENT, "event when a port is ACTIVE"),
	FLAG(IBV_DEVICE_SYS_IMAGE_GUID, "sys_image_guid is set"),
	FLAG(IBV_DEVICE_RC_RNR_NAK_GEN, "reports a missing receive"),
	FLAG(IBV_DEVICE_SRQ_RESIZE, "SRQs can change in size"),
	FLAG(IBV_DEVICE_N_NOTIFY_CQ, "event after N completions"),
	FLAG(IBV_DEVICE_MEM_WINDOW, "memory windows"),
	FLAG(IBV_DEVICE_UD_IP_CSUM, "IP checksums in datagrams"),
	FLAG(IBV_DEVICE_XRC, "XRC: QPs share receives"),
	FLAG(IBV_DEVICE_MEM_MGT_EXTENSIONS, "a request can register MRs"),
	FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2A, "memory windows for one QP"),
	FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2B, "the same, with a PD as well"),
	FLAG(IBV_DEVICE_RC_IP_CSUM, "IP checksums in RC messages"),
	FLAG(IBV_DEVICE_RAW_IP_CSUM, "IP checksums in raw packets"),
	FLAG(IBV_DEVICE_MANAGED_FLOW_STEERING, "rules select a packet's QP"),
	{ 0 }
};

static const struct name more_capabilities[] = {
	FLAG(IBV_DEVICE_RAW_SCATTER_FCS, "raw packets keep checksums"),
	FLAG(IBV_DEVICE_PCI_WRITE_END_PADDING, "pads to whole cache lines"),
	{ UINT32_MAX, NULL, NULL }	/* bits 0 to 31: see above */
};

static const struct name atomics[] = {
	CODE(IBV_ATOMIC_NONE),
	CODE(IBV_ATOMIC_HCA),
	CODE(IBV_ATOMIC_GLOB),
	{ 0 }
};

static const struct name paging[] = {
	FLAG(IBV_ODP_SUPPORT, "MRs without pinned pages"),
	FLAG(IBV_ODP_SUPPORT_IMPLICIT, "one MR for all memory"),
	{ 0 }
};

static const struct name paging_for[] = {
	FLAG(IBV_ODP_SUPPORT_SEND, "sends"),
	FLAG(IBV_ODP_SUPPORT_RECV, "receives"),
	FLAG(IBV_ODP_SUPPORT_WRITE, "RDMA writes"),
	FLAG(IBV_ODP_SUPPORT_READ, "RDMA reads"),
	FLAG(IBV_ODP_SUPPORT_ATOMIC, "atomics"),
	FLAG(IBV_ODP_SUPPORT_SRQ_RECV, "receives of an SRQ"),
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
	FLAG(IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, "removes VLAN tags"),
	FLAG(IBV_RAW_PACKET_CAP_SCATTER_FCS, "delivers the checksum, too"),
	FLAG(IBV_RAW_PACKET_CAP_IP_CSUM, "handles IP checksums"),
	FLAG(IBV_RAW_PACKET_CAP_DELAY_DROP, "packets wait for a receive"),
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
	ATTR(node_guid, GUID, NULL, "unique name of the device"),
	ATTR(sys_image_guid, GUID, NULL, "unique name of the system"),
	ATTR(max_mr_size, HEX, NULL, "bytes in a memory region"),
	ATTR(page_size_cap, HEX, NULL, "page sizes: bit 12 is 4096"),
	ATTR(vendor_id, HEX, NULL, "vendor, by its IEEE number"),
	ATTR(vendor_part_id, NUMBER, NULL, "the vendor's product number"),
	ATTR(hw_ver, HEX, NULL, "version of the hardware"),
	ATTR(max_qp, NUMBER, NULL, "queue pairs"),
	ATTR(max_qp_wr, NUMBER, NULL, "requests in a queue"),
	ATTR(device_cap_flags, ALL_OF, capabilities,
	   "capabilities of the device"),
	ATTR(max_sge, NUMBER, NULL, "memory pieces per request"),
	ATTR(max_sge_rd, NUMBER, NULL, "the same for an RDMA read"),
	ATTR(max_cq, NUMBER, NULL, "completion queues"),
	ATTR(max_cqe, NUMBER, NULL, "completions in a queue"),
	ATTR(max_mr, NUMBER, NULL, "memory regions"),
	ATTR(max_pd, NUMBER, NULL, "protection domains"),
	ATTR(max_qp_rd_atom, NUMBER, NULL, "reads a QP serves at once"),
	ATTR(max_ee_rd_atom, NUMBER, NULL, "the same, per EE context"),
	ATTR(max_res_rd_atom, NUMBER, NULL, "the same for all QPs"),
	ATTR(max_qp_init_rd_atom, NUMBER, NULL, "reads a QP starts at once"),
	ATTR(max_ee_init_rd_atom, NUMBER, NULL, "the same, per EE context"),
	ATTR(atomic_cap, ONE_OF, atomics, "HCA: within this device only"),
	ATTR(max_ee, NUMBER, NULL, "EE contexts: never in use"),
	ATTR(max_rdd, NUMBER, NULL, "RD domains: never in use"),
	ATTR(max_mw, NUMBER, NULL, "memory windows"),
	ATTR(max_raw_ipv6_qp, NUMBER, NULL, "QPs for raw IPv6"),
	ATTR(max_raw_ethy_qp, NUMBER, NULL, "QPs for raw Ethertype"),
	ATTR(max_mcast_grp, NUMBER, NULL, "multicast groups"),
	ATTR(max_mcast_qp_attach, NUMBER, NULL, "QPs in one multicast group"),
	ATTR(max_total_mcast_qp_attach, NUMBER, NULL,
	   "QPs in all groups together"),
	ATTR(max_ah, NUMBER, NULL, "address handles"),
	ATTR(max_fmr, NUMBER, NULL, "obsolete"),
	ATTR(max_map_per_fmr, NUMBER, NULL, "obsolete"),
	ATTR(max_srq, NUMBER, NULL, "shared receive queues"),
	ATTR(max_srq_wr, NUMBER, NULL, "work requests in an SRQ"),
	ATTR(max_srq_sge, NUMBER, NULL, "memory pieces per request"),
	ATTR(max_pkeys, NUMBER, NULL, "partition keys"),
	ATTR(local_ca_ack_delay, NUMBER, NULL, "ACK delay: 4.096 us * 2^n"),
	ATTR(phys_port_cnt, NUMBER, NULL, "ports"),
	{ 0 }
};

static const struct attribute ex_members[] = {
	EX(odp_caps.general_caps, ALL_OF, paging, "on-demand paging"),
	EX(odp_caps.per_transport_caps.rc_odp_caps, ALL_OF, paging_for,
	   "on-demand paging with RC"),
	EX(odp_caps.per_transport_caps.uc_odp_caps, ALL_OF, paging_for,
	   "on-demand paging with UC"),
	EX(odp_caps.per_transport_caps.ud_odp_caps, ALL_OF, paging_for,
	   "on-demand paging with UD"),
	EX(xrc_odp_caps, ALL_OF, paging_for, "on-demand paging with XRC"),
	EX(completion_timestamp_mask, HEX, NULL, "valid bits of a time stamp"),
	EX(hca_core_clock, NUMBER, NULL, "clock of time stamps, in kHz"),
	EX(device_cap_flags_ex, ALL_OF, more_capabilities,
	   "capabilities, in 64 bits"),
	EX(tso_caps.max_tso, NUMBER, NULL, "TCP: bytes cut into packets"),
	EX(tso_caps.supported_qpts, ALL_OF, qp_types,
	   "TCP: types of QP that do it"),
	EX(rss_caps.supported_qpts, ALL_OF, qp_types,
	   "QPs that can spread packets"),
	EX(rss_caps.max_rwq_indirection_tables, NUMBER, NULL,
	   "tables for spreading"),
	EX(rss_caps.max_rwq_indirection_table_size, NUMBER, NULL,
	   "entries in such a table"),
	EX(rss_caps.rx_hash_function, HEX, NULL, "ibv_rx_hash_function_flags"),
	EX(rss_caps.rx_hash_fields_mask, HEX, NULL, "ibv_rx_hash_fields"),
	EX(max_wq_type_rq, NUMBER, NULL, "receive queues without a QP"),
	EX(packet_pacing_caps.qp_rate_limit_min, NUMBER, NULL,
	   "kbit/s, when rate is limited"),
	EX(packet_pacing_caps.qp_rate_limit_max, NUMBER, NULL,
	   "kbit/s, when rate is limited"),
	EX(packet_pacing_caps.supported_qpts, ALL_OF, qp_types,
	   "QPs with a rate limit"),
	EX(raw_packet_caps, ALL_OF, raw_capabilities,
	   "capabilities: raw packets"),
	EX(tm_caps.max_num_tags, NUMBER, NULL, "tagged receives of an SRQ"),
	EX(tm_caps.max_rndv_hdr_size, NUMBER, NULL,
	   "bytes of a rendezvous header"),
	EX(tm_caps.flags, ALL_OF, tag_matching, "QPs with tag matching"),
	EX(tm_caps.max_ops, NUMBER, NULL, "tag operations at once"),
	EX(tm_caps.max_sge, NUMBER, NULL, "memory pieces per receive"),
	EX(cq_mod_caps.max_cq_count, NUMBER, NULL, "completions for one event"),
	EX(cq_mod_caps.max_cq_period, NUMBER, NULL,
	   "longest delay of one, in us"),
	EX(max_dm_size, NUMBER, NULL, "bytes of device memory"),
	EX(pci_atomic_caps.fetch_add, ALL_OF, atomic_sizes, "atomics over PCI"),
	EX(pci_atomic_caps.swap, ALL_OF, atomic_sizes, "atomics over PCI"),
	EX(pci_atomic_caps.compare_swap, ALL_OF, atomic_sizes,
	   "atomics over PCI"),
	EX(phys_port_cnt_ex, NUMBER, NULL, "ports, in 32 bits"),
	{ 0 }
};

static const struct attribute port_members[] = {
	PORT(state, ONE_OF, states, "only ACTIVE can send"),
	PORT(max_mtu, ONE_OF, mtus, "largest possible payload"),
	PORT(active_mtu, ONE_OF, mtus, "largest payload now"),
	PORT(gid_tbl_len, NUMBER, NULL, "entries in the GID table"),
	PORT(port_cap_flags, HEX, NULL, "ibv_port_cap_flags"),
	PORT(port_cap_flags2, HEX, NULL, "ibv_port_cap_flags2"),
	PORT(max_msg_sz, NUMBER, NULL, "longest message, in bytes"),
	PORT(bad_pkey_cntr, NUMBER, NULL, "packets of wrong partitions"),
	PORT(qkey_viol_cntr, NUMBER, NULL, "datagrams with wrong Q_Keys"),
	PORT(pkey_tbl_len, NUMBER, NULL, "entries in the P_Key table"),
	PORT(lid, NUMBER, NULL, "InfiniBand address"),
	PORT(lmc, NUMBER, NULL, "the port has 2^n LIDs"),
	PORT(sm_lid, NUMBER, NULL, "LID of the subnet manager"),
	PORT(sm_sl, NUMBER, NULL, "SL to the subnet manager"),
	PORT(max_vl_num, ONE_OF, virtual_lanes, "virtual lanes"),
	PORT(subnet_timeout, NUMBER, NULL, "delays up to 4.096 us * 2^n"),
	PORT(init_type_reply, NUMBER, NULL, "how it was initialised"),
	PORT(active_width, ONE_OF, widths, "lanes in use"),
	PORT(active_speed, ONE_OF, speeds, "speed of a lane"),
	PORT(phys_state, ONE_OF, physical_states, "state of the physical link"),
	PORT(link_layer, ONE_OF, link_layers, "Ethernet: RoCE or iWARP"),
	PORT(flags, HEX, NULL, "1: packets need a GID"),
	{ 0 }
};

#endif
