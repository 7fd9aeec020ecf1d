/* Qwen3-Next's additions to the decoder: layers of linear attention, the gated delta rule after a short convolution
 * [Yang 2024, "Gated Delta Networks"], and attention with a gate on its output [Qiu 2025, "Gated Attention for Large
 * Language Models"]. Keys and tensor names: llama.cpp b11434, gguf-py/gguf/constants.py and
 * src/models/qwen3next.cpp. */
#include "engine/model/blocks.h"

#include "engine/tensor/row_order.h"

#include <string.h>

enum { DEFAULT_INTERVAL = 4 };

/* --- interleaved rows----------------------------------------------------------------------------------------- */

/* `n` runs of `rows` rows each. The first begins at row `first`, each next one `step` rows later. */
struct runs {
    uint32_t first, step, n, rows;
};

/* The runs, in order, that form a weight, of a tensor of n_all rows that interleaves several weights head by head. */
struct rows {
    uint32_t n_all;
    int n;
    struct runs at[3];
};

/* Lists the starts of runs of one length that form all rows of a weight. Returns NULL when out of memory. */
static uint32_t *list_runs(struct blocks *b, const struct rows *rows, uint32_t *run, uint32_t *n)
{
    uint32_t n_rows = 0, at = 0;
    *run = 0;
    for (int i = 0; i < rows->n; i++) {
        n_rows += rows->at[i].n * rows->at[i].rows;
        *run = row_order_run(*run, rows->at[i].rows);
    }
    *n = n_rows / *run;
    uint32_t *first = arena_alloc(&b->plan->arena, *n * sizeof *first);
    for (int i = 0; first != NULL && i < rows->n; i++) {
        const struct runs *r = &rows->at[i];
        for (uint32_t k = 0; k < r->n; k++) {
            for (uint32_t row = 0; row < r->rows; row += *run) {
                first[at++] = r->first + k * r->step + row;
            }
        }
    }
    return first;
}

static enum err bind_runs(struct blocks *b, const char *name, const struct rows *rows, plan_weight_id *id)
{
    struct plan *p = b->plan;
    uint32_t run, n;
    TRY(blocks_bind(b, name, rows->n_all, b->h.n_embd, id));
    const uint32_t *first = list_runs(b, rows, &run, &n);
    return plan_set_source(p, *id, row_order_rows(&p->arena, p->weights[*id].source, first, n, run));
}

/* Binds elements of a vector selected like rows of a weight; *id = PLAN_NONE without the tensor. */
static enum err bind_bias(struct blocks *b, const char *name, const struct rows *rows, plan_weight_id *id)
{
    TRY(blocks_bind_optional(b, name, 1, rows->n_all, id));
    if (*id == PLAN_NONE) {
        return ERR_OK;
    }
    const struct plan_weight *w = &b->plan->weights[*id];
    if (w->type != DTYPE_F32) {
        return blocks_not_f32(b, w->name, w->type);
    }
    uint32_t run, n;
    const uint32_t *first = list_runs(b, rows, &run, &n);
    return plan_set_source(b->plan, *id, row_order_columns(&b->plan->arena, w->source, first, n, run));
}

/* --- gated attention ------------------------------------------------------------------------------------------ */

/* Binds w[0] and bias[0] to the rows of each head's queries, or of its gate, which follow them. */
static enum err bind_queries(struct blocks *b, bool is_gate, struct plan_step *s)
{
    uint32_t d = b->h.head_dim, n_heads = b->h.n_heads;
    bool is_fused = blocks_rows_of(b, "blk.%d.attn_qkv.weight") != 0;
    const struct rows heads = {.n_all = 2 * n_heads * d + (is_fused ? 2 * b->h.n_kv_heads * d : 0),
                               .n = 1,
                               .at = {{.first = is_gate ? d : 0, .step = 2 * d, .n = n_heads, .rows = d}}};
    TRY(bind_runs(b, is_fused ? "blk.%d.attn_qkv.weight" : "blk.%d.attn_q.weight", &heads, &s->w[0]));
    return bind_bias(b, is_fused ? "blk.%d.attn_qkv.bias" : "blk.%d.attn_q.bias", &heads, &s->bias[0]);
}

enum err blocks_bind_gated_qkv(struct blocks *b, struct plan_step *qkv)
{
    TRY(bind_queries(b, false, qkv));
    return blocks_bind_qkv(b, 1, 3, qkv);
}

enum err blocks_add_attention_gate(struct blocks *b)
{
    struct plan_step gate = plan_step_of(PLAN_MATMUL, b->norm, b->att_gate);
    TRY(bind_queries(b, true, &gate));
    TRY(plan_add_step(b->plan, &gate));
    struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, b->att_gate, b->att);
    multiply.multiply.map = PLAN_MAP_SIGMOID;
    return plan_add_step(b->plan, &multiply);
}

/* --- hyper-parameters ----------------------------------------------------------------------------------------- */

/* Reads which layers are linear: an array of booleans, or all except every n-th. */
static enum err read_kinds(struct blocks *b)
{
    bool found, is_linear[PLAN_MAX_LAYERS];
    uint32_t interval = 1;
    TRY(blocks_get_flags(b, "attention.recurrent_layers", &found, is_linear));
    if (!found) {
        TRY(blocks_get_u32(b, "full_attention_interval", 1, PLAN_MAX_LAYERS, DEFAULT_INTERVAL, &interval));
    }
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        bool is_delta = found ? is_linear[i] : (i + 1) % interval != 0;
        b->style.mixer[i] = is_delta ? BLOCKS_DELTA : BLOCKS_ATTENTION;
    }
    return ERR_OK;
}

/* Tells the last layers, which predict further tokens, from the others. At least one of the others must have attention. */
static enum err cut_layers(struct blocks *b)
{
    bool has_attention = false;
    TRY(blocks_read_predicting(b));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        has_attention |= b->style.mixer[i] == BLOCKS_ATTENTION;
    }
    return blocks_expect(b, has_attention, "attention.recurrent_layers",
                         "expected a layer with attention among %u, found none", b->h.n_layers);
}

enum err blocks_read_delta(struct blocks *b, bool is_tiled)
{
    struct plan_delta *d = &b->plan->delta;
    uint32_t inner;
    TRY(read_kinds(b));
    TRY(cut_layers(b));
    TRY(blocks_skip_attention(b, "linear attention"));
    TRY(blocks_get_u32(b, "ssm.conv_kernel", 2, PLAN_MAX_TAPS, UINT64_MAX, &b->style.conv_taps));
    TRY(blocks_get_u32(b, "ssm.state_size", 1, PLAN_MAX_HEAD, UINT64_MAX, &d->key_dim));
    TRY(blocks_get_u32(b, "ssm.group_count", 1, PLAN_MAX_HEADS, UINT64_MAX, &d->n_k_heads));
    TRY(blocks_get_u32(b, "ssm.time_step_rank", 2, PLAN_MAX_HEADS, UINT64_MAX, &d->n_v_heads));
    TRY(blocks_get_u32(b, "ssm.inner_size", 1, PLAN_MAX_HEADS * PLAN_MAX_HEAD, UINT64_MAX, &inner));
    d->is_tiled = is_tiled;
    TRY(blocks_expect(b, d->n_v_heads % d->n_k_heads == 0, "ssm.time_step_rank",
                      "expected a multiple of ssm.group_count %u, found %u", d->n_k_heads, d->n_v_heads));
    TRY(blocks_expect(b, inner % d->n_v_heads == 0 && inner / d->n_v_heads <= PLAN_MAX_HEAD, "ssm.inner_size",
                      "expected a multiple of time_step_rank %u, at most %u, found %u", d->n_v_heads,
                      d->n_v_heads * PLAN_MAX_HEAD, inner));
    d->value_dim = inner / d->n_v_heads;
    return ERR_OK;
}

/* --- linear attention ----------------------------------------------------------------------------------------- */

static uint32_t mixed_width(const struct plan_delta *d)
{
    return 2 * d->n_k_heads * d->key_dim + d->n_v_heads * d->value_dim;
}

enum err blocks_add_delta_bufs(struct blocks *b)
{
    struct plan *p = b->plan;
    const struct plan_delta *d = &p->delta;
    TRY(plan_add_buf(p, "att_gate", b->h.n_heads * b->h.head_dim, &b->att_gate));
    TRY(plan_add_buf(p, "delta_in", mixed_width(d), &b->delta_in));
    TRY(plan_add_buf(p, "delta_mixed", mixed_width(d), &b->delta_mixed));
    TRY(plan_add_buf(p, "delta_out", d->n_v_heads * d->value_dim, &b->delta_out));
    TRY(plan_add_buf(p, "delta_gate", d->n_v_heads * d->value_dim, &b->delta_gate));
    TRY(plan_add_buf(p, "beta", d->n_v_heads, &b->beta));
    return plan_add_buf(p, "alpha", d->n_v_heads, &b->alpha);
}

/* Adds dst = rows of a tensor times the normed row. */
static enum err add_runs(struct blocks *b, const char *name, const struct rows *rows, plan_buf_id dst)
{
    struct plan_step s = plan_step_of(PLAN_MATMUL, b->norm, dst);
    TRY(bind_runs(b, name, rows, &s.w[0]));
    return plan_add_step(b->plan, &s);
}

/* Adds the projections of the normed row: q, k and values from one tensor and their gates from another; older files
 * interleave all by key head in one tensor (ssm_in). Betas and alphas are separate or interleaved by key head
 * (ssm_ba). */
static enum err add_projections(struct blocks *b)
{
    const struct plan_delta *d = &b->plan->delta;
    uint32_t k = d->key_dim, groups = d->n_k_heads, each = d->n_v_heads / groups;
    uint32_t v = each * d->value_dim, step = 2 * (k + v), all = groups * step;
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    if (blocks_rows_of(b, "blk.%d.attn_qkv.weight") == 0 && blocks_rows_of(b, "blk.%d.ssm_in.weight") != 0) {
        const struct rows qkv = {all, 3, {{0, step, groups, k}, {k, step, groups, k}, {2 * k, step, groups, v}}};
        const struct rows gate = {all, 1, {{2 * k + v, step, groups, v}}};
        TRY(add_runs(b, "blk.%d.ssm_in.weight", &qkv, b->delta_in));
        TRY(add_runs(b, "blk.%d.ssm_in.weight", &gate, b->delta_gate));
    } else {
        TRY(blocks_add_matmul(b, "blk.%d.attn_qkv.weight", b->norm, b->delta_in));
        TRY(blocks_add_matmul(b, "blk.%d.attn_gate.weight", b->norm, b->delta_gate));
    }
    if (blocks_rows_of(b, "blk.%d.ssm_ba.weight") != 0) {
        const struct rows beta = {2 * d->n_v_heads, 1, {{0, 2 * each, groups, each}}};
        const struct rows alpha = {2 * d->n_v_heads, 1, {{each, 2 * each, groups, each}}};
        TRY(add_runs(b, "blk.%d.ssm_ba.weight", &beta, b->beta));
        return add_runs(b, "blk.%d.ssm_ba.weight", &alpha, b->alpha);
    }
    TRY(blocks_add_matmul(b, "blk.%d.ssm_beta.weight", b->norm, b->beta));
    return blocks_add_matmul(b, "blk.%d.ssm_alpha.weight", b->norm, b->alpha);
}

enum err blocks_add_delta(struct blocks *b)
{
    const struct plan_delta *d = &b->plan->delta;
    TRY(add_projections(b));
    struct plan_step conv = plan_step_of(PLAN_SHORT_CONV, b->delta_in, b->delta_mixed);
    conv.conv.taps = b->style.conv_taps;
    conv.conv.map = PLAN_MAP_SILU;
    TRY(blocks_bind_stack(b, "blk.%d.ssm_conv1d.weight", mixed_width(d), 1, conv.conv.taps, &conv.w[0]));
    TRY(plan_add_step(b->plan, &conv));

    struct plan_step delta = plan_step_of(PLAN_DELTA, b->delta_mixed, b->delta_out);
    delta.delta.beta = b->beta;
    delta.delta.alpha = b->alpha;
    delta.eps = b->h.eps;
    TRY(blocks_bind(b, "blk.%d.ssm_a", 1, d->n_v_heads, &delta.w[0]));
    TRY(blocks_bind(b, "blk.%d.ssm_dt.bias", 1, d->n_v_heads, &delta.bias[0]));
    TRY(blocks_bind(b, "blk.%d.ssm_norm.weight", 1, d->value_dim, &delta.w[1]));
    TRY(plan_add_step(b->plan, &delta));

    struct plan_step multiply = plan_step_of(PLAN_MULTIPLY, b->delta_gate, b->delta_out);
    multiply.multiply.map = PLAN_MAP_SILU;
    TRY(plan_add_step(b->plan, &multiply));
    return blocks_add_output(b, "blk.%d.ssm_out", b->delta_out, NULL);
}
