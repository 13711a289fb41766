#!/usr/bin/env bats
# Chapter 03: the completion channel and the completion queue.

# shellcheck disable=SC2154 # what helpers and Bats set
load helpers

cq_channel=$BUILD/03-cq-channel/cq_channel
cq_waiting=$BUILD/03-cq-channel/cq_waiting
extended_cq=$BUILD/03-cq-channel/extended_cq
programs=("$cq_channel" "$cq_waiting" "$extended_cq")
everything=(ibv_destroy_qp ibv_destroy_cq ibv_destroy_cq ibv_destroy_comp_channel
	ibv_dealloc_pd ibv_close_device ibv_free_device_list)

# One run of cq_channel and one of cq_waiting for many tests; of cq_waiting again, if
# the machine was too busy to watch it.
setup_file() {
	seen=$BATS_FILE_TMPDIR
	watch "$cq_channel"
	for _ in {1..5}; do
		watch "$cq_waiting"
		if watched_well; then
			break
		fi
	done
}

setup() { seen=$BATS_FILE_TMPDIR; }

teardown() { put_right; }

# watch PROGRAM: runs it. Stops it when it tells of its CQ, and asks the kernel about
# that. Then takes samples: where does its main thread sleep ("0": it doesn't), how many
# ns has it run, how many lines had it printed, and when, in microseconds? Leaves NAME.out,
# .err, .samples, .cq, and .status: the exit status and the process id. NAME is the
# program's.
watch() (
	trap - DEBUG # Bats' own, which makes every command slow
	set +e
	name=$seen/${1##*/}
	exec {idle}<> <(:) 2>/dev/null
	timeout -k 1 "${LIMIT:-30}" "$1" >"$name.out" 2>"$name.err" 3>&- &
	job=$!
	child='' stopped=''
	while [[ ! $child && -e /proc/$job ]]; do
		read -r child _ <"/proc/$job/task/$job/children"
	done
	while where='' cpu=''; read -r where <"/proc/$child/wchan"
		read -r cpu _ <"/proc/$child/schedstat"; do
		mapfile -t lines <"$name.out"
		echo "${where:--} $cpu ${#lines[@]} ${EPOCHREALTIME/./}"
		if [[ ! $stopped && ${lines[2]:-} == CQ:* ]]; then
			kill -STOP "$child"
			rdma -d -j resource show cq >"$name.cq"
			kill -CONT "$child"
			stopped=$child
		fi
		read -rt 0.005 -u "$idle"
	done >"$name.samples"
	wait $job
	echo "$? $child" >"$name.status"
) 2>/dev/null

# phase WAY: the samples of cq_waiting from when it said that it waits "asleep" or "awake"
# until it said what that had cost.
phase() {
	local first last
	first=$(grep -n "^$1, for" "$seen/cq_waiting.out" | cut -d : -f 1)
	last=$(sed -n "${first:-1},\$p" "$seen/cq_waiting.out" | grep -n -m 1 '^  waited' | cut -d : -f 1)
	awk -v first="${first:-0}" -v last="$((${first:-0} + ${last:-0} - 1))" \
		'$3 >= first && $3 < last' "$seen/cq_waiting.samples"
}

# Are there enough samples, and had the program a CPU when it needed one?
watched_well() {
	local phase samples costs='CPU time: ([0-9]+)\..*CPU time: ([0-9]+)\.'
	for phase in asleep awake; do
		read -r samples _ < <(phase_sums "$phase")
		if ((samples < 5)); then
			return 1
		fi
	done
	[[ $(<"$seen/cq_waiting.out") =~ $costs ]] && ((BASH_REMATCH[1] < 60 && BASH_REMATCH[2] > 100))
}

# phase_sums WAY: its samples, how many percent of them slept, and how many percent of the time
# from the first one to the last the program was on the CPU. A busy machine takes fewer samples,
# and those may not be of the whole phase.
phase_sums() {
	phase "$1" | awk '
		NR == 1 { ran = $2; began = $4 }
		{ sleeps += $1 ~ /poll|event/; cpu = $2 - ran; us = $4 - began }
		END { printf "%d %d %d\n", NR, NR ? sleeps * 100 / NR : 0, us ? cpu / us / 10 : 0 }'
}

@test "the sample in the header of each program is what it prints" {
	output=$(<"$seen/cq_channel.out")
	assert_sample "$project/03-cq-channel/cq_channel.c"
	output=$(<"$seen/cq_waiting.out")
	assert_sample "$project/03-cq-channel/cq_waiting.c"
	run --separate-stderr limited "$extended_cq"
	assert_sample "$project/03-cq-channel/extended_cq.c"
}

@test "they end well, without a word on stderr, and release in the right order" {
	for name in cq_channel cq_waiting; do
		read -r ended _ <"$seen/$name.status"
		assert_equal "$ended" 0
		assert_equal "$(<"$seen/$name.err")" ''
		output=$(<"$seen/$name.out")
		assert_released "${everything[@]}"
	done
}

# --- cq_channel ---

@test "step 3: the CQ has the size that the kernel says, at least the one asked for" {
	read -r _ pid <"$seen/cq_channel.status"
	run sed -n 's/^CQ: *asked for 37 completions, granted //p' "$seen/cq_channel.out"
	((output >= 37))
	# There may be that of loopback.h as well, which is smaller.
	assert_equal "$(jq "[.[] | select(.pid == $pid).cqe] | max" "$seen/cq_channel.cq")" "$output"
}

@test "steps 5 to 7: one event is for five completions, taken in order" {
	run part 'one round' 'the loop' <"$seen/cq_channel.out"
	assert_output - <<-'END'
		one round by hand: 5 messages
		  armed
		  the messages have arrived
		  woken by an event, acknowledged
		  completion: wr_id 1, success (status 0)
		  completion: wr_id 2, success (status 0)
		  completion: wr_id 3, success (status 0)
		  completion: wr_id 4, success (status 0)
		  completion: wr_id 5, success (status 0)
		  events: 1, completions: 5, polls: 3
	END
}

@test "step 8: the loop takes what comes one by one, and sleeps in between" {
	run part 'the loop' 'released' <"$seen/cq_channel.out"
	assert_output --regexp '^the loop: 3 messages, 50 ms apart
  completion: wr_id 6, success \(status 0\)
  completion: wr_id 7, success \(status 0\)
  completion: wr_id 8, success \(status 0\)
  events: [0-9]+, completions: 3, polls: [0-9]+$'
	# Most often 3 and 7; on a busy machine two messages may come together.
	[[ $output =~ events:\ ([0-9]+),.*polls:\ ([0-9]+)$ ]]
	((BASH_REMATCH[1] >= 1 && BASH_REMATCH[1] <= 6))
	((BASH_REMATCH[2] >= 3 && BASH_REMATCH[2] <= 16))
}

# all_with_fault HOW PROGRAM...: runs them all at once, because each of them waits for
# three seconds. All must fail. Leaves NAME.out and NAME.err of each in $scratch.
all_with_fault() {
	local program name job jobs=()
	scratch=$BATS_TEST_TMPDIR
	for program in "${@:2}"; do
		name=$scratch/${program##*/}
		with_shim cq_channel "$1" "$program" >"$name.out" 2>"$name.err" &
		jobs+=($!)
	done
	for job in "${jobs[@]}"; do
		ends_with 1 "$job"
	done
}

@test "no wait is for ever: without messages all of them give up and say so" {
	local program name
	all_with_fault lose "${programs[@]}"
	for program in "${programs[@]}"; do
		name=${program##*/}
		assert_equal "$(<"$scratch/$name.err")" "$name: message 1 did not arrive in 3000 ms: \
ETIMEDOUT (Connection timed out)
  hint: is the device still there? make run-01 shows it"
		run -0 cat "$scratch/$name.out"
		assert_line 'released: ibv_destroy_qp'
		assert_line 'released: ibv_free_device_list'
	done
}

@test "no wait is for ever: without events both that sleep give up and say so" {
	all_with_fault deaf "$cq_channel" "$cq_waiting"
	assert_equal "$(<"$scratch/cq_channel.err")" "cq_channel: no event in 3000 ms: ETIMEDOUT (Connection timed out)
  hint: was the CQ armed before the completion came?"
	run -0 cat "$scratch/cq_channel.out"
	assert_released "${everything[@]}"
	assert_equal "$(<"$scratch/cq_waiting.err")" "cq_waiting: 0 of 2 completions came in 3000 ms: ETIMEDOUT (Connection timed out)
  hint: is the device still there? make run-01 shows it"
	run -0 cat "$scratch/cq_waiting.out"
	assert_released "${everything[@]}"
}

@test "a poll that fails, and a completion that failed, end the program with a message" {
	local program
	for program in "$cq_channel" "$cq_waiting"; do
		run -1 --separate-stderr with_shim cq_channel broken "$program"
		assert_equal "$stderr" "${program##*/}: ibv_poll_cq returned -2
  hint: the CQ is broken: has it overflowed?"
		assert_released "${everything[@]}"
		run -1 --separate-stderr with_shim cq_channel failed "$program"
		assert_regex "$stderr" "^${program##*/}: a receive: local protection error \
\(status 4\), wr_id [1-9]"
		assert_released "${everything[@]}"
	done
}

# --- cq_waiting ---

@test "step 2: the wrong loop sleeps beside a completion, until another one comes" {
	run part 'the wrong' 'the right' <"$seen/cq_waiting.out"
	assert_output - <<-'END'
		the wrong loop: drain, arm, sleep
		  drained, completions so far: 0
		  a message arrives
		  armed
		  slept 100 ms, no event
		  a message arrives
		  slept, woken by an event
		  drained, completions so far: 2
	END
}

@test "step 3: the right loop takes both, and sleeps only where an event comes" {
	run part 'the right' 'asleep' <"$seen/cq_waiting.out"
	assert_output - <<-'END'
		the right loop: arm, drain, sleep
		  a message arrives
		  armed
		  drained, completions so far: 1
		  a message arrives
		  slept, woken by an event
		  armed
		  drained, completions so far: 2
	END
}

@test "step 4: asleep it sleeps, awake it runs, says the kernel" {
	read -r samples sleeping cpu < <(phase_sums asleep)
	((samples >= 5 && sleeping >= 60 && cpu < 30)) ||
		fail "asleep: $samples samples, $sleeping % sleeping, $cpu % on the CPU"
	read -r samples sleeping cpu < <(phase_sums awake)
	((samples >= 5 && sleeping <= 20 && cpu > 50)) ||
		fail "awake: $samples samples, $sleeping % sleeping, $cpu % on the CPU"
}

@test "step 4: it says itself what each way of waiting costs" {
	ms='([0-9]+)\.[0-9]'
	cost="  waited $ms ms, CPU time: $ms ms, polls: ([0-9]+)"
	[[ $(part asleep awake <"$seen/cq_waiting.out") =~ $cost ]]
	((BASH_REMATCH[1] >= 200 && BASH_REMATCH[2] < 60 && BASH_REMATCH[3] <= 6))
	[[ $(part awake released <"$seen/cq_waiting.out") =~ $cost ]]
	((BASH_REMATCH[1] >= 200 && BASH_REMATCH[2] > 100 && BASH_REMATCH[3] > 1000))
}

# --- extended_cq ---

@test "extended: the iterator gives the same five, after giving none" {
	run --separate-stderr limited "$extended_cq"
	assert_success
	assert_equal "$stderr" ''
	qpn='0x[0-9a-f]{6}'
	assert_output --regexp "
before: completions: 0
  wr_id 1, success \(status 0\), QPN $qpn
  wr_id 2, success \(status 0\), QPN $qpn
  wr_id 3, success \(status 0\), QPN $qpn
  wr_id 4, success \(status 0\), QPN $qpn
  wr_id 5, success \(status 0\), QPN $qpn
after:  completions: 5
released: ibv_destroy_qp
released: ibv_destroy_cq
released: ibv_destroy_cq
released: ibv_dealloc_pd
released: ibv_close_device
released: ibv_free_device_list\$"
}

@test "extended: rxe has no time stamps, and gives the other fields" {
	run limited "$extended_cq"
	assert_line --index 1 'fields: qp_num and completion_ts: EOPNOTSUPP'
	assert_line --index 2 'fields: qp_num'
}

@test "extended: a completion that failed ends the program with a message" {
	run -1 --separate-stderr with_shim cq_channel failed "$extended_cq"
	assert_equal "$stderr" "extended_cq: a receive: local protection error (status 4)
  hint: docs/errors.md explains the status codes"
	assert_line 'released: ibv_free_device_list'
}

@test "extended: a device without extended CQs is told of, with the way out" {
	run --separate-stderr with_shim cq_channel plain "$extended_cq"
	assert_failure 1
	assert_equal "$stderr" "extended_cq: ibv_create_cq_ex(37): EOPNOTSUPP \
(Operation not supported)
  hint: if the device has no extended CQs, use ibv_create_cq(), as cq_channel.c does"
	assert_line 'released: ibv_close_device'
}

# --- all of them ---

@test "options: a bad one is refused with its name, and where help is" {
	for program in "${programs[@]}"; do
		run --separate-stderr limited "$program" -x
		assert_failure 2
		assert_equal "$stderr" "$program: invalid option -- 'x'
  hint: --help lists the options"
		run --separate-stderr limited "$program" --ib-dev
		assert_failure 2
		[[ $stderr == *"'--ib-dev' requires an argument"*hint:* ]]
		run --separate-stderr limited "$program" rxe_0
		assert_failure 2
		assert_equal "$stderr" "${program##*/}: one argument too many: rxe_0
  hint: --help lists the options"
		assert_output ''
	done
}

@test "options: --help goes to stdout and lists them" {
	for program in "${programs[@]}"; do
		run --separate-stderr limited "$program" --help
		assert_success
		assert_output --partial "usage: ${program##*/} "
		assert_output --partial '-d, --ib-dev=NAME'
		assert_equal "$stderr" ''
	done
}

@test "output that cannot be written is a failure" {
	for program in "${programs[@]}"; do
		run bash -c "'$program' 2>&1 >/dev/full"
		assert_failure 1
		assert_output --partial "${program##*/}: writing to standard output"
	done
}

@test "no device: exit status 77, and how to get one" {
	change_world
	rdma link delete rxe_0
	for program in "${programs[@]}"; do
		run --separate-stderr limited "$program"
		assert_failure 77
		assert_equal "$stderr" "${program##*/}: no RDMA device
  hint: a guest of the lab has one: tests/lab/lab run -- $program"
	done
}

@test "an unknown device: the message names it, and those that exist" {
	for program in "${programs[@]}"; do
		run --separate-stderr limited "$program" -d nonesuch
		assert_failure 1
		assert_regex "$stderr" "^${program##*/}: no device called nonesuch
  hint: there is [a-z]"
		assert_output 'released: ibv_free_device_list'
	done
}

@test "of two devices it takes the one given with -d, even a renamed one" {
	change_world
	add_rxe_1
	rdma dev set rxe_1 name other
	run limited "$extended_cq"
	refute_line --partial 'device: other'
	for program in "${programs[@]}"; do
		run limited "$program" --ib-dev other
		assert_success
		assert_line --regexp '^device: +other, port 1$'
	done
}

@test "with the port down there are no messages: it is said at once, with a hint" {
	change_world
	ip link set eth0 down
	for program in "${programs[@]}"; do
		run -1 --separate-stderr limited "$program"
		assert_output 'released: ibv_free_device_list'
		assert_regex "$stderr" "^${program##*/}: no ACTIVE port
  hint: there is rxe_0"
	done
}
