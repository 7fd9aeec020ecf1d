/* Functions that all back ends share. */
#include "engine/backend/backend.h"

#include "engine/base/ck.h"
#include "engine/base/machine.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quant.h"
#include "engine/tensor/dtype.h"

#include <stdio.h>
#include <string.h>

void backend_join_name(char all[BACKEND_NAME_BYTES], const char *part)
{
    size_t n = strlen(all), n_part = strlen(part);
    if (n < n_part || strcmp(all + n - n_part, part) != 0) {
        snprintf(all + n, BACKEND_NAME_BYTES - n, "%s%s", n != 0 ? "+" : "", part);
    }
}

enum err backend_check_ranks(const struct plan *plan, const struct backend_config *cfg, struct err_info *info)
{
    return plan->is_shard && cfg->reduce == NULL
               ? err_set(info, ERR_INTERNAL, NULL, "the plan is one rank's part, and there is no reduce function")
               : ERR_OK;
}

enum err backend_check_batch(const struct plan *plan, const struct backend_config *cfg,
                             const struct backend_batch *batch, struct err_info *info)
{
    if (batch->n_rows > cfg->max_rows || batch->n_logits > cfg->max_logits) {
        return err_set(info, ERR_INTERNAL, NULL, "a batch of %d rows and %d logits is larger than planned",
                       batch->n_rows, batch->n_logits);
    }
    return plan->recurrent_floats != 0 && batch->n_seqs > cfg->n_states
               ? err_set(info, ERR_INTERNAL, NULL, "a batch of %d sequences is larger than planned", batch->n_seqs)
               : ERR_OK;
}

enum err backend_reduce_failed(enum err err, struct err_info *info)
{
    return err_set(info, err, NULL, "the sum over the ranks of the model failed");
}

enum err backend_compute(const struct backend *b, struct backend_model *m, const struct backend_batch *batch,
                         struct err_info *info)
{
    TRY(b->begin(m, batch, info));
    return b->wait(m, info);
}

enum err backend_device_of(const struct backend *b, const struct backend_config *cfg, struct backend_device *out,
                           struct err_info *info)
{
    enum err why = err_set(info, ERR_UNSUPPORTED_CPU, "backend", "the back end %s found no device", b->name), err;
    for (int i = 0; (err = b->probe(cfg, i, out, info)) != ERR_OK; i++) {
        if (err == ERR_NONE) {
            return why;
        }
        why = err;
    }
    return ERR_OK;
}

enum err backend_probe_host(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    (void)cfg;
    (void)info;
    *out = (struct backend_device){.bytes[BACKEND_HOST] = machine_memory_bytes()};
    machine_cpu_name(out->name, sizeof out->name);
    return i == 0 ? ERR_OK : ERR_NONE;
}

enum err backend_wait_done(struct backend_model *m, struct err_info *info)
{
    (void)m;
    (void)info;
    return ERR_OK;
}

struct backend_bytes backend_host_bytes(const struct backend_device *d, const struct backend_measure *m)
{
    struct backend_bytes host = m->bytes[BACKEND_HOST];
    for (int i = BACKEND_DEVICE; i < BACKEND_MEMORIES; i++) {
        if (d->is_shared[i]) {
            backend_bytes_add(&host, &m->bytes[i]);
        }
    }
    return host;
}

static size_t how_many(size_t bytes, size_t one) { return one != 0 ? bytes / one : INT32_MAX; }

/* Returns the number of pages that fit in `bytes` of a memory. */
static size_t pages_in(size_t bytes, const struct backend_bytes *b, const struct backend_config *cfg)
{
    uint64_t rest = UINT64_MAX, states;
    bool is_counted = ck_mul(b->state + b->drafts, (uint64_t)cfg->n_states, &states) &&
                      ck_add(b->weights, states, &rest) && ck_add(rest, b->activations, &rest);
    if (!is_counted || rest > bytes) {
        return 0;
    }
    size_t room = bytes - (size_t)rest, n_windows = (size_t)cfg->n_windows, n = how_many(room, b->page + b->window);
    return n <= n_windows ? n : n_windows + how_many(room - n_windows * (b->page + b->window), b->page);
}

int32_t backend_pages_that_fit(const struct backend_device *d, const struct backend_measure *m,
                               const struct backend_config *cfg)
{
    struct backend_bytes host = backend_host_bytes(d, m);
    size_t fit = MIN_OF(pages_in(d->bytes[BACKEND_HOST], &host, cfg), (size_t)INT32_MAX);
    for (int i = BACKEND_DEVICE; i < BACKEND_MEMORIES; i++) {
        fit = MIN_OF(fit, pages_in(d->bytes[i], &m->bytes[i], cfg));
    }
    return (int32_t)fit;
}

void backend_set_state_bytes(const struct plan *plan, const struct backend_config *cfg, struct backend_bytes *out)
{
    out->state = (size_t)plan->recurrent_floats * sizeof(float);
    out->drafts = (size_t)plan->drafted_floats * (size_t)cfg->max_drafts * sizeof(float);
}

size_t backend_drafting_floats(const struct plan *plan, const struct backend_config *cfg)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < plan->n_steps && cfg->max_drafts > 0; i++) {
        const struct plan_step *s = &plan->steps[i];
        uint64_t n = plan_ops[s->op].split == PLAN_BY_HEADS ? plan_state_floats(plan, s) : 0;
        most = n != 0 ? MAX_OF(most, n / plan_n_items(plan, s)) : most;
    }
    return (size_t)most;
}

size_t backend_page_floats(const struct plan *plan)
{
    size_t slot = 0;
    for (int32_t i = 0; i < (int32_t)plan->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(plan, i);
        slot += kv.layer == i ? plan_kv_floats(&kv) : 0;
    }
    return slot * KV_PAGE_TOKENS;
}

enum err backend_check_types(const struct plan *plan, struct err_info *info)
{
    for (int32_t i = 0; i < plan->n_weights; i++) {
        const struct plan_weight *w = &plan->weights[i];
        if (quant_ops(w->type) == NULL) {
            return err_set(info, ERR_UNSUPPORTED_TYPE, w->name,
                           "%s: expected a type that infcgi can compute with, found %s", w->name,
                           dtype_info(w->type)->name);
        }
    }
    return ERR_OK;
}

enum err backend_pool_bytes(const struct backend_bytes *b, const struct backend_config *cfg, size_t *out,
                            struct err_info *info)
{
    uint64_t pages, windows, states, all;
    if (!ck_mul(b->page, (uint64_t)cfg->n_pages, &pages) || !ck_mul(b->window, (uint64_t)cfg->n_windows, &windows) ||
        !ck_mul(b->state + b->drafts, (uint64_t)cfg->n_states, &states) || !ck_add(pages, windows, &all) ||
        !ck_add(all, states, &all) || all > SIZE_MAX) {
        return err_set(info, ERR_NOMEM, NULL, "%d KV pages and %d recurrent states exceed the address space",
                       cfg->n_pages, cfg->n_states);
    }
    *out = (size_t)all;
    return ERR_OK;
}

void backend_bytes_add(struct backend_bytes *to, const struct backend_bytes *more)
{
    to->weights += more->weights;
    to->page += more->page;
    to->window += more->window;
    to->state += more->state;
    to->drafts += more->drafts;
    to->activations += more->activations;
}

struct backend_bytes backend_bytes_all(const struct backend_measure *m)
{
    struct backend_bytes all = {0};
    for (int i = 0; i < BACKEND_MEMORIES; i++) {
        backend_bytes_add(&all, &m->bytes[i]);
    }
    return all;
}
