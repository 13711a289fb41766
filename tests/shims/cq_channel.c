/*
 * cq_channel.c - stands between a program and libibverbs, and spoils one verb
 *
 * Preload it: LD_PRELOAD=cq_channel.so SHIM=MODE program. The modes are
 *
 *	lose	ibv_post_send() reports success and sends nothing
 *	deaf	ibv_req_notify_cq() reports success and arms nothing
 *	broken	ibv_poll_cq() returns -2
 *	failed	ibv_poll_cq() gives completions that have failed, status 4; and
 *		so does ibv_start_poll()
 *	plain	the device has no extended CQs
 *
 * broken and failed do not touch a CQ without a channel, such as the one for
 * sends in loopback.h.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static struct ibv_cq_ex *(*real_create_cq_ex)(struct ibv_context *,
					      struct ibv_cq_init_attr_ex *);
static int (*real_start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);

static int lose(struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_send_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

static int deaf(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return 0;
}

static int broken(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	return cq->channel ? -2 : real_poll_cq(cq, room, wc);
}

static int failed(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	int n = real_poll_cq(cq, room, wc);

	for (int i = 0; i < n && cq->channel; i++)
		wc[i].status = IBV_WC_LOC_PROT_ERR;
	return n;
}

static int failed_start(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	int err = real_start_poll(cq, attr);

	if (!err)
		cq->status = IBV_WC_LOC_PROT_ERR;
	return err;
}

static struct ibv_cq_ex *failed_create(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *cq = real_create_cq_ex(context, attr);

	if (cq) {
		real_start_poll = cq->start_poll;
		cq->start_poll = failed_start;
	}
	return cq;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*real)(struct ibv_device *);
	struct verbs_context *extended;
	struct ibv_context *context;
	const char *mode = getenv("SHIM");

	/* ISO C knows no cast from an object's to a function's pointer. */
	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
	context = real(device);
	if (!context || !mode)
		return context;

	real_poll_cq = context->ops.poll_cq;
	extended = verbs_get_ctx(context);
	if (strcmp(mode, "lose") == 0)
		context->ops.post_send = lose;
	else if (strcmp(mode, "deaf") == 0)
		context->ops.req_notify_cq = deaf;
	else if (strcmp(mode, "broken") == 0)
		context->ops.poll_cq = broken;
	else if (strcmp(mode, "failed") == 0)
		context->ops.poll_cq = failed;

	if (strcmp(mode, "failed") == 0 && extended) {
		real_create_cq_ex = extended->create_cq_ex;
		extended->create_cq_ex = failed_create;
	} else if (strcmp(mode, "plain") == 0 && extended) {
		extended->create_cq_ex = NULL;
	}
	return context;
}
