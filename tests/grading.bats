# Exercises and grading: what docs/teaching.md and docs/grader.md promise. On the
# machine; each guest is one of the grader's.

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

# solve FOLDER [CHAPTER...]: see there.
solve() { "$project/tests/grading/solve" "$@"; }

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

# What all checks together are worth.
all_points() { awk '$1 == "points" { sum += $3 } END { print sum }' "$project"/tests/grading/checks/*/*.bash; }

message() { jq -r --arg id "$2" '.tests[] | select(.id == $id) | .message' "$1/grade.json"; }

# --- the exercises ---

@test "exercises: each is its solution, stripped" {
	local solution chapter found=0
	for solution in tests/grading/solutions/*.c; do
		chapter=${solution##*/}
		chapter=${chapter%.c}
		unifdef -DSTARTER "$solution" >"$scratch/starter" || [[ $? == 1 ]]
		diff "$scratch/starter" "$chapter/exercise.c"
		((++found))
	done
	assert_equal "$found" "$(printf '%s\n' [0-9][0-9]-*/exercise.c | wc -l)"
}

@test "exercises: three to six TODOs, each with a check, points, and three or four hints" {
	local checks chapter todos ids id
	for checks in tests/grading/checks/*; do
		chapter=${checks##*/}
		todos=$(grep -oE 'TODO [0-9]{2}\.[0-9]:' "$chapter/exercise.c" | grep -oE '[0-9.]+')
		ids=$(sed -n 's/^points \([0-9.]*\) [1-9][0-9]* .*/\1/p' "$checks/exercise.bash")
		assert_equal "$todos" "$ids"
		assert [ "$(wc -l <<<"$ids")" -ge 3 ]
		assert [ "$(wc -l <<<"$ids")" -le 6 ]
		for id in $(sed -n 's/^points \([0-9.]*\) .*/\1/p' "$checks"/*.bash); do
			run awk -v id="$id" '/^## / { here = $2 == id } here && /^[1-9]\. / { printf $1 }' \
				"$checks/hints.md"
			assert_output --regexp '^1\.2\.3\.(4\.)?$'
		done
	done
}

@test "exercises: a file of checks has at most 150 lines of 100 columns" {
	local file
	for file in tests/grading/checks/*/*.bash; do
		assert [ "$(wc -l <"$file")" -le 150 ]
		run -1 grep -n '.\{101\}' <(expand -t 4 "$file")
	done
}

@test "exercises: broken.c has at most 125 lines, and one in each chapter but 01" {
	local file
	assert_equal "$(printf '%s\n' [0-9][0-9]-*/broken.c | wc -l)" \
		$(($(printf '%s\n' [0-9][0-9]-*/exercise.c | wc -l) - 1))
	for file in [0-9][0-9]-*/broken.c; do
		assert [ "$(wc -l <"$file")" -le 125 ]
	done
}

# bats test_tags=long
@test "exercises: clang and gcc have nothing to say about starter and solution" {
	local source compiler starter
	for source in tests/grading/solutions/*.c [0-9][0-9]-*/broken.c; do
		for compiler in gcc clang; do
			for starter in '' -DSTARTER; do
				run -0 "$compiler" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow \
					-Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter \
					-Wno-unused-function $starter -iquote common \
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
	assert_line '  0/20   next: make hint-02   to check the same inputs again: make check-02 SEED=1'

	run -0 make hint-02
	assert_line --regexp '^02\.1'
	assert_line --regexp '^hint 1 of [34]'
	run make diff-02
	assert_failure
	assert_line --partial 'first solve the exercise'

	solve . 02-context-pd-mr
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

# Chapter 02 gets four hints for its first check and three for the second.
write_hints() {
	cat >tests/grading/checks/02-context-pd-mr/hints.md <<-'END'
		# Hints

		## 02.1 the letters become access flags

		1. Each letter
		   is a flag.

		   There are five.

		2. `access()` in the worked program.
		3. `ibv_reg_mr(3)`
		4. Write:

		   ```c
		   if (x)
		   	y();
		   ```

		## 02.2
		1. One.
		2. Two.
		3. Three.
	END
}

@test "student: the last of four hints is the solution, and stays" {
	copy_tree
	write_hints
	run -0 make hint-02
	assert_output $'02.1 the letters become access flags\nhint 1 of 4: the idea\n  Each letter\n  is a flag.\n\n  There are five.'
	run -0 make hint-02
	assert_line 'hint 2 of 4: where the worked program does it'
	run -0 make hint-02
	assert_line 'hint 3 of 4: man page and names'
	for _ in 1 2; do
		run -0 make hint-02
		assert_output $'02.1 the letters become access flags\nhint 4 of 4: the solution\n  Write:\n\n  if (x)\n  \ty();'
	done
}

@test "student: hints are for the first check that has failed, and three are possible" {
	copy_tree
	write_hints
	mkdir -p build/grading/02-context-pd-mr
	echo '{"tests":[{"id":"02.1","status":"pass"},{"id":"02.2","status":"fail"}]}' \
		>build/grading/02-context-pd-mr/grade.json
	run -0 make hint-02
	assert_output $'02.2\nhint 1 of 3: the idea\n  One.'
	for _ in 1 2 3; do
		run -0 make hint-02
	done
	assert_output $'02.2\nhint 3 of 3: man page and names\n  Three.'
	echo '{"tests":[{"id":"02.3","status":"fail"}]}' >build/grading/02-context-pd-mr/grade.json
	run -2 make hint-02
	assert_line 'there are no hints for 02.3'
}

@test "student: errors of the compiler come as they are, and nothing is run" {
	copy_tree
	sed -i 's/free(buf)/free(buff)/' 02-context-pd-mr/exercise.c
	run limited make check-02
	assert_failure
	assert_line --regexp "^02-context-pd-mr/exercise.c:[0-9]+:[0-9]+: error: .buff. undeclared"
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

# bats test_tags=long
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

# --- by hand ---

# bats test_tags=long
@test "try: the program and its peer, each line labelled; Enter is pressed" {
	copy_tree
	run -2 limited make try-03
	assert_line 'try    | starts: exercise 127.0.0.1 18515 9'
	assert_line 'you    | TODO 03.1 not written yet'
	assert_line 'try    | your program ended with exit status 1'
	solve . 03-cq-channel
	run -0 limited make try-03 ARGS=7
	assert_line 'try    | starts: exercise 127.0.0.1 18515 7'
	assert_line 'try    | nothing happens: the peer sends 2'
	assert_line 'try    | before Enter the peer sends 3'
	assert_line 'you    | awake'
	assert_line 'you    | all'
	assert_line 'try    | your program ended with exit status 0'
	assert_equal "$(grep -c '^you    | got 0x' <<<"$output")" 7
	assert_equal "$(grep -c '^peer   | sent 0x' <<<"$output")" 7

	solve . 05-pingpong
	run -0 limited make try-05
	assert_line 'try    | starts: peer sink 18515 3000 10'
	assert_equal "$(grep -c '^peer   | message [0-9]$' <<<"$output")" 10
	assert_line --regexp '^kernel \| qp .* state RTS '
	run -0 limited make try-05 ARGS='receive 100 8'
	assert_line 'try    | starts: peer source 18515 100 8 127.0.0.1'
	assert_equal "$(sed -n 's/^you    | got //p' <<<"$output")" "$(sed -n 's/^peer   | sent //p' <<<"$output")"
	assert_equal "$(grep -c '^you    | got ' <<<"$output")" 8

	solve . 06-one-sided
	run -0 limited make try-06 ARGS='write 100 4'
	assert_line 'try    | starts: peer write 18515 100 4'
	assert_equal "$(grep -c '^peer   | answered' <<<"$output")" 4
	assert_line --regexp '^kernel \| mr .* mrlen 100 '
	run -0 limited make try-06 ARGS=lock
	assert_line 'peer   | released'
	assert_line 'peer   | sum 6'
}

# bats test_tags=long
@test "try: every exercise and every broken.c can be run by hand, unwritten and solved" {
	copy_tree
	local chapter
	for chapter in [0-9][0-9]-*/exercise.c; do
		chapter=${chapter%%-*}
		run limited make "try-$chapter"
		assert_line --regexp '^try    \| your program ended with exit status [0-9]'
	done
	solve .
	for chapter in [0-9][0-9]-*/exercise.c; do
		run -0 limited make "try-${chapter%%-*}"
		assert_line 'try    | your program ended with exit status 0'
	done
	for chapter in [0-9][0-9]-*/broken.c; do
		run -0 limited make "try-${chapter%%-*}" PROGRAM=broken
	done
	# A client that must be refused, and then one that must not.
	run -0 limited make try-07 ARGS='3 magic'
	assert_line 'peer   | rejected 28 hello 3'
	assert_line 'you    | refused a client'
	run -2 make try-03 PROGRAM=cq_channel
	assert_line 'there is no exercise cq_channel in 03-cq-channel'
}

# bats test_tags=long
@test "try: a program that sleeps, loops, crashes or floods is ended, and told" {
	copy_tree
	local file=02-context-pd-mr/exercise.c
	misbehave() {
		printf '%s\n' '#include <stdio.h>' '#include <signal.h>' '#include <unistd.h>' \
			"int main(void) { signal(SIGPIPE, SIG_IGN); $1 return 0; }" >"$file"
	}
	misbehave 'getchar();'
	run -2 limited make try-02
	assert_line 'try    | your program waits for a line on its standard input'
	assert_line 'try    | stopped your program: it printed nothing for 12 seconds'
	misbehave 'for (;;) ;'
	run -2 limited make try-02
	assert_line 'try    | your program is busy: it polls, or loops, and prints nothing'
	misbehave 'for (;;) puts("on and on");'
	run -2 limited make try-02
	assert_line 'try    | stopped your program: it printed more than 500 lines'
	misbehave '*(volatile int *)8 = 1;'
	run -2 limited make try-02
	assert_line 'try    | your program crashed: SIGSEGV'
	assert_line 'try    | make try-02 SAN=1 shows the line'
	run -2 limited make try-02 SAN=1
	assert_line --regexp "^you    \| +#0 .* in main $file:4\$"
	# Its children end with it, though they have its output still open.
	misbehave 'if (fork()) return 7; pause();'
	run -2 limited make try-02
	assert_line 'try    | your program ended with exit status 7'
	echo 'int main(void) { return missing; }' >"$file"
	run -2 limited make try-02
	assert_line '02-context-pd-mr/exercise.c does not compile: nothing was run'
}

# --- a grade ---

# bats test_tags=long
@test "grade: all solutions get all points, the same for the same seed" {
	solve "$scratch/in"
	# In one guest, as for a class, and in two.
	LAB_CPUS=1 run -0 limited "$grade" --seed c0ffee --results "$scratch/a" "$scratch/in"
	assert_line --regexp "^total +$(all_points)/$(all_points)   seed c0ffee\$"
	assert_valid "$scratch/a"
	LAB_CPUS='' run -0 limited "$grade" --seed c0ffee --results "$scratch/b" "$scratch/in"
	# A guest's device has its name from its last program.
	diff <(jq 'del(.. | .duration_ms?, .device?)' "$scratch/a/grade.json") \
		<(jq 'del(.. | .duration_ms?, .device?)' "$scratch/b/grade.json")
}

# bats test_tags=long
@test "grade: the starters get nothing, and each check is in the results" {
	run -0 limited "$grade" --results "$scratch/results"
	assert_line --regexp "^total +0/$(all_points) "
	assert_valid "$scratch/results"
	assert_equal "$(jq -r '.tests[].id' "$scratch/results/grade.json")" \
		"$(sed -n 's/^points \([0-9.]*\) .*/\1/p' tests/grading/checks/*/*.bash | sort)"
	# Each broken.c that hangs is told how.
	run message "$scratch/results" 03.6
	assert_output --partial 'stopped: it slept, and nothing woke it up; last line: round 1'
	run message "$scratch/results" 05.6
	assert_output --partial 'stopped: it sent no more, and was busy'
}

# bats test_tags=long
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
	assert_line --regexp "^total +0/$(all_points) "
	assert_valid "$scratch/results"
	run message "$scratch/results" 01.1
	assert_output 'stopped: it still ran after 10 s'
	assert_equal "$(jq -r '.tests[0].status' "$scratch/results/grade.json")" timeout
	run message "$scratch/results" 02.1
	assert_output --partial 'stopped: it printed more than 10000 lines; last line: on'
	run message "$scratch/results" 03.1
	assert_output --partial 'killed: it took more than 64 MiB of memory'
	run message "$scratch/results" 04.1
	assert_output 'it tried to start more than 16 processes and threads'
	run message "$scratch/results" 05.1
	assert_output --partial 'it crashed: SIGSEGV; last line: '
	run message "$scratch/results" 02.5
	assert_output 'there is no 02-context-pd-mr/broken.c'
}

# bats test_tags=long
@test "grade: nothing that is printed removes a check from the results, or adds points" {
	local in=$scratch/in
	solve "$in"
	# What ends a field, a line or a record, and what looks like one: on both streams, in
	# what the compiler says, and as all that a program says of itself.
	cat >"$in/01-devices/exercise.c" <<-'END'
		#include <stdio.h>
		int main(void)
		{
			for (int c = 1; c < 256; c++)
				fprintf(c & 1 ? stdout : stderr, "%c check 01.1%cstatus pass%cCHECK\n", c, c, c);
			fputs("last \037 \036 \033[2J \r check 01.1 \302\205 end 7", stderr);
			return 1;
		}
	END
	printf '#error "\037 \036 \033 \v check 02.1 \f status pass"\n' >>"$in/02-context-pd-mr/exercise.c"
	printf 'int main(void) { return 0; }\n' >"$in/04-qp-states/exercise.c"
	: >"$in/05-pingpong/broken.c"
	run -0 limited "$grade" --results "$scratch/results" "$in"
	# Lost: 01, the exercises of 02 and 04, and 05's broken.c.
	assert_line --regexp "^total +$(($(all_points) - 20 - 16 - 16 - 3))/$(all_points) "
	assert_valid "$scratch/results"
	assert_equal "$(jq -r '.tests[].id' "$scratch/results/grade.json")" \
		"$(sed -n 's/^points \([0-9.]*\) .*/\1/p' tests/grading/checks/*/*.bash | sort)"
	assert_equal "$(jq '[.tests[] | select(.message == "" and .status != "pass")] | length' \
		"$scratch/results/grade.json")" 0
	run message "$scratch/results" 01.1
	assert_output --partial 'exit status 1 before CHECKPOINT chosen; last line: '
	run message "$scratch/results" 02.1
	assert_output --partial 'does not compile: exercise.c:'
}

# half FOLDER CHAPTER ID...: the solution, in which the bodies of these TODOs are not written.
half() {
	mkdir -p "$1/$2"
	awk -v ids=" ${*:3} " '
		/^#ifdef STARTER/ {
			getline
			match($0, /[0-9][0-9]\.[0-9]/)
			is_kept = index(ids, " " substr($0, RSTART, RLENGTH) " ")
			is_inside = 1
		}
		/^#else/ { is_kept = !is_kept; next }
		/^#endif/ && is_inside { is_inside = 0; next }
		!is_inside || is_kept' "tests/grading/solutions/$2.c" >"$1/$2/exercise.c"
}

# bats test_tags=long
@test "grade: functions that are written have their points, although others are not" {
	half "$scratch/in" 01-devices 01.3
	half "$scratch/in" 05-pingpong 05.5
	half "$scratch/in" 06-one-sided 06.2 06.3
	half "$scratch/in" 07-rdma-cm 07.3 07.5
	run -0 limited "$grade" --results "$scratch/out" "$scratch/in"
	run -0 jq -r '[.tests[] | select(.status == "pass").id] | join(" ")' "$scratch/out/grade.json"
	assert_output '01.1 01.5 05.1 05.2 05.3 05.4 06.1 06.4 06.5 06.6 07.1 07.4'
	assert_equal "$(message "$scratch/out" 01.2)" 'blocked by 01.3'
	assert_equal "$(message "$scratch/out" 06.3)" 'blocked by 06.2'
}

@test "grade: records that say nothing, or nonsense, are checks that have not passed" {
	local table=$'01-a\t01.1\t7\texercise\tfirst\tpage\n01-a\t01.2\t3\texercise\tsecond\tpage\n'
	# U+FFFE, which is no character, and U+202E, which turns a line round, are no part of XML or of
	# a table.
	printf '%s\n' junk 'check 01.1' 'status pass' 'score 100' $'message \xef\xbf\xbe\xe2\x80\xae' 'check 09.9' \
		'status pass' 'end 5' |
		jq -R -s --arg seed 1 --arg error '' --arg rdma_core 44 --arg duration 1 \
			--arg places '' --arg table "$table" -f tests/grading/formats/grade.jq >"$scratch/grade.json"
	run jq -c '[.score, .max_score, [.tests[] | [.id, .status, .score]]]' "$scratch/grade.json"
	assert_output '[7,10,[["01.1","pass",7],["01.2","error",0]]]'
	assert_equal "$(jq -r '.tests[0].message' "$scratch/grade.json")" '??'
}

@test "grade: a program that does not compile gets the compiler's first error" {
	solve "$scratch/in" 02-context-pd-mr
	sed -i 's/free(buf)/free(buff)/' "$scratch/in/02-context-pd-mr/exercise.c"
	# BUILD may be relative, as in make BUILD=build.
	BUILD=build run -0 limited "$grade" --chapter 02 --results "$scratch/results" "$scratch/in"
	run message "$scratch/results" 02.1
	assert_output --regexp "^does not compile: exercise.c:[0-9]+:[0-9]+: error: .*buff"
	# And the linker's words, if it is a function that is not there.
	sed -i 's/free(buff)/free_it(buf)/' "$scratch/in/02-context-pd-mr/exercise.c"
	BUILD=build run -0 limited "$grade" --chapter 02 --results "$scratch/results" "$scratch/in"
	run message "$scratch/results" 02.1
	assert_output --regexp "^does not compile: .*undefined reference to .free_it'"
	assert_equal "$(jq .score "$scratch/results/grade.json")" 4
}

@test "grade: if the compiler's sandbox fails, nobody gets 'does not compile'" {
	mkdir -p "$scratch/in/01-devices"
	echo 'int main(void) { return missing; }' >"$scratch/in/01-devices/exercise.c"
	# It works when it is tried, and never again.
	printf '%s\n' '#!/bin/bash' '[[ ! -e $0.used ]] || exit 1' ': >"$0.used"' 'exec bwrap "$@"' \
		>"$scratch/bwrap"
	chmod +x "$scratch/bwrap"
	GRADE_BWRAP=$scratch/bwrap run -2 limited "$grade" --chapter 01 --results "$scratch/results" "$scratch/in"
	assert_line "grade: the compiler's sandbox does not work any more"
	assert [ ! -e "$scratch/results/grade.json" ]
}

# bats test_tags=long
@test "grade: whatever the umask is, the sandbox can read, and results stay private" {
	copy_tree
	umask 077
	solve "$scratch/in" 02-context-pd-mr
	make -s build/tests/grading/peer
	for bwrap in bwrap nonesuch; do
		GRADE_BWRAP=$bwrap run -0 limited tests/grading/grade --chapter 02 --results "$scratch/$bwrap" "$scratch/in"
		assert_line --regexp '^total +20/20 '
		assert_equal "$(stat -c %a "$scratch/$bwrap/grade.json")" 600
	done
	cp "$scratch"/in/02-context-pd-mr/*.c 02-context-pd-mr
	run -0 limited make check-02
	assert_line --regexp '^  20/20 '
}

@test "grade: what we may not read is not the student's fault" {
	((EUID == 0)) || skip "needs root"
	local mode
	# Root without the capability to read what belongs to others.
	for mode in 700 600 755; do
		solve "$scratch/$mode" 01-devices
		chmod "$mode" "$scratch/$mode/01-devices"
		chmod 600 "$scratch/$mode/01-devices/exercise.c"
		chown -R nobody "$scratch/$mode"
		run -2 limited setpriv --bounding-set=-dac_override,-dac_read_search \
			"$grade" --take "$scratch/taken" "$scratch/$mode"
		assert_line --partial "cannot read '$scratch/$mode'/01-devices/exercise.c"
	done
}

# bats test_tags=long
@test "grade: the compiler sees the system's files alone, here and in the guest" {
	mkdir -p "$scratch/in/01-devices"
	tests/grading/solve "$scratch/solved" 01-devices
	for bwrap in bwrap nonesuch; do
		export GRADE_BWRAP=$bwrap
		for file in "$project/01-devices/devices.c" /etc/passwd; do
			printf '#include "%s"\n' "$file" >"$scratch/in/01-devices/exercise.c"
			run -0 limited "$grade" --chapter 01 --results "$scratch/results" "$scratch/in"
			run jq -r '.tests[0].message' "$scratch/results/grade.json"
			assert_output --partial "$file: No such file or directory"
		done
		run -0 limited "$grade" --chapter 01 --results "$scratch/results" "$scratch/solved"
		assert_line --regexp '^total +20/20 '
	done
}

@test "grade: only regular files of a chapter are taken, and no large ones" {
	local in=$scratch/in
	mkdir -p "$in"/{01-devices,03-cq-channel/broken.c,04-qp-states} "$in/"$'new\nline'
	cp 01-devices/exercise.c "$in/01-devices"
	cp 01-devices/devices.c Makefile "$in/01-devices"
	ln -s "$project/tests/grading/solutions/03-cq-channel.c" "$in/03-cq-channel/exercise.c"
	ln -s "$project/05-pingpong" "$in/05-pingpong"
	head -c 1000000 /dev/zero >"$in/04-qp-states/exercise.c"
	mkfifo "$in/04-qp-states/broken.c"
	run -0 limited "$grade" --take "$scratch/taken" "$in"
	assert_line "grade: 'in': not taken: 03-cq-channel/exercise.c is no regular file"
	assert_line "grade: 'in': not taken: 03-cq-channel/broken.c is no regular file"
	assert_line "grade: 'in': not taken: 04-qp-states/exercise.c is larger than 256 KiB"
	assert_line "grade: 'in': not taken: 04-qp-states/broken.c is no regular file"
	assert_line "grade: 'in': not taken: 05-pingpong/exercise.c is no regular file"
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

# The files below folder $1, and what is in them.
fingerprint() { (cd "$1" && find . -printf '%P %y %l\n' | sort && find . -type f -exec sha256sum {} + | sort); }

@test "grade: only a folder that is empty, or that it made, is replaced by results" {
	local in=$scratch/in before folder
	mkdir -p "$in/01-devices" "$scratch"/{foreign,added,links}
	cp 01-devices/exercise.c "$in/01-devices"
	ln -s in "$scratch/link"
	# A folder of somebody's; one that says it is ours, with a file that is not, or a link.
	echo precious >"$scratch/foreign/report.txt"
	touch "$scratch"/{added,links}/{.made-by-grade,grade.json}
	touch "$scratch/added/notes"
	ln -s ../foreign/report.txt "$scratch/links/junit.xml"
	# A submission that says it is results, all of it.
	cp -r "$in" "$scratch/forged"
	touch "$scratch/forged"/{.made-by-grade,grade.json}
	before=$(fingerprint "$scratch")
	for folder in "$in" "$in/" "$in/new" "$in/01-devices" "$scratch/link" "$scratch/link/new" \
		"$scratch/foreign/../in" "$scratch" "$scratch/" /; do
		run -2 limited "$grade" --results "$folder" "$in"
		assert_output --regexp '^grade: results in .*choose another folder$'
	done
	run -2 limited "$grade" --results "$in/new" "$scratch/link"
	assert_output --partial 'That is in the submission'
	for folder in foreign added links forged; do
		run -2 limited "$grade" --results "$scratch/$folder" "$in"
		assert_output --partial 'It has files that make grade did not write'
	done
	for folder in . docs 01-devices; do
		run -2 limited "$grade" --results "$folder"
	done
	assert_equal "$(fingerprint "$scratch")" "$before"
}

@test "grade: what cannot be graded, or is stopped, leaves everything as it was" {
	local results=$scratch/some/results before signal stage
	mkdir -p "$scratch/in/01-devices"
	cp 01-devices/exercise.c "$scratch/in/01-devices"
	# The first time nothing is there, not even its parent.
	timeout -s INT 2 "$grade" --results "$results" "$scratch/in" 3>&- || :
	[[ ! -e $scratch/some ]]
	mkdir -p "$results"
	echo old >"$results/grade.json"
	touch "$results/.made-by-grade"
	before=$(fingerprint "$scratch/some")
	LAB_QEMU=nonesuch run -2 limited "$grade" --results "$results" "$scratch/in"
	assert_line --partial "$results is as it was before"
	mkdir -p "$scratch/build"
	cp -r build/common build/tests "$scratch/build"
	for signal in TERM HUP KILL; do
		[[ ! $(ls "$scratch/build/grading" 2>&1) == *stage* ]]
		STOPPED=$scratch BUILD=$scratch/build run timeout -s "$signal" 3 "$grade" \
			--results "$results" "$scratch/in" 3>&-
	done
	assert_equal "$(fingerprint "$scratch/some")" "$before"
	# Nothing of it runs, and what SIGKILL did not let it remove goes the next time.
	for _ in {1..100}; do
		grep -qsz "^STOPPED=$scratch$" /proc/[0-9]*/environ || break
		sleep 0.1
	done
	run grep -lsz "^STOPPED=$scratch$" /proc/[0-9]*/environ
	assert_output ''
	LAB_QEMU=nonesuch BUILD=$scratch/build run -2 limited "$grade" --results "$results" "$scratch/in"
	assert_equal "$(ls "$scratch/build/grading")" ''
}

@test "grade: a table that cannot be printed is a failure, and the results are there" {
	mkdir -p "$scratch/in"
	# shellcheck disable=SC2016 # the inner shell's
	run -2 limited bash -c '"$1" --chapter 01 --results "$2/results" "$2/in" >&-' - "$grade" "$scratch"
	assert_output --partial "graded, and the results are in $scratch/results; but the table cannot be printed"
	assert_valid "$scratch/results"
}

# Only checks in folder $tree that are made up: chapters 01 on, in the order of the bodies,
# and all of them in one guest.
make_up_checks() {
	local body number=0 chapter
	export LAB_CPUS=2
	rm -rf tests/grading/checks/* tests/grading/solutions/*
	for body; do
		((number += 1))
		chapter=0$number-made-up
		mkdir -p "$scratch/in/$chapter" "$chapter" "tests/grading/checks/$chapter"
		cp 01-devices/exercise.c "$scratch/in/$chapter"
		printf 'points 0%s.1 7 "the first" page\npoints 0%s.2 3 "the second" page\n' \
			"$number" "$number" >"tests/grading/checks/$chapter/exercise.bash"
		printf 'check_exercise() {\n%s\n}\n' "$body" >>"tests/grading/checks/$chapter/exercise.bash"
	done
}

# bats test_tags=long
@test "grade: a check that dies takes no other one with it, and no points from the total" {
	copy_tree
	make_up_checks 'run exercise; ok 01.1; ok 01.2' \
		'run exercise; ok 02.1; echo "$nothing_is_here"' \
		'start exercise; rdma link delete "$device"; ip link add w0 type dummy; sleep 900 & exit 3' \
		'[[ $(ls /sys/class/infiniband) == "$device" && ! -e /sys/class/net/w0 ]] && ok 04.1
		pgrep -f "sleep 900" >/dev/null || ok 04.2' 'ok 05.1' 'ok 06.1; sleep 900'
	# It hangs for less time than it could.
	sed -i 's/^most_share=.*/most_share=5000/' tests/grading/runner
	make -s build/tests/grading/peer
	run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line 'grade: 02.1 was not checked: the check itself ended too early; show this to your teacher'
	assert_line 'grade: 05.2 was not checked: the check came to no result; show this to your teacher'
	assert_line 'grade: 06.1 was not checked: the check was not done after 10 s; show this to your teacher'
	assert_line --regexp '^total +27/60 '
	assert_valid "$scratch/results"
	assert_equal "$(jq -c '[.tests[] | .status]' "$scratch/results/grade.json")" \
		'["pass","pass","error","error","error","error","pass","pass","pass","error","error","error"]'
	run jq -r '.tests[2].kernel' "$scratch/results/grade.json"
	assert_output --partial 'nothing_is_here: unbound variable'
	grep -q '<error message="the check itself' "$scratch/results/junit.xml"
	xmllint --noout --schema tests/grading/schemas/junit.xsd "$scratch/results/junit.xml"
}

# bats test_tags=long
@test "grade: if a program ends the guest, or stops it, another guest checks what is left" {
	copy_tree
	# 01 does no harm the second time; 03 and 05 do, each time.
	make_up_checks '[[ -e $folder/once ]] || { : >"$folder/once"; echo c >/proc/sysrq-trigger; }
		ok 01.1; ok 01.2' 'ok 02.1; ok 02.2' 'echo c >/proc/sysrq-trigger' 'ok 04.1; ok 04.2' \
		'ok 05.1; pkill -STOP -f tests/grading/runner' 'ok 06.1; ok 06.2'
	sed -i 's/^most_silent=.*/most_silent=10/' tests/grading/grade
	make -s build/tests/grading/peer
	LAB_CPUS='' run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line 'grade: the guest stopped working while it checked 01-made-up/exercise; what is left is tried in another guest'
	assert_line 'grade: the guest stopped working while it checked 05-made-up/exercise; what is left is tried in another guest'
	assert_line 'grade: 03.1 was not checked: the guest broke down while this program was checked; show this to your teacher'
	assert_line --regexp '^total +40/60 '
	assert_valid "$scratch/results"
}

# bats test_tags=long
@test "grade: a program that used up its share is checked again, with what others left" {
	copy_tree
	# The exercises keep 20 of 43 seconds each, and use a fraction, so the broken.c has 3
	# at first. Its check passes only when it is made a second time.
	sed -i -e 's/^all_time=.*/all_time=43000/' -e 's/\[exercise]=[0-9]*/[exercise]=20000/' \
		tests/grading/runner
	make_up_checks 'if [[ -e $log/again ]]; then
			ok 01.1; ok 01.2
		else
			: >"$log/again"
			start broken; until_line never; fail 01.1
		fi' 'ok 02.1; ok 02.2' 'ok 03.1; ok 03.2'
	(cd tests/grading/checks/01-made-up && mv exercise.bash broken.bash && sed -i s/exercise/broken/ broken.bash)
	rm "$scratch/in/01-made-up/exercise.c"
	printf '#include <unistd.h>\nint main(void) { pause(); }\n' >"$scratch/in/01-made-up/broken.c"
	make -s build/tests/grading/peer
	run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line --regexp '^total +30/30 '
}

# bats test_tags=long
@test "grade: a check that is killed, or whose peer fails, comes to no result, and others do" {
	copy_tree
	make_up_checks 'ok 01.1; ok 01.2' 'kill -KILL $BASHPID'
	make -s build/tests/grading/peer
	run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line 'grade: the guest stopped working while it checked 02-made-up/exercise; what is left is tried in another guest'
	assert_equal "$(jq -c '[.score, .tests[].status]' "$scratch/results/grade.json")" \
		'[10,"pass","pass","error","error"]'
	rm -r "$scratch/in"
	make_up_checks 'rdma link delete "$device"; peer burst 20000; until_peer_listens; start exercise' \
		'ok 02.1; ok 02.2' \
		'peer burst 20000; until_peer_listens; kill -SEGV "$peer_pid"; nap 1; ok 03.1; ok 03.2'
	run -0 limited tests/grading/grade --results "$scratch/peer" "$scratch/in"
	assert_equal "$(jq -r .score "$scratch/peer/grade.json")" 10
	run jq -r '.tests[] | select(.status == "error").message' "$scratch/peer/grade.json"
	assert_equal "$(sort -u <<<"$output")" \
		"the other side, which is the grader's, failed twice; show this to your teacher"
}

# bats test_tags=long
@test "grade: what a program leaves fills no other's disk, and no memory of the guest" {
	copy_tree
	local fill='run exercise; for n in 1 2 3 4 5 6 7 8; do run exercise; done'
	make_up_checks "$fill; ok 01.1; ok 01.2" "$fill; ok 02.1; ok 02.2" \
		'ok 03.1; run exercise; printed "room here" && ok 03.2'
	cp tests/shims/leaves_much.c "$scratch/in/01-made-up/exercise.c"
	cp tests/shims/leaves_much.c "$scratch/in/02-made-up/exercise.c"
	cat >"$scratch/in/03-made-up/exercise.c" <<-'END'
		#include <fcntl.h>
		#include <stdio.h>
		#include <unistd.h>
		int main(void)
		{
			int fd = open("/tmp/mine", O_CREAT | O_EXCL | O_WRONLY, 0600);
			puts(write(fd, "x", 1) == 1 ? "room here" : "no room");
			return 0;
		}
	END
	make -s build/tests/grading/peer
	run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line --regexp '^total +30/30 '
}

# bats test_tags=long
@test "grade: files that a program leaves in a message are closed before the next one" {
	local chapter
	copy_tree
	make_up_checks 'start exercise device; until_line sent && ok 01.1; stop; files_open && ok 01.2' \
		'files_open || ok 02.1; start exercise; until_line sent; go && ok 02.2' \
		'start exercise; until_line sent && ok 03.1; read -t 0 -u "$input" || ok 03.2' \
		'add_interface && ok 04.1; [[ $(</proc/sys/kernel/modprobe) ]] || ok 04.2'
	for chapter in "$scratch"/in/*; do
		cp tests/shims/leaves_open.c "$chapter/exercise.c"
	done
	make -s build/tests/grading/peer
	run -0 limited tests/grading/grade --results "$scratch/results" "$scratch/in"
	assert_line --regexp '^total +40/40 '
}

@test "grade: a wrong seed, and a folder that does not exist, are refused" {
	for seed in xyz 1234567890123 -1 '1 2' '$(id)'; do
		run -2 limited "$grade" --seed "$seed" --results "$scratch/results"
		assert_output --partial 'one to twelve hexadecimal digits'
	done
	run -2 limited "$grade" --results "$scratch/results" "$scratch/nowhere"
	assert_output "grade: SUBMISSION=$scratch/nowhere: no such folder"
	run -2 limited "$grade" --chapter 99
	assert_output 'grade: there are no checks for chapter 99'
	[[ ! -e $scratch/results ]]
	touch "$scratch/results"
	run -2 limited "$grade" --results "$scratch/results"
	assert_output "grade: $scratch/results exists, but is not a folder: choose another one with --results"
}

@test "grade: with the disk full, the results of last time stay" {
	# In a plain chroot / is no mount point, and what is mounted where cannot be made
	# private: so it is unmounted in any case.
	local unshare=(unshare --mount --propagation unchanged)
	((EUID == 0)) || unshare+=(--map-root-user)
	"${unshare[@]}" true || skip "this user may not mount here"
	mkdir -p "$scratch/disk" "$scratch/in"
	run -2 limited "${unshare[@]}" bash -c '
		mount --make-rprivate / 2>/dev/null
		mount -t tmpfs -o size=16k disk "$1/disk" || exit
		trap "umount \"$1/disk\"" EXIT
		mkdir "$1/disk/results"
		echo old >"$1/disk/results/grade.json"
		touch "$1/disk/results/.made-by-grade"
		head -c 1M /dev/zero >"$1/disk/full" 2>/dev/null
		"$2" --chapter 01 --results "$1/disk/results" "$1/in"
		status=$?
		cat "$1/disk/results/grade.json"
		ls -A "$1/disk"
		exit $status' - "$scratch" "$grade"
	assert_line "grade: cannot write $scratch/disk/results"
	assert_line old
	refute_line --partial results.new
}

# A chapter whose number bash would take for an octal one is a chapter as well.
# bats test_tags=long
@test "grade: another chapter needs a folder, a solution and checks, no more" {
	copy_tree
	local chapter number
	for chapter in 00-hello 08-more; do
		number=${chapter%%-*}
		mkdir -p "$chapter"
		cat >"$chapter/exercise.c" <<-'END'
			#include <stdio.h>
			static int unused(int parameter) { return 0; }
			int main(void) { puts("it works"); return 0; }
		END
		cp "$chapter/exercise.c" "tests/grading/solutions/$chapter.c"
		mkdir "tests/grading/checks/$chapter"
		cat >"tests/grading/checks/$chapter/exercise.bash" <<-END
			points $number.1 7 'says that it works' 'man 3 puts'
			check_exercise() {
				run exercise
				if printed 'it works'; then ok $number.1; else fail $number.1; fi
			}
		END
		run -0 limited make "check-$number"
		assert_line --regexp "^  ok    $number\\.1  says that it works +7/7 "
		assert_line --regexp '^  7/7 '
		refute_output --partial warning
	done
}

# bats test_tags=long
@test "grade, grade-all, handout: any name of a folder will do" {
	copy_tree
	# The tree itself as well; but make takes no other name than this one.
	mv "$tree" "$scratch/it's a tree"
	cd "$scratch/it's a tree"
	local name=$'it\'s $HOME "a" $(id) `id` \\ %2 #'
	mkdir "$scratch/$name" "$scratch/$name/ann"
	(cd "$project" && solve "$scratch/$name/ann" 01-devices)
	make -s build/tests/grading/peer
	run -2 limited make grade SUBMISSION="$scratch/$name/none"
	assert_line "grade: SUBMISSION=$scratch/$name/none: no such folder"
	run -2 limited make grade-all SUBMISSIONS="$scratch/$name/none"
	assert_line --partial "SUBMISSIONS=$scratch/$name/none is not a folder"
	SUBMISSION="$scratch/$name/none" run -2 limited make grade
	assert_line "grade: SUBMISSION=$scratch/$name/none: no such folder"
	run -0 limited make grade-all SUBMISSIONS="$scratch/$name" RESULTS="$scratch/to $name"
	assert_line --regexp "^ann +fail +20 "
	assert [ -e "$scratch/to $name/class.csv" ]
	cd "$project"
	git -C "$project" rev-parse -q --verify HEAD >/dev/null || return 0
	run -0 make handout DIR="$scratch/hand $name"
	assert [ -e "$scratch/hand $name/Makefile" ]
}

@test "peer: its input is checked, and its own failure is not blamed on the program" {
	local arguments
	for arguments in '' burst 'burst x' 'write 1 2' 'write 1 3 4x' 'write 70000 3 4' \
		'write 1 -1 4' 'burst 1 2' 'none 1 2 3 4' 'lock 1 2' 'sink 1 2 3 host' \
		'source 1 8 9' 'source 1 7 9 host' 'source 1 8 0 host'; do
		# shellcheck disable=SC2086 # words
		run -2 limited build/tests/grading/peer $arguments
		assert_line 'usage: peer burst PORT'
	done

	solve "$scratch" 03-cq-channel
	cat >"$scratch/shim.h" <<-'END'
		#include <infiniband/verbs.h>
		static inline int no_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
		{
			(void)cq, (void)n, (void)wc;
			return -5;
		}
		#define ibv_poll_cq no_poll
	END
	mkdir -p "$project/build/grading"
	local bin
	bin=$(mktemp -d "$project/build/grading/peer-test.XXXXXX")
	gcc -std=c11 -D_GNU_SOURCE -include "$scratch/shim.h" -o "$bin/peer" tests/grading/peer.c \
		build/common/*.o -libverbs
	gcc -std=c11 -D_GNU_SOURCE -iquote common -o "$bin/exercise" \
		"$scratch/03-cq-channel/exercise.c" build/common/*.o -libverbs
	run limited tests/lab/lab run -- bash -c '"$1/peer" burst 18515 <<<1 & peer=$!
		timeout 5 "$1/exercise" 127.0.0.1 18515 1 </dev/null >/dev/null 2>&1
		wait $peer' - "$bin"
	rm -r "$bin"
	assert_equal "$status" 3
	assert_output --partial 'ibv_poll_cq failed: -5'
	refute_output --partial 'wc.status'
}

# bats test_tags=long
@test "corpus: every submission can be made, those that are not graded here as well" {
	BUILD=$scratch/build run -0 tests/grading/grade-corpus -n
	assert_output "$(find tests/grading/corpus -mindepth 3 -maxdepth 3 | wc -l) made"
}

# bats test_tags=long
@test "corpus: seeds after the last one begin again at the first" {
	local entry number=0
	for entry in tests/grading/corpus/{bad,good,attack}/*/*; do
		((++number))
		[[ $entry != tests/grading/corpus/good/* ]] || break
	done
	SEED=ffffff SEEDS=2 BUILD=$project/build/seeds run limited make test-corpus PART="$number/99999"
	rm -rf build/seeds
	assert_line '2 of 2 as expected'
}

# --- a class ---

# bats test_tags=long
@test "grade-all: a class, whatever its folders are called; begun once, it goes on" {
	local class=$scratch/class
	mkdir -p "$class/ann" "$class/bob b" "$class/"$'new\nline' "$class/"$'\xff' \
		"$class/-x" "$class/class.csv"
	solve "$class/ann" 01-devices
	ln -s nowhere "$class/bob b/01-devices"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line --regexp "^ann +fail +20 +$(all_points) +20( +0)+\$"
	assert_line --regexp "^bob%20b +fail +0 +$(all_points) "
	assert_line --regexp "^new%0Aline +fail +0 +$(all_points) "
	assert_line --regexp "^%FF +fail +0 +$(all_points) "
	assert_line --regexp "^%2Dx +fail +0 +$(all_points) "
	assert_line --regexp "^%63lass.csv +fail +0 +$(all_points) "
	assert_equal "$(wc -l <"$scratch/out/class.csv")" 7
	assert_valid "$scratch/out/ann"

	# The next time only what is new.
	mkdir "$class/zoe"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_equal "$(wc -l <"$scratch/out/class.csv")" 8
	assert_equal "$(($(wc -l <"$scratch/out/.joblog") - 1))" 7

	# And who has sent something else.
	solve "$class/zoe" 02-context-pd-mr
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line 'grade-all: zoe has changed'
	assert_line --regexp "^zoe +fail +20 +$(all_points) +0 +20( +0)+\$"
	assert_equal "$(($(wc -l <"$scratch/out/.joblog") - 1))" 7

	# A link is nobody's own work.
	ln -s ann "$class/eve"
	run -2 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line "grade-all: not taken, because it is a link: '$class/eve'"
	assert_line --regexp '^eve +error +null +null'
	rm "$class/eve"

	# Who has another name now has one line.
	mv "$class/zoe" "$class/zoey"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line --regexp "^zoey +fail +20 "
	refute_line --regexp '^zoe '

	# Other checks: all of them.
	echo others >"$scratch/out/.checks"
	rm "$scratch/out/ann/grade.json"
	run -0 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line 'grade-all: the checks have changed: all are graded again'
	assert_line --regexp "^ann +fail +20 +$(all_points) +20 "
}

@test "grade-all: results in a folder of submissions, or the other way round, are refused" {
	local class=$scratch/class before folder all=$project/tests/grading/grade-all
	mkdir -p "$class/ann/01-devices" "$class/ann/.stage" "$scratch/other"
	echo precious | tee "$class/ann/report.txt" "$class/ann/.stage/report.txt" >"$scratch/other/report.txt"
	touch "$class/ann/.made-by-grade-all" "$class/ann/.made-by-grade"
	ln -s class "$scratch/link"
	before=$(fingerprint "$scratch")
	for folder in "$class" "$class/" "$scratch/link" "$class/new" "$class/ann" "$class/ann/new" "$scratch" \
		"$scratch/link/../class"; do
		run -2 limited "$all" "$class" "$folder"
		assert_output --partial 'choose a folder that is apart'
		run -2 limited "$all" "$scratch/link" "$folder/"
	done
	run -2 limited "$all" "$class" "$scratch/other"
	assert_output --partial 'has files that make grade-all did not write'
	run -2 limited "$all" "$scratch/other" "$scratch/new"
	assert_output --partial 'has no folders'
	run -2 limited "$all" "$class" "$scratch/other/report.txt"
	assert_output --partial 'exists, but is not a folder: choose another one'
	assert_equal "$(fingerprint "$scratch")" "$before"
	# One at a time.
	mkdir "$scratch/out"
	exec {lock}<"$scratch/out"
	flock "$lock"
	run -2 limited "$all" "$class" "$scratch/out"
	assert_output --partial 'there is a make grade-all at work'
	exec {lock}<&-
}

# bats test_tags=long
@test "grade-all: this machine may be one of the HOSTS, or the only one; a link to / harms nobody" {
	local class=$scratch/class
	mkdir -p "$class/ann"
	solve "$class/ann" 01-devices
	ln -s / "$class/zoe"
	echo : >"$scratch/hosts"
	HOSTS=$scratch/hosts run -2 limited "$project/tests/grading/grade-all" "$class" "$scratch/out"
	assert_line --regexp "^ann +fail +20 "
	assert_line "grade-all: not taken, because it is a link: '$class/zoe'"
	assert_line --regexp '^zoe +error '
	# As many fields in each line.
	assert_equal "$(awk -F , '{ print NF }' "$scratch/out/class.csv" | sort -u | wc -l)" 1
}

# bats test_tags=long
@test "grade-all: who cannot be graded has no points, and what was graded stays" {
	local class=$scratch/class out=$scratch/out name all=$project/tests/grading/grade-all
	printf -v name 'é%.0s' {1..100}
	mkdir -p "$class/ann" "$class/$name"
	solve "$class/ann" 01-devices
	run -0 limited "$all" "$class" "$out"
	assert_line --regexp '^ann +fail +20 '
	assert_line --regexp '^(%C3%A9){30}~[0-9a-f]{12} +fail +0 '
	# Ann sends something else, and there is no guest.
	solve "$class/ann" 02-context-pd-mr
	LAB_QEMU=nonesuch run -2 limited "$all" "$class" "$out"
	assert_line --regexp '^ann +error +null +null *$'
	assert_line --regexp '~[0-9a-f]{12} +fail +0 '
	assert_equal "$(jq .score "$out/ann/grade.json")" 20
	run -0 limited "$all" "$class" "$out"
	assert_line --regexp '^ann +fail +40 '
}

# bats test_tags=long
@test "grade-all: on other machines, which are asked by ssh" {
	local class=$scratch/class port=$((20000 + RANDOM % 10000))
	mkdir -p "$class/ann"
	(umask 077 && mkdir -p "$scratch/ssh"/{.ssh,.cache})
	solve "$class/ann" 01-devices
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
	assert_line --regexp "^ann +fail +20 +$(all_points) "
	assert_valid "$scratch/out/ann"
	grep -q 127.0.0.1 "$scratch/out/.joblog"
	grep -q 'Pubkey auth succeeded' "$scratch/ssh/log"
}

# bats test_tags=long
@test "handout: no solution, no history, and a student can begin in it" {
	git -C "$project" rev-parse -q --verify HEAD >/dev/null || skip "not a git tree"
	run -0 make handout DIR="$scratch/handout/"
	cd "$scratch/handout"
	[[ ! -e tests/grading/solutions && ! -e tests/grading/corpus && ! -e .git ]]
	run grep -c '^4\. ' tests/grading/checks/*/hints.md
	refute_line --regexp ':[1-9]'
	diff <(cd "$project" && grep -hE '^(## |[123]\. )' tests/grading/checks/*/hints.md) \
		<(grep -hE '^(## |[123]\. )' tests/grading/checks/*/hints.md)
	run grep -rlE --include='*.[ch]' 'ifdef STARTER' .
	assert_output ''
	run limited make check-02 SEED=1 BUILD="$scratch/built"
	assert_line '        you      TODO 02.1 not written yet'
	for _ in 1 2 3 4; do
		run -0 make hint-02 BUILD="$scratch/built"
	done
	assert_line 'hint 3 of 3: man page and names'
	[[ ! -e build ]]
	rm 02-context-pd-mr/{exercise,broken}.c
	make reset-02 <<<y
	cmp 02-context-pd-mr/broken.c tests/starters/02-context-pd-mr/broken.c
	run make handout DIR="$scratch/handout"
	assert_failure
}

@test "handout: is refused while a broken.c is solved" {
	git -C "$project" rev-parse -q --verify HEAD >/dev/null || skip "not a git tree"
	git clone -q "$project" "$scratch/mine"
	cd "$scratch/mine"
	patch -s -p0 <tests/grading/solutions/02-context-pd-mr.broken.patch
	git -c user.name=me -c user.email=me@localhost commit -qam solved
	run -2 limited tests/grading/handout "$scratch/handout"
	assert_output --partial '02-context-pd-mr/broken.c was changed, perhaps solved'
	[[ ! -e $scratch/handout && ! -e $scratch/handout.new ]]
}
