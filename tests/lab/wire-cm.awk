# wire-cm.awk - what the messages of the connection manager hold, for `wire`
#
# Reads a line for each message, with the fields that cm_messages() in wire asks tshark
# for. Prints a paragraph for each message that has contents: REQ, REP and REJ.

# A number that tshark prints in hexadecimal.
function number(hex,    n, i) {
	for (i = 3; i <= length(hex); i++)
		n = 16 * n + index("123456789abcdef", substr(hex, i, 1))
	return n + 0
}

# Bytes in hexadecimal, without the zeros that fill them up.
function private_data(bytes,    size) {
	size = length(bytes) / 2
	sub(/(00)+$/, "", bytes)
	return sprintf("private data (%d bytes): %s", size, bytes ? bytes "..." : "all 0")
}

$3 {
	printf "\nREQ  from %s for port %d: QPN %s, PSN %s, MTU %d,\n", $2, number($1), $3, $4,
		2 ^ (7 + number($5))
	printf "     RDMA READs: serves %d, posts %d; retries %d, RNR retries %d,\n",
		number($6), number($7), number($8), number($9)
	printf "     ACK timeout %d, %s\n", number($10), private_data($11)
}

$12 {
	printf "REP  QPN %s, PSN %s,\n", $12, $13
	printf "     RDMA READs: serves %d, posts %d; RNR retries %d,\n",
		number($14), number($15), number($16)
	printf "     %s\n", private_data($17)
}

$18 { printf "REJ  reason %d, %s\n", number($18), private_data($19) }
