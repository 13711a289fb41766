# make try-02: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-02 [ARGS="LENGTH RIGHTS..."]
try_exercise() {
	looks=(mr)
	if (($# == 0)); then
		set -- 3000 L LR W
	fi
	program "$@"
}

# make try-02 PROGRAM=broken [ARGS=LENGTH]
try_broken() {
	looks=(mr)
	program "${1:-3000}"
}
