/* The whole engine on tiny models, on every back end and ISA this machine has: what a request gives, to the last bit of
 * every log-probability, does not depend on what runs beside it, on threads, on how prompts are cut into batches, on
 * what the cache holds, or on being thrown out of the cache in the middle. Then stop strings, refusals, and an engine
 * that fails at any allocation. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "engine/kernels/kern.h"
#include "tests/support/faulty_backend.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Suite *engine_suite(void);

#ifdef __SANITIZE_THREAD__
enum { IS_TSAN = 1 };
#else
enum { IS_TSAN = 0 };
#endif
enum { N_REQUESTS = 17, MAX_PROMPT = 120, MAX_OUT = 10, N_TOP = 3, N_CTX = 160, PAGE_TOKENS = 32 };

static const char *const models[] = {"tests/golden/models/llama-quants.gguf", "tests/golden/models/qwen2-bias.gguf",
                                     "tests/golden/models/llama-linear-odd.gguf"};

/* Back ends and ISAs; `cpu` is skipped where the machine lacks it. */
static const struct {
    const char *backend, *cpu, *k_type, *v_type;
} subjects[] = {
    {"ref", NULL, NULL, NULL},         {"cpu", "ref", NULL, NULL},        {"cpu", "avx2", NULL, NULL},
    {"cpu", "avx512", NULL, NULL},     {"cpu", "avx2", "q8_0", "f16"},    {"cpu", "avx512", "f16", "q4_0"},
    {"cpu", "avx512", "q8_0", "bf16"}, {"cpu", "avx512", "bf16", "q8_0"}, {"cpu:0-0,cpu", "avx2", "i16", "i16"}};

static bool has_isa(const char *name)
{
    for (int i = 0; name != NULL && kern_isa_name(i) != NULL; i++) {
        if (strcmp(kern_isa_name(i), name) == 0) {
            return kern_isa_is_there(i);
        }
    }
    return name == NULL;
}

static struct engine *open_engine(struct engine_config cfg)
{
    struct engine *e;
    struct err_info info = {0};
    cfg.n_ctx = cfg.n_ctx == 0 ? N_CTX : cfg.n_ctx;
    cfg.n_threads = cfg.n_threads == 0 ? 1 : cfg.n_threads;
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg.model_path, info.text);
    return e;
}

static struct sched_stats stats_of(struct engine *e)
{
    struct sched_stats st;
    engine_get_stats(e, &st);
    return st;
}

/* Waits until nothing runs and no page is held. */
static void wait_idle(struct engine *e)
{
    for (int i = 0; i < 20000; i++) {
        struct sched_stats st = stats_of(e);
        if (st.n_running == 0 && st.n_waiting == 0 && st.pages_held == 0) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    ck_abort_msg("the engine does not come to rest");
}

/* --- requests --------------------------------------------------------------------------------------------------- */

struct request {
    int32_t ids[MAX_PROMPT];
    size_t n;
    struct sampler_bias bias[2];
    struct engine_params p;
};

/* Prompts of 1 to MAX_PROMPT tokens, some with the same beginning, with every kind of sampling among them. */
static void make_request(const struct engine *e, struct request *r, int which, size_t longest)
{
    static const size_t lengths[] = {1, 31, 32, 33, 64, 65, 97, 120, 100, 100, 7, 70, 16, 17, 45, 96, 3};
    r->n = MIN_OF(lengths[which], longest);
    for (size_t i = 0; i < r->n; i++) {
        r->ids[i] = (int32_t)((i * 29 + 11 + (i > 66 || which < 7 ? (size_t)which * 5 : 0)) % 250);
    }
    engine_params_init(e, &r->p);
    r->p.max_tokens = MAX_OUT - which % 5;
    r->p.ignore_eos = true;
    r->p.sampling.n_top = N_TOP;
    r->p.sampling.seed = 99 + (uint64_t)which;
    r->p.sampling.temperature = which % 4 == 0 ? 0 : 0.5f + 0.1f * (float)which;
    r->p.sampling.top_k = which % 5 == 1 ? 40 : 0;
    r->p.sampling.top_p = which % 3 == 1 ? 0.9f : 1;
    r->p.sampling.min_p = which % 7 == 2 ? 0.05f : 0;
    r->p.sampling.repeat_penalty = which % 6 == 3 ? 1.2f : 1;
    r->p.prompt_logprobs = which % 8 == 5;
    r->bias[0] = (struct sampler_bias){5, -100};
    r->bias[1] = (struct sampler_bias){77, 2};
    r->p.sampling.bias = r->bias;
    r->p.sampling.n_bias = which % 4 == 2 ? 2 : 0;
}

/* All that a request gave, comparable byte by byte: zeroed first, no pointers. */
struct outcome {
    int32_t n, n_prompt, finish, err;
    int32_t ids[MAX_OUT];
    float logprobs[MAX_OUT], prompt_logprobs[MAX_PROMPT];
    struct sampler_top top[MAX_OUT][N_TOP], prompt_top[MAX_PROMPT][N_TOP];
    size_t n_text, n_end_text; /* in all; of these with the end event */
    char text[MAX_OUT * 32];
};

static void collect(struct engine_stream **s, struct outcome *o, struct sched_usage *usage)
{
    struct engine_event ev = {0};
    memset(o, 0, sizeof *o);
    do {
        enum err err = engine_next(*s, 20000, &ev);
        ck_assert_msg(err == ERR_OK, "engine_next: %s", err_code(err));
        ck_assert(ev.token.n_top <= N_TOP && o->n_text + ev.text_len <= sizeof o->text);
        if (ev.kind == SCHED_PROMPT_TOKEN) {
            ck_assert_int_lt(o->n_prompt, MAX_PROMPT);
            o->prompt_logprobs[o->n_prompt] = ev.token.logprob;
            memcpy(o->prompt_top[o->n_prompt++], ev.token.top, (size_t)ev.token.n_top * sizeof *ev.token.top);
            continue;
        }
        memcpy(o->text + o->n_text, ev.text, ev.text_len);
        o->n_text += ev.text_len;
        if (ev.kind == SCHED_TOKEN) {
            ck_assert_int_lt(o->n, MAX_OUT);
            o->ids[o->n] = ev.token.id;
            o->logprobs[o->n] = ev.token.logprob;
            memcpy(o->top[o->n++], ev.token.top, (size_t)ev.token.n_top * sizeof *ev.token.top);
        }
    } while (ev.kind != SCHED_END);
    o->n_end_text = ev.text_len;
    o->finish = (int32_t)ev.finish;
    o->err = (int32_t)ev.err;
    ck_assert_int_eq(engine_next(*s, 0, &ev), ERR_NONE);
    engine_stream_usage(*s, usage);
    engine_stream_close(s);
    ck_assert_ptr_null(*s);
}

static struct engine_stream *submit(struct engine *e, const struct request *r)
{
    struct engine_stream *s;
    struct err_info info = {0};
    enum err err = engine_submit(e, r->ids, r->n, &r->p, &s, &info);
    ck_assert_msg(err == ERR_OK, "engine_submit: %s", info.text);
    return s;
}

/* Each request on its own, one after the other; `salt` NULL shares the cache. */
static void run_alone(struct engine *e, struct request *r, const char *salt, struct outcome *o,
                      struct sched_usage *usage)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        char own[16];
        snprintf(own, sizeof own, "%s%d", salt != NULL ? salt : "", i);
        r[i].p.cache_salt = salt != NULL ? own : NULL;
        struct engine_stream *s = submit(e, &r[i]);
        collect(&s, &o[i], &usage[i]);
        wait_idle(e); /* its pages are let go before the next one looks */
    }
}

/* All requests at once. */
static void run_together(struct engine *e, struct request *r, const char *salt, struct outcome *o,
                         struct sched_usage *usage)
{
    struct engine_stream *s[N_REQUESTS];
    for (int i = 0; i < N_REQUESTS; i++) {
        r[i].p.cache_salt = salt;
        s[i] = submit(e, &r[i]);
    }
    for (int i = 0; i < N_REQUESTS; i++) {
        collect(&s[i], &o[i], &usage[i]);
    }
    wait_idle(e);
}

static void compare(const struct outcome *got, const struct outcome *expected, const char *how)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        if (memcmp(&got[i], &expected[i], sizeof got[i]) != 0) {
            int at = 0;
            while (at < expected[i].n && got[i].ids[at] == expected[i].ids[at] &&
                   got[i].logprobs[at] == expected[i].logprobs[at]) {
                at++;
            }
            ck_abort_msg("%s: request %d differs: %d tokens (expected %d), %s, first difference at token %d: %d %.9g, "
                         "expected %d %.9g",
                         how, i, got[i].n, expected[i].n, err_code((enum err)got[i].err), at, got[i].ids[at],
                         (double)got[i].logprobs[at], expected[i].ids[at], (double)expected[i].logprobs[at]);
        }
    }
}

static void check_outcomes(const struct request *r, const struct outcome *o)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        ck_assert_int_eq(o[i].err, ERR_OK);
        ck_assert_int_eq(o[i].finish, SCHED_FINISH_LENGTH);
        ck_assert_int_eq(o[i].n, r[i].p.max_tokens);
        ck_assert_int_eq(o[i].n_prompt, r[i].p.prompt_logprobs ? (int)r[i].n : 0);
        for (int k = 0; k < o[i].n; k++) {
            ck_assert(isfinite(o[i].logprobs[k]) && o[i].top[k][0].logprob >= o[i].top[k][1].logprob);
            ck_assert(r[i].p.sampling.temperature > 0 || r[i].p.sampling.n_bias > 0 ||
                      r[i].p.sampling.repeat_penalty > 1 || o[i].top[k][0].id == o[i].ids[k]);
        }
    }
}

/* --- the same bits
 * ----------------------------------------------------------------------------------------------------- */

static struct request requests[N_REQUESTS];
static struct outcome expected[N_REQUESTS], outcomes[N_REQUESTS];
static struct sched_usage usages[N_REQUESTS];

enum { TIGHT_ROUNDS = 30 }; /* where the first requests are done before the last ones come, none has to give way */

/* One engine in one shape: together, together with a filled cache, alone with a filled cache. */
static void check_shape(const struct engine_config *cfg, bool is_tight, bool is_slow)
{
    char how[160];
    struct engine *e = open_engine(*cfg);
    uint64_t steps = 0, preempted = 0;
    for (int round = 0; round < (is_slow ? 1 : 2) || (is_tight && preempted == 0 && round < TIGHT_ROUNDS); round++) {
        snprintf(how, sizeof how, "%s %s/%s, %d threads, %d rows, round %d", cfg->model_path, cfg->backend,
                 cfg->cpu != NULL ? cfg->cpu : "-", cfg->n_threads, cfg->max_batch_rows, round);
        run_together(e, requests, NULL, outcomes, usages);
        compare(outcomes, expected, how);
        steps = stats_of(e).steps;
        preempted = stats_of(e).preempted;
    }
    ck_assert_uint_gt(steps, 0);
    ck_assert_msg(!is_tight || preempted > 0, "%s: the pool was never too small", how);
    if (is_tight || is_slow) {
        engine_close(&e);
        return;
    }
    run_alone(e, requests, NULL, outcomes, usages);
    compare(outcomes, expected, "alone, from the cache");
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t whole_pages = ((int32_t)requests[i].n - 1) / PAGE_TOKENS * PAGE_TOKENS;
        ck_assert_int_eq(usages[i].cached_tokens, requests[i].p.prompt_logprobs ? 0 : whole_pages);
        ck_assert_int_eq(usages[i].completion_tokens, requests[i].p.max_tokens);
        ck_assert_int_eq(usages[i].prompt_tokens, (int32_t)requests[i].n);
    }
    engine_close(&e);
    ck_assert_ptr_null(e);
}

enum { N_SUBJECTS = sizeof subjects / sizeof *subjects, N_MODELS = sizeof models / sizeof *models };

START_TEST(a_request_gives_the_same_bits_whatever_happens_around_it)
{
    const char *backend = subjects[_i % N_SUBJECTS].backend, *cpu = subjects[_i % N_SUBJECTS].cpu;
    if (!has_isa(cpu) || (_i >= N_SUBJECTS && subjects[_i % N_SUBJECTS].k_type != NULL)) {
        return;
    }
    struct engine_config cfg = {.model_path = models[_i / N_SUBJECTS],
                                .backend = backend,
                                .cpu = cpu,
                                .cache_type_k = subjects[_i % N_SUBJECTS].k_type,
                                .cache_type_v = subjects[_i % N_SUBJECTS].v_type,
                                .n_threads = 1,
                                .max_seqs = N_REQUESTS,
                                .max_batch_rows = 512,
                                .kv_tokens = 8192};
    bool is_slow = IS_TSAN || strcmp(backend, "ref") == 0 || strcmp(cpu, "ref") == 0; /* less of everything */
    struct engine *e = open_engine(cfg);
    for (int i = 0; i < N_REQUESTS; i++) {
        make_request(e, &requests[i], i, is_slow ? 40 : MAX_PROMPT);
    }
    run_alone(e, requests, "cold", expected, usages);
    check_outcomes(requests, expected);
    for (int i = 0; i < N_REQUESTS; i++) {
        ck_assert_int_eq(usages[i].cached_tokens, 0);
    }
    uint64_t alone_steps = stats_of(e).steps, steps;
    int tries = 0;
    do { /* really in one batch: far fewer steps than alone */
        steps = stats_of(e).steps;
        char salt[16];
        snprintf(salt, sizeof salt, "try %d", tries);
        run_together(e, requests, salt, outcomes, usages);
        compare(outcomes, expected, "together");
        steps = stats_of(e).steps - steps;
    } while (steps * 3 > alone_steps && ++tries < 50);
    ck_assert_msg(steps * 3 <= alone_steps, "%lu steps together, %lu alone", (unsigned long)steps,
                  (unsigned long)alone_steps);
    engine_close(&e);
    static const struct {
        int threads, rows, seqs;
        uint64_t kv_tokens;
    } shapes[] = {{2, 512, N_REQUESTS, 8192},
                  {1, 17, N_REQUESTS, 8192},
                  {2, 50, N_REQUESTS, 8192},
                  {1, 3, 3, 8192},
                  {2, 1, 1, 8192},
                  {2, 64, N_REQUESTS, 480}};
    bool is_first = _i < N_SUBJECTS;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        cfg.n_threads = shapes[i].threads;
        cfg.max_batch_rows = shapes[i].rows;
        cfg.max_seqs = shapes[i].seqs;
        cfg.kv_tokens = shapes[i].kv_tokens;
        if (is_slow ? i == 2 : is_first || i % 3 == 2) {
            check_shape(&cfg, shapes[i].kv_tokens < 1000, is_slow);
        }
    }
}
END_TEST

/* --- stop strings
 * ------------------------------------------------------------------------------------------------------ */

/* Every short piece of what a request gives, as its stop string: the text ends where it first stands. */
START_TEST(a_stop_string_ends_the_text_right_before_it)
{
    struct engine *e = open_engine((struct engine_config){.model_path = models[_i]});
    struct outcome whole, cut;
    struct sched_usage usage;
    int n_tried = 0;
    for (int which = 0; which < N_REQUESTS; which += 3) {
        struct request r;
        make_request(e, &r, which, MAX_PROMPT);
        r.p.prompt_logprobs = false;
        struct engine_stream *s = submit(e, &r);
        collect(&s, &whole, &usage);
        for (size_t at = 0; at + 1 < whole.n_text; at += 2) {
            size_t len = 1 + at % 5;
            len = at + len > whole.n_text ? whole.n_text - at : len;
            char stop[8], end[8];
            memcpy(stop, whole.text + at, len);
            memset(end, 'z', sizeof end);
            r.p.stop[0] = end; /* never met */
            r.p.stop_len[0] = sizeof end;
            r.p.stop[1] = stop;
            r.p.stop_len[1] = len;
            r.p.n_stop = 2;
            s = submit(e, &r);
            collect(&s, &cut, &usage);
            const char *first = memmem(whole.text, whole.n_text, stop, len);
            size_t n = (size_t)(first - whole.text);
            ck_assert_int_eq(cut.finish, SCHED_FINISH_STOP);
            ck_assert_int_eq(cut.err, ERR_OK);
            ck_assert_msg(cut.n_text == n && memcmp(cut.text, whole.text, n) == 0, "%zu bytes, expected %zu",
                          cut.n_text, n);
            ck_assert(cut.n <= whole.n && memcmp(cut.ids, whole.ids, (size_t)cut.n * sizeof *cut.ids) == 0);
            ck_assert_int_eq(usage.completion_tokens, cut.n + (cut.n_end_text > 0)); /* no token after the cut */
            n_tried++;
        }
    }
    ck_assert_int_gt(n_tried, 20);
    wait_idle(e);
    engine_close(&e);
}
END_TEST

/* --- refusals and failures
 * --------------------------------------------------------------------------------------------- */

START_TEST(what_cannot_be_is_refused_with_a_reason)
{
    struct engine *e = NULL;
    struct err_info info = {0};
    struct engine_config good = {.model_path = models[1], .n_threads = 1};
    struct {
        struct engine_config cfg;
        enum err err;
        const char *word; /* stands in the message */
    } cases[] = {{good, ERR_CONFIG, "nope"},       {good, ERR_UNSUPPORTED_CPU, "mmx"},
                 {good, ERR_CONFIG, "513"},        {good, ERR_CONFIG, "kv-tokens"},
                 {good, ERR_MEMORY_LIMIT, "MiB"},  {good, ERR_FILE, "No such file"},
                 {good, ERR_CONFIG, "draft-max"},  {good, ERR_CONFIG, "draft-max"},
                 {good, ERR_CONFIG, "found 'f8'"}, {good, ERR_CONFIG, "cache-type-v: expected one of i16"}};
    cases[0].cfg.backend = "nope";
    cases[1].cfg.cpu = "mmx";
    cases[2].cfg.n_ctx = 513;
    cases[3].cfg.kv_tokens = 100;
    cases[4].cfg.memory_limit_bytes = 1000;
    cases[5].cfg.model_path = "there-is-no.gguf";
    cases[6].cfg.draft_max = -2;
    cases[7].cfg.draft_max = 32;
    cases[8].cfg.cache_type_k = "f8";
    cases[9].cfg.cache_type_v = "";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum err err = engine_open(&cases[i].cfg, &e, &info);
        ck_assert_msg(err == cases[i].err, "case %zu: %s %s", i, err_code(err), info.text);
        ck_assert_msg(strstr(info.text, cases[i].word) != NULL, "case %zu: '%s'", i, info.text);
        ck_assert_ptr_null(e);
    }
    e = open_engine(good);
    struct request r;
    make_request(e, &r, 5, MAX_PROMPT);
    struct engine_stream *s;
    ck_assert_int_eq(engine_submit(e, r.ids, 0, &r.p, &s, &info), ERR_INVALID_VALUE);
    r.ids[3] = 288;
    ck_assert_int_eq(engine_submit(e, r.ids, r.n, &r.p, &s, &info), ERR_INVALID_VALUE);
    ck_assert_ptr_nonnull(strstr(info.text, "288"));
    r.ids[3] = -1;
    ck_assert_int_eq(engine_submit(e, r.ids, r.n, &r.p, &s, &info), ERR_INVALID_VALUE);
    int32_t many[N_CTX + 1] = {0};
    ck_assert_int_eq(engine_submit(e, many, N_CTX, &r.p, &s, &info), ERR_CONTEXT_LENGTH);
    ck_assert(strstr(info.text, "160") != NULL);
    r.p.max_tokens = 0;
    ck_assert_int_eq(engine_submit(e, many, N_CTX + 1, &r.p, &s, &info), ERR_CONTEXT_LENGTH);
    ck_assert_ptr_null(s);
    engine_drain(e);
    r.ids[3] = 1;
    ck_assert_int_eq(engine_submit(e, r.ids, r.n, &r.p, &s, &info), ERR_DRAINING);
    engine_close(&e);
}
END_TEST

START_TEST(an_engine_that_cannot_have_its_memory_says_so_and_leaves_nothing)
{
    size_t live = mem_live();
    struct engine *e = NULL;
    struct err_info info = {0};
    struct engine_config cfg = {.model_path = models[_i], .n_threads = 2, .n_ctx = 64, .kv_tokens = 64, .max_seqs = 1};
    long n = 0;
    for (; e == NULL; n++) {
        mem_fail_at(n);
        enum err err = engine_open(&cfg, &e, &info);
        mem_fail_at(-1);
        ck_assert_msg(err == (e == NULL ? ERR_NOMEM : ERR_OK), "allocation %ld: %s", n, err_code(err));
        ck_assert_msg(e != NULL || (info.code == ERR_NOMEM && mem_live() == live), "allocation %ld: %zu bytes left, %s",
                      n, mem_live() - live, info.text);
        ck_assert_int_lt(n, 2000);
    }
    ck_assert_int_gt(n, 20);
    struct request r;
    make_request(e, &r, 3, MAX_PROMPT);
    struct engine_stream *s = NULL;
    for (n = 0; s == NULL; n++) {
        mem_fail_at(n);
        enum err err = engine_submit(e, r.ids, r.n, &r.p, &s, &info);
        mem_fail_at(-1);
        ck_assert_int_eq(err, s == NULL ? ERR_NOMEM : ERR_OK);
        ck_assert_int_lt(n, 100);
    }
    engine_stream_close(&s);
    engine_close(&e);
    ck_assert_uint_eq(mem_live(), live);
}
END_TEST

/* One for each sequence and one for four pages. */
START_TEST(recurrent_states_are_part_of_the_memory_plan)
{
    struct engine_config cfg = {.model_path = "tests/golden/models/qwen35-delta.gguf",
                                .n_threads = 1,
                                .max_seqs = 4,
                                .n_ctx = 64,
                                .kv_tokens = 1024};
    struct engine_memory m, longer, wider;
    struct err_info info = {0};
    struct engine *e;
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(engine_model(e)->kv_bytes, m.kv_bytes);
    engine_close(&e);
    cfg.max_seqs = 5;
    ck_assert_int_eq(engine_measure(&cfg, &wider, &info), ERR_OK);
    cfg.max_seqs = 4;
    cfg.kv_tokens = 2048;
    ck_assert_int_eq(engine_measure(&cfg, &longer, &info), ERR_OK);
    uint64_t state = wider.kv_bytes - m.kv_bytes, pages = longer.kv_bytes - m.kv_bytes - 8 * state;
    ck_assert_uint_gt(state, 0);
    ck_assert_uint_eq(m.kv_bytes,
                      pages + (4 + 1 + 8) * state); /* of places, of the one for short prompts, and kept ones */
    cfg.memory_limit_bytes = m.kv_bytes; /* too little for the pages and states of 2048 tokens, weights apart */
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
}
END_TEST

/* Without an option the cache becomes as large as there is room for beside the rest, in each memory. */
START_TEST(the_cache_is_as_large_as_a_device_has_room_for)
{
    enum { N_PAGES = 10, N_CTX_HERE = 64 };
    struct engine_config cfg = {.model_path = models[_i], .n_threads = 1, .n_ctx = N_CTX_HERE};
    struct engine_memory m, fit;
    struct err_info info = {0};
    struct engine *e = NULL;
    ck_assert_msg(engine_measure(&cfg, &m, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(m.kv_tokens, 32768);
    size_t pages = (size_t)(m.kv_bytes / m.kv_tokens * KV_PAGE_TOKENS * N_PAGES), all = (size_t)m.weight_bytes + pages;
    size_t host = (size_t)m.activation_bytes;
    for (int is_device = 0; is_device < 2; is_device++) {
        faulty_backend_shrink(is_device ? 2 * host : (host + all + 2) / 3 * 4, is_device ? (all + 14) / 15 * 16 : 0);
        ck_assert_msg(engine_measure(&cfg, &fit, &info) == ERR_OK, "%s", info.text);
        ck_assert_uint_eq(fit.kv_tokens, N_PAGES * KV_PAGE_TOKENS);
        ck_assert_uint_le(fit.activation_bytes, m.activation_bytes);
        ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
        ck_assert_uint_eq(engine_model(e)->kv_bytes, pages);
        ck_assert_int_eq(engine_model(e)->n_devices, is_device);
        if (is_device) {
            const struct engine_device *d = engine_model(e)->devices;
            ck_assert_uint_eq(d->weights, m.weight_bytes);
            ck_assert_uint_eq(d->kv + d->states, pages);
            ck_assert_uint_eq(d->activations, 0); /* of the faulty back end they are the host's */
        }
        engine_close(&e);
    }
    faulty_backend_shrink((size_t)fit.activation_bytes + all, 0);
    cfg.kv_tokens = N_PAGES * KV_PAGE_TOKENS + 1;
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
    ck_assert_msg(strstr(info.text, "kv-tokens: expected at most 320 tokens") != NULL, "%s", info.text);
    faulty_backend_shrink(2 * host, all);
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
    ck_assert_msg(strstr(info.text, "a KV cache of 352 tokens") != NULL, "%s", info.text);
    ck_assert_msg(strstr(info.text, "there is room for --gpu-layers 1") != NULL, "%s", info.text);
    faulty_backend_shrink(host, all - pages);
    cfg.kv_tokens = 0;
    ck_assert_int_eq(engine_measure(&cfg, &fit, &info), ERR_OK);
    ck_assert_uint_eq(fit.kv_tokens, N_CTX_HERE);
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
    ck_assert_msg(strstr(info.text, "gpu-layers: ") == info.text, "%s", info.text);
    faulty_backend_shrink((size_t)fit.activation_bytes + all - pages, 0);
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
    ck_assert_msg(strstr(info.text, "ctx-size: expected at most 0 tokens") != NULL, "%s", info.text);
    faulty_backend_shrink(1, 0);
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_UNSUPPORTED_CPU);
    ck_assert_str_eq(info.text, "the first device is broken");
    faulty_backend_shrink(0, 0);
}
END_TEST

/* What a device and the host have is one memory where the device shares the host's. */
START_TEST(a_shared_memory_is_counted_once)
{
    enum { N_PAGES = 10, N_CTX_HERE = 64 };
    struct engine_config cfg = {.model_path = models[0], .n_threads = 1, .n_ctx = N_CTX_HERE};
    struct engine_memory m;
    struct err_info info = {0};
    struct engine *e = NULL;
    cfg.kv_tokens = N_PAGES * KV_PAGE_TOKENS;
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_OK);
    size_t all = (size_t)(m.weight_bytes + m.kv_bytes + m.activation_bytes);
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        faulty_backend_share(is_shared);
        faulty_backend_shrink(all, all);
        ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
        engine_close(&e);
        faulty_backend_shrink(all - 1, all);
        ck_assert_int_eq(engine_open(&cfg, &e, &info), is_shared ? ERR_MEMORY_LIMIT : ERR_OK);
        engine_close(&e);
    }
    ck_assert_msg(strstr(info.text, "kv-tokens: expected at most 288 tokens") != NULL, "%s", info.text);
    cfg.kv_tokens = 0;
    all -= (size_t)m.activation_bytes;
    faulty_backend_shrink(0, 0);
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_OK);
    all += (size_t)m.activation_bytes;                 /* of the largest cache */
    faulty_backend_shrink((all + 2) / 3 * 4, 2 * all); /* a quarter is the requests' */
    ck_assert_int_eq(engine_measure(&cfg, &m, &info), ERR_OK);
    ck_assert_uint_eq(m.kv_tokens, N_PAGES * KV_PAGE_TOKENS);
    faulty_backend_shrink(0, 0);
    faulty_backend_share(false);
}
END_TEST

Suite *engine_suite(void)
{
    Suite *s = suite_create("engine");
    TCase *c = tcase_create("engine");
    tcase_set_tags(c, "model");
    tcase_add_loop_test(c, a_stop_string_ends_the_text_right_before_it, 0, N_MODELS);
    tcase_add_test(c, what_cannot_be_is_refused_with_a_reason);
    tcase_add_loop_test(c, an_engine_that_cannot_have_its_memory_says_so_and_leaves_nothing, 0, 2);
    tcase_add_test(c, recurrent_states_are_part_of_the_memory_plan);
    tcase_add_loop_test(c, the_cache_is_as_large_as_a_device_has_room_for, 0, N_MODELS);
    tcase_add_test(c, a_shared_memory_is_counted_once);
    suite_add_tcase(s, c);
    c = tcase_create("crowds");
    tcase_set_tags(c, "long"); /* tests/run.sh; what a request does alone ASan sees in the others */
    tcase_add_loop_test(c, a_request_gives_the_same_bits_whatever_happens_around_it, 0, N_SUBJECTS * N_MODELS);
    suite_add_tcase(s, c);
    return s;
}
