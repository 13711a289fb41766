# The runner's records become grade.json, from which all else is made.

# What a program has printed may hold anything; XML and terminals may not: no control
# characters, none that nobody has defined, and none that turn a line round.
def plain: gsub("[\\p{C}\\p{Zl}\\p{Zp}]"; "?");
# In a log of GitHub's, "##[" begins a command.
def harmless: gsub("##\\["; "## [");
# What differs from run to run, though nothing has changed.
def steady: gsub(" ?\\bpid [0-9]+"; "") |
	gsub("\\b(?<key>[lr]key) 0x(?<digits>(?!0\\b)[0-9a-f]+)"; "\(.key) 0x\(.digits | gsub("."; "X"))");

($places | split("\n") | map(split(" ") | select(length == 2) |
	{ key: .[0], value: (.[1] | tonumber) }) | reverse | from_entries) as $line |	# the first counts
# A record is a line for each field; the first one is `check`, and its value the check's id.
(reduce (split("\n")[] | select(. != "")) as $text ([];
	($text | index(" ") // length) as $blank |
	$text[:$blank] as $name | ($text[$blank + 1:] | plain | harmless) as $value |
	if $name == "spent" then .
	elif any("check", "environment", "begin", "end"; . == $name) then . + [{ ($name): $value }]
	elif . != [] then .[-1][$name] = $value
	else . end)) as $records |
($records | map(select(has("check"))) | INDEX(.check)) as $of |
# All checks that there are: one that nothing came back of has not passed.
[ $table | split("\n")[] | select(. != "") | split("\t") |
	($of[.[1]] // { message: "nothing came back of this check; show this to your teacher" }) as $record |
	(.[2] | tonumber) as $worth |
	{
		id: .[1],
		chapter: .[0],
		name: .[4],
		status: ($record.status // "error"),
		score: (if $record.status == "pass" then $worth else 0 end),
		max_score: $worth,
		duration_ms: ($record.duration_ms // "0" | tonumber),
		cmd: ($record.cmd // ""),
		message: ($record.message // "" | steady),
		kernel: ($record.kernel // "" | steady),
		hint: .[5],
		file: "\(.[0])/\(.[3]).c",
		line: ($line[.[1]] // 1)
	}
] | sort_by(.id) as $tests |
([ $records[] | select(has("environment")) ][0] // {}) as $env |
{
	schema: "rdma-workbook/grade/v1",
	seed: $seed,
	env: { kernel: ($env.guest_kernel // ""), rdma_core: $rdma_core, device: ($env.device // "") },
	status: (if $error != "" then "error"
		elif all($tests[]; .status == "pass") then "pass"
		else "fail" end),
	score: (if $error != "" then null else [ $tests[].score ] | add end),
	max_score: (if $error != "" then null else [ $tests[].max_score ] | add end),
	duration_ms: ($duration | tonumber),
	message: ($error | plain),
	tests: (if $error != "" then [] else $tests end)
}
