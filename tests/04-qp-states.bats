#!/usr/bin/env bats
# Chapter 04: the states of a queue pair, and the ways between them.

load helpers

qp_states=$BUILD/04-qp-states/qp_states

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

# Two runs for many tests: one that pauses, while the kernel is asked at each pause; and
# one in which all calls of ibv_modify_qp() are logged.
setup_file() {
	seen=$BATS_FILE_TMPDIR
	pause_and_look
	with_shim log "$qp_states" >"$seen/logged-out"
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

# Runs qp_states -p. At pause number N, qp.N is what the kernel knows of its queue pairs:
# number, type, state, the peer's number, first or next PSN to receive and to send; and
# sends.N how many sends the device has made in its life.
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
		cat /sys/class/infiniband/*/ports/1/hw_counters/rdma_sends >"$seen/sends.$pauses"
		echo >&"$enter"
	done
	wait $job
	echo "$? $child" >"$seen/status"
)

# Runs `${@:2}` with a shim between it and libibverbs. $1 is what it does: "log" writes
# each call of ibv_modify_qp() to $seen/log, as QPN, state, new state, mask, result. The
# others are faults: "refuse" INIT -> RTR, "lose" what is sent, "garble" it.
# The sanitizers' own library is not the first one then.
with_shim() {
	local shim=$BUILD/04-qp-states/shim.so
	[[ $shim -nt $BATS_TEST_FILENAME ]] || build_shim "$shim"
	SHIM=$1 SHIM_LOG=$seen/log LD_PRELOAD=$shim \
		ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-} limited "${@:2}"
}

build_shim() {
	gcc -shared -fPIC -D_GNU_SOURCE -o "$1" -x c - <<-'END'
		#include <dlfcn.h>
		#include <errno.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <infiniband/verbs.h>

		#define REAL(f) ((__typeof__(f) *)dlvsym(RTLD_NEXT, #f, "IBVERBS_1.1"))

		static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
					     struct ibv_send_wr **);

		static int shim(const char *mode)
		{
			return strcmp(getenv("SHIM"), mode) == 0;
		}

		static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				     struct ibv_send_wr **bad_wr)
		{
			if (shim("lose"))
				return 0;
			if (shim("garble"))
				wr->sg_list->addr++;
			return real_post_send(qp, wr, bad_wr);
		}

		struct ibv_context *ibv_open_device(struct ibv_device *device)
		{
			struct ibv_context *context = REAL(ibv_open_device)(device);

			if (context) {
				real_post_send = context->ops.post_send;
				context->ops.post_send = post_send;
			}
			return context;
		}

		int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
		{
			static const char *const name[] = {
				"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"
			};
			struct ibv_qp_init_attr init;
			struct ibv_qp_attr now;
			FILE *log;
			int result;

			if (shim("refuse") && attr->qp_state == IBV_QPS_RTR)
				return EINVAL;
			if (!shim("log"))
				return REAL(ibv_modify_qp)(qp, attr, mask);

			REAL(ibv_query_qp)(qp, &now, IBV_QP_STATE, &init);
			result = REAL(ibv_modify_qp)(qp, attr, mask);
			log = fopen(getenv("SHIM_LOG"), "a");
			fprintf(log, "%u %s %s %d %d\n", qp->qp_num, name[now.qp_state],
				name[attr->qp_state], mask, result);
			fclose(log);
			return result;
		}
	END
}

# Is each line of the sample in the header of $1 printed, in this order? Numbers may
# differ, and "..." stands for any lines.
assert_sample() {
	local sample
	sample=$(sample_of "$1")
	[[ $sample ]] || fail "there is no sample in $1"
	awk '
		{ gsub(/[0-9a-f.:]*[0-9][0-9a-f.:]*/, "N") }
		NR == FNR { want[++n] = $0; next }
		{ line[++m] = $0 }
		END {
			for (i = j = 1; i <= n; i++) {
				if (want[i] == "...") { gap = 1; continue }
				while (gap && j <= m && line[j] != want[i]) j++
				if (line[j++] != want[i]) { print "not printed: " want[i]; exit 1 }
				gap = 0
			}
		}' <(echo "$sample") <(echo "$output")
}

# What the kernel said of queue pair $2 (A, B or C) at pause $1.
kernel() {
	local number
	while read -r number type state rqpn rq_psn sq_psn; do
		((number != qpn[$2])) || return 0
	done <"$seen/qp.$1"
	fail "the kernel knows no queue pair $2"
}

# Sets qpn[] and psn[] to what was printed in step 3.
read_numbers() {
	declare -gA qpn psn
	local name number first
	while read -r name number first; do
		qpn[${name%:}]=$((number)) psn[${name%:}]=$((first))
	done < <(sed -nE 's/^([ABC]:) +QPN (0x[0-9a-f]{6}), PSN (0x[0-9a-f]{6}), .*/\1 \2 \3/p' \
		"$seen/out")
	((${#qpn[@]} == 3))
}

# The lines of file $1 from $2 on, up to and without $3.
part() { sed -n "/^$2/,/^$3/p" "$1" | sed "/^$3/d"; }

@test "the sample in the header is what it prints" {
	# On Linux 6.12, rxe flushes the mistaken send, too.
	output=$(grep -v '^pause:' "$seen/out" | sed '/^ERR: A/ {
		n; s/Work Request Flushed Error (status 5)/local QP operation error (status 2)/
	}')
	assert_sample "$project/04-qp-states/qp_states.c"
}

@test "it ends well, without a word on stderr, and releases in the right order" {
	assert_equal "$ended" 0
	assert_equal "$(<"$seen/err")" ''
	run grep released: "$seen/out"
	assert_output - <<-'END'
		released: ibv_destroy_qp
		released: ibv_destroy_qp
		released: ibv_destroy_qp
		released: ibv_destroy_cq
		released: ibv_dereg_mr
		released: ibv_dealloc_pd
		released: ibv_close_device
		released: ibv_free_device_list
	END
}

@test "step 3: the kernel knows the three queue pairs, in RESET" {
	read_numbers
	for name in A B C; do
		kernel 1 $name
		assert_equal "$type $state" 'RC RESET'
	done
	assert_equal "$(wc -l <"$seen/qp.1")" 3
}

@test "step 4: RESET -> INIT, for A and B" {
	read_numbers
	for name in A B; do
		kernel 2 $name
		assert_equal "$state" INIT
	done
	run part "$seen/out" 'RESET -> INIT' pause
	assert_line '  A: INIT, port 1, pkey_index 0, access 0x0'
	assert_line '  B: INIT, port 1, pkey_index 0, access 0x0'
}

@test "step 5: INIT -> RTR, where each knows the other's number and first PSN" {
	read_numbers
	run part "$seen/out" 'INIT -> RTR' pause
	for pair in 'A B' 'B A'; do
		read -r self peer <<<"$pair"
		kernel 3 "$self"
		assert_equal "$state $rqpn $rq_psn" "RTR ${qpn[$peer]} ${psn[$peer]}"
		assert_line --regexp "^  $self: RTR, path_mtu [0-9]+, $(printf \
			'dest_qpn 0x%06x, rq_psn 0x%06x' "$rqpn" "$rq_psn")\$"
	done
}

@test "step 5: the path MTU is the port's" {
	mtu=$(sed -n 's/^device: .* MTU //p' "$seen/out")
	run sed -n 's/^  [AB]: RTR, path_mtu \([0-9]*\),.*/\1/p' "$seen/out"
	assert_output "$mtu
$mtu
$mtu
$mtu"
	# 1024 is what fits into the 1500 bytes of an Ethernet frame: 76 are for headers.
	[[ ${RDMA:-} == host ]] || assert_equal "$mtu" 1024
}

@test "step 6: RTR -> RTS, each with the first PSN it was given" {
	read_numbers
	run part "$seen/out" 'RTR -> RTS' pause
	for name in A B; do
		kernel 4 $name
		assert_equal "$state $sq_psn" "RTS ${psn[$name]}"
		assert_line --partial "$(printf '%s: RTS, sq_psn 0x%06x, rq_psn 0x%06x' \
			$name "$sq_psn" "$rq_psn")"
	done
	kernel 4 C
	assert_equal "$state" RESET
}

@test "steps 4 to 6: the attributes of each step are those of ibv_modify_qp(3)" {
	for to in INIT RTR RTS; do
		run sed -n "/^${before[$to]} -> $to$/{n; s/^  //p}" "$seen/out"
		assert_equal "$(tr ' ' '\n' <<<"${lines[0]}" | sort)" \
			"$(tr ' ' '\n' <<<"${needed[$to]:?}" | sort)"
	done
}

@test "step 7: one message goes from A to B, and the PSNs move on by one" {
	read_numbers
	run part "$seen/out" 'a message' pause
	assert_line '  A: send, success (status 0)'
	assert_line '  B: receive, success (status 0)'
	assert_line '  B has received "Hello B, this is A"'
	assert_equal $(($(<"$seen/sends.5") - $(<"$seen/sends.4"))) 1
	kernel 5 A
	assert_equal "$sq_psn $rq_psn" "$((psn[A] + 1)) ${psn[B]}"
	assert_line --partial "$(printf 'A: RTS, sq_psn 0x%06x' "$sq_psn")"
	kernel 5 B
	assert_equal "$sq_psn $rq_psn" "${psn[B]} $((psn[A] + 1))"
	assert_line --partial "$(printf 'B: RTS, sq_psn 0x%06x, rq_psn 0x%06x' \
		"$sq_psn" "$rq_psn")"
}

@test "step 8: without any one attribute a step is refused, and that was really tried" {
	c=$(sed -nE 's/^C: +QPN (0x[0-9a-f]*).*/\1/p' "$seen/logged-out")
	for to in INIT RTR RTS; do
		full=0
		for name in ${needed[$to]:?}; do
			((full |= 1 << bit[$name]))
		done
		for name in ${needed[$to]#STATE }; do
			echo "${before[$to]} -> $to without $name EINVAL" >&4
			echo "$((c)) ${before[$to]} $to $((full & ~(1 << bit[$name]))) 22" >&5
		done
	done 4>"$seen/printed" 5>"$seen/tried"
	sed -nE 's/^  ([A-Z]+ +-> .* without)/\1/; T; s/ +/ /gp' "$seen/out" |
		diff "$seen/printed" -
	# The log has more, of ways that are taken.
	assert_equal "$(grep -cxFf "$seen/tried" "$seen/log")" 14
}

@test "step 8: values that the port does not have are refused, but for the path MTU" {
	run cat "$seen/out"
	assert_line --regexp '^  RESET -> INIT port_num 255 +EINVAL$'
	assert_line --regexp '^  INIT  -> RTR  is_global 0 +EINVAL$'
	assert_line --regexp '^  INIT  -> RTR  sgid_index 255 +E[A-Z]+$'
	# Here rxe differs from other devices. A port with the greatest MTU has no such line.
	[[ $output == *', MTU 4096'* ]] ||
		assert_line --regexp '^  INIT  -> RTR  path_mtu 4096, not [0-9]+ +accepted$'
}

# Prints the table of all pairs in file $1 as lines: state, new state, result.
pairs() {
	sed -n '/^all pairs/,/^ERR/p' "$1" | awk '
		NR == 2 { for (i = 2; i <= NF; i++) to[i] = $i }
		NR > 2 && !/^ERR:/ { for (i = 2; i <= NF; i++) print $1, to[i], $i }'
}

@test "step 8: all 42 pairs were tried, and the table is what the device said" {
	c=$(sed -nE 's/^C: +QPN (0x[0-9a-f]*).*/\1/p' "$seen/logged-out")
	awk -v qp="$((c))" '
		$1 == qp { tried[$2 " " $3] = 1; if ($5 == 0) taken[$2 " " $3] = 1 }
		END { for (p in tried) print p, p in taken ? "taken" : "refused" }
	' "$seen/log" | sort >"$seen/device-says"
	run wc -l <"$seen/device-says"
	assert_output 42
	pairs "$seen/logged-out" | sed 's/ !*-$/ refused/; t; s/[^ ]*$/taken/' | sort |
		diff "$seen/device-says" -
}

@test "step 8: the device does as the specification has it, but for RESET -> ERR" {
	for from in "${states[@]}"; do
		[[ $from != SQE ]] || continue
		for to in "${states[@]}"; do
			case "$from-$to ${may[$from]:?}" in
			RESET-ERR*) echo "$from $to !-" ;;
			RESET-INIT* | INIT-RTR* | RTR-RTS*) echo "$from $to attrs" ;;
			*" $to "*) echo "$from $to state" ;;
			*) echo "$from $to -" ;;
			esac
		done
	done >"$seen/specified"
	pairs "$seen/out" | diff "$seen/specified" -
}

@test "step 9: A is put into ERR by a mistake, and what it sends next is flushed" {
	read_numbers
	run part "$seen/out" 'ERR: A' 'ERR: B'
	# Local protection error is 4; rxe says local QP operation error, 2, and on
	# Linux 6.12 flushes this one, too.
	assert_line --index 1 --regexp '^  A: send, (local .* error \(status [24]\)|.* Flushed Error \(status 5\))$'
	assert_line --index 2 '  A: send, Work Request Flushed Error (status 5)'
	assert_equal "${#lines[@]}" 3
	kernel 6 A
	assert_equal "$state" ERR
}

@test "step 9: B is told to enter ERR, and its two receives are flushed" {
	read_numbers
	run part "$seen/out" 'ERR: B' pause
	assert_output - <<-'END'
		ERR: B is told to, and its two receives are flushed
		  B: receive, Work Request Flushed Error (status 5)
		  B: receive, Work Request Flushed Error (status 5)
		  A: ERR
		  B: ERR
	END
	kernel 6 B
	assert_equal "$state" ERR
}

@test "step 10: over RESET both come to RTS again, with the PSNs they began with" {
	read_numbers
	run part "$seen/out" 'ERR -> RESET' 'a message'
	assert_line --index 0 'ERR -> RESET'
	assert_line --index 1 '  STATE'
	assert_line '  A: RESET'
	assert_line '  B: RESET'
	for name in A B; do
		kernel 7 $name
		assert_equal "$state $sq_psn" "RTS ${psn[$name]}"
	done
}

@test "step 10: and a message goes through again" {
	run sed -n '/Hello B/,$p' "$seen/out"
	assert_line '  A: send, success (status 0)'
	assert_line '  B: receive, success (status 0)'
	assert_line '  B has received "Hello again"'
}

@test "a refused step is named, with the errno and what to do" {
	run --separate-stderr with_shim refuse "$qp_states"
	assert_failure 1
	assert_equal "$stderr" "qp_states: ibv_modify_qp(A, INIT -> RTR): EINVAL (Invalid argument)
  hint: dmesg may know more; make run-01 shows ports and GIDs, and -g takes another GID"
	assert_line 'released: ibv_free_device_list'
}

@test "no wait is for ever: without completions it gives up and says so" {
	run --separate-stderr with_shim lose "$qp_states"
	assert_failure 1
	assert_regex "$stderr" '^qp_states: 2 completions did not come: ETIMEDOUT .*
  hint: is the port ACTIVE'
}

@test "a message that is not what was sent is noticed" {
	run --separate-stderr with_shim garble "$qp_states"
	assert_failure 1
	assert_regex "$stderr" '^qp_states: B has not received what A sent'
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
}

@test "options: --help goes to stdout and lists them" {
	run --separate-stderr limited "$qp_states" --help
	assert_success
	for option in --ib-dev --ib-port --gid-idx --pause --help; do
		assert_output --partial "$option"
	done
	assert_equal "$stderr" ''
}

@test "an unknown device, a port and a GID index that are not there" {
	run --separate-stderr limited "$qp_states" -d nonesuch
	assert_failure 1
	assert_regex "$stderr" '^qp_states: no device called nonesuch
  hint: there is [a-z]'
	run --separate-stderr limited "$qp_states" -i 2
	assert_failure 1
	assert_regex "$stderr" '^qp_states: no ACTIVE port 2
  hint: '
	run --separate-stderr limited "$qp_states" -g 200
	assert_failure 1
	assert_regex "$stderr" '^qp_states: GID index 200: E[A-Z]+ .*
  hint: '
}

@test "no device: exit status 77, and how to get one" {
	change 'rdma link delete rxe_0' 'rdma link add rxe_0 type rxe netdev eth0'
	run --separate-stderr limited "$qp_states"
	assert_failure 77
	assert_equal "$stderr" "qp_states: no RDMA device
  hint: tests/lab/lab run -- $qp_states has one; make doctor says more"
}

@test "a port that is down is refused; another device's port is taken, if ACTIVE" {
	change 'ip link set eth0 down' 'ip link set eth0 up'
	run --separate-stderr limited "$qp_states"
	assert_failure 1
	assert_regex "$stderr" '^qp_states: no ACTIVE port
  hint: there is rxe_0; make run-01 shows its ports'

	change 'ip link add spare type dummy' 'ip link delete spare'
	ip address add 10.8.0.1/24 dev spare
	ip link set spare up
	change 'rdma link add rxe_1 type rxe netdev spare' 'rdma link delete other'
	rdma dev set rxe_1 name other
	run limited "$qp_states"
	assert_success
	assert_line --regexp '^device: +other, port 1, ACTIVE'
	assert_line --partial '::ffff:10.8.0.1'
}

@test "with IPv6 only, a link-local GID does; -g takes it without asking" {
	# After a link came up, the kernel first makes sure that nobody else has the address.
	until [[ $(ip -6 address show dev eth0 scope link -tentative) ]]; do sleep 0.1; done
	run limited "$qp_states" -g 0
	assert_success
	assert_line --regexp '^GID: +index 0, fe80::.* given with -g'

	change 'ip address delete 10.9.0.1/24 dev eth0' 'ip address add 10.9.0.1/24 dev eth0'
	run limited "$qp_states"
	assert_success
	assert_line --regexp '^GID: +index [0-9]+, fe80::'
	assert_line '  B has received "Hello again"'
}
