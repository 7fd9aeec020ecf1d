/* Layers of Kimi Delta Attention [Kimi Team 2025, "Kimi Linear"]: the gated delta rule with a decay for each component of
 * a key. Queries, keys and values have their own matrices and short convolutions; as many heads as attention has, all of
 * one width, each have one key and one value. Decays and the gate of the output come through narrow matrices. Keys and
 * tensor names: llama.cpp b11434, src/models/kimi-linear.cpp. */
#include "engine/model/blocks.h"

#include <stdio.h>

enum { N_PARTS = 3 };
static const char letters[N_PARTS] = {'q', 'k', 'v'};

enum err blocks_read_kda(struct blocks *b)
{
    struct plan_delta *d = &b->plan->delta;
    TRY(blocks_read_mixers(b, BLOCKS_KDA, "linear attention"));
    if (b->plan->kvs == NULL) {
        return ERR_OK;
    }
    TRY(blocks_get_u32(b, "ssm.conv_kernel", 2, PLAN_MAX_TAPS, UINT64_MAX, &b->style.conv_taps));
    TRY(blocks_get_u32(b, "kda.head_dim", 1, PLAN_MAX_HEAD, UINT64_MAX, &d->key_dim));
    d->value_dim = d->key_dim;
    d->n_k_heads = d->n_v_heads = b->h.n_heads;
    d->decays_keys = true;
    return ERR_OK;
}

static uint32_t width_of(const struct plan_delta *d) { return d->n_v_heads * d->value_dim; }

enum err blocks_add_kda_bufs(struct blocks *b)
{
    struct plan *p = b->plan;
    const struct plan_delta *d = &p->delta;
    for (int i = 0; i < N_PARTS; i++) {
        TRY(plan_add_buf(p, "kda_in", width_of(d), &b->kda_in[i]));
        TRY(plan_add_buf(p, "kda_mixed", width_of(d), &b->kda_mixed[i]));
    }
    TRY(plan_add_buf(p, "kda_decays", d->key_dim, &b->kda_decays));
    TRY(plan_add_buf(p, "kda_gates", d->value_dim, &b->kda_gates));
    TRY(plan_add_buf(p, "delta_out", width_of(d), &b->delta_out));
    TRY(plan_add_buf(p, "delta_gate", width_of(d), &b->delta_gate));
    TRY(plan_add_buf(p, "beta", d->n_v_heads, &b->beta));
    return plan_add_buf(p, "alpha", width_of(d), &b->alpha);
}

/* Adds queries, keys or values of the normed row, from a matrix of their own or from one of all three. */
static enum err add_part(struct blocks *b, uint32_t i)
{
    char stem[32];
    uint32_t n = width_of(&b->plan->delta);
    bool is_fused = blocks_rows_of(b, "blk.%d.attn_qkv.weight") != 0;
    struct blocks_part part = {is_fused ? i * n : 0, n, is_fused ? N_PARTS * n : n};
    struct plan_step s = plan_step_of(PLAN_MATMUL, b->norm, b->kda_in[i]);
    snprintf(stem, sizeof stem, is_fused ? "blk.%%d.attn_qkv" : "blk.%%d.attn_%c", letters[i]);
    TRY(blocks_bind_part(b, stem, part, &s, 0));
    return plan_add_step(b->plan, &s);
}

static enum err add_convolution(struct blocks *b, int i)
{
    char name[48];
    struct plan_step conv = plan_step_of(PLAN_SHORT_CONV, b->kda_in[i], b->kda_mixed[i]);
    conv.conv.taps = b->style.conv_taps;
    conv.conv.map = PLAN_MAP_SILU;
    snprintf(name, sizeof name, "blk.%%d.ssm_conv1d_%c.weight", letters[i]);
    TRY(blocks_bind_stack(b, name, width_of(&b->plan->delta), 1, conv.conv.taps, &conv.w[0]));
    return plan_add_step(b->plan, &conv);
}

/* Adds the rule and the norm of each head. */
static enum err add_rule(struct blocks *b)
{
    const struct plan_delta *d = &b->plan->delta;
    struct plan_step s = plan_step_of(PLAN_DELTA, b->kda_mixed[0], b->delta_out);
    s.delta.keys = b->kda_mixed[1];
    s.delta.values = b->kda_mixed[2];
    s.delta.beta = b->beta;
    s.delta.alpha = b->alpha;
    s.eps = b->h.eps;
    TRY(blocks_bind_stack(b, "blk.%d.ssm_a", d->n_v_heads, 1, 1, &s.w[0]));
    TRY(blocks_bind(b, "blk.%d.ssm_dt.bias", 1, d->n_v_heads * d->key_dim, &s.bias[0]));
    TRY(blocks_bind(b, "blk.%d.ssm_norm.weight", 1, d->value_dim, &s.w[1]));
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_kda(struct blocks *b)
{
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    for (uint32_t i = 0; i < N_PARTS; i++) {
        TRY(add_part(b, i));
    }
    TRY(blocks_add_matmul(b, "blk.%d.ssm_beta.weight", b->norm, b->beta));
    TRY(blocks_add_matmul(b, "blk.%d.ssm_f_a.weight", b->norm, b->kda_decays));
    TRY(blocks_add_matmul(b, "blk.%d.ssm_g_a.weight", b->norm, b->kda_gates));
    TRY(blocks_add_matmul(b, "blk.%d.ssm_f_b.weight", b->kda_decays, b->alpha));
    TRY(blocks_add_matmul(b, "blk.%d.ssm_g_b.weight", b->kda_gates, b->delta_gate));
    for (int i = 0; i < N_PARTS; i++) {
        TRY(add_convolution(b, i));
    }
    TRY(add_rule(b));
    struct plan_step gate = plan_step_of(PLAN_MULTIPLY, b->delta_gate, b->delta_out);
    gate.multiply.map = PLAN_MAP_SIGMOID;
    TRY(plan_add_step(b->plan, &gate));
    return blocks_add_output(b, "blk.%d.attn_output", b->delta_out, NULL);
}
