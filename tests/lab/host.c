/*
 * host.c - lab-host: runs one or two QEMU guests as if they were commands here
 *
 * `lab` decides what a guest is; this program starts it and from then on
 * behaves as the command in the guest would: what it reads, prints and exits
 * with is the command's. A guest lives as long as this process, because QEMU
 * asked the kernel for SIGKILL at its parent's death (PR_SET_PDEATHSIG), and
 * talks through an anonymous socket pair. So not even kill -9 leaves anything
 * behind.
 *
 * Usage: lab-host [-t] [-i FILE] [-d SECONDS] GUEST [GUEST]
 *        lab-host -s FILE [-d SECONDS] GUEST
 *        lab-host -f
 *
 *   -t            a terminal for the command; ours goes raw meanwhile
 *   -i FILE       restore this snapshot; if that fails, say so and boot
 *   -s FILE       boot, save a snapshot in FILE, end (GUEST has no command)
 *   -d SECONDS    how long a boot may take, and then -s, default 60
 *   -f            print the frequency of this machine's TSC in kHz
 *
 * A GUEST is the command line of QEMU and the command, each of them after the
 * number of its words:
 *
 *   [-l LABEL] [-p KEY=VALUE]... COUNT QEMU [ARG...] COUNT COMMAND [ARG...]
 *
 *   -l LABEL      before each line of output
 *   -p KEY=VALUE  a parameter of the guest, see guest.c:take_parameter()
 *
 * Two guests are a server and a client, joined by a wire. They start at the
 * same time; but the client's command starts when the server's listens on a TCP
 * socket, has ended, or did not listen for LISTEN_SECONDS while both guests
 * were ready. Both guests stay until both commands ended, as machines would,
 * because the other one may still wait for an acknowledgement. Our standard
 * input is not read.
 *
 * Exit status: the command's; of two the server's, or the client's if that is
 * 0; 125 when a guest could not run its command. With -s: 1 when the snapshot
 * could not be written here, 2 when QEMU did not make one, 3 when the guest did
 * not boot in time, and 125 when it could not boot. SIGTERM, SIGINT, SIGQUIT
 * and SIGHUP end this program and the guests at any moment, whatever this
 * program is waiting for.
 */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

#include "frames.h"

enum {
	EXIT_LAB = 125, /* as timeout(1) and env(1): we, not the command */
	EXIT_NOT_WRITTEN = 1, /* of -s: this machine's fault */
	EXIT_NOT_MADE = 2, /* of -s: QEMU's fault */
	EXIT_LATE = 3, /* of -s: the guest did not boot in time */
	GUESTS_MAX = 2,
	PARAMETERS_MAX = 64,
	QEMU_ARGS_MAX = 256,
	CONSOLE_KEPT = 8192, /* bytes of the guest's console, for a report */
	RESTORE_SECONDS = 30, /* it takes one, when a machine is not busy */
	STREAM_CHUNK = 32 * 1024, /* bytes of standard input at a time */
	LISTEN_SECONDS = 3, /* then a client is started all the same */
};

struct words {
	char **list;
	int count;
};

/* A stream of ours. With a label it is written in whole lines, see print(). */
struct output {
	int fd;
	const char *label; /* or NULL */
	char line[PIPE_BUF];
	size_t len; /* bytes of the line under way, label included */
};

enum state {
	STARTING, /* it is restored or boots, and is set up */
	READY, /* only FRAME_GO is missing */
	RUNNING, /* the command runs */
	ENDED, /* the command has ended, or could not be run */
};

/* A descriptor is -1 when it is not open. */
struct guest {
	struct words qemu, command;
	struct output out, err;
	const char *parameters[PARAMETERS_MAX];
	int parameter_count;

	enum state state;
	int status; /* of the command that has ended */
	bool restored; /* from the snapshot; else it boots */
	/*
	 * When STARTING must be over. Of a server that RUNs and does not listen
	 * yet: when its client's command starts all the same. Otherwise 0.
	 */
	double until;

	volatile pid_t pid; /* of QEMU; 0: there is none */
	int port; /* our end of the virtio-serial port; does not block */
	int monitor; /* QEMU's machine protocol, QMP */
	int console; /* serial console and what QEMU itself says */
	struct frame in; /* being received */
	size_t in_have;
	uint8_t *queue; /* frames that the guest has yet to take */
	size_t queued, sent; /* bytes of the queue: all, and those it took */
	char said[CONSOLE_KEPT + 1];
	size_t said_len;
	char answer[4096]; /* the line of the monitor read last */
	char why[4096]; /* why the last step failed */
};

/* What main() was told. The guests are here because signals end them. */
static struct {
	bool tty;
	const char *restore;
	const char *save;
	int deadline; /* seconds */
} options = { .deadline = 60 };
static struct guest guests[GUESTS_MAX];
static int guest_count;

static int wire[GUESTS_MAX] = { -1, -1 }; /* the network of two guests */
static struct frame outgoing; /* is put together for queue_frame() */

static volatile sig_atomic_t terminal_is_raw;
static struct termios terminal_before;

/* Does it at once: draining could wait for ever for a stopped terminal. */
static void restore_terminal(void)
{
	if (terminal_is_raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal_before))
		return;
	terminal_is_raw = true;
	atexit(restore_terminal);
	raw = terminal_before;
	cfmakeraw(&raw);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static void kill_qemu(struct guest *g)
{
	pid_t pid = g->pid;

	g->pid = 0; /* a number is another process's once it was waited for */
	if (pid > 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

/* All are killed first: how long each takes to end is up to the kernel. */
static void kill_all(void)
{
	for (int i = 0; i < guest_count; i++)
		if (guests[i].pid > 0)
			kill(guests[i].pid, SIGKILL);
	for (int i = 0; i < guest_count; i++)
		kill_qemu(&guests[i]);
}

/* Ends this process as a signal would that nobody handles. */
static void end_by_signal(int number)
{
	sigset_t unblock;

	kill_all();
	restore_terminal();
	prctl(PR_SET_DUMPABLE, 0); /* nobody wants a core of this program */
	signal(number, SIG_DFL);
	raise(number);
	sigemptyset(&unblock);
	sigaddset(&unblock, number);
	sigprocmask(SIG_UNBLOCK, &unblock, NULL);
}

/* End the guests, and this process; the caller has printed the reason. */
static _Noreturn void give_up(void)
{
	kill_all();
	exit(EXIT_LAB);
}

/*
 * A handler works whatever this program is waiting for. SIGINT and SIGQUIT are
 * ignored at first when a script started us in the background, which must not
 * make us immortal; but SIGHUP is ignored after nohup(1), and stays so.
 */
static void handle_signals(void)
{
	static const int ending[] = { SIGTERM, SIGINT, SIGQUIT, SIGHUP };
	struct sigaction action = { .sa_handler = end_by_signal }, before;

	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
		sigaction(ending[i], &action, &before);
		if (ending[i] == SIGHUP && before.sa_handler == SIG_IGN)
			signal(SIGHUP, SIG_IGN);
	}
	/* Reading the terminal from the background is an error, not a stop. */
	signal(SIGTTIN, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

/*
 * If a standard stream is closed, a socket would get its number. So we open
 * /dev/null there, in the wrong direction on purpose: reading and writing fail
 * with EBADF, as they do on a closed stream. See queue_input().
 */
static int open_standard_streams(void)
{
	static int filled[3]; /* they stay open until lab-host ends */

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		filled[fd] = open("/dev/null", fd ? O_RDONLY : O_WRONLY);
		if (filled[fd] != fd)
			return -1;
	}
	return 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* How long a poll(2) that ends at `until` may take; 0 when that is past. */
static int milliseconds_until(double until)
{
	double left = until - now();

	return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* Keeps the reason for report(); returns -1. */
static int fail(struct guest *g, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(g->why, sizeof(g->why), format, args);
	va_end(args);
	return -1;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* In the child: become QEMU, with descriptors of ours. */
static void exec_qemu(const struct guest *g, int port, int monitor, int console,
		      int snapshot, pid_t parent)
{
	char *argv[QEMU_ARGS_MAX + 16];
	char port_arg[64], monitor_arg[64], incoming[32];
	char net_arg[64] = "hubport,id=net,hubid=0";
	int n = 0, end_of_wire = wire[g - guests];
	sigset_t none;

	/* The parent's handlers are not for this process. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_LAB);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid(); /* the terminal's Ctrl-C is for us */

	for (int i = 0; i < g->qemu.count; i++)
		argv[n++] = g->qemu.list[i];
	snprintf(port_arg, sizeof(port_arg), "socket,id=lab,fd=%d", port);
	snprintf(monitor_arg, sizeof(monitor_arg), "socket,id=monitor,fd=%d",
		 monitor);
	fcntl(port, F_SETFD, 0);
	fcntl(monitor, F_SETFD, 0);
	if (end_of_wire >= 0) {
		snprintf(net_arg, sizeof(net_arg), "socket,id=net,fd=%d",
			 end_of_wire);
		fcntl(end_of_wire, F_SETFD, 0);
	}
	argv[n++] = "-chardev";
	argv[n++] = port_arg;
	argv[n++] = "-chardev";
	argv[n++] = monitor_arg;
	argv[n++] = "-mon";
	argv[n++] = "chardev=monitor,mode=control";
	argv[n++] = "-serial";
	argv[n++] = "stdio";
	argv[n++] = "-netdev";
	argv[n++] = net_arg;
	if (snapshot >= 0) {
		fcntl(snapshot, F_SETFD, 0);
		snprintf(incoming, sizeof(incoming), "fd:%d", snapshot);
		argv[n++] = "-incoming";
		argv[n++] = incoming;
	}
	argv[n] = NULL;

	if (!freopen("/dev/null", "r", stdin))
		_exit(EXIT_LAB);
	if (dup2(console, STDOUT_FILENO) < 0 ||
	    dup2(console, STDERR_FILENO) < 0)
		_exit(EXIT_LAB);
	execvp(argv[0], argv);
	perror(argv[0]);
	_exit(EXIT_LAB);
}

/* If `snapshot` is not -1, to restore that. The caller closes it. */
static int start_qemu(struct guest *g, int snapshot)
{
	int port[2] = { -1, -1 }, monitor[2] = { -1, -1 };
	int console[2] = { -1, -1 };
	pid_t pid = -1, self = getpid();

	g->in_have = g->queued = g->sent = g->said_len = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) ||
	    pipe2(console, O_CLOEXEC)) {
		fail(g, "socketpair: %s", strerror(errno));
	} else if (fcntl(port[0], F_SETFL, O_NONBLOCK)) {
		fail(g, "fcntl: %s", strerror(errno));
	} else {
		pid = fork();
		if (pid == 0)
			exec_qemu(g, port[1], monitor[1], console[1], snapshot,
				  self);
		if (pid > 0)
			g->pid = pid;
		else
			fail(g, "fork: %s", strerror(errno));
	}
	close_fd(&port[1]);
	close_fd(&monitor[1]);
	close_fd(&console[1]);
	g->port = port[0];
	g->monitor = monitor[0];
	g->console = console[0];
	return pid > 0 ? 0 : -1;
}

/* Its last words are still in the console. */
static void end_qemu(struct guest *g)
{
	kill_qemu(g);
	close_fd(&g->port);
	close_fd(&g->monitor);
}

/* Keeps the last of what the console says; closes it at its end. */
static void hear_console(struct guest *g)
{
	ssize_t n;

	if (g->said_len > CONSOLE_KEPT / 2) {
		size_t drop = g->said_len - CONSOLE_KEPT / 4;

		memmove(g->said, g->said + drop, g->said_len - drop);
		g->said_len -= drop;
	}
	n = read(g->console, g->said + g->said_len, CONSOLE_KEPT - g->said_len);
	if (n > 0) {
		g->said_len += (size_t)n;
		g->said[g->said_len] = '\0';
	} else if (n == 0 || errno != EINTR) {
		close_fd(&g->console);
	}
}

/*
 * Waits until `fd` is readable and keeps the console's words meanwhile. Returns
 * 0, or -1 when `until` has passed.
 */
static int wait_for(struct guest *g, int fd, double until)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = fd, .events = POLLIN },
			{ .fd = g->console, .events = POLLIN },
		};
		int left = milliseconds_until(until);

		if (left == 0)
			return fail(g, "it did not answer in time");
		if (poll(p, 2, left) < 0) {
			if (errno == EINTR)
				continue;
			return fail(g, "poll: %s", strerror(errno));
		}
		if (p[1].revents)
			hear_console(g);
		if (p[0].revents)
			return 0;
	}
}

/* Waits until g->in is a whole frame. Returns 0, or -1 when none will come. */
static int await_frame(struct guest *g, double until)
{
	int whole;

	do {
		if (wait_for(g, g->port, until))
			return -1;
		whole = frame_receive(g->port, &g->in, &g->in_have);
	} while (whole == 0);

	if (whole > 0)
		return 0;
	return fail(g, errno == EPROTO ? "its answer is wrong" : "QEMU ended");
}

/*
 * Sends a command to QEMU's monitor, together with the descriptor `passed`
 * unless that is -1, and waits for the answer. Returns 0 when it is
 * {"return": ..}, which then stands in g->answer.
 */
static int ask_monitor(struct guest *g, const char *command, int passed,
		       double until)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec text = { (char *)command, strlen(command) };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };
	size_t used = 0;

	if (passed >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &passed, sizeof(passed));
	}
	if (sendmsg(g->monitor, &message, MSG_NOSIGNAL) !=
	    (ssize_t)text.iov_len)
		return fail(g, "QEMU's monitor: %s", strerror(errno));

	/* One line after the other; events and the greeting are no answers. */
	for (;;) {
		ssize_t n;

		if (wait_for(g, g->monitor, until))
			return -1;
		n = read(g->monitor, g->answer + used, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(g, "QEMU ended");
		if (g->answer[used] != '\n') {
			if (++used == sizeof(g->answer))
				return fail(g, "QEMU's answer is too long");
			continue;
		}
		g->answer[used] = '\0';
		used = 0;
		if (!strncmp(g->answer, "{\"return\"", 9))
			return 0;
		if (!strncmp(g->answer, "{\"error\"", 8))
			return fail(g, "QEMU refused: %.500s", g->answer);
	}
}

/* Writes all, also to a pipe or terminal that does not block. */
static int write_all(int fd, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len > 0) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EAGAIN)
			poll(&p, 1, -1);
		else if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* Copies from a pipe to its end. Returns 0, EXIT_NOT_WRITTEN or _NOT_MADE. */
static int copy(struct guest *g, int from, int to, double until)
{
	static char bytes[64 * 1024];

	for (;;) {
		ssize_t n;

		if (wait_for(g, from, until))
			return EXIT_NOT_MADE;
		n = read(from, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			fail(g, "read: %s", strerror(errno));
			return EXIT_NOT_WRITTEN;
		}
		if (n == 0)
			return 0;
		if (write_all(to, bytes, (size_t)n)) {
			fail(g, "write: %s", strerror(errno));
			return EXIT_NOT_WRITTEN;
		}
	}
}

/*
 * Has QEMU migrate the guest into a pipe, of which we make the file. The guest
 * is not stopped first, or the restored one would come up stopped: it sleeps
 * in read(2) anyway. Returns 0 or one of the exit statuses of -s.
 */
static int save_snapshot(struct guest *g, int file)
{
	double until = now() + options.deadline;
	int status, ends[2];

	if (pipe2(ends, O_CLOEXEC)) {
		fail(g, "pipe: %s", strerror(errno));
		return EXIT_NOT_WRITTEN;
	}
	status = EXIT_NOT_MADE;
	if (ask_monitor(g, "{\"execute\": \"qmp_capabilities\"}", -1, until) ||
	    ask_monitor(g,
			"{\"execute\": \"getfd\","
			" \"arguments\": {\"fdname\": \"snapshot\"}}",
			ends[1], until) ||
	    ask_monitor(g,
			"{\"execute\": \"migrate\","
			" \"arguments\": {\"uri\": \"fd:snapshot\"}}",
			-1, until))
		goto out;
	close_fd(&ends[1]); /* or the pipe would have no end */
	status = copy(g, ends[0], file, until);
	if (status)
		goto out;

	/* QEMU may close the pipe a moment before it calls itself done. */
	status = EXIT_NOT_MADE;
	do {
		if (ask_monitor(g, "{\"execute\": \"query-migrate\"}", -1,
				until))
			goto out;
		if (strstr(g->answer, "\"failed\"") ||
		    strstr(g->answer, "\"cancelled\"")) {
			fail(g, "QEMU's migration failed: %.500s", g->answer);
			goto out;
		}
		usleep(1000);
	} while (!strstr(g->answer, "\"completed\""));

	status = 0;
	if (fsync(file) && errno != EINVAL) {
		fail(g, "%s: %s", options.save, strerror(errno));
		status = EXIT_NOT_WRITTEN;
	}
out:
	close_fd(&ends[0]);
	close_fd(&ends[1]);
	return status;
}

/* Ends the line under way and writes it. */
static int end_line(struct output *out)
{
	size_t len = out->len;

	if (len == 0)
		return 0;
	if (out->line[len - 1] != '\n')
		out->line[len++] = '\n';
	out->len = 0;
	return write_all(out->fd, out->line, len);
}

/*
 * Prints what the command wrote. The lines of two guests come out side by side,
 * and other programs may write to the same pipe. The kernel keeps together what
 * is written in one piece, up to PIPE_BUF bytes: a line with its label is one,
 * and a longer one becomes several lines.
 */
static int print(struct output *out, const void *data, size_t len)
{
	const char *at = data;

	if (!out->label)
		return write_all(out->fd, data, len);

	while (len > 0) {
		const char *newline = memchr(at, '\n', len);
		size_t part = newline ? (size_t)(newline - at) + 1 : len;
		size_t room;

		if (out->len == 0)
			out->len = (size_t)snprintf(out->line,
						    sizeof(out->line) / 2, "%s",
						    out->label);
		room = sizeof(out->line) - 1 - out->len; /* 1: a newline */
		if (part > room)
			part = room;
		memcpy(out->line + out->len, at, part);
		out->len += part;
		at += part;
		len -= part;
		if ((out->line[out->len - 1] == '\n' || part == room) &&
		    end_line(out))
			return -1;
	}
	return 0;
}

static const char not_usable[] = "snapshot not usable, so the guest boots";

static void say(struct guest *g, const char *what, const char *why)
{
	char text[sizeof(g->why) + 100];

	snprintf(text, sizeof(text), "lab: %s: %s\n", what, why);
	(void)!end_line(&g->err);
	(void)!print(&g->err, text, strlen(text));
}

/*
 * Ends QEMU and says what happened, why, and the last words of the console and
 * of QEMU.
 */
static void report(struct guest *g, const char *what, const char *why)
{
	struct pollfd p = { .fd = g->console, .events = POLLIN };

	end_qemu(g);
	while (p.fd >= 0 && poll(&p, 1, 100) > 0) {
		hear_console(g);
		p.fd = g->console;
	}
	close_fd(&g->console);
	say(g, what, why);
	(void)!print(&g->err, g->said, g->said_len);
	if (g->said_len && g->said[g->said_len - 1] != '\n')
		(void)!print(&g->err, "\n", 1);
}

/* Boots, saves a snapshot and ends. Returns the exit status of -s. */
static int make_snapshot(struct guest *g)
{
	double until = now() + options.deadline;
	int file, status = EXIT_LAB;

	file = open(options.save, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		    0666);
	if (file < 0) {
		fprintf(stderr, "lab: %s: %s\n", options.save, strerror(errno));
		return EXIT_NOT_WRITTEN;
	}
	if (start_qemu(g, -1) || await_frame(g, until)) {
		if (now() >= until)
			status = EXIT_LATE;
		report(g, "the guest did not boot", g->why);
	} else if (g->in.type != FRAME_BOOTED) {
		report(g, "the guest did not boot",
		       g->in.type == FRAME_FAILED ? (char *)g->in.data
						  : "its answer is wrong");
	} else {
		status = save_snapshot(g, file);
		if (status)
			report(g, "no snapshot", g->why);
	}
	end_qemu(g);
	close_fd(&file);
	if (status)
		unlink(options.save);
	return status;
}

/* Standard output did not take what a command printed; errno says why. */
static _Noreturn void end_without_output(void)
{
	if (errno == EPIPE) /* its reader is gone */
		end_by_signal(SIGPIPE);
	fprintf(stderr, "lab: standard output: %s\n", strerror(errno));
	give_up();
}

/* Queues a frame for the guest, whose `len` bytes stand in outgoing.data. */
static void queue_frame(struct guest *g, enum frame_type type, size_t len)
{
	size_t size = FRAME_HEAD + len;
	uint8_t *queue = realloc(g->queue, g->queued + size);

	if (!queue) {
		perror("lab: realloc");
		give_up();
	}
	outgoing.type = type;
	outgoing.len = (uint32_t)len;
	memcpy(queue + g->queued, &outgoing, size);
	g->queue = queue;
	g->queued += size;
}

/* Queues the parameter `key` and `value`; `key` ends with its "=". */
static int queue_parameter(struct guest *g, const char *key, const char *value)
{
	size_t key_len = strlen(key), value_len = strlen(value);

	if (key_len + value_len > FRAME_DATA_MAX)
		return fail(g, "too long: %s%.40s...", key, value);
	memcpy(outgoing.data, key, key_len);
	memcpy(outgoing.data + key_len, value, value_len);
	queue_frame(g, FRAME_PARAM, key_len + value_len);
	return 0;
}

/* Does the command of another guest wait until this one's listens? */
static bool has_client(const struct guest *g)
{
	return guest_count > 1 && g == guests;
}

static int queue_parameters(struct guest *g)
{
	uint8_t random[32];
	char text[2 * sizeof(random) + 1] = "";
	struct timespec t;
	struct winsize size;
	mode_t mask = umask(0);

	umask(mask);
	for (int i = 0; i < g->parameter_count; i++)
		if (queue_parameter(g, "", g->parameters[i]))
			return -1;
	for (int i = 0; i < g->command.count; i++)
		if (queue_parameter(g, "arg=", g->command.list[i]))
			return -1;
	for (char **variable = environ; *variable; variable++)
		if (queue_parameter(g, "env=", *variable))
			return -1;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return fail(g, "getrandom: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	queue_parameter(g, "seed=", text);

	snprintf(text, sizeof(text), "%o", mask);
	queue_parameter(g, "umask=", text);
	if (has_client(g))
		queue_parameter(g, "listen=", "1");
	if (options.tty && !ioctl(STDIN_FILENO, TIOCGWINSZ, &size)) {
		snprintf(text, sizeof(text), "%hu %hu", size.ws_row,
			 size.ws_col);
		queue_parameter(g, "tty=", text);
	}

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "%lld.%09ld", (long long)t.tv_sec,
		 t.tv_nsec);
	queue_parameter(g, "time=", text);
	queue_frame(g, FRAME_END, 0);
	return 0;
}

/* The size of our terminal, if it has one. */
static void queue_terminal_size(struct guest *g)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size))
		return;
	memcpy(outgoing.data, &size, sizeof(size));
	queue_frame(g, FRAME_SIZE, sizeof(size));
}

/*
 * Queues what there is of our standard input. Returns whether more may come. An
 * error must not reach the command as the end of its input, so that ends us;
 * but it is the end when we have no standard input, or may not read a terminal,
 * being in the background.
 */
static bool queue_input(struct guest *g)
{
	ssize_t n = read(STDIN_FILENO, outgoing.data, STREAM_CHUNK);
	int err = errno;

	if (n < 0 && (err == EINTR || err == EAGAIN))
		return true;
	if (n < 0 && err != EBADF && !isatty(STDIN_FILENO)) {
		fprintf(stderr, "lab: standard input: %s\n", strerror(err));
		give_up();
	}
	queue_frame(g, FRAME_IN, n > 0 ? (size_t)n : 0);
	return n > 0;
}

/*
 * Starts QEMU and greets the guest, which is restored if `restore`. The
 * snapshot is opened before the child starts, because the other guest removes
 * it if it could not be restored from it.
 */
static void start_guest(struct guest *g, bool restore)
{
	int snapshot = -1;

	if (restore) {
		snapshot = open(options.restore, O_RDONLY | O_CLOEXEC);
		if (snapshot < 0)
			say(g, not_usable, strerror(errno));
		restore = snapshot >= 0;
	}
	if (start_qemu(g, snapshot)) {
		report(g, "QEMU could not be started", g->why);
		give_up();
	}
	close_fd(&snapshot);
	g->state = STARTING;
	g->restored = restore;
	g->until = now() + (restore ? RESTORE_SECONDS : options.deadline);
	queue_frame(g, FRAME_HELLO, 0);
}

static void end_command(struct guest *g, int status)
{
	g->state = ENDED;
	g->status = status;
	g->until = 0;
	g->queued = g->sent = 0;
	(void)!end_line(&g->err);
	if (end_line(&g->out))
		end_without_output();
}

/*
 * Goes on without a guest. If it was being restored, it boots instead. If its
 * command runs, that has failed, but the other guest stays: how a program copes
 * with the loss of its peer is something to look at.
 */
static void lose(struct guest *g, const char *why)
{
	if (g->state != STARTING) {
		report(g, "the guest died", why);
		end_command(g, EXIT_LAB);
	} else if (g->restored) {
		report(g, not_usable, why);
		start_guest(g, false);
	} else {
		report(g, "the guest did not start", why);
		give_up();
	}
}

/* Sends what the guest takes of its queue, and does not wait for it. */
static void send_queue(struct guest *g)
{
	ssize_t n = write(g->port, g->queue + g->sent, g->queued - g->sent);

	if (n >= 0)
		g->sent += (size_t)n;
	else if (errno == EPIPE || errno == ECONNRESET)
		g->sent = g->queued; /* QEMU is gone */
	else if (errno != EAGAIN && errno != EINTR)
		lose(g, strerror(errno));
	if (g->sent == g->queued)
		g->sent = g->queued = 0;
}

/* Starts the command; but a client's only when it need not wait any more. */
static void start_command(struct guest *g)
{
	if (g != guests && guests[0].until)
		return;
	g->state = RUNNING;
	g->until = has_client(g) ? now() + LISTEN_SECONDS : 0;
	queue_frame(g, FRAME_GO, 0);
	if (options.tty) {
		make_terminal_raw();
		queue_terminal_size(g); /* it may have changed meanwhile */
	}
	if (guest_count > 1)
		queue_frame(g, FRAME_IN, 0); /* its input is empty */
}

/* Does what g->in says. Returns -1 if a guest in this state cannot say it. */
static int obey(struct guest *g)
{
	uint32_t type = g->in.type;
	bool of_the_start = type == FRAME_BOOTED || type == FRAME_READY ||
			    type == FRAME_SET_UP;

	if (type != FRAME_FAILED &&
	    g->state != (of_the_start ? STARTING : RUNNING))
		return -1;

	switch (type) {
	case FRAME_BOOTED:
		break;
	case FRAME_READY:
		if (queue_parameters(g))
			lose(g, g->why);
		break;
	case FRAME_SET_UP:
		g->state = READY;
		g->until = 0;
		/* This guest's start made its server slow: begin again. */
		if (guests[0].state == RUNNING && guests[0].until)
			guests[0].until = now() + LISTEN_SECONDS;
		/* A boot works, so the snapshot is bad: have a new one made. */
		if (options.restore && !g->restored)
			unlink(options.restore);
		break;
	case FRAME_OUT:
		if (print(&g->out, g->in.data, g->in.len))
			end_without_output();
		break;
	case FRAME_ERR:
		(void)!print(&g->err, g->in.data, g->in.len);
		break;
	case FRAME_LISTENING:
		g->until = 0;
		break;
	case FRAME_EXIT:
		if (g->in.len != 1)
			return -1;
		end_command(g, g->in.data[0]);
		break;
	case FRAME_FAILED:
		/* It has answered, so it would fail after a boot, too. */
		g->restored = false;
		lose(g, (char *)g->in.data);
		break;
	default:
		return -1;
	}
	return 0;
}

/* A descriptor that is readable when the terminal was resized, or -1. */
static int watch_terminal_size(void)
{
	sigset_t resized;

	sigemptyset(&resized);
	sigaddset(&resized, SIGWINCH);
	sigprocmask(SIG_BLOCK, &resized, NULL);
	return signalfd(-1, &resized, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* How long poll(2) may wait for the guests until one of them is late. */
static int poll_timeout(void)
{
	double first = 0;

	for (int i = 0; i < guest_count; i++)
		if (guests[i].until && (!first || guests[i].until < first))
			first = guests[i].until;
	return first ? milliseconds_until(first) : -1;
}

/*
 * Takes a guest one step on. @heard: its port is readable, or at its end. A
 * guest that is heard is not late: we may have been busy with the other one.
 */
static void step(struct guest *g, bool heard)
{
	int whole = 0;

	if (heard)
		whole = frame_receive(g->port, &g->in, &g->in_have);
	if (whole < 0 && errno != EPROTO)
		lose(g, "QEMU ended");
	else if (whole < 0 || (whole > 0 && obey(g)))
		lose(g, "its answer is wrong");

	if (g->until && now() >= g->until) {
		if (g->state == RUNNING)
			g->until = 0;
		else if (!heard)
			lose(g, "it did not answer in time");
	}
	if (g->state == READY)
		start_command(g);
	if (g->queued)
		send_queue(g);
}

static bool all_ended(void)
{
	for (int i = 0; i < guest_count; i++)
		if (guests[i].state != ENDED)
			return false;
	return true;
}

/*
 * Takes the guests from their start to the end of their commands. Input is read
 * only when the guest has taken all that was read before, and sending it never
 * waits: a guest that is itself waiting to get rid of its output takes no
 * input, so one of the two ends must go on reading. @resized is readable when
 * the terminal was, or -1.
 */
static void carry(int resized)
{
	bool input_left = guest_count == 1, wants_input;
	struct pollfd p[2 + 2 * GUESTS_MAX];

	while (!all_ended()) {
		wants_input = input_left && guests[0].state == RUNNING &&
			      !guests[0].queued;
		p[0].fd = wants_input || options.tty ? STDIN_FILENO : -1;
		p[0].events = wants_input ? POLLIN : 0;
		p[1].fd = resized;
		p[1].events = POLLIN;
		for (int i = 0; i < guest_count; i++) {
			const struct guest *g = &guests[i];
			struct pollfd *port = &p[2 + 2 * i];
			struct pollfd *console = &p[3 + 2 * i];

			port->fd = g->state == ENDED ? -1 : g->port;
			port->events = g->queued ? POLLIN | POLLOUT : POLLIN;
			console->fd = g->console;
			console->events = POLLIN;
		}

		if (poll(p, 2 + 2 * (nfds_t)guest_count, poll_timeout()) < 0) {
			if (errno == EINTR)
				continue;
			perror("lab: poll");
			give_up();
		}
		/* A closed terminal sends SIGHUP to its session leader only,
		 * and make, if it is that, waits for us. */
		if (options.tty && p[0].revents & POLLHUP)
			end_by_signal(SIGHUP);
		if (wants_input && p[0].revents)
			input_left = queue_input(&guests[0]);
		if (p[1].revents) {
			struct signalfd_siginfo info;

			if (read(resized, &info, sizeof(info)) > 0 &&
			    guests[0].state == RUNNING)
				queue_terminal_size(&guests[0]);
		}
		for (int i = 0; i < guest_count; i++) {
			if (p[3 + 2 * i].revents)
				hear_console(&guests[i]);
			step(&guests[i], p[2 + 2 * i].revents & ~POLLOUT);
		}
	}
}

/* Runs the guests. Returns the exit status of their commands. */
static int run_guests(void)
{
	int resized = options.tty ? watch_terminal_size() : -1;

	if (guest_count > 1 &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire)) {
		perror("lab: socketpair");
		give_up();
	}
	for (int i = 0; i < guest_count; i++)
		start_guest(&guests[i], options.restore);
	carry(resized);
	kill_all();
	for (int i = 0; i < guest_count; i++)
		if (guests[i].status)
			return guests[i].status;
	return 0;
}

/*
 * What the time-stamp counter says and when, in seconds. Being preempted in
 * between would spoil it: the best of some tries counts.
 */
static uint64_t read_tsc(double *when)
{
	double best = 1, before, after;
	uint64_t tsc, best_tsc = 0;

	for (int i = 0; i < 20; i++) {
		before = now();
#ifdef __x86_64__
		tsc = __builtin_ia32_rdtsc();
#else
		tsc = 0; /* only the kernels of x86-64 ask for it */
#endif
		after = now();
		if (after - before < best) {
			best = after - before;
			best_tsc = tsc;
			*when = before + best / 2;
		}
	}
	return best_tsc;
}

/* An emulated guest's TSC is this one, and it can't measure it well. */
static int print_tsc_khz(void)
{
	double begin = 0, end = 0;
	uint64_t tsc = read_tsc(&begin);

	usleep(100000);
	tsc = read_tsc(&end) - tsc;
	printf("%.0f\n", (double)tsc / (end - begin) / 1000);
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Takes from our arguments a number, and so many words after it. */
static int take_words(int argc, char *argv[], struct words *words)
{
	words->count = optind < argc ? atoi(argv[optind++]) : -1;
	words->list = argv + optind;
	if (words->count < 0 || words->count > argc - optind)
		return -1;
	optind += words->count;
	return 0;
}

/* Takes the options before a guest, some of them for all, and the guest. */
static int take_guest(int argc, char *argv[], struct guest *g)
{
	int option;

	g->port = g->monitor = g->console = -1;
	g->out.fd = STDOUT_FILENO;
	g->err.fd = STDERR_FILENO;
	while ((option = getopt(argc, argv, "+ti:s:d:l:p:")) != -1)
		switch (option) {
		case 't':
			options.tty = true;
			break;
		case 'i':
			options.restore = optarg;
			break;
		case 's':
			options.save = optarg;
			break;
		case 'd':
			options.deadline = atoi(optarg);
			break;
		case 'l':
			g->out.label = g->err.label = optarg;
			break;
		case 'p':
			if (g->parameter_count == PARAMETERS_MAX)
				return -1;
			g->parameters[g->parameter_count++] = optarg;
			break;
		default:
			return -1;
		}
	if (take_words(argc, argv, &g->qemu) ||
	    take_words(argc, argv, &g->command) || g->qemu.count < 1 ||
	    g->qemu.count > QEMU_ARGS_MAX ||
	    (options.save == NULL) != (g->command.count > 0))
		return -1;
	return 0;
}

int main(int argc, char *argv[])
{
	if (open_standard_streams())
		return EXIT_LAB;
	if (argc == 2 && !strcmp(argv[1], "-f"))
		return print_tsc_khz();
	do {
		if (guest_count == GUESTS_MAX ||
		    take_guest(argc, argv, &guests[guest_count])) {
			fprintf(stderr, "lab-host: called by tests/lab/lab; "
					"see its help\n");
			return EXIT_LAB;
		}
		guest_count++;
	} while (optind < argc);

	handle_signals();
	return options.save ? make_snapshot(&guests[0]) : run_guests();
}
