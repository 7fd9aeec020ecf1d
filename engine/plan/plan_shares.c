/* All layers have one number of heads, so heads are cut in all steps or in none. plan_ops.c has the differences between
 * ops. */
#include "engine/plan/plan_shares.h"

#include "engine/tensor/row_order.h"

#include <stddef.h>
#include <string.h>

/* Steps [from, to), after which ranks meet; the summing one of them, and the buffers that are cut with it. */
struct block {
    int32_t from, to, last;
    bool has[PLAN_MAX_BUFS];
};

/* --- boundaries --------------------------------------------------------------------------------------------------- */

static uint32_t gcd(uint32_t a, uint32_t b) { return row_order_run(a, b); }

/* Returns a rank's share of `count` items from `first` on. */
static struct plan_shares_range share_of(uint32_t first, uint32_t count, uint32_t grain, uint32_t rank, uint32_t n)
{
    uint64_t n_grains = ((uint64_t)count + grain - 1) / grain;
    uint64_t from = n_grains * rank / n * grain, to = n_grains * (rank + 1) / n * grain;
    return (struct plan_shares_range){first + (uint32_t)MIN_OF(from, count), first + (uint32_t)MIN_OF(to, count)};
}

/* Makes shares of rows of `width` begin and end at multiples of `grain`, or at the row's end. */
static void align_cut(struct plan_shares *s, int at, uint32_t width, uint32_t grain)
{
    struct plan_shares_cut *c = &s->cuts[at];
    if (grain == 1) {
        return;
    }
    bool is_tiled = at == PLAN_SHARES_DELTA && s->p->delta.is_tiled;
    uint32_t n_runs = is_tiled ? plan_shares_n_each(&s->p->delta) : 1; /* in which an item's columns are */
    uint32_t run = width / n_runs;
    uint32_t items = grain / gcd(grain, run / c->n_items);
    uint64_t both = (uint64_t)(c->grain / gcd(c->grain, items)) * items;
    c->is_whole |= run * n_runs != width || run % c->n_items != 0 || (n_runs > 1 && run % grain != 0);
    c->is_whole |= both > c->n_items;
    c->grain = c->is_whole ? c->n_items : (uint32_t)both;
}

/* Returns a rank's query heads: whole groups that read one of n_kv KV heads or, if there are more ranks than KV heads,
 * some heads of one group. */
static struct plan_shares_range heads_of(const struct plan_shares *s, uint32_t n_kv, uint32_t rank)
{
    const struct plan_shares_cut *c = &s->cuts[PLAN_SHARES_HEADS];
    uint32_t group = c->n_items / n_kv, n = s->n;
    if (n_kv >= n) {
        return share_of(0, c->n_items, c->grain / gcd(c->grain, group) * group, rank, n);
    }
    uint32_t kv = rank * n_kv / n, first = (kv * n + n_kv - 1) / n_kv, end = ((kv + 1) * n + n_kv - 1) / n_kv;
    return share_of(kv * group, group, c->grain, rank - first, end - first);
}

/* Do the heads of all ranks respect the boundaries, and read whole groups or one KV head in each layer? */
static bool do_heads_fit(const struct plan_shares *s, uint32_t n_kv)
{
    const struct plan_shares_cut *c = &s->cuts[PLAN_SHARES_HEADS];
    for (uint32_t rank = 0; rank < s->n; rank++) {
        struct plan_shares_range h = heads_of(s, n_kv, rank);
        bool fits = h.from < h.to && h.from % c->grain == 0 && (h.to % c->grain == 0 || h.to == c->n_items);
        for (int32_t i = 0; i < (int32_t)s->p->n_layers && fits; i++) {
            struct plan_kv kv = plan_kv_of(s->p, i);
            uint32_t group = kv.layer != PLAN_NONE ? c->n_items / kv.n_kv_heads : 1;
            fits = (kv.layer == PLAN_NONE || kv.n_heads == c->n_items) && group != 0;
            fits = fits && ((h.from % group == 0 && h.to % group == 0) || h.from / group == (h.to - 1) / group);
        }
        if (!fits) {
            return false;
        }
    }
    return true;
}

/* Cuts by the KV heads of the layers with the fewest, if all other layers can follow. */
static bool share_heads(struct plan_shares *s)
{
    for (uint32_t n_kv = 1; n_kv <= s->p->n_heads; n_kv++) {
        bool is_there = false;
        for (int32_t i = 0; i < (int32_t)s->p->n_layers; i++) {
            struct plan_kv kv = plan_kv_of(s->p, i);
            is_there |= kv.layer != PLAN_NONE && kv.n_kv_heads == n_kv;
        }
        if (is_there && do_heads_fit(s, n_kv)) {
            s->cuts[PLAN_SHARES_HEADS].share = heads_of(s, n_kv, s->rank);
            return true;
        }
    }
    return false;
}

struct plan_shares_range plan_shares_kv_heads(const struct plan_shares *s, uint32_t n_kv)
{
    const struct plan_shares_cut *c = &s->cuts[PLAN_SHARES_HEADS];
    uint32_t group = c->n_items / n_kv;
    return c->is_whole ? (struct plan_shares_range){0, n_kv}
                       : (struct plan_shares_range){c->share.from / group, (c->share.to - 1) / group + 1};
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* Returns the cut of steps with these items. */
static int cut_of_items(const struct plan_step *step)
{
    static const uint8_t cuts[] = {[PLAN_AXIS_HEADS] = PLAN_SHARES_HEADS,
                                   [PLAN_AXIS_DELTA] = PLAN_SHARES_DELTA,
                                   [PLAN_AXIS_SSM] = PLAN_SHARES_SSM,
                                   [PLAN_AXIS_FF] = PLAN_SHARES_NONE};
    return cuts[plan_axis_of(plan_ops[step->op].n_items)];
}

/* Returns the cut of columns of a width; PLAN_SHARES_NONE if there are too many cuts. */
static int cut_of_width(struct plan_shares *s, uint32_t width)
{
    int at = PLAN_SHARES_COLUMNS;
    while (at < s->n_cuts && s->cuts[at].n_items != width) {
        at++;
    }
    if (at == PLAN_SHARES_MAX_CUTS) {
        return PLAN_SHARES_NONE;
    }
    if (at == s->n_cuts) {
        s->cuts[s->n_cuts++] = (struct plan_shares_cut){.n_items = width, .grain = 1};
    }
    return at;
}

/* Is the result a sum over columns within the step? */
static bool sums_inside(const struct plan_step *step) { return plan_axis_of(plan_ops[step->op].inner) == PLAN_AXIS_FF; }

/* Is it that, or a sum over the columns that it reads? */
static bool sums(const struct plan_step *step)
{
    bool any = sums_inside(step);
    for (const struct plan_operand *o = plan_ops[step->op].operands; o->name != NULL; o++) {
        any |= (o->flags & PLAN_SUMMED) != 0;
    }
    return any;
}

/* Can a rank's part of what step i adds to the reduce step's buffer be held back until step `to`? */
static bool can_sum(const struct plan *p, int32_t i, int32_t to)
{
    const struct plan_step *step = &p->steps[i];
    bool can = sums(step) && step->dst == p->steps[to].dst;
    for (int32_t k = i + 1; k < to && can; k++) {
        const struct plan_step *other = &p->steps[k];
        can = plan_uses(other, step->dst) == 0 ||
              (sums(other) && other->dst == step->dst && step->adds && other->adds && other->scale == step->scale);
    }
    return can;
}

/* Is an operand one of the buffers? */
static bool is_one_of(const bool *has, const struct plan_step *step, const struct plan_operand *o, int32_t id)
{
    bool is = false;
    for (int32_t k = 0; plan_is_buf(o) && k < ((o->flags & PLAN_STREAMS) != 0 ? (int32_t)step->streams.n : 1); k++) {
        is |= has[id + k];
    }
    return is;
}

static bool touches(const struct block *b, const struct plan_step *step)
{
    const struct plan_operand *o;
    int32_t id;
    bool any = false;
    for (int k = 0; (o = plan_next_operand(step, &k, &id)) != NULL;) {
        any |= is_one_of(b->has, step, o, id);
    }
    return any;
}

/* Adds the buffers that are cut together with the block's. */
static void gather(const struct plan *p, struct block *b)
{
    for (bool grows = true; grows;) {
        grows = false;
        for (int32_t i = b->from; i < b->to; i++) {
            const struct plan_step *step = &p->steps[i];
            const struct plan_operand *o;
            int32_t id;
            bool joins = i != b->last && touches(b, step);
            for (int k = 0; joins && (o = plan_next_operand(step, &k, &id)) != NULL;) {
                if ((o->flags & PLAN_PARTS) != 0 && !b->has[id]) {
                    b->has[id] = grows = true;
                }
            }
        }
    }
}

/* Can a rank do its part of a step that uses the block's buffers? */
static bool allows(const struct plan_shares *s, const struct block *b, int32_t i)
{
    const struct plan_step *step = &s->p->steps[i];
    const struct plan_op_info *op = &plan_ops[step->op];
    const struct plan_operand *o;
    int32_t id;
    bool fits =
        s->roles[i].cut == PLAN_SHARES_NONE && (i == b->last || op->is_whole == NULL || !op->is_whole(s->p, step));
    for (int k = 0; fits && (o = plan_next_operand(step, &k, &id)) != NULL;) {
        enum plan_axis axis = plan_axis_of(o->width);
        bool is_part = (o->flags & (i == b->last ? PLAN_SUMMED : PLAN_PARTS)) != 0;
        bool has_heads = axis >= PLAN_AXIS_HEADS && i != b->last &&
                         (axis != PLAN_AXIS_KV_HEADS || plan_kv_of(s->p, step->layer).n_kv_heads != 1);
        fits = !plan_is_buf(o) || (is_part == is_one_of(b->has, step, o, id) && (is_part || !has_heads));
    }
    return fits;
}

/* Returns how the first step of [from, to) that uses a buffer uses it. */
static int first_use(const struct plan *p, int32_t from, int32_t to, plan_buf_id buf)
{
    int uses = 0;
    for (int32_t i = from; i < to && uses == 0; i++) {
        uses = plan_uses(&p->steps[i], buf);
    }
    return uses;
}

/* Returns the cut of the block; PLAN_SHARES_NONE if it cannot be cut. */
static int find_cut(struct plan_shares *s, const struct block *b, uint32_t width)
{
    const struct plan *p = s->p;
    int cut = PLAN_SHARES_NONE;
    for (int32_t i = b->from; i < b->to; i++) {
        if (i != b->last && !touches(b, &p->steps[i])) {
            continue;
        }
        int also = cut_of_items(&p->steps[i]);
        if (!allows(s, b, i) || (cut != PLAN_SHARES_NONE && also != PLAN_SHARES_NONE && also != cut)) {
            return PLAN_SHARES_NONE;
        }
        cut = also != PLAN_SHARES_NONE ? also : cut;
    }
    for (plan_buf_id id = 0; id < p->n_bufs; id++) { /* none of them can be live outside the block */
        bool lives = ((first_use(p, b->from, b->to, id) | first_use(p, b->to, p->n_steps, id)) & PLAN_READS) != 0;
        if (b->has[id] && (lives || (cut == PLAN_SHARES_NONE && p->bufs[id].width != width))) {
            return PLAN_SHARES_NONE;
        }
    }
    return cut != PLAN_SHARES_NONE ? cut : cut_of_width(s, width);
}

bool plan_shares_is_cut(const struct plan_shares *s, int32_t i, enum plan_axis axis)
{
    struct plan_shares_role role = s->roles[i];
    size_t at = axis == PLAN_AXIS_SRC ? offsetof(struct plan_step, src) : offsetof(struct plan_step, dst);
    if (role.cut == PLAN_SHARES_NONE || axis == PLAN_AXIS_NONE || axis == PLAN_AXIS_GROUP) {
        return false;
    }
    bool found = false;
    for (const struct plan_operand *o = plan_ops[s->p->steps[i].op].operands; o->name != NULL; o++) {
        found |= o->at == at && (o->flags & (role.sums ? PLAN_SUMMED : PLAN_PARTS)) != 0;
    }
    return found || axis >= PLAN_AXIS_HEADS;
}

/* Collects the boundaries of a step's weights. */
static void align_cuts(struct plan_shares *s, int32_t i)
{
    const struct plan_step *step = &s->p->steps[i];
    const struct plan_operand *o;
    int cut = s->roles[i].cut;
    int32_t id;
    for (int k = 0; (o = plan_next_operand(step, &k, &id)) != NULL;) {
        const struct plan_weight *w = plan_is_buf(o) ? NULL : &s->p->weights[id];
        enum plan_axis axis = plan_axis_of(o->width);
        if (w != NULL && axis == PLAN_AXIS_GROUP) {
            align_cut(s, cut, s->p->bufs[step->src].width, w->n_in);
        } else if (w != NULL && plan_shares_is_cut(s, i, axis)) {
            align_cut(s, cut, w->n_in, w->source->grain);
            s->cuts[cut].is_whole |= (o->flags & PLAN_VECTOR) != 0 && w->source->grain != 1;
        }
    }
}

/* Cuts the steps that lead to step `last`, if possible. */
static void cut_block(struct plan_shares *s, struct block *b)
{
    const struct plan_step *last = &s->p->steps[b->last];
    uint32_t width = sums_inside(last) ? plan_inner_floats(s->p, last) : s->p->bufs[last->src].width;
    memset(b->has, 0, sizeof b->has);
    if (!sums_inside(last)) {
        b->has[last->src] = true;
        gather(s->p, b);
    }
    int cut = find_cut(s, b, width);
    for (int32_t i = b->from; i < b->to && cut != PLAN_SHARES_NONE; i++) {
        if (i == b->last || touches(b, &s->p->steps[i])) {
            s->roles[i] = (struct plan_shares_role){(uint8_t)cut, i == b->last};
            align_cuts(s, i);
        }
    }
}

static void find_roles(struct plan_shares *s)
{
    const struct plan *p = s->p;
    struct block b = {0};
    for (b.to = 0; b.to < p->n_steps; b.to++) {
        if (!plan_is_idle(&p->steps[b.to])) {
            continue;
        }
        for (b.last = b.from; b.last < b.to; b.last++) {
            if (can_sum(p, b.last, b.to)) {
                cut_block(s, &b);
            }
        }
        b.from = b.to + 1;
    }
}

/* Sets the rank's share of each cut. All layers have one number of heads, so heads are cut in all steps or in none. */
static void settle(struct plan_shares *s)
{
    for (int32_t i = 0; i < s->p->n_steps; i++) {
        int wants = cut_of_items(&s->p->steps[i]);
        s->cuts[wants].is_whole |= s->roles[i].cut != wants;
    }
    for (int at = PLAN_SHARES_HEADS; at < s->n_cuts; at++) {
        struct plan_shares_cut *c = &s->cuts[at];
        c->share = share_of(0, c->n_items, c->grain, s->rank, s->n);
        c->is_whole |= s->n == 1 || ((uint64_t)c->n_items + c->grain - 1) / c->grain < s->n ||
                       (at == PLAN_SHARES_HEADS && !c->is_whole && !share_heads(s));
    }
    for (int32_t i = 0; i < s->p->n_steps; i++) {
        if (s->cuts[s->roles[i].cut].is_whole) {
            s->roles[i] = (struct plan_shares_role){PLAN_SHARES_NONE, false};
        }
    }
}

void plan_shares_find(struct plan_shares *s)
{
    const struct plan_delta *d = &s->p->delta;
    const struct plan_ssm *m = &s->p->ssm;
    memset(s->cuts, 0, sizeof s->cuts);
    s->cuts[PLAN_SHARES_HEADS] = (struct plan_shares_cut){.n_items = s->p->n_heads, .grain = 1};
    s->cuts[PLAN_SHARES_DELTA] =
        (struct plan_shares_cut){.n_items = d->n_k_heads, .grain = 1, .is_whole = d->n_k_heads == 0};
    s->cuts[PLAN_SHARES_SSM] =
        (struct plan_shares_cut){.n_items = m->n_groups, .grain = 1, .is_whole = m->n_groups == 0};
    s->n_cuts = PLAN_SHARES_COLUMNS;
    find_roles(s);
    settle(s);
}
