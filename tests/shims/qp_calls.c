/*
 * qp_calls.c - stands between a program and libibverbs, by LD_PRELOAD
 *
 * The environment variable SHIM says what it does:
 *
 *	log	append each call of ibv_modify_qp() to the file SHIM_LOG, as
 *		QPN, old state, new state, mask, result
 *	look	after each ibv_query_qp(), append to the file SHIM_LOG what the
 *		kernel knows: the QPN, the sends that the device has made in
 *		its life, and what rdma-resource(8) prints
 *	port	ibv_query_port() fails with EIO
 *	refuse	INIT -> RTR fails with EINVAL
 *	memory	INIT -> RTR without an address vector fails with ENOMEM
 *	lose	sends are accepted and never carried out
 *	garble	sends begin one byte later than the program has said
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

/* ISO C has no conversion from dlvsym()'s result to a function. */
#define REAL(f) \
	(__extension__(__typeof__(f) *)dlvsym(RTLD_NEXT, #f, "IBVERBS_1.1"))

static const char *const state_name[] = {
	"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"
};

static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
			     struct ibv_send_wr **);

static int shim(const char *mode)
{
	const char *wanted = getenv("SHIM");

	return wanted && strcmp(wanted, mode) == 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad_wr)
{
	if (shim("lose"))
		return 0;
	if (shim("garble"))
		wr->sg_list->addr++;
	return real_post_send(qp, wr, bad_wr);
}

static int query_port(struct ibv_context *context, uint8_t number,
		      struct ibv_port_attr *attr, size_t size)
{
	(void)context;
	(void)number;
	memset(attr, 0, size);
	return EIO;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = REAL(ibv_open_device)(device);
	struct verbs_context *extended;

	if (!context)
		return NULL;

	real_post_send = context->ops.post_send;
	context->ops.post_send = post_send;
	extended = verbs_get_ctx(context);
	if (extended && shim("port"))
		extended->query_port = query_port;
	return context;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	int result = REAL(ibv_query_qp)(qp, attr, mask, init);
	char command[512];

	if (!shim("look"))
		return result;

	/* The command is the tests' own, and so is the file. */
	snprintf(command, sizeof(command),
		 "exec >>%s; set -- /sys/class/infiniband/*/ports/1; "
		 "read sends <$1/hw_counters/rdma_sends; echo %u $sends; "
		 "LD_PRELOAD= exec rdma -d -j resource show qp",
		 getenv("SHIM_LOG"), qp->qp_num);
	if (system(command) != 0) /* NOLINT(bugprone-command-processor) */
		return EIO;
	return result;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const char *name = getenv("SHIM_LOG");
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr before;
	FILE *log;
	int result;

	if (shim("refuse") && attr->qp_state == IBV_QPS_RTR)
		return EINVAL;
	if (shim("memory") && attr->qp_state == IBV_QPS_RTR &&
	    !(mask & IBV_QP_AV))
		return ENOMEM;
	if (!shim("log") || !name)
		return REAL(ibv_modify_qp)(qp, attr, mask);

	/* The device's word: libibverbs has a copy of the state in @qp. */
	result = REAL(ibv_query_qp)(qp, &before, IBV_QP_STATE, &init);
	if (result)
		return result;
	result = REAL(ibv_modify_qp)(qp, attr, mask);
	log = fopen(name, "a");
	if (log) {
		fprintf(log, "%u %s %s %d %d\n", qp->qp_num,
			state_name[before.qp_state],
			state_name[attr->qp_state], mask, result);
		fclose(log);
	}
	return result;
}
