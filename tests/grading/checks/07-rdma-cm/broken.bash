points 07.6 3 'broken.c asks as often as it should' 'man 3 rdma_ack_cm_event'

# It may print each line several times.
prints_answers() {
	find_lines "device $device"
	evidence="printed ${#found[@]} times"
	((${#found[@]} && ${#found[@]} % count == 0 && status == 0))
}

check_broken() {
	local count freed="it read the event after it was acknowledged"
	local patience=6000 progress_function=wakes # rdma_resolve_addr() may take long
	watch_identifiers
	random count 3 9
	run broken 10.9.0.1 "$count"
	if [[ $timed_out ]]; then
		fail 07.6
	elif reads_freed; then
		fail 07.6 "$freed"
	fi
	expect 07.6 "it should print $count times: device $device" prints_answers &&
		expect 07.6 "it should ask $count times" called_often resolve "$count" 'got=0' &&
		expect 07.6 "it should take $count events" called_often cm_event "$count" 'got=0' &&
		expect 07.6 "each event should be acknowledged" all_returned &&
		expect 07.6 "each identifier should be destroyed" all_destroyed || return
	add_interface
	run broken 10.5.5.1 2 # an address of ours that leads to no RDMA device
	expect 07.6 "there is no device: acknowledge the event, destroy the id" all_destroyed &&
		expect_status 07.6 1 "if there is no device" || return
	# world.c makes an event ADDR_ERROR of this.
	fails rdma_get_cm_event 1 110
	run broken 10.9.0.1 3
	if reads_freed; then
		fail 07.6 "$freed"
	fi
	expect 07.6 "ADDR_ERROR came: ask() should say so, acknowledge it and return -1" \
		heeds '!(device *|released: *)' &&
		expect 07.6 "ADDR_ERROR came: destroy the identifier then, too" all_destroyed && ok 07.6
}
