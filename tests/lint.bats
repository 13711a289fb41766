# All of the project's C and shell, under the eyes of the analyzers.

load helpers

@test "lint: gcc -fanalyzer, clang, clang-tidy and shellcheck have nothing to say" {
	unset BUILD MAKEFLAGS MAKELEVEL
	cd "$project"
	run -0 make lint
	assert_output ''
}

@test "lint: no line is wider than 80 columns in C" {
	run bash -c 'cd "$1" && expand [0-9][0-9]-*/*.c common/*.[ch] tests/lab/*.[ch] |
		grep -nE "^.{81,}"' - "$project"
	assert_output ''
}
