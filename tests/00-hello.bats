# Chapter 00: one message, from a queue pair to itself.
# As root, where there is one device rxe_0 on eth0, 10.9.0.1, as in a guest.

# shellcheck disable=SC2154 # what helpers and Bats set
load helpers

hello=$BUILD/00-hello/hello
everything=(ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd ibv_close_device
	ibv_free_device_list)

setup() {
	before=$(rdma -j resource show)
}

# Whatever happened, nothing of it is left in the kernel.
teardown() {
	local after
	after=$(rdma -j resource show)
	put_right
	assert_equal "$after" "$before"
}

# without_number TEXT: the queue pair's number differs from run to run.
without_number() { sed -E 's/^(QP: +number 0x)[0-9a-f]{6},/\1......,/' <<<"$1"; }

@test "steps 1 to 8: it prints the sample in its header comment, releases included" {
	local sample
	run -0 --separate-stderr limited "$hello"
	assert_equal "$stderr" ""
	sample=$(sample_of "$project/00-hello/hello.c")
	assert_equal "$(without_number "$output")" "$(without_number "$sample")"
}

@test "step 1: no device is status 77, with a hint" {
	change_world
	rdma link delete rxe_0
	before=$(rdma -j resource show)
	run -77 --separate-stderr limited "$hello"
	assert_output "released: ibv_free_device_list"
	assert_equal "$stderr" "hello: no RDMA device
  hint: a guest of the lab has one: tests/lab/lab run -- $hello"
}

@test "step 1: a port that is down is refused" {
	change_world
	ip link set eth0 down
	run -1 --separate-stderr limited "$hello"
	assert_output "released: ibv_free_device_list"
	assert_regex "$stderr" '^hello: no ACTIVE port
  hint: there is rxe_0'
}

@test "step 2: memory beyond the limit is refused, and what was made is released" {
	ulimit -l 0
	run -1 --separate-stderr limited \
		setpriv --reuid 65534 --regid 65534 --clear-groups "$hello"
	assert_released "${everything[@]:3}"
	assert_regex "$stderr" 'hello: ibv_reg_mr\(32 bytes\): E[A-Z]+ \(.*\)
  hint: search docs/errors.md'
}

@test "step 5: the message leaves this queue pair and comes back to it" {
	local counters=/sys/class/infiniband/rxe_0/ports/1/hw_counters sends packets
	sends=$(<$counters/rdma_sends)
	packets=$(<$counters/rcvd_pkts)
	run -0 limited "$hello"
	assert_equal "$(<$counters/rdma_sends)" $((sends + 1))
	# The message and its acknowledgement.
	assert_equal "$(<$counters/rcvd_pkts)" $((packets + 2))
}

@test "step 7: a message that is lost is an error within seconds" {
	run -1 --separate-stderr with_shim hello lose "$hello"
	assert_equal "$stderr" "hello: no completion within 3000 ms
  hint: search docs/errors.md for the words of this error"
	assert_equal "$(tail -n 6 <<<"$output")" "$(released "${everything[@]}")"
	refute_output --partial success
}

@test "step 7: the completions may come in either order" {
	run -0 limited "$hello"
	assert_equal "$(grep success <<<"$output")" $'receive: success, 5 bytes arrived: hello
send:    success'
	run -0 --separate-stderr with_shim hello order "$hello"
	assert_equal "$stderr" ""
	assert_equal "$(grep success <<<"$output")" $'send:    success
receive: success, 5 bytes arrived: hello'
}

@test "output that cannot be written is a failure" {
	run -1 bash -c "'$hello' >/dev/full"
	assert_line --regexp '^hello: writing to standard output'
}

@test "usage: --help is no error; a wrong option is one, with a hint" {
	run -0 --separate-stderr limited "$hello" --help
	assert_line --index 0 "usage: hello [OPTIONS]"
	assert_equal "$stderr" ""
	run -2 --separate-stderr limited "$hello" -z
	assert_output ""
	assert_equal "$stderr" "$hello: invalid option -- 'z'
  hint: --help lists the options"
	run -2 limited "$hello" rxe_0
	assert_output "hello: one argument too many: rxe_0
  hint: --help lists the options"
}
