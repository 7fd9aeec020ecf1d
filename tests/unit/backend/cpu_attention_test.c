/* Attention of the CPU back end over long contexts: chunks, batches, threads and splits into segments, for every KV
 * type, must not show in a single bit of the logits. */
#include "engine/backend/backend.h"

#include "engine/base/compiler.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *cpu_attention_suite(void);

enum { N = 540, N_PAGES = 3 * (N / BACKEND_PAGE_TOKENS + 1), MAX_VOCAB = 1024, LAST = 5 };

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
    ck_assert_msg(model_build(file, &plan, &info) == ERR_OK, "%s", info.text);
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
    ck_assert_int_eq(backend_cpu.forward(m, &batch, &info), ERR_OK);
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
                                 .k_type = k_type,
                                 .v_type = v_type};
    ck_assert_msg(backend_cpu.open(plan, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int from = 0, n; from < N; from += n) {
        n = from >= N - LAST ? 1 : MIN_OF(w->chunk, N - LAST - from);
        forward(m, w, from, n, logits + (size_t)from * plan->n_vocab);
    }
    backend_cpu.close(&m);
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
    struct backend_model *probe = NULL;
    struct err_info info = {0};
    struct backend_config cfg = {.cpu = subjects[_i].cpu, .n_threads = 1, .n_pages = 1, .max_rows = 1, .max_logits = 1};
    if (backend_cpu.open(plan, &cfg, &probe, &info) == ERR_OK) { /* this CPU has it */
        backend_cpu.close(&probe);
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

/* What the KV types cost in memory. */
START_TEST(a_page_is_as_large_as_its_types_say)
{
    static const size_t bits[KV_TYPE_COUNT] = {17, 16, 16, 9, 5}; /* of a component, scales included, at most */
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        struct kv_layout l = kv_layout_of((enum kv_type)type, (enum kv_type)type, 64);
        size_t components = 2 * 64 * BACKEND_PAGE_TOKENS;
        ck_assert_uint_le(l.bytes * 8, components * bits[type]);
        ck_assert_uint_gt(l.bytes * 8, components * (bits[type] - 1));
        ck_assert_int_eq(kv_type_find(kv_type_name(type)), type);
    }
    ck_assert_ptr_null(kv_type_name(KV_TYPE_COUNT));
    ck_assert_int_eq(kv_type_find("f32"), KV_TYPE_COUNT);
}
END_TEST

Suite *cpu_attention_suite(void)
{
    Suite *s = suite_create("cpu_attention");
    TCase *c = tcase_create("bits");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, neither_chunks_nor_threads_nor_neighbours_show, 0, 7);
    tcase_add_test(c, a_page_is_as_large_as_its_types_say);
    suite_add_tcase(s, c);
    return s;
}
