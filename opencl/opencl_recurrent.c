/* Steps with a recurrent state, which has the floats of the plan in the plan's order (kernels/recurrent.cl). */
#include "opencl/opencl_maker.h"

#include <stdio.h>

enum { CONV_WG = 64, CONV_PIECES = 16, NORM_WG = 128 };

/* Location of all states, and the floats of each. */
#define STATES_ARGS(k) opencl_at((k), (k)->m->states), ARG_ULONG(slot_floats(k))

/* Where the step's drafts are in a state's memory. */
#define DRAFTS_ARG(k) ARG_ULONG((k)->plan->recurrent_floats + (uint64_t)(k)->m->cfg.max_drafts * (k)->s->drafted)

static uint64_t slot_floats(const struct opencl_maker *k)
{
    return (k->m->bytes.state + k->m->bytes.drafts) / sizeof(float);
}

enum err opencl_recurrent_make_short_conv(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    uint32_t width = opencl_width(k, s->src);
    char options[OPENCL_OPTIONS_BYTES];
    struct opencl_launch l = opencl_launch_over(k, CONV_WG, 1, width);
    l.groups *= CONV_PIECES;
    l.by = OPENCL_BY_SEQS;
    snprintf(options, sizeof options, "-DTAPS=%u", s->conv.taps);
    TRY(OPENCL_ADD(k, l, "recurrent.cl", "short_conv", options, ARG_ROWS(k, s->src), ARG_UINT(width),
                   opencl_vector(k, s->w[0]), ARG_OPTIONAL(k, s->bias[0]), ARG_INT(s->conv.map), STATES_ARGS(k),
                   ARG_ULONG(s->recurrent), DRAFTS_ARG(k), ARG_ROWS(k, s->dst)));
    return opencl_end_step(k, s->dst);
}

/* Input of a scan: the offsets of queries, keys and values in rows of their buffers, and n_k heads of keys. */
struct scan {
    bool is_delta, by_channel, by_key;
    uint32_t n_heads, dk, dv; /* of values; rows and columns of a state */
    plan_buf_id queries, keys, values;
    uint32_t k_first, q_first, v_first;
    uint32_t per_k, n_k; /* adjacent heads that share a key; 0: heads use keys in rotation */
    plan_buf_id rates, betas;
    plan_weight_id skip;
};

/* PARTS divides a column into pieces that fit in a wave's registers. */
static enum err add_scan(const struct opencl_maker *k, const struct scan *of)
{
    const struct plan_step *s = k->s;
    size_t waves = of->dk <= 128 ? 4 : 8, slices = (of->dv + OPENCL_LANES - 1) / OPENCL_LANES;
    char options[OPENCL_OPTIONS_BYTES];
    struct opencl_launch l = opencl_launch_of(k, waves * OPENCL_LANES, of->n_heads * slices);
    l.by = OPENCL_BY_SEQS;
    snprintf(options, sizeof options, "-DDK=%u -DPARTS=%zu -DDELTA=%d -DCHANNELS=%d -DDECAYS=%d", of->dk, waves,
             of->is_delta, of->by_channel, of->by_key);
    TRY(OPENCL_ADD(k, l, "recurrent.cl", "scan", options, ARG_ROWS(k, of->queries), ARG_UINT(of->q_first),
                   ARG_ROWS(k, of->keys), ARG_UINT(of->k_first), ARG_ROWS(k, of->values), ARG_UINT(of->v_first),
                   ARG_UINT(of->per_k), ARG_UINT(of->n_k), ARG_UINT(of->dv), ARG_ROWS(k, of->rates),
                   ARG_ROWS(k, of->betas), opencl_vector(k, s->w[0]), opencl_vector(k, s->bias[0]),
                   opencl_vector(k, of->skip), STATES_ARGS(k), ARG_ULONG(s->recurrent), DRAFTS_ARG(k),
                   ARG_INT(k->m->cfg.max_drafts), ARG_ROWS(k, s->dst)));
    if (k->m->cfg.max_drafts == 0) {
        return ERR_OK;
    }
    l.groups = of->n_heads;
    l.when = OPENCL_IF_DRAFTS;
    return OPENCL_ADD(k, l, "recurrent.cl", "keep_drafts", options, ARG_ROWS(k, of->keys), ARG_UINT(of->k_first),
                      ARG_ROWS(k, of->values), ARG_UINT(of->v_first), ARG_UINT(of->per_k), ARG_UINT(of->n_k),
                      ARG_UINT(of->dv), ARG_ROWS(k, of->rates), ARG_ROWS(k, of->betas), STATES_ARGS(k), DRAFTS_ARG(k),
                      ARG_INT(k->m->cfg.max_drafts));
}

/* Adds the norm of each head of dst, in place; writes codes if heads are whole blocks. */
static enum err add_head_norm(const struct opencl_maker *k, uint32_t n)
{
    const struct plan_step *s = k->s;
    struct opencl_need need = opencl_need_of(k, s->dst);
    bool in_one = n % PANEL_BLOCK == 0;
    int flags = FLAG_WEIGHT | (need.floats || !in_one ? FLAG_FLOATS : 0);
    flags |= need.codes && in_one ? opencl_code_flags(k) : 0;
    TRY(OPENCL_ADD(k, opencl_launch_of(k, NORM_WG, opencl_width(k, s->dst) / n), "norm.cl", "norm", "",
                   ARG_INT(s->rows), ARG_ROWS(k, s->dst), opencl_vector(k, s->w[1]), ARG_MEM(NULL), ARG_FLOAT(s->eps),
                   ARG_UINT(n), ARG_INT(flags), ARG_ROWS(k, s->dst), ARG_CODES(k, s->dst)));
    return in_one ? ERR_OK : opencl_end_step(k, s->dst);
}

enum err opencl_recurrent_make_delta(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    const struct plan_delta *d = &k->plan->delta;
    bool is_apart = s->delta.keys != PLAN_NONE;
    uint32_t keys = d->n_k_heads * d->key_dim;
    TRY(add_scan(k, &(struct scan){.is_delta = true,
                                   .by_key = d->decays_keys,
                                   .n_heads = d->n_v_heads,
                                   .dk = d->key_dim,
                                   .dv = d->value_dim,
                                   .queries = s->src,
                                   .keys = is_apart ? s->delta.keys : s->src,
                                   .values = is_apart ? s->delta.values : s->src,
                                   .k_first = is_apart ? 0 : keys,
                                   .v_first = is_apart ? 0 : 2 * keys,
                                   .per_k = d->is_tiled ? 0 : d->n_v_heads / d->n_k_heads,
                                   .n_k = d->n_k_heads,
                                   .rates = s->delta.alpha,
                                   .betas = s->delta.beta,
                                   .skip = PLAN_NONE}));
    return s->w[1] != PLAN_NONE ? add_head_norm(k, d->value_dim) : opencl_end_step(k, s->dst);
}

enum err opencl_recurrent_make_ssm(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    const struct plan_ssm *m = &k->plan->ssm;
    uint32_t values = m->n_heads * m->head_dim;
    TRY(add_scan(k, &(struct scan){.n_heads = m->n_heads,
                                   .dk = m->state_dim,
                                   .dv = m->head_dim,
                                   .queries = s->src,
                                   .keys = s->src,
                                   .values = s->src,
                                   .k_first = values,
                                   .q_first = values + m->n_groups * m->state_dim,
                                   .per_k = m->n_heads / m->n_groups,
                                   .n_k = m->n_groups,
                                   .rates = s->ssm.dt,
                                   .betas = s->ssm.dt, /* unused */
                                   .skip = s->w[1]}));
    return opencl_end_step(k, s->dst);
}

enum err opencl_recurrent_make_scan(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    const struct plan_ssm *m = &k->plan->ssm;
    TRY(add_scan(k, &(struct scan){.by_channel = true,
                                   .n_heads = m->n_heads,
                                   .dk = m->state_dim,
                                   .dv = m->head_dim,
                                   .queries = s->scan.c,
                                   .keys = s->scan.b,
                                   .values = s->src,
                                   .per_k = m->n_heads,
                                   .n_k = 1,
                                   .rates = s->scan.dt,
                                   .betas = s->scan.dt, /* unused */
                                   .skip = s->w[1]}));
    return opencl_end_step(k, s->dst);
}
