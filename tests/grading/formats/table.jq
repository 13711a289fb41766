# grade.json as a table for a terminal.
def pad($n): . + (" " * ([$n - length, 0] | max));
if .status == "error" then "not graded: \(.message)" else
	(.tests | group_by(.chapter)[] |
		"\(.[0].chapter | pad(22)) \([.[].score] | add)/\([.[].max_score] | add)" +
		(map(select(.status != "pass") | "\n    \(.id) \(.status | pad(8)) \(.name): \(.message)") | add // "")),
	"\("total" | pad(22)) \(.score)/\(.max_score)   seed \(.seed)"
end
