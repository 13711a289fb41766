# The instruments of the torture, and a slice of most of its parts. The whole takes
# hours: make torture and make soak.

load helpers

setup_file() {
	export BUILD LAB_CPUS=1
	# On a busy machine an emulated guest is slow; make torture is stricter.
	export TORTURE_SLACK=${TORTURE_SLACK:-10} TORTURE_TIMEOUT=${TORTURE_TIMEOUT:-5} LIMIT=600
	limited "$project/tests/torture/run" --prepare
}

# passes TITLE SCRIPT [ARGUMENT...]: runs this script of tests/torture. It must succeed, and
# the line of its totals begins with the title.
passes() {
	run -0 limited "$project/tests/torture/${@:2}"
	assert_line --regexp "^$1: [1-9][0-9]* cases, 0 failures, ([0-9]+ tried twice, )?[0-9]+ s"
}

# under_calls VARIABLE=VALUE...: compiles the program on standard input, and runs it under
# calls.so in a guest with these in its environment. What was reported is then $output.
under_calls() {
	local dir=$BUILD/torture/bats
	mkdir -p "$dir"
	gcc -D_GNU_SOURCE -o "$dir/program" -x c - -libverbs
	rm -f "$dir/report"
	limited "$project/tests/lab/lab" run --root --writable "$BUILD" -- env "$@" \
		TORTURE_REPORT="$dir/report" LD_PRELOAD="$BUILD/torture/calls.so" "$dir/program"
	run -0 cat "$dir/report"
}

@test "calls: what is never released, or twice, is found" {
	under_calls X=1 <<-'END'
		#include <stdlib.h>
		#include <sys/mman.h>
		#include <unistd.h>
		#include <infiniband/verbs.h>
		int main(void)
		{
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_context *context = ibv_open_device(list[0]);
			struct ibv_pd *pd = ibv_alloc_pd(context);
			struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
			ibv_dealloc_pd(pd);
			ibv_dealloc_pd(pd);
			dup(0);
			mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			ibv_free_device_list(list);
			return malloc(1) == NULL;
		}
	END
	run -0 sort <(sed -nE 's/^((leaked|twice) [a-z-]+) 0x.*/\1/p' <<<"$output")
	assert_output 'leaked context
leaked cq
leaked descriptor
leaked mapping
leaked memory
twice pd'
}

# bats test_tags=long
@test "calls: the call that was named fails, and no other" {
	local program='
		#include <errno.h>
		#include <stdio.h>
		#include <infiniband/verbs.h>
		int main(void)
		{
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_context *context = ibv_open_device(list[0]);
			struct ibv_port_attr port;
			struct ibv_wc wc;
			int failures = 0;
			for (int i = 0; i < 3; i++)
				failures += ibv_query_port(context, 1, &port) == EIO;
			ibv_close_device(context);
			ibv_free_device_list(list);
			return failures != 1 && getenv("TORTURE");
		}'
	program="#include <stdlib.h>"$'\n'$program
	under_calls X=1 <<<"$program"
	local site
	site=$(awk '$2 == "ibv_query_port" { print $3 }' <<<"$output")
	assert_line --regexp '^call ibv_query_port 0x[0-9a-f]+ 3 EIO '
	refute_line --regexp '^(failed|leaked|twice) '
	under_calls TORTURE="ibv_query_port $site 2 EIO" <<<"$program"
	assert_line "failed ibv_query_port $site 2 EIO"
}

# bats test_tags=long
@test "calls: each kind of call fails once in three programs, and in a few places of a fourth" {
	passes calls calls --most=1 --faults=1 devices context_pd_mr cq_channel
	passes calls calls --every=40 pingpong
	passes calls calls --san --every=80 pingpong
	passes calls calls --whose=library --most=1 --faults=1 devices
}

# bats test_tags=long
@test "peers: one that dies or stops, at a few of its steps" {
	passes peers peers --quick --most=1 pingpong
}

# bats test_tags=long
@test "hostile: a few false clients and servers" {
	passes hostile hostile --quick pingpong
}

# bats test_tags=long
@test "soak: a thousandth of it" {
	SOAK=1000 passes soak soak pingpong
}

@test "output: a full disk and closed streams" {
	passes output output hello
}

# bats test_tags=long
@test "fuzz: the side channel and the two ends of the lab read anything" {
	export FUZZ_RUNS=100000 FUZZ_SECONDS=0
	passes fuzz-exchange fuzz/fuzz exchange
	passes fuzz-frames fuzz/fuzz frames
}

@test "lab: blanks, quotes and commas in the names of its folders" {
	FOLDER="a 'b' \"c\", größe" run -0 limited "$project/tests/torture/lab" paths
	assert_line --regexp "^lab: [1-9] mistreatments: 0 wrong"
}
