/* Tables of SafeTensors folders that families share, and what finishes folders with state spaces. */
#include "engine/model/blocks.h"

const struct hf_key blocks_window_keys[] = {
    {"sliding_window", "attention.sliding_window", HF_U32},
    {NULL, NULL, HF_U32},
};

const struct hf_fixed blocks_no_window[] = {
    {"use_sliding_window", "false"},
    {NULL, NULL},
};

const struct hf_key blocks_sigmoid_keys[] = {
    {"n_routed_experts", "expert_count", HF_U32},
    {"num_experts_per_tok", "expert_used_count", HF_U32},
    {"moe_intermediate_size", "expert_feed_forward_length", HF_U32},
    {"norm_topk_prob", "expert_weights_norm", HF_BOOL},
    {"n_shared_experts", "expert_shared_count", HF_U32},
    {"first_k_dense_replace", "leading_dense_block_count", HF_U32},
    {"routed_scaling_factor", "expert_weights_scale", HF_F32},
    {"n_group", "expert_group_count", HF_U32},
    {"topk_group", "expert_group_used_count", HF_U32},
    {NULL, NULL, HF_U32},
};

const struct hf_name blocks_gemma_names[] = {
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", HF_SAME},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", HF_SAME},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Are all steps dt of a state space within time_step_limit? Transformers ignores the limit while decoding. */
enum err blocks_check_limit(const struct hf *h)
{
    enum { HIGH = 1000000000 }; /* no step reaches it; Infinity has several spellings */
    const json_t *limit = json_read_get(h->config, "time_step_limit"), *low = json_array_get(limit, 0),
                 *high = json_array_get(limit, 1);
    bool is_none = limit == NULL || (json_is_number(low) && json_number_value(low) <= 0 &&
                                     (!json_is_number(high) || json_number_value(high) >= HIGH));
    return is_none ? ERR_OK
                   : hf_bad(h, "time_step_limit", "expected [0, Infinity], found [%g, %g]", json_number_value(low),
                            json_number_value(high));
}

/* Vectors of one number per head, and the norm's weights per group, have two dimensions in GGUF files. */
void blocks_shape_ssm(struct hf *h, uint32_t n_groups)
{
    static const struct {
        const char *end;
        bool is_norm;
    } rows[] = {{".ssm_a", false}, {".ssm_d", false}, {".ssm_norm.weight", true}};
    for (size_t i = 0; i < h->b.n_tensors * ARRAY_LEN(rows); i++) {
        struct gguf_tensor *t = &h->b.tensors[i / ARRAY_LEN(rows)];
        const char *end = rows[i % ARRAY_LEN(rows)].end;
        uint64_t n = t->dims[0], columns = rows[i % ARRAY_LEN(rows)].is_norm ? n / n_groups : 1;
        if (gguf_str_ends(t->name, end) && t->n_dims == 1 && columns != 0 &&
            n % columns == 0) { /* the builder rejects other sizes */
            t->n_dims = 2;
            t->dims[0] = columns;
            t->dims[1] = n / columns;
        }
    }
}

enum err blocks_add_scan_sizes(struct hf *h, uint32_t channels, const char *rank)
{
    uint32_t hidden, n;
    TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &hidden));
    n = (hidden + 15) / 16;
    if (!json_read_is(json_read_get(h->config, rank), "auto")) {
        TRY(hf_get_u32(h, rank, 1, PLAN_MAX_WIDTH, n, &n));
    }
    gguf_build_u32(&h->b, hf_key(h, "ssm.inner_size"), channels);
    gguf_build_u32(&h->b, hf_key(h, "ssm.time_step_rank"), n);
    return ERR_OK;
}

enum err blocks_check_local_rope(const struct hf *h)
{
    const json_t *local = json_read_get(json_read_get(h->config, "rope_parameters"), "sliding_attention");
    const json_t *type = json_read_get(local, "rope_type");
    char name[128];
    return type == NULL || json_read_is(type, "default")
               ? ERR_OK
               : hf_bad_value(h, hf_path(h, local, "rope_type", name), "default", type);
}

enum err blocks_check_local_part(const struct hf *h)
{
    static const char key[] = "partial_rotary_factor";
    const json_t *all = json_read_get(h->config, "rope_parameters");
    const json_t *global = json_read_get(all, "full_attention"), *local = json_read_get(all, "sliding_attention");
    double fallback = h->family->rotary_part != 0 ? h->family->rotary_part : 1, part, local_part;
    char name[128];
    TRY(hf_get_f64(h, global != NULL ? global : all, key, 0, 1, fallback, &part));
    TRY(hf_get_f64(h, local, key, 0, 1, part, &local_part));
    return local_part == part ? ERR_OK
                              : hf_bad(h, hf_path(h, local, key, name), "expected %g, as in global layers, found %g",
                                       part, local_part);
}

enum err blocks_check_has(const struct hf *h, const char *key, bool fallback, const char *end)
{
    const json_t *v = json_read_get(h->config, key);
    bool has_any = false;
    for (size_t i = 0; i < h->b.n_tensors; i++) {
        has_any |= gguf_str_ends(h->b.tensors[i].name, end);
    }
    if (v != NULL && !json_is_boolean(v)) {
        return hf_bad_value(h, key, "true or false", v);
    }
    bool says = v != NULL ? json_is_true(v) : fallback;
    return says == has_any
               ? ERR_OK
               : hf_bad(h, key, "expected %s, as the folder has %s such tensors, found %s", has_any ? "true" : "false",
                        has_any ? "some" : "no", v != NULL ? (says ? "true" : "false") : "none");
}
