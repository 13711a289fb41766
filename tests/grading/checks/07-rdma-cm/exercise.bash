# Chapter 07: the grader is client and server. So it knows what each side has sent and received.

points 07.1 3 'the request says hello' 'man 3 rdma_connect'
points 07.2 4 'reads a hello, and rejects other data' 'man 3 rdma_get_cm_event'
points 07.3 4 'refuses a client, and tells its version' 'man 3 rdma_reject'
points 07.4 3 'says why it was refused' 'man 3 rdma_get_cm_event'
points 07.5 3 'accepts its own version' 'man 3 rdma_accept'

# shellcheck disable=SC2034 # for peer(): the one that speaks the RDMA CM
peer_program=cm_peer

check_exercise() {
	local port version said answer kind magics few_magics reason asked=0
	local refusal='refused: (version|reason) [0-9]+.*' texts=()
	watch_refusals
	random port 20000 30000 && shuffle texts given hello # of welcome clients, and of others
	random version 0x02010101 0x7ffffff0 # and no byte is zero
	((version |= !(version & 0xff) | !(version & 0xff00) << 8 | !(version & 0xff0000) << 16))
	draw_magics
	ask_one_who_accepts || return
	((version |= 1 << 31)) # for a signed number it is negative
	ask_one_who_refuses refuse
	# The first client of this server is welcome, that of serve() is not: so a server that only
	# counts its clients is wrong in one of them.
	if expect 07.5 'the server does not listen' serves && accepts "${texts[0]}"; then serve; fi
	unset 'world[private-data]'
	# After serve(), which shows whether read_hello() accepts what is no hello.
	for kind in empty short; do ask_one_who_refuses "$kind"; done
	for kind in "${few_magics[@]}" silent; do
		ask "$kind"
		finish
		expect 07.4 "the server refused without a hello: it should print refused: reason 28" \
			prints_only 'refused: reason 28' "$refusal" 'refused.*'
	done
	random reason 9 27
	world[reason]=$reason
	run exercise $((++port)) "$version" 10.9.0.1
	expect 07.4 "nobody listens there: it should print refused: reason $reason" \
		prints_only "refused: reason $reason" "$refusal" 'refused.*' && ok 07.4
	[[ ${verdict[07.5]:-} == fail ]] || check_error
}

ask_one_who_accepts() {
	local text='?( with*)' retries='*' # those of a main() that is written anew
	ask accept
	if has_given_hello; then
		text=' with its text' retries=6
	fi
	expect 07.1 "the request should carry a hello of version $version, with the given text" \
		said_is "asked hello $version$text" &&
		expect 07.1 "retry_count should not change" peer_said "retries $retries" || return
	expect 07.1 "private_data_len should be the size of a struct hello" asked_with_hello && ok 07.1
	expect 07.2 "the server accepted, and the client is not connected" is_connected &&
		expect 07.2 "the server accepted with ${answer%%,*}: it should print that" \
			prints "accepted: ${answer%%,*}" 'accepted.*' && go && finish && expect_status 07.2 0
}

ask_one_who_refuses() {
	ask "$1"
	finish
	if prints "refused: $answer.+" '' && [[ $found != *released:* ]]; then
		fail 07.2 "the server's text had no zero at its end, and more is printed" "$found"
	elif [[ $1 == refuse ]] && wants_a_zero; then
		fail 07.2 "the server's text had no zero: read_hello() should add one" "it printed a reason"
	fi
	expect 07.4 "the server refused with \"$answer\": it should print that" \
		prints_only "refused: $answer" "$refusal" 'refused.*'
	if ((status != 1)); then
		fail 07.4
	fi
}

# refuses VERSION: does the program, a server, refuse a client with VERSION?
refuses() {
	be_asked "$1" "${texts[asked++ % 2]}"
	expect 07.5 "a server of $version accepted version $1" test "${said%% *}" != accepted &&
		goes_on 07.3 &&
		expect 07.3 "a server of $version should refuse version $1, and tell its own" \
			said_is "rejected 28 hello $version?( with*)" # a refusal may have any text
}

# accepts TEXT: does the program, a server, accept a client of its own version, and end?
accepts() {
	be_asked "$version" "$1"
	expect 07.5 "a server should accept its version" said_is "accepted hello $version*" || return
	expect 07.1 "say_hello() should not change the text" said_is '* without a text'
	expect 07.1 "private_data_len should be the size of a struct hello" asked_with_hello
	expect 07.5 "the client is connected, and the server is not" is_connected &&
		go && finish && expect_status 07.5 0
}

# A server, a random number of clients that it must refuse, and one that it must accept.
serve() {
	local other n kinds=() last=() others=($((version + 1)) $((version - 1)))
	# The last one changes both halves by the same bits, so their exclusive or is the same.
	for other in 2 0x100 0x10000 0x1000000 0x10001; do
		random n 1 127
		others+=($((version ^ n * other)))
	done
	random n 1 0x7fffffff && others+=(0 "$n")
	# Of each request: see world.c. All others are as long as a hello, so their size tells nothing.
	local -A sizes=([shorter]=8 [short]=31 [missing]=0)
	random "sizes[shortest]" 1 7 && random "sizes[short-]" 9 30
	shuffle kinds "${magics[@]}" none short{,-,er,est} missing
	random n 0 3
	kinds+=("${kinds[@]:0:n}")
	shuffle last "${others[@]:1}" && random n 1 3
	last=("${others[0]}" "${last[@]:0:n}")
	# The order is random, so that the place of a client does not show its kind.
	random n 1 12
	kinds=("${kinds[@]:0:n}" "${last[@]}" "${kinds[@]:n}")
	for other in "${others[@]}" "${kinds[@]}" "${last[@]}" hello; do
		world[private-data]+=" ${sizes[$other]:-32}"
	done
	if ! serves; then fail 07.3; return; fi
	for other in "${others[@]}"; do refuses "$other" || return; done
	expect 07.3 "a refusal should carry a struct hello, and each of its bytes should be set" \
		refused_with_hello && ok 07.3
	for other in "${kinds[@]}"; do
		if [[ $other == [0-9]* ]]; then
			refuses "$other" || return
			continue
		fi
		be_asked "$version" "$other"
		if [[ "$other $said" == @(magic|short)*' accepted'* ]] &&
			sees_no_hello "$other" "${sizes[$other]:-32}"; then
			fail 07.5 "is_welcome() should return 0 if read_hello() fails" "the peer got: $said"
			return
		fi
		expect 07.2 "not a hello, so refuse it; bytes: ${sizes[$other]:-32, with a wrong magic}" \
			said_is 'rejected*' && goes_on 07.2 || return
	done
	ok 07.2
	for other in "${last[@]}"; do refuses "$other" || return; done
	accepts "${texts[1]}" && ok 07.5
}

# rdma_reject() fails. A hello that was never written looks like one of these versions, so a program
# that compares it all the same accepts this client: see all_written().
check_error() {
	local deadline=5 version
	for version in 0 $((0xfefefefe)) $((0xa5a5a5a5)); do
		world[private-data]=0 && fails rdma_reject 1 5
		serves && peer client "$port" 1 missing 10.9.0.1
		if at connected; then fail 07.5 "it accepted a client that sent no hello"; fi
		finish; if [[ $timed_out ]]; then break; fi
	done
	[[ ${verdict[07.5]:-} == fail ]] || { meets_error 07.3 &&
		expect 07.3 "rdma_reject() failed, and refuse() did not return that" notices '*' EIO; }
}
