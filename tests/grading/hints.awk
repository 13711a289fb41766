# Prints what a file of hints has for the check `id`: its title, the count of its hints, or
# the hint of a number, as `want` says: "title", "count" or the number.

/^## / {
	here = $2 == id
	if (here && want == "title")
		print substr($0, 4)
	next
}
here && /^[0-9]\. / { number = $1 + 0; count++ }
here && number == want + 0 && !/^ *```/ {
	sub(/^[0-9]\. |^   /, "  ")
	# Not the empty lines at the end.
	if (NF) { printf "%s%s\n", empty, $0; empty = "" } else { empty = empty "\n" }
}
END { if (want == "count") print count + 0 }
