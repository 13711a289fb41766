# The lab: what a guest is, what it leaves behind, and how it starts.
# Runs on the machine, not in a guest.

load helpers

lab=$project/tests/lab/lab

setup_file() {
	# Everything below assumes that the parts are there; and none may take part in
	# another test's measurement.
	LIMIT=300 limited "$project/tests/lab/lab" run true >&2
}

setup() {
	mkdir -p "$BUILD"
	scratch=$(mktemp -d "$BUILD/lab-test-XXXXXX")
}

teardown() {
	rm -rf "$scratch"
}

# A cache of its own that shares only the kernel.
fresh_cache() {
	local own=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-workbook}
	export LAB_CACHE=$scratch/cache
	mkdir "$LAB_CACHE"
	[[ ! -d $own/kernel ]] || ln -s "$own/kernel" "$LAB_CACHE/kernel"
}

# Starts a guest in the background that says "up" and then sleeps; sets lab_pid, the
# process the user sees, and qemu_pid.
start_sleeper() {
	"$lab" run -- sh -c 'echo up; exec sleep 60' >"$scratch/out" 2>&1 3>&- &
	lab_pid=$!
	eventually grep -q up "$scratch/out"
	qemu_pid=$(pgrep -P "$lab_pid" -f qemu)
}

# Kills the terminal of script(1), which was started last, when $1 is in its output. The
# guest is known by the folder that it can change.
close_terminal_at() {
	local script=$!
	eventually grep -qs "$1" "$scratch/typescript"
	local pid pids
	mapfile -t pids < <(pgrep -f "qemu.*path=$BATS_TEST_TMPDIR")
	kill -KILL "$script"
	((${#pids[@]}))
	for pid in "${pids[@]}"; do
		eventually gone "$pid"
	done
}

gone() { [[ ! -e /proc/$1 ]] || grep -q '^State:.*zombie' "/proc/$1/status"; }

# --- the command in the guest ---

@test "run: the command's exit status is lab's" {
	run -3 limited "$lab" run -- sh -c 'exit 3'
	run -137 limited "$lab" run -- sh -c 'kill -9 $$'
	run -127 limited "$lab" run -- no-such-command
	assert_output --partial 'no-such-command: No such file or directory'
}

@test "run: standard output and standard error stay apart" {
	run --separate-stderr limited "$lab" run -- sh -c 'echo to-out; echo to-err >&2'
	assert_output to-out
	[[ $stderr == to-err ]]
}

@test "run: a megabyte of random bytes passes unchanged, in and out" {
	head -c 1000000 /dev/urandom >"$scratch/in"
	limited "$lab" run -- cat <"$scratch/in" >"$scratch/out"
	cmp "$scratch/in" "$scratch/out"
}

@test "run: a command that prints more than it reads, and megabytes of it" {
	head -c 2000000 /dev/urandom >"$scratch/in"
	LIMIT=60 limited "$lab" run -- od -An -v -tx1 <"$scratch/in" >"$scratch/out"
	od -An -v -tx1 "$scratch/in" | cmp - "$scratch/out"
}

@test "run: all output arrives, also when its reader is slow" {
	limited "$lab" run -- seq 300000 | (sleep 1; cat) >"$scratch/out"
	seq 300000 | cmp - "$scratch/out"
}

@test "run: streams are live, an answer comes before the input ends" {
	coproc guest { limited "$lab" run -- sh -c 'read -r x; echo "got $x"; cat >/dev/null'; }
	echo hello >&"${guest[1]}"
	read -r -t 20 answer <&"${guest[0]}"
	[[ $answer == "got hello" ]]
	kill -0 "$guest_PID"
	local in=${guest[1]}
	exec {in}>&-
	wait "$guest_PID"
}

@test "run: a command that reads nothing ends without its input ending" {
	SECONDS=0
	limited "$lab" run -- true < <(sleep 15)
	((SECONDS < 10))
}

@test "run: a reader that goes away ends the guest" {
	run -0 bash -c 'timeout 20 "$1" run -- yes | head -n 2' - "$lab"
	assert_output $'y\ny'
}

@test "run: what a command leaves running ends with it" {
	SECONDS=0
	run -0 limited "$lab" run -- sh -c 'sleep 50 & echo done'
	assert_output done
	((SECONDS < 10))
}

@test "run: arguments, environment, folder and umask are the caller's" {
	cd "$project/tests"
	umask 027
	export LAB_TEST_VARIABLE=$'two\nlines'
	run -0 limited "$lab" run -- bash -c \
		'printf "<%s>" "$@" "$LAB_TEST_VARIABLE" "$PWD" "$(umask)"' - 'a b' '' $'c\nd'
	assert_output "<a b><><c"$'\n'"d><two"$'\n'"lines><$project/tests><0027>"
}

@test "run: the command runs as the caller, as root or as another user" {
	run -0 limited "$lab" run -- id -u
	assert_output "$(id -u)"
	run -0 limited "$lab" run --root -- id -u
	assert_output 0
	cd / # the project's folder may be closed to others
	run -0 limited "$lab" run --user nobody -- sh -c 'id -un; id -Gn; cat /etc/shadow'\
' 2>/dev/null || echo refused; echo reopened >/dev/stdout'
	assert_output $'nobody\nnogroup\nrefused\nreopened'
	run -125 limited "$lab" run --user no-such-user -- true
	assert_output 'lab: no such user: no-such-user'
}

@test "run: a user in hundreds of groups is in as many in the guest" {
	((EUID == 0)) || skip "joining groups needs root"
	local count groups
	for count in 200 400; do
		groups=$(seq -s , 5001 $((5000 + count)))
		run -0 limited setpriv --groups "$groups" "$lab" run -- id -G
		assert_output "$(setpriv --groups "$groups" id -G)"
	done
}

@test "run: bad options and no command are explained" {
	run -125 limited "$lab" run --colour -- true
	assert_output 'lab: unknown option --colour; see: tests/lab/lab help'
	run -125 limited "$lab" run --mtu
	assert_output 'lab: --mtu needs a value; see: tests/lab/lab help'
	run -125 limited "$lab" run
	assert_output 'lab: run: no command; see: tests/lab/lab help'
	run -125 limited "$lab" frobnicate
	assert_output 'lab: no such command: frobnicate; see: tests/lab/lab help'
}

@test "run: there is one Soft-RoCE device, ACTIVE, with an IPv4 GID" {
	run -0 limited "$lab" run -- sh -c 'cd /sys/class/infiniband && ls &&
		cat rxe_0/ports/1/state rxe_0/ports/1/gids/1 rxe_0/ports/1/gid_attrs/types/1'
	assert_output "rxe_0
4: ACTIVE
0000:0000:0000:0000:0000:ffff:0a09:0001
RoCE v2"
}

@test "run: --mtu sets the interface's" {
	run -125 limited "$lab" run --mtu 99999 -- true
	assert_line --partial 'mtu greater than device maximum'
	refute_line --partial 'not usable'
	run -0 limited "$lab" run --mtu 4200 -- cat /sys/class/net/eth0/mtu
	assert_output 4200
}

@test "run: modules of the guest's kernel can be loaded" {
	run -0 limited "$lab" run --root -- sh -c 'modprobe dummy && ls -d /sys/module/dummy'
	assert_output /sys/module/dummy
}

# --- what a guest may touch ---

@test "files: what a guest writes is lost when it ends, except in build/" {
	run -0 limited "$lab" run --root -- sh -c 'echo x > /etc/lab-test &&
		echo x > "$1/tests/lab-test" && echo x > "$2/kept" && cat /etc/lab-test' - \
		"$project" "$scratch"
	assert_output x
	[[ ! -e /etc/lab-test && ! -e $project/tests/lab-test ]]
	[[ $(<"$scratch/kept") == x ]]
}

@test "files: QEMU itself refuses writes to the machine's root" {
	start_sleeper
	run -0 tr '\0' '\n' <"/proc/$qemu_pid/cmdline"
	kill "$lab_pid"
	assert_line --regexp '^local,path=/,.*,readonly=on,'
	[[ $(grep -c '^local,' <<<"$output") == 2 ]]
	assert_line --regexp "^local,path=$project/build,"
}

@test "files: --writable names another folder" {
	mkdir "$scratch/other, with a comma"
	run -0 limited "$lab" run --writable "$scratch/other, with a comma" -- \
		sh -c 'echo x > "$1/file"; echo y > "$1/../lost"' - "$scratch/other, with a comma"
	[[ $(<"$scratch/other, with a comma/file") == x && ! -e $scratch/lost ]]
}

@test "files: a checkout that cannot be written, with BUILD= elsewhere" {
	((EUID == 0)) || skip "mounting needs root"
	# Not below the checkout: a folder cannot be its own ancestor.
	local dir=$BATS_TEST_TMPDIR
	mkdir "$dir/checkout" "$dir/elsewhere"
	# shellcheck disable=SC2016 # the inner shell expands it
	run -0 unshare -m --propagation unchanged bash -c '
		mount --bind "$2" "$1/checkout" && mount -o remount,bind,ro "$1/checkout" &&
		cd "$1/checkout" && ! touch written 2>/dev/null &&
		RDMA=lab make run-01 BUILD="$1/elsewhere"
		status=$?
		cd / && umount "$1/checkout"
		exit "$status"' - "$dir" "$project"
	assert_output --partial rxe_0
	[[ -x $dir/elsewhere/01-devices/devices ]]
}

@test "files: nothing is left in the folder of temporary files" {
	export TMPDIR=$scratch/tmp
	mkdir "$TMPDIR"
	limited "$lab" run -- true
	limited "$lab" pair -- true -- true
	run -0 ls -A "$TMPDIR"
	assert_output ''
}

# --- the end of a guest ---

@test "end: SIGTERM ends the guest" {
	start_sleeper
	kill -TERM "$lab_pid"
	ends_with 143 "$lab_pid"
	eventually gone "$qemu_pid"
}

@test "end: SIGINT, SIGQUIT and SIGHUP end the guest, too" {
	local signal
	for signal in INT QUIT HUP; do
		rm -f "$scratch/out" # or the last round's would be seen
		# A background job of a script ignores two of them, so give back their defaults.
		env --default-signal "$lab" run -- sh -c 'echo up; exec sleep 60' \
			>"$scratch/out" 2>&1 3>&- &
		lab_pid=$!
		eventually grep -q up "$scratch/out"
		qemu_pid=$(pgrep -P "$lab_pid" -f qemu)
		kill "-$signal" "$lab_pid"
		ends_with $((128 + $(kill -l "$signal"))) "$lab_pid"
		eventually gone "$qemu_pid"
	done
}

@test "end: a signal ends the start of a guest at any moment" {
	# In a shell of its own: Bats' own handlers take part otherwise.
	# shellcheck disable=SC2016 # the inner shell expands it
	LIMIT=60 run -0 limited bash -c '
		for ((i = 0; i < 30; i++)); do
			"$1" run sleep 60 &
			sleep "$(printf "0.%03d" $((i * 10)))"
			kill -TERM $!
			wait $!
			echo "status $?"
		done 2>/dev/null' - "$lab"
	run -0 sort -u <<<"$output"
	assert_output 'status 143'
}

# bats test_tags=long
@test "end: signals end a pair" {
	local signal
	for signal in TERM INT QUIT HUP; do
		rm -f "$scratch/out"
		env --default-signal "$lab" pair -- sh -c 'echo up; exec sleep 60' -- sleep 60 \
			>"$scratch/out" 2>&1 3>&- &
		lab_pid=$!
		eventually grep -q 'server | up' "$scratch/out"
		mapfile -t qemus < <(pgrep -P "$lab_pid" qemu)
		((${#qemus[@]} == 2))
		kill "-$signal" "$lab_pid"
		ends_with $((128 + $(kill -l "$signal"))) "$lab_pid"
		eventually gone "${qemus[0]}"
		eventually gone "${qemus[1]}"
	done
}

@test "end: kill -9 of lab ends the guest, too" {
	start_sleeper
	kill -KILL "$lab_pid"
	eventually gone "$qemu_pid"
}

@test "end: kill -9 of lab pair ends both guests" {
	"$lab" pair -- sh -c 'echo up; exec sleep 60' -- sh -c 'echo up; exec sleep 60' \
		>"$scratch/out" 2>&1 3>&- &
	lab_pid=$!
	eventually grep -q 'client | up' "$scratch/out"
	mapfile -t qemus < <(pgrep -P "$lab_pid" qemu)
	((${#qemus[@]} == 2))
	kill -KILL "$lab_pid"
	eventually gone "${qemus[0]}"
	eventually gone "${qemus[1]}"
}

@test "end: a guest that dies is reported, with its console" {
	run -125 limited "$lab" run --root -- sh -c 'echo c > /proc/sysrq-trigger; sleep 20'
	assert_line 'lab: the guest died: QEMU ended'
	assert_line --partial 'Kernel panic'
}

@test "end: when a guest of a pair dies, the other one's command goes on, and the lines say whose" {
	# A guest that is there refuses a connection; one that is not does not answer.
	run -125 limited "$lab" pair --root -- \
		sh -c 'while timeout 1 bash -c ": </dev/tcp/client/9" 2>&1 | grep -q refused; do
			sleep 0.1; done; echo alone' -- \
		sh -c 'sleep 1; echo c > /proc/sysrq-trigger; sleep 20'
	assert_line 'client | lab: the guest died: QEMU ended'
	assert_line --regexp '^client \| .*Kernel panic'
	assert_line 'server | alone'
}

# --- the terminal ---

@test "terminal: size and TERM pass through, and a resize arrives" {
	cat >"$scratch/in-guest" <<-'END'
		stty size; echo "TERM=$TERM"; tty
		trap "stty size; exit 5" WINCH
		echo ready
		for i in $(seq 200); do sleep 0.1; done
	END
	cat >"$scratch/on-terminal" <<-END
		stty rows 33 cols 77
		(until grep -q ready "$scratch/typescript"; do sleep 0.1; done
		 stty rows 44 cols 88 </dev/tty) &
		"$lab" run -- bash "$scratch/in-guest"
		echo "status \$?"
	END
	TERM=vt220 run -0 limited script -qefc "bash $scratch/on-terminal" \
		"$scratch/typescript" </dev/null
	assert_output --partial '33 77'
	assert_output --partial 'TERM=vt220'
	assert_output --partial '/dev/pts/0'
	assert_output --partial '44 88'
	assert_output --partial 'status 5'
}

# bats test_tags=long
@test "terminal: Ctrl-C reaches the command, and the terminal is as before" {
	cat >"$scratch/on-terminal" <<-END
		before=\$(stty -g)
		"$lab" run -- sh -c 'echo up; exec sleep 50'
		echo "status \$?"
		[ "\$(stty -g)" = "\$before" ] && echo restored
	END
	run -0 bash -c '(until grep -q up "$1/typescript"; do sleep 0.1; done; printf "\003") |
		timeout 20 script -qefc "bash $1/on-terminal" "$1/typescript"' - "$scratch"
	assert_output --partial 'status 130'
	assert_output --partial 'restored'
}

@test "terminal: Ctrl-C and Ctrl-\\ end the two sides of make run-05" {
	local key
	make -s -C "$project" "BUILD=$scratch/out" build
	for key in '\003' '\034'; do
		rm -f "$scratch/typescript"
		run bash -c '(until grep -q "server | " "$1/typescript"; do sleep 0.1; done
			sleep 0.5; printf "$2") 2>/dev/null | RDMA=lab timeout 60 script -qefc \
			"make -C $3 BUILD=$1/out run-05 ARGS=\"-n 1000000\"" "$1/typescript"' \
			- "$scratch" "$key" "$project"
		((status != 0 && status != 124))
		refute_output --partial 'iters in'
	done
}

# bats test_tags=long
@test "terminal: one that is closed ends the guest" {
	# The typescript begins with the command itself, in which "up 42" does not occur.
	script -qefc "$lab run --writable $BATS_TEST_TMPDIR -- sh -c 'echo up \$((40 + 2)); exec sleep 60'" \
		"$scratch/typescript" >/dev/null 2>&1 </dev/zero 3>&- &
	close_terminal_at 'up 42'
}

@test "terminal: one that is closed ends the guest of make run-05, which the kernel tells make only" {
	make -s -C "$project" "BUILD=$BATS_TEST_TMPDIR" build
	RDMA=lab script -qefc "exec make -C $project BUILD=$BATS_TEST_TMPDIR run-05 \
		ARGS='-n 1000000'" "$scratch/typescript" >/dev/null 2>&1 </dev/zero 3>&- &
	close_terminal_at 'server | '
}

@test "terminal: lab shell is a bash that has one" {
	run -0 bash -c 'printf "test -t 0 && echo on-\$((40 + 2)) \$(whoami)\nexit 6\n" |
		timeout 20 script -qec "$1 shell; echo status \$?" /dev/null' - "$lab"
	assert_output --partial "on-42 $(id -un)"
	assert_output --partial 'status 6'
	run -125 limited "$lab" shell </dev/null
	assert_output --partial 'needs a terminal'
}

# --- start-up ---

@test "start: clock and random numbers are this guest's own, not the snapshot's" {
	run -0 limited "$lab" run -- sh -c 'date +%s.%N; head -c 16 /dev/urandom | od -An -tx1'
	local now first=${lines[1]} then=${lines[0]}
	now=$(date +%s.%N)
	[[ $(jq -n "$now - $then | . >= 0 and . < 2") == true ]]
	run -0 limited "$lab" run -- sh -c 'head -c 16 /dev/urandom | od -An -tx1'
	refute_output "$first"
}

@test "start: --cold boots, and the guest is the same" {
	run -0 limited "$lab" run --cold -- ls /sys/class/infiniband
	assert_output rxe_0
}

# bats test_tags=long
@test "start: two at once make the snapshot once, and both get their guest" {
	fresh_cache
	export LAB_ACCEL=tcg
	"$lab" run -- sh -c 'echo one' >"$scratch/1" 2>&1 3>&- &
	local first=$!
	"$lab" run -- sh -c 'echo two' >"$scratch/2" 2>&1 3>&- &
	wait "$first"
	wait $!
	run -0 cat "$scratch/1" "$scratch/2"
	assert_line one
	assert_line two
	[[ $(grep -c '^lab: preparing' <<<"$output") == 1 ]]
	[[ $(compgen -G "$LAB_CACHE/parts-*/snapshot" | wc -l) == 1 ]]
	run ! compgen -G "$LAB_CACHE/*.new"
}

# bats test_tags=long
@test "start: a change of the guest makes a new snapshot, no change none" {
	fresh_cache
	export LAB_ACCEL=tcg LAB_MEM=400
	run -0 limited "$lab" run -- true
	assert_output --partial 'lab: preparing the guest'
	run -0 limited "$lab" run -- true
	assert_output ''
	LAB_MEM=300 run -0 limited "$lab" run -- grep MemTotal /proc/meminfo
	assert_line --partial 'lab: preparing the guest'
	assert_line --regexp '^MemTotal: +2[0-9]{5} kB'
}

# bats test_tags=long
@test "start: damaged parts are made again, before anything starts from them" {
	fresh_cache
	export LAB_ACCEL=tcg
	limited "$lab" run -- true
	local file
	for file in snapshot lab-host tsc-khz; do
		file=$(compgen -G "$LAB_CACHE/parts-*/$file")
		: >"$file"
		run -0 limited "$lab" run -- echo through
		assert_output "lab: parts of the guest are missing or damaged: making them again
through"
		[[ -s $file ]]
	done
	# QEMU needs the kernel's file to restore as well.
	file=$(compgen -G "$LAB_CACHE/vmlinux-*")
	rm "$file"
	run -0 limited "$lab" run -- echo through
	assert_output --partial 'damaged: making them again'
	[[ -s $file ]]
	# A few bytes of 80 MB.
	file=$(compgen -G "$LAB_CACHE/parts-*/snapshot")
	printf other | dd of="$file" bs=1 seek=50000000 conv=notrunc status=none
	run -0 limited "$lab" run -- echo through
	assert_line --partial 'damaged'
	run -0 limited "$lab" run -- echo silent
	assert_output silent
}

# bats test_tags=long
@test "start: a snapshot that QEMU does not take means a cold boot, one line, and a new one" {
	fresh_cache
	export LAB_ACCEL=tcg
	limited "$lab" run -- true
	cd "$LAB_CACHE"/parts-*
	truncate -s 100000 snapshot
	sed -i "s/.* snapshot$/$(cksum snapshot)/" restored.sums
	cd "$project"

	run -0 limited "$lab" run -- echo through
	assert_line through
	assert_line --partial 'lab: snapshot not usable'
	run -0 limited "$lab" run -- echo again
	assert_line again
	refute_line --partial 'not usable'
	run -0 limited "$lab" run -- echo silent
	assert_output silent

	# The same for both guests of a pair, which restore it at the same time.
	limited env LAB_CPUS=1 "$lab" run -- true
	for parts in "$LAB_CACHE"/parts-*; do
		truncate -s 100000 "$parts/snapshot"
		(cd "$parts" && sed -i "s/.* snapshot$/$(cksum snapshot)/" restored.sums)
	done
	LIMIT=100 run -0 limited "$lab" pair -- echo through -- echo through
	for side in server client; do
		assert_line "$side | through"
		assert_line --partial "$side | lab: snapshot not usable"
	done
	LIMIT=100 run -0 limited "$lab" pair -- echo again -- echo again
	refute_line --partial 'not usable'
	assert_line 'server | again'
}

# bats test_tags=long
@test "start: QEMU that made no snapshot is asked again, but not within five minutes" {
	fresh_cache
	export LAB_ACCEL=tcg
	limited "$lab" run -- true
	local parts
	parts=$(compgen -G "$LAB_CACHE/parts-*")
	rm "$parts"/{snapshot,restored.sums}
	echo "$EPOCHSECONDS" >"$parts/no-snapshot"
	run -0 limited "$lab" run -- echo through
	assert_output $'lab: there is no snapshot, so the guest boots, which takes longer\nthrough'
	echo $((EPOCHSECONDS - 301)) >"$parts/no-snapshot"
	run -0 limited "$lab" run -- echo through
	assert_line through
	run -0 limited "$lab" run -- echo silent
	assert_output silent
}

@test "start: a full disk is reported as the reason, and no folder is left" {
	((EUID == 0)) || skip "mounting needs root"
	local own=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-workbook}
	export -f limited
	run -125 unshare -m --propagation unchanged bash -c '
		mkdir "$1/small" && mount -t tmpfs -o size=1m lab-test "$1/small"
		ln -s "$2/kernel" "$1/small/"
		LAB_ACCEL=tcg LAB_CACHE=$1/small limited "$3" run echo never
		status=$?
		ls "$1/small"
		umount "$1/small"
		exit "$status"' - "$scratch" "$own" "$lab"
	assert_line --regexp '^lab: the guest could not be prepared; .* MB free, it needs'
	refute_line never
	refute_line new
}

# bats test_tags=long
@test "start: a preparation that is ended leaves nothing, and the next start makes it" {
	fresh_cache
	export LAB_ACCEL=tcg
	local signal seconds
	# At two moments: the parts are compressed, and the guest boots.
	for seconds in 0.3 2; do
		for signal in TERM KILL; do
			"$lab" run -- echo never >"$scratch/out" 2>&1 3>&- &
			lab_pid=$!
			eventually grep -q '^lab: preparing' "$scratch/out"
			sleep "$seconds"
			kill "-$signal" "$lab_pid"
			ends_with $((128 + $(kill -l "$signal"))) "$lab_pid"
			run ! grep never "$scratch/out"
			# Whoever was killed lets go of the lock when its last child has ended.
			flock -w 10 "$LAB_CACHE/lock" true
		done
	done
	LIMIT=300 run -0 limited "$lab" run -- echo through
	assert_line through
	run ! compgen -G "$LAB_CACHE/*new"
	run -0 limited "$lab" run -- echo silent
	assert_output silent
}

# bats test_tags=long
@test "start: parts in use stay, others go after a week" {
	fresh_cache
	export LAB_ACCEL=tcg
	limited "$lab" run -- true
	local mine
	mine=$(compgen -G "$LAB_CACHE/parts-*")
	mkdir "$LAB_CACHE/parts-old" "$LAB_CACHE/parts-unused"
	touch "$LAB_CACHE/parts-unused/used"
	touch -d '9 days ago' "$LAB_CACHE/parts-unused/used" "$mine/used" "$LAB_CACHE"/parts-*
	limited "$lab" run -- true
	touch -d '9 days ago' "$mine"
	LAB_MEM=400 run -0 limited "$lab" run -- true
	[[ -e $mine/snapshot && ! -e $LAB_CACHE/parts-old && ! -e $LAB_CACHE/parts-unused ]]
}

@test "start: a lab that waits for another one says so" {
	fresh_cache
	export LAB_ACCEL=tcg
	exec {lock}>"$LAB_CACHE/lock"
	flock "$lock"
	"$lab" run -- echo through >"$scratch/out" 2>&1 3>&- {lock}>&- &
	eventually grep -qx "lab: waiting: another lab prepares a guest in $LAB_CACHE" "$scratch/out"
	exec {lock}>&-
	wait $!
	grep -qx through "$scratch/out"
}

@test "start: several labs at once do not disturb each other" {
	local i pids=()
	for i in 1 2 3 4; do
		limited "$lab" run -- sh -c "sleep 0.5; echo guest-$i; exit $i" >"$scratch/$i" &
		pids+=($!)
	done
	for i in 1 2 3 4; do
		ends_with "$i" "${pids[i - 1]}"
		[[ $(<"$scratch/$i") == "guest-$i" ]]
	done
}

# Its own 512 MB, QEMU's translated code, and QEMU. It takes less if the host has no huge
# pages free: then only what the guest has touched is there.
@test "start: a guest takes at most 750 MB of the machine" {
	start_sleeper
	local kilobytes
	kilobytes=$(sed -n 's/^VmHWM:\s*\([0-9]*\) kB/\1/p' "/proc/$qemu_pid/status")
	kill "$lab_pid"
	echo "peak: $kilobytes kB"
	((kilobytes > 50000 && kilobytes < 750000))
}

@test "start: a cache that cannot be written is explained" {
	LAB_CACHE=/proc/no run -125 limited "$lab" run -- true
	assert_output 'lab: cannot write to /proc/no; set LAB_CACHE to a folder that you own'
}

@test "start: no QEMU is explained" {
	LAB_QEMU=no-such-qemu run -125 limited "$lab" run -- true
	assert_output 'lab: no-such-qemu is missing; try: sudo apt-get install qemu-system-x86'
}

# apt knows one name of the three, as on Debian for arm64, and can download nothing.
@test "start: a kernel's package is found whichever of its names apt knows" {
	! compgen -G '/boot/vmlinuz-*' || skip "this machine has a kernel in /boot"
	mkdir "$scratch/bin"
	cat >"$scratch/bin/apt-cache" <<-'END'
		#!/bin/sh
		[ "$1 $2" = "depends linux-image-arm64" ] || exit 100
		echo linux-image-arm64
		echo "  Depends: linux-image-6.1.0-99-arm64"
	END
	printf '#!/bin/sh\nexit 100\n' >"$scratch/bin/apt-get"
	chmod +x "$scratch"/bin/*
	PATH=$scratch/bin:$PATH LAB_CACHE=$scratch/cache run -125 limited "$lab" run true
	assert_line 'lab: no kernel with rdma_rxe here: downloading linux-image-6.1.0-99-arm64 (once)'
	assert_line 'lab: download failed; the command was: apt-get download linux-image-6.1.0-99-arm64'
}

# --- KVM ---

# A QEMU whose KVM hangs for ever, as it does on some machines.
hanging_kvm() {
	fresh_cache
	cat >"$scratch/qemu" <<-END
		#!/bin/sh
		case "\$*" in *"-accel kvm"*) echo x >>"$scratch/kvm-tried"; exec sleep 600 ;; esac
		exec qemu-system-x86_64 "\$@"
	END
	chmod +x "$scratch/qemu"
	: >"$scratch/kvm"
	export LAB_QEMU=$scratch/qemu LAB_KVM_DEVICE=$scratch/kvm LAB_KVM_SECONDS=2
}

# bats test_tags=long
@test "KVM: if it hangs, emulation is used, and the deadline is waited for only once" {
	hanging_kvm
	run -0 limited "$lab" run -- echo through
	assert_line 'lab: trying whether KVM works (once, at most 2 s)'
	assert_line through
	run -0 limited "$lab" run -- echo silent
	assert_output silent
	[[ $(wc -l <"$scratch/kvm-tried") == 1 ]]
	run -0 limited "$lab" doctor
	assert_line --regexp 'ok +KVM .*did not boot with it in 2 s'
	run -1 pgrep -f "sleep 600"
}

# bats test_tags=long
@test "KVM: if it fails for a reason that may pass, it is tried again another day" {
	hanging_kvm
	sed -i 's/exec sleep 600/echo "KVM is busy" >\&2; exit 1/' "$scratch/qemu"
	run -0 limited "$lab" run -- echo through
	assert_line 'lab: KVM does not work here, so guests are emulated (to try KVM again: tests/lab/lab clean)'
	run -0 limited "$lab" run -- echo silent
	assert_output silent
	[[ $(wc -l <"$scratch/kvm-tried") == 1 ]]
	# The verdict's second field is the second it was given.
	sed -i -E "s/ [0-9]+ / $((EPOCHSECONDS - 90000)) /" "$LAB_CACHE"/accel-*
	run -0 limited "$lab" run -- echo through
	[[ $(wc -l <"$scratch/kvm-tried") == 2 ]]
}

@test "KVM: LAB_ACCEL forces it, and its failure is one of the lab" {
	hanging_kvm
	LAB_ACCEL=tcg run -0 limited "$lab" run -- true
	[[ ! -e $scratch/kvm-tried ]]
	LAB_ACCEL=magic run -125 limited "$lab" run -- true
	assert_output 'lab: LAB_ACCEL=magic is not known: set it to kvm or tcg, or unset it'
}

@test "KVM: no device and no access to it are reasons, not errors" {
	LAB_KVM_DEVICE=/no/kvm run -0 limited "$lab" doctor
	assert_line --regexp 'ok +KVM .*no /no/kvm'
}

# --- two guests ---

@test "pair: the two reach each other by name, and each line says whose it is" {
	# A port that nobody listens on is refused by a host that is there.
	run -0 limited "$lab" pair -- bash -c 'hostname; (: </dev/tcp/client/9) || :' -- \
		bash -c 'hostname; (: </dev/tcp/server/9) || :'
	assert_line 'server | server'
	assert_line 'client | client'
	assert_line --regexp '^server \| .*client/9: Connection refused'
	assert_line --regexp '^client \| .*server/9: Connection refused'
}

@test "pair: the status is 0 only if both are" {
	run -4 limited "$lab" pair -- sh -c 'exit 4' -- true
	run -5 limited "$lab" pair -- true -- sh -c 'exit 5'
	run -125 limited "$lab" pair -- true
	assert_output --partial 'pair needs two commands'
}

@test "pair: the client starts when the server listens" {
	run -0 limited "$lab" pair -- sh -c 'sleep 1; exec ibv_rc_pingpong -g 1 -n 10' -- \
		ibv_rc_pingpong -g 1 -n 10 server
	assert_line --regexp '^server \| 10 iters in'
	assert_line --regexp '^client \| 10 iters in'
}

@test "pair: --capture writes what crossed the wire" {
	run -0 limited "$lab" pair --capture "$scratch/wire.pcap" -- \
		ibv_rc_pingpong -g 1 -n 5 -s 3000 -- ibv_rc_pingpong -g 1 -n 5 -s 3000 server
	run -0 --separate-stderr tshark -r "$scratch/wire.pcap" -Y infiniband -T fields \
		-e ip.src -e infiniband.bth.opcode
	# 3000 bytes are a First, a Middle and a Last packet of at most 1024; one may
	# have been sent again.
	for side in 10.9.0.1 10.9.0.2; do
		for opcode in 0 1 2; do
			[[ $(grep -c "^$side"$'\t'"$opcode\$" <<<"$output") -ge 5 ]]
		done
	done
}

@test "pair: --loss loses packets, and reliable transport sends them again" {
	# Of about 200 packets one in twenty: that none is lost happens once in 28,000.
	# Who ended first cannot repeat a lost last acknowledgement, so one may fail.
	local pingpong='timeout 12 ibv_rc_pingpong -g 1 -n 50 -s 64'
	run -0 limited "$lab" pair --loss 5% -- sh -c "$pingpong || :
		/sbin/tc -s qdisc show dev eth0
		cd /sys/class/infiniband/rxe_0/ports/1/hw_counters && grep . completer_retry_err" \
		-- sh -c "$pingpong server || :"
	assert_line --regexp '^server \| .*netem.* loss 5%'
	assert_line --regexp '^server \| .*dropped [1-9]'
	assert_line --regexp '^server \| [1-9][0-9]*$'
	assert_line --regexp '^(server|client) \| 50 iters in'
}

@test "pair: our ping-pong crosses a wire that loses packets, and both sides succeed" {
	local pingpong=$BUILD/05-pingpong/pingpong
	run -0 limited "$lab" pair --loss 2% -- "$pingpong" -n 50 -- "$pingpong" -n 50 server
	assert_line 'server | verified: every byte of 50 of 50 messages'
	assert_line 'client | verified: every byte of 50 of 50 messages'
}

@test "pair: --delay delays" {
	# A refused connection takes the way out and back, after one for the address.
	run -0 limited "$lab" pair --delay 50ms -- true -- bash -c '(: </dev/tcp/server/9)
		start=${EPOCHREALTIME/./}; (: </dev/tcp/server/9)
		echo "took $((${EPOCHREALTIME/./} - start)) us"'
	local took
	took=$(sed -n 's/.*took \([0-9]*\) us/\1/p' <<<"$output")
	((took >= 100000 && took < 400000))
}

# --- auto, doctor, clean ---

@test "auto: says where it runs and why" {
	RDMA=lab run -0 limited "$lab" auto -- ls /sys/class/infiniband
	assert_output $'lab: in a guest, as RDMA=lab asks\nrxe_0'
	RDMA=elsewhere run -125 limited "$lab" auto -- true
	assert_output 'lab: RDMA=elsewhere is not known: set it to auto, host or lab, or unset it'
}

@test "auto: a machine whose kernel has the driver needs no guest" {
	mkdir "$scratch/bin"
	printf '#!/bin/sh\n[ "$1" = rdma_rxe ]\n' >"$scratch/bin/modinfo"
	chmod +x "$scratch/bin/modinfo"
	[[ ! -e /sys/class/infiniband/rxe_0 ]] || skip "this machine has a device"
	PATH=$scratch/bin:$PATH run -0 limited "$lab" auto -- true
	assert_line 'lab: in a guest: this machine has no ACTIVE RDMA device'
	assert_line --partial 'after make softroce-up no guest is needed'
}

@test "auto: in a guest the device is the machine's own" {
	run -0 limited "$lab" run -- env RDMA=auto "$lab" auto -- echo here
	assert_output --partial 'on this machine: its RDMA device rxe_0 is ACTIVE'
	assert_line here
	run -125 limited "$lab" run --root -- sh -c \
		'rdma link delete rxe_0; RDMA=host exec "$1" auto -- echo here' - "$lab"
	assert_output --partial 'this machine has no ACTIVE RDMA device'
	refute_line here
}

@test "doctor: a line for each requirement, and how to repair what is wrong" {
	run -0 limited "$lab" doctor
	for thing in machine packages compiler libibverbs provider Bats QEMU kernel KVM \
		'RDMA device' memlock memory disk; do
		assert_line --regexp "^  ok +$thing "
	done
	LAB_QEMU=no-such-qemu run -1 limited "$lab" doctor
	assert_line --regexp '^  WRONG +QEMU +is missing'
	assert_line --partial 'try: tests/lab/packages run'
	assert_line --regexp '^  1 of these need'
}

@test "doctor: a container, another processor, and too little memory" {
	container=podman LAB_KVM_DEVICE=$scratch/none run -0 limited "$lab" doctor
	assert_line --regexp '^  ok +machine .*, in a container$'
	assert_line --regexp '^  ok +KVM .*start the container with --device'
	HOSTTYPE=riscv64 run -1 limited "$lab" doctor
	assert_line --regexp '^  WRONG machine +riscv64.*: there is no guest for it'
	assert_line --partial 'make softroce-up; see docs/setup.md'
	mkdir "$scratch/bin"
	printf '#!/bin/sh\necho 300\n' >"$scratch/bin/awk"
	chmod +x "$scratch/bin/awk"
	PATH=$scratch/bin:$PATH run -1 limited "$lab" doctor
	assert_line --regexp '^  WRONG memory +300 MB free; a guest needs 750 MB'
	assert_line --partial 'LAB_MEM=384'
}

@test "doctor: only looks" {
	: >"$scratch/kvm"
	LAB_CACHE=$scratch/none LAB_KVM_DEVICE=$scratch/kvm run limited "$lab" doctor
	assert_line --regexp '^ +ok +kernel '
	[[ ! -e $scratch/none ]]
	fresh_cache
	LAB_KVM_DEVICE=$scratch/kvm run -0 limited "$lab" doctor
	assert_line --regexp 'ok +KVM .*the next run tries whether it works'
	run -0 ls "$LAB_CACHE"
	refute_line --regexp 'parts|accel|vmlinux'
}

# --- action.yml ---

@test "action: a command of another repository, which can change only its workspace" {
	local action=$project/tests/lab/action
	mkdir "$scratch/workspace"
	GITHUB_WORKSPACE=$scratch/workspace RUN=$'pwd\nls /sys/class/infiniband >made\ntouch ../lost' \
		run -0 limited "$action" run
	assert_line "$scratch/workspace"
	[[ $(<"$scratch/workspace/made") == rxe_0 && ! -e $scratch/lost ]]
	RUN='false; true' run -1 limited "$action" run
	RUN='' run -2 limited "$action" run
}

@test "action: a pair, and the inputs are those of action.yml" {
	PAIR='ibv_rc_pingpong -g 1 -n 5' RUN='ibv_rc_pingpong -g 1 -n 5 server' \
		run -0 limited "$project/tests/lab/action" run
	assert_line --regexp '^server \| 5 iters'
	assert_line --regexp '^client \| 5 iters'
	run -0 grep -oE '(RUN|PAIR|KERNEL): .*inputs\.[a-z]+' "$project/action.yml"
	assert_output $'RUN: ${{ inputs.run\nPAIR: ${{ inputs.pair\nKERNEL: ${{ inputs.kernel'
}

@test "clean: removes the cache, and nothing else that is in its folder" {
	export LAB_CACHE=$scratch/cache
	mkdir -p "$LAB_CACHE"/{parts-0123456789abcdef,web-state-0123456789abcdef,kernel/6.1} \
		"$LAB_CACHE"/{parts-list,web-site}
	: >"$LAB_CACHE/vmlinux-6.1"
	run -0 limited "$lab" clean
	run -0 ls "$LAB_CACHE"
	assert_output $'parts-list\nweb-site'
	rmdir "$LAB_CACHE"/*
	mkdir "$LAB_CACHE/new"
	run -0 limited "$lab" clean
	[[ ! -e $LAB_CACHE ]]
	run -0 limited "$lab" clean
}
