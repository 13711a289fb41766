/* The command line, by a table of options, from which --help is made, too. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stdbool.h>

#define EXIT_USAGE 2

/* One option, and the one of the last three that it sets. */
struct option_spec {
	int letter;		/* -x; below 32: it has only the long form */
	const char *name;	/* --name; NULL ends a table */
	const char *argument;	/* what --help calls it; NULL: takes none */
	const char *meaning;
	bool *flag;
	const char **text;	/* stays part of argv */
	int *number;
	int min, max;		/* of the number */
};

/*
 * Set what the options in @argv say; -h or --help prints the help and exits.
 * If @operand names one, a single argument may stand besides the options, in
 * argv[optind]. @notes, if not NULL, ends the help. Returns 0, or -1 after an
 * error message: exit with EXIT_USAGE then.
 */
int options_parse(int argc, char *argv[], const struct option_spec *specs,
		  const char *operand, const char *notes);

#endif
