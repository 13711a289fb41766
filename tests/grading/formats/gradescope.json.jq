# Gradescope's results.json. Without a score it says that the autograder failed.
{
	execution_time: (.duration_ms / 1000 | round),
	output: (if .status == "error" then .message else "seed \(.seed)" end),
	visibility: "visible",
	stdout_visibility: "hidden",
	extra_data: { seed, env },
	tests: [ .tests[] | {
		score,
		max_score,
		name,
		number: .id,
		output: ([.cmd, .message, .kernel, .hint] | map(select(. != "")) | join("\n")),
		tags: [ .chapter ],
		visibility: "visible"
	} ]
} + (if .status == "error" then {} else { score } end)
