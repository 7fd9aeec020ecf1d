#include "engine/backend/backend_parts.h"

#include "engine/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PART_BYTES = 64 }; /* text of a part; messages show at most this much */

/* A part being parsed. */
struct reader {
    char text[PART_BYTES];
    const char *what;
    int32_t next, n_layers; /* first layer without a part; layers of the model, 0 = unknown */
    struct err_info *info;
};

static enum err refuse(const struct reader *r, const char *expected)
{
    return err_set(r->info, ERR_CONFIG, "backend", "%s: expected %s; found '%s'", r->what, expected, r->text);
}

/* Parses a layer number at *at and advances *at past it. Returns -1 if there is none. */
static int32_t read_layer(const char **at)
{
    int32_t n = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        n = n <= PLAN_MAX_LAYERS ? n * 10 + (**at - '0') : n;
    }
    return n;
}

/* Parses range: "FIRST-LAST", or NULL for the rest. */
static enum err read_range(const struct reader *r, const char *range, bool is_last, struct backend_part *out)
{
    char expected[160];
    int32_t end = r->n_layers - 1;
    out->first = r->next;
    out->last = end; /* -1: open */
    if (range == NULL && !is_last) {
        return refuse(r, "NAME:FIRST-LAST, because another back end follows");
    }
    if (range != NULL) {
        const char *at = range;
        out->first = read_layer(&at);
        bool has_both = *at == '-';
        at += has_both;
        out->last = has_both ? read_layer(&at) : -1;
        if (out->last < out->first || out->first < 0 || *at != '\0') {
            return refuse(r, "NAME:FIRST-LAST, layers from the first, counted from 0, to the last");
        }
    }
    if (out->first != r->next) {
        snprintf(expected, sizeof expected, "layers from %" PRId32 ", because other parts have the earlier ones",
                 r->next);
        return refuse(r, r->next == 0 ? "layers from 0" : expected);
    }
    if (r->n_layers != 0 && (out->first > end || (is_last ? out->last != end : out->last >= end))) {
        snprintf(expected, sizeof expected, "layers up to %" PRId32 "%s, because the model has %" PRId32,
                 is_last ? end : end - 1, is_last ? "" : ", then layers of another back end", r->n_layers);
        return refuse(r, expected);
    }
    return ERR_OK;
}

static enum err read_part(struct reader *r, bool is_last, struct backend_part *out)
{
    char name[PART_BYTES];
    const char *range = strchr(r->text, ':');
    snprintf(name, sizeof name, "%.*s", (int)(range != NULL ? range - r->text : (ptrdiff_t)strlen(r->text)), r->text);
    out->backend = backend_find(name);
    if (out->backend == NULL) {
        return names_refuse(backend_name, r->what, name, r->info);
    }
    TRY(read_range(r, range != NULL ? range + 1 : NULL, is_last, out));
    r->next = out->last + 1;
    return ERR_OK;
}

enum err backend_parts_parse(const char *text, const char *what, uint32_t n_layers, struct backend_parts *out,
                             struct err_info *info)
{
    struct reader r = {.what = what, .n_layers = (int32_t)n_layers, .info = info};
    *out = (struct backend_parts){0};
    for (bool is_last = false; !is_last; text += strcspn(text, ",") + 1) {
        is_last = strchr(text, ',') == NULL;
        snprintf(r.text, sizeof r.text, "%.*s", (int)MIN_OF(strcspn(text, ","), sizeof r.text), text);
        if (out->n == BACKEND_MAX_PARTS) {
            return refuse(&r, "at most 16 back ends");
        }
        TRY(read_part(&r, is_last, &out->at[out->n]));
        out->n++;
    }
    return ERR_OK;
}

void backend_parts_name(const struct backend_parts *p, struct buf *out)
{
    for (int i = 0; i < p->n; i++) {
        buf_printf(out, "%s%s", i > 0 ? "," : "", p->at[i].backend->name);
        if (p->n > 1) {
            buf_printf(out, ":%" PRId32 "-%" PRId32, p->at[i].first, p->at[i].last);
        }
    }
}

struct backend_config backend_part_config(const struct backend_part *p, const struct backend_config *cfg)
{
    struct backend_config c = *cfg;
    c.parts = NULL;
    c.device = p->device[0] != '\0' ? p->device : cfg->device;
    return c;
}

enum err backend_part_device(const struct backend_part *p, const struct backend_config *cfg, struct backend_device *out,
                             struct err_info *info)
{
    struct backend_config c = backend_part_config(p, cfg);
    return backend_device_of(p->backend, &c, out, info);
}

int backend_parts_memory(const struct backend_parts *p, int i)
{
    int first = 0; /* first part on the device */
    while (p->at[first].backend != p->at[i].backend || strcmp(p->at[first].device, p->at[i].device) != 0) {
        first++;
    }
    return BACKEND_DEVICE + first;
}
