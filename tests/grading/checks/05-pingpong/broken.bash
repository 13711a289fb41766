points 05.6 3 'broken.c sends all its messages' 'man 3 ibv_post_recv'

check_broken() {
	local count nth progress_function=sends
	watch_completions
	random nth 2 9
	# More than the 500 receives that a repair may post at the beginning, as rc_pingpong does. Such
	# a repair posts thousands: they would fill the trace.
	random count 513 540
	not_told RECV
	start broken "$count" && walk
	not_told
	find_lines "received $count messages"
	if ((!${#found[@]} || status)); then
		fail 05.6
		return
	fi
	expect 05.6 "messages came when no receive was posted" counted_none send_rnr_err &&
		expect 05.6 "$count messages should be received" received "$count" &&
		expect 05.6 "each message should be sent once" told_times SENT "$count" &&
		expect 05.6 "all completions should be taken" told_each RECEIVED "$count" || return
	must_heed 05.6 "ibv_post_recv() failed, and it went on" ibv_post_recv "$nth" '*' broken "$count"
	ok 05.6
}
