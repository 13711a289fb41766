/* Print a GID, and choose one of those that a RoCE port has: docs/gid.md. */
#ifndef COMMON_GID_H
#define COMMON_GID_H

#include <netinet/in.h>
#include <stdbool.h>

#include <infiniband/verbs.h>

/*
 * A port's table may have more entries, but an address names its GID in the
 * 8 bits of sgid_index, struct ibv_global_route: only the first 256 can be
 * used.
 */
#define GID_INDEXES 256

/* All zero means "no GID". */
bool gid_is_zero(const union ibv_gid *gid);

/* Write @gid into @text as the IPv6 address it looks like; return @text. */
const char *gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);

/* Say in words which kind of GID @entry holds. */
const char *gid_kind(const struct ibv_gid_entry *entry);

/*
 * Choose the GID to send from, in the table of port @number: the one at
 * @index, or with @index -1 the best. RoCE v2 is better than v1, which routers
 * do not pass on. Of v2, the best is a GID from an IPv4 address, because two
 * hosts most likely share IPv4; then comes IPv6, and at last link-local IPv6.
 * InfiniBand works without a GID: with @index -1, @gid becomes all zero there.
 * Returns 0, or -1 after an error message.
 */
int gid_choose(struct ibv_context *context, int number,
	       const struct ibv_port_attr *port, int index,
	       struct ibv_gid_entry *gid);

/* Print the line "GID: ..." about @gid, with @reason why it was chosen. */
void gid_print(const struct ibv_gid_entry *gid, const char *reason);

#endif
