points 06.7 3 'broken.c writes all of the text' 'man 3 ibv_post_send'

check_broken() {
	local pieces rest long size completions
	random pieces 27 35
	random rest 1 99
	random long 101 999
	watch_registrations
	watch_copies
	# One short piece; many pieces, of which the last one is short; three such pieces; whole pieces
	# only.
	for size in "$rest" $((pieces * 1000 + long)) $((2000 + rest)) $((pieces * 1000)); do
		start broken "$size" && reach 06.7 registered &&
			expect 06.7 "there should be a region of $size bytes" has_region "$size" || return
		finish
		find_lines "arrived: $size bytes"
		if ((!${#found[@]} || status)); then
			fail 06.7
			return
		fi
		expect 06.7 "all of the text should be written by RDMA" written "$size" || return
		if ! waited_for_writes; then
			fail 06.7 "it did not wait for its last WRITE"
		elif told CHANGED; then
			fail 06.7 "it changed bytes before their WRITE was complete"
		fi
		[[ ! ${verdict[06.7]:-} ]] || return
	done
	# As many completions as the last run has taken: the last one is to fail.
	words_of WRITTEN && completions=${#calls[@]}
	must_heed 06.7 "a WRITE has failed, and it went on" WRITE 1 '*' broken "$size"
	must_heed 06.7 "the last WRITE has failed, and it went on" \
		WRITE "$completions" '*' broken "$size"
	ok 06.7
}
