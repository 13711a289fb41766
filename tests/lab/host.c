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
 *   -d SECONDS    how long a boot may take, default 60
 *   -l LABEL      before each line of output
 *   -n FD         write a byte to FD when the command listens on a TCP socket,
 *                 or has ended
 *   -w FD         wait for a byte from FD before starting the command
 *   -e FD         write a byte to FD when the command has ended
 *   -k FD         keep the guest until a byte comes from FD
 *   -D            end when the parent does
 *
 * Exit status: the command's; 125 when the guest could not run it.
 */
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
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
	PARAMETERS_MAX = 64,
	QEMU_ARGS_MAX = 256,
	CONSOLE_KEPT = 8192, /* bytes of the guest's console, for a report */
	RESTORE_SECONDS = 20, /* it takes one on a slow machine */
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

struct guest {
	pid_t pid; /* QEMU */
	int port; /* our end of the virtio-serial port */
	int monitor; /* QEMU's human monitor */
	int console; /* serial console and what QEMU itself says */
	char said[CONSOLE_KEPT + 1];
	size_t said_len;
};

/* Where a label has to be written again: at the start of a line. */
struct labelled {
	FILE *out;
	bool in_line;
};

static struct termios terminal_before; /* for atexit(3) */

static void restore_terminal(void)
{
	tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal_before);
}

static void make_terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal_before))
		return;
	atexit(restore_terminal);
	raw = terminal_before;
	cfmakeraw(&raw);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In the child: become QEMU, with three descriptors of ours. */
static void exec_qemu(const struct options *o, int port, int monitor,
		      int console, const char *restore, pid_t parent)
{
	char *argv[QEMU_ARGS_MAX + 16];
	char port_arg[64], monitor_arg[64], incoming[32];
	sigset_t none;
	int n = 0;

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
	argv[n++] = "chardev=monitor,mode=readline";
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
	dup2(console, STDOUT_FILENO);
	dup2(console, STDERR_FILENO);
	execvp(argv[0], argv);
	perror(argv[0]);
	_exit(EXIT_LAB);
}

static int start_qemu(struct guest *g, const struct options *o,
		      const char *restore)
{
	int port[2], monitor[2], console[2];
	pid_t self = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, port) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, monitor) || pipe(console)) {
		perror("lab: socketpair");
		return -1;
	}
	g->port = port[0];
	g->monitor = monitor[0];
	g->console = console[0];
	g->said_len = 0;
	fcntl(g->port, F_SETFD, FD_CLOEXEC);
	fcntl(g->monitor, F_SETFD, FD_CLOEXEC);
	fcntl(g->console, F_SETFD, FD_CLOEXEC);

	g->pid = fork();
	if (g->pid == 0)
		exec_qemu(o, port[1], monitor[1], console[1], restore, self);
	if (g->pid < 0)
		perror("lab: fork");

	close(port[1]);
	close(monitor[1]);
	close(console[1]);
	return g->pid < 0 ? -1 : 0;
}

static void end_qemu(struct guest *g)
{
	kill(g->pid, SIGKILL);
	waitpid(g->pid, NULL, 0);
	close(g->port);
	close(g->monitor);
	close(g->console);
}

/* Keeps the last of what the console says; false at its end. */
static bool hear_console(struct guest *g)
{
	ssize_t n;

	if (g->said_len > CONSOLE_KEPT / 2) {
		size_t drop = g->said_len - CONSOLE_KEPT / 4;

		memmove(g->said, g->said + drop, g->said_len - drop);
		g->said_len -= drop;
	}
	n = read(g->console, g->said + g->said_len, CONSOLE_KEPT - g->said_len);
	if (n <= 0)
		return n < 0 && errno == EINTR;
	g->said_len += (size_t)n;
	g->said[g->said_len] = '\0';
	return true;
}

/*
 * Waits for a frame until `until`, keeping the console's words meanwhile.
 * Returns 0, or -1 with *why when none will come.
 */
static int await_frame(struct guest *g, struct frame *f, double until,
		       const char **why)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = g->port, .events = POLLIN },
			{ .fd = g->console, .events = POLLIN },
		};
		double left = until - now();

		if (left <= 0) {
			*why = "it did not answer in time";
			return -1;
		}
		if (poll(p, 2, (int)(left * 1000) + 1) < 0)
			continue;
		if (p[0].revents & POLLIN) {
			*why = "QEMU ended";
			return frame_read(g->port, f);
		}
		if (p[1].revents && !hear_console(g)) {
			*why = "QEMU ended";
			return -1;
		}
	}
}

static int send_text(struct guest *g, struct frame *f, const char *key,
		     const char *value)
{
	size_t key_len = strlen(key), value_len = strlen(value);

	if (key_len + 1 + value_len > FRAME_DATA_MAX) {
		fprintf(stderr, "lab: %s too long: %.40s...\n", key, value);
		return -1;
	}
	memcpy(f->data, key, key_len);
	f->data[key_len] = '=';
	memcpy(f->data + key_len + 1, value, value_len);
	return frame_send(g->port, f, FRAME_PARAM, key_len + 1 + value_len);
}

static int send_parameters(struct guest *g, const struct options *o,
			   struct frame *f)
{
	uint8_t random[32];
	char text[2 * sizeof(random) + 1] = "";
	struct timespec t;
	struct winsize size;
	mode_t mask = umask(0);
	int failed = 0;

	umask(mask);
	for (int i = 0; i < o->parameter_count; i++) {
		size_t len = strlen(o->parameters[i]);

		if (len > FRAME_DATA_MAX)
			return -1;
		memcpy(f->data, o->parameters[i], len);
		failed |= frame_send(g->port, f, FRAME_PARAM, len);
	}
	for (char **arg = o->command; *arg; arg++)
		failed |= send_text(g, f, "arg", *arg);
	for (char **variable = environ; *variable; variable++)
		failed |= send_text(g, f, "env", *variable);

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -1;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	failed |= send_text(g, f, "seed", text);

	snprintf(text, sizeof(text), "%o", mask);
	failed |= send_text(g, f, "umask", text);
	if (o->notify_fd >= 0)
		failed |= send_text(g, f, "listen", "1");
	if (o->tty && !ioctl(STDIN_FILENO, TIOCGWINSZ, &size)) {
		snprintf(text, sizeof(text), "%hu %hu", size.ws_row,
			 size.ws_col);
		failed |= send_text(g, f, "tty", text);
	}

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "%lld.%09ld", (long long)t.tv_sec,
		 t.tv_nsec);
	failed |= send_text(g, f, "time", text);
	return failed | frame_send(g->port, f, FRAME_END, 0);
}

/*
 * Brings the guest to the point where only FRAME_GO is missing. Returns 0, or
 * -1 with *why; nothing of our standard input was read until then.
 */
static int set_up(struct guest *g, const struct options *o, struct frame *f,
		  double until, const char **why)
{
	if (frame_send(g->port, f, FRAME_HELLO, 0)) {
		*why = "QEMU ended";
		return -1;
	}
	do {
		if (await_frame(g, f, until, why))
			return -1;
	} while (f->type == FRAME_BOOTED);

	if (f->type == FRAME_READY && send_parameters(g, o, f)) {
		*why = "it did not take its parameters";
		return -1;
	}
	if (await_frame(g, f, until, why))
		return -1;

	if (f->type == FRAME_SET_UP)
		return 0;
	*why = f->type == FRAME_FAILED ? (char *)f->data : "it speaks nonsense";
	return -1;
}

/*
 * Drives QEMU's monitor: `migrate` returns when all is written, `info migrate`
 * says whether it was. The guest is not stopped first, or the restored one
 * would come up stopped: it sleeps in read(2) anyway.
 */
static int save_snapshot(struct guest *g, const struct options *o,
			 const char **why)
{
	char text[4096 + 1];
	size_t used = 0;
	bool completed = false;
	ssize_t n;

	/* The name reaches a shell of QEMU's: `lab` gives a plain one. */
	snprintf(text, sizeof(text),
		 "migrate \"exec:cat > %s\"\ninfo migrate\nquit\n", o->save);
	if (write_all(g->monitor, text, strlen(text)))
		return -1;

	/* The monitor echoes what it is told many times over. */
	while ((n = read(g->monitor, text + used, sizeof(text) - 1 - used)) >
	       0) {
		used += (size_t)n;
		text[used] = '\0';
		completed |= strstr(text, "status: completed") != NULL;
		if (used > sizeof(text) / 2) {
			memmove(text, text + used - 32, 32);
			used = 32;
		}
	}

	*why = "QEMU could not write it";
	return completed ? 0 : -1;
}

static void report(struct guest *g, const char *what, const char *why)
{
	struct pollfd p = { .fd = g->console, .events = POLLIN };

	while (poll(&p, 1, 100) > 0 && hear_console(g))
		;
	fprintf(stderr, "lab: %s: %s\n", what, why);
	if (g->said_len)
		fprintf(stderr, "%s\n", g->said);
}

static void print_labelled(struct labelled *l, const char *label,
			   const uint8_t *data, size_t len)
{
	while (len > 0) {
		const uint8_t *newline = memchr(data, '\n', len);
		size_t part = newline ? (size_t)(newline - data) + 1 : len;

		if (label && !l->in_line)
			fputs(label, l->out);
		fwrite(data, 1, part, l->out);
		l->in_line = !newline;
		data += part;
		len -= part;
	}
	/* Half a line would be torn apart by the other guest's. */
	if (!label || !l->in_line)
		fflush(l->out);
}

/* Until a byte comes or `milliseconds` passed, or a signal (-1: for ever). */
static void wait_for_byte(int fd, int signals, int milliseconds)
{
	struct pollfd p[] = {
		{ .fd = fd, .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
	};

	if (fd >= 0)
		poll(p, 2, milliseconds);
}

static void write_byte(int fd)
{
	if (fd >= 0)
		(void)!write(fd, "", 1);
}

/* Restores the snapshot, or boots if there is none or it does not come up. */
static int start_guest(struct guest *g, const struct options *o,
		       struct frame *f)
{
	const char *why = "";

	if (o->restore) {
		if (!start_qemu(g, o, o->restore) &&
		    !set_up(g, o, f, now() + RESTORE_SECONDS, &why))
			return 0;
		report(g, "snapshot not usable, so a cold boot", why);
		unlink(o->restore); /* the next run makes a new one */
		end_qemu(g);
	}
	if (start_qemu(g, o, NULL))
		return -1;
	if (o->save) {
		if (!await_frame(g, f, now() + o->deadline, &why) &&
		    f->type == FRAME_BOOTED && !save_snapshot(g, o, &why)) {
			end_qemu(g);
			return 0;
		}
		report(g, "no snapshot", why);
	} else {
		if (!set_up(g, o, f, now() + o->deadline, &why))
			return 0;
		report(g, "the guest did not start", why);
	}
	end_qemu(g);
	return -1;
}

static void send_terminal_size(struct guest *g, struct frame *f)
{
	struct winsize size;

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size))
		return;
	memcpy(f->data, &size, sizeof(size));
	frame_send(g->port, f, FRAME_SIZE, sizeof(size));
}

/* Carries the streams until the command's end; returns its status. */
static int carry(struct guest *g, const struct options *o, struct frame *f,
		 int signals)
{
	struct labelled out = { .out = stdout }, err = { .out = stderr };
	bool stdin_open = true;

	if (o->tty) /* it may have changed while the guest started */
		send_terminal_size(g, f);

	for (;;) {
		struct pollfd p[] = {
			{ .fd = g->port, .events = POLLIN },
			{ .fd = signals, .events = POLLIN },
			{ .fd = g->console, .events = POLLIN },
			{ .fd = stdin_open ? STDIN_FILENO : -1,
			  .events = POLLIN },
		};

		if (poll(p, 4, -1) < 0)
			continue;

		if (p[0].revents) {
			if (frame_read(g->port, f)) {
				report(g, "the guest died", "its console said");
				return EXIT_LAB;
			}
			if (f->type == FRAME_OUT)
				print_labelled(&out, o->label, f->data, f->len);
			else if (f->type == FRAME_ERR)
				print_labelled(&err, o->label, f->data, f->len);
			else if (f->type == FRAME_LISTENING)
				write_byte(o->notify_fd);
			else if (f->type == FRAME_EXIT)
				break;
			if (ferror(stdout)) /* nobody reads us any more */
				return -SIGPIPE;
		}
		if (p[1].revents) {
			struct signalfd_siginfo info;

			if (read(signals, &info, sizeof(info)) != sizeof(info))
				continue;
			if (info.ssi_signo != SIGWINCH)
				return -(int)info.ssi_signo;
			if (o->tty)
				send_terminal_size(g, f);
		}
		if (p[2].revents && !hear_console(g))
			usleep(1000); /* QEMU ended: the port says so as well */
		if (p[3].revents) {
			ssize_t n = read(STDIN_FILENO, f->data, STREAM_CHUNK);

			if (n < 0 && errno == EINTR)
				continue;
			stdin_open = n > 0;
			if (frame_send(g->port, f, FRAME_IN,
				       n > 0 ? (size_t)n : 0))
				stdin_open = false;
		}
	}
	if (out.in_line && o->label)
		putchar('\n');
	if (err.in_line && o->label)
		fputc('\n', stderr);
	return f->data[0];
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
		tsc = __builtin_ia32_rdtsc();
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
	return EXIT_SUCCESS;
}

static int parse_options(int argc, char *argv[], struct options *o)
{
	int option;

	while ((option = getopt(argc, argv, "+p:ti:s:d:l:n:w:e:k:D")) != -1)
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

int main(int argc, char *argv[])
{
	static struct frame f;
	struct options o = { .deadline = 60,
			     .notify_fd = -1,
			     .wait_fd = -1,
			     .ended_fd = -1,
			     .keep_fd = -1 };
	struct guest g = { 0 };
	sigset_t caught;
	int status, signals;

	if (argc > 2 && !strcmp(argv[1], "-W"))
		return with_wire(argv + 2);
	if (argc == 2 && !strcmp(argv[1], "-f"))
		return print_tsc_khz();
	if (parse_options(argc, argv, &o)) {
		fprintf(stderr,
			"lab-host: called by tests/lab/lab; see its help\n");
		return EXIT_LAB;
	}

	/* Reading the terminal from the background is an error, not a stop. */
	signal(SIGTTIN, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);

	if (start_guest(&g, &o, &f))
		return EXIT_LAB;
	if (o.save)
		return EXIT_SUCCESS;

	sigemptyset(&caught);
	sigaddset(&caught, SIGINT);
	sigaddset(&caught, SIGTERM);
	sigaddset(&caught, SIGHUP);
	sigaddset(&caught, SIGWINCH);
	sigprocmask(SIG_BLOCK, &caught, NULL);
	signals = signalfd(-1, &caught, SFD_CLOEXEC);
	if (o.tty)
		make_terminal_raw();

	wait_for_byte(o.wait_fd, signals, LISTEN_SECONDS * 1000);
	status = frame_send(g.port, &f, FRAME_GO, 0)
			 ? EXIT_LAB
			 : carry(&g, &o, &f, signals);
	fflush(stdout);
	write_byte(o.notify_fd);
	write_byte(o.ended_fd);
	if (status >= 0)
		wait_for_byte(o.keep_fd, signals, -1);
	end_qemu(&g);

	if (status < 0) { /* end as the signal would have ended us */
		if (o.tty)
			restore_terminal();
		signal(-status, SIG_DFL);
		sigprocmask(SIG_UNBLOCK, &caught, NULL);
		raise(-status);
	}
	return status;
}
