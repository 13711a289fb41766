/*
 * udp_pingpong.c - datagrams in turn, without RDMA, to compare Soft-RoCE with
 *
 * Soft-RoCE puts each of its packets into a UDP datagram. Both sides ask for
 * the next datagram without ever sleeping, as a program does that polls its
 * CQ. Each time they ask is a system call, which a look at a CQ is not.
 *
 *	udp_pingpong SIZE ITERATIONS PORT		the server
 *	udp_pingpong SIZE ITERATIONS PORT ADDRESS	the client, which begins
 *
 * The client prints one line, in the form of ibv_rc_pingpong's. A datagram that
 * is lost, or a peer that does not come within 60 seconds, ends it with 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../common/clock.h"

#define SECONDS 60
#define LARGEST 65507	/* bytes that fit into one datagram over IPv4 */

static char buffer[LARGEST];

/* Wait for a datagram; true if one of @size bytes came before @deadline. */
static bool receive(int sock, size_t size, long long deadline,
		    struct sockaddr_in *from)
{
	socklen_t length = sizeof(*from);
	ssize_t n;

	do {
		n = recvfrom(sock, buffer, sizeof(buffer), MSG_DONTWAIT,
			     (struct sockaddr *)from, &length);
	} while (n < 0 && (errno == EAGAIN || errno == ECONNREFUSED) &&
		 clock_ns(CLOCK_MONOTONIC) < deadline);
	return n == (ssize_t)size;
}

static bool transfer(int sock, size_t size, int iterations, bool client,
		     struct sockaddr_in *peer)
{
	long long deadline = deadline_after(SECONDS);

	for (int i = 0; i < iterations; i++) {
		if (!client && !receive(sock, size, deadline, peer))
			return false;
		if (sendto(sock, buffer, size, 0, (struct sockaddr *)peer,
			   sizeof(*peer)) != (ssize_t)size)
			return false;
		if (client && !receive(sock, size, deadline, peer))
			return false;
	}
	return true;
}

int main(int argc, char *argv[])
{
	struct sockaddr_in peer = { .sin_family = AF_INET };
	const bool client = argc == 5;
	int sock, iterations, status = EXIT_FAILURE;
	long long start;
	double seconds;
	size_t size;

	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: %s SIZE ITERATIONS PORT [ADDRESS]\n",
			argv[0]);
		return 2;
	}
	size = strtoul(argv[1], NULL, 10);
	iterations = (int)strtol(argv[2], NULL, 10);
	peer.sin_port = htons((uint16_t)strtoul(argv[3], NULL, 10));
	if (size > LARGEST || iterations < 1 ||
	    (client && inet_pton(AF_INET, argv[4], &peer.sin_addr) != 1)) {
		fprintf(stderr, "%s: bad arguments\n", argv[0]);
		return 2;
	}

	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (sock < 0) {
		perror("socket");
		return EXIT_FAILURE;
	}
	if (!client && bind(sock, (struct sockaddr *)&peer, sizeof(peer))) {
		perror("bind");
		goto out;
	}

	start = clock_ns(CLOCK_MONOTONIC);
	if (!transfer(sock, size, iterations, client, &peer)) {
		fprintf(stderr, "%s: a datagram was lost, or too late\n",
			argv[0]);
		goto out;
	}
	seconds = (double)(clock_ns(CLOCK_MONOTONIC) - start) / 1e9;
	if (client)
		printf("%d iters in %.2f seconds = %.2f usec/iter\n",
		       iterations, seconds, seconds * 1e6 / iterations);
	status = EXIT_SUCCESS;
out:
	close(sock);
	return status;
}
