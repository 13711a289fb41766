/*
 * fake_device.c - stands between a program and libibverbs: a device that has
 * everything
 *
 * Preload it: LD_PRELOAD=fake_device.so. Every attribute is another number,
 * every flag is set, and the eight ports go through the states, widths and
 * speeds. All of it is made up, except the GIDs of port 1.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include <infiniband/verbs.h>

enum { PORTS = 8, PERIOD = 127 };

static __typeof__(((struct verbs_context *)0)->query_device_ex) device;
static __typeof__(((struct verbs_context *)0)->query_port) port;

static void fill(void *to, size_t size, int from)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)to)[i] = 1 + (i + from) % PERIOD;
}

static int fake_device(struct ibv_context *context,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size)
{
	int err = device(context, input, attr, size);

	fill(attr, size, 0);
	strcpy(attr->orig_attr.fw_ver, "1.2.3");
	attr->orig_attr.atomic_cap = IBV_ATOMIC_GLOB;
	attr->orig_attr.device_cap_flags = ~0;
	attr->orig_attr.phys_port_cnt = PORTS;
	attr->phys_port_cnt_ex = PORTS;
	attr->odp_caps.general_caps = ~0ULL;
	attr->odp_caps.per_transport_caps.rc_odp_caps = 0x15;
	attr->odp_caps.per_transport_caps.uc_odp_caps = 0x2a;
	attr->odp_caps.per_transport_caps.ud_odp_caps = ~0;
	attr->xrc_odp_caps = 0;
	attr->hca_core_clock = 156250;
	attr->device_cap_flags_ex = ~0ULL;
	attr->tso_caps.supported_qpts = 1 << IBV_QPT_RAW_PACKET;
	attr->rss_caps.supported_qpts = 1 << IBV_QPT_UD | 1 << 30;
	attr->packet_pacing_caps.supported_qpts = 1 << IBV_QPT_UD;
	attr->raw_packet_caps = 0xf;
	attr->tm_caps.flags = IBV_TM_CAP_RC;
	attr->max_dm_size = 131072;
	return err;
}

static int fake_port(struct ibv_context *context, uint8_t number,
		     struct ibv_port_attr *attr, size_t size)
{
	int gids, err = port(context, 1, attr, size);

	gids = number == 1 ? attr->gid_tbl_len : 0;
	fill(attr, size, number);
	attr->gid_tbl_len = gids;
	attr->state = 1 + number % 4;
	attr->max_mtu = 1 + number % 5;
	attr->active_mtu = 1 + (number + 2) % 5;
	attr->max_vl_num = 1 + number % 5;
	attr->active_width = 1 << number % 5;
	attr->active_speed = 1 << (number - 1);
	attr->phys_state = 1 + number % 7;
	attr->link_layer = 1 + number % 2;
	/* What is newer than attributes.c: active_speed_ex. */
	if (size > 52)
		memset((char *)attr + 52, 0, size - 52);
	return err;
}

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
	struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_context *context;
	struct verbs_context *verbs;

	/* ISO C knows no cast from an object's to a function's pointer. */
	*(void **)&open_device =
		dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
	context = open_device(which);
	if (!context)
		return NULL;

	verbs = verbs_get_ctx(context);
	if (!verbs)
		return context;
	device = verbs->query_device_ex;
	port = verbs->query_port;
	verbs->query_device_ex = fake_device;
	verbs->query_port = fake_port;
	return context;
}
