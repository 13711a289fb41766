/* address.c - for each argument: is it an address, if a NUL follows? */
#include <stdio.h>
#include <string.h>

#include "../../common/address.h"

int main(int argc, char *argv[])
{
	for (int i = 1; i < argc; i++) {
		struct address address;

		if (address_parse(argv[i], strlen(argv[i]) + 1, &address))
			address_print(argv[i], &address);
		else
			printf("no: %s\n", argv[i]);
	}
	return 0;
}
