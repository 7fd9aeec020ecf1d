/* Prediction heads of EAGLE-3: the steps that the model and its head get, the same bits of the model with and without
 * them, on models of several forms, and heads that do not fit. */
#include "engine/backend/backend.h"
#include "engine/base/mem.h"
#include "engine/format/gguf_internal.h"
#include "engine/model/model.h"
#include "engine/plan/plan_cut.h"
#include "engine/plan/plan_join.h"
#include "engine/plan/plan_ops.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *eagle3_suite(void);

#define MODELS "tests/golden/models/"
enum { ROWS = 40, PAGES = 2 };

/* A model with the head of a file. */
struct subject {
    struct gguf *file, *head;
    struct plan *plan, *alone, *head_plan;
};

static struct gguf *open_file(const char *name)
{
    char path[128];
    struct gguf *g;
    struct err_info info = {0};
    snprintf(path, sizeof path, MODELS "%s.gguf", name);
    ck_assert_msg(gguf_open(path, &g, &info) == ERR_OK, "%s", info.text);
    return g;
}

static struct subject open_both(const char *model, const char *head)
{
    struct subject s = {.file = open_file(model), .head = open_file(head)};
    struct err_info info = {0};
    ck_assert_int_eq(model_build(s.file, 0, &s.alone, &info), ERR_OK);
    ck_assert_msg(model_build_drafting(s.file, s.head, 0, &s.plan, &s.head_plan, &info) == ERR_OK, "%s", info.text);
    return s;
}

static void close_both(struct subject *s)
{
    plan_free(&s->plan);
    plan_free(&s->alone);
    plan_free(&s->head_plan);
    gguf_close(&s->file);
    gguf_close(&s->head);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *head;
    int32_t layers[3]; /* of the steps that feed the head */
    bool is_reduced;   /* the head has fewer tokens, and weights of its own for them */
} pairs[] = {
    {"llama-eagle3", "llama-eagle3.draft", {1, 2, PLAN_NONE}, true},
    {"qwen3-eagle3", "qwen3-eagle3.draft", {0, 1, 2}, false},
    {"gpt-oss-sinks", "qwen3-eagle3.draft", {0, 1, PLAN_NONE}, false}, /* of two layers, one with a window */
    {"gemma2-caps", "qwen3-eagle3.draft", {0, 1, 2}, false},           /* norms after blocks */
    {"qwen35-delta", "qwen3-eagle3.draft", {0, 1, 2}, false},          /* recurrent layers */
    {"gemma4-per-layer", "qwen3-eagle3.draft", {0, 1, 2}, false},      /* embeddings per layer */
};

START_TEST(a_matrix_of_three_layers_feeds_the_head)
{
    struct subject s = open_both(pairs[_i].model, pairs[_i].head);
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
    close_both(&s);
}
END_TEST

START_TEST(without_its_head_it_is_the_model)
{
    struct subject s = open_both(pairs[_i].model, pairs[_i].head);
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
    ck_assert_int_eq(plan_drop_prediction(s.plan, &info), ERR_OK);
    ck_assert_int_eq(s.plan->n_steps, s.alone->n_steps);
    ck_assert_int_eq(s.plan->n_weights, s.alone->n_weights);
    ck_assert(s.plan->n_guess_ids == 0 && s.plan->output_width == 0);
    for (int32_t i = 0; i < s.plan->n_steps; i++) {
        ck_assert_int_eq(s.plan->steps[i].op, s.alone->steps[i].op);
    }
    close_both(&s);
}
END_TEST

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Computes the model's logits of the last of ROWS tokens. */
static void compute(const struct backend *b, const struct plan *p, float *logits)
{
    static const int32_t pages[PAGES] = {1, 0}, *const tables[] = {pages};
    struct backend_config cfg = {.n_threads = 2,
                                 .n_pages = PAGES,
                                 .n_windows = plan_local_window(p) != 0 ? PAGES : 0,
                                 .n_states = p->recurrent_floats != 0,
                                 .max_rows = ROWS,
                                 .max_logits = 1};
    struct backend_model *m;
    struct err_info info = {0};
    int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, last = ROWS - 1;
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int32_t i = 0; i < ROWS; i++) {
        pos[i] = i;
        tokens[i] = (i * 37 + 11) % 250;
    }
    struct backend_row_stats stats;
    float *output = p->output_width != 0 ? malloc(ROWS * p->output_width * sizeof *output) : NULL;
    const struct backend_batch batch = {.n_rows = ROWS,
                                        .tokens = tokens,
                                        .pos = pos,
                                        .seq = seq,
                                        .n_seqs = 1,
                                        .page_tables = tables,
                                        .window_tables = tables,
                                        .n_logits = 1,
                                        .logit_rows = &last,
                                        .logits = logits,
                                        .stats = &stats,
                                        .output = output};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    free(output);
    b->close(&m);
}

START_TEST(the_head_changes_no_bit_of_the_model)
{
    static const struct backend *const backends[] = {&backend_ref, &backend_cpu};
    struct subject s = open_both(pairs[_i].model, pairs[_i].head);
    size_t n = s.plan->n_vocab;
    float *with = calloc(2 * n, sizeof *with), *without = with + n;
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        compute(backends[i], s.plan, with);
        compute(backends[i], s.alone, without);
        ck_assert_msg(memcmp(with, without, n * sizeof *with) == 0, "%s", backends[i]->name);
    }
    free(with);
    close_both(&s);
}
END_TEST

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *head, *text;
} refused[] = {
    {"llama-quants", "llama-eagle3.draft",
     "draft-model: eagle3.target_hidden_size: expected 256, the width of the model, found 48"},
    {"llama-yarn", "llama-eagle3.draft",
     "draft-model: eagle3.target_layers: expected layers 0 to 2 of the model, found 4"},
    {"gemma3-local", "qwen3-eagle3.draft",
     "draft-model: eagle3.target_hidden_size: expected 36, the width of the model, found 48"},
    {"deepseek2-v2", "qwen3-eagle3.draft",
     "draft-model: expected no latent attention in the model or its draft, found it in the model"},
};

START_TEST(heads_of_other_models_are_refused)
{
    struct gguf *model = open_file(refused[_i].model), *head = open_file(refused[_i].head);
    struct plan *p, *draft;
    struct err_info info = {0};
    ck_assert_int_ne(model_build_drafting(model, head, 0, &p, &draft, &info), ERR_OK);
    ck_assert_str_eq(info.text, refused[_i].text);
    ck_assert(p == NULL && draft == NULL);
    gguf_close(&model);
    gguf_close(&head);
}
END_TEST

/* Gemma 3n's layers pass on several rows. */
START_TEST(models_of_several_streams_are_refused)
{
    struct gguf *other = open_file("gemma3n-sparse");
    struct subject s = open_both("qwen3-eagle3", "qwen3-eagle3.draft");
    struct plan *p;
    struct err_info info = {0};
    ck_assert_int_eq(model_build(other, 0, &p, &info), ERR_OK);
    ck_assert_int_eq(plan_join(p, s.head_plan, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text,
                     "draft-model: expected this head with a model that has one row between its layers, found several");
    plan_free(&p);
    gguf_close(&other);
    close_both(&s);
}
END_TEST

START_TEST(a_head_is_no_model)
{
    struct gguf *head = open_file("llama-eagle3.draft");
    struct plan *p;
    struct err_info info = {0};
    ck_assert_str_eq(model_head_of(head)->arch, "eagle3");
    ck_assert_int_eq(model_build_predicting(head, 0, &p, &info), ERR_UNSUPPORTED_ARCH);
    ck_assert_str_eq(info.text,
                     "expected a model, found 'eagle3', a model's prediction head; use it with --draft-model");
    gguf_close(&head);
}
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
    struct gguf *file = open_file("llama-eagle3"), *head = open_file("llama-eagle3.draft"), *other;
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
