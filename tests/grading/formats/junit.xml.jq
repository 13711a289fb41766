# JUnit: a test suite a chapter.
def attr: @html | gsub("&#39;"; "&apos;");
def seconds: . / 1000;
"<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
"<testsuites>",
(.tests | group_by(.chapter)[] |
	([ .[] | select(.status == "fail" or .status == "timeout") ] | length) as $failures |
	([ .[] | select(.status == "error") ] | length) as $errors |
	([ .[] | select(.status == "blocked") ] | length) as $skipped |
	"  <testsuite name=\"\(.[0].chapter)\" tests=\"\(length)\" failures=\"\($failures)\" errors=\"\($errors)\" skipped=\"\($skipped)\" time=\"\([.[].duration_ms] | add | seconds)\">",
	(.[] | "    <testcase classname=\"\(.chapter)\" name=\"\("\(.id) \(.name)" | attr)\" time=\"\(.duration_ms | seconds)\">" +
		(if .status == "pass" then ""
		elif .status == "blocked" then "<skipped message=\"\(.message | attr)\"/>"
		elif .status == "error" then "<error message=\"\(.message | attr)\"/>"
		else "<failure message=\"\(.message | attr)\">\([.cmd, .message, .kernel, .hint] | map(select(. != "")) | join("\n") | attr)</failure>" end) +
		"</testcase>"),
	"  </testsuite>"),
(if .status == "error" then
	"  <testsuite name=\"grade\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" time=\"\(.duration_ms | seconds)\">",
	"    <testcase classname=\"grade\" name=\"graded\" time=\"0\"><error message=\"\(.message | attr)\"/></testcase>",
	"  </testsuite>"
else empty end),
"</testsuites>"
