# Chapter 06: the grader is the peer. It knows what it wrote and what came back, and it has
# a lock and a counter, on which it permits nothing but atomics, and READ and WRITE.

points 06.1 4 exercise 'permits the peer to write, in both places' 'man 3 ibv_reg_mr'
points 06.2 3 exercise 'takes what the peer writes' 'man 3 ibv_poll_cq'
points 06.3 3 exercise 'answers into the memory of the peer' 'man 3 ibv_post_send'
points 06.4 2 exercise 'compares and swaps, and finds the old value' 'man 3 ibv_post_send'
points 06.5 3 exercise 'takes the lock, and not from others' 'man 3 ibv_post_send'
points 06.6 2 exercise 'adds to the counter, and nothing is lost' 'man 3 ibv_post_send'
points 06.7 3 broken 'broken.c writes all of the text' 'man 3 ibv_post_send'

# The last line of the peer's that is no part of every run.
peer_complains() {
	complaint=$(grep -v '^sent\|^written\|^answered\|^all$\|^looked' "$peer_out" | tail -n 1)
}

check_write() {
	local port=$1 size=$2 iters=$3 mr complaint line
	start exercise write "$port" "$size" "$iters" "${@:4}"
	(($# > 3)) || peer write "$port" "$size" "$iters" 10.9.0.1
	if ! at connected; then
		fail 06.1
		return 1
	fi
	kernel mr
	mr=${objects[0]:-}
	field mrlen "$mr"
	if [[ $value != "$size" ]]; then
		fail 06.1 "the region has not $size bytes" "${mr:-no memory region}"
	fi
	field rkey "$mr"
	if ((${value:-0} == 0)); then
		fail 06.1 "no peer may write there" "${mr:-no memory region}"
		return 1
	fi
	go

	until_peer all && finish
	peer_complains
	if ! grep -q '^written' "$peer_out"; then
		fail 06.1 "the peer could not write: $complaint" "$mr"
		return 1
	fi
	ok 06.1
	[[ $status ]] || finish
	find_lines 'got 0x[0-9a-f]{8}'
	if ((!${#found[@]})); then
		fail 06.2 "the peer has written, and you took nothing"
		return 1
	fi
	# Who prints each number once more meanwhile has done nothing wrong.
	line=$(printf '%s\n' "${found[@]}" | uniq)
	if grep -qvxFf <(peer_sent) <<<"$line"; then
		fail 06.2 "took for an immediate value what is none of the peer's" \
			"completions of your own writes come to the same queue"
		return 1
	elif [[ $complaint == *'RNR retry'* ]]; then
		fail 06.2 "there is no receive for the next write" "the peer: $complaint"
		return 1
	fi
	ok 06.2
	if (($(grep -c '^answered' "$peer_out") != iters || status)); then
		fail 06.3 "$(grep -c '^answered' "$peer_out") of $iters answers were right" \
			"the peer: $complaint"
		return 1
	fi
	[[ $line == "$(peer_sent)" ]] || fail 06.2 "not the immediate values that the peer has sent"
}

# Waits until the program has tried a dozen times more to take the lock, each time with two
# packets, or goes on without it.
until_tried() {
	local before=$1
	wait_begins
	until late; do
		counter rcvd_pkts
		((value < before + 24)) || return 0
		running && ! at_another || return 1
		nap
	done
	return 1
}

# Tells the peer $1, and waits for its line $2.
tell() {
	echo "$1" >&"$peer_input"
	until_peer "$2"
}

# Sets `word` and `sum` to the peer's lock and counter.
see_lock() {
	local line
	: >"$peer_out"
	tell look looked
	read -r _ word _ sum <"$peer_out"
	word=$((${word%,})) sum=$((sum))
}

check_lock() {
	local port=$1 rounds=$2 others=$3 number='' held word sum before complaint
	peer lock "$port"
	until_peer_listens
	start exercise lock "$port" "$rounds" 10.9.0.1
	if ! at tried; then
		fail 06.4
		return
	fi
	kernel qp
	field lqpn "${objects[0]:-}"
	number=$value
	until_peer 'held *'
	held=$(sed -n 's/^held //p' "$peer_out")
	see_lock
	find_lines 'found 0x[0-9a-f]{16}'
	if [[ ${found[*]} != "found $held" ]]; then
		fail 06.4 "found another value than that of the lock" "the lock was $held"
	elif ((word != held)); then
		fail 06.4 "replaced a value that was not 0" "the lock is $word"
	fi
	[[ ! ${verdict[06.4]:-} ]] || return

	counter rcvd_pkts
	before=$value
	go
	if ! until_tried "$before"; then
		if at locked; then
			ok 06.4
			fail 06.5 "went on although another client held the lock"
		else
			fail 06.5
		fi
		return
	fi
	if ! tell release released; then
		ok 06.4
		fail 06.5 "the peer held the lock: $(tail -n 1 "$peer_out")"
		return
	fi
	if ! at locked; then
		see_lock
		if ((word != number)); then
			fail 06.4 "the lock was released, and did not become $number" "the lock is $word"
		else
			ok 06.4
			fail 06.5
		fi
		return
	fi
	see_lock
	if ((word != number)); then
		fail 06.4 "the lock did not become $number" "the lock is $word"
		return
	fi
	ok 06.4
	ok 06.5
	go

	if ! at added; then
		fail 06.6
		return
	fi
	see_lock
	if ((word != number || sum != 1)); then
		fail 06.6 "the number of 8 bytes has become $sum more, not 1" "the lock is $word"
		return
	fi
	# Both want the lock now, again and again.
	echo "contend $others" >&"$peer_input"
	echo end >&"$peer_input"
	go
	until_peer 'sum *'
	finish
	peer_complains
	if [[ $complaint != sum* ]]; then
		fail 06.5 "the peer wanted the lock, too: ${complaint:-it got no answer}"
	elif ((status)) && printed '*the lock was 0x*, not ours'; then
		fail 06.5 "did not hold the lock in each round"
	elif ((status)); then
		fail 06.6
	elif [[ $complaint != "sum $((rounds + others))" ]]; then
		fail 06.6 "$rounds and $others were added, and the counter says ${complaint#sum }"
	else
		ok 06.6
	fi
}

check_exercise() {
	local port size iters rounds others
	random port 20000 30000
	random size 1500 9000
	# More than receives are posted at the beginning: each has to be posted again.
	random iters 18 26
	random rounds 20 40
	random others 10 20
	peer write "$port" "$size" "$iters"
	until_peer_listens
	# Then the other way round: the program waits, the peer connects.
	if check_write "$port" "$size" "$iters" 10.9.0.1 && random size 1 1500 &&
		check_write $((port + 1)) "$size" "$iters"; then
		ok 06.3
	fi
	[[ ${verdict[06.1]:-} != pass ]] || check_lock $((port + 2)) "$rounds" "$others"
}

check_broken() {
	local pieces before
	random pieces 3 9
	counter sent_pkts
	before=$value
	# The last piece has a byte less than the others.
	start broken $((pieces * 1000 - 1))
	if ! at registered; then
		fail 06.7
		return
	fi
	kernel mr
	if ! printf '%s\n' "${objects[@]}" | grep -q " mrlen $((pieces * 1000 - 1)) "; then
		fail 06.7 "the region has not $((pieces * 1000 - 1)) bytes any more" "${objects[*]}"
		return
	fi
	finish
	counter sent_pkts
	find_lines "arrived: $((pieces * 1000 - 1)) bytes"
	if ((!${#found[@]} || status)); then
		fail 06.7
	elif ((value - before < 2 * pieces)); then
		# Each piece is a packet, and so is each answer.
		fail 06.7 "not all of it was written by RDMA" "sent_pkts +$((value - before))"
	else
		ok 06.7
	fi
}

# make try-06 [ARGS="write SIZE ITERS"], or ARGS="lock ROUNDS"
try_exercise() {
	looks=(mr qp)
	if [[ ${1:-} == lock ]]; then
		peer lock "$port"
		program lock "$port" "${2:-3}" 127.0.0.1
	else
		peer write "$port" "${2:-3000}" "${3:-3}"
		program write "$port" "${2:-3000}" "${3:-3}" 127.0.0.1
	fi
}

# The peer holds the lock at first, and later wants it, too.
try_checkpoint() {
	case $1 in
	tried) tell_peer release && hold=released ;;
	locked) tell_peer look && hold=looked ;;
	added) tell_peer look && hold=looked && tell_peer 'contend 3' && tell_peer end ;;
	esac
}

# make try-06 PROGRAM=broken [ARGS=SIZE]
try_broken() { program "${1:-2999}"; }
