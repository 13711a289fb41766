# Chapter 06: the grader is the peer. It knows what it wrote and what came back, and it has
# a lock and a counter, on which it permits nothing but atomics, and READ and WRITE.

points 06.1 4 'permits the peer to write, in both places' 'man 3 ibv_reg_mr'
points 06.2 3 'takes what the peer writes' 'man 3 ibv_poll_cq'
points 06.3 3 'answers into the memory of the peer' 'man 3 ibv_post_send'
points 06.4 2 'compares and swaps, and finds the old value' 'man 3 ibv_post_send'
points 06.5 3 'takes the lock, and not from others' 'man 3 ibv_post_send'
points 06.6 2 'adds to the counter, and nothing is lost' 'man 3 ibv_post_send'

# check_write PORT SIZE ITERS [ADDRESS]: the program connects; or it waits, and the peer does.
check_write() {
	local got taken sends=() deadline=5
	start exercise write "$@"
	if (($# == 3)); then
		peer write "$@" 10.9.0.1
	fi
	reach 06.1 connected || return
	expect 06.1 "there should be a region of $2 bytes" has_region "$2" &&
		expect 06.1 "the peer should have the right to write, and no other" may_only_write || return
	look_at_queues
	prepared=$waiting
	go
	until_peer all && at answered && look_at_queues
	if [[ ! $status ]]; then finish; fi
	{ printed 'TODO 06.2 not *' || expect 06.1 "the peer could not write" peer_said 'written*'; } &&
		expect 06.1 "the peer should only be able to write" may_only_write && ok 06.1 || return
	expect 06.2 "it printed an immediate value that the peer did not send" takes_nonces &&
		expect 06.2 "the peer has written, and no immediate value was taken" test "$got" &&
		expect 06.2 "each receive that is used up should be posted again, once" reposts || return
	if [[ $got != "$(peer_sent)" ]]; then
		if waits_in_answer "$2"; then
			fail 06.3 "answer() takes completions, maybe also those of nonces: it should not wait"
		fi
		fail 06.2 "it should print all immediate values of the peer" "$evidence"
		return
	fi
	ok 06.2
	expect 06.3 "the peer should get $3 right answers" answered_all "$3" &&
		expect 06.3 "each answer should ask for a completion" all_signaled 1 &&
		expect_status 06.3 0
}

found_lock() { prints_only "found $held" 'found 0x[0-9a-f]{16}' 'found.*'; }

# check_lock PORT ROUNDS OTHERS: the peer wants the lock as well, OTHERS times.
check_lock() {
	local number held='' i n taken_before=0
	peer lock "$1"
	until_peer_listens
	start exercise lock "$1" "$2" 10.9.0.1
	reach 06.4 tried && expect 06.1 "there should be a region of 16 bytes" has_region 16 &&
		expect 06.1 "the peer should only be able to write" may_only_write || return
	kernel qp
	field lqpn "${objects[0]:-}"
	printf -v number 0x%x "${value:-0}"
	until_peer 'held *' && held=${reply#held }
	expect 06.4 "compare_and_swap() returned before its completion was taken" has_taken 1 &&
		expect 06.4 "it should compare and swap 8 bytes, 0 and $number" swaps 0x0 "$number" &&
		expect 06.4 "the old value should come to memory[0]" into_first &&
		expect 06.4 "it should find $held, which is in memory[0] after the completion" found_lock &&
		expect 06.4 "it replaced a value that was not 0" lock_is "$held" 0 || return
	ok 06.4
	go
	# It tries a dozen times, with two packets each. Then a thousand times, or for half a second.
	if until_grown rcvd_pkts 24; then
		for ((i = 0, n = value; i < 20 && value < n + 2400; i++)); do nap; counter rcvd_pkts; done
		expect 06.5 "the peer held the lock, and it was taken from it" tell release released
	elif at locked; then
		fail 06.5 "take_lock() returned although another client held the lock"
	else
		fail 06.5
	fi
	[[ ! ${verdict[06.5]:-} ]] || return
	reach 06.5 locked &&
		expect 06.5 "the lock was free, and should be $number now" lock_is "$number" 0 &&
		expect 06.5 "it took the lock, and tried again" told_times AGAIN 0 && ok 06.5 || return
	has_taken 1 # for the next look: it sets taken_before
	go && reach 06.6 added &&
		expect 06.6 "add_one() returned before READ and WRITE had completed" has_taken 2 WRITTEN &&
		expect 06.6 "the counter should be 1 more, the lock $number" lock_is "$number" 1 || return
	tell "contend $3" contending
	echo end >&"$peer_input" && go
	until_peer 'sum *'
	finish
	expect 06.5 "the peer should get the lock, too, and hold it alone" peer_said 'sum *' || return
	if printed 'exercise: the lock was 0x*'; then fail 06.5 "it added without the lock"; fi
	expect 06.5 "it did not release the lock after each round: the peer got it only at the end" \
		test "$(grep -m 1 '^before' "$peer_out")" != "before +$2"
	if ! ends_with 0; then fail 06.6; fi
	expect 06.6 "you added $2 and the peer $3: the counter should have grown by the sum" \
		peer_said "sum $(($2 + $3))" &&
		expect 06.6 "each of the $2 additions needs a WRITE" told_each WRITTEN "$2" && ok 06.6
}

check_exercise() {
	local port size iters rounds others args nth what verb why i next n prepared=16
	watch_registrations
	watch_modify
	random port 20000 30000
	random size 65537 70000 && ((size |= 1)) # more than 16 bits can say, and odd
	random iters 34 40 # more than a queue has room for: each has to be posted again
	random rounds 20 40
	random others 10 20
	random nth 1 8
	random n 2 32
	world[lag]=300
	peer write "$port" "$size" "$iters"
	until_peer_listens
	check_write "$port" "$size" "$iters" 10.9.0.1 && random size 17 60 && # inline, if there is room
		check_write $((port + 1)) "$size" $((iters - 16)) && ok 06.3
	if [[ ${verdict[06.1]:-} == pass ]]; then check_lock $((port + 2)) "$rounds" "$others"; fi
	unset 'world[lag]'
	args=(write $((port + 4)) "$size" "$iters")
	for what in INIT ibv_reg_mr; do
		why="${what/INIT/connection_init}() failed, and permit() did not return -1"
		must_heed 06.1 "$why" "$what" 1 '*' exercise "${args[@]}"
		if told TO_RTR || printed "*no memory region*"; then fail 06.1 "$why"; fi
		if told REGIONS; then fail 06.1 "permit() failed: set side->mr, which main() releases"; fi
	done
	beside=("${args[@]}" 10.9.0.1)
	must_heed 06.2 "ibv_post_recv() failed, and receive_nonce() did not return -1" \
		ibv_post_recv $((prepared + nth)) '*' exercise "${args[@]}" # the first ones are main()'s
	reading=whole find_lines 'got 0x[0-9a-f]{8}'
	if ((${#found[@]} >= prepared - 1 + nth)); then fail 06.2 "post_receive() failed unnoticed"; fi
	must_heed 06.2 "a receive has failed, and receive_nonce() did not return -1" \
		RECV "$n" '*' exercise "${args[@]}"
	[[ ${verdict[06.3]:-} == fail ]] || must_heed 06.2 \
		"the WRITE of an answer has failed, and receive_nonce() did not return -1" \
		WRITE "$nth" '*' exercise "${args[@]}"
	always_told=1 must_heed 06.3 "ibv_post_send() failed with ERROR, and that was not returned" \
		ibv_post_send $nth '*answering: ERROR*' exercise "${args[@]}"
	beside=(lock $((port + 3)))
	for what in '4 compare_and_swap tried ibv_post_send 1' '4 compare_and_swap tried completion 1' \
		'5 take_lock locked completion 2' "5 take_lock locked completion $((nth + 2))"; do
		read -r i what next verb n <<<"$what"
		must_heed "06.$i" "its request has failed, and $what() did not return -1" \
			"$verb" "$n" '*' exercise lock $((port + 3)) "$rounds" 10.9.0.1
		if printed "*CHECKPOINT $next"; then fail "06.$i" "it went on after a failed request"; fi
	done
	on_the_way=release_lock must_heed 06.6 "its WRITE has failed, and add_one() did not return -1" \
		WRITE $nth '*' exercise lock $((port + 3)) "$rounds" 10.9.0.1
}
