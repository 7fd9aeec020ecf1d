/* Weights that are packed after open: batches have the same bits while none, some and all of them are packed; in the end
 * the packed bytes are those of an open that packs everything, and every file page was reported as done. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *cpu_weights_suite(void);

enum { N_PAGES = 6, MAX_ROWS = CPU_TILE_ROWS + 8, MAX_VOCAB = 1024 };

static const char *const models[] = {"llama-quants.gguf",   "deepseek2-v2.gguf",    "gemma3-local.gguf",
                                     "gemma3n-sparse.gguf", "qwen3next-delta.gguf", "llama-mixtral.gguf"};

static struct gguf *file;
static struct plan *plan;

static void open_plan(const char *name)
{
    char path[128];
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    ck_assert_msg(gguf_open(path, &file, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(file, 0, &plan, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_le(plan->n_vocab, MAX_VOCAB);
    for (size_t i = 0; i < gguf_map(file)->bytes; i += 512) { /* so that it is in memory */
        (void)*(const volatile unsigned char *)(gguf_map(file)->data + i);
    }
}

static void close_plan(void)
{
    plan_free(&plan);
    gguf_close(&file);
}

static bool is_cancelled;

static bool on_progress(void *arg, float fraction)
{
    (void)arg;
    ck_assert(fraction >= 0 && fraction <= 1);
    return !is_cancelled;
}

static bool is_truncated;

static bool has_file(void *arg)
{
    (void)arg;
    return !is_truncated;
}

static atomic_size_t n_done; /* bytes of the file that are reported as done, also repeatedly */

static void on_done(void *arg, const void *data, uint64_t n)
{
    (void)arg;
    const unsigned char *first = gguf_map(file)->data, *at = data;
    bool is_of_file = at >= first && at < first + gguf_map(file)->bytes; /* Gemma 3n's plan has rows of its own */
    ck_assert(!is_of_file || n <= gguf_map(file)->bytes - (size_t)(at - first));
    atomic_fetch_add(&n_done, is_of_file ? (size_t)n : 0);
}

/* Opens plan. eager_bytes: as in backend_config. */
static enum err open_model(size_t eager_bytes, int n_threads, struct backend_model **m)
{
    struct err_info info = {0};
    const struct backend_config cfg = {.n_threads = n_threads,
                                       .n_pages = N_PAGES,
                                       .n_states = 1,
                                       .max_rows = MAX_ROWS,
                                       .max_logits = MAX_ROWS,
                                       .eager_bytes = eager_bytes,
                                       .progress = on_progress,
                                       .has_file = has_file,
                                       .weight_done = on_done};
    return backend_cpu.open(plan, &cfg, m, &info);
}

static bool is_behind(const struct backend_model *m)
{
    struct backend_info bi;
    backend_cpu.info(m, &bi);
    return bi.behind_ns != 0;
}

struct result {
    float logits[MAX_ROWS * MAX_VOCAB];
    struct backend_row_stats stats[MAX_ROWS];
};

/* Computes rows [from, from + n) of a sequence. */
static enum err try_compute(struct backend_model *m, int from, int n, struct result *out, struct err_info *info)
{
    static const int32_t pages[N_PAGES] = {0, 1, 2, 3, 4, 5}, *const tables[] = {pages};
    int32_t tokens[MAX_ROWS], pos[MAX_ROWS], seq[MAX_ROWS] = {0}, rows[MAX_ROWS];
    for (int i = 0; i < n; i++) {
        tokens[i] = (int32_t)((uint32_t)(from + i) * 7919u % plan->n_vocab);
        pos[i] = from + i;
        rows[i] = i;
    }
    const struct backend_batch batch = {.n_rows = n,
                                        .tokens = tokens,
                                        .pos = pos,
                                        .seq = seq,
                                        .n_seqs = 1,
                                        .page_tables = tables,
                                        .n_logits = n,
                                        .logit_rows = rows,
                                        .logits = out->logits,
                                        .stats = out->stats};
    return backend_compute(&backend_cpu, m, &batch, info);
}

static void compute(struct backend_model *m, int from, int n, struct result *out)
{
    struct err_info info = {0};
    ck_assert_msg(try_compute(m, from, n, out, &info) == ERR_OK, "%s", info.text);
}

/* Computes the rows on both models. */
static void expect_same(struct backend_model *eager, struct backend_model *later, int from, int n)
{
    static struct result wanted, got;
    compute(eager, from, n, &wanted);
    compute(later, from, n, &got);
    ck_assert_msg(memcmp(wanted.logits, got.logits, (size_t)n * plan->n_vocab * sizeof(float)) == 0 &&
                      memcmp(wanted.stats, got.stats, (size_t)n * sizeof *got.stats) == 0,
                  "%d rows at %d with %zu slices packed", n, from, later->later.n_packed);
}

static void expect_same_weights(const struct backend_model *a, const struct backend_model *b)
{
    ck_assert_uint_eq(a->bytes.weights, b->bytes.weights);
    ck_assert(memcmp(a->packed, b->packed, a->bytes.weights) == 0);
}

START_TEST(batches_have_the_same_bits_before_during_and_after_packing)
{
    struct backend_model *eager, *later;
    open_plan(models[_i]);
    ck_assert_int_eq(open_model(0, 2, &eager), ERR_OK);
    ck_assert(!is_behind(eager) && !backend_cpu.idle(eager));
    atomic_store(&n_done, 0);
    ck_assert_int_eq(open_model(1, 2, &later), ERR_OK);
    ck_assert(is_behind(later));
    ck_assert_uint_eq(later->later.n_packed, 0);
    expect_same(eager, later, 0, 20); /* all from the file; with all packed it would run by rows */
    later->later.batch_ns = 0;        /* so that only idle packs */
    ck_assert(backend_cpu.idle(later));
    ck_assert_uint_gt(later->later.n_packed, 0);
    expect_same(eager, later, 20, 1); /* some from the file */
    while (backend_cpu.idle(later)) {
    }
    ck_assert(!is_behind(later));
    expect_same(eager, later, 21, 5);
    expect_same_weights(eager, later);
    ck_assert_uint_ge(atomic_load(&n_done), later->bytes.weights / 2); /* panels can be padded */
    backend_cpu.close(&eager);
    backend_cpu.close(&later);
    close_plan();
}
END_TEST

START_TEST(a_long_batch_packs_everything_first)
{
    struct backend_model *eager, *later;
    open_plan(models[0]);
    ck_assert_int_eq(open_model(0, 1, &eager), ERR_OK);
    ck_assert_int_eq(open_model(1, 3, &later), ERR_OK);
    expect_same(eager, later, 0, MAX_ROWS);
    ck_assert(!is_behind(later));
    expect_same_weights(eager, later);
    backend_cpu.close(&eager);
    backend_cpu.close(&later);
    close_plan();
}
END_TEST

/* A batch packs for as long as the one before it took. */
START_TEST(batches_pack_without_a_pause)
{
    struct backend_model *eager, *later;
    open_plan(models[0]);
    ck_assert_int_eq(open_model(0, 1, &eager), ERR_OK);
    ck_assert_int_eq(open_model(1, 1, &later), ERR_OK);
    for (int i = 0; is_behind(later); i++) {
        expect_same(eager, later, i % (N_PAGES * KV_PAGE_TOKENS), 1);
    }
    expect_same_weights(eager, later);
    backend_cpu.close(&eager);
    backend_cpu.close(&later);
    close_plan();
}
END_TEST

START_TEST(a_truncated_file_is_not_read)
{
    static struct result out;
    struct backend_model *eager, *later;
    struct err_info info = {0};
    open_plan(models[0]);
    ck_assert_int_eq(open_model(0, 1, &eager), ERR_OK);
    ck_assert_int_eq(open_model(1, 2, &later), ERR_OK);
    is_truncated = true;
    ck_assert(!backend_cpu.idle(later));
    ck_assert_uint_eq(later->later.n_packed, 0);
    ck_assert_int_eq(try_compute(later, 0, 1, &out, &info), ERR_IO);
    ck_assert_ptr_nonnull(strstr(info.text, "has become shorter"));
    is_truncated = false;
    while (backend_cpu.idle(later)) {
    }
    is_truncated = true; /* no longer needed */
    expect_same(eager, later, 0, 1);
    is_truncated = false;
    backend_cpu.close(&eager);
    backend_cpu.close(&later);
    close_plan();
}
END_TEST

START_TEST(small_models_are_packed_by_open)
{
    struct backend_model *m;
    open_plan(models[0]);
    ck_assert_int_eq(open_model(1 << 30, 1, &m), ERR_OK);
    ck_assert(!is_behind(m));
    backend_cpu.close(&m);
    close_plan();
}
END_TEST

START_TEST(a_model_that_is_behind_can_be_closed)
{
    open_plan(models[0]);
    size_t live = mem_live();
    struct backend_model *m;
    for (int n_idle = 0; n_idle < 3; n_idle++) {
        ck_assert_int_eq(open_model(1, 2, &m), ERR_OK);
        for (int i = 0; i < n_idle; i++) {
            ck_assert(backend_cpu.idle(m));
        }
        backend_cpu.close(&m);
        ck_assert_uint_eq(mem_live(), live);
    }
    is_cancelled = true;
    ck_assert_int_eq(open_model(1, 2, &m), ERR_CANCELLED);
    is_cancelled = false;
    ck_assert_uint_eq(mem_live(), live);
    close_plan();
}
END_TEST

START_TEST(memory_that_ends_at_any_step_is_reported)
{
    open_plan(models[0]);
    size_t live = mem_live();
    int n_faults = 0;
    bool fired = true;
    for (long n = 0; fired; n++) {
        struct backend_model *m;
        mem_fail_at(n);
        enum err err = open_model(1, 2, &m);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, fired ? ERR_NOMEM : ERR_OK);
        n_faults += fired;
        backend_cpu.close(&m);
        ck_assert_uint_eq(mem_live(), live);
    }
    ck_assert_int_ge(n_faults, 5);
    close_plan();
}
END_TEST

Suite *cpu_weights_suite(void)
{
    Suite *s = suite_create("cpu_weights");
    TCase *c = tcase_create("later");
    tcase_add_loop_test(c, batches_have_the_same_bits_before_during_and_after_packing, 0, ARRAY_LEN(models));
    tcase_add_test(c, a_long_batch_packs_everything_first);
    tcase_add_test(c, batches_pack_without_a_pause);
    tcase_add_test(c, a_truncated_file_is_not_read);
    tcase_add_test(c, small_models_are_packed_by_open);
    tcase_add_test(c, a_model_that_is_behind_can_be_closed);
    tcase_add_test(c, memory_that_ends_at_any_step_is_reported);
    suite_add_tcase(s, c);
    return s;
}
