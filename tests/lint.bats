# All of the project's C and shell, under the eyes of the analyzers.

load helpers

# bats test_tags=long
@test "lint: gcc -fanalyzer, clang, clang-tidy and shellcheck have nothing to say" {
	unset BUILD MAKEFLAGS MAKELEVEL
	cd "$project"
	run -0 make -j "$(nproc)" lint
	assert_output ''
}

@test "lint: no line is wider than 80 columns in C" {
	cd "$project"
	local file files
	# A handout can be a tree without git. With git, a student's own files do not count.
	mapfile -t files < <(git ls-files '*.c' '*.h' 2>/dev/null ||
		find . -name build -prune -o -name '*.[ch]' -print)
	((${#files[@]} > 50))
	for file in "${files[@]}"; do
		expand "$file" | grep -n '.\{81\}' | sed "s|^|$file:|"
	done >"$BATS_TEST_TMPDIR/wide"
	run -0 cat "$BATS_TEST_TMPDIR/wide"
	assert_output ''
}

# Somebody reads each of them from top to bottom. rc_pingpong.c is a tool and not a lesson.
@test "lint: no program of a chapter is longer than 350 lines" {
	cd "$project"
	local file files=([0-9][0-9]-*/*.c)
	((${#files[@]} > 20))
	for file in "${files[@]}"; do
		if [[ $file != @(*/exercise|05-pingpong/rc_pingpong).c ]] && (($(wc -l <"$file") > 350)); then
			echo "$file"
		fi
	done >"$BATS_TEST_TMPDIR/long"
	run -0 cat "$BATS_TEST_TMPDIR/long"
	assert_output ''
}

# What clangd reports in an editor for each of the C files $@. It also logs which of its
# own refactorings it could not do, which is no report.
reports_of_clangd() {
	local file
	for file; do
		clangd --check="$file" 2>&1 >/dev/null | tee "$BATS_TEST_TMPDIR/log" |
			sed -nE 's/^E\[[^]]*\] (\[.*)/\1/p' | sed "s|^|$file: |"
		grep -q 'All checks completed' "$BATS_TEST_TMPDIR/log" || echo "$file: not checked"
	done
}

# bats test_tags=long
@test "lint: clangd, in an editor, finds its flags and reports nothing" {
	cd "$project"
	run -0 reports_of_clangd [0-9][0-9]-*/*.[ch] common/*.[ch] tests/*/*.c \
		tests/grading/solutions/*.c
	assert_output ''
	# It does report what is wrong.
	cp compile_flags.txt "$BATS_TEST_TMPDIR"
	echo 'int unused(void) { return missing; }' >"$BATS_TEST_TMPDIR/wrong.c"
	run -0 reports_of_clangd "$BATS_TEST_TMPDIR/wrong.c"
	assert_output --partial "use of undeclared identifier 'missing'"
}

@test "lint: no two functions of the runner's files have the same name" {
	local files=(tests/grading/{runner,{program,peer,kernel,devices,verdict}.bash})
	run -0 sort <(sed -nE 's/^([a-z_0-9]+)\(\).*/\1/p' "${files[@]}")
	assert_line sleeps_on
	assert_equal "$(uniq -d <<<"$output")" ''
}
