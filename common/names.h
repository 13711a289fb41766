/* The names of constants that the programs print, and path MTUs in bytes. */
#ifndef COMMON_NAMES_H
#define COMMON_NAMES_H

#include <infiniband/verbs.h>

/* "RESET", "INIT" and so on; "unknown" if @state is none of them. */
const char *qp_state_name(enum ibv_qp_state state);

/*
 * The bits of ibv_modify_qp's mask that an RC queue pair needs on its way to
 * RTS, in the order of the table in its man page. An entry with the name NULL
 * ends the list.
 */
struct qp_attr_name {
	int bit;
	const char *name;	/* without the IBV_QP_ in front */
};
extern const struct qp_attr_name qp_attr_names[];

/* Returns 256 for IBV_MTU_256, and so on. */
int mtu_bytes(enum ibv_mtu mtu);

/* Returns the constant for @bytes: 256, 512, 1024, 2048 or 4096. */
enum ibv_mtu mtu_from_bytes(int bytes);

#endif
