# make try-07: what is started, and what the peer does meanwhile. See tests/grading/try.

# shellcheck disable=SC2034 # for peer()
peer_program=cm_peer

# Waits until somebody listens, but not long, and only while the process $1 is there.
until_somebody_listens() {
	local i
	for ((i = 0; i < 50; i++)); do
		[[ -e /proc/$1 ]] || return
		[[ $(PATH=$PATH:/usr/sbin:/sbin rdma resource show cm_id) != *LISTEN* ]] || return
		sleep 0.2
	done
} 2>/dev/null

# make try-07 [ARGS="VERSION KIND"]: a server of version 3; its peer is a client of VERSION that
# says KIND, which is hello, magic or none. After one that it must refuse comes a right one.
# make try-07 ARGS=accept, ARGS=refuse, or ARGS=nobody: a client, and what its server does.
try_exercise() {
	local version=${1:-3} kind=${2:-hello} i
	if [[ $kind == magic ]]; then kind=magic=pong; fi # see cm_peer.c
	case $version in
	accept | refuse)
		peer server "$port" "$version"
		until_somebody_listens "$peer_pid"
		program "$port" 3 10.9.0.1
		;;
	nobody) program "$port" 3 10.9.0.1 ;;
	*)
		program "$port" 3
		until_somebody_listens "$pid"
		peer client "$port" "$version" "$kind" 10.9.0.1
		[[ "$version $kind" != '3 hello' ]] || return 0
		for ((i = 0; i < 50; i++)); do
			[[ -e /proc/$peer_pid ]] || break
			sleep 0.2
		done
		kill -KILL -- "-$peer_pid" 2>/dev/null
		peer client "$port" 3 hello 10.9.0.1
		;;
	esac
}

# make try-07 PROGRAM=broken [ARGS="ADDRESS COUNT"]
try_broken() { program "${1:-10.9.0.1}" "${2:-3}"; }
