# The devices of chapter 01, and their addresses: its check, and no other one, calls make_world().
# And an interface for chapter 07.
# shellcheck shell=bash

# ip_batch: gives the commands on standard input to ip(8). The kernel may load a module for them,
# which it may not do for a program: see the runner's make_sandbox().
ip_batch() {
	local result=0
	echo "$modprobe" >/proc/sys/kernel/modprobe
	ip -batch - || result=$?
	echo >/proc/sys/kernel/modprobe
	return $result
}

# An interface without an RDMA device, with the address 10.5.5.1.
add_interface() {
	ip_batch <<<$'link add w0 type dummy\nlink set w0 up\naddress add 10.5.5.1/24 dev w0' ||
		give_up "cannot make w0"
}

# add_device N: the Nth device, on an interface of its own, with its addresses.
add_device() {
	local link ips=()
	random link 100 32767
	link=w$link${digits[${#interfaces[@]}]}
	read -ra ips <<<"${addresses[$1]}"
	interfaces[$1]=$link
	links+=("link add $link type dummy" "link set $link up" "${ips[@]/#/address add dev $link }")
	devices+=("link add ${names[$1]} type rxe netdev $link")
}

# delete_devices NAME...: waits until no file of a device is open, because the kernel would hang until
# then, and deletes them.
delete_devices() { until_gone && printf 'link delete %s\n' "$@" | rdma -b -; }

# What world.c makes of ports and GIDs stands in /sys, too, for those who read that themselves.
pretend() {
	echo IB/RoCE v1 >"$log/v1"
	mount --bind "$log/v1" "$root/sys/class/infiniband/$1/ports/$2/gid_attrs/types/$3"
}

# add_ports N: two more; the third one is the real one.
add_ports() {
	local ports=/sys/class/infiniband/${names[$1]}/ports gid=0000:0000:0000:0000:0000:ffff:a9fe:0001
	local states=('3: ARMED' '5: ACTIVE_DEFER') i
	if (($1 == 3)); then states[0]='4: ACTIVE'; elif (($1 == 4)); then states[1]='4: ACTIVE'; fi
	if (($1 == 1 || $1 == 4)); then gid=fe80:0000:0000:0000:0000:0000:0000:00ff; fi
	mount -t tmpfs -o mode=0755 ports "$root$ports"
	mkdir -p "$root$ports"/{{1,2}/{gids,gid_attrs/types},3}
	for i in 1 2; do echo "${states[i - 1]}" >"$root$ports/$i/state"; done
	echo RoCE v2 >"$root$ports/1/gid_attrs/types/0"
	echo "$gid" >"$root$ports/1/gids/0"
	mount --bind "$ports/1" "$root$ports/3"
}

# has_entry DEVICE INDEX PATTERN: is the GID there like this? Sets `entry`.
has_entry() {
	read -r entry <"/sys/class/infiniband/$1/ports/1/gids/$2"
	# shellcheck disable=SC2053 # it is a pattern
	[[ $entry == $3 ]]
}

# Sets `index` and `address` to those of the first IPv4 GID of the guest's own device. Another
# chapter may have moved it.
first_ipv4() {
	for index in {0..255}; do
		if has_entry "$device" "$index" '0000:0000:0000:0000:0000:ffff:*'; then
			printf -v address '%d.%d.%d.%d' "0x${entry:30:2}" "0x${entry:32:2}" \
				"0x${entry:35:2}" "0x${entry:37:2}"
			return
		fi
	done
	return 1
}

# The guest's own device comes first, and would be right, but cannot be opened. The others: 0 has
# three ports, none of them ACTIVE. 1: its third port has GIDs of IPv6, which look a little like
# IPv4, and of RoCE v1. 2 is the right one: at port 3, with a gap and one of RoCE v1 before its
# first IPv4 GID of RoCE v2, whose index is the last that can be used. 3: right, too, at index 0,
# with two ACTIVE ports; it comes after 2. 4: a right GID at its second ACTIVE port only. 5 and 6:
# IPv6 alone, and one port. 5 comes before all that have three, and 6 comes last. 7 would be right,
# and comes before 2, but cannot be opened either. `interfaces` has the interface of each.
make_world() {
	local digits=() links=() devices=() address=() addresses=() order=() i n gone
	local nets=() three=() bits=() class_c ipv4 entry gap error
	local share=60000 # for late()
	random error 12 24 # from ENOMEM to EMFILE
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
	# Each name is another one, and does not tell which device it is.
	shuffle digits {0..7}
	for i in "${digits[@]}"; do random n 1000 9999; names+=("rx$n$i"); done
	digits=() && shuffle digits {0..7} # other ones for the interfaces
	world[closed]="$device ${names[7]} $error"
	shuffle nets {20..120} && random last 20 120 && random third 20 120
	random class_c 192 223 # all other addresses begin with 10 or 169
	((old = nets[0], net = nets[1], gone = 11 + last % 80, n = 256))
	ip=$class_c.$net.$third.$last
	for ((i = 0; i < n; i++)); do address+=("fd00:1:$i::1/64"); done
	world+=([v1]=$old [three-ports]="${names[0]} ${names[*]:2:3} ${names[1]}")
	addresses[0]="10.${nets[2]}.$third.$last/24"
	# GIDs that end like the right one, which is ::ffff: and these four bytes.
	printf -v ipv4 '%02x%02x:%02x%02x' "$class_c" "$net" "$third" "$last"
	addresses[1]="fd00:100::1/64 fd00:101::ffff:$ipv4/64 0:0:0:0:1:ffff:$ipv4/64"
	addresses[1]+=" 0:0:0:0:0:ff00:$ipv4/64 ::ff:$ipv4/64 ::$ipv4/64"
	addresses[1]+=" 0:0:0:0:0:fffe:$ipv4/64 0:0:0:0:0:7fff:$ipv4/64"
	addresses[1]+=" 2002:$ipv4::1/64 64:ff9b::$ipv4/64"
	for i in 0 1 2; do addresses[1]+=" 10.$old.$((third + i)).$last/24"; done
	# ffff without one of its bits, which is a random one.
	shuffle bits {1..14}
	for i in "${bits[@]:0:3}"; do
		printf -v n %x $((0xffff ^ 1 << i)) && addresses[1]+=" ::$n:$ipv4/64"
	done
	# Each of these differs from it in one byte.
	for i in {1,100}::ffff 0:{1,100}::ffff 0:0:{1,100}::ffff 0:0:0:{1,100}:0:ffff ::100:ffff; do
		addresses[1]+=" $i:$ipv4/64"
	done
	addresses[2]="${address[*]} 10.$old.$((third + 1)).$last/24"
	for i in 3 4 7; do addresses[i]="10.${nets[i]}.$third.$last/24"; done
	addresses[5]=fd00:200::1/64 addresses[6]=fd00:201::1/64
	# A port that is kept from 1 is one at which 0 has a right GID.
	shuffle order '1 0' 4 7
	for i in 5 ${order[*]} 2 3 6; do add_device "$i"; done
	printf '%s\n' "${links[@]}" | ip_batch || give_up "cannot make the interfaces of 01"
	printf '%s\n' "${devices[@]}" | rdma -b - || give_up "cannot make the devices of 01"
	# The kernel fills the first free entry of its table, a moment later.
	until_made index_of "${names[2]}" "10.$old.$((third + 1)).$last" && v1=$index
	# The right one takes the place of the address at index 255, which is one of the first or last.
	until_made has_entry "${names[2]}" 255 '[!0]*'
	ip address delete "$entry/64" dev "${interfaces[2]}"
	until_made has_entry "${names[2]}" 255 '0*'
	ip address add "$ip/24" dev "${interfaces[2]}"
	until_made has_entry "${names[2]}" 255 '*:ffff:*' && right=255
	until_made index_of "${names[1]}" fd00:0100:0000:0000:0000:0000:0000:0001 && gap=$index
	# A gap, of addresses that all still exist: a batch ends at the first line that fails.
	address=("${address[@]:gone:98 + old % 20}")
	printf '%s\n' "address add $class_c.$net.$((third + 1)).$last/24 dev ${interfaces[2]}" \
		"${address[@]/#/address delete dev ${interfaces[2]} }" \
		"address delete fd00:100::1/64 dev ${interfaces[1]}" | ip -batch - ||
		give_up "cannot delete addresses of 01"
	# The kernel does all this in order, so the last of it says that all is done.
	until_made has_entry "${names[1]}" "$gap" '0*'
	shuffle three 0 1 2 3 4
	for i in "${three[@]}"; do add_ports "$i"; done
	for i in "$third" $((third + 1)) $((third + 2)); do
		until_made index_of "${names[1]}" "10.$old.$i.$last" && pretend "${names[1]}" 3 "$index"
	done
	mount --bind "$root/sys/class/infiniband/${names[0]}/ports"/{1,3}/state
	pretend "${names[2]}" 3 "$v1"
}
