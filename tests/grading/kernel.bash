# What the runner asks the kernel about the program that is checked: its objects, the calls of
# the driver's functions that it has caused, the device's counters. No program can make the
# kernel say what it likes.
# shellcheck shell=bash

tracing=/sys/kernel/tracing
most_objects=1000	# of those that rdma(8) lists; no program needs that many

# --- objects -----------------------------------------------------------------

# kernel KIND: sets `objects` to what the kernel has of this kind (qp, mr, cq, pd, ctx) that
# is the program's, or its children's, a line each; and `resources` to what it has at all. The
# kernel gives the number of the thread that made an object, or the name of its own module, and
# neither if that thread has ended. Then the object counts as the program's, because only the
# program leaves any.
kernel() {
	local i owner listed threads=()
	objects=()
	mapfile -t threads <"$cg/$group/cgroup.threads"
	# At most 512 KiB, because a program may have made many thousands.
	(ulimit -f 512 && exec rdma -d resource show "$1") >"$log/resources" &
	looker_pids+="$! "
	wait $! 2>/dev/null
	mapfile -t -n $most_objects listed <"$log/resources"
	# The name of a process comes last, and is what the process likes it to be.
	resources=("${listed[@]/% ?(comm *)/}")
	for i in "${!resources[@]}"; do
		if [[ "${resources[i]} " =~ ' pid '([0-9]+)' ' ]]; then
			owner=${BASH_REMATCH[1]}
			[[ " ${threads[*]} " == *" $owner "* || ! -e /proc/$owner ]] || continue
		else
			[[ ${listed[i]} != *' comm '* && ${listed[i]} == *' '@(ctxn|pdn)' '* ]] || continue
		fi
		objects+=("${resources[i]}")
	done
}

# released KIND...: is nothing left of these kinds? The context must be the one that
# keep_context() has seen: closing that one releases everything, too, but is not the task.
released() {
	local kind
	evidence="rdma resource show:"
	for kind; do
		kernel "$kind"
		evidence+=" $kind ${#objects[@]}"
		if ((${#objects[@]})); then
			return 1
		fi
	done
	kernel ctx
	evidence+=" ctx ${#objects[@]}"
	[[ $context && ${objects[*]%% pid *} == "$context" ]]
}

keep_context() {
	kernel ctx
	context=${objects[*]%% pid *}
}

# field NAME OBJECT: sets `value`.
field() {
	value=''
	[[ " $2 " =~ " $1 "([^ ]+) ]] || return 1
	value=${BASH_REMATCH[1]}
}

# Is the program's queue pair in RTS?
in_rts() {
	kernel qp
	evidence=${objects[0]:-no queue pair}
	[[ $evidence == *" state RTS "* ]]
}

# Has our queue pair not gone from RTS to ERR? Sets `ours` and `theirs`.
not_failed() {
	both_queue_pairs
	! has state ERR || { calls_of modify 'state=3 *' && ((!${#calls[@]})); }
}

# Sets `ours` and `theirs` to the queue pairs of the program and of the peer.
both_queue_pairs() {
	kernel qp
	ours=${objects[0]:-no queue pair}
	if ((${#objects[@]} > 1)); then
		ours="${#objects[@]} queue pairs"
	fi
	for theirs in "${resources[@]}"; do
		[[ "$theirs " != *" pid $peer_pid "* ]] || return 0
	done
	theirs=''
}

# has FIELD VALUE: does the kernel say this of our queue pair?
has() {
	field "$1" "$ours"
	evidence=$ours
	[[ $value == "$2" ]]
}

# same OURS THEIRS: has our queue pair in one field what the peer's has in the other?
same() {
	local wanted
	field "$2" "$theirs"
	wanted=$value
	field "$1" "$ours"
	printf -v evidence "your %s: 0x%06x, the peer's %s: 0x%06x" \
		"$1" "${value:-0}" "$2" "${wanted:-0}"
	[[ $value && $value == "$wanted" ]]
}

# Is our queue pair connected to the peer's, and to its GID? See move_gid().
right_peer() {
	same rqpn lqpn || return
	evidence="ah_attr.grh.dgid is another GID than that of the address which the peer has sent"
	goes_to_peer
}

# Has each queue pair that GID of the peer's which world.c knows?
goes_to_peer() { ! told ELSEWHERE; }

# both FIELD VALUE OTHER: has A the VALUE, and B the OTHER? See qp().
both() { qp A "$1" "$2" && qp B "$1" "$3"; }

# both_in STATE: are both in this state, and of the type RC?
both_in() { both state "$1" "$1" && both type RC RC; }

# Does each of two queue pairs expect what the other one sends, with the PSNs asked for?
each_expects() {
	local -A number=()
	local object name=A
	evidence="${#objects[@]} queue pairs"
	((${#objects[@]} == 2)) || return
	for object in "${objects[@]}"; do
		field lqpn "$object"
		number[$name]=$value
		name=B
	done
	both state RTS RTS && both rqpn "${number[B]}" "${number[A]}" &&
		both sq-psn "$1" "$2" && both rq-psn "$2" "$1"
}

# Has the step from RESET to RTR been tried, and did the kernel refuse it?
refused_first() {
	prints_only 'RESET -> RTR: EINVAL' 'RESET -> RTR: E([A-QS-Z]|R[A-QS-Z])[A-Z0-9]+' \
		'RESET -> RTR.*' || return
	evidence+="; ibv_modify_qp() was not called"
	told TO_RTR
}

# has_keys REGION LKEY RKEY: are these its keys? On a 32-bit processor, rdma(8) prints random
# digits before those of a key.
has_keys() {
	field lkey "$1"
	(((value & 0xffffffff) == $2)) && field rkey "$1" && (((value & 0xffffffff) == $3))
}

# has_region SIZE: is there a region of SIZE bytes, in the protection domain of a queue pair?
has_region() {
	local region domains=' '
	kernel qp
	for region in "${objects[@]}"; do
		field pdn "$region" && domains+="$value "
	done
	kernel mr
	evidence=${objects[*]:-no memory region}
	for region in "${objects[@]}"; do
		[[ "$region " == *" mrlen $1 "* ]] && field pdn "$region" || continue
		evidence="$region; the queue pairs are in domain${domains% }"
		[[ $domains != *" $value "* ]] || return 0
	done
	return 1
}

# qp NAME FIELD VALUE...: has the queue pair that the program calls NAME these in the
# kernel?
qp() {
	local name=$1 object had
	shift
	for object in "${objects[@]}"; do
		[[ " $object " == *" lqpn ${number[$name]:-none} "* ]] || continue
		while (($#)); do
			field "$1" "$object"
			had=$value
			if [[ $1 == *psn ]]; then
				printf -v had '0x%06x, not 0x%06x' "$value" "$2"
			else
				had+=", not $2"
			fi
			evidence="$name: ${1/-/_} $had"
			[[ $value == "$2" ]] || return 1
			shift 2
		done
		return 0
	done
	evidence="$name: no queue pair with the number ${number[$name]:-that was printed}"
	return 1
}

# --- calls -------------------------------------------------------------------

# probe NAME FUNCTION ARGUMENT...: from now on the kernel writes down each call of one of
# its functions, with the arguments given as in its own documentation, trace/kprobetrace.rst;
# or, if NAME begins with `:`, each return.
probe() {
	local name=${1#:} kind=p
	if [[ $1 == :* ]]; then
		kind=r
	fi
	if [[ ! -e $tracing/trace ]]; then
		mount -t tracefs tracing "$tracing" || give_up "cannot trace"
		echo 0 >"$tracing/options/record-cmd" || give_up "cannot trace"
		# For some thousand calls: to go through more takes too long.
		echo 128 >"$tracing/buffer_size_kb" || give_up "cannot trace"
	fi
	if [[ ! -e $tracing/events/kprobes/$name ]]; then
		echo "$kind:$name $2 ${*:3}" >>"$tracing/kprobe_events" || give_up "cannot trace $2"
	fi
	echo 1 >"$tracing/events/kprobes/$name/enable" || give_up "cannot trace $2"
}

# What another program was asked about fills the trace, and makes it longer to go through.
no_probes() {
	if [[ -e $tracing/events/kprobes ]]; then
		echo 0 >"$tracing/events/kprobes/enable" || give_up "cannot trace"
	fi
}

# A program that filters its own system calls, or those of a child, may keep world.c from telling
# what it sees: by seccomp(2), Landlock, system call user dispatch, or ptrace(2). Not every kernel
# has all of these functions; then nobody is caught by them. They stay watched for later programs.
watch_filters() {
	local function i=0
	if [[ ! -e $tracing/events/filters ]]; then
		for function in do_seccomp set_syscall_user_dispatch __ptrace_link \
			__{x64,arm64,ia32}_sys_landlock_restrict_self; do
			echo "p:filters/filtered$((++i)) $function" >>"$tracing/kprobe_events"
		done 2>/dev/null
		echo 1 >"$tracing/events/filters/enable" || give_up "cannot trace"
	fi
	count_filters
	filters_before=$filters
}

# Has this program put a filter on its system calls?
filters_calls() { count_filters && ((filters > filters_before)); }

# Sets `filters` to how often any program has.
count_filters() {
	local name hits
	filters=0
	while read -r name hits _; do
		if [[ $name == filtered* ]]; then
			((filters += hits))
		fi
	done <"$tracing/kprobe_profile"
}

# calls_of PROBE [PATTERN]: sets `calls` to what the kernel has written down for it since
# start(): the arguments of each call, a line each, that match. Those of the peer and of our
# own looking, which asks the driver as well, do not count. If the trace has lost calls, the array is
# empty and the status 1: a program could fill the trace until only those are left that it wants seen.
calls_of() {
	local line args thread all=() pattern=${2:-*} file entries=0
	calls=()
	for file in "$tracing"/per_cpu/cpu*/stats; do
		mapfile -t all <"$file"
		[[ ${all[1]} == 'overrun: 0' ]] || return
		((entries += ${all[0]#entries: }))
	done
	# Bash takes longer to go through many lines than it takes to start a command.
	if ((entries > 150)); then
		lines_from all grep -F ": $1: (" "$tracing/trace"
		(($? < 2)) || return
	else
		mapfile -t all <"$tracing/trace"
	fi
	# Such as ` <...>-123 [000] ..... 45.678: arm: (rxe_req_notify_cq+0x0/0x80) flags=0x2`. Most
	# lines are others, and a regular expression takes five times as long to see that.
	for line in "${all[@]}"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $line == *": $1: ("*$pattern ]] || continue
		args=${line#*": $1: ("}
		args=${args#*)} thread=${line%%' ['*}
		args=${args# } thread=${thread##*-}
		# shellcheck disable=SC2053
		if [[ $args == $pattern && " $peer_pid$looker_pids" != *" ${thread// /} "* ]]; then
			calls+=("$args")
		fi
	done
	return 0
}

# until_called PROBE N [PATTERN]: as often as N times, or soon? Sets `calls`.
until_called() {
	local deadline=5
	wait_begins
	until calls_of "$1" "${3:-*}" && ((${#calls[@]} >= $2)); do
		if ! running || late; then
			return 1
		fi
		nap
	done
}

# called_often PROBE N [PATTERN]: as often as N times?
called_often() {
	calls_of "$1" "${3:-*}"
	evidence="${#calls[@]} calls"
	((${#calls[@]} >= $2))
}

# What each call asks for that no list of the kernel's shows: the path MTU, where 3 is 1024,
# and what the peer may do.
watch_modify() {
	# shellcheck disable=SC2016 # they are the kernel's; struct ib_qp_attr
	probe modify rxe_modify_qp 'state=+0($arg2):u32' 'mtu=+8($arg2):u32' 'qp=$arg1' \
		'access=+32($arg2):x32' 'mask=$arg3:x32'
}

# shellcheck disable=SC2016 # it is the kernel's
watch_queries() { probe query rxe_query_qp 'mask=$arg3:x32' 'qp=$arg1'; }

# read_back NAME SENT RECEIVED FIRST PEERS: does the program print the PSNs SENT and RECEIVED, and
# has it asked the device about both queue pairs? 0x11001 are IBV_QP_STATE, IBV_QP_RQ_PSN and
# IBV_QP_SQ_PSN. FIRST and PEERS are the arguments: it may print these for comparison.
read_back() {
	local hex='0[xX]([0-9a-fA-F]{6})' line right='' call mask all=0
	local -A masks=()
	# It may show more, such as the state after the error, 6. But no line may have other PSNs.
	local lines=("${lines[@]:from}")
	prints "$1: state [0-9], sq_psn $hex, rq_psn $hex" "$1: state .*" || return
	evidence="printed: ${found[*]}"
	for line in "${found[@]}"; do
		[[ $line =~ ^$1:\ state\ ([36]),\ sq_psn\ $hex,\ rq_psn\ $hex$ ]] || return
		if ((16#${BASH_REMATCH[2]} == $4 && 16#${BASH_REMATCH[3]} == $5)); then
			continue
		fi
		((16#${BASH_REMATCH[2]} == $2 && 16#${BASH_REMATCH[3]} == $3)) || return
		if ((BASH_REMATCH[1] == 3)); then right=1; fi
	done
	[[ $right ]] || return
	calls_of query
	for call in "${calls[@]}"; do
		read -r mask call <<<"$call"
		masks[$call]=$((${masks[$call]:-0} | ${mask#mask=}))
	done
	for mask in "${masks[@]}"; do ((all += (mask & 0x11001) == 0x11001)); done
	evidence="ibv_query_qp() asked for state, sq_psn and rq_psn of $all queue pairs, not 2"
	((all >= 2))
}

right_psns() { same rq-psn sq-psn && same sq-psn rq-psn; }

right_mtu() {
	calls_of modify 'state=2 *'
	local asked=${#calls[@]}
	calls_of modify 'state=2 mtu=3 *'
	evidence="path_mtu: ${#calls[@]} of $asked calls that ask for RTR have IBV_MTU_1024"
	((asked && ${#calls[@]} == asked))
}

# Sets `flags` to what LETTERS are as values of `enum ibv_access_flags`.
access_flags() {
	flags=0
	if [[ $1 == *L* ]]; then ((flags |= 1)); fi
	if [[ $1 == *W* ]]; then ((flags |= 2)); fi
	if [[ $1 == *R* ]]; then ((flags |= 4)); fi
	if [[ $1 == *A* ]]; then ((flags |= 8)); fi
	printf -v flags 0x%x "$flags"
}

# only NAME TEXT COUNT: if as many entries of this array have TEXT in them, the others are left out.
only() {
	local -n entries=$1
	local entry right=()
	for entry in "${entries[@]}"; do
		if [[ " $entry " == *" $2 "* ]]; then
			right+=("$entry")
		fi
	done
	if ((${#right[@]} >= $3)); then
		entries=("${right[@]}")
	fi
}

# registrations SIZE COUNT: sets `calls` to what was registered, and regions() sets `objects` to the
# regions that there are. A program may register other memory, too: if as many regions as asked for
# have the right size, only these count.
registrations() { calls_of reg_mr && only calls "length=$1" "$2"; }
regions() { kernel mr && only objects "mrlen $length" ${#granted[@]}; }

# Has the kernel granted some of what it should have refused, by the flags of the letters? Sets
# `calls` as registrations() does.
granted_too_much() {
	local letters
	registrations "$length" ${#granted[@]}
	for letters in "${refused[@]}"; do
		find_lines "$letters: lkey $key rkey $key"
		evidence="the flags of $letters would have been refused; printed: ${whole[*]}"
		if ((${#whole[@]} && ${#calls[@]} > ${#granted[@]})); then return 0; fi
	done
	return 1
}

# Was what the kernel refused tried again, with other flags?
tried_again() { granted_too_much && calls_of asked && ((${#calls[@]} > ${#ask[@]})); }

# Has the kernel got the flags of the letters in `granted`, in their order, or are the regions made
# in another order and right? Some may be missing, or each may come more than once: how many regions
# there are is another question. Those in `refused` it must not grant. Sets `seen` to all flags
# that it has got.
right_flags() {
	local letters flags wanted=() got=() next=0 missing='' refusals
	seen=0
	calls_of asked
	refusals=${#calls[@]}
	calls_of reg_mr
	((refusals -= ${#calls[@]}))
	! granted_too_much || return
	got=("${calls[@]##*access=}")
	for flags in "${got[@]}"; do
		((seen |= flags))
	done
	# Some of the wanted flags may be missing, but not in another order.
	for letters in "${granted[@]}"; do
		access_flags "$letters"
		wanted+=("$flags")
		if [[ ${got[next]:-} == "$flags" ]]; then
			((next += 1))
		elif [[ ! $missing ]]; then
			missing="; the first that is missing is $flags, of $letters"
		fi
	done
	evidence="ibv_reg_mr() got ${got[*]}, and should get ${wanted[*]}$missing"
	# The kernel refuses some flags before the driver sees them. A refused call may be made again.
	if ((next && next < ${#wanted[@]} && refusals > ${#refused[@]})); then
		evidence+="; $refusals calls were refused"
		return 1
	fi
	# Each call may also have been made several times in a row.
	((next == ${#got[@]})) ||
		[[ $(printf '%s\n' "${got[@]}" | uniq) == $(printf '%s\n' "${wanted[@]}" | uniq) ]] ||
		regions_fit
}

key='0[xX]([0-9a-fA-F]{8})'

# about LETTERS: sets `found` to what the program says of it, in the form asked for.
about() {
	one_line "$1: (lkey $key rkey $key|refused E[A-Z0-9]+)" "$1: (lkey|refused) .*"
}

right_keys() {
	local i
	for i in "${!granted[@]}"; do
		about "${granted[i]}" &&
			[[ ${found[0]} =~ ^${granted[i]}:\ lkey\ $key\ rkey\ $key$ ]] || return
		# The digits are not shown, because they are others each time.
		evidence="${granted[i]}: the form is right, and the keys are not those of its region"
		has_keys "${objects[i]}" $((16#${BASH_REMATCH[1]})) $((16#${BASH_REMATCH[2]})) ||
			regions_fit || return
	done
}

# Sets `objects` to the regions that count, as registrations() does. Does each line that is granted
# have the keys of another one, which was registered with the flags of its letters?
regions_fit() {
	local letters flags lkey rkey i left missing=$evidence
	regions && registrations "$length" ${#granted[@]}
	((${#calls[@]} == ${#objects[@]} && ${#calls[@]} == ${#granted[@]})) || return
	left=("${!objects[@]}")
	for letters in "${granted[@]}"; do
		about "$letters" && [[ ${found[0]} =~ \ lkey\ $key\ rkey\ $key$ ]] || break
		lkey=$((16#${BASH_REMATCH[1]})) rkey=$((16#${BASH_REMATCH[2]}))
		access_flags "$letters"
		for i in "${left[@]}"; do
			if [[ ${calls[i]##*access=} == "$flags" ]] &&
				has_keys "${objects[i]}" "$lkey" "$rkey"; then
				unset "left[i]"
				continue 2
			fi
		done
		break
	done
	evidence=$missing
	((!${#left[@]}))
}

# Are there as many regions as rights in `granted`, and one domain, and was each of `ask` asked for?
right_count() {
	local domains
	kernel pd
	domains=${#objects[@]}
	regions
	calls_of asked
	evidence="${#objects[@]} regions; ${#calls[@]} calls of ibv_reg_mr(), for ${#ask[@]} arguments"
	if ((domains > 1)); then
		evidence+="; $domains protection domains"
		return 1
	fi
	((${#objects[@]} == ${#granted[@]} && ${#calls[@]} >= ${#ask[@]}))
}

# Has each region in `calls` the same address for the peer (iova) as for the program?
own_addresses() {
	local region
	for region in "${calls[@]}"; do
		evidence="a region has another address for the peer (iova) than for the program: $region"
		[[ $region =~ ^start=([0-9]+)\ .*\ iova=([0-9]+)\  ]] &&
			[[ ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" ]] || return
	done
	evidence=''
}

# all_have SIZE COUNT: has each region that was ever registered so many bytes, and do all begin at
# the same address? See registrations().
all_have() {
	local region
	registrations "$1" "$2" && own_addresses || return
	evidence="${#calls[@]} regions were registered in all, and $2 arguments need one"
	((${#calls[@]} >= $2)) || return
	for region in "${calls[@]}"; do
		evidence="a region that has other bytes: $region"
		[[ $region == *" length=$1 "* ]] || return
	done
	evidence="ibv_reg_mr(): ${calls[*]%% *}"
	all_same "${calls[@]%% *}"
}

# No key tells the rights: since Linux 6.3 rxe gives each region an rkey, and LOCAL_WRITE
# never showed.
watch_registrations() {
	# shellcheck disable=SC2016 # they are the kernel's
	local start='$arg2:u64' length='$arg3:u64' iova='$arg4:u64' access='$arg5:x32'
	# On a 32-bit processor, a number of 64 bits takes the places of two arguments.
	if [[ $HOSTTYPE == i[3-6]86 ]]; then
		# shellcheck disable=SC2016
		start='$arg2:u32' length='$arg4:u32' iova='$arg6:u32' access='$arg8:x32'
	fi
	probe reg_mr rxe_reg_user_mr "start=$start" "length=$length" "iova=$iova" "access=$access"
}

# May the peer write, and do nothing else, whichever region and connected queue pair is the one
# that counts? Of the flags, 0xe are the three rights of a peer; 2 is IBV_ACCESS_REMOTE_WRITE.
# Behind 0x10, IBV_ACCESS_MW_BIND, a memory window may grant the others.
may_only_write() {
	local region=0 queue_pair=0 call state qp access mask
	local -A rights=() connected=()
	calls_of reg_mr
	for call in "${calls[@]}"; do ((region |= ${call##*access=})); done
	calls_of modify
	for call in "${calls[@]}"; do
		read -r state _ qp access mask <<<"$call"
		access=${access#*=} mask=${mask#*=}
		if ((mask & 1)) && [[ $state == state=1 ]]; then
			rights[$qp]=0	# INIT, maybe of a new one at the same place
		elif ((mask & 1)) && [[ $state == state=2 ]]; then
			connected[$qp]=1
		fi
		# IBV_QP_ACCESS_FLAGS, in any step.
		if ((mask & 8)); then
			((rights[$qp] = ${rights[$qp]:-0} | access))
		fi
	done
	for qp in "${!connected[@]}"; do ((queue_pair |= ${rights[$qp]:-0})); done
	printf -v evidence 'ibv_reg_mr(): access 0x%x; ibv_modify_qp(): qp_access_flags 0x%x' \
		"$region" "$queue_pair"
	(((region & 0x1e) == 2 && (queue_pair & 0xe) == 2))
}

# How much private data the program sends with rdma_reject(), the text in it, and what is behind
# the 32 bytes of a struct hello.
watch_refusals() {
	# shellcheck disable=SC2016 # they are the kernel's
	probe reject rdma_reject 'len=$arg3:u8' 'text=+8($arg2):x64[3]' 'rest=+32($arg2):x64[14]'
}

# Has rdma_connect() been given all bytes of a struct hello, and nothing but zeros behind them? See
# world.c, NO_HELLO: the other side always gets as many bytes as a packet has room for.
asked_with_hello() { ! told NO_HELLO; }

# Did each of its refusals have the bytes of a struct hello, and behind them only zeros? And is
# there behind the zero of its text none of the bytes with which the compilers (see grade) and
# malloc() (see the runner) fill what a program does not write?
refused_with_hello() {
	local call length
	# A wrong length in the request is that of the refusal, too, and has cost its points.
	[[ ${verdict[07.1]:-} != fail ]] || return 0
	calls_of reject || return
	for call in "${calls[@]}"; do
		length=${call#len=} length=${length%% *}
		evidence="private_data_len of rdma_reject(): $length; a struct hello has 32 bytes"
		((length >= 32)) && [[ ${call#*rest=} != *0x[1-9a-f]* ]] || return
		evidence="bytes of the text are not set, or not zero behind the end of its words"
		all_written "${call#*text=\{}" || return
	done
}

# all_written WORDS: is there none of those bytes, and are there only zeros behind the text? The words
# hold eight bytes each, the first one in the lowest bits. In front of the zero at its end, a text in
# UTF-8 may have any byte but 254, but not only those.
all_written() {
	local words word shift byte ended=''
	IFS=, read -ra words <<<"${1%%\}*}"
	((words[0] != 0xaaaaaaaaaaaaaaaa && words[0] != 0xa5a5a5a5a5a5a5a5)) || return
	for word in "${words[@]}"; do
		for shift in 0 8 16 24 32 40 48 56; do
			byte=$((word >> shift & 255))
			if ((byte == 0)); then
				ended=1
			fi
			if ((byte == 254 || (ended && byte))); then
				return 1
			fi
		done
	done
}

watch_identifiers() {
	probe create_id ucma_create_id
	# shellcheck disable=SC2016 # they are the kernel's
	probe :resolve rdma_resolve_addr 'got=$retval:s32'
	# shellcheck disable=SC2016
	probe :destroy_id ucma_destroy_id 'got=$retval:s32'
	# shellcheck disable=SC2016
	probe :cm_event ucma_get_event 'got=$retval:s32'
}

# Is each identifier of the RDMA CM destroyed that was created? librdmacm makes one itself. A
# program that hangs in rdma_destroy_id() has told the kernel, but waits until each event is
# acknowledged.
all_destroyed() {
	local created
	evidence="it hangs: is each event acknowledged?"
	[[ ! $timed_out ]] || return
	calls_of create_id || return
	created=${#calls[@]}
	calls_of destroy_id 'got=0'
	evidence="identifiers: $created created, ${#calls[@]} destroyed"
	((${#calls[@]} >= created))
}

# The arming of a queue, and each event that is read from a completion channel.
watch_events() {
	# shellcheck disable=SC2016 # they are the kernel's
	probe arm rxe_req_notify_cq 'flags=$arg2:x32' 'cq=$arg1'
	# As many bits as a register of any processor has: the number of bytes is small.
	# shellcheck disable=SC2016
	probe :event ib_uverbs_comp_event_read 'got=$retval:s32'
}

# Has the kernel been asked for no event yet?
not_armed() { calls_of arm && ((!${#calls[@]})); }

# armed N [CQ]: has the kernel been asked N times for an event for any completion, of one
# queue? 0x2 means that, and 0x1 solicited ones alone.
armed() {
	calls_of arm 'flags=0x1 *'
	evidence="ibv_req_notify_cq(): ${#calls[@]} times for solicited messages only"
	calls_of arm "flags=0x2 cq=${2:-*}"
	evidence+=", ${#calls[@]} times for any"
	((${#calls[@]} >= $1)) && all_same "${calls[@]}"
}

# took_events N: has the program read N events from its completion channel, or does it soon?
took_events() {
	local result=0
	until_called event "$1" 'got=[1-9]*' || result=1
	evidence="${#calls[@]} events were read from the completion channel"
	return $result
}

# acknowledged [none]: has it acknowledged as many events as it has read, with one call? Or none?
# Sets `surplus` to how many more it has acknowledged. See world.c.
acknowledged() {
	local events call word sum=0 times=0
	calls_of event 'got=[1-9]*' || return
	events=${#calls[@]}
	calls_of told
	for call in "${calls[@]}"; do
		word=$((${call#word=} & 0xfff))
		if ((word > words[ACKED])); then
			((sum += word - words[ACKED], times += 1))
		fi
	done
	evidence="$events events were read, and $sum acknowledged, with $times calls"
	surplus=$((sum - events))
	if (($#)); then
		((times == 0))
	else
		((sum == events && times == 1))
	fi
}

# destroys_too_early VERB: was it stopped, after this one had failed, while it waited inside the
# library, and had acknowledged more events or fewer than it has read? ibv_destroy_cq() waits until
# these numbers are the same. Sets `check` to the one that it fails: if it acknowledges the right
# number otherwise, and one too many when the reading of an event fails, next_event() has counted it.
destroys_too_early() {
	[[ $timed_out && " $where " == *' futex '* ]] && told FAILED && ! acknowledged || return
	check=5
	if [[ $1 == ibv_get_cq_event && ${verdict[03.5]:-} == pass ]] && ((surplus > 0)); then
		check=2
	fi
}

# Each completion that the driver puts into a queue, with the numbers of enum ib_wc_status and
# enum ib_uverbs_wc_opcode: for a program that sends to itself, and has no peer.
watch_completions() {
	# shellcheck disable=SC2016 # they are the kernel's; struct ib_uverbs_wc
	probe completion rxe_cq_post 'status=+8($arg2):u32' 'opcode=+12($arg2):u32' 'cq=$arg1'
}

# received N: were there N successful completions of receives? Sets `queue` to the one that
# got the last of them.
received() {
	calls_of completion 'status=0 opcode=128 *'
	evidence="successful completions of receives: ${#calls[@]}"
	queue=${calls[*]: -1}
	queue=${queue##*cq=}
	((${#calls[@]} >= $1))
}

# Each copy that the driver makes into a region or out of it, for one packet.
watch_copies() {
	# shellcheck disable=SC2016 # they are the kernel's
	local at='$arg2:u64' length='$arg4:s32' from='$arg5:u32'
	if [[ $HOSTTYPE == i[3-6]86 ]]; then
		# shellcheck disable=SC2016
		at='$arg2:u32' length='$arg5:s32' from='$arg6:u32'
	fi
	probe copy rxe_mr_copy "from=$from" "at=$at" "length=$length"
}

# written SIZE: has the driver written every byte of a region of this size, not by a SEND, and with
# none of these copies a byte behind it? The addresses of the copies are those that the peer names,
# so each region must have its own.
written() {
	local region regions start end filled at length source sources
	calls_of reg_mr && own_addresses || return
	evidence="a SEND was posted"
	! told SENT && ! told SENT_IMM || return
	calls_of reg_mr "*length=$1 *"
	# Nobody needs more than one.
	regions=("${calls[@]:0:10}")
	calls_of copy 'from=1 *'
	sources=("${calls[@]##*at=}")
	calls_of copy 'from=0 *'
	printf '%s\n' "${calls[@]}" | sed 's/.*at=//; s/length=//' | sort -n >"$log/copies"
	for region in "${regions[@]}"; do
		start=${region#start=} start=${start%% *}
		end=$((start + $1)) filled=$start	# all bytes before that are written
		while read -r at length; do
			if ((at < start || at >= end)); then
				continue	# not into this region
			elif ((at + length > end)); then
				evidence="by RDMA, more than the $1 bytes were written"
				return 1
			elif ((at <= filled && at + length > filled)); then
				filled=$((at + length))
			fi
		done <"$log/copies"
		evidence="by RDMA, the first $((filled - start)) of $1 bytes were written"
		for source in "${sources[@]%% *}"; do
			if ((source >= start && source < filled)); then
				evidence="what was written there was read from there"
				return 1
			fi
		done
		((filled < end)) || return 0
	done
	return 1
}

# --- queues ------------------------------------------------------------------

# Sets `sends` and `receives`, the work requests that the program has posted, `waiting`, how
# many receives are posted now, and `posted`, `taken`, `ring` and `unfinished`, of its completions.
# `unfinished` is empty if they are not seen. See queues.c.
look_at_queues() {
	local line all=()
	sends=() receives=() waiting=0 posted=0 taken=0 ring=1 unfinished=''
	lines_from all "$build/tests/grading/queues" "$pid"
	for line in "${all[@]}"; do
		case $line in
		send*) sends+=("${line#* }") ;;
		receive*) receives+=("${line#* }") ;;
		waiting*) waiting=${line#* } ;;
		completions*) read -r _ posted taken ring unfinished <<<"$line" ;;
		esac
	done
}

# right_receives SIZE: is each receive as long as a slot, and in the one that its wr_id names?
# And is there one for each of the four slots?
right_receives() {
	local receive id address length first=''
	local -A slots=()
	evidence="no receive is posted"
	for receive in "${receives[@]}"; do
		read -r id address length <<<"$receive"
		if [[ ! $first ]]; then
			first=$((address - id * $1))
		fi
		evidence="wr_id $id: $length bytes at memory + $((address - first))"
		((id >= 0 && id < 4 && length == $1 && address == first + id * $1)) || return
		slots[$id]=1
	done
	evidence="${#receives[@]} receives are posted, into ${#slots[@]} slots"
	((${#receives[@]} == 4 && ${#slots[@]} == 4))
}

# reposted N MESSAGES: N receives were posted before the first message came, and the program has
# taken as many MESSAGES. Are nearly as many receives posted now? Some post several at a time;
# but however many there were at first, most of the messages have a receive that was posted
# later. See world.c.
reposted() {
	local spare=$(($1 / 4 < $2 / 2 ? $1 / 4 : $2 / 2))
	if ((spare > 8)); then spare=8; fi
	evidence="$waiting receives are posted, $1 were"
	(($1 && waiting >= $1 - spare)) || return
	words_of RECV || return 0
	evidence="${#calls[@]} receives were posted in all, $1 of them before $2 messages were taken"
	((${#calls[@]} >= $1 + $2 - spare))
}

# Four messages have come: has it taken some, and posted no more receives since than those?
posts_after_taking() {
	# In this order, because a second thread may give the credits.
	look_at_queues
	read_output
	prints 'got .*' 'got.*' || return
	evidence="${#found[@]} messages taken, $waiting receives posted again"
	((waiting <= ${#found[@]}))
}

# all_signaled OPCODE: does each request of this kind ask for a completion? There must be
# some: a program that makes other queues than main() does shows nothing.
all_signaled() {
	local send opcode flags
	evidence="no request is seen in the queue that main() has made"
	((${#sends[@]})) || return
	for send in "${sends[@]}"; do
		read -r opcode flags _ <<<"$send"
		evidence="send_flags $flags"
		((opcode != $1 || flags & 2)) || return
	done
}

# right_sends SIZE [SLOTS]: does each SEND send what is in one of four slots, or so many, of SIZE
# bytes, with a wr_id that no other slot has? The exercise asks for the slot's number, and any
# other name does as well. Those that are inline (flag 8) have no address.
right_sends() {
	local send opcode flags id address lowest='' place
	local -A slot_of=() name_of=()
	# Only the last sixteen sends are in the queue. Of all of them, world.c tells this.
	evidence="a slot was sent with another wr_id before, or another slot with this one"
	! told RENAMED || return
	evidence="a send asked for no completion"
	! told SILENT || return
	for send in "${sends[@]}"; do
		read -r opcode flags _ _ _ id address <<<"$send"
		if ((opcode == 2 && !(flags & 8) && (!lowest || address < lowest))); then
			lowest=$address
		fi
	done
	for send in "${sends[@]}"; do
		read -r opcode flags _ _ _ id address <<<"$send"
		if ((opcode == 2 && !(flags & 8))); then
			place=$((address - lowest))
			evidence="wr_id $id: sends what is $place bytes after the first slot"
			((place % $1 == 0 && place / $1 < ${2:-4})) || return
			if [[ ${slot_of[$id]:=$place} != "$place" || ${name_of[$place]:=$id} != "$id" ]]; then
				evidence+="; another send has this wr_id, or sends this slot"
				return 1
			fi
		fi
	done
}

# The program of chapter 05 and the peer come to their ends. Sets `unfinished` to how many sends were
# not complete at its CHECKPOINT done, if it comes there, and `value` to how many messages came
# without a receive.
until_end() {
	unfinished='unknown, because it did not come there'
	if at done; then look_at_queues; go; fi
	both_end
	counted send_rnr_err
}

# Has it taken the completion of each of its WRITEs, and of the last one?
waited_for_writes() { ! told UNFINISHED && told_last WRITTEN WRITES; }

# swaps COMPARE SWAP: is the last request such a COMPARE_AND_SWAP?
swaps() {
	local request=${sends[*]: -1}
	evidence="posted: opcode, send_flags, bytes, compare_add, swap: ${request% * *}"
	[[ $request == "5 "*" 8 $1 $2 "* ]]
}

# Does its old value come to where a region begins, and has the program only one region now, or
# several of the same memory?
into_first() {
	local request=${sends[*]: -1} start
	start="start=$((${request##* }))"
	evidence="no region begins at the address of its SGE"
	calls_of reg_mr "$start *"
	((${#calls[@]})) || return
	calls_of reg_mr
	all_same "$start" "${calls[@]%% *}" && return
	kernel mr
	evidence="regions: ${#objects[@]}, and not all begin at the address of its SGE"
	((${#objects[@]} == 1))
}

# has_taken N [WORD]: has the program taken N completions or more since `taken_before`, and left
# none? And, says world.c, one of those that it tells with a WORD?
has_taken() {
	look_at_queues
	local new=$(((taken - taken_before) & (ring - 1)))
	evidence="completions: $new taken from the queue, $(((posted - taken) & (ring - 1))) left there"
	taken_before=$taken
	((new >= $1 && posted == taken)) && { (($# == 1)) || told "$2"; }
}

# --- the device --------------------------------------------------------------

# Sets `objects` to the names of the devices that the program has open. A child may have
# inherited them, so of a child's only those are added that the program itself does not have.
open_devices() {
	local process all opened name
	opened_by "$pid"
	objects=("${opened[@]}")
	mapfile -t all <"$cg/$group/cgroup.procs"
	for process in "${all[@]}"; do
		[[ $process != "$pid" ]] || continue
		opened_by "$process"
		for name in "${opened[@]}"; do
			[[ " ${objects[*]} " == *" $name "* ]] || objects+=("$name")
		done
	done
}

watch_opens() {
	probe opened ib_uverbs_open
	probe closed ib_uverbs_close
}

# only_open [DEVICE]: is that the only device that the program has open? Or, without DEVICE, has it
# none open? A descriptor may be in a message that nobody has received. So the calls are counted, too.
only_open() {
	local opened closed
	calls_of opened || return
	opened=${#calls[@]}
	calls_of closed || return
	closed=${#calls[@]}
	open_devices
	evidence="open: ${objects[*]:-none}; opened $opened times, and closed $closed times"
	((opened == closed + $#)) && [[ ${objects[*]} == "$*" ]]
}

# opened_by PROCESS: sets `opened` to the names of the devices that it has open.
opened_by() {
	local file name files=()
	opened=()
	# One command for all of them, since there may be a thousand. BusyBox's readlink takes one.
	lines_from files ls -l "/proc/$1/fd"
	for file in "${files[@]}"; do
		if [[ $file == *' -> '*/uverbs* ]]; then
			read -r name <"/sys/class/infiniband_verbs/${file##*/}/ibdev"
			opened+=("$name")
		fi
	done
} 2>/dev/null

# index_of DEVICE ADDRESS: sets `index` to where it stands among the first 256 entries of the GID
# table. It is an IPv4 address, or a whole GID.
index_of() {
	local gid want=$2 i ip
	if [[ $2 != *:* ]]; then
		IFS=. read -ra ip <<<"$2"
		printf -v want '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${ip[@]}"
	fi
	for i in {0..255}; do
		index=$i
		read -r gid <"/sys/class/infiniband/$1/ports/1/gids/$i"
		[[ $gid != "$want" ]] || return 0
	done
	index=''
	return 1
}

# until_made COMMAND...: waits until this holds of something that the kernel makes a moment later,
# such as the GID of an address. Nobody can be graded in a world that is not complete.
until_made() {
	wait_begins
	until "$@"; do
		if late; then
			((used_up)) || give_up "the kernel has not made it after $deadline s: $*"
			return 1
		fi
		nap
	done
}

# move_gid [first]: moves the GID of our address to another index than 1, where every device has it
# at first. And there is another address, which is the peer's: see peer.c and world.c. It comes
# behind ours, or before. Another chapter may have done the same in this guest.
move_gid() {
	local index i n last addresses
	random last 2 251
	while index_of "$device" "10.9.0.$last"; do random last 2 251; done
	addresses=(1 "$last")
	if (($#)); then addresses=("$last" 1); fi
	printf -v "world[peer]" 0a0900%02x "$last"
	# The MTU of the port is not the one that is asked for, if the interface can do that.
	ip link set eth0 mtu 4500 2>/dev/null || :
	random n 8 20
	{
		echo address flush dev eth0 scope global
		for ((i = 0; i < n; i++)); do
			echo "address add fd00:9:$i::1/64 dev eth0"
		done
		printf 'address add 10.9.0.%s/24 dev eth0\n' "${addresses[@]}"
	} | ip -batch -
	# The kernel fills its table a moment later, in this order. Ours may still have its old place,
	# but not when the other one is there.
	until_made index_of "$device" "10.9.0.$last"
	until_made index_of "$device" 10.9.0.1
}

# counter NAME: sets `value` to one of the device's, which count whatever passes it.
counter() { read -r value <"/sys/class/infiniband/$device/ports/1/hw_counters/$1"; }

# until_grown COUNTER N: waits until a counter has grown by N, or the program is at its next
# CHECKPOINT, or at its end.
until_grown() {
	local before
	counter "$1"
	before=$value
	wait_begins
	until late; do
		counter "$1"
		if ((value >= before + $2)); then
			return 0
		elif ! running || at_another; then
			return 1
		fi
		nap
	done
	return 1
}

# What the counters were when the program was started.
remember_counters() {
	local name value
	for name in rdma_sends send_rnr_err; do
		value=0
		counter "$name"
		counted_before[$name]=$value
	done 2>/dev/null
}

# counted NAME: sets `value` to how much it has grown since then.
counted() {
	counter "$1"
	((value -= counted_before[$1]))
	evidence="$1 +$value"
}

counted_none() {
	counted "$1"
	((value == 0))
}
