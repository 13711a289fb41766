#include <inttypes.h>

#include "completion.h"
#include "error.h"

/* Returns a hint at the usual cause. docs/errors.md lists all of them. */
static const char *usual_cause(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "nobody acknowledged it: the peer ended early, is not "
		       "in RTR yet, or is not at that GID and QPN; or its "
		       "rq_psn is not our sq_psn";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive posted for it";
	/*
	 * If a message is longer than the receive, the receiver gets
	 * LOC_LEN_ERR and the sender REM_INV_REQ_ERR. On Soft-RoCE they get
	 * LOC_QP_OP_ERR and REM_OP_ERR.
	 */
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
		return "the message was longer than the receive, an SGE has a "
		       "wrong lkey, is outside its memory region or may not be "
		       "written (IBV_ACCESS_LOCAL_WRITE), or the port went "
		       "down";
	case IBV_WC_REM_OP_ERR:
		return "the message was longer than the receive, or the peer "
		       "ended while it came: look at its output";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the message was longer than the receive, or the "
		       "peer's queue pair does not permit the operation, or "
		       "its max_dest_rd_atomic is 0";
	case IBV_WC_LOC_PROT_ERR:
		return "an SGE is not inside the memory region of its lkey, or "
		       "that region does not allow local writes";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer's region does not allow this, the rkey is "
		       "wrong, or not all bytes are inside the region";
	case IBV_WC_WR_FLUSH_ERR:
		return "the queue pair was in the state ERR already: look for "
		       "an earlier error. If there is none, check the lkey: "
		       "newer kernels report a wrong one in this way";
	default:
		return "docs/errors.md explains the status codes";
	}
}

void print_wc_error(const struct ibv_wc *wc, const char *what)
{
	print_error(0, "%s: %s (status %d), wr_id %" PRIu64 ", vendor_err %u",
		    what, ibv_wc_status_str(wc->status), wc->status, wc->wr_id,
		    wc->vendor_err);
	print_hint("%s", usual_cause(wc->status));
}
