# Exercises and grading. Each test is of one promise in docs/teaching.md.

load helpers

setup_file() {
	make -s -C "$project" build/tests/grading/peer
}

setup() {
	unset MAKEFLAGS MAKELEVEL MFLAGS SEED
	export BUILD=$project/build
	scratch=$(mktemp -d /tmp/grading-test-XXXXXX)
	cd "$project"
}

teardown() {
	rm -rf "$scratch"
}

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
		todos=$(grep -oE 'TODO [0-9]{2}\.[0-9]:' "$chapter/exercise.c" | grep -oE '[0-9.]+' )
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

@test "exercises: broken.c has at most 80 lines" {
	local file
	for file in [0-9][0-9]-*/broken.c; do
		assert [ "$(wc -l <"$file")" -le 80 ]
	done
}
