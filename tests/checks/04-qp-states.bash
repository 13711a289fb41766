# Chapter 04: two queue pairs, whose states and numbers the kernel knows.

points 04.1 2 exercise 'RESET -> INIT' 'man 3 ibv_modify_qp'
points 04.2 5 exercise 'INIT -> RTR, expecting what the peer sends' 'man 3 ibv_modify_qp'
points 04.3 3 exercise 'RTR -> RTS, with the PSN asked for' 'man 3 ibv_modify_qp'
points 04.4 2 exercise 'reads the state back' 'man 3 ibv_query_qp'
points 04.5 4 exercise 'ERR -> RTS' 'man 3 ibv_modify_qp'
points 04.6 4 broken 'broken.c delivers its message' 'man 3 ibv_modify_qp'

# qp NAME FIELD VALUE...: has the queue pair that the program calls NAME these in the
# kernel? Else sets `wrong`.
qp() {
	local name=$1 number object
	wrong=''
	qpn_of "$name"
	number=$value
	shift
	for object in "${objects[@]}"; do
		field lqpn "$object"
		[[ $value == "$number" ]] || continue
		while (($#)); do
			field "$1" "$object"
			[[ $value == "$2" ]] ||
				{ wrong="$name: $1 ${value:-unknown}, not $2" && return 1; }
			shift 2
		done
		return 0
	done
	wrong="$name: the kernel has no such queue pair"
	return 1
}

# Waits for CHECKPOINT $2, or fails $1.
reach() {
	if ! at "$2"; then
		fail "$1"
		return 1
	fi
	kernel qp
}

# Sets `value` to what the program says is the number of queue pair $1.
qpn_of() {
	local line
	value=''
	for line in "${lines[@]}"; do
		[[ ! $line =~ ^$1:\ QPN\ (0x[0-9a-f]{1,6})$ ]] || value=$((BASH_REMATCH[1]))
	done
}

check_exercise() {
	local psn=() i victim other a='' b='' wrong object
	for i in 0 1 2; do
		random "psn[$i]" 65536 16777215
	done
	random i 0 1
	victim=A other=B
	((i)) || victim=B other=A
	start exercise "${psn[@]}" "$victim"

	reach 04.1 init || return
	if qp A state INIT && qp B state INIT; then
		ok 04.1
	else
		fail 04.1 "at CHECKPOINT init" "$wrong"
	fi
	printed 'RESET -> RTR: EINVAL' || fail 04.2 "to_rtr() in RESET has to return the EINVAL of ibv_modify_qp()"
	go

	reach 04.2 rtr || return
	qpn_of A && a=$value
	qpn_of B && b=$value
	if qp A state RTR rqpn "$b" rq-psn "${psn[1]}" && qp B state RTR rqpn "$a" rq-psn "${psn[0]}"; then
		ok 04.2
	else
		fail 04.2 "at CHECKPOINT rtr" "$wrong"
	fi
	go

	reach 04.3 rts || return
	if qp A state RTS sq-psn "${psn[0]}" && qp B state RTS sq-psn "${psn[1]}"; then
		ok 04.3
	else
		fail 04.3 "at CHECKPOINT rts" "$wrong"
	fi
	local -A had=([A]='unknown' [B]='unknown')
	for i in A B; do
		qpn_of "$i"
		for object in "${objects[@]}"; do
			[[ " $object " == *" lqpn $value "* ]] || continue
			field sq-psn "$object" && a=$value
			field rq-psn "$object" && b=$value
			printf -v "had[$i]" 'sq_psn 0x%06x, rq_psn 0x%06x' "$a" "$b"
			break
		done
	done
	go

	reach 04.4 error || return
	qp "$victim" state ERR || fail 04.5 "at CHECKPOINT error" "$wrong"
	# Compared with what the kernel had at CHECKPOINT rts.
	if printed "A: state 3, ${had[A]}" && printed "B: state 3, ${had[B]}"; then
		ok 04.4
	else
		fail 04.4 "not printed: A: state 3, ${had[A]}"
	fi
	go

	reach 04.5 recovered || return
	if qp "$victim" state RTS sq-psn "${psn[2]}" && qp "$other" state RTS; then
		go
		finish
		if ((status == 0)); then ok 04.5; else fail 04.5; fi
	else
		fail 04.5 "at CHECKPOINT recovered" "$wrong"
	fi
}

check_broken() {
	local psn=() i
	for i in 0 1; do
		random "psn[$i]" 65536 16777215
	done
	counter rdma_sends
	i=$value
	start broken "${psn[@]}"
	finish
	counter rdma_sends
	if ! printed 'received' || ((status)); then
		fail 04.6
	elif ((value - i < 1)); then
		fail 04.6 "nothing was sent" "rdma_sends +$((value - i))"
	else
		ok 04.6
	fi
}

# make try-04 [ARGS="PSN_A PSN_B PSN_C VICTIM"]
try_exercise() {
	looks=(qp)
	(($#)) || set -- 0x111111 0x222222 0x333333 B
	program "$@"
}

# make try-04 PROGRAM=broken [ARGS="PSN_A PSN_B"]
try_broken() {
	looks=(qp)
	(($#)) || set -- 0x111111 0x222222
	program "$@"
}
