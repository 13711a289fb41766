# make try-05: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-05 [ARGS="send SIZE COUNT"], or ARGS="receive SIZE COUNT"
try_exercise() {
	local role=${1:-send} size=${2:-3000} count=${3:-10}
	looks=(qp)
	if [[ $role == receive ]]; then
		program "$port" "$size" "$count"
		peer source "$port" "$size" "$count" 127.0.0.1
	else
		peer sink "$port" "$size" "$count"
		program "$port" "$size" "$count" 127.0.0.1
	fi
}

# The receive is posted again by now, so there is room for one message more.
try_checkpoint() { [[ $1 != credit ]] || { tell_peer one && hold='one more'; }; }

# make try-05 PROGRAM=broken [ARGS=COUNT]
try_broken() { program "${1:-10}"; }
