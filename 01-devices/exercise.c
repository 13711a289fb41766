/*
 * exercise.c - choose where to send from
 *
 * A program that is to work on any machine cannot be told "rxe_0, GID index
 * 1": it has to look. Choose the first device that has an ACTIVE port, and on
 * that port a GID which is RoCE v2 and holds an IPv4 address; say which it is.
 * Without one, the exit status is 77, whether there are devices or not.
 *
 * devices.c shows all of what you need but chooses otherwise: it is content
 * with the best GID of the first ACTIVE port. Write the bodies marked TODO,
 * in any order; make check-01 tells how far you are, make hint-01 helps.
 *
 * See ibv_query_port(3), ibv_query_gid_ex(3), ibv_open_device(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exercise.h"

#define EXIT_NO_DEVICE 77

/*
 * TODO 01.1: the number of the first ACTIVE port of the device; 0 if it has
 * none. Ports count from 1.
 */
static int active_port(struct ibv_context *context)
{
	(void)context;
	todo("01.1");
	return 0;
}

/*
 * TODO 01.2: is this a GID of RoCE v2 that holds an IPv4 address, as in
 * ::ffff:10.9.0.1?
 */
static bool is_ipv4_v2(const struct ibv_gid_entry *entry)
{
	(void)entry;
	todo("01.2");
	return false;
}

/*
 * TODO 01.3: the first GID of the port for which is_ipv4_v2() is true. Returns
 * 0, or -1 if there is none. The table has gaps.
 */
static int find_gid(struct ibv_context *context, int port,
		    struct ibv_gid_entry *gid)
{
	(void)context;
	(void)port;
	(void)gid;
	(void)is_ipv4_v2;
	return todo("01.3");
}

/*
 * TODO 01.4: open the first device that has both, and set @gid. What is opened
 * and not chosen has to be closed again. Returns NULL if there is none.
 */
static struct ibv_context *choose(struct ibv_device **list,
				  struct ibv_gid_entry *gid)
{
	(void)list;
	(void)gid;
	todo("01.4");
	return NULL;
}

/*
 * TODO 01.5: the exit status when nothing was chosen: EXIT_NO_DEVICE, but
 * EXIT_FAILURE if the list itself could not be had. @list_err is 0 or the
 * errno value of ibv_get_device_list(); ENOSYS is a kernel without RDMA.
 */
static int nothing_chosen(int list_err)
{
	(void)list_err;
	return todo("01.5");
}

/* Given: what each device has, one at a time. */
static void show(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_gid_entry gid = { 0 };
	int port = context ? active_port(context) : 0;

	printf("device %s: port %d", ibv_get_device_name(device), port);
	if (port && find_gid(context, port, &gid) == 0)
		printf(", GID index %u\n", gid.gid_index);
	else
		puts(", no GID");
	if (context)
		ibv_close_device(context);
}

int main(void)
{
	struct ibv_device **list;
	struct ibv_context *context = NULL;
	struct ibv_gid_entry gid = { 0 };
	char text[INET6_ADDRSTRLEN];
	int err, status = EXIT_SUCCESS;

	setvbuf(stdout, NULL, _IOLBF, 0);

	/* 1. What is there? */
	list = ibv_get_device_list(NULL);
	err = list ? 0 : errno;
	for (int i = 0; list && list[i]; i++)
		show(list[i]);

	/* 2. The choice. */
	if (list)
		context = choose(list, &gid);
	if (context)
		printf("chosen: %s port %u index %u %s\n",
		       ibv_get_device_name(context->device), gid.port_num,
		       gid.gid_index,
		       inet_ntop(AF_INET6, &gid.gid, text, sizeof(text)));
	else
		status = nothing_chosen(err);
	checkpoint("chosen");

	/* 3. The end. */
	if (list)
		ibv_free_device_list(list);
	if (context)
		ibv_close_device(context);
	return status;
}
