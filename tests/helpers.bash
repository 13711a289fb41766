# Loaded by every test file: `load helpers`.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

project=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)

# The folder of the programs under test; `make test` also runs with build/san.
: "${BUILD:=$project/build}"

# What the program prints by the sample in the header comment of its source $1.
sample_of() { sed -n '/^ \*\t\$ /,/^ \*$/{/^ \*\t\$ /d; s/^ \*\t//p}' "$1"; }

# No program may outlast its test: Bats itself does not end what `run` started.
# Standard descriptor 3 is Bats' own and no business of a program under test.
limited() { timeout -k 1 "${LIMIT:-30}" "$@" 3>&-; }

# Is each line of the sample in the header of $1 in $output, in this order? Numbers may
# differ, and "..." stands for any lines, or for the rest of one.
assert_sample() {
	local sample line='' wanted printed
	sample=$(sample_of "$1")
	[[ $sample ]] || fail "there is no sample in $1"
	exec {printed}< <(sed -E 's/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g' <<<"$output")
	while IFS= read -r wanted; do
		[[ $wanted != ... ]] || continue
		while [[ $line != "${wanted%...}" && ! ($wanted == *' ...' && $line == "${wanted%...}"*) ]]; do
			IFS= read -r -u "$printed" line || fail "not printed: $wanted"
		done
	done < <(sed -E 's/[0-9]+(\.[0-9]+)?/N/g; s/ +/ /g' <<<"$sample")
	exec {printed}<&-
}

# A test calls this before it changes the link, and teardown() put_right(): what runs in
# the background ends, and the next test finds the link as it was.
change_world() { : >"$BATS_TEST_TMPDIR/world-changed"; }

put_right() {
	local job
	for job in $(jobs -p); do
		kill "$job" 2>/dev/null || :
		wait "$job" 2>/dev/null || :
	done
	if [[ -e $BATS_TEST_TMPDIR/world-changed ]]; then
		rdma link delete rxe_0 2>/dev/null || :
		ip link set eth0 mtu 1500 up
		ip address replace 10.9.0.1/24 dev eth0
		rdma link add rxe_0 type rxe netdev eth0
	fi
}
