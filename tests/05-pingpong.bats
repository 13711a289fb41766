# Chapter 05: the ping-pong, alone, with its like and with ibv_rc_pingpong.

load helpers

ours=$BUILD/05-pingpong/pingpong
tool=$BUILD/05-pingpong/rc_pingpong
window=$BUILD/05-pingpong/send_window
counters=/sys/class/infiniband/rxe_0/ports/1/hw_counters

# ibv_rc_pingpong's client does not wait for its server. 4853 is port 18515, and 0A is a
# socket that listens.
until_listening() { eventually grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; }

# Until messages really go back and forth.
until_running() { eventually sends_reach $(($(<"$counters/rdma_sends") + 20)); }
sends_reach() { (($(<"$counters/rdma_sends") >= $1)); }

# send_to_server TEXT: a TCP client that sends it, on the descriptor $sock. A server that
# has read enough may close before the rest.
send_to_server() {
	until_listening
	exec {sock}<>/dev/tcp/localhost/18515
	(printf '%b' "$1" >&"$sock") || :
}

# fake_server TEXT SECONDS: a TCP server for one client, which sends it this text and ends
# so much later.
fake_server() {
	timeout 20 perl -MSocket -e '
		socket(my $l, AF_INET, SOCK_STREAM, 0);
		setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1);
		bind($l, sockaddr_in(18515, INADDR_ANY)) and listen($l, 1) or die $!;
		accept(my $c, $l);
		sysread($c, my $buf, 52);
		syswrite($c, $ARGV[0] =~ s/\\0/\0/r);
		sleep $ARGV[1]' -- "$@" 3>&- &
	server=$!
	until_listening
}

teardown() { put_right; }

# --- the transfer ---

@test "default: 1000 messages each way, every byte verified by both, with the lines of ibv_rc_pingpong" {
	local program
	for program in "$ours" "$tool"; do
		both_with "$program"
		for output in "$output" "$client_output"; do
			mapfile -t lines <<<"$output"
			assert_line --regexp '^8192000 bytes in [0-9]+\.[0-9]{2} seconds = [0-9]+\.[0-9]{2} Mbit/sec$'
			assert_line --regexp '^1000 iters in [0-9]+\.[0-9]{2} seconds = [0-9]+\.[0-9]{2} usec/iter$'
			assert_line 'verified: every byte of 1000 of 1000 messages'
			if [[ $program == "$tool" ]]; then
				assert_line --regexp \
					'^round trip: median [0-9.]+, 99th percentile [0-9.]+, maximum [0-9.]+ usec$'
			fi
		done
	done
}

@test "default: lesson and tool work together, either way" {
	start_server "$ours" -n 20
	run -0 limited "$tool" -n 20 localhost
	assert_line 'verified: every byte of 20 of 20 messages'
	server_ends_with 0
	assert_line 'verified: every byte of 20 of 20 messages'
	start_server "$tool" -n 20 -e -r 3
	run -0 limited "$ours" -n 20 localhost
	assert_line 'verified: every byte of 20 of 20 messages'
	server_ends_with 0
	assert_line 'verified: every byte of 20 of 20 messages'
}

@test "memory: a hundred million iterations need no more of it" {
	# With sanitizers the address space says nothing.
	if [[ $BUILD == */san ]]; then
		return
	fi
	start_server "$tool" -n 100000000 -s 64
	until_listening
	run -0 awk '$1 == "VmSize:" { print $2 }' "/proc/$(pgrep -P "$server")/status"
	((output < 200000)) || fail "$output kB"
	kill "$server"
}

@test "steps 1 and 2: device, port and GID are picked, and the reason given" {
	both_with "$ours" -n 1
	assert_line 'device:  rxe_0, the first with an ACTIVE port'
	assert_line --regexp '^port:    1, ACTIVE'
	assert_line --regexp "^GID:     index 1, ::ffff:10.9.0.1, .*the port's best$"
}

@test "step 8: each side prints its own address and the other's" {
	both_with "$ours" -n 1
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
	both_with "$ours" -n 25 -s 3000
	after=$(<"$counters/rdma_sends")
	((after - before == 50)) || fail "rdma_sends moved by $((after - before)), not by 50"
}

@test "release: all that was made, in reverse order, and the kernel has none left" {
	both_with "$tool" -e -n 1
	assert_released ibv_destroy_qp ibv_destroy_cq ibv_destroy_comp_channel ibv_dereg_mr \
		ibv_dereg_mr ibv_dealloc_pd ibv_close_device ibv_free_device_list
	nothing_left
}

@test "sizes: from one byte to a mebibyte" {
	local size
	for size in 1 64 1024 1025 65536 1048576; do
		both_with "$ours" -n 3 -s "$size"
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
		both_with "$ours" -n 2 -s 4096 -m "$mtu"
		packets=$(($(<"$counters/sent_pkts") - before))
		# Four messages and an acknowledgement for each, unless one was sent twice.
		((packets >= 4 * 4096 / mtu + 4)) || fail "-m $mtu: only $packets packets"
		((packets < 2 * (4 * 4096 / mtu + 4))) || fail "-m $mtu: $packets packets"
	done
}

@test "events: with -e a side that waits sleeps, without it polls" {
	local option ticks least=() most
	for option in -e --rx-depth=500; do
		start_server "$tool" "$option" -n 1000000
		start_client "$tool" "$option" -n 1000000 localhost
		until_running
		pkill -STOP -P "$client"
		# utime and stime of the other, in clock ticks of 10 ms
		read -r _ _ _ _ _ _ _ _ _ _ _ _ _ utime stime _ <"/proc/$(pgrep -P "$server")/stat"
		ticks=$((utime + stime))
		sleep 1
		read -r _ _ _ _ _ _ _ _ _ _ _ _ _ utime stime _ <"/proc/$(pgrep -P "$server")/stat"
		least+=("$((utime + stime - ticks))")
		pkill -KILL -x rc_pingpong
		wait "$server" || :
	done
	((least[0] <= 10 && least[1] >= 40)) ||
		fail "in a second of waiting: ${least[0]}0 ms with -e, ${least[1]}0 ms without"
}

@test "options: the long names, and one receive at a time" {
	both_with "$tool" --port 18516 --ib-dev rxe_0 --ib-port 1 --size 100 --mtu 512 --rx-depth 1 \
		--iters 20 --sl 3 --events --gid-idx 1 --chk --timeout 5
	assert_line 'device:  rxe_0, given with -d'
	assert_line --regexp '^GID: .*given with -g$'
	assert_line --regexp '^4000 bytes in '
}

@test "GID: -g takes another, and link-local IPv6 is the choice when nothing is better" {
	both_with "$ours" -n 2 -g 0
	assert_line --regexp '^  local address:.*GID fe80::'
	change_world
	ip -4 address flush dev eth0
	both_with "$ours" -n 2
	assert_line --regexp "^GID:     index 0, fe80::.*link-local.*the port's best$"
}

@test "client: may start before the server" {
	start_client "$ours" -n 2 localhost
	eventually grep -q 'no server at localhost port 18515 yet, still trying' "$client_out"
	start_server "$ours" -n 2
	server_ends_with 0
	client_ends_with 0
}

@test "help: names every option, and goes to standard output" {
	run -0 --separate-stderr limited "$ours" --help
	for option in -p -d -s -m -n -g -h --timeout; do
		assert_line --regexp "^ +$option|^      $option"
	done
	[[ -z $stderr ]]
	run -0 --separate-stderr limited "$tool" --help
	for option in -p -d -i -s -m -r -n -l -e -g -c -h --timeout; do
		assert_line --regexp "^ +$option|^      $option"
	done
	[[ -z $stderr ]]
}

# --- many messages at once ---

@test "send_window: the client prints what its header shows, and the server verifies every byte" {
	local before
	before=$(<"$counters/rdma_sends")
	both_with "$window"
	assert_equal "$(($(<"$counters/rdma_sends") - before))" 1000
	assert_line --regexp '^4096000 bytes in [0-9]+\.[0-9]{2} seconds = [0-9]+\.[0-9]{2} Mbit/sec$'
	assert_line --regexp '^1000 messages: at most [0-9]+ from one ibv_poll_cq$'
	assert_line 'verified: every byte of 1000 of 1000 messages'
	output=$client_output
	assert_sample "$project/05-pingpong/send_window.c"
	mapfile -t lines <<<"$output"
	assert_line '1000 messages: 32 calls of ibv_post_send, 32 completions'
	assert_released ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd \
		ibv_close_device ibv_free_device_list
	nothing_left
}

@test "send_window: every depth sends everything, with as many completions as -q says" {
	local depth every
	for depth in 1 2 16 300; do
		every=$(((depth + 3) / 4))
		both_with "$window" -n 121 -s 100 -t "$depth"
		assert_line 'verified: every byte of 121 of 121 messages'
		output=$client_output
		assert_output --regexp "window:  $depth sends, 1 of $every signaled"
		assert_output --regexp "121 messages: [0-9]+ calls of ibv_post_send, $(((120 + every) / every)) completions"
	done
	both_with "$window" --iters 100 --size 65536 --tx-depth 8 --signal 8 --rx-depth 9
	[[ $client_output == *' 13 calls of ibv_post_send, 13 completions'* ]] || fail "$client_output"
}

@test "send_window: with one receive the sender is refused again and again, and nothing is lost" {
	both_with "$window" -n 50 -r 1
	assert_line 'verified: every byte of 50 of 50 messages'
}

@test "send_window: a window that could never have room is refused" {
	run -2 limited "$window" -t 16 -q 17
	assert_line 'send_window: no send would be signaled: -t 16 is less than -q 17'
	assert_line '  hint: choose a -q that is not above -t'
	run -2 limited "$window" -t 5000
	assert_line 'send_window: -t 5000: out of range'
}

@test "send_window: a side that dies is noticed by the other" {
	local -A survivor=([client]=server [server]=client)
	local victim
	for victim in client server; do
		start_server "$window" -n 100000000
		start_client "$window" -n 100000000 localhost
		until_running
		SECONDS=0
		pkill -KILL -P "${!victim}"
		"${survivor[$victim]}_ends_with" 1
		((SECONDS < 8))
		wait "${!victim}" || :
		assert_line 'send_window: the peer gave up or died'
		assert_line 'released: ibv_free_device_list'
	done
	nothing_left
}

@test "send_window: a client that is silent ends the server's wait at the timeout" {
	start_server "$window" -n 100000000 --timeout 2
	start_client "$window" -n 100000000 localhost
	until_running
	pkill -STOP -P "$client"
	server_ends_with 1
	assert_line 'send_window: waiting for a completion: ETIMEDOUT (Connection timed out)'
	pkill -KILL -P "$client"
	wait "$client" || :
}

# --- with rdma-core's own program ---

@test "interoperation: our server, ibv_rc_pingpong's client, polling and events" {
	local mine theirs
	for mine in "$ours" "$tool" "$tool -e"; do
		for theirs in '' -e; do
			# shellcheck disable=SC2086 # a program and an option
			start_server $mine -n 100
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
	for mine in "$ours" "$tool" "$tool -e"; do
		for theirs in '' -e; do
			start_server ibv_rc_pingpong -g 1 -n 100 $theirs
			until_listening
			# shellcheck disable=SC2086 # a program and an option
			run -0 limited $mine -n 100 localhost
			assert_line --regexp '^100 iters in '
			assert_line --regexp '^verified: nothing; rc_pingpong -c compares'
			server_ends_with 0
			assert_line --regexp '^100 iters in '
		done
	done
}

@test "interoperation: -c on both sides finds nothing wrong" {
	start_server "$tool" -n 20 -s 10000 -c
	until_listening
	run -0 limited ibv_rc_pingpong -g 1 -n 20 -s 10000 -c localhost
	refute_output --partial 'invalid data'
	server_ends_with 0
	assert_line 'verified: every byte of 19 of 20 messages'

	for program in "$tool -c" "$ours"; do
		start_server ibv_rc_pingpong -g 1 -n 20 -s 10000 -c
		until_listening
		# shellcheck disable=SC2086 # a program and an option
		run -0 limited $program -n 20 -s 10000 localhost
		if [[ $program == "$tool -c" ]]; then
			assert_line 'verified: every byte of 20 of 20 messages'
		fi
		server_ends_with 0
		refute_output --partial 'invalid data'
	done
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

@test "check: a wrong byte is found, with its message and offset" {
	local object objects=() program
	for object in "${BUILD%/san}"/common/*.o; do
		if [[ $object != */pattern.o ]]; then
			objects+=("$object")
		fi
	done
	sed "s/^#define PERIOD .*/#define PERIOD 249/; s|#include \"|&$project/common/|" \
		"$project/common/pattern.c" >"$BATS_TEST_TMPDIR/pattern.c"
	for program in "$ours" "$window"; do
		gcc -std=c11 -D_GNU_SOURCE -O0 -o "$BATS_TEST_TMPDIR/${program##*/}" \
			"$project/05-pingpong/${program##*/}.c" "$BATS_TEST_TMPDIR/pattern.c" \
			"${objects[@]}" -libverbs
		start_server "$program" -n 5 -s 1000
		run -1 limited "$BATS_TEST_TMPDIR/${program##*/}" -n 5 -s 1000 localhost
		client_output=$output
		server_ends_with 1
		# Whoever finds it first gives up, and the other says that.
		output+=$'\n'$client_output
		mapfile -t lines <<<"$output"
		assert_line --regexp "^${program##*/}: message 0: byte [0-9]+ should be 0x[0-9a-f]{2}, and is 0x[0-9a-f]{2}\$"
	done
}

# --- what may be wrong with the peer ---

@test "peer: other sizes, iterations or mtu are named, by both" {
	local other
	for other in '-s 64' '-n 6' '-m 512'; do
		start_server "$ours" -n 5
		run -1 limited "$ours" -n 5 $other localhost
		assert_line --regexp "^pingpong: the options: we sent .*$other.*, the peer sent "
		server_ends_with 1
		assert_line --regexp "^pingpong: the options: we sent .*, the peer sent .*$other"
	done
}

@test "peer: ibv_rc_pingpong with another size is reported" {
	# The stock program may wait for ever then.
	start_server "$ours" -n 5 -s 128 --timeout 8
	until_listening
	start_client ibv_rc_pingpong -g 1 -n 5 -s 64 localhost
	server_ends_with 1
	assert_line 'pingpong: message 0 has 64 bytes, not 128'
	kill "$client" || :
	start_server "$ours" -n 5 -s 64 --timeout 8
	until_listening
	start_client ibv_rc_pingpong -g 1 -n 5 -s 128 localhost
	server_ends_with 1
	assert_line --regexp '^pingpong: receive: .* \(status [0-9]+\), wr_id 1, vendor_err [0-9]+$'
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
	start_client "$ours" -n 1000000 localhost
	until_running
	pkill -KILL -P "$client"
	SECONDS=0
	server_ends_with 1
	((SECONDS < 5))
	assert_line 'pingpong: the peer gave up or died'
}

# Every TCP client but a ping-pong program is a knock on the door: the server says who
# it was, and goes on waiting.
@test "knock: a client that says nothing ends at the timeout, with the server" {
	start_server "$ours" --timeout 2
	send_to_server ''
	SECONDS=0
	server_ends_with 1
	((SECONDS < 6))
	assert_line 'pingpong: ignored a connection from 127.0.0.1: it did not send a whole address in time; it sent 0 bytes ""'
	assert_line 'pingpong: no client on TCP port 18515: ETIMEDOUT (Connection timed out)'
}

# serves_real_client PROGRAM [ARGUMENT...]: a client, ours or the stock program, is served
# by the server that was started.
serves_real_client() {
	run -0 limited "$@" localhost
	server_ends_with 0
}

@test "knock: half an address, garbage and a browser are told apart from a client, which is served" {
	local message
	for message in '0000:000011:123456:0' 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n' '\x16\x03\x01\x02\x00\x01'; do
		start_server "$ours" -n 5 --timeout 25
		send_to_server "$message"
		if [[ $message == 0* ]]; then
			exec {sock}>&-
		fi
		serves_real_client "$ours" -n 5
		case $message in
		0*) assert_line 'pingpong: ignored a connection from 127.0.0.1: it closed the connection; it sent 20 bytes "0000:000011:123456:0"' ;;
		G*) assert_line --regexp 'it did not send an address; it sent [0-9]+ bytes "GET / HTTP/1.1\.' ;;
		*) assert_line --partial 'it did not send an address; it sent 6 bytes "......"' ;;
		esac
	done
}

@test "knock: a thousand clients come and go, and the stock client is served" {
	local LIMIT=60
	start_server "$ours" -n 5 --timeout 50
	until_listening
	perl -MIO::Socket::INET -e '
		IO::Socket::INET->new(PeerAddr => "127.0.0.1:18515") or die $! for 1 .. 1000'
	serves_real_client ibv_rc_pingpong -g 1 -n 5
	assert_line 'pingpong: ignored a connection from 127.0.0.1: it closed the connection; it sent 0 bytes ""'
	assert_line 'pingpong: ignored 10 connections; more are not reported'
	((${#lines[@]} < 40))
}

@test "knock: silent and slow clients do not keep a real one waiting" {
	local socks=() i
	start_server "$ours" -n 5 --timeout 20
	until_listening
	for ((i = 0; i < 20; i++)); do
		exec {sock}<>/dev/tcp/localhost/18515
		socks+=("$sock")
	done
	(for i in {0..9}; do printf 0 && sleep 1; done >&"$sock" 2>/dev/null) &
	SECONDS=0
	serves_real_client "$ours" -n 5
	((SECONDS < 8))
	assert_line --partial 'ignored a connection from 127.0.0.1: it was slow, and a newer client needed its place'
	assert_line --partial 'ignored a connection from 127.0.0.1: another client sent its address first'
	for sock in "${socks[@]}"; do exec {sock}>&-; done
}

@test "address: only exactly 52 bytes of an address are one" {
	local gid=00000000000000000000ffff0a090001 wrong text
	gcc -D_GNU_SOURCE -o "$BATS_TEST_TMPDIR/address" "$project/tests/shims/address.c" \
		"${BUILD%/san}"/common/*.o -libverbs
	run -0 "$BATS_TEST_TMPDIR/address" "00a1:b0c2d3:12eF56:$gid"
	assert_output --partial ' LID 0x00a1, QPN 0xb0c2d3, PSN 0x12ef56, GID ::ffff:10.9.0.1'
	wrong=("-001:000011:123456:$gid" "0x01:000011:123456:$gid" "+001:000011:123456:$gid"
		" 001:000011:123456:$gid" "0000:000011:12345g:$gid" "0000:000011-123456:$gid"
		"000:0000011:123456:$gid" "0000:000011:123456:${gid/ffff/ :-1}"
		"0000:000011:123456:0$gid" "0000:000011:123456:${gid#0}" '' 0000:000011:123456:)
	run -0 "$BATS_TEST_TMPDIR/address" "${wrong[@]}"
	assert_equal "$output" "$(printf 'no: %s\n' "${wrong[@]}")"

	fake_server "${wrong[0]}\\0" 1
	run -1 limited "$ours" localhost
	assert_line "pingpong: not an address: \"${wrong[0]}\""
}

@test "terms: what the peer sends does not control the terminal" {
	start_server "$ours" -n 5
	send_to_server '0000:000011:F23456:00000000000000000000ffff0a090001\0'
	read -r -n 51 -u "$sock"
	printf 'done\0\033[31mred\a%055d' 0 >&"$sock"
	server_ends_with 1
	assert_line --partial 'the options: we sent "-s 4096 -n 5 -m 1024", the peer sent ".[31mred.000'
	[[ $output != *[$'\033\a']* ]]
}

@test "peer: half a message and then silence is shown, with the time it took" {
	fake_server 0000:0000 9
	SECONDS=0
	run -1 limited "$ours" --timeout 2 localhost
	((SECONDS < 6))
	assert_line "pingpong: receiving the peer's address: 9 of 52 bytes came in 2 s: ETIMEDOUT (Connection timed out)"
	assert_line '  hint: this came: "0000:0000"'
	refute_line --partial '-g'
}

@test "peer: Ctrl-Z and fg in the middle of a message do no harm" {
	start_server "$ours" -n 5 --timeout 9
	send_to_server '0000:000011:123456:'
	sleep 0.5
	pkill -STOP -P "$server"
	sleep 0.5
	pkill -CONT -P "$server"
	sleep 0.5
	printf '00000000000000000000ffff0a090001\0' >&"$sock"
	read -r -n 51 -u "$sock"
	printf do >&"$sock"
	pkill -STOP -P "$server"
	pkill -CONT -P "$server"
	sleep 0.5
	printf 'ne\0' >&"$sock"
	exec {sock}>&-
	kill "$server"
	server_ends_with 143
	assert_line --partial 'remote address: LID 0x0000, QPN 0x000011, PSN 0x123456'
	refute_line --partial 'receiving'
}

@test "peer: closes before saying done" {
	start_server "$ours"
	send_to_server '0000:000011:123456:00000000000000000000ffff0a090001\0'
	read -r -n 51 -u "$sock"
	exec {sock}>&-
	server_ends_with 1
	assert_line --partial 'receiving "done": the connection ended after 0 of 5 bytes'
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
	assert_line --partial "receiving the peer's address: 0 of 52 bytes came in 1 s: ETIMEDOUT"
	refute_line --partial '-g'
	kill "$server"
	wait "$server" || :
	fake_server '' 0
	run -1 limited "$ours" localhost
	assert_line --partial "receiving the peer's address: the connection ended after 0 of 52 bytes"
	assert_line '  hint: if it is an ibv_rc_pingpong, it needs -g on RoCE'
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

@test "peer: one that sends ahead is stopped at the message that is too many" {
	gcc -D_GNU_SOURCE -o "$BATS_TEST_TMPDIR/sends_ahead" "$project/tests/shims/sends_ahead.c" \
		"${BUILD%/san}"/common/*.o -libverbs
	start_server "$ours" -n 2 -s 64 --timeout 8
	timeout 20 "$BATS_TEST_TMPDIR/sends_ahead" 4 64 3>&- &
	server_ends_with 1
	assert_line 'pingpong: message 2 is one too many'
	assert_line --partial 'hint: give both sides the same -n'
	refute_output --partial Sanitizer
	kill $!
}

@test "timeout: events that bring no completion do not begin it again" {
	shim_with bad_luck idle-events
	fake_server '0000:fffff0:123456:00000000000000000000ffff0a090001\0' 9
	SECONDS=0
	run -1 limited "${shimmed[@]}" "$tool" -e --timeout 2 -n 3 localhost
	assert_line --partial 'waiting for a completion: ETIMEDOUT'
	((SECONDS < 25))
}

@test "timeout: it is for all addresses of a name together" {
	change_world
	cp /etc/hosts "$BATS_TEST_TMPDIR/hosts"
	# Nobody is there, and nobody says so.
	printf '10.9.0.%d nobody.example\n' 71 72 73 74 >>/etc/hosts
	SECONDS=0
	run -1 limited "$ours" --timeout 5 nobody.example
	cp "$BATS_TEST_TMPDIR/hosts" /etc/hosts
	((SECONDS < 15))
	assert_line 'pingpong: connecting to nobody.example port 18515: ETIMEDOUT (Connection timed out)'
}

@test "timeout: a name's other address is reached when the first is dead" {
	cp /etc/hosts "$BATS_TEST_TMPDIR/hosts"
	printf '10.9.0.%d half.example\n' 71 1 >>/etc/hosts
	start_server "$ours" -n 2
	run limited "$ours" --timeout 4 -n 2 half.example
	cp "$BATS_TEST_TMPDIR/hosts" /etc/hosts
	((status == 0)) || fail "$output"
	server_ends_with 0
}

@test "calls: a socket option, a poll or an accept that fails is an error, with its own name" {
	run -1 with_shim bad_luck setsockopt "$ours"
	assert_line --partial ': ENOMEM (Cannot allocate memory)'
	run -1 with_shim bad_luck poll "$ours"
	assert_line 'pingpong: poll: ENOMEM (Cannot allocate memory)'
	refute_line --partial 'hint: start the client'
	shim_with bad_luck accept
	start_server "${shimmed[@]}" "$ours"
	until_listening
	# The server may be gone before the client's connect() has returned.
	(exec {sock}<>/dev/tcp/localhost/18515) || :
	server_ends_with 1
	assert_line 'pingpong: accept: EMFILE (Too many open files)'
	refute_line --partial 'hint:'
}

@test "calls: without IPv6 the server listens by IPv4" {
	shim_with bad_luck no-ipv6
	start_server "${shimmed[@]}" "$ours" -n 2
	run -0 limited "$ours" -n 2 127.0.0.1
	server_ends_with 0
}

@test "link: one that goes down is named by the side that sends" {
	change_world
	start_server "$ours" -n 1000000 --timeout 4
	start_client "$ours" -n 1000000 --timeout 4 localhost
	until_running
	ip link set eth0 down
	server_ends_with 1
	assert_line --regexp 'hint: port 1 is down now, not ACTIVE: is its network link down\?'
}

@test "peer: another program has the TCP port" {
	start_server "$ours" --timeout 5
	until_listening
	run -1 limited "$ours"
	assert_line --partial 'listening on TCP port 18515: EADDRINUSE'
	assert_line --partial 'hint: take another port'
	kill "$server"
}

# --- what may be wrong with the options ---

@test "options: what this device or port cannot do" {
	run -1 limited "$ours" -d mlx5_9
	assert_line 'pingpong: no device called mlx5_9'
	assert_line --partial 'hint: there is rxe_0'
	run -1 limited "$tool" -i 7
	assert_line 'rc_pingpong: no ACTIVE port 7'
	run -1 limited "$ours" -g 200
	assert_line 'pingpong: port 1 has no GID at index 200'
	# Since Linux 6.2 or so, rxe takes more than -s does.
	most=$(($(ibv_devinfo -v | awk '$1 == "max_msg_sz:" { print $2 }')))
	if ((most < 1 << 30)); then
		run -1 limited "$ours" -s $((most + 1))
		assert_line "pingpong: -s $((most + 1)) is more than this device can do"
		assert_line --partial "hint: give at most $most;"
	fi
	run -1 limited "$tool" -r 1000000
	assert_line 'rc_pingpong: -r 1000000 is more than this device can do'
	run -1 limited "$ours" -m 2048
	assert_line 'pingpong: -m 2048 is more than the path MTU of port 1'
	assert_line --partial 'hint: give at most 1024, or first raise the MTU'
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
