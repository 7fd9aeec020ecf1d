/* Prediction heads: the plan has their steps behind the model's, loses them where they cannot be used, and a file whose head does
 * not fit is refused, but serves without it. */
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/plan/plan_cut.h"
#include "engine/plan/plan_ops.h"
#include "engine/plan/plan_shard.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *blocks_decoder_suite(void);

#define MODEL "tests/golden/models/qwen35-head.gguf"
enum { LAYERS = 5, WIDTH = 48 };
#define GLM "tests/golden/models/glm4moe-head.gguf"
enum { GLM_LAYERS = 3 };

static struct plan *plan_of(const struct gguf *g, bool predicts)
{
    struct plan *p;
    struct err_info info = {0};
    enum err err = (predicts ? model_build_predicting : model_build)(g, 0, &p, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return p;
}

static struct gguf *open_file(const char *path)
{
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    return g;
}

static int count(const struct plan *p, int32_t from, int32_t to, enum plan_op op)
{
    int n = 0;
    for (int32_t i = from; i < to; i++) {
        n += p->steps[i].op == op;
    }
    return n;
}

START_TEST(the_head_follows_the_model)
{
    struct gguf *g = open_file(MODEL);
    struct plan *p = plan_of(g, true), *without = plan_of(g, false);
    int32_t i = p->i_predict;
    ck_assert(plan_predicts(p) && !plan_predicts(without));
    ck_assert_uint_eq(plan_main_layers(p), LAYERS);
    ck_assert_uint_eq(p->n_layers, LAYERS + 1);
    ck_assert_int_eq(plan_kv_of(p, LAYERS).layer, LAYERS); /* it stores keys and values */
    ck_assert_uint_eq(p->recurrent_floats, without->recurrent_floats);
    ck_assert(p->input_width == WIDTH && p->output_width == WIDTH);
    ck_assert_int_eq(count(p, 0, i, PLAN_OUTPUT), 1);
    ck_assert_int_eq(count(p, 0, i, PLAN_INPUT), 0);
    static const enum plan_op once[] = {PLAN_EMBED,  PLAN_INPUT,  PLAN_QKV,   PLAN_GLU,
                                        PLAN_OUTPUT, PLAN_GATHER, PLAN_LOGITS};
    for (size_t k = 0; k < ARRAY_LEN(once); k++) {
        ck_assert_int_eq(count(p, i, p->n_steps, once[k]), 1);
    }
    /* It shares the embedding, which is also the matrix of the logits. */
    ck_assert_int_eq(p->steps[i].w[0], p->steps[0].w[0]);
    ck_assert_int_eq(p->steps[p->n_steps - 1].w[0], p->steps[i - 1].w[0]);
    ck_assert_int_eq(p->steps[i + 1].rows, PLAN_ALL_ROWS);
    plan_free(&p);
    plan_free(&without);
    gguf_close(&g);
}
END_TEST

START_TEST(a_plan_without_its_head_is_that_of_the_model)
{
    struct gguf *g = open_file(MODEL);
    struct plan *p = plan_of(g, true), *without = plan_of(g, false);
    ck_assert_int_eq(plan_drop_prediction(p, NULL), ERR_OK);
    ck_assert_int_eq(plan_drop_prediction(p, NULL), ERR_OK); /* there is none any more */
    ck_assert(!plan_predicts(p) && p->n_layers == LAYERS && p->input_width == 0 && p->output_width == 0);
    ck_assert_int_eq(p->n_steps, without->n_steps + 1); /* the norm of the output is left */
    ck_assert_int_eq(p->n_weights, without->n_weights + 1);
    ck_assert_int_eq(count(p, 0, p->n_steps, PLAN_OUTPUT), 0);
    plan_free(&p);
    plan_free(&without);
    gguf_close(&g);
}
END_TEST

START_TEST(parts_and_ranks_have_no_head)
{
    struct gguf *g = open_file(MODEL);
    struct plan *p = plan_of(g, true), *part[2], *shard;
    struct err_info info = {0};
    ck_assert_int_eq(plan_cut(p, 0, 2, &part[0], &info), ERR_OK);
    ck_assert_int_eq(plan_cut(p, 3, LAYERS - 1, &part[1], &info), ERR_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert(!plan_predicts(part[i]));
        ck_assert_int_eq(count(part[i], 0, part[i]->n_steps, PLAN_INPUT), i);
        ck_assert_int_eq(count(part[i], 0, part[i]->n_steps, PLAN_OUTPUT), 1 - i);
        ck_assert_int_eq(plan_kv_of(part[i], LAYERS).layer, PLAN_NONE);
        plan_free(&part[i]);
    }
    ck_assert_int_eq(plan_shard(p, 0, 2, &shard, &info), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(info.text, "prediction head"));
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

/* The file's bytes, to be changed and written. */
static char *copy_file(const char *path, size_t *n)
{
    struct io_map map;
    struct err_info info = {0};
    ck_assert_int_eq(io_map_open(path, &map, &info), ERR_OK);
    char *copy = malloc(map.bytes);
    memcpy(copy, map.data, map.bytes);
    *n = map.bytes;
    io_map_close(&map);
    return copy;
}

static const char *write_file(char *bytes, size_t n)
{
    const char *path = folder_file("spoiled.gguf");
    FILE *f = fopen(path, "wb");
    ck_assert(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    free(bytes);
    return path;
}

static char *find(char *bytes, size_t n, const char *name)
{
    char *at = memmem(bytes, n, name, strlen(name));
    ck_assert_ptr_nonnull(at);
    return at;
}

/* Swaps n bytes `after` the names, or the names themselves. */
static const struct {
    const char *name, *other;
    size_t after, other_after, n;
    const char *words;
} swapped[] = {
    /* a tensor's name is followed by its number of dimensions, 4 bytes, and these, 8 bytes each */
    {"blk.5.nextn.eh_proj.weight", "blk.5.nextn.eh_proj.weight", 30, 38, 8,
     "blk.5.nextn.eh_proj.weight: expected [96, 48], found [48, 96, 1, 1]"},
    {"blk.5.nextn.hnorm.weight", "blk.5.attn_output.weight", 0, 0, 24,
     "blk.5.nextn.hnorm.weight: expected [48, 1], found [64, 48, 1, 1]"},
    {"blk.5.ffn_gate.weight", "blk.5.ffn_down.weight", 0, 0, 21,
     "blk.5.ffn_gate.weight: expected [48, 56], found [56, 48, 1, 1]"},
    {"blk.5.nextn.enorm.weight", "blk.5.nextn.enorm.weight", 12, 13, 1,
     "blk.5.nextn.enorm.weight: expected a tensor [48, 1], found none"},
};

static const char *swap(int i)
{
    size_t size;
    char *bytes = copy_file(MODEL, &size), kept[32];
    char *a = find(bytes, size, swapped[i].name) + swapped[i].after,
         *b = find(bytes, size, swapped[i].other) + swapped[i].other_after;
    memcpy(kept, a, swapped[i].n);
    memcpy(a, b, swapped[i].n);
    memcpy(b, kept, swapped[i].n);
    return write_file(bytes, size);
}

START_TEST(a_head_that_does_not_fit_is_refused)
{
    struct engine_config cfg = {.model_path = swap(_i), .n_threads = 1};
    struct engine *e;
    struct err_info info = {0};
    ck_assert_int_ne(engine_open(&cfg, &e, &info), ERR_OK);
    ck_assert_msg(strstr(info.text, swapped[_i].words) != NULL, "%s", info.text);
    ck_assert_ptr_null(strchr(info.text, '\n'));
    for (int off = 0; off < 2; off++) { /* --speculate no-head, off */
        cfg.speculate = off == 0 ? "no-head" : "off";
        ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
        engine_close(&e);
    }
    folder_remove();
}
END_TEST

/* Writes a copy of the model without a head: neither metadata nor tensors name one. */
static const char *write_without_head(void)
{
    static const char n_layers[] = "glm4moe.block_count", n_heads[] = "glm4moe.nextn_predict_layers";
    size_t size;
    char *bytes = copy_file(GLM, &size);
    find(bytes, size, n_layers)[sizeof n_layers - 1 + 4] = GLM_LAYERS; /* after the type */
    find(bytes, size, n_heads)[0] = 'G';
    for (char *at; (at = memmem(bytes, size, "blk.3.", 6)) != NULL;) {
        *at = 'B';
    }
    return write_file(bytes, size);
}

/* A file's head serves a model whose own file has none: the plan is the same, but for the file of the head's weights. */
START_TEST(a_head_of_another_file)
{
    struct gguf *own = open_file(GLM), *without = open_file(write_without_head());
    struct plan *p, *draft, *expected = plan_of(own, true), *plain = plan_of(without, true);
    struct err_info info = {0};
    ck_assert(!plan_predicts(plain));
    ck_assert_msg(model_build_drafting(without, own, 0, &p, &draft, &info) == ERR_OK, "%s", info.text);
    ck_assert_ptr_null(draft);
    ck_assert(plan_predicts(p));
    ck_assert_int_eq(p->n_steps, expected->n_steps);
    ck_assert_int_eq(p->n_weights, expected->n_weights);
    const struct io_map *maps[] = {gguf_map(without), gguf_map(own)};
    int n_of_head = 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        const struct plan_weight *w = &p->weights[i];
        uint64_t stride;
        const char *at = row_source_rows(w->source, 0, 1, NULL, &stride);
        bool is_of_head = strncmp(w->name, "blk.3.", 6) == 0;
        const struct io_map *map = maps[is_of_head];
        ck_assert_str_eq(w->name, expected->weights[i].name);
        ck_assert_msg(at >= (const char *)map->data && at < (const char *)map->data + map->bytes, "%s", w->name);
        n_of_head += is_of_head;
    }
    ck_assert_int_ge(n_of_head, 10);
    plan_free(&p);
    plan_free(&plain);
    plan_free(&expected);
    gguf_close(&own);
    gguf_close(&without);
    folder_remove();
}
END_TEST

START_TEST(a_head_of_another_file_that_does_not_fit)
{
    struct gguf *own = open_file(MODEL), *spoiled = open_file(swap(_i));
    struct plan *p, *draft;
    struct err_info info = {0};
    ck_assert_int_ne(model_build_drafting(own, spoiled, 0, &p, &draft, &info), ERR_OK);
    ck_assert_ptr_null(p);
    ck_assert_msg(strstr(info.text, "draft-model: blk.5.") == info.text, "%s", info.text);
    ck_assert_ptr_nonnull(strstr(info.text, swapped[_i].words));
    gguf_close(&own);
    gguf_close(&spoiled);
    folder_remove();
}
END_TEST

START_TEST(a_wrong_number_of_layers_is_refused)
{
    static const char key[] = "qwen35.nextn_predict_layers";
    size_t size;
    struct plan *p;
    struct err_info info = {0};
    char *bytes = copy_file(MODEL, &size);
    find(bytes, size, key)[sizeof key - 1 + 4] = 6; /* after the type */
    struct gguf *g = open_file(write_file(bytes, size));
    ck_assert_int_eq(model_build(g, 0, &p, &info), ERR_BAD_HPARAM);
    ck_assert_msg(strstr(info.text, "qwen35.nextn_predict_layers: expected 0 to 5, found 6") != NULL, "%s", info.text);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* Files of the model alone can say that they have a head. */
START_TEST(without_its_matrix_there_is_no_head)
{
    size_t size;
    char *bytes = copy_file(MODEL, &size);
    find(bytes, size, "blk.5.nextn.eh_proj.weight")[12] = 'x';
    struct gguf *g = open_file(write_file(bytes, size));
    struct plan *p = plan_of(g, true);
    ck_assert(!plan_predicts(p) && p->n_layers == LAYERS);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* Whether the head's tensors are named as a layer (glm4moe) or apart from the layers (qwen35). */
START_TEST(folders_have_the_same_head)
{
    static const char *const names[] = {"qwen35-head", "glm4moe-head"};
    char path[128];
    struct err_info info = {0};
    struct gguf *g[2];
    struct plan *p[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "tests/golden/models/%s.%s", names[_i], i == 0 ? "gguf" : "hf");
        ck_assert_msg(model_open(path, &g[i], &info) == ERR_OK, "%s", info.text);
        p[i] = plan_of(g[i], true);
    }
    ck_assert(plan_predicts(p[0]) && p[0]->i_predict == p[1]->i_predict && p[0]->n_steps == p[1]->n_steps);
    ck_assert(p[0]->n_layers == p[1]->n_layers && plan_main_layers(p[0]) == plan_main_layers(p[1]));
    for (int32_t i = p[0]->i_predict; i < p[0]->n_steps; i++) {
        ck_assert_int_eq(p[0]->steps[i].op, p[1]->steps[i].op);
    }
    for (int i = 0; i < 2; i++) {
        plan_free(&p[i]);
        gguf_close(&g[i]);
    }
}
END_TEST

Suite *blocks_decoder_suite(void)
{
    Suite *s = suite_create("blocks_decoder");
    TCase *c = tcase_create("blocks_decoder");
    tcase_add_test(c, the_head_follows_the_model);
    tcase_add_test(c, a_plan_without_its_head_is_that_of_the_model);
    tcase_add_test(c, parts_and_ranks_have_no_head);
    tcase_add_loop_test(c, a_head_that_does_not_fit_is_refused, 0, (int)ARRAY_LEN(swapped));
    tcase_add_test(c, a_wrong_number_of_layers_is_refused);
    tcase_add_test(c, without_its_matrix_there_is_no_head);
    tcase_add_test(c, a_head_of_another_file);
    tcase_add_loop_test(c, a_head_of_another_file_that_does_not_fit, 0, (int)ARRAY_LEN(swapped));
    tcase_add_loop_test(c, folders_have_the_same_head, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
