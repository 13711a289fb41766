# What a student sees of one chapter.
def pad($n): . + (" " * ([$n - length, 0] | max));
def cut($n): if length > $n then .[:$n - 3] + "..." else . end;
def seconds: (. / 100 | round) | "\(. / 10 | floor).\(. % 10)s";
def line($name; $text): if $text == "" then empty else "        \($name | pad(8)) \($text | cut(200))" end;
# The sanitizers show where a program crashes.
def crashed($nn): if .message | startswith("it crashed") then
	"make try-\($nn)\(if .file | endswith("broken.c") then " PROGRAM=broken" else "" end) SAN=1 shows the line of the crash (not in a browser)"
	else "" end;

(.tests[0].chapter) as $chapter |
($chapter | .[:2]) as $nn |
"\($chapter)   \($chapter)/exercise.c   seed \(.seed)   device \(.env.device)",
(.tests[] |
	"  \({ pass: "ok", blocked: "--" }[.status] // "FAIL" | pad(5)) \(.id)  \(.name | pad(50)) " +
	(if .status == "blocked" then "\(.message)   0/\(.max_score)"
	else "\("\(.score)/\(.max_score)" | pad(5)) \(.duration_ms | seconds)" end),
	if .status == "pass" or .status == "blocked" then empty else
		line("ran"; .cmd), line("you"; .message), line("seen"; .kernel),
		line("where"; crashed($nn)),
		line("look at"; if .line > 1 then "\(.file):\(.line)   TODO \(.id)" else .file end),
		line("read"; .hint)
	end),
"  \(.score)/\(.max_score)   " +
	(if .status == "pass" then "all checks pass" + if $solution == "" then "" else ": make diff-\($nn) shows another way" end
	else "next: make hint-\($nn)   to check the same inputs again: make check-\($nn) SEED=\(.seed)" end)
