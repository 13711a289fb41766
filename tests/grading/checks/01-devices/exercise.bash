# Chapter 01: devices that come and go, and whose addresses stand elsewhere each time. They are made
# in devices.bash.

points 01.1 3 'finds the ACTIVE port, or none' 'man 3 ibv_query_port'
points 01.2 3 'recognises an IPv4 GID of RoCE v2' 'man 3 ibv_query_gid_ex'
points 01.3 4 'finds the first IPv4 GID in a table with gaps' 'man 3 ibv_query_gid_ex'
points 01.4 6 'chooses the device with both, closes the others' 'man 3 ibv_open_device'
points 01.5 4 'exit status 77 when there is nothing to choose' 'man 3 ibv_get_device_list'

# says DEVICE WHAT: does the program say this of it, and nothing else?
says() {
	local form="device ${names[$1]}: port [0-9]+, (no GID|GID index [0-9]+)"
	one_line "$form" "device ${names[$1]}:.*" && [[ ${found[0]} == "device ${names[$1]}: port "$2 ]]
}

# says_no_gid DEVICE: if not, `evidence` has the GID that it has accepted.
says_no_gid() {
	local gid
	says "$1" '*no GID' && return
	if [[ ${found[0]:-} == *'GID index '* ]] &&
		read -r gid <"/sys/class/infiniband/${names[$1]}/ports/1/gids/${found[0]##* }"; then
		evidence+=", which is $gid"
	fi 2>/dev/null
	return 1
}

# chose DEVICE PORT INDEX ADDRESS
chose() {
	one_line 'chosen: [^ ]+ port [0-9]+ index [0-9]+ [0-9a-f:.]+' 'chosen: .*' &&
		[[ ${found[0]} == "chosen: $1 port $2 index $3 ::ffff:$4" ]]
}

# Which function crashed, or hangs? choose() comes after a line for each device. find_gid() asks for
# GIDs, and active_port() for ports: see world.c.
where_it_stopped() {
	find_lines 'device .*: port [0-9]+, .*'
	if ((${#found[@]} > ${#names[@]})); then
		echo 01.4
	elif told_last ASKS_GID ASKS_PORT; then
		echo 01.3
	else
		echo 01.1
	fi
}

look_at_world() {
	if ! at chosen; then
		awaited=chosen fail "$(where_it_stopped)"
		[[ ${verdict[01.4]:-} ]] || return
	fi
	expect 01.1 "no port of ${names[0]} is ACTIVE: active_port() should return 0" says 0 '0,*' &&
		expect 01.1 "port 3 of ${names[1]} is ACTIVE: active_port() should return 3" says 1 '3,*' &&
		expect 01.1 "port 3 of ${names[2]} is ACTIVE: active_port() should return 3" says 2 '3,*' &&
		expect 01.1 "port 1 of ${names[3]} is ACTIVE: active_port() should return 1" says 3 '1,*' &&
		expect 01.1 "port 2 of ${names[4]} is ACTIVE: active_port() should return 2" says 4 '2,*' &&
		expect 01.1 "${names[5]} has one port, an ACTIVE one: return 1" says 5 '1,*' && ok 01.1
	if printed 'TODO 01.3 not written yet'; then fail 01.3; fi
	if says 1 '*, GID index 256'; then
		fail 01.3 "indexes from 256 on cannot be used: it should say no GID" "printed: ${found[0]}"
	elif says 1 '*, GID index 255'; then
		fail 01.3 "no GID of ${names[1]} fits: find_gid() should return -1" "printed: ${found[0]}"
	elif says 2 "*, GID index $right" && says 1 '*, GID index 0'; then
		fail 01.3 "${names[1]} has no IPv4 GID of RoCE v2: it should say no GID" \
			"printed: ${found[0]}"
	else
		expect 01.2 "${names[1]} has no IPv4 GID of RoCE v2: it should say no GID" \
			says_no_gid 1
	fi
	expect 01.2 "${names[3]} has an IPv4 GID of RoCE v2: is_ipv4_v2() should accept it" \
		says 3 '*, GID index *' &&
		expect 01.2 "${names[5]} has no IPv4 GID: it should say no GID" says_no_gid 5 &&
		expect 01.2 "${names[6]} has no IPv4 GID: it should say no GID" says_no_gid 6 &&
		[[ ${verdict[01.3]:-} != fail ]] && ok 01.2
	expect 01.3 "at index $right of ${names[2]} is its first IPv4 GID of RoCE v2, $ip" \
		says 2 "*, GID index $right" &&
		expect 01.3 "the IPv4 GID of ${names[3]} is at index 0" says 3 '*, GID index 0' && ok 01.3
	if printed "chosen: ${names[2]} port 0 index $right *"; then
		fail 01.3 "the entry in *gid has no port: all of it should be set"
	fi
	expect 01.4 "choose() should take the first with both: ${names[2]}, port 3, index $right" \
		chose "${names[2]}" 3 "$right" "$ip" &&
		expect 01.4 "only the chosen device should be open" only_open "${names[2]}" &&
		go && finish && expect_status 01.4 0 && ok 01.4
	finish
}

# nothing STATUS WHY [CONDITION]: the condition holds at the CHECKPOINT.
nothing() {
	start exercise && reach 01.5 chosen || return
	if (($# == 3)); then
		expect 01.4 "choose() found no device: close all of them" "$3"
	fi
	finish
	if [[ $timed_out ]]; then fail 01.5; fi
	expect_status 01.5 "$1" "if $2"
}

check_exercise() {
	local names=() interfaces=() errors=() numbers=() last old net third ip v1 right index
	local error closed address entry
	watch_opens
	make_world
	start_clock # only the program's own time counts
	start exercise
	look_at_world
	# In this run the guest's own device, which is the first one, can be opened, and 6 has no link.
	closed=${world[closed]}
	world[closed]="none ${closed#* }"
	until_made first_ipv4
	ip link set "${interfaces[6]}" down
	until_made grep -q DOWN "/sys/class/infiniband/${names[6]}/ports/1/state"
	start exercise && reach 01.4 chosen &&
		expect 01.1 "${names[6]} has one port, not ACTIVE: return 0" says 6 '0,*' &&
		expect 01.4 "choose() should take the first with both: $device, port 1, index $index" \
			chose "$device" 1 "$index" "$address"
	finish
	world[closed]=$closed
	delete_devices "${names[2]}" "${names[3]}"
	nothing 77 "no device has an IPv4 GID at its first ACTIVE port" only_open || return
	# ibv_get_device_list() fails. ENOSYS is a kernel without RDMA. After EINTR (4) or EAGAIN (11),
	# which are left out, a program may try again.
	# A range that ends before or behind ENOSYS has 37 or 39 in it.
	shuffle numbers 3 {7..10} {14..18} {20..36} {40..133}
	shuffle errors EPERM\ 1 ENOENT\ 2 EIO\ 5 ENXIO\ 6 ENOMEM\ 12 EACCES\ 13 ENODEV\ 19 ENOLCK\ 37 \
		ENOSYS\ 38 ENOTEMPTY\ 39 EPROTONOSUPPORT\ 93 EOPNOTSUPP\ 95 number\ "${numbers[0]}"
	for error in "${errors[@]}"; do
		fails ibv_get_device_list 1 "${error#* }"
		nothing $((${error#* } == 38 ? 77 : 1)) "ibv_get_device_list() fails: $error" || return
	done
	nothing_fails
	delete_devices "${names[@]:0:2}" "${names[@]:4}" "$device"
	nothing 77 "there are no devices" && ok 01.5
}
