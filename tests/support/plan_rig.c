#include "tests/support/plan_rig.h"

#include "engine/quant/row_mapped.h"

#include <check.h>

enum { MOST_ROWS = 64 };

plan_weight_id plan_rig_weight(struct plan *p, const float *data, uint32_t n_out, uint32_t n_in)
{
    plan_weight_id id = PLAN_NONE;
    const struct row_source *rows = row_mapped_new(&p->arena, DTYPE_F32, data, n_out, n_in);
    ck_assert_int_eq(plan_add_weight(p, "w", rows, &id), ERR_OK);
    return id;
}

plan_buf_id plan_rig_buffer(struct plan *p, uint32_t width)
{
    plan_buf_id id = PLAN_NONE;
    ck_assert_int_eq(plan_add_buf(p, "buffer", width, &id), ERR_OK);
    return id;
}

struct plan_step *plan_rig_step(struct plan *p, enum plan_op op, plan_buf_id src, plan_buf_id dst, plan_weight_id w)
{
    struct plan_step s = plan_step_of(op, src, dst);
    s.w[0] = w;
    s.layer = 0;
    ck_assert_int_eq(plan_add_step(p, &s), ERR_OK);
    return &p->steps[p->n_steps - 1];
}

struct backend_model *plan_rig_open(const struct backend *backend, const struct plan *p, const char *cpu,
                                    const char *type, int n_threads, int max_rows)
{
    struct backend_config cfg = {.cpu = cpu,
                                 .k_type = type,
                                 .high_precision = true,
                                 .n_threads = n_threads,
                                 .n_pages = 2,
                                 .max_rows = max_rows,
                                 .max_logits = max_rows};
    struct backend_model *m = NULL;
    struct err_info info = {0};
    ck_assert_msg(backend->open(p, &cfg, &m, &info) == ERR_OK, "%s", info.text);
    return m;
}

void plan_rig_compute(const struct backend *backend, struct backend_model *m, const int32_t *tokens, int from, int to,
                      int step, uint32_t n_vocab, float *logits)
{
    static const int32_t pages[2] = {1, 0};
    const int32_t *table = pages;
    struct err_info info = {0};
    ck_assert_int_le(step, MOST_ROWS);
    for (; from < to; from += step) {
        int32_t pos[MOST_ROWS], seq[MOST_ROWS] = {0}, rows[MOST_ROWS], n = MIN_OF(step, to - from);
        struct backend_row_stats stats[MOST_ROWS];
        for (int32_t i = 0; i < n; i++) {
            pos[i] = from + i;
            rows[i] = i;
        }
        struct backend_batch b = {.n_rows = n,
                                  .tokens = tokens + from,
                                  .pos = pos,
                                  .seq = seq,
                                  .n_seqs = 1,
                                  .page_tables = &table,
                                  .n_logits = n,
                                  .logit_rows = rows,
                                  .logits = logits + (size_t)from * n_vocab,
                                  .stats = stats};
        ck_assert_msg(backend_compute(backend, m, &b, &info) == ERR_OK, "%s", info.text);
    }
}
