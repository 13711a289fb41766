# Adds up a file of callgrind's. It has a line for each place: what the functions of an
# object cost by themselves. The line behind calls= is the cost of the called function. The
# looks are the calls of that function in librxe that the program calls most, which is
# ibv_poll_cq; or, if there is no librxe, of that in another library, recvfrom.
# Prints lines of a name and a number: in_program, in_librxe, in_libraries, looks.

function name_of(text,    id) {	# "(3) /lib/x.so", and later only "(3)"
	id = text
	sub(/ .*/, "", id)
	if (text ~ / /) {
		sub(/^[^ ]* /, "", text)
		names[id] = text
	}
	return names[id]
}
function place_of(object) {
	return object ~ /librxe/ ? "librxe" : object ~ /\.so/ ? "libraries" : "program"
}
/^ob=/ { object = called = name_of(substr($0, 4)) }
/^cob=/ { called = name_of(substr($0, 5)) }
/^cfn=/ { callee = called $1 }
/^calls=/ {
	if (called != object && place_of(object) == "program")
		calls[callee] += substr($1, 7)
	called = object
	getline
	next
}
/^[0-9+*-]/ { cost[place_of(object)] += $2 }
END {
	for (place in cost)
		print "in_" place, cost[place]
	for (callee in calls)
		if (calls[callee] > looks && (callee ~ /librxe/ || !("librxe" in cost)))
			looks = calls[callee]
	print "looks", looks
}
