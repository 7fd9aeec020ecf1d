/* What a device can do as JSON: what `infcgi devices --json` prints of it, and how a process that probes tells another
 * (probe.h). Threads: pure functions. */
#ifndef INFCGI_OPENCL_DEVICE_JSON_H
#define INFCGI_OPENCL_DEVICE_JSON_H

#include "opencl/device.h"

#include <jansson.h>

/* An object of the caller's with a member for each field; NULL when memory is out. */
json_t *device_json(const struct device_caps *c);

/* Reads that again. Every member must be there, and none other; texts and numbers must fit. ERR_INVALID_VALUE names the
 * member. */
MUST_CHECK enum err device_json_read(const json_t *object, struct device_caps *out, struct err_info *info);

#endif
