/* From plan steps to the steps the CPU back end runs: a norm whose result only the next matmul reads is fused into that
 * matmul, which then normalises the rows it is about to quantise. Saves a barrier and a pass over memory each. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

/* Does any step behind `after` read `buf` before it is written anew? A PLAN_ADD both reads and writes. */
static bool is_read_later(const struct plan *p, int32_t after, plan_buf_id buf)
{
    for (int32_t i = after + 1; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        bool adds = s->op == PLAN_MATMUL && s->epilogue == PLAN_ADD;
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
    if (p->steps[norm].op != PLAN_NORM || norm + 1 >= p->n_steps) {
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
    if (m->steps == NULL || m->tasks == NULL) {
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
        /* 8 bits for an activation flip near ties of small models: with one term the mean KL on SmolLM2 Q4_1 is 3.5e-3,
         * with two for QKV and the head alone 1.8e-3 (tests/golden/fidelity), and "The capital of France" comes out in
         * French. Weights are read and unpacked once for both terms. */
        c->terms = 2;
    }
    return ERR_OK;
}
