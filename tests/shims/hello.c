/*
 * hello.c - stands between a program and libibverbs, and disturbs one message
 *
 * Preload it: LD_PRELOAD=hello.so SHIM=MODE program. The modes are
 *
 *	lose	ibv_post_send() reports success and sends nothing
 *	order	the two completions come in the other order, as they may
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
			     struct ibv_send_wr **);
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static int lose(struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_send_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

/* Wait for two completions, and hand out the second one first. */
static int swap(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	static struct ibv_wc both[2];
	static int have, given;

	(void)room;
	if (have < 2) {
		int n = real_poll_cq(cq, 1, &both[have]);

		if (n < 0)
			return n;
		have += n;
	}
	if (have < 2 || given == 2)
		return 0;
	*wc = both[1 - given++];
	return 1;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*real)(struct ibv_device *);
	struct ibv_context *context;
	const char *mode = getenv("SHIM");

	/* ISO C knows no cast from an object's to a function's pointer. */
	*(void **)&real = dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
	context = real(device);
	if (!context || !mode)
		return context;
	real_post_send = context->ops.post_send;
	real_poll_cq = context->ops.poll_cq;
	if (strcmp(mode, "lose") == 0)
		context->ops.post_send = lose;
	if (strcmp(mode, "order") == 0)
		context->ops.poll_cq = swap;
	return context;
}
