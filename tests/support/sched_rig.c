/* Compares in plain C and reports the first difference: an assertion a token would be slow. */
#include "tests/support/sched_rig.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/support/remote_backend.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void count_failure(void *arg, const struct err_info *why)
{
    struct rig_failures *f = arg;
    atomic_fetch_add(&f->n, 1);
    atomic_fetch_add(&f->n_lost, why->code == ERR_LOST);
}

static bool is_remote;

void rig_go_remote(void) { is_remote = true; }

const struct backend *rig_backend(const struct backend *b, struct sched_config *cfg)
{
    cfg->max_begun = is_remote ? (int32_t)REMOTE_MAX_BEGUN : 1;
    cfg->max_best = is_remote ? (int32_t)REMOTE_MAX_BEST : 0;
    cfg->backend = is_remote ? remote_backend_of(b) : b;
    return cfg->backend;
}

struct rig rig_open(struct rig_limits l)
{
    static struct rig_failures failures; /* one rig at a time */
    atomic_store(&failures.n, 0);
    atomic_store(&failures.n_lost, 0);
    l.n_pages = l.n_pages != 0 ? l.n_pages : 64;
    l.n_ctx = l.n_ctx != 0 ? l.n_ctx : 320;
    l.max_rows = l.max_rows != 0 ? l.max_rows : 64;
    l.max_seqs = l.max_seqs != 0 ? l.max_seqs : 16;
    l.n_kept_states = l.n_kept_states != 0 ? l.n_kept_states : 16;
    l.max_logits = l.max_logits != 0 ? l.max_logits : l.max_seqs + 4;
    l.has_head = l.has_head || l.has_draft;
    struct rig r = {.model = fake_backend_new(l.n_pages, l.max_rows + (l.has_head ? l.max_seqs : 0), l.max_logits),
                    .failures = &failures,
                    .n_ctx = l.n_ctx};
    struct sched_config cfg = {.backend = &fake_backend,
                               .model = r.model,
                               .n_vocab = FAKE_VOCAB,
                               .n_ctx = l.n_ctx,
                               .n_pages = l.n_pages,
                               .window = l.window,
                               .n_windows = l.n_windows,
                               .local_window = l.local_window,
                               .max_rows = l.max_rows,
                               .max_logits = l.max_logits,
                               .max_seqs = l.max_seqs,
                               .queue_max = l.queue_max != 0 ? l.queue_max : 64,
                               .queue_max_tokens = l.queue_max_tokens,
                               .stall_ns = l.stall_ns,
                               .draft_max = l.draft_max,
                               .guess_p_min = l.guess_p_min,
                               .has_spare_cpu = l.has_spare_cpu,
                               .overtaking_rows = is_remote ? 0 : l.overtaking_rows,
                               .n_express = l.n_express,
                               .even_rows = l.even_rows,
                               .disk = l.disk,
                               .disk_wait_ns = l.disk_wait_ns,
                               .n_embd = FAKE_EMBD,
                               .predicts = l.has_head,
                               .output_width = l.has_head && !l.has_draft ? FAKE_OUTPUT : 0,
                               .guesses_in_place = l.in_place,
                               .is_bidirectional = l.is_bidirectional,
                               .n_states = l.is_recurrent ? l.max_seqs + l.n_kept_states : 0,
                               .failed = count_failure,
                               .now_ns = fake_backend_now_ns,
                               .failed_arg = &failures};
    fake_backend_remember(l.n_remembered);
    if (r.model != NULL) {
        r.model->window = l.window;
        r.model->overtaking_rows = cfg.overtaking_rows;
        r.model->even_rows = l.even_rows;
        r.model->has_head = l.has_head;
        r.model->is_draft = l.has_draft;
        r.model->in_place = l.in_place;
    }
    if (r.model != NULL && l.n_windows != 0) {
        ck_assert(fake_backend_add_windows(r.model, l.n_windows, l.local_window));
    }
    if (r.model != NULL && l.is_recurrent) {
        r.model->n_states = cfg.n_states;
    }
    if (r.model != NULL && is_remote) {
        r.remote = remote_backend_wrap(&fake_backend, r.model, FAKE_VOCAB, FAKE_EMBD, (uint32_t)cfg.output_width);
        rig_backend(&fake_backend, &cfg);
        cfg.model = r.remote;
    }
    struct err_info info = {0};
    if (cfg.model == NULL || sched_new(&cfg, &r.sched, &info) != ERR_OK) {
        ck_abort_msg("no scheduler: %s", info.text);
    }
    return r;
}

struct sched_stats rig_stats(struct rig *r)
{
    struct sched_stats st;
    sched_get_stats(r->sched, &st);
    return st;
}

void rig_wait_idle(struct rig *r)
{
    uint64_t until = clock_now_ns() + 20000000000ull;
    struct sched_stats st = rig_stats(r);
    while (st.n_running != 0 || st.n_waiting != 0 || st.pages_held != 0 || st.windows_held != 0 ||
           st.states_held != 0) {
        if (clock_now_ns() > until) {
            ck_abort_msg("not idle: %d running, %d waiting, %d pages and %d states held", (int)st.n_running,
                         (int)st.n_waiting, (int)st.pages_held, (int)st.states_held);
        }
        nanosleep(&(struct timespec){0, 500000}, NULL);
        st = rig_stats(r);
    }
}

void rig_hold(struct rig *r) { atomic_store(&r->model->hold, FAKE_TO_HOLD); }

void rig_wait_held(struct rig *r)
{
    uint64_t until = clock_now_ns() + 20000000000ull;
    while (atomic_load(&r->model->hold) != FAKE_HELD) {
        if (clock_now_ns() > until) {
            ck_abort_msg("no batch begins");
        }
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

void rig_go_on(struct rig *r) { atomic_store(&r->model->hold, FAKE_GOES); }

void rig_pass(struct rig *r, int n)
{
    rig_wait_held(r);
    atomic_store(&r->model->n_to_go, n);
    rig_hold(r);
    rig_wait_held(r);
}

void rig_pass_until(struct rig *r, struct sched_seq *seq, int32_t n, int most)
{
    struct sched_usage u;
    sched_seq_usage(seq, &u);
    for (int i = 0; u.completion_tokens < n; i++) {
        ck_assert_msg(i < most, "%d tokens of %d after %d batches", (int)u.completion_tokens, (int)n, i);
        rig_pass(r, 1);
        sched_seq_usage(seq, &u);
    }
}

void rig_close(struct rig *r)
{
    rig_wait_idle(r);
    sched_free(&r->sched);
    remote_backend_unwrap(&r->remote);
    ck_assert_int_eq(r->model->n_faults, 0);
    fake_backend_free(&r->model);
}

struct sched_request rig_request(const int32_t *tokens, int32_t n_tokens, int32_t max_tokens)
{
    return (struct sched_request){
        .tokens = tokens,
        .n_tokens = n_tokens,
        .max_tokens = max_tokens,
        .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .n_top = -1}};
}

void rig_prompt(int32_t *tokens, int32_t n, uint64_t which)
{
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(rng_uniform(which, 7, (uint64_t)i) * FAKE_VOCAB);
    }
}

struct sched_seq *rig_submit(struct rig *r, const struct sched_request *q)
{
    struct sched_seq *seq;
    struct err_info info = {0};
    if (sched_submit_all(r->sched, NULL, q, 1, &seq, &info) != ERR_OK) {
        ck_abort_msg("not accepted: %s", info.text);
    }
    return seq;
}

void rig_collect(struct sched_seq **q, struct rig_output *out)
{
    struct sched_event ev = {0};
    memset(out, 0, sizeof *out);
    while (ev.kind != SCHED_END) {
        enum err err = sched_next(*q, 20000, &ev);
        if (err != ERR_OK || out->n >= RIG_MAX_OUT) {
            ck_abort_msg("no event: %s after %d tokens", err_code(err), out->n);
        }
        if (ev.kind == SCHED_TOKEN) {
            out->logprobs[out->n] = ev.token.logprob;
            out->ids[out->n++] = ev.token.id;
        }
        out->n_prompt_events += ev.kind == SCHED_PROMPT_TOKEN;
    }
    out->finish = ev.finish;
    out->err = ev.err;
    ck_assert(ev.why == NULL || ev.why->code == ev.err);
    snprintf(out->why, sizeof out->why, "%.60s", ev.why != NULL ? ev.why->text : "");
    ck_assert_int_eq(sched_next(*q, 0, &ev), ERR_NONE);
    sched_seq_usage(*q, &out->usage);
    sched_release(q);
    ck_assert_ptr_null(*q);
}

static struct sampler_row row_of(const float *logits)
{
    struct sampler_row row = {.logits = logits, .n_vocab = FAKE_VOCAB};
    double sum = 0;
    for (int i = 1; i < FAKE_VOCAB; i++) {
        row.argmax = logits[i] > logits[row.argmax] ? i : row.argmax;
    }
    row.max = logits[row.argmax];
    for (int i = 0; i < FAKE_VOCAB; i++) {
        sum += exp((double)logits[i] - row.max);
    }
    row.logsumexp = (float)(row.max + log(sum));
    return row;
}

/* One token after h; false when it ends the sequence. */
static bool expect_one(const struct sched_request *q, const struct sampler_history *h, struct sampler_scratch *scratch,
                       struct sampler_result *r)
{
    float logits[FAKE_VOCAB];
    fake_backend_logits(h->tokens, h->n_tokens, logits);
    struct sampler_row row = row_of(logits);
    ck_assert_int_eq(sampler_pick(&q->sampling, &row, h, scratch, r), ERR_OK);
    for (size_t i = 0; i < q->sampling.n_ends; i++) {
        if (q->sampling.ends[i] == r->id) {
            return false;
        }
    }
    return true;
}

void rig_expect(const struct sched_request *q, int32_t n_ctx, struct rig_output *out)
{
    static int32_t tokens[RIG_MAX_OUT * 2];
    struct sampler_scratch scratch;
    memset(out, 0, sizeof *out);
    memcpy(tokens, q->tokens, (size_t)q->n_tokens * sizeof *tokens);
    ck_assert_int_eq(sampler_scratch_init(&scratch, FAKE_VOCAB), ERR_OK);
    int32_t total = q->max_tokens < 0 || q->n_tokens + q->max_tokens > n_ctx ? n_ctx : q->n_tokens + q->max_tokens;
    out->finish = SCHED_FINISH_LENGTH;
    for (int32_t n = q->n_tokens; n < total; n++) {
        struct sampler_history h = {
            .tokens = tokens, .n_prompt = q->n_tokens, .n_tokens = n, .ban_ends = n - q->n_tokens < q->min_tokens};
        struct sampler_result r;
        bool goes_on = expect_one(q, &h, &scratch, &r);
        tokens[n] = r.id;
        if (!goes_on) {
            out->finish = SCHED_FINISH_STOP;
            break;
        }
        out->logprobs[out->n] = r.logprob;
        out->ids[out->n++] = tokens[n];
    }
    out->n_prompt_events = q->prompt_logprobs ? q->n_tokens : 0;
    sampler_scratch_fini(&scratch);
}

void rig_compare(const struct rig_output *got, const struct rig_output *expected, const char *what)
{
    if (got->err != expected->err || got->finish != expected->finish || got->n != expected->n) {
        ck_abort_msg("%s: %d tokens, finish %d, %s; expected %d tokens, finish %d, %s", what, got->n, (int)got->finish,
                     err_code(got->err), expected->n, (int)expected->finish, err_code(expected->err));
    }
    for (int32_t i = 0; i < got->n; i++) {
        if (got->ids[i] != expected->ids[i]) {
            ck_abort_msg("%s: token %d is %d, expected %d", what, i, got->ids[i], expected->ids[i]);
        }
        if (memcmp(&got->logprobs[i], &expected->logprobs[i], sizeof *got->logprobs) != 0) {
            ck_abort_msg("%s: log-probability of token %d is %.9g, expected %.9g", what, i, (double)got->logprobs[i],
                         (double)expected->logprobs[i]);
        }
    }
    if (got->n_prompt_events != expected->n_prompt_events) {
        ck_abort_msg("%s: %d prompt tokens told, expected %d", what, got->n_prompt_events, expected->n_prompt_events);
    }
}

int32_t rig_run(struct rig *r, const int32_t *tokens, int32_t n_tokens, int32_t max_tokens, struct rig_output *got)
{
    static struct rig_output expected;
    struct sched_request q = rig_request(tokens, n_tokens, max_tokens);
    struct sched_seq *seq = rig_submit(r, &q);
    rig_collect(&seq, got);
    rig_expect(&q, r->n_ctx, &expected);
    rig_compare(got, &expected, "alone");
    rig_wait_idle(r);
    return got->usage.cached_tokens;
}
