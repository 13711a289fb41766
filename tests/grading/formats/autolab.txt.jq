# Autolab reads the last line of what is printed, and takes any "word:" for a key of its
# own, so strings have no colons.
(.tests | group_by(.chapter) | map({ key: (.[0].chapter[3:] | gsub("[^a-z]"; "_")), value: ([.[].score] | add) })) as $chapters |
if .status == "error" then "not graded" else
	{ scores: ($chapters | from_entries), scoreboard: [ .score ] } | tojson
end
