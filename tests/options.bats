# What needs no device: options that are wrong before one is looked for.

load helpers

# The lesson has fewer options than the tool.
ours=$BUILD/05-pingpong/pingpong
tool=$BUILD/05-pingpong/rc_pingpong

# $1: what the first line says; $2: what the hint says; the rest: arguments.
refused() {
	local message=$1 hint=$2
	shift 2
	case $message in
	rc_*) run -2 limited "$tool" "$@" ;;
	*) run -2 limited "$ours" "$@" ;;
	esac
	assert_line --index 0 --partial "$message"
	assert_line --index 1 --partial "$hint"
	assert_line --index 1 --partial 'hint: '
}

@test "numbers: one that is out of range is refused" {
	refused 'pingpong: -s 0: out of range' '-s takes a number from 1 to' -s 0
	refused 'pingpong: -s -1: out of range' '-s takes a number from 1 to' -s -1
	refused 'out of range' '-s takes' --size 99999999999999999999
	refused 'pingpong: -n 0: out of range' '-n takes a number from 1 to' -n 0
	refused 'rc_pingpong: -r 0: out of range' '-r takes a number from 1 to' -r 0
	refused 'pingpong: -p 65536: out of range' '-p takes a number from 1 to 65535' -p 65536
	refused 'rc_pingpong: -i 0: out of range' '-i takes a number from 1 to 255' -i 0
	refused 'rc_pingpong: -l 16: out of range' '-l takes a number from 0 to 15' -l 16
	refused 'pingpong: -g -1: out of range' '-g takes a number from 0' -g -1
	refused 'pingpong: --timeout 0: out of range' '--timeout takes a number' --timeout 0
}

@test "numbers: what is not a number is refused" {
	refused 'pingpong: -s "1x": not a whole number' '-s takes a number' -s 1x
	refused 'pingpong: -n "": not a whole number' '-n takes a number' -n ''
	refused 'pingpong: -n "1.5": not a whole number' '-n takes a number' --iters=1.5
}

@test "mtu: a value other than the five is refused" {
	refused 'pingpong: -m 1500 is not a path MTU' '256, 512, 1024, 2048 or 4096' -m 1500
	refused 'pingpong: -m 8192: out of range' 'from 256 to 4096' -m 8192
}

@test "arguments: unknown, missing or one too many" {
	refused "invalid option -- 'x'" '--help lists' -x
	refused "unrecognized option '--sise'" '--help lists' --sise 5
	refused "option requires an argument -- 's'" '--help lists' -s
	refused 'pingpong: one argument too many: b' '--help lists' a b
}

@test "help: needs no device" {
	run -0 limited "$ours" -h
	assert_line --index 0 --regexp '^usage: pingpong '
}
