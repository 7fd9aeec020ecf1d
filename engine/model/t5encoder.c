/* The encoder of T5 [Raffel 2019, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"],
 * for embeddings: sentence-T5 [Ni 2021] and GTR. RMSNorm before blocks; scores are not scaled, and the first layer has
 * biases of them by the distance of positions, which all layers share. Feed-forward blocks have ReLU without a gate, or,
 * since T5 1.1, GELU gates [Shazeer 2020, "GLU variants"].
 *
 * Keys and tensors: llama.cpp b11434, src/models/t5encoder.cpp, t5.cpp and conversion/t5.py. Distances of a bucket share
 * a bias [transformers 5, T5Attention._relative_position_bucket]. Half of the buckets are for later positions. In each
 * half, the first buckets hold one distance, the others a range that grows with the distance, up to REACH. */
#include "engine/model/blocks.h"
#include "engine/quant/row_mapped.h"

#include <math.h>
#include <stdlib.h>

/* From REACH on, all distances are in the last bucket. GGUF has no key for it. */
enum { REACH = 128, MAX_BUCKETS = 256 };

/* Returns the bucket of a distance from the row's position. The smallest distances of some buckets are exact powers,
 * whose logarithms can be rounded down. */
static uint32_t bucket_of(int32_t distance, uint32_t n_buckets)
{
    uint32_t half = n_buckets / 2, first = distance > 0 ? half : 0, n = half / 2, d = (uint32_t)abs(distance);
    if (d < n) {
        return first + d;
    }
    double share = log((double)d / n) / log((double)REACH / n);
    return first + MIN_OF(n + (uint32_t)(share * (half - n) + 1e-6), half - 1);
}

/* Sets the biases of heads by distance from the first layer's. */
static enum err read_biases(struct blocks *b)
{
    static const char key[] = "attention.relative_buckets_count", first[] = "blk.0.attn_rel_b.weight";
    const size_t width = 2 * REACH + 1, n_heads = b->h.n_heads;
    uint32_t n_buckets;
    TRY(blocks_get_u32(b, key, 4, MAX_BUCKETS, UINT64_MAX, &n_buckets));
    TRY(blocks_expect(b, n_buckets % 2 == 0, key, "expected an even number, found %u", n_buckets));
    for (uint32_t i = 1; i < b->h.n_layers; i++) {
        b->plan->layer = (int32_t)i;
        bool has_own = blocks_rows_of(b, "blk.%d.attn_rel_b.weight") != 0;
        b->plan->layer = PLAN_NONE;
        TRY(blocks_expect(b, !has_own, key, "expected biases only in the first layer, found others in layer %u", i));
    }
    TRY(blocks_bind(b, first, n_buckets, (uint32_t)n_heads, &b->by_distance));
    const struct row_source *buckets = b->plan->weights[b->by_distance].source;
    float *biases = arena_alloc(&b->plan->arena, n_heads * width * sizeof *biases), of_bucket[PLAN_MAX_HEADS];
    TRY_MEM(biases != NULL);
    for (size_t at = 0; at < width; at++) {
        buckets->ops->read(buckets, bucket_of((int32_t)at - REACH, n_buckets), 0, (uint32_t)n_heads, of_bucket);
        for (size_t head = 0; head < n_heads; head++) {
            biases[head * width + at] = of_bucket[head];
        }
    }
    b->reach = REACH;
    return plan_set_source(b->plan, b->by_distance,
                           row_mapped_new(&b->plan->arena, DTYPE_F32, biases, 1, (uint32_t)(n_heads * width)));
}

static enum err build(struct blocks *b)
{
    b->is_encoder = b->lacks_rope = true;
    b->layers = "enc.";
    TRY(blocks_read_hparams(b));
    struct blocks_style *s = &b->style;
    s->is_neox = true; /* files have the order of folders, as there is no RoPE */
    s->by_distance = true;
    s->attn_scale = 1;
    s->attn_output = "blk.%d.attn_o";
    s->last_norm = "enc.output_norm.weight";
    s->is_ungated = blocks_rows_of(b, "blk.0.ffn_gate.weight") == 0;
    s->act = s->is_ungated ? PLAN_RELU : PLAN_GELU_TANH;
    if (b->plan->pooling == PLAN_POOL_NONE) { /* llama.cpp's converter writes none */
        b->plan->pooling = PLAN_POOL_MEAN;
    }
    TRY(read_biases(b));
    return blocks_build_decoder(b);
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

/* Checks feed_forward_proj, by default relu, what transformers derives from it, and the tensors. */
static enum err check_act(struct hf *h)
{
    static const char key[] = "feed_forward_proj", inner[] = "dense_act_fn", gate[] = "is_gated_act";
    const json_t *said = json_read_get(h->config, key), *act = json_read_get(h->config, inner);
    const json_t *says_gated = json_read_get(h->config, gate);
    bool has_gate = gguf_build_find(&h->b, "enc.blk.0.ffn_gate.weight") != NULL;
    const char *name = has_gate ? "gated-gelu" : "relu", *inner_name = has_gate ? "gelu_new" : "relu";
    if (said == NULL ? has_gate : !json_read_is(said, name)) {
        return hf_bad_value(h, key, has_gate ? "gated-gelu, as there is wi_0.weight" : "relu, as there is wi.weight",
                            said);
    }
    if (act != NULL && !json_read_is(act, inner_name)) {
        return hf_bad_value(h, inner, inner_name, act);
    }
    if (says_gated != NULL && json_is_true(says_gated) != has_gate) {
        return hf_bad_value(h, gate, has_gate ? "true" : "false", says_gated);
    }
    return ERR_OK;
}

/* Some folders have the embedding under its second name only. */
static enum err finish(struct hf *h)
{
    const struct st_tensor *embd = safetensors_folder_find(h->tensors, "encoder.embed_tokens.weight");
    if (gguf_build_find(&h->b, "token_embd.weight") == NULL && embd != NULL) {
        TRY(hf_add_copy(h, "token_embd.weight", embd));
    }
    return check_act(h);
}

static const struct hf_alias hf_aliases[] = {
    {"hidden_size", "d_model"},
    {"num_hidden_layers", "num_layers"},
    {"num_attention_heads", "num_heads"},
    {"head_dim", "d_kv"},
    {"intermediate_size", "d_ff"},
    {"rms_norm_eps", "layer_norm_epsilon"},
    {"max_position_embeddings", "n_positions"},
    {NULL, NULL},
};

/* Of transformers 5's T5Config; the context, which it lacks, as in llama.cpp's converter. */
static const char hf_defaults[] = "{\"rms_norm_eps\": 1e-6, \"relative_attention_num_buckets\": 32,"
                                  " \"max_position_embeddings\": 512}";

static const struct hf_key hf_keys[] = {
    {"relative_attention_num_buckets", "attention.relative_buckets_count", HF_U32},
    {NULL, NULL, HF_U32},
};

static const struct hf_fixed hf_fixed[] = {
    {"relative_attention_max_distance", "128"},
    {"is_decoder", "false"},
    {NULL, NULL},
};

static const struct hf_name hf_names[] = {
    {"shared.weight", "token_embd.weight", HF_SAME},
    {"encoder.embed_tokens.weight", "token_embd.weight", HF_DROP}, /* a copy, or read by `finish` */
    {"encoder.final_layer_norm.weight", "enc.output_norm.weight", HF_SAME},
    {"encoder.block.{}.layer.0.layer_norm.weight", "enc.blk.{}.attn_norm.weight", HF_SAME},
    {"encoder.block.{}.layer.0.SelfAttention.q.weight", "enc.blk.{}.attn_q.weight", HF_SAME},
    {"encoder.block.{}.layer.0.SelfAttention.k.weight", "enc.blk.{}.attn_k.weight", HF_SAME},
    {"encoder.block.{}.layer.0.SelfAttention.v.weight", "enc.blk.{}.attn_v.weight", HF_SAME},
    {"encoder.block.{}.layer.0.SelfAttention.o.weight", "enc.blk.{}.attn_o.weight", HF_SAME},
    {"encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight", "enc.blk.{}.attn_rel_b.weight", HF_SAME},
    {"encoder.block.{}.layer.1.layer_norm.weight", "enc.blk.{}.ffn_norm.weight", HF_SAME},
    {"encoder.block.{}.layer.1.DenseReluDense.wi.weight", "enc.blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.block.{}.layer.1.DenseReluDense.wi_0.weight", "enc.blk.{}.ffn_gate.weight", HF_SAME},
    {"encoder.block.{}.layer.1.DenseReluDense.wi_1.weight", "enc.blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.block.{}.layer.1.DenseReluDense.wo.weight", "enc.blk.{}.ffn_down.weight", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_t5encoder = {
    .architectures = {"T5EncoderModel"},
    .arch = "t5encoder",
    .aliases = hf_aliases,
    .defaults = hf_defaults,
    .keys = hf_keys,
    .names = hf_names,
    .fixed = hf_fixed,
    .has_act = true,
    .finish = finish,
};

const struct model_family model_t5encoder = {
    .members = "sentence-T5, GTR; for embeddings",
    .arch = "t5encoder",
    .hf = {&hf_t5encoder},
    .build = build,
};
