/* Tests each operation of a plan on a small case: the step between edges for input and output rows, with the model's
 * heads and kinds of weights, so that the programs are the model's own. Matrices are cut down. The expected results are
 * those of `ref` for the same plan. */
#include "opencl/selftest.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quantize.h"
#include "engine/quant/row_mapped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    N_BATCHES = 3,
    ROWS = 21,         /* of all batches */
    N_PAGES = 6,       /* more than a part of the attention */
    FROM = 140,        /* position of attention's first row */
    WIDTH = 256,       /* to which matrices are cut: a block of every kind */
    MOST_VOCAB = 5000, /* more than a piece of logits */
    MOST_EMBED = 64,   /* rows for lookup */
    MOST_EXPERTS = 8,
    MOST_CHOSEN = 64, /* fewer positions than a row of attention can see */
    PERIOD = 31,      /* distinct rows of a matrix; differs from the rows of a panel */
    N_CODED = 32,     /* rows of the matrix that multiplies the result as codes */
    N_BEST = 4,
    DRAFTS = 2, /* of a batch, if sequences with recurrent states draft; half of these, rounded up, come true */
};

/* Rows of a sequence, in one batch each: many, which makes blocks and large tiles; one; a few. */
static const int32_t batches[N_BATCHES] = {17, 1, 3};

/* Maximum error of a result, relative to itself and to the root mean square of all. Right results are three times
 * closer; if codes are made in between, their rounding causes most of the error. */
static const double max_off = 5e-2, max_off_codes = 0.2;

/* Columns of a buffer in the output rows. */
struct columns {
    uint32_t first, width;
    bool is_of_codes;
};

struct step_case {
    const struct backend_model *m;
    const struct plan_step *of;
    struct plan *p;
    struct plan_step s; /* in p */
    enum dtype coded;   /* DTYPE_COUNT: no weight of the model takes codes */
    uint32_t state;     /* of the generator */
    struct columns columns[PLAN_MAX_BUFS + 1];
    int n_columns;
    int32_t from;
    size_t page_floats, n_results;
    float *input, *page; /* [ROWS][input_width]; initial contents of all pages */
};

/* The results of a back end: output, logits and hidden rows, pages, states, in sequence. */
struct results {
    float *all, *output, *logits, *hidden, *pages, *state;
    bool has_right_stats;
};

/* --- numbers -------------------------------------------------------------------------------------------------------- */

/* Returns a number in -1 .. 1. */
static float next(struct step_case *c) { return (float)selftest_next(&c->state) / (float)(1 << 23) - 1; }

static void fill(struct step_case *c, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = next(c);
    }
}

static bool make_row(struct step_case *c, enum dtype type, uint32_t n, float *room, unsigned char *row)
{
    const struct dtype_info *info = dtype_info(type);
    if (quantize_can(type)) {
        fill(c, room, n);
        bool decays = c->of->op == PLAN_DELTA || c->of->op == PLAN_SSM || c->of->op == PLAN_SCAN;
        bool is_decay = decays && c->p->n_weights == 0;
        for (uint32_t i = 0; i < n && is_decay; i++) {
            room[i] = -fabsf(room[i]);
        }
        return quantize_row(type, room, n, NULL, row);
    }
    for (uint32_t i = 0; i < n / info->block_elems; i++) {
        selftest_make_block(type, &c->state, row + (size_t)i * info->block_bytes);
    }
    return true;
}

static enum err add_weight(struct step_case *c, enum dtype type, uint32_t n_out, uint32_t n_in, plan_weight_id *id)
{
    uint64_t bytes = 0;
    uint32_t n_made = MIN_OF(n_out, (uint32_t)PERIOD);
    if (!dtype_row_bytes(type, n_in, &bytes)) {
        return ERR_INTERNAL;
    }
    unsigned char *rows = arena_alloc(&c->p->arena, (size_t)bytes * n_out);
    float *room = arena_alloc(&c->p->arena, n_in * sizeof *room);
    if (rows == NULL || room == NULL) {
        return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        if (i >= n_made) {
            memcpy(rows + i * bytes, rows + (i - n_made) * bytes, (size_t)bytes);
        } else if (!make_row(c, type, n_in, room, rows + i * bytes)) {
            return ERR_INTERNAL;
        }
    }
    return plan_add_weight(c->p, "w", row_mapped_new(&c->p->arena, type, rows, n_out, n_in), id);
}

/* --- the plan of a case --------------------------------------------------------------------------------------------- */

/* Returns a cut width, with the same part of a panel or block as before. */
static uint32_t cut(uint32_t n) { return n <= WIDTH ? n : WIDTH + n % PANEL_BLOCK; }

static uint32_t width_of(const struct plan *p, const struct plan_step *s, plan_buf_id id)
{
    bool is_route = s->op == PLAN_EXPERTS && id == s->experts.route;
    bool is_cut = s->op == PLAN_MATMUL || s->op == PLAN_GLU || s->op == PLAN_LOGITS || s->op == PLAN_EXPERTS;
    if ((s->op == PLAN_CHOOSE && id == s->dst) || (s->op == PLAN_ATTENTION && id == s->attention.chosen)) {
        return MIN_OF(p->bufs[id].width, (uint32_t)MOST_CHOSEN);
    }
    bool does = (is_cut && !is_route) || (s->op == PLAN_QKV && id == s->src);
    return does ? cut(p->bufs[id].width) : p->bufs[id].width;
}

static uint32_t n_experts_of(const struct plan *p)
{
    return MIN_OF(p->moe.n_experts, MAX_OF(p->moe.n_used, (uint32_t)MOST_EXPERTS));
}

/* Returns the rows of all experts after cutting their number and widths. */
static uint32_t cut_experts(const struct plan *p, uint32_t n) { return cut(n / p->moe.n_experts) * n_experts_of(p); }

static void size_weight(const struct plan *p, const struct plan_step *s, const struct plan_operand *o,
                        const struct plan_weight *w, uint32_t *n_out, uint32_t *n_in)
{
    bool is_vector = (o->flags & PLAN_VECTOR) != 0, is_matrix = (o->flags & PLAN_MULTIPLIES) != 0;
    *n_out = w->n_out;
    *n_in = w->n_in;
    switch (s->op) {
    case PLAN_MATMUL:
    case PLAN_GLU:
        *n_out = cut(w->n_out);
        *n_in = cut(w->n_in);
        break;
    case PLAN_LOGITS:
        *n_out = MIN_OF(w->n_out, (uint32_t)MOST_VOCAB);
        *n_in = is_vector ? MIN_OF(w->n_in, (uint32_t)MOST_VOCAB) : cut(w->n_in);
        break;
    case PLAN_QKV:
        *n_in = is_matrix ? cut(w->n_in) : w->n_in;
        break;
    case PLAN_EXPERTS:
        *n_out = is_vector ? w->n_out : cut_experts(p, w->n_out);
        *n_in = is_vector ? cut_experts(p, w->n_in) : cut(w->n_in);
        break;
    case PLAN_EMBED:
        *n_out = w == &p->weights[s->w[0]]                   ? MIN_OF(w->n_out, (uint32_t)MOST_EMBED)
                 : o->at == offsetof(struct plan_step, w[1]) ? (uint32_t)ROWS
                                                             : w->n_out;
        break;
    default:
        break;
    }
}

/* Copies the plan's parameters of a step except its buffers and weights. The step's layer is the first, which has its
 * own keys and values, or the second, which reads those. */
static enum err copy_sizes(struct step_case *c, struct err_info *info)
{
    const struct plan *p = c->m->plan;
    const struct plan_op_info *op = &plan_ops[c->of->op];
    bool has_cache = op->cache != 0;
    struct plan_kv kv = has_cache ? plan_kv_of(p, c->of->layer) : (struct plan_kv){.n_kv_heads = p->n_kv_heads};
    bool is_read = (op->cache & PLAN_WRITES) != 0 && kv.layer != c->of->layer;
    c->p->n_heads = plan_heads_of(p, c->of);
    c->p->n_layers = is_read ? 2 : 1;
    c->p->kvs = arena_zalloc_array(&c->p->arena, 2, sizeof kv);
    TRY_MEM_FOR(c->p->kvs != NULL, info, "out of memory for a test of the device");
    kv.layer = has_cache ? 0 : PLAN_NONE;
    c->p->kvs[0] = c->p->kvs[1] = kv;
    c->p->n_kv_heads = kv.n_kv_heads;
    c->p->head_dim = has_cache ? kv.head_dim : p->head_dim;
    c->p->value_dim = kv.value_dim;
    c->p->latent_dim = kv.latent_dim;
    c->p->index_dim = kv.index_dim;
    c->p->n_ctx_train = ROWS;
    c->p->is_bidirectional = p->is_bidirectional;
    c->p->moe = p->moe;
    c->p->delta = p->delta;
    c->p->ssm = p->ssm;
    bool is_reduced = c->of->op == PLAN_LOGITS && c->of->logits.is_reduced;
    c->p->n_vocab =
        MIN_OF(plan_n_logits(p, is_reduced), (uint32_t)(c->of->op == PLAN_LOGITS ? MOST_VOCAB : MOST_EMBED));
    if (c->of->op == PLAN_LOGITS) { /* of the case's own vocabulary */
        c->s.logits.is_reduced = false;
    }
    c->p->n_embd = p->n_embd;
    if (c->of->op == PLAN_EXPERTS) {
        c->p->moe.n_experts = n_experts_of(p);
        c->p->moe.n_groups = c->p->moe.n_groups_used = 1;
    }
    c->s.layer = has_cache ? is_read : PLAN_NONE;
    c->from = op->cache == PLAN_READS && !p->is_bidirectional ? FROM : 0;
    return ERR_OK;
}

static enum err add_edge(struct step_case *c, plan_buf_id id, bool is_output, bool is_of_codes)
{
    uint32_t *all = is_output ? &c->p->output_width : &c->p->input_width, width = c->p->bufs[id].width;
    struct plan_step edge = plan_edge_of(is_output, id, *all);
    if (is_output) {
        c->columns[c->n_columns++] = (struct columns){*all, width, is_of_codes};
    }
    *all += width;
    return plan_add_step(c->p, &edge);
}

/* Adds a matrix that multiplies the result as codes, of a kind that the model multiplies by, if one has that width. */
static enum err add_coded(struct step_case *c)
{
    uint64_t ignored;
    plan_buf_id y;
    plan_weight_id w;
    int uses = c->s.dst != PLAN_NONE ? plan_uses(&c->s, c->s.dst) : 0;
    if ((uses & PLAN_WRITES) == 0 || c->coded == DTYPE_COUNT || c->of->op == PLAN_ROUTE ||
        c->p->n_bufs == PLAN_MAX_BUFS || !dtype_row_bytes(c->coded, c->p->bufs[c->s.dst].width, &ignored)) {
        return ERR_OK;
    }
    TRY(plan_add_buf(c->p, "coded", N_CODED, &y));
    TRY(add_weight(c, c->coded, N_CODED, c->p->bufs[c->s.dst].width, &w));
    struct plan_step s = plan_step_of(PLAN_MATMUL, c->s.dst, y);
    s.w[0] = w;
    TRY(plan_add_step(c->p, &s));
    return add_edge(c, y, true, true);
}

static enum err add_weights(struct step_case *c)
{
    const struct plan_operand *o;
    int32_t id;
    for (int k = 0; (o = plan_next_operand(c->of, &k, &id)) != NULL;) {
        uint32_t n_out, n_in;
        plan_weight_id w = PLAN_NONE;
        for (int i = 0; i < 3 && c->of->op == PLAN_QKV && !plan_is_buf(o); i++) { /* values can be the keys */
            bool is_before = o->at > offsetof(struct plan_step, w) + (size_t)i * sizeof id && c->of->w[i] == id;
            w = is_before ? c->s.w[i] : w;
        }
        if (plan_is_buf(o)) {
            continue;
        }
        size_weight(c->m->plan, c->of, o, &c->m->plan->weights[id], &n_out, &n_in);
        if (w == PLAN_NONE) {
            TRY(add_weight(c, c->m->plan->weights[id].type, n_out, n_in, &w));
        }
        *plan_operand_id(&c->s, o) = w;
    }
    return ERR_OK;
}

static enum err add_steps(struct step_case *c)
{
    const struct plan *p = c->m->plan;
    if (c->of->op == PLAN_LOGITS) { /* of gathered rows */
        plan_buf_id all;
        TRY(plan_add_buf(c->p, "x", cut(p->bufs[c->of->src].width), &c->s.src));
        TRY(plan_add_buf(c->p, "all", cut(p->bufs[c->of->src].width), &all));
        TRY(add_edge(c, all, false, false));
        struct plan_step gather = plan_step_of(PLAN_GATHER, all, c->s.src);
        TRY(plan_add_step(c->p, &gather));
        return plan_add_step(c->p, &c->s);
    }
    for (int32_t i = 0; i < p->n_bufs; i++) {
        plan_buf_id id;
        TRY(plan_add_buf(c->p, "x", plan_uses(c->of, i) != 0 ? width_of(p, c->of, i) : 1, &id));
    }
    for (int32_t i = 0; i < p->n_bufs; i++) {
        TRY((plan_uses(&c->s, i) & PLAN_READS) != 0 ? add_edge(c, i, false, false) : ERR_OK);
    }
    TRY(plan_add_step(c->p, &c->s));
    for (int32_t i = 0; i < p->n_bufs; i++) {
        TRY((plan_uses(&c->s, i) & PLAN_WRITES) != 0 ? add_edge(c, i, true, c->of->op == PLAN_EXPERTS) : ERR_OK);
    }
    if (c->of->op == PLAN_ROUTE) { /* weights and ids */
        c->columns[0].width /= 2;
        c->columns[c->n_columns++] = (struct columns){c->columns[0].width, c->columns[0].width, false};
    }
    return add_coded(c);
}

static enum err make_plan(struct step_case *c, struct err_info *info)
{
    const struct plan_op_info *op = &plan_ops[c->of->op];
    c->s = *c->of;
    TRY(copy_sizes(c, info));
    enum err err = add_weights(c);
    if (op->rope != 0 && err == ERR_OK) {
        err = plan_add_rope(c->p, &c->m->plan->ropes[c->of->heads.rope], &c->s.heads.rope);
    }
    if (c->of->op == PLAN_ATTENTION && c->s.attention.window > N_PAGES * KV_PAGE_TOKENS / 2) {
        c->s.attention.window = N_PAGES * KV_PAGE_TOKENS / 2;
    }
    err = err == ERR_OK ? add_steps(c) : err;
    TRY_MEM_FOR(err != ERR_NOMEM, info, "out of memory for a test of the device");
    return err == ERR_OK ? plan_check(c->p, info) : err;
}

/* --- input -------------------------------------------------------------------------------------------------------- */

/* Codes are exact if each block's largest value is at the end of the range. */
static float input_of(struct step_case *c, int32_t row, uint32_t i)
{
    float v = roundf(next(c) * 127);
    return (i % PANEL_BLOCK == (uint32_t)row % PANEL_BLOCK ? (v < 0 ? -127.0f : 127.0f) : v) / 64;
}

static void make_input(struct step_case *c)
{
    uint32_t n_experts = c->p->moe.n_experts, k = c->p->moe.n_used;
    for (int32_t i = 0; i < c->p->n_steps; i++) {
        const struct plan_step *edge = &c->p->steps[i];
        bool is_route = c->of->op == PLAN_EXPERTS && edge->dst == c->of->experts.route;
        bool is_chosen = c->of->op == PLAN_ATTENTION && edge->dst == c->of->attention.chosen;
        for (int32_t row = 0; row < ROWS && edge->op == PLAN_INPUT; row++) {
            float *x = c->input + (size_t)row * c->p->input_width + edge->edge.first;
            for (uint32_t j = 0; j < c->p->bufs[edge->dst].width; j++) {
                x[j] = input_of(c, row, j);
                if (is_route) {
                    x[j] = j < k ? fabsf(x[j]) : (float)(((uint32_t)row * 3 + j) % n_experts);
                }
                x[j] = is_chosen ? (float)(2 * j + (uint32_t)row % 2) : x[j]; /* ascending, and before FROM */
            }
        }
    }
}

/* Makes keys that give scores of about 1; index keys that have the same scores in halves. */
static void make_page(struct step_case *c)
{
    fill(c, c->page, c->page_floats);
    float most =
        c->of->op == PLAN_ATTENTION && c->of->scale > 0 ? 3 / (c->of->scale * sqrtf((float)c->p->kvs[0].head_dim)) : 1;
    for (size_t i = 0; i < c->page_floats && most < 1; i++) {
        c->page[i] *= most;
    }
    for (size_t i = 0; i < c->page_floats && c->of->op == PLAN_CHOOSE; i++) {
        c->page[i] = roundf(c->page[i] * 64) / 64;
    }
}

/* --- computing ------------------------------------------------------------------------------------------------------ */

/* Checks statistics and best tokens, which only the device computes, against the logits that it returned. */
static bool is_right_row(const float *logits, uint32_t n, const struct backend_row_stats *s,
                         const struct candidate *best, int n_best)
{
    uint32_t most = 0;
    double sum = 0;
    for (uint32_t i = 1; i < n; i++) {
        most = logits[i] > logits[most] ? i : most;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - logits[most]);
    }
    bool is_right = s->argmax == (int32_t)most && s->max == logits[most] &&
                    fabs(log(sum) + logits[most] - s->logsumexp) <= 1e-3 * (1 + fabs(s->logsumexp));
    for (int k = 0; k < n_best && is_right; k++) {
        uint32_t before = 0;
        int32_t id = best[k].id;
        for (uint32_t i = 0; i < n && id >= 0 && id < (int32_t)n; i++) {
            before += logits[i] > logits[id] || (logits[i] == logits[id] && (int32_t)i < id);
        }
        is_right = id >= 0 && id < (int32_t)n && best[k].logit == logits[id] && before == (uint32_t)k;
    }
    return is_right;
}

/* Rows of a batch; how many of the last are drafts, and how many drafts of the batch before came true. */
struct part {
    int32_t from, n, n_drafts, n_true;
};

/* Computes a batch with all logits; then again with only the best tokens. */
static enum err compute_batch(const struct step_case *c, const struct backend *b, struct backend_model *m,
                              const struct part *part, struct results *r, struct err_info *info)
{
    static const int32_t pages[N_PAGES] = {3, 0, 5, 1, 4, 2}, zeros[ROWS] = {0};
    static const int32_t *const tables = pages;
    int32_t tokens[ROWS], pos[ROWS], rows[ROWS], wants[ROWS];
    struct backend_row_stats stats[ROWS];
    const int32_t from = part->from, n = part->n;
    size_t at = (size_t)from;
    const uint32_t v = c->p->n_vocab;
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (from + i) * 37 % (int32_t)v;
        pos[i] = c->from + from + i;
        rows[i] = i;
        wants[i] = MIN_OF(N_BEST, (int32_t)v);
    }
    struct backend_batch batch = {.n_rows = n,
                                  .tokens = tokens,
                                  .pos = pos,
                                  .seq = zeros,
                                  .n_seqs = 1,
                                  .page_tables = &tables,
                                  .n_drafts = &part->n_drafts,
                                  .n_true = &part->n_true,
                                  .n_logits = c->p->has_logits ? n : 0,
                                  .logit_rows = rows,
                                  .logits = r->logits + at * v,
                                  .stats = stats,
                                  .n_hidden = c->p->has_hidden ? n : 0,
                                  .hidden_rows = rows,
                                  .hidden = r->hidden + at * c->p->n_embd,
                                  .input = c->input + at * c->p->input_width,
                                  .output = r->output + at * c->p->output_width};
    TRY(backend_compute(b, m, &batch, info));
    if (b != &backend_opencl || !c->p->has_logits) {
        return ERR_OK;
    }
    struct candidate *best = mem_zalloc_array((size_t)n * MAX_BEST, sizeof *best, MEM_SCRATCH);
    TRY_MEM_FOR(best != NULL, info, "out of memory for a test of the device");
    const float *logits = batch.logits;
    float *room = mem_zalloc_array((size_t)n * v, sizeof *room, MEM_SCRATCH);
    batch.wants = wants;
    batch.best = best;
    batch.logits = room;
    enum err err = room != NULL ? backend_compute(b, m, &batch, info) : ERR_NOMEM;
    for (int32_t i = 0; i < n && err == ERR_OK; i++) {
        r->has_right_stats &= is_right_row(logits + (size_t)i * v, v, &stats[i], best + (size_t)i * MAX_BEST, wants[i]);
    }
    mem_free(room);
    mem_free(best);
    return err;
}

/* Returns the most drafts of a batch of the case. */
static int32_t max_drafts(const struct step_case *c)
{
    return c->p->recurrent_floats != 0 ? MIN_OF(c->m->cfg.max_drafts, (int32_t)DRAFTS) : 0;
}

static enum err compute(const struct step_case *c, const struct backend *b, struct backend_model *m, struct results *r,
                        struct err_info *info)
{
    for (int32_t i = 0; i < N_PAGES && c->page_floats != 0; i++) {
        TRY(b->page_copy(m, (struct backend_page){.page = i}, BACKEND_FLOATS, c->page, true, info));
    }
    r->has_right_stats = true;
    struct part part = {.from = 0};
    for (int k = 0; k < (c->p->is_bidirectional ? 1 : N_BATCHES); k++) {
        part.n = MIN_OF(batches[k], c->m->cfg.max_rows);
        part.n_drafts = MIN_OF(max_drafts(c), part.n - 1);
        TRY(compute_batch(c, b, m, &part, r, info));
        part.n_true = (part.n_drafts + 1) / 2;
        part.from += part.n - part.n_drafts + part.n_true;
    }
    for (int32_t i = 0; i < N_PAGES && c->page_floats != 0; i++) {
        TRY(b->page_copy(m, (struct backend_page){.page = i}, BACKEND_FLOATS, r->pages + (size_t)i * c->page_floats,
                         false, info));
    }
    return c->p->recurrent_floats != 0 ? b->state_copy(m, 0, r->state, false, info) : ERR_OK;
}

/* Opens the plan, computes, and closes it. */
static enum err run(const struct step_case *c, const struct backend *b, struct results *r, struct err_info *info)
{
    const struct backend_config *of = &c->m->cfg;
    bool is_ref = b == &backend_ref;
    const struct backend_config cfg = {.n_threads = 1,
                                       .n_pages = N_PAGES,
                                       .n_states = c->p->recurrent_floats != 0,
                                       .max_drafts = max_drafts(c),
                                       .max_rows = MIN_OF(of->max_rows, batches[0]),
                                       .max_logits = c->p->has_logits ? MIN_OF(of->max_rows, batches[0]) : 1,
                                       .k_type = is_ref ? NULL : of->k_type,
                                       .v_type = is_ref ? NULL : of->v_type,
                                       .high_precision = of->high_precision};
    struct backend_model *m = NULL;
    r->all = mem_zalloc_array(c->n_results + 1, sizeof *r->all, MEM_SCRATCH);
    TRY_MEM_FOR(r->all != NULL, info, "out of memory for a test of the device");
    r->output = r->all;
    r->logits = r->output + (size_t)ROWS * c->p->output_width;
    r->hidden = r->logits + (size_t)ROWS * (c->p->has_logits ? c->p->n_vocab : 0);
    r->pages = r->hidden + (size_t)ROWS * (c->p->has_hidden ? c->p->n_embd : 0);
    r->state = r->pages + N_PAGES * c->page_floats;
    enum err err = is_ref ? b->open(c->p, &cfg, &m, info) : opencl_open_beside(c->m, c->p, &cfg, &m, info);
    err = err == ERR_OK ? compute(c, b, m, r, info) : err;
    b->close(&m);
    return err;
}

/* --- expected results --------------------------------------------------------------------------------------------- */

/* Returns the worst error in columns [0, width) of rows `stride` apart, relative to the allowed error; above 1 is
 * wrong. With may_differ ignores one row, because its routing can choose between two experts that are nearly equal. */
static double off_of(const float *found, const float *wanted, size_t n_rows, size_t width, size_t stride,
                     double allowed, bool may_differ)
{
    double size = 0, worst = 0, second = 0;
    for (size_t i = 0; i < n_rows * width; i++) {
        double w = wanted[i / width * stride + i % width];
        size += isfinite(w) ? w * w / (double)(n_rows * width) : 0;
    }
    size = sqrt(size);
    for (size_t row = 0; row < n_rows; row++) {
        double off = 0;
        for (size_t i = 0; i < width; i++) {
            double f = found[row * stride + i], w = wanted[row * stride + i];
            double one = isfinite(f) ? fabs(f - w) / (allowed * (size + fabs(w)) + 1e-30) : HUGE_VAL;
            off = isfinite(w) && one > off ? one : off;
        }
        second = MAX_OF(second, MIN_OF(off, worst));
        worst = MAX_OF(worst, off);
    }
    return may_differ ? second : worst;
}

static double compare(const struct step_case *c, const struct results *found, const struct results *wanted)
{
    bool may_differ = c->of->op == PLAN_ROUTE;
    double off = found->has_right_stats ? 0 : HUGE_VAL;
    for (int i = 0; i < c->n_columns; i++) {
        const struct columns *k = &c->columns[i];
        double one = off_of(found->output + k->first, wanted->output + k->first, ROWS, k->width, c->p->output_width,
                            k->is_of_codes ? max_off_codes : max_off, may_differ);
        off = MAX_OF(off, one);
    }
    size_t logits = c->p->has_logits ? c->p->n_vocab : 0, hidden = c->p->has_hidden ? c->p->n_embd : 0;
    const struct {
        const float *found, *wanted;
        size_t n;
        double allowed;
    } others[] = {{found->logits, wanted->logits, ROWS * logits, max_off},
                  {found->hidden, wanted->hidden, ROWS * hidden, max_off},
                  {found->pages, wanted->pages, N_PAGES * c->page_floats, max_off_codes},
                  {found->state, wanted->state, (size_t)c->p->recurrent_floats, max_off}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        double one = off_of(others[i].found, others[i].wanted, 1, others[i].n, others[i].n, others[i].allowed, false);
        off = MAX_OF(off, one);
    }
    return off;
}

static enum err test_case(struct step_case *c, struct err_info *info)
{
    struct results found = {0}, wanted = {0};
    TRY(make_plan(c, info));
    c->page_floats = plan_ops[c->of->op].cache != 0 ? backend_page_floats(c->p) : 0;
    c->n_results = (size_t)ROWS * ((size_t)c->p->output_width + (c->p->has_logits ? c->p->n_vocab : 0) +
                                   (c->p->has_hidden ? c->p->n_embd : 0)) +
                   N_PAGES * c->page_floats + (size_t)c->p->recurrent_floats;
    c->input = arena_zalloc_array(&c->p->arena, (size_t)ROWS * c->p->input_width + 1, sizeof *c->input);
    c->page = arena_zalloc_array(&c->p->arena, c->page_floats + 1, sizeof *c->page);
    TRY_MEM_FOR(c->input != NULL && c->page != NULL, info, "out of memory for a test of the device");
    make_input(c);
    make_page(c);
    enum err err = run(c, &backend_ref, &wanted, info);
    err = err == ERR_OK ? run(c, &backend_opencl, &found, info) : err;
    double off = err == ERR_OK ? compare(c, &found, &wanted) : 0;
    mem_free(found.all);
    mem_free(wanted.all);
    if (err == ERR_OK && off > 1) {
        const struct device_caps *d = &c->m->device.caps;
        char how[64] = "some results are no numbers, or best tokens are others";
        if (isfinite(off)) {
            snprintf(how, sizeof how, "they are off %.2g times as far as is allowed", off);
        }
        return err_set(info, ERR_UNSUPPORTED_DEVICE, "opencl",
                       "%s, with driver %s, computes steps of kind '%s' wrongly: %s", d->name, d->driver,
                       plan_op_name(c->of->op), how);
    }
    return err;
}

/* --- selection ---------------------------------------------------------------------------------------------------- */

/* Describes the case of a step in a line that distinguishes it from others. */
static void describe(const struct plan *p, const struct plan_step *s, struct buf *out)
{
    const struct plan_op_info *op = &plan_ops[s->op];
    const struct plan_operand *o;
    int32_t id;
    buf_printf(out, "\n%s %d %d %d", op->name, s->adds, (int)s->act, s->gate_limit != 0 || s->up_limit != 0);
    for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
        uint32_t n_out, n_in;
        if (plan_is_buf(o)) {
            buf_printf(out, " %s=%u", o->name, width_of(p, s, id));
        } else {
            size_weight(p, s, o, &p->weights[id], &n_out, &n_in);
            buf_printf(out, " %s=%s:%ux%u", o->name, dtype_info(p->weights[id].type)->name, n_out, n_in);
        }
    }
    if (op->cache != 0) {
        struct plan_kv kv = plan_kv_of(p, s->layer);
        buf_printf(out, " kv=%u,%u,%u,%u,%u,%d", kv.n_kv_heads, kv.head_dim, plan_kv_value_dim(&kv), kv.latent_dim,
                   kv.index_dim, kv.layer == s->layer);
    }
    if (op->rope != 0) {
        const struct plan_rope *r = &p->ropes[s->heads.rope];
        buf_printf(out, " rope=%u,%u,%d,%d values=%d", r->n_rot, r->first, r->is_neox, r->query_beta != 0,
                   s->heads.norms_values);
    }
    switch (s->op) {
    case PLAN_NORM:
    case PLAN_HIDDEN:
        buf_printf(out, " centers=%d", s->norm.centers);
        break;
    case PLAN_ATTENTION:
        buf_printf(out, " window=%d,%d cap=%d skips=%d heads=%u", s->attention.window != 0, s->attention.in_chunks,
                   s->attention.softcap != 0, (int)s->attention.skips, plan_heads_of(p, s));
        break;
    case PLAN_MULTIPLY:
        buf_printf(out, " map=%d,%u,%u,%d", (int)s->multiply.map, s->multiply.first, s->multiply.repeats,
                   s->multiply.is_sparse);
        break;
    case PLAN_SHORT_CONV:
        buf_printf(out, " taps=%u,%d", s->conv.taps, (int)s->conv.map);
        break;
    case PLAN_PREDICT:
    case PLAN_CORRECT:
        buf_printf(out, " streams=%u,%u", s->streams.n, s->streams.first);
        break;
    case PLAN_ROUTE:
    case PLAN_EXPERTS:
        buf_printf(out, " moe=%u,%u,%u,%u,%d,%d,%d,%d", p->moe.n_experts, p->moe.n_used, p->moe.n_groups,
                   p->moe.n_groups_used, p->moe.by_two, (int)p->moe.gating, p->moe.norms_weights,
                   s->op == PLAN_EXPERTS && s->experts.weighs_input);
        break;
    case PLAN_DELTA:
        buf_printf(out, " delta=%u,%u,%d,%d", p->delta.n_k_heads, p->delta.key_dim, p->delta.is_tiled,
                   p->delta.decays_keys);
        break;
    case PLAN_SSM:
    case PLAN_SCAN:
        buf_printf(out, " ssm=%u,%u,%u", p->ssm.n_heads, p->ssm.n_groups, p->ssm.state_dim);
        break;
    default:
        break;
    }
    buf_printf(out, ";");
}

/* Returns a type of the model whose products read codes, in plain matrices; the one with the smallest blocks. */
static enum dtype find_coded(const struct backend_model *m)
{
    enum dtype found = DTYPE_COUNT;
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        const struct plan_step *s = &m->plan->steps[i];
        if ((s->op != PLAN_MATMUL && s->op != PLAN_QKV) || panel_info(m->weights[s->w[0]].kind)->is_float) {
            continue;
        }
        enum dtype type = m->plan->weights[s->w[0]].type;
        bool is_better = found == DTYPE_COUNT || dtype_info(type)->block_elems < dtype_info(found)->block_elems;
        found = is_better ? type : found;
    }
    return found;
}

static enum err test_once(const struct backend_model *m, const struct plan_step *s, enum dtype coded,
                          struct err_info *info)
{
    struct step_case *c = mem_zalloc(sizeof *c, MEM_SCRATCH);
    TRY_MEM_FOR(c != NULL, info, "out of memory for a test of the device");
    *c = (struct step_case){.m = m, .of = s, .coded = coded, .state = 1};
    enum err err = plan_new(&c->p);
    err = err == ERR_OK ? test_case(c, info) : err_set(info, err, NULL, "out of memory for a test of the device");
    plan_free(&c->p);
    mem_free(c);
    return err;
}

/* Returns the option that distinguishes the step's programs with dot products; NULL: none. */
static const char *word_of(enum plan_op op)
{
    switch (op) {
    case PLAN_EXPERTS:
        return "-DPICKED=1";
    case PLAN_MATMUL:
    case PLAN_GLU:
    case PLAN_QKV:
    case PLAN_LOGITS:
        return "-DPICKED=0";
    default:
        return NULL;
    }
}

/* Tests a step; if it is wrong, tests it again with plain programs, if any. */
static enum err test_step(const struct backend_model *m, const struct plan_step *s, enum dtype coded,
                          struct err_info *info)
{
    char text[ERR_TEXT_BYTES + 64];
    struct err_info why = {0};
    const char *word = word_of(s->op);
    enum err err = test_once(m, s, coded, &why);
    if (err == ERR_UNSUPPORTED_DEVICE && word != NULL && program_set_plain(m->programs, word)) {
        snprintf(text, sizeof text, "%s: its programs are replaced by plain ones", why.text);
        program_set_tell(m->programs, text);
        err = test_once(m, s, coded, &why);
    }
    if (err != ERR_OK) {
        *info = why;
    }
    return err;
}

/* Marks the steps with this description. */
static void mark(const struct backend_model *m, const struct buf *description)
{
    struct buf one;
    buf_init(&one, 0, MEM_SCRATCH);
    for (int32_t i = 0; i < m->plan->n_steps; i++) {
        buf_reset(&one);
        describe(m->plan, &m->plan->steps[i], &one);
        if (buf_ok(&one) != ERR_OK || strcmp(one.data, description->data) == 0) {
            selftest_mark(m, i);
        }
    }
    buf_fini(&one);
}

/* Visits the steps that differ, and with `tests` tests each. Marks wrong steps, and reports the first. */
static enum err walk(const struct backend_model *m, struct buf *names, bool tests, struct err_info *info)
{
    enum dtype coded = find_coded(m);
    struct buf one;
    struct err_info wrong = {0};
    enum err err = ERR_OK;
    buf_init(&one, 0, MEM_SCRATCH);
    for (int32_t i = 0; i < m->plan->n_steps && err == ERR_OK; i++) {
        const struct plan_step *s = &m->plan->steps[i];
        buf_reset(&one);
        describe(m->plan, s, &one);
        /* Edges and gathered rows are part of others' cases, and ranks meet in the host's memory. */
        bool has_case = s->op != PLAN_INPUT && s->op != PLAN_OUTPUT && s->op != PLAN_GATHER && s->op != PLAN_REDUCE;
        if (!has_case || buf_ok(&one) != ERR_OK || (names->len != 0 && strstr(names->data, one.data) != NULL)) {
            continue;
        }
        buf_add(names, &one);
        err = tests ? test_step(m, s, coded, info) : ERR_OK;
        if (err == ERR_UNSUPPORTED_DEVICE) {
            wrong = wrong.code == ERR_OK ? *info : wrong;
            mark(m, &one);
            err = ERR_OK;
        }
    }
    buf_fini(&one);
    if (err == ERR_OK && wrong.code != ERR_OK) {
        *info = wrong;
        return wrong.code;
    }
    if (err == ERR_OK && buf_ok(names) != ERR_OK) {
        err = err_set(info, ERR_NOMEM, NULL, "out of memory for a test of the device");
    }
    return err;
}

enum err selftest_steps_name(const struct backend_model *m, struct buf *out, struct err_info *info)
{
    const char *k_type, *v_type;
    TRY(opencl_kv_types(m, &k_type, &v_type, info));
    buf_printf(out, "%s %s %s drafts=%d", k_type, v_type, m->plan->is_bidirectional ? "both" : "back",
               m->plan->recurrent_floats != 0 && m->cfg.max_drafts > 0);
    return walk(m, out, false, info);
}

enum err selftest_steps(const struct backend_model *m, struct err_info *info)
{
    struct buf names;
    buf_init(&names, 0, MEM_SCRATCH);
    enum err err = walk(m, &names, true, info);
    buf_fini(&names);
    return err;
}
