/* Report what failed, and release objects. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

/*
 * Exit status: the program found no RDMA device, so it could not show
 * anything. The others are 0, 1 for a failure, and EXIT_USAGE (options.h).
 */
#define EXIT_NO_DEVICE 77

/*
 * Call this first in main(). It makes stdout line-buffered, so that its lines
 * stay in order with the errors on stderr even when both go into a pipe; and
 * it makes the program fail, with a message, if some of its output could not
 * be written, for example because the disk is full.
 */
void start_output(void);

/*
 * Print "program: message: ENAME (text)" on stderr, after flushing stdout.
 * Verbs report failure in four ways, so the caller passes the errno value,
 * wherever it came from; with @err 0 the part after the message is left out.
 */
void print_error(int err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Print "  hint: ..." after an error: what the user can try next. */
void print_hint(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/*
 * For verbs that return 0 or an errno value, such as ibv_modify_qp(3).
 * If @err is not 0, print it with the message. Returns 0, or -1 if @err was
 * an error.
 */
int failed(int err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * For verbs that return an object, or NULL and set errno, such as
 * ibv_alloc_pd(3). If @obj is NULL, print errno with the message. Returns 0,
 * or -1 if there is no object.
 */
int missing(const void *obj, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Report that ibv_get_device_list(3) returned an empty list (@err is 0), or
 * that it failed with @err. Returns the status to exit with.
 */
int no_device(int err);

/*
 * RELEASE(ibv_destroy_qp, qp) calls ibv_destroy_qp(qp) unless qp is NULL, and
 * prints "released: ibv_destroy_qp". Its value is 0, or 1 after an error
 * message. RELEASE_VOID is the same for a function that returns nothing.
 */
#define RELEASE(destroy, obj) \
	((obj) ? released(#destroy, destroy(obj)) : 0)
#define RELEASE_VOID(destroy, obj) \
	((obj) ? (destroy(obj), released(#destroy, 0)) : 0)

/* The second half of RELEASE: report what @destroy returned. */
int released(const char *destroy, int result);

#endif
