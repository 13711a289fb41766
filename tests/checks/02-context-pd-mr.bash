# Chapter 02: what is registered is what the kernel says is registered.

points 02.1 3 exercise 'the letters become access flags' 'man 3 ibv_reg_mr'
points 02.2 5 exercise 'registers the whole buffer, once for each' 'man 3 ibv_reg_mr'
points 02.3 4 exercise 'reports keys, and refusals by name' 'man 3 strerrorname_np'
points 02.4 4 exercise 'releases all, in order' 'man 3 ibv_dealloc_pd'
points 02.5 4 broken 'broken.c registers the whole buffer' 'man 3 ibv_reg_mr'

tracing=/sys/kernel/tracing

# Has the kernel write down the access flags of each region it is asked for. No key tells
# them: since Linux 6.3 rxe gives each region an rkey, and LOCAL_WRITE never showed.
# Kernel documentation: trace/kprobetrace.rst.
trace_registrations() {
	# shellcheck disable=SC2016 # $arg5 is the kernel's
	mount -t tracefs tracing "$tracing" &&
		echo 'p:reg_mr rxe_reg_user_mr access=$arg5:x32' >"$tracing/kprobe_events" &&
		echo 1 >"$tracing/events/kprobes/reg_mr/enable" || exit "$own_fault"
}

# Sets `got` to the access flags of all regions registered until now, in their order.
registered_flags() {
	local line flags=()
	while read -r line; do
		[[ $line != *access=0x* ]] || flags+=($((${line##*=})))
	done <"$tracing/trace"
	sort_flags got "${flags[@]}"
}

# Sets `want` to what RIGHTS... are as values of `enum ibv_access_flags`, in their order.
access_flags() {
	local letters flags=()
	for letters; do
		flags+=(0)
		[[ $letters != *L* ]] || ((flags[-1] |= 1))
		[[ $letters != *W* ]] || ((flags[-1] |= 2))
		[[ $letters != *R* ]] || ((flags[-1] |= 4))
		[[ $letters != *A* ]] || ((flags[-1] |= 8))
	done
	sort_flags want "${flags[@]}"
}

# sort_flags VARIABLE FLAGS...: an array's indices come in their order.
sort_flags() {
	local flags count=() all=''
	for flags in "${@:2}"; do
		((++count[flags]))
	done
	for flags in "${!count[@]}"; do
		while ((count[flags]--)); do
			printf -v all '%s 0x%x' "$all" "$flags"
		done
	done
	printf -v "$1" %s "${all# }"
}

check_exercise() {
	local length i all=(- L R LR LW LA LRW LWA LWRA W A WR) ask=() granted=() refused=() \
		object key letters line bad got want
	random length 1000 60000
	# In a random order; L, R and W alone are always there.
	while ((${#all[@]})); do
		random i 0 $((${#all[@]} - 1))
		letters=${all[i]}
		all=("${all[@]:0:i}" "${all[@]:i+1}")
		random i 0 2
		((i)) || [[ $letters == [LRW] ]] || continue
		ask+=("$letters")
		if [[ $letters == *[WA]* && $letters != *L* ]]; then
			refused+=("$letters")
		else
			granted+=("$letters")
		fi
	done

	trace_registrations
	start exercise "$length" "${ask[@]}"
	if ! at registered; then
		fail 02.1
		return
	fi
	access_flags "${granted[@]}"
	registered_flags
	if [[ $got == "$want" ]]; then
		ok 02.1
	else
		fail 02.1 "registered with other access flags than asked for: $got, not $want" \
			"rxe_reg_user_mr: $got"
	fi
	kernel mr
	if ((${#objects[@]} != ${#granted[@]})); then
		fail 02.2 "${#objects[@]} regions, not ${#granted[@]}" "rdma resource show mr: ${#objects[@]}"
	else
		ok 02.2
		for object in "${objects[@]}"; do
			field mrlen "$object"
			[[ $value == "$length" ]] ||
				fail 02.2 "a region of another length than $length" "$object"
		done
	fi

	# Each line must name keys that the kernel has, and each refusal its reason.
	bad=''
	for letters in "${granted[@]}"; do
		key=''
		for object in "${objects[@]}"; do
			field lkey "$object" && printf -v key '%s: lkey 0x%08x' "$letters" "$value"
			field rkey "$object" && printf -v key '%s rkey 0x%08x' "$key" "$value"
			! printed "$key" || break
			key=''
		done
		[[ $key ]] || : "${bad:=$letters}"
	done
	for letters in "${refused[@]}"; do
		printed "$letters: refused EINVAL" || : "${bad:=$letters}"
	done
	if [[ $bad ]]; then
		# Its form is what counts: keys are others each time.
		line=$(printf '%s\n' "${lines[@]}" | grep -m 1 "^$bad:" || echo "no line about $bad")
		line=$(sed -E ':next; s/(0xX*)[0-9a-f]/\1X/; t next' <<<"$line")
		fail 02.3 "not right, X being a digit: $line" \
			"keys of a region, each as 0x and eight digits, or: refused EINVAL"
	elif (($(printf '%s\n' "${lines[@]}" | grep -c ': lkey\|: refused') != ${#ask[@]})); then
		fail 02.3 "not one line for each of ${ask[*]}"
	else
		ok 02.3
	fi

	# Nothing is released where nothing was.
	kernel mr
	((${#objects[@]})) || return
	go
	if ! at clean; then
		fail 02.4
		return
	fi
	kernel mr
	local left=${#objects[@]}
	kernel pd
	if ((left + ${#objects[@]})); then
		fail 02.4 "at CHECKPOINT clean there is still something" \
			"$left memory regions, ${#objects[@]} protection domains"
	else
		go
		finish
		if ((status == 0)); then ok 02.4; else fail 02.4; fi
	fi

	# What the kernel doesn't let us lock, it refuses: no failure of the program.
	memlock=4 run exercise 60000 L
	printed 'L: refused ENOMEM' || fail 02.3 "with a low RLIMIT_MEMLOCK: not \"L: refused ENOMEM\""
	# A letter that means nothing is no right, and not no rights.
	run exercise 100 "LX"
	((status == 2)) || fail 02.1 "exit status $status for the rights LX, not 2"
}

check_broken() {
	local length
	random length 5000 50000
	start broken "$length"
	if ! at registered; then
		fail 02.5
		return
	fi
	kernel mr
	field mrlen "${objects[0]:-}"
	if ((${#objects[@]} != 1)) || [[ $value != "$length" ]]; then
		fail 02.5 "the region has not $length bytes" "${objects[*]:-no region}"
		return
	fi
	go
	finish
	if ((status == 0)); then ok 02.5; else fail 02.5; fi
}

# make try-02 [ARGS="LENGTH RIGHTS..."]
try_exercise() {
	looks=(mr)
	(($#)) || set -- 3000 L LR W
	program "$@"
}

# make try-02 PROGRAM=broken [ARGS=LENGTH]
try_broken() {
	looks=(mr)
	program "${1:-3000}"
}
