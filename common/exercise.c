#include <stdio.h>

#include "exercise.h"

int todo(const char *id)
{
	printf("TODO %s not written yet\n", id);
	return -1;
}

void checkpoint(const char *name)
{
	int c;

	printf("CHECKPOINT %s\n", name);
	fflush(stdout);
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}
