/* Explain a completion that failed. */
#ifndef COMMON_COMPLETION_H
#define COMMON_COMPLETION_H

#include <infiniband/verbs.h>

/*
 * Print what ibv_poll_cq(3) says about a request that did not succeed, and a
 * hint at the usual cause. @what names the request, for example "send 5".
 */
void print_wc_error(const struct ibv_wc *wc, const char *what);

#endif
