#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "error.h"
#include "options.h"

/* The largest number of options in a table, not counting --help. */
#define OPTIONS_MAX 20

static void print_help(const struct option_spec *spec, const char *operand,
		       const char *notes)
{
	printf("usage: %s [OPTIONS]", program_invocation_short_name);
	if (operand)
		printf(" [%s]", operand);
	printf("\n\n");

	for (; spec->name; spec++) {
		char letter[] = "   ", argument[32] = "";
		int width = 17;

		if (isprint(spec->letter))
			snprintf(letter, sizeof(letter), "-%c,", spec->letter);
		if (spec->argument)
			snprintf(argument, sizeof(argument), "=%s",
				 spec->argument);
		width -= printf("  %-3s --%s", letter, spec->name) - 5;
		printf("%-*s %s\n", width, argument, spec->meaning);
	}
	printf("  -h, --help           print this help\n");
	if (notes)
		printf("\n%s\n", notes);
}

static int set_number(const struct option_spec *spec)
{
	char name[32], *end;
	long number;

	errno = 0;
	number = strtol(optarg, &end, 0);
	if (isprint(spec->letter))
		snprintf(name, sizeof(name), "-%c", spec->letter);
	else
		snprintf(name, sizeof(name), "--%s", spec->name);

	if (end == optarg || *end != '\0') {
		print_error(0, "%s \"%s\": not a whole number", name, optarg);
	} else if (errno || number < spec->min || number > spec->max) {
		print_error(0, "%s %s: out of range", name, optarg);
	} else {
		*spec->number = (int)number;
		return 0;
	}

	print_hint("%s takes a number from %d to %d", name, spec->min,
		   spec->max);
	return -1;
}

int options_parse(int argc, char *argv[], const struct option_spec *specs,
		  const char *operand, const char *notes)
{
	struct option names[OPTIONS_MAX + 2] = { { "help", 0, NULL, 'h' } };
	char letters[2 * OPTIONS_MAX + 2] = "h";
	const char *extra;
	int c, end = 1;

	for (int i = 0; specs[i].name; i++) {
		if (i == OPTIONS_MAX) {
			print_error(0, "this program has too many options");
			return -1;
		}
		names[i + 1].name = specs[i].name;
		names[i + 1].has_arg = specs[i].argument != NULL;
		names[i + 1].val = specs[i].letter;
		end += snprintf(letters + end, sizeof(letters) - end,
				specs[i].argument ? "%c:" : "%c",
				specs[i].letter);
	}

	while ((c = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		const struct option_spec *spec = specs;

		if (c == 'h') {
			print_help(specs, operand, notes);
			exit(EXIT_SUCCESS);
		}

		while (spec->name && spec->letter != c)
			spec++;
		if (!spec->name) {	/* getopt_long() has printed why */
			print_hint("--help lists the options");
			return -1;
		}
		if (spec->flag)
			*spec->flag = true;
		if (spec->text)
			*spec->text = optarg;
		if (spec->number && set_number(spec))
			return -1;
	}

	extra = argv[optind];
	if (extra && operand)
		extra = argv[optind + 1];
	if (!extra)
		return 0;
	print_error(0, "one argument too many: %s", extra);
	print_hint("--help lists the options");
	return -1;
}

int option_at_most(const char *option, long long value, long long max)
{
	if (value <= max)
		return 0;

	print_error(0, "%s %lld is more than this device can do", option,
		    value);
	print_hint("give at most %lld; make run-01 PROGRAM=attributes lists "
		   "all limits", max);
	return -1;
}
