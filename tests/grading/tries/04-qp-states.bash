# make try-04: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-04 [ARGS="PSN_A PSN_B PSN_C VICTIM"]
try_exercise() {
	looks=(qp)
	if (($# == 0)); then
		set -- 0x111111 0x222222 0x333333 B
	fi
	program "$@"
}

# make try-04 PROGRAM=broken [ARGS="PSN_A PSN_B"]
try_broken() {
	looks=(qp)
	if (($# == 0)); then
		set -- 0x111111 0x222222
	fi
	program "$@"
}
