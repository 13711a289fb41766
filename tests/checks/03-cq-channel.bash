# Chapter 03: messages come from the peer, each with a number that only it knows.

points 03.1 2 exercise 'arms the queue' 'man 3 ibv_req_notify_cq'
points 03.2 3 exercise 'sleeps until there is an event' 'man 3 ibv_get_cq_event'
points 03.3 4 exercise 'drains the queue, however many came' 'man 3 ibv_poll_cq'
points 03.4 5 exercise 'misses nothing, and does not spin' 'man 3 ibv_req_notify_cq'
points 03.5 2 exercise 'acknowledges all events' 'man 3 ibv_ack_cq_events'
points 03.6 4 broken 'broken.c takes all rounds' 'man 3 ibv_req_notify_cq'

# burst N: N messages from the peer, arrived.
burst() {
	((bursts += 1))
	echo "$1" >&"$peer_input"
	until_sent "$bursts"
}

until_sent() {
	local said line n=0
	wait_begins
	until ((n >= $1)); do
		[[ -e /proc/$peer_pid ]] && ! late || return 1
		mapfile -t said <"$peer_out"
		n=0
		for line in "${said[@]}"; do
			[[ $line != sent ]] || ((n += 1))
		done
		nap
	done
}

# Has the program taken $1 messages, or does it soon?
until_got() {
	local line n over=''
	wait_begins
	until late; do
		mapfile -t lines <"$out"
		n=0
		for line in "${lines[@]}"; do
			[[ $line != 'got '* ]] || ((n += 1))
		done
		((n < $1)) || return 0
		[[ ! $over ]] || return 1
		# What it printed before it stopped has to be counted as well.
		running && ! at_another || over=1
		[[ $over ]] || nap
	done
	return 1
}

# Sleeps the program in the kernel, waiting for an event? It must stay there a while.
asleep() {
	local where
	wait_begins
	until late; do
		read -r where <"/proc/$pid/wchan" 2>/dev/null
		[[ $where != *ib_uverbs_event_read* && $where != *poll* ]] || return 0
		running && ! at_another || return 1
		nap
	done
	return 1
}

all_got() {
	local got sent
	got=$(printf '%s\n' "${lines[@]}" | grep '^got ')
	sent=$(peer_sent)
	[[ $got == "$sent" ]]
}

check_exercise() {
	local port first burst i count sent bursts=0 sizes=() before
	random port 20000 30000
	random first 2 9
	count=$first
	for i in 1 2 3; do
		random burst 1 12
		sizes+=("$burst")
		((count += burst + 1))
	done
	peer burst "$port"
	until_peer_listens
	start exercise 10.9.0.1 "$port" "$count"

	# Armed, asleep, and awake again when the first burst comes.
	if ! at arming; then
		fail 03.1
		return
	fi
	go
	if ! at armed; then
		fail 03.1
		return
	fi
	go
	if ! asleep; then
		fail 03.2 "does not sleep in ibv_get_cq_event" "wchan $(cat "/proc/$pid/wchan" 2>&1)"
		return
	fi
	# Stopped, it wakes up to all of them at once, after one event.
	kill -STOP "$pid"
	burst "$first"
	kill -CONT "$pid"
	if ! until_line awake; then
		fail 03.1 "messages came, yet no event" "it still sleeps"
		return
	fi
	ok 03.1
	ok 03.2
	if ! at drained; then
		fail 03.3
		return
	fi
	mapfile -t lines <"$out"
	if all_got; then
		ok 03.3
	else
		fail 03.3 "not the $first messages that had come, each once and in order"
		return
	fi
	go

	# Each burst comes just before the arming, of which no event will ever tell; then
	# there is one that wakes the loop again.
	sent=$first
	for burst in "${sizes[@]}"; do
		if ! at arming; then
			fail 03.4
			return
		fi
		burst "$burst"
		go
		((sent += burst))
		if ! until_got "$sent"; then
			fail 03.4 "$burst messages that came before the arming were not taken" \
				"they raise no event: the queue has to be looked at after the arming"
			return
		fi
		# With nothing to do it sleeps, maybe after one more arming: so an event comes.
		if ! asleep && ! { at_another && at arming && go && asleep; }; then
			fail 03.4 "it does not sleep while nothing comes"
			return
		fi
		burst 1
		((sent += 1))
	done
	exec {input}>&-
	input=''
	if ! until_line all; then
		fail 03.4
		return
	fi
	mapfile -t lines <"$out"
	if all_got; then
		ok 03.4
	else
		fail 03.4 "not all messages, or not each once and in order"
	fi
	if ! printed 'TODO 03.5 *'; then
		if at clean; then
			finish
			((status)) || ok 03.5
		elif running; then
			fail 03.5 "it hangs in ibv_destroy_cq: not as many events acknowledged as got" \
				"are all counted where they are got, in next_event()?"
		fi
	fi
	[[ ${verdict[03.5]:-} ]] || fail 03.5

	# Once more: while nothing comes, no CPU time goes by.
	[[ ${verdict[03.4]:-} == pass ]] || return
	peer burst $((++port))
	until_peer_listens
	start exercise 10.9.0.1 "$port" 3
	bursts=0
	exec {input}>&-
	input=''
	at armed && asleep && burst 1 && until_line awake
	at arming && asleep
	read -r _ before <"$cg/$group/cpu.stat"
	for i in {1..25}; do nap; done
	read -r _ cpu <"$cg/$group/cpu.stat"
	if ((cpu - before > 100000)); then
		fail 03.4 "it spins: $(((cpu - before) / 1000)) ms of CPU time while nothing came"
	else
		burst 2
		until_line all || fail 03.4
	fi
	finish
}

# It goes on as long as it is awake, and as it wakes now and then.
awake() {
	local where=''
	read -r _ made <"$cg/$group/cpu.stat"
	read -r where <"/proc/$pid/wchan" 2>/dev/null
	[[ $where == *ib_uverbs_event_read* ]] || quiet=0
	halt="it slept, and nothing was to come"
}

check_broken() {
	local rounds
	random rounds 3 9
	progress=awake
	start broken "$rounds"
	finish
	if ! printed "all $rounds rounds"; then
		fail 03.6
	elif ((status)); then
		fail 03.6
	else
		ok 03.6
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
