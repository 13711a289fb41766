points 03.6 4 'broken.c takes all rounds' 'man 3 ibv_req_notify_cq'

takes_rounds() { received "$rounds" && ((${#calls[@]} == rounds)); }

check_broken() {
	local rounds nth progress_function=awake
	watch_events
	watch_completions
	random rounds 17 25 # more than a queue of eight has room for
	run broken "$rounds"
	find_lines "all $rounds rounds"
	if ((!${#found[@]} || status)); then
		fail 03.6
		return
	fi
	# received() sets queue.
	expect 03.6 "$rounds messages should be received" takes_rounds &&
		expect 03.6 "the CQ should be armed at least once for each message" \
			armed "$rounds" "$queue" &&
		expect 03.6 "at least one event should be taken for each message" took_events "$rounds" &&
		expect 03.6 "all completions should be taken" told_each RECEIVED "$rounds" || return
	if told BLIND; then
		fail 03.6 "it armed the CQ when a message was under way, and slept without polling" \
			"if the message was there before the arming, no event comes"
	fi
	# One round has two requests. A right program sees the error before it begins another one.
	local most_requests=2
	((rounds += 20))
	random nth 2 12
	must_heed 03.6 "a receive has failed, and it went on" RECV "$nth" '*' broken "$rounds"
	must_heed 03.6 "arming failed, and it went on" ibv_req_notify_cq "$nth" '*' broken "$rounds"
	ok 03.6
}
