/* Mamba [Gu & Dao 2023, "Mamba"] and FalconMamba [TII 2024, "Falcon Mamba"]: each layer is a norm and a selective scan,
 * no layer has attention or a feed-forward block, and positions have no limit. FalconMamba norms dt, B and C without
 * weights. Keys: llama.cpp b11434, src/models/mamba.cpp and conversion/mamba.py. Its reader norms dt, B and C with the
 * layers' epsilon; transformers 5.23 has another one for them, which GGUF files do not have. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"

static const double SCAN_EPS = 1e-6; /* FalconMambaConfig */

static enum err build(struct blocks *b)
{
    bool has_norms;
    b->lacks_attention = b->reads_layers = true;
    TRY(blocks_read_hparams(b));
    TRY(blocks_get_bool(b, "ssm.dt_b_c_rms", false, &has_norms));
    TRY(blocks_get_f32(b, "ssm.dt_b_c_rms_epsilon", 1e-13, 1, SCAN_EPS, &b->style.scan_eps));
    b->style.scan_norm = has_norms ? BLOCKS_SCAN_NORM_BARE : BLOCKS_NO_SCAN_NORM;
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->style.ffn[i] = BLOCKS_NO_FFN;
    }
    TRY(blocks_read_scan(b));
    return blocks_build_decoder(b);
}

/* --- SafeTensors ------------------------------------------------------------------------------------------------ */

/* Adds the number of channels, which intermediate_size gives, else expand, and, as llama.cpp's converter, the sizes of
 * parts that there are none of. */
static enum err add_sizes(struct hf *h, bool has_norms)
{
    uint32_t channels, expand;
    if (json_read_get(h->config, "intermediate_size") != NULL) {
        TRY(hf_get_u32(h, "intermediate_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &channels));
    } else {
        TRY(hf_get_u32(h, "hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &channels));
        TRY(hf_get_u32(h, "expand", 1, PLAN_MAX_WIDTH / channels, UINT64_MAX, &expand));
        channels *= expand;
    }
    gguf_build_u32(&h->b, hf_key(h, "attention.head_count"), 0);
    gguf_build_u32(&h->b, hf_key(h, "feed_forward_length"), 0);
    gguf_build_bool(&h->b, hf_key(h, "ssm.dt_b_c_rms"), has_norms);
    TRY(blocks_check_has(h, "use_conv_bias", true, ".ssm_conv1d.bias"));
    return blocks_add_scan_sizes(h, channels, "time_step_rank");
}

static enum err finish(struct hf *h) { return add_sizes(h, false); }
static enum err finish_falcon(struct hf *h) { return add_sizes(h, true); }

/* finish adds the keys of words. */
#define COMMON_KEYS                                                                                                    \
    {"num_attention_heads", NULL, HF_U32}, {"rms_norm_eps", NULL, HF_F32},                                             \
        {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", HF_F32},                                            \
        {"intermediate_size", "ssm.inner_size", HF_WORD}, {"time_step_rank", "ssm.time_step_rank", HF_WORD},           \
        {"conv_kernel", "ssm.conv_kernel", HF_U32},                                                                    \
    {                                                                                                                  \
        "state_size", "ssm.state_size", HF_U32                                                                         \
    }

static const struct hf_key hf_mamba_keys[] = {COMMON_KEYS, {NULL, NULL, HF_U32}};
static const struct hf_key hf_falcon_mamba_keys[] = {
    COMMON_KEYS,
    {"mixer_rms_eps", "ssm.dt_b_c_rms_epsilon", HF_F32},
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_mamba_names[] = {
    {"backbone.embeddings.weight", "token_embd.weight", HF_SAME},
    {"backbone.norm_f.weight", "output_norm.weight", HF_SAME},
    {"backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight", HF_SAME},
    BLOCKS_SCAN_NAMES("backbone.layers.{}.mixer."),
    {NULL, NULL, HF_SAME},
};

static const struct hf_fixed hf_mamba_fixed[] = {
    {"use_bias", "false"},
    {NULL, NULL},
};

/* Defaults: transformers 5.23, MambaConfig and FalconMambaConfig, which set no context: llama.cpp's converter writes
 * 2^20. */
#define FOLDER(name, key_table, finishes)                                                                              \
    {                                                                                                                  \
        .architectures = {(name)}, .arch = "mamba", .lacks_attention = true,                                           \
        .defaults = "{\"max_position_embeddings\": 1048576, \"state_size\": 16, \"conv_kernel\": 4, \"expand\": 2,"    \
                    " \"layer_norm_epsilon\": 1e-5}",                                                                  \
        .keys = (key_table), .names = hf_mamba_names, .fixed = hf_mamba_fixed, .finish = (finishes)                    \
    }
static const struct hf_family hf_mamba = FOLDER("MambaForCausalLM", hf_mamba_keys, finish);
static const struct hf_family hf_falcon_mamba = FOLDER("FalconMambaForCausalLM", hf_falcon_mamba_keys, finish_falcon);

const struct model_family model_mamba = {
    .members = "Mamba, Falcon Mamba",
    .arch = "mamba",
    .hf = {&hf_mamba, &hf_falcon_mamba},
    .build = build,
};
