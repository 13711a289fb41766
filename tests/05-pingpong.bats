# Chapter 05: the ping-pong, alone, with its like and with ibv_rc_pingpong.

load helpers

ours=$BUILD/05-pingpong/pingpong
counters=/sys/class/infiniband/rxe_0/ports/1/hw_counters

# Starts `$@` as the server, in the background, with its output in $server_out.
start_server() {
	server_out=$BATS_TEST_TMPDIR/server
	timeout -k 1 30 "$@" >"$server_out" 2>&1 3>&- &
	server=$!
}

# The same for a client whose output does not matter.
start_client() {
	timeout -k 1 30 "$@" localhost >/dev/null 2>&1 3>&- &
	client=$!
}

# Waits for the server; its status must be $1. Its output is then $output.
server_ends_with() {
	local status=0
	wait "$server" || status=$?
	output=$(<"$server_out")
	mapfile -t lines <<<"$output"
	((status == $1)) || fail "the server's status is $status, not $1:"$'\n'"$output"
}

# Our server with the options `$@`, our client with the same: both must succeed.
both_with() {
	start_server "$ours" "$@"
	run -0 limited "$ours" "$@" localhost
	client_output=$output
	server_ends_with 0
}

# ibv_rc_pingpong's client does not wait for its server.
until_listening() {
	local i
	for ((i = 0; i < 200; i++)); do
		! grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || return 0
		sleep 0.02
	done
	fail "nobody listens on port 18515"
}

# Until messages really go back and forth.
until_running() {
	local i before
	before=$(<"$counters/rdma_sends")
	for ((i = 0; i < 200; i++)); do
		(($(<"$counters/rdma_sends") < before + 20)) || return 0
		sleep 0.05
	done
	fail "no messages"
}

# A TCP client that sends $1. A server that has read enough may close before the rest.
send_to_server() {
	until_listening
	exec {sock}<>/dev/tcp/localhost/18515
	printf '%b' "$1" >&"$sock" || :
}

# A TCP server for one client: sends it $1, reads from it for $2 seconds.
fake_server() {
	timeout 20 perl -MSocket -e '
		socket(my $l, AF_INET, SOCK_STREAM, 0);
		setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1);
		bind($l, sockaddr_in(18515, INADDR_ANY)) and listen($l, 1) or die $!;
		accept(my $c, $l);
		sysread($c, my $buf, 52);
		syswrite($c, $ARGV[0] =~ s/\\0/\0/r);
		sleep $ARGV[1]' "$@" 3>&- &
	server=$!
	until_listening
}

# A link that some test changed is put right for the next.
teardown() {
	local job
	for job in $(jobs -p); do
		kill "$job" 2>/dev/null || :
		wait "$job" 2>/dev/null || :
	done
	[[ ! -e $BATS_TEST_TMPDIR/world-changed ]] || {
		rdma link delete rxe_0 2>/dev/null || :
		ip link set eth0 mtu 1500 up
		ip address replace 10.9.0.1/24 dev eth0
		rdma link add rxe_0 type rxe netdev eth0
	}
}

# The kernel knows of no memory region any more, nor of a queue pair of ours.
nothing_left() {
	run -0 rdma -j resource show mr
	[[ $(jq length <<<"$output") == 0 ]] || fail "still there: $output"
	run -0 rdma -j resource show qp
	[[ $(jq '[.[] | select(.comm == "pingpong")] | length' <<<"$output") == 0 ]] ||
		fail "still there: $output"
}

change_world() { : >"$BATS_TEST_TMPDIR/world-changed"; }

# --- the transfer ---

@test "default: 1000 messages each way, every byte verified by both" {
	both_with
	for output in "$output" "$client_output"; do
		mapfile -t lines <<<"$output"
		assert_line --regexp '^8192000 bytes in [0-9]+\.[0-9]{2} seconds = [0-9]+\.[0-9]{2} Mbit/sec$'
		assert_line --regexp '^1000 iters in [0-9]+\.[0-9]{2} seconds = [0-9]+\.[0-9]{2} usec/iter$'
		assert_line --regexp '^round trip: median [0-9.]+, 99th percentile [0-9.]+, maximum [0-9.]+ usec$'
		assert_line 'verified: every byte of 1000 of 1000 messages'
	done
}

@test "steps 1 and 2: device, port and GID are picked, and the reason given" {
	both_with -n 1
	assert_line 'device:  rxe_0, the first with an ACTIVE port'
	assert_line --regexp '^port:    1, ACTIVE'
	assert_line --regexp "^GID:     index 1, ::ffff:10.9.0.1, .*the port's best$"
}

@test "step 8: each side prints its own address and the other's" {
	both_with -n 1
	local address='LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.9\.0\.1'
	assert_line --regexp "^  local address:  $address\$"
	assert_line --regexp "^  remote address: $address\$"
	[[ $(sed -n 's/^  local address:  //p' <<<"$output") == \
		"$(sed -n 's/^  remote address: //p' <<<"$client_output")" ]]
	[[ $(sed -n 's/^  remote address: //p' <<<"$output") == \
		"$(sed -n 's/^  local address:  //p' <<<"$client_output")" ]]
}

@test "step 9: the kernel counts as many sends as the program says" {
	local before after
	before=$(<"$counters/rdma_sends")
	both_with -n 25 -s 3000
	after=$(<"$counters/rdma_sends")
	((after - before == 50)) || fail "rdma_sends moved by $((after - before)), not by 50"
}

@test "release: all that was made, in reverse order, and the kernel has none left" {
	both_with -e -n 1
	run -0 grep released <<<"$output"
	assert_output 'released: ibv_destroy_qp
released: ibv_destroy_cq
released: ibv_destroy_comp_channel
released: ibv_dereg_mr
released: ibv_dealloc_pd
released: ibv_close_device
released: ibv_free_device_list'
	nothing_left
}

@test "sizes: from one byte to a mebibyte" {
	local size
	for size in 1 64 1024 1025 65536 1048576; do
		both_with -n 3 -s "$size"
		assert_line --regexp "^$((size * 6)) bytes in "
		assert_line 'verified: every byte of 3 of 3 messages'
	done
}

@test "mtu: each of the five, and messages are cut accordingly" {
	change_world
	ip link set eth0 mtu 9000
	local mtu before packets
	for mtu in 256 512 1024 2048 4096; do
		before=$(<"$counters/sent_pkts")
		both_with -n 2 -s 4096 -m "$mtu"
		packets=$(($(<"$counters/sent_pkts") - before))
		# Four messages and an acknowledgement for each, unless one was sent twice.
		((packets >= 4 * 4096 / mtu + 4)) || fail "-m $mtu: only $packets packets"
		((packets < 2 * (4 * 4096 / mtu + 4))) || fail "-m $mtu: $packets packets"
	done
}

@test "events: with -e a side that waits sleeps, without it polls" {
	local option ticks least=() most
	for option in -e --rx-depth=500; do
		start_server "$ours" "$option" -n 1000000
		start_client "$ours" "$option" -n 1000000
		until_running
		pkill -STOP -P "$client"
		# utime and stime of the other, in clock ticks of 10 ms
		read -r _ _ _ _ _ _ _ _ _ _ _ _ _ utime stime _ <"/proc/$(pgrep -P "$server")/stat"
		ticks=$((utime + stime))
		sleep 1
		read -r _ _ _ _ _ _ _ _ _ _ _ _ _ utime stime _ <"/proc/$(pgrep -P "$server")/stat"
		least+=("$((utime + stime - ticks))")
		pkill -KILL -x pingpong
		wait "$server" || :
	done
	((least[0] <= 10 && least[1] >= 40)) ||
		fail "in a second of waiting: ${least[0]}0 ms with -e, ${least[1]}0 ms without"
}

@test "options: the long names, and one receive at a time" {
	both_with --port 18516 --ib-dev rxe_0 --ib-port 1 --size 100 --mtu 512 --rx-depth 1 \
		--iters 20 --sl 3 --events --gid-idx 1 --chk --timeout 5
	assert_line 'device:  rxe_0, given with -d'
	assert_line --regexp '^GID: .*given with -g$'
	assert_line --regexp '^4000 bytes in '
}

@test "GID: -g takes another, and link-local IPv6 is the choice when nothing is better" {
	both_with -n 2 -g 0
	assert_line --regexp '^  local address:.*GID fe80::'
	change_world
	ip -4 address flush dev eth0
	both_with -n 2
	assert_line --regexp "^GID:     index 0, fe80::.*link-local.*the port's best$"
}

@test "client: it may be a little early" {
	limited "$ours" -n 2 localhost >"$BATS_TEST_TMPDIR/client" 2>&1 &
	local client=$!
	SECONDS=0
	until grep -q 'yet, trying on' "$BATS_TEST_TMPDIR/client" || ((SECONDS > 9)); do
		sleep 0.1
	done
	start_server "$ours" -n 2
	server_ends_with 0
	wait "$client"
	grep -q 'no server at localhost port 18515 yet, trying on' "$BATS_TEST_TMPDIR/client"
}

@test "help: names every option, and goes to standard output" {
	run -0 --separate-stderr limited "$ours" --help
	for option in -p -d -i -s -m -r -n -l -e -g -c -h --timeout; do
		assert_line --regexp "^ +$option|^      $option"
	done
	[[ -z $stderr ]]
}

# --- with rdma-core's own program ---

@test "interoperation: our server, ibv_rc_pingpong's client, polling and events" {
	local mine theirs
	for mine in '' -e; do
		for theirs in '' -e; do
			start_server "$ours" -n 100 $mine
			until_listening
			run -0 limited ibv_rc_pingpong -g 1 -n 100 $theirs localhost
			assert_line --regexp '^100 iters in '
			server_ends_with 0
			assert_line --regexp '^100 iters in '
		done
	done
}

@test "interoperation: ibv_rc_pingpong's server, our client, polling and events" {
	local mine theirs
	for mine in '' -e; do
		for theirs in '' -e; do
			start_server ibv_rc_pingpong -g 1 -n 100 $theirs
			until_listening
			run -0 limited "$ours" -n 100 $mine localhost
			assert_line --regexp '^100 iters in '
			assert_line --regexp '^verified: nothing; -c checks'
			server_ends_with 0
			assert_line --regexp '^100 iters in '
		done
	done
}

@test "interoperation: -c on both sides finds nothing wrong" {
	start_server "$ours" -n 20 -s 10000 -c
	until_listening
	run -0 limited ibv_rc_pingpong -g 1 -n 20 -s 10000 -c localhost
	refute_output --partial 'invalid data'
	server_ends_with 0
	assert_line 'verified: every byte of 19 of 20 messages'

	start_server ibv_rc_pingpong -g 1 -n 20 -s 10000 -c
	until_listening
	run -0 limited "$ours" -n 20 -s 10000 -c localhost
	assert_line 'verified: every byte of 20 of 20 messages'
	server_ends_with 0
	refute_output --partial 'invalid data'
}

@test "interoperation: a stock peer without -g is told to use it" {
	start_server "$ours" -n 5
	until_listening
	run limited ibv_rc_pingpong -n 5 localhost
	server_ends_with 1
	assert_line 'pingpong: the peer sent no GID, which RoCE needs'
	assert_line --partial 'hint: ibv_rc_pingpong sends one if started with -g N'
}

# --- what may be wrong with the data ---

@test "check: a wrong byte is found, with its iteration and offset" {
	sed 's/^#define PATTERN_PERIOD .*/#define PATTERN_PERIOD 249/' \
		"$project/05-pingpong/pingpong.c" >"$BATS_TEST_TMPDIR/pingpong.c"
	sed -i "s|\"\.\./common|\"$project/common|" "$BATS_TEST_TMPDIR/pingpong.c"
	gcc -std=c11 -D_GNU_SOURCE -O0 -o "$BATS_TEST_TMPDIR/pingpong" \
		"$BATS_TEST_TMPDIR/pingpong.c" "${BUILD%/san}"/common/*.o -libverbs
	start_server "$BATS_TEST_TMPDIR/pingpong" -n 5 -s 1000
	run -1 limited "$ours" -n 5 -s 1000 localhost
	client_output=$output
	server_ends_with 1
	# Whoever finds it first gives up, and the other says that.
	output+=$'\n'$client_output
	mapfile -t lines <<<"$output"
	assert_line --regexp '^pingpong: iteration 0, offset [0-9]+: 0x[0-9a-f]{2} came, not 0x[0-9a-f]{2}$'
}

# --- what may be wrong with the peer ---

@test "peer: other sizes, iterations or mtu are named, by both" {
	local other
	for other in '-s 64' '-n 6' '-m 512'; do
		start_server "$ours" -n 5
		run -1 limited "$ours" -n 5 $other localhost
		assert_line --regexp "^pingpong: here .*$other.*, at the peer "
		server_ends_with 1
		assert_line --regexp "^pingpong: here .*, at the peer .*$other"
	done
}

@test "peer: ibv_rc_pingpong with another size is reported" {
	start_server "$ours" -n 5 -s 128 --timeout 8
	until_listening
	LIMIT=5 run limited ibv_rc_pingpong -g 1 -n 5 -s 64 localhost
	server_ends_with 1
	assert_line 'pingpong: message 0 has 64 bytes, not 128'
	start_server "$ours" -n 5 -s 64 --timeout 8
	until_listening
	LIMIT=5 run limited ibv_rc_pingpong -g 1 -n 5 -s 128 localhost
	server_ends_with 1
	assert_line --regexp '^pingpong: receive 0: .* \(status [0-9]+\), wr_id 1, vendor_err [0-9]+$'
	assert_line --partial 'hint: the message was longer than the receive'
}

@test "peer: ibv_rc_pingpong with fewer iterations ends the wait at the timeout" {
	start_server "$ours" -n 50 --timeout 4
	until_listening
	SECONDS=0
	run limited ibv_rc_pingpong -g 1 -n 5 localhost
	server_ends_with 1
	((SECONDS < 15))
	assert_line 'pingpong: waiting for a completion: ETIMEDOUT (Connection timed out)'
	assert_line --regexp 'hint: [0-9]+ sent and 5 received of 50'
}

@test "peer: killed with -9 in the middle, the other says so" {
	start_server "$ours" -n 1000000
	start_client "$ours" -n 1000000
	until_running
	pkill -KILL -P "$client"
	SECONDS=0
	server_ends_with 1
	((SECONDS < 5))
	assert_line 'pingpong: the peer gave up or died'
}

@test "peer: says nothing" {
	start_server "$ours" --timeout 1
	send_to_server ''
	server_ends_with 1
	assert_line --partial "receiving the peer's address: ETIMEDOUT"
}

@test "peer: sends half an address and closes" {
	start_server "$ours"
	send_to_server '0000:000011:123456:0'
	exec {sock}>&-
	server_ends_with 1
	assert_line --partial "receiving the peer's address: the peer sent 20 of 52 bytes"
}

@test "peer: sends garbage" {
	start_server "$ours"
	send_to_server 'GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything, please\r\n\r\n'
	server_ends_with 1
	assert_line --partial 'not an address: "GET / HTTP/1.1..Host: '
}

@test "peer: closes before saying done" {
	start_server "$ours"
	send_to_server '0000:000011:123456:00000000000000000000ffff0a090001\0'
	read -r -n 51 -u "$sock"
	exec {sock}>&-
	server_ends_with 1
	assert_line --partial 'receiving "done": the peer sent 0 of 5 bytes'
}

@test "peer: a queue pair number that does not exist" {
	start_server "$ours" --timeout 2
	send_to_server '0000:fffff0:123456:00000000000000000000ffff0a090001\0'
	printf 'done\0' >&"$sock"
	server_ends_with 1
	assert_line --partial 'waiting for a completion: ETIMEDOUT'
}

@test "peer: a server that says nothing, closes or sends garbage" {
	fake_server '' 5
	run -1 limited "$ours" --timeout 1 localhost
	assert_line --partial "receiving the peer's address: ETIMEDOUT"
	kill "$server"
	wait "$server" || :
	fake_server '' 0
	run -1 limited "$ours" localhost
	assert_line --partial "receiving the peer's address: the peer sent 0 of 52 bytes"
	fake_server "$(printf '%060d' 7)" 1
	run -1 limited "$ours" localhost
	assert_line --partial 'not an address: "0000'
}

@test "peer: a server that names a queue pair that does not exist" {
	fake_server '0000:fffff0:123456:00000000000000000000ffff0a090001\0' 8
	SECONDS=0
	run -1 limited "$ours" --timeout 2 -n 3 localhost
	assert_output --partial ETIMEDOUT
	((SECONDS < 8))
}

@test "peer: no server, no client" {
	run -1 limited "$ours" --timeout 1 localhost
	assert_line --partial 'connecting to localhost port 18515: ECONNREFUSED'
	assert_line --partial 'hint: is a server running there'
	run -1 limited "$ours" --timeout 1
	assert_line --partial 'no client on TCP port 18515: ETIMEDOUT'
	run -1 limited "$ours" --timeout 1 no-such-host.invalid
	assert_line --partial 'server "no-such-host.invalid"'
}

@test "peer: another program has the TCP port" {
	start_server "$ours" --timeout 5
	until_listening
	run -1 limited "$ours"
	assert_line --partial 'listening on TCP port 18515: EADDRINUSE'
	assert_line --partial 'hint: -p takes another one'
	kill "$server"
}

# --- what may be wrong with the options ---

@test "options: what this device or port cannot do" {
	run -1 limited "$ours" -d mlx5_9
	assert_line 'pingpong: no device called mlx5_9'
	assert_line --partial 'hint: there is rxe_0'
	run -1 limited "$ours" -i 7
	assert_line 'pingpong: no ACTIVE port 7'
	run -1 limited "$ours" -g 200
	assert_line --partial 'GID index 200: ENODATA'
	# Since Linux 6.2 or so, rxe takes more than -s does.
	most=$(($(ibv_devinfo -v | awk '$1 == "max_msg_sz:" { print $2 }')))
	if ((most < 1 << 30)); then
		run -1 limited "$ours" -s $((most + 1))
		assert_line "pingpong: -s $((most + 1)) is more than this port can do"
		assert_line --partial "hint: $most is the most"
	fi
	run -1 limited "$ours" -r 1000000
	assert_line 'pingpong: -r 1000000 is more than this port can do'
	run -1 limited "$ours" -m 2048
	assert_line 'pingpong: -m 2048 is more than this port can do'
	assert_line --partial 'hint: 1024 is the most'
}

@test "memlock: too little for the buffer is explained" {
	# Where the project stands may be closed to others, as /root is.
	install -m 755 "$ours" /tmp/pingpong-memlock
	cd /
	run -1 limited setpriv --reuid 65534 --regid 65534 --clear-groups \
		prlimit --memlock=65536 /tmp/pingpong-memlock -s 1000000
	rm /tmp/pingpong-memlock
	assert_output --partial 'ibv_reg_mr(2000000 bytes): ENOMEM'
	assert_line --partial 'hint: '
}

@test "device: none is status 77, a port that is down is status 1" {
	change_world
	ip link set eth0 down
	run -1 limited "$ours"
	assert_line --partial 'no ACTIVE port'
	rdma link delete rxe_0
	run -77 limited "$ours"
	assert_line --partial 'no RDMA device'
	assert_line --partial 'hint: '
}

@test "device: what a failure made is released, and nothing leaks" {
	# Sanitizers make a leak an error; without them, the kernel still knows.
	start_server "$ours" -n 5 -s 64
	run -1 limited "$ours" -n 5 -s 65 localhost
	assert_line 'released: ibv_destroy_qp'
	assert_line 'released: ibv_free_device_list'
	refute_output --partial 'LeakSanitizer'
	server_ends_with 1
	nothing_left
}
