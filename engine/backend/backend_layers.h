/* Divides the layers of a model between devices and the CPU, as --gpu-layers and --device say. Threads: pure, except
 * for the back ends' probe and measure. */
#ifndef INFCGI_BACKEND_BACKEND_LAYERS_H
#define INFCGI_BACKEND_BACKEND_LAYERS_H

#include "engine/backend/backend_parts.h"

enum {
    BACKEND_LAYERS_AUTO = -1,
    BACKEND_LAYERS_ALL = INT32_MAX,
    /* Defaults leave 1 / BACKEND_DEVICE_PART of a device's own memory to its driver and a screen. */
    BACKEND_DEVICE_PART = 16,
};

/* Returns the i-th name for a number of layers: "auto", "all"; NULL beyond the last. */
const char *backend_layers_name(int i);

/* Parses a number of layers or a name. ERR_CONFIG; `what` begins the message. out: OPTIONAL. */
MUST_CHECK enum err backend_layers_parse(const char *text, const char *what, int32_t *out, struct err_info *info);

/* Returns the largest number of layers, from the first on, that fit in the own memories of cfg's devices. It includes
 * cfg's pages and states and a batch's memory, leaves BACKEND_DEVICE_PART free and ignores cfg's parts. 0 = none fits,
 * or a device has no own memory. The host's room counts if a device's memory is the host's. Errors: as measure of the
 * whole plan on the device, except ERR_NOMEM. */
MUST_CHECK enum err backend_layers_that_fit(const struct backend *device, const struct plan *plan,
                                            const struct backend_config *cfg, int32_t *n, struct err_info *info);

/* Replaces a single back end by the parts that `text` selects (see backend_layers_parse; OPTIONAL, NULL = all), and
 * reports what "auto" selects. Several devices get layers in proportion to their memory, in the order of the list, one
 * part each. If several parts exist already, they take the devices in this order. ERR_CONFIG: several parts and a
 * number, a different number of devices, or a device without its own memory; else the errors of the back end's probe
 * and backend_layers_that_fit. With 0 layers no device has to exist, and a back end without one stays. */
MUST_CHECK enum err backend_layers_place(const char *text, const struct plan *plan, const struct backend_config *cfg,
                                         struct backend_parts *parts, struct err_info *info);

/* Moves the layers that are unfit [L] for a device to the CPU; also the rest of a part if there would be more than
 * BACKEND_MAX_PARTS parts. parts: from backend_layers_place, for all layers. */
void backend_layers_move(const bool *unfit, struct backend_parts *parts);

#endif
