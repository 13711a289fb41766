/*
 * nth_call.c - makes the n-th call of a program fail, under LD_PRELOAD
 *
 * FAIL_NTH=n        the n-th of the calls below fails, n from 1 on
 * FAIL_FROM=fork    instead: every call of this function fails
 * FAIL_LOG=FILE     the name of the call that failed goes there; empty: none
 *
 * For lab-host: each call fails with an error that it really can have. A kill()
 * that would reach more than one process ends the program with status 99
 * instead of the machine's work.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static long nth;
static const char *from;
static int log_fd = -1;

__attribute__((constructor)) static void take_environment(void)
{
	const char *number = getenv("FAIL_NTH"), *file = getenv("FAIL_LOG");

	if (file)
		log_fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
			      0666);
	nth = number ? strtol(number, NULL, 10) : 0;
	from = getenv("FAIL_FROM");
	/* What this program starts is to be left alone. */
	unsetenv("LD_PRELOAD");
}

/* Is it this call's turn? Sets errno. */
static int fails(const char *name, int err)
{
	if (from && strcmp(from, name) != 0)
		return 0;
	if (!from) {
		if (nth == 0)
			return 0;
		nth--;
		if (nth > 0)
			return 0;
	}
	if (log_fd >= 0)
		dprintf(log_fd, "%s\n", name);
	errno = err;
	return 1;
}

/* POSIX has dlsym(3) find functions, ISO C knows no such conversion. */
#define NEXT(name) (__extension__(__typeof__(&(name))) dlsym(RTLD_NEXT, #name))

int socketpair(int domain, int type, int protocol, int fds[2])
{
	return fails("socketpair", EMFILE)
		       ? -1
		       : NEXT(socketpair)(domain, type, protocol, fds);
}

int pipe2(int fds[2], int flags)
{
	return fails("pipe2", ENFILE) ? -1 : NEXT(pipe2)(fds, flags);
}

pid_t fork(void)
{
	return fails("fork", EAGAIN) ? -1 : NEXT(fork)();
}

int open(const char *path, int flags, ...)
{
	va_list args;
	unsigned int mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, unsigned int) : 0;
	va_end(args);
	return fails("open", ENOSPC) ? -1 : NEXT(open)(path, flags, mode);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	return fails("poll", ENOMEM) ? -1 : NEXT(poll)(fds, count, timeout);
}

ssize_t read(int fd, void *buf, size_t len)
{
	return fails("read", EIO) ? -1 : NEXT(read)(fd, buf, len);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	return fails("write", ENOSPC) ? -1 : NEXT(write)(fd, buf, len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return fails("sendmsg", ENOBUFS) ? -1
					 : NEXT(sendmsg)(fd, message, flags);
}

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	return fails("getrandom", ENOSYS) ? -1
					  : NEXT(getrandom)(buf, len, flags);
}

int fsync(int fd)
{
	return fails("fsync", EIO) ? -1 : NEXT(fsync)(fd);
}

int dup2(int from_fd, int to)
{
	return fails("dup2", EBUSY) ? -1 : NEXT(dup2)(from_fd, to);
}

int execvp(const char *file, char *const argv[])
{
	return fails("execvp", ENOMEM) ? -1 : NEXT(execvp)(file, argv);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return fails("waitpid", EINTR) ? -1
				       : NEXT(waitpid)(pid, status, options);
}

int kill(pid_t pid, int number)
{
	if (pid <= 0) {
		dprintf(STDERR_FILENO, "kill(%d, %d)\n", pid, number);
		_exit(99);
	}
	return NEXT(kill)(pid, number);
}
