# make try-01: what is started, and what the peer does meanwhile. See tests/grading/try.

# make try-01: shows the device that is open at the CHECKPOINT.
try_exercise() {
	looks=(ctx)
	program "$@"
}
