# The runner's records become grade.json, from which all else is made.

# What a program has printed may hold anything; XML and terminals may not.
def plain: gsub("[\\p{Cc}]"; "?");
# What differs from run to run, though nothing has changed.
def steady: gsub(" ?\\bpid [0-9]+ comm [^ ]+"; "") |
	gsub("\\b(?<key>[lr]key) 0x(?!0\\b)[0-9a-f]+"; "\(.key) set");

($places | split("\n") | map(split(" ") | select(length == 2) |
	{ key: .[0], value: (.[1] | tonumber) }) | from_entries) as $line |
(split("\n") | map(split("\u001f") | map(plain))) as $records |
[ $records[] | select(.[0] == "CHECK" and length == 13) | {
	id: .[1],
	chapter: .[2],
	name: .[4],
	status: .[5],
	score: (.[6] | tonumber),
	max_score: (.[7] | tonumber),
	duration_ms: (.[8] | tonumber),
	cmd: .[9],
	message: (.[10] | steady),
	kernel: (.[11] | steady),
	hint: .[12],
	file: "\(.[2])/\(.[3]).c",
	line: ($line[.[1]] // 1)
} ] | sort_by(.id) as $tests |
([ $records[] | select(.[0] == "ENV") ][0] // [null, "", ""]) as $env |
{
	schema: "rdma-workbook/grade/v1",
	seed: $seed,
	env: { kernel: $env[1], rdma_core: $rdma_core, device: $env[2] },
	status: (if $error != "" then "error"
		elif all($tests[]; .status == "pass") then "pass"
		else "fail" end),
	score: (if $error != "" then null else [ $tests[].score ] | add end),
	max_score: (if $error != "" then null else [ $tests[].max_score ] | add end),
	duration_ms: ($duration | tonumber),
	message: $error,
	tests: (if $error != "" then [] else $tests end)
}
