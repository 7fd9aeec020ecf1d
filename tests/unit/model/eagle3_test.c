/* Prediction heads of EAGLE-3: the steps that the model and its head get, the same bits of the model with and without
 * them, on models of several forms, and heads that do not fit. */
#include "engine/base/mem.h"
#include "engine/format/gguf_internal.h"
#include "engine/plan/plan_cut.h"
#include "engine/plan/plan_join.h"
#include "engine/plan/plan_ops.h"
#include "tests/unit/model/head_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

Suite *eagle3_suite(void);

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *head;
    int32_t layers[3]; /* of the steps that feed the head */
    bool is_reduced;   /* the head has fewer tokens, and weights of its own for them */
} pairs[] = {
    {"llama-eagle3.gguf", "llama-eagle3.draft.gguf", {1, 2, PLAN_NONE}, true},
    {"qwen3-eagle3.gguf", "qwen3-eagle3.draft.gguf", {0, 1, 2}, false},
    {"gpt-oss-sinks.gguf", "qwen3-eagle3.draft.gguf", {0, 1, PLAN_NONE}, false}, /* of two layers, one with a window */
    {"gemma2-caps.gguf", "qwen3-eagle3.draft.gguf", {0, 1, 2}, false},           /* norms after blocks */
    {"qwen35-delta.gguf", "qwen3-eagle3.draft.gguf", {0, 1, 2}, false},          /* recurrent layers */
    {"gemma4-per-layer.gguf", "qwen3-eagle3.draft.gguf", {0, 1, 2}, false},      /* embeddings per layer */
};

START_TEST(a_matrix_of_three_layers_feeds_the_head)
{
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    const struct plan *p = s.plan;
    int32_t n_fed = 0, n_own = 0;
    ck_assert(plan_predicts(p) && p->n_layers == s.alone->n_layers + 1);
    ck_assert_uint_eq(plan_main_layers(p), s.alone->n_layers);
    for (int32_t i = 0; i < p->i_predict; i++) {
        const struct plan_step *step = &p->steps[i];
        n_own += !step->feeds_head;
        if (step->feeds_head && step->op == PLAN_MATMUL) {
            ck_assert_int_eq(step->layer, pairs[_i].layers[n_fed]);
            ck_assert_int_eq(step->adds, n_fed > 0);
            ck_assert_uint_eq(p->bufs[step->src].width, p->n_embd);
            ck_assert_uint_eq(p->bufs[step->dst].width, p->output_width);
            n_fed++;
        }
    }
    ck_assert_int_eq(n_fed, 3);
    ck_assert_int_eq(n_own, s.alone->n_steps);
    const struct plan_step *embed = &p->steps[p->i_predict], *logits = &p->steps[p->n_steps - 1];
    ck_assert(embed->op == PLAN_EMBED && logits->op == PLAN_LOGITS);
    ck_assert_int_eq(embed->w[0] < s.alone->n_weights, !pairs[_i].is_reduced); /* the model's */
    ck_assert_int_eq(logits->w[0] < s.alone->n_weights, !pairs[_i].is_reduced);
    ck_assert_int_eq(p->n_guess_ids != 0, pairs[_i].is_reduced);
    ck_assert_uint_eq(plan_n_logits(p, true), p->weights[logits->w[0]].n_out);
    ck_assert_uint_eq(plan_n_logits(p, false), p->n_vocab);
    head_rig_close(&s);
}
END_TEST

START_TEST(without_its_head_it_is_the_model)
{
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    struct plan *part;
    struct err_info info = {0};
    int32_t last = (int32_t)s.alone->n_layers - 1, middle = last / 2;
    if (plan_cut(s.alone, 0, middle, &part, &info) == ERR_OK) { /* layers can share keys and values */
        struct plan *cut;
        ck_assert_msg(plan_cut(s.plan, 0, middle, &cut, &info) == ERR_OK, "%s", info.text);
        ck_assert_int_eq(cut->n_steps, part->n_steps);
        ck_assert_uint_eq(cut->output_width, part->output_width);
        ck_assert_int_eq(cut->n_weights, part->n_weights);
        plan_free(&cut);
        plan_free(&part);
    }
    head_rig_drop(&s);
    ck_assert_uint_eq(s.plan->n_guess_ids, 0);
    head_rig_close(&s);
}
END_TEST

/* --- bits --------------------------------------------------------------------------------------------------------- */

START_TEST(the_head_changes_no_bit_of_the_model)
{
    static const struct backend *const backends[] = {&backend_ref, &backend_cpu};
    struct head_rig s = head_rig_open(pairs[_i].model, pairs[_i].head);
    static const int32_t last = HEAD_RIG_ROWS - 1;
    size_t n = s.plan->n_vocab;
    float *with = calloc(2 * n, sizeof *with), *without = with + n;
    float *output = malloc(HEAD_RIG_ROWS * s.plan->output_width * sizeof *output);
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        head_rig_compute(backends[i], s.plan, &last, 1, with, output);
        head_rig_compute(backends[i], s.alone, &last, 1, without, NULL);
        ck_assert_msg(memcmp(with, without, n * sizeof *with) == 0, "%s", backends[i]->name);
    }
    free(output);
    free(with);
    head_rig_close(&s);
}
END_TEST

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *head, *text;
} refused[] = {
    {"llama-quants.gguf", "llama-eagle3.draft.gguf",
     "draft-model: eagle3.target_hidden_size: expected 256, the width of the model, found 48"},
    {"llama-yarn.gguf", "llama-eagle3.draft.gguf",
     "draft-model: eagle3.target_layers: expected layers 0 to 2 of the model, found 4"},
    {"gemma3-local.gguf", "qwen3-eagle3.draft.gguf",
     "draft-model: eagle3.target_hidden_size: expected 36, the width of the model, found 48"},
    {"deepseek2-v2.gguf", "qwen3-eagle3.draft.gguf",
     "draft-model: expected no latent attention in the model or its draft, found it in the model"},
};

START_TEST(heads_of_other_models_are_refused)
{
    head_rig_is_refused(refused[_i].model, refused[_i].head, refused[_i].text);
}
END_TEST

/* Gemma 3n's layers pass on several rows. */
START_TEST(models_of_several_streams_are_refused)
{
    struct gguf *other = head_rig_open_file("gemma3n-sparse.gguf");
    struct head_rig s = head_rig_open("qwen3-eagle3.gguf", "qwen3-eagle3.draft.gguf");
    struct plan *p;
    struct err_info info = {0};
    ck_assert_int_eq(model_build(other, 0, &p, &info), ERR_OK);
    ck_assert_int_eq(plan_join(p, s.head_plan, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text,
                     "draft-model: expected this head with a model that has one row between its layers, found several");
    plan_free(&p);
    gguf_close(&other);
    head_rig_close(&s);
}
END_TEST

START_TEST(a_head_is_no_model) { head_rig_is_no_model("llama-eagle3.draft.gguf", "eagle3"); }
END_TEST

/* Numbers of d2t that are no token, or one that another element has. */
static const struct {
    int64_t id;
    const char *text;
} ids[] = {
    {-1, "d2t[1]: expected a token of the model, 0 to 287, that no other element has, found -1"},
    {288, "d2t[1]: expected a token of the model, 0 to 287, that no other element has, found 288"},
    {INT64_MIN,
     "d2t[1]: expected a token of the model, 0 to 287, that no other element has, found -9223372036854775808"},
    {INT64_MAX,
     "d2t[1]: expected a token of the model, 0 to 287, that no other element has, found 9223372036854775807"},
};

START_TEST(tokens_that_the_model_lacks_are_refused)
{
    struct gguf *file = head_rig_open_file("llama-eagle3.gguf"), *head = head_rig_open_file("llama-eagle3.draft.gguf"),
                *other;
    const struct io_map *map = gguf_map(head);
    const struct gguf_tensor *t = gguf_find_tensor(head, "d2t");
    unsigned char *copy = malloc(map->bytes);
    struct plan *p, *of;
    struct err_info info = {0};
    int64_t first;
    memcpy(copy, map->data, map->bytes);
    memcpy(&first, t->data, sizeof first);
    bool is_twice = _i == (int)ARRAY_LEN(ids);
    unsigned char *at = copy + ((const unsigned char *)t->data - (const unsigned char *)map->data);
    memcpy(at + sizeof first, is_twice ? &first : &ids[_i].id, sizeof first);
    ck_assert_int_eq(gguf_open_memory(copy, map->bytes, &other, &info), ERR_OK);
    ck_assert_int_eq(model_build(file, 0, &of, &info), ERR_OK);
    ck_assert_int_eq(model_build_head(other, file, of, 0, &p, &info), ERR_BAD_VOCAB);
    if (is_twice) {
        ck_assert_ptr_nonnull(strstr(info.text, "d2t[1]: expected a token of the model"));
    } else {
        ck_assert_str_eq(info.text, ids[_i].text);
    }
    plan_free(&of);
    gguf_close(&other);
    gguf_close(&head);
    gguf_close(&file);
    free(copy);
}
END_TEST

Suite *eagle3_suite(void)
{
    Suite *s = suite_create("eagle3");
    TCase *t = tcase_create("eagle3");
    tcase_add_loop_test(t, a_matrix_of_three_layers_feeds_the_head, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, without_its_head_it_is_the_model, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, the_head_changes_no_bit_of_the_model, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, heads_of_other_models_are_refused, 0, (int)ARRAY_LEN(refused));
    tcase_add_test(t, models_of_several_streams_are_refused);
    tcase_add_test(t, a_head_is_no_model);
    tcase_add_loop_test(t, tokens_that_the_model_lacks_are_refused, 0, (int)ARRAY_LEN(ids) + 1);
    suite_add_tcase(s, t);
    return s;
}
