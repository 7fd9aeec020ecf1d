/* Plans of golden models joined with those of others as their draft models. The draft computes the same bits as alone, on
 * the scalar and on the CPU back end; what does not fit is rejected with its reason. */
#include "engine/plan/plan_join.h"

#include "engine/backend/backend.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *plan_join_suite(void);

enum { ROWS = 40, PAGES = 2 };

struct subject {
    struct gguf *file;
    struct plan *plan;
};

static struct subject open_model(const char *name)
{
    struct subject s;
    char path[128];
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", name);
    ck_assert_msg(gguf_open(path, &s.file, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(model_build(s.file, 0, &s.plan, &info) == ERR_OK, "%s", info.text);
    return s;
}

static void close_model(struct subject *s)
{
    plan_free(&s->plan);
    gguf_close(&s->file);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Computes the logits of the last row of ROWS tokens, in two batches. */
static void compute(const struct backend *b, const struct plan *p, bool predicts, float *logits)
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
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int32_t first = 0, n = ROWS / 2; first < ROWS; first += n) {
        int32_t tokens[ROWS], pos[ROWS], seq[ROWS] = {0}, last = n - 1;
        for (int32_t i = 0; i < n; i++) {
            pos[i] = first + i;
            tokens[i] = (pos[i] * 37 + 11) % 250;
        }
        struct backend_row_stats stats;
        const struct backend_batch batch = {.n_rows = n,
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
                                            .predicts = predicts};
        ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    }
    b->close(&m);
}

static const char *const pairs[][2] = {{"llama-quants", "gemma3-local"},          {"gemma3-local", "llama-quants"},
                                       {"gemma3-window", "gpt-oss-sinks"},        {"qwen35-delta", "gemma4-per-layer"},
                                       {"granitehybrid-dense", "gemma3n-sparse"}, {"olmo2-wide", "gpt-oss-sinks"},
                                       {"gpt-oss-sinks", "gpt-oss-sinks"}};

START_TEST(the_draft_computes_the_same_as_alone)
{
    static const struct backend *const backends[] = {&backend_ref, &backend_cpu};
    struct subject whole = open_model(pairs[_i][0]), draft = open_model(pairs[_i][1]), own = open_model(pairs[_i][0]);
    struct err_info info = {0};
    ck_assert_msg(plan_join(whole.plan, draft.plan, &info) == ERR_OK, "%s", info.text);
    ck_assert(plan_predicts(whole.plan));
    ck_assert_uint_eq(plan_main_layers(whole.plan), own.plan->n_layers);
    ck_assert_int_eq(plan_main_steps(whole.plan), own.plan->n_steps);
    ck_assert_uint_eq(whole.plan->n_vocab, own.plan->n_vocab);
    size_t n = whole.plan->n_vocab, n_draft = draft.plan->n_vocab, n_same = MIN_OF(n, n_draft);
    float *logits = calloc(2 * MAX_OF(n, n_draft), sizeof *logits), *alone = logits + MAX_OF(n, n_draft);
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        compute(backends[i], draft.plan, false, alone);
        compute(backends[i], whole.plan, true, logits);
        ck_assert_msg(memcmp(logits, alone, n_same * sizeof *logits) == 0, "the draft's logits, %s", backends[i]->name);
        compute(backends[i], own.plan, false, alone);
        compute(backends[i], whole.plan, false, logits);
        ck_assert_msg(memcmp(logits, alone, n * sizeof *logits) == 0, "the model's logits, %s", backends[i]->name);
    }
    free(logits);
    ck_assert_int_eq(plan_drop_prediction(whole.plan, &info), ERR_OK);
    ck_assert(!plan_predicts(whole.plan) && whole.plan->n_weights == own.plan->n_weights);
    close_model(&whole);
    close_model(&draft);
    close_model(&own);
}
END_TEST

/* Tokens that the draft lacks have its last row, and those that the model lacks have none. */
START_TEST(vocabularies_of_other_sizes)
{
    static const int32_t more[] = {-3, -1, 1, 5};
    struct subject whole = open_model("llama-quants"), draft = open_model("gemma3-local");
    struct err_info info = {0};
    uint32_t n_draft = draft.plan->n_vocab, n = (uint32_t)((int32_t)n_draft + more[_i]);
    whole.plan->n_vocab = n; /* only the check of the model's own weights sees that */
    for (int32_t i = 0; i < whole.plan->n_steps; i++) {
        const struct plan_step *s = &whole.plan->steps[i];
        if (s->op == PLAN_EMBED || s->op == PLAN_LOGITS) {
            whole.plan->weights[s->w[0]].n_out = n;
        }
    }
    ck_assert_msg(plan_join(whole.plan, draft.plan, &info) == ERR_OK, "%s", info.text);
    const struct plan_weight *embed = &whole.plan->weights[whole.plan->steps[whole.plan->i_predict].w[0]];
    ck_assert_uint_eq(embed->n_out, n);
    ck_assert_uint_eq(embed->source->n_rows, n);
    float last[2][512];
    ck_assert_uint_le(embed->n_in, ARRAY_LEN(last[0]));
    embed->source->ops->read(embed->source, n - 1, 0, embed->n_in, last[0]);
    const struct plan_weight *own = &draft.plan->weights[draft.plan->steps[0].w[0]];
    own->source->ops->read(own->source, MIN_OF(n, n_draft) - 1, 0, own->n_in, last[1]);
    ck_assert_mem_eq(last[0], last[1], embed->n_in * sizeof(float));
    close_model(&whole);
    close_model(&draft);
}
END_TEST

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *draft, *text;
} refused[] = {
    {"llama-quants", "qwen35-delta", "expected a draft model without recurrent layers, found one with them"},
    {"llama-quants", "lfm2-conv", "expected a draft model without recurrent layers, found one with them"},
    {"llama-quants", "bert-cls", "expected a model that generates text, found one for embeddings"},
    {"bert-cls", "llama-quants", "expected none with a model that generates no text, found one"},
    {"llama-quants", "deepseek2-v2", "expected no latent attention in the model or its draft, found it in the draft"},
    {"deepseek2-v2", "llama-quants", "expected no latent attention in the model or its draft, found it in the model"},
    {"glm4moe-air", "gpt-oss-sinks",
     "expected a draft model without experts, or with as many as the model, found another"},
};

START_TEST(what_does_not_fit_is_refused)
{
    struct subject model = open_model(refused[_i].model), draft = open_model(refused[_i].draft);
    struct err_info info = {0};
    char text[256];
    snprintf(text, sizeof text, "draft-model: %s", refused[_i].text);
    ck_assert_int_eq(plan_join(model.plan, draft.plan, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, text);
    close_model(&model);
    close_model(&draft);
}
END_TEST

START_TEST(too_many_layers_are_refused)
{
    struct subject model = open_model("llama-quants"), draft = open_model("llama-quants");
    struct err_info info = {0};
    draft.plan->n_layers = PLAN_MAX_LAYERS;
    ck_assert_int_eq(plan_join(model.plan, draft.plan, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "draft-model: expected at most 1024 layers and 48 buffers together with the model's, "
                                "found more");
    close_model(&model);
    close_model(&draft);
}
END_TEST

Suite *plan_join_suite(void)
{
    Suite *s = suite_create("plan_join");
    TCase *t = tcase_create("plan_join");
    tcase_set_tags(t, "model");
    tcase_add_loop_test(t, the_draft_computes_the_same_as_alone, 0, (int)ARRAY_LEN(pairs));
    tcase_add_loop_test(t, vocabularies_of_other_sizes, 0, 4);
    tcase_add_loop_test(t, what_does_not_fit_is_refused, 0, (int)ARRAY_LEN(refused));
    tcase_add_test(t, too_many_layers_are_refused);
    suite_add_tcase(s, t);
    return s;
}
