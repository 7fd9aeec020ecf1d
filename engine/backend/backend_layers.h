/* How many layers of a model a device computes, the rest being the CPU's: what --gpu-layers says. Threads: pure, but for
 * what the back ends' probe and measure do. */
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

/* The first n of n_layers on the device, the rest on the CPU. */
struct backend_parts backend_layers_parts(const struct backend *device, int32_t n, int32_t n_layers);

/* The most layers of the plan, from the first on, for which the device has room in a memory of its own, with so many
 * pages and states as cfg has (its parts do not count), what batches need and BACKEND_DEVICE_PART left; 0: not even one,
 * or it has no such memory. What the host has room for counts where the device's
 * memory is the host's. Fails as measure of the whole plan on the device does, but for ERR_NOMEM. */
MUST_CHECK enum err backend_layers_that_fit(const struct backend *device, const struct plan *plan,
                                            const struct backend_config *cfg, int32_t *n, struct err_info *info);

/* Puts in the place of a single back end what `text` (backend_layers_parse's; OPTIONAL, NULL = all) makes of it; what
 * was chosen is told. ERR_CONFIG where there are several already, or the back end's device has no memory of its own;
 * else as backend_device_of and backend_layers_that_fit. With 0 layers the device need not be there, and a back end
 * without the option stays. */
MUST_CHECK enum err backend_layers_place(const char *text, const struct plan *plan, const struct backend_config *cfg,
                                         struct backend_parts *parts, struct err_info *info);

#endif
