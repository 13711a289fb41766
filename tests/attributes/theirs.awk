# Turns what `ibv_devinfo -v` prints into facts, with the names that `attributes` uses: see
# facts.awk.

BEGIN {
	split("transport=transport_type general_odp_caps=general_caps " \
		"flags=tm_caps.flags hca_id=name port_lid=lid port_lmc=lmc", list, " ")
	for (i in list) { split(list[i], pair, "="); named[pair[1]] = pair[2] }
	split("C-VLAN stripping offload=RAW_PACKET_CAP_CVLAN_STRIPPING," \
		"Scatter FCS offload=RAW_PACKET_CAP_SCATTER_FCS," \
		"IP csum offload=RAW_PACKET_CAP_IP_CSUM,Delay drop=RAW_PACKET_CAP_DELAY_DROP," \
		"SUPPORT_SRQ=ODP_SUPPORT_SRQ_RECV", list, ",")
	for (i in list) { split(list[i], pair, "="); flag[pair[1]] = pair[2] }
}
/^[ \t]*$/ { next }
{ sub(/^\t+/, "") }
/^GID/ {
	gsub(/GID\[|\]:|,/, " ")
	fact("gid", "=", $1 " " $2 " " $3 " " $4)
	next
}
/^NO SUPPORT$/ { fact(key, "=", 0); next }
/^Unknown flags: / { fact(key, "+", "unknown " number($3)); next }
/not supported$/ {
	fact(/timestamp/ ? "completion_timestamp_mask" : /clock/ ? "hca_core_clock" : \
		"max_num_tags", "=", 0)
	next
}
!/:/ {
	if ($0 in flag) $0 = flag[$0]
	else if (key ~ /^device_cap/) sub(/^/, "DEVICE_")
	else if (key ~ /qpts$/) sub(/^SUPPORT/, "QPT")
	else if (key ~ /^(rc|uc|ud|xrc)_odp/) sub(/^/, "ODP_")
	sub(/^IBV_/, "")
	fact(key, "+", $0); next
}
{
	key = $0; sub(/:.*/, "", key); value = $0; sub(/^[^:]*:[ \t]*/, "", value)
	if (key == "hca_id") { device = value; port = 0; next }
	if (key == "port") { port = value; next }
	if (key ~ /^(tso|rss|packet_pacing)_caps$/) section = key
	if (key == "supported_qp") key = section ".supported_qpts"
	if (key == "max_rndv_hdr_size") tm = 1
	if (key == "max_sge" && tm) key = "tm_caps.max_sge"
	if (key == "completion timestamp_mask") key = "completion_timestamp_mask"
	if (key == "maximum available device memory") key = "max_dm_size"
	if (key == "raw packet caps") key = "raw_packet_caps"
	if (key in named) key = named[key]
	sub(/(kHZ|kbps|Bytes| us)$/, "", value)
	if (value == "") next
	if (match(value, / \([0-9]+\)$/)) {
		fact(key, "=", number(substr(value, RSTART + 2, RLENGTH - 3)))
		value = substr(value, 1, RSTART - 1)
		if (key == "active_width") sub(/X$/, "", value)
		sub(/TRAINNING/, "TRAINING", value)
		fact(key, "~", word(value))
	} else if (key == "link_layer") fact(key, "~", word(value))
	else fact(key, "=", key == "fw_ver" ? value : number(value))
}
