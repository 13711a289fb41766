# The measurement next to other programs, once and briefly: whatever it prints is right
# only if each of the programs has run to its end. Those of perftest are measured if they
# are installed; make test does not install them.
load helpers

setup_file() { export LIMIT=300; }

# bats test_tags=long
@test "bench: each program is measured, and ours are compared with the others" {
	ROUNDS=1 SIZES=64 run -0 limited "$project/tests/bench/bench"
	assert_line --regexp '^ +64( +[0-9]+\.[0-9] \+- 0\.0){3} '
	assert_line --regexp '^rc_pingpong / ibv_rc_pingpong +[0-9]+\.[0-9]{2}$'
	assert_line --regexp '^rc_pingpong -e / ibv_rc_pingpong -e +[0-9]+\.[0-9]{2}$'
	assert_line --regexp '^ +64 +128 +[0-9]+\.[0-9]{2} '
	refute_output --partial 'runs failed'
	run -0 cat "$BUILD/bench/latency.csv"
	assert_line --index 0 'round,bytes,program,usec'
	assert_line --regexp '^0,64,one_sided,[0-9]+\.'
	assert_line --regexp '^0,64,send_window,[0-9]+\.'
	if type -P ib_send_bw >/dev/null; then
		assert_line --regexp '^0,64,ib_send_bw,[0-9]+\.'
	fi
}

# bats test_tags=long
@test "bench: a program that fails is no result" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/ibv_rc_pingpong"
	chmod +x "$BATS_TEST_TMPDIR/bin/ibv_rc_pingpong"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH ROUNDS=1 SIZES=64 \
		run -1 limited "$project/tests/bench/bench"
	assert_output --partial 'bench: ibv_rc_pingpong never reached its end with 64 bytes'
}

# bats test_tags=long
@test "bench-calls: a message is one system call, and a packet and its acknowledgement" {
	ITERS=50 PROGRAMS='rc_pingpong -e' run -0 limited "$project/tests/bench/calls"
	assert_line --regexp '^rc_pingpong -e +64 .* write 1\.0'
	run -0 cat "$BUILD/bench/calls.csv"
	assert_line --index 0 'program,bytes,run,what,number'
	# 50 messages each way: fewer packets than these there cannot be.
	run -0 awk -F , '/^rc_pingpong -e,64,once,counter_sent_pkts,/ { print ($5 >= 200) }' \
		"$BUILD/bench/calls.csv"
	assert_output 1
}

# bats test_tags=long
@test "bench-growth: each list is measured, and a dash leaves one out" {
	env -u MAKEFLAGS -u MAKELEVEL make -s -C "$project" BUILD="$BUILD" "$BUILD/tests/grading/peer"
	GUESTS=- SIZES='1 4096' ITERS=10 CLASS=1 ROUNDS=1 run -0 limited "$project/tests/bench/growth"
	assert_line --regexp '^size \(us\) +1 +[0-9]+\.[0-9]{2}$'
	assert_line --regexp '^size \(us\) +4096 +[0-9]+\.[0-9]{2}$'
	assert_line --regexp '^iterations \(us\) +10 +[0-9]+\.[0-9]{2}$'
	assert_line --regexp '^grade-all \(s\) +1 +[0-9]+\.[0-9]{2}$'
	refute_line --regexp '^guests'
	run -0 cat "$BUILD/bench/growth.csv"
	assert_line --index 0 'what,number,value'
	if type -P gnuplot >/dev/null; then
		run -0 xmllint --noout "$BUILD/bench/growth.svg"
	fi
}
