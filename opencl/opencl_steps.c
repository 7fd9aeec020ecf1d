/* Converts plan steps to launches. Each op has a function that places its memory and makes kernels with constant
 * arguments; the data of a batch is in its buffer. All steps are converted twice: the first time only to place memory,
 * before any is allocated. */
#include "opencl/opencl_maker.h"

#include "engine/base/mem.h"
#include "engine/plan/plan_ops.h"

#include <stdio.h>
#include <string.h>

struct opencl_launch opencl_launch_of(const struct opencl_maker *k, size_t local, size_t groups)
{
    return (struct opencl_launch){
        .step = k->s, .local = local, .groups = groups, .rows = k->s->rows, .tile = 1, .max_rows = OPENCL_ANY_ROWS};
}

static enum err push_launch(const struct opencl_maker *k, struct opencl_launch l)
{
    struct backend_model *m = k->m;
    enum err err = mem_grow(&m->launches, m->n_launches, &m->cap_launches, sizeof *m->launches, MEM_MODEL);
    TRY_MEM_FOR(err == ERR_OK, k->info, "out of memory for launches");
    m->launches[m->n_launches++] = l;
    return ERR_OK;
}

enum err opencl_add_launch(const struct opencl_maker *k, struct opencl_launch l, const char *file, const char *entry,
                           const char *options, const struct opencl_arg *args, int n_args)
{
    struct backend_model *m = k->m;
    if (m->is_dry) {
        return program_want(m->programs, file, options, k->info);
    }
    TRY(program_kernel(m->programs, file, entry, options, &l.kernel, k->info));
    enum err err = push_launch(k, l);
    if (err != ERR_OK) {
        clReleaseKernel(l.kernel);
        return err;
    }
    cl_int code = clSetKernelArg(l.kernel, 0, sizeof m->batch, &m->batch);
    for (int i = 0; i < n_args && code == CL_SUCCESS; i++) {
        code = clSetKernelArg(l.kernel, (cl_uint)i + 1, args[i].bytes, &args[i].i);
    }
    return ocl_check(code, entry, k->info);
}

enum err opencl_add_meeting(const struct opencl_maker *k)
{
    return k->m->is_dry ? ERR_OK : push_launch(k, opencl_launch_of(k, 0, 0));
}

/* --- memory and arguments ----------------------------------------------------------------------------------------- */

struct opencl_arg opencl_at(const struct opencl_maker *k, int32_t place)
{
    return ARG_MEM(k->m->is_dry ? NULL : vram_at(k->m->vram, place));
}

struct opencl_arg opencl_vector(const struct opencl_maker *k, plan_weight_id id)
{
    return opencl_at(k, id == PLAN_NONE ? 0 : k->m->weights[id].place);
}

struct opencl_arg opencl_floats(const struct opencl_maker *k, plan_buf_id id)
{
    return opencl_at(k, k->m->bufs[id].floats);
}
struct opencl_arg opencl_codes(const struct opencl_maker *k, plan_buf_id id)
{
    return opencl_at(k, k->m->bufs[id].codes);
}
uint32_t opencl_width(const struct opencl_maker *k, plan_buf_id id) { return k->plan->bufs[id].width; }
uint32_t opencl_stride(const struct opencl_maker *k, plan_buf_id id) { return k->m->bufs[id].stride; }
uint32_t opencl_blocks(const struct opencl_maker *k, plan_buf_id id) { return opencl_stride(k, id) / PANEL_BLOCK; }

void opencl_widen(uint32_t *wide, uint32_t n) { *wide = MAX_OF(*wide, opencl_round_up(n, OPENCL_ALIGN)); }

/* Returns whether the step computes the requested logits: few rows, so second terms in all blocks cost almost
 * nothing. */
static bool is_head(const struct plan_step *s) { return s->rows == PLAN_LOGIT_ROWS && s->dst == PLAN_NONE; }

/* Returns whether the step multiplies the buffer's contents as codes (or as floats). */
static bool multiplies(const struct backend_model *m, const struct plan_step *s, plan_buf_id buf, bool as_codes)
{
    const struct plan_operand *o;
    int32_t id;
    bool does = false;
    for (int i = 0; s->src == buf && (o = plan_next_operand(s, &i, &id)) != NULL;) {
        bool is_factor = (o->flags & PLAN_MULTIPLIES) != 0 && (s->op != PLAN_EXPERTS || id != s->w[2]);
        does |= is_factor && panel_info(m->weights[id].kind)->is_float != as_codes;
    }
    return does;
}

struct opencl_need opencl_need_of(const struct opencl_maker *k, plan_buf_id buf)
{
    struct opencl_need n = {false, false, false};
    for (int32_t i = k->i_step + 1; i < k->plan->n_steps; i++) {
        const struct plan_step *s = &k->plan->steps[i];
        int uses = plan_is_idle(s) ? 0 : plan_uses(s, buf);
        bool by_codes = multiplies(k->m, s, buf, true);
        n.codes |= by_codes;
        n.is_fine |= by_codes && is_head(s);
        n.floats |= (uses & PLAN_READS) != 0 && (!by_codes || multiplies(k->m, s, buf, false) || s->dst == buf);
        if ((uses & PLAN_WRITES) != 0) {
            break;
        }
    }
    return n;
}

int opencl_code_flags(const struct opencl_maker *k) { return FLAG_CODES | (k->m->cfg.high_precision ? FLAG_FINE : 0); }

int opencl_flags_of(const struct opencl_maker *k, plan_buf_id buf)
{
    struct opencl_need n = opencl_need_of(k, buf);
    return (n.codes ? opencl_code_flags(k) : 0) | (n.is_fine ? FLAG_FINE : 0) | (n.floats ? FLAG_FLOATS : 0);
}

/* Adds the encoding of the buffer's rows. */
static enum err add_codes(const struct opencl_maker *k, plan_buf_id buf, enum opencl_when when)
{
    enum { WG = 128 };
    struct opencl_launch l = opencl_launch_over(k, WG, 4, opencl_stride(k, buf));
    l.when = when;
    return OPENCL_ADD(k, l, "norm.cl", "encode", "", ARG_INT(k->s->rows), ARG_ROWS(k, buf),
                      ARG_UINT(opencl_width(k, buf)), ARG_INT(opencl_code_flags(k) | opencl_flags_of(k, buf)),
                      ARG_CODES(k, buf));
}

enum err opencl_end_step(const struct opencl_maker *k, plan_buf_id buf)
{
    return opencl_need_of(k, buf).codes ? add_codes(k, buf, OPENCL_ALWAYS) : ERR_OK;
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

/* Token rows of a work-group, and the rows of a batch for which the tile is used. */
struct tile {
    uint32_t tokens;
    bool is_split;
    int32_t min_rows, max_rows;
};

enum { MAX_TILES = 3, WAVES = 8 };

/* Chosen to fit in registers: two weights, floats and picks take more per token row. Fewer than three end with 0. */
static const struct tile *tiles_of(bool is_pair, bool reads_floats, bool is_picked)
{
    static const struct tile all[3][MAX_TILES] = {
        {{1, true, 0, 1}, {8, true, 2, 16}, {32, false, 17, OPENCL_ANY_ROWS}},
        {{1, true, 0, 1}, {4, true, 2, 8}, {16, false, 9, OPENCL_ANY_ROWS}},
        {{1, true, 0, 1}, {OPENCL_PICKED_ROWS, true, 2, OPENCL_ANY_ROWS}},
    };
    return all[is_picked ? 2 : is_pair || reads_floats];
}

enum err opencl_add_product(const struct opencl_maker *k, const struct opencl_product *p)
{
    const struct backend_model *m = k->m;
    const struct opencl_weight *w = &m->weights[p->w];
    bool is_pair = p->w2 != PLAN_NONE, reads_floats = panel_info(w->kind)->is_float, is_picked = p->per_row != 0;
    uint32_t panels = is_picked ? w->group_panels : 0, n_out = is_picked ? w->group_rows : 0;
    for (plan_weight_id id = p->w; !is_picked && id != PLAN_NONE; id = m->weights[id].next) {
        panels += m->weights[id].n_groups * m->weights[id].group_panels;
        n_out += k->plan->weights[id].n_out;
    }
    int flags = p->flags | (p->bias != PLAN_NONE ? FLAG_BIAS : 0);
    const struct tile *t = tiles_of(is_pair, reads_floats, is_picked), *end = t + MAX_TILES;
    for (; t < end && t->tokens != 0 && t->min_rows <= m->cfg.max_rows; t++) {
        char options[OPENCL_OPTIONS_BYTES];
        struct opencl_launch l =
            opencl_launch_of(k, (size_t)WAVES * OPENCL_LANES, t->is_split ? panels : (panels + WAVES - 1) / WAVES);
        l.by = is_picked ? OPENCL_BY_TILES : OPENCL_BY_ROWS;
        l.tile = t->tokens;
        l.min_rows = t->min_rows;
        l.max_rows = t->max_rows;
        l.weight_bytes = (uint64_t)panels * w->panel_bytes * (is_pair ? 2 : 1);
        snprintf(options, sizeof options, "-DKIND=%d -DTOKENS=%u -DSPLIT=%d -DPAIR=%d -DPICKED=%d", (int)w->kind,
                 t->tokens, t->is_split, is_pair, is_picked);
        struct opencl_arg args[32] = {
            ARG_INT(k->s->rows),     opencl_at(k, w->place),    reads_floats ? p->floats : p->codes,
            ARG_UINT(p->blocks),     ARG_UINT(w->n_parts),      p->dst,
            ARG_UINT(p->dst_stride), ARG_UINT(p->dst_first),    ARG_UINT(n_out),
            ARG_UINT(panels),        opencl_vector(k, p->bias), ARG_FLOAT(p->scale),
            ARG_INT(flags),          ARG_FLOAT(p->cap),         ARG_UINT4(w->table)};
        int n = 15;
        if (is_pair) {
            args[n++] = opencl_at(k, m->weights[p->w2].place);
            args[n++] = opencl_vector(k, p->bias2);
            args[n++] = ARG_INT(p->act);
            args[n++] = p->dst_codes;
            args[n++] = ARG_UINT(p->dst_blocks);
        }
        if (is_picked) {
            args[n++] = opencl_at(k, m->tiles);
            args[n++] = opencl_at(k, m->picks);
            args[n++] = ARG_UINT(w->group_panels);
            args[n++] = ARG_UINT(p->per_row);
        }
        TRY(opencl_add_launch(k, l, "matmul.cl", "matmul", options, args, n));
    }
    return ERR_OK;
}

struct opencl_product opencl_product_of(const struct opencl_maker *k, int which)
{
    const struct plan_step *s = k->s;
    struct opencl_product p = {.floats = opencl_floats(k, s->src),
                               .codes = opencl_codes(k, s->src),
                               .blocks = opencl_blocks(k, s->src),
                               .w = s->w[which],
                               .bias = s->bias[which],
                               .w2 = PLAN_NONE,
                               .bias2 = PLAN_NONE,
                               .scale = 1.0f};
    if (s->dst != PLAN_NONE) {
        p.dst = opencl_floats(k, s->dst);
        p.dst_stride = opencl_stride(k, s->dst);
        p.dst_codes = opencl_codes(k, s->dst);
        p.dst_blocks = opencl_blocks(k, s->dst);
    }
    return p;
}

bool opencl_pair(const struct opencl_maker *k, struct opencl_product *p)
{
    const struct plan_step *s = k->s;
    if (s->w[1] == PLAN_NONE || s->gate_limit != 0 || s->up_limit != 0 ||
        k->m->weights[s->w[0]].kind != k->m->weights[s->w[1]].kind ||
        (s->bias[0] == PLAN_NONE) != (s->bias[1] == PLAN_NONE)) {
        return false;
    }
    p->w2 = s->w[1];
    p->bias2 = s->bias[1];
    p->act = (int)s->act;
    return true;
}

static enum err make_matmul(const struct opencl_maker *k)
{
    struct opencl_product p = opencl_product_of(k, 0);
    p.scale = k->s->adds ? k->s->scale : 1.0f;
    p.flags = k->s->adds ? FLAG_ADDS : 0;
    TRY(opencl_add_product(k, &p));
    return opencl_end_step(k, k->s->dst);
}

/* Two weights of one kind are one product. Other pairs, and a gate without a second weight, need a separate launch. */
static enum err make_glu(const struct opencl_maker *k)
{
    enum { WG = 64 };
    const struct plan_step *s = k->s;
    struct opencl_product p = opencl_product_of(k, 0);
    bool is_gated = s->w[1] != PLAN_NONE;
    if (opencl_pair(k, &p)) {
        p.flags = opencl_flags_of(k, s->dst);
        return opencl_add_product(k, &p);
    }
    TRY(opencl_add_product(k, &p));
    if (is_gated) {
        struct opencl_product up = opencl_product_of(k, 1);
        opencl_widen(&k->m->up_stride, opencl_width(k, s->dst));
        up.dst = opencl_at(k, k->m->up);
        up.dst_stride = k->m->up_stride;
        TRY(opencl_add_product(k, &up));
    }
    TRY(OPENCL_ADD(k, opencl_launch_over(k, WG, 1, opencl_width(k, s->dst)), "streams.cl", "gated", "", ARG_INT(s->act),
                   ARG_FLOAT(s->gate_limit), ARG_FLOAT(s->up_limit), ARG_ROWS(k, s->dst),
                   ARG_UINT(opencl_width(k, s->dst)), opencl_at(k, k->m->up), ARG_UINT(k->m->up_stride),
                   ARG_INT(is_gated)));
    return opencl_end_step(k, s->dst);
}

static enum err make_logits(const struct opencl_maker *k)
{
    enum { WG = 256 };
    struct opencl_product p = opencl_product_of(k, 0);
    struct backend_model *m = k->m;
    uint32_t n = plan_n_logits(k->plan, k->s->logits.is_reduced), n_pieces = opencl_n_pieces(n);
    p.dst = opencl_at(k, m->logits);
    p.dst_stride = n;
    p.scale = k->s->scale;
    p.cap = k->s->logits.softcap;
    p.flags = p.cap != 0 ? FLAG_CAP : 0;
    TRY(opencl_add_product(k, &p));
    uint32_t per = (n + n_pieces - 1) / n_pieces;
    struct opencl_arg logits = opencl_at(k, m->logits), lists = opencl_at(k, m->lists),
                      results = opencl_at(k, m->logit_results);
    TRY(OPENCL_ADD(k, opencl_launch_of(k, WG, n_pieces), "logits.cl", "piece", "", logits, ARG_UINT(n), ARG_UINT(per),
                   results, lists));
    struct opencl_launch l = opencl_launch_of(k, WG, 1);
    l.when = OPENCL_IF_BEST;
    return OPENCL_ADD(k, l, "logits.cl", "best", "", logits, ARG_UINT(n), lists, ARG_UINT(n_pieces), results);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Adds the lookup in one weight; by: as in embed.cl. */
static enum err add_embed(const struct opencl_maker *k, plan_weight_id id, int by, float scale, int flags)
{
    enum { WG = 64 };
    char options[OPENCL_OPTIONS_BYTES];
    if (id == PLAN_NONE) {
        return ERR_OK;
    }
    const struct opencl_weight *w = &k->m->weights[id];
    uint32_t per = panel_info(w->kind)->is_float ? 8 : PANEL_BLOCK, n = opencl_width(k, k->s->dst);
    snprintf(options, sizeof options, "-DKIND=%d", (int)w->kind);
    return OPENCL_ADD(k, opencl_launch_over(k, WG, per, n), "embed.cl", "embed", options, ARG_INT(by),
                      opencl_at(k, w->place), ARG_UINT(w->n_parts), ARG_UINT4(w->table), ARG_FLOAT(scale),
                      ARG_INT(flags), ARG_ROWS(k, k->s->dst), ARG_UINT(n));
}

static enum err make_embed(const struct opencl_maker *k)
{
    TRY(add_embed(k, k->s->w[0], 0, k->s->scale, 0));
    TRY(add_embed(k, k->s->w[1], 1, 1.0f, FLAG_ADDS));
    TRY(add_embed(k, k->s->w[2], 2, 1.0f, FLAG_ADDS));
    return opencl_end_step(k, k->s->dst);
}

/* Returns whether step i only gathers rows for a norm after it, which can gather them itself. */
static bool is_picked_by_norm(const struct plan *p, int32_t i)
{
    const struct plan_step *s = &p->steps[i], *next = s + 1;
    return i >= 0 && i + 1 < p->n_steps && s->op == PLAN_GATHER && next->op == PLAN_NORM && next->src == s->dst &&
           next->rows == s->rows && !next->adds && (next->dst == s->dst || !plan_is_read(p, i + 2, s->dst));
}

/* Adds the norm of src, written to dst; with FLAG_PICKS of the requested rows. */
static enum err add_norm(const struct opencl_maker *k, plan_buf_id src, struct opencl_arg dst, uint32_t dst_stride,
                         int flags, plan_buf_id coded)
{
    enum { WG = 128 };
    const struct plan_step *s = k->s;
    uint32_t n = s->w[0] == PLAN_NONE ? opencl_width(k, src) : k->plan->weights[s->w[0]].n_in;
    flags |= (s->norm.centers ? FLAG_CENTERS : 0) | (s->w[0] != PLAN_NONE ? FLAG_WEIGHT : 0) |
             (s->bias[0] != PLAN_NONE ? FLAG_BIAS : 0);
    return OPENCL_ADD(k, opencl_launch_of(k, WG, opencl_width(k, src) / n), "norm.cl", "norm", "", ARG_INT(s->rows),
                      ARG_ROWS(k, src), opencl_vector(k, s->w[0]), opencl_vector(k, s->bias[0]), ARG_FLOAT(s->eps),
                      ARG_UINT(n), ARG_INT(flags), dst, ARG_UINT(dst_stride),
                      coded == PLAN_NONE ? ARG_MEM(NULL) : opencl_codes(k, coded),
                      ARG_UINT(coded == PLAN_NONE ? 0 : opencl_blocks(k, coded)));
}

static enum err make_norm(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    uint32_t n = k->plan->weights[s->w[0]].n_in;
    int flags = opencl_flags_of(k, s->dst);
    bool in_one = !s->adds && (n == opencl_width(k, s->src) || n % PANEL_BLOCK == 0);
    if (!in_one) {
        flags = FLAG_FLOATS | (s->adds ? FLAG_ADDS : 0);
    }
    plan_buf_id src = s->src;
    if (is_picked_by_norm(k->plan, k->i_step - 1)) {
        src = s[-1].src;
        flags |= FLAG_PICKS;
    }
    TRY(add_norm(k, src, opencl_floats(k, s->dst), opencl_stride(k, s->dst), flags, in_one ? s->dst : PLAN_NONE));
    return in_one ? ERR_OK : opencl_end_step(k, s->dst);
}

/* Rows of floats, from component `first` on. */
struct rows {
    struct opencl_arg at;
    uint32_t stride, first;
};
#define ARG_PART(r) (r).at, ARG_UINT((r).stride), ARG_UINT((r).first)

static struct rows rows_of(const struct opencl_maker *k, plan_buf_id id)
{
    return (struct rows){opencl_floats(k, id), opencl_stride(k, id), 0};
}

/* Adds a copy of n components of rows. */
static enum err add_copy(const struct opencl_maker *k, struct rows src, struct rows dst, uint32_t n, int flags)
{
    enum { WG = 64 };
    return OPENCL_ADD(k, opencl_launch_over(k, WG, 1, n), "rows.cl", "copy", "", ARG_INT(k->s->rows), ARG_PART(src),
                      ARG_PART(dst), ARG_UINT(n), ARG_INT(flags));
}

static enum err make_hidden(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    uint32_t n = opencl_width(k, s->src);
    struct opencl_arg dst = opencl_at(k, k->m->hidden);
    return s->w[0] != PLAN_NONE ? add_norm(k, s->src, dst, n, FLAG_FLOATS | FLAG_PICKS, PLAN_NONE)
                                : add_copy(k, rows_of(k, s->src), (struct rows){dst, n, 0}, n, FLAG_PICKS);
}

static enum err make_gather(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    if (is_picked_by_norm(k->plan, k->i_step)) {
        return ERR_OK;
    }
    TRY(add_copy(k, rows_of(k, s->src), rows_of(k, s->dst), opencl_width(k, s->src), FLAG_PICKS));
    return opencl_end_step(k, s->dst);
}

static enum err make_input(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    struct rows input = {opencl_at(k, k->m->input), k->plan->input_width, s->edge.first};
    TRY(add_copy(k, input, rows_of(k, s->dst), opencl_width(k, s->dst), 0));
    return opencl_end_step(k, s->dst);
}

static enum err make_output(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    struct rows output = {opencl_at(k, k->m->output), k->plan->output_width, s->edge.first};
    return add_copy(k, rows_of(k, s->src), output, opencl_width(k, s->src), 0);
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* Returns the word of a batch that has the offset of the layer's page tables. */
static struct opencl_arg table_of(const struct opencl_kv *kv)
{
    return ARG_INT(kv->is_local ? BATCH_AT_WINDOW_TABLE : BATCH_AT_TABLE);
}

/* Adds the step from rows of queries, keys and values to heads. */
static enum err add_heads(const struct opencl_maker *k, const struct rows from[3])
{
    enum { WG = 64 };
    const struct plan_step *s = k->s;
    const struct opencl_kv *kv = &k->m->kvs[s->layer];
    const struct plan_rope *rope = &k->plan->ropes[s->heads.rope];
    plan_weight_id q_norm = s->heads.q_norm, k_norm = s->heads.k_norm;
    uint32_t n = plan_n_items(k->plan, s); /* includes values, which latents do not have */
    n -= n > kv->heads.n_heads && kv->heads.latent_dim != 0 ? kv->heads.n_kv_heads : 0;
    char options[OPENCL_OPTIONS_BYTES];
    snprintf(options, sizeof options, "-DK8=%d -DV8=%d", kv->k_is_bytes, kv->v_is_bytes);
    return OPENCL_ADD(k, opencl_launch_of(k, WG, n), "heads.cl", "heads", options, ARG_PART(from[0]), ARG_PART(from[1]),
                      ARG_PART(from[2]), ARG_ROWS(k, s->dst), opencl_at(k, kv->keys), opencl_at(k, kv->values),
                      table_of(kv), ARG_UINT(kv->heads.n_heads), ARG_UINT(kv->heads.n_kv_heads),
                      ARG_UINT(kv->heads.head_dim), ARG_UINT(plan_kv_value_dim(&kv->heads)), ARG_OPTIONAL(k, q_norm),
                      opencl_vector(k, k_norm), ARG_UINT(k_norm != PLAN_NONE ? k->plan->weights[k_norm].n_in : 0),
                      ARG_INT(s->heads.norms_values), ARG_FLOAT(s->eps), ARG_INT(s->heads.rope), ARG_UINT(rope->n_rot),
                      ARG_UINT(rope->first), ARG_INT(rope->is_neox));
}

static enum err make_qkv(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    struct rows from[3] = {{.first = 0}};
    uint32_t width = 0;
    for (int i = 0; i < 3 && s->w[i] != PLAN_NONE; i++) {
        from[i].first = width;
        width += k->plan->weights[s->w[i]].n_out;
    }
    opencl_widen(&k->m->qkv_stride, width);
    for (int i = 0; i < 3; i++) {
        from[i].at = opencl_at(k, k->m->qkv);
        from[i].stride = k->m->qkv_stride;
        if (s->w[i] != PLAN_NONE && !k->m->weights[s->w[i]].follows_other) {
            struct opencl_product p = opencl_product_of(k, i);
            p.dst = from[i].at;
            p.dst_stride = from[i].stride;
            p.dst_first = from[i].first;
            TRY(opencl_add_product(k, &p));
        }
    }
    TRY(add_heads(k, from));
    return opencl_end_step(k, s->dst);
}

static enum err make_heads(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    const struct rows from[3] = {rows_of(k, s->src), rows_of(k, s->heads.keys != PLAN_NONE ? s->heads.keys : s->src),
                                 rows_of(k, s->heads.values != PLAN_NONE ? s->heads.values : s->src)};
    TRY(add_heads(k, from));
    return opencl_end_step(k, s->dst);
}

/* Returns the rows per work-group of blocked attention, for this number of query heads. The sums of eight or four rows
 * fit in registers. With keys or values as bytes, a window to both sides, slopes or biases, the sums of eight rows do not fit. With
 * two heads, only values as bytes, and three components per work-item, the sums of four do not fit
 * (tests/isa/budget). */
static uint32_t rows_of_block(const struct opencl_kv *kv, uint32_t heads, uint32_t dv, bool has_own)
{
    uint32_t narrow = kv->k_is_bytes ? 64 : 128, most = dv <= narrow ? ATTENTION_BLOCK : ATTENTION_BLOCK / 2;
    uint32_t rows = kv->k_is_bytes || kv->v_is_bytes || has_own ? ATTENTION_BLOCK / 2 : ATTENTION_BLOCK;
    bool is_odd = kv->v_is_bytes && !kv->k_is_bytes && dv > 2 * OPENCL_LANES && dv < 4 * OPENCL_LANES;
    if (heads == 1) {
        return MIN_OF(most, rows);
    }
    return heads == 2 && !is_odd ? most / 2 : most / 4;
}

/* Forms of one step: a batch of few rows is computed in parts, others in blocks, with separate rows outside of
 * blocks. */
enum attention_form { IN_PARTS, BY_ROWS, IN_BLOCKS, N_FORMS };

static enum err make_attention(const struct opencl_maker *k)
{
    enum { WIDE_VALUE = 256 };
    const struct plan_step *s = k->s;
    const struct opencl_kv *kv = &k->m->kvs[s->layer];
    const struct plan_kv *of = &kv->heads;
    uint32_t dv = plan_kv_value_dim(of), n_heads = of->n_heads, per_kv = n_heads / of->n_kv_heads;
    uint32_t most = dv > WIDE_VALUE ? 3 : 4; /* limited by the registers of their sums */
    uint32_t tile = MIN_OF(per_kv, most), tiles = (per_kv + tile - 1) / tile;
    bool in_one = dv % PANEL_BLOCK == 0, to_both = k->plan->is_bidirectional && s->attention.window > 0;
    bool by_distance = s->w[1] != PLAN_NONE;
    plan_weight_id by_head = by_distance ? s->w[1] : s->w[0];
    uint32_t block = of->latent_dim == 0 && dv <= WIDE_VALUE ? rows_of_block(kv, tile, dv, to_both || by_distance) : 1;
    struct opencl_need need = opencl_need_of(k, s->dst);
    int flags = in_one ? opencl_flags_of(k, s->dst) : FLAG_FLOATS;
    plan_buf_id chosen = s->attention.chosen;
    char options[N_FORMS][OPENCL_OPTIONS_BYTES], skips[24] = "", distances[24] = "";
    if (s->attention.skips > 0) {
        snprintf(skips, sizeof skips, " -DSKIPS=%d", (int)s->attention.skips);
    } else if (chosen != PLAN_NONE) {
        snprintf(skips, sizeof skips, " -DCHOSEN=%u", opencl_width(k, chosen));
    }
    if (by_distance) {
        uint32_t reach = s->attention.reach;
        snprintf(distances, sizeof distances, " -D%s=%u", reach == 0 ? "ALIBI" : "REACH", MAX_OF(reach, 1u));
    }
    k->m->partial_bytes = MAX_OF(k->m->partial_bytes, (size_t)OPENCL_MAX_PARTS * n_heads * (dv + 2) * sizeof(float));
    for (enum attention_form form = IN_PARTS; form < (block > 1 ? N_FORMS : IN_BLOCKS); form++) {
        uint32_t rows = form == IN_BLOCKS ? block : 1;
        snprintf(options[form], OPENCL_OPTIONS_BYTES,
                 "-DD=%u -DDV=%u -DLATENT=%d -DHEADS=%u -DROWS=%u -DSPLIT=%d -DK8=%d -DV8=%d%s%s%s%s", of->head_dim, dv,
                 of->latent_dim != 0, tile, rows, form == IN_PARTS, kv->k_is_bytes, kv->v_is_bytes,
                 to_both ? " -DBOTH=1" : "", s->attention.in_chunks ? " -DCHUNKS=1" : "", distances, skips);
        struct opencl_launch l = opencl_launch_of(k, OPENCL_LANES, (size_t)of->n_kv_heads * tiles);
        l.by_splits = form == IN_PARTS;
        l.by = form == IN_BLOCKS ? OPENCL_BY_BLOCKS : form == BY_ROWS && block > 1 ? OPENCL_BY_SINGLES : OPENCL_BY_ROWS;
        l.tile = rows;
        l.slot_bytes = (kv->key_bytes + (of->latent_dim != 0 ? 0 : kv->value_bytes)) / KV_PAGE_TOKENS * tiles;
        l.when = form == IN_PARTS ? OPENCL_IF_PARTS : OPENCL_IF_WHOLE;
        struct opencl_arg args[17] = {
            ARG_ROWS(k, s->src),
            opencl_at(k, kv->keys),
            opencl_at(k, kv->values),
            ARG_UINT(n_heads),
            ARG_UINT(of->n_kv_heads),
            ARG_FLOAT(s->scale),
            ARG_FLOAT(s->attention.softcap),
            table_of(kv),
            ARG_INT(s->attention.window),
            ARG_INT(s->attention.ahead),
            ARG_OPTIONAL(k, by_head),
            form == IN_PARTS ? opencl_at(k, k->m->partial) : opencl_floats(k, s->dst),
            ARG_UINT(opencl_stride(k, s->dst)),
        };
        int n_args = 15;
        if (chosen != PLAN_NONE) {
            args[n_args++] = opencl_floats(k, chosen);
            args[n_args++] = ARG_UINT(opencl_stride(k, chosen));
        }
        TRY(opencl_add_launch(k, l, "attention.cl", "attention", options[form], args, n_args));
    }
    struct opencl_launch l = opencl_launch_of(k, OPENCL_LANES, n_heads);
    l.when = OPENCL_IF_PARTS;
    TRY(OPENCL_ADD(k, l, "attention.cl", "merge", options[IN_PARTS], opencl_at(k, k->m->partial), ARG_UINT(n_heads),
                   ARG_INT(s->attention.window), ARG_INT(s->attention.ahead), ARG_OPTIONAL(k, by_head),
                   ARG_ROWS(k, s->dst), ARG_INT(flags), ARG_CODES(k, s->dst)));
    return need.codes ? add_codes(k, s->dst, in_one ? OPENCL_IF_WHOLE : OPENCL_ALWAYS) : ERR_OK;
}

static enum err make_index(const struct opencl_maker *k)
{
    enum { WG = 64 };
    const struct plan_step *s = k->s;
    const struct opencl_kv *kv = &k->m->kvs[s->layer];
    const struct plan_rope *rope = &k->plan->ropes[s->heads.rope];
    uint32_t d = kv->heads.index_dim, n_heads = opencl_width(k, s->src) / d;
    TRY(OPENCL_ADD(k, opencl_launch_of(k, WG, n_heads + 1), "index.cl", "index_heads", "", ARG_ROWS(k, s->dst),
                   ARG_ROWS(k, s->heads.keys), opencl_at(k, kv->values), table_of(kv), ARG_UINT(n_heads), ARG_UINT(d),
                   ARG_INT(s->heads.rope), ARG_UINT(rope->n_rot), ARG_UINT(rope->first), ARG_INT(rope->is_neox)));
    return opencl_end_step(k, s->dst);
}

/* Each group has memory for the scores of one row, so with many rows a group chooses for several. */
static enum err make_choose(const struct opencl_maker *k)
{
    enum { WG = 256, GROUPS = 32 };
    const struct plan_step *s = k->s;
    struct backend_model *m = k->m;
    const struct opencl_kv *kv = &m->kvs[s->layer];
    uint32_t d = kv->heads.index_dim, most = (uint32_t)m->cfg.max_rows;
    size_t positions = (size_t)m->cfg.n_pages * KV_PAGE_TOKENS;
    const uint32_t per_group[2] = {1, (most + GROUPS - 1) / GROUPS};
    m->score_bytes = MIN_OF(most, (uint32_t)GROUPS) * positions * sizeof(float);
    for (int i = 0; i < (per_group[1] > 1 ? 2 : 1); i++) {
        struct opencl_launch l = opencl_launch_of(k, WG, 1);
        l.tile = per_group[i];
        l.min_rows = i == 0 ? 0 : GROUPS + 1;
        l.max_rows = i == 0 ? GROUPS : OPENCL_ANY_ROWS;
        TRY(OPENCL_ADD(k, l, "index.cl", "choose", "", ARG_ROWS(k, s->src), ARG_ROWS(k, s->choose.weights),
                       opencl_at(k, kv->values), table_of(kv), ARG_UINT(opencl_width(k, s->src) / d), ARG_UINT(d),
                       ARG_UINT(opencl_width(k, s->dst)), ARG_UINT(per_group[i]), opencl_at(k, m->scores),
                       ARG_ULONG(positions), ARG_ROWS(k, s->dst)));
    }
    return opencl_end_step(k, s->dst);
}

/* Makes tiles for one row and for more. */
static enum err make_head_matmul(const struct opencl_maker *k)
{
    enum { HEAD_WAVES = 4 };
    static const struct tile all[] = {{.tokens = 1, .max_rows = 1},
                                      {.tokens = 8, .min_rows = 2, .max_rows = OPENCL_ANY_ROWS}};
    const struct plan_step *s = k->s;
    const struct opencl_weight *w = &k->m->weights[s->w[0]];
    uint32_t panels = w->n_groups * w->group_panels;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char options[OPENCL_OPTIONS_BYTES];
        struct opencl_launch l =
            opencl_launch_of(k, (size_t)HEAD_WAVES * OPENCL_LANES, (panels + HEAD_WAVES - 1) / HEAD_WAVES);
        l.tile = all[i].tokens;
        l.min_rows = all[i].min_rows;
        l.max_rows = all[i].max_rows;
        l.weight_bytes = (uint64_t)panels * w->panel_bytes;
        snprintf(options, sizeof options, "-DKIND=%d -DTOKENS=%u", (int)w->kind, all[i].tokens);
        TRY(OPENCL_ADD(k, l, "heads_matmul.cl", "heads_matmul", options, ARG_INT(s->rows), opencl_at(k, w->place),
                       ARG_UINT(w->panel_bytes / sizeof(uint32_t)), ARG_UINT(w->group_panels), ARG_UINT(panels),
                       ARG_UINT(k->plan->weights[s->w[0]].n_in), ARG_UINT(w->group_rows), ARG_ROWS(k, s->src),
                       ARG_UINT(opencl_width(k, s->src) / w->n_groups), ARG_ROWS(k, s->dst),
                       ARG_UINT(opencl_width(k, s->dst) / w->n_groups)));
    }
    return opencl_end_step(k, s->dst);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static enum err (*const makers[PLAN_OP_COUNT])(const struct opencl_maker *k) = {
    [PLAN_EMBED] = make_embed,
    [PLAN_NORM] = make_norm,
    [PLAN_MATMUL] = make_matmul,
    [PLAN_GLU] = make_glu,
    [PLAN_QKV] = make_qkv,
    [PLAN_HEADS] = make_heads,
    [PLAN_ATTENTION] = make_attention,
    [PLAN_INDEX] = make_index,
    [PLAN_CHOOSE] = make_choose,
    [PLAN_HEAD_MATMUL] = make_head_matmul,
    [PLAN_ROUTE] = opencl_experts_make_route,
    [PLAN_EXPERTS] = opencl_experts_make,
    [PLAN_GATE] = opencl_streams_make_gate,
    [PLAN_MULTIPLY] = opencl_streams_make_multiply,
    [PLAN_XIELU] = opencl_streams_make_xielu,
    [PLAN_SHORT_CONV] = opencl_recurrent_make_short_conv,
    [PLAN_DELTA] = opencl_recurrent_make_delta,
    [PLAN_SSM] = opencl_recurrent_make_ssm,
    [PLAN_SCAN] = opencl_recurrent_make_scan,
    [PLAN_SUM] = opencl_streams_make_sum,
    [PLAN_PREDICT] = opencl_streams_make_predict,
    [PLAN_CORRECT] = opencl_streams_make_correct,
    [PLAN_REDUCE] = opencl_streams_make_reduce,
    [PLAN_HIDDEN] = make_hidden,
    [PLAN_GATHER] = make_gather,
    [PLAN_LOGITS] = make_logits,
    [PLAN_INPUT] = make_input,
    [PLAN_OUTPUT] = make_output,
};

enum err opencl_steps_compile(struct backend_model *m, struct err_info *info)
{
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        const struct plan_step *s = &m->plan->steps[i];
        const struct opencl_maker k = {.m = m, .plan = m->plan, .s = s, .i_step = i, .info = info};
        if (plan_is_idle(s)) {
            continue;
        }
        if (makers[s->op] == NULL) {
            return err_set(info, ERR_UNSUPPORTED_ARCH, "backend", "opencl cannot compute steps of kind '%s' yet",
                           plan_op_name(s->op));
        }
        TRY(makers[s->op](&k));
        m->n_main = i < plan_main_steps(m->plan) ? m->n_launches : m->n_main;
        m->n_storing = i < m->plan->n_storing ? m->n_launches : m->n_storing;
        m->n_storing_predict = i < m->plan->n_storing_predict ? m->n_launches : m->n_storing_predict;
    }
    return ERR_OK;
}

void opencl_steps_free(struct backend_model *m)
{
    for (size_t i = 0; i < m->n_launches; i++) {
        if (m->launches[i].kernel != NULL) {
            clReleaseKernel(m->launches[i].kernel);
        }
    }
    mem_free(m->launches);
    m->launches = NULL;
    m->n_launches = m->n_main = m->n_storing = m->n_storing_predict = 0;
}
