/*
 * broken.c - registers a buffer that a peer may write to; has one bug
 *
 *	broken LENGTH
 *
 * The program registers LENGTH bytes and waits at its CHECKPOINT. It compiles
 * without a warning and exits with 0. But something is wrong with the region:
 * compare what the program prints with what the kernel has, which make try-02
 * PROGRAM=broken shows you. Then find the bug and fix it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "../common/checkpoint.h"
#include "../common/error.h"

int main(int argc, char *argv[])
{
	struct ibv_device **list = NULL;
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	size_t length = argc == 2 ? strtoul(argv[1], NULL, 0) : 4096;
	char *buf = NULL;
	int status = EXIT_FAILURE;

	start_output();

	list = ibv_get_device_list(NULL);
	if (!list || !list[0]) {
		status = no_device(list ? 0 : errno);
		goto out;
	}
	context = ibv_open_device(list[0]);
	if (missing(context, "ibv_open_device"))
		goto out;
	pd = ibv_alloc_pd(context);
	if (missing(pd, "ibv_alloc_pd"))
		goto out;

	buf = calloc(1, length);
	if (missing(buf, "calloc(%zu bytes)", length))
		goto out;
	mr = ibv_reg_mr(pd, buf, sizeof(buf),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (missing(mr, "ibv_reg_mr(%zu bytes)", length))
		goto out;
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
