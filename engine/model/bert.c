/* Encoders for embeddings and ranking: BERT [Devlin 2018] with learned positions and a feed-forward block of one matrix
 * up and one down, shared by BGE, E5, GTE, MiniLM, RoBERTa and XLM-RoBERTa; and nomic-bert [Nussbaum 2024, "Nomic
 * Embed"] with RoPE and a gated block. Norms follow the residual sums (post-norm), every row sees its whole text, and
 * there are no logits. Keys and tensors: llama.cpp b11434, src/models/bert.cpp and nomic-bert.cpp. */
#include "engine/model/blocks.h"
#include "engine/hf/hf.h"
#include "engine/tensor/row_order.h"
#include "engine/tensor/row_shifted.h"

#include <string.h>

/* Adds LayerNorm of the stream, in place. */
static enum err add_norm(struct blocks *b, const char *weight, const char *bias)
{
    struct plan_step s = plan_step_of(PLAN_NORM, b->x, b->x);
    s.norm.centers = true;
    s.eps = b->h.eps;
    TRY(blocks_bind(b, weight, 1, b->h.n_embd, &s.w[0]));
    TRY(blocks_bind_optional(b, bias, 1, b->h.n_embd, &s.bias[0]));
    return plan_add_step(b->plan, &s);
}

/* The second text of a pair uses another row of the segments' table than the first, which matters to a reranker: token
 * ids beyond the vocabulary stand for tokens of the second text. */
static enum err add_segments(struct blocks *b, const struct plan_step *s, uint32_t n_types)
{
    struct plan *p = b->plan;
    p->ranker.n_segments = 1;
    if (p->ranker.head.n == 0 || n_types < 2) {
        return ERR_OK;
    }
    if (p->n_vocab > PLAN_MAX_VOCAB / 2) {
        return err_set(b->info, ERR_BAD_HPARAM, "token_embd.weight",
                       "token_embd.weight: expected at most %d rows in a model that ranks pairs, found %u",
                       PLAN_MAX_VOCAB / 2, p->n_vocab);
    }
    const struct row_source *both = row_shifted_new(&p->arena, p->weights[s->w[0]].source, p->weights[s->w[2]].source);
    p->ranker.n_segments = 2;
    p->n_vocab *= 2;
    return plan_set_source(p, s->w[0], both);
}

/* Adds tokens, positions, the first segment's row; norm. */
static enum err add_embedding(struct blocks *b, bool has_positions)
{
    const struct blocks_hparams *h = &b->h;
    struct plan_step s = plan_step_of(PLAN_EMBED, PLAN_NONE, b->x);
    TRY(blocks_bind(b, "token_embd.weight", h->n_vocab, h->n_embd, &s.w[0]));
    if (has_positions) {
        TRY(blocks_bind(b, "position_embd.weight", h->n_ctx_train, h->n_embd, &s.w[1]));
    }
    uint32_t n_types = (uint32_t)MIN_OF(blocks_rows_of(b, "token_types.weight"), (uint64_t)PLAN_MAX_VOCAB);
    if (n_types != 0) {
        TRY(blocks_bind(b, "token_types.weight", n_types, h->n_embd, &s.w[2]));
    }
    TRY(plan_add_step(b->plan, &s));
    TRY(add_segments(b, &s, n_types));
    return add_norm(b, "token_embd_norm.weight", "token_embd_norm.bias");
}

/* Adds Q K V, attention over the whole text, output + residual, norm. */
static enum err add_attention(struct blocks *b)
{
    struct plan_step qkv = plan_step_of(PLAN_QKV, b->x, b->q);
    qkv.heads.rope = b->rope;
    TRY(blocks_bind_qkv(b, 0, 3, &qkv));
    TRY(plan_add_step(b->plan, &qkv));
    TRY(blocks_attend(b));
    TRY(blocks_add_output(b, "blk.%d.attn_output", b->att, NULL));
    return add_norm(b, "blk.%d.attn_output_norm.weight", "blk.%d.attn_output_norm.bias");
}

/* Adds up (gated or not), down + residual, norm. */
static enum err add_feed_forward(struct blocks *b, bool is_gated)
{
    uint32_t f = b->h.n_ff;
    struct plan_step up = plan_step_of(PLAN_GLU, b->x, b->ff);
    up.act = is_gated ? PLAN_SILU : PLAN_GELU;
    if (is_gated) {
        TRY(blocks_bind(b, "blk.%d.ffn_gate.weight", f, b->h.n_embd, &up.w[0]));
    }
    TRY(blocks_bind_part(b, "blk.%d.ffn_up", (struct blocks_part){0, f, f}, &up, is_gated));
    TRY(plan_add_step(b->plan, &up));
    TRY(blocks_add_output(b, "blk.%d.ffn_down", b->ff, NULL));
    return add_norm(b, "blk.%d.layer_output_norm.weight", "blk.%d.layer_output_norm.bias");
}

static enum err add_bufs(struct blocks *b)
{
    uint32_t width = b->h.n_heads * b->h.head_dim;
    TRY(plan_add_buf(b->plan, "x", b->h.n_embd, &b->x));
    TRY(plan_add_buf(b->plan, "q", width, &b->q));
    TRY(plan_add_buf(b->plan, "att", width, &b->att));
    return plan_add_buf(b->plan, "ff", b->h.n_ff, &b->ff);
}

/* has_positions: learned positions, else RoPE. */
static enum err build_encoder(struct blocks *b, bool has_positions, bool is_gated)
{
    b->centers = b->is_encoder = true;
    TRY(blocks_read_hparams(b));
    TRY(blocks_expect(b, b->plan->moe.n_experts == 0, "expert_count", "expected 0, found %u", b->plan->moe.n_experts));
    b->style.is_neox = true;
    if (has_positions) {
        static const float none;
        TRY(plan_add_rope(b->plan, &(struct plan_rope){.mscale = 1.0f, .inv_freq = &none}, &b->rope));
    } else {
        TRY(blocks_add_ropes(b));
    }
    TRY(add_bufs(b));
    TRY(add_embedding(b, has_positions));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->plan->layer = (int32_t)i;
        TRY(add_attention(b));
        TRY(add_feed_forward(b, is_gated));
    }
    b->plan->layer = PLAN_NONE;
    struct plan_step hidden = plan_step_of(PLAN_HIDDEN, b->x, PLAN_NONE);
    return plan_add_step(b->plan, &hidden);
}

static enum err build(struct blocks *b) { return build_encoder(b, true, false); }

static enum err build_nomic(struct blocks *b) { return build_encoder(b, false, true); }

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

static enum err finish(struct hf *h)
{
    gguf_build_bool(&h->b, hf_key(h, "attention.causal"), false);
    /* llama.cpp requires their number */
    const struct gguf_tensor *types = gguf_build_find(&h->b, "token_types.weight");
    gguf_build_u32(&h->b, "tokenizer.ggml.token_type_count", types != NULL ? (uint32_t)types->dims[1] : 1);
    return ERR_OK;
}

/* RoBERTa counts positions from the one after the padding's id: earlier rows are never read. [transformers 5,
 * XLMRobertaEmbeddings] */
static enum err finish_roberta(struct hf *h)
{
    uint32_t padding, n_ctx;
    TRY(hf_get_u32(h, "pad_token_id", 0, 1 << 20, 1, &padding));
    TRY(hf_get_u32(h, "max_position_embeddings", padding + 2, UINT32_MAX, UINT64_MAX, &n_ctx));
    gguf_build_u32(&h->b, hf_key(h, "context_length"), n_ctx - padding - 1);
    struct gguf_tensor *t = gguf_build_find(&h->b, "position_embd.weight");
    if (t != NULL && t->dims[1] > padding + 1) { /* else the builder reports it */
        gguf_build_rows(&h->b, t,
                        row_order_row_range(&h->b.arena, t->source, padding + 1, t->source->n_rows - padding - 1), 1);
    }
    return finish(h);
}

/* Rejects the makers' variants that this plan does not compute. */
static enum err finish_nomic(struct hf *h)
{
    static const char *const refused[] = {"moe_every_n_layers", "prenorm", "rotary_emb_interleaved",
                                          "rotary_scaling_factor"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const json_t *v = json_read_get(h->config, refused[i]);
        if (json_is_true(v) || json_number_value(v) != 0) {
            return hf_bad(h, refused[i], "expected none, found %s", json_read_type_name(v));
        }
    }
    return finish(h);
}

static const struct hf_fixed hf_bert_fixed[] = {
    {"position_embedding_type", "absolute"},
    {"is_decoder", "false"},
    {NULL, NULL},
};

/* Keys of the makers' code, from before transformers supported it. If there are two lengths, the training length is
 * used. */
static const struct hf_alias hf_nomic_aliases[] = {
    {"hidden_size", "n_embd"},
    {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"max_position_embeddings", "max_trained_positions"},
    {"max_position_embeddings", "n_positions"},
    {"layer_norm_eps", "layer_norm_epsilon"},
    {"hidden_act", "activation_function"},
    {"rope_theta", "rotary_emb_base"},
    {"partial_rotary_factor", "rotary_emb_fraction"},
    {NULL, NULL},
};

static const struct hf_key hf_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {NULL, NULL, HF_U32},
};

static const struct hf_key hf_roberta_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"max_position_embeddings", NULL, HF_U32}, /* finish_roberta adds it */
    {NULL, NULL, HF_U32},
};

static const struct hf_name hf_bert_names[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME},
    {"embeddings.position_embeddings.weight", "position_embd.weight", HF_SAME},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight", HF_SAME},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias", HF_SAME},
    {"encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight", HF_SAME},
    {"encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias", HF_SAME},
    {"encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    {"encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {"pooler.dense.weight", "cls.weight", HF_SAME}, /* of rerankers: BERT's */
    {"pooler.dense.bias", "cls.bias", HF_SAME},
    {"classifier.weight", "cls.output.weight", HF_SAME},
    {"classifier.bias", "cls.output.bias", HF_SAME},
    {"classifier.dense.weight", "cls.weight", HF_SAME}, /* RoBERTa's */
    {"classifier.dense.bias", "cls.bias", HF_SAME},
    {"classifier.out_proj.weight", "cls.output.weight", HF_SAME},
    {"classifier.out_proj.bias", "cls.output.bias", HF_SAME},
    /* XLM-RoBERTa in jina-reranker-v2: the same layers under flash-attn's names [vLLM, roberta.py]. */
    {"emb_ln.weight", "token_embd_norm.weight", HF_SAME},
    {"emb_ln.bias", "token_embd_norm.bias", HF_SAME},
    {"encoder.layers.{}.mixer.Wqkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"encoder.layers.{}.mixer.Wqkv.bias", "blk.{}.attn_qkv.bias", HF_SAME},
    {"encoder.layers.{}.mixer.out_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"encoder.layers.{}.mixer.out_proj.bias", "blk.{}.attn_output.bias", HF_SAME},
    {"encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias", HF_SAME},
    {"encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

/* Names of the makers, which transformers 5 saves, too. */
static const struct hf_name hf_nomic_names[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME},
    {"emb_ln.weight", "token_embd_norm.weight", HF_SAME},
    {"emb_ln.bias", "token_embd_norm.bias", HF_SAME},
    {"encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight", HF_SAME},
    {"encoder.layers.{}.attn.out_proj.weight", "blk.{}.attn_output.weight", HF_SAME},
    {"encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias", HF_SAME},
    {"encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight", HF_SAME},
    {"encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight", HF_SAME},
    {"encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight", HF_SAME},
    {"encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias", HF_SAME},
    {NULL, NULL, HF_SAME},
};

static const struct hf_family hf_bert = {
    .architectures = {"BertModel", "BertForMaskedLM", "BertForSequenceClassification"},
    .arch = "bert",
    .prefix = "bert.",
    .keys = hf_keys,
    .names = hf_bert_names,
    .fixed = hf_bert_fixed,
    .act = HF_GELU,
    .finish = finish,
};

static const struct hf_family hf_roberta = {
    .architectures = {"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification", "RobertaModel",
                      "RobertaForMaskedLM", "RobertaForSequenceClassification"},
    .arch = "bert",
    .prefix = "roberta.",
    .keys = hf_roberta_keys,
    .names = hf_bert_names,
    .fixed = hf_bert_fixed,
    .act = HF_GELU,
    .finish = finish_roberta,
};

static const struct hf_family hf_nomic = {
    .architectures = {"NomicBertModel"},
    .arch = "nomic-bert",
    .aliases = hf_nomic_aliases,
    .keys = hf_keys,
    .names = hf_nomic_names,
    .finish = finish_nomic,
};

const struct model_family model_bert = {
    .members = "BERT, BGE, E5, GTE, MiniLM, XLM-RoBERTa; for embeddings and ranking",
    .arch = "bert",
    .hf = {&hf_bert, &hf_roberta},
    .build = build,
};

const struct model_family model_nomic_bert = {
    .members = "Nomic Embed Text v1, v1.5; for embeddings",
    .arch = "nomic-bert",
    .hf = {&hf_nomic},
    .build = build_nomic,
};
