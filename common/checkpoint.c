#include <stdio.h>

#include "checkpoint.h"

void wait_for_enter(void)
{
	int c;

	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

void checkpoint(const char *name)
{
	printf("CHECKPOINT %s\n", name);
	fflush(stdout);
	wait_for_enter();
}

int todo(const char *id)
{
	printf("TODO %s not written yet\n", id);
	return -1;
}
