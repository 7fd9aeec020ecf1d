/* Experts of a GGUF file: gate and up of all in a tensor each, or, as the peer's converter may write them, of each
 * expert one after the other in one tensor. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *blocks_moe_suite(void);

enum { D = 32, H = 4, HEAD = 8, E = 3, FE = 6, V = 20 };

/* How the file has gate and up. */
struct options {
    const char *arch;
    bool is_fused;
    uint32_t rows; /* of an expert's gate and up together */
};

/* Row r of a tensor is r everywhere. */
static void put_tensor(struct gguf_writer *w, const char *name, uint64_t columns, uint64_t rows, uint64_t n)
{
    static float data[E * 2 * FE * D];
    const uint64_t dims[3] = {columns, rows, n};
    ck_assert_uint_le(columns * rows * n, ARRAY_LEN(data));
    for (uint64_t i = 0; i < columns * rows * n; i++) {
        data[i] = (float)(i / columns);
    }
    gguf_writer_tensor(w, name, DTYPE_F32, n > 1 ? 3 : rows > 1 ? 2 : 1, dims, data);
}

static void put_u32(struct gguf_writer *w, const char *arch, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    gguf_writer_u32(w, full, value);
}

static void put_keys(struct gguf_writer *w, const char *arch)
{
    char key[96];
    gguf_writer_str(w, "general.architecture", arch);
    put_u32(w, arch, "embedding_length", D);
    put_u32(w, arch, "block_count", 1);
    put_u32(w, arch, "context_length", 64);
    put_u32(w, arch, "feed_forward_length", FE);
    put_u32(w, arch, "attention.head_count", H);
    put_u32(w, arch, "attention.key_length", HEAD);
    put_u32(w, arch, "expert_count", E);
    put_u32(w, arch, "expert_used_count", 2);
    put_u32(w, arch, "expert_feed_forward_length", FE);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_writer_f32(w, key, 1e-6f);
}

/* The plan borrows its data from *g and *bytes. */
static enum err build(const struct options *o, struct gguf **g, struct buf *bytes, struct plan **p,
                      struct err_info *info)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    buf_init(bytes, 0, MEM_GENERAL);
    put_keys(&w, o->arch);
    put_tensor(&w, "token_embd.weight", D, V, 1);
    put_tensor(&w, "output_norm.weight", D, 1, 1);
    put_tensor(&w, "blk.0.attn_norm.weight", D, 1, 1);
    put_tensor(&w, "blk.0.attn_q.weight", D, H * HEAD, 1);
    put_tensor(&w, "blk.0.attn_k.weight", D, H * HEAD, 1);
    put_tensor(&w, "blk.0.attn_v.weight", D, H * HEAD, 1);
    put_tensor(&w, "blk.0.attn_q_norm.weight", HEAD, 1, 1);
    put_tensor(&w, "blk.0.attn_k_norm.weight", HEAD, 1, 1);
    put_tensor(&w, "blk.0.attn_output.weight", H * HEAD, D, 1);
    put_tensor(&w, "blk.0.ffn_norm.weight", D, 1, 1);
    put_tensor(&w, "blk.0.ffn_gate_inp.weight", D, E, 1);
    put_tensor(&w, "blk.0.ffn_down_exps.weight", FE, D, E);
    if (o->is_fused) {
        put_tensor(&w, "blk.0.ffn_gate_up_exps.weight", D, o->rows, E);
    } else {
        put_tensor(&w, "blk.0.ffn_gate_exps.weight", D, FE, E);
        put_tensor(&w, "blk.0.ffn_up_exps.weight", D, FE, E);
    }
    gguf_writer_finish(&w, bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(bytes), ERR_OK);
    enum err err = gguf_open_memory(bytes->data, bytes->len, g, info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info->text);
    return model_build(*g, 0, p, info);
}

static const struct plan_step *find_experts(const struct plan *p)
{
    int32_t i = 0;
    while (i < p->n_steps && p->steps[i].op != PLAN_EXPERTS) {
        i++;
    }
    ck_assert_int_lt(i, p->n_steps);
    return &p->steps[i];
}

START_TEST(gate_and_up_are_where_the_file_has_them)
{
    static const struct options cases[] = {
        {"qwen3moe", false, 0}, {"qwen3moe", true, 2 * FE}, {"llama", false, 0}, {"llama", true, 2 * FE}};
    const struct options *o = &cases[_i];
    struct gguf *g = NULL;
    struct buf bytes;
    struct plan *p = NULL;
    struct err_info info = {0};
    ck_assert_msg(build(o, &g, &bytes, &p, &info) == ERR_OK, "%s", info.text);
    const struct plan_step *experts = find_experts(p);
    for (uint32_t k = 0; k < 2; k++) {
        const struct plan_weight *w = &p->weights[experts->w[k]];
        ck_assert(w->n_out == E * FE && w->n_in == D);
        for (uint32_t r = 0; r < E * FE; r++) {
            uint32_t want = o->is_fused ? r / FE * 2 * FE + k * FE + r % FE : r;
            uint64_t stride;
            const float *row = row_source_rows(w->source, r, 1, NULL, &stride); /* they lie in the file */
            ck_assert_msg(row[0] == (float)want && row[D - 1] == (float)want, "%s: row %u: expected %u, found %g",
                          w->name, r, want, (double)row[0]);
        }
    }
    plan_free(&p);
    gguf_close(&g);
    buf_fini(&bytes);
}
END_TEST

START_TEST(one_tensor_of_another_shape_is_refused)
{
    struct gguf *g = NULL;
    struct buf bytes;
    struct plan *p = NULL;
    struct err_info info = {0};
    enum err err = build(&(struct options){"qwen3moe", true, 2 * FE - 1}, &g, &bytes, &p, &info);
    ck_assert_int_eq(err, ERR_BAD_TENSOR_SHAPE);
    ck_assert_msg(strstr(info.text, "blk.0.ffn_gate_up_exps.weight: expected [32, 12, 3], found [32, 11, 3]") != NULL,
                  "%s", info.text);
    ck_assert_ptr_null(p);
    gguf_close(&g);
    buf_fini(&bytes);
}
END_TEST

Suite *blocks_moe_suite(void)
{
    Suite *s = suite_create("blocks_moe");
    TCase *c = tcase_create("blocks_moe");
    tcase_add_loop_test(c, gate_and_up_are_where_the_file_has_them, 0, 4);
    tcase_add_test(c, one_tensor_of_another_shape_is_refused);
    suite_add_tcase(s, c);
    return s;
}
