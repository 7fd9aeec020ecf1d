/* Layers with a state space instead of attention: Mamba-2 [Dao & Gu 2024, "Transformers are SSMs"], x += W_out norm(y *
 * silu(z)). y is the state space's output for a short convolution over x, B and C. These, z and the steps dt are
 * projections of the normed row. Mamba-1 [Gu & Dao 2023, "Mamba"] has x += W_out (y * silu(z)), where y is a selective
 * scan's output for a short convolution over x, and B, C and dt are projections of the convolved row. Keys and tensor
 * names: llama.cpp b11434, gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

#include "engine/quant/row_mapped.h"

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

/* Adds dst = rows [first, first + its width) of a matrix of n_all rows, times src. */
static enum err add_part(struct blocks *b, const char *stem, plan_buf_id src, uint32_t first, uint32_t n_all,
                         plan_buf_id dst)
{
    struct blocks_part part = {first, b->plan->bufs[dst].width, n_all};
    struct plan_step s = plan_step_of(PLAN_MATMUL, src, dst);
    TRY(blocks_bind_part(b, stem, part, &s, 0));
    return plan_add_step(b->plan, &s);
}

/* Adds ssm_mixed = SiLU of the convolved ssm_in. */
static enum err add_convolution(struct blocks *b)
{
    uint32_t width = b->plan->bufs[b->ssm_in].width;
    struct plan_step conv = plan_step_of(PLAN_SHORT_CONV, b->ssm_in, b->ssm_mixed);
    conv.conv.taps = b->style.conv_taps;
    conv.conv.map = PLAN_MAP_SILU;
    TRY(blocks_bind_stack(b, "blk.%d.ssm_conv1d.weight", width, 1, conv.conv.taps, &conv.w[0]));
    TRY(blocks_bind_optional(b, "blk.%d.ssm_conv1d.bias", 1, width, &conv.bias[0]));
    return plan_add_step(b->plan, &conv);
}

/* Adds ssm_out *= SiLU(ssm_gate). */
static enum err add_gate(struct blocks *b)
{
    struct plan_step gate = plan_step_of(PLAN_MULTIPLY, b->ssm_gate, b->ssm_out);
    gate.multiply.map = PLAN_MAP_SILU;
    return plan_add_step(b->plan, &gate);
}

/* Adds ssm_out = the state space of ssm_mixed and of ssm_dt. */
static enum err add_state_space(struct blocks *b)
{
    const struct plan_ssm *m = &b->plan->ssm;
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
    TRY(add_gate(b));
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
    static const char in[] = "blk.%d.ssm_in";
    const struct plan_ssm *m = &b->plan->ssm;
    uint32_t n_all = width_of(m) + mixed_of(m) + m->n_heads;
    if (b->style.mixer[b->plan->layer] == BLOCKS_SSM) { /* else attention's norm is there */
        TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    }
    TRY(add_part(b, in, b->norm, 0, n_all, b->ssm_gate));
    TRY(add_part(b, in, b->norm, width_of(m), n_all, b->ssm_in));
    TRY(add_part(b, in, b->norm, width_of(m) + mixed_of(m), n_all, b->ssm_dt));
    TRY(add_convolution(b));
    TRY(add_state_space(b));
    TRY(add_gated_norm(b));
    return blocks_add_output(b, "blk.%d.ssm_out", b->ssm_out, NULL);
}

/* --- selective scans ----------------------------------------------------------------------------------------------- */

/* Divides the channels into heads that threads and devices share: the widest of at most 64. */
static void divide_channels(uint32_t inner, struct plan_ssm *m)
{
    enum { WIDEST = 64 };
    m->n_groups = 1;
    for (m->head_dim = WIDEST; inner % m->head_dim != 0;) {
        m->head_dim--;
    }
    m->n_heads = inner / m->head_dim;
}

enum err blocks_read_scan(struct blocks *b)
{
    struct plan_ssm *m = &b->plan->ssm;
    uint32_t inner;
    TRY(blocks_read_mixers(b, BLOCKS_SCAN, "selective scans"));
    if (b->plan->kvs == NULL) {
        return ERR_OK;
    }
    TRY(blocks_get_u32(b, "ssm.conv_kernel", 2, PLAN_MAX_TAPS, UINT64_MAX, &b->style.conv_taps));
    TRY(blocks_get_u32(b, "ssm.state_size", 1, PLAN_MAX_STATE, UINT64_MAX, &m->state_dim));
    TRY(blocks_get_u32(b, "ssm.time_step_rank", 1, PLAN_MAX_WIDTH, UINT64_MAX, &b->style.dt_rank));
    TRY(blocks_get_u32(b, "ssm.inner_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &inner));
    divide_channels(inner, m);
    return blocks_expect(b, m->n_heads <= PLAN_MAX_HEADS, "ssm.inner_size",
                         "expected at most %d parts of equal width, of at most 64 channels, found %u of %u channels",
                         PLAN_MAX_HEADS, m->n_heads, inner);
}

enum err blocks_add_scan_bufs(struct blocks *b)
{
    struct plan *p = b->plan;
    uint32_t width = width_of(&p->ssm);
    TRY(plan_add_buf(p, "ssm_in", width, &b->ssm_in));
    TRY(plan_add_buf(p, "ssm_mixed", width, &b->ssm_mixed));
    TRY(plan_add_buf(p, "ssm_dt", width, &b->ssm_dt));
    TRY(plan_add_buf(p, "ssm_out", width, &b->ssm_out));
    TRY(plan_add_buf(p, "ssm_gate", width, &b->ssm_gate));
    TRY(plan_add_buf(p, "scan_low", b->style.dt_rank, &b->scan_low));
    TRY(plan_add_buf(p, "scan_b", p->ssm.state_dim, &b->scan_b));
    TRY(plan_add_buf(p, "scan_c", p->ssm.state_dim, &b->scan_c));
    if (b->style.scan_norm != BLOCKS_SCAN_NORM_BARE) {
        return ERR_OK;
    }
    TRY(blocks_add_ones(b, "dt_ones", b->style.dt_rank, &b->dt_ones));
    return blocks_add_ones(b, "bc_ones", p->ssm.state_dim, &b->bc_ones);
}

/* Binds A, [channels][n] in files, in the order of the state, [heads][n][p]. */
static enum err bind_rates(struct blocks *b, plan_weight_id *id)
{
    struct plan *p = b->plan;
    uint32_t n = p->ssm.state_dim, width = p->ssm.head_dim, n_all = width_of(&p->ssm);
    TRY(blocks_bind_stack(b, "blk.%d.ssm_a", n_all, 1, n, id));
    if (b->probe != NULL) { /* no one reads it, and the file can lack it */
        return ERR_OK;
    }
    uint64_t bytes = (uint64_t)n_all * n * sizeof(float); /* at most 2^32 */
    float *by_channel = mem_alloc((size_t)bytes, MEM_MODEL), *by_head = arena_alloc(&p->arena, (size_t)bytes);
    enum err err = by_channel != NULL && by_head != NULL ? blocks_read_vector(b, *id, by_channel) : ERR_NOMEM;
    for (size_t i = 0; err == ERR_OK && i < (size_t)n_all * n; i++) {
        size_t head = i / ((size_t)n * width), j = i / width % n, channel = head * width + i % width;
        by_head[i] = by_channel[channel * n + j];
    }
    mem_free(by_channel);
    TRY_MEM(err != ERR_NOMEM);
    return err == ERR_OK ? plan_set_source(p, *id, row_mapped_new(&p->arena, DTYPE_F32, by_head, 1, n_all * n)) : err;
}

/* Adds dst = a part of the convolved row: rows [first, ..) of ssm_x, normed as the style says. */
static enum err add_selected(struct blocks *b, uint32_t first, const char *norm, plan_weight_id ones, plan_buf_id dst)
{
    struct plan_step bare = plan_step_of(PLAN_NORM, dst, dst);
    bare.eps = b->style.scan_eps;
    bare.w[0] = ones;
    TRY(add_part(b, "blk.%d.ssm_x", b->ssm_mixed, first, b->style.dt_rank + 2 * b->plan->ssm.state_dim, dst));
    switch (b->style.scan_norm) {
    case BLOCKS_SCAN_NORM:
        return blocks_add_norm(b, norm, dst, dst, false);
    case BLOCKS_SCAN_NORM_BARE:
        return plan_add_step(b->plan, &bare);
    case BLOCKS_NO_SCAN_NORM:
        break;
    }
    return ERR_OK;
}

enum err blocks_add_scan(struct blocks *b)
{
    static const char in[] = "blk.%d.ssm_in";
    const struct plan_ssm *m = &b->plan->ssm;
    uint32_t width = width_of(m), rank = b->style.dt_rank;
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->x, b->norm, false));
    TRY(add_part(b, in, b->norm, 0, 2 * width, b->ssm_in));
    TRY(add_part(b, in, b->norm, width, 2 * width, b->ssm_gate));
    TRY(add_convolution(b));
    TRY(add_selected(b, 0, "blk.%d.ssm_dt_norm.weight", b->dt_ones, b->scan_low));
    TRY(add_selected(b, rank, "blk.%d.ssm_b_norm.weight", b->bc_ones, b->scan_b));
    TRY(add_selected(b, rank + m->state_dim, "blk.%d.ssm_c_norm.weight", b->bc_ones, b->scan_c));
    TRY(blocks_add_matmul(b, "blk.%d.ssm_dt.weight", b->scan_low, b->ssm_dt));
    struct plan_step scan = plan_step_of(PLAN_SCAN, b->ssm_mixed, b->ssm_out);
    scan.scan.dt = b->ssm_dt;
    scan.scan.b = b->scan_b;
    scan.scan.c = b->scan_c;
    TRY(bind_rates(b, &scan.w[0]));
    TRY(blocks_bind(b, "blk.%d.ssm_d", 1, width, &scan.w[1]));
    TRY(blocks_bind(b, "blk.%d.ssm_dt.bias", 1, width, &scan.bias[0]));
    TRY(plan_add_step(b->plan, &scan));
    TRY(add_gate(b));
    return blocks_add_output(b, "blk.%d.ssm_out", b->ssm_out, NULL);
}
