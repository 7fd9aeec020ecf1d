/* Layers with a state space instead of attention: Mamba-2 [Dao & Gu 2024, "Transformers are SSMs"], x += W_out norm(y *
 * silu(z)). y is the state space's output for a short convolution over x, B and C. These, z and the steps dt are
 * projections of the normed row. Keys and tensor names: llama.cpp b11434, gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

static enum err check_dims(const struct blocks *b, uint32_t inner)
{
    const struct plan_ssm *m = &b->plan->ssm;
    TRY(blocks_expect(b, inner % m->n_heads == 0 && inner / m->n_heads <= PLAN_MAX_HEAD, "ssm.inner_size",
                      "expected a multiple of ssm.time_step_rank %u, of at most %d a head, found %u", m->n_heads,
                      PLAN_MAX_HEAD, inner));
    return blocks_expect(b, m->n_heads % m->n_groups == 0, "ssm.group_count",
                         "expected a divisor of ssm.time_step_rank %u, found %u", m->n_heads, m->n_groups);
}

static enum err read_sizes(struct blocks *b)
{
    struct plan_ssm *m = &b->plan->ssm;
    uint32_t inner;
    TRY(blocks_get_u32(b, "ssm.conv_kernel", 2, PLAN_MAX_TAPS, UINT64_MAX, &b->style.conv_taps));
    TRY(blocks_get_u32(b, "ssm.state_size", 1, PLAN_MAX_STATE, UINT64_MAX, &m->state_dim));
    TRY(blocks_get_u32(b, "ssm.time_step_rank", 2, PLAN_MAX_HEADS, UINT64_MAX, &m->n_heads));
    TRY(blocks_get_u32(b, "ssm.group_count", 1, PLAN_MAX_HEADS, UINT64_MAX, &m->n_groups));
    TRY(blocks_get_u32(b, "ssm.inner_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &inner));
    TRY(check_dims(b, inner));
    m->head_dim = inner / m->n_heads;
    return ERR_OK;
}

enum err blocks_read_ssm(struct blocks *b)
{
    TRY(blocks_read_mixers(b, BLOCKS_SSM, "state spaces"));
    return b->plan->kvs == NULL ? ERR_OK : read_sizes(b);
}

enum err blocks_read_parallel_ssm(struct blocks *b)
{
    TRY(blocks_expect(b, !b->plan->is_bidirectional, "attention.causal",
                      "expected true with state spaces, found false"));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.mixer[i] = BLOCKS_ATTENTION_SSM;
    }
    return read_sizes(b);
}

/* Return the width of the output, and of the convolved rows. */
static uint32_t width_of(const struct plan_ssm *m) { return m->n_heads * m->head_dim; }
static uint32_t mixed_of(const struct plan_ssm *m) { return width_of(m) + 2 * m->n_groups * m->state_dim; }

enum err blocks_add_ssm_bufs(struct blocks *b)
{
    struct plan *p = b->plan;
    const struct plan_ssm *m = &p->ssm;
    TRY(plan_add_buf(p, "ssm_in", mixed_of(m), &b->ssm_in));
    TRY(plan_add_buf(p, "ssm_mixed", mixed_of(m), &b->ssm_mixed));
    TRY(plan_add_buf(p, "ssm_dt", m->n_heads, &b->ssm_dt));
    TRY(plan_add_buf(p, "ssm_out", width_of(m), &b->ssm_out));
    TRY(plan_add_buf(p, "ssm_gate", width_of(m), &b->ssm_gate));
    return m->n_groups == 1 || b->style.lacks_ssm_norm
               ? ERR_OK
               : blocks_add_ones(b, "ssm_ones", width_of(m) / m->n_groups, &b->ssm_ones);
}

/* Adds dst = rows [first, first + its width) of ssm_in, times the normed row. */
static enum err add_part(struct blocks *b, uint32_t first, plan_buf_id dst)
{
    const struct plan_ssm *m = &b->plan->ssm;
    struct blocks_part part = {first, b->plan->bufs[dst].width, width_of(m) + mixed_of(m) + m->n_heads};
    struct plan_step s = plan_step_of(PLAN_MATMUL, b->norm, dst);
    TRY(blocks_bind_part(b, "blk.%d.ssm_in", part, &s, 0));
    return plan_add_step(b->plan, &s);
}

/* Adds ssm_out = the state space of the convolved ssm_in and of ssm_dt. */
static enum err add_state_space(struct blocks *b)
{
    const struct plan_ssm *m = &b->plan->ssm;
    struct plan_step conv = plan_step_of(PLAN_SHORT_CONV, b->ssm_in, b->ssm_mixed);
    conv.conv.taps = b->style.conv_taps;
    conv.conv.map = PLAN_MAP_SILU;
    TRY(blocks_bind_stack(b, "blk.%d.ssm_conv1d.weight", mixed_of(m), 1, conv.conv.taps, &conv.w[0]));
    TRY(blocks_bind_optional(b, "blk.%d.ssm_conv1d.bias", 1, mixed_of(m), &conv.bias[0]));
    TRY(plan_add_step(b->plan, &conv));

    struct plan_step ssm = plan_step_of(PLAN_SSM, b->ssm_mixed, b->ssm_out);
    ssm.ssm.dt = b->ssm_dt;
    TRY(blocks_bind_stack(b, "blk.%d.ssm_a", m->n_heads, 1, 1, &ssm.w[0]));
    TRY(blocks_bind_stack(b, "blk.%d.ssm_d", m->n_heads, 1, 1, &ssm.w[1]));
    TRY(blocks_bind(b, "blk.%d.ssm_dt.bias", 1, m->n_heads, &ssm.bias[0]));
    return plan_add_step(b->plan, &ssm);
}

/* Adds ssm_out = the norm of gated ssm_out per group. PLAN_NORM has one weight for all groups; if each has its own, a
 * product with the weights follows. */
static enum err add_gated_norm(struct blocks *b)
{
    const struct plan_ssm *m = &b->plan->ssm;
    plan_weight_id w;
    struct plan_step gate = plan_step_of(PLAN_MULTIPLY, b->ssm_gate, b->ssm_out);
    gate.multiply.map = PLAN_MAP_SILU;
    TRY(plan_add_step(b->plan, &gate));
    if (b->style.lacks_ssm_norm) {
        return ERR_OK;
    }
    TRY(blocks_bind_stack(b, "blk.%d.ssm_norm.weight", m->n_groups, 1, width_of(m) / m->n_groups, &w));
    struct plan_step norm = plan_step_of(PLAN_NORM, b->ssm_out, b->ssm_out);
    norm.eps = b->h.eps;
    norm.w[0] = m->n_groups == 1 ? w : b->ssm_ones;
    TRY(plan_add_step(b->plan, &norm));
    if (m->n_groups == 1) {
        return ERR_OK;
    }
    struct plan_step product = plan_step_of(PLAN_SUM, b->ssm_out, b->ssm_out);
    product.w[0] = w;
    return plan_add_step(b->plan, &product);
}

enum err blocks_add_ssm(struct blocks *b)
{
    const struct plan_ssm *m = &b->plan->ssm;
    if (b->style.mixer[b->plan->layer] == BLOCKS_SSM) { /* else attention's norm is there */
        TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    }
    TRY(add_part(b, 0, b->ssm_gate));
    TRY(add_part(b, width_of(m), b->ssm_in));
    TRY(add_part(b, width_of(m) + mixed_of(m), b->ssm_dt));
    TRY(add_state_space(b));
    TRY(add_gated_norm(b));
    return blocks_add_output(b, "blk.%d.ssm_out", b->ssm_out, NULL);
}
