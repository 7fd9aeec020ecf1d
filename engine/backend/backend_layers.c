#include "engine/backend/backend_layers.h"

#include "engine/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DIGITS = 6 };

const char *backend_layers_name(int i)
{
    static const char *const names[] = {"auto", "all"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

enum err backend_layers_parse(const char *text, const char *what, int32_t *out, struct err_info *info)
{
    static const int32_t values[] = {BACKEND_LAYERS_AUTO, BACKEND_LAYERS_ALL};
    int name = names_find(backend_layers_name, text);
    size_t n = strspn(text, "0123456789");
    if (name < 0 && (n == 0 || n > MAX_DIGITS || text[n] != '\0')) {
        return err_set(info, ERR_CONFIG, "gpu-layers", "%s: expected a number of layers, auto or all; found '%.64s'",
                       what, text);
    }
    int32_t value = name >= 0 ? values[name] : 0;
    for (const char *at = text; name < 0 && *at != '\0'; at++) {
        value = value * 10 + (*at - '0');
    }
    if (out != NULL) {
        *out = value;
    }
    return ERR_OK;
}

struct backend_parts backend_layers_parts(const struct backend *device, int32_t n, int32_t n_layers)
{
    const struct backend_part first = {device, 0, MIN_OF(n, n_layers) - 1, ""},
                              rest = {&backend_cpu, n, n_layers - 1, ""};
    return n <= 0          ? (struct backend_parts){.n = 1, .at = {{&backend_cpu, 0, n_layers - 1, ""}}}
           : n >= n_layers ? (struct backend_parts){.n = 1, .at = {first}}
                           : (struct backend_parts){.n = 2, .at = {first, rest}};
}

/* Do the first n layers fit in `room`? Where the plan cannot be cut there, or has more in one piece than the device
 * takes, they do not. */
static enum err try_layers(const struct backend *device, const struct plan *plan, const struct backend_config *cfg,
                           const struct backend_device *room, int32_t n, bool *fits, struct err_info *info)
{
    struct backend_parts parts = backend_layers_parts(device, n, (int32_t)plan->n_layers);
    struct backend_config c = *cfg;
    struct backend_measure m;
    c.parts = &parts;
    enum err err = backend_of_parts(&parts)->measure(plan, &c, &m, info);
    *fits = err == ERR_OK && backend_pages_that_fit(room, &m, c.n_states) >= c.n_pages;
    return err == ERR_NOMEM || (err == ERR_CONFIG && parts.n > 1) ? ERR_OK : err;
}

static enum err find_most(const struct backend *device, const struct plan *plan, const struct backend_config *cfg,
                          const struct backend_device *d, int32_t *n, struct err_info *info)
{
    bool is_shared = d->is_shared[BACKEND_DEVICE];
    size_t bytes = d->bytes[BACKEND_DEVICE];
    const struct backend_device room = {
        .bytes = {is_shared ? d->bytes[BACKEND_HOST] : SIZE_MAX, bytes - bytes / BACKEND_DEVICE_PART},
        .is_shared = {[BACKEND_DEVICE] = is_shared}};
    int32_t fit = 0, not_fit = (int32_t)plan->n_layers + 1; /* none needs nothing of the device */
    bool fits;
    for (int32_t try = (int32_t)plan->n_layers; not_fit - fit > 1; try = fit + (not_fit - fit) / 2) {
        TRY(try_layers(device, plan, cfg, &room, try, &fits, info));
        *(fits ? &fit : &not_fit) = try;
    }
    *n = fit;
    return ERR_OK;
}

enum err backend_layers_that_fit(const struct backend *device, const struct plan *plan,
                                 const struct backend_config *cfg, int32_t *n, struct err_info *info)
{
    struct backend_device d;
    *n = 0;
    TRY(backend_device_of(device, cfg, &d, info));
    return d.bytes[BACKEND_DEVICE] != 0 ? find_most(device, plan, cfg, &d, n, info) : ERR_OK;
}

static void tell(const struct backend_config *cfg, const struct backend_device *d, int32_t n, int32_t n_layers)
{
    char text[BACKEND_TEXT_BYTES];
    snprintf(text, sizeof text, "%" PRId32 " of %" PRId32 " layers fit in the %zu MiB that %s has free%s", n, n_layers,
             d->bytes[BACKEND_DEVICE] >> 20, d->name, n < n_layers ? "; the rest is computed by the CPU" : "");
    if (cfg->tell != NULL) {
        cfg->tell(cfg->tell_arg, text);
    }
}

enum err backend_layers_place(const char *text, const struct plan *plan, const struct backend_config *cfg,
                              struct backend_parts *parts, struct err_info *info)
{
    int32_t n = BACKEND_LAYERS_ALL, n_layers = (int32_t)plan->n_layers;
    TRY(text != NULL ? backend_layers_parse(text, "gpu-layers", &n, info) : ERR_OK);
    bool is_host = parts->n == 1 && !backend_has_option(parts->at[0].backend, "gpu-layers");
    if (n == BACKEND_LAYERS_ALL || (n == 0 && is_host)) {
        return ERR_OK;
    }
    if (parts->n > 1) {
        return err_set(info, ERR_CONFIG, "gpu-layers",
                       "gpu-layers: expected nothing, as the back end's name says which has what layers; found '%s'",
                       text);
    }
    const struct backend *device = parts->at[0].backend;
    if (n != 0) {
        struct backend_device d;
        TRY(backend_device_of(device, cfg, &d, info));
        if (d.bytes[BACKEND_DEVICE] == 0) {
            return err_set(info, ERR_CONFIG, "gpu-layers",
                           "gpu-layers: expected nothing, as the back end %s computes in the host's memory; found '%s'",
                           device->name, text);
        }
        if (n == BACKEND_LAYERS_AUTO) {
            TRY(find_most(device, plan, cfg, &d, &n, info));
            tell(cfg, &d, n, n_layers);
        }
    }
    *parts = backend_layers_parts(device, n, n_layers);
    return ERR_OK;
}
