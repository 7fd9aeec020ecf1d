/* Experts: sorts rows by expert into tiles, multiplies each tile, and sums a row's results. */
#include "opencl/opencl_maker.h"

enum { WG = 64, SORT_WG = 256 };

enum err opencl_experts_make_route(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    const struct plan_moe *moe = &k->plan->moe;
    TRY(OPENCL_ADD(k, opencl_launch_of(k, OPENCL_LANES, 1), "experts.cl", "route", "", ARG_ROWS(k, s->src),
                   ARG_UINT(moe->n_experts), ARG_UINT(moe->n_used), ARG_UINT(moe->n_groups),
                   ARG_UINT(moe->n_groups_used), ARG_INT(moe->by_two), ARG_INT(moe->gating),
                   ARG_INT(moe->norms_weights), ARG_FLOAT(moe->weights_scale), ARG_OPTIONAL(k, s->w[0]),
                   ARG_OPTIONAL(k, s->w[1]), ARG_ROWS(k, s->dst)));
    return opencl_end_step(k, s->dst);
}

/* Adds the sorting of picks into tiles of the size that products use for this many rows. */
static enum err add_sort(const struct opencl_maker *k, uint32_t per_tile, int32_t min_rows, int32_t max_rows)
{
    const struct plan_step *s = k->s;
    struct opencl_launch l = opencl_launch_of(k, SORT_WG, 1);
    l.by = OPENCL_ONCE;
    l.min_rows = min_rows;
    l.max_rows = max_rows;
    return OPENCL_ADD(k, l, "experts.cl", "sort", "", ARG_INT(s->rows), ARG_ROWS(k, s->experts.route),
                      ARG_UINT(k->plan->moe.n_experts), ARG_UINT(k->plan->moe.n_used), ARG_UINT(per_tile),
                      opencl_at(k, k->m->picks), opencl_at(k, k->m->tiles));
}

/* Adds act(x w[0]) * (x w[1]) of all picks, or without w[1] only act(), as floats or, if w[2] needs codes, as codes. */
static enum err add_inner(const struct opencl_maker *k, bool as_codes)
{
    const struct plan_step *s = k->s;
    struct backend_model *m = k->m;
    struct opencl_product p = opencl_product_of(k, 0);
    p.per_row = k->plan->moe.n_used;
    p.dst = opencl_at(k, m->made_floats);
    p.dst_stride = m->made_stride;
    if (!s->experts.weighs_input && opencl_pair(k, &p)) {
        p.flags = as_codes ? opencl_code_flags(k) : FLAG_FLOATS;
        p.dst_codes = opencl_at(k, m->made_codes);
        p.dst_blocks = m->made_stride / PANEL_BLOCK;
        return opencl_add_product(k, &p);
    }
    bool is_gated = s->w[1] != PLAN_NONE;
    uint32_t ff = m->weights[s->w[0]].group_rows;
    TRY(opencl_add_product(k, &p));
    if (is_gated) {
        struct opencl_product up = opencl_product_of(k, 1);
        up.per_row = p.per_row;
        up.dst = opencl_at(k, m->up_made);
        up.dst_stride = m->made_stride;
        m->has_up_made = true;
        TRY(opencl_add_product(k, &up));
    }
    struct opencl_launch l = opencl_launch_over(k, WG, 1, ff);
    l.by = OPENCL_BY_PICKS;
    if (s->experts.weighs_input) {
        TRY(OPENCL_ADD(k, l, "experts.cl", "weigh_gated", "", ARG_ROWS(k, s->experts.route), ARG_UINT(p.per_row),
                       ARG_INT(s->act), p.dst, ARG_UINT(m->made_stride), ARG_UINT(ff), opencl_at(k, m->up_made),
                       ARG_UINT(m->made_stride)));
    } else {
        TRY(OPENCL_ADD(k, l, "streams.cl", "gated", "", ARG_INT(s->act), ARG_FLOAT(s->gate_limit),
                       ARG_FLOAT(s->up_limit), p.dst, ARG_UINT(m->made_stride), ARG_UINT(ff), opencl_at(k, m->up_made),
                       ARG_UINT(m->made_stride), ARG_INT(is_gated)));
    }
    l = opencl_launch_over(k, 128, 4, m->made_stride);
    l.by = OPENCL_BY_PICKS;
    return OPENCL_ADD(k, l, "norm.cl", "encode", "", ARG_INT(s->rows), p.dst, ARG_UINT(m->made_stride), ARG_UINT(ff),
                      ARG_INT(opencl_code_flags(k)), opencl_at(k, m->made_codes),
                      ARG_UINT(m->made_stride / PANEL_BLOCK));
}

enum err opencl_experts_make(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    struct backend_model *m = k->m;
    bool as_codes = !panel_info(m->weights[s->w[2]].kind)->is_float;
    opencl_widen(&m->made_stride, m->weights[s->w[0]].group_rows);
    opencl_widen(&m->results_stride, opencl_width(k, s->dst));
    TRY(add_sort(k, 1, 0, 1));
    TRY(add_sort(k, OPENCL_PICKED_ROWS, 2, OPENCL_ANY_ROWS));
    TRY(add_inner(k, as_codes));
    struct opencl_product p = opencl_product_of(k, 2);
    p.floats = opencl_at(k, m->made_floats);
    p.codes = opencl_at(k, m->made_codes);
    p.blocks = m->made_stride / PANEL_BLOCK;
    p.per_row = 1;
    p.dst = opencl_at(k, m->results);
    p.dst_stride = m->results_stride;
    TRY(opencl_add_product(k, &p));
    uint32_t width = opencl_width(k, s->dst);
    TRY(OPENCL_ADD(k, opencl_launch_over(k, WG, 1, width), "experts.cl", "combine", "", ARG_ROWS(k, s->experts.route),
                   ARG_UINT(k->plan->moe.n_used), p.dst, ARG_UINT(m->results_stride), ARG_FLOAT(s->scale),
                   ARG_INT(!s->experts.weighs_input), ARG_INT(s->adds ? FLAG_ADDS : 0), ARG_ROWS(k, s->dst),
                   ARG_UINT(width)));
    return opencl_end_step(k, s->dst);
}
