# Turns what `attributes` prints into facts: see facts.awk.

kind == "ibv_gid," && /^    / { fact("gid", "=", $1 " " $2 " " $4 " " $5); next }
{ sub(/ +# .*/, "") }
/^device name:/ { device = $3; port = 0; next }
/^  [^ ]/ { kind = $2; port = $4; next }
/^      unknown / { fact(key, "+", "unknown " number($2)); next }
/^      / { sub(/^ +/, ""); sub(/^1 << /, ""); sub(/^IBV_/, ""); fact(key, "+", $0); next }
{
	sub(/^ +/, "")
	parts = split($1, path, ".")
	key = path[parts]
	if (key ~ /^(supported_qpts|flags)$/ || $1 == "tm_caps.max_sge") key = $1
	rest = $0; sub(/^[^ ]+ +/, "", rest)
	value = rest; sub(/ .*/, "", value); fact(key, "=", key == "fw_ver" ? value : number(value))
	if (sub(/^[0-9]+ /, "", rest)) fact(key, "~", word(rest))
}
