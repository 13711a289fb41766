#include <stddef.h>

#include "names.h"

const char *qp_state_name(enum ibv_qp_state state)
{
	switch (state) {
	case IBV_QPS_RESET:
		return "RESET";
	case IBV_QPS_INIT:
		return "INIT";
	case IBV_QPS_RTR:
		return "RTR";
	case IBV_QPS_RTS:
		return "RTS";
	case IBV_QPS_SQD:
		return "SQD";
	case IBV_QPS_SQE:
		return "SQE";
	case IBV_QPS_ERR:
		return "ERR";
	default:
		return "unknown";
	}
}

const struct qp_attr_name qp_attr_names[] = {
	{ IBV_QP_STATE, "STATE" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ 0, NULL },
};

/* The constants count the doublings: IBV_MTU_256 is 1, IBV_MTU_512 is 2. */
int mtu_bytes(enum ibv_mtu mtu)
{
	return 128 << mtu;
}

enum ibv_mtu mtu_from_bytes(int bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu_bytes(mtu) < bytes)
		mtu++;
	return mtu;
}
