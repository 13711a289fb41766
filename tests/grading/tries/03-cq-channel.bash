# make try-03: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-03 [ARGS=COUNT]: the peer sends some of the messages just before the program
# arms its queue, and the others when it has been silent for a second.
try_exercise() {
	local count=${1:-9}
	left=$count armed=''
	peer burst "$port"
	program 127.0.0.1 "$port" "$count"
}

# make try-03 PROGRAM=broken [ARGS=ROUNDS]
try_broken() {
	left=0 armed=''
	program "${1:-5}"
}

# try_send MOST WHEN: the peer sends up to MOST messages.
try_send() {
	local n=$(($1 < left ? $1 : left))
	((n > 0)) || return
	((left -= n))
	hold=sent
	say "$2 the peer sends $n"
	tell_peer "$n"
}

try_checkpoint() {
	if [[ $1 == armed ]]; then
		armed=1
	elif [[ $1 == arming && $armed ]]; then
		try_send 3 "before Enter"
	fi
}

try_idle() { [[ ! $armed ]] || try_send 2 "nothing happens:"; }
