/* BERT [Devlin 2018], an encoder for embeddings and ranking with learned positions and GELU without a gate: BGE, E5,
 * GTE, MiniLM, RoBERTa and XLM-RoBERTa; and the layers of encoders that follow it (bert.h). Keys and tensors: llama.cpp
 * b11434, src/models/bert.cpp. */
#include "engine/model/bert.h"
#include "engine/quant/row_mapped.h"
#include "engine/tensor/row_order.h"
#include "engine/tensor/row_shifted.h"

#include <math.h>
#include <string.h>

/* Adds a vector of the file, if it is there, to a bias, which can be PLAN_NONE. */
static enum err add_to_bias(struct blocks *b, const char *name, plan_weight_id *bias)
{
    plan_weight_id id;
    TRY(blocks_bind_optional(b, name, 1, b->h.n_embd, &id));
    if (id == PLAN_NONE || *bias == PLAN_NONE) {
        *bias = id != PLAN_NONE ? id : *bias;
        return ERR_OK;
    }
    uint32_t n = b->h.n_embd;
    float *sum = arena_alloc(&b->plan->arena, n * sizeof *sum), *more = arena_alloc(&b->plan->arena, n * sizeof *more);
    TRY_MEM(sum != NULL && more != NULL);
    TRY(blocks_read_vector(b, *bias, sum));
    TRY(blocks_read_vector(b, id, more));
    for (uint32_t i = 0; i < n; i++) {
        sum[i] += more[i];
    }
    return plan_set_source(b->plan, *bias, row_mapped_new(&b->plan->arena, DTYPE_F32, sum, 1, n));
}

/* Adds dst = LayerNorm of the stream. more: OPTIONAL, a vector added to its bias. */
static enum err add_norm_to(struct blocks *b, plan_buf_id dst, const char *weight, const char *bias, const char *more)
{
    struct plan_step s = plan_step_of(PLAN_NORM, b->x, dst);
    s.norm.centers = true;
    s.eps = b->h.eps;
    TRY(blocks_bind(b, weight, 1, b->h.n_embd, &s.w[0]));
    TRY(blocks_bind_optional(b, bias, 1, b->h.n_embd, &s.bias[0]));
    TRY(more != NULL ? add_to_bias(b, more, &s.bias[0]) : ERR_OK);
    return plan_add_step(b->plan, &s);
}

/* Adds LayerNorm of the stream, in place. */
static enum err add_norm(struct blocks *b, const char *weight, const char *bias)
{
    return add_norm_to(b, b->x, weight, bias, NULL);
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

/* Adds Q K V, attention over the whole text, output + residual, norm; in layers with attn_norm_2 the layer's input is
 * added again, and normed. What a block of experts reads is in b->norm, and the bias that they share in the stream. */
static enum err add_attention(struct blocks *b, const struct bert_kind *kind)
{
    static const char weight[] = "blk.%d.attn_output_norm.weight", bias[] = "blk.%d.attn_output_norm.bias";
    struct plan_step qkv = plan_step_of(PLAN_QKV, b->x, b->q);
    qkv.heads.rope = b->rope;
    TRY(blocks_bind_qkv(b, 0, 3, &qkv));
    TRY(blocks_add_heads(b, &qkv));
    TRY(blocks_attend(b));
    if (kind->adds_twice) {
        struct plan_step keep = plan_step_of(PLAN_SUM, b->x, b->norm);
        TRY(plan_add_step(b->plan, &keep));
    }
    TRY(blocks_add_output(b, "blk.%d.attn_output", b->att, NULL));
    if (b->style.ffn[b->plan->layer] == BLOCKS_EXPERTS) {
        TRY(add_norm_to(b, b->norm, weight, bias, NULL));
        return add_norm_to(b, b->x, weight, bias, "blk.%d.ffn_exps.bias");
    }
    TRY(add_norm(b, weight, bias));
    if (kind->adds_twice) {
        struct plan_step again = plan_step_of(PLAN_SUM, b->norm, b->x);
        again.adds = true;
        TRY(plan_add_step(b->plan, &again));
        TRY(add_norm(b, "blk.%d.attn_norm_2.weight", "blk.%d.attn_norm_2.bias"));
    }
    return ERR_OK;
}

/* Adds up (gated or not), down + residual, or experts + residual; norm. */
static enum err add_feed_forward(struct blocks *b)
{
    if (b->style.ffn[b->plan->layer] == BLOCKS_EXPERTS) {
        TRY(blocks_add_experts(b));
    } else {
        TRY(blocks_add_up(b, b->x));
        TRY(blocks_add_output(b, "blk.%d.ffn_down", b->ff, NULL));
    }
    return add_norm(b, "blk.%d.layer_output_norm.weight", "blk.%d.layer_output_norm.bias");
}

static enum err add_bufs(struct blocks *b, const struct bert_kind *kind)
{
    bool has_experts = b->plan->moe.n_experts != 0;
    uint32_t width = b->h.n_heads * b->h.head_dim;
    TRY(plan_add_buf(b->plan, "x", b->h.n_embd, &b->x));
    TRY(plan_add_buf(b->plan, "q", width, &b->q));
    TRY(plan_add_buf(b->plan, "att", width, &b->att));
    TRY(has_experts || kind->adds_twice ? plan_add_buf(b->plan, "norm", b->h.n_embd, &b->norm) : ERR_OK);
    if (b->style.head_norm == BLOCKS_NORM_WIDE) {
        TRY(plan_add_buf(b->plan, "k", b->h.n_kv_heads * b->h.head_dim, &b->k));
        TRY(plan_add_buf(b->plan, "v", b->h.n_kv_heads * b->h.head_dim, &b->v));
    }
    TRY(has_experts ? blocks_add_expert_bufs(b) : ERR_OK);
    return plan_add_buf(b->plan, "ff", b->h.n_ff, &b->ff);
}

/* Adds the slopes of ALiBi [Press 2021]: powers of 2^(-8/n), n the largest power of two that is no more than the heads;
 * further heads have every second power of 2^(-4/n). */
static enum err add_slopes(struct blocks *b)
{
    uint32_t n_heads = b->h.n_heads, n = 1;
    float *slopes = arena_alloc(&b->plan->arena, n_heads * sizeof *slopes);
    TRY_MEM(slopes != NULL);
    while (2 * n <= n_heads) {
        n *= 2;
    }
    for (uint32_t i = 0; i < n_heads; i++) {
        slopes[i] = (float)(i < n ? exp2(-8.0 * (i + 1) / n) : exp2(-4.0 * (2 * (i - n) + 1) / n));
    }
    b->style.by_distance = true;
    return plan_add_weight(b->plan, "alibi_slopes", row_mapped_new(&b->plan->arena, DTYPE_F32, slopes, 1, n_heads),
                           &b->by_distance);
}

enum err bert_read_hparams(struct blocks *b)
{
    b->centers = b->is_encoder = true;
    TRY(blocks_read_hparams(b));
    b->style.is_neox = true;
    b->style.ffn_norm = NULL;
    return blocks_expect(b, b->h.n_ff != 0, "feed_forward_length", "expected 1 or more, found 0");
}

enum err bert_build(struct blocks *b, const struct bert_kind *kind)
{
    TRY(blocks_expect(b, b->plan->moe.n_experts == 0 || b->plan->moe.n_used != 0, "expert_count",
                      "expected 0, found %u", b->plan->moe.n_experts));
    b->style.act = kind->act;
    b->style.is_ungated = !kind->is_gated;
    if (kind->positions == BERT_ROPE) {
        TRY(blocks_add_ropes(b));
    } else {
        static const float none;
        TRY(plan_add_rope(b->plan, &(struct plan_rope){.mscale = 1.0f, .inv_freq = &none}, &b->rope));
    }
    TRY(kind->positions == BERT_ALIBI ? add_slopes(b) : ERR_OK);
    TRY(add_bufs(b, kind));
    TRY(add_embedding(b, kind->positions == BERT_LEARNED));
    for (uint32_t i = 0; i < b->h.n_layers; i++) {
        b->plan->layer = (int32_t)i;
        TRY(add_attention(b, kind));
        TRY(add_feed_forward(b));
    }
    b->plan->layer = PLAN_NONE;
    struct plan_step hidden = plan_step_of(PLAN_HIDDEN, b->x, PLAN_NONE);
    return plan_add_step(b->plan, &hidden);
}

static enum err build(struct blocks *b)
{
    TRY(bert_read_hparams(b));
    return bert_build(b, &(struct bert_kind){.positions = BERT_LEARNED, .act = PLAN_GELU});
}

/* --- as SafeTensors folders --------------------------------------------------------------------------------------- */

enum err bert_finish(struct hf *h)
{
    gguf_build_bool(&h->b, hf_key(h, "attention.causal"), false);
    /* llama.cpp requires their number */
    const struct gguf_tensor *types = gguf_build_find(&h->b, "token_types.weight");
    gguf_build_u32(&h->b, "tokenizer.ggml.token_type_count", types != NULL ? (uint32_t)types->dims[1] : 1);
    return ERR_OK;
}

/* RoBERTa counts positions from the one after the padding's id: earlier rows are never read. [transformers 5,
 * XLMRobertaEmbeddings] */
enum err bert_finish_roberta(struct hf *h)
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
    return bert_finish(h);
}

static const struct hf_fixed hf_bert_fixed[] = {
    {"position_embedding_type", "absolute"},
    {"is_decoder", "false"},
    {NULL, NULL},
};

const struct hf_key bert_hf_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {NULL, NULL, HF_U32},
};

const struct hf_key bert_hf_roberta_keys[] = {
    {"layer_norm_eps", "attention.layer_norm_epsilon", HF_F32},
    {"max_position_embeddings", NULL, HF_U32}, /* bert_finish_roberta adds it */
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

static const struct hf_family hf_bert = {
    .architectures = {"BertModel", "BertForMaskedLM", "BertForSequenceClassification"},
    .arch = "bert",
    .prefix = "bert.",
    .keys = bert_hf_keys,
    .names = hf_bert_names,
    .fixed = hf_bert_fixed,
    .act = HF_GELU,
    .finish = bert_finish,
};

static const struct hf_family *choose_roberta(const json_t *config);

static const struct hf_family hf_roberta = {
    .architectures = {"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification", "RobertaModel",
                      "RobertaForMaskedLM", "RobertaForSequenceClassification"},
    .choose = choose_roberta,
    .arch = "bert",
    .prefix = "roberta.",
    .keys = bert_hf_roberta_keys,
    .names = hf_bert_names,
    .fixed = hf_bert_fixed,
    .act = HF_GELU,
    .finish = bert_finish_roberta,
};

static const struct hf_family *choose_roberta(const json_t *config)
{
    return json_read_is(json_read_get(config, "position_embedding_type"), "rotary") ? &bert_hf_jina_v3 : &hf_roberta;
}

const struct model_family model_bert = {
    .members = "BERT, BGE, E5, GTE, MiniLM, XLM-RoBERTa; for embeddings and ranking",
    .arch = "bert",
    .hf = {&hf_bert, &hf_roberta},
    .build = build,
};
