# lab-host, without a guest: does it cope with whatever QEMU, the guest, the
# machine and its user do, and end when it should?
#
# shims/qemu.c stands in for a QEMU that stops, lies or never answers; with
# shims/nth_call.c a call of lab-host's own fails.

load helpers

setup_file() {
	export parts=$BUILD/tests/lab-host
	mkdir -p "$parts"
	cd "$project/tests"
	cc -std=c11 -D_GNU_SOURCE -O2 -o "$parts/lab-host" lab/host.c
	cc -std=c11 -D_GNU_SOURCE -O2 -o "$parts/qemu" shims/qemu.c
	cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -o "$parts/nth_call.so" shims/nth_call.c
}

setup() { scratch=$(mktemp -d "$parts/test-XXXXXX"); }

teardown() { rm -rf "$scratch"; }

# Runs lab-host with a QEMU that misbehaves as $1 says; the rest are its options.
host() {
	local how=$1
	shift
	limited "$parts/lab-host" "$@" 2 "$parts/qemu" "$how" 1 true
}

# The same with two guests, whose QEMUs misbehave as $1 and $2 say.
pair() {
	local server=(2 "$parts/qemu" "$1" 1 true) client=(2 "$parts/qemu" "$2" 1 true)
	shift 2
	limited "$parts/lab-host" "$@" -l 'server | ' "${server[@]}" -l 'client | ' "${client[@]}"
}

# The same with -s: no command.
save() {
	local how=$1
	shift
	limited "$parts/lab-host" -s "$scratch/snapshot" "$@" 2 "$parts/qemu" "$how" 0
}

# Makes $scratch/qemu, which refuses the snapshot.
qemu_without_restore() {
	cat >"$scratch/qemu" <<-END
		#!/bin/sh
		case "\$*" in *-incoming*) echo 'bad snapshot'; exit 1 ;; esac
		exec "$parts/qemu" "\$@"
	END
	chmod +x "$scratch/qemu"
}

# Is there no process left that test started?
nothing_runs() {
	local i
	for ((i = 0; i < 100; i++)); do
		if ! pgrep -f "^$parts/(qemu|lab-host)" >/dev/null; then
			return 0
		fi
		sleep 0.02
	done
	pgrep -af "^$parts/"
	return 1
}

@test "host: a command's input, output and status" {
	run -3 host well < <(echo hello)
	assert_output hello
	nothing_runs
}

@test "host: without standard streams it works as far as it can" {
	run -3 bash -c '"$1/lab-host" 2 "$1/qemu" well 1 true <&- 2>&-' - "$parts"
	run -125 bash -c 'echo x | "$1/lab-host" 2 "$1/qemu" well 1 true >&-' - "$parts"
	assert_output 'lab: standard output: Bad file descriptor'
}

@test "host: output that cannot be written is an error, and so is input that cannot be read" {
	run -125 bash -c 'echo x | "$1/lab-host" 2 "$1/qemu" well 1 true >/dev/full' - "$parts"
	assert_output 'lab: standard output: No space left on device'
	run -125 host well <"$project"
	assert_output 'lab: standard input: Is a directory'
}

# --- neither end waits for the other ---

@test "host: 8 MB each way pass, though the guest prints all before it reads any" {
	head -c 8000000 /dev/zero | tr '\0' a >"$scratch/in"
	host late-reader <"$scratch/in" >"$scratch/out" || (($? == 3))
	(($(wc -c <"$scratch/out") == 8000000 + 8 * 1024 * 1024))
	tail -c 8000000 "$scratch/out" | cmp - "$scratch/in"
}

@test "host: a guest that takes its input slowly gets all of it" {
	head -c 3000000 /dev/urandom >"$scratch/in"
	host well <"$scratch/in" >"$scratch/out" || (($? == 3))
	cmp "$scratch/in" "$scratch/out"
}

# --- signals ---

# Each signal at each of these moments: a start that does not end, a command that
# runs, output that nobody takes, input that the guest does not take; a pair that
# starts, whose server runs, and that runs.
@test "host: each signal ends it and QEMU at any moment" {
	local signal moment how guests pid status
	mkfifo "$scratch/full"
	sleep 60 3>&- <>"$scratch/full" &
	local reader=$!
	for moment in half-frame deaf late-reader deaf-with-input \
		'half-frame half-frame' 'deaf half-frame' 'deaf deaf'; do
		guests=()
		for how in ${moment%-with-input}; do
			guests+=(2 "$parts/qemu" "$how" 1 true)
		done
		for signal in TERM INT QUIT HUP KILL; do
			case $moment in
			late-reader) exec {out}>"$scratch/full" ;;
			*) exec {out}>/dev/null ;;
			esac
			case $moment in
			deaf-with-input) exec {in}</dev/zero ;;
			*) exec {in}</dev/null ;;
			esac
			# A shell's background job ignores SIGINT and SIGQUIT, if nobody helps.
			env --default-signal "$parts/lab-host" "${guests[@]}" <&"$in" >&"$out" 3>&- &
			pid=$!
			exec {in}<&- {out}>&-
			sleep 0.2
			kill "-$signal" "$pid"
			status=0
			timeout 5 tail --pid="$pid" -f /dev/null
			wait "$pid" || status=$?
			((status == 128 + $(kill -l "$signal"))) || fail "$moment $signal: $status"
			nothing_runs
		done
	done
	kill "$reader"
}

@test "host: in the background SIGINT ends it all the same, and nohup protects from SIGHUP" {
	"$parts/lab-host" 2 "$parts/qemu" deaf 1 true 3>&- &
	local pid=$!
	sleep 0.3
	kill -INT "$pid"
	wait "$pid" || (($? == 130))
	nothing_runs
	(trap '' HUP && exec "$parts/lab-host" 2 "$parts/qemu" deaf 1 true) 3>&- &
	pid=$!
	sleep 0.3
	kill -HUP "$pid"
	sleep 0.1
	kill -0 "$pid"
	kill "$pid"
	wait "$pid" || (($? == 143))
}

# --- guests that misbehave ---

@test "host: a guest that cannot be set up says why, whenever it says so" {
	local how
	for how in failed gives-up; do
		run -125 host "$how" -p "big=$(head -c 100000 /dev/zero | tr '\0' x)" -d 5
		assert_line 'lab: the guest did not start: the wrong kind of machine'
		nothing_runs
	done
}

@test "host: half a frame does not keep it beyond the deadline" {
	SECONDS=0
	run -125 host half-frame -d 1
	assert_line 'lab: the guest did not start: it did not answer in time'
	((SECONDS <= 3))
	nothing_runs
}

@test "host: a guest that talks nonsense or dies is an error" {
	run -125 host too-long
	assert_line 'lab: the guest died: its answer is wrong'
	run -125 host no-status
	assert_line 'lab: the guest died: its answer is wrong'
	run -125 host dies
	assert_line 'lab: the guest died: QEMU ended'
	assert_line --partial 'the console of a guest that behaves dies'
	nothing_runs
}

# --- snapshots ---

@test "snapshot: is whole, also if QEMU takes its time to say so" {
	for how in well slow; do
		run -0 save "$how"
		assert_output ''
		[[ $(<"$scratch/snapshot") == "what QEMU would have written" ]]
	done
}

@test "snapshot: a migration that is stuck, refused or broken leaves none, and in time" {
	local how
	SECONDS=0
	for how in stuck refuses half-snapshot; do
		run -2 save "$how" -d 1
		assert_line --partial 'lab: no snapshot:'
		[[ ! -e $scratch/snapshot ]]
		nothing_runs
	done
	((SECONDS <= 5))
}

@test "snapshot: a full disk is blamed on this machine, a guest that does not boot is not" {
	ln -s /dev/full "$scratch/snapshot"
	run -1 save well
	assert_line --partial 'lab: no snapshot: write: No space left on device'
	run -125 limited "$parts/lab-host" -s "$scratch/snapshot" 1 /no/such/qemu 0
	assert_line --partial '/no/such/qemu: No such file or directory'
}

@test "snapshot: one that does not come up is removed only if a boot does" {
	echo x >"$scratch/snapshot"
	run -125 host failed -i "$scratch/snapshot"
	[[ -e $scratch/snapshot ]]
	qemu_without_restore
	run -3 limited "$parts/lab-host" -i "$scratch/snapshot" 2 "$scratch/qemu" well 1 true </dev/null
	assert_line 'lab: snapshot not usable, so the guest boots: QEMU ended'
	assert_line 'bad snapshot'
	[[ ! -e $scratch/snapshot ]]
	run -3 limited "$parts/lab-host" -i "$scratch/snapshot" 2 "$scratch/qemu" well 1 true </dev/null
	assert_output 'lab: snapshot not usable, so the guest boots: No such file or directory'
}

# --- calls that fail ---

@test "calls: when fork or socketpair fails, nothing is killed and the snapshot stays" {
	local call
	for call in fork socketpair pipe2; do
		echo x >"$scratch/snapshot"
		run -125 limited env LD_PRELOAD="$parts/nth_call.so" FAIL_FROM="$call" \
			"$parts/lab-host" -i "$scratch/snapshot" 2 "$parts/qemu" well 1 true </dev/null
		assert_output --regexp '^lab: QEMU could not be started: '
		[[ -e $scratch/snapshot ]]
	done
	nothing_runs
}

# `torture/lab calls` has each one fail; here it is every tenth.
@test "calls: whichever fails, what comes out is whole or there is an error" {
	STEP=10 run -0 "$project/tests/torture/lab" calls
	assert_line --regexp '^calls +[1-9][0-9]+ failing calls: 0 wrong$'
}

# --- two guests ---

@test "pair: the first status that is not 0 counts, the server's before the client's" {
	run -3 pair well dies
	run -125 pair dies well
	run -3 pair ends-well well
	run -3 pair well ends-well
	run -0 pair ends-well ends-well
	nothing_runs
}

@test "pair: our standard input is not read" {
	echo input | (pair well well >"$scratch/out" || (($? == 3)); cat >"$scratch/left")
	[[ ! -s $scratch/out && $(<"$scratch/left") == input ]]
}

@test "pair: the client starts when the server listens, and not before" {
	pair listens prints >"$scratch/out" || (($? == 3))
	assert_equal "$(head -n 1 "$scratch/out")" 'server | xxxxxxx'
	assert_equal "$(tail -n 1 "$scratch/out")" 'client | a line, number 10000'
}

@test "pair: a server that never listens, and one that has ended, do not keep the client" {
	"$parts/lab-host" 2 "$parts/qemu" deaf 1 true -l 'client | ' 2 "$parts/qemu" prints 1 true \
		>"$scratch/out" 2>&1 3>&- &
	local pid=$!
	eventually grep -qx 'client | a line, number 10000' "$scratch/out"
	kill "$pid"
	wait "$pid" || (($? == 143))
	nothing_runs
	pair ends-well prints >"$scratch/out" || (($? == 3))
	assert_equal "$(tail -n 1 "$scratch/out")" 'client | a line, number 10000'
}

@test "pair: when one guest dies, the other one's command goes on to its end" {
	local how why
	for how in dies no-status too-long; do
		why='its answer is wrong'
		if [[ $how == dies ]]; then
			why='QEMU ended'
		fi
		pair "$how" prints >"$scratch/out" 2>&1 || (($? == 125))
		grep -qx "server | lab: the guest died: $why" "$scratch/out"
		grep -qx "server | the console of a guest that behaves $how" "$scratch/out"
		(($(grep -c '^client | a line, number ' "$scratch/out") == 20000))
		pair prints "$how" >"$scratch/out" 2>&1 || (($? == 3))
		grep -qx "client | lab: the guest died: $why" "$scratch/out"
		(($(grep -c '^server | a line, number ' "$scratch/out") == 20000))
		nothing_runs
	done
}

@test "pair: when one guest does not start, there is no pair" {
	run -125 pair failed well
	assert_line 'server | lab: the guest did not start: the wrong kind of machine'
	run -125 pair deaf half-frame -d 1
	assert_line 'client | lab: the guest did not start: it did not answer in time'
	nothing_runs
}

@test "pair: a restore that fails in one of the two means a boot of this one" {
	local bad
	qemu_without_restore
	for bad in server client; do
		echo x >"$scratch/snapshot"
		local -A qemu=([server]=$parts/qemu [client]=$parts/qemu [$bad]=$scratch/qemu)
		limited "$parts/lab-host" -i "$scratch/snapshot" -l 'server | ' 2 "${qemu[server]}" prints 1 true \
			-l 'client | ' 2 "${qemu[client]}" prints 1 true >"$scratch/out" 2>&1 || (($? == 3))
		grep -qx "$bad | lab: snapshot not usable, so the guest boots: QEMU ended" "$scratch/out"
		grep -qx "$bad | bad snapshot" "$scratch/out"
		(($(grep -c 'not usable' "$scratch/out") == 1))
		(($(grep -c ' | a line, number ' "$scratch/out") == 40000))
		[[ ! -e $scratch/snapshot ]]
		nothing_runs
	done
}

@test "labels: a line and its label are written in one piece, on both streams" {
	local i
	# Two pairs on one pipe, as on a terminal; both streams of all guests.
	{
		for i in 1 2; do
			pair prints prints 2>&1 3>&- &
		done
		wait
	} | cat >"$scratch/out"
	(($(wc -l <"$scratch/out") == 80000))
	run -1 grep -vE '^(server|client) \| a line, number [0-9]+$' "$scratch/out"
	(($(sort "$scratch/out" | uniq -c | awk '$1 == 4' | wc -l) == 20000))
}

@test "labels: a line longer than the kernel keeps together becomes several" {
	run -3 host well -l 'label | ' < <(head -c 10000 /dev/zero | tr '\0' x)
	((${#lines[@]} == 3))
	[[ $(tr -d '\n' <<<"${output//label | /}" | wc -c) == 10000 ]]
	run -3 host well -l 'label | ' < <(printf 'half a line')
	assert_output 'label | half a line'
}
