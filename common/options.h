/* Parse the command line with a table of options, and print --help from it. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>

#define EXIT_USAGE 2

/*
 * One option. Set exactly one of flag, text and number: it points to the
 * variable that the option fills in. An entry without a name ends the table.
 */
struct option_spec {
	int letter;		/* of -x; below 32: only --name exists */
	const char *name;	/* of --name */
	const char *argument;	/* its name in --help; NULL if it takes none */
	const char *meaning;	/* for --help */
	bool *flag;		/* becomes true */
	const char **text;	/* becomes the argument, a part of argv */
	int *number;		/* becomes the argument, a whole number */
	int min, max;		/* the smallest and the largest number */
};

/*
 * Fill in the variables of the options that are in @argv; -h or --help prints
 * the help and ends the program. If @operand is not NULL, one argument that is
 * not an option is accepted: --help calls it @operand, and the caller finds it
 * in argv[optind]. Unless @notes is NULL, it is printed below the help.
 * Returns 0, or -1 after an error message; then exit with EXIT_USAGE.
 */
int options_parse(int argc, char *argv[], const struct option_spec *specs,
		  const char *operand, const char *notes);

/*
 * Check the @value of @option against @max, a limit of the device or port that
 * is known only after the options have been read. Returns 0 if it is at most
 * @max, or -1 after an error message.
 */
int option_at_most(const char *option, long long value, long long max);

#endif
