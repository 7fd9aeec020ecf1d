/* Hunyuan [Tencent 2025]: Llama's decoder with norms of the heads of Q and K after RoPE, on half-split pairs. A13B has
 * experts picked by a softmax and a shared expert. Keys: llama.cpp b11434, src/models/hunyuan-dense.cpp, hunyuan-moe.cpp
 * and conversion/hunyuan.py. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static enum err read_common(struct blocks *b)
{
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.head_norm = BLOCKS_NORM_AFTER;
    return ERR_OK;
}

/* Some dense files have the key for one expert. */
static enum err build_dense(struct blocks *b)
{
    TRY(read_common(b));
    struct plan_moe *m = &b->plan->moe;
    m->n_experts = m->n_experts == 1 ? 0 : m->n_experts;
    TRY(blocks_expect(b, b->h.n_ff != 0, "feed_forward_length", "expected 1 or more, found 0"));
    return blocks_build_decoder(b);
}

static enum err build_moe(struct blocks *b)
{
    TRY(read_common(b));
    struct blocks_moe moe = {.gating = 1, .norms_weights = true, .n_ff = b->h.n_ff, .n_shared = 1};
    TRY(blocks_read_moe(b, &moe));
    return blocks_build_decoder(b);
}

/* --- SafeTensors folders ------------------------------------------------------------------------------------------ */

/* Reads a number up to `most` that can be a list of one per layer, all equal. */
static enum err get_number(struct hf *h, const char *key, uint32_t most, uint64_t fallback, uint32_t *out)
{
    const json_t *v = json_read_get(h->config, key), *first = json_array_get(v, 0);
    if (!json_is_array(v)) {
        return hf_get_u32(h, key, 0, most, fallback, out);
    }
    bool fits =
        json_is_integer(first) && json_integer_value(first) >= 0 && json_integer_value(first) <= (json_int_t)most;
    for (size_t i = 1; i < json_array_size(v); i++) {
        fits &= json_equal(json_array_get(v, i), first) == 1;
    }
    *out = (uint32_t)json_integer_value(first);
    return fits ? ERR_OK : hf_bad(h, key, "expected one number for all layers of 0 to %u, found others", most);
}

static enum err finish_moe(struct hf *h)
{
    uint32_t width, n_ff, n_used, n_shared;
    TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &width));
    TRY(get_number(h, "moe_intermediate_size", PLAN_MAX_WIDTH, width, &n_ff));
    TRY(get_number(h, "moe_topk", PLAN_MAX_EXPERTS, UINT64_MAX, &n_used));
    TRY(get_number(h, "num_shared_expert", PLAN_MAX_EXPERTS, 1, &n_shared));
    gguf_build_u32(&h->b, hf_key(h, "expert_feed_forward_length"), n_ff);
    gguf_build_u32(&h->b, hf_key(h, "expert_used_count"), n_used);
    gguf_build_u32(&h->b, hf_key(h, "expert_shared_count"), n_shared);
    gguf_build_u32(&h->b, hf_key(h, "expert_shared_feed_forward_length"), n_shared * width);
    return ERR_OK;
}

static const struct hf_name hf_names[] = {
    {"model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight", HF_SAME},
    {"model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight", HF_SAME},
    {"model.layers.{}.mlp.gate.wg.weight", "blk.{}.ffn_gate_inp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight", HF_SAME},
    {"model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_key hf_moe_keys[] = {
    {"num_experts", "expert_count", HF_U32},
    {"moe_topk", "expert_used_count", HF_WORD},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_WORD},
    {"num_shared_expert", "expert_shared_count", HF_WORD},
    {"intermediate_size", "feed_forward_length", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_fixed[] = {
    {"use_qk_norm", "true"},
    {"use_cla", "false"}, /* layers that share keys and values */
    {NULL, NULL},
};

static const struct hf_family hf_dense = {
    .architectures = {"HunYuanDenseV1ForCausalLM"},
    .arch = "hunyuan-dense",
    .names = hf_names,
    .fixed = hf_fixed,
};

static const struct hf_family hf_moe = {
    .architectures = {"HunYuanMoEV1ForCausalLM"},
    .arch = "hunyuan-moe",
    .keys = hf_moe_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .finish = finish_moe,
};

const struct model_family model_hunyuan_dense = {
    .members = "Hunyuan 0.5B, 1.8B, 4B, 7B",
    .arch = "hunyuan-dense",
    .hf = {&hf_dense},
    .build = build_dense,
};

const struct model_family model_hunyuan_moe = {
    .members = "Hunyuan-A13B",
    .arch = "hunyuan-moe",
    .hf = {&hf_moe},
    .build = build_moe,
};
