/* Attention of the CPU back end over long contexts: chunks, batches, threads and splits into segments, for every KV
 * type, must not show in a single bit of the logits. */
#include "engine/backend/backend.h"

#include "engine/base/compiler.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *cpu_attention_suite(void);

enum { N = 540, N_PAGES = 3 * (N / KV_PAGE_TOKENS + 1), MAX_VOCAB = 1024, LAST = 5 };

/* One way to compute N tokens of a sequence: chunks of so many rows, the last LAST rows one by one or not, alone or
 * with two other sequences in each batch. */
struct way {
    int threads, chunk;
    bool with_others;
};

static struct gguf *file;
static struct plan *plan;

static void setup(void)
{
    struct err_info info = {0};
    ck_assert_msg(gguf_open("tests/golden/models/qwen2-bias.gguf", &file, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(file, 0, &plan, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_le(plan->n_vocab, MAX_VOCAB);
}

static void teardown(void)
{
    plan_free(&plan);
    gguf_close(&file);
}

/* A batch of `n` rows of sequence 0 from position `from` on, with one row of each of two others; logits of the first
 * sequence's rows go to logits. */
static void forward(struct backend_model *m, const struct way *w, int from, int n, float *logits)
{
    static int32_t pages[3][N_PAGES / 3];
    int32_t tokens[N + 2], pos[N + 2], seq[N + 2], rows[N + 2];
    const int32_t *tables[3] = {pages[0], pages[1], pages[2]};
    struct backend_row_stats stats[N + 2];
    for (int i = 0; i < N_PAGES; i++) {
        pages[i % 3][i / 3] = (i * 7 + 5) % N_PAGES; /* 51 pages, of which 7 is no divisor */
    }
    int32_t n_rows = 0, n_seqs = w->with_others ? 3 : 1;
    for (int32_t s = 0; s < n_seqs; s++) {
        for (int i = 0; i < (s == 0 ? n : 1); i++) {
            pos[n_rows] = s == 0 ? from + i : from / (2 * s);
            tokens[n_rows] = (int32_t)((pos[n_rows] * 37 + s * 11) % (int32_t)plan->n_vocab);
            seq[n_rows++] = s;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        rows[i] = i;
    }
    struct backend_batch batch = {.n_rows = n_rows,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = n_seqs,
                                  .page_tables = tables,
                                  .n_logits = n,
                                  .logit_rows = rows,
                                  .logits = logits,
                                  .stats = stats};
    struct err_info info = {0};
    ck_assert_int_eq(backend_compute(&backend_cpu, m, &batch, &info), ERR_OK);
}

/* Logits of all N rows. */
static void compute(const char *cpu, enum kv_type k_type, enum kv_type v_type, const struct way *w, float *logits)
{
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {.cpu = cpu,
                                 .n_threads = w->threads,
                                 .n_pages = N_PAGES,
                                 .max_rows = N + 2,
                                 .max_logits = N + 2,
                                 .k_type = kv_type_name((int)k_type),
                                 .v_type = kv_type_name((int)v_type)};
    ck_assert_msg(backend_cpu.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int from = 0, n; from < N; from += n) {
        n = from >= N - LAST ? 1 : MIN_OF(w->chunk, N - LAST - from);
        forward(m, w, from, n, logits + (size_t)from * plan->n_vocab);
    }
    backend_cpu.close(&m);
}

static bool has_cpu(const char *name)
{
    struct backend_model *probe = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {.cpu = name, .n_threads = 1, .n_pages = 1, .max_rows = 1, .max_logits = 1};
    bool is_there = backend_cpu.open(plan, &cfg, &probe, &info) == ERR_OK;
    backend_cpu.close(&probe);
    return is_there;
}

START_TEST(neither_chunks_nor_threads_nor_neighbours_show)
{
    static const struct {
        const char *cpu;
        enum kv_type k_type, v_type;
    } subjects[] = {{NULL, KV_TYPE_I16, KV_TYPE_I16},   {"avx2", KV_TYPE_I16, KV_TYPE_I16},
                    {NULL, KV_TYPE_F16, KV_TYPE_F16},   {"avx2", KV_TYPE_F16, KV_TYPE_Q8_0},
                    {NULL, KV_TYPE_Q8_0, KV_TYPE_Q8_0}, {NULL, KV_TYPE_BF16, KV_TYPE_Q4_0},
                    {NULL, KV_TYPE_Q4_0, KV_TYPE_I16}};
    static const struct way ways[] = {{2, 512, false}, {3, 40, false}, {2, 9, true}, {1, 257, true}, {2, 3, false}};
    const struct way plain = {1, N, false};
    size_t n = (size_t)N * plan->n_vocab;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    if (has_cpu(subjects[_i].cpu)) {
        compute(subjects[_i].cpu, subjects[_i].k_type, subjects[_i].v_type, &plain, want);
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            compute(subjects[_i].cpu, subjects[_i].k_type, subjects[_i].v_type, &ways[w], got);
            for (size_t i = 0; i < n; i++) {
                if (memcmp(&got[i], &want[i], sizeof *got) != 0) {
                    ck_abort_msg("way %zu: row %zu, logit %zu: %.9g, alone %.9g", w, i / plan->n_vocab,
                                 i % plan->n_vocab, (double)got[i], (double)want[i]);
                }
            }
        }
    }
    free(want);
    free(got);
}
END_TEST

/* --- long contexts ---------------------------------------------------------------------------------------------- */

/* Three sequences far longer than a segment. Their rows are computed as prompts first, in blocks that are never split;
 * then some again, few at a time, as decoding does, when a block is cut into pieces of one or more segments. */
enum { N_STREAMS = 3, DEEPEST = 3400, DEEP_PAGES = 256, DEEP_CHUNK = 500, MAX_AGAIN = 8 };
static const int32_t depths[N_STREAMS] = {DEEPEST, 2700, 700};

/* Rows computed again in one batch: `n` of each stream, the last of them at position `last`. */
struct again {
    int32_t n[N_STREAMS], last[N_STREAMS];
};

/* With one thread and two KV heads a piece has up to a quarter of a row's segments: 2 of 8 at position 2047, 3, 3, 3
 * and 2 of 11, 4, 4, 4 and 2 of 14, and so on. */
static const struct again agains[] = {
    {{1}, {255}},           {{1}, {256}},           {{1}, {1023}},
    {{1}, {2047}},          {{1}, {2048}},          {{1}, {2303}},
    {{1}, {2600}},          {{1}, {2816}},          {{1}, {3071}},
    {{1}, {3072}},          {{1}, {3327}},          {{1}, {DEEPEST - 1}},
    {{3}, {2049}},          {{5}, {DEEPEST - 1}},   {{8}, {3329}},
    {{1, 1}, {3390, 2690}}, {{1, 0, 1}, {3073, 5}}, {{1, 1, 1}, {3200, 2050, 699}},
    {{0, 2, 1}, {0, 2561}}, {{4, 4}, {2307, 2306}}, {{2, 1, 3}, {DEEPEST - 1, 2699, 513}},
};

static int32_t deep_token(int32_t stream, int32_t pos)
{
    return (pos * 37 + pos / 11 * (stream + 3) + stream * 101) % (int32_t)plan->n_vocab;
}

/* A batch of n[s] rows of each stream up to position last[s]. Row i's logits go to logits + i * V. */
static void deep_forward(const struct backend *b, struct backend_model *m, const struct again *a, float *logits)
{
    static int32_t pages[N_STREAMS][DEEPEST / KV_PAGE_TOKENS + 1];
    int32_t tokens[DEEP_CHUNK], pos[DEEP_CHUNK], seq[DEEP_CHUNK], rows[DEEP_CHUNK], n = 0, page = 0;
    const int32_t *tables[N_STREAMS];
    struct backend_row_stats stats[DEEP_CHUNK];
    for (int32_t s = 0; s < N_STREAMS; s++) {
        for (int32_t i = 0; i <= (depths[s] - 1) / KV_PAGE_TOKENS; i++) {
            pages[s][i] = page++ * 7 % DEEP_PAGES; /* in no order; 7 is no divisor */
        }
        tables[s] = pages[s];
        for (int32_t i = 0; i < a->n[s]; i++) {
            pos[n] = a->last[s] - a->n[s] + 1 + i;
            tokens[n] = deep_token(s, pos[n]);
            seq[n] = s;
            rows[n] = n;
            n++;
        }
    }
    ck_assert_int_le(page, DEEP_PAGES);
    struct backend_batch batch = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = N_STREAMS,
                                  .page_tables = tables,
                                  .n_logits = n,
                                  .logit_rows = rows,
                                  .logits = logits,
                                  .stats = stats};
    struct err_info info = {0};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
}

/* Computes stream s as a prompt; logits of all its rows, [depths[s]][V]. */
static void deep_prefill(const struct backend *b, struct backend_model *m, int s, float *logits)
{
    for (int32_t to = 0, n; to < depths[s]; to += n) {
        struct again a = {.n = {0}};
        n = a.n[s] = MIN_OF(DEEP_CHUNK, depths[s] - to);
        a.last[s] = to + n - 1;
        deep_forward(b, m, &a, logits + (size_t)to * plan->n_vocab);
    }
}

/* The logits of the longest stream by ref, [DEEPEST][V]; ref has no threads, no segments, no ISA. */
static void deep_reference(float *logits)
{
    struct backend_model *m = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {
        .n_threads = 1, .n_pages = DEEP_PAGES, .max_rows = DEEP_CHUNK, .max_logits = DEEP_CHUNK};
    ck_assert_msg(backend_ref.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    deep_prefill(&backend_ref, m, 0, logits);
    backend_ref.close(&m);
}

/* The largest error of a logit beyond position 2000 as a share of the logits' spread in that row, as golden.c has it.
 */
static double deep_error(const float *got, const float *want)
{
    double worst = 0;
    size_t n_vocab = plan->n_vocab;
    for (size_t row = 2000; row < DEEPEST; row++) {
        const float *g = got + row * n_vocab, *w = want + row * n_vocab;
        double mean = 0, var = 0, off = 0;
        for (size_t v = 0; v < n_vocab; v++) {
            mean += w[v] / (double)n_vocab;
        }
        for (size_t v = 0; v < n_vocab; v++) {
            var += (w[v] - mean) * (w[v] - mean) / (double)n_vocab;
            off = fmax(off, isfinite(g[v]) ? fabs((double)g[v] - w[v]) : INFINITY);
        }
        worst = fmax(worst, off / sqrt(var));
    }
    return worst;
}

/* Computes rows again and compares their bits with those of the prompts. */
static void deep_again(struct backend_model *m, int n_threads, const struct again *a, float *const *prompt)
{
    float *got = malloc((size_t)N_STREAMS * MAX_AGAIN * plan->n_vocab * sizeof *got);
    deep_forward(&backend_cpu, m, a, got);
    size_t row = 0;
    for (int s = 0; s < N_STREAMS; s++) {
        for (int32_t i = 0; i < a->n[s]; i++, row++) {
            size_t pos = (size_t)(a->last[s] - a->n[s] + 1 + i);
            const float *g = got + row * plan->n_vocab, *w = prompt[s] + pos * plan->n_vocab;
            for (size_t v = 0; v < plan->n_vocab; v++) {
                if (memcmp(&g[v], &w[v], sizeof *g) != 0) {
                    ck_abort_msg("%d threads, case %td, stream %d, position %zu, logit %zu: %.9g, as a prompt %.9g",
                                 n_threads, a - agains, s, pos, v, (double)g[v], (double)w[v]);
                }
            }
        }
    }
    free(got);
}

/* The streams as prompts, and rows of them again, with n_ways numbers of threads: each cuts blocks in other pieces. */
static void deep_check(const char *cpu, enum kv_type type, int n_ways, float *const *prompt)
{
    static const int threads[] = {1, 3, 2};
    for (int t = 0; t < n_ways; t++) {
        struct backend_model *m = NULL;
        struct err_info info = {0};
        struct backend_config cfg = {.cpu = cpu,
                                     .high_precision = true,
                                     .n_threads = threads[t],
                                     .n_pages = DEEP_PAGES,
                                     .max_rows = DEEP_CHUNK,
                                     .max_logits = DEEP_CHUNK,
                                     .k_type = kv_type_name((int)type),
                                     .v_type = kv_type_name((int)type)};
        ck_assert_msg(backend_cpu.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
        float *more = malloc((size_t)DEEPEST * plan->n_vocab * sizeof *more);
        for (int s = 0; s < N_STREAMS; s++) {
            deep_prefill(&backend_cpu, m, s, t == 0 ? prompt[s] : more);
            size_t bytes = (size_t)depths[s] * plan->n_vocab * sizeof *more;
            ck_assert_msg(t == 0 || memcmp(more, prompt[s], bytes) == 0, "%d threads: stream %d differs", threads[t],
                          s);
        }
        for (size_t i = 0; i < ARRAY_LEN(agains); i++) {
            deep_again(m, threads[t], &agains[i], prompt);
        }
        free(more);
        backend_cpu.close(&m);
    }
}

/* The first one is held against ref too: what the other KV types are off is measured on a real model. */
static const struct {
    const char *cpu;
    enum kv_type type;
} deep_subjects[] = {{NULL, KV_TYPE_I16}, {"avx2", KV_TYPE_I16}, {NULL, KV_TYPE_F16}, {"avx2", KV_TYPE_Q8_0}};

START_TEST(a_row_after_a_long_context_is_that_of_the_prompt)
{
    static const char *const models[] = {"llama-gqa-tied", "gemma3-window"};
    char path[80];
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", models[_i]);
    struct err_info info = {0};
    ck_assert_msg(gguf_open(path, &file, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(file, 0, &plan, &info) == ERR_OK, "%s", info.text);
    float *prompt[N_STREAMS], *truth = malloc((size_t)DEEPEST * plan->n_vocab * sizeof *truth);
    for (int s = 0; s < N_STREAMS; s++) {
        prompt[s] = malloc((size_t)depths[s] * plan->n_vocab * sizeof **prompt);
    }
    for (size_t i = 0; i < (_i == 0 ? ARRAY_LEN(deep_subjects) : 1); i++) {
        if (!has_cpu(deep_subjects[i].cpu)) {
            continue;
        }
        deep_check(deep_subjects[i].cpu, deep_subjects[i].type, i == 0 ? 3 : 2, prompt);
        if (i == 0 && _i == 0) {
            deep_reference(truth);
            double error = deep_error(prompt[0], truth);
            ck_assert_msg(error <= 2e-2, "off ref by %g of the logits' spread, allowed 0.02", error); /* as golden.c */
        }
    }
    for (int s = 0; s < N_STREAMS; s++) {
        free(prompt[s]);
    }
    free(truth);
    teardown();
}
END_TEST

/* What the KV types cost in memory. */
START_TEST(a_page_is_as_large_as_its_types_say)
{
    static const size_t bits[KV_TYPE_COUNT] = {17, 16, 16, 9, 5}; /* of a component, scales included, at most */
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        struct kv_layout l = kv_layout_of((enum kv_type)type, (enum kv_type)type, 64, 32);
        size_t components = (64 + 32) * KV_PAGE_TOKENS;
        ck_assert_uint_le(l.bytes * 8, components * bits[type]);
        ck_assert_uint_gt(l.bytes * 8, components * (bits[type] - 1));
    }
    ck_assert_ptr_null(kv_type_name(KV_TYPE_COUNT));
}
END_TEST

Suite *cpu_attention_suite(void)
{
    Suite *s = suite_create("cpu_attention");
    TCase *c = tcase_create("bits");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, neither_chunks_nor_threads_nor_neighbours_show, 0, 7);
    tcase_add_test(c, a_page_is_as_large_as_its_types_say);
    suite_add_tcase(s, c);
    TCase *deep = tcase_create("depth");
    tcase_set_tags(deep, "long"); /* tests/run.sh */
    tcase_add_loop_test(deep, a_row_after_a_long_context_is_that_of_the_prompt, 0, 2);
    suite_add_tcase(s, deep);
    return s;
}
