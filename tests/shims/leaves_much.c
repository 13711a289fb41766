/*
 * leaves_much.c - a submission that leaves as much behind as it can
 *
 * It takes shared memory, semaphores and message queues, which stay when their
 * process ends, and fills its folder and /tmp with files. It has no output, and
 * ends with status 0 whatever it was refused.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#define SHARED_BYTES (24 << 20)
#define SEMAPHORES 32000
#define FILES 20000

static void leave_shared_memory(void)
{
	int id = shmget(IPC_PRIVATE, SHARED_BYTES, 0600);

	if (id < 0)
		return;

	void *memory = shmat(id, NULL, 0);

	if ((intptr_t)memory != -1)
		memset(memory, 1, SHARED_BYTES);
}

static void leave_messages(void)
{
	static const struct {
		long type;
		char text[8192];
	} message = { .type = 1 };

	for (int i = 0; i < 500; i++) {
		int id = msgget(IPC_PRIVATE, 0600);

		while (id >= 0 && msgsnd(id, &message, sizeof(message.text),
					 IPC_NOWAIT) == 0)
			;
	}
}

/* As large as they may be, and then a file more: half of them in /tmp. */
static void leave_files(void)
{
	static const char page[4096];
	char name[64];

	signal(SIGXFSZ, SIG_IGN);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "%s/f%d", i & 1 ? "/tmp" : ".", i);

		int fd = open(name, O_CREAT | O_WRONLY, 0600);

		if (fd < 0)
			continue;
		while (write(fd, page, sizeof(page)) > 0)
			;
		close(fd);
	}
}

int main(void)
{
	leave_shared_memory();
	for (int i = 0; i < 5; i++)
		(void)semget(IPC_PRIVATE, SEMAPHORES, 0600);
	leave_messages();
	leave_files();
	return 0;
}
