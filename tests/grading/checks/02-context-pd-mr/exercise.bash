# Chapter 02: what is registered is what the kernel says is registered.

points 02.1 3 'the letters become access flags' 'man 3 ibv_reg_mr'
points 02.2 5 'registers the whole buffer, once for each' 'man 3 ibv_reg_mr'
points 02.3 4 'reports keys, and refusals by name' 'man 3 strerrorname_np'
points 02.4 4 'releases all, in order' 'man 3 ibv_dealloc_pd'

# With any seed: no right at all; each letter alone, with others, twice, and with a - between; the
# same rights twice in a row; some that must be refused. The first and the last are granted, so that
# a program that forgets its first or last region is noticed.
choose_rights() {
	local middle=() ends=() word letters
	printf -v long 'LRA%.0s' {1..40} # more letters than a short buffer has room for
	shuffle ends L-RR LW LA RL
	shuffle middle - L:LL R WLWL LRRWA W A WR "$long" "${ends[@]:2}"
	read -ra middle <<<"${middle[*]//:/ }"
	for word in "${ends[0]}" "${middle[@]}" "${ends[1]}"; do
		vary letters "$word"
		# A program that reads only a part of this word misses the W.
		if [[ $word == "$long" ]]; then
			letters+=W
		fi
		ask+=("$letters")
		if [[ $letters == *[WA]* && $letters != *L* ]]; then
			refused+=("$letters")
		else
			granted+=("$letters")
		fi
	done
}

# refused_with ERROR LETTERS...: does the program say that these were refused?
refused_with() {
	local letters
	for letters in "${@:2}"; do
		about "$letters" && [[ ${found[0]} == "$letters: refused $1" ]] && continue
		# Not what only ends like the line, and is about other letters.
		find_lines "$letters: .*"
		evidence="printed: ${whole[*]:-no such line}"
		return 1
	done
}

# The program has been started. Is nothing left at CHECKPOINT clean?
releases_all() {
	at registered && keep_context && go && at clean
	expect 02.4 "at CHECKPOINT clean all regions and the domain should be gone, $1" \
		released mr pd && go && finish && expect_status 02.4 0 "$1"
}

check_exercise() {
	local length verb n=0 letters verbs=() ask=() granted=() refused=() errors=() error seen
	local range i others=() order long
	random length 66000 99000 # more than 16 bits
	((length |= 1)) # and odd: to round it up is seen
	choose_rights
	watch_registrations
	probe asked ib_uverbs_reg_mr
	start exercise "$length" "${ask[@]}"
	reach 02.1 registered || return
	if tried_again; then fail 02.2 "refused letters were tried again with other flags"; fi
	expect 02.1 "ibv_reg_mr() should get the access flags that the letters stand for" right_flags
	if ((seen == 15)); then ok 02.1; fi # each letter
	expect 02.2 "there should be ${#granted[@]} regions; each argument needs a call" right_count &&
		expect 02.2 "each region should have the $length bytes of buf" \
			all_have "$length" ${#granted[@]} && ok 02.2
	if printed '*@(: refused \(null\)|register_buffer\(\) returned *, and \*mr is *)' ||
		{ told OTHER_ERROR && ! refused_with EINVAL "${refused[@]}"; }; then
		fail 02.2 "register_buffer() should return 0 and a region, or errno and NULL"
	fi
	if ((${#objects[@]} == ${#granted[@]})); then
		expect 02.3 "each line should have its region's keys: 0x and eight digits" right_keys &&
			expect 02.3 "the line of a refusal should end with: refused EINVAL" \
				refused_with EINVAL "${refused[@]}" && ok 02.3
	fi
	if ((${#objects[@]} > 1)); then # with one region the order is easily right
		keep_context && go && reach 02.4 clean &&
			expect 02.4 "at CHECKPOINT clean all regions and the domain should be gone" \
				released mr pd &&
			go && finish && expect_status 02.4 0 && ok 02.4
	fi
	# Letters that mean nothing: alone, behind an L, before good letters. The first has 2 bytes.
	for range in BCDEFGHIJK MNOPQ STUV XYZ wlra bcdefghijkmnopqstuvxyz 0123456789 \
		'()*?;:./_#&!"$%<=>@[]^`{}~\' "'" $'\t\n\x01\x1b\x7f'; do
		random i 0 $((${#range} - 1))
		others+=("${range:i:1}")
	done
	for letters in $'\xd2\xad' , '|' + ' ' "${others[@]}"; do
		case $((n++ % 3)) in
		1)
			vary letters "L$letters"
			letters=L$letters
			;;
		2)
			vary letters "L$letters"
			letters+=${long:0:5 * n}
			;;
		esac
		order=() && shuffle order "$letters" "${granted[@]::n % 3}" "${refused[@]::n % 2}"
		start exercise 100 "${order[@]}" && walk
		expect 02.1 "access_flags() should return -1 for the letters '$letters'" refuses_letters
	done
	# Each error is a refusal, and no failure of the program. The second one has a long name.
	shuffle errors 'EOVERFLOW 75' 'EADDRNOTAVAIL 99' 'ENETUNREACH 101' 'ECONNREFUSED 111' \
		'EHOSTUNREACH 113' 'EREMOTEIO 121' 'ECANCELED 125' 'EOWNERDEAD 130'
	for error in 'ENOMEM 12' "${errors[0]}"; do
		fails ibv_reg_mr 1 "${error#* }"
		run exercise 5000 L W
		nothing_fails
		error=${error% *}
		if ! printed '*CHECKPOINT registered' ||
			{ told OTHER_ERROR && ! refused_with "$error" L W; }; then
			fail 02.2 "ibv_reg_mr() failed with $error: register_buffer() should return that"
		fi
		expect 02.3 "report() should print $error, which ibv_reg_mr() has failed with" \
			refused_with "$error" L W
	done
	# If nothing is registered, the domain is to be released all the same.
	start exercise "$length" "${refused[@]}" && releases_all "with no region"
	# Both verbs that release return the error: of the first region, the last, or one between them.
	random n 2 $((${#granted[@]} - 1))
	shuffle verbs ibv_dereg_mr\ {1,"$n","${#granted[@]}"} 'ibv_dealloc_pd 1' nothing
	for verb in "${verbs[@]}"; do
		if [[ $verb == nothing ]]; then
			# MAX_RIGHTS customers, so that there are more than sixteen regions. An even length.
			start exercise $((length - 1)) "${ask[@]}" "${ask[@]}" "${granted[@]::4}" &&
				releases_all "with 32 arguments"
			expect 02.2 "each region should have $((length - 1)) bytes" \
				all_have $((length - 1)) $((2 * ${#granted[@]} + 4))
		else
			must_heed 02.4 "${verb% *}() failed, and release() did not return -1" \
				"${verb% *}" "${verb#* }" '*' exercise "$length" "${ask[@]}"
			if told REGIONS; then fail 02.4 "one could not be released: try the others"; fi
		fi
	done
}
