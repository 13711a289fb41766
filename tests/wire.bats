# make wire-NN: what the diagram says, against what tshark says of the same capture.
# Runs on the machine, the programs in two guests.

load helpers

# One capture without loss and one with, for all tests.
setup_file() {
	export dir=$BATS_FILE_TMPDIR
	unset MAKEFLAGS MAKELEVEL MFLAGS BUILD
	cd "$BATS_TEST_DIRNAME/.."
	timeout 100 make wire-05 PACKETS=999 ARGS="-s 3000 -n 4 --timeout 40" >"$dir/plain" 2>&1 3>&- || :
	cp build/wire/05.pcap "$dir/plain.pcap"
	cp build/wire/05.svg "$dir/plain.svg"
	# On a busy machine one guest may be up long before the other: more patience.
	# Of about 450 packets one in twenty: that none is lost happens once in 10^10.
	# Once in many runs Soft-RoCE itself (seen on Linux 6.12) forgets what it has to send
	# again, both sides give up at their deadline, and there is nothing to draw.
	local i
	for i in 1 2 3; do
		timeout 100 make wire-05 LOSS=5% ARGS="-s 3000 -n 50 --timeout 20" >"$dir/lossy" 2>&1 3>&- || :
		if ! grep -q 'waiting for a completion: ETIMEDOUT' "$dir/lossy"; then
			break
		fi
	done
	cp build/wire/05.pcap "$dir/lossy.pcap"
}

setup() {
	cd "$dir"
}

# The fields $2... of each RoCE packet of the capture $1; $filter chooses.
decoded() {
	tshark -n -r "$1.pcap" -Y "infiniband${filter:+ && $filter}" -T fields "${@:2}" 2>/dev/null
}

# The packets of the diagram in the output $1.
drawn() {
	grep -E '^ +[0-9]+\.[0-9]{3} \|' "$1"
}

@test "wire: both sides succeed, and all their packets are drawn, as tshark has them" {
	run -0 cat plain
	assert_line 'server | verified: every byte of 4 of 4 messages'
	assert_line 'client | verified: every byte of 4 of 4 messages'
	# Side, kind and PSN. What tshark calls Send is SEND in the specification.
	run -0 decoded plain -e eth.src -e infiniband.bth.psn -e _ws.col.Info
	expected=$(sed -E 's/^[0-9a-f:]*1\t/server\t/; s/^[0-9a-f:]*2\t/client\t/
		s/\tRC (Send )?/ /; s/ QP=.*//' <<<"$output" |
		while read -r side psn kind; do printf '%s 0x%06x %s\n' "$side" "$psn" "$kind"; done)
	run -0 drawn plain
	assert_equal "$(sed -E 's/^.*\|-- (.*)>\|.*/server \1/; s/^.*\|<-+ (.*) --\|.*/client \1/
		s/(server|client) +(SEND )?([A-Za-z]+) +PSN (0x[0-9a-f]+) .*/\1 \4 \3/' \
		<<<"$output")" "$expected"
}

@test "wire: 3000 bytes are First, Middle and Last, of 1024, 1024 and 952 bytes" {
	local side
	# A packet may have been sent again.
	for side in '<-' '--'; do
		(($(drawn plain | grep -c "|$side.* SEND First .* 1024 bytes") >= 4))
		(($(drawn plain | grep -c "|$side.* SEND Middle .* 1024 bytes") >= 4))
		(($(drawn plain | grep -c "|$side.* SEND Last .* 952 bytes") >= 4))
	done
	[[ $(drawn plain | grep -v again | grep -c SEND) == 24 ]]
}

@test "wire: the PSNs begin with those that the sides exchanged, and have no gap" {
	local side psn
	for side in server client; do
		psn=$(sed -n "s/^$side |   local address: .* PSN \(0x[0-9a-f]*\),.*/\1/p" plain)
		# The server's arrows begin with dashes, the client's end with them.
		run -0 sed -nE "$([[ $side == client ]] || echo '/<--/!')$(
			[[ $side == server ]] || echo '/<--/')s/.* SEND .*PSN (0x[0-9a-f]+) .*/\1/p" \
			<(drawn plain | grep -v again)
		assert_equal "$output" "$(for ((i = 0; i < 12; i++)); do
			printf '0x%06x\n' $(((psn + i) & 0xffffff))
		done)"
	done
}

@test "wire: each message is acknowledged by the PSN of its last packet" {
	local lasts answers
	lasts=$(drawn plain | sed -nE 's/.* SEND Last +PSN (0x[0-9a-f]+) .*/\1/p' | sort -u)
	assert_equal "$(wc -l <<<"$lasts")" 8
	# What was sent again without need has answers of its own.
	answers=$(drawn plain | sed -nE 's/.* PSN (0x[0-9a-f]+)  ACK, MSN [1-4] .*/\1/p' | sort -u)
	assert_equal "$(comm -12 <(echo "$lasts") <(echo "$answers"))" "$lasts"
}

@test "wire: the picture is well-formed and has every packet" {
	run -0 xmllint --nonet --noout plain.svg
	assert_output ''
	[[ $(grep -cE 'ms: (SEND|Acknowledge)' plain.svg) == $(drawn plain | wc -l) ]]
}

@test "wire: what is lost is marked, sent again and counted, and the data is whole" {
	local lost again
	run -0 cat lossy
	assert_line 'server | verified: every byte of 50 of 50 messages'
	assert_line 'client | verified: every byte of 50 of 50 messages'

	# Of those that are drawn, the marked ones are those that tshark sees dropped.
	run -0 decoded lossy -e frame.time_relative -e ip.dsfield.ecn
	assert_equal "$(drawn lossy | awk '/ lost$/ { print $1 }')" \
		"$(awk 'NR == 1 { start = $1 } $2 == 3 { printf "%.3f\n", ($1 - start) * 1000 }' \
			<<<"$output" | grep -xFf <(drawn lossy | awk '{ print $1 }'))"

	lost=$(filter='ip.dsfield.ecn == 3' decoded lossy -e frame.number | wc -l)
	# Whatever has the same sender, PSN, kind and syndrome as one before.
	again=$(decoded lossy -e eth.src -e infiniband.bth.psn -e infiniband.bth.opcode \
		-e infiniband.aeth.syndrome | awk 'seen[$0]++' | wc -l)
	((lost > 0 && again > 0))
	run -0 grep -E '^[0-9]+ lost; sent again: ' lossy
	read -r a _ _ _ b _ _ c _ <<<"$output"
	assert_equal "$a $((b + c))" "$lost $again"
	assert_regex "$output" '; [0-9]+\.[0-9] ms of silence before that$'
}

@test "wire: a long capture is cut, and adds up" {
	local shown hidden
	shown=$(drawn lossy | wc -l)
	hidden=$(awk '/ packets not shown / { n += $3 } END { print n + 0 }' lossy)
	((shown <= 70 && hidden > 0))
	assert_equal $((shown + hidden)) "$(decoded lossy -e frame.number | wc -l)"
}

@test "wire: a program that sends nothing has no diagram, and that is a failure" {
	LIMIT=100 run -1 limited "$project/tests/lab/wire" --out "$dir/none" /bin/true
	assert_line "wire: there is no RoCE packet in the capture $dir/none.pcap"
	LIMIT=100 run -3 limited "$project/tests/lab/wire" --out "$dir/none" sh -c 'exit 3'
}

# bats test_tags=long
@test "wire: the messages of the connection manager are drawn, and their contents explained" {
	local req rep
	unset MAKEFLAGS MAKELEVEL MFLAGS BUILD
	cd "$project"
	LIMIT=100 run -0 limited make wire-07 ARGS="-C 1 --timeout 30"
	assert_equal "$(grep -oE 'CM [A-Z]+ ' <<<"$output" | awk '!seen[$2]++ { printf "%s ", $2 }')" \
		'REQ REP RTU DREQ DREP '
	assert_line --regexp ' \|<-+ CM RTU +--\|$'
	# Each side says with which PSN the other one begins.
	req=$(sed -nE '/CM REQ/s/.* PSN (0x[0-9a-f]{6})  QPN 0x[0-9a-f]{6} --\|.*/\1/p' <<<"$output" | head -n 1)
	rep=$(sed -nE '/CM REP/s/.* PSN (0x[0-9a-f]{6})  QPN 0x[0-9a-f]{6} -.*/\1/p' <<<"$output" | head -n 1)
	assert_line --regexp "\|-- RDMA READ Request PSN $req "
	assert_line --regexp "\|<-+ SEND Only +PSN $rep "
	assert_line --regexp "^REQ  from 10.9.0.2 for port 7174: QPN 0x[0-9a-f]{6}, PSN $req, MTU 1024,\$"
	assert_line '     RDMA READs: serves 1, posts 0; retries 7, RNR retries 7,'
	assert_line --regexp '^     ACK timeout [0-9]+, private data \(56 bytes\): all 0$'
	assert_line --regexp "^REP  QPN 0x[0-9a-f]{6}, PSN $rep,\$"
	assert_line '     private data (196 bytes): all 0'
	assert_line --regexp '^[0-9]+ packets in .*: [0-9]+ of the CM, [0-9]+ of messages, '
}
