#!/usr/bin/env bats
# Chapter 07: connections by the RDMA CM, rping's protocol, and peers that don't keep to it.

load helpers

ours=$BUILD/07-rdma-cm/rdma_ping
sync=$BUILD/07-rdma-cm/sync_ping
address=10.9.0.1

# shellcheck disable=SC2154 # project, from helpers
setup_file() {
	export stranger=$BATS_FILE_TMPDIR/cm_stranger
	gcc -std=c11 -D_GNU_SOURCE -o "$stranger" "$project/tests/shims/cm_stranger.c" \
		-lrdmacm -libverbs
}

# listening_server PROGRAM [ARGUMENT...]: starts it as the server and waits until it
# listens, because not every client waits for its server.
listening_server() {
	start_server "$@"
	eventually a_program_listens || fail "it does not listen: $(<"$server_out")"
}
a_program_listens() { [[ $(rdma resource show cm_id) == *LISTEN* ]]; }

teardown() { put_right; }

# --- rdma_ping ---

@test "rdma_ping: the sample in the header is what the client prints" {
	listening_server "$ours"
	run -0 limited "$ours" $address
	assert_sample "$project/07-rdma-cm/rdma_ping.c"
	server_ends_with 0
}

@test "rdma_ping, steps 2 to 4: the events of both sides, and the queue pairs' states" {
	listening_server "$ours" -C 2
	run -0 limited "$ours" -C 2 $address
	run sed -nE 's/^ *[0-9.]+ ms +//; s/ +/ /g; s/ +-> / -> /p' <<<"$output"
	assert_output "rdma_create_id - -> -
rdma_resolve_addr - -> -
ADDR_RESOLVED success - -> -
rdma_resolve_route - -> -
ROUTE_RESOLVED success - -> -
rdma_create_qp - -> INIT
rdma_set_option INIT -> INIT
rdma_connect INIT -> INIT
ESTABLISHED success INIT -> RTS
rdma_disconnect RTS -> ERR
DISCONNECTED success ERR -> ERR"
	server_ends_with 0
	run sed -nE 's/^ *[0-9.]+ ms +//; s/ +/ /g; s/ +-> / -> /p' <<<"$output"
	assert_output "rdma_create_id - -> -
rdma_bind_addr - -> -
rdma_listen - -> -
CONNECT_REQUEST success - -> -
rdma_create_qp - -> INIT
rdma_set_option INIT -> INIT
rdma_accept INIT -> RTS
ESTABLISHED success RTS -> RTS
DISCONNECTED success RTS -> RTS
rdma_disconnect RTS -> ERR"
}

@test "rdma_ping, step 5: the same texts on both sides, and those of rping" {
	local texts='rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr
rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrs'
	listening_server "$ours" -v
	run -0 limited "$ours" -c -a $address -C 2 -vV
	assert_equal "$(sed -n 's/^ping data: //p' <<<"$output")" "$texts"
	server_ends_with 0
	assert_equal "$(sed -n 's/^server ping data: //p' <<<"$output")" "$texts"
	listening_server rping -s -v
	run -0 limited rping -c -a $address -C 2 -v
	assert_equal "$(sed -n 's/^ping data: //p' <<<"$output")" "$texts"
}

@test "rdma_ping, step 6: everything is released in reverse order, and the kernel has none left" {
	listening_server "$ours"
	run -0 limited "$ours" $address
	assert_released rdma_destroy_qp ibv_dereg_mr ibv_dereg_mr ibv_dereg_mr ibv_destroy_cq \
		ibv_destroy_comp_channel rdma_destroy_id rdma_destroy_event_channel
	server_ends_with 0
	nothing_left
}

# play ROUNDS SERVER CLIENT: lets the two, each given as words, play so many rounds with
# messages of several sizes.
play() {
	local rounds=$1 size
	for size in 23 64 4096 65535; do
		# shellcheck disable=SC2086 # words
		listening_server $2 -S $size
		# shellcheck disable=SC2086 # words
		run -0 limited $3 -S $size -C "$rounds" -V
		server_ends_with 0
		refute_output --partial Sanitizer
	done
}

@test "rdma_ping: 1 and 100 rounds of 23 to 65535 bytes" {
	play 1 "$ours" "$ours $address"
	play 100 "$ours -s -a 0.0.0.0" "$ours -c -a $address"
	assert_line '100 rounds of 65535 bytes'
}

@test "rping: as the client of rdma_ping, 1 and 100 rounds of 23 to 65535 bytes" {
	play 1 "$ours -C 1" "rping -c -a $address"
	assert_line '1 round of 65535 bytes'
	play 100 "$ours -C 100" "rping -c -a $address"
	assert_line '100 rounds of 65535 bytes'
}

@test "rping: as the server of rdma_ping, 1 and 100 rounds of 23 to 65535 bytes" {
	play 1 "rping -s" "$ours $address"
	play 100 "rping -s -a $address" "$ours $address"
}

@test "rdma_ping: another port, and IPv6" {
	listening_server "$ours" -p 7300
	run -0 limited rping -c -a $address -p 7300 -C 3 -V
	server_ends_with 0
	ip -6 address replace fd09::1/64 dev eth0 nodad
	sleep 0.5
	listening_server "$ours" -a ::0
	run -0 limited "$ours" fd09::1
	server_ends_with 0
	ip -6 address delete fd09::1/64 dev eth0
}

@test "rdma_ping: a client that is earlier than its server tries again" {
	start_client "$ours" $address
	eventually grep -qx "rdma_ping: no server at $address port 7174" "$client_out"
	start_server "$ours"
	server_ends_with 0
	client_ends_with 0
	assert_line '3 rounds of 64 bytes'
}

@test "rdma_ping: another client is refused while the server serves the first" {
	listening_server "$ours" --timeout 5
	"$stranger" client connected-silent 3>&- &
	sleep 1
	run -1 limited "$ours" --timeout 1 $address
	assert_line --regexp ' REJECTED +8, nobody listens +INIT -> ERR$'
	kill $!
	server_ends_with 1
}

# --- peers of rdma_ping that don't keep to the protocol ---

# What rdma_ping says of a peer that dies in the first round. The connection manager tells
# it; but if a message is under way, the peer's kernel may refuse that first.
refused='the send: remote operation error'
died="the peer disconnected in round 1|$refused"

# strange_client MODE PATTERN: this client of shims/cm_stranger.c; rdma_ping, the server,
# must print a line like the pattern in time.
strange_client() {
	listening_server "$ours" -v -C 1 --timeout 3
	"$stranger" client "$1" >/dev/null 2>&1 3>&- &
	SECONDS=0
	server_ends_with 1
	((SECONDS < 15)) || fail "$1: $SECONDS s"
	kill $! 2>/dev/null || :
	wait $! || :
	assert_line --regexp "^rdma_ping: ($2)"
	assert_line 'released: rdma_destroy_event_channel'
	refute_output --partial Sanitizer
	refute_output --partial $'\a'
}

@test "client: one that dies in some step" {
	strange_client asks-dies '(rdma_create_qp: EINVAL|expected ESTABLISHED, but [A-Z]+ .* came|.*EINVAL)'
	strange_client connected-dies 'the peer disconnected after round 0'
	strange_client sent-dies "$died|the RDMA operation: "
	strange_client read-dies "$died"
	nothing_left
}

@test "client: one that goes silent in some step" {
	strange_client asks-only 'waiting for ESTABLISHED: ETIMEDOUT'
	strange_client connected-silent 'waiting for a message in round 1: ETIMEDOUT'
	strange_client read-silent 'waiting for a message in round 1: ETIMEDOUT'
}

@test "client: one whose messages have another length" {
	strange_client short 'a message of 15 bytes, not 16'
	strange_client empty 'a message of 0 bytes, not 16'
	strange_client long 'a message: local (QP operation|length) error'
	strange_client long-sink 'a message: local (QP operation|length) error'
}

@test "client: one whose memory is not what it says" {
	strange_client too-big "the client's text has 65536 bytes, our buffer has 64"
	strange_client wrong-key 'the RDMA operation: remote access error \(status 10\)'
	strange_client wrong-sink 'the RDMA operation: remote access error \(status 10\)'
	strange_client serves-no-read 'the client does not allow RDMA READs'
}

@test "client: a text without an end, of bytes that a terminal would obey" {
	listening_server "$ours" -v -C 1 --timeout 3
	"$stranger" client no-end 3>&- &
	server_ends_with 1
	kill $!
	assert_line --regexp '^server ping data: \.{64}$'
}

@test "client: a message too early, and rounds too many" {
	# It may be so late that it is the next message.
	strange_client twice '(a message came too early, in round 1|waiting for a message in round 2)'
	listening_server "$ours" -C 2
	run limited "$ours" -C 4 $address
	server_ends_with 1
	assert_line 'rdma_ping: the peer disconnected after round 4'
}

# strange_server MODE PATTERN: the same for this server, whose client is rdma_ping.
strange_server() {
	listening_server "$stranger" server "$1"
	SECONDS=0
	run -1 limited "$ours" -V -C 1 --timeout 3 $address
	((SECONDS < 15)) || fail "$1: $SECONDS s"
	kill "$server" 2>/dev/null || :
	wait "$server" || :
	assert_line --regexp "^rdma_ping: ($2)"
	assert_line 'released: rdma_destroy_event_channel'
	refute_output --partial Sanitizer
}

@test "server: one that dies in some step" {
	strange_server asked-dies 'expected ESTABLISHED, but REJECTED \(28, program refused\) came'
	strange_server accepted-dies "$died"
	strange_server heard-dies "$died"
	strange_server answered-dies "$died"
	nothing_left
}

@test "server: one that rejects, or never accepts" {
	strange_server rejects 'expected ESTABLISHED, but REJECTED \(28, program refused\) came'
	strange_server never-looks 'waiting for ESTABLISHED: ETIMEDOUT'
	strange_server asked-silent 'waiting for ESTABLISHED: ETIMEDOUT'
}

@test "server: one that goes silent in some step" {
	strange_server accepted-silent 'waiting for a message in round 1: ETIMEDOUT'
	strange_server heard-silent 'waiting for a message in round 1: ETIMEDOUT'
	strange_server answered-silent 'waiting for a message in round 1: ETIMEDOUT'
}

@test "server: one whose messages have another length, or come too early" {
	strange_server short 'a message of 15 bytes, not 16'
	strange_server long 'a message: local (QP operation|length) error'
	strange_server early 'a changed text came back in round 1: EBADMSG'
}

@test "server: one that does not read and write" {
	strange_server lazy 'a changed text came back in round 1: EBADMSG'
}

@test "server: one that is killed between rounds is no success" {
	listening_server "$ours"
	(sleep 1 && pkill -KILL -P "$server") 3>&- &
	run -1 limited "$ours" -C 100000000 $address
	assert_line --regexp "^rdma_ping: (the peer disconnected (in|after) round [0-9]+|$refused .*)\$"
	assert_line --regexp '^  hint: (the peer gave up or died|.* the peer ended while it came)'
}

@test "addresses: what fails is named, with a hint" {
	run -1 limited "$ours" 127.0.0.1
	assert_line 'rdma_ping: rdma_resolve_route: ENODEV (No such device)'
	assert_line --regexp "^  hint: take the address of the RDMA device's network interface"
	run -1 limited "$ours" --timeout 2 10.9.0.77
	assert_line 'rdma_ping: expected ADDR_RESOLVED, but ADDR_ERROR (ETIMEDOUT) came'
	assert_line '  hint: no machine answers at that address: try ping'
	run -1 limited "$ours" 192.0.2.1
	assert_line 'rdma_ping: rdma_resolve_addr: ENETUNREACH (Network is unreachable)'
	run -1 limited "$ours" -a 10.9.0.77
	assert_line 'rdma_ping: rdma_bind_addr: EADDRNOTAVAIL (Cannot assign requested address)'
	run -1 limited "$ours" no-such-host.invalid
	assert_line --partial 'rdma_ping: address "no-such-host.invalid": '
	run -1 limited "$ours" --timeout 1 $address
	assert_line "rdma_ping: no server at $address port 7174"
	assert_line '  hint: is the server running, with the same -p?'
	run -1 limited "$ours" --timeout 1
	assert_line --partial 'waiting for CONNECT_REQUEST: ETIMEDOUT'
	listening_server "$ours"
	run -1 limited "$ours" --timeout 1
	assert_line --regexp '^rdma_ping: rdma_bind_addr: EADDR(INUSE|NOTAVAIL) '
}

# --- sync_ping ---

@test "sync_ping: both sides, and the sample in the header" {
	listening_server "$sync"
	run -0 limited "$sync" $address
	assert_sample "$project/07-rdma-cm/sync_ping.c"
	server_ends_with 0
	assert_line 'received 16 bytes: from the client'
	nothing_left
}

@test "sync_ping: rdma_client and rdma_server take either side" {
	listening_server "$sync"
	run -0 limited rdma_client -s $address
	assert_line 'rdma_client: end 0'
	server_ends_with 0
	listening_server rdma_server
	run -0 limited "$sync" $address
	server_ends_with 0
	assert_line 'rdma_server: end 0'
}

@test "sync_ping: it has no deadline, which is what its calls cost" {
	# A client tries again as long as nobody listens, and a server waits for its client.
	LIMIT=5 run -124 limited "$sync" $address -p 7472
	LIMIT=3 run -124 limited "$sync" -p 7473
}

@test "sync_ping: what fails is named" {
	run -1 limited "$sync" 127.0.0.1
	assert_line 'sync_ping: rdma_create_ep: ENODEV (No such device)'
	run -1 limited "$sync" no-such-host.invalid
	assert_line --partial 'no address "no-such-host.invalid", port 7471'
}

# --- both ---

@test "usage: a wrong option is status 2, and --help lists them" {
	local program
	for program in "$ours" "$sync"; do
		run -2 limited "$program" --nonsense
		run -2 limited "$program" one two
		run -0 limited "$program" --help
		assert_line --partial '--port'
	done
	run -2 limited "$ours" -S 22
	assert_line --partial '-S 22: out of range'
	run -2 limited "$ours" -S 65536
	run -2 limited "$ours" -c
	run -2 limited "$ours" -s $address
}

@test "device: without one the status is 77; one that is down, or no rdma_ucm, is an error" {
	local program
	change_world
	mv /dev/infiniband/rdma_cm /dev/infiniband/away
	run -1 limited "$ours"
	mv /dev/infiniband/away /dev/infiniband/rdma_cm
	assert_line --partial 'rdma_ping: rdma_create_event_channel: '
	assert_line --partial 'modprobe rdma_ucm'
	ip link set eth0 down
	run -1 limited "$ours" --timeout 2 10.9.0.2
	assert_line --regexp '^rdma_ping: .*(ENETUNREACH|ENODEV|ADDR_RESOLVED)'
	rdma link delete rxe_0
	for program in "$ours" "$sync"; do
		run -77 limited "$program"
		assert_line --partial 'no RDMA device'
	done
}
