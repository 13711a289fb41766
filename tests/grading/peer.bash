# The grader's own side of the connection: peer.c, or cm_peer.c in chapter 07.
# shellcheck shell=bash

# peer ARG...: starts the peer, in place of the one before.
peer() {
	[[ -x $build/tests/grading/$peer_program ]] || give_up "there is no $peer_program"
	peer_args=("$@")
	end_peer
	((++runs))
	peer_out=$log/$runs.peer
	: >"$peer_out"
	exec {peer_input}<>"${inputs[runs]}"
	drain "$peer_input"
	(
		# Their ends would not come if the peer had them open, too.
		exec {peer_input}>&-
		if [[ $input ]]; then
			exec {input}>&-
		fi
		exec "$build/tests/grading/$peer_program" "$@"
	) <"${inputs[runs]}" >>"$peer_out" 2>"$peer_out.err" &
	peer_pid=$!
}

# until_peer_is FUNCTION: waits until the peer listens, as this function sees it. If the program
# before still has its port, that program is ended, and the peer started again.
until_peer_is() {
	if "$1"; then return; fi
	stop
	peer "${peer_args[@]}"
	if ! "$1"; then peer_failed; fi
}

until_peer_listens() { until_peer_is peer_listens; }

# Has the peer a listening socket, state 0A, or soon?
peer_listens() {
	local line sockets deadline=60 share=60000	# for wait_begins() and late()
	wait_begins
	while alive "$peer_pid" && ! late; do
		mapfile -t sockets </proc/net/tcp
		mapfile -t -O ${#sockets[@]} sockets </proc/net/tcp6
		for line in "${sockets[@]}"; do
			if [[ $line == *" 0A "* ]]; then
				return 0
			fi
		done
		nap
	done
	return 1
}

# until_peer PATTERN [TIMES]: waits until the peer has printed a line like this, so often.
until_peer() {
	local evidence
	wait_begins
	while alive "$peer_pid" && ! late; do
		if peer_said "$@"; then
			return 0
		fi
		nap
	done
	peer_said "$@"
}

# peer_said PATTERN [TIMES]: has the peer printed a line like this, as often as that? Sets `reply`
# to the first one.
peer_said() {
	local line='' replies=() count=0
	reply=''
	mapfile -t replies <"$peer_out"
	for line in "${replies[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $line == $1 ]] || continue
		if ((++count == 1)); then
			reply=$line
		fi
	done
	evidence="the peer: ${line:-nothing}${2:+; right: $count of $2}"
	((count >= ${2:-1}))
}

# peer_says WORDS: waits until the peer has printed a line that begins with one of the words,
# which are separated by |, and sets `said` to it.
# shellcheck disable=SC2034 # for the checks
peer_says() {
	said=''
	until_peer "@($1)*" && said=$reply
}

# said_is PATTERN: is `said` like this?
said_is() {
	evidence="the peer got: ${said:-no answer}"
	# shellcheck disable=SC2053 # a pattern
	[[ $said == $1 ]]
}

# tell WORD LINE: tells the peer to do something, and waits for its LINE.
tell() {
	echo "$1" >&"$peer_input"
	until_peer "$2"
}

# burst N: N messages more from the peer, arrived. `sent` counts them.
burst() {
	((sent += $1))
	echo "$1" >&"$peer_input"
	until_peer 'sent 0x*' "$sent"
}

# begin COUNT: the program of chapter 03 and its sender, which has a port of its own.
# shellcheck disable=SC2034 # for the checks
begin() {
	((++port, sent = 0, count = $1))
	peer burst "$port"
	until_peer_listens
	start exercise 10.9.0.1 "$port" "$count"
}

# With one message, as far as to the loop of take_all().
one_by_hand() { at arming && go && at armed && go && burst 1 && at drained && go; }

# burst_at_once N: like burst(), but all N messages arrive before the program wakes up, so that
# there is one event for them. For this the program is stopped with SIGSTOP. Stopping it would
# end an epoll_wait(2), see signal(7), and continuing it would end a wait for a signal. So a
# program in one of those is held in ibv_get_cq_event() instead: WAITS, see world.c. If it never
# calls that, it may have woken up after the first message; then `some` is set.
# shellcheck disable=SC2034 # for the checks
burst_at_once() {
	some=''
	if [[ " $where " == *" "@(epoll_wait|epoll_pwait2|sigtimedwait|sigsuspend|pause)" "* ]]; then
		hold
		burst "$1"
		told WAITS || some=1
		let_go
	else
		kill -STOP "$pid"
		burst "$1"
		kill -CONT "$pid"
	fi
}

# The lines that a program prints which has received all that the peer has sent.
peer_sent() { sed -n 's/^sent \(.*0x\)/got \1/p' "$peer_out"; }

# takes_all FORM: has it printed as many lines of this form as messages were sent, and the number
# of the last one?
takes_all() {
	local last over='' wanted=()
	until_printed "$sent" "$1"
	evidence="$most_found of $sent are taken"
	((most_found >= sent)) || return
	lines_from wanted peer_sent
	last=${wanted[*]: -1}
	evidence="${last#got }, the last of $sent, is not taken"
	until [[ "${lines[*]}" == *"${last#got }"* ]]; do
		if [[ $over ]] || late; then
			return 1
		fi
		nap
		if ! running || at_another; then
			over=1
		fi
		read_output
	done
	evidence="all $sent are taken"
}

# goes_to_its_end COMMAND: does it go on to its end now, or does the command hold before? A line of
# the student's own, which ends in the word "all", may have come before it arms the queue or sleeps
# again. Who hangs in ibv_destroy_cq() waits for a futex.
goes_to_its_end() {
	for _ in {1..10}; do
		if at_another; then
			[[ ${lines[-1]} != *arming ]]
			return
		fi
		if ! running; then return 0; fi
		if "$1" && [[ $where != *futex* ]]; then return 1; fi
		nap
	done
}

# Does it take all, and then say so, instead of sleeping? It may arm a few times more, until it
# knows that it has them all. Where arming takes its time, that is a sleep, too.
takes_the_end() {
	local instead=sleeps_still
	if [[ ${world[late]:-} ]]; then instead=false; fi
	for _ in {1..9}; do
		if takes_all "$got"; then
			if until_line all "$instead" && goes_to_its_end "$instead"; then return 0; fi
			[[ $evidence == all* ]] || evidence="all $sent are taken, and $evidence"
		fi
		at_another && at arming && go || return
	done
	return 1
}

# Takes the program of chapter 05 past its checkpoints, and the peer on to its last messages.
feed() { at connected && until_peer four && go && at credit && tell one 'one more' && go; }

# right_numbers FORM [SOME]: are the lines that it prints in this form those that it prints if it
# has received all that the peer has sent, each once and in order? With SOME, some may be missing
# at the end.
right_numbers() {
	local i wanted=()
	find_lines "$1"
	lines_from wanted peer_sent
	evidence="${#found[@]} of ${#wanted[@]} are printed"
	for i in "${!wanted[@]}"; do
		if [[ ${2:-} && $i == "${#found[@]}" && $i -gt 0 ]]; then
			return 0
		elif [[ ${found[i]:-} != "${wanted[i]}" ]]; then
			evidence+="; line $((i + 1)): ${found[i]:-missing}, wanted: ${wanted[i]}"
			return 1
		fi
	done
	((${#found[@]} == ${#wanted[@]}))
}

# Sets `got` to the immediate values that it has printed, and `nonces` to how many: who prints each
# once more has done nothing wrong. Are they the peer's?
# shellcheck disable=SC2034 # for the checks
takes_nonces() {
	local reading sent_all
	sent_all=$(peer_sent)
	for reading in all whole ''; do
		find_lines 'got 0x[0-9a-f]{8}'
		got=$(printf '%s\n' "${found[@]}" | uniq)
		if [[ ! $mixed || $got == "$sent_all" ]]; then break; fi
	done
	nonces=$(wc -l <<<"$got")
	[[ ! $got ]] || takes_only_the_peers "$got"
}

# takes_only_the_peers LINES: are these "got" lines only what the peer has sent?
takes_only_the_peers() {
	local first=${1%%$'\n'*} swapped
	swapped=$(sed -E 's/0x(..)(..)(..)(..)/0x\4\3\2\1/' <<<"$first")
	evidence="completions of your own writes come to the same queue"
	if [[ $(peer_sent) == *"$swapped"* ]]; then
		evidence="$first is ${swapped#got }, which the peer has sent, in network byte order"
	fi
	! grep -qvxFf <(peer_sent) <<<"$1"
}

# Is the peer's lock $1, and is $2 added to its counter?
lock_is() {
	local word sum
	: >"$peer_out"
	tell look looked
	read -r _ word _ sum <"$peer_out"
	evidence="the lock is ${word%,}, the 8-byte counter has grown by $((sum))"
	((${word%,} == $1 && sum == $2))
}

# Is each receive posted again that was used up, and no RNR or error seen?
reposts() {
	reposted "$prepared" "$nonces" && ! peer_said '*RNR*' && ! printed 'exercise: ibv_post_recv: E*'
}

# In chapter 06, the peer gives the lock to the program.
release_lock() { at tried && go && tell release released; }

# waits_in_answer SIZE: after the only answer, is the completion of its WRITE taken already? If not,
# `evidence` and the command are those of the run before.
waits_in_answer() {
	local taken_before=0 before=$shown_command
	account
	start exercise write $((++port)) "$1" 1
	peer write "$port" "$1" 1 10.9.0.1
	at connected && go && until_peer all && at answered && nap 0.4 && has_taken 2 && return
	evidence=$message shown_command=$before
	return 1
}

# answered_all N: has the peer got N right answers? If not, what was the first one that was not?
answered_all() {
	local wrong
	if peer_said 'answered*' "$1"; then
		return
	fi
	if wrong=$(grep -m 1 -E '^your (answer|value) ' "$peer_out"); then
		evidence="the peer: $wrong"
	fi
	return 1
}

# Does the peer of chapter 07 listen, or soon? The RDMA CM's ports are no sockets.
server_listens() {
	local deadline=60 share=60000
	until_peer listening
}

# ask WHAT: the peer of chapter 07 is a server, and does WHAT, see cm_peer.c. The program, a client,
# asks it. Sets `said` to the words of the program, and `answer` to those of the peer.
# shellcheck disable=SC2034 # for the checks
ask() {
	stop # an older run of this program may have the port, and the peer needs it
	peer server $((++port)) "$1"
	until_peer_is server_listens
	start exercise "$port" "$version" 10.9.0.1
	peer_says 'asked|nothing' && until_peer 'told *'
	peer_said 'told *'
	answer=${reply#told }
}

# Has the program, as a client, printed only a reason after the hello of a server, although it takes
# one for a hello if its text is empty?
wants_a_zero() {
	printed 'refused: reason*' && ! printed 'refused: version*' || return
	ask empty && finish
	printed 'refused: version 0,*'
}

# Draws wrong magics, in the words of cm_peer.c. `magics`: each of the four letters in the other
# case; each one replaced, one of them by the byte that has another bit 6, one by that which has
# another bit 7, and two by another small letter; the first one exchanged with another; two of the
# others. `few_magics`: two replaced, two in the other case, so that each place is wrong once.
# shellcheck disable=SC2034 # for the checks
draw_magics() {
	local i n letter magic=ping capital=PING others places=() swaps=()
	local bit6=(0 \) . \') bit7=($'\xf0' $'\xe9' $'\xee' $'\xe7')
	magics=() few_magics=()
	shuffle places {0..3}
	for i in {0..3}; do
		magics[i]="magic=${magic:0:i}${capital:i:1}${magic:i+1}"
		others=abcdefghijklmnopqrstuvwxyz others=${others/${magic:i:1}}
		random n 0 24 && letter=${others:n:1}
		if ((i == places[0])); then letter=${bit6[i]}; fi
		if ((i == places[1])); then letter=${bit7[i]}; fi
		magics[i + 4]=magic=${magic:0:i}$letter${magic:i+1}
	done
	random n 1 3 && magics[8]="magic=${magic:n:1}${magic:1:n-1}${magic:0:1}${magic:n+1}"
	shuffle swaps pnig pign pgni && magics[9]=magic=${swaps[0]}
	random n 0 1
	for i in {0..3}; do few_magics+=("${magics[i + 4 * ((n + i) % 2)]}"); done
}

# Is the program connected? And does it listen, as a server?
is_connected() { at connected && in_rts; }
serves() { start exercise $((++port)) "$version"; until_line listening; }

# be_asked VERSION KIND: the peer is such a client of the program. Sets `said` to what it got.
be_asked() {
	peer client "$port" "$1" "$2" 10.9.0.1
	peer_says 'accepted|rejected|nothing|RDMA'
}

# Does the program send the text of the given main()? A compiler may have cut it into pieces, of
# eight bytes at least.
has_given_hello() { grep -qaF 'please a' "$root$program"; }

# goes_on ID: has the program, a server, said that it refused a client? If its is_welcome() returns
# -1, it ends without a word.
goes_on() {
	if until_line 'refused a client'; then return; else finish; fi
	if ((status == 1)) && ! printed 'exercise: rdma_*'; then
		fail 07.5 "is_welcome() should return 0 for a client that is not welcome: the server ended"
	fi
	fail "$1"
	return 1
}

# sees_no_hello KIND SIZE: does the program, as a client, say that such an answer, of so many bytes,
# is no hello? It was a server before, and what it did then is what a student is shown: so how the
# client has ended must not count, or be shown.
sees_no_hello() {
	local asked=$said command=$shown_command result=0
	world[private-data]=$2 # for the answer: `serve` has started its last program
	ask "$1" && finish
	prints_only 'refused: reason 28' 'refused: .*' 'refused.*' || result=1
	said=$asked shown_command=$command status=0
	return $result
}

# The peer comes to its end, and so does the program. Sets `complaint` to what the peer
# said at last, and `ending` to how the program has ended, if its status is not 0.
# shellcheck disable=SC2034 # for the checks
both_end() {
	wait_begins
	while alive "$peer_pid" && ! late; do nap; done
	if [[ ! $status ]]; then
		finish
	fi
	complaint="the peer: $(tail -n 1 "$peer_out")" ending=''
	if ((status)); then
		account
		ending="; the program: $message" message=''
	fi
}

# receives_all PORT COUNT: does the program of 05 take COUNT messages, and give credits for all?
receives_all() {
	start exercise "$1" 64 "$2" && peer source "$1" 64 "$2" 10.9.0.1 && walk
	both_end
	evidence=$complaint$ending
	[[ "$status $complaint" == '0 the peer: all' ]]
}

# Ends the peer, if there is one.
end_peer() {
	local status=0
	[[ $peer_pid ]] || return
	exec {peer_input}>&-
	kill "$peer_pid" 2>/dev/null
	wait "$peer_pid" 2>/dev/null || status=$?
	peer_pid=''
	# 143: we have ended it.
	case $status in
	0 | 1 | 143) ;;
	*) peer_failed ;;
	esac
}

# peer_failed: nothing can be said about this program, because the peer has failed. A program
# may make it fail, see check_apart.
peer_failed() {
	echo "the grader's own side: $(<"$peer_out.err")" >&2
	nap 0
	echo "$spent $slowness" >"$log/spent"
	exit $peer_fault
}
