points 02.5 4 'broken.c registers the whole buffer' 'man 3 ibv_reg_mr'

# Its rights must stay LOCAL_WRITE and REMOTE_WRITE, which are 3 together.
whole_buffer() {
	kernel mr && calls_of reg_mr
	evidence="${objects[*]:-no region}, access ${calls[*]##*access=}"
	field mrlen "${objects[0]:-}" && [[ $value == "$length" && ${#objects[@]} == 1 ]] &&
		[[ ${calls[*]##*access=0x} =~ ^3(\ 3)*$ ]] && own_addresses
}

check_broken() {
	local length
	random length 100000 125000
	# Even, but not a multiple of 4, so that a repair that adds 1 or rounds up is noticed.
	((length = 4 * length + 2))
	watch_registrations
	start broken "$length" && reach 02.5 registered &&
		expect 02.5 "one region of $length bytes is needed, its rights unchanged" whole_buffer &&
		go && finish && expect_status 02.5 0 || return
	must_heed 02.5 "ibv_reg_mr() failed, and it went on" ibv_reg_mr 1 '*' broken "$length"
	ok 02.5
}
