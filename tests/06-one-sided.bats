#!/usr/bin/env bats
# Chapter 06: operations on the memory of a process that sleeps, and what is refused.

load helpers

one_sided=$BUILD/06-one-sided/one_sided
violations=$BUILD/06-one-sided/violations
fence=$BUILD/06-one-sided/fence

# Starts `$@` as the server, in the background, with its output in $server_out.
start_server() {
	server_out=$BATS_TEST_TMPDIR/server
	timeout -k 1 "${LIMIT:-30}" "$@" >"$server_out" 2>&1 3>&- &
	server=$!
}

# The same for a client.
start_client() {
	client_out=$BATS_TEST_TMPDIR/client
	timeout -k 1 "${LIMIT:-30}" "$@" localhost >"$client_out" 2>&1 3>&- &
	client=$!
}

# Waits for the process $1; its status must be $2. Its output, in file $3, is then $output.
ends_with() {
	local status=0
	wait "$1" || status=$?
	output=$(<"$3")
	mapfile -t lines <<<"$output"
	((status == $2)) || fail "the status is $status, not $2:"$'\n'"$output"
}
server_ends_with() { ends_with "$server" "$1" "$server_out"; }
client_ends_with() { ends_with "$client" "$1" "$client_out"; }

# Server and client, both `$@`: they must succeed. The client's output is then
# $client_output, the server's $output.
both_with() {
	start_server "$@"
	run -0 limited "$@" localhost
	client_output=$output
	server_ends_with 0
}

# Until $2 stands in the file $1.
until_it_says() {
	local i
	for ((i = 0; i < 600; i++)); do
		! grep -q "$2" "$1" || return 0
		sleep 0.05
	done
	fail "not said: $2"
}

# The process of a program that was started under timeout(1) as $1.
process_of() { pgrep -P "$1"; }

# The kernel knows of no memory region any more, nor of a queue pair of ours.
nothing_left() {
	run -0 rdma -j resource show mr
	[[ $(jq length <<<"$output") == 0 ]] || fail "still there: $output"
	run -0 rdma -j resource show qp
	[[ $(jq '[.[] | select(.pid)] | length' <<<"$output") == 0 ]] || fail "still there: $output"
}

teardown() { put_right; }

# --- one_sided ---

@test "one_sided: the sample in the header is what the target prints" {
	both_with "$one_sided" -n 10
	assert_sample "$project/06-one-sided/one_sided.c"
}

@test "one_sided, step 9: the target's memory after each operation, and its only completion" {
	both_with "$one_sided" -n 1
	run -0 grep ' number ' <<<"$output"
	assert_output "READ                number 100, \"target's text, ta\", no completion
WRITE               number 100, \"initiator's text,\", no completion
FETCH_AND_ADD 5     number 105, \"initiator's text,\", no completion
CMP_AND_SWP 105, 7  number 7, \"initiator's text,\", no completion
CMP_AND_SWP 105, 8  number 7, \"initiator's text,\", no completion
WRITE_WITH_IMM      number 7, \"initiator's text,\", received 0x1234"
	run -0 grep ' number ' <<<"$client_output"
	assert_output "READ                number 0, \"target's text, ta\"
WRITE               number 0, \"initiator's text,\"
FETCH_AND_ADD 5     number 100, \"initiator's text,\"
CMP_AND_SWP 105, 7  number 105, \"initiator's text,\"
CMP_AND_SWP 105, 8  number 7, \"initiator's text,\"
WRITE_WITH_IMM      number 7, \"initiator's text,\""
}

@test "one_sided, step 10: the target's process does next to nothing" {
	both_with "$one_sided" -n 2000
	run -0 sed -nE 's/^slept ([0-9]+)\.([0-9]{2}) s, and used ([0-9]+)\..* ms of CPU time$/\1\2 \3/p' \
		<<<"$output"
	read -r slept used <<<"$output"
	# Of CPU time, less than a tenth of the time that passed.
	((used < 10#$slept)) || fail "$used ms in $slept hundredths of a second"
	output=$client_output
	mapfile -t lines <<<"$output"
	assert_line --regexp '^6000 operations in [0-9.]+ s; all bytes and numbers were right$'
}

@test "one_sided, step 10: a target that is stopped serves all the same" {
	local pid LIMIT=60
	start_server "$one_sided" -n 3000
	start_client "$one_sided" -n 3000
	until_it_says "$server_out" '^WRITE_WITH_IMM'
	pid=$(process_of "$server")
	kill -STOP "$pid"
	until_it_says "$client_out" '^9000 operations'
	run -0 ps -o state= -p "$pid"
	assert_output 'T'
	kill -CONT "$pid"
	server_ends_with 0
	client_ends_with 0
}

@test "one_sided: sizes from one byte to a mebibyte, and a small MTU" {
	local size
	for size in 1 7 1048576; do
		both_with "$one_sided" -s "$size" -n 5 -m 256
		assert_line --regexp '^slept '
	done
}

@test "one_sided: a million rounds need no timeout, since the initiator says that it goes on" {
	start_server "$one_sided" -n 1000000 --timeout 4
	start_client "$one_sided" -n 1000000 --timeout 4
	until_it_says "$server_out" '^WRITE_WITH_IMM'
	sleep 6
	kill -0 "$server"
	kill "$client"
	server_ends_with 1
	assert_line --regexp '^one_sided: receiving a byte: .*the peer closed the connection'
}

@test "one_sided: a target that dies is noticed at once, and what was made is released" {
	start_server "$one_sided" -n 1000000
	start_client "$one_sided" -n 1000000
	until_it_says "$server_out" '^WRITE_WITH_IMM'
	kill -KILL "$(process_of "$server")"
	SECONDS=0
	client_ends_with 1
	((SECONDS < 8))
	assert_line --regexp '^one_sided: the peer gave up or died$'
	assert_line 'released: ibv_destroy_qp'
	assert_line 'released: ibv_free_device_list'
	wait "$server" || :
	nothing_left
}

@test "one_sided: another program as peer, or other options, are named" {
	start_server "$one_sided" -n 5
	run -1 limited "$fence" -n 5 localhost
	assert_line 'fence: the programs differ: here fence, at the peer one_sided'
	server_ends_with 1
	assert_line 'one_sided: the programs differ: here one_sided, at the peer fence'

	start_server "$one_sided" -n 5
	run -1 limited "$one_sided" -n 6 localhost
	assert_line --partial 'the options differ: here -s 4096 -n 6'
	server_ends_with 1

	start_server "$one_sided" -n 5
	sleep 1
	run limited ibv_rc_pingpong -g 1 -n 5 localhost
	server_ends_with 1
	assert_line 'one_sided: the peer is an ibv_rc_pingpong'
}

@test "one_sided: an initiator that talks nonsense over TCP does no harm" {
	start_server "$one_sided" -n 1
	# shellcheck disable=SC2016 # perl
	limited perl -MIO::Socket::IP -e '
		$SIG{PIPE} = "IGNORE";
		for (1 .. 200) {
			last if $peer = IO::Socket::IP->new("localhost:18515");
			select undef, undef, undef, 0.05;
		}
		print $peer "0000:000011:ABCDEF:00000000000000000000ffff0a090001\0";
		$peer->flush;
		read $peer, $address, 52;
		print $peer "done\0", pack("a64", "-s 4096 -n 1 -m 1024"),
			pack("a64", "one_sided"), "?" x 4, "l" x 20, "e";
		$peer->flush;
		sleep 2;'
	server_ends_with 1
	assert_line --partial 'FETCH_AND_ADD 5     number 100'
	assert_line 'one_sided: the peer gave up or died'
	assert_line 'released: ibv_free_device_list'
	refute_output --partial 'Sanitizer'
}

@test "one_sided: everything is released in reverse order, and the kernel has none left" {
	both_with "$one_sided" -n 1
	run -0 grep released <<<"$output"
	assert_output 'released: ibv_destroy_qp
released: ibv_destroy_cq
released: ibv_dereg_mr
released: ibv_dealloc_pd
released: ibv_close_device
released: ibv_free_device_list'
	nothing_left
}

# --- violations ---

@test "violations: the sample in the header is what it prints" {
	run -0 limited "$violations"
	assert_sample "$project/06-one-sided/violations.c"
}

@test "violations: what each side sees of each mistake" {
	run -0 limited "$violations"
	local success='status 0, success +RTS RTS 0'
	local access='status 10, remote access error +ERR ERR 2'
	local invalid='status 9, remote invalid request error ERR ERR 2'
	local expected=(
		"nothing +$success"
		"lkey in place of the rkey $success"
		"rkey +$access"
		"rkey, but 0 bytes +$success"
		"rkey of another PD +$access"
		"rkey of a released region $access"
		"1 byte beyond the region +$access"
		"region has no right +$access"
		"queue pair has no right +$invalid"
		"address of an atomic +ibv_post_send refused it: EINVAL +RTS RTS 0"
		"max_dest_rd_atomic is 0 +$invalid"
		"max_rd_atomic is 0 +nothing in 2000 ms +RTS RTS 0"
		# Linux 6.12 reports 5.
		"lkey +status (2, local QP operation error|5, Work Request Flushed Error) +ERR RTS 0"
		"own region is read-only +status 4, local protection error +ERR RTS 0"
	)
	local i
	for ((i = 0; i < ${#expected[@]}; i++)); do
		assert_line --index $((i + 1)) --regexp "^${expected[i]}\$"
	done
	assert_line --index $((i + 1)) 'released: ibv_dereg_mr'
	nothing_left
}

# --- fence ---

@test "fence: after a fence no message has old bytes; the sample in the header" {
	both_with "$fence" -n 100
	output=$client_output
	assert_sample "$project/06-one-sided/fence.c"
	mapfile -t lines <<<"$output"
	assert_line 'with a fence:    0 of 100 messages had old bytes'
	nothing_left
}

@test "fence: sizes" {
	local size
	for size in 1 100000; do
		both_with "$fence" -s "$size" -n 5
	done
}

@test "fence: a server that dies is noticed" {
	start_server "$fence" -n 1000000
	start_client "$fence" -n 1000000
	until_it_says "$client_out" '^in order'
	sleep 0.5
	kill -KILL "$(process_of "$server")"
	client_ends_with 1
	assert_line --regexp '^fence: .*(the peer gave up or died|closed the connection)'
	assert_line 'released: ibv_free_device_list'
}

# --- all three ---

@test "usage: a wrong option is status 2, and --help lists them" {
	local program
	for program in "$one_sided" "$violations" "$fence"; do
		run -2 limited "$program" --nonsense
		run -2 limited "$program" one two
		run -0 limited "$program" --help
		assert_line --partial '--ib-dev'
	done
	run -2 limited "$one_sided" -s 0
	assert_line --partial '-s 0: out of range'
}

@test "device: a wrong name is status 1, a port that is down too, and none is 77" {
	local program
	[[ ${RDMA:-} != host ]] || skip "changes this machine's devices"
	for program in "$one_sided" "$violations" "$fence"; do
		run -1 limited "$program" -d mlx5_9
		assert_line --partial 'no device called mlx5_9'
	done
	change_world
	ip link set eth0 down
	for program in "$one_sided" "$violations" "$fence"; do
		run -1 limited "$program"
		assert_line --partial 'no ACTIVE port'
	done
	rdma link delete rxe_0
	for program in "$one_sided" "$violations" "$fence"; do
		run -77 limited "$program"
		assert_line --partial 'no RDMA device'
	done
}
