/* LFM2: which layers have a short convolution, what it is built of, and files that contradict themselves. That the plan
 * computes the right thing is the golden tests' part. */
#include "engine/model/model.h"
#include "tests/support/gguf_writer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *lfm2_suite(void);

enum { LAYERS = 4, D = 32, H = 4, K = 2, HEAD = D / H, F = 48, V = 40, TAPS = 3 };

struct options {
    int32_t kv_heads[LAYERS];
    uint64_t n_kv_heads; /* elements of the array */
    uint32_t taps;
    const char *missing; /* a tensor that is left out */
    bool is_encoder, has_plain_norm;
};

static const struct options good = {.kv_heads = {0, 0, K, 0}, .n_kv_heads = LAYERS, .taps = TAPS};

static void put_tensor(struct gguf_writer *w, const struct options *o, const char *name, uint64_t columns,
                       uint64_t rows)
{
    const uint64_t dims[2] = {columns, rows};
    if (o->missing == NULL || strcmp(o->missing, name) != 0) {
        gguf_writer_tensor(w, name, DTYPE_F32, rows == 1 ? 1 : 2, dims, NULL);
    }
}

static void put_layer(struct gguf_writer *w, const struct options *o, uint32_t layer)
{
    static const struct {
        const char *name;
        uint64_t columns, rows;
        int kind; /* of all layers, of those with attention, of those with a convolution */
    } tensors[] = {
        {"attn_norm", D, 1, 0},         {"ffn_norm", D, 1, 0},
        {"ffn_gate", D, F, 0},          {"ffn_up", D, F, 0},
        {"ffn_down", F, D, 0},          {"attn_q", D, D, 1},
        {"attn_k", D, K * HEAD, 1},     {"attn_v", D, K * HEAD, 1},
        {"attn_output", D, D, 1},       {"attn_q_norm", HEAD, 1, 1},
        {"attn_k_norm", HEAD, 1, 1},    {"shortconv.in_proj", D, 3 * D, 2},
        {"shortconv.conv", TAPS, D, 2}, {"shortconv.out_proj", D, D, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        if (tensors[i].kind == 0 || tensors[i].kind == (good.kv_heads[layer] != 0 ? 1 : 2)) {
            put_tensor(w, o, name, tensors[i].columns, tensors[i].rows);
        }
    }
}

/* The file of the last plan, in which its weights are. */
static struct buf opened_bytes;
static struct gguf *opened;

static void close_file(void)
{
    gguf_close(&opened);
    buf_fini(&opened_bytes);
}

static enum err build(const struct options *o, struct plan **p, struct err_info *info)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    buf_init(&opened_bytes, 0, MEM_GENERAL);
    gguf_writer_str(&w, "general.architecture", "lfm2");
    gguf_writer_u32(&w, "lfm2.embedding_length", D);
    gguf_writer_u32(&w, "lfm2.block_count", LAYERS);
    gguf_writer_u32(&w, "lfm2.context_length", 256);
    gguf_writer_u32(&w, "lfm2.feed_forward_length", F);
    gguf_writer_u32(&w, "lfm2.attention.head_count", H);
    gguf_writer_array(&w, "lfm2.attention.head_count_kv", GGUF_I32, o->n_kv_heads, o->kv_heads);
    gguf_writer_f32(&w, "lfm2.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_writer_u32(&w, "lfm2.shortconv.l_cache", o->taps);
    if (o->is_encoder) {
        gguf_writer_bool(&w, "lfm2.attention.causal", false);
    }
    put_tensor(&w, o, "token_embd.weight", D, V);
    put_tensor(&w, o, o->has_plain_norm ? "output_norm.weight" : "token_embd_norm.weight", D, 1);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_layer(&w, o, i);
    }
    gguf_writer_finish(&w, &opened_bytes);
    gguf_writer_fini(&w);
    ck_assert_int_eq(buf_ok(&opened_bytes), ERR_OK);
    enum err err = gguf_open_memory(opened_bytes.data, opened_bytes.len, &opened, info);
    ck_assert_msg(err == ERR_OK, "the file itself: %s", info->text);
    return model_build(opened, 0, p, info);
}

/* Where the weight's first row lies. */
static const char *row_at(const struct plan_weight *w)
{
    uint64_t stride;
    return row_source_rows(w->source, 0, 1, NULL, &stride);
}

START_TEST(layers_without_kv_heads_have_a_convolution)
{
    static const enum plan_op block[] = {PLAN_NORM,       PLAN_MATMUL, PLAN_MATMUL,   PLAN_MULTIPLY,
                                         PLAN_SHORT_CONV, PLAN_MATMUL, PLAN_MULTIPLY, PLAN_MATMUL};
    struct plan *p = NULL;
    struct err_info info = {0};
    struct options o = good;
    o.has_plain_norm = _i == 1;
    ck_assert_msg(build(&o, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert_uint_eq(p->n_layers, LAYERS);
    for (int32_t i = 0; i < LAYERS; i++) {
        ck_assert_int_eq(plan_kv_of(p, i).layer, i == 2 ? 2 : PLAN_NONE);
    }
    ck_assert_uint_eq(p->recurrent_floats, 3 * (TAPS - 1) * D);
    int n_conv = 0, n_attention = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_ATTENTION) {
            n_attention++;
            ck_assert_int_eq(s->layer, 2);
        }
        if (s->op != PLAN_SHORT_CONV) {
            continue;
        }
        for (int k = 0; k < (int)ARRAY_LEN(block); k++) {
            ck_assert_int_eq(s[k - 4].op, block[k]);
        }
        ck_assert_uint_eq(s->recurrent, (uint64_t)n_conv * (TAPS - 1) * D);
        ck_assert(s->conv.taps == TAPS && s->conv.map == PLAN_MAP_NONE && s[-1].multiply.map == PLAN_MAP_NONE);
        ck_assert(s[-1].dst == s->src && s->dst == s[2].src && s[1].dst == s[2].dst && s[3].src == s[2].dst);
        /* Thirds of in_proj: b, c, u; what is convolved is b * u, what is let through is c. */
        const char *u = row_at(&p->weights[s[-3].w[0]]), *b = row_at(&p->weights[s[-2].w[0]]),
                   *c = row_at(&p->weights[s[1].w[0]]);
        ck_assert(c == b + D * D * sizeof(float) && u == c + D * D * sizeof(float));
        n_conv++;
    }
    ck_assert(n_conv == 3 && n_attention == 1);
    plan_free(&p);
    close_file();
}
END_TEST

START_TEST(files_that_contradict_themselves_are_refused)
{
    static const struct {
        int32_t kv_heads[LAYERS];
        uint64_t n;
        uint32_t taps;
        const char *missing, *word;
        bool is_encoder;
        enum err err;
    } rows[] = {
        {{0, 0, K, 0}, 3, TAPS, NULL, "head_count_kv", false, ERR_BAD_HPARAM},
        {{0, 1, K, 0}, 4, TAPS, NULL, "head_count_kv", false, ERR_BAD_HPARAM},
        {{0, 0, -1, 0}, 4, TAPS, NULL, "head_count_kv", false, ERR_BAD_HPARAM},
        {{0, 0, H + 1, 0}, 4, TAPS, NULL, "head_count_kv", false, ERR_BAD_HPARAM},
        {{0, 0, 0, 0}, 4, TAPS, NULL, "head_count_kv", false, ERR_BAD_HPARAM},
        {{0, 0, K, 0}, 4, 1, NULL, "l_cache", false, ERR_BAD_HPARAM},
        {{0, 0, K, 0}, 4, PLAN_MAX_TAPS + 1, NULL, "l_cache", false, ERR_BAD_HPARAM},
        {{0, 0, K, 0}, 4, TAPS + 1, NULL, "shortconv.conv", false, ERR_BAD_TENSOR_SHAPE},
        {{0, 0, K, 0}, 4, TAPS, "blk.1.shortconv.conv.weight", "blk.1.shortconv.conv", false, ERR_MISSING_TENSOR},
        {{0, 0, K, 0}, 4, TAPS, "blk.3.shortconv.in_proj.weight", "blk.3.shortconv.in_proj", false, ERR_MISSING_TENSOR},
        {{0, 0, K, 0}, 4, TAPS, "token_embd_norm.weight", "token_embd_norm", false, ERR_MISSING_TENSOR},
        {{0, 0, K, 0}, 4, TAPS, NULL, "causal", true, ERR_BAD_HPARAM},
    };
    struct options o = good;
    struct plan *p = NULL;
    struct err_info info = {0};
    memcpy(o.kv_heads, rows[_i].kv_heads, sizeof o.kv_heads);
    o.n_kv_heads = rows[_i].n;
    o.taps = rows[_i].taps;
    o.missing = rows[_i].missing;
    o.is_encoder = rows[_i].is_encoder;
    enum err err = build(&o, &p, &info);
    ck_assert_msg(err == rows[_i].err && strstr(info.text, rows[_i].word) != NULL, "row %d: %s: %s", _i, err_code(err),
                  info.text);
    ck_assert_ptr_null(p);
    close_file();
}
END_TEST

Suite *lfm2_suite(void)
{
    Suite *s = suite_create("lfm2");
    TCase *c = tcase_create("lfm2");
    tcase_add_loop_test(c, layers_without_kv_heads_have_a_convolution, 0, 2);
    tcase_add_loop_test(c, files_that_contradict_themselves_are_refused, 0, 12);
    suite_add_tcase(s, c);
    return s;
}
