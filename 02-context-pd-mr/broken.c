/*
 * broken.c - registers LENGTH bytes for a peer to write to; or does it?
 *
 *	broken LENGTH
 *
 * It compiles without a warning and ends well. At its CHECKPOINT look from
 * outside, with rdma resource show mr, and find out what is wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/error.h"
#include "../common/exercise.h"

int main(int argc, char *argv[])
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	size_t length = argc == 2 ? strtoul(argv[1], NULL, 0) : 4096;
	char *buf = calloc(1, length);
	int status = EXIT_FAILURE;

	if (list && list[0])
		context = ibv_open_device(list[0]);
	if (context)
		pd = ibv_alloc_pd(context);
	if (!pd || !buf) {
		print_error(errno, "a device and memory");
		goto out;
	}

	mr = ibv_reg_mr(pd, buf, sizeof(buf),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr) {
		print_error(errno, "ibv_reg_mr(%zu bytes)", length);
		goto out;
	}
	printf("registered %zu bytes\n", length);
	checkpoint("registered");
	status = EXIT_SUCCESS;

out:
	status |= RELEASE(ibv_dereg_mr, mr);
	free(buf);
	status |= RELEASE(ibv_dealloc_pd, pd);
	status |= RELEASE(ibv_close_device, context);
	status |= RELEASE_VOID(ibv_free_device_list, list);
	return status;
}
