# Chapter 05: the grader is the peer. What it wrote and what came back it knows itself.

points 05.1 3 exercise 'memory where the peer may write' 'man 3 ibv_reg_mr'
points 05.2 3 exercise 'tells where it is, and learns where the peer is' 'man 3 ibv_reg_mr'
points 05.3 4 exercise 'reaches RTS, with the QPN of the peer' 'man 3 ibv_modify_qp'
points 05.4 3 exercise 'takes what the peer writes' 'man 3 ibv_poll_cq'
points 05.5 4 exercise 'answers into the memory of the peer' 'man 3 ibv_post_send'
points 05.6 3 broken 'broken.c sends all its messages' 'man 3 ibv_post_send'

check_exercise() {
	local port size iters line mr='' qp='' rkey='' sent
	random port 20000 30000
	random size 1500 9000
	# More than receives are posted at the beginning: each has to be posted again.
	random iters 18 26

	peer nonce "$port" "$size" "$iters"
	until_peer_listens
	start exercise "$port" "$size" "$iters" 10.9.0.1
	if ! until_line exchanged; then
		if printed 'TODO 05.1 *' || printed '*no memory region*'; then
			fail 05.1
		else
			fail 05.2
		fi
		return
	fi
	if ! until_peer 'region *'; then
		fail 05.2 "the peer did not get an address and a region" "$(head -n 1 "$peer_out.err")"
		return
	fi
	mapfile -t lines <"$peer_out"
	for line in "${lines[@]}"; do
		[[ $line =~ ^region\ rkey\ (0x[0-9a-f]*) ]] && rkey=$((BASH_REMATCH[1]))
	done

	# While it waits: the kernel's view of its region and its queue pair.
	if ! at connected; then
		fail 05.3
		return
	fi
	kernel mr
	mr=${objects[0]:-}
	kernel qp
	qp=${objects[0]:-}
	field mrlen "$mr"
	if [[ $value != "$size" ]]; then
		fail 05.1 "the region has not $size bytes" "${mr:-no memory region}"
	fi
	field rkey "$mr"
	if ((${value:-0} == 0)); then
		fail 05.1 "no peer may write there" "${mr:-no memory region}"
		return
	elif ((value != rkey)); then
		fail 05.2 "the peer was told another rkey: $rkey" "${mr:-no memory region}"
	else
		ok 05.2
	fi
	local peer_qp
	peer_qp=$(rdma -d resource show qp | grep " pid $peer_pid ")
	field lqpn "$peer_qp"
	line=$value
	field rqpn "$qp"
	if [[ $value != "$line" || $qp != *" state RTS "* ]]; then
		fail 05.3 "not in RTS, or connected to another QPN than $line" "${qp:-no queue pair}"
		return
	fi
	if [[ ${verdict[05.2]} != pass ]]; then
		return
	fi
	go

	if ! until_peer all; then
		mapfile -t lines <"$peer_out"
		line=${lines[-1]:-}
		if ! until_peer written; then
			if [[ $line == *'remote access'* || $line == *'remote operation'* ]]; then
				fail 05.1 "the peer was refused: $line" "$mr"
			else
				fail 05.3 "the peer could not write: $line" "$qp"
			fi
		elif [[ ${line:-} == sent* || $line == written || $line == nothing* ]]; then
			ok 05.1
			ok 05.3
			finish
			if ! printed 'got 0x*'; then
				fail 05.4 "the peer has written, and you took nothing"
			elif printf '%s\n' "${lines[@]}" | grep '^got ' |
				grep -qvxFf <(peer_sent); then
				fail 05.4 "took for a message what is none of the peer's" \
					"completions of your own sends come to the same queue"
			else
				ok 05.4
				fail 05.5 "no answer came back" "the peer: $line"
			fi
		else
			ok 05.1
			ok 05.3
			if [[ $line == *'RNR retry'* ]]; then
				fail 05.4 "there is no receive for the next write" "the peer: $line"
			else
				fail 05.5 "the peer got $line"
			fi
		fi
		return
	fi
	ok 05.1
	ok 05.3
	finish
	sent=$(peer_sent)
	if [[ $(printf '%s\n' "${lines[@]}" | grep '^got ') == "$sent" ]]; then
		ok 05.4
	else
		fail 05.4 "not the immediate values that the peer has sent"
	fi
	if (($(grep -c '^answered' "$peer_out") == iters && status == 0)); then
		ok 05.5
	else
		fail 05.5 "$(grep -c '^answered' "$peer_out") of $iters answers were right" \
			"the peer: $(grep -v '^sent\|^written\|^answered\|^all' "$peer_out" | tail -n 1)"
	fi

	# The other way round: the program waits, the peer connects.
	((port++))
	random size 1 1500
	start exercise "$port" "$size" "$iters"
	peer nonce "$port" "$size" "$iters" 10.9.0.1
	at connected
	go
	until_peer all
	finish
	if ((status)) || (($(grep -c '^answered' "$peer_out") != iters)); then
		fail 05.5 "as the server: $(grep -c '^answered' "$peer_out") of $iters answers"
	fi
}

# It goes on as long as messages do; before the first one it may take its time.
sends_made() {
	counter rdma_sends
	made=$value
	((value > before)) || quiet=0
	halt="it sent no more, and was busy"
}

check_broken() {
	local count before
	random count 20 60
	counter rdma_sends
	before=$value
	progress=sends_made
	start broken "$count"
	finish
	counter rdma_sends
	if ! printed "received $count messages" || ((status)); then
		fail 05.6
	elif ((value - before < count)); then
		fail 05.6 "$((value - before)) of $count messages were sent" "rdma_sends +$((value - before))"
	else
		ok 05.6
	fi
}

# make try-05 [ARGS="SIZE ITERS"]
try_exercise() {
	local size=${1:-3000} iters=${2:-3}
	looks=(mr qp)
	peer nonce "$port" "$size" "$iters"
	program "$port" "$size" "$iters" 127.0.0.1
}

# make try-05 PROGRAM=broken [ARGS=COUNT]
try_broken() { program "${1:-10}"; }
