# Chapter 05: the grader is the peer. It knows what it has sent and received, and the kernel
# counts each message that came when no receive was posted (RNR).

points 05.1 4 exercise 'reaches RTS, connected to the peer' 'man 3 ibv_modify_qp'
points 05.2 2 exercise 'posts receives, each into its slot' 'man 3 ibv_post_recv'
points 05.3 2 exercise 'sends a slot, all of it' 'man 3 ibv_post_send'
points 05.4 5 exercise 'sends four at a time, and only with credits' 'man 3 ibv_poll_cq'
points 05.5 4 exercise 'receives, posts again, gives credits' 'man 3 ibv_poll_cq'
points 05.6 3 broken 'broken.c sends all its messages' 'man 3 ibv_post_send'

# Waits for CHECKPOINT connected, at which the kernel has both queue pairs. Messages that
# have come change the PSNs, so these are looked at only before, for the sender.
until_connected() {
	local ours='' theirs name witness
	if ! at connected; then
		if printed 'TODO 05.2 *' || printed '*ibv_post_recv*'; then fail 05.2; else fail 05.1; fi
		return 1
	fi
	kernel qp
	ours=${objects[0]:-no queue pair}
	theirs=$(rdma -d resource show qp | grep " pid $peer_pid ")
	field lqpn "$theirs"
	# The peer may have sent something already.
	if [[ $ours == *" state ERR "* ]]; then
		fail 05.2 "a message came, and its receive failed: is it as long as the slot, and in it?" "$ours"
		return 1
	fi
	if [[ $ours != *" state RTS "* || " $ours " != *" rqpn $value "* ]]; then
		fail 05.1 "not in RTS, or connected to another QPN than $value" "$ours"
		return 1
	fi
	for name in "$@"; do
		field "${name#*:}" "$theirs"
		if [[ " $ours " != *" ${name%:*} $value "* ]]; then
			fail 05.1 "your ${name%:*} is not the peer's ${name#*:}, $value" "$ours"
			return 1
		fi
	done
	if ! right_mtu; then
		fail 05.1 "the path MTU is to be 1024" "$witness"
		return 1
	fi
	ok 05.1
}

# The end of the peer and of the program. Sets `complaint` to what the peer said at last,
# `times` to how many of its lines are like $1, and `rnr` to how many messages met a queue
# pair without a receive, since their counter was `before`.
both_end() {
	wait_begins
	while [[ -e /proc/$peer_pid ]] && ! late; do nap; done
	[[ $status ]] || finish
	complaint=$(tail -n 1 "$peer_out")
	times=$(grep -cx "$1" "$peer_out")
	counter send_rnr_err
	rnr=$((value - before))
}

# The program sends.
check_sender() {
	local port=$1 size=$2 count=$3 before complaint times rnr wrong
	peer sink "$port" "$size" "$count"
	until_peer_listens
	counter send_rnr_err
	before=$value
	start exercise "$port" "$size" "$count" 10.9.0.1
	until_connected rq-psn:sq-psn sq-psn:rq-psn || return
	go
	if ! until_peer 'message*'; then
		# What could not be posted, or failed, is post_send()'s.
		[[ $status ]] || finish
		if printed 'TODO 05.3 *' || printed '*ibv_post_send*' || printed '*a request*'; then
			fail 05.3
		else
			fail 05.4
		fi
		return
	fi
	if ! until_peer four; then
		times=$(grep -c '^message' "$peer_out")
		fail 05.4 "$times of four messages came, and there are credits for four"
		return
	fi
	both_end 'message [0-9]*'
	wrong=$(grep -m 1 '^message [0-9]* .' "$peer_out")
	if [[ $wrong == 'message 0 has the bytes of'* ]]; then
		fail 05.4 "$wrong"
	elif [[ $wrong ]]; then
		fail 05.3 "$wrong"
	elif [[ $complaint == *RNR* ]]; then
		fail 05.4 "the peer cannot send credits: you have no receive posted" "the peer: $complaint"
	elif ((rnr)); then
		fail 05.4 "you sent without a credit: the peer had no receive" "send_rnr_err +$rnr"
	elif ((times < count)); then
		fail 05.4 "$times of $count messages came, and there were credits, and slots for those who ask for completions" \
			"the peer: $complaint"
	elif ((status)); then
		fail 05.4
	fi
	ok 05.3
	ok 05.4
}

# The program receives.
check_receiver() {
	local port=$1 size=$2 count=$3 before complaint times rnr got
	counter send_rnr_err
	before=$value
	start exercise "$port" "$size" "$count"
	peer source "$port" "$size" "$count" 10.9.0.1
	until_connected || return
	# Four messages are there before it takes the first.
	if ! until_peer four; then
		fail 05.2 "the peer could not send four messages: $(tail -n 1 "$peer_out")"
		return
	fi
	go
	if ! at credit; then
		fail 05.5
		return
	fi
	find_lines 'got .*'
	if ((!${#found[@]})); then
		fail 05.5 "gives a slot back to the device before take() has read it"
		return
	fi
	# The receive must be posted before the credit is given: so a message has room now.
	echo one >&"$peer_input"
	if ! until_peer 'one more'; then
		fail 05.5 "gives a credit for a receive that is not posted yet" \
			"the peer: $(tail -n 1 "$peer_out")"
		return
	fi
	go
	both_end 'sent .*'
	find_lines 'got [0-9]+ bytes 0x[0-9a-f]{8}'
	got=$(printf '%s\n' "${found[@]#got }")
	if [[ $complaint == credits* ]]; then
		fail 05.5 "too many credits" "the peer: $complaint"
	elif ((rnr)); then
		fail 05.5 "a message came, and no receive was posted" "send_rnr_err +$rnr"
	elif ((times < count || status)); then
		fail 05.5 "the peer could send $times of $count messages" "the peer: $complaint"
	elif [[ "$(printf '%s\n' "${found[@]##* }")" != "$(sed -n 's/^sent .* //p' "$peer_out")" ]]; then
		fail 05.2 "not the messages that the peer has sent: is each in its own slot, and is that given to take()?"
	elif [[ $got != "$(sed -n 's/^sent //p' "$peer_out")" ]]; then
		fail 05.5 "not the lengths of the messages that the peer has sent"
	fi
	ok 05.2
	ok 05.5
}

check_exercise() {
	local port size count other
	random port 20000 30000
	random size 1500 9000
	random other 8 1500
	# So many that each receive has to be posted again, also those for credits.
	random count 26 40
	watch_modify
	move_gid
	check_sender "$port" "$size" "$count"
	[[ ${verdict[05.1]:-} != pass || ${verdict[05.2]:-} == fail ]] ||
		check_receiver $((port + 1)) "$other" "$count"
}

# It goes on as long as messages do; before the first one it may take its time.
sends_made() {
	counter rdma_sends
	made=$value
	((value > before)) || quiet=0
	halt="it sent no more, and was busy"
}

check_broken() {
	local count before rnr
	random count 20 60
	counter send_rnr_err
	rnr=$value
	counter rdma_sends
	before=$value
	progress=sends_made
	start broken "$count"
	finish
	counter rdma_sends
	find_lines "received $count messages"
	if ((!${#found[@]} || status)); then
		fail 05.6
	elif ((value - before < count)); then
		fail 05.6 "$((value - before)) of $count messages were sent" "rdma_sends +$((value - before))"
	elif counter send_rnr_err && ((value > rnr)); then
		fail 05.6 "messages came when no receive was posted" "send_rnr_err +$((value - rnr))"
	else
		ok 05.6
	fi
}

# make try-05 [ARGS="send SIZE COUNT"], or ARGS="receive SIZE COUNT"
try_exercise() {
	local role=${1:-send} size=${2:-3000} count=${3:-10}
	looks=(qp)
	if [[ $role == receive ]]; then
		program "$port" "$size" "$count"
		peer source "$port" "$size" "$count" 127.0.0.1
	else
		peer sink "$port" "$size" "$count"
		program "$port" "$size" "$count" 127.0.0.1
	fi
}

# The receive is posted again by now, so there is room for one message more.
try_checkpoint() { [[ $1 != credit ]] || { tell_peer one && hold='one more'; }; }

# make try-05 PROGRAM=broken [ARGS=COUNT]
try_broken() { program "${1:-10}"; }
