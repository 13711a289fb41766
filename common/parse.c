#include <errno.h>
#include <stdlib.h>

#include "error.h"
#include "parse.h"

int parse_int(const char *option, const char *text, int min, int max,
	      int *value)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 0);
	if (end == text || *end != '\0') {
		print_error(0, "%s \"%s\": not a whole number", option, text);
	} else if (errno || number < min || number > max) {
		print_error(0, "%s %s: out of range", option, text);
	} else {
		*value = (int)number;
		return 0;
	}

	print_hint("%s takes a number from %d to %d", option, min, max);
	return -1;
}
