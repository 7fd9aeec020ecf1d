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

/* --- devices -------------------------------------------------------------------------------------------------------- */

enum { MAX_CARDS = BACKEND_MAX_PARTS - 1 }; /* the CPU is a part, too */

/* The devices for layers, in this order: one, or the list of backend_config.device. */
struct cards {
    const struct backend *backend;
    const struct plan *plan;
    const struct backend_config *cfg;
    int n;
    struct backend_device at[MAX_CARDS];
};

static bool is_list(const struct backend_config *cfg)
{
    return cfg->device != NULL && strchr(cfg->device, ',') != NULL;
}

static enum err find_cards(struct cards *c, struct err_info *info)
{
    struct backend_device d;
    enum err err;
    c->n = 1;
    if (!is_list(c->cfg)) {
        return backend_device_of(c->backend, c->cfg, &c->at[0], info);
    }
    for (c->n = 0; (err = c->backend->probe(c->cfg, c->n, &d, info)) == ERR_OK; c->n++) {
        if (c->n == MAX_CARDS) {
            return err_set(info, ERR_CONFIG, "device", "device: expected %d devices at most, found more", MAX_CARDS);
        }
        c->at[c->n] = d;
    }
    return err == ERR_NONE ? ERR_OK : err;
}

/* Returns the sum of the devices' own memories; 0 if any device has none. */
static size_t count_bytes(const struct cards *c)
{
    size_t all = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].bytes[BACKEND_DEVICE] == 0) {
            return 0;
        }
        all += c->at[i].bytes[BACKEND_DEVICE];
    }
    return all;
}

/* Assigns device i the layers before ends[i] that no earlier device has, and the CPU the rest. room: bytes that models
 * can use in the memories of these parts. */
static struct backend_parts lay_out(const struct cards *c, const int32_t *ends, struct backend_device *room)
{
    struct backend_parts parts = {0};
    int32_t from = 0, n_layers = (int32_t)plan_main_layers(c->plan);
    *room = (struct backend_device){.bytes[BACKEND_HOST] = SIZE_MAX};
    for (int i = 0; i < c->n; from = ends[i], i++) {
        int own = BACKEND_DEVICE + parts.n; /* backend_parts_memory: no device has two parts */
        if (ends[i] == from) {
            continue;
        }
        struct backend_part *p = &parts.at[parts.n++];
        *p = (struct backend_part){.backend = c->backend, .first = from, .last = ends[i] - 1};
        if (c->n > 1) {
            memcpy(p->device, c->at[i].id, sizeof p->device);
        }
        room->bytes[own] = c->at[i].bytes[BACKEND_DEVICE];
        room->is_shared[own] = c->at[i].is_shared[BACKEND_DEVICE];
        room->bytes[BACKEND_HOST] = room->is_shared[own] ? c->at[i].bytes[BACKEND_HOST] : room->bytes[BACKEND_HOST];
    }
    if (from < n_layers) {
        parts.at[parts.n++] = (struct backend_part){.backend = &backend_cpu, .first = from, .last = n_layers - 1};
    }
    return parts;
}

/* Finds whether layers placed like this fit. They do not if the plan cannot be cut there, or has a larger piece than a
 * device allows. */
static enum err try_ends(const struct cards *c, const int32_t *ends, bool *fits, struct err_info *info)
{
    struct backend_device room;
    struct backend_parts parts = lay_out(c, ends, &room);
    struct backend_config cfg = *c->cfg;
    struct backend_measure m;
    cfg.parts = &parts;
    enum err err = backend_of_parts(&parts)->measure(c->plan, &cfg, &m, info);
    *fits = err == ERR_OK && backend_pages_that_fit(&room, &m, &cfg) >= cfg.n_pages;
    return err == ERR_NOMEM || (err == ERR_CONFIG && parts.n > 1) ? ERR_OK : err;
}

static void set_from(const struct cards *c, int i, int32_t end, int32_t *ends)
{
    for (; i < c->n; i++) {
        ends[i] = end;
    }
}

/* Fills the devices in sequence with as many of the first n layers as fit. */
static enum err fill(const struct cards *c, int32_t n, int32_t *ends, struct err_info *info)
{
    int32_t fit = 0; /* 0 layers need no device memory */
    for (int i = 0; i < c->n; i++) {
        int32_t not_fit = n + 1;
        for (int32_t try = n; not_fit - fit > 1; try = fit + (not_fit - fit) / 2) {
            bool fits;
            set_from(c, i, try, ends);
            TRY(try_ends(c, ends, &fits, info));
            *(fits ? &fit : &not_fit) = try;
        }
        set_from(c, i, fit, ends);
    }
    return ERR_OK;
}

/* Places the first n layers on all devices in proportion to their memory. If that does not fit, places them as fill()
 * does, with the remainder on the last device. */
static enum err spread(const struct cards *c, int32_t n, int32_t *ends, struct err_info *info)
{
    double before = 0, all = 0;
    bool fits = true;
    for (int i = 0; i < c->n; i++) {
        all += (double)c->at[i].bytes[BACKEND_DEVICE];
    }
    for (int i = 0; i < c->n; i++) {
        before += (double)c->at[i].bytes[BACKEND_DEVICE];
        ends[i] = (int32_t)(n * (before / all) + 0.5);
    }
    TRY(c->n > 1 ? try_ends(c, ends, &fits, info) : ERR_OK);
    TRY(!fits ? fill(c, n, ends, info) : ERR_OK);
    ends[c->n - 1] = n;
    return ERR_OK;
}

/* Subtracts the part of each memory that is left to drivers. */
static void leave_part(struct cards *c)
{
    for (int i = 0; i < c->n; i++) {
        c->at[i].bytes[BACKEND_DEVICE] -= c->at[i].bytes[BACKEND_DEVICE] / BACKEND_DEVICE_PART;
    }
}

enum err backend_layers_that_fit(const struct backend *device, const struct plan *plan,
                                 const struct backend_config *cfg, int32_t *n, struct err_info *info)
{
    struct cards c = {.backend = device, .plan = plan, .cfg = cfg};
    int32_t ends[MAX_CARDS];
    *n = 0;
    TRY(find_cards(&c, info));
    if (count_bytes(&c) == 0) {
        return ERR_OK;
    }
    leave_part(&c);
    TRY(fill(&c, (int32_t)plan_main_layers(plan), ends, info));
    *n = ends[c.n - 1];
    return ERR_OK;
}

/* --- placing --------------------------------------------------------------------------------------------------------- */

static void tell(const struct cards *c, size_t bytes, int32_t n)
{
    char text[BACKEND_TEXT_BYTES], whose[sizeof c->at[0].name + 8];
    int32_t n_layers = (int32_t)plan_main_layers(c->plan);
    if (c->n == 1) {
        snprintf(whose, sizeof whose, "%s has", c->at[0].name);
    } else {
        snprintf(whose, sizeof whose, "%d devices have", c->n);
    }
    snprintf(text, sizeof text, "%" PRId32 " of %" PRId32 " layers fit in the %zu MiB that %s free%s", n, n_layers,
             bytes >> 20, whose, n < n_layers ? "; the rest is computed by the CPU" : "");
    if (c->cfg->tell != NULL) {
        c->cfg->tell(c->cfg->tell_arg, text);
    }
}

/* Places the first n layers, or as many as fit. text: the option's value. */
static enum err place(struct cards *c, int32_t n, const char *text, struct backend_parts *parts, struct err_info *info)
{
    int32_t ends[MAX_CARDS], n_layers = (int32_t)plan_main_layers(c->plan);
    struct backend_device ignored;
    TRY(find_cards(c, info));
    size_t bytes = count_bytes(c);
    if (bytes == 0) {
        return err_set(info, ERR_CONFIG, "gpu-layers",
                       "gpu-layers: expected no value, because the back end %s computes in host memory; found '%s'",
                       c->backend->name, text);
    }
    if (n == BACKEND_LAYERS_AUTO) {
        leave_part(c);
        TRY(fill(c, n_layers, ends, info));
        n = ends[c->n - 1];
        tell(c, bytes, n);
    }
    TRY(spread(c, MIN_OF(n, n_layers), ends, info));
    *parts = lay_out(c, ends, &ignored);
    return ERR_OK;
}

static bool has_devices(const struct backend_part *p) { return backend_has_option(p->backend, "device"); }

/* Assigns the devices of a list to existing parts, one each. */
static enum err share_list(const struct backend_config *cfg, struct backend_parts *parts, struct err_info *info)
{
    struct cards c = {.cfg = cfg};
    struct backend_part *takers[BACKEND_MAX_PARTS];
    int n = 0;
    for (struct backend_part *p = parts->at; p < parts->at + parts->n; p++) {
        if (has_devices(p)) {
            takers[n++] = p;
            c.backend = p->backend;
        }
    }
    TRY(n != 0 ? find_cards(&c, info) : ERR_OK);
    if (n != c.n) {
        return err_set(info, ERR_CONFIG, "device",
                       "device: expected %d devices, one for each part of the back end %s; found '%.64s'", n,
                       c.backend->name, cfg->device);
    }
    for (int i = 0; i < n; i++) {
        memcpy(takers[i]->device, c.at[i].id, sizeof takers[i]->device);
    }
    return ERR_OK;
}

enum err backend_layers_place(const char *text, const struct plan *plan, const struct backend_config *cfg,
                              struct backend_parts *parts, struct err_info *info)
{
    struct cards c = {.backend = parts->at[0].backend, .plan = plan, .cfg = cfg};
    int32_t n = BACKEND_LAYERS_ALL;
    TRY(text != NULL ? backend_layers_parse(text, "gpu-layers", &n, info) : ERR_OK);
    if (parts->n > 1 && n != BACKEND_LAYERS_ALL) {
        return err_set(info, ERR_CONFIG, "gpu-layers",
                       "gpu-layers: expected no value, because backend assigns the layers; found '%s'", text);
    }
    if (parts->n > 1) {
        return is_list(cfg) ? share_list(cfg, parts, info) : ERR_OK;
    }
    bool is_host = !has_devices(&parts->at[0]);
    if (n == 0) {
        parts->at[0].backend = is_host ? parts->at[0].backend : &backend_cpu;
        return ERR_OK;
    }
    bool stays = n == BACKEND_LAYERS_ALL && (is_host || !is_list(cfg)); /* with one device, open finds it */
    return stays ? ERR_OK : place(&c, n, text != NULL ? text : "all", parts, info);
}

/* --- moving ---------------------------------------------------------------------------------------------------------- */

/* Returns whether these layers have the back end and device of the last part. */
static bool joins(const struct backend_parts *to, const struct backend_part *layers)
{
    const struct backend_part *last = &to->at[MAX_OF(to->n - 1, 0)];
    return to->n > 0 && last->backend == layers->backend && strcmp(last->device, layers->device) == 0;
}

/* Appends the layers of a part. n_later: later parts, each of which needs a slot. */
static void move_part(const bool *unfit, const struct backend_part *p, int n_later, struct backend_parts *to)
{
    bool has_unfit = memchr(unfit + p->first, true, (size_t)(p->last - p->first + 1)) != NULL;
    bool is_cut = has_devices(p) && has_unfit;
    for (int32_t at = p->first; at <= p->last; at++) {
        struct backend_part one = *p;
        one.first = one.last = at;
        bool has_room = joins(to, &one) || to->n + 2 + n_later <= BACKEND_MAX_PARTS; /* and for the CPU after it */
        if (is_cut && (unfit[at] || !has_room)) {
            one = (struct backend_part){.backend = &backend_cpu, .first = at, .last = at};
        }
        if (joins(to, &one)) {
            to->at[to->n - 1].last = at;
        } else {
            to->at[to->n++] = one;
        }
    }
}

void backend_layers_move(const bool *unfit, struct backend_parts *parts)
{
    const struct backend_parts from = *parts;
    *parts = (struct backend_parts){0};
    for (int i = 0; i < from.n; i++) {
        move_part(unfit, &from.at[i], from.n - i - 1, parts);
    }
}
