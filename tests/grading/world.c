/*
 * world.c - what Soft-RoCE cannot be, and errors that it never has
 *
 * Loaded into the student's program, in the sandbox, by /etc/ld.so.preload.
 *
 * The link of a port is always up, also where the port is not ACTIVE.
 *
 * Soft-RoCE has GIDs of RoCE v2 only. Here, those that hold an address of
 * 10.6.0.0/16 are said to be of RoCE v1. Each table has one more GID, just too
 * far behind for any address to name it.
 *
 * Some verbs fail with the errno value in a file, if there is one:
 * ibv_get_device_list() with that in /etc/list-error, ibv_dereg_mr() and
 * ibv_dealloc_pd() with that in /etc/release-error, after they have done it,
 * and ibv_modify_qp() to RTS with that in /etc/rts-error. The device whose name
 * is in /etc/closed cannot be opened.
 *
 * What struct ibv_qp says of the state is wrong: only the device knows it.
 *
 * The device whose interface has the MAC address 02:00:00:00:09:01 has an IPv4
 * GID at index 0, 10.4.0.1, where others have the one of their MAC address.
 *
 * An event of the RDMA CM always has as many bytes of private data as a packet
 * has room for. Here, if there is a file /etc/private-data, it has as many as
 * the number in it; if that is 0, the pointer is NULL.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define FAR 256		/* an address has a byte for the index */
#define LINK_UP 5	/* a phys_state, see ibv_query_port(3) */

int ioctl(int fd, unsigned long request, ...);

static void change_entry(struct ib_uverbs_gid_entry *entry)
{
	static const unsigned char prefix[] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 6
	};
	static const unsigned char ipv4[] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 4, 0, 1
	};
	static const unsigned char of_mac[] = {
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 9, 1
	};

	if (memcmp(entry->gid, prefix, sizeof(prefix)) == 0)
		entry->gid_type = IB_UVERBS_GID_TYPE_ROCE_V1;
	if (entry->gid_index == 0 &&
	    memcmp(entry->gid, of_mac, sizeof(of_mac)) == 0)
		memcpy(entry->gid, ipv4, sizeof(ipv4));
}

/* Change all GIDs in the answer to an ioctl(2) of libibverbs. */
static void change_entries(const struct ib_uverbs_ioctl_hdr *hdr)
{
	const int table = UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES;
	const int entry = UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY;
	int wanted;

	if (hdr->object_id != UVERBS_OBJECT_DEVICE)
		return;
	if (hdr->method_id == UVERBS_METHOD_QUERY_GID_TABLE)
		wanted = table;
	else if (hdr->method_id == UVERBS_METHOD_QUERY_GID_ENTRY)
		wanted = entry;
	else
		return;

	for (int i = 0; i < hdr->num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &hdr->attrs[i];
		struct ib_uverbs_gid_entry *entries =
			(void *)(uintptr_t)attr->data;
		size_t count = attr->len / sizeof(*entries);

		if (attr->attr_id != wanted)
			continue;
		for (size_t n = 0; n < count; n++)
			change_entry(&entries[n]);
	}
}

/* Say that there is a link at each port, in the answer to a question for it. */
static void plug_in(const struct ib_uverbs_ioctl_hdr *hdr)
{
	if (hdr->object_id != UVERBS_OBJECT_DEVICE ||
	    hdr->method_id != UVERBS_METHOD_QUERY_PORT)
		return;
	for (int i = 0; i < hdr->num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &hdr->attrs[i];
		struct ib_uverbs_query_port_resp_ex *resp =
			(void *)(uintptr_t)attr->data;

		if (attr->attr_id == UVERBS_ATTR_QUERY_PORT_RESP)
			resp->legacy_resp.phys_state = LINK_UP;
	}
}

/* Answer the question for the GID at index FAR: RoCE v2, 10.5.0.1. */
static int add_far_gid(struct ib_uverbs_ioctl_hdr *hdr)
{
	static const unsigned char gid[16] = { [10] = 0xff, 0xff, 10, 5, 0, 1 };
	struct ib_uverbs_gid_entry *entry = NULL;
	bool is_far = false;

	if (hdr->object_id != UVERBS_OBJECT_DEVICE ||
	    hdr->method_id != UVERBS_METHOD_QUERY_GID_ENTRY)
		return -1;
	for (int i = 0; i < hdr->num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &hdr->attrs[i];

		if (attr->attr_id == UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
			is_far = attr->data == FAR;
		if (attr->attr_id == UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY)
			entry = (void *)(uintptr_t)attr->data;
	}
	if (!is_far || !entry)
		return -1;
	memcpy(entry->gid, gid, sizeof(gid));
	entry->gid_index = FAR;
	entry->port_num = 1;
	entry->gid_type = IB_UVERBS_GID_TYPE_ROCE_V2;
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	long result;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);

	result = syscall(SYS_ioctl, fd, request, arg);
	if (result == 0 && request == RDMA_VERBS_IOCTL) {
		change_entries(arg);
		plug_in(arg);
	} else if (request == RDMA_VERBS_IOCTL && add_far_gid(arg) == 0) {
		result = 0;
	}
	return (int)result;
}

/* The number in the file @name, or -1 if there is none. */
static int number_in(const char *name)
{
	FILE *file = fopen(name, "re");
	int number = -1;

	if (file) {
		if (fscanf(file, "%d", &number) != 1)
			number = -1;
		fclose(file);
	}
	return number;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **(*real)(int *);
	const int err = number_in("/etc/list-error");

	if (err > 0) {
		errno = err;
		return NULL;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "ibv_get_device_list");
	return real(count);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*real)(struct ibv_device *);
	char name[64] = "";
	FILE *file = fopen("/etc/closed", "re");

	if (file) {
		if (fscanf(file, "%63s", name) != 1)
			name[0] = '\0';
		fclose(file);
	}
	if (strcmp(name, device->name) == 0) {
		errno = EACCES;
		return NULL;
	}
	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
	return real(device);
}

/* The result of a release, or the error that it is to have. */
static int released(int result)
{
	const int err = number_in("/etc/release-error");

	return err > 0 ? err : result;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int (*real)(struct ibv_mr *);

	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_dereg_mr", "IBVERBS_1.1");
	return released(real(mr));
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int (*real)(struct ibv_pd *);

	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_dealloc_pd", "IBVERBS_1.1");
	return released(real(pd));
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);
	const int to_rts = (mask & IBV_QP_STATE) &&
			   attr->qp_state == IBV_QPS_RTS;
	int err = to_rts ? number_in("/etc/rts-error") : 0;

	if (err > 0)
		return err;
	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_modify_qp", "IBVERBS_1.1");
	err = real(qp, attr, mask);
	qp->state = IBV_QPS_UNKNOWN;
	return err;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int,
		    struct ibv_qp_init_attr *);
	int err;

	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_query_qp", "IBVERBS_1.1");
	err = real(qp, attr, mask, init);
	qp->state = IBV_QPS_UNKNOWN;
	return err;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	int (*real)(struct rdma_event_channel *, struct rdma_cm_event **);
	const int size = number_in("/etc/private-data");
	int err;

	*(void **)&real = dlsym(RTLD_NEXT, "rdma_get_cm_event");
	err = real(channel, event);
	if (err == 0 && size >= 0) {
		(*event)->param.conn.private_data_len = (uint8_t)size;
		if (size == 0)
			(*event)->param.conn.private_data = NULL;
	}
	return err;
}
