# Guests whose root file system is not this machine's (LAB_ROOT): Debian 13, and a Debian
# for arm64. On the machine; `make test-arm64`, because it needs an emulator and a compiler
# for another processor, which no student needs.

load helpers

lab=$project/tests/lab/lab

setup_file() {
	# Outside of the project: a guest sees it at this place, and can't change it.
	export roots=$BATS_FILE_TMPDIR
	# What mmdebstrap leaves to the packages' own scripts, which are not run here.
	local options=(--quiet --variant=extract
		--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
	local packages=bash,dash,coreutils,grep,sed,kmod,iproute2,procps,ibverbs-providers
	packages+=,ibverbs-utils,libibverbs-dev,librdmacm-dev,libc6-dev
	mmdebstrap "${options[@]}" --architectures=arm64 --include="$packages,linux-image-arm64" \
		bookworm "$roots/arm64" 2>&1
	mmdebstrap "${options[@]}" --architectures=amd64 --include="$packages" \
		trixie "$roots/trixie" 2>&1
	local modules=("$roots"/arm64/usr/lib/modules/*)
	PATH=$PATH:/usr/sbin:/sbin depmod -b "$roots/arm64" "${modules##*/}"
}

setup() {
	cd "$project"
	unset MAKEFLAGS MAKELEVEL MFLAGS
	export LAB_ROOT=$roots/arm64
	arm64=(BUILD=build/test-arm64 CC="aarch64-linux-gnu-gcc --sysroot=$roots/arm64")
}

@test "root: a guest of Debian 13 on the same processor, with this machine's kernel or a newer" {
	LAB_ROOT=$roots/trixie LIMIT=120 run -0 limited "$lab" run -- sh -c \
		'cat /etc/debian_version; ls "$1/tests/lab/lab"; ls /usr/lib/*/libibverbs.so.1.*' - "$project"
	assert_line --regexp '^13\.'
	assert_line "$project/tests/lab/lab"
	assert_line --partial /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56
	LAB_ROOT=$roots/trixie LIMIT=120 run -0 limited make run-05 ARGS="-n 20" BUILD=build/test-arm64/trixie
	assert_line "lab: in a guest, as LAB_ROOT asks: x86_64, with the files of $roots/trixie"
	assert_line 'server | verified: every byte of 20 of 20 messages'
}

@test "root: arm64 boots, and its device is ACTIVE" {
	LIMIT=300 run -0 limited "$lab" run -- uname -m
	assert_line aarch64
	run -0 limited "$lab" run --cold -- cat /sys/class/infiniband/rxe_0/ports/1/state
	assert_line '4: ACTIVE'
	run -0 limited "$lab" run -- ibv_devinfo -d rxe_0
	assert_line --regexp 'state:.*PORT_ACTIVE'
}

@test "root: arm64 runs chapters 01 and 05, and two guests reach each other" {
	LIMIT=120 run -0 limited make run-01 "${arm64[@]}"
	assert_line --regexp '^\* later chapters choose rxe_0, port 1, GID index 1$'
	LIMIT=120 run -0 limited make run-05 "${arm64[@]}"
	assert_line 'server | verified: every byte of 1000 of 1000 messages'
	assert_line 'client | verified: every byte of 1000 of 1000 messages'
	local pingpong=build/test-arm64/05-pingpong/pingpong
	LIMIT=120 run -0 limited "$lab" pair -- $pingpong -n 10 -- $pingpong -n 10 server
	assert_line 'client | verified: every byte of 10 of 10 messages'
}

@test "root: what a guest may change is build/, and nothing of the other root" {
	run -0 limited "$lab" run --root -- sh -c 'echo x >/etc/lab-test && cat /etc/lab-test &&
		! touch "$1/tests/lab-test" && modprobe dummy && ls -d /sys/module/dummy &&
		echo kept >"$1/build/test-arm64/kept"' - "$project"
	assert_line x
	assert_line /sys/module/dummy
	[[ ! -e $roots/arm64/etc/lab-test && ! -e tests/lab-test ]]
	[[ $(<build/test-arm64/kept) == kept ]]
}

@test "root: a folder that does not exist, or has no kernel, is explained" {
	LAB_ROOT=/nowhere run -125 "$lab" run -- true
	assert_output 'lab: LAB_ROOT=/nowhere: no such folder'
	LAB_ROOT=$project run -125 "$lab" run -- true
	assert_output --partial 'has no shell in bin/, so it is no root file system'
	mkdir -p "$BATS_TEST_TMPDIR/root/bin"
	cp "$roots/arm64/bin/dash" "$BATS_TEST_TMPDIR/root/bin"
	LAB_ROOT=$BATS_TEST_TMPDIR/root run -125 limited "$lab" run -- true
	assert_line --partial 'no kernel with rdma_rxe in its boot/'
	RDMA=host run -125 "$lab" auto -- true
	assert_output --partial "RDMA=host asks for this machine and LAB_ROOT for a guest"
}
