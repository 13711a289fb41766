#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "address.h"
#include "error.h"
#include "gid.h"

/* Where the parts of an address begin. In @form, x stands for a hex digit. */
#define QPN_OFFSET 5
#define PSN_OFFSET 12
#define GID_OFFSET 19
static const char form[ADDRESS_SIZE] =
	"xxxx:xxxxxx:xxxxxx:xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/* With these bits set, the first hex digit of a PSN is a letter. */
#define PSN_LETTER 0xc00000

unsigned int random_psn(void)
{
	unsigned int psn = 0;

	if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		psn = (unsigned int)getpid();
	return (psn & 0xffffff) | PSN_LETTER;
}

void address_write(const struct address *address, char text[ADDRESS_SIZE])
{
	int n = snprintf(text, ADDRESS_SIZE,
			 "%04x:%06x:%06X:", address->lid & 0xffff,
			 address->qpn & 0xffffff, address->psn & 0xffffff);

	for (int i = 0; i < 16; i++, n += 2)
		snprintf(text + n, ADDRESS_SIZE - (size_t)n, "%02x",
			 address->gid.raw[i]);
}

bool address_begins(const char *text, size_t size)
{
	if (size > ADDRESS_SIZE)
		return false;

	for (size_t i = 0; i < size; i++) {
		if (form[i] == 'x' ? !isxdigit((unsigned char)text[i])
				   : text[i] != form[i])
			return false;
	}
	return true;
}

bool address_parse(const char *text, size_t size, struct address *address)
{
	if (size != ADDRESS_SIZE || !address_begins(text, size))
		return false;

	/* Each of these numbers ends at the colon. */
	address->lid = (unsigned int)strtoul(text, NULL, 16);
	address->qpn = (unsigned int)strtoul(text + QPN_OFFSET, NULL, 16);
	address->psn = (unsigned int)strtoul(text + PSN_OFFSET, NULL, 16);
	for (int i = 0; i < 16; i++) {
		const char *digits = text + GID_OFFSET + 2 * (size_t)i;
		const char byte[] = { digits[0], digits[1], '\0' };

		address->gid.raw[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	address->own_kind = isupper((unsigned char)text[PSN_OFFSET]);
	return true;
}

void address_print(const char *whose, const struct address *address)
{
	char text[INET6_ADDRSTRLEN];

	printf("  %-15s LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n", whose,
	       address->lid, address->qpn, address->psn,
	       gid_text(&address->gid, text));
}

int address_check(const struct address *remote,
		  const struct ibv_port_attr *port)
{
	address_print("remote address:", remote);
	if (!gid_is_zero(&remote->gid) ||
	    (remote->lid && port->link_layer != IBV_LINK_LAYER_ETHERNET))
		return 0;

	print_error(0, "the peer sent no GID, which RoCE needs");
	print_hint("ibv_rc_pingpong sends one if started with -g N");
	return -1;
}

const char *printable(const char *bytes, size_t size, char *text, size_t room)
{
	size_t n = size < room ? size : room - 1;

	for (size_t i = 0; i < n; i++)
		text[i] = isprint((unsigned char)bytes[i]) ? bytes[i] : '.';
	text[n] = '\0';
	return text;
}
