# Chapter 01: what devices and attributes say, against what the kernel says.
# As root, where there is one device rxe_0 on eth0, 10.9.0.1, as in a guest.

# shellcheck disable=SC2154 # what helpers and Bats set
load helpers

devices=$BUILD/01-devices/devices
attributes=$BUILD/01-devices/attributes
pingpong=$BUILD/05-pingpong/pingpong
to_facts=$project/tests/attributes

teardown() { put_right; }

# --- what is compared ---

# sysfs_form ADDRESS: the IP address as sysfs has a GID: eight groups of four hexadecimal
# digits.
sysfs_form() {
	local a b c d groups
	if [[ $1 == ::ffff:*.* ]]; then
		IFS=. read -r a b c d <<<"${1#::ffff:}"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d"
		return
	fi
	a=${1%%::*} b=
	if [[ $1 == *::* ]]; then
		b=${1#*::}
	fi
	IFS=: read -ra c <<<"$a"
	IFS=: read -ra d <<<"$b"
	groups=("${c[@]}")
	while ((${#groups[@]} + ${#d[@]} < 8)); do groups+=(0); done
	groups+=("${d[@]}")
	printf -v a '%04x:' "${groups[@]/#/0x}"
	printf '%s' "${a%:}"
}

# gid_is DEVICE INDEX ADDRESS: is this the device's GID there? :: is none. After a change the
# kernel fills its GID table a little later, so tests wait for it by `eventually`.
gid_is() {
	[[ $(<"/sys/class/infiniband/$1/ports/1/gids/$2") == "$(sysfs_form "$3")" ]]
}

# sysfs_gids DEVICE: the GIDs that sysfs has of it, of the first 20: index, type, net device
# and address.
sysfs_gids() {
	local port=/sys/class/infiniband/$1/ports/1 file gid
	grep -v '^0000:0000:0000:0000:0000:0000:0000:0000$' "$port"/gids/{?,1?} |
		while IFS=: read -r file gid; do
			printf '%s %s %s %s\n' "${file##*/}" \
				"$(<"$port/gid_attrs/types/${file##*/}")" \
				"$(<"$port/gid_attrs/ndevs/${file##*/}")" "$gid"
		done | sort -n
}

# printed_gids DEVICE: the same from the program's output.
printed_gids() {
	local index a b ndev gid
	awk -v name="$1" '/^device name: / { ours = $3 == name }
		ours && /RoCE v2/ && !/this GID/ { sub(/\*/, " "); print }' <<<"$output" |
		while read -r index a b ndev gid; do
			printf '%s %s %s %s %s\n' "$index" "$a" "$b" "$ndev" "$(sysfs_form "$gid")"
		done
}

# assert_choice DEVICE INDEX: this device and GID are marked and named, and chapter 05 takes
# the same.
assert_choice() {
	assert_line "* later chapters choose $1, port 1, GID index $2"
	# shellcheck disable=SC2016 # awk
	run -0 awk '/^device name: / { name = $3 } $1 == "*" && $2 ~ /^[0-9]+$/ { print name, $2 }' \
		<<<"$output"
	assert_output "$1 $2"
	# A server without a name ends it, after it said what it chose.
	run -1 limited "$pingpong" ""
	assert_line --regexp "^device: +$1,"
	assert_line --regexp "^GID: +index $2,"
}

# ours LISTING, theirs LISTING: what `attributes` and `ibv_devinfo -v` have printed, as facts
# that compare.
ours() { awk -f "$to_facts/facts.awk" -f "$to_facts/ours.awk" <<<"$1" | sort; }
theirs() { awk -f "$to_facts/facts.awk" -f "$to_facts/theirs.awk" <<<"$1" | sort; }

# --- devices ---

@test "steps 1 to 4: it prints the sample in its header comment, releases included" {
	run -0 limited "$devices"
	assert_output "$(sample_of "$project/01-devices/devices.c")"
}

@test "step 1: no device is status 77, and so is a kernel without RDMA" {
	local modprobe
	change_world
	rdma link delete rxe_0
	run -77 --separate-stderr limited "$devices"
	assert_output "released: ibv_free_device_list"
	assert_equal "$stderr" "devices: no RDMA device
  hint: a guest of the lab has one: tests/lab/lab run -- $devices"
	run -77 --separate-stderr limited "$attributes"
	assert_output ""
	assert_equal "${stderr_lines[0]}" "attributes: no RDMA device"

	modprobe --remove rdma_rxe rdma_ucm ib_uverbs ib_cm iw_cm
	# To ask for devices would load ib_core again.
	modprobe=$(</proc/sys/kernel/modprobe)
	echo /bin/false >/proc/sys/kernel/modprobe
	run --separate-stderr limited "$devices"
	echo "$modprobe" >/proc/sys/kernel/modprobe
	assert_equal "$status" 77
	assert_output ""
	assert_equal "${stderr_lines[0]}" \
		"devices: no RDMA device: ENOSYS (Function not implemented)"
}

@test "step 2: GUID, port, MTU and GID table are those of the kernel" {
	change_world
	ip address add 10.9.0.7/24 dev eth0
	ip address add 2001:db8::7/64 dev eth0 nodad
	eventually gid_is rxe_0 3 2001:db8::7
	ip address delete 10.9.0.7/24 dev eth0
	eventually gid_is rxe_0 2 ::

	ip link set eth0 mtu 2200
	run limited "$devices"
	ip link set eth0 mtu 1500
	assert_success
	assert_line --index 0 "device name: rxe_0"
	assert_line "  node GUID: $(</sys/class/infiniband/rxe_0/node_guid)"
	assert_line "    link layer: $(</sys/class/infiniband/rxe_0/ports/1/link_layer)"
	assert_line "    MTU: 2048 bytes active, 4096 at most"
	refute_line --partial "port 2"
	assert_line "    GID table: 1024 entries; in use are"
	assert_equal "$(printed_gids rxe_0)" "$(sysfs_gids rxe_0)"
}

@test "step 2: two devices are shown in full, -d shows one" {
	change_world
	add_rxe_1
	run -0 limited "$devices"
	assert_equal "$(grep '^device name: ' <<<"$output")" \
		$'device name: rxe_0\ndevice name: rxe_1'
	assert_equal "$(printed_gids rxe_0)" "$(sysfs_gids rxe_0)"
	assert_equal "$(printed_gids rxe_1)" "$(sysfs_gids rxe_1)"
	assert_line "  node GUID: $(</sys/class/infiniband/rxe_1/node_guid)"
	assert_equal "$(grep -c '^released: ibv_close_device$' <<<"$output")" 2
	assert_choice rxe_0 1

	run -0 limited "$devices" -d rxe_1
	assert_line --index 0 "device name: rxe_1"
	refute_output --partial rxe_0
	assert_line "* later chapters choose rxe_1, port 1, GID index 1"

	run -0 limited "$attributes" --ib-dev=rxe_1
	refute_output --partial "device name: rxe_0"
}

@test "step 2: a device is known by its new name only" {
	local program
	change_world
	rdma dev set rxe_0 name fast
	run -0 limited "$devices" -d fast
	assert_line --index 0 "device name: fast"
	assert_choice fast 1
	for program in "$devices" "$attributes"; do
		run -1 --separate-stderr limited "$program" -d rxe_0
		refute_output --partial "device name:"
		assert_equal "$stderr" "${program##*/}: no device called rxe_0
  hint: there is fast"
	done
}

@test "step 2: a device that cannot be opened is an error, the others are shown" {
	change_world
	add_rxe_1
	chmod 600 /dev/infiniband/uverbs0
	run -1 --separate-stderr limited setpriv --reuid 65534 --clear-groups "$devices"
	chmod 666 /dev/infiniband/uverbs0
	assert_line "* later chapters choose rxe_1, port 1, GID index 1"
	# Debian 12's library makes it ENOENT: it looks for the device elsewhere, too.
	assert_regex "$stderr" "^devices: ibv_open_device: (EACCES|ENOENT) .*
  hint: do you have permission to read and write /dev/infiniband/uverbs0\?$"
}

@test "step 3: a port that is down is shown, but not chosen" {
	change_world
	ip link set eth0 down
	run -0 limited "$devices"
	assert_line "  port 1: down"
	assert_line "no ACTIVE port with a GID, which later chapters need"
	refute_line --partial "*"

	add_rxe_1
	run -0 limited "$devices"
	assert_line "device name: rxe_0"
	assert_choice rxe_1 1
}

@test "step 3: IPv4 wins, wherever in the table" {
	change_world
	ip address add 2001:db8::7/64 dev eth0 nodad
	eventually gid_is rxe_0 2 2001:db8::7
	ip address delete 10.9.0.1/24 dev eth0
	eventually gid_is rxe_0 1 ::
	ip address add fd00::1/64 dev eth0 nodad
	ip address add 10.9.0.9/24 dev eth0
	ip address add 10.9.0.8/24 dev eth0
	eventually gid_is rxe_0 4 ::ffff:10.9.0.8

	run -0 limited "$devices"
	assert_line "  this GID: RoCE v2 and IPv4, which two hosts most likely share"
	assert_choice rxe_0 3
}

@test "step 3: without IPv4 it is IPv6, but not the link-local one" {
	change_world
	ip address delete 10.9.0.1/24 dev eth0
	eventually gid_is rxe_0 1 ::
	run -0 limited "$devices"
	assert_line "  this GID: RoCE v2, link-local; no other address there"
	assert_choice rxe_0 0

	ip address add 2001:db8::7/64 dev eth0 nodad
	eventually gid_is rxe_0 1 2001:db8::7
	run -0 limited "$devices"
	assert_line "  this GID: RoCE v2 and IPv6; no IPv4 there"
	assert_choice rxe_0 1
}

@test "step 3: a GID beyond index 255 cannot be used, and is not chosen" {
	local i
	for ((i = 2; i < 260; i++)); do
		echo "address add 10.11.$((i / 200)).$((i % 200))/32 dev eth0"
	done >"$BATS_TEST_TMPDIR/add"
	change_world
	ip -batch "$BATS_TEST_TMPDIR/add"
	eventually gid_is rxe_0 259 ::ffff:10.11.1.59
	# IPv4 is left in the indices from 256 on only.
	{
		echo "address delete 10.9.0.1/24 dev eth0"
		sed 's/add /delete /; 254q' "$BATS_TEST_TMPDIR/add"
	} | ip -batch -
	eventually gid_is rxe_0 255 ::

	run -0 limited "$devices"
	assert_line "  this GID: RoCE v2, link-local; no other address there"
	refute_output --partial 10.11.1.59
	assert_choice rxe_0 0
	run -2 limited "$pingpong" -g 256 ""
}

@test "usage: --help is no error; a wrong option is one, with a hint" {
	local program
	for program in "$devices" "$attributes"; do
		run -0 --separate-stderr limited "$program" --help
		assert_line --index 0 "usage: ${program##*/} [OPTIONS]"
		assert_equal "$stderr" ""
		run -0 limited "$program" -h
		assert_line --index 0 "usage: ${program##*/} [OPTIONS]"

		run -2 --separate-stderr limited "$program" -z
		assert_output ""
		assert_equal "$stderr" "$program: invalid option -- 'z'
  hint: --help lists the options"
		run -2 limited "$program" -d
		assert_line "$program: option requires an argument -- 'd'"
		run -2 limited "$program" rxe_0
		assert_output "${program##*/}: one argument too many: rxe_0
  hint: --help lists the options"
	done
}

# --- attributes ---

@test "attributes: the sample in its header comment is what it prints" {
	local words
	run -0 limited "$attributes"
	words=$(sed -n 's/^ \*\t\$ attributes | grep //p' "$project/01-devices/attributes.c")
	# shellcheck disable=SC2086 # words, indeed
	assert_equal "$(grep $words <<<"$output")" "$(sample_of "$project/01-devices/attributes.c")"
}

@test "attributes: all that ibv_devinfo -v shows, field by field, of two devices" {
	local facts
	change_world
	add_rxe_1
	run -0 ibv_devinfo -v
	facts=$(theirs "$output")
	((2 * 98 < $(wc -l <<<"$facts"))) || fail "devinfo shows less: $facts"

	run -0 limited "$attributes"
	assert_equal "$(comm -13 <(ours "$output") - <<<"$facts")" ""
	# Nor anything else, unless ibv_devinfo leaves it out where it is 0.
	assert_equal "$(comm -23 <(ours "$output") - <<<"$facts" |
		grep -vE ' =0$| (node_type|phys_port_cnt_ex|flags|link_layer) ')" ""
}

@test "attributes: the same of a device that has everything ibv_devinfo knows" {
	local facts printed
	run -0 with_shim fake_device '' "$attributes"
	printed=$output
	run -0 with_shim fake_device '' ibv_devinfo -v

	facts=$(theirs "$output")
	((340 < $(wc -l <<<"$facts"))) || fail "the device has not everything: $facts"
	assert_equal "$(comm -13 <(ours "$printed") - <<<"$facts")" ""
}
