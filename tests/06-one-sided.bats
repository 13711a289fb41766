#!/usr/bin/env bats
# Chapter 06: operations on the memory of a process that sleeps, and what is refused.

load helpers

one_sided=$BUILD/06-one-sided/one_sided
violations=$BUILD/06-one-sided/violations
fence=$BUILD/06-one-sided/fence

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
	start_server "$one_sided" -n 20000
	eventually pgrep -P "$server"
	pid=$(pgrep -P "$server")
	start_client "$one_sided" -n 20000 localhost
	eventually grep -q '^WRITE_WITH_IMM' "$server_out"
	kill -STOP "$pid"
	eventually grep -q '^60000 operations' "$client_out"
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
	start_client "$one_sided" -n 1000000 --timeout 4 localhost
	eventually grep -q '^WRITE_WITH_IMM' "$server_out"
	sleep 6
	kill -0 "$server"
	kill "$client"
	server_ends_with 1
	assert_line --regexp '^one_sided: receiving a byte: the connection ended'
}

@test "one_sided: a target that dies is noticed at once, and what was made is released" {
	start_server "$one_sided" -n 1000000
	start_client "$one_sided" -n 1000000 localhost
	eventually grep -q '^WRITE_WITH_IMM' "$server_out"
	pkill -KILL -P "$server"
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
	assert_line 'fence: the programs: we sent "fence", the peer sent "one_sided"'
	server_ends_with 1
	assert_line 'one_sided: the programs: we sent "one_sided", the peer sent "fence"'

	start_server "$one_sided" -n 5
	run -1 limited "$one_sided" -n 6 localhost
	assert_line --partial 'the options: we sent "-s 4096 -n 6'
	server_ends_with 1

	start_server "$one_sided" -n 5
	sleep 1
	# The stock program would wait for ever.
	start_client ibv_rc_pingpong -g 1 -n 5 localhost
	server_ends_with 1
	kill "$client" || :
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
	assert_released ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd \
		ibv_close_device ibv_free_device_list
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
		"region is read-only +$access"
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
	start_client "$fence" -n 1000000 localhost
	eventually grep -q '^promised byte order' "$client_out"
	sleep 0.5
	pkill -KILL -P "$server"
	client_ends_with 1
	assert_line --regexp '^fence: .*(the peer gave up or died|the connection ended)'
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
