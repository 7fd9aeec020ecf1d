/* From plan steps to the steps the CPU back end runs: a norm whose result only the next matmul reads is fused into that
 * matmul, which then normalises the rows it is about to quantise. Saves a barrier and a pass over memory each. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

/* Second 8-bit terms: in every block before the head, whose error nothing evens out, elsewhere in the blocks whose
 * scale is more than twice the row's root mean square: about 6 % of them, which in prefill's tiles of 8 rows makes
 * about 14 % more work. Mean KL on SmolLM2 Q4_1: none 2.6e-3, so 1.1e-3, everywhere 6e-7 (docs/internals/cpu.md). */
#define FINE 2.0f

/* Does any step behind `after` read `buf` before it is written anew? What adds both reads and writes. */
static bool is_read_later(const struct plan *p, int32_t after, plan_buf_id buf)
{
    for (int32_t i = after + 1; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        bool adds = s->op == PLAN_MATMUL ? s->epilogue == PLAN_ADD : s->adds;
        if (s->src == buf || (s->dst == buf && adds)) {
            return true;
        }
        if (s->dst == buf) {
            return false;
        }
    }
    return false;
}

static bool can_fuse(const struct plan *p, int32_t norm)
{
    if (p->steps[norm].op != PLAN_NORM || p->steps[norm].adds || norm + 1 >= p->n_steps) {
        return false;
    }
    const struct plan_step *next = &p->steps[norm + 1];
    return next->op == PLAN_MATMUL && next->src == p->steps[norm].dst && !is_read_later(p, norm + 1, next->src);
}

enum err cpu_steps_compile(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    m->steps = mem_zalloc_array((size_t)p->n_steps, sizeof *m->steps, MEM_MODEL);
    m->tasks = mem_zalloc_array((size_t)p->n_steps, sizeof *m->tasks, MEM_MODEL);
    m->blocks = mem_zalloc_array((size_t)m->cfg.max_rows, sizeof *m->blocks, MEM_MODEL);
    if (m->steps == NULL || m->tasks == NULL || m->blocks == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the steps");
    }
    bool after_gather = false;
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct cpu_step *c = &m->steps[m->n_steps++];
        *c = (struct cpu_step){.step = &p->steps[i], .norm = PLAN_NONE, .src = p->steps[i].src};
        if (can_fuse(p, i)) {
            c->has_norm = true;
            c->norm = p->steps[i].w[0];
            c->norm_eps = p->steps[i].eps;
            c->step = &p->steps[++i];
        }
        c->after_gather = after_gather || c->step->op == PLAN_GATHER;
        after_gather = c->after_gather;
        bool is_head = c->step->op == PLAN_MATMUL && c->step->epilogue == PLAN_LOGITS;
        c->fine = is_head || m->cfg.high_precision ? 0 : FINE;
    }
    return ERR_OK;
}
