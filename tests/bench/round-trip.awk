# Prints what a round trip costs: a line for each program and size, from the differences
# between runs of ITERS messages and of twice as many. The table that it reads has the
# columns program, bytes, run, what and number, and a line of titles; iters is ITERS.

NR > 1 {
	key = sprintf("%-19s%6d", $1, $2)
	if (!(key in known)) {
		known[key]
		keys[++count] = key
	}
	number[key, $3, $4] = $5
	whats[$4]
}
function once(what) { return number[key, "once", what] }
function more(run, what) { return number[key, run, what] - once(what) }
# The instructions of a look, if two runs differ enough in how many there were.
function look(place,    looks) {
	looks = more("slow", "looks")
	return looks * looks < iters * iters ? 0 : more("slow", place) / looks
}
# Before it begins, ib_send_lat counts the clock rate by itself, for a time and not
# for a number of instructions, which nothing here takes out.
function round_trip(place,    completions) {
	if (key ~ /^ib_send_lat/ && place != "in_librxe")
		return 0
	completions = key ~ /^(ib_send_lat|UDP)/ ? 1 : 2
	completions -= more("twice", "looks") / iters
	return more("twice", place) / iters + look(place) * completions
}
function cell(value) { return sprintf("%9s", value > 0 ? sprintf("%.1f", value) : "-") }
END {
	print "                            instructions of a round trip   of one"
	print "program             bytes  program   librxe    other       look  packets  system calls"
	for (i = 1; i <= count; i++) {
		key = keys[i]
		line = key cell(round_trip("in_program")) cell(round_trip("in_librxe")) \
			cell(round_trip("in_libraries")) "  " \
			cell(look("in_program") + look("in_librxe") + look("in_libraries")) \
			cell(more("twice", "counter_sent_pkts") / iters) " "
		for (what in whats)
			if (what ~ /^call_/ && more("twice", what) / iters >= 0.05)
				line = line sprintf(" %s %.1f", substr(what, 6),
					more("twice", what) / iters)
		print line
	}
}
