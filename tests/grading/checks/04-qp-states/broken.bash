points 04.6 4 'broken.c delivers its message' 'man 3 ibv_modify_qp'

delivered() {
	find_lines received
	counted rdma_sends
	calls_of create
	evidence+=", exit status $status, ${#calls[@]} queue pairs"
	((${#found[@]} && value && !status && ${#calls[@]} >= 2)) &&
		received "${#found[@]}" && told RECEIVED
}

check_broken() {
	local low high psn numbers
	# With the bug, the PSNs that are sent and expected are not the same. If the first is higher,
	# the send fails, and the program ends. If it is lower, the packet is taken for a repetition,
	# and the program waits for ever. The case that is quick comes first.
	random low 65536 8000000
	random high $((low + 1)) $((low + 8000000))
	probe create rxe_create_qp
	watch_completions
	for numbers in "$high $(printf 0x%x "$low")" "$(printf 0x%x "$low") $high"; do
		read -ra psn <<<"$numbers"
		start broken "${psn[@]}"
		reach 04.6 connected &&
			expect 04.6 "nothing should be sent before CHECKPOINT connected" \
				counted_none rdma_sends || return
		kernel qp
		go
		finish
		if [[ $timed_out ]]; then
			fail 04.6
			return
		fi
		expect 04.6 "the message did not arrive" delivered &&
			expect 04.6 "rq_psn of each should be sq_psn of the other, as in the arguments" \
				each_expects $((psn[0])) $((psn[1])) &&
			expect 04.6 "there should be two steps to RTR, one for each queue pair" \
				told_times TO_RTR 2 || return
	done
	ok 04.6
}
