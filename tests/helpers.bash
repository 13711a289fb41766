# Loaded by every test file: `load helpers`.

bats_require_minimum_version 1.5.0
# Bats reads all this again before each test. bats_load_library starts twenty commands
# for it, which is half of what a short test takes in an emulated guest; so the files are
# read without it, where they are in Debian's folder.
for library in bats-support bats-assert; do
	if [[ -d $BATS_LIB_PATH/$library/src ]]; then
		for library_file in "$BATS_LIB_PATH/$library"/src/*.bash; do
			# shellcheck source=/dev/null
			source "$library_file"
		done
	else
		bats_load_library "$library"
	fi
done

project=$(CDPATH='' cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)

# The folder of the programs under test; `make test-all` also runs with build/san.
: "${BUILD:=$project/build}"

# --- programs that run, and those in the background ---

# limited COMMAND [ARGUMENT...]: no program may outlast its test, because Bats itself does
# not end what `run` started. Descriptor 3 is Bats' own and is closed for the program.
limited() { timeout -k 1 "${LIMIT:-30}" "$@" 3>&-; }

# eventually COMMAND [ARGUMENT...]: waits until the command succeeds, at most 30 seconds.
eventually() {
	local i
	for ((i = 0; i < 600; i++)); do
		if "$@"; then
			return 0
		fi
		sleep 0.05
	done
	fail "never came true: $*"
}

# ends_with STATUS PROCESS [FILE]: waits for a process that the test started in the
# background. What it wrote to FILE is then $output. `run` is of no use here, because only
# the shell that started a process can wait for it.
ends_with() {
	local status=0 message
	wait "$2" || status=$?
	message="the status is $status, not $1"
	if [[ ${3:-} ]]; then
		output=$(<"$3")
		mapfile -t lines <<<"$output"
		message+=:$'\n'$output
	fi
	((status == $1)) || fail "$message"
}

# start_server PROGRAM [ARGUMENT...]: starts it in the background as $server, with its
# output in the file $server_out. $server is timeout(1), and the program is its child.
start_server() {
	server_out=$BATS_TEST_TMPDIR/server
	timeout -k 1 "${LIMIT:-30}" "$@" >"$server_out" 2>&1 3>&- &
	server=$!
}

# start_client PROGRAM [ARGUMENT...]: the same for a client, $client and $client_out.
start_client() {
	client_out=$BATS_TEST_TMPDIR/client
	timeout -k 1 "${LIMIT:-30}" "$@" >"$client_out" 2>&1 3>&- &
	client=$!
}

# server_ends_with STATUS and client_ends_with STATUS: wait for it. Its output is then
# $output.
server_ends_with() { ends_with "$1" "$server" "$server_out"; }
client_ends_with() { ends_with "$1" "$client" "$client_out"; }

# both_with PROGRAM [ARGUMENT...]: runs it as server and as client, and both must succeed.
# The client's output is then $client_output, and the server's is $output. The addresses in
# the server's memory are random again (see tests/run), so that nobody who takes an own
# address for the other side's is right by luck.
both_with() {
	start_server setarch "$HOSTTYPE" "$@"
	run -0 limited "$@" localhost
	client_output=$output
	server_ends_with 0
}

# shim_with NAME HOW: builds tests/shims/NAME.c, and sets `shimmed` to the words that run a
# program with it. HOW is what the shim does to the program, from its header comment.
shim_with() {
	local source=$project/tests/shims/$1.c shim=$BUILD/tests/shims/$1.so
	if [[ $source -nt $shim ]]; then
		mkdir -p "${shim%/*}"
		gcc -std=c11 -D_GNU_SOURCE -shared -fPIC -o "$shim.$BASHPID" "$source"
		mv "$shim.$BASHPID" "$shim"
	fi
	# With a shim, AddressSanitizer's own library is not the first one, which it refuses
	# without this option.
	shimmed=(env SHIM="$2" LD_PRELOAD="$shim"
		ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}")
}

# with_shim NAME HOW PROGRAM [ARGUMENT...]: runs the program with this shim.
with_shim() {
	local shimmed
	shim_with "$1" "$2"
	limited "${shimmed[@]}" "${@:3}"
}

# --- what programs print ---

# sample_of SOURCE: what the program prints by the sample in its source's header comment.
sample_of() { sed -n '/^ \*\t\$ /,/^ \*$/{/^ \*\t\$ /d; s/^ \*\t//p}' "$1"; }

# What of standard input is the same in each run: each number or IP address, and the blanks
# before it, become " N", and the blanks between two columns become two.
what_stays() {
	sed -E 's/ *(0x[0-9a-f]+|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*|[0-9]+(\.[0-9]+)*)/ N/g
		s/([^ ])  +/\1  /g'
}

# assert_sample SOURCE: $output is the sample in the source's header comment. Numbers,
# addresses and the width of columns may differ, and "..." stands for any lines, or for the
# rest of one. A sample that leaves lines out may also leave out the last ones.
assert_sample() {
	local wanted printed line rest whole=yes gap=no i=0
	mapfile -t wanted < <(sample_of "$1" | what_stays)
	mapfile -t printed < <(what_stays <<<"$output")
	((${#wanted[@]})) || fail "there is no sample in $1" || return
	for line in "${wanted[@]}"; do
		if [[ $line == ... ]]; then
			gap=yes whole=no
			continue
		fi
		rest=''
		if [[ $line == *' ...' ]]; then
			line=${line%...} rest='*'
		fi
		# shellcheck disable=SC2053 # $rest is a pattern
		until [[ ${printed[i]-} == "$line"$rest ]]; do
			((++i))
			if [[ $gap == no ]] || ((i >= ${#printed[@]})); then
				fail "not printed: $line" || return
			fi
		done
		((++i))
		gap=no
	done
	if [[ $whole == yes ]] && ((i < ${#printed[@]})); then
		fail "not in the sample: ${printed[i]}"
	fi
}

# part FROM TO: the lines of standard input from one that begins with FROM up to, and
# without, one that begins with TO.
part() { sed -n "/^$1/,/^$2/p" | sed "/^$2/d"; }

# released CALL...: the lines that a program prints for these releases.
released() { printf 'released: %s\n' "$@"; }

# assert_released CALL...: $output reports these releases in this order, and no others.
assert_released() { assert_equal "$(grep '^released: ' <<<"$output")" "$(released "$@")"; }

# --- the device and its kernel ---

# The kernel has no memory region any more, nor a queue pair or an identifier of the
# connection manager that a program made. Those of its own have no .pid.
nothing_left() {
	local of_programs='map(select(.pid))'
	assert_equal "$(rdma -j resource show mr | jq -c .)" '[]'
	assert_equal "$(rdma -j resource show qp | jq -c "$of_programs")" '[]'
	assert_equal "$(rdma -j resource show cm_id | jq -c "$of_programs")" '[]'
}

# A second device: rxe_1 on dummy0, with 10.8.0.1 at index 1. A test calls change_world
# before.
add_rxe_1() {
	modprobe dummy numdummies=0
	ip -batch - <<-'END'
		link add dummy0 type dummy
		link set dummy0 up
		address add 10.8.0.1/24 dev dummy0
	END
	rdma link add rxe_1 type rxe netdev dummy0
	eventually grep -q ffff:0a08:0001 /sys/class/infiniband/rxe_1/ports/1/gids/1
}

# A test calls this before it changes devices or network interfaces. teardown() calls
# put_right, so that the next test finds everything as it was.
change_world() {
	if [[ ${RDMA:-} == host ]]; then
		skip "changes this machine's devices"
	fi
	: >"$BATS_TEST_TMPDIR/world-changed"
}

# Ends what runs in the background, and undoes what the test has changed.
put_right() {
	local job device
	for job in $(jobs -p); do
		kill "$job" 2>/dev/null || :
		wait "$job" 2>/dev/null || :
	done
	if [[ -e $BATS_TEST_TMPDIR/world-changed ]]; then
		if [[ ! -e /sys/class/infiniband_verbs ]]; then
			modprobe --all rdma_ucm rdma_rxe
		fi
		for device in /sys/class/infiniband/*; do
			if [[ -e $device ]]; then
				rdma link delete "${device##*/}"
			fi
		done
		if [[ -e /sys/class/net/dummy0 ]]; then
			ip link delete dummy0
		fi
		ip -batch - <<-'END'
			link set eth0 mtu 1500 up
			address flush dev eth0 scope global
			address add 10.9.0.1/24 dev eth0
		END
		rdma link add rxe_0 type rxe netdev eth0
		eventually grep -q ffff:0a09:0001 /sys/class/infiniband/rxe_0/ports/1/gids/1
	fi
}

# --- the project's files ---

# Makes $tree, a copy of the project that has no history, and goes there, so that a test
# can change files.
copy_tree() {
	tree=$scratch/tree
	mkdir "$tree"
	(cd "$project" && cp -r Makefile common tests [0-9][0-9]-* "$tree")
	cd "$tree"
	unset BUILD
}
