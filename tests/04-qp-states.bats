#!/usr/bin/env bats
# Chapter 04: the states of a queue pair, and the ways between them.

load helpers

qp_states=$BUILD/04-qp-states/qp_states
qp_transitions=$BUILD/04-qp-states/qp_transitions
qp_errors=$BUILD/04-qp-states/qp_errors

# What RC needs at each step, from the table in ibv_modify_qp(3), with the values that
# <infiniband/verbs.h> gives to the bits.
declare -gA needed=(
	[INIT]='STATE PKEY_INDEX PORT ACCESS_FLAGS'
	[RTR]='STATE AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER'
	[RTS]='STATE SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT'
)
declare -gA before=([INIT]=RESET [RTR]=INIT [RTS]=RTR)
declare -gA bit=([STATE]=0 [ACCESS_FLAGS]=3 [PKEY_INDEX]=4 [PORT]=5 [AV]=7 [PATH_MTU]=8
	[TIMEOUT]=9 [RETRY_CNT]=10 [RNR_RETRY]=11 [RQ_PSN]=12 [MAX_QP_RD_ATOMIC]=13
	[MIN_RNR_TIMER]=15 [SQ_PSN]=16 [MAX_DEST_RD_ATOMIC]=17 [DEST_QPN]=20)

# Where a queue pair of type RC may go, from the InfiniBand specification, 10.3.1.
states=(RESET INIT RTR RTS SQD SQE ERR)
declare -gA may=(
	[RESET]=' RESET INIT ERR '
	[INIT]=' RESET INIT RTR ERR '
	[RTR]=' RESET RTS ERR '
	[RTS]=' RESET RTS SQD ERR '
	[SQD]=' RESET RTS SQD ERR '
	[ERR]=' RESET ERR '
)

# One run of each program for many tests: qp_states pauses, and the kernel is asked at each
# pause; of qp_transitions each call of ibv_modify_qp() is logged; and the kernel is asked
# whenever qp_errors asks the device.
setup_file() {
	seen=$BATS_FILE_TMPDIR
	pause_and_look
	SHIM_LOG=$seen/log with_shim qp_calls log "$qp_transitions" >"$seen/transitions"
	SHIM_LOG=$seen/look with_shim qp_calls look "$qp_errors" \
		>"$seen/errors" 2>"$seen/errors-err"
	jq -rs 'range(0; length; 3) as $i | .[$i] as $qpn | .[$i + 1] as $sends | .[$i + 2][] |
		select(.lqpn == $qpn) | [$qpn, .state, .["sq-psn"], .["rq-psn"], $sends] | @tsv' \
		"$seen/look" >"$seen/kernel"
}

setup() {
	seen=$BATS_FILE_TMPDIR
	read -r ended _ <"$seen/status"
}

teardown() { put_right; }

# Runs qp_states -p. At pause number N, qp.N is what the kernel knows of its queue pairs:
# number, type, state, the peer's number, first or next PSN to receive and to send.
pause_and_look() (
	trap - DEBUG # Bats' own, which makes every command slow
	set +e
	mkfifo "$seen/enter"
	exec {enter}<>"$seen/enter"
	timeout -k 1 "${LIMIT:-30}" "$qp_states" -p <"$seen/enter" >"$seen/out" 2>"$seen/err" 3>&- &
	job=$!
	child='' pauses=0
	while [[ ! $child && -e /proc/$job ]]; do
		read -r child _ <"/proc/$job/task/$job/children"
	done 2>/dev/null
	while [[ -e /proc/$child ]]; do
		(($(grep -c '^pause:' "$seen/out") > pauses)) || continue
		((pauses++))
		rdma -d -j resource show qp >"$seen/all"
		jq -r ".[] | select(.pid == $child) | [.lqpn, .type, .state, .rqpn,
			.[\"rq-psn\"], .[\"sq-psn\"]] | @tsv" "$seen/all" >"$seen/qp.$pauses"
		echo >&"$enter"
	done
	wait $job
	echo "$? $child" >"$seen/status"
)

# kernel PAUSE NAME: what the kernel said at this pause of qp_states of the queue pair A or
# B. Sets type, state, rqpn, rq_psn and sq_psn.
kernel() {
	local number
	while read -r number type state rqpn rq_psn sq_psn; do
		if ((number == qpn[$2])); then
			return 0
		fi
	done <"$seen/qp.$1"
	fail "the kernel knows no queue pair $2"
}

# Sets qpn[] and psn[] to what was printed in step 3.
read_numbers() {
	declare -gA qpn psn
	local name number first
	while read -r name number first; do
		qpn[${name%:}]=$((number)) psn[${name%:}]=$((first))
	done < <(sed -nE 's/^([AB]:) +QPN (0x[0-9a-f]{6}), PSN (0x[0-9a-f]{6}), .*/\1 \2 \3/p' \
		"$seen/out")
	((${#qpn[@]} == 2))
}

# --- qp_states: from RESET to RTS ---

@test "qp_states: the sample in the header is what it prints" {
	output=$(grep -v '^pause:' "$seen/out")
	assert_sample "$project/04-qp-states/qp_states.c"
}

@test "qp_states: it ends well, without a word on stderr, and releases in the right order" {
	assert_equal "$ended" 0
	assert_equal "$(<"$seen/err")" ''
	output=$(<"$seen/out")
	assert_released ibv_destroy_qp ibv_destroy_qp ibv_destroy_cq ibv_dealloc_pd \
		ibv_close_device ibv_free_device_list
}

@test "qp_states, step 3: the kernel knows the two queue pairs, in RESET" {
	read_numbers
	for name in A B; do
		kernel 1 $name
		assert_equal "$type $state" 'RC RESET'
	done
	assert_equal "$(wc -l <"$seen/qp.1")" 2
	run part 'A: ' pause <"$seen/out"
	assert_line '  A: RESET'
	assert_line '  B: RESET'
}

@test "qp_states, step 4: RESET -> INIT" {
	read_numbers
	for name in A B; do
		kernel 2 $name
		assert_equal "$state" INIT
	done
	run part 'RESET -> INIT' pause <"$seen/out"
	assert_line '  A: INIT, port 1, pkey_index 0, access 0x0'
	assert_line '  B: INIT, port 1, pkey_index 0, access 0x0'
}

@test "qp_states, step 5: INIT -> RTR, where each knows the other's number and first PSN" {
	read_numbers
	run part 'INIT -> RTR' pause <"$seen/out"
	for pair in 'A B' 'B A'; do
		read -r self peer <<<"$pair"
		kernel 3 "$self"
		assert_equal "$state $rqpn $rq_psn" "RTR ${qpn[$peer]} ${psn[$peer]}"
		assert_line --regexp "^  $self: RTR, path_mtu [0-9]+, $(printf \
			'dest_qpn 0x%06x, rq_psn 0x%06x' "$rqpn" "$rq_psn")\$"
	done
}

@test "qp_states, step 5: the path MTU is the port's" {
	mtu=$(sed -n 's/^device: .* MTU //p' "$seen/out")
	run sed -n 's/^  [AB]: RTR, path_mtu \([0-9]*\),.*/\1/p' "$seen/out"
	assert_output "$mtu
$mtu"
	# 1024 is what fits into the 1500 bytes of an Ethernet frame: 76 are for headers.
	if [[ ${RDMA:-} != host ]]; then
		assert_equal "$mtu" 1024
	fi
}

@test "qp_states, step 6: RTR -> RTS, each with the first PSN it was given" {
	read_numbers
	run part 'RTR -> RTS' pause <"$seen/out"
	for name in A B; do
		kernel 4 $name
		assert_equal "$state $sq_psn" "RTS ${psn[$name]}"
		assert_line "$(printf '  %s: RTS, sq_psn 0x%06x, rq_psn 0x%06x, timeout 14, retry_cnt 6' \
			$name "$sq_psn" "$rq_psn")"
	done
}

@test "qp_states, steps 4 to 6: the attributes of each step are those of ibv_modify_qp(3)" {
	for to in INIT RTR RTS; do
		run sed -n "/^${before[$to]} -> $to$/{n; s/^  //p}" "$seen/out"
		assert_equal "$(tr ' ' '\n' <<<"${lines[0]}" | sort)" \
			"$(tr ' ' '\n' <<<"${needed[$to]:?}" | sort)"
	done
}

# --- qp_transitions: what is refused, and all pairs ---

@test "qp_transitions: the sample in the header is what it prints" {
	output=$(<"$seen/transitions")
	assert_sample "$project/04-qp-states/qp_transitions.c"
}

# Reads the number of the queue pair that qp_transitions has tried everything with.
number_of_c() { c=$((16#$(sed -nE 's/^C: QPN 0x([0-9a-f]*) .*/\1/p' "$seen/transitions"))); }

@test "qp_transitions, step 2: without any one attribute a step is refused, and that was really tried" {
	number_of_c
	for to in INIT RTR RTS; do
		full=0
		for name in ${needed[$to]:?}; do
			((full |= 1 << bit[$name]))
		done
		for name in ${needed[$to]#STATE }; do
			echo "${before[$to]} -> $to without $name EINVAL" >&4
			echo "$c ${before[$to]} $to $((full & ~(1 << bit[$name]))) 22" >&5
		done
	done 4>"$seen/printed" 5>"$seen/tried"
	sed -nE 's/^  ([A-Z]+ +-> .* without)/\1/; T; s/ +/ /gp' "$seen/transitions" |
		diff "$seen/printed" -
	# The log has more, of steps that are taken.
	assert_equal "$(grep -cxFf "$seen/tried" "$seen/log")" 14
}

@test "qp_transitions, step 2: an attribute that the step does not know is refused" {
	number_of_c
	run cat "$seen/transitions"
	assert_line --regexp '^  RESET -> INIT with TIMEOUT +EINVAL$'
	mask=$((1 << bit[TIMEOUT]))
	for name in ${needed[INIT]}; do
		((mask |= 1 << bit[$name]))
	done
	grep -qx "$c RESET INIT $mask 22" "$seen/log"
}

@test "qp_transitions, step 2: values that the port does not have are refused, except the path MTU" {
	run cat "$seen/transitions"
	assert_line --regexp '^  RESET -> INIT port_num 255 +EINVAL$'
	assert_line --regexp '^  INIT  -> RTR  is_global 0 +EINVAL$'
	assert_line --regexp '^  INIT  -> RTR  sgid_index 255 +E[A-Z]+$'
	# Here rxe differs from other devices. A port with the greatest MTU has no such line.
	if [[ $(<"$seen/out") != *', MTU 4096'* ]]; then
		assert_line --regexp '^  INIT  -> RTR  path_mtu 4096, not [0-9]+ +accepted$'
	fi
}

# Prints the table of all pairs as lines: state, new state, result.
pairs() {
	part 'from every' released <"$seen/transitions" | awk '
		NR == 2 { for (i = 2; i <= NF; i++) to[i] = $i }
		NR > 2 { for (i = 2; i <= NF; i++) print $1, to[i], $i }'
}

@test "qp_transitions, step 3: all 42 pairs were tried, and the table is what the device said" {
	number_of_c
	awk -v qp="$c" '
		$1 == qp { tried[$2 " " $3] = 1; if ($5 == 0) taken[$2 " " $3] = 1 }
		END { for (p in tried) print p, p in taken ? "taken" : "refused" }
	' "$seen/log" | sort >"$seen/device-says"
	run wc -l <"$seen/device-says"
	assert_output 42
	pairs | sed 's/ !*-$/ refused/; t; s/[^ ]*$/taken/' | sort | diff "$seen/device-says" -
}

@test "qp_transitions, step 3: the device does as the specification has it, except RESET -> ERR" {
	for from in "${states[@]}"; do
		if [[ $from == SQE ]]; then
			continue
		fi
		for to in "${states[@]}"; do
			case "$from-$to ${may[$from]:?}" in
			RESET-ERR*) echo "$from $to !-" ;;
			RESET-INIT* | INIT-RTR* | RTR-RTS*) echo "$from $to attrs" ;;
			*" $to "*) echo "$from $to state" ;;
			*) echo "$from $to -" ;;
			esac
		done
	done >"$seen/specified"
	pairs | diff "$seen/specified" -
}

@test "qp_transitions: a failure that is no refusal is not shown as one" {
	run --separate-stderr with_shim qp_calls memory "$qp_transitions"
	assert_failure 1
	assert_equal "$stderr" \
		'qp_transitions: ibv_modify_qp(C, INIT -> RTR): ENOMEM (Cannot allocate memory)'
	assert_line 'released: ibv_free_device_list'
}

# --- qp_errors: a message, an error, and the way back ---

@test "qp_errors: the sample in the header is what it prints" {
	# On Linux 6.12, rxe flushes the mistaken send, too.
	output=$(sed '/^A sends/ {
		n; s/Work Request Flushed Error (status 5)/local QP operation error (status 2)/
	}' "$seen/errors")
	assert_sample "$project/04-qp-states/qp_errors.c"
}

@test "qp_errors: it ends well, without a word on stderr, and releases in the right order" {
	assert_equal "$(<"$seen/errors-err")" ''
	output=$(<"$seen/errors")
	assert_released ibv_destroy_qp ibv_destroy_qp ibv_destroy_cq ibv_dereg_mr ibv_dealloc_pd \
		ibv_close_device ibv_free_device_list
}

@test "qp_errors: whatever it says of a queue pair is what the kernel knows" {
	# The kernel's states and PSNs in the form in which the program prints its own.
	local -A name
	local names=(A B)
	while read -r number state sq_psn rq_psn _; do
		if [[ -z ${name[$number]:-} ]]; then
			name[$number]=${names[${#name[@]}]}
		fi
		if [[ $state == RTS ]]; then
			printf '  %s: RTS, sq_psn 0x%06x, rq_psn 0x%06x\n' "${name[$number]}" "$sq_psn" "$rq_psn"
		else
			printf '  %s: %s\n' "${name[$number]}" "$state"
		fi
	done <"$seen/kernel" >"$seen/kernel-says"
	grep -E '^  [AB]: [A-Z]+($|, )' "$seen/errors" | diff - "$seen/kernel-says"
	assert_equal "$(wc -l <"$seen/kernel-says")" 13
}

@test "qp_errors, step 3: one message goes from A to B, and the PSNs move on by one" {
	run part 'a message' 'A sends' <"$seen/errors"
	assert_line '  A: send, success (status 0)'
	assert_line '  B: receive, success (status 0)'
	assert_line '  B has received "Hello B, this is A"'
	assert_line '  A: RTS, sq_psn 0x0a0a0b, rq_psn 0x0b0b0b'
	assert_line '  B: RTS, sq_psn 0x0b0b0b, rq_psn 0x0a0a0b'
	# The device has counted one send between the first two looks and the next two.
	mapfile -t sends < <(cut -f 5 "$seen/kernel")
	assert_equal "$((sends[2] - sends[1]))" 1
}

@test "qp_errors, step 4: A's mistake puts A into ERR, its next send is flushed, and B is as before" {
	run part 'A sends' 'B has' <"$seen/errors"
	# Local protection error is 4; rxe says local QP operation error, 2, and on
	# Linux 6.12 flushes this one, too.
	assert_line --index 1 --regexp '^  A: send, (local .* error \(status [24]\)|.* Flushed Error \(status 5\))$'
	assert_line --index 2 '  A: send, Work Request Flushed Error (status 5)'
	assert_line --index 3 '  A: ERR'
	assert_line --index 4 '  B: RTS, sq_psn 0x0b0b0b, rq_psn 0x0a0a0b'
	assert_equal "${#lines[@]}" 5
}

@test "qp_errors, step 5: B is put into ERR, and its two receives are flushed" {
	run part 'B has two' 'both' <"$seen/errors"
	assert_output - <<-'END'
		B has two receives posted, and is put into ERR
		  B: receive, Work Request Flushed Error (status 5)
		  B: receive, Work Request Flushed Error (status 5)
		  B: ERR
	END
}

@test "qp_errors, step 6: through RESET both come to RTS again, with the PSNs they began with" {
	run part 'both' 'a message' <"$seen/errors"
	assert_output - <<-'END'
		both go to RESET, and then to RTS again
		  A: RESET
		  B: RESET
		  A: RTS, sq_psn 0x0a0a0a, rq_psn 0x0b0b0b
		  B: RTS, sq_psn 0x0b0b0b, rq_psn 0x0a0a0a
	END
}

@test "qp_errors, step 7: and a message goes through again" {
	run sed -n '/^both/,$p' "$seen/errors"
	assert_line '  A: send, success (status 0)'
	assert_line '  B: receive, success (status 0)'
	assert_line '  B has received "Hello again"'
}

@test "qp_errors: no wait is for ever: without completions it gives up and says so" {
	run --separate-stderr with_shim qp_calls lose "$qp_errors"
	assert_failure 1
	assert_equal "$stderr" "qp_errors: waiting for a completion: ETIMEDOUT (Connection timed out)
  hint: is a receive posted? do the PSNs agree?"
	assert_line 'released: ibv_free_device_list'
}

@test "qp_errors: a message that is not what was sent is noticed" {
	run --separate-stderr with_shim qp_calls garble "$qp_errors"
	assert_failure 1
	assert_equal "$stderr" 'qp_errors: B has not received what A sent'
}

# --- all three ---

@test "a refused step is named, with the errno and what to do" {
	run --separate-stderr with_shim qp_calls refuse "$qp_states"
	assert_failure 1
	assert_equal "$stderr" "qp_states: ibv_modify_qp(A, INIT -> RTR): EINVAL (Invalid argument)
  hint: ibv_modify_qp(3) lists what each step needs; for INIT -> RTR try another GID (-g N)"
	assert_line 'released: ibv_free_device_list'

	for program in qp_transitions qp_errors; do
		run --separate-stderr with_shim qp_calls refuse "$BUILD/04-qp-states/$program"
		assert_failure 1
		assert_regex "$stderr" "^$program: ibv_modify_qp\([AC], INIT -> RTR\): EINVAL \(Invalid argument\)"
		assert_line 'released: ibv_free_device_list'
	done
}

@test "a port that cannot be queried is not said to be a port that is not ACTIVE" {
	for program in qp_states qp_transitions qp_errors; do
		run --separate-stderr with_shim qp_calls port "$BUILD/04-qp-states/$program"
		assert_failure 1
		assert_regex "$stderr" "^$program: ibv_query_port\([a-z0-9_]+, 1\): EIO \(Input/output error\)"
		assert_line 'released: ibv_free_device_list'
	done
}

@test "options: a bad one is refused with its name, and what would be right" {
	while IFS='|' read -r arguments message; do
		run --separate-stderr limited "$qp_states" $arguments
		assert_failure 2
		assert_output ''
		[[ $stderr == *"$message"*'hint: '* ]] || fail "$arguments: $stderr"
	done <<-'END'
		-x|invalid option -- 'x'
		-d|requires an argument -- 'd'
		-i 0|-i 0: out of range
		-i one|-i "one": not a whole number
		-g 256|-g 256: out of range
		-g -1|-g -1: out of range
		rxe_0|one argument too many: rxe_0
	END
	for program in qp_transitions qp_errors; do
		run limited "$BUILD/04-qp-states/$program" -x
		assert_failure 2
	done
}

@test "options: --help goes to stdout and lists them" {
	run --separate-stderr limited "$qp_states" --help
	assert_success
	for option in --ib-dev --ib-port --gid-idx --pause --help; do
		assert_output --partial "$option"
	done
	assert_equal "$stderr" ''
	for program in qp_transitions qp_errors; do
		run -0 --separate-stderr limited "$BUILD/04-qp-states/$program" --help
		assert_output --partial --ib-dev
	done
}

@test "an unknown device, a port and a GID index that are not there" {
	for program in qp_states qp_transitions qp_errors; do
		run --separate-stderr limited "$BUILD/04-qp-states/$program" -d nonesuch
		assert_failure 1
		assert_regex "$stderr" "^$program: no device called nonesuch
  hint: there is [a-z]"
	done
	run --separate-stderr limited "$qp_states" -i 2
	assert_failure 1
	assert_regex "$stderr" '^qp_states: no ACTIVE port 2
  hint: '
	run --separate-stderr limited "$qp_states" -g 200
	assert_failure 1
	assert_regex "$stderr" '^qp_states: port 1 has no GID at index 200
  hint: '
}

@test "no device: exit status 77, and how to get one" {
	change_world
	rdma link delete rxe_0
	for program in "$qp_states" "$qp_transitions" "$qp_errors"; do
		run --separate-stderr limited "$program"
		assert_failure 77
		assert_equal "$stderr" "${program##*/}: no RDMA device
  hint: a guest of the lab has one: tests/lab/lab run -- $program"
	done
}

@test "a port that is down is refused; another device's port is taken, if ACTIVE" {
	change_world
	ip link set eth0 down
	for program in qp_states qp_transitions qp_errors; do
		run --separate-stderr limited "$BUILD/04-qp-states/$program"
		assert_failure 1
		assert_regex "$stderr" "^$program: no ACTIVE port
  hint: there is rxe_0; make run-01 shows its ports"
	done

	add_rxe_1
	rdma dev set rxe_1 name other
	run limited "$qp_states"
	assert_success
	assert_line --regexp '^device: +other, port 1, ACTIVE'
	assert_line --partial '::ffff:10.8.0.1'
	run -0 limited "$qp_transitions"
	assert_line --regexp '^C: QPN 0x[0-9a-f]{6} on other$'
	run -0 limited "$qp_errors"
}

# After a link came up, the kernel first makes sure that nobody else has the address.
link_local_is_ready() { [[ $(ip -6 address show dev eth0 scope link -tentative) ]]; }

@test "with IPv6 only, a link-local GID does; -g takes it without asking" {
	eventually link_local_is_ready
	run limited "$qp_states" -g 0
	assert_success
	assert_line --regexp '^GID: +index 0, fe80::.* given with -g'

	change_world
	ip address delete 10.9.0.1/24 dev eth0
	run limited "$qp_states"
	assert_success
	assert_line --regexp '^GID: +index [0-9]+, fe80::'
	run -0 limited "$qp_errors"
	assert_line '  B has received "Hello again"'
}
