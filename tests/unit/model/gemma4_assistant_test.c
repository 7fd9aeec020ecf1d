/* Gemma 4's prediction head: whose keys and values its layers read, what the model's plan gets, the same bits of the model
 * with and without it, and heads that do not fit. */
#include "engine/base/mem.h"
#include "engine/format/gguf_internal.h"
#include "engine/plan/plan_ops.h"
#include "tests/unit/model/head_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *gemma4_assistant_suite(void);

enum { MOST_LAYERS = 4 };

static const struct {
    const char *model, *head;
    int32_t n_layers, read[MOST_LAYERS]; /* layers of the model whose keys and values each layer of the head reads */
} pairs[] = {
    /* the model's last layers read those of layers 1 and 2, too */
    {"gemma4-assistant.gguf", "gemma4-assistant.draft.gguf", 4, {2, 2, 2, 1}},
    {"gemma4-assistant.hf", "gemma4-assistant.draft.hf", 4, {2, 2, 2, 1}},
    {"gemma4-assistant-mqa.gguf", "gemma4-assistant-mqa.draft.gguf", 2, {2, 3}},
    {"gemma4-per-layer.gguf", "gemma4-assistant.draft.gguf", 4, {2, 2, 2, 1}}, /* not its own, but it fits */
};

START_TEST(its_layers_read_the_models_pages)
{
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    const struct plan *p = s.plan;
    int32_t n_main = (int32_t)plan_main_layers(p), n_outputs = 0;
    ck_assert(plan_predicts(p) && p->guesses_in_place);
    ck_assert_uint_eq(plan_main_layers(p), s.alone->n_layers);
    ck_assert_int_eq((int32_t)p->n_layers - n_main, pairs[_i].n_layers);
    for (int32_t i = 0; i < pairs[_i].n_layers; i++) {
        struct plan_kv kv = plan_kv_of(p, n_main + i), of = plan_kv_of(p, pairs[_i].read[i]);
        ck_assert_int_eq(kv.layer, pairs[_i].read[i]);
        ck_assert(kv.n_kv_heads == of.n_kv_heads && kv.head_dim == of.head_dim);
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *step = &p->steps[i];
        bool is_head = i >= p->i_predict;
        ck_assert(!is_head || !plan_stores(p, step));
        ck_assert(!is_head || step->op != PLAN_QKV || p->ropes[step->heads.rope].shift == 1);
        if (step->op == PLAN_OUTPUT) { /* what logits are made of, and what the head makes of that */
            ck_assert(step->rows == PLAN_LOGIT_ROWS && p->bufs[step->src].width == p->output_width);
            ck_assert_int_eq(step->feeds_head, !is_head);
            ck_assert(is_head || p->steps[i + 1].src == step->src);
            n_outputs++;
        }
        if (is_head && step->op == PLAN_ATTENTION) { /* without the token's own position */
            int32_t of = plan_layer_window(s.alone, plan_kv_of(p, step->layer).layer);
            ck_assert_int_eq(step->attention.window, of != 0 ? of - 1 : 0);
        }
    }
    ck_assert_int_eq(n_outputs, 2);
    ck_assert_int_eq(plan_local_window(p), plan_local_window(s.alone));
    ck_assert_int_eq(p->steps[p->i_predict].w[0], s.alone->steps[0].w[0]); /* the model's embedding */
    head_rig_close(&s);
}
END_TEST

START_TEST(without_its_head_it_is_the_model)
{
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    head_rig_drop(&s);
    ck_assert(!s.plan->guesses_in_place && s.plan->n_storing == s.alone->n_storing);
    head_rig_close(&s);
}
END_TEST

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Few rows with logits, of which alone the CPU then computes the layers that share keys and values, or many. Outputs are
 * those of the rows with logits, in their order. */
START_TEST(the_head_changes_no_bit_of_the_model)
{
    static const struct backend *const backends[] = {&backend_ref, &backend_cpu};
    enum { FEW = 2 };
    static const int32_t few[FEW] = {17, HEAD_RIG_ROWS - 1};
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    size_t n = s.plan->n_vocab, d = s.plan->output_width;
    int32_t all[HEAD_RIG_ROWS];
    float *with = calloc(2 * HEAD_RIG_ROWS * n, sizeof *with), *without = with + HEAD_RIG_ROWS * n;
    float *outputs = calloc(2 * HEAD_RIG_ROWS * d, sizeof *outputs), *some = outputs + HEAD_RIG_ROWS * d;
    for (int32_t i = 0; i < HEAD_RIG_ROWS; i++) {
        all[i] = i;
    }
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        head_rig_compute(backends[i], s.plan, all, HEAD_RIG_ROWS, with, outputs);
        head_rig_compute(backends[i], s.alone, all, HEAD_RIG_ROWS, without, NULL);
        ck_assert_msg(memcmp(with, without, HEAD_RIG_ROWS * n * sizeof *with) == 0, "%s", backends[i]->name);
        head_rig_compute(backends[i], s.plan, few, FEW, with, some);
        for (int32_t k = 0; k < FEW; k++) {
            size_t row = (size_t)few[k];
            ck_assert(memcmp(with + (size_t)k * n, without + row * n, n * sizeof *with) == 0);
            ck_assert(memcmp(some + (size_t)k * d, outputs + row * d, d * sizeof *some) == 0);
        }
    }
    free(with);
    free(outputs);
    head_rig_close(&s);
}
END_TEST

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const char draft[] = "gemma4-assistant.draft.gguf";

static const struct {
    const char *model, *text;
} others[] = {
    {"gemma3-local.gguf",
     "draft-model: general.architecture: expected gemma4 of the model, as this is its prediction head, "
     "found 'gemma3'"},
    {"gemma4-experts.gguf",
     "draft-model: gemma4-assistant.attention.head_count_kv[3]: expected 1, as in the model, found 2"},
};

START_TEST(heads_of_other_models_are_refused) { head_rig_is_refused(others[_i].model, draft, others[_i].text); }
END_TEST

START_TEST(a_head_is_no_model) { head_rig_is_no_model(draft, "gemma4-assistant"); }
END_TEST

/* A number of the head's file replaced, or the sides of a tensor exchanged. */
static const struct {
    const char *key, *tensor;
    uint32_t value;
    const char *text;
} spoiled[] = {
    {"embedding_length_out", NULL, 52,
     "gemma4-assistant.embedding_length_out: expected 48, the width of the model, found 52"},
    {"nextn_predict_layers", NULL, 3, "gemma4-assistant.nextn_predict_layers: expected all 4 layers, found 3"},
    {"attention.shared_kv_layers", NULL, 2,
     "gemma4-assistant.attention.shared_kv_layers: expected all 4 layers, found 2"},
    {"block_count", NULL, 3, "gemma4-assistant.block_count: expected 4 or more, as there is "},
    {"attention.head_count", NULL, 3,
     "gemma4-assistant.attention.head_count: expected a multiple of the 2 heads of the model's keys, found 3"},
    {"attention.sliding_window", NULL, 14,
     "gemma4-assistant.attention.sliding_window: expected 2 to 13, as in the model, found 14"},
    {"attention.sliding_window", NULL, 1,
     "gemma4-assistant.attention.sliding_window: expected 2 to 13, as in the model, found 1"},
    {"embedding_length_per_layer_input", NULL, 8,
     "gemma4-assistant.embedding_length_per_layer_input: expected 0 to 0, found 8"},
    {NULL, "token_embd.weight", 0, "token_embd.weight: expected 288 rows, one for each token of the model, found 32"},
    {NULL, "nextn.pre_projection.weight", 0, "nextn.pre_projection.weight: expected [96, 32], found [32, 96, 1, 1]"},
};

/* Spoils a copy of the file. */
static void spoil(unsigned char *copy, const struct gguf *g, int i)
{
    const unsigned char *data = gguf_map(g)->data;
    char key[64];
    if (spoiled[i].tensor != NULL) {
        const struct gguf_tensor *t = gguf_find_tensor(g, spoiled[i].tensor);
        const uint64_t dims[2] = {t->dims[1], t->dims[0]};
        memcpy(copy + ((const unsigned char *)t->name.data - data) + t->name.len + 4, dims, sizeof dims);
        return;
    }
    snprintf(key, sizeof key, "gemma4-assistant.%s", spoiled[i].key);
    memcpy(copy + (gguf_find(g, key)->data - data), &spoiled[i].value, sizeof spoiled[i].value);
}

START_TEST(spoiled_heads_are_refused)
{
    struct gguf *model = head_rig_open_file("gemma4-assistant.gguf"), *head = head_rig_open_file(draft), *other;
    const struct io_map *map = gguf_map(head);
    unsigned char *copy = malloc(map->bytes);
    struct plan *p, *head_plan;
    struct err_info info = {0};
    char text[ERR_TEXT_BYTES];
    memcpy(copy, map->data, map->bytes);
    spoil(copy, head, _i);
    ck_assert_int_eq(gguf_open_memory(copy, map->bytes, &other, &info), ERR_OK);
    ck_assert_int_ne(model_build_drafting(model, other, 0, &p, &head_plan, &info), ERR_OK);
    snprintf(text, sizeof text, "draft-model: %s", spoiled[_i].text);
    ck_assert_msg(strncmp(info.text, text, strlen(text)) == 0, "%s", info.text);
    ck_assert(p == NULL && head_plan == NULL && strchr(info.text, '\n') == NULL);
    gguf_close(&other);
    gguf_close(&head);
    gguf_close(&model);
    free(copy);
}
END_TEST

Suite *gemma4_assistant_suite(void)
{
    Suite *s = suite_create("gemma4_assistant");
    TCase *t = tcase_create("gemma4_assistant");
    tcase_add_loop_test(t, its_layers_read_the_models_pages, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, without_its_head_it_is_the_model, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, the_head_changes_no_bit_of_the_model, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, heads_of_other_models_are_refused, 0, (int)ARRAY_LEN(others));
    tcase_add_test(t, a_head_is_no_model);
    tcase_add_loop_test(t, spoiled_heads_are_refused, 0, (int)ARRAY_LEN(spoiled));
    suite_add_tcase(s, t);
    return s;
}
