/* Capabilities of a device as JSON: for `infcgi devices --json`, and between the probing process and its parent
 * (probe.h). Threads: pure functions. */
#ifndef INFCGI_OPENCL_DEVICE_JSON_H
#define INFCGI_OPENCL_DEVICE_JSON_H

#include "opencl/device.h"

#include <jansson.h>

/* Returns an object with a member for each field, which the caller owns; NULL if out of memory. */
json_t *device_json(const struct device_caps *c);

/* Reads such an object. It must have exactly these members; texts and numbers must fit. ERR_INVALID_VALUE names the
 * member. */
MUST_CHECK enum err device_json_read(const json_t *object, struct device_caps *out, struct err_info *info);

#endif
