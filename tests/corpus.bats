# Every thirty-fourth entry of the corpus, or the part that CORPUS says: 1/1 is all of it.

load helpers

@test "corpus: good ones get all points, bad ones not those of their check, attacks none" {
	unset BUILD MAKEFLAGS MAKELEVEL LAB_CPUS
	cd "$project"
	run make test-corpus PART="${CORPUS:-1/34}"
	# There are hundreds of lines, and a report shows the first few.
	if ((status)); then
		fail "$(grep -E 'WRONG|as expected$' <<<"$output" || tail -n 20 <<<"$output")"
	fi
	assert_line --regexp '^[0-9]+ of [0-9]+ as expected$'
}
