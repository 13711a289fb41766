/* Whole numbers from the command line. */
#ifndef COMMON_PARSE_H
#define COMMON_PARSE_H

/*
 * Set @value to @text, the argument of @option, if it is a whole number from
 * @min to @max. Returns 0, or -1 after an error message.
 */
int parse_int(const char *option, const char *text, int min, int max,
	      int *value);

#endif
