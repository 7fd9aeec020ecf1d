/* How many layers of a model devices compute, the rest being the CPU's: what --gpu-layers and --device say. Threads: pure,
 * but for what the back ends' probe and measure do. */
#ifndef INFCGI_BACKEND_BACKEND_LAYERS_H
#define INFCGI_BACKEND_BACKEND_LAYERS_H

#include "engine/backend/backend_parts.h"

enum {
    BACKEND_LAYERS_AUTO = -1,
    BACKEND_LAYERS_ALL = INT32_MAX,
    /* Of a device's own memory defaults leave so much to its driver, for programs and the like, and to a screen. */
    BACKEND_DEVICE_PART = 16,
};

/* A name that stands for a number of layers: "auto", "all"; NULL beyond the last. */
const char *backend_layers_name(int i);

/* Reads a number of layers or a name. ERR_CONFIG; `what` begins the message. out: OPTIONAL. */
MUST_CHECK enum err backend_layers_parse(const char *text, const char *what, int32_t *out, struct err_info *info);

/* The most layers of the plan, from the first on, for which the devices that cfg names have room in memories of their own,
 * with so many pages and states as cfg has (its parts do not count), what batches need and BACKEND_DEVICE_PART left; 0: not
 * even one, or one has no such memory. What the host has room for counts where a device's memory is the host's. Fails as
 * measure of the whole plan on the device does, but for ERR_NOMEM. */
MUST_CHECK enum err backend_layers_that_fit(const struct backend *device, const struct plan *plan,
                                            const struct backend_config *cfg, int32_t *n, struct err_info *info);

/* Puts in the place of a single back end what `text` (backend_layers_parse's; OPTIONAL, NULL = all) makes of it; what
 * "auto" makes is told. Of several devices each has layers in proportion to its memory, in the order of the list, and a part
 * of its own; where there are several parts already they take the devices in this order. ERR_CONFIG where there are
 * several parts and a number, or not as many as devices, or a device has no memory of its own; else as the back
 * end's probe and backend_layers_that_fit. With 0 layers no device need be there, and a back end that has none stays. */
MUST_CHECK enum err backend_layers_place(const char *text, const struct plan *plan, const struct backend_config *cfg,
                                         struct backend_parts *parts, struct err_info *info);

/* Gives the layers that are unfit [L] for what is a device to the CPU, and the rest of a part, too, where there would be more
 * parts than BACKEND_MAX_PARTS. parts: backend_layers_place's, of all layers. */
void backend_layers_move(const bool *unfit, struct backend_parts *parts);

#endif
