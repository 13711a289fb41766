# The program that is checked: how the runner starts it, waits for it and ends it, and what it
# has printed.
# shellcheck shell=bash

# System calls by their numbers, which each kind of processor has its own of; and those in
# which a program waits for an event, or for a signal, which a descriptor with O_ASYNC sends.
declare -A call_names=()
case $HOSTTYPE in
x86_64)
	call_names=([0]=read [7]=poll [19]=readv [23]=select [34]=pause [35]=nanosleep
		[128]=sigtimedwait [130]=sigsuspend [202]=futex [219]=restart_syscall
		[230]=nanosleep [232]=epoll_wait [270]=select [271]=ppoll [281]=epoll_wait
		[426]=io_uring_enter [441]=epoll_pwait2)
	;;
aarch64)
	call_names=([22]=epoll_wait [63]=read [65]=readv [72]=select [73]=ppoll [98]=futex
		[101]=nanosleep [115]=nanosleep [128]=restart_syscall [133]=sigsuspend
		[137]=sigtimedwait [426]=io_uring_enter [441]=epoll_pwait2)
	;;
i[3-6]86)
	call_names=([0]=restart_syscall [3]=read [29]=pause [82]=select [142]=select
		[145]=readv [162]=nanosleep [168]=poll [177]=sigtimedwait [179]=sigsuspend
		[240]=futex [256]=epoll_wait [267]=nanosleep [308]=select
		[309]=ppoll [319]=epoll_wait [407]=nanosleep [413]=select [414]=ppoll
		[421]=sigtimedwait [422]=futex [426]=io_uring_enter [441]=epoll_pwait2)
	;;
esac
# The names of the CHECKPOINTs of all programs. With another name, a program is seen to wait there
# only when it reads its standard input: see stands_at().
checkpoints='chosen|registered|clean|arming|armed|drained|init|rtr|rts|error|recovered|connected'
checkpoints+='|credit|done|answered|tried|locked|added'
waiting_calls=' read readv poll ppoll select epoll_wait epoll_pwait2 io_uring_enter pause'
waiting_calls+=' sigtimedwait sigsuspend restart_syscall '

# Forgets the program before. All variables that describe one program are set here.
# shellcheck disable=SC2034 # some are for the checks
forget_program() {
	group=''		# its control group
	input=''		# a descriptor: our end of its standard input, while that is open
	enters=0		# how often we have pressed Enter for it
	lines=()		# what it has printed
	half_line=''	# what it has printed of a line that has no end yet
	next_line=0		# the first of `lines` that no until_line() has looked at
	call_before=()	# what each of its threads was in at the last look
	status=''		# its exit status, when it has ended
	timed_out=''	# 1: we have stopped it, or will
	progress_mark='' idle_looks=0	# see hangs()
	stalled=''		# why it was stopped, if hangs() was the reason
	kernel_view=''	# what the kernel had of it when it was stopped
	looker_pids=' '	# of processes of our own that have asked the driver meanwhile
	most_threads=0	# that look_at_threads() has seen at once, of its processes as well
	wakings=0 sleeping=''	# at its last look
}

# What a program has written is there for no other run.
empty_tmp() {
	local dir files=("$root"/{tmp,dev/shm}/{*,.[!.]*,..?*})
	((${#files[@]})) || return 0
	for dir in "$root"/{tmp,dev/shm}; do
		umount -l "$dir"
		mount -T "$log/fstab" "$dir"
	done
}

# drain FD: throws away what an earlier program has not read from this pipe. It is still in there if
# a message on a Unix socket holds the pipe open: see sweep.h.
drain() { while read -t 0 -u "$1"; do read -rn 1 -u "$1"; done; }

# start PROGRAM [ARG...]: the submission's program of this chapter, in the background.
start() {
	local name
	stop
	empty_tmp
	forget_program
	((++runs))
	take_group
	if [[ $out ]]; then
		: >"$out"	# it takes memory
	fi
	out=$log/$SRANDOM
	shown_command="./$*"
	program=/work/$chapter/$1
	if [[ -e $tracing/trace ]]; then
		: >"$tracing/trace"
	fi
	remember_counters
	for name in "${!world[@]}"; do
		echo "$name ${world[$name]}"
	done >"$log/world"
	exec {input}<>"${inputs[runs]}"
	drain "$input"
	: >"$out"
	if [[ $reader ]]; then
		exec {reader}<&-
	fi
	exec {reader}<"$out"
	tunables=$fill confined "$group" "$program" "${@:2}" <"${inputs[runs]}" >>"$out" &
	pid=$!
}

# For sed -E: deletes zero bytes, the colours of a terminal, and what else it obeys: ESC [ ? 25 l
# hides the cursor, and ESC ( B is a part of what tput(1) prints.
no_colours="s|\\x00||g; s|$escape\\[[0-?]*[ -/]*[@-~]||g; s|$escape[()][0-9A-Za-z]||g;"

# Adds to `lines` what the program has printed since the last time, without the colours of a
# terminal. A last line that is not whole yet stays in `half_line`.
read_output() {
	local i new text before=${#half_line}
	((${#lines[@]} <= most_lines)) || return 0
	# This leaves out zero bytes, which a shell cannot hold, and a terminal does not show.
	IFS='' read -rN $((output * 1024 + 1)) -u "$reader" text
	[[ $text ]] || return 0
	printf '%s\n' "$half_line$text" >"$log/text"
	mapfile -n $((most_lines + 2)) -t new <"$log/text"
	half_line=${new[-1]}
	unset 'new[-1]'
	# What is asked for is short, and stands at the end; a pattern takes very long in a long line.
	if ((before + ${#text} > longest)); then
		for i in "${!new[@]}"; do
			if ((${#new[i]} > longest)); then new[i]=${new[i]: -longest}; fi
		done
	fi
	if [[ ${new[*]} == *"$escape"* ]]; then
		printf '%s\n' "${new[@]}" >"$log/text"
		lines_from new sed -E "$no_colours" "$log/text"
	fi
	lines+=("${new[@]}")
}

# lines_from VARIABLE COMMAND...: an array of the lines that it prints. From a pipe, or from a
# here-string, bash would read each byte with a system call of its own, and that takes long.
# Returns the status of the command.
lines_from() {
	local result=0
	"${@:2}" >"$log/lines" || result=$?
	mapfile -t "$1" <"$log/lines"
	return $result
}

# A program that floods is stopped, though it may print whatever it likes up to then.
floods() { ((${#lines[@]} > most_lines)); }

# alive PID: does this child of ours go on? If two children end at about the same time, bash
# may not notice the second one, which stays in /proc as a zombie until something else ends.
# A zombie that still has a second thread does go on. A process that has a program is no zombie.
alive() {
	local stat='' fields
	if [[ -e /proc/$1/exe ]]; then return 0; fi
	read -r stat <"/proc/$1/stat" || return
	read -ra fields <<<"${stat##*) }"
	[[ ${fields[0]} != Z || ${fields[17]:-2} != 1 ]]
} 2>/dev/null

running() { alive "$pid"; }

# Each wait has the whole `deadline`, so that nobody pays for what the grader did before.
wait_begins() {
	wait_ends=$((spent + deadline * 1000))
	most_naps=$((naps + deadline * 1000 * 2 / 3 / nap_ms))
}

# Is the wait over, or has the program used up its share of all time? When nap() finds the machine
# faster than before, `spent` jumps. So the wait must also have had two thirds of its naps.
late() {
	used_up=0
	if ((spent > share)); then
		used_up=1
		return 0
	fi
	((spent > wait_ends && naps > most_naps))
}

# is_line LINE WANTED: is it this one? Half a line of the student's own may stand before it. But
# `all` may be the end of another word.
is_line() {
	[[ $1 == "$2" || $1 == *[![:alpha:]]"$2" || ${#2} -gt 3 && $1 == *"$2" ]]
}

# is_checkpoint LINE. Bash takes long to compare a long line, so its end must do.
is_checkpoint() {
	local end=$1
	if ((${#1} > 60)); then
		end=${1: -60}
	fi
	[[ $end == *CHECKPOINT\ +([a-z]) ]]
}

# stands_at I: is line I a CHECKPOINT, at which the program waits? A line of the student's own
# may look like one: then the program prints more, or does not read its standard input.
stands_at() {
	local thread call fd
	is_checkpoint "${lines[$1]}" || return
	[[ ${lines[$1]} != "CHECKPOINT "@($checkpoints) ]] || return 0
	(($1 == ${#lines[@]} - 1)) || return
	while read -r thread; do
		call='' fd=''	# the thread may be gone
		read -r call fd _ <"/proc/$thread/syscall"
		if [[ ${call_names[$call]:-} == read && $fd == 0x0 ]]; then
			# It may have printed the true one since the output was read.
			read_output
			(($1 == ${#lines[@]} - 1))
			return
		fi
	done <"$cg/$group/cgroup.threads" 2>/dev/null
	return 1
}

# until_line LINE [COMMAND]: waits until the program has printed it, after those that were waited
# for before. Not any longer when it has ended, or waits at another CHECKPOINT, or the command
# holds.
until_line() {
	local ended='' i=$next_line
	wait_begins
	while :; do
		if ! running; then
			ended=1
		fi
		read_output
		for (( ; i < ${#lines[@]}; i++)); do
			# Most lines are neither, and some programs print thousands.
			[[ ${lines[i]} == *"$1" || ${lines[i]} == *CHECKPOINT* ]] || continue
			if ! is_line "${lines[i]}" "$1"; then
				if [[ $input ]] && stands_at "$i"; then return 1; fi
			elif [[ $1 != CHECKPOINT* ]] || stands_at "$i"; then
				next_line=$((i + 1))
				return 0
			fi
			if is_checkpoint "${lines[i]}" && ((i == ${#lines[@]} - 1)); then
				break # it may stand there in a moment
			fi
		done
		if [[ $ended ]]; then
			return 1
		elif late || floods; then
			timed_out=1
			return 1
		elif "${2:-false}"; then
			return 1
		fi
		nap
	done
}

# at NAME: does the program come to this CHECKPOINT?
at() { until_line "CHECKPOINT $1"; }

# Is it at a CHECKPOINT already, while something else is waited for?
at_another() {
	read_output
	[[ $input ]] && ((${#lines[@]} > next_line)) || return
	# Twice, because the true line may come meanwhile.
	stands_at $((${#lines[@]} - 1)) || stands_at $((${#lines[@]} - 1))
}

# waits_until THREAD ADDRESS: sets `waits_ms` for a call whose deadline is a struct at ADDRESS that
# begins with a number of seconds. There is none if ADDRESS is 0.
waits_until() {
	local seconds
	if (($2)); then
		seconds=$(dd if="/proc/$1/mem" bs=1 skip="$(($2))" count=4 status=none | od -An -t u4)
		waits_ms=$((seconds * 1000 + 999))	# whatever the rest of a second is
	fi
}

# Sets `busy` to the microseconds that the program's threads have had a processor,
# `wakings` to how often, `where` to the names of the system calls they are in, or their
# numbers, "Enter", or "running", and `sleeping` if they are asleep, and one of them waits for
# something other than its standard input: for `waits_ms` milliseconds, if the call says so.
look_at_threads() {
	local thread all=() time times call fd second third fourth fifth name waits=''
	busy=0 wakings=0 where='' sleeping=1 waits_ms=0
	mapfile -t all <"$cg/$group/cgroup.threads"
	if ((${#all[@]} > most_threads)); then most_threads=${#all[@]}; fi
	for thread in "${all[@]}"; do
		time=0 times=0 call=none fd=''
		read -r time _ times <"/proc/$thread/schedstat"
		read -r call fd second third fourth fifth _ <"/proc/$thread/syscall"
		((busy += time / 1000, wakings += times))
		name=${call_names[$call]:-$call}
		# The kernel may interrupt a poll(2), or a sleep, though there is no signal, and go on
		# with it like this. The arguments stay the same.
		if [[ $name == restart_syscall ]]; then name=${call_before[$thread]:-$name}; fi
		call_before[thread]=$name
		if [[ $name == read && $fd == 0x0 ]]; then
			name=Enter
		fi
		where+=${where:+ }$name
		if [[ $name == @(running|none) ]]; then
			sleeping=''
		elif [[ $name == ?(p)poll && $second == 0x0 || $name == select && $fd == 0x0 ]]; then
			: # This waits for nothing but time.
		elif [[ $waiting_calls == *" $name "* ]]; then
			waits=1
			case $name in
			# A negative number has the highest of 32 bits, and means no deadline.
			poll) ((waits_ms = third & 0xffffffff)) ;;
			epoll_wait) ((waits_ms = fourth & 0xffffffff)) ;;
			ppoll) waits_until "$thread" "$third" ;;
			epoll_pwait2) waits_until "$thread" "$fourth" ;;
			select) waits_until "$thread" "$fifth" ;;
			esac
		fi
	done 2>/dev/null
	if [[ ! $waits ]]; then
		sleeping=''
	fi
}

# Sets `evidence` to what the threads are doing.
describe_threads() {
	local call words=()
	for call in $where; do
		case $call in
		none) ;;
		running) words+=("it is busy: it polls, or loops") ;;
		Enter) words+=("it waits for Enter, at a CHECKPOINT") ;;
		futex) words+=("it waits for a lock, or inside the library") ;;
		[0-9]*) words+=("it is in system call $call") ;;
		*) words+=("it is in $call()") ;;
		esac
	done
	printf -v evidence '%s, ' "${words[@]:-it has ended}"
	evidence=${evidence%, }
}

# Does the program sleep, or soon, until the kernel has something for it? All that counts
# is what it has asked the kernel for, and that it has no processor meanwhile.
asleep() {
	local before='' deadline=5	# for wait_begins()
	wait_begins
	until late; do
		look_at_threads
		if [[ $sleeping && $wakings == "$before" ]]; then
			return 0
		fi
		before=$wakings
		if ! running || at_another; then
			break
		fi
		nap
	done
	describe_threads
	return 1
}

# Does it wait for an event, and did it at the last look, and was not awake meanwhile? A number in
# `where` is another system call, or a page fault, which may last for a moment.
sleeps_still() {
	local before=$wakings slept=$sleeping
	look_at_threads
	[[ $slept && $sleeping && $wakings == "$before" && " $where" != *' '[-0-9]* ]] &&
		describe_threads
}

# Has it woken up, and said so?
wakes_up() {
	if until_line awake; then return; fi
	look_at_threads
	describe_threads
	return 1
}

# Does it stay asleep for a third of a second? Now and then it may wake up, and look. How
# long a thread has had a processor counts only if it has one now: on a busy machine much
# of that time was somebody else's.
stays_asleep() {
	local since
	look_at_threads
	local busy_before=$busy before=$wakings
	now_ms since
	nap 0.35
	look_at_threads
	now_ms ms
	wakings=$((wakings - before)) busy=$((busy - busy_before))
	if [[ $where == *running* ]] && ((busy >= 100000)); then
		evidence="it is busy: it polls, or loops"
		return 1
	elif ((wakings > 2 + (ms - since) / 100)); then
		evidence="it wakes up again and again"
		return 1
	fi
	running
}

# Does it stay asleep for more than a second? Some wait for an event for a second, and then go
# on without one.
sleeps_on() {
	local i
	for i in 1 2 3 4; do
		stays_asleep || return
	done
	asleep
}

# The same, and those who wait for some seconds may go on waiting then, and nothing else.
# From 10 seconds on it is a deadline: the exercise calls that TIMEOUT.
sleeps_long() {
	local begun_ms wait
	sleeps_on || return
	wait=$waits_ms
	if ((wait > 0 && wait < 10000)); then
		now_ms begun_ms
		until now_ms ms && ((ms > begun_ms + wait)); do
			nap
		done
		asleep && return
		evidence="it waited for $wait ms, and then it did not wait again"
		return 1
	fi
}

# Enter: the program may leave its CHECKPOINT. There is a limit, because a program that does not read
# fills the pipe, and then we would wait for ever.
go() {
	if [[ $input ]] && ((++enters < 1000)); then
		echo >&"$input"
	fi
}

# Waits until the kernel has released all that the programs had: however it ends, a process that
# has many objects may take seconds for that, and hold its files and ports as long. Fails if a file
# stays open without any process.
until_gone() {
	local events state looks=0
	for events in "$cg"/run-*/cgroup.events; do
		while mapfile -t state <"$events" && [[ ${state[*]} != *'populated 0'* ]]; do
			nap
		done
	done
	while files_open; do
		((++looks < 100)) || return
		"$build/tests/grading/peer" sweep
		nap
	done
}

# Is a file of the verbs or of the RDMA CM open? The kernel counts each such file as a use of the
# module that it belongs to, and so it counts each module that depends on that one. So if there are
# more uses than such modules, a file is open. A program may have left it in a message: see sweep.h.
# Then a queue pair would go on, and a device could not be deleted.
files_open() {
	local module uses modules
	for module in ib_uverbs rdma_ucm; do
		uses=0 modules=(/sys/module/$module/holders/*)	# neither is there if it is built in
		read -r uses <"/sys/module/$module/refcnt"
		if ((uses > ${#modules[@]})); then return 0; fi
	done 2>/dev/null
	return 1
}

# The program's end, whatever it is doing.
stop() {
	if [[ $group && ! $status ]]; then
		timed_out=1
		finish
	fi
}

# Has a program that should be through soon made no progress for `patience`? A check may
# name a function in `progress_function`, which sets `progress_mark` to what changes as
# long as the program goes on, `stall_words` to the words for when it doesn't, and
# `idle_looks` to 0 where it may take its time. How often we slept counts: a busy machine
# makes nobody late.
hangs() {
	local before=$progress_mark stall_words=''
	[[ $progress_function ]] || return 1
	"$progress_function"
	if [[ $progress_mark != "$before" ]]; then
		idle_looks=0
	fi
	((idle_looks += 1))
	((idle_looks * nap_ms > patience)) || return 1
	stalled=$stall_words
}

# For `progress_function`: it goes on as long as it runs, or wakes now and then. It may sleep for ever
# in any call.
wakes() {
	look_at_threads
	progress_mark=$wakings
	if [[ $where == *running* ]]; then
		idle_looks=0
	fi
	stall_words="it slept, and nothing woke it up"
}

# The same, but the only sleep that counts is one for an event.
awake() {
	wakes
	if [[ ! $sleeping ]]; then
		idle_looks=0
	fi
}

# As long as messages do; before the first one it may take its time.
sends() {
	counted rdma_sends
	progress_mark=$value
	if ((value == 0)); then
		idle_looks=0
	fi
	stall_words="it sent no more, and was busy"
}

# Sets `kernel_view` to what the kernel has of a program that does not come to an end.
take_view() {
	local evidence object objects value
	look_at_threads
	describe_threads
	kernel_view=$evidence
	kernel qp
	for object in "${objects[@]:0:2}"; do
		field state "$object"
		kernel_view+="; a queue pair in $value"
	done
}

# until_ended [COMMAND]: until the program has ended, or must be ended. After each look at its
# output, the command is run.
until_ended() {
	wait_begins
	while running && [[ ! $timed_out ]]; do
		read_output
		"${1:-:}"
		if { late || floods || hangs; } && running; then
			timed_out=1
		fi
		nap
	done
}

# The end of a program's input, and of the program: sets `status`, leaves nothing.
finish() {
	if [[ $input ]]; then
		exec {input}>&-
	fi
	input=''
	until_ended
	if [[ $timed_out ]]; then
		take_view
	fi
	status=0
	echo 1 >"$cg/$group/cgroup.kill"
	wait "$pid" 2>/dev/null || status=$?
	read_output
	if [[ $half_line ]]; then
		echo >>"$out"
		read_output
	fi
}

# walk: presses Enter at each CHECKPOINT until the program has ended. A run in which no verb
# fails looks the same, so the program cannot tell from its input which kind of run this is.
walk() {
	until_ended pass_checkpoints
	finish
}
pass_checkpoints() {
	for (( ; next_line < ${#lines[@]}; next_line++)); do
		if [[ ${lines[next_line]} == *CHECKPOINT* ]] && is_checkpoint "${lines[next_line]}"; then
			go
		fi
	done
}

# run PROGRAM [ARG...]: from its start to its end.
run() {
	start "$@"
	finish
}

# ends_with STATUS
ends_with() { [[ $status ]] && ((status == $1)); }

# printed PATTERN: has the program printed a line like this?
printed() {
	local line
	for line in "${lines[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		if [[ $line == $1 ]]; then
			return 0
		fi
	done
	return 1
}

# Has it printed an event, or its status, that was freed before? See `fill` in the runner.
reads_freed() { printed '*@(UNKNOWN EVENT|1515870810|5a5a5a5a)*'; }

# find_lines FORM: sets `found` to the lines of this form, a regular expression, without
# what stands before it, and `whole` to those before which there is nothing. All other lines
# are the student's own business. So are those that have more before it and repeat a line that
# is there without. If what stands before it ends in a letter, or in a -, of which the rights of
# chapter 02 consist, it may be a part of another word: such lines count if there are no others.
# If it is not certain which lines count, `mixed` is set; and then `reading` can say that the
# `whole` ones do, or `all`. Of all there are `most_found`. See expect().
find_lines() {
	local line before text split=() all=() begin=$'\1' mark=$'\2'
	local -A alone=()
	found=() whole=()
	printf '%s\n' "${lines[@]}" >"$log/text"
	# sed prints what stands before it, the mark, and it. Bash would take a millisecond a line.
	lines_from split sed -nE "y/$begin$mark/??/
		s$begin^($1)[[:space:]]*\$$begin$mark\\1${begin}p; t
		s$begin^(.*)($1)[[:space:]]*\$$begin\\1$mark\\2${begin}p" "$log/text"
	for line in "${split[@]}"; do
		[[ $line == "$mark"* ]] || continue
		whole+=("${line#?}")
		alone[=${line#?}]=1
	done
	if ((${#whole[@]} == ${#split[@]})); then
		found=("${whole[@]}") most_found=${#whole[@]}
		return
	fi
	for line in "${split[@]}"; do
		before=${line%%"$mark"*} text=${line#*"$mark"}
		[[ ! $before || ! ${alone[=$text]:-} ]] || continue
		all+=("$text")
		if [[ $before != *[-[:alnum:]] ]]; then
			found+=("$text")
		fi
	done
	most_found=${#all[@]}
	if ((!${#found[@]})); then
		found=("${all[@]}")
	elif ((${#whole[@]} && ${#whole[@]} < ${#all[@]} || ${#found[@]} < ${#all[@]})); then
		mixed=1
		if [[ $reading == all ]]; then
			found=("${all[@]}")
		elif [[ $reading == whole ]] && ((${#whole[@]})); then
			found=("${whole[@]}")
		fi
	fi
}

# until_printed N FORM: has it printed N lines of this form, or does it soon? Then `found`
# holds them.
until_printed() {
	local over='' seen=''
	most_found=0
	wait_begins
	while :; do
		# What it printed before it stopped has to be counted as well.
		if ! running || at_another; then
			over=1
		fi
		read_output
		if late; then
			over=1
		fi
		if [[ $seen != "${#lines[@]}" ]] && { [[ $over ]] || ((${#lines[@]} >= $1)); }; then
			find_lines "$2"
			seen=${#lines[@]}
		fi
		if ((most_found >= $1)); then
			return 0
		elif [[ $over ]]; then
			return 1
		fi
		nap
	done
}

# one_line FORM LIKE: is there one line of this form, a regular expression, however often?
# `found` holds it. What is only like it is shown to those who have none of the form.
one_line() {
	prints "$@" || return
	evidence="printed: ${found[*]}"
	all_same "${found[@]}"
}

# all_same WORD...: is each of them the first one?
all_same() {
	local word
	for word; do
		[[ $word == "$1" ]] || return
	done
}

# prints FORM LIKE: has it printed a line of this form, or several? What is only like it is
# shown to those who have not.
prints() {
	find_lines "$1"
	if ((${#found[@]})); then
		return 0
	fi
	find_lines "$2"
	evidence="printed: ${found[*]:-no such line}"
	return 1
}

# prints_only LINE FORM LIKE: is this the one line of this form?
prints_only() { one_line "$2" "$3" && [[ ${found[0]} == "$1" ]]; }

# not_written ID: sets `message` to the line in which the program says that the body of
# this check isn't written yet, if it does.
not_written() {
	find_lines "TODO ${1/./\\.} not written yet"
	message=${found[0]:-}
}

# Has the given main() of chapter 02 refused the letters? Its exit status shows that, but only if
# release() works; and so does its message, if it went no further.
refuses_letters() {
	ends_with 2 ||
		{ printed '*@(not the letters of rights:|access_flags\(\) refuses) *' &&
			! printed '*CHECKPOINT registered'; }
}
