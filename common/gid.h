/* GIDs as text, and which of a RoCE port's GIDs to use. */
#ifndef COMMON_GID_H
#define COMMON_GID_H

#include <netinet/in.h>
#include <stdbool.h>

#include <infiniband/verbs.h>

/* All zero means "no GID". */
bool gid_is_zero(const union ibv_gid *gid);

/* Write @gid into @text as the IPv6 address it looks like; return @text. */
const char *gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);

/* What kind of GID @entry holds, in words. */
const char *gid_kind(const struct ibv_gid_entry *entry);

/*
 * Find the GID to send from, and say on stdout which it is: the one at @index
 * in the table of port @number, or with @index -1 the best. RoCE v2 is better
 * than v1, which routers don't pass on; IPv4, which two hosts most likely
 * share, is better than IPv6; link-local is last. InfiniBand can do without:
 * all zero. Returns 0, or -1 after an error message.
 */
int gid_find(struct ibv_context *context, int number,
	     const struct ibv_port_attr *port, int index,
	     struct ibv_gid_entry *gid);

#endif
