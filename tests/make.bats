# What the Makefile promises: building, running, finding chapters, and the packages.
# Runs on the machine.

load helpers

setup() {
	# The make that runs these tests has settings of its own.
	unset MAKEFLAGS MAKELEVEL MFLAGS BUILD_FLAGS
	scratch=$(mktemp -d /tmp/make-test-XXXXXX)
}

teardown() {
	rm -rf "$scratch"
}

# Only these commands: what a bare machine has. `apt-get` and `sudo` leave a note.
bare_path() {
	mkdir -p "$scratch/bin"
	local command
	for command in bash env cat sort tail mktemp rm id; do
		ln -sf "$(type -P "$command")" "$scratch/bin/$command"
	done
	for command; do
		printf '#!/bin/bash\necho "%s $*" >>"%s"\n' "$command" "$scratch/called" \
			>"$scratch/bin/$command"
		chmod +x "$scratch/bin/$command"
	done
	: >"$scratch/called"
}

@test "help: lists every chapter's program and what make can do" {
	run -0 make -C "$project"
	local chapter
	for chapter in "$project"/[0-9][0-9]-*/; do
		chapter=${chapter%/}
		chapter=${chapter##*/}
		assert_line --regexp "^  make run-${chapter%%-*} +[a-z]"
	done
	# Its other programs are listed below it.
	assert_line '    PROGRAM=attributes    everything that a device and its ports report about themselves'
	assert_line --regexp "^  make wire-05 +[a-z]"
	assert_line --regexp "^  make wire-06 +[a-z]"
	refute_output --partial "make wire-04"
	for target in build book test doctor lab-shell softroce-up softroce-down clean; do
		assert_line --regexp "^  make $target +[a-zS]"
	done
}

@test "run-05: server and client, each line labelled, on a Soft-RoCE device" {
	cd "$project"
	unset BUILD
	RDMA=lab run -0 limited make run-05 ARGS="-n 5 -s 64"
	assert_line 'lab: in a guest, as RDMA=lab asks'
	assert_line --regexp '^server \|   local address: '
	assert_line --regexp '^client \|   local address: '
	assert_line 'server | verified: every byte of 5 of 5 messages'
	assert_line 'client | verified: every byte of 5 of 5 messages'
	assert_line 'client | released: ibv_free_device_list'
}

# bats test_tags=long
@test "debug-NN: one side of a pair in gdb, or a program that has one side" {
	cd "$project"
	export BUILD=$scratch/build RDMA=lab
	LIMIT=120 run -0 limited make debug-05 SIDE=server ARGS="-n 2" \
		GDB="-batch -ex 'break transfer' -ex run -ex 'print opt->server' -ex continue"
	assert_line --partial 'Breakpoint 1, transfer ('
	assert_line '$1 = 0x0'
	assert_line 'verified: every byte of 2 of 2 messages'
	assert_line 'client | verified: every byte of 2 of 2 messages'
	LIMIT=120 run -0 limited make debug-02 GDB="-batch -ex 'break ibv_reg_mr' -ex run -ex backtrace"
	assert_line --regexp '^#[0-9] .* main .* at 02-context-pd-mr/context_pd_mr.c:'
	run -2 limited make debug-05 SIDE=middle
	assert_line --partial 'both --gdb SIDE'
	run -2 make debug-05 PROGRAM=nope
	assert_line --partial 'there is no program nope'
}

# bats test_tags=long
@test "SAN=1: finds the mistake of docs/tools.md, as it is shown there" {
	copy_tree
	sed 's/calloc(2, opt.size)/calloc(1, opt.size)/' 05-pingpong/pingpong.c >05-pingpong/small.c
	RDMA=lab LIMIT=120 run limited make run-05 PROGRAM=small SAN=1
	assert_failure
	assert_line --regexp '^server \| ==.*ERROR: AddressSanitizer: heap-buffer-overflow'
	assert_line --regexp '^server \| .* in pattern_compare common/pattern.c:'
	assert_line --regexp '^server \| .* in main 05-pingpong/small.c:'
}

@test "run-05: fails when a side fails" {
	cd "$project"
	unset BUILD
	RDMA=lab run -2 limited make run-05 ARGS="-s 0"
	assert_line --partial '-s 0: out of range'
}

# bats test_tags=long
@test "run-NN PROGRAM=name: any program of the chapter; another name lists them" {
	copy_tree
	mkdir 98-two
	cat >98-two/two.c <<-'END'
		/*
		 * two.c - the main one
		 */
		#include <stdio.h>
		int main(void) { puts("the main one"); return 0; }
	END
	cat >98-two/both_sides.c <<-'END'
		/*
		 * both_sides.c - server and client
		 *
		 * Sides: server, and client of HOST
		 */
		#include <stdio.h>
		int main(int argc, char *argv[])
		{
			printf("%s %s\n", argc > 1 ? argv[1] : "no", argc > 2 ? argv[2] : "host");
			return 0;
		}
	END
	RDMA=lab run -0 limited make run-98
	assert_line 'the main one'
	PROGRAM=from-outside RDMA=lab run -0 limited make run-98 PROGRAM=both_sides ARGS=-x
	assert_line 'server | -x host'
	assert_line 'client | -x 10.9.0.1'
	local name
	for name in nope % "it's" 'two three' exercise; do
		run -2 make run-98 PROGRAM="$name"
		assert_line "there is no program $name in 98-two; choose one of: both_sides two"
	done
	run -2 make wire-98
	assert_line '98-two/two is not a program with two sides, so it sends nothing over a wire'
	run -0 make -n wire-98 PROGRAM=both_sides
	assert_line --regexp '/wire .*/98-two/both_sides '
}

# bats test_tags=long
@test "build: only what changed is built again, and a header counts" {
	copy_tree
	run -0 make build
	assert_line '  CC    build/common/error.o'
	assert_line '  LD    build/05-pingpong/pingpong'
	run -0 make build
	assert_output ''
	touch common/exchange.h
	run -0 make -j 4 build
	assert_line '  CC    build/05-pingpong/pingpong.o'
	assert_line '  CC    build/common/exchange.o'
	refute_line '  CC    build/common/error.o'
	run -0 make build/03-cq-channel/exercise
	touch common/options.h
	run -0 make build/03-cq-channel/exercise
	assert_line '  CC    build/03-cq-channel/exercise.o'
	run -0 make clean
	[[ ! -e build ]]
}

# bats test_tags=long
@test "build: V=1, SAN=1, CC=clang and other flags do what they say" {
	copy_tree
	run -0 make -j 4 V=1 build/05-pingpong/pingpong
	assert_line --regexp '^gcc -std=c11 -Wall -Wextra '
	assert_line --regexp ' -c -o build/05-pingpong/pingpong.o '
	run -0 make -j 4 CC=clang build/05-pingpong/pingpong
	assert_line '  CC    build/common/error.o'
	readelf -p .comment build/05-pingpong/pingpong | grep -q clang
	run -0 make -j 4 SAN=1 build/san/05-pingpong/pingpong
	nm build/san/05-pingpong/pingpong | grep -q __asan_init
}

# bats test_tags=long
@test "build: a new chapter is a new folder, and an unfinished exercise stops nobody" {
	copy_tree
	mkdir 99-new-thing
	cat >99-new-thing/new_thing.c <<-'END'
		/*
		 * new_thing.c - something new
		 */
		int main(void)
		{
			return 0;
		}
	END
	echo 'not C at all' >99-new-thing/exercise.c
	run -0 make
	assert_line '  make run-99         something new'
	run -0 make -j 4 build
	[[ -x build/99-new-thing/new_thing ]]
}

@test "book: what it keeps in the cache counts as used whenever it is used" {
	local version
	read -r version _ < <(cat "$project"/docs/book/package*.json | sha256sum)
	mkdir -p "$scratch/cache/book-${version:0:16}/node_modules/.bin"
	touch "$scratch/cache/book-${version:0:16}/node_modules/.bin/mmdc"
	touch -d '10 days ago' "$scratch/cache/book-${version:0:16}"
	LAB_CACHE=$scratch/cache PANDOC=true run -0 "$project/docs/book/make-book" "$scratch/book.html"
	run -0 find "$scratch/cache" -maxdepth 1 -name 'book-*' -mtime +7
	assert_output ''
}

@test "packages: when all are there, nothing is called and nothing said" {
	bare_path apt-get sudo
	PATH=$scratch/bin:$PATH run -0 "$project/tests/lab/packages" test
	assert_output ''
	[[ ! -s $scratch/called ]]
}

@test "packages: NO_INSTALL=1 says which and how, and installs nothing" {
	bare_path apt-get sudo
	PATH=$scratch/bin NO_INSTALL=1 run -1 "$project/tests/lab/packages" run
	assert_line --index 0 --regexp '^packages: missing: .*gcc .*qemu-system-x86'
	assert_line --index 1 --regexp 'to install them: (sudo )?apt-get install --no-install-recommends .*gcc .*qemu'
	refute_output --partial 'bats'
	[[ ! -s $scratch/called ]]
}

@test "packages: to build says which and how, and to make packages installs them" {
	copy_tree
	bare_path apt-get sudo
	local command
	for command in make grep sed mkdir; do
		ln -s "$(type -P "$command")" "$scratch/bin"
	done
	PATH=$scratch/bin run -2 make build
	assert_line --regexp '^packages: missing: .*qemu-system-x86'
	assert_line --regexp 'to install them: (sudo )?apt-get install'
	[[ ! -s $scratch/called ]]
	PATH=$scratch/bin run -2 make packages FOR="wire grade"
	assert_line --index 0 --regexp '^packages: installing what is missing: .*tshark'
	assert_output --partial unifdef
	refute_output --partial qemu
}

@test "packages: a group has its own, and run is only asked for by name" {
	bare_path apt-get sudo
	PATH=$scratch/bin run -0 "$project/tests/lab/packages" wire --list
	assert_output $'mscgen\ntshark'
	PATH=$scratch/bin run -0 "$project/tests/lab/packages" book wire --list
	assert_output $'chromium\nmscgen\nnpm\npandoc\ntshark'
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" nothing
	assert_output 'packages: no group of packages is called nothing'
}

@test "packages: the emulator is that of the machine's own processor" {
	bare_path apt-get sudo
	local arch
	for arch in x86_64:x86 aarch64:arm; do
		# bash takes the processor from there, if it is set.
		HOSTTYPE=${arch%:*} PATH=$scratch/bin run -0 "$project/tests/lab/packages" run --list
		assert_line "qemu-system-${arch#*:}"
		assert_equal "$(grep -c '^qemu' <<<"$output")" 1
		refute_line mmdebstrap
	done
	PATH=$scratch/bin run -0 "$project/tests/lab/packages" arm64 --list
	assert_line mmdebstrap
}

@test "packages: what is missing is installed with one update and one install" {
	bare_path apt-get sudo
	# The apt-get here installs nothing, and that is noticed.
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" test
	assert_line --index 0 --regexp '^packages: installing what is missing: .*bats'
	assert_output --partial 'their files are not there'
	if ((EUID == 0)); then
		run -0 cat "$scratch/called"
		assert_line --index 0 --partial 'apt-get -qq update'
		assert_line --index 1 --regexp '^apt-get install --no-install-recommends -y -qq .*bats'
		[[ ${#lines[@]} == 2 ]]
	fi
}

@test "packages: a user without sudo gets the command for root" {
	((EUID == 0)) || skip "only root can become somebody else"
	bare_path apt-get
	ln -s "$(type -P setpriv)" "$scratch/bin/setpriv"
	cp "$project/tests/lab/packages" "$scratch/packages"
	chmod -R go+rX "$scratch"
	PATH=$scratch/bin run -1 setpriv --reuid 65534 --clear-groups bash "$scratch/packages" run
	assert_line --partial 'there is no sudo here; as root: apt-get install'
	[[ ! -s $scratch/called ]]
}

@test "packages: another distribution gets its own command" {
	bare_path dnf
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" run
	assert_line --regexp 'to install them: (sudo )?dnf install .*iproute .*qemu-system-x86-core'
	mv "$scratch/bin/dnf" "$scratch/bin/zypper"
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" run
	assert_line --regexp 'to install them: (sudo )?zypper install .*iproute2 .*qemu-x86'
	refute_line --partial 'missing programs'
	[[ ! -s $scratch/called ]]
}

@test "packages: what the distribution has no package for is named by itself" {
	bare_path pacman
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" wire
	assert_line --index 0 'packages: missing: wireshark-cli'
	assert_line --index 1 --regexp 'to install them: (sudo )?pacman -S --needed wireshark-cli$'
	assert_line --index 2 'packages: missing programs and files: mscgen'
	ln -s /bin/true "$scratch/bin/tshark"
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" wire
	assert_line --index 0 'packages: missing programs and files: mscgen'
	PATH=$scratch/bin run -0 "$project/tests/lab/packages" wire --list
	assert_output mscgen
	[[ ! -s $scratch/called ]]
}

@test "packages: the table in docs/hacking.md has the same rows, and none for each -" {
	local when what name names
	eval "$(sed -n '/^known_as()/,/^}/p' "$project/tests/lab/packages")"
	while read -r when what _ names; do
		printf '%s %s' "$when" "$(known_as "$what")"
		for name in $names; do
			[[ $name == - ]] && printf ' none' || printf ' found'
		done
		echo
	done < <(sed -n "/<<-'END'/,/^\tEND/{/END/!p}" "$project/tests/lab/packages") >"$scratch/rows"
	awk -F ' *[|] *' '$3 ~ /^`.*`$/ && NF == 9 {
		gsub("`", "", $3)
		printf "%s %s", $2, $3
		for (i = 6; i <= 8; i++) printf " %s", $i == "none" ? "none" : "found"
		print "" }' "$project/docs/hacking.md" >"$scratch/documented"
	run -0 diff "$scratch/rows" "$scratch/documented"
	[[ $(wc -l <"$scratch/rows") -gt 50 ]]
}

@test "packages: on an unknown distribution, what is missing by its own name" {
	bare_path
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" run grade
	assert_line --index 0 --regexp '^packages: missing programs and files: .* gcc .* pkg-config'
	assert_line --index 1 --partial 'install the packages that have them'
	PATH=$scratch/bin run -1 "$project/tests/lab/packages" test
	refute_line --index 0 --regexp 'qemu-system-x86 |libibverbs-dev|ibverbs-utils|bsdextrautils|[*]/|/usr'
	assert_line --index 0 --partial ibv_rc_pingpong
}

@test "both: labels, and the status of the side that fails" {
	run -0 "$project/tests/lab/both" sh -c 'echo "${1:-nobody}"; echo oops >&2' sh
	assert_line 'server | nobody'
	assert_line 'client | 127.0.0.1'
	assert_line 'server | oops'
	run -3 "$project/tests/lab/both" sh -c '[ -z "$1" ] || exit 3' sh
	run -4 "$project/tests/lab/both" sh -c '[ "$1" ] || exit 4' sh
	SECONDS=0
	run "$project/tests/lab/both" sh -c '[ -z "$1" ] || exit 3; exec sleep 30' sh
	((status != 0 && SECONDS < 10))
	# It keeps the output open no longer than it runs.
	SECONDS=0
	run "$project/tests/lab/both" sh -c '[ -z "$1" ] || exit 3' sh
	((SECONDS < 2))
}

@test "softroce: takes the device away and brings it back" {
	run -0 limited "$project/tests/lab/lab" run --root -- bash -c 'cd "$1" &&
		tests/lab/softroce down && ls -A /sys/class/infiniband &&
		NETDEV=eth0 tests/lab/softroce up && cat /sys/class/infiniband/rxe_0/ports/1/state &&
		! tests/lab/softroce up' - "$project"
	assert_line '+ rdma link delete rxe_0'
	assert_line '+ rdma link add rxe_0 type rxe netdev eth0'
	assert_line '4: ACTIVE'
	assert_line 'softroce: there is a device rxe_0 already; to remove it: make softroce-down'
}

@test "softroce: a kernel without rdma_rxe is refused, with a way out" {
	run -1 limited "$project/tests/lab/lab" run --root -- bash -c 'cd "$1" &&
		tests/lab/softroce down >/dev/null && modprobe -r rdma_rxe &&
		mount -t tmpfs none /lib/modules && NETDEV=eth0 tests/lab/softroce up' - "$project"
	assert_line --regexp '^softroce: the kernel [^ ]+ has no rdma_rxe module$'
	assert_line --partial 'make run-05 uses a guest'
}
