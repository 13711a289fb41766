# The functions of ours.awk and theirs.awk, which turn a listing of devices into facts that
# compare. A fact is a line, "rxe_0 0 max_qp =ffff0": the device, the port or 0, what it is
# about, and = with a number in hexadecimal, + with a flag, or ~ with a word.

# The %x of mawk ends at 2^31.
function hex(n, digits) {
	for (digits = ""; n > 0; n = int(n / 16))
		digits = substr("0123456789abcdef", n % 16 + 1, 1) digits
	return digits
}
function number(text) {
	if (gsub(/:/, "", text) || text ~ /^0x/) {
		text = tolower(text)
		sub(/^(0x)?0*/, "", text)
	}
	else if (text ~ /^[0-9]+$/ && length(text) < 16) text = hex(text)
	return text == "" ? "0" : text
}
function word(text) {
	text = tolower(text)
	sub(/^ibv_/, "", text); sub(/^(mtu|link_layer)_/, "", text)
	sub(/ lanes?$/, "", text); sub(/gbps/, "gbit/s", text)
	gsub(/[ _]/, "", text)
	return text == "transportib" ? "infiniband" : text
}
function fact(key, sign, value) { print device, port + 0, key, sign value }
