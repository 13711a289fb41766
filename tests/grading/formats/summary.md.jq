# For $GITHUB_STEP_SUMMARY, which may have 1 MiB.
def cell: gsub("[|`<>\\\\]"; " ") | gsub("(?<mark>[][!*])"; "\\\(.mark)") | .[:300];
if .status == "error" then "Not graded: \(.message | cell)" else
	"**\(.score) of \(.max_score) points**, seed `\(.seed)`",
	"",
	"| | check | points | |",
	"|---|---|---|---|",
	(.tests[] | "| \({ pass: "ok" }[.status] // .status) | \(.id) \(.name | cell) | \(.score)/\(.max_score) | \(.message | cell) |")
end
