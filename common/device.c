#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "error.h"

/*
 * Returns the number of an ACTIVE port: @wanted, or any if @wanted is 0.
 * Returns 0 if there is none.
 */
static int active_port(struct ibv_context *context, int wanted)
{
	const char *name = ibv_get_device_name(context->device);
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	if (failed(ibv_query_device(context, &device), "ibv_query_device(%s)",
		   name))
		return 0;

	for (int n = 1; n <= device.phys_port_cnt; n++) {
		if (wanted && wanted != n)
			continue;
		if (failed(ibv_query_port(context, n, &port),
			   "ibv_query_port(%s, %d)", name, n))
			continue;
		if (port.state == IBV_PORT_ACTIVE)
			return n;
	}
	return 0;
}

/* The same for a device that is not open yet. */
static int find_port(struct ibv_device *device, int wanted)
{
	struct ibv_context *context = ibv_open_device(device);
	int port;

	if (!context) {
		print_error(errno, "ibv_open_device(%s)",
			    ibv_get_device_name(device));
		print_hint("do you have permission to read and write "
			   "/dev/infiniband/%s?", device->dev_name);
		return 0;
	}

	port = active_port(context, wanted);
	if (ibv_close_device(context)) {
		print_error(errno, "ibv_close_device");
		return 0;
	}
	return port;
}

struct ibv_device *device_choose(struct ibv_device **list, const char *name,
				 int *port)
{
	bool found = false;

	for (int i = 0; list[i]; i++) {
		if (name && strcmp(name, ibv_get_device_name(list[i])) != 0)
			continue;

		found = true;
		if (port) {
			int number = find_port(list[i], *port);

			if (!number)
				continue;
			*port = number;
		}
		return list[i];
	}

	if (!found)
		print_error(0, "no device called %s", name);
	else if (*port)
		print_error(0, "no ACTIVE port %d", *port);
	else
		print_error(0, "no ACTIVE port");
	for (int i = 0; list[i]; i++)
		print_hint("there is %s; make run-01 shows its ports",
			   ibv_get_device_name(list[i]));
	return NULL;
}

int device_required(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int status = 0;

	if (!list || !list[0])
		status = no_device(list ? 0 : errno);
	if (list)
		ibv_free_device_list(list);
	return status;
}

void port_explain(struct ibv_context *context, int number)
{
	struct ibv_port_attr port;

	/* When a link goes down, a packet can fail before the state changes. */
	for (int tries = 0; tries < 10; tries++) {
		if (ibv_query_port(context, number, &port))
			return;
		if (port.state != IBV_PORT_ACTIVE)
			break;
		usleep(50 * 1000);
	}
	if (port.state == IBV_PORT_ACTIVE)
		return;
	print_hint("port %d is %s now, not ACTIVE: is its network link down?",
		   number, ibv_port_state_str(port.state));
}
