#include "tests/unit/model/head_rig.h"

#include <check.h>
#include <stdio.h>

enum { PAGES = 2 };

struct gguf *head_rig_open_file(const char *name)
{
    char path[128];
    struct gguf *g;
    struct err_info info = {0};
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    ck_assert_msg(model_open(path, &g, &info) == ERR_OK, "%s", info.text);
    return g;
}

struct head_rig head_rig_open(const char *model, const char *head)
{
    struct head_rig r = {.file = head_rig_open_file(model), .head = head_rig_open_file(head)};
    struct err_info info = {0};
    ck_assert_int_eq(model_build(r.file, 0, &r.alone, &info), ERR_OK);
    ck_assert_msg(model_build_drafting(r.file, r.head, 0, &r.plan, &r.head_plan, &info) == ERR_OK, "%s", info.text);
    return r;
}

void head_rig_close(struct head_rig *r)
{
    plan_free(&r->plan);
    plan_free(&r->alone);
    plan_free(&r->head_plan);
    gguf_close(&r->file);
    gguf_close(&r->head);
}

void head_rig_compute(const struct backend *b, const struct plan *p, const int32_t *rows, int32_t n, float *logits,
                      float *output)
{
    static const int32_t pages[PAGES] = {1, 0}, *const tables[] = {pages};
    struct backend_config cfg = {.n_threads = 2,
                                 .n_pages = PAGES,
                                 .n_windows = plan_local_window(p) != 0 ? PAGES : 0,
                                 .n_states = p->recurrent_floats != 0,
                                 .max_rows = HEAD_RIG_ROWS,
                                 .max_logits = HEAD_RIG_ROWS};
    struct backend_model *m;
    struct err_info info = {0};
    int32_t tokens[HEAD_RIG_ROWS], pos[HEAD_RIG_ROWS], seq[HEAD_RIG_ROWS] = {0};
    ck_assert_msg(b->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    for (int32_t i = 0; i < HEAD_RIG_ROWS; i++) {
        pos[i] = i;
        tokens[i] = (i * 37 + 11) % 250;
    }
    struct backend_row_stats stats[HEAD_RIG_ROWS];
    const struct backend_batch batch = {.n_rows = HEAD_RIG_ROWS,
                                        .tokens = tokens,
                                        .pos = pos,
                                        .seq = seq,
                                        .n_seqs = 1,
                                        .page_tables = tables,
                                        .window_tables = tables,
                                        .n_logits = n,
                                        .logit_rows = rows,
                                        .logits = logits,
                                        .stats = stats,
                                        .output = output};
    ck_assert_msg(backend_compute(b, m, &batch, &info) == ERR_OK, "%s", info.text);
    b->close(&m);
}

void head_rig_drop(struct head_rig *r)
{
    struct err_info info = {0};
    ck_assert_int_eq(plan_drop_prediction(r->plan, &info), ERR_OK);
    ck_assert_int_eq(r->plan->n_steps, r->alone->n_steps);
    ck_assert_int_eq(r->plan->n_weights, r->alone->n_weights);
    ck_assert_uint_eq(r->plan->output_width, 0);
    for (int32_t i = 0; i < r->plan->n_steps; i++) {
        ck_assert_int_eq(r->plan->steps[i].op, r->alone->steps[i].op);
    }
}

void head_rig_is_refused(const char *model_name, const char *head_name, const char *text)
{
    struct gguf *model = head_rig_open_file(model_name), *head = head_rig_open_file(head_name);
    struct plan *p, *head_plan;
    struct err_info info = {0};
    ck_assert_int_ne(model_build_drafting(model, head, 0, &p, &head_plan, &info), ERR_OK);
    ck_assert_str_eq(info.text, text);
    ck_assert(p == NULL && head_plan == NULL);
    gguf_close(&model);
    gguf_close(&head);
}

void head_rig_is_no_model(const char *name, const char *arch)
{
    struct gguf *head = head_rig_open_file(name);
    struct plan *p;
    struct err_info info = {0};
    char text[ERR_TEXT_BYTES];
    ck_assert_str_eq(model_head_of(head)->arch, arch);
    ck_assert_int_eq(model_build_predicting(head, 0, &p, &info), ERR_UNSUPPORTED_ARCH);
    snprintf(text, sizeof text, "expected a model, found '%s', a model's prediction head; use it with --draft-model",
             arch);
    ck_assert_str_eq(info.text, text);
    gguf_close(&head);
}
