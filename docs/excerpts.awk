# Prints a text with its excerpts filled in. See docs/excerpts.
# folder: where the text is.

function complain(what) {
	print "excerpts: " FILENAME ":" FNR ": " what >"/dev/stderr"
	failed = 1
}

# Prints the lines of a file from @first to @last.
function excerpt(file, first, last,    line, n, i, tabs, common, lines) {
	common = 99
	while ((getline line < file) > 0) {
		if (!n && !index(line, first)) continue
		lines[++n] = line
		match(line, /^\t*/)
		if (line != "" && RLENGTH < common) common = RLENGTH
		if (index(line, last)) break
	}
	if (close(file) < 0) complain("cannot read " file)
	else if (!n) complain("not in " file ": " first)
	else if (!index(line, last))
		complain("not in " file " after \"" first "\": " last)
	for (i = 1; i <= n; i++) print substr(lines[i], common + 1)
}

/^<!-- excerpt:/ {
	print
	sub(/^<!-- excerpt: */, "")
	if (!sub(/ *-->$/, "") || split($0, part, / \| /) != 3)
		complain("want <!-- excerpt: FILE | FIRST | LAST -->")
	if ((getline line) <= 0 || line !~ /^```c$/)
		complain("no ```c after the excerpt comment")
	print line
	excerpt(folder "/" part[1], part[2], part[3])
	do more = getline line
	while (more > 0 && line != "```")
	if (more <= 0) complain("the fence of an excerpt has no end")
	print "```"
	next
}
{ print }
END { exit failed }
