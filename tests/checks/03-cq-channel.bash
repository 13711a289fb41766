# Chapter 03: messages come from the peer, each with a number that only it knows.

points 03.1 2 exercise 'arms the queue' 'man 3 ibv_req_notify_cq'
points 03.2 3 exercise 'sleeps until there is an event' 'man 3 ibv_get_cq_event'
points 03.3 4 exercise 'drains the queue, however many came' 'man 3 ibv_poll_cq'
points 03.4 5 exercise 'misses nothing, and does not spin' 'man 3 ibv_req_notify_cq'
points 03.5 2 exercise 'acknowledges all events' 'man 3 ibv_ack_cq_events'
points 03.6 4 broken 'broken.c takes all rounds' 'man 3 ibv_req_notify_cq'

# burst N: N messages from the peer, arrived.
burst() {
	((sent += $1))
	echo "$1" >&"$peer_input"
	until_peer_has_sent "$sent"
}

# Has the program taken all messages, or does it soon?
takes_all() {
	local over=''
	wait_begins
	until late; do
		# What it printed before it stopped has to be counted as well.
		if ! running || at_another; then
			over=1
		fi
		read_output
		find_lines "$got"
		witness="${#found[@]} of $sent are taken"
		if ((${#found[@]} >= sent)); then
			return 0
		elif [[ $over ]]; then
			return 1
		fi
		nap
	done
	return 1
}

# Are the numbers those that the peer has sent, each once and in order? With an argument,
# some may be missing at the end.
right_numbers() {
	local numbers
	find_lines "$got"
	witness="${#found[@]} numbers are printed, $sent were sent"
	printf -v numbers '%s\n' "${found[@]}"
	[[ "$(peer_sent)"$'\n' == "$numbers"${1:+*} ]]
}

watch_events() {
	# shellcheck disable=SC2016 # they are the kernel's
	probe arm rxe_req_notify_cq 'flags=$arg2:x32'
	# shellcheck disable=SC2016
	probe :event ib_uverbs_comp_event_read 'got=$retval:s64'
}

# Has the kernel been asked $1 times for an event for any completion? 0x2 means that, and
# 0x1 solicited ones alone.
armed() {
	calls_of arm flags=0x1
	witness="ibv_req_notify_cq(): ${#calls[@]} times for solicited messages only"
	calls_of arm flags=0x2
	witness+=", ${#calls[@]} times for any"
	((${#calls[@]} >= $1))
}

# Has the program read $1 events from its completion channel, or does it soon?
took_events() {
	local deadline=5
	wait_begins
	while :; do
		calls_of event 'got=[1-9]*'
		witness="${#calls[@]} events were read from the completion channel"
		if ((${#calls[@]} >= $1)); then
			return 0
		elif ! running || late; then
			return 1
		fi
		nap
	done
}

wakes_up() {
	until_line awake || { look_at_threads && describe_threads && return 1; }
}

check_exercise() {
	local port sizes=() sent=0 got='got 0x[0-9a-f]{8}'
	random port 20000 30000
	# More than anybody takes with one poll; at most 256 in all.
	random "sizes[0]" 70 76
	random "sizes[1]" 70 76
	random "sizes[2]" 33 45
	random "sizes[3]" 2 20
	sizes[4]=0
	watch_events
	peer burst "$port"
	until_peer_listens
	start exercise 10.9.0.1 "$port" $((sizes[0] + sizes[1] + sizes[2] + sizes[3] + 4))
	if by_hand && loop; then
		the_end
	fi
}

# main() calls arm(), next_event() and drain() for the first burst.
by_hand() {
	reach 03.1 arming || return
	keep_context
	go
	reach 03.1 armed || return
	expect 03.1 "the queue is not armed for every completion" armed 1 || return
	ok 03.1
	go
	expect 03.2 "it does not sleep while no event comes" asleep || return
	expect 03.2 "it does not stay asleep while no event comes" stays_asleep || return
	# Stopped, it wakes up to all of them at once, after one event. But to be stopped ends an
	# epoll_wait(2), see signal(7): then it may wake up to the first one.
	local some=''
	if [[ " ${where//,/} " == *" "@(232|281|441)" "* ]]; then
		some=1
		burst "${sizes[0]}"
	else
		kill -STOP "$pid"
		burst "${sizes[0]}"
		kill -CONT "$pid"
	fi
	expect 03.2 "$sent messages came, and it did not wake up" wakes_up || return
	expect 03.2 "it woke up, and did not take the event" took_events 1 || return
	ok 03.2
	reach 03.3 drained || return
	expect 03.3 "not the $sent messages that had come, each once and in order" right_numbers $some || return
	ok 03.3
	go
}

# Each burst comes just before the arming, of which no event will ever tell; then there
# is one message that wakes the loop again. In the last round nothing comes before the
# arming: so those who stop one message too early miss the last one.
loop() {
	local i
	for i in 1 2 3 4; do
		reach 03.4 arming || return
		((!sizes[i])) || burst "${sizes[i]}"
		go
		expect 03.4 "messages that come before the arming raise no event, and were not taken" takes_all || return
		# With nothing to do it sleeps, maybe after one more arming: so an event comes.
		if ! asleep && at_another && at arming; then
			go
		fi
		expect 03.4 "it does not sleep while nothing comes" asleep || return
		((i != 3)) || expect 03.4 "it does not stay asleep while nothing comes" stays_asleep || return
		burst 1
		expect 03.4 "a message came while it slept, and it did not take the event" took_events $((i + 1)) || return
	done
}

# It may arm a few times more, until it knows that it has them all.
takes_the_end() {
	local i
	for i in {1..9}; do
		if takes_all && until_line all; then
			return 0
		elif ! at_another || ! at arming; then
			return 1
		fi
		go
	done
	return 1
}

the_end() {
	if takes_the_end; then
		expect 03.4 "not all messages, or not each once and in order" right_numbers && ok 03.4
	else
		fail 03.4
	fi
	if printed '*TODO 03.5 *'; then
		fail 03.5
	elif deadline=5 at clean; then
		expect 03.5 "at CHECKPOINT clean the CQ is to be gone" released cq qp &&
			go && finish && expect 03.5 "the exit status is $status" ends_with 0 && ok 03.5
	elif running; then
		fail 03.5 "it hangs in ibv_destroy_cq: not as many events acknowledged as got" \
			"are all counted where they are got, in next_event()?"
	else
		fail 03.5
	fi
}

# It goes on as long as it is awake, and as it wakes now and then.
awake() {
	look_at_threads
	made=$wakings
	[[ $sleeping ]] || quiet=0
	halt="it slept, and nothing was to come"
}

check_broken() {
	local rounds before
	random rounds 3 9
	watch_events
	counter rdma_sends
	before=$value
	progress=awake
	start broken "$rounds"
	finish
	counter rdma_sends
	find_lines "all $rounds rounds"
	if ((${#found[@]} != 1 || status)); then
		fail 03.6
	elif ((value - before < rounds)); then
		fail 03.6 "not $rounds messages were sent" "rdma_sends +$((value - before))"
	else
		expect 03.6 "not one arming for each message" armed "$rounds" && ok 03.6
	fi
}

# make try-03 [ARGS=COUNT]: the peer sends some of the messages just before the program
# arms its queue, and the others when it has been silent for a second.
try_exercise() {
	local count=${1:-9}
	left=$count armed=''
	peer burst "$port"
	program 127.0.0.1 "$port" "$count"
}

# make try-03 PROGRAM=broken [ARGS=ROUNDS]
try_broken() {
	left=0 armed=''
	program "${1:-5}"
}

# try_send MOST WHEN: the peer sends up to MOST messages.
try_send() {
	local n=$(($1 < left ? $1 : left))
	((n > 0)) || return
	((left -= n))
	hold=sent
	say "$2 the peer sends $n"
	tell_peer "$n"
}

try_checkpoint() {
	if [[ $1 == armed ]]; then
		armed=1
	elif [[ $1 == arming && $armed ]]; then
		try_send 3 "before Enter"
	fi
}

try_idle() { [[ ! $armed ]] || try_send 2 "nothing happens:"; }
