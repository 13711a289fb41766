#!/usr/bin/env bats
# Chapter 03: the completion channel and the completion queue.

load helpers

cq_channel=$BUILD/03-cq-channel/cq_channel
extended_cq=$BUILD/03-cq-channel/extended_cq
flushed='Work Request Flushed Error (status 5)'

# One run of cq_channel for many tests, again if the machine was too busy to watch it.
setup_file() {
	seen=$BATS_FILE_TMPDIR
	for _ in {1..5}; do
		watch
		[[ $(grep -c 'the cost:' "$seen/samples") -lt 5 ||
			$(grep -c '  asleep:' "$seen/samples") -lt 5 ]] || break
	done
}

setup() {
	seen=$BATS_FILE_TMPDIR
	read -r ended pid <"$seen/status"
	undo=()
}

teardown() {
	local i
	for ((i = ${#undo[@]} - 1; i >= 0; i--)); do
		eval "${undo[i]}"
	done
}

# Does $1 to the machine, and $2 at the end of the test.
change() {
	[[ ${RDMA:-} != host ]] || skip "changes this machine's devices"
	undo+=("$2")
	eval "$1"
}

# Runs cq_channel. Stops it when it tells of its CQ, and asks the kernel about that.
# Then takes samples: where does its main thread sleep ("0": it doesn't), how many ns
# has it run, and which line was the last it printed?
watch() (
	trap - DEBUG # Bats' own, which makes every command slow
	set +e
	exec {idle}<> <(:) 2>/dev/null
	timeout -k 1 "${LIMIT:-30}" "$cq_channel" >"$seen/out" 2>"$seen/err" 3>&- &
	job=$!
	child='' stopped=''
	while [[ ! $child && -e /proc/$job ]]; do
		read -r child _ <"/proc/$job/task/$job/children"
	done
	while where='' cpu=''; read -r where <"/proc/$child/wchan"
		read -r cpu _ <"/proc/$child/schedstat"; do
		mapfile -t lines <"$seen/out"
		echo "${where:--} $cpu ${lines[*]: -1}"
		if [[ ! $stopped && ${lines[2]:-} == CQ:* ]]; then
			kill -STOP "$child"
			rdma -d -j resource show cq >"$seen/cq"
			kill -CONT "$child"
			stopped=$child
		fi
		read -rt 0.005 -u "$idle"
	done >"$seen/samples"
	wait $job
	echo "$? $child" >"$seen/status"
) 2>/dev/null

# Runs `${@:2}` with a fault: $1 is "silent", nothing ever completes, or "plain", the
# device has no extended CQs. The sanitizers' own library is not the first one then.
with_fault() {
	local shim=$BUILD/03-cq-channel/shim.so
	[[ $shim -nt $BATS_TEST_FILENAME ]] || build_shim "$shim"
	SHIM=$1 LD_PRELOAD=$shim ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} \
		limited "${@:2}"
}

build_shim() {
	gcc -shared -fPIC -D_GNU_SOURCE -o "$1" -x c - <<-'END'
		#include <dlfcn.h>
		#include <stdlib.h>
		#include <string.h>
		#include <infiniband/verbs.h>

		static int shim(const char *mode)
		{
			const char *set = getenv("SHIM");

			return set && strcmp(set, mode) == 0;
		}

		struct ibv_context *ibv_open_device(struct ibv_device *device)
		{
			struct ibv_context *(*real)(struct ibv_device *) =
				dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
			struct ibv_context *context = real(device);

			if (context && shim("plain"))
				verbs_get_ctx(context)->create_cq_ex = NULL;
			return context;
		}

		int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
		{
			int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int) =
				dlvsym(RTLD_NEXT, "ibv_modify_qp", "IBVERBS_1.1");

			if (shim("silent") && attr->qp_state == IBV_QPS_ERR)
				return 0;
			return real(qp, attr, mask);
		}
	END
}

# Is each line of the sample in the header of $1 printed, in this order? Numbers may differ.
assert_sample() {
	local sample
	sample=$(sample_of "$1")
	[[ $sample ]] || fail "there is no sample in $1"
	diff <(sed 's/[0-9][0-9.]*/N/g' <<<"$sample") \
		<(sed 's/[0-9][0-9.]*/N/g' <<<"$output")
}

# The lines of `$output` from $1 up to and without $2.
part() { sed -n "/^$1/,/^$2/p" <<<"$output" | sed "/^$2/d"; }

@test "the sample in the header of each program is what it prints" {
	output=$(<"$seen/out")
	assert_sample "$project/03-cq-channel/cq_channel.c"
	run --separate-stderr limited "$extended_cq"
	assert_sample "$project/03-cq-channel/extended_cq.c"
}

@test "it ends well, without a word on stderr, and releases in the right order" {
	assert_equal "$ended" 0
	assert_equal "$(<"$seen/err")" ''
	run grep released: "$seen/out"
	assert_output - <<-'END'
		released: ibv_destroy_qp
		released: ibv_destroy_cq
		released: ibv_destroy_comp_channel
		released: ibv_dealloc_pd
		released: ibv_close_device
		released: ibv_free_device_list
	END
}

@test "step 3: the CQ has the size that the kernel says, at least the one asked for" {
	run sed -n 's/^CQ: *asked for 37 completions, granted //p' "$seen/out"
	((output >= 37))
	assert_equal "$(jq ".[] | select(.pid == $pid).cqe" "$seen/cq")" "$output"
}

@test "steps 4 to 6: one event is for five completions, taken in order" {
	output=$(<"$seen/out")
	run part 'one round' 'the gap'
	assert_output --regexp "^one round: .*
  completion: wr_id 1, Work Request Flushed Error \(status 5\)
  completion: wr_id 2, Work Request Flushed Error \(status 5\)
  completion: wr_id 3, Work Request Flushed Error \(status 5\)
  completion: wr_id 4, Work Request Flushed Error \(status 5\)
  completion: wr_id 5, Work Request Flushed Error \(status 5\)
  events: 1, completions: 5, polls: [0-9]+$"
	# Four at a time are two polls, and a third one has to come back empty.
	((${output##* } >= 3))
}

@test "step 7: asleep right after arming, it misses what slipped in before" {
	output=$(<"$seen/out")
	run part '  arm, sleep:' '  arm, poll again'
	assert_output - <<-END
		  arm, sleep:
		  events: 0, completions: 0
		  completion: wr_id 1, $flushed
		  missed: 1
	END
}

@test "step 7: polling again after arming, it misses nothing and needs no event" {
	output=$(<"$seen/out")
	run part '  arm, poll again' 'the cost'
	assert_output - <<-END
		  arm, poll again, sleep:
		  completion: wr_id 1, $flushed
		  events: 0, completions: 1
		  missed: 0
	END
}

@test "step 8: asleep it sleeps, awake it runs, says the kernel" {
	# The line before is all that is printed by then.
	run awk '
		/the cost:/ { phase = "asleep" }
		/  asleep:/ { phase = "awake" }
		!/the cost:/ && !/  asleep:/ { next }
		!(phase in first) { first[phase] = $2 }
		{ n[phase]++; sleeps[phase] += $1 ~ /poll|event/; last[phase] = $2 }
		END {
			for (p in n)
				printf "%s %d %d %d\n", p, n[p], sleeps[p] * 100 / n[p],
					(last[p] - first[p]) / 1e6
		}' "$seen/samples"
	read -r _ samples sleeping cpu < <(grep '^asleep ' <<<"$output")
	((samples >= 5 && sleeping >= 60 && cpu < 60)) ||
		fail "asleep: $samples samples, $sleeping % sleeping, $cpu ms on the CPU"
	read -r _ samples sleeping cpu < <(grep '^awake ' <<<"$output")
	((samples >= 5 && sleeping <= 20 && cpu > 100)) ||
		fail "awake: $samples samples, $sleeping % sleeping, $cpu ms on the CPU"
}

@test "step 8: it says itself what each way of waiting costs" {
	ms='([0-9]+)\.[0-9]'
	out=$(<"$seen/out")
	[[ $out =~ asleep:\ $ms\ ms,\ CPU\ time:\ $ms\ ms,\ events:\ 1,\ polls:\ ([0-9]+) ]]
	((BASH_REMATCH[1] >= 200 && BASH_REMATCH[2] < 60 && BASH_REMATCH[3] <= 6))
	[[ $out =~ awake:\ +$ms\ ms,\ CPU\ time:\ $ms\ ms,\ events:\ 0,\ polls:\ ([0-9]+) ]]
	((BASH_REMATCH[1] >= 200 && BASH_REMATCH[2] > 100 && BASH_REMATCH[3] > 1000))
}

@test "no wait is for ever: without completions both give up and say so" {
	with_fault plain true
	with_fault silent "$extended_cq" >"$seen/extended" 2>&1 3>&- &
	job=$!
	run --separate-stderr with_fault silent "$cq_channel"
	assert_failure 1
	assert_equal "$stderr" "cq_channel: 0 of 5 completions came in 3000 ms: \
ETIMEDOUT (Connection timed out)
  hint: has the CQ overflowed? is the device still there?"
	assert_line 'released: ibv_free_device_list'

	status=0
	wait $job || status=$?
	assert_equal $status 1
	run cat "$seen/extended"
	assert_line 'extended_cq: 0 of 5 completions came in 3 s: ETIMEDOUT (Connection timed out)'
	assert_line 'released: ibv_free_device_list'
}

@test "extended: the iterator gives the same five, after giving none" {
	run --separate-stderr limited "$extended_cq"
	assert_success
	assert_equal "$stderr" ''
	qpn='0x[0-9a-f]{6}'
	assert_output --regexp "
before: completions: 0
  wr_id 1, Work Request Flushed Error \(status 5\), QPN $qpn
  wr_id 2, Work Request Flushed Error \(status 5\), QPN $qpn
  wr_id 3, Work Request Flushed Error \(status 5\), QPN $qpn
  wr_id 4, Work Request Flushed Error \(status 5\), QPN $qpn
  wr_id 5, Work Request Flushed Error \(status 5\), QPN $qpn
after:  completions: 5, batches: [1-5]
released: ibv_destroy_qp
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

@test "extended: a device without extended CQs is told of, with the way out" {
	run --separate-stderr with_fault plain "$extended_cq"
	assert_failure 1
	assert_equal "$stderr" "extended_cq: ibv_create_cq_ex(37): EOPNOTSUPP \
(Operation not supported)
  hint: a device without extended CQs has those of ibv_create_cq(): see cq_channel.c"
	assert_line 'released: ibv_close_device'
}

@test "options: a bad one is refused with its name, and where help is" {
	for program in "$cq_channel" "$extended_cq"; do
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
	for program in "$cq_channel" "$extended_cq"; do
		run --separate-stderr limited "$program" --help
		assert_success
		assert_output --partial "usage: ${program##*/} "
		assert_output --partial '-d, --ib-dev=NAME'
		assert_equal "$stderr" ''
	done
}

@test "no device: exit status 77, and how to get one" {
	change 'rdma link delete rxe_0' 'rdma link add rxe_0 type rxe netdev eth0'
	for program in "$cq_channel" "$extended_cq"; do
		run --separate-stderr limited "$program"
		assert_failure 77
		assert_equal "$stderr" "${program##*/}: no RDMA device
  hint: tests/lab/lab run -- $program has one; make doctor says more"
	done
}

@test "an unknown device is named, and so are those that there are" {
	for program in "$cq_channel" "$extended_cq"; do
		run --separate-stderr limited "$program" -d nonesuch
		assert_failure 1
		assert_regex "$stderr" "^${program##*/}: no device called nonesuch
  hint: there is [a-z]"
		assert_output 'released: ibv_free_device_list'
	done
}

@test "of two devices it takes the one given with -d, even a renamed one" {
	change 'ip link add spare type dummy' 'ip link delete spare'
	change 'rdma link add rxe_1 type rxe netdev spare' 'rdma link delete other'
	rdma dev set rxe_1 name other
	run limited "$extended_cq"
	refute_line 'device: other, the first'
	for program in "$cq_channel" "$extended_cq"; do
		run limited "$program" --ib-dev other
		assert_success
		assert_line --regexp '^device: +other, given with -d$'
	done
}

@test "completion queues need no network: with the port down, all is the same" {
	change 'ip link set eth0 down' 'ip link set eth0 up'
	for program in "$cq_channel" "$extended_cq"; do
		run limited "$program"
		assert_success
		assert_line --partial 'completions: 5'
	done
}
