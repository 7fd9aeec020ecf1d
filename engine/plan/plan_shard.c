/* Writes a rank's plan from the roles of plan_shares.h: the same steps over parts of buffers and weights. */
#include "engine/plan/plan_shard.h"

#include "engine/plan/plan_shares.h"
#include "engine/tensor/row_order.h"

#include <stddef.h>
#include <string.h>

struct shard {
    struct plan_shares by;
    struct plan *out;
    plan_weight_id *weights;          /* [n_weights of p] ids in out, PLAN_NONE until added */
    plan_buf_id whole[PLAN_MAX_BUFS]; /* ids of p's buffers in out, likewise */
    /* The same for each cut; for PLAN_SHARES_NONE this rank's part of a sum. */
    plan_buf_id parts[PLAN_SHARES_MAX_CUTS][PLAN_MAX_BUFS];
};

/* --- parts of weights ------------------------------------------------------------------------------------------- */

/* Parts of an axis, in order: for the delta rule q, k and each value head; for experts one each. */
struct runs {
    uint32_t n;
    struct plan_shares_range at[MAX_OF(PLAN_MAX_HEADS + 2, PLAN_MAX_EXPERTS)];
};

static void add_run(struct runs *r, uint32_t first, uint32_t unit, struct plan_shares_range of)
{
    r->at[r->n++] = (struct plan_shares_range){first + unit * of.from, first + unit * of.to};
}

/* Lists q, k and values, or a quantity per value head; q or k alone only if there are as many value heads. */
static void list_delta(const struct plan_delta *d, struct plan_shares_range keys, uint32_t width, struct runs *r)
{
    uint32_t k = d->n_k_heads * d->key_dim, unit = width / d->n_v_heads, first = 0;
    if (width == 2 * k + d->n_v_heads * d->value_dim) {
        add_run(r, 0, d->key_dim, keys);
        add_run(r, k, d->key_dim, keys);
        first = 2 * k;
        unit = d->value_dim;
    }
    if (!d->is_tiled) {
        add_run(r, first, plan_shares_n_each(d) * unit, keys);
    }
    for (uint32_t i = 0; d->is_tiled && i < plan_shares_n_each(d); i++) {
        add_run(r, first + i * d->n_k_heads * unit, unit, keys);
    }
}

/* Lists x, B and C, or a quantity per head. */
static void list_ssm(const struct plan_ssm *m, struct plan_shares_range groups, uint32_t width, struct runs *r)
{
    uint32_t inner = m->n_heads * m->head_dim, each = m->n_heads / m->n_groups;
    bool is_mixed = width == inner + 2 * m->n_groups * m->state_dim;
    add_run(r, 0, each * (is_mixed ? m->head_dim : width / m->n_heads), groups);
    if (is_mixed) {
        add_run(r, inner, m->state_dim, groups);
        add_run(r, inner + m->n_groups * m->state_dim, m->state_dim, groups);
    }
}

/* Lists the rank's part of rows of `width`. */
static void list_columns(const struct plan_shares *s, int cut, uint32_t width, struct runs *r)
{
    const struct plan_shares_cut *c = &s->cuts[cut];
    r->n = 0;
    if (cut == PLAN_SHARES_DELTA) {
        list_delta(&s->p->delta, c->share, width, r);
    } else if (cut == PLAN_SHARES_SSM) {
        list_ssm(&s->p->ssm, c->share, width, r);
    } else {
        add_run(r, 0, width / c->n_items, c->share);
    }
}

static uint32_t count(const struct runs *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        n += r->at[i].to - r->at[i].from;
    }
    return n;
}

/* Lists the rank's part of a weight's dimension, `length` long. */
static void list_axis(const struct plan_shares *s, int32_t i, enum plan_axis axis, uint32_t length, struct runs *r)
{
    const struct plan_step *step = &s->p->steps[i];
    int cut = s->roles[i].cut;
    uint32_t width = length, n_kv;
    if (axis == PLAN_AXIS_SRC || axis == PLAN_AXIS_DST) {
        width = s->p->bufs[axis == PLAN_AXIS_SRC ? step->src : step->dst].width;
    }
    r->n = 0;
    switch (axis) {
    case PLAN_AXIS_FF:
        for (uint32_t at = 0; at < length; at += s->cuts[cut].n_items) {
            add_run(r, at, 1, s->cuts[cut].share);
        }
        break;
    case PLAN_AXIS_KV_HEADS:
        n_kv = plan_kv_of(s->p, step->layer).n_kv_heads;
        add_run(r, 0, length / n_kv, plan_shares_kv_heads(s, n_kv));
        break;
    default:
        list_columns(s, cut, width, r);
    }
    for (uint32_t k = 0; k < r->n; k++) { /* several elements per column */
        r->at[k].from *= length / width;
        r->at[k].to *= length / width;
    }
}

/* Returns the listed rows, or columns, of a source; NULL if memory is out. */
static const struct row_source *take(struct arena *a, const struct row_source *of, bool is_rows, const struct runs *r)
{
    if (r->n == 1) {
        uint32_t first = r->at[0].from, n = r->at[0].to - first;
        return (is_rows ? row_order_row_range : row_order_column_range)(a, of, first, n);
    }
    uint32_t run = 0, n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        run = row_order_run(run, r->at[i].to - r->at[i].from);
    }
    uint32_t *first = arena_alloc(a, count(r) / run * sizeof *first);
    for (uint32_t i = 0; first != NULL && i < r->n; i++) {
        for (uint32_t at = r->at[i].from; at < r->at[i].to; at += run) {
            first[n++] = at;
        }
    }
    return (is_rows ? row_order_rows : row_order_columns)(a, of, first, n, run);
}

/* Puts the weight of step i that an operand names into *to. */
static enum err take_weight(struct shard *s, int32_t i, const struct plan_operand *o, plan_weight_id *to)
{
    const struct plan_weight *w = &s->by.p->weights[*to];
    enum plan_axis rows = plan_axis_of(o->rows), columns = plan_axis_of(o->width);
    bool cuts_rows = plan_shares_is_cut(&s->by, i, rows), cuts_columns = plan_shares_is_cut(&s->by, i, columns);
    bool is_bias = s->by.roles[i].sums && (o->flags & PLAN_VECTOR) != 0 && !cuts_columns;
    if (is_bias && s->by.rank != 0) { /* a bias of a sum is added once */
        *to = PLAN_NONE;
        return ERR_OK;
    }
    if (!cuts_rows && !cuts_columns) {
        plan_weight_id *known = &s->weights[*to];
        TRY(*known == PLAN_NONE ? plan_add_weight(s->out, w->name, w->source, known) : ERR_OK);
        *to = *known;
        return ERR_OK;
    }
    const struct row_source *of = w->source;
    struct runs runs;
    if (cuts_rows) {
        list_axis(&s->by, i, rows, w->n_out, &runs);
        of = take(&s->out->arena, of, true, &runs);
    }
    if (cuts_columns && of != NULL) {
        list_axis(&s->by, i, columns, w->n_in, &runs);
        of = take(&s->out->arena, of, false, &runs);
    }
    return plan_add_weight(s->out, w->name, of, to);
}

/* --- buffers and steps ------------------------------------------------------------------------------------------ */

/* Returns the slot for the id in out of a buffer of step i. */
static plan_buf_id *place_of(struct shard *s, int32_t i, const struct plan_operand *o, plan_buf_id id)
{
    struct plan_shares_role role = s->by.roles[i];
    if (role.sums && o->at == offsetof(struct plan_step, dst)) {
        return &s->parts[PLAN_SHARES_NONE][id];
    }
    bool is_part = role.cut != PLAN_SHARES_NONE && (o->flags & (role.sums ? PLAN_SUMMED : PLAN_PARTS)) != 0;
    return is_part ? &s->parts[role.cut][id] : &s->whole[id];
}

/* Adds the buffers that steps use; whole ones keep their order, because some must be adjacent. */
static enum err add_bufs(struct shard *s)
{
    const struct plan *p = s->by.p;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_operand *o;
        int32_t id;
        for (int k = 0; (o = plan_next_operand(&p->steps[i], &k, &id)) != NULL;) {
            int32_t n = (o->flags & PLAN_STREAMS) != 0 ? (int32_t)p->steps[i].streams.n : 1;
            for (int32_t at = 0; plan_is_buf(o) && at < n; at++) {
                *place_of(s, i, o, id + at) = 0; /* marks it as used */
            }
        }
    }
    for (plan_buf_id id = 0; id < p->n_bufs; id++) {
        if (s->whole[id] != PLAN_NONE) {
            TRY(plan_add_buf(s->out, p->bufs[id].name, p->bufs[id].width, &s->whole[id]));
        }
    }
    for (int cut = PLAN_SHARES_NONE; cut < s->by.n_cuts; cut++) {
        for (plan_buf_id id = 0; id < p->n_bufs; id++) {
            struct runs runs = {.n = 1, .at = {{0, p->bufs[id].width}}};
            if (s->parts[cut][id] == PLAN_NONE) {
                continue;
            }
            if (cut != PLAN_SHARES_NONE) {
                list_columns(&s->by, cut, p->bufs[id].width, &runs);
            }
            const char *name = cut != PLAN_SHARES_NONE ? p->bufs[id].name : "part";
            TRY(plan_add_buf(s->out, name, count(&runs), &s->parts[cut][id]));
        }
    }
    return ERR_OK;
}

/* Writes step i for this rank. sum: the first summing step since the ranks last met; NULL: none. */
static enum err write_step(struct shard *s, int32_t i, const struct plan_step **sum)
{
    const struct plan_step *old = &s->by.p->steps[i];
    struct plan_step step = *old;
    const struct plan_operand *o, *same = NULL; /* values can be keys */
    int32_t id, same_id = PLAN_NONE, same_now = PLAN_NONE;
    for (int k = 0; (o = plan_next_operand(old, &k, &id)) != NULL;) {
        int32_t *now = plan_operand_id(&step, o);
        if (plan_is_buf(o)) {
            *now = *place_of(s, i, o, id);
        } else if (id == same_id && plan_axis_of(o->rows) == plan_axis_of(same->rows) &&
                   plan_axis_of(o->width) == plan_axis_of(same->width)) {
            *now = same_now;
        } else {
            TRY(take_weight(s, i, o, now));
            same = o;
            same_id = id;
            same_now = *now;
        }
    }
    if (s->by.roles[i].sums) {
        step.adds = *sum != NULL;
        step.scale = 1;
        *sum = *sum != NULL ? *sum : old;
    } else if (plan_is_idle(old)) {
        if (*sum != NULL) {
            step.src = s->parts[PLAN_SHARES_NONE][old->dst];
            step.adds = (*sum)->adds;
            step.scale = (*sum)->scale;
        }
        *sum = NULL;
    }
    return plan_add_step(s->out, &step);
}

/* Sets sizes of the plan. */
static enum err set_sizes(struct shard *s)
{
    struct plan *out = s->out;
    const struct plan_shares_range *heads = &s->by.cuts[PLAN_SHARES_HEADS].share,
                                   *keys = &s->by.cuts[PLAN_SHARES_DELTA].share,
                                   *groups = &s->by.cuts[PLAN_SHARES_SSM].share;
    if (!s->by.cuts[PLAN_SHARES_HEADS].is_whole) {
        struct plan_shares_range kv = plan_shares_kv_heads(&s->by, s->by.p->n_kv_heads);
        out->n_heads = heads->to - heads->from;
        out->n_kv_heads = kv.to - kv.from;
    }
    if (!s->by.cuts[PLAN_SHARES_DELTA].is_whole) {
        out->delta.n_k_heads = keys->to - keys->from;
        out->delta.n_v_heads = plan_shares_n_each(&s->by.p->delta) * out->delta.n_k_heads;
    }
    if (!s->by.cuts[PLAN_SHARES_SSM].is_whole) {
        out->ssm.n_groups = groups->to - groups->from;
        out->ssm.n_heads = s->by.p->ssm.n_heads / s->by.p->ssm.n_groups * out->ssm.n_groups;
    }
    if (s->by.p->kvs == NULL) {
        return ERR_OK;
    }
    out->kvs = arena_alloc(&out->arena, out->n_layers * sizeof *out->kvs);
    for (uint32_t i = 0; out->kvs != NULL && i < out->n_layers; i++) {
        out->kvs[i] = s->by.p->kvs[i];
        if (out->kvs[i].layer != PLAN_NONE) {
            struct plan_shares_range kv = plan_shares_kv_heads(&s->by, s->by.p->kvs[i].n_kv_heads);
            out->kvs[i].n_heads = s->by.cuts[PLAN_SHARES_HEADS].is_whole ? out->kvs[i].n_heads : 0; /* the shard's */
            out->kvs[i].n_kv_heads = kv.to - kv.from;
        }
    }
    return out->kvs != NULL ? ERR_OK : ERR_NOMEM;
}

/* Copies the plan except weights, buffers and steps. */
static enum err copy_rest(struct shard *s)
{
    const struct plan empty = *s->out, *p = s->by.p;
    *s->out = *p;
    s->out->arena = empty.arena;
    s->out->kvs = NULL;
    s->out->weights = NULL;
    s->out->steps = NULL;
    s->out->cap_weights = s->out->cap_steps = 0;
    s->out->n_weights = s->out->n_steps = s->out->n_bufs = s->out->n_ropes = 0;
    s->out->rank = s->by.rank;
    s->out->n_ranks = s->by.n > 1 ? s->by.n : 0;
    s->by.roles = arena_zalloc_array(&s->out->arena, (size_t)p->n_steps, sizeof *s->by.roles);
    s->weights = arena_zalloc_array(&s->out->arena, (size_t)p->n_weights, sizeof *s->weights);
    TRY_MEM(s->by.roles != NULL && s->weights != NULL);
    for (int32_t i = 0; i < p->n_weights; i++) {
        s->weights[i] = PLAN_NONE;
    }
    for (int32_t i = 0, id; i < p->n_ropes; i++) {
        TRY(plan_add_rope(s->out, &p->ropes[i], &id));
    }
    return ERR_OK;
}

static enum err write_plan(struct shard *s)
{
    const struct plan_step *sum = NULL;
    TRY(copy_rest(s));
    plan_shares_find(&s->by);
    TRY(set_sizes(s));
    TRY(add_bufs(s));
    for (int32_t i = 0; i < s->by.p->n_steps; i++) {
        TRY(write_step(s, i, &sum));
    }
    return ERR_OK;
}

enum err plan_shard(const struct plan *p, uint32_t rank, uint32_t n, struct plan **out, struct err_info *info)
{
    struct shard s = {.by = {.p = p, .rank = rank, .n = n}};
    *out = NULL;
    if (n == 0 || n > PLAN_MAX_RANKS || rank >= n || p->n_ranks != 0 || plan_predicts(p)) {
        return err_set(info, ERR_CONFIG, "ranks",
                       "expected one of 1 to %d ranks of a whole plan without a prediction head, found %u of %u",
                       PLAN_MAX_RANKS, rank, n);
    }
    memset(s.whole, 0xFF, sizeof s.whole); /* sets PLAN_NONE */
    memset(s.parts, 0xFF, sizeof s.parts);
    enum err err = plan_new(&s.out);
    if (err == ERR_OK) {
        err = write_plan(&s);
    }
    if (err == ERR_OK) {
        err = plan_check(s.out, info);
    } else {
        err = err_set(info, err, NULL, "no memory or no buffers left for the plan of a rank");
    }
    if (err != ERR_OK) {
        plan_free(&s.out);
    }
    *out = s.out;
    return err;
}
