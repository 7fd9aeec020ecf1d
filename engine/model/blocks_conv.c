/* Layers with a short convolution instead of attention [Poli 2023, "Hyena"; Liquid AI 2025, "LFM2 Technical Report"]: x
 * += W_out (c * conv(b * u)), with b, c and u projections of the normed row. Keys and tensor names: llama.cpp b11434,
 * gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

enum err blocks_read_conv(struct blocks *b)
{
    TRY(blocks_read_mixers(b, BLOCKS_CONV, "short convolutions"));
    return blocks_get_u32(b, "shortconv.l_cache", 2, PLAN_MAX_TAPS, UINT64_MAX, &b->style.conv_taps);
}

enum err blocks_add_conv_bufs(struct blocks *b)
{
    TRY(plan_add_buf(b->plan, "conv", b->h.n_embd, &b->conv));
    return plan_add_buf(b->plan, "conv_gate", b->h.n_embd, &b->conv_gate);
}

/* Adds dst = a third of the rows of in_proj, times the normed row. */
static enum err add_third(struct blocks *b, uint32_t third, plan_buf_id dst)
{
    uint32_t d = b->h.n_embd;
    struct plan_step s = plan_step_of(PLAN_MATMUL, b->norm, dst);
    TRY(blocks_bind_part(b, "blk.%d.shortconv.in_proj", (struct blocks_part){third * d, d, 3 * d}, &s, 0));
    return plan_add_step(b->plan, &s);
}

/* Adds conv *= conv_gate. */
static enum err add_product(struct blocks *b)
{
    struct plan_step s = plan_step_of(PLAN_MULTIPLY, b->conv_gate, b->conv);
    return plan_add_step(b->plan, &s);
}

enum err blocks_add_conv(struct blocks *b)
{
    enum { B, C, U }; /* thirds of in_proj */
    uint32_t d = b->h.n_embd;
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    TRY(add_third(b, U, b->conv));
    TRY(add_third(b, B, b->conv_gate));
    TRY(add_product(b));

    struct plan_step conv = plan_step_of(PLAN_SHORT_CONV, b->conv, b->conv_gate);
    conv.conv.taps = b->style.conv_taps;
    TRY(blocks_bind_stack(b, "blk.%d.shortconv.conv.weight", d, 1, conv.conv.taps, &conv.w[0]));
    TRY(blocks_bind_optional(b, "blk.%d.shortconv.conv.bias", 1, d, &conv.bias[0]));
    TRY(plan_add_step(b->plan, &conv));
    TRY(add_third(b, C, b->conv));
    TRY(add_product(b));
    return blocks_add_output(b, "blk.%d.shortconv.out_proj", b->conv, NULL);
}
