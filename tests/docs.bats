# The text against the sources, the programs, the header and itself. On the machine.

load helpers

setup() {
	cd "$project"
	texts=(README.md [0-9][0-9]-*/README.md docs/*.md)
}

# What fails a test is printed, one thing a line; nothing is good.
assert_nothing() {
	run -0 "$@"
	assert_output ''
}

# The functions, and macros like functions, that the header has.
verbs_of_header() {
	grep -ohE '\bibv_[a-z0-9_]+ ?\(' /usr/include/infiniband/verbs.h | tr -d ' (' | sort -u
}

verbs_of_sources() {
	grep -ohE '\bibv_[a-z0-9_]+' [0-9][0-9]-*/*.c common/*.[ch] | sort -u |
		comm -12 - <(verbs_of_header)
}

# --- links ---

# Where the links of all texts lead, if it isn't there: a file of the project, with #
# a heading of it, by the name that GitHub gives it.
broken_links() {
	local text target file
	local -A json anchors
	for text in "${texts[@]}"; do
		json[$text]=$(pandoc -f gfm -t json "$text")
		anchors[$text]=$(jq -r '.. | select(.t? == "Header") | .c[1][0]' <<<"${json[$text]}")
	done
	for text in "${texts[@]}"; do
		while IFS= read -r target; do
			[[ ! $target =~ ^[a-z]+: ]] || continue
			file=$text
			[[ $target == '#'* ]] ||
				file=$(realpath -m --relative-to . "$(dirname "$text")/${target%%#*}")
			if [[ ! -e $file || $file == ..* ]]; then
				echo "$text: no file $target"
			elif [[ $target == *'#'* ]]; then
				grep -qxF "${target#*#}" <<<"${anchors[$file]-}" || echo "$text: no heading $target"
			fi
		done < <(jq -r '.. | select(.t? == "Link" or .t? == "Image") | .c[2][0]' \
			<<<"${json[$text]}")
	done
}

@test "docs: every relative link leads to a file, and to a heading there" {
	assert_nothing broken_links
}

# --- sources and programs ---

@test "docs: the excerpts are what the sources say" {
	assert_nothing docs/excerpts
	grep -q '^<!-- excerpt: ' "${texts[@]}"
}

@test "docs: the drawing of both machines is the same on every page" {
	assert_nothing docs/overview
	run grep -L '^<!-- overview -->' [0-9][0-9]-*/README.md
	assert_output ''
}

@test "docs: a page with another drawing is found, and gets the right one" {
	local page=$BATS_TEST_TMPDIR/03-page/README.md
	mkdir "${page%/*}"
	printf '%s\n' '# 03' '' '<!-- overview -->' 'Text' >"$page"
	run -1 docs/overview "$page"
	assert_output "$page: its drawing is not that of 00-hello/README.md"
	run -0 docs/overview --update "$page"
	assert_nothing docs/overview "$page"
	# Both machines' objects of that chapter are marked, and no others.
	assert_equal "$(grep -c '=> 03 .*=> 03 |$' "$page")" 2
	assert_equal "$(grep -c '=>' "$page")" 3
	assert_equal "$(tail -n 2 "$page")" $'```\nText'

	sed -i 's/=> 03/   03/' "$page"
	run -1 docs/overview "$page"
	mkdir "$BATS_TEST_TMPDIR/99-page"
	mv "$page" "$BATS_TEST_TMPDIR/99-page"
	run docs/overview "$BATS_TEST_TMPDIR/99-page/README.md"
	assert_output "overview: the drawing has nothing of chapter 99"
	assert_failure
}

# bats test_tags=long
@test "docs: the transcripts are what the commands print" {
	run -0 docs/transcripts
	# Each chapter shows what its program prints.
	assert_equal "$(grep -lx '<!-- transcript.*' [0-9][0-9]-*/README.md)" \
		"$(printf '%s\n' [0-9][0-9]-*/README.md)"
}

# --- tables ---

@test "docs: every verb of the sources has its line in api-map.md, and is in errors.md" {
	local verb
	(($(verbs_of_sources | wc -l) > 30))
	for verb in $(verbs_of_sources); do
		grep -q "^| \`$verb\` |" docs/api-map.md || echo "api-map.md: $verb"
		grep -qw "$verb" docs/errors.md || echo "errors.md: $verb"
	done >"$BATS_TEST_TMPDIR/missing"
	assert_nothing cat "$BATS_TEST_TMPDIR/missing"
}

# The calls of librdmacm in the sources, which its headers know.
cm_calls_of_sources() {
	grep -ohE '\brdma_[a-z0-9_]+' [0-9][0-9]-*/*.[ch] | sort -u |
		comm -12 - <(grep -ohE '\brdma_[a-z0-9_]+ ?\(' /usr/include/rdma/rdma_{cma,verbs}.h |
			tr -d ' (' | sort -u)
}

@test "docs: every call of librdmacm in the sources has its line in api-map.md, and no other" {
	(($(cm_calls_of_sources | wc -l) > 20))
	run -0 cm_calls_of_sources
	assert_equal "$(sed -nE 's/^\| `(rdma_[a-z0-9_]+)` \|.*/\1/p' docs/api-map.md | sort)" "$output"
}

@test "docs: no verb has a line in api-map.md that the header doesn't know" {
	assert_nothing comm -13 <(verbs_of_header) \
		<(sed -nE 's/^\| `(ibv_[a-z0-9_]+)` \|.*/\1/p' docs/api-map.md | sort)
}

@test "docs: every ibv_wc_status of the header stands in errors.md" {
	local names
	names=$(sed -n '/^enum ibv_wc_status {/,/^}/p' /usr/include/infiniband/verbs.h |
		grep -o 'IBV_WC_[A-Z_]*' | sort)
	(($(wc -l <<<"$names") > 20))
	assert_nothing comm -13 <(grep -owE 'IBV_WC_[A-Z_]+' docs/errors.md | sort -u) - <<<"$names"
}

@test "docs: the messages of the programs in errors.md are those that they print" {
	local errors=$BATS_TEST_TMPDIR/errors.md
	assert_nothing docs/unprinted docs/errors.md [0-9][0-9]-*/*.[ch] common/*.c

	sed 's/^| `no ACTIVE port`/| `no port that is ACTIVE`/' docs/errors.md >"$errors"
	run docs/unprinted "$errors" [0-9][0-9]-*/*.[ch] common/*.c
	assert_output 'no port that is ACTIVE'
}

@test "docs: every term of the glossary is used in another text" {
	local term words
	# With the line breaks gone.
	words=$(cat "${texts[@]/docs\/glossary.md/README.md}" | tr -s '\n ' ' ')
	sed -nE 's/^\*\*([^*]+)\*\*.*/\1/p' docs/glossary.md >"$BATS_TEST_TMPDIR/terms"
	(($(wc -l <"$BATS_TEST_TMPDIR/terms") > 20))
	while IFS= read -r term; do
		grep -qiE "(^|[^[:alnum:]])$term(s|es)?([^[:alnum:]]|\$)" <<<"$words" || echo "$term"
	done <"$BATS_TEST_TMPDIR/terms" >"$BATS_TEST_TMPDIR/unused"
	assert_nothing cat "$BATS_TEST_TMPDIR/unused"
}

# --- form ---

@test "docs: prose is at most 78 columns wide" {
	# Neither in fences, nor what cannot be broken: tables, headings, comments.
	# shellcheck disable=SC2016 # perl
	assert_nothing perl -CSD -ne '
		$code = !$code if /^ *```/;
		print "$ARGV:$.: $_" if !$code && /^.{79}/ && !/^(\||#|<!-- )/;
		close ARGV if eof' "${texts[@]}"
}
