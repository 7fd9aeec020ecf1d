/* Mixture-of-experts layers: hyper-parameters, tensors, steps [Shazeer 2017]. Keys and tensor names: GGUF specification
 * and llama.cpp b11434, gguf-py/gguf/constants.py. */
#include "engine/model/blocks.h"

#include "engine/tensor/row_order.h"

#include <math.h>
#include <stdio.h>

/* Values of <arch>.expert_gating_func. */
static const enum plan_gating gatings[] = {[1] = PLAN_SOFTMAX, [2] = PLAN_SIGMOID, [3] = PLAN_SOFTMAX_PICKED};

static enum err check_groups(const struct blocks *b)
{
    const struct plan_moe *m = &b->plan->moe;
    return blocks_expect(
        b, m->n_experts % m->n_groups == 0 && m->n_experts / m->n_groups * m->n_groups_used >= m->n_used,
        "expert_group_count",
        "expected groups of one size, of which %u hold %u experts or more, found %u groups of %u experts",
        m->n_groups_used, m->n_used, m->n_groups, m->n_experts);
}

/* Rejects files with a shared expert that the hyper-parameters do not mention. */
static enum err check_shared(const struct blocks *b)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_down_shexp.weight", b->h.n_dense_layers);
    return blocks_expect(b, b->h.n_ff_shared != 0 || blocks_rows_of(b, name) == 0, "expert_shared_count",
                         "expected 1 or more, as there is %s, found 0", name);
}

enum err blocks_read_moe(struct blocks *b, const struct blocks_moe *as)
{
    struct plan_moe *m = &b->plan->moe;
    struct blocks_hparams *h = &b->h;
    b->style.moe = *as;
    uint32_t gating, n_shared;
    TRY(blocks_get_u32(b, "expert_used_count", 1, MIN_OF(m->n_experts, (uint32_t)PLAN_MAX_EXPERTS_USED), UINT64_MAX,
                       &m->n_used));
    TRY(blocks_get_u32(b, "expert_feed_forward_length", 1, PLAN_MAX_WIDTH, as->n_ff != 0 ? as->n_ff : UINT64_MAX,
                       &h->n_ff_expert));
    TRY(blocks_get_u32(b, "expert_shared_count", 0, PLAN_MAX_EXPERTS, as->n_shared, &n_shared));
    TRY(blocks_get_u32(b, "expert_shared_feed_forward_length", 0, PLAN_MAX_WIDTH, (uint64_t)n_shared * h->n_ff_expert,
                       &h->n_ff_shared));
    TRY(blocks_get_u32(b, "moe_latent_size", 0, PLAN_MAX_WIDTH, 0, &h->n_expert_latent));
    TRY(blocks_get_u32(b, "leading_dense_block_count", 0, h->n_layers, 0, &h->n_dense_layers));
    for (uint32_t i = h->n_dense_layers; i < b->plan->n_layers; i++) {
        b->style.ffn[i] = BLOCKS_EXPERTS;
    }
    TRY(blocks_get_u32(b, "expert_gating_func", 1, ARRAY_LEN(gatings) - 1, as->gating, &gating));
    m->gating = gatings[gating];
    TRY(blocks_get_bool(b, "expert_weights_norm", as->norms_weights, &m->norms_weights));
    TRY(blocks_get_f32(b, "expert_weights_scale", 0.0, 1e6, 1.0, &m->weights_scale));
    m->weights_scale = m->weights_scale != 0 ? m->weights_scale : 1.0f; /* 0 in a file means none */
    TRY(blocks_get_u32(b, "expert_group_count", 0, m->n_experts, 1, &m->n_groups));
    m->n_groups = MAX_OF(m->n_groups, 1u);
    TRY(blocks_get_u32(b, "expert_group_used_count", 0, m->n_groups, m->n_groups, &m->n_groups_used));
    m->n_groups_used = m->n_groups_used != 0 ? m->n_groups_used : m->n_groups;
    m->by_two = m->gating == PLAN_SIGMOID;
    TRY(check_shared(b));
    return check_groups(b);
}

void blocks_find_dense(struct blocks *b)
{
    bool has_any = false;
    for (uint32_t i = 0; i < b->plan->n_layers; i++) {
        b->plan->layer = (int32_t)i;
        bool has = blocks_rows_of(b, "blk.%d.ffn_gate_inp.weight") != 0;
        b->style.ffn[i] = has ? BLOCKS_EXPERTS : BLOCKS_DENSE;
        has_any |= has;
    }
    b->plan->layer = PLAN_NONE;
    if (!has_any) {
        b->plan->moe = (struct plan_moe){.n_experts = 0};
    }
}

/* Newton's steps find the argument from the limit itself, beyond which SiLU is nearly a line. */
void blocks_limit(struct plan_step *s, float limit)
{
    double x = (double)limit;
    for (int i = 0; i < 20 && limit > 0; i++) {
        double sigmoid = 1 / (1 + exp(-x));
        x -= (x * sigmoid - (double)limit) / (sigmoid * (1 + x * (1 - sigmoid)));
    }
    s->gate_limit = (float)x;
    s->up_limit = limit;
}

/* Binds all experts' matrices [E][n_out][n_in] as one weight of E * n_out rows. */
static enum err bind_experts(struct blocks *b, const char *name, uint32_t n_out, uint32_t n_in, plan_weight_id *id)
{
    return blocks_bind_stack(b, name, b->plan->moe.n_experts, n_out, n_in, id);
}

static enum err bind_expert_biases(struct blocks *b, const char *name, uint32_t n_out, plan_weight_id *id)
{
    return blocks_rows_of(b, name) == 0 ? ERR_OK : bind_experts(b, name, 1, n_out, id);
}

enum err blocks_bind_gate_up(struct blocks *b, plan_weight_id w[2])
{
    static const char fused[] = "blk.%d.ffn_gate_up_exps.weight";
    uint32_t n = b->plan->moe.n_experts, f = b->h.n_ff_expert, d = b->h.n_embd;
    if (blocks_rows_of(b, fused) == 0) {
        TRY(bind_experts(b, "blk.%d.ffn_gate_exps.weight", f, d, &w[0]));
        return bind_experts(b, "blk.%d.ffn_up_exps.weight", f, d, &w[1]);
    }
    for (uint32_t k = 0; k < 2; k++) {
        TRY(bind_experts(b, fused, 2 * f, d, &w[k]));
        uint32_t *first = arena_alloc(&b->plan->arena, n * sizeof *first);
        for (uint32_t e = 0; first != NULL && e < n; e++) {
            first[e] = (2 * e + k) * f;
        }
        const struct row_source *all = b->plan->weights[w[k]].source;
        TRY(plan_set_source(b->plan, w[k], row_order_rows(&b->plan->arena, all, first, n, f)));
    }
    return ERR_OK;
}

/* Binds the experts' matrices that a step reads src with, and their biases. */
static enum err bind_inner(struct blocks *b, struct plan_step *s)
{
    uint32_t f = b->h.n_ff_expert;
    if (b->style.is_ungated) {
        TRY(bind_experts(b, "blk.%d.ffn_up_exps.weight", f, b->plan->bufs[s->src].width, &s->w[0]));
        return bind_expert_biases(b, "blk.%d.ffn_up_exps.bias", f, &s->bias[0]);
    }
    TRY(blocks_bind_gate_up(b, s->w));
    TRY(bind_expert_biases(b, "blk.%d.ffn_gate_exps.bias", f, &s->bias[0]));
    return bind_expert_biases(b, "blk.%d.ffn_up_exps.bias", f, &s->bias[1]);
}

/* Adds the routed experts between a matrix into their own space and one out of it. */
static enum err add_latent_experts(struct blocks *b, struct plan_step *experts)
{
    experts->src = b->latent_in;
    experts->dst = b->latent_out;
    experts->adds = false;
    experts->scale = 1.0f;
    TRY(blocks_add_linear(b, "blk.%d.ffn_latent_down", b->norm, b->latent_in));
    TRY(bind_inner(b, experts));
    TRY(bind_experts(b, "blk.%d.ffn_down_exps.weight", b->h.n_expert_latent, b->h.n_ff_expert, &experts->w[2]));
    TRY(plan_add_step(b->plan, experts));
    TRY(blocks_add_reduce(b, b->latent_out));
    return blocks_add_output(b, "blk.%d.ffn_latent_up", b->latent_out, NULL);
}

enum err blocks_add_router(struct blocks *b, plan_buf_id src)
{
    return blocks_add_linear(b, "blk.%d.ffn_gate_inp", src, b->router);
}

/* Adds router and routed experts, from b->norm to the stream. */
static enum err add_routed(struct blocks *b)
{
    uint32_t d = b->h.n_embd, f = b->h.n_ff_expert;
    TRY(b->style.moe.routes_early ? ERR_OK : blocks_add_router(b, b->norm));
    struct plan_step route = plan_step_of(PLAN_ROUTE, b->router, b->route);
    TRY(blocks_bind_optional(b, "blk.%d.exp_probs_b.bias", 1, b->plan->moe.n_experts, &route.w[0]));
    TRY(plan_add_step(b->plan, &route));

    struct plan_step experts = plan_step_of(PLAN_EXPERTS, b->norm, b->x);
    experts.act = b->style.act;
    experts.experts.route = b->route;
    experts.experts.weighs_input = b->style.moe.weighs_input;
    blocks_limit(&experts, b->style.expert_limit[b->plan->layer]);
    experts.adds = true;
    experts.scale = b->style.residual_scale;
    if (b->h.n_expert_latent != 0) {
        return add_latent_experts(b, &experts);
    }
    TRY(bind_inner(b, &experts));
    TRY(bind_experts(b, "blk.%d.ffn_down_exps.weight", d, f, &experts.w[2]));
    TRY(bind_expert_biases(b, "blk.%d.ffn_down_exps.bias", d, &experts.bias[2]));
    return plan_add_step(b->plan, &experts);
}

/* Adds the shared expert of all rows, scaled by its own gate, if any. */
static enum err add_shared(struct blocks *b)
{
    static const char gate_name[] = "blk.%d.ffn_gate_shexp.weight", up_name[] = "blk.%d.ffn_up_shexp.weight";
    bool is_ungated = b->style.is_ungated;
    TRY(blocks_add_glu(b, is_ungated ? up_name : gate_name, is_ungated ? NULL : up_name, b->norm, b->shared));
    if (b->style.moe.gates_shared) {
        struct plan_step gate = plan_step_of(PLAN_GATE, b->norm, b->shared);
        TRY(blocks_bind(b, "blk.%d.ffn_gate_inp_shexp.weight", 1, b->h.n_embd, &gate.w[0]));
        TRY(plan_add_step(b->plan, &gate));
    }
    return blocks_add_output(b, "blk.%d.ffn_down_shexp", b->shared, NULL);
}

static enum err add_all(struct blocks *b)
{
    TRY(add_routed(b));
    return b->h.n_ff_shared != 0 ? add_shared(b) : blocks_add_reduce(b, b->x);
}

enum err blocks_add_experts(struct blocks *b)
{
    float scale = b->style.residual_scale;
    if (b->style.ffn_norm != NULL) {
        TRY(blocks_add_norm(b, b->style.ffn_norm, b->x, b->norm, false));
    }
    b->style.residual_scale *= b->style.expert_scale;
    enum err err = add_all(b);
    b->style.residual_scale = scale;
    return err;
}

enum err blocks_add_expert_bufs(struct blocks *b)
{
    const struct plan_moe *m = &b->plan->moe;
    if (b->h.n_ff_shared != 0) {
        TRY(plan_add_buf(b->plan, "shared", b->h.n_ff_shared, &b->shared));
    }
    if (b->h.n_expert_latent != 0) {
        TRY(plan_add_buf(b->plan, "latent_in", b->h.n_expert_latent, &b->latent_in));
        TRY(plan_add_buf(b->plan, "latent_out", b->h.n_expert_latent, &b->latent_out));
    }
    TRY(plan_add_buf(b->plan, "router", m->n_experts, &b->router));
    return plan_add_buf(b->plan, "route", 2 * m->n_used, &b->route);
}
