# wire-diagram.awk - the sequence diagram of `wire`
#
# Reads a line for each packet, with the fields that packets() in wire asks tshark for.
# Prints the diagram, of `most` packets at most, and writes it in the language of mscgen
# to the file `msc`. Exit status: 1 if there was no packet.

function hex(n,    digits) {
	for (digits = ""; length(digits) < 6; n = int(n / 16))
		digits = substr("0123456789abcdef", n % 16 + 1, 1) digits
	return "0x" digits
}

# What an ACK extended transport header says.
function answer(syndrome, msn,    kind, code) {
	kind = int(syndrome / 32) % 4
	code = syndrome % 32
	if (kind == 0) return "ACK, MSN " msn
	if (kind == 1) return "NAK: receiver not ready"
	return "NAK: " (code in nak ? nak[code] : code)
}

function dashes(n,    text) {
	for (text = "--"; length(text) < n; text = text "-") continue
	return text
}

# The packet in one line, and in the language of mscgen.
function draw(i,    text, ends, note) {
	text = sprintf(" %-12s %-12s  %-10s ", name[i], psn[i] ? "PSN " psn[i] : "", what[i])
	if (side[i] == "server")
		text = "|--" text dashes(55 - length(text)) (lost[i] ? "x   |" : "--->|")
	else
		text = (lost[i] ? "|   x" : "|<---") dashes(55 - length(text)) text "--|"
	note = (again[i] ? "again" : "") (again[i] && lost[i] ? ", " : "") \
		(lost[i] ? "lost" : "")
	text = sprintf("%9.3f %s %s", at[i], text, note)
	sub(/ +$/, "", text)
	print text

	ends = lost[i] ? " -x " : " => "
	ends = side[i] == "server" ? "server" ends "client" : "client" ends "server"
	printf "\t%s [label=\"%.3f ms: %s%s%s%s\"%s];\n", ends, at[i], name[i], \
		psn[i] ? ", PSN " psn[i] : "", what[i] ? ", " what[i] : "", note ? " (" note ")" : "", note ? \
		", textcolour=\"#b00020\", linecolour=\"#b00020\"" : "" >msc
}

function skip(count,    text) {
	if (!count) return
	text = count " packet" (count > 1 ? "s" : "") " not shown"
	printf "%9s |%*s%*s|\n", "...", 30 + length(text) / 2, text, \
		30 - int(length(text) / 2), ""
	printf "\t...; --- [label=\"%s\"]; ...;\n", text >msc
}

BEGIN {
	FS = "\t"
	split("SEND First,SEND Middle,SEND Last,SEND Last with Immediate,SEND Only," \
		"SEND Only with Immediate,RDMA WRITE First,RDMA WRITE Middle,RDMA WRITE Last," \
		"RDMA WRITE Last with Immediate,RDMA WRITE Only," \
		"RDMA WRITE Only with Immediate,RDMA READ Request,RDMA READ Response First," \
		"RDMA READ Response Middle,RDMA READ Response Last,RDMA READ Response Only," \
		"Acknowledge,ATOMIC Acknowledge,CmpSwap,FetchAdd", opcodes, ",")
	split("invalid request,remote access,remote operation", nak, ",")
	nak[0] = "PSN sequence"
	split("REQ,MRA,REJ,REP,RTU,DREQ,DREP", names, ",")
	for (i in names) cm["0x001" (i - 1)] = "CM " names[i]
}

{
	n++
	side[n] = $1 ~ /1$/ ? "server" : "client"
	if (n == 1) start = $2
	at[n] = ($2 - start) * 1000
	lost[n] = $4 == 3 || $11 == 3
	losses += lost[n]
	name[n] = opcodes[$5 % 32 + 1]
	psn[n] = hex($6)
	# A datagram of the connection manager that is sent again has another PSN.
	key = $12 ? side[n] SUBSEP "CM" $12 : side[n] SUBSEP $5 SUBSEP $6 SUBSEP $7 SUBSEP $9
	again[n] = key in seen
	seen[key] = 1

	if ($12) {
		name[n] = $12 in cm ? cm[$12] : "CM " $12
		psn[n] = $15 $16
		what[n] = $13 $14 ? "QPN " $13 $14 : $17 ? "reason " $17 : ""
		managed++
	} else if (name[n] == "Acknowledge") {
		what[n] = answer($9, $10)
		refused[n] = what[n] ~ /^NAK/
		answers++
		answers_again += again[n]
	} else {
		# Without the headers: UDP, what is in every packet (12 bytes and a CRC of
		# 4), and what this kind of packet has more.
		bytes = $3 - 8 - 12 - 4 - $8 - ($9 != "" ? 4 : 0)
		if (sub(/Immediate/, "Imm", name[n])) bytes -= 4
		if (name[n] ~ /WRITE (First|Only)|READ Request/) bytes -= 16
		if (name[n] ~ /CmpSwap|FetchAdd/) bytes -= 28
		if ($5 >= 96) bytes -= 8
		what[n] = bytes " byte" (bytes == 1 ? "" : "s")
		requests_again += again[n]
	}
	# More than 1 ms without any packet, until this one was sent again.
	if (again[n] && at[n] - at[n - 1] > 1) silence += at[n] - at[n - 1]
}

END {
	if (!n) exit 1

	# All of them, or the first, the last, and those around what went wrong.
	for (i = 1; i <= n; i++)
		if (n <= most || i <= most / 4 || i > n - most / 6) shown[i] = 1
	room = n <= most ? 0 : most - most / 4 - most / 6
	for (i = 2; i < n && room > 0; i++)
		if (lost[i] || again[i] || refused[i])
			for (j = i - 1; j <= i + 1; j++)
				if (!(j in shown)) { shown[j] = 1; room-- }

	print "msc {\n\twidth=900;\n\tserver, client;" >msc
	printf "\n%9s %-31s%31s\n", "ms", "server", "client"
	for (i = 1; i <= n; i++) {
		if (i in shown || (!hidden && i + 1 in shown)) {
			skip(hidden)
			hidden = 0
			draw(i)
		} else {
			hidden++
		}
	}
	print "}" >msc

	printf "\n%d packets in %.1f ms: %s%d of messages, %d acknowledgements\n", n, at[n], \
		managed ? managed " of the CM, " : "", n - answers - managed, answers
	if (losses || requests_again || answers_again)
		printf "%d lost; sent again: %d of messages, %d acknowledgements; " \
			"%.1f ms of silence before that\n", losses, requests_again, \
			answers_again, silence
}
