# Exercises and grading: what docs/teaching.md promises. On the machine; each guest is
# one of the grader's.

load helpers

setup_file() {
	env -u BUILD -u MAKEFLAGS -u MAKELEVEL make -s -C "$project" build/tests/grading/peer
}

setup() {
	unset BUILD MAKEFLAGS MAKELEVEL MFLAGS SEED HOSTS
	scratch=$BATS_TEST_TMPDIR
	grade=$project/tests/grading/grade
	LIMIT=300
	cd "$project"
}

# A tree of its own, to be a student in.
copy_tree() {
	tree=$scratch/tree
	mkdir "$tree"
	cp -r Makefile common tests [0-9][0-9]-* "$tree"
	cd "$tree"
}

# The solution of chapter $1, exercise and broken, in folder $2.
solve() {
	mkdir -p "$2/$1"
	unifdef -USTARTER -o "$2/$1/exercise.c" "$project/tests/solutions/$1.c" || [[ $? == 1 ]]
	if [[ -e $project/$1/broken.c ]]; then
		cp "$project/$1/broken.c" "$2/$1"
		patch -s -p0 -d "$2" <"$project/tests/solutions/$1.broken.patch"
	fi
}

solve_all() {
	local solution
	for solution in "$project"/tests/solutions/*.c; do
		solution=${solution##*/}
		solve "${solution%.c}" "$1"
	done
}

# Are the results in folder $1 what their readers expect?
assert_valid() {
	local name
	for name in grade classroom gradescope; do
		/usr/bin/jsonschema -i "$1/$name.json" "$project/tests/grading/schemas/$name.json"
	done
	xmllint --noout --schema "$project/tests/grading/schemas/junit.xsd" "$1/junit.xml"
	if [[ $(jq -r .status "$1/grade.json") == error ]]; then
		assert_equal "$(tail -n 1 "$1/autolab.txt")" 'not graded'
	else
		tail -n 1 "$1/autolab.txt" >"$scratch/autolab.json"
		/usr/bin/jsonschema -i "$scratch/autolab.json" "$project/tests/grading/schemas/autolab.json"
		# The points are the same for all who read them.
		run jq -s 'map(.score // (.tests | map(.score) | add)) | unique | length' \
			"$1/grade.json" "$1/classroom.json" "$1/gradescope.json"
		assert_output 1
		assert_equal "$(jq .scoreboard[0] "$scratch/autolab.json")" "$(jq .score "$1/grade.json")"
	fi
	assert [ "$(wc -c <"$1/summary.md")" -lt 1048576 ]
}

message() { jq -r --arg id "$2" '.tests[] | select(.id == $id) | .message' "$1/grade.json"; }

# --- the exercises ---

@test "exercises: each is its solution, stripped" {
	local solution chapter found=0
	for solution in tests/solutions/*.c; do
		chapter=${solution##*/}
		chapter=${chapter%.c}
		unifdef -DSTARTER "$solution" >"$scratch/starter" || [[ $? == 1 ]]
		diff "$scratch/starter" "$chapter/exercise.c"
		((++found))
	done
	assert_equal "$found" "$(printf '%s\n' [0-9][0-9]-*/exercise.c | wc -l)"
}

@test "exercises: three to six TODOs, each with a check, points and three hints" {
	local checks chapter todos ids id
	for checks in tests/checks/*.bash; do
		chapter=${checks##*/}
		chapter=${chapter%.bash}
		todos=$(grep -oE 'TODO [0-9]{2}\.[0-9]:' "$chapter/exercise.c" | grep -oE '[0-9.]+')
		ids=$(sed -n 's/^points \([0-9.]*\) [1-9][0-9]* exercise .*/\1/p' "$checks")
		assert_equal "$todos" "$ids"
		assert [ "$(wc -l <<<"$ids")" -ge 3 ]
		assert [ "$(wc -l <<<"$ids")" -le 6 ]
		for id in $(sed -n 's/^points \([0-9.]*\) .*/\1/p' "$checks"); do
			run awk -v id="## $id" '/^## / { here = $0 == id } here && /^[1-3]\. /' \
				"tests/checks/$chapter.hints.md"
			assert_equal "${#lines[@]}" 3
		done
	done
}

@test "exercises: broken.c has at most 80 lines, and one in each chapter but 01" {
	local file
	assert_equal "$(printf '%s\n' [0-9][0-9]-*/broken.c | wc -l)" \
		$(($(printf '%s\n' [0-9][0-9]-*/exercise.c | wc -l) - 1))
	for file in [0-9][0-9]-*/broken.c; do
		assert [ "$(wc -l <"$file")" -le 80 ]
	done
}

@test "exercises: clang and gcc have nothing to say about starter and solution" {
	local source compiler starter
	for source in tests/solutions/*.c [0-9][0-9]-*/broken.c; do
		for compiler in gcc clang; do
			for starter in '' -DSTARTER; do
				run -0 "$compiler" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow \
					-Wstrict-prototypes -Wmissing-prototypes $starter -iquote common \
					-c -o /dev/null "$source"
				assert_output ''
			done
		done
	done
}

# --- a student ---

@test "student: from the starter of chapter 02 to full marks, with hints on the way" {
	copy_tree
	run limited make check-02 SEED=1
	assert_failure
	assert_line --regexp '^02-context-pd-mr +02-context-pd-mr/exercise.c +seed 1 +device rx[0-9]+$'
	assert_line --regexp '^  FAIL  02\.1 .* 0/3 '
	assert_line '        you      TODO 02.1 not written yet'
	assert_line --regexp '^        look at  02-context-pd-mr/exercise.c:[0-9]+   TODO 02.1$'
	assert_line '        read     man 3 ibv_reg_mr'
	assert_line --regexp '^  --    02\.2 .*blocked by 02.1   0/5$'
	assert_line '  0/20   next: make hint-02   again, same inputs: make check-02 SEED=1'

	local rung
	for rung in 1 2 3 3; do
		run -0 make hint-02
		assert_line "02.1, hint $rung of 3:"
	done
	assert_line --partial 'flags |= IBV_ACCESS_LOCAL_WRITE'
	run make diff-02
	assert_failure
	assert_line --partial 'first solve it'

	solve 02-context-pd-mr .
	run -0 limited make check-02
	assert_line --regexp '^  ok    02\.4 .* 4/4 '
	assert_line --regexp '^  20/20 '
	run -0 make hint-02
	assert_output 'there is nothing left to do in 02-context-pd-mr'
	run -0 make progress
	assert_line --regexp '^02-context-pd-mr +20/20 +\*{5}$'
	assert_line --regexp '^03-cq-channel +-/- +not checked yet$'
	run -0 make diff-02
	refute_output --partial STARTER
}

@test "student: errors of the compiler come as they are, and nothing is run" {
	copy_tree
	sed -i 's/setvbuf(stdout/setvbuf(stdoot/' 02-context-pd-mr/exercise.c
	run limited make check-02
	assert_failure
	assert_line --regexp "^02-context-pd-mr/exercise.c:[0-9]+:[0-9]+: error: 'stdoot'|‘stdoot’"
	assert_line '02-context-pd-mr/exercise.c does not compile: nothing was checked'
	refute_line --partial 'device rx'
	assert_equal "$(grep -c 'make.*\*\*\*' <<<"$output")" 1
}

@test "student: reset asks, keeps what was there, and brings the starter back" {
	copy_tree
	echo mine >02-context-pd-mr/exercise.c
	run make reset-02 <<<n
	assert_failure
	assert_equal "$(<02-context-pd-mr/exercise.c)" mine
	run -0 make reset-02 <<<y
	diff 02-context-pd-mr/exercise.c "$project/02-context-pd-mr/exercise.c"
	assert_equal "$(cat 02-context-pd-mr/exercise.c.*.bak)" mine
}

@test "student: watch checks a chapter when its exercise is saved" {
	copy_tree
	make -s build/tests/grading/peer
	timeout 100 make watch >"$scratch/watched" 2>&1 3>&- &
	watcher=$!
	for _ in {1..50}; do
		sleep 1
		touch 01-devices/exercise.c
		! grep -q '0/20   next: make hint-01' "$scratch/watched" || break
	done
	kill "$watcher"
	grep -q '^01-devices ' "$scratch/watched"
	grep -q '0/20   next: make hint-01' "$scratch/watched"
}

# --- a grade ---

@test "grade: all solutions get all points, the same for the same seed" {
	solve_all "$scratch/in"
	run -0 limited "$grade" --seed c0ffee --results "$scratch/a" "$scratch/in"
	assert_line --regexp '^total +100/100   seed c0ffee$'
	assert_valid "$scratch/a"
	run -0 limited "$grade" --seed c0ffee --results "$scratch/b" "$scratch/in"
	diff <(jq 'del(.. | .duration_ms?)' "$scratch/a/grade.json") \
		<(jq 'del(.. | .duration_ms?)' "$scratch/b/grade.json")
}

@test "grade: the starters get nothing, and each check is in the results" {
	run -0 limited "$grade" --results "$scratch/results"
	assert_line --regexp '^total +0/100 '
	assert_valid "$scratch/results"
	assert_equal "$(jq -r '.tests[].id' "$scratch/results/grade.json")" \
		"$(sed -n 's/^points \([0-9.]*\) .*/\1/p' tests/checks/*.bash | sort)"
	# Each broken.c that hangs is told how.
	run message "$scratch/results" 03.6
	assert_output --partial 'stopped: it slept, and nothing was to come; last line: round 1'
	run message "$scratch/results" 05.6
	assert_output --partial 'stopped: it sent no more, and was busy'
}

@test "grade: loops, endless output, memory, forks and crashes are told apart" {
	local chapter
	misbehave() {
		mkdir -p "$scratch/in/$1"
		printf '%s\n' '#include <stdio.h>' '#include <stdlib.h>' '#include <string.h>' \
			'#include <unistd.h>' "int main(void) { $2 return 0; }" >"$scratch/in/$1/exercise.c"
	}
	misbehave 01-devices 'for (;;);'
	misbehave 02-context-pd-mr 'for (;;) puts("on and on");'
	misbehave 03-cq-channel 'for (;;) memset(malloc(1 << 20), 1, 1 << 20);'
	misbehave 04-qp-states 'for (;;) fork();'
	misbehave 05-pingpong 'puts("\377\376 <&\"\1 ]]>"); fflush(stdout); *(volatile int *)8 = 1;'
	run -0 limited "$grade" --results "$scratch/results" "$scratch/in"
	assert_line --regexp '^total +0/100 '
	assert_valid "$scratch/results"
	run message "$scratch/results" 01.1
	assert_output 'stopped: it still ran after 10 s'
	assert_equal "$(jq -r '.tests[0].status' "$scratch/results/grade.json")" timeout
	run message "$scratch/results" 02.1
	assert_output --partial 'it printed more than 16 KiB; last line: on'
	run message "$scratch/results" 03.1
	assert_output --partial 'killed: it took more than 64 MiB of memory'
	run message "$scratch/results" 04.1
	assert_output 'it wanted more than 16 processes and threads'
	run message "$scratch/results" 05.2
	assert_output --partial 'it crashed: SIGSEGV; last line: '
	run message "$scratch/results" 02.5
	assert_output 'there is no 02-context-pd-mr/broken.c'
}

@test "grade: a program that does not compile gets the compiler's first error" {
	solve 02-context-pd-mr "$scratch/in"
	sed -i 's/setvbuf(stdout/setvbuf(stdoot/' "$scratch/in/02-context-pd-mr/exercise.c"
	run -0 limited "$grade" --chapter 02 --results "$scratch/results" "$scratch/in"
	run message "$scratch/results" 02.1
	assert_output --regexp "^does not compile: exercise.c:[0-9]+:[0-9]+: error: .*stdoot"
	assert_equal "$(jq .score "$scratch/results/grade.json")" 4
}

@test "grade: only regular files of a chapter are taken, and no large ones" {
	local in=$scratch/in
	mkdir -p "$in"/{01-devices,03-cq-channel/broken.c,04-qp-states} "$in/"$'new\nline'
	cp 01-devices/exercise.c "$in/01-devices"
	cp 01-devices/devices.c Makefile "$in/01-devices"
	ln -s "$project/tests/solutions/03-cq-channel.c" "$in/03-cq-channel/exercise.c"
	ln -s "$project/05-pingpong" "$in/05-pingpong"
	head -c 1000000 /dev/zero >"$in/04-qp-states/exercise.c"
	mkfifo "$in/04-qp-states/broken.c"
	run -0 limited "$grade" --take "$scratch/taken" "$in"
	assert_line 'grade: not taken: 03-cq-channel/exercise.c is no regular file'
	assert_line 'grade: not taken: 03-cq-channel/broken.c is no regular file'
	assert_line 'grade: not taken: 04-qp-states/exercise.c is larger than 256 KiB'
	assert_line 'grade: not taken: 04-qp-states/broken.c is no regular file'
	assert_line 'grade: not taken: 05-pingpong/exercise.c is no regular file'
	assert_equal "$(cd "$scratch/taken" && find . -name '*.c')" ./01-devices/exercise.c
}

@test "grade: without a guest nothing is graded, and nobody has a zero" {
	mkdir "$scratch/in"
	LAB_QEMU=nonesuch run -2 limited "$grade" --results "$scratch/results" "$scratch/in"
	assert_line --partial 'not graded: '
	assert_valid "$scratch/results"
	assert_equal "$(jq -c '[.status, .score, .tests]' "$scratch/results/grade.json")" '["error",null,[]]'
	assert_equal "$(jq -c .tests "$scratch/results/classroom.json")" '[]'
	assert_equal "$(jq 'has("score")' "$scratch/results/gradescope.json")" false
	grep -q '<error ' "$scratch/results/junit.xml"
}

@test "grade: a seed that is none, and a folder that is none, are refused" {
	for seed in xyz 1234567 -1 '1 2' '$(id)'; do
		run -2 limited "$grade" --seed "$seed" --results "$scratch/results"
		assert_output --partial 'one to six hexadecimal digits'
	done
	run -2 limited "$grade" --results "$scratch/results" "$scratch/nowhere"
	assert_output "grade: SUBMISSION=$scratch/nowhere: no such folder"
	run -2 limited "$grade" --chapter 99
	assert_output 'grade: there are no checks for chapter 99'
	[[ ! -e $scratch/results ]]
	touch "$scratch/results"
	run -2 limited "$grade" --results "$scratch/results"
	assert_output "grade: $scratch/results is there, and is no folder"
}

@test "grade: with the disk full, the results of last time stay" {
	local unshare=(unshare --mount)
	((EUID == 0)) || unshare+=(--map-root-user)
	mkdir -p "$scratch/disk" "$scratch/in"
	run -2 limited "${unshare[@]}" bash -c '
		mount -t tmpfs -o size=16k disk "$1/disk"
		mkdir "$1/disk/results"
		echo old >"$1/disk/results/grade.json"
		head -c 1M /dev/zero >"$1/disk/full" 2>/dev/null
		"$2" --chapter 01 --results "$1/disk/results" "$1/in"
		status=$?
		cat "$1/disk/results/grade.json"
		ls "$1/disk"
		exit $status' - "$scratch" "$grade"
	assert_line "grade: cannot write $scratch/disk/results"
	assert_line old
	refute_line --partial results.new
}

@test "grade: a sixth chapter needs a folder, a solution and checks, no more" {
	copy_tree
	mkdir 06-more
	cat >06-more/exercise.c <<-'END'
		#include <stdio.h>
		int main(void) { puts("six"); return 0; }
	END
	cp 06-more/exercise.c tests/solutions/06-more.c
	cat >tests/checks/06-more.bash <<-'END'
		points 06.1 7 exercise 'says six' 'man 3 puts'
		check_exercise() {
			run exercise
			if printed six; then ok 06.1; else fail 06.1; fi
		}
	END
	run -0 limited make check-06
	assert_line --regexp '^  ok    06\.1  says six +7/7 '
	assert_line --regexp '^  7/7 '
}

# --- a class ---

@test "grade-all: a class, whatever its folders are called; begun once, it goes on" {
	local class=$scratch/class
	mkdir -p "$class/ann" "$class/bob b" "$class/"$'new\nline' "$class/"$'\xff'
	solve 01-devices "$class/ann"
	ln -s nowhere "$class/bob b/01-devices"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line --regexp '^ann +fail +20 +100 +20 +0 +0 +0 +0$'
	assert_line --regexp '^bob%20b +fail +0 +100 '
	assert_line --regexp '^new%0Aline +fail +0 +100 '
	assert_line --regexp '^%FF +fail +0 +100 '
	assert_equal "$(wc -l <"$scratch/out/class.csv")" 5
	assert_valid "$scratch/out/ann"

	# The next time only what is new.
	mkdir "$class/zoe"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_equal "$(wc -l <"$scratch/out/class.csv")" 6
	assert_equal "$(($(wc -l <"$scratch/out/.joblog") - 1))" 5

	# And who has sent something else.
	solve 02-context-pd-mr "$class/zoe"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line 'grade-all: zoe has changed'
	assert_line --regexp '^zoe +fail +20 +100 +0 +20 +0 +0 +0$'
	assert_equal "$(($(wc -l <"$scratch/out/.joblog") - 1))" 5

	# Other checks: all of them.
	echo others >"$scratch/out/.checks"
	rm "$scratch/out/ann/grade.json"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line 'grade-all: the checks have changed: all are graded again'
	assert_line --regexp '^ann +fail +20 +100 +20 '
}

@test "grade-all: on other machines, which are asked by ssh" {
	local class=$scratch/class port=$((20000 + RANDOM % 10000))
	mkdir -p "$class/ann"
	(umask 077 && mkdir -p "$scratch/ssh"/{.ssh,.cache})
	solve 01-devices "$class/ann"
	ssh-keygen -q -t ed25519 -N '' -f "$scratch/ssh/key"
	cp "$scratch/ssh/key.pub" "$scratch/ssh/.ssh/authorized_keys"
	# Whoever logs in there is at home in the scratch folder; the lab's cache is the same.
	ln -s "${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-workbook}" "$scratch/ssh/.cache/rdma-workbook"
	echo "$(id -un):x:$(id -u):$(id -g)::$scratch/ssh:/bin/bash" >"$scratch/ssh/passwd"
	dropbearkey -t ed25519 -f "$scratch/ssh/host"
	LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD=$scratch/ssh/passwd \
		NSS_WRAPPER_GROUP=/etc/group dropbear -F -E -s -r "$scratch/ssh/host" \
		-p "127.0.0.1:$port" -P "$scratch/ssh/pid" 2>"$scratch/ssh/log" 3>&- &
	server=$!
	cat >"$scratch/ssh/login" <<-END
		#!/bin/sh
		exec ssh -i $scratch/ssh/key -p $port -o StrictHostKeyChecking=no \
			-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "\$@"
	END
	chmod +x "$scratch/ssh/login"
	echo "1/$scratch/ssh/login 127.0.0.1" >"$scratch/hosts"
	HOSTS=$scratch/hosts PARALLEL_RSYNC_OPTS="-rlDzR -e $scratch/ssh/login" \
		run limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	kill "$server"
	assert_success
	assert_line --regexp '^ann +fail +20 +100 '
	assert_valid "$scratch/out/ann"
	grep -q 127.0.0.1 "$scratch/out/.joblog"
	grep -q 'Pubkey auth succeeded' "$scratch/ssh/log"
}

@test "handout: no solution, no history, and a student can begin in it" {
	git -C "$project" rev-parse -q --verify HEAD >/dev/null || skip "not a git tree"
	run -0 make handout DIR="$scratch/handout"
	cd "$scratch/handout"
	[[ ! -e tests/solutions && ! -e tests/corpus && ! -e .git ]]
	run grep -rlE --include='*.[ch]' 'ifdef STARTER' .
	assert_output ''
	run limited make check-02 SEED=1
	assert_line '        you      TODO 02.1 not written yet'
	rm 02-context-pd-mr/broken.c
	touch 02-context-pd-mr/broken.c
	make reset-02 <<<y
	cmp 02-context-pd-mr/broken.c tests/starters/02-context-pd-mr/broken.c
	run make handout DIR="$scratch/handout"
	assert_failure
}

@test "handout: a broken.c that is solved goes to nobody" {
	git -C "$project" rev-parse -q --verify HEAD >/dev/null || skip "not a git tree"
	git clone -q "$project" "$scratch/mine"
	cd "$scratch/mine"
	patch -s -p0 <tests/solutions/02-context-pd-mr.broken.patch
	git -c user.name=me -c user.email=me@localhost commit -qam solved
	run -2 limited tests/grading/handout "$scratch/handout"
	assert_output --partial '02-context-pd-mr/broken.c is committed, but not as it was: is it solved?'
	[[ ! -e $scratch/handout && ! -e $scratch/handout.new ]]
}
