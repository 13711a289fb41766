# Which verbs the programs use, and that each is taught where it is said to be.

load helpers

# The verbs by the chapter that teaches them. Chapter 00, which shows everything once, and
# a release may use one earlier.
taught() {
	cat <<-END
	01 ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_get_device_guid
	01 ibv_open_device ibv_close_device ibv_node_type_str ibv_query_port ibv_port_state_str
	01 ibv_query_gid_ex ibv_query_gid ibv_query_device ibv_query_device_ex
	02 ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr
	03 ibv_create_comp_channel ibv_destroy_comp_channel ibv_create_cq ibv_destroy_cq
	03 ibv_req_notify_cq ibv_get_cq_event ibv_ack_cq_events ibv_poll_cq ibv_wc_status_str
	03 ibv_create_cq_ex ibv_cq_ex_to_cq ibv_start_poll ibv_next_poll ibv_end_poll
	03 ibv_wc_read_qp_num
	04 ibv_create_qp ibv_destroy_qp ibv_modify_qp ibv_query_qp ibv_post_recv ibv_post_send
	06 ibv_query_qp_data_in_order
	END
}

# The verbs that the programs of chapter $1 call, comments aside.
used() {
	local source
	for source in "$project/$1"-*/*.c; do
		[[ $source == */@(exercise|broken).c ]] || gcc -fpreprocessed -dD -E -P "$source"
	done | grep -oE '\bibv_[a-z_]+\(|RELEASE(_VOID)?\(ibv_[a-z_]+' |
		grep -oE 'ibv_[a-z_]+' | sort -u
}

@test "every verb is used in the chapter that teaches it" {
	local chapter verbs
	while read -r chapter verbs; do
		run -0 comm -23 <(tr ' ' '\n' <<<"$verbs" | sort) <(used "$chapter")
		assert_output ''
	done < <(taught)
}

# A chapter that is not in the table may use what its programs name with its man page.
@test "no chapter uses a verb that none of the chapters teaches" {
	local chapter seen=0
	for chapter in "$project"/[0-9][0-9]-*/; do
		chapter=${chapter%/}
		chapter=${chapter##*/}
		chapter=${chapter%%-*}
		((seen += 1))
		run -0 comm -13 <(
			{
				taught | cut -d ' ' -f 2- | tr ' ' '\n'
				taught | grep -q "^$chapter " ||
					grep -hoE '\bibv_[a-z_]+\(3\)' "$project/$chapter"-*/*.c | tr -d '(3)'
			} | sort -u
		) <(used "$chapter")
		assert_output ''
	done
	assert [ "$seen" -ge 5 ]
}

@test "every verb that has a man page is named with it, where it is taught" {
	local chapter verbs verb
	while read -r chapter verbs; do
		for verb in $verbs; do
			# These are on the page of ibv_create_cq_ex(), or on none.
			case $verb in
			ibv_*_poll|ibv_cq_ex_to_cq|ibv_wc_read_*|ibv_wc_status_str) continue ;;
			esac
			grep -q "^ \*.*\b$verb(3)" "$project/$chapter"-*/*.c ||
				fail "chapter $chapter does not name $verb(3)"
		done
	done < <(taught)
}
