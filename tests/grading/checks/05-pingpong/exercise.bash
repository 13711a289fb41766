# Chapter 05: the grader is the peer. It knows what it has sent and received, and the kernel
# counts each message that came when no receive was posted (RNR).

points 05.1 4 'reaches RTS, connected to the peer' 'man 3 ibv_modify_qp'
points 05.2 2 'posts receives, each into its slot' 'man 3 ibv_post_recv'
points 05.3 2 'sends a slot, all of it' 'man 3 ibv_post_send'
points 05.4 5 'sends four at a time, and only with credits' 'man 3 ibv_poll_cq'
points 05.5 4 'receives, posts again, gives credits' 'man 3 ibv_poll_cq'

# until_connected PSNS SIZE: PSNS is right_psns, or : if messages have come, which change them.
until_connected() {
	local id=05.1
	if ! at connected; then
		# Receives are posted when connect_qp() has returned 0.
		if printed '@(TODO 05.2 |*ibv_post_recv)*' || told RECV; then id=05.2; fi
		fail $id
		return 1
	fi
	look_at_queues
	expect 05.2 "a message came, and its receive failed: is its SGE right?" not_failed || return
	expect 05.1 "the queue pair should be in RTS" has state RTS &&
		expect 05.1 "it should be connected to the peer's queue pair" right_peer &&
		expect 05.1 "rq_psn should be the peer's PSN, and sq_psn the one that you told it" "$1" &&
		expect 05.1 "path_mtu should be IBV_MTU_1024" right_mtu && ok 05.1 || return
	expect 05.2 "a receive should fill the slot that its wr_id names: $2 bytes" right_receives "$2"
}

check_sender() {
	local port=$1 size=$2 count=$3 complaint came wrong
	world[slots]="4 $count"
	peer sink "$port" "$size" "$count" && until_peer_listens
	start exercise "$port" "$size" "$count" 10.9.0.1 && until_connected right_psns "$size" || return
	if ! { go && until_peer 'message*'; }; then
		finish
		# What could not be posted, or failed, is post_send()'s.
		if printed '*@(TODO 05.3 n|ibv_post_send|a request)*' || cannot_post; then fail 05.3; fi
		fail 05.4
		return
	fi
	expect 05.4 "with four credits, four messages should come at once" until_peer four || return
	look_at_queues
	if ! running; then fail 05.4; return; fi
	expect 05.3 "each send should ask for a completion" all_signaled 2 &&
		expect 05.3 "wr_id should name the slot that is sent" right_sends "$size" "$count" || return
	until_end
	expect 05.3 "wr_id should name the slot that is sent" right_sends "$size" "$count" || return
	came=$(grep -cx 'message [0-9]*' "$peer_out")
	wrong=$(grep -m 1 '^message [0-9]* .' "$peer_out")
	if [[ $wrong == *'not what'* ]] && told CHANGED || [[ $wrong == *@('has the'|' too ')* ]]; then
		fail 05.4 "$wrong"
	elif [[ $wrong ]]; then
		fail 05.3 "$wrong"
		return
	elif [[ $complaint == *RNR* ]]; then
		fail 05.4 "the peer cannot send credits: no receive is posted for them" "$complaint"
	elif ((value)); then
		fail 05.4 "it sent without a credit, or posted no receive for credits" "refused: $value"
	elif told REUSED || told CHANGED || ! right_sends "$size"; then
		fail 05.4 "it used a slot before the completion of its last send was taken, or a fifth slot"
	elif ((came < count)); then
		fail 05.4 "$came of $count messages came, with credits for all of them" "$complaint$ending"
	elif told FEWER || ! told_each SENT "$count"; then
		fail 05.4 "it waited although a slot was free and it had a credit"
	elif ((status)); then
		fail 05.4
	elif [[ $unfinished != 0 ]]; then
		fail 05.4 "at CHECKPOINT done a send was not complete" "incomplete: ${unfinished:-unknown}"
	fi
	ok 05.3 && ok 05.4
}

# The program receives.
check_receiver() {
	local port=$1 size=$2 count=$3 complaint times
	unset 'world[slots]' && world[spoil]="4 $count"
	start exercise "$port" "$size" "$count"
	unset 'world[spoil]'
	peer source "$port" "$size" "$count" 10.9.0.1 && until_connected : "$size" || return
	# Four messages are there before it takes the first.
	expect 05.2 "four receives are needed, because four messages come" until_peer four &&
		ok 05.2 && go && reach 05.5 credit || return
	expect 05.5 "a receive was posted before take() had read its slot" posts_after_taking || return
	# The receive is posted before the credit is given, so a message has room now.
	if ! tell one 'one more'; then expect 05.2 "a receive failed: is its SGE right?" not_failed; fi
	go && until_end
	find_lines 'got [0-9]+ bytes .*' && times=$(grep -c '^sent ' "$peer_out")
	complaint="$times messages were sent, and ${#found[@]} taken; $complaint"
	if told EARLY; then fail 05.5 "a credit came before its receive was posted"; fi
	if told STOCKS; then fail 05.5 "more receives were posted at once than there are slots"; fi
	if [[ $complaint == *': credits'* ]]; then
		fail 05.5 "it gave more credits than it has posted receives" "$complaint"
	elif ((value)); then
		fail 05.5 "a message came, and no receive was posted" "$evidence"
	elif ((times < count)) || [[ $complaint == *@('are missing'|'no credit back') ]]; then
		fail 05.5 "a credit should come for each of the $count messages, the last ones as well" \
			"$complaint$ending"
	fi
	expect 05.5 "take() should get wc.wr_id and wc.byte_len, before the slot is posted again" \
		right_numbers 'got [0-9]+ bytes 0x[0-9a-f]{8}' && expect_status 05.5 0 && ok 05.5
}

check_exercise() {
	local port size count counts=() other few complaint id=05.3 beside
	watch_modify
	move_gid
	random port 20000 30000 && random other 8 1500 && ((other |= 1))
	random size 65537 70000 && ((size |= 1)) # more than 16 bits can say, and odd
	shuffle counts 37 41 43 47 && count=${counts[0]} # primes: a group of credits leaves a rest
	check_sender "$port" "$size" "$count"
	[[ ${verdict[05.1]:-} == pass && ${verdict[05.2]:-} != fail ]] || return
	check_receiver $((port + 1)) "$size" "$count"
	check_errors $((port + 2)) "$other" "$count"
	# Two messages are fewer than slots, and an even number. Of four no rest is left.
	for few in 2 4; do
		expect 05.5 "with COUNT $few, both sides should end with success" \
			receives_all $((port + 2 + few)) $few
	done
	beside=(source $((port + 3)) 64 2 10.9.0.1) # the first credits are the last ones, too
	must_heed 05.5 "the last credits could not be sent, and receive_all() did not return -1" \
		ibv_post_send 1 '*' exercise $((port + 3)) 64 2
	# Small messages may be inline, but only as much as there is room for; and fewer than slots.
	random size 17 20 && random count 1 3 && peer sink $((port + 5)) "$size" "$count"
	until_peer_listens && start exercise $((port + 5)) "$size" "$count" 10.9.0.1 && walk && both_end
	if peer_said '*one too many'; then fail 05.4 "it sent more than $count messages" "$evidence"; fi
	if peer_said 'message +([0-9]) *'; then fail 05.3 "$reply"; fi
	if peer_said 'message +([0-9])' "$count"; then id=05.4; fi
	expect_status $id 0 "with SIZE $size and COUNT $count"
}

# In each run one call fails. A program that ignores this can go on, because our peer does: feed().
# A send whose completion fails is never the first of those that complete together.
check_errors() {
	local beside=(source "$@" 10.9.0.1) on_the_way=feed order=() what id verb call function next
	local nth later && random nth 2 3 && random later 2 9 && shuffle order INIT RTR RTS
	for what in "${order[@]}"; do
		always_told=1 must_heed 05.1 "the step to $what failed with ERROR: that was not returned" \
			"$what" 1 '*connecting the queue pair: ERROR*' exercise "$@"
	done
	for what in "05.2 ibv_post_recv $nth post_receive connected" '05.5 RECV 1 receive_all -' \
		'05.5 SEND 1 receive_all -' "05.5 ibv_post_recv $((4 + nth)) receive_all -" \
		"05.5 ibv_post_send $nth receive_all -" "05.3 ibv_post_send $later post_send()/send_all -" \
		"05.4 SEND $nth send_all -" '05.4 RECV 1 send_all -' \
		"05.4 ibv_post_recv $((3 + nth)) send_all -"; do
		read -r id verb call function next <<<"$what"
		if [[ $id == 05.3 ]]; then beside=(sink "$@") on_the_way='' && set -- "$@" 10.9.0.1; fi
		must_heed "$id" "${verb/@(SEND|RECV)/a request} failed, and $function() did not return -1" \
			"$verb" "$call" '*' exercise "$@"
		if printed "*CHECKPOINT $next"; then fail "$id" "it went on after $verb had failed"; fi
	done
}
