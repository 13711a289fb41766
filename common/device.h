/* Choose one of the devices in a list, as chapter 01 does by hand. */
#ifndef COMMON_DEVICE_H
#define COMMON_DEVICE_H

#include <infiniband/verbs.h>

/*
 * Choose a device from @list, which ibv_get_device_list(3) returned, which has
 * one device at least, and which the caller still has to free. If @name is not
 * NULL, the device must have this name.
 *
 * If @port is not NULL, the device must have an ACTIVE port. If *@port is a
 * number above 0, it must be the port with that number. If *@port is 0, any
 * port will do, and *@port becomes the number of the port that was found. If
 * @port is NULL, the function does not look at the ports.
 *
 * Returns the first device in the list that fits, not opened; or NULL after an
 * error message.
 */
struct ibv_device *device_choose(struct ibv_device **list, const char *name,
				 int *port);

/*
 * Check that this machine has an RDMA device, for programs in which librdmacm
 * chooses it. Returns 0 if there is one. Otherwise prints an error message, and
 * returns the status to exit with.
 */
int device_required(void);

/*
 * After a failure: if port @number is no longer ACTIVE, or stops being so
 * within half a second, print that as a hint, because then the port is the
 * cause.
 */
void port_explain(struct ibv_context *context, int number);

#endif
