# Folders for results, and what else several scripts of the grader need.
#
# grade and grade-all remove only what they have written themselves. So they take a folder over only
# if it is empty, or has the file that marks it as made by them. And no folder for results may
# be inside what is graded, or the other way round.

mark=.made-by-${0##*/}

# A stream that is closed becomes one that cannot be written to. Otherwise the next file that
# is opened would get its number, and our output would be written into that.
mend_streams() {
	if ! is_open 0; then
		exec </dev/null
	fi
	if ! is_open 1; then
		exec >/dev/full
	fi
	if ! is_open 2; then
		exec 2>/dev/null
	fi
}

# Is descriptor $1 open? Bash opens this script at the first free one and leaves it there.
is_open() { [[ -e /dev/fd/$1 && ! /dev/fd/$1 -ef $0 ]]; }

# resolve VARIABLE PATH: the path without links, `..` and slashes too many. It need not
# exist. The dot keeps a newline at its end.
resolve() {
	local path
	path=$(realpath -m -- "$2" && echo .) || return
	printf -v "$1" %s "${path%$'\n'.}"
}

# inside PATH FOLDER: is PATH the folder, or somewhere in it? Both are resolved.
inside() { [[ $1 == "$2" || $1 == "${2%/}"/* ]]; }

# at_work PID: is that a grade that still runs? One that has ended and that nobody waits
# for, a zombie, has no command line.
at_work() {
	[[ $({ tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null) == *grade* ]]
}

# may_take_over FOLDER [NAME...]: is it not there, or empty, or made by us? If there are
# NAMEs, it may have no others than these, and all have to be regular files.
may_take_over() {
	local folder=$1 entry entries
	shift
	[[ -e $folder ]] || return 0
	[[ -d $folder ]] || return 1
	mapfile -d '' entries < <(find "$folder/" -mindepth 1 -maxdepth 1 -printf '%y %f\0')
	((${#entries[@]})) || return 0
	[[ -f $folder/$mark && ! -L $folder/$mark ]] || return 1
	(($#)) || return 0
	for entry in "${entries[@]}"; do
		[[ $entry == "f $mark" || " $* " == *" ${entry#f } "* ]] || return 1
	done
}

# discard FOLDER NAME...: removes these files of ours, and then the folder, if nothing
# else is in it.
discard() {
	local folder=$1 name
	[[ -d $folder ]] || return 0
	shift
	for name in "$mark" "$@"; do
		rm -f -- "$folder/$name"
	done
	rmdir -- "$folder"
}

# exercise_flags COMPILER: prints the flags for exercises. A program that writes behind a buffer on
# the stack is ended, even if that does no harm. A variable that is not initialised must not be zero
# by luck, so it is filled with a pattern, if the compiler can do that.
exercise_flags() {
	local fill=-ftrivial-auto-var-init=pattern
	if ! "$1" "$fill" -E -x c /dev/null >/dev/null 2>&1; then
		fill=''
	fi
	echo "-std=c11 -D_GNU_SOURCE -fstack-protector-strong $fill"
}

# table_of CHAPTER: prints a line for each check of the chapter's check files: the chapter, the
# check's number, its points, its program, what is checked, and where to read; with tabs between.
table_of() (
	folder=${BASH_SOURCE[0]%/*}/checks/$1
	# shellcheck disable=SC2317 # the check files call it
	points() { printf '%s\t' "${folder##*/}" "$1" "$2" "$program" "${@:3}" && echo; }
	for program in exercise broken; do
		if [[ -e $folder/$program.bash ]]; then
			# shellcheck source=/dev/null
			source "$folder/$program.bash" || return
		fi
	done
)
