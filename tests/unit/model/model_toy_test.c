/* A family that is not in the program: one builder and one row of a table. What it builds runs on every back end. */
#include "engine/backend/backend.h"
#include "engine/base/rng.h"
#include "engine/model/blocks.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *model_toy_suite(void);

/* --- the family: Llama's decoder without RoPE, with ReLU, and with half of what the blocks add ------------------- */

static enum err toy_build(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.act = PLAN_RELU;
    b->style.residual_scale = 0.5f;
    memset(b->style.is_nope, true, sizeof b->style.is_nope);
    return blocks_build_decoder(b);
}

static const struct model_family toy = {.members = "none", .arch = "toy", .build = toy_build};

static const struct model_family *const table[] = {&toy, NULL}; /* the row */

/* --- a file of it ------------------------------------------------------------------------------------------------ */

enum { D = 16, F = 24, V = 20, HEAD = 8, L = 2, N_TOKENS = 5 };

/* Some converters write numbers as arrays, and all tensors with the same number of dimensions. */
static bool is_padded;

static void put_number(struct gguf_writer *w, const char *key, uint32_t n, uint32_t n_padded)
{
    if (is_padded) {
        gguf_writer_array(w, key, GGUF_U32, n_padded, (uint32_t[]){n, n});
    } else {
        gguf_writer_u32(w, key, n);
    }
}

static void put_tensor(struct gguf_writer *w, const char *name, uint64_t rows, uint64_t cols, uint32_t stream)
{
    static float data[V * F];
    ck_assert_uint_le(rows * cols, V * F);
    for (uint64_t i = 0; i < rows * cols; i++) {
        data[i] = rows == 1 ? 1.0f : (float)(rng_uniform(7, stream, i) - 0.5);
    }
    gguf_writer_tensor(w, name, DTYPE_F32, is_padded ? 4 : rows == 1 ? 1 : 2, (uint64_t[4]){cols, rows, 1, 1}, data);
}

static void make_file(struct buf *out)
{
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } tensors[] = {{"attn_norm", 1, D}, {"attn_q", D, D},      {"attn_k", HEAD, D},
                   {"attn_v", HEAD, D}, {"attn_output", D, D}, {"ffn_norm", 1, D},
                   {"ffn_gate", F, D},  {"ffn_up", F, D},      {"ffn_down", D, F}};
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "toy");
    gguf_writer_u32(&w, "toy.embedding_length", D);
    gguf_writer_u32(&w, "toy.block_count", L);
    gguf_writer_u32(&w, "toy.context_length", 64);
    put_number(&w, "toy.feed_forward_length", F, L);
    put_number(&w, "toy.attention.head_count", D / HEAD, 1);
    put_number(&w, "toy.attention.head_count_kv", 1, 1);
    gguf_writer_f32(&w, "toy.attention.layer_norm_rms_epsilon", 1e-5f);
    put_tensor(&w, "token_embd.weight", V, D, 0);
    for (int i = 0; i < L; i++) {
        for (size_t k = 0; k < ARRAY_LEN(tensors); k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, tensors[k].name);
            put_tensor(&w, name, tensors[k].rows, tensors[k].cols, (uint32_t)(100 * (i + 1) + (int)k));
        }
    }
    put_tensor(&w, "output_norm.weight", 1, D, 1);
    gguf_writer_finish(&w, out);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(out), ERR_OK);
}

/* --- it runs ----------------------------------------------------------------------------------------------------- */

static void run(const struct plan *p, const struct backend *backend, float logits[N_TOKENS * V])
{
    const int32_t tokens[N_TOKENS] = {3, 14, 15, 9, 2}, pos[N_TOKENS] = {0, 1, 2, 3, 4}, seq[N_TOKENS] = {0};
    const int32_t rows[N_TOKENS] = {0, 1, 2, 3, 4}, pages[] = {1}, *const tables[] = {pages};
    struct backend_config cfg = {
        .n_threads = 1, .n_pages = 2, .max_rows = N_TOKENS, .max_logits = N_TOKENS, .high_precision = true};
    struct backend_row_stats stats[N_TOKENS];
    struct backend_batch b = {.n_rows = N_TOKENS,
                              .tokens = tokens,
                              .pos = pos,
                              .seq = seq,
                              .n_seqs = 1,
                              .page_tables = tables,
                              .n_logits = N_TOKENS,
                              .logit_rows = rows,
                              .logits = logits,
                              .stats = stats};
    struct backend_model *m;
    struct err_info info = {0};
    ck_assert_msg(backend->open(p, &cfg, &m, &info) == ERR_OK, "%s: %s", backend->name, info.text);
    ck_assert_msg(backend_compute(backend, m, &b, &info) == ERR_OK, "%s: %s", backend->name, info.text);
    backend->close(&m);
}

START_TEST(a_builder_and_a_row_make_a_family)
{
    struct buf file;
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    buf_init(&file, 0, MEM_GENERAL);
    make_file(&file);
    ck_assert_msg(gguf_open_memory(file.data, file.len, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build_from(table, g, 0, false, &p, &info) == ERR_OK, "%s", info.text);
    float truth[N_TOKENS * V], found[N_TOKENS * V], low = 0, high = 0;
    run(p, &backend_ref, truth);
    for (int i = 0; i < N_TOKENS * V; i++) {
        low = fminf(low, truth[i]);
        high = fmaxf(high, truth[i]);
    }
    ck_assert_float_gt(high - low, 1); /* it says something */
    for (int i = 0; backend_at(i) != NULL; i++) {
        run(p, backend_at(i), found);
        for (int k = 0; k < N_TOKENS * V; k++) {
            ck_assert_msg(fabsf(found[k] - truth[k]) < 0.01f * (high - low), "%s: logit %d: %g, expected %g",
                          backend_at(i)->name, k, (double)found[k], (double)truth[k]);
        }
    }
    plan_free(&p);
    gguf_close(&g);
    buf_fini(&file);
}
END_TEST

START_TEST(arrays_of_one_value_and_dimensions_of_1_are_the_same_model)
{
    float logits[2][N_TOKENS * V];
    for (int i = 0; i < 2; i++) {
        struct buf file;
        struct gguf *g;
        struct plan *p;
        struct err_info info = {0};
        buf_init(&file, 0, MEM_GENERAL);
        is_padded = i == 1;
        make_file(&file);
        ck_assert_msg(gguf_open_memory(file.data, file.len, &g, &info) == ERR_OK, "%s", info.text);
        ck_assert_msg(model_build_from(table, g, 0, false, &p, &info) == ERR_OK, "%s", info.text);
        run(p, &backend_ref, logits[i]);
        plan_free(&p);
        gguf_close(&g);
        buf_fini(&file);
    }
    is_padded = false;
    ck_assert_mem_eq(logits[0], logits[1], sizeof logits[0]);
}
END_TEST

START_TEST(the_programs_own_table_does_not_know_it)
{
    struct buf file;
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    buf_init(&file, 0, MEM_GENERAL);
    make_file(&file);
    ck_assert_msg(gguf_open_memory(file.data, file.len, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(model_build(g, 0, &p, &info), ERR_UNSUPPORTED_ARCH);
    ck_assert_msg(strstr(info.text, "'toy'") != NULL, "%s", info.text);
    for (int i = 0; model_family_at(i) != NULL; i++) {
        ck_assert_msg(strstr(info.text, model_family_at(i)->arch) != NULL, "'%s' lacks %s", info.text,
                      model_family_at(i)->arch);
    }
    gguf_close(&g);
    buf_fini(&file);
}
END_TEST

Suite *model_toy_suite(void)
{
    Suite *s = suite_create("model_toy");
    TCase *c = tcase_create("model_toy");
    tcase_set_tags(c, "fork");
    tcase_add_test(c, a_builder_and_a_row_make_a_family);
    tcase_add_test(c, arrays_of_one_value_and_dimensions_of_1_are_the_same_model);
    tcase_add_test(c, the_programs_own_table_does_not_know_it);
    suite_add_tcase(s, c);
    return s;
}
