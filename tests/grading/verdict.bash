# How a check comes to its verdict: what it expects, what it says if that is not so, and the
# runs in which a verb fails.
# shellcheck shell=bash

# Sets `message`: what became of the program, maybe before the CHECKPOINT `awaited`.
account() {
	local i last='' events
	for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
		if [[ ${lines[i]} && ${lines[i]} != @('released: '|'  hint: '|'CHECKPOINT ')* ]]; then
			last=${lines[i]}
			break
		fi
	done
	events=$(<"$cg/$group/memory.events")
	if [[ $events == *'oom_kill '[1-9]* ]]; then
		message="killed: it took more than $((memory >> 20)) MiB of memory"
	elif [[ $(<"$cg/$group/pids.events") == *'max '[1-9]* ]]; then
		message="it tried to start more than $processes processes and threads"
	elif floods; then
		message="stopped: it printed more than $most_lines lines"
	elif [[ $timed_out ]] && (($(wc -c <"$out") >= output * 1024)); then
		message="stopped: it printed more than $output KiB, and went on for $deadline s"
	elif [[ $timed_out && ! $stalled ]] && ((used_up)); then
		message="stopped: its runs have used up the $((share / 1000)) s that they may take together"
	elif [[ $timed_out ]]; then
		message="stopped: ${stalled:-it still ran after $deadline s}"
	elif ((status == 153)); then
		message="it printed more than $output KiB, or wrote more than that into a file"
	elif ((status > 128 && status <= 192)); then
		message="it crashed: SIG$(kill -l "$status")"
	else
		message="it ended with exit status $status${awaited:+ before CHECKPOINT $awaited}"
	fi
	if [[ $last ]]; then
		message+="; last line: ${last:0:200}"
	fi
}

# ok ID: the check has passed, unless it has failed before.
ok() {
	if [[ ! ${verdict[$1]:-} ]]; then
		verdict[$1]=pass
	fi
	stop_clock "$1"
}

# fail CHECK [WHY [KERNEL]]: gives the check the status fail, unless it already has one that is
# not a pass. With WHY, that is the message, and the program goes on. Without WHY the program is
# ended, and the message says how it ended. One mistake should cost one check: so if another
# check of this program has failed, this one becomes `blocked`, except when the program itself
# says that the function of this check is not written yet.
fail() {
	local id=$1 other
	[[ ${verdict[$id]:-pass} == pass ]] || return 0
	read_output
	not_written "$id"
	stop_clock "$id"
	if [[ ! $message ]]; then
		for other in "${!verdict[@]}"; do
			if [[ ${verdict[$other]} == @(fail|timeout) ]]; then
				verdict[$id]=blocked
				return
			fi
		done
	fi
	verdict[$id]=fail
	if [[ $message ]]; then
		: # The program itself says that the function is not written yet.
	elif (($# == 1)); then
		if [[ ! $status ]]; then
			finish
		fi
		account
		kernel_of[$id]=$kernel_view
		if [[ $timed_out ]]; then
			verdict[$id]=timeout
		fi
	elif ((spent > share)); then
		# We did not wait any more for what we have not seen.
		verdict[$id]=timeout
		message="not decided: the runs of this program have used up the $((share / 1000)) s for them"
	else
		message=$2
		kernel_of[$id]=${3:-}
	fi
	message_of[$id]=$message
	command_of[$id]=$shown_command
	stop_clock "$id"
}

# reach CHECK NAME: the program comes to this CHECKPOINT, or the check has failed.
reach() {
	local awaited=$2
	if ! at "$2"; then
		fail "$1"
		return 1
	fi
}

# expect CHECK WHY CONDITION...: the check has failed for this reason if the condition,
# a command, does not hold. `evidence` is what the condition saw: of the kernel, or a peer.
# A line that ends in what is asked for may be that, behind half a line of the student's, or a
# line of the student's own: it is enough if the condition holds for one reading. See find_lines().
expect() {
	evidence='' mixed=''
	if "${@:3}" || { [[ $mixed ]] && { reading=whole "${@:3}" || reading=all "${@:3}"; }; }; then
		return 0
	fi
	if [[ ! $status ]] && ! running; then
		finish
	fi
	# How it has ended may be the reason.
	if [[ ${status:-0} != 0 || $status && ! $evidence ]]; then
		account
		evidence+=${evidence:+; }$message
	fi
	fail "$1" "$2" "$evidence"
	return 1
}

# expect_status ID STATUS [WHEN]: the exit status is to be this one.
expect_status() {
	expect "$1" "the exit status should be $2${3:+ $3}, but it is $status" ends_with "$2"
}

# stop_clock ID: counts the time since the last call as this check's.
stop_clock() {
	local ms
	now_ms ms
	# The web site shows this number while a student waits.
	if [[ ${SHOWN:-} && ! ${duration_of[$1]:-} ]]; then
		printf ' %s' "$1" >"$SHOWN"
	fi
	duration_of[$1]=$((${duration_of[$1]:-0} + ms - clock))
	clock=$ms
}

# --- what world.c does and tells ----------------------------------------------

# From now on programs find what Soft-RoCE cannot be, and `world` has the settings: see world.c.
preload_world() {
	echo /work/world.so >"$root/etc/ld.so.preload"
	probe told null_lseek "word=\$arg2:$word_type"
	watch_filters
	# What a program does to /dev/null itself is not even written down.
	told_filter="word >= $((world[key] << 12)) && word < $((world[key] + 1 << 12))"
	not_told
}

# not_told [WORD...]: from now on these words are not written down, and all others are. There may be
# thousands that nobody asks for: they would fill the trace, and make it longer to go through.
not_told() {
	local number word filter=$told_filter
	for word; do
		with_key "$word"
		filter+=" && word != $number"
	done
	echo "$filter" >"$tracing/events/kprobes/told/filter"
}

# with_key WORD: sets `number` to what the kernel writes down for this word of world.c. See tell()
# there.
with_key() { number=$((world[key] << 12 | words[$1])); }

# words_of WORD: sets `calls` to how often world.c has told us this about the program.
words_of() {
	local number
	with_key "$1"
	calls_of told "word=$number"
}

# told WORD: has it told us this at all, or so much that some is lost?
told() { ! words_of "$1" || ((${#calls[@]})); }

# From now on, until let_go(), ibv_req_notify_cq() and ibv_get_cq_event() wait, and world.c tells that
# they were called: ARMS, WAITS.
hold() { : >"$root/work/${world[wait]}"; }
let_go() { rm "$root/work/${world[wait]}"; }

hold_arming() {
	words_of ARMS
	armings=${#calls[@]}
	hold
}

# Does the program come to the arming that is held? There may be a CHECKPOINT on the way.
comes_to_arming() {
	wait_begins
	until words_of ARMS && ((${#calls[@]} > armings)); do
		if at_another; then
			at arming || return
			go
		elif ! running || late; then
			return 1
		fi
		nap
	done
}

# either_of WORD OTHER: sets `calls` to what it has told us of these two.
either_of() {
	local number one
	with_key "$1" && one=$number
	with_key "$2"
	calls_of told "word=@($one|$number)"
}

# told_last WORD OTHER, told_first WORD OTHER: of these two, is WORD the one that it has told us
# last, or first?
told_last() {
	local number
	either_of "$@" && with_key "$1" && [[ ${calls[*]: -1} == "word=$number" ]]
}
told_first() {
	local number
	either_of "$@" && with_key "$1" && [[ ${calls[0]:-} == "word=$number" ]]
}

# told_each WORD N: has it told us this at least so often?
told_each() { words_of "$1" && ((${#calls[@]} >= $2)); }

# told_times WORD N: has it told us this so often, and not more often?
told_times() { words_of "$1" && ((${#calls[@]} == $2)); }

# Has it crashed in ibv_post_send(), or was the request refused, before anything was sent?
cannot_post() { { told REFUSED || { ((status > 128)) && told POSTS; }; } && ! told SENT; }

# Has each event of the RDMA CM been acknowledged?
all_returned() {
	local events
	words_of TAKEN || return
	events=${#calls[@]}
	words_of RETURNED && evidence="events: $events taken, ${#calls[@]} acknowledged" &&
		((events && ${#calls[@]} == events))
}

# Has it never polled an empty queue very often before it went to sleep?
sleeps_at_once() {
	evidence="a thousand polls in a row found nothing"
	! told SPINNING
}

# fails VERB CALL ERRNO: in what runs from now on, this verb fails from that call on, of which
# 1 is the first: see world.c.
fails() { world[failing]=$*; }
nothing_fails() { unset 'world[failing]'; }

# meets_error ID: has the verb that is to fail been called?
meets_error() {
	local verb=${world[failing]%% *}
	if told FAILED; then
		return 0
	fi
	case $verb in
	# world.c names a call of ibv_modify_qp() by the state that it leads to.
	RESET | INIT | RTR | RTS | again-*) verb=ibv_modify_qp ;;
	completion | SEND | RECV | WRITE) verb=ibv_poll_cq ;;
	esac
	account
	fail "$1" "$verb() was called too few times: is a call missing?" "$message"
	return 1
}

# has_text TEXT: does the program have this text of the given code, as one string?
has_text() { grep -qaxzF -- "$1" "$root$program"; }

# heeds PATTERN [NAME]: has the program ended with status 1 if the verb has failed, and printed a
# line like this, where ERROR is the NAME of an error, and none with another name? If a student has
# written the given code anew, with other words, any line will do. With `always_told`, the given code
# prints its words whenever this call fails. So if they are in the program, but not printed, they
# belong to another call of a main() that is the student's own, and any line with the NAME will do.
heeds() {
	local line other what=fail text=${1%: ERROR*}
	# These verbs return an errno value.
	case ${world[failing]%% *} in
	ibv_dealloc_pd | ibv_dereg_mr | ibv_req_notify_cq | ibv_post_* | INIT | RTR | RTS)
		what="return $2 (${world[failing]##* })" ;;
	esac
	evidence="the grader made this call $what, to see what the program does then"
	told FAILED || return 0
	ends_with 1 || return
	if [[ $1 != *ERROR* ]]; then
		printed "$1"
		return
	fi
	has_text "${text#\*}" || return 0
	printed "${1//ERROR/$2}" ||
		{ [[ ${always_told:-} ]] && ! printed "$text*" && printed "*: $2 *"; } || return
	# No line may name several of the errors of must_heed(), of which one has to be right.
	for other in "${errors[@]% *}"; do
		if [[ $other != "$2" ]] && printed "*@($2*$other|$other*$2)*"; then return 1; fi
	done
	# The given code prints the name and then, in parentheses, what it means.
	for line in "${lines[@]}"; do
		# shellcheck disable=SC2053 # patterns
		[[ $line != $text': E'+([A-Z0-9])' ('* || $line == ${1//ERROR/$2} ]] || return
	done
}

# notices PATTERN NAME: the same, but an end by a timeout does not count, because a program
# that ignores the error comes to that, too. It counts for a program that has printed the NAME and
# has a second thread or process, which may not know of the error.
notices() {
	heeds "$@" || return
	! printed '*: ETIMEDOUT' && ! printed "*${program##*/}: *: ETIMEDOUT (*" &&
		! printed '*the peer gave up or died' && return
	printed "*: $2 *" && ((most_threads > 1))
}

# ends_there PATTERN NAME: the same, and it has posted hardly anything since the verb
# failed: SENDs, receives, WRITEs, or what has an immediate value. A second thread may post a few,
# so there may be 20, or `most_requests`.
ends_there() {
	local call requests=0
	notices "$@" && calls_of told || return
	for call in "${calls[@]#*=}"; do
		case $((call & 0xfff)) in
		"${words[FAILED]}") requests=0 ;;
		"${words[SENT]}" | "${words[RECV]}" | "${words[WRITES]}" | "${words[GOES_ON]}")
			((++requests))
			;;
		esac
	done
	evidence="the grader made this call fail, and the program posted $requests more requests"
	((requests <= ${most_requests:-20}))
}

# must_heed ID WHY VERB CALL PATTERN PROGRAM ARG...: makes this call of the verb fail in a run of its
# own, if need be with a peer, whose arguments are in `beside`, and with a command `on_the_way`, for
# which the run waits. The check ID has failed with WHY if ends_there() does not hold for PATTERN.
# Nobody knows which error it is; in WHY and in PATTERN, ERROR is its name. A check that has failed
# already needs no more runs: they would use up the time of the others.
must_heed() {
	[[ ${verdict[$1]:-pass} == pass ]] || return 0
	local id=$1 why=$2 verb=$3 call=$4 pattern=$5
	local progress_function=wakes deadline=5 patience=3000 errors=()
	# None after which a program may try again: that can take it as long as any wait. And none that
	# a program returns for any failure.
	shuffle errors 'EBADF 9' 'EXDEV 18' 'ENOTTY 25' 'EDOM 33'
	# A full queue is the error that some try again after: for ever, or for as long as any wait of
	# the exercises, which is 10 seconds. A second thread may wait so long for its completion.
	if [[ $verb == ibv_post_send ]]; then
		errors=('ENOMEM 12' 'EIO 5') deadline=12 patience=12000
	fi
	# What it fails with if something still uses the domain.
	if [[ $verb == ibv_dealloc_pd ]]; then
		errors=('EBUSY 16' 'EIO 5')
	fi
	local name=${errors[0]% *}
	fails "$verb" "$call" "${errors[0]#* }"
	# The program must not find the peer of the run before.
	end_peer
	start "${@:6}"
	if ((${#beside[@]})); then
		peer "${beside[@]}"
	fi
	"${on_the_way:-:}"
	walk
	meets_error "$id" &&
		expect "$id" "${why//ERROR/$name}" ends_there "$pattern" "$name"
	nothing_fails
}
