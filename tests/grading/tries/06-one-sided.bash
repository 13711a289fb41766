# make try-06: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-06 [ARGS="write SIZE ITERS"], or ARGS="lock ROUNDS"
try_exercise() {
	looks=(mr qp)
	if [[ ${1:-} == lock ]]; then
		peer lock "$port"
		program lock "$port" "${2:-3}" 127.0.0.1
	else
		peer write "$port" "${2:-3000}" "${3:-3}"
		program write "$port" "${2:-3000}" "${3:-3}" 127.0.0.1
	fi
}

# The peer holds the lock at first, and later wants it, too.
try_checkpoint() {
	case $1 in
	tried) tell_peer release && hold=released ;;
	locked) tell_peer look && hold=looked ;;
	added) tell_peer look && hold=looked && tell_peer 'contend 3' && tell_peer end ;;
	esac
}

# make try-06 PROGRAM=broken [ARGS=SIZE]
try_broken() { program "${1:-2999}"; }
