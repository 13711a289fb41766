# Chapter 02: context, PD and MRs, as the kernel sees them while they are alive.
# As root, where there is one device rxe_0 on eth0, 10.9.0.1, as in a guest.

# shellcheck disable=SC2154 # what helpers and Bats set
load helpers

program=$BUILD/02-context-pd-mr/context_pd_mr
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)

teardown() { put_right; }

# start PROGRAM [ARGUMENT...]: starts it with -p, up to its pause. Then $output is what it
# has printed, and $pid is its process.
start() {
	local line
	coproc side { limited "$@" -p 2>&1; }
	# At its end, Bash forgets all about a coprocess.
	exec {from}<&"${side[0]}" {to}>&"${side[1]}"
	waiting=$side_PID
	output=
	while IFS= read -r -t 20 line <&"$from" && [[ $line != "pause: "* ]]; do
		output+=$line$'\n'
	done
	assert_equal "$line" "pause: press Enter to go on"
	pid=$(pgrep -x context_pd_mr)
	mapfile -t lines <<<"${output%$'\n'}"
}

# Lets it go on. Then $output is what else it has printed.
finish() {
	echo >&"$to"
	output=$(cat <&"$from")
	exec {from}<&- {to}>&-
	wait "$waiting"
}

# The rows of the table: letters and keys, or letters and why it was refused.
table() { awk '$1 ~ /^[L-][W-][R-][A-]$/ { print $1, $2, $3 }' <<<"$output"; }

# The line about the first region, in the form of a row.
first_mr() { sed -nE 's/^MR: .* lkey (0x[0-9a-f]+), rkey (0x[0-9a-f]+)$/L--- \1 \2/p' <<<"$output"; }

# released_mrs COUNT: what it prints when it releases everything, with so many MRs.
released_mrs() {
	local i
	for ((i = 0; i < $1; i++)); do
		released ibv_dereg_mr
	done
	released ibv_dealloc_pd ibv_close_device ibv_free_device_list
}

@test "the sample in its header comment is what it prints" {
	local sample
	run -0 limited "$program"
	sample=$(sample_of "$project/02-context-pd-mr/context_pd_mr.c")
	# Addresses and keys differ; a line of dots stands for lines left out.
	unify() { sed -E 's/0x[0-9a-f]{12}/ADDRESS/; s/0x0000[0-9a-f]{4}/KEY/g'; }
	[[ $(unify <<<"$output") == $(unify <<<"$sample" |
		sed -e 's/[][*?\\]/\\&/g' -e 's/^ *\.\.\.$/*/') ]] ||
		fail "not the sample: $output"
}

@test "step 1: no device is status 77, with a hint" {
	change_world
	rdma link delete rxe_0
	run -77 limited "$program"
	assert_output "context_pd_mr: no RDMA device
  hint: a guest of the lab has one: tests/lab/lab run -- $program
released: ibv_free_device_list"
}

@test "step 1: it takes the first device, or the one of -d; an unknown one is an error" {
	change_world
	add_rxe_1
	run -0 limited "$program"
	assert_line "device:  rxe_0, the first"

	start "$program" --ib-dev=rxe_1
	assert_line "device:  rxe_1, given with -d"
	assert_equal "$(rdma -j resource show mr | jq -r '.[].ifname' | sort -u)" rxe_1
	finish

	run -1 limited "$program" -d rxe_9
	assert_output "context_pd_mr: no device called rxe_9
  hint: there is rxe_0; make run-01 shows its ports
  hint: there is rxe_1; make run-01 shows its ports
released: ibv_free_device_list"
}

@test "step 1: the context is an open file; its port need not be ACTIVE" {
	change_world
	ip link set eth0 down
	start "$program"
	local descriptor=${lines[1]##* } file=${lines[1]%,*}
	assert_equal "$(readlink "/proc/$pid/fd/$descriptor")" "${file#context: }"
	finish
}

@test "step 2: the limits are those of the device and of the process" {
	run -0 ibv_devinfo -v
	local pds mrs size
	pds=$(awk '/max_pd:/ { print $2 }' <<<"$output")
	mrs=$(awk '/max_mr:/ { print $2 }' <<<"$output")
	size=$(awk '/max_mr_size:/ { print $2 }' <<<"$output")

	ulimit -l 64
	run -0 limited "$program"
	assert_line "limits:  $pds PDs, $mrs MRs, $size bytes in an MR"
	assert_line "         RLIMIT_MEMLOCK: 65536 bytes pinned in all, except for root"
	ulimit -l unlimited
	run -0 limited "$program"
	assert_line "         no RLIMIT_MEMLOCK"
}

@test "steps 3 to 5: the kernel has the PD and the MRs, with these keys" {
	start "$program"
	assert_equal "$(rdma -d -j resource show pd | jq ".[] | select(.pid == $pid) | .users")" 11
	assert_equal "$(rdma -d -j resource show mr | jq -r ".[] | select(.pid == $pid) |
		.mrlen, .lkey, .rkey" | paste -d ' ' - - -)" "$({ first_mr; table; } |
		awk '/0x/ { print 3000, $2, $3 }' | sed -E 's/ 0x0{0,7}/ /g')"
	# One page each.
	assert_equal "$(awk '/^VmPin/ { print $2 }' "/proc/$pid/status")" 44
	finish
}

@test "step 4: the first region is the buffer, with LOCAL_WRITE" {
	run -0 limited "$program"
	assert_equal "$(first_mr | wc -l)" 1
	# The buffer begins a page, so each region pins one page.
	assert_line --regexp '^MR:      3000 bytes at 0x[0-9a-f]+000, lkey'
}

@test "step 5: every combination once; W and A only with L; rkeys for peers only" {
	local letters lkey rkey want=
	run -0 limited "$program"
	for letters in {-,L}{-,W}{-,R}{-,A}; do
		case $letters in
		-*[WA]*) want+="$letters refused"$'\n' ;;
		L*[WRA]* | --R-) want+="$letters granted rkey"$'\n' ;;
		*) want+="$letters granted"$'\n' ;;
		esac
	done
	# Some kernels give an rkey also where no peer may do anything.
	assert_equal "$(table | while read -r letters lkey rkey; do
		if [[ $letters == ?--- ]]; then
			rkey=0x00000000
		fi
		case $lkey,$rkey in
		refused:,EINVAL) echo "$letters refused" ;;
		0x*,0x00000000) echo "$letters granted" ;;
		0x*,"$lkey") echo "$letters granted rkey" ;;
		*) echo "$letters? $lkey $rkey" ;;
		esac
	done | sort)" "$(sort <<<"${want%$'\n'}")"
	assert_equal "$(table | awk '/0x/ { print $2 }' | sort -u | wc -l)" 10
}

@test "step 6: refused are memory that is not mapped, and a constant" {
	run -0 limited "$program"
	assert_line --regexp '^  NULL, which is not mapped +refused: EFAULT \(Bad address\)$'
	assert_line --regexp '^  a constant +refused: EFAULT \(Bad address\)$'
}

@test "steps 7 and 8: no PD goes before its MRs; then all goes, last first" {
	local before
	before=$(rdma -j resource show)
	start "$program"
	assert_line "ibv_dealloc_pd with 11 MRs: refused: EBUSY (Device or resource busy)"
	refute_output --partial released
	refute [ "$(rdma -j resource show)" = "$before" ]
	finish
	assert_output "$(released_mrs 11)"
	assert_equal "$(rdma -j resource show)" "$before"
}

@test "too small a limit for its memory is an error that names it, and releases" {
	ulimit -l 64
	run -0 limited "${nobody[@]}" "$program" --pause </dev/null
	assert_equal "$(grep ^released <<<"$output")" "$(released_mrs 11)"

	ulimit -l 16
	# Root is exempt.
	run -0 limited "$program"
	assert_equal "$(grep ^released <<<"$output")" "$(released_mrs 11)"

	run -1 --separate-stderr limited "${nobody[@]}" "$program"
	assert_equal "$(grep ^released <<<"$output")" "$(released_mrs 4)"
	assert_equal "$({ first_mr; table; } | grep -c 0x)" 4
	assert_regex "$stderr" "context_pd_mr: ibv_reg_mr\(3000 bytes, ....\): ENOMEM .*
  hint: ulimit -l shows how much you may register; docs/setup.md says how to raise it$"

	ulimit -l 0
	run -1 --separate-stderr limited "${nobody[@]}" "$program"
	assert_equal "$(grep ^released <<<"$output")" "$(released_mrs 0)"
	assert_regex "$stderr" "context_pd_mr: ibv_reg_mr\(3000 bytes\): EPERM .*
  hint: ulimit -l .*$"
}

@test "usage: --help is no error; a wrong option is one, with a hint" {
	run -0 --separate-stderr limited "$program" --help
	assert_line --index 0 "usage: context_pd_mr [OPTIONS]"
	assert_equal "$stderr" ""
	run -2 limited "$program" -z
	assert_output "$program: invalid option -- 'z'
  hint: --help lists the options"
	run -2 limited "$program" -p rxe_0
	assert_output "context_pd_mr: one argument too many: rxe_0
  hint: --help lists the options"
}
