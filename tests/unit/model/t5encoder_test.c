/* T5's encoder: biases by distance as in transformers, with a gate and without, and files that contradict themselves.
 * That the plan computes the right thing is the golden tests' part. */
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "tests/support/model_file.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *t5encoder_suite(void);

#define MODELS "tests/golden/models/"

enum { LAYERS = 2, D = 16, H = 2, HEAD = 12, F = 20, V = 6, BUCKETS = 8, REACH = 128, MAX_BUCKETS = 32 };

/* --- biases ------------------------------------------------------------------------------------------------------- */

/* The smallest distance of each bucket before the row's position, of n in all [transformers 5.23,
 * T5Attention._relative_position_bucket]. */
static const struct {
    const char *model;
    int32_t n, first[MAX_BUCKETS / 2];
    enum plan_act act;
} tables[] = {
    {MODELS "t5encoder-relu-mean.gguf", 32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}, PLAN_RELU},
    {MODELS "t5encoder-relu-mean.hf", 32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}, PLAN_RELU},
    {MODELS "t5encoder-gated-mean.gguf", 16, {0, 1, 2, 3, 4, 10, 23, 54}, PLAN_GELU_TANH},
    {MODELS "t5encoder-gated-mean.hf", 16, {0, 1, 2, 3, 4, 10, 23, 54}, PLAN_GELU_TANH},
};

/* Checks the biases of all heads for a distance; of_heads: of the bucket, in the file. */
static void check_distance(const float *biases, int32_t distance, const float *of_heads, uint32_t n_heads)
{
    for (uint32_t h = 0; h < n_heads; h++) {
        ck_assert_msg(biases[h * (2 * REACH + 1) + (uint32_t)(distance + REACH)] == of_heads[h],
                      "head %u, distance %d: another bias", h, distance);
    }
}

START_TEST(distances_have_the_biases_of_their_buckets)
{
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    static float biases[PLAN_MAX_HEADS * (2 * REACH + 1)];
    float of_heads[PLAN_MAX_HEADS];
    ck_assert_int_eq(model_open(tables[_i].model, &g, &info), ERR_OK);
    ck_assert_msg(model_build(g, 0, &p, &info) == ERR_OK, "%s", info.text);
    const struct plan_step *att = model_file_step(p, PLAN_ATTENTION, 0), *last = model_file_step(p, PLAN_ATTENTION, 1);
    ck_assert(att->attention.reach == REACH && att->scale == 1 && last->w[1] == att->w[1] && p->is_bidirectional);
    ck_assert(p->pooling == PLAN_POOL_MEAN && model_file_step(p, PLAN_GLU, 0)->act == tables[_i].act);
    ck_assert_uint_eq(p->ropes[model_file_step(p, PLAN_QKV, 0)->heads.rope].n_rot, 0);
    const struct row_source *found = p->weights[att->w[1]].source;
    const struct row_source *rows = gguf_find_tensor(g, "enc.blk.0.attn_rel_b.weight")->source;
    ck_assert_uint_eq(found->n_in, p->n_heads * (2 * REACH + 1));
    found->ops->read(found, 0, 0, found->n_in, biases);
    int32_t half = tables[_i].n / 2;
    for (int32_t d = 0, bucket = 0; d <= REACH; d++) {
        bucket += bucket + 1 < half && d >= tables[_i].first[bucket + 1];
        rows->ops->read(rows, (uint32_t)bucket, 0, p->n_heads, of_heads);
        check_distance(biases, -d, of_heads, p->n_heads);
        rows->ops->read(rows, (uint32_t)(bucket + half), 0, p->n_heads, of_heads);
        if (d > 0) {
            check_distance(biases, d, of_heads, p->n_heads);
        }
    }
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* --- files -------------------------------------------------------------------------------------------------------- */

struct options {
    uint32_t n_buckets; /* of the key; 0: none */
    uint32_t n_rows;    /* of the tensor; 0: none */
    bool has_second;    /* biases in the second layer, too */
    bool has_third;     /* a tensor of a third layer */
    const char *word;   /* of the error */
    enum err err;
};

static void put(struct gguf_writer *w, uint32_t layer, const char *name, uint64_t columns, uint64_t rows)
{
    char full[64];
    const uint64_t dims[2] = {columns, rows};
    snprintf(full, sizeof full, "enc.blk.%u.%s", layer, name);
    gguf_writer_tensor(w, full, DTYPE_F32, rows > 1 ? 2 : 1, dims, NULL);
}

static void put_layer(struct gguf_writer *w, uint32_t i)
{
    put(w, i, "attn_norm.weight", D, 1);
    put(w, i, "attn_q.weight", D, H * HEAD);
    put(w, i, "attn_k.weight", D, H * HEAD);
    put(w, i, "attn_v.weight", D, H * HEAD);
    put(w, i, "attn_o.weight", H * HEAD, D);
    put(w, i, "ffn_norm.weight", D, 1);
    put(w, i, "ffn_up.weight", D, F);
    put(w, i, "ffn_down.weight", F, D);
}

static struct model_file make_file(const struct options *o)
{
    const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"embedding_length", D},         {"block_count", LAYERS},     {"context_length", 64},
                {"feed_forward_length", F},      {"attention.head_count", H}, {"attention.key_length", HEAD},
                {"attention.value_length", HEAD}};
    const uint64_t table[2] = {D, V}, vector[1] = {D};
    struct gguf_writer w;
    char full[96];
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "t5encoder");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(full, sizeof full, "t5encoder.%s", keys[i].key);
        gguf_writer_u32(&w, full, keys[i].value);
    }
    if (o->n_buckets != 0) {
        gguf_writer_u32(&w, "t5encoder.attention.relative_buckets_count", o->n_buckets);
    }
    gguf_writer_f32(&w, "t5encoder.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_writer_tensor(&w, "token_embd.weight", DTYPE_F32, 2, table, NULL);
    gguf_writer_tensor(&w, "enc.output_norm.weight", DTYPE_F32, 1, vector, NULL);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_layer(&w, i);
    }
    for (uint32_t i = 0; i < (o->has_second ? 2u : 1u) && o->n_rows != 0; i++) {
        put(&w, i, "attn_rel_b.weight", H, o->n_rows);
    }
    if (o->has_third) {
        put(&w, LAYERS, "attn_norm.weight", D, 1);
    }
    return model_file_of(&w);
}

START_TEST(a_whole_file_is_built)
{
    struct options good = {.n_buckets = BUCKETS, .n_rows = BUCKETS};
    struct model_file f = make_file(&good);
    struct plan *p = model_file_plan(&f);
    ck_assert(p->n_layers == LAYERS && p->head_dim == HEAD && p->has_hidden && !p->has_logits);
    plan_free(&p);
    model_file_fini(&f);
}
END_TEST

static const struct options bad[] = {
    {0, BUCKETS, false, false, "attention.relative_buckets_count: expected a value", ERR_BAD_HPARAM},
    {3, BUCKETS, false, false, "attention.relative_buckets_count: expected 4 to 256, found 3", ERR_BAD_HPARAM},
    {258, BUCKETS, false, false, "attention.relative_buckets_count: expected 4 to 256, found 258", ERR_BAD_HPARAM},
    {9, 9, false, false, "attention.relative_buckets_count: expected an even number, found 9", ERR_BAD_HPARAM},
    {BUCKETS, 0, false, false, "enc.blk.0.attn_rel_b.weight: expected a tensor [2, 8], found none", ERR_MISSING_TENSOR},
    {BUCKETS, 10, false, false, "enc.blk.0.attn_rel_b.weight: expected [2, 8], found [2, 10", ERR_BAD_TENSOR_SHAPE},
    {BUCKETS, BUCKETS, true, false, "expected biases only in the first layer, found others in layer 1", ERR_BAD_HPARAM},
    {BUCKETS, BUCKETS, false, true, "block_count: expected 3 or more, as there is enc.blk.2.attn_norm.weight, found 2",
     ERR_BAD_HPARAM},
};

START_TEST(contradictions_are_rejected)
{
    struct model_file f = make_file(&bad[_i]);
    model_file_refuse(&f, (size_t)_i, bad[_i].err, bad[_i].word);
    model_file_fini(&f);
}
END_TEST

Suite *t5encoder_suite(void)
{
    Suite *s = suite_create("t5encoder");
    TCase *c = tcase_create("t5encoder");
    tcase_add_loop_test(c, distances_have_the_biases_of_their_buckets, 0, ARRAY_LEN(tables));
    tcase_add_test(c, a_whole_file_is_built);
    tcase_add_loop_test(c, contradictions_are_rejected, 0, ARRAY_LEN(bad));
    suite_add_tcase(s, c);
    return s;
}
