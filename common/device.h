/* Choose one of the devices in a list, as chapter 01 does by hand. */
#ifndef COMMON_DEVICE_H
#define COMMON_DEVICE_H

#include <infiniband/verbs.h>

/*
 * Choose a device from @list, which ibv_get_device_list(3) returned and which
 * stays the caller's: the one called @name, or with @name NULL any.
 *
 * Unless @port is NULL, the device must have an ACTIVE port: number *@port, or
 * with *@port 0 any, and *@port becomes its number. With @port NULL the ports
 * are not looked at.
 *
 * Returns the first device in the list that fits, not opened; or NULL after an
 * error message.
 */
struct ibv_device *device_choose(struct ibv_device **list, const char *name,
				 int *port);

/*
 * For programs that do not choose a device themselves: is there any? Returns
 * 0, or after an error message the status to exit with.
 */
int device_required(void);

/*
 * After a failure: if port @number is no longer ACTIVE, or stops being so
 * within half a second, print that as a hint, because then the port is the
 * cause.
 */
void port_explain(struct ibv_context *context, int number);

#endif
