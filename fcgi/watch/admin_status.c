/* Read-only admin commands: status, version, kernels, model, kv, cache, devices. */
#include "fcgi/watch/admin.h"
#include "fcgi/watch/metrics.h"
#include "fcgi/watch/status.h"
#include "fcgi/wire/fastcgi.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define I(v) ((json_int_t)(v))

json_t *admin_version(struct admin_call *c)
{
    (void)c;
    return json_pack("{s:s}", "version", SERVER_VERSION);
}

json_t *admin_status(struct admin_call *c)
{
    struct status s;
    status_get(c->server, c->engine, &s);
    json_t *o = json_pack("{s:s, s:s, s:i, s:s, s:s, s:I}", "version", SERVER_VERSION, "state", s.state, "pid",
                          (int)getpid(), "model", c->server->model_id != NULL ? c->server->model_id : "", "start_time",
                          s.start_time, "up_s", I(s.up_s));
    if (c->engine == NULL) {
        (void)json_object_set_new(o, "progress", json_real(atomic_load(&c->server->progress) / 1000.0));
    }
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "connections", I(s.conn.n_open),
                  "most_connections", I(s.conn.most_open), "max_connections", I(s.conn.max_open), "accepted",
                  I(s.conn.accepted), "running", I(s.sched.n_running), "waiting", I(s.sched.n_waiting),
                  "estimated_wait_ms", I(s.sched.estimated_wait_ms), "step_age_ms", I(s.sched.last_step_age_ms),
                  "prompt_tokens", I(s.sched.prompt_tokens), "generated_tokens", I(s.sched.generated_tokens), "errors",
                  I(s.errors), "slow_requests", I(s.slow));
    (void)json_object_update(o, more);
    json_decref(more);
    return o;
}

json_t *admin_kernels(struct admin_call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    return json_pack("{s:s, s:s, s:s, s:i}", "backend", m->backend, "kernels", m->kernels, "why", m->kernels_why,
                     "threads", m->n_threads);
}

json_t *admin_model(struct admin_call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, m->fingerprint);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:s?, s:s?}", "id",
        c->server->model_id, "file", m->file, "name", m->name, "architecture", m->architecture, "quantization",
        m->quantization, "parameters", I(m->n_params), "file_bytes", I(m->file_bytes), "weights_bytes",
        I(m->weight_bytes), "layers", (int)m->n_layers, "width", (int)m->n_embd, "vocabulary", (int)m->n_vocab,
        "context", (int)m->n_ctx, "trained_context", (int)m->n_ctx_train, "backend", m->backend, "pack_cache",
        m->pack_cache, "fingerprint", fingerprint, "generates", m->generates, "pooling", m->pooling, "predictor",
        m->predictor);
}

json_t *admin_kv(struct admin_call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    struct sched_stats s;
    engine_get_stats(c->engine, &s);
    uint64_t used = s.pages_held + s.pages_kept;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:I}", "pages", I(s.pages_total),
                     "pages_used", I(s.pages_held), "pages_cached", I(s.pages_kept), "pages_free",
                     I(s.pages_total > used ? s.pages_total - used : 0), "window_pages", I(s.windows_total),
                     "window_pages_used", I(s.windows_held), "window_pages_cached", I(s.windows_kept), "states_used",
                     I(s.states_held), "states_cached", I(s.states_kept), "pool_bytes", I(m->kv_bytes), "type_keys",
                     m->cache_type_k, "type_values", m->cache_type_v, "preemptions", I(s.preempted));
}

static double part(uint64_t of, uint64_t all) { return all > 0 ? (double)of / (double)all : 0; }

static json_t *recent_part(const struct draft_recent *r, int source, int position)
{
    double share = draft_recent_share(r, (enum draft_source)source, position);
    return isnan(share) ? json_null() : json_real(share);
}

/* Returns a row for each source of drafts. */
static json_t *draft_rows(const struct sched_stats *s)
{
    json_t *rows = json_array();
    for (int k = 0; k < DRAFT_SOURCES; k++) {
        struct draft_count n = draft_counts_of(&s->draft_counts, (enum draft_source)k);
        (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I, s:f, s:o}", "source",
                                                    draft_source_name((enum draft_source)k), "drafted_tokens",
                                                    I(n.drafted), "accepted_tokens", I(n.accepted), "accepted_part",
                                                    part(n.accepted, n.drafted), "recent_part",
                                                    recent_part(&s->draft_recent, k, DRAFT_POSITIONS)));
    }
    return rows;
}

/* Returns a row for each group of positions: the recent part of each source. */
static json_t *recent_rows(const struct draft_recent *r)
{
    json_t *rows = json_array();
    for (int i = 0; i < DRAFT_POSITIONS; i++) {
        json_t *row = json_pack("{s:s}", "position", draft_position_name(i));
        for (int k = 0; k < DRAFT_SOURCES; k++) {
            (void)json_object_set_new(row, draft_source_name((enum draft_source)k), recent_part(r, k, i));
        }
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

json_t *admin_cache(struct admin_call *c)
{
    struct sched_stats s;
    struct engine_grammar_stats g;
    engine_get_stats(c->engine, &s);
    engine_get_grammar_stats(c->engine, &g);
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o}",
                     "prompt_tokens", I(s.prompt_tokens), "cached_tokens", I(s.cached_tokens), "cached_part",
                     part(s.cached_tokens, s.prompt_tokens), "pages_cached", I(s.pages_kept), "grammars_made",
                     I(g.n_made), "grammars_reused", I(g.n_reused), "grammars_kept", I(g.n_kept), "drafted_tokens",
                     I(s.drafted_tokens), "accepted_tokens", I(s.accepted_tokens), "accepted_part",
                     part(s.accepted_tokens, s.drafted_tokens), "snapshot_tokens", I(s.disk.restored_tokens),
                     "snapshot_files", I(s.disk.files), "snapshot_bytes", I(s.disk.bytes), "snapshot_limit_bytes",
                     I(s.disk.limit_bytes), "drafts", draft_rows(&s), "recent_parts", recent_rows(&s.draft_recent));
}

json_t *admin_devices(struct admin_call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    json_t *rows = json_array();
    for (const struct engine_device *d = m->devices; d < m->devices + m->n_devices; d++) {
        (void)json_array_append_new(rows, json_pack("{s:s?, s:s?, s:I, s:I, s:I, s:I, s:s, s:s}", "device", d->id,
                                                    "name", d->name, "weights_bytes", I(d->weights), "kv_bytes",
                                                    I(d->kv), "states_bytes", I(d->states), "activations_bytes",
                                                    I(d->activations), "choice", d->choice, "note", d->note));
    }
    return json_pack("{s:s, s:o}", "backend", m->backend, "devices", rows);
}
