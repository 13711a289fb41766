# Chapter 01: devices that come and go, and whose addresses stand elsewhere each time.

points 01.1 3 exercise 'finds the ACTIVE port, or none' 'man 3 ibv_query_port'
points 01.2 3 exercise 'knows an IPv4 GID of RoCE v2' 'man 3 ibv_query_gid_ex'
points 01.3 4 exercise 'finds the first such GID of a table with gaps' 'man 3 ibv_query_gid_ex'
points 01.4 6 exercise 'chooses the device that has both, closes the others' 'man 3 ibv_open_device'
points 01.5 4 exercise 'exit status 77 when there is nothing to choose' 'man 3 ibv_get_device_list'

# world DEVICE ADDRESS...: adds a device on an interface of its own to `plan`.
world() {
	local link=w$((worlds++)) address
	links+=("link add $link type dummy" "link set $link up")
	for address in "${@:2}"; do
		links+=("address add $address dev $link")
	done
	devices+=("link add $1 type rxe netdev $link")
}

make_worlds() {
	printf '%s\n' "${links[@]}" | ip -batch -
	printf '%s\n' "${devices[@]}" | rdma -b -
}

end_worlds() {
	local i
	for ((i = 0; i < worlds; i++)); do
		echo "link delete w$i"
	done | ip -batch -
	worlds=0 links=() devices=()
}

# The first GID of device $1 that holds an IPv4 address, as the kernel has it.
true_index() {
	local table=/sys/class/infiniband/$1/ports/1 i gid type
	for i in {0..15}; do
		gid='' type=''
		read -r gid <"$table/gids/$i"
		{ read -r type <"$table/gid_attrs/types/$i"; } 2>/dev/null
		if [[ $gid == 0000:0000:0000:0000:0000:ffff:* && $type == 'RoCE v2' ]]; then
			echo "$i"
			return
		fi
	done
}

# Has device $1 a GID that is made from fd00:$2::1?
has_gid() {
	local i gid
	for i in {0..15}; do
		read -r gid <"/sys/class/infiniband/$1/ports/1/gids/$i"
		[[ $gid != "fd00:000$2:"* ]] || return 0
	done
	return 1
}

check_exercise() {
	local worlds=0 links=() devices=() i n address=() names=() third gone index
	rdma link delete "$device"
	echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad

	# A device whose only port is down; one without an IPv4 address; and one with
	# several, behind some of IPv6, one of which has left a gap.
	for i in 0 1 2; do
		random n 1000 9999
		names+=("rx$i$n")
	done
	random n 2 5
	for ((i = 0; i < n; i++)); do
		address+=("fd00:$i::1/64")
	done
	random third 2 250
	random gone 0 $((n - 1))
	world "${names[0]}" "10.7.0.$third/24"
	world "${names[1]}" fd00:100::1/64
	world "${names[2]}" "${address[@]}"
	make_worlds
	# One after the other, since the kernel fills the first free entry, a moment later.
	printf '%s\n' 'link set w0 down' "address add 10.8.0.$third/24 dev w2" \
		"address add 10.8.1.$third/24 dev w2" | ip -batch -
	for i in {1..200}; do
		index=$(true_index "${names[2]}")
		[[ ! $index ]] || break
		nap
	done
	ip address delete "${address[gone]}" dev w2
	for i in {1..200}; do
		has_gid "${names[2]}" "$gone" || break
		nap
	done

	start exercise
	if ! at chosen; then
		fail 01.1
	else
		if printed "device ${names[0]}: port 0,*" && printed "device ${names[1]}: port 1,*"; then
			ok 01.1
		else
			fail 01.1 "did not find the port of ${names[1]} and that of ${names[0]}, which is down" \
				"$(cat "/sys/class/infiniband/${names[0]}/ports/1/state" 2>&1)"
		fi
		if ! printed "device ${names[1]}: port *, no GID"; then
			fail 01.2 "took a GID of ${names[1]} for an IPv4 one" "it has IPv6 addresses only"
		elif ! printed "device ${names[2]}: port *, GID index *"; then
			fail 01.2 "no GID of ${names[2]} is an IPv4 one to you" "there is one at index $index"
		else
			ok 01.2
		fi
		if printed "device ${names[2]}: port *, GID index $index"; then
			ok 01.3
		else
			fail 01.3 "not the first IPv4 GID of ${names[2]}" "it is at index $index"
		fi
		kernel ctx
		if ! printed "chosen: ${names[2]} port 1 index $index ::ffff:10.8.0.$third"; then
			fail 01.4 "did not choose ${names[2]}, port 1, GID index $index"
		elif ((${#objects[@]} != 1)) || [[ ${objects[0]} != *"dev ${names[2]} "* ]]; then
			fail 01.4 "the chosen device is to be the only one open" "${objects[*]:-none is open}"
		else
			ok 01.4
		fi
		go
	fi
	finish
	[[ ${verdict[01.4]:-} != pass ]] || ((status == 0)) || fail 01.4 "chosen, yet the exit status is $status"

	# Devices, but nothing to choose; and no device at all.
	end_worlds
	random n 1000 9999
	world "rx$n" fd00::1/64
	make_worlds
	run exercise
	if ((status != 77)); then
		fail 01.5 "exit status $status with a device that has no IPv4 address, not 77"
	else
		end_worlds
		run exercise
		if ((status != 77)); then
			fail 01.5 "exit status $status without any device, not 77"
		else
			ok 01.5
		fi
	fi
	end_worlds
	rdma link add "$device" type rxe netdev eth0
}

# make try-01: shows the device that is open at the CHECKPOINT.
try_exercise() {
	looks=(ctx)
	program "$@"
}
