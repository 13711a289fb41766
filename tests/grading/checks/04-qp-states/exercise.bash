# Chapter 04: two queue pairs, whose states and numbers the kernel knows.

points 04.1 2 'RESET -> INIT' 'man 3 ibv_modify_qp'
points 04.2 5 'INIT -> RTR, expecting what the peer sends' 'man 3 ibv_modify_qp'
points 04.3 3 'RTR -> RTS, with the PSN asked for' 'man 3 ibv_modify_qp'
points 04.4 2 'reads the state back' 'man 3 ibv_query_qp'
points 04.5 4 'ERR -> RTS' 'man 3 ibv_modify_qp'

# reach_state CHECK NAME: the checkpoint, and what the kernel has there.
reach_state() { reach "$@" && look_at_both; }

look_at_both() {
	local name
	kernel qp
	for name in A B; do
		reading=whole find_lines "$name: QPN 0x[0-9a-f]+"
		number[$name]=$((${found[0]:+${found[0]##* }}))
	done
}

check_exercise() {
	local psn=() i place victim=A other=B first mine theirs a b from
	local -A number=()
	# The victim's PSN is 0, which has less than six digits. In the others, swapped bytes are seen.
	random theirs 1048576 16777214
	random mine 1048576 16777215
	random place 0 1
	((theirs ^= (theirs & 255) == theirs >> 16, mine ^= (mine & 255) == mine >> 16))
	((psn[place] = theirs, psn[1 - place] = 0, psn[2] = mine))
	if ((place == 0)); then
		victim=B other=A
	fi
	first=$victim
	watch_modify
	watch_queries
	random "world[spread]" 2 9
	# So no PSN is read back as 0.
	random "world[sent]" 2 65535
	random "world[received]" 2 65535
	move_gid first # the one that both queue pairs have
	start exercise "${psn[@]}" "$victim"

	# main() calls to_rtr() first, which should ask for RTR and not for INIT.
	if ! at init; then
		if told_first TO_INIT TO_RTR || told_each TO_RTR 2; then
			fail 04.2
		else
			fail 04.1
		fi
		return
	fi
	look_at_both
	expect 04.1 "both queue pairs should be in INIT now" both_in INIT && ok 04.1
	expect 04.2 "to_rtr() in RESET should return the EINVAL of ibv_modify_qp()" refused_first
	go && reach_state 04.2 rtr || return
	a=${number[A]} b=${number[B]}
	expect 04.2 "both queue pairs should be in RTR now" both_in RTR &&
		expect 04.2 "dest_qp_num should be the number of the peer" both rqpn "$b" "$a" &&
		expect 04.2 "rq_psn should be the first PSN of the peer" \
			both rq-psn "${psn[1]}" "${psn[0]}" &&
		expect 04.2 "ah_attr.grh.dgid should be the GID of the peer" goes_to_peer &&
		expect 04.2 "path_mtu should be IBV_MTU_1024" right_mtu && ok 04.2
	go && reach_state 04.3 rts || return
	expect 04.3 "both queue pairs should be in RTS now" both_in RTS &&
		expect 04.3 "sq_psn should be the first PSN that was asked for" \
			both sq-psn "${psn[0]}" "${psn[1]}" && ok 04.3
	from=$next_line
	go
	reach_state 04.4 error || return
	reads_back && ok 04.4
	expect 04.5 "$victim should be in ERR now" qp "$victim" state ERR || return
	go
	is_back && go && finish && expect_status 04.5 0 && ok 04.5
	# In another run it is the other one that fails, and has the last PSN that there is. Its peer
	# has a small one.
	random theirs 1 1048575
	((psn[place] = 16777215, psn[1 - place] = theirs, psn[2] = 0))
	victim=$other other=$first mine=0 world[sent]=1 # so one of them is read back as 0
	start exercise "${psn[@]}" "$victim"
	reach 04.1 init && go && reach 04.2 rtr && go && reach_state 04.3 rts || return
	expect 04.2 "rq_psn should be the first PSN of the peer" both rq-psn "${psn[1]}" "${psn[0]}"
	expect 04.3 "sq_psn should be the first PSN that was asked for" both sq-psn "${psn[@]:0:2}"
	from=$next_line
	go && reach 04.5 error || return
	reads_back
	go && is_back && go && finish && expect_status 04.5 0
	fails ibv_query_qp 1 5
	start exercise "${psn[@]}" "$victim"
	walk
	nothing_fails
	if printed '[AB]: state ?(-)[0-9]*, *'; then
		fail 04.4 "ibv_query_qp() failed, and it printed a state all the same"
	elif [[ $timed_out ]]; then
		fail 04.4
	fi
	errors "${psn[@]}" "$victim"
}

# The device says that some packets have been sent, and some received: see world.c.
reads_back() {
	local sent=() received=() i line
	for i in 0 1; do
		((sent[i] = (psn[i] + world[sent]) & 0xffffff))
		((received[i] = (psn[1 - i] + world[received]) & 0xffffff))
	done
	printf -v line '0x%06x, rq_psn 0x%06x' "${sent[0]}" "${received[0]}"
	expect 04.4 "it should ask for all three, and print A: state 3, sq_psn $line" \
		read_back A "${sent[0]}" "${received[0]}" "${psn[@]:0:2}" &&
		expect 04.4 "it should print such a line for B, too, with the PSNs of B" \
			read_back B "${sent[1]}" "${received[1]}" "${psn[1]}" "${psn[0]}"
}

# The one that was in ERR is in RTS again, and nothing else has changed.
is_back() {
	reach_state 04.5 recovered &&
		expect 04.5 "both queue pairs should be in RTS again" both_in RTS &&
		expect 04.5 "dest_qp_num and rq_psn should be the same as before" \
			qp "$victim" rqpn "${number[$other]}" rq-psn "$theirs" &&
		expect 04.5 "sq_psn should be the new one that was asked for" qp "$victim" sq-psn "$mine" &&
		expect 04.5 "ah_attr.grh.dgid should be the GID of the peer" goes_to_peer &&
		expect 04.5 "path_mtu should be IBV_MTU_1024" right_mtu
}

# errors ARG...: each step fails once, and then each of those that recover() makes.
errors() {
	local first=() again=() step verb id call from to
	# The first call for RTR is the one that main() makes too early. All after it fail, too.
	shuffle first 'INIT 04.1 1 RESET INIT' 'RTR 04.2 1 INIT RTR' 'RTS 04.3 1 RTR RTS'
	shuffle again again-{RESET,INIT,RTR,RTS}' 04.5 1 ERR RTS'
	for step in "${first[@]}" "${again[@]}"; do
		read -r verb id call from to <<<"$step"
		must_heed "$id" "the step to ${verb#again-} failed with ERROR, and that was not returned" \
			"$verb" "$call" "*$from -> $to: ERROR*" exercise "$@"
		if [[ $verb == RTR ]] && printed '*RESET -> RTR: EINVAL'; then
			fail 04.2 "to_rtr() in RESET returned EINVAL, and ibv_modify_qp() another error"
		fi
	done
}
