/* What failed, why and what to do next; releasing, and saying so. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

/*
 * Print "program: message: ENAME (text)" on stderr, after flushing stdout.
 * Verbs fail in four ways (NULL and errno, an errno value returned, -1 and
 * errno, a negative count), so the caller passes the errno value; 0 is none.
 */
void print_error(int err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Print the line after an error, "  hint: ...", which says what to try. */
void print_hint(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* Tests count this as neither passed nor failed. */
#define EXIT_NO_DEVICE 77

/*
 * Say that ibv_get_device_list() gave no list, and errno was @err, or an empty
 * one, @err 0. Returns the status to exit with.
 */
int no_device(int err);

/* Unless @obj is NULL, destroy it and log that. Gives 0, or 1 if it failed. */
#define RELEASE(destroy, obj) \
	((obj) ? released(#destroy, destroy(obj)) : 0)

/* The same for ibv_free_device_list(), which returns nothing. */
#define RELEASE_VOID(destroy, obj) \
	((obj) ? (destroy(obj), released(#destroy, 0)) : 0)

int released(const char *destroy, int result);

#endif
