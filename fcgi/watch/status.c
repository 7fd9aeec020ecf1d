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

void status_write_json(const json_t *v, struct buf *out)
{
    (void)json_dump_callback(v, append, out, JSON_COMPACT);
    buf_putc(out, '\n');
}

struct listing {
    json_t *rows;
    uint64_t now_ns;
};

static void add_request(void *arg, const struct live *l, const struct live_look *look)
{
    struct listing *to = arg;
    uint64_t age_ns = to->now_ns > l->arrived_ns ? to->now_ns - l->arrived_ns : 0;
    bool is_stuck = l->pulse.verdict != PULSE_FINE;
    (void)json_array_append_new(
        to->rows, json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "id", (json_int_t)l->number,
                            "request_id", l->id, "tenant", l->owner, "path", l->path, "state",
                            is_stuck ? "stuck" : live_state_name(look->state), "phase",
                            atomic_load_explicit(&l->task.phase, memory_order_relaxed), "cpu_ms",
                            (json_int_t)(task_cpu_ns(&l->task) / 1000000u), "prompt_tokens",
                            (json_int_t)look->prompt_tokens, "cached_tokens", (json_int_t)look->cached_tokens,
                            "processed_tokens", (json_int_t)look->processed_tokens, "completion_tokens",
                            (json_int_t)look->completion_tokens, "age_ms", (json_int_t)(age_ns / 1000000u)));
}

json_t *status_requests(void)
{
    struct listing l = {.rows = json_array(), .now_ns = clock_now_ns()};
    (void)live_each(add_request, &l);
    return l.rows;
}
