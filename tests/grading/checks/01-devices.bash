# Chapter 01: devices that come and go, and whose addresses stand elsewhere each time.

points 01.1 3 exercise 'finds the ACTIVE port, or none' 'man 3 ibv_query_port'
points 01.2 3 exercise 'recognises an IPv4 GID of RoCE v2' 'man 3 ibv_query_gid_ex'
points 01.3 4 exercise 'finds the first such GID of a table with gaps' 'man 3 ibv_query_gid_ex'
points 01.4 6 exercise 'chooses the device that has both, closes the others' 'man 3 ibv_open_device'
points 01.5 4 exercise 'exit status 77 when there is nothing to choose' 'man 3 ibv_get_device_list'

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

# What world.c makes of ports and GIDs stands in /sys, too, for those who read that themselves.
pretend() {
	echo IB/RoCE v1 >"$log/v1"
	mount --bind "$log/v1" "$root/sys/class/infiniband/$1/ports/$2/gid_attrs/types/$3"
}

# add_ports N: two more; the third one is the real one.
add_ports() {
	local ports=/sys/class/infiniband/${names[$1]}/ports gid=0000:0000:0000:0000:0000:ffff:ac03:0001
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

# The guest's own device comes first, and would be right, but cannot be opened. The others: 0 has
# three ports, none of them ACTIVE. 1: its third port has GIDs of IPv6, which look a little like
# IPv4, and of RoCE v1. 2 is the right one: at port 3, with more than 128 entries, a gap and one of
# RoCE v1 before its first IPv4 GID of RoCE v2. 3: right, too, at index 0, with two ACTIVE ports; it
# comes last. 4: a right GID at its second ACTIVE port only. 5: IPv6 alone, before or behind 2.
make_world() {
	local digits=() interfaces=() links=() devices=() address=() addresses=() order=() i n gone
	local groups=(0 0 0 0 0) nets=() first place three=()
	random n 12 24 && world[closed]="$device $n" # from ENOMEM to EMFILE
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
	# Each name is another one, and does not tell which device it is.
	shuffle digits 0 1 2 3 4 5
	for i in "${digits[@]}"; do random n 1000 9999; names+=("rx$n$i"); done
	shuffle nets {20..120} && random last 20 120 && random third 20 120
	((old = nets[0], net = nets[1], gone = 1 + last % 90, n = 129 + old % 7))
	for ((i = 0; i < n; i++)); do address+=("fd00:1:$i::1/64"); done
	world+=([v1]=$old [three-ports]="${names[0]} ${names[*]:2:3} ${names[1]}")
	addresses[0]="10.${nets[2]}.$third.$last/24"
	addresses[1]="fd00:100::1/64 fd00:101::ffff:a$net:1/64 0:0:0:0:1:ffff:a$old:1/64"
	addresses[1]+=" 0:0:0:0:0:ff00:a$net:1/64 ::ff:a$old:1/64"
	addresses[1]+=" 10.$old.$third.$last/24 10.$old.$((third + 1)).$last/24"
	# One that differs from an IPv4 address in one byte, of which nobody knows the number.
	random i 1 8
	groups[i / 2]=$((i % 2 ? 1 : 100))
	printf -v 'addresses[1]' '%s %s:%s:%s:%s:%s:ffff:a02:2/64' "${addresses[1]}" "${groups[@]}"
	addresses[2]="${address[*]} 10.$old.$((third + 1)).$last/24"
	for i in 3 4; do addresses[i]="10.${nets[i]}.$third.$last/24"; done
	addresses[5]=fd00:200::1/64
	shuffle place 5 '' && shuffle first 1 4 && shuffle order 0 "${first[1]}" ${place[0]}
	for i in "${first[0]}" "${order[@]}" 2 ${place[1]} 3; do add_device "$i"; done
	printf '%s\n' "${links[@]}" | ip -batch -
	printf '%s\n' "${devices[@]}" | rdma -b -
	# The kernel fills the first free entry of its table, a moment later.
	wait_for_gid "${names[2]}" "10.$old.$((third + 1)).$last" && v1=$index
	ip address add "10.$net.$third.$last/24" dev "${interfaces[2]}"
	wait_for_gid "${names[2]}" "10.$net.$third.$last" && right=$index
	address=("${address[@]:gone:34 + old % 20}")
	printf '%s\n' "address add 10.$net.$((third + 1)).$last/24 dev ${interfaces[2]}" \
		"${address[@]/#/address delete dev ${interfaces[2]} }" \
		"address delete fd00:100::1/64 dev ${interfaces[1]}" | ip -batch -
	wait_for_gid "${names[2]}" "10.$net.$((third + 1)).$last"
	shuffle three 0 1 2 3 4
	for i in "${three[@]}"; do add_ports "$i"; done
	for i in "$third" $((third + 1)); do
		wait_for_gid "${names[1]}" "10.$old.$i.$last" && pretend "${names[1]}" 3 "$index"
	done
	mount --bind "$root/sys/class/infiniband/${names[0]}/ports"/{1,3}/state
	pretend "${names[2]}" 3 "$v1"
}

# says DEVICE WHAT: does the program say this of it, and nothing else?
says() {
	local form="device ${names[$1]}: port [0-9]+, (no GID|GID index [0-9]+)"
	one_line "$form" "device ${names[$1]}:.*" && [[ ${found[0]} == "device ${names[$1]}: port "$2 ]]
}

chose() {
	one_line 'chosen: [^ ]+ port [0-9]+ index [0-9]+ [0-9a-f:.]+' 'chosen: .*' &&
		[[ ${found[0]} == "chosen: ${names[2]} port 3 index $right ::ffff:10.$net.$third.$last" ]]
}

look_at_world() {
	reach 01.1 chosen || return
	expect 01.1 "no port of ${names[0]} is ACTIVE: it should say port 0" says 0 '0,*' &&
		expect 01.1 "the third port of ${names[1]} is ACTIVE: it should say port 3" says 1 '3,*' &&
		expect 01.1 "the third port of ${names[2]} is ACTIVE: it should say port 3" says 2 '3,*' &&
		expect 01.1 "port 1 of ${names[3]} is ACTIVE: it should say port 1" says 3 '1,*' &&
		expect 01.1 "port 2 of ${names[4]} is ACTIVE: it should say port 2" says 4 '2,*' && ok 01.1
	if printed 'TODO 01.3 *'; then fail 01.3; elif says 1 '*, GID index 25[56]'; then
		fail 01.3 "indexes from 256 on cannot be used: it should say no GID" "printed: ${found[0]}"
	elif says 2 "*, GID index $right" && says 1 '*, GID index 0'; then
		fail 01.3 "${names[1]} has no IPv4 GID of RoCE v2: it should say no GID" "${found[0]}"
	else
		expect 01.2 "${names[1]} has no IPv4 GID of RoCE v2: it should say no GID" says 1 '*no GID'
	fi
	expect 01.2 "${names[3]} has an IPv4 GID of RoCE v2: is_ipv4_v2() should accept it" \
		says 3 '*, GID index *' && ok 01.2
	expect 01.3 "it should say index $right, the first IPv4 GID of RoCE v2 of ${names[2]}" \
		says 2 "*, GID index $right" &&
		expect 01.3 "it should say index 0 for ${names[3]}" says 3 '*, GID index 0' && ok 01.3
	expect 01.4 "it should choose the first with both: ${names[2]}, port 3, index $right" chose &&
		expect 01.4 "only the chosen device should be open" only_open "${names[2]}" &&
		go && finish && expect_status 01.4 0 && ok 01.4
	finish
}

# nothing STATUS WHY [CONDITION]: the condition holds at the CHECKPOINT.
nothing() {
	start exercise && reach 01.5 chosen || return
	if (($# == 3)); then expect 01.4 "it chose none, so it should close all" "$3"; fi
	finish
	if [[ $timed_out ]]; then fail 01.5; fi
	expect_status 01.5 "$1" "with $2"
}

check_exercise() {
	local -A error_names=([1]=EPERM [2]=ENOENT [13]=EACCES [19]=ENODEV [38]=ENOSYS [95]=EOPNOTSUPP)
	local names=() errors=() last old net third v1 right index i
	watch_opens && make_world && start_clock # only the program's own time counts
	start exercise && look_at_world
	printf 'link delete %s\n' "${names[2]}" "${names[3]}" | rdma -b -
	nothing 77 "devices that have no IPv4 GID at a first ACTIVE port" only_open || return
	# Then there is no list. ENOSYS is a kernel without RDMA.
	random i 39 130 && error_names[$i]="number $i" && shuffle errors "${!error_names[@]}"
	for i in "${errors[@]}"; do
		fails ibv_get_device_list 1 "$i"
		nothing $((i == 38 ? 77 : 1)) "the error ${error_names[$i]}" || return
	done && nothing_fails
	printf 'link delete %s\n' "${names[@]:0:2}" "${names[@]:4}" "$device" | rdma -b -
	nothing 77 "no devices at all" && ok 01.5
}
