/* From plan steps to the steps the CPU back end runs: a norm whose result only the next matmul reads is fused into that
 * matmul, which then normalises the rows it is about to quantise; a norm that adds to the residual stream goes with it.
 * Saves a barrier and a pass over memory each. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/mem.h"

/* Second 8-bit terms: in the blocks whose
 * scale is more than twice the row's root mean square: about 6 % of them, which in prefill's tiles of 8 rows makes
 * about 14 % more work. Mean KL on SmolLM2 Q4_1: none 2.6e-3, so 1.1e-3, everywhere 6e-7 (docs/internals/cpu.md). */
#define FINE 2.0f

/* Does the step read `buf` besides its source? */
static bool reads_besides(const struct plan_step *s, plan_buf_id buf)
{
    return s->keys == buf || s->values == buf || s->route == buf;
}

/* Does any step behind `after` read `buf` before it is written anew? What adds both reads and writes. */
static bool is_read_later(const struct plan *p, int32_t after, plan_buf_id buf)
{
    for (int32_t i = after + 1; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        bool adds = s->op == PLAN_MATMUL    ? s->epilogue == PLAN_ADD
                    : s->op == PLAN_EXPERTS ? !s->stores
                                            : s->adds || s->op == PLAN_GATE || s->op == PLAN_MULTIPLY;
        if (s->src == buf || reads_besides(s, buf) || plan_is_stream(s, buf) || (s->dst == buf && adds)) {
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
    bool is_whole = p->weights[p->steps[norm].w[0]].n_in == p->bufs[p->steps[norm].src].width;
    return !p->steps[norm].centers && is_whole && next->op == PLAN_MATMUL && next->src == p->steps[norm].dst &&
           !is_read_later(p, norm + 1, next->src);
}

/* Does a step look for the buffer where the plan has it, whatever took turns with it? */
static bool stays(const struct plan *p, plan_buf_id buf)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        if (reads_besides(&p->steps[i], buf) || plan_is_stream(&p->steps[i], buf)) {
            return true;
        }
    }
    return false;
}

/* Is step i a norm that adds, in front of a norm of the sum that can be fused into a matmul? Threads read the sum's
 * parts while others are done with their share of the matmul, so it must write neither. */
static bool can_fuse_post(const struct plan *p, int32_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (s->op != PLAN_NORM || !s->adds || i + 1 >= p->n_steps || p->steps[i + 1].src != s->dst || !can_fuse(p, i + 1)) {
        return false;
    }
    if (p->weights[s->w[0]].n_in != p->bufs[s->src].width) { /* of groups */
        return false;
    }
    plan_buf_id written = p->steps[i + 2].dst;
    return written != s->dst && written != s->src && !stays(p, s->dst);
}

/* Makes the step that begins with plan step i; returns the last plan step it takes in. now: the buffer in which each
 * buffer of the plan is at the moment. */
static int32_t make_step(const struct plan *p, int32_t i, cpu_buf_id *now, struct cpu_step *c)
{
    plan_buf_id src = p->steps[i].src;
    *c = (struct cpu_step){.step = &p->steps[i], .norm = PLAN_NONE, .post = PLAN_NONE};
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
        c->step = &p->steps[++i];
    }
    c->src = src == PLAN_NONE ? PLAN_NONE : now[src];
    if (c->has_post) {
        now[src] = c->renewed;
    }
    c->dst = c->step->dst == PLAN_NONE ? PLAN_NONE : now[c->step->dst];
    return i;
}

/* Does only step c + 1, a matmul by rows like c, read what c writes? QKV is not one: attention reads other rows of it.
 */
static bool can_go_on(const struct plan *p, const struct cpu_step *c)
{
    const struct plan_step *s = c->step, *next = c[1].step;
    bool fits = s->op == PLAN_MATMUL &&
                (s->epilogue == PLAN_STORE || s->epilogue == PLAN_GLU || s->epilogue == PLAN_ACT) &&
                next->op == PLAN_MATMUL && (next->epilogue == PLAN_STORE || next->epilogue == PLAN_ADD);
    return fits && !c[1].has_norm && c[1].src == c->dst && c[1].dst != c->dst && c[1].after_gather == c->after_gather &&
           !is_read_later(p, (int32_t)(next - p->steps), s->dst);
}

struct cpu_buf_use cpu_buf_use(const struct backend_model *m, cpu_buf_id buf)
{
    struct cpu_buf_use u = {.by_tiles = true, .after_gather = true};
    for (int i = 0; i < m->n_steps; i++) {
        const struct cpu_step *c = &m->steps[i];
        bool is_post = c->has_post && (c->added == buf || c->renewed == buf);
        bool is_stream = plan_is_stream(c->step, buf);
        bool is_read = c->src == buf || reads_besides(c->step, buf) || is_stream || is_post;
        if (!is_read && c->dst != buf) {
            continue;
        }
        u.is_used = true;
        u.is_normed |= (c->has_norm || c->step->op == PLAN_NORM || c->step->op == PLAN_HIDDEN) && is_read;
        u.by_tiles &=
            !is_post && !is_stream && (c->dst != buf || c->goes_on) && (c->src != buf || (i > 0 && c[-1].goes_on));
        u.after_gather &= c->step->op == PLAN_GATHER ? c->src != buf : c->after_gather;
        u.by_head |= cpu_is_head(c) && is_read;
    }
    return u;
}

enum err cpu_steps_compile(struct backend_model *m, struct err_info *info)
{
    const struct plan *p = m->plan;
    m->steps = mem_zalloc_array((size_t)p->n_steps, sizeof *m->steps, MEM_MODEL);
    m->tasks = mem_zalloc_array((size_t)p->n_steps, sizeof *m->tasks, MEM_MODEL);
    if (m->steps == NULL || m->tasks == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the steps");
    }
    cpu_buf_id now[PLAN_MAX_BUFS];
    for (int32_t b = 0; b < PLAN_MAX_BUFS; b++) {
        now[b] = b;
    }
    bool after_gather = false;
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct cpu_step *c = &m->steps[m->n_steps++];
        i = make_step(p, i, now, c);
        c->after_gather = after_gather || c->step->op == PLAN_GATHER;
        after_gather = c->after_gather;
        c->fine = m->cfg.high_precision ? 0 : FINE;
    }
    for (int i = 0; i + 1 < m->n_steps; i++) {
        m->steps[i].goes_on = (i == 0 || !m->steps[i - 1].goes_on) && can_go_on(p, &m->steps[i]);
    }
    return ERR_OK;
}
