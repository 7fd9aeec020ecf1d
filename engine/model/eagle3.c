/* The prediction head of EAGLE-3 [Li 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
 * Training-Time Test", 3.1]: one layer in a file of its own. For a token it reads the token's embedding and, of the token
 * before, a row that a matrix, fc, makes of the inputs of three of the model's layers. In place of that row a guess reads
 * the head's own output for the token before. The head can have fewer tokens than the model. Keys and tensor names:
 * llama.cpp b11434, src/models/eagle3.cpp and conversion/llama.py. */
#include "engine/model/blocks.h"

#include "engine/plan/plan_ops.h"

#include <inttypes.h>
#include <string.h>

enum { N_TAPS = 3 };

/* The layers whose inputs fc reads, in ascending order, and where its columns for them begin. */
struct taps {
    uint32_t layer[N_TAPS], first[N_TAPS];
};

/* --- hyper-parameters --------------------------------------------------------------------------------------------- */

static enum err read_taps(const struct blocks *b, struct taps *t)
{
    static const char name[] = "target_layers";
    char room[BLOCKS_KEY_BYTES];
    const char *key = blocks_key(b, name, room);
    const struct gguf_kv *kv = gguf_find(b->g, key);
    enum gguf_type type = kv != NULL && kv->elem_type == GGUF_U32 ? GGUF_U32 : GGUF_I32;
    TRY(gguf_get_array(b->g, key, type, &kv, b->info));
    TRY(blocks_expect(b, kv->n == N_TAPS, name, "expected %d layers, found %" PRIu64, N_TAPS, kv->n));
    for (uint32_t i = 0, k; i < N_TAPS; i++) {
        int64_t layer = gguf_elem_i64(kv, i);
        TRY(blocks_expect(b, layer >= 0 && layer <= (int64_t)b->of->n_layers, name,
                          "expected layers 0 to %" PRIu32 " of the model, found %" PRId64, b->of->n_layers, layer));
        for (k = i; k > 0 && t->layer[k - 1] > (uint32_t)layer; k--) {
            t->layer[k] = t->layer[k - 1];
            t->first[k] = t->first[k - 1];
        }
        t->layer[k] = (uint32_t)layer;
        t->first[k] = i * b->of->n_embd;
    }
    return ERR_OK;
}

static enum err read_hparams(struct blocks *b, struct taps *t, bool *norms_residual)
{
    uint32_t n_target;
    bool norms_fc;
    TRY(blocks_read_hparams(b));
    TRY(blocks_expect(b, b->h.n_layers == 1, "block_count", "expected 1, found %" PRIu32, b->h.n_layers));
    TRY(blocks_get_u32(b, "target_hidden_size", 1, PLAN_MAX_WIDTH, UINT64_MAX, &n_target));
    TRY(blocks_expect(b, n_target == b->of->n_embd, "target_hidden_size",
                      "expected %" PRIu32 ", the width of the model, found %" PRIu32, b->of->n_embd, n_target));
    TRY(blocks_get_bool(b, "norm_before_residual", false, norms_residual));
    TRY(blocks_get_bool(b, "norm_before_fc", false, &norms_fc));
    TRY(blocks_expect(b, !norms_fc, "norm_before_fc", "expected false, found true"));
    return read_taps(b, t);
}

/* Reads which token each row of the head's logits is of. */
static enum err read_guess_ids(const struct blocks *b)
{
    struct plan *p = b->plan;
    const struct gguf_tensor *t = gguf_find_tensor(b->g, "d2t");
    uint64_t n_rows = blocks_rows_of(b, "output.weight");
    if (t == NULL && n_rows != 0 && n_rows != b->h.n_vocab) {
        return err_set(b->info, ERR_MISSING_TENSOR, "d2t",
                       "d2t: expected token ids, as output.weight has %" PRIu64 " rows for %" PRIu32
                       " tokens, found none",
                       n_rows, b->h.n_vocab);
    }
    if (t == NULL) {
        return ERR_OK;
    }
    if (t->type != DTYPE_I64 || t->n_dims != 1 || t->dims[0] > b->of->n_vocab || t->data == NULL) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, "d2t",
                       "d2t: expected at most %" PRIu32 " numbers of type I64, found %" PRIu64 " of type %s",
                       b->of->n_vocab, t->dims[0], dtype_info(t->type)->name);
    }
    p->n_guess_ids = (uint32_t)t->dims[0];
    int32_t *ids = arena_alloc(&p->arena, p->n_guess_ids * sizeof *ids);
    bool *is_found = arena_zalloc_array(&p->arena, b->of->n_vocab, sizeof *is_found);
    TRY_MEM(ids != NULL && is_found != NULL);
    for (uint32_t i = 0; i < p->n_guess_ids; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + i * sizeof id, sizeof id);
        bool is_token = id >= 0 && id < (int64_t)b->of->n_vocab;
        if (!is_token || is_found[id]) {
            return err_set(b->info, ERR_BAD_VOCAB, "d2t",
                           "d2t[%" PRIu32 "]: expected a token of the model, 0 to %" PRIu32
                           ", that no other element has, found %" PRId64,
                           i, b->of->n_vocab - 1, id);
        }
        is_found[id] = true;
        ids[i] = (int32_t)id;
    }
    p->guess_ids = ids;
    return ERR_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Adds a step to read or write rows of the caller. */
static enum err add_edge(struct blocks *b, bool is_output, plan_buf_id buf, uint32_t first, int32_t layer)
{
    struct plan_step edge = plan_edge_of(is_output, buf, first);
    edge.layer = layer;
    return plan_add_step(b->plan, &edge);
}

/* Adds the steps of the model: its output is fc times the inputs of three layers. plan_join replaces the inputs of these
 * steps by the model's rows. */
static enum err add_features(struct blocks *b, const struct taps *t)
{
    plan_buf_id from, to;
    uint32_t n = b->of->n_embd, d = b->h.n_embd;
    TRY(plan_add_buf(b->plan, "feature", n, &from));
    TRY(plan_add_buf(b->plan, "features", d, &to));
    b->plan->input_width = N_TAPS * n;
    b->plan->output_width = d;
    for (int i = 0; i < N_TAPS; i++) {
        struct plan_step s = plan_step_of(PLAN_MATMUL, from, to);
        s.layer = t->layer[i] < b->of->n_layers ? (int32_t)t->layer[i] : PLAN_NONE;
        s.adds = i > 0;
        TRY(add_edge(b, false, from, t->first[i], s.layer));
        TRY(blocks_bind_inputs(b, "fc.weight", d, t->first[i], n, N_TAPS * n, &s.w[0]));
        TRY(plan_add_step(b->plan, &s));
    }
    return add_edge(b, true, to, 0, PLAN_NONE);
}

/* Binds the head's own weight, or the model's, which is that of its step `op`. */
static enum err bind_shared(struct blocks *b, const char *name, enum plan_op op, plan_weight_id *id)
{
    TRY(blocks_bind_optional(b, name, b->h.n_vocab, b->h.n_embd, id));
    for (int32_t i = 0; i < b->of->n_steps && *id == PLAN_NONE; i++) {
        const struct plan_step *s = &b->of->steps[i];
        const struct plan_weight *w = s->op == op ? &b->of->weights[s->w[0]] : NULL;
        if (w != NULL && w->n_in == b->h.n_embd && w->n_out == b->h.n_vocab) {
            return plan_add_weight(b->plan, name, w->source, id);
        }
    }
    return *id != PLAN_NONE ? ERR_OK
                            : err_set(b->info, ERR_MISSING_TENSOR, name,
                                      "%s: expected a tensor [%" PRIu32 ", %" PRIu32
                                      "], as the model has none of this shape, found none",
                                      name, b->h.n_embd, b->h.n_vocab);
}

/* Adds dst = the matrix times the normed embedding, in b->norm, and the normed row in `row`. */
static enum err add_joint(struct blocks *b, const char *name, plan_buf_id row, plan_buf_id dst)
{
    uint32_t d = b->h.n_embd;
    for (int i = 0; i < 2; i++) {
        struct plan_step s = plan_step_of(PLAN_MATMUL, i == 0 ? b->norm : row, dst);
        s.adds = i > 0;
        TRY(blocks_bind_inputs(b, name, b->plan->bufs[dst].width, (uint32_t)i * d, d, 2 * d, &s.w[0]));
        TRY(plan_add_step(b->plan, &s));
    }
    return ERR_OK;
}

static enum err add_bufs(struct blocks *b, plan_buf_id *row)
{
    const struct blocks_hparams *h = &b->h;
    uint32_t n_q = h->n_heads * h->head_dim, n_kv = h->n_kv_heads * h->head_dim;
    const struct {
        const char *name;
        uint32_t width;
        plan_buf_id *id;
    } bufs[] = {{"x", h->n_embd, &b->x},      {"norm", h->n_embd, &b->norm},
                {"row", h->n_embd, row},      {"q", n_q, &b->q},
                {"k", n_kv, &b->k},           {"v", n_kv, &b->v},
                {"att", n_q, &b->att},        {"ff", h->n_ff, &b->ff},
                {"last", h->n_embd, &b->last}};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        TRY(plan_add_buf(b->plan, bufs[i].name, bufs[i].width, bufs[i].id));
    }
    return ERR_OK;
}

/* Adds norms, Q K V of both rows, attention, output + residual. The first token has no token before it, so rows of other
 * tokens do not see it. */
static enum err add_attention(struct blocks *b, plan_buf_id row, bool norms_residual)
{
    plan_buf_id normed = norms_residual ? b->x : row;
    TRY(blocks_add_norm(b, "blk.%d.attn_norm.weight", b->norm, b->norm, false));
    TRY(blocks_add_norm(b, "blk.%d.attn_norm_2.weight", b->x, normed, false));
    TRY(add_joint(b, "blk.%d.attn_q.weight", normed, b->q));
    TRY(add_joint(b, "blk.%d.attn_k.weight", normed, b->k));
    TRY(add_joint(b, "blk.%d.attn_v.weight", normed, b->v));
    struct plan_step heads = plan_step_of(PLAN_HEADS, b->q, b->q);
    heads.heads.rope = b->rope;
    heads.heads.keys = b->k;
    heads.heads.values = b->v;
    TRY(plan_add_step(b->plan, &heads));
    struct plan_step att = plan_step_of(PLAN_ATTENTION, b->q, b->att);
    att.scale = b->style.attn_scale;
    att.attention.skips = 1;
    TRY(plan_add_step(b->plan, &att));
    return blocks_add_output(b, "blk.%d.attn_output", b->att, NULL);
}

static enum err add_logits(struct blocks *b)
{
    struct plan_step gather = plan_step_of(PLAN_GATHER, b->x, b->last);
    struct plan_step logits = plan_step_of(PLAN_LOGITS, b->last, PLAN_NONE);
    uint32_t n = b->plan->n_guess_ids;
    TRY(plan_add_step(b->plan, &gather));
    TRY(blocks_add_norm(b, "output_norm.weight", b->last, b->last, false));
    logits.logits.is_reduced = n != 0;
    TRY(n != 0 ? blocks_bind(b, "output.weight", n, b->h.n_embd, &logits.w[0])
               : bind_shared(b, "output.weight", PLAN_LOGITS, &logits.w[0]));
    return plan_add_step(b->plan, &logits);
}

/* Adds the head's steps: of a token in b->norm and of the row before it in b->x. */
static enum err add_head(struct blocks *b, bool norms_residual)
{
    plan_buf_id row;
    TRY(add_bufs(b, &row));
    TRY(blocks_add_ropes(b));
    b->plan->i_predict = b->plan->n_steps;
    b->plan->layer = 0;
    struct plan_step embed = plan_step_of(PLAN_EMBED, PLAN_NONE, b->norm);
    TRY(bind_shared(b, "token_embd.weight", PLAN_EMBED, &embed.w[0]));
    TRY(plan_add_step(b->plan, &embed));
    TRY(add_edge(b, false, b->x, 0, 0));
    TRY(add_attention(b, row, norms_residual));
    TRY(blocks_add_norm(b, "blk.%d.ffn_norm.weight", b->x, b->norm, false));
    TRY(blocks_add_glu(b, "blk.%d.ffn_gate.weight", "blk.%d.ffn_up.weight", b->norm, b->ff));
    TRY(blocks_add_output(b, "blk.%d.ffn_down", b->ff, NULL));
    TRY(add_edge(b, true, b->x, 0, 0));
    TRY(add_logits(b));
    b->plan->layer = PLAN_NONE;
    return ERR_OK;
}

static enum err build(struct blocks *b)
{
    struct taps taps = {.layer = {0}};
    bool norms_residual;
    TRY(read_hparams(b, &taps, &norms_residual));
    TRY(read_guess_ids(b));
    TRY(add_features(b, &taps));
    return add_head(b, norms_residual);
}

const struct model_family model_eagle3 = {
    .members = "EAGLE-3",
    .arch = "eagle3",
    .build = build,
};
