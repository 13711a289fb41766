/*
 * queues.c - what a program has posted, and which completions it has taken
 *
 * Usage: queues PID
 *
 * Soft-RoCE's library and its driver share the queues of a program as rings in
 * memory. No system call shows what is in them, so we read that memory. Prints,
 * for its only queue pair and all its completion queues,
 *
 *	receive WR_ID ADDRESS LENGTH
 *	waiting RECEIVES
 *	send OPCODE FLAGS LENGTH COMPARE SWAP WR_ID ADDRESS
 *	completions POSTED TAKEN ROOM SENDS
 *
 * a line for each work request since its ring was begun, the first time or
 * again. RECEIVES wait for a message. OPCODE and FLAGS are those of
 * <infiniband/verbs.h>; flags, addresses, COMPARE and SWAP are hexadecimal.
 * POSTED and TAKEN count modulo ROOM; of the completions that are not taken
 * yet, SENDS are of the program's own requests. For a program that has no such
 * queues, or another queue pair, or has ended, prints nothing.
 *
 * The format is the kernel's: rdma/rdma_user_rxe.h, and struct ib_uverbs_wc in
 * rdma/ib_user_verbs.h.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#define MAPPINGS 16		/* that we read at most */
#define MOST (1 << 20)		/* bytes of a ring that we read */
#define ELEMENTS 4096		/* of it; a program may write anything there */

struct ring {
	uint64_t offset;	/* of the mapping in the device's file */
	uint64_t begin;		/* where the program has it */
	size_t length;
	struct rxe_queue_buf *buf;
};

/* The driver counts up from queue to queue. */
static int by_offset(const void *one, const void *other)
{
	const struct ring *a = one, *b = other;

	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Is the file at the end of this @line of /proc/PID/maps a verbs device? */
static bool is_device(char *line, dev_t dev, ino_t inode)
{
	const char *name = strrchr(line, '/');
	struct stat file;
	char path[64];

	line[strcspn(line, "\n")] = '\0';
	if (!name || strncmp(name, "/uverbs", strlen("/uverbs")) != 0)
		return false;
	snprintf(path, sizeof(path), "/dev/infiniband%s", name);
	return stat(path, &file) == 0 && S_ISCHR(file.st_mode) &&
	       file.st_dev == dev && file.st_ino == inode;
}

/* Sets @rings to what is mapped of the program's device. Returns how many. */
static size_t find_rings(const char *pid, struct ring rings[MAPPINGS])
{
	char path[64], line[512];
	size_t count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return 0;
	while (count < MAPPINGS && fgets(line, sizeof(line), maps)) {
		struct ring ring = { 0 };
		unsigned int major, minor;
		unsigned long inode;
		uint64_t end;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64
			   " %x:%x %lu", &ring.begin, &end, &ring.offset,
			   &major, &minor, &inode) == 6 &&
		    is_device(line, makedev(major, minor), inode)) {
			ring.length = end - ring.begin;
			rings[count++] = ring;
		}
	}
	fclose(maps);
	qsort(rings, count, sizeof(*rings), by_offset);
	return count;
}

static int read_ring(int memory, struct ring *ring)
{
	const size_t length = ring->length < MOST ? ring->length : MOST;

	ring->buf = malloc(length);
	/* Not pread(): on a 32-bit processor its off_t ends at 2^31. */
	if (!ring->buf || pread64(memory, ring->buf, length,
				  (off64_t)ring->begin) != (ssize_t)length)
		return -1;
	ring->length = length;
	return 0;
}

/* Element @index of @ring, or NULL if that has not as much as @size bytes. */
static const void *element(const struct ring *ring, uint32_t index, size_t size)
{
	const uint64_t number = index & ring->buf->index_mask;
	const uint64_t at = sizeof(*ring->buf) +
			    (number << (ring->buf->log2_elem_size & 31));

	if (at > ring->length || size > ring->length - at)
		return NULL;
	return (const char *)ring->buf + at;
}

static uint32_t number_posted(const struct ring *ring)
{
	const uint32_t posted = ring->buf->producer_index;

	return posted < ELEMENTS ? posted : ELEMENTS;
}

/*
 * Where the bytes of request @index begin, whose first @size bytes are those
 * before @dma->sge. Empty pieces before them say nothing.
 */
static uint64_t first_byte(const struct ring *ring, uint32_t index, size_t size,
			   const struct rxe_dma_info *dma)
{
	uint32_t i = 0;

	while (i + 1 < dma->num_sge && dma->sge[i].length == 0 &&
	       element(ring, index, size + (i + 2) * sizeof(*dma->sge)))
		i++;
	return dma->num_sge ? dma->sge[i].addr : 0;
}

static void print_receives(const struct ring *ring)
{
	for (uint32_t i = 0; i < number_posted(ring); i++) {
		const struct rxe_recv_wqe *wqe =
			element(ring, i, sizeof(*wqe) + sizeof(struct rxe_sge));

		if (!wqe)
			return;
		printf("receive %" PRIu64 " 0x%" PRIx64 " %u\n",
		       (uint64_t)wqe->wr_id,
		       first_byte(ring, i, sizeof(*wqe), &wqe->dma),
		       wqe->dma.length);
	}
	printf("waiting %u\n",
	       (ring->buf->producer_index - ring->buf->consumer_index) &
	       ring->buf->index_mask);
}

static void print_sends(const struct ring *ring)
{
	for (uint32_t i = 0; i < number_posted(ring); i++) {
		const struct rxe_send_wqe *wqe =
			element(ring, i, sizeof(*wqe) + sizeof(struct rxe_sge));

		if (!wqe)
			return;
		printf("send %u 0x%x %u 0x%" PRIx64 " 0x%" PRIx64 " %" PRIu64
		       " 0x%" PRIx64 "\n",
		       wqe->wr.opcode, wqe->wr.send_flags, wqe->dma.length,
		       (uint64_t)wqe->wr.wr.atomic.compare_add,
		       (uint64_t)wqe->wr.wr.atomic.swap,
		       (uint64_t)wqe->wr.wr_id,
		       first_byte(ring, i, sizeof(*wqe), &wqe->dma));
	}
}

/* How many completions of sends nobody has taken yet. */
static int sends_left(const struct ring *ring)
{
	const uint32_t posted = ring->buf->producer_index;
	const uint32_t taken = ring->buf->consumer_index;
	const uint32_t end = taken + ELEMENTS;
	int sends = 0;

	for (uint32_t i = taken;
	     ((posted - i) & ring->buf->index_mask) != 0 && i != end; i++) {
		const struct ib_uverbs_wc *wc = element(ring, i, sizeof(*wc));

		if (!wc)
			break;
		sends += wc->opcode < IB_UVERBS_WC_BIND_MW;
	}
	return sends;
}

/* No completion is as large as a send. */
static bool may_hold_sends(const struct ring *ring)
{
	return 1ULL << (ring->buf->log2_elem_size & 31) >=
	       sizeof(struct rxe_send_wqe);
}

/*
 * Which of the rings is that for sends? In the order of their offsets, that for
 * receives comes next. All others are completion queues, which the program may
 * have made before or after them. Returns @count if it isn't like that.
 */
static size_t find_sends(const struct ring *rings, size_t count)
{
	size_t sends = 0;

	while (sends < count && !may_hold_sends(&rings[sends]))
		sends++;
	for (size_t i = sends + 2; i < count; i++)
		if (may_hold_sends(&rings[i]))
			return count;	/* another queue pair */
	return count >= 3 && sends + 2 <= count ? sends : count;
}

/* Of two queues the sum, modulo the room of the smaller one. */
static void print_completions(const struct ring *rings, size_t count,
			      size_t sends)
{
	uint32_t posted = 0, taken = 0, mask = UINT32_MAX;
	int left = 0;

	for (size_t i = 0; i < count; i++) {
		if (i == sends || i == sends + 1)
			continue;
		posted += rings[i].buf->producer_index;
		taken += rings[i].buf->consumer_index;
		mask &= rings[i].buf->index_mask;
		left += sends_left(&rings[i]);
	}
	printf("completions %u %u %u %d\n", posted & mask, taken & mask,
	       mask + 1, left);
}

int main(int argc, char *argv[])
{
	struct ring rings[MAPPINGS];
	size_t count, sends;
	char path[64];
	int memory;

	if (argc != 2)
		return 2;
	snprintf(path, sizeof(path), "/proc/%s/mem", argv[1]);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	if (memory < 0)
		return EXIT_FAILURE;
	count = find_rings(argv[1], rings);
	for (size_t i = 0; i < count; i++)
		if (read_ring(memory, &rings[i]))
			return EXIT_FAILURE;
	sends = find_sends(rings, count);
	if (sends == count)
		return EXIT_FAILURE;
	print_sends(&rings[sends]);
	print_receives(&rings[sends + 1]);
	print_completions(rings, count, sends);
	return EXIT_SUCCESS;
}
