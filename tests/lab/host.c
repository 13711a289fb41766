/*
 * host.c - lab-host: runs one QEMU guest and is its command's stand-in here
 *
 * `lab` decides what the guest is; this program starts it and from then on
 * behaves as the command in the guest would: what it reads, prints and exits
 * with is the command's. The guest lives as long as this process: QEMU asked
 * the kernel for SIGKILL at its parent's death (PR_SET_PDEATHSIG), and talks
 * through an anonymous socket pair, so not even kill -9 leaves anything behind.
 *
 * Usage: lab-host [OPTIONS] QEMU_ARGC QEMU_ARG... COMMAND [ARG...]
 *        lab-host -W PROGRAM [ARG...]
 *        lab-host -f
 *
 *   -W            run PROGRAM with a wire between two guests: two connected
 *                 sockets, whose descriptors stand in LAB_WIRE
 *   -f            print the frequency of this machine's TSC in kHz
 *
 *   -p KEY=VALUE  a parameter of the guest, see guest.c:take_parameter()
 *   -t            a terminal for the command; ours goes raw meanwhile
 *   -i FILE       restore this snapshot; if that fails, say so and boot
 *   -s FILE       boot, save a snapshot in FILE, end (no COMMAND)
 *   -d SECONDS    how long a boot may take, and then -s, default 60
 *   -l LABEL      before each line of output
 *   -n FD         write a byte to FD when the command listens on a TCP socket,
 *                 or has ended
 *   -w FD         wait for a byte from FD before starting the command
 *   -e FD         write a byte to FD when the command has ended
 *   -k FD         keep the guest until a byte comes from FD
 *   -D PID        end when process PID, the parent, does
 *
 * Exit status: the command's; 125 when the guest could not run it. With -s: 1
 * when the snapshot could not be written here, 2 when QEMU did not make one, 3
 * when the guest did not boot in time, and 125 when it could not boot. SIGTERM,
 * SIGINT, SIGQUIT and SIGHUP end this program and the guest at any moment,
 * whatever this program is waiting for.
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
	READER_GONE = 256, /* no exit status: end as SIGPIPE would end us */
	EXIT_NOT_WRITTEN = 1, /* of -s: this machine's fault */
	EXIT_NOT_MADE = 2, /* of -s: QEMU's fault */
	EXIT_LATE = 3, /* of -s: the guest did not boot in time */
	PARAMETERS_MAX = 64,
	QEMU_ARGS_MAX = 256,
	CONSOLE_KEPT = 8192, /* bytes of the guest's console, for a report */
	RESTORE_SECONDS = 30, /* it takes one, when a machine is not busy */
	STREAM_CHUNK = 32 * 1024, /* bytes of standard input at a time */
	LISTEN_SECONDS = 3, /* then a peer is started all the same */
};

struct options {
	const char *parameters[PARAMETERS_MAX];
	int parameter_count;
	bool tty;
	const char *restore;
	const char *save;
	int deadline; /* seconds */
	const char *label;
	int notify_fd;
	int wait_fd;
	int ended_fd;
	int keep_fd;
	char **qemu;
	int qemu_argc;
	char **command;
};

/* One guest. A descriptor is -1 when it is not open. */
struct guest {
	int port; /* our end of the virtio-serial port; does not block */
	int monitor; /* QEMU's machine protocol, QMP */
	int console; /* serial console and what QEMU itself says */
	struct frame in; /* being received */
	size_t in_have;
	struct frame out; /* being sent, if `sending` */
	size_t out_done;
	bool sending;
	char said[CONSOLE_KEPT + 1];
	size_t said_len;
	char answer[4096]; /* the line of the monitor read last */
	char why[4096]; /* why the last step failed */
};

/* A stream of ours. With a label it is written in whole lines, see print(). */
struct output {
	int fd;
	const char *label; /* or NULL */
	char line[PIPE_BUF];
	size_t len; /* bytes of the line under way, label included */
};

/* What the handler of signals needs. */
static volatile pid_t qemu_pid; /* 0: there is no QEMU */
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

static void kill_qemu(void)
{
	pid_t pid = qemu_pid;

	qemu_pid = 0; /* a number is another process's once it was waited for */
	if (pid > 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

/* Ends this process as a signal would that nobody handles. */
static void end_by_signal(int number)
{
	sigset_t unblock;

	kill_qemu();
	restore_terminal();
	prctl(PR_SET_DUMPABLE, 0); /* nobody wants a core of this program */
	signal(number, SIG_DFL);
	raise(number);
	sigemptyset(&unblock);
	sigaddset(&unblock, number);
	sigprocmask(SIG_UNBLOCK, &unblock, NULL);
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

/* With standard streams closed, a socket would get one of their numbers. */
static int open_standard_streams(void)
{
	static int filled[3];	/* they stay open until lab-host ends */

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

/* In the child: become QEMU, with three descriptors of ours. */
static void exec_qemu(const struct options *o, int port, int monitor,
		      int console, const char *restore, pid_t parent)
{
	char *argv[QEMU_ARGS_MAX + 16];
	char port_arg[64], monitor_arg[64], incoming[32];
	sigset_t none;
	int n = 0;

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

	for (int i = 0; i < o->qemu_argc; i++)
		argv[n++] = o->qemu[i];
	snprintf(port_arg, sizeof(port_arg), "socket,id=lab,fd=%d", port);
	snprintf(monitor_arg, sizeof(monitor_arg), "socket,id=monitor,fd=%d",
		 monitor);
	argv[n++] = "-chardev";
	argv[n++] = port_arg;
	argv[n++] = "-chardev";
	argv[n++] = monitor_arg;
	argv[n++] = "-mon";
	argv[n++] = "chardev=monitor,mode=control";
	argv[n++] = "-serial";
	argv[n++] = "stdio";
	if (restore) {
		int fd = open(restore, O_RDONLY);

		if (fd < 0) {
			perror(restore);
			_exit(EXIT_LAB);
		}
		snprintf(incoming, sizeof(incoming), "fd:%d", fd);
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

static int start_qemu(struct guest *g, const struct options *o,
		      const char *restore)
{
	int port[2] = { -1, -1 }, monitor[2] = { -1, -1 };
	int console[2] = { -1, -1 };
	pid_t pid = -1, self = getpid();

	g->in_have = 0;
	g->sending = false;
	g->said_len = 0;
	g->said[0] = '\0';
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, monitor) ||
	    pipe2(console, O_CLOEXEC)) {
		fail(g, "QEMU could not be started: socketpair: %s",
		     strerror(errno));
	} else if (fcntl(port[0], F_SETFL, O_NONBLOCK) ||
		   fcntl(port[1], F_SETFD, 0) ||
		   fcntl(monitor[1], F_SETFD, 0)) {
		fail(g, "QEMU could not be started: fcntl: %s",
		     strerror(errno));
	} else {
		pid = fork();
		if (pid == 0)
			exec_qemu(o, port[1], monitor[1], console[1], restore,
				  self);
		if (pid > 0)
			qemu_pid = pid;
		else
			fail(g, "QEMU could not be started: fork: %s",
			     strerror(errno));
	}
	close_fd(&port[1]);
	close_fd(&monitor[1]);
	close_fd(&console[1]);
	g->port = port[0];
	g->monitor = monitor[0];
	g->console = console[0];
	return pid > 0 ? 0 : -1;
}

static void end_qemu(struct guest *g)
{
	kill_qemu();
	close_fd(&g->port);
	close_fd(&g->monitor);
	close_fd(&g->console);
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
 * Waits until `fd` is ready for `events` and keeps the console's words
 * meanwhile. Returns 0, or -1 when `until` has passed.
 */
static int wait_for(struct guest *g, int fd, short events, double until)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = fd, .events = events },
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
		if (wait_for(g, g->port, POLLIN, until))
			return -1;
		whole = frame_receive(g->port, &g->in, &g->in_have);
	} while (whole == 0);

	if (whole > 0)
		return 0;
	return fail(g, errno == EPROTO ? "it speaks nonsense" : "QEMU ended");
}

/* Makes g->out, whose data are there already, the frame that is being sent. */
static void begin_frame(struct guest *g, enum frame_type type, size_t len)
{
	g->out.type = type;
	g->out.len = (uint32_t)len;
	g->out_done = 0;
	g->sending = true;
}

/*
 * Sends what the guest takes of g->out. Returns 0, or -1 with errno, which is
 * EPIPE when the guest is gone.
 */
static int continue_frame(struct guest *g)
{
	int sent = frame_transmit(g->port, &g->out, &g->out_done);

	if (sent)
		g->sending = false;
	return sent < 0 ? -1 : 0;
}

static int send_frame(struct guest *g, enum frame_type type, size_t len,
		      double until)
{
	begin_frame(g, type, len);
	while (g->sending) {
		if (wait_for(g, g->port, POLLOUT, until))
			return -1;
		if (continue_frame(g)) {
			if (errno != EPIPE)
				return fail(g, "write: %s", strerror(errno));
			/* A guest that gave up says so before it ends. */
			if (!await_frame(g, until) &&
			    g->in.type == FRAME_FAILED)
				return fail(g, "%s", (char *)g->in.data);
			return fail(g, "QEMU ended");
		}
	}
	return 0;
}

static int send_text(struct guest *g, const char *key, const char *value,
		     double until)
{
	size_t key_len = strlen(key), value_len = strlen(value);

	if (key_len + 1 + value_len > FRAME_DATA_MAX)
		return fail(g, "%s too long: %.40s...", key, value);
	memcpy(g->out.data, key, key_len);
	g->out.data[key_len] = '=';
	memcpy(g->out.data + key_len + 1, value, value_len);
	return send_frame(g, FRAME_PARAM, key_len + 1 + value_len, until);
}

static int send_parameters(struct guest *g, const struct options *o,
			   double until)
{
	uint8_t random[32];
	char text[2 * sizeof(random) + 1] = "";
	struct timespec t;
	struct winsize size;
	mode_t mask = umask(0);

	umask(mask);
	for (int i = 0; i < o->parameter_count; i++) {
		size_t len = strlen(o->parameters[i]);

		if (len > FRAME_DATA_MAX)
			return fail(g, "%.40s... too long", o->parameters[i]);
		memcpy(g->out.data, o->parameters[i], len);
		if (send_frame(g, FRAME_PARAM, len, until))
			return -1;
	}
	for (char **arg = o->command; *arg; arg++)
		if (send_text(g, "arg", *arg, until))
			return -1;
	for (char **variable = environ; *variable; variable++)
		if (send_text(g, "env", *variable, until))
			return -1;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return fail(g, "getrandom: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	if (send_text(g, "seed", text, until))
		return -1;

	snprintf(text, sizeof(text), "%o", mask);
	if (send_text(g, "umask", text, until))
		return -1;
	if (o->notify_fd >= 0 && send_text(g, "listen", "1", until))
		return -1;
	if (o->tty && !ioctl(STDIN_FILENO, TIOCGWINSZ, &size)) {
		snprintf(text, sizeof(text), "%hu %hu", size.ws_row,
			 size.ws_col);
		if (send_text(g, "tty", text, until))
			return -1;
	}

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "%lld.%09ld", (long long)t.tv_sec,
		 t.tv_nsec);
	if (send_text(g, "time", text, until))
		return -1;
	return send_frame(g, FRAME_END, 0, until);
}

/*
 * Brings the guest to the point where only FRAME_GO is missing. Returns 0, or
 * -1; nothing of our standard input was read until then.
 */
static int set_up(struct guest *g, const struct options *o, double until)
{
	if (send_frame(g, FRAME_HELLO, 0, until))
		return -1;

	for (;;) {
		if (await_frame(g, until))
			return -1;

		switch (g->in.type) {
		case FRAME_BOOTED:
			break;
		case FRAME_READY:
			if (send_parameters(g, o, until))
				return -1;
			break;
		case FRAME_SET_UP:
			return 0;
		case FRAME_FAILED:
			return fail(g, "%s", (char *)g->in.data);
		default:
			return fail(g, "it speaks nonsense");
		}
	}
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

		if (wait_for(g, g->monitor, POLLIN, until))
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

/* Copies from a pipe to its end. Returns 0, EXIT_NOT_WRITTEN or _NOT_MADE. */
static int copy(struct guest *g, int from, int to, double until)
{
	static char bytes[64 * 1024];

	for (;;) {
		ssize_t n, written;

		if (wait_for(g, from, POLLIN, until))
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
		for (ssize_t done = 0; done < n; done += written) {
			written = write(to, bytes + done, (size_t)(n - done));
			if (written < 0 && errno == EINTR) {
				written = 0;
			} else if (written <= 0) {
				fail(g, "write: %s", strerror(errno));
				return EXIT_NOT_WRITTEN;
			}
		}
	}
}

/*
 * Has QEMU migrate the guest into a pipe, of which we make the file. The guest
 * is not stopped first, or the restored one would come up stopped: it sleeps
 * in read(2) anyway. Returns 0 or one of the exit statuses of -s.
 */
static int save_snapshot(struct guest *g, const struct options *o, int file)
{
	double until = now() + o->deadline;
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
		fail(g, "%s: %s", o->save, strerror(errno));
		status = EXIT_NOT_WRITTEN;
	}
out:
	close_fd(&ends[0]);
	close_fd(&ends[1]);
	return status;
}

/* Says what happened, why, and the last words of console and QEMU. */
static void report(struct guest *g, const char *what)
{
	struct pollfd p = { .fd = g->console, .events = POLLIN };

	while (g->console >= 0 && poll(&p, 1, 100) > 0) {
		hear_console(g);
		p.fd = g->console;
	}
	fprintf(stderr, "lab: %s: %s\n", what, g->why);
	if (g->said_len)
		fprintf(stderr, "%s\n", g->said);
}

/* Boots, saves a snapshot and ends. Returns the exit status of -s. */
static int make_snapshot(struct guest *g, const struct options *o)
{
	double until = now() + o->deadline;
	int file, status = EXIT_LAB;

	file = open(o->save, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (file < 0) {
		fprintf(stderr, "lab: %s: %s\n", o->save, strerror(errno));
		return EXIT_NOT_WRITTEN;
	}
	if (start_qemu(g, o, NULL) || await_frame(g, until)) {
		if (now() >= until)
			status = EXIT_LATE;
		report(g, "the guest did not boot");
	} else if (g->in.type != FRAME_BOOTED) {
		fail(g, "%s",
		     g->in.type == FRAME_FAILED ? (char *)g->in.data
						: "nonsense");
		report(g, "the guest did not boot");
	} else {
		status = save_snapshot(g, o, file);
		if (status)
			report(g, "no snapshot");
	}
	end_qemu(g);
	close_fd(&file);
	if (status)
		unlink(o->save);
	return status;
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
 * and the kernel keeps together what is written in one piece, up to PIPE_BUF
 * bytes: a line with its label is one, and a longer one becomes several lines.
 */
static int print(struct output *out, const uint8_t *data, size_t len)
{
	if (!out->label)
		return write_all(out->fd, data, len);

	while (len > 0) {
		const uint8_t *newline = memchr(data, '\n', len);
		size_t part = newline ? (size_t)(newline - data) + 1 : len;
		size_t room;

		if (out->len == 0)
			out->len = (size_t)snprintf(out->line,
						    sizeof(out->line) / 2, "%s",
						    out->label);
		room = sizeof(out->line) - 1 - out->len; /* 1: a newline */
		if (part > room)
			part = room;
		memcpy(out->line + out->len, data, part);
		out->len += part;
		data += part;
		len -= part;
		if ((out->line[out->len - 1] == '\n' || part == room) &&
		    end_line(out))
			return -1;
	}
	return 0;
}

/* Until a byte comes, or `milliseconds` passed (-1: for ever). */
static void wait_for_byte(int fd, int milliseconds)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (fd >= 0 && poll(&p, 1, milliseconds) < 0 && errno == EINTR)
		;
}

static void write_byte(int fd)
{
	if (fd >= 0)
		(void)!write(fd, "", 1);
}

/* Restores the snapshot, or boots if there is none or it does not come up. */
static int start_guest(struct guest *g, const struct options *o)
{
	bool restored = o->restore;

	if (restored) {
		if (start_qemu(g, o, o->restore)) {
			end_qemu(g);
			fprintf(stderr, "lab: %s\n", g->why);
			return -1;
		}
		if (!set_up(g, o, now() + RESTORE_SECONDS))
			return 0;
		report(g, "snapshot not usable, so a cold boot");
		end_qemu(g);
	}
	if (start_qemu(g, o, NULL) || set_up(g, o, now() + o->deadline)) {
		report(g, "the guest did not start");
		end_qemu(g);
		return -1;
	}
	/* A boot works, so it was the snapshot's fault: have a new one made. */
	if (restored)
		unlink(o->restore);
	return 0;
}

/* Begins to send the size of our terminal, if it has one. */
static void send_terminal_size(struct guest *g)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size))
		return;
	memcpy(g->out.data, &size, sizeof(size));
	begin_frame(g, FRAME_SIZE, sizeof(size));
}

/*
 * Reads from our standard input and begins to send it. Returns 1, 0 at its end
 * or -1 on an error, which the command must not take for the end. But it is the
 * end when we have no standard input, or may not read a terminal, being in the
 * background.
 */
static int send_input(struct guest *g)
{
	ssize_t n = read(STDIN_FILENO, g->out.data, STREAM_CHUNK);
	int err = errno;

	if (n < 0 && (err == EINTR || err == EAGAIN))
		return 1;
	if (n < 0 && err != EBADF && !isatty(STDIN_FILENO)) {
		fprintf(stderr, "lab: standard input: %s\n", strerror(err));
		return -1;
	}
	begin_frame(g, FRAME_IN, n > 0 ? (size_t)n : 0);
	return n > 0;
}

/*
 * Does what the guest asks for in g->in. Returns -1 to go on, else the status
 * to end with, or READER_GONE.
 */
static int obey(struct guest *g, const struct options *o, struct output *out,
		struct output *err)
{
	switch (g->in.type) {
	case FRAME_OUT:
		if (!print(out, g->in.data, g->in.len))
			return -1;
		if (errno == EPIPE)
			return READER_GONE;
		fprintf(stderr, "lab: standard output: %s\n", strerror(errno));
		return EXIT_LAB;
	case FRAME_ERR:
		(void)!print(err, g->in.data, g->in.len);
		return -1;
	case FRAME_LISTENING:
		write_byte(o->notify_fd);
		return -1;
	case FRAME_EXIT:
		if (g->in.len == 1)
			return g->in.data[0];
		break;
	case FRAME_FAILED:
		fail(g, "%s", (char *)g->in.data);
		report(g, "the guest could not start the command");
		return EXIT_LAB;
	default:
		break;
	}
	fail(g, "its console said");
	report(g, "the guest speaks nonsense");
	return EXIT_LAB;
}

/*
 * Carries the streams until the command's end; returns its status. Input is
 * read only when the guest has taken all that was read before, and sending it
 * never waits: a guest that is itself waiting to get rid of its output takes no
 * input, so one of the two ends must go on reading. @resized is readable when
 * the terminal was, or -1.
 */
static int carry(struct guest *g, const struct options *o, int resized)
{
	struct output out = { .fd = STDOUT_FILENO, .label = o->label };
	struct output err = { .fd = STDERR_FILENO, .label = o->label };
	bool stdin_open = true;
	bool size_changed = o->tty; /* maybe while the guest started */
	int status = -1;

	while (status < 0) {
		if (!g->sending && size_changed) {
			size_changed = false;
			send_terminal_size(g);
		}
		bool wants_input = stdin_open && !g->sending;
		struct pollfd p[] = {
			{ .fd = g->port,
			  .events = g->sending ? POLLIN | POLLOUT : POLLIN },
			{ .fd = g->console, .events = POLLIN },
			{ .fd = resized, .events = POLLIN },
			{ .fd = wants_input || o->tty ? STDIN_FILENO : -1,
			  .events = wants_input ? POLLIN : 0 },
		};

		if (poll(p, 4, -1) < 0) {
			if (errno == EINTR)
				continue;
			perror("lab: poll");
			return EXIT_LAB;
		}
		if (p[1].revents)
			hear_console(g);
		if (p[2].revents) {
			struct signalfd_siginfo info;

			size_changed = read(resized, &info, sizeof(info)) > 0;
		}
		/* A closed terminal sends SIGHUP to its session leader only,
		 * and make, if it is that, waits for us. */
		if (o->tty && p[3].revents & POLLHUP)
			end_by_signal(SIGHUP);
		if (p[3].revents) {
			int more = send_input(g);

			if (more < 0)
				return EXIT_LAB;
			stdin_open = more;
		}
		if (g->sending && continue_frame(g)) {
			if (errno != EPIPE) {
				perror("lab: write to the guest");
				return EXIT_LAB;
			}
			/* Its last words are still to be received. */
			stdin_open = false;
		}
		if (p[0].revents & ~POLLOUT) {
			int whole = frame_receive(g->port, &g->in, &g->in_have);

			if (whole > 0) {
				status = obey(g, o, &out, &err);
			} else if (whole < 0) {
				fail(g, "its console said");
				report(g, "the guest died");
				return EXIT_LAB;
			}
		}
	}
	(void)!end_line(&err);
	if (end_line(&out) && status == 0) {
		perror("lab: standard output");
		status = EXIT_LAB;
	}
	return status;
}

/* A shell has no socketpair(2). Returns only if something failed. */
static int with_wire(char *argv[])
{
	char text[32];
	int wire[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, wire)) {
		perror("lab: socketpair");
		return EXIT_LAB;
	}
	snprintf(text, sizeof(text), "%d %d", wire[0], wire[1]);
	setenv("LAB_WIRE", text, 1);
	execv(argv[0], argv);
	perror(argv[0]);
	return EXIT_LAB;
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

static int parse_options(int argc, char *argv[], struct options *o)
{
	int option;

	while ((option = getopt(argc, argv, "+p:ti:s:d:l:n:w:e:k:D:")) != -1)
		switch (option) {
		case 'p':
			if (o->parameter_count == PARAMETERS_MAX)
				return -1;
			o->parameters[o->parameter_count++] = optarg;
			break;
		case 't':
			o->tty = true;
			break;
		case 'i':
			o->restore = optarg;
			break;
		case 's':
			o->save = optarg;
			break;
		case 'd':
			o->deadline = atoi(optarg);
			break;
		case 'l':
			o->label = optarg;
			break;
		case 'n':
			o->notify_fd = atoi(optarg);
			break;
		case 'w':
			o->wait_fd = atoi(optarg);
			break;
		case 'e':
			o->ended_fd = atoi(optarg);
			break;
		case 'k':
			o->keep_fd = atoi(optarg);
			break;
		case 'D':
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != atoi(optarg)) /* it ended before */
				return -1;
			break;
		default:
			return -1;
		}
	if (optind >= argc)
		return -1;
	o->qemu_argc = atoi(argv[optind++]);
	o->qemu = argv + optind;
	o->command = o->qemu + o->qemu_argc;
	if (o->qemu_argc < 1 || o->qemu_argc > QEMU_ARGS_MAX ||
	    o->qemu_argc > argc - optind || !o->save != !!*o->command)
		return -1;
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

int main(int argc, char *argv[])
{
	static struct guest g;
	struct options o = { .deadline = 60,
			     .notify_fd = -1,
			     .wait_fd = -1,
			     .ended_fd = -1,
			     .keep_fd = -1 };
	int status, resized = -1;

	if (open_standard_streams())
		return EXIT_LAB;
	if (argc > 2 && !strcmp(argv[1], "-W"))
		return with_wire(argv + 2);
	if (argc == 2 && !strcmp(argv[1], "-f"))
		return print_tsc_khz();
	if (parse_options(argc, argv, &o)) {
		fprintf(stderr,
			"lab-host: called by tests/lab/lab; see its help\n");
		return EXIT_LAB;
	}

	handle_signals();
	g.port = g.monitor = g.console = -1;
	if (o.save)
		return make_snapshot(&g, &o);
	if (start_guest(&g, &o))
		return EXIT_LAB;

	if (o.tty) {
		resized = watch_terminal_size();
		make_terminal_raw();
	}
	wait_for_byte(o.wait_fd, LISTEN_SECONDS * 1000);
	begin_frame(&g, FRAME_GO, 0);
	status = carry(&g, &o, resized);
	write_byte(o.notify_fd);
	write_byte(o.ended_fd);
	if (status == READER_GONE)
		end_by_signal(SIGPIPE);
	wait_for_byte(o.keep_fd, -1);
	end_qemu(&g);
	return status;
}
