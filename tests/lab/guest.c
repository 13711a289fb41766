/*
 * guest.c - process 1 of a lab guest
 *
 * The guest's kernel starts this program from the initramfs. It
 *
 *   1. loads the modules that stand there, in the order of /modules/order;
 *   2. opens the virtio-serial port to lab-host and says FRAME_BOOTED. A
 *      snapshot is taken here: no file system of the machine is mounted yet,
 *      which would forbid it;
 *   3. after FRAME_HELLO takes the time, fresh entropy and the parameters of
 *      this run, so that a restored guest is not a copy of another one;
 *   4. mounts the machine's root, or another one, read-only (9p, made so by
 *      QEMU, not by a mount option) under an overlay whose upper layer is
 *      memory, mounts the one writable folder over it, and the workbook and
 *      the kernel's modules if that root is another one, and makes the result
 *      its root;
 *   5. runs the set-up script it was given (network, Soft-RoCE) as root;
 *   6. runs the command as the user it was told, carries its three streams and
 *      its exit status, and switches the guest off. It also does so when the
 *      machine's end of the port is gone.
 *
 * Built static: the initramfs has no libraries. See mount(2),
 * finit_module(2), random(4), Documentation/filesystems/overlayfs.rst and
 * Documentation/filesystems/9p.rst of the kernel.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/random.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"

#define MODULES "/modules/"

/*
 * msize: the largest 9p message, bytes; larger did not help. cache=loose: the
 * guest may believe what it read, since the machine's files hardly change in
 * its short life.
 */
#define NINE_P "trans=virtio,version=9p2000.L,msize=262144,access=any"

enum {
	STREAM_CHUNK = 32 * 1024,
	GROUPS_MAX = 65536, /* the kernel's limit, NGROUPS_MAX */
	LIST_MAX = 4096
};

/* What lab-host asked for; no string is freed before the guest ends. */
struct job {
	char *argv[LIST_MAX + 1];
	char *envp[LIST_MAX + 1];
	size_t argc;
	size_t envc;
	gid_t groups[GROUPS_MAX];
	size_t group_count;
	uid_t uid;
	gid_t gid;
	mode_t umask;
	const char *cwd;
	const char *setup; /* a shell script, run as root */
	const char *writable; /* the folder to mount read-write, or NULL */
	const char *modules; /* lib/modules/RELEASE of this kernel, or NULL */
	const char *project; /* the workbook, if the root does not have it */
	bool tty; /* a terminal instead of three pipes */
	bool watch_listen; /* say FRAME_LISTENING */
	struct winsize size;
};

/* Our ends of the command's streams: we write to @in; -1: closed. */
struct streams {
	int in, out, err;
	pid_t pid;
};

static _Noreturn void switch_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

/* Says why, on the port or, before that is open, on the console. */
static _Noreturn void die(int port, const char *format, ...)
{
	static struct frame f;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf((char *)f.data, FRAME_DATA_MAX, format, args);
	va_end(args);
	if (len >= FRAME_DATA_MAX)
		len = FRAME_DATA_MAX - 1;	/* it was cut off */

	if (port < 0 || len < 0 ||
	    frame_send(port, &f, FRAME_FAILED, (size_t)len))
		fprintf(stderr, "lab guest: %s\n", (char *)f.data);
	switch_off();
}

static void must_mount(int port, const char *source, const char *target,
		       const char *type, unsigned long flags,
		       const char *options)
{
	mkdir(target, 0755);
	if (mount(source, target, type, flags, options))
		die(port, "mount %s on %s: %s", source, target,
		    strerror(errno));
}

/* Loads what /modules/order names, a file a line, and frees their memory. */
static void load_modules(void)
{
	FILE *order = fopen(MODULES "order", "re");
	char path[256] = MODULES;
	char *name = path + strlen(MODULES);

	if (!order)
		die(-1, "%sorder: %s", MODULES, strerror(errno));

	while (fgets(name, (int)(sizeof(path) - strlen(MODULES)), order)) {
		int fd;

		name[strcspn(name, "\n")] = '\0';
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			die(-1, "%s: %s", path, strerror(errno));
		/* Built in or loaded by a device's probe already: EEXIST. */
		if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
			die(-1, "load %s: %s", path, strerror(errno));
		close(fd);
		unlink(path);
	}
	fclose(order);
}

/*
 * The port is the only one of its virtio-serial device, vportNp1. It appears a
 * moment after the driver, and lab-host's end counts as connected (no POLLHUP)
 * a moment after that.
 */
static int open_port(void)
{
	struct pollfd p = { .fd = -1, .events = POLLIN };
	char path[300] = "";

	while (p.fd < 0) {
		DIR *dir = opendir("/sys/class/virtio-ports");
		struct dirent *entry;

		while (dir && (entry = readdir(dir)))
			if (entry->d_name[0] == 'v')
				snprintf(path, sizeof(path), "/dev/%s",
					 entry->d_name);
		if (dir)
			closedir(dir);

		p.fd = open(path, O_RDWR | O_CLOEXEC);
		if (p.fd < 0)
			usleep(1000);
	}
	while (poll(&p, 1, 0) < 0 || (p.revents & POLLHUP))
		usleep(1000);

	return p.fd;
}

/* A restored guest has the clock of the snapshot. */
static void set_clock(const char *seconds)
{
	char *end;
	struct timespec now = { .tv_sec = strtoll(seconds, &end, 10) };

	if (*end == '.')
		now.tv_nsec = strtol(end + 1, NULL, 10);
	clock_settime(CLOCK_REALTIME, &now);
}

/*
 * A restored guest has the random numbers of the snapshot still to come. The
 * seed comes from the machine's getrandom(2), so it may be credited in full;
 * RNDRESEEDCRNG makes it count at once. See random(4).
 */
static void add_entropy(int port, const char *seed)
{
	size_t len = strlen(seed);
	struct rand_pool_info *pool = malloc(sizeof(*pool) + len);
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	if (!pool || fd < 0)
		die(port, "/dev/urandom: %s", strerror(errno));
	pool->entropy_count = 256; /* bits */
	pool->buf_size = (int)len;
	memcpy(pool->buf, seed, len);
	if (ioctl(fd, RNDADDENTROPY, pool) || ioctl(fd, RNDRESEEDCRNG))
		die(port, "add entropy: %s", strerror(errno));
	close(fd);
	free(pool);
}

static void add_string(int port, char *list[], size_t *count, char *string)
{
	if (*count == LIST_MAX)
		die(port, "more than %d arguments or variables", LIST_MAX);
	list[(*count)++] = string;
}

/* @text: numbers with a blank between them. */
static void take_groups(int port, struct job *job, const char *text)
{
	char *end;

	for (job->group_count = 0; *text; text = end) {
		unsigned long group = strtoul(text, &end, 10);

		if (end == text || job->group_count == GROUPS_MAX)
			die(port, "groups that are no numbers, or too many");
		job->groups[job->group_count++] = (gid_t)group;
	}
}

static void take_parameter(int port, struct job *job, const char *text)
{
	char *key = strdup(text);
	char *value = key ? strchr(key, '=') : NULL;

	if (!value)
		die(port, "parameter without a value: %s", text);
	*value++ = '\0';

	/* Kept for good, which looks like a leak: NOLINTBEGIN(*-unix.Malloc) */
	if (!strcmp(key, "arg"))
		add_string(port, job->argv, &job->argc, value);
	else if (!strcmp(key, "env"))
		add_string(port, job->envp, &job->envc, value);
	else if (!strcmp(key, "time"))
		set_clock(value);
	else if (!strcmp(key, "seed"))
		add_entropy(port, value);
	else if (!strcmp(key, "uid"))
		job->uid = (uid_t)strtoul(value, NULL, 10);
	else if (!strcmp(key, "gid"))
		job->gid = (gid_t)strtoul(value, NULL, 10);
	else if (!strcmp(key, "umask"))
		job->umask = (mode_t)strtoul(value, NULL, 8);
	else if (!strcmp(key, "groups"))
		take_groups(port, job, value);
	else if (!strcmp(key, "cwd"))
		job->cwd = value;
	else if (!strcmp(key, "setup"))
		job->setup = value;
	else if (!strcmp(key, "writable"))
		job->writable = value;
	else if (!strcmp(key, "modules"))
		job->modules = value;
	else if (!strcmp(key, "project"))
		job->project = value;
	else if (!strcmp(key, "hostname"))
		(void)!sethostname(value, strlen(value));
	else if (!strcmp(key, "listen"))
		job->watch_listen = true;
	else if (!strcmp(key, "tty"))
		job->tty = sscanf(value, "%hu %hu", &job->size.ws_row,
				  &job->size.ws_col) == 2;
	else
		die(port, "unknown parameter: %s", key);
	/* NOLINTEND(*-unix.Malloc) */
}

/* Makes the folder @path and those that lead to it; one may be there. */
static void make_folders(const char *path)
{
	char *copy = strdup(path);

	for (char *at = copy; at && (at = strchr(at + 1, '/'));) {
		*at = '\0';
		mkdir(copy, 0755);
		*at = '/';
	}
	mkdir(path, 0755);
	free(copy);
}

/* Mounts the machine's files and makes them the root; see the header. */
static void enter_root(int port, const struct job *job)
{
	must_mount(port, "root", "/machine", "9p", MS_RDONLY | MS_NOATIME,
		   NINE_P ",cache=loose");
	must_mount(port, "lab", "/upper", "tmpfs", 0, "mode=0755");
	mkdir("/upper/upper", 0755);
	mkdir("/upper/work", 0755);
	must_mount(
		port, "lab", "/root", "overlay", MS_NOATIME,
		"lowerdir=/machine,upperdir=/upper/upper,workdir=/upper/work");

	if (mount("/dev", "/root/dev", NULL, MS_MOVE, NULL) ||
	    mount("/proc", "/root/proc", NULL, MS_MOVE, NULL) ||
	    mount("/sys", "/root/sys", NULL, MS_MOVE, NULL) || chdir("/root") ||
	    mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die(port, "change of root: %s", strerror(errno));

	must_mount(port, "lab", "/run", "tmpfs", MS_NOSUID | MS_NODEV,
		   "mode=0755");
	must_mount(port, "lab", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		   "mode=0620,ptmxmode=0666,gid=5");
	must_mount(port, "lab", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV,
		   "mode=1777");

	/* What devtmpfs leaves to udev; bash and Bats need /dev/fd. */
	(void)!symlink("/proc/self/fd", "/dev/fd");
	(void)!symlink("fd/0", "/dev/stdin");
	(void)!symlink("fd/1", "/dev/stdout");
	(void)!symlink("fd/2", "/dev/stderr");

	if (job->modules) {
		const char *release = strrchr(job->modules, '/');
		char target[300];

		mkdir("/lib/modules", 0755);
		snprintf(target, sizeof(target), "/lib/modules%s", release);
		if (job->project)
			must_mount(port, "modules", target, "9p", MS_RDONLY,
				   NINE_P ",cache=loose");
		else
			must_mount(port, job->modules, target, NULL, MS_BIND,
				   NULL);
	}
	if (job->project) {
		make_folders(job->project);
		must_mount(port, "project", job->project, "9p",
			   MS_RDONLY | MS_NOATIME, NINE_P ",cache=loose");
		make_folders(job->writable);
	}
	if (job->writable)
		must_mount(port, "writable", job->writable, "9p", MS_NOATIME,
			   NINE_P ",cache=mmap");
}

static void run_setup(int port, const char *script)
{
	char *const argv[] = { "sh", "-ec", (char *)script, NULL };
	char *const envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	char output[4096];
	size_t used = 0;
	ssize_t n;
	int status, ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		die(port, "pipe: %s", strerror(errno));

	pid = fork();
	if (pid < 0)
		die(port, "fork: %s", strerror(errno));
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execve("/bin/sh", argv, envp);
		_exit(127);
	}
	close(ends[1]);
	while ((n = read(ends[0], output + used, sizeof(output) - 1 - used)) >
	       0)
		used += (size_t)n;
	output[used] = '\0';
	close(ends[0]);

	if (waitpid(pid, &status, 0) != pid || status)
		die(port, "set-up failed: %s", output);
}

/* In the new process: become the user and run the command. */
static void exec_command(const struct job *job)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	umask(job->umask);

	if (setgroups(job->group_count, job->groups) || setgid(job->gid) ||
	    setuid(job->uid)) {
		fprintf(stderr, "lab: become user %u: %s\n", job->uid,
			strerror(errno));
		_exit(125);
	}
	if (chdir(job->cwd)) {
		fprintf(stderr, "lab: %s: %s\n", job->cwd, strerror(errno));
		_exit(125);
	}

	/* execvpe(3) looks in this process's PATH, not in the new one's. */
	environ = (char **)job->envp;
	execvp(job->argv[0], job->argv);
	fprintf(stderr, "lab: %s: %s\n", job->argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void start_on_terminal(int port, const struct job *job,
			      struct streams *s)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	char name[64];

	if (master < 0 || unlockpt(master) ||
	    ptsname_r(master, name, sizeof(name)))
		die(port, "pseudo-terminal: %s", strerror(errno));
	(void)!chown(name, job->uid, (gid_t)-1);
	ioctl(master, TIOCSWINSZ, &job->size);

	s->pid = fork();
	if (s->pid == 0) {
		int tty;

		setsid();
		tty = open(name, O_RDWR); /* becomes the controlling terminal */
		if (tty < 0)
			_exit(126);
		dup2(tty, STDIN_FILENO);
		dup2(tty, STDOUT_FILENO);
		dup2(tty, STDERR_FILENO);
		if (tty > STDERR_FILENO)
			close(tty);
		exec_command(job);
	}
	s->in = master;
	s->out = dup(master);
	s->err = -1;
}

static void start_on_pipes(int port, const struct job *job, struct streams *s)
{
	int in[2], out[2], err[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ||
	    pipe2(err, O_CLOEXEC))
		die(port, "pipe: %s", strerror(errno));
	/* Else only root could open /dev/stdin, /dev/stdout and /dev/stderr. */
	(void)!fchown(in[0], job->uid, job->gid);
	(void)!fchown(out[1], job->uid, job->gid);
	(void)!fchown(err[1], job->uid, job->gid);

	s->pid = fork();
	if (s->pid == 0) {
		setsid();
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		exec_command(job);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	s->in = in[1];
	s->out = out[0];
	s->err = err[0];
}

/* Passes on what there is; at the end of the stream closes it: *fd is -1. */
static void relay_output(int port, int *fd, enum frame_type type)
{
	static struct frame f;
	ssize_t n = read(*fd, f.data, STREAM_CHUNK);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) { /* a terminal says EIO when its last user is gone */
		close(*fd);
		*fd = -1;
	} else if (frame_send(port, &f, type, (size_t)n)) {
		switch_off();
	}
}

/* State 0A of /proc/net/tcp is LISTEN; nothing else listens in a guest. */
static bool somebody_listens(void)
{
	static const char *const tables[] = { "/proc/net/tcp",
					      "/proc/net/tcp6" };
	bool found = false;

	for (size_t i = 0; i < 2; i++) {
		FILE *table = fopen(tables[i], "re");
		char line[512];
		unsigned int state;

		while (table && fgets(line, sizeof(line), table))
			if (sscanf(line, "%*s %*s %*s %x", &state) == 1 &&
			    state == 0x0a)
				found = true;
		if (table)
			fclose(table);
	}
	return found;
}

/*
 * Process 1 inherits every orphan: reaps whoever ended, and when that is the
 * command, stores its status as a shell would count it and ends all that it
 * left behind, so that its streams end too.
 */
static bool reap(pid_t command, uint8_t *status)
{
	bool ended = false;
	pid_t pid;
	int how;

	while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
		if (pid == command) {
			*status =
				(uint8_t)(WIFSIGNALED(how) ? 128 + WTERMSIG(how)
							   : WEXITSTATUS(how));
			ended = true;
			kill(-1, SIGKILL);
		}
	return ended;
}

static uint8_t run_command(int port, struct job *job)
{
	static struct frame in;
	size_t in_have = 0;
	const uint8_t *input = NULL; /* what the command has yet to take */
	size_t input_left = 0;
	struct streams s;
	bool ended = false;
	uint8_t status = 0;
	sigset_t chld;
	int sigchld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	sigchld = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	signal(SIGPIPE, SIG_IGN);

	if (job->tty)
		start_on_terminal(port, job, &s);
	else
		start_on_pipes(port, job, &s);
	if (sigchld < 0 || s.pid < 0)
		die(port, "start %s: %s", job->argv[0], strerror(errno));
	fcntl(s.in, F_SETFL, O_NONBLOCK);

	while (!ended || s.out >= 0 || s.err >= 0) {
		bool pending = s.in >= 0 && input_left > 0;
		struct pollfd p[] = {
			{ .fd = pending ? -1 : port, .events = POLLIN },
			{ .fd = pending ? s.in : -1, .events = POLLOUT },
			{ .fd = s.out, .events = POLLIN },
			{ .fd = s.err, .events = POLLIN },
			{ .fd = sigchld, .events = POLLIN },
		};

		if (poll(p, 5, job->watch_listen ? 20 : -1) < 0)
			continue;

		if (job->watch_listen && somebody_listens()) {
			static struct frame f;

			job->watch_listen = false;
			frame_send(port, &f, FRAME_LISTENING, 0);
		}
		if (p[4].revents) {
			struct signalfd_siginfo info;

			while (read(sigchld, &info, sizeof(info)) > 0)
				;
			ended |= reap(s.pid, &status);
		}
		if (p[2].revents)
			relay_output(port, &s.out, FRAME_OUT);
		if (p[3].revents)
			relay_output(port, &s.err, FRAME_ERR);
		if (p[1].revents) {
			ssize_t n = write(s.in, input, input_left);

			if (n > 0) {
				input += n;
				input_left -= (size_t)n;
			} else if (errno != EAGAIN && errno != EINTR) {
				close(s.in); /* the command reads no more */
				s.in = -1;
			}
		}
		if (p[0].revents) {
			int whole = frame_receive(port, &in, &in_have);

			if (whole < 0)
				switch_off();
			if (whole == 0) /* more of it has to come */
				continue;
			if (in.type == FRAME_SIZE && job->tty &&
			    in.len == sizeof(job->size))
				ioctl(s.out, TIOCSWINSZ, in.data);
			if (in.type != FRAME_IN || s.in < 0)
				continue;
			input = in.data;
			input_left = in.len;
			if (in.len == 0 && !job->tty) {
				close(s.in);
				s.in = -1;
			} else if (in.len == 0) {
				in.data[0] = 4; /* ^D: the terminal's own way */
				input_left = 1;
			}
		}
	}
	return status;
}

int main(void)
{
	static struct frame f;
	static struct job job;
	int port;

	must_mount(-1, "lab", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		   NULL);
	must_mount(-1, "lab", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		   NULL);
	must_mount(-1, "lab", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
	load_modules();

	port = open_port();
	if (frame_send(port, &f, FRAME_BOOTED, 0) || frame_read(port, &f) ||
	    f.type != FRAME_HELLO || frame_send(port, &f, FRAME_READY, 0))
		switch_off();

	while (!frame_read(port, &f) && f.type == FRAME_PARAM)
		take_parameter(port, &job, (char *)f.data);
	if (f.type != FRAME_END || !job.argc || !job.cwd)
		die(port, "parameters missing");

	umask(0022);
	enter_root(port, &job);
	if (job.setup)
		run_setup(port, job.setup);

	if (frame_send(port, &f, FRAME_SET_UP, 0) || frame_read(port, &f) ||
	    f.type != FRAME_GO)
		switch_off();

	f.data[0] = run_command(port, &job);
	sync();
	frame_send(port, &f, FRAME_EXIT, 1);

	/* lab-host ends the guest now; or it ends itself, and we see that. */
	while (!frame_read(port, &f))
		;
	switch_off();
}
