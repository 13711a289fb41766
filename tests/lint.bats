# All of the project's C and shell, under the eyes of the analyzers.

load helpers

@test "lint: gcc -fanalyzer, clang, clang-tidy and shellcheck have nothing to say" {
	unset BUILD MAKEFLAGS MAKELEVEL
	cd "$project"
	run -0 make lint
	assert_output ''
}

@test "lint: no line is wider than 80 columns in C" {
	cd "$project"
	local file
	for file in $(git ls-files '*.c' '*.h'); do
		run expand "$file"
		refute_line --regexp '^.{81,}$' || fail "in $file"
	done
}
