/* Converts plan steps to the steps of the CPU back end. A norm whose result only the next matmul reads is fused into
 * that matmul, which then normalizes rows before it quantizes them. A norm that adds to the residual stream is fused
 * with it. Each fusion saves a barrier and a pass over memory. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

/* Blocks get a second 8-bit term if their scale is more than twice the root mean square of the row's scales. These are
 * about 6 % of the blocks, about 14 % more work in prefill's tiles of 8 rows. Mean KL on SmolLM2 Q4_1: 2.6e-3 without
 * second terms, 1.1e-3 with these, 6e-7 with all (docs/internals/cpu.md). */
#define FINE 2.0f

/* Returns whether step i is an RMSNorm of whole rows. */
static bool is_norm(const struct plan *p, int32_t i)
{
    const struct plan_step *s = &p->steps[i];
    return i + 1 < p->n_steps && cpu_ops[s->op].is_norm && !s->norm.centers &&
           p->weights[s->w[0]].n_in == p->bufs[s->src].width;
}

static bool can_fuse(const struct plan *p, int32_t i)
{
    const struct plan_step *s = &p->steps[i], *next = s + 1;
    return is_norm(p, i) && !s->adds && cpu_ops[next->op].takes_norm && next->src == s->dst &&
           !plan_is_read(p, i + 2, next->src);
}

/* Returns whether a step finds the buffer by its position among others, so that a second one cannot replace it. */
static bool stays(const struct plan *p, plan_buf_id buf)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        if ((plan_uses(&p->steps[i], buf) & PLAN_STREAMS) != 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether step i is an adding norm before a norm of the sum that can be fused into a matmul. Threads read the
 * parts of the sum while others have finished their share of the matmul, so the matmul must write neither. */
static bool can_fuse_post(const struct plan *p, int32_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (!is_norm(p, i) || !s->adds || s[1].src != s->dst || !can_fuse(p, i + 1)) {
        return false;
    }
    plan_buf_id written = s[2].dst;
    return written != s->dst && written != s->src && !stays(p, s->dst);
}

/* Builds the step that begins with plan step i; returns the last plan step that it includes. now: the current buffer of
 * each buffer of the plan. */
static int32_t make_step(const struct plan *p, int32_t i, cpu_buf_id *now, struct cpu_step *c)
{
    plan_buf_id src = p->steps[i].src;
    *c = (struct cpu_step){.norm = PLAN_NONE, .post = PLAN_NONE};
    if (can_fuse_post(p, i)) {
        src = p->steps[i].dst;
        c->has_post = true;
        c->post = p->steps[i].w[0];
        c->post_eps = p->steps[i].eps;
        c->added = now[p->steps[i].src];
        c->renewed = now[src] == src ? src + PLAN_MAX_BUFS : src;
        i++;
    }
    if (can_fuse(p, i)) {
        c->has_norm = true;
        c->norm = p->steps[i].w[0];
        c->norm_eps = p->steps[i].eps;
        i++;
    }
    cpu_buf_id from = src == PLAN_NONE ? PLAN_NONE : now[src];
    if (c->has_post) {
        now[src] = c->renewed;
    }
    c->step = p->steps[i];
    plan_rename(&c->step, now);
    c->step.src = from;
    return i;
}

/* Returns whether only step c + 1, a matmul by rows like c, reads the buffer that c writes. */
static bool can_alternate(const struct plan *p, const struct cpu_step *c)
{
    const struct plan_step *s = &c->step, *next = &c[1].step;
    return cpu_ops[s->op].by_tiles && !s->adds && cpu_ops[next->op].by_tiles && !c[1].has_norm && next->src == s->dst &&
           next->dst != s->dst && next->rows == s->rows && !plan_is_read(p, c->at + 2, p->steps[c->at].dst);
}

struct cpu_buf_use cpu_buf_use(const struct backend_model *m, cpu_buf_id buf)
{
    struct cpu_buf_use u = {.by_tiles = true, .after_gather = true};
    for (int i = 0; i < m->n_steps; i++) {
        const struct cpu_step *c = &m->steps[i];
        int uses = plan_uses(&c->step, buf);
        bool is_post = c->has_post && (c->added == buf || c->renewed == buf), is_src = c->step.src == buf || is_post;
        if (uses == 0 && !is_post) {
            continue;
        }
        bool reads = (uses & PLAN_READS) != 0;
        u.is_used = true;
        u.is_normed |= (c->has_norm || cpu_ops[c->step.op].is_norm) && is_src;
        u.by_tiles &= !is_post && (uses & PLAN_STREAMS) == 0 && ((uses & PLAN_WRITES) == 0 || c->alternates) &&
                      (!reads || (i > 0 && c[-1].alternates));
        u.after_gather &= c->step.rows == PLAN_LOGIT_ROWS && !(reads && plan_ops[c->step.op].crosses_rows);
        u.by_head |= cpu_is_head(c) && is_src;
    }
    return u;
}

enum err cpu_steps_compile(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    m->steps = mem_zalloc_array((size_t)p->n_steps, sizeof *m->steps, MEM_MODEL);
    m->tasks = mem_zalloc_array((size_t)p->n_steps, sizeof *m->tasks, MEM_MODEL);
    TRY_MEM_FOR(m->steps != NULL && m->tasks != NULL, info, "out of memory for the steps");
    cpu_buf_id now[PLAN_MAX_BUFS];
    for (int32_t b = 0; b < PLAN_MAX_BUFS; b++) {
        now[b] = b;
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (plan_is_idle(&p->steps[i])) {
            continue;
        }
        struct cpu_step *c = &m->steps[m->n_steps++];
        m->n_main += i < plan_main_steps(p);
        c->at = i = make_step(p, i, now, c);
        c->fine = m->cfg.high_precision ? 0 : FINE;
        m->n_storing = i < p->n_storing ? m->n_steps : m->n_storing;
        m->n_storing_predict = i < p->n_storing_predict ? m->n_steps : m->n_storing_predict;
    }
    for (int i = 0; i + 1 < m->n_steps; i++) {
        m->steps[i].alternates = (i == 0 || !m->steps[i - 1].alternates) && can_alternate(p, &m->steps[i]);
    }
    return ERR_OK;
}
