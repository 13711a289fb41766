# Chapter 07: the grader is client and server. What it said and what it was told it knows.

points 07.1 3 exercise 'the request says hello' 'man 3 rdma_connect'
points 07.2 4 exercise 'reads a hello, and what is none' 'man 3 rdma_get_cm_event'
points 07.3 4 exercise 'refuses a client, and tells its version' 'man 3 rdma_reject'
points 07.4 3 exercise 'says why it was refused' 'man 3 rdma_get_cm_event'
points 07.5 3 exercise 'accepts its own version' 'man 3 rdma_accept'
points 07.6 3 broken 'broken.c asks as often as it should' 'man 3 rdma_ack_cm_event'

# The peer beside the others' that speaks the RDMA CM.
# shellcheck disable=SC2034 # for peer()
peer_program=cm_peer

# Waits until the peer has printed a line that begins with one of the words $1, which are
# separated by |, and sets `said` to it.
peer_says() {
	said=''
	until_peer "@($1)*" || return 1
	said=$(grep -m 1 -E "^($1)" "$peer_out")
}

# The peer is a server that does $1: accept, refuse, or that without a word (silent). Sets `said` to what our request
# said to it, and `told` to what it answered.
ask() {
	((++port))
	peer server "$port" "$1"
	if ! until_peer listening; then
		echo "the peer does not listen: $(<"$peer_out.err")" >&2
		exit "$own_fault"
	fi
	start exercise "$port" "$version" 10.9.0.1
	peer_says 'asked|nothing' || :
	until_peer 'told *' || :
	told=$(sed -n 's/^told //p' "$peer_out")
}

# The peer is a client of version $1 and kind $2. Sets `said` to what it got.
be_asked() {
	peer client "$port" "$1" "$2" 10.9.0.1
	peer_says 'accepted|rejected|nothing|RDMA' || :
}

# Does the program print line $1, a regular expression?
prints() {
	find_lines "$1"
	((${#found[@]}))
}

# Does the kernel have a queue pair of the program's in RTS?
in_rts() {
	kernel qp
	[[ ${objects[0]:-} == *" state RTS "* ]]
}

check_exercise() {
	local port version said told
	random port 20000 30000
	# None of its four bytes is zero in each world.
	random version 0x2010101 0x3ffffff0

	# A client that is accepted.
	ask accept
	if [[ $said == "asked hello $version" ]]; then
		ok 07.1
	else
		[[ $said != asked* ]] || fail 07.1 "not a hello of version $version: $said"
		fail 07.1
		return
	fi
	if at connected && in_rts && prints "accepted: ${told%%,*}"; then
		go
		finish
	else
		fail 07.2 "the server has accepted with ${told%%,*}, and you print something else" \
			"$(grep -m 1 -E '^(accepted|.*hello)' "$out")"
		return
	fi

	# One that is refused.
	ask refuse
	finish
	if prints "refused: $told.+"; then
		fail 07.2 "the text of the server had no zero at its end, and so has yours" "printed: ${found[0]}"
	elif ! prints "refused: $told"; then
		fail 07.4 "the server has refused with $told, and you print something else" \
			"$(grep -m 1 '^refused' "$out")"
	elif ((status != 1)); then
		fail 07.4
	fi
	serve
	# Who refuses without a word, and where nobody listens. After the server, because there
	# 07.2 sees for itself whether anything is taken for a hello.
	ask silent
	finish
	prints "refused: reason 28" ||
		fail 07.4 "refused without a hello, and you do not print \"refused: reason 28\"" \
			"$(grep -m 1 '^refused' "$out")"
	((++port))
	run exercise "$port" "$version" 10.9.0.1
	if prints 'refused: reason 8'; then
		ok 07.4
	else
		fail 07.4 "nobody listens there, and you do not print \"refused: reason 8\"" \
			"$(grep -m 1 '^refused' "$out")"
	fi
}

# A server, clients that it must not accept, and one that it must.
serve() {
	local other
	((++port))
	start exercise "$port" "$version"
	if ! until_line listening; then
		fail 07.3
		return
	fi
	for other in $((version + 1)) $((version - 1)) $((version ^ 0x1000000)); do
		be_asked "$other" hello
		if [[ $said == accepted* ]]; then
			fail 07.5 "a client with version $other was accepted by a server of version $version"
			return
		elif [[ $said != "rejected 28 hello $version" ]]; then
			fail 07.3 "a client with version $other, at a server of $version, got: ${said:-no answer}"
			return
		fi
	done
	ok 07.3
	for other in magic none; do
		be_asked "$version" "$other"
		if [[ $said != rejected* ]]; then
			fail 07.2 "a client that has said no hello ($other) got: ${said:-no answer}"
			return
		fi
	done
	ok 07.2
	be_asked "$version" hello
	if [[ $said == "accepted hello $version" ]] && at connected && in_rts; then
		go
		finish
		if ((status == 0)); then ok 07.5; else fail 07.5; fi
	else
		fail 07.5 "a client with version $version, at a server of $version, got: ${said:-no answer}"
	fi
}

# It goes on as long as it wakes now and then. rdma_destroy_id() waits for somebody to
# acknowledge an event, and nobody does.
wakes() {
	look_at_threads
	made=$wakings
	[[ $where != *running* ]] || quiet=0
	halt="it slept, and nothing was to come"
}

check_broken() {
	# Longer than rdma_resolve_addr() may take.
	local count name patience=6000
	random count 3 9
	progress=wakes
	probe destroy ucma_destroy_id
	start broken 10.9.0.1 "$count"
	finish
	calls_of destroy
	# shellcheck disable=SC2154 # the runner's
	name="device $device"
	find_lines "$name"
	if ((${#found[@]} == count && status == 0 && ${#calls[@]} < count)); then
		fail 07.6 "not all identifiers were destroyed" "ucma_destroy_id() was called ${#calls[@]} times"
	elif ((${#found[@]} == count && status == 0)); then
		# This address is ours, and leads to no RDMA device. (127.0.0.1 would lead to the
		# first one.) That answer is to be acknowledged, too.
		printf '%s\n' 'link add w0 type dummy' 'link set w0 up' 'address add 10.5.5.1/24 dev w0' |
			ip -batch -
		run broken 10.5.5.1 2
		if [[ $timed_out ]]; then
			fail 07.6
		fi
		ok 07.6
	elif [[ $timed_out ]]; then
		fail 07.6
	else
		fail 07.6 "${#found[@]} of $count times it printed $name"
	fi
}

# Waits until somebody listens, but not long, and only while the process $1 is there.
until_somebody_listens() {
	local i
	for ((i = 0; i < 50; i++)); do
		[[ -e /proc/$1 ]] || return
		[[ $(PATH=$PATH:/usr/sbin:/sbin rdma resource show cm_id) != *LISTEN* ]] || return
		sleep 0.2
	done
} 2>/dev/null

# make try-07 [ARGS="VERSION KIND"]: a server of version 3; its peer is a client of VERSION that
# says KIND, which is hello, magic or none. After one that it must refuse comes a right one.
# make try-07 ARGS=accept, ARGS=refuse, or ARGS=nobody: a client, and what its server does.
try_exercise() {
	local version=${1:-3} kind=${2:-hello} i
	case $version in
	accept | refuse)
		peer server "$port" "$version"
		until_somebody_listens "$peer_pid"
		program "$port" 3 10.9.0.1
		;;
	nobody) program "$port" 3 10.9.0.1 ;;
	*)
		program "$port" 3
		until_somebody_listens "$pid"
		peer client "$port" "$version" "$kind" 10.9.0.1
		[[ "$version $kind" != '3 hello' ]] || return 0
		for ((i = 0; i < 50; i++)); do
			[[ -e /proc/$peer_pid ]] || break
			sleep 0.2
		done
		kill -KILL -- "-$peer_pid" 2>/dev/null
		peer client "$port" 3 hello 10.9.0.1
		;;
	esac
}

# make try-07 PROGRAM=broken [ARGS="ADDRESS COUNT"]
try_broken() { program "${1:-10.9.0.1}" "${2:-3}"; }
