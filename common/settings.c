#include <getopt.h>
#include <stdio.h>

#include "error.h"
#include "gid.h"
#include "names.h"
#include "settings.h"

/* One more than options_parse() accepts, so that it reports this mistake. */
#define SPECS_MAX 21

int settings_parse(int argc, char *argv[], struct settings *settings,
		   const struct option_spec *more)
{
	const struct option_spec ours[] = {
		{ 'p', "port", "PORT", "TCP port of the server (18515)",
		  .number = &settings->tcp_port, .min = 1, .max = 65535 },
		{ 'd', "ib-dev", "NAME",
		  "device (the first with an ACTIVE port)",
		  .text = &settings->device },
		{ 's', "size", "BYTES", "size of a message (4096)",
		  .number = &settings->size, .min = 1, .max = 1 << 30 },
		{ 'm', "mtu", "BYTES", "path MTU (1024)",
		  .number = &settings->mtu, .min = 256, .max = 4096 },
		{ 'n', "iters", "N", "messages each way (1000)",
		  .number = &settings->iters, .min = 1, .max = 100000000 },
		{ 'g', "gid-idx", "N", "index of our GID (the port's best)",
		  .number = &settings->gid_index,
		  .min = 0, .max = GID_INDEXES - 1 },
		{ 1, "timeout", "SECS", "longest wait for anything (10)",
		  .number = &settings->timeout, .min = 1, .max = 3600 },
		{ 0 }
	};
	struct option_spec specs[SPECS_MAX + 1] = { { 0 } };
	int n = 0;

	for (int i = 0; ours[i].name; i++)
		specs[n++] = ours[i];
	for (int i = 0; more && more[i].name && n < SPECS_MAX; i++)
		specs[n++] = more[i];

	*settings = (struct settings){
		.tcp_port = 18515,
		.size = 4096,
		.mtu = 1024,
		.iters = 1000,
		.gid_index = -1,
		.timeout = 10,
	};
	if (options_parse(argc, argv, specs, "SERVER",
			  "Without SERVER, the program serves one client.\n"
			  "Both sides need the same -p, -s, -m and -n."))
		return -1;
	settings->server = argv[optind];

	/* From 256 to 4096, and a power of two. */
	if (settings->mtu & (settings->mtu - 1)) {
		print_error(0, "-m %d is not a path MTU", settings->mtu);
		print_hint("choose 256, 512, 1024, 2048 or 4096");
		return -1;
	}
	return 0;
}

int path_find(struct ibv_context *context, const struct settings *settings,
	      struct path *path)
{
	int most;

	if (failed(ibv_query_port(context, path->port_num, &path->port),
		   "ibv_query_port(%d)", path->port_num))
		return -1;

	path->mtu = mtu_from_bytes(settings->mtu);
	most = mtu_bytes(path->port.active_mtu);
	printf("device:  %s, %s\n", ibv_get_device_name(context->device),
	       settings->device ? "given with -d" :
				  "the first with an ACTIVE port");
	printf("port:    %d, ACTIVE, path MTU %d of at most %d\n",
	       path->port_num, settings->mtu, most);
	if (settings->mtu > most) {
		print_error(0, "-m %d is more than the path MTU of port %d",
			    settings->mtu, path->port_num);
		print_hint("give at most %d, or first raise the MTU of the "
			   "port's network interface", most);
		return -1;
	}
	if (option_at_most("-s", settings->size, path->port.max_msg_sz) ||
	    gid_choose(context, path->port_num, &path->port,
		       settings->gid_index, &path->gid))
		return -1;
	gid_print(&path->gid, settings->gid_index < 0 ? "the port's best" :
							"given with -g");
	return 0;
}
