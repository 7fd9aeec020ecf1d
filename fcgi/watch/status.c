#include "fcgi/watch/status.h"

#include "fcgi/watch/metrics.h"
#include "fcgi/wire/live.h"

static const char *state_of(struct server *s, const struct engine *e, struct status *out)
{
    if (e == NULL) {
        return atomic_load(&s->has_failed) ? "failed" : "loading";
    }
    if (engine_is_lost(e, &out->lost)) {
        return "lost";
    }
    if (atomic_load(&s->is_draining)) {
        return "draining";
    }
    if (engine_check_file(e, &out->lost) != ERR_OK) {
        return "file_cut";
    }
    return atomic_load(&s->is_stuck) || atomic_load(&s->has_lost_request) ? "stuck" : "ok";
}

void status_get(struct server *s, const struct engine *e, struct status *out)
{
    *out = (struct status){.up_s = (int64_t)((clock_now_ns() - s->started_ns) / 1000000000u)};
    (void)clock_utc(s->started, out->start_time);
    fastcgi_get_counts(&out->conn);
    if (e != NULL) {
        engine_get_stats(e, &out->sched);
        out->max_running = engine_model(e)->max_seqs;
        out->max_waiting = engine_model(e)->max_waiting;
    }
    out->errors = metrics_errors();
    out->slow = metrics_slow();
    out->state = state_of(s, e, out);
}

static int append(const char *data, size_t n, void *out)
{
    buf_append(out, data, n);
    return 0;
}

void status_put_json(const json_t *v, struct buf *out) { (void)json_dump_callback(v, append, out, JSON_COMPACT); }

void status_write_json(const json_t *v, struct buf *out)
{
    status_put_json(v, out);
    buf_putc(out, '\n');
}

struct listing {
    json_t *rows;
    uint64_t now_ns;
};

/* Returns {"lookup": [drafted, accepted], ..}, without sources of no drafts. Adds the counts to *sum. */
static json_t *draft_pairs(const struct draft_count *drafts, struct draft_count *sum)
{
    json_t *o = json_object();
    for (int s = 0; s < DRAFT_SOURCES; s++) {
        sum->drafted += drafts[s].drafted;
        sum->accepted += drafts[s].accepted;
        if (drafts[s].drafted > 0) {
            (void)json_object_set_new(
                o, draft_source_name((enum draft_source)s),
                json_pack("[I, I]", (json_int_t)drafts[s].drafted, (json_int_t)drafts[s].accepted));
        }
    }
    return o;
}

static void add_request(void *arg, const struct live *l, const struct live_look *look)
{
    struct listing *to = arg;
    struct draft_count drafts = {0};
    json_t *pairs = draft_pairs(look->drafts, &drafts);
    uint64_t age_ns = to->now_ns > l->arrived_ns ? to->now_ns - l->arrived_ns : 0;
    bool is_stuck = l->pulse.verdict != PULSE_FINE;
    (void)json_array_append_new(
        to->rows,
        json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "id",
                  (json_int_t)l->number, "request_id", l->id, "tenant", l->owner, "path", l->path, "state",
                  is_stuck ? "stuck" : live_state_name(look->state), "phase",
                  atomic_load_explicit(&l->task.phase, memory_order_relaxed), "cpu_ms",
                  (json_int_t)(task_cpu_ns(&l->task) / 1000000u), "prompt_tokens", (json_int_t)look->prompt_tokens,
                  "cached_tokens", (json_int_t)look->cached_tokens, "processed_tokens",
                  (json_int_t)look->processed_tokens, "completion_tokens", (json_int_t)look->completion_tokens,
                  "drafted_tokens", (json_int_t)drafts.drafted, "accepted_tokens", (json_int_t)drafts.accepted,
                  "drafts", pairs, "age_ms", (json_int_t)(age_ns / 1000000u)));
}

json_t *status_requests(void)
{
    struct listing l = {.rows = json_array(), .now_ns = clock_now_ns()};
    (void)live_each(add_request, &l);
    return l.rows;
}
