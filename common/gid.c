#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "gid.h"

/* From worst to best, as rank_of() in 01-devices/devices.c has them. */
enum rank { EMPTY, ROCE_V1, LINK_LOCAL, IPV6, IPV4 };

static enum rank rank_of(const struct ibv_gid_entry *entry)
{
	struct in6_addr ip;

	memcpy(&ip, &entry->gid, sizeof(ip));
	if (gid_is_zero(&entry->gid))
		return EMPTY;
	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return ROCE_V1;
	if (IN6_IS_ADDR_V4MAPPED(&ip))
		return IPV4;
	return IN6_IS_ADDR_LINKLOCAL(&ip) ? LINK_LOCAL : IPV6;
}

bool gid_is_zero(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

const char *gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	return inet_ntop(AF_INET6, gid, text, INET6_ADDRSTRLEN);
}

const char *gid_kind(const struct ibv_gid_entry *entry)
{
	static const char *const kind[] = {
		[EMPTY] = "empty",
		[ROCE_V1] = "RoCE v1",
		[LINK_LOCAL] = "RoCE v2 from link-local IPv6",
		[IPV6] = "RoCE v2 from IPv6",
		[IPV4] = "RoCE v2 from IPv4",
	};

	return entry->gid_type == IBV_GID_TYPE_IB ? "InfiniBand" :
						    kind[rank_of(entry)];
}

int gid_choose(struct ibv_context *context, int number,
	       const struct ibv_port_attr *port, int index,
	       struct ibv_gid_entry *gid)
{
	int count = port->gid_tbl_len;
	int first = index, last = index;

	*gid = (struct ibv_gid_entry){ 0 };
	if (count > GID_INDEXES)
		count = GID_INDEXES;
	if (index < 0) {
		if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
			return 0;
		first = 0;
		last = count - 1;
	}

	for (int i = first; i <= last && rank_of(gid) != IPV4; i++) {
		struct ibv_gid_entry entry;
		int err = ibv_query_gid_ex(context, number, i, &entry, 0);

		/* ENODATA: an empty entry. The table has gaps. */
		if (err == ENODATA)
			continue;
		if (failed(err, "ibv_query_gid_ex(port %d, index %d)", number,
			   i))
			return -1;
		if (rank_of(&entry) > rank_of(gid))
			*gid = entry;
	}

	if (!gid_is_zero(&gid->gid))
		return 0;

	if (index < 0)
		print_error(0, "port %d has no GID", number);
	else
		print_error(0, "port %d has no GID at index %d", number, index);
	print_hint("make run-01 shows the GIDs of the port; -g takes an index "
		   "from 0 to %d", count - 1);
	return -1;
}

void gid_print(const struct ibv_gid_entry *gid, const char *reason)
{
	char text[INET6_ADDRSTRLEN];

	if (gid_is_zero(&gid->gid))
		printf("GID:     none; on InfiniBand the LID is enough\n");
	else
		printf("GID:     index %u, %s, %s, %s\n", gid->gid_index,
		       gid_text(&gid->gid, text), gid_kind(gid), reason);
}
