/* Building a plan and checking that its steps fit together. Knows nothing of families or of how steps are run. */
#include "engine/plan/plan.h"

#include <string.h>

enum { ARENA_CHUNK_BYTES = 64 << 10 };

enum err plan_new(struct plan **out)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    if (*out == NULL) {
        return ERR_NOMEM;
    }
    arena_init(&(*out)->arena, ARENA_CHUNK_BYTES, 0, MEM_MODEL);
    return ERR_OK;
}

void plan_free(struct plan **p)
{
    if (*p != NULL) {
        arena_fini(&(*p)->arena);
        mem_free((*p)->weights);
        mem_free((*p)->steps);
        mem_free(*p);
        *p = NULL;
    }
}

/* Makes room for one more element of `size` bytes in *array. */
static enum err grow(void **array, int32_t n, int32_t *cap, size_t size)
{
    if (n < *cap) {
        return ERR_OK;
    }
    int32_t wanted = *cap == 0 ? 64 : *cap * 2;
    void *p = mem_realloc(*array, (size_t)wanted * size, MEM_MODEL);
    if (p == NULL) {
        return ERR_NOMEM;
    }
    *array = p;
    *cap = wanted;
    return ERR_OK;
}

enum err plan_set_source(struct plan *p, plan_weight_id id, const struct row_source *source)
{
    if (source == NULL) {
        return ERR_NOMEM;
    }
    p->weights[id] = (struct plan_weight){.name = p->weights[id].name,
                                          .source = source,
                                          .type = source->type,
                                          .row_bytes = source->row_bytes,
                                          .n_out = source->n_rows,
                                          .n_in = source->n_in};
    return ERR_OK;
}

enum err plan_add_weight(struct plan *p, const char *name, const struct row_source *source, plan_weight_id *id)
{
    TRY(grow((void **)&p->weights, p->n_weights, &p->cap_weights, sizeof *p->weights));
    p->weights[p->n_weights].name = arena_dup(&p->arena, name, strlen(name));
    if (p->weights[p->n_weights].name == NULL) {
        return ERR_NOMEM;
    }
    *id = p->n_weights;
    TRY(plan_set_source(p, *id, source));
    p->n_weights++;
    return ERR_OK;
}

enum err plan_add_buf(struct plan *p, const char *name, uint32_t width, plan_buf_id *id)
{
    if (p->n_bufs == PLAN_MAX_BUFS) {
        return ERR_INTERNAL; /* a builder's mistake: no file decides how many buffers there are */
    }
    char *copy = arena_dup(&p->arena, name, strlen(name));
    if (copy == NULL) {
        return ERR_NOMEM;
    }
    p->bufs[p->n_bufs] = (struct plan_buf){.name = copy, .width = width};
    *id = p->n_bufs++;
    return ERR_OK;
}

enum err plan_add_rope(struct plan *p, const struct plan_rope *r, int32_t *id)
{
    if (p->n_ropes == PLAN_MAX_ROPES) {
        return ERR_INTERNAL;
    }
    struct plan_rope *to = &p->ropes[p->n_ropes];
    *to = *r;
    size_t bytes = r->n_rot / 2 * sizeof(float);
    float *inv_freq = arena_alloc(&p->arena, bytes);
    if (inv_freq == NULL) {
        return ERR_NOMEM;
    }
    if (bytes != 0) {
        memcpy(inv_freq, r->inv_freq, bytes);
    }
    to->inv_freq = inv_freq;
    *id = p->n_ropes++;
    return ERR_OK;
}

enum err plan_add_step(struct plan *p, const struct plan_step *s)
{
    TRY(grow((void **)&p->steps, p->n_steps, &p->cap_steps, sizeof *p->steps));
    p->steps[p->n_steps++] = *s;
    return ERR_OK;
}

struct plan_step plan_step_of(enum plan_op op)
{
    return (struct plan_step){
        .op = op,
        .layer = -1,
        .src = PLAN_NONE,
        .dst = PLAN_NONE,
        .keys = PLAN_NONE,
        .values = PLAN_NONE,
        .route = PLAN_NONE,
        .w = {PLAN_NONE, PLAN_NONE, PLAN_NONE},
        .bias = {PLAN_NONE, PLAN_NONE, PLAN_NONE},
        .scale = 1.0f,
        .q_norm = PLAN_NONE,
        .k_norm = PLAN_NONE,
        .rope = PLAN_NONE,
    };
}

const char *plan_op_name(enum plan_op op)
{
    static const char *const names[PLAN_OP_COUNT] = {
        "embed",    "norm",       "matmul", "heads", "head matmul", "attention", "route",   "experts", "gate",
        "multiply", "short conv", "delta",  "ssm",   "sum",         "predict",   "correct", "states",  "gather"};
    return names[op];
}

const char *plan_pooling_name(int i)
{
    static const char *const names[] = {"mean", "cls", "last"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

/* --- checking --------------------------------------------------------------------------------------------------- */

/* Where a check stands, for messages. */
struct check {
    const struct plan *plan;
    const struct plan_step *step;
    struct err_info *info;
};

static uint32_t buf_width(const struct check *c, plan_buf_id id)
{
    return id >= 0 && id < c->plan->n_bufs ? c->plan->bufs[id].width : 0;
}

/* Weight `id` must be [n_out][n_in]; n_out 0 takes any. PLAN_NONE is fine when `optional`. */
static enum err check_weight(const struct check *c, plan_weight_id id, uint32_t n_out, uint32_t n_in, bool optional)
{
    if (id == PLAN_NONE && optional) {
        return ERR_OK;
    }
    if (id < 0 || id >= c->plan->n_weights) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step lacks a weight", plan_op_name(c->step->op));
    }
    const struct plan_weight *w = &c->plan->weights[id];
    if ((n_out != 0 && w->n_out != n_out) || w->n_in != n_in) {
        return err_set(c->info, ERR_BAD_TENSOR_SHAPE, w->name, "%s: expected [%u, %u] (columns, rows), found [%u, %u]",
                       w->name, n_in, n_out != 0 ? n_out : w->n_out, w->n_in, w->n_out);
    }
    return ERR_OK;
}

/* A vector of n floats: a norm's weight or a bias. */
static enum err check_vector(const struct check *c, plan_weight_id id, uint32_t n, bool optional)
{
    TRY(check_weight(c, id, 1, n, optional));
    if (id != PLAN_NONE && c->plan->weights[id].type != DTYPE_F32) {
        const struct plan_weight *w = &c->plan->weights[id];
        return err_set(c->info, ERR_UNSUPPORTED_TYPE, w->name, "%s: expected F32, found %s", w->name,
                       dtype_info(w->type)->name);
    }
    return ERR_OK;
}

static enum err check_width(const struct check *c, plan_buf_id id, uint32_t width)
{
    if (buf_width(c, id) != width) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step expects a buffer of width %u, found %u",
                       plan_op_name(c->step->op), width, buf_width(c, id));
    }
    return ERR_OK;
}

/* What ends in head vectors: norms, RoPE, the KV layer. */
static enum err check_heads(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    struct plan_kv kv = plan_kv_of(p, s->layer);
    TRY(check_vector(c, s->q_norm, kv.head_dim, true));
    TRY(check_vector(c, s->k_norm, plan_kv_value_dim(&kv), true));
    if (s->rope < 0 || s->rope >= p->n_ropes || p->ropes[s->rope].first + p->ropes[s->rope].n_rot > kv.head_dim) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step lacks a RoPE table that fits",
                       plan_op_name(s->op));
    }
    return ERR_OK;
}

/* The step's layer is one with attention, and stores keys and values just when the cache has a place for them. */
static enum err check_layer(const struct check *c, bool stores)
{
    const struct plan *p = c->plan;
    int32_t layer = c->step->layer;
    if (layer < 0 || (uint32_t)layer >= p->n_layers || plan_kv_of(p, layer).layer == PLAN_NONE ||
        (c->step->op != PLAN_ATTENTION && stores != (plan_kv_of(p, layer).layer == layer))) {
        return err_set(c->info, ERR_INTERNAL, NULL,
                       "the plan's %s step lacks a layer, or stores what its layer does not keep",
                       plan_op_name(c->step->op));
    }
    return ERR_OK;
}

static enum err check_stored_heads(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    TRY(check_layer(c, s->keys != PLAN_NONE));
    struct plan_kv kv = plan_kv_of(p, s->layer);
    if (s->src != s->dst || (kv.latent_dim != 0 || s->keys == PLAN_NONE) != (s->values == PLAN_NONE)) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's heads step does not work in place, or has no values");
    }
    TRY(check_width(c, s->src, p->n_heads * kv.head_dim));
    if (s->keys != PLAN_NONE) {
        TRY(check_width(c, s->keys, kv.n_kv_heads * kv.head_dim));
    }
    if (s->values != PLAN_NONE) {
        TRY(check_width(c, s->values, kv.n_kv_heads * kv.head_dim));
    }
    return check_heads(c);
}

static enum err check_head_matmul(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    uint32_t in = buf_width(c, s->src) / p->n_heads, out = buf_width(c, s->dst) / p->n_heads;
    uint32_t n = s->w[0] >= 0 && s->w[0] < p->n_weights ? p->weights[s->w[0]].n_in : 0;
    if (n == 0 || n > in || in - n >= out || in > PLAN_MAX_HEAD || out > PLAN_MAX_HEAD) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's head matmul step does not fit its buffers");
    }
    TRY(check_width(c, s->src, p->n_heads * in));
    TRY(check_width(c, s->dst, p->n_heads * out));
    return check_weight(c, s->w[0], p->n_heads * (out - (in - n)), n, false);
}

static enum err check_qkv(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    bool stores = s->w[1] != PLAN_NONE || s->w[2] != PLAN_NONE;
    TRY(check_layer(c, stores));
    struct plan_kv kv = plan_kv_of(p, s->layer);
    if (kv.latent_dim != 0) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's matmul step stores values beside latent keys");
    }
    uint32_t in = buf_width(c, s->src);
    uint32_t rows[3] = {p->n_heads * kv.head_dim, kv.n_kv_heads * kv.head_dim, kv.n_kv_heads * kv.head_dim};
    for (int i = 0; i < (stores ? 3 : 1); i++) {
        TRY(check_weight(c, s->w[i], rows[i], in, false));
        TRY(check_vector(c, s->bias[i], rows[i], true));
    }
    TRY(check_heads(c));
    return check_width(c, s->dst, rows[0]);
}

static enum err check_matmul(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    uint32_t in = buf_width(c, s->src);
    if (s->epilogue == PLAN_QKV) {
        return check_qkv(c);
    }
    if (s->epilogue == PLAN_LOGITS) {
        return check_weight(c, s->w[0], p->n_vocab, in, false);
    }
    uint32_t out = buf_width(c, s->dst);
    for (int i = 0; i < (s->epilogue == PLAN_GLU ? 2 : 1); i++) {
        TRY(check_weight(c, s->w[i], out, in, false));
        TRY(check_vector(c, s->bias[i], out, true));
    }
    return ERR_OK;
}

static enum err check_moe(const struct check *c)
{
    const struct plan_moe *m = &c->plan->moe;
    const struct plan_step *s = c->step;
    uint32_t in = buf_width(c, s->src), out = buf_width(c, s->dst);
    if (s->op == PLAN_ROUTE) {
        TRY(check_width(c, s->src, m->n_experts));
        TRY(check_width(c, s->dst, 2 * m->n_used));
        TRY(check_vector(c, s->w[1], m->n_experts, true));
        return check_vector(c, s->w[0], m->n_experts, true);
    }
    TRY(check_width(c, s->route, 2 * m->n_used));
    TRY(check_weight(c, s->w[0], 0, in, false));
    uint32_t rows = c->plan->weights[s->w[0]].n_out, ff = m->n_experts == 0 ? 0 : rows / m->n_experts;
    TRY(check_weight(c, s->w[0], ff * m->n_experts, in, false));
    TRY(check_weight(c, s->w[1], rows, in, false));
    TRY(check_weight(c, s->w[2], out * m->n_experts, ff, false));
    for (int i = 0; i < 3; i++) {
        TRY(check_vector(c, s->bias[i], i == 2 ? out * m->n_experts : rows, true));
    }
    return ERR_OK;
}

static enum err check_embed(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t width = buf_width(c, s->dst);
    TRY(check_weight(c, s->w[0], c->plan->n_vocab, width, false));
    TRY(check_weight(c, s->w[1], c->plan->n_ctx_train, width, true));
    return check_weight(c, s->w[2], 0, width, true);
}

static enum err check_norm(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t width = buf_width(c, s->src);
    bool is_hidden = s->op == PLAN_HIDDEN;
    if (s->adds && (s->src == s->dst || s->centers || is_hidden)) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step %s", plan_op_name(s->op),
                       s->src == s->dst ? "adds to the buffer it reads" : "cannot add");
    }
    TRY(check_width(c, is_hidden ? s->src : s->dst, is_hidden ? c->plan->n_embd : width));
    TRY(check_vector(c, s->bias[0], width, true));
    uint32_t group = s->w[0] >= 0 && s->w[0] < c->plan->n_weights ? c->plan->weights[s->w[0]].n_in : 0;
    bool is_grouped = group != 0 && width % group == 0 && !s->centers && !is_hidden;
    return check_vector(c, s->w[0], is_grouped ? group : width, is_hidden);
}

static enum err check_multiply(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t n = buf_width(c, s->dst), width = buf_width(c, s->src);
    if (n == 0 || s->src == s->dst || s->map >= PLAN_MAP_COUNT || (s->is_sparse && s->map != PLAN_MAP_GELU_TANH) ||
        (s->src != PLAN_NONE && (width < n || s->first > width - n))) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's multiply step does not fit its buffers");
    }
    return ERR_OK;
}

static enum err check_attention(const struct check *c)
{
    const struct plan *p = c->plan;
    const struct plan_step *s = c->step;
    TRY(check_layer(c, false));
    struct plan_kv kv = plan_kv_of(p, s->layer);
    TRY(check_width(c, s->src, p->n_heads * kv.head_dim));
    TRY(check_vector(c, s->w[0], p->n_heads, true));
    return check_width(c, s->dst, p->n_heads * plan_kv_value_dim(&kv));
}

static enum err check_short_conv(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t width = buf_width(c, s->src);
    if (s->src == s->dst || width == 0 || (s->map != PLAN_MAP_NONE && s->map != PLAN_MAP_SILU) || s->taps < 2 ||
        s->taps > PLAN_MAX_TAPS) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step works in place, or on nothing",
                       plan_op_name(s->op));
    }
    if (c->plan->is_bidirectional) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step looks back in a plan that looks ahead",
                       plan_op_name(s->op));
    }
    TRY(check_width(c, s->dst, width));
    TRY(check_vector(c, s->w[0], width * s->taps, false));
    return check_vector(c, s->bias[0], width, true);
}

static enum err check_delta(const struct check *c)
{
    const struct plan_delta *d = &c->plan->delta;
    const struct plan_step *s = c->step;
    if (d->n_k_heads == 0 || d->n_v_heads == 0 || d->n_v_heads % d->n_k_heads != 0 || d->n_v_heads > PLAN_MAX_HEADS ||
        d->key_dim == 0 || d->key_dim > PLAN_MAX_HEAD || d->value_dim == 0 || d->value_dim > PLAN_MAX_HEAD ||
        c->plan->is_bidirectional || s->src == s->dst) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's delta step has no heads that fit, or works in place");
    }
    TRY(check_width(c, s->src, 2 * d->n_k_heads * d->key_dim + d->n_v_heads * d->value_dim));
    TRY(check_width(c, s->dst, d->n_v_heads * d->value_dim));
    TRY(check_width(c, s->keys, d->n_v_heads));
    TRY(check_width(c, s->values, d->n_v_heads));
    TRY(check_vector(c, s->w[0], d->n_v_heads, false));
    TRY(check_vector(c, s->bias[0], d->n_v_heads, false));
    return check_vector(c, s->w[1], d->value_dim, true);
}

static enum err check_ssm(const struct check *c)
{
    const struct plan_ssm *m = &c->plan->ssm;
    const struct plan_step *s = c->step;
    if (m->n_groups == 0 || m->n_heads == 0 || m->n_heads % m->n_groups != 0 || m->n_heads > PLAN_MAX_HEADS ||
        m->head_dim == 0 || m->head_dim > PLAN_MAX_HEAD || m->state_dim == 0 || m->state_dim > PLAN_MAX_STATE ||
        c->plan->is_bidirectional || s->src == s->dst) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's ssm step has no heads that fit, or works in place");
    }
    TRY(check_width(c, s->src, m->n_heads * m->head_dim + 2 * m->n_groups * m->state_dim));
    TRY(check_width(c, s->dst, m->n_heads * m->head_dim));
    TRY(check_width(c, s->values, m->n_heads));
    TRY(check_vector(c, s->w[0], m->n_heads, false));
    TRY(check_vector(c, s->w[1], m->n_heads, false));
    return check_vector(c, s->bias[0], m->n_heads, false);
}

static enum err check_sum(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t width = buf_width(c, s->dst);
    if (width == 0 || s->keys == s->dst || (s->adds && s->src == s->dst) || (s->keys != PLAN_NONE && s->eps <= 0)) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's sum step writes what it reads, or nothing");
    }
    TRY(check_width(c, s->src, width));
    if (s->keys != PLAN_NONE) {
        TRY(check_width(c, s->keys, width));
    }
    return check_vector(c, s->w[0], width, true);
}

static enum err check_streams(const struct check *c)
{
    const struct plan_step *s = c->step;
    uint32_t n = s->n_streams, width = buf_width(c, s->dst);
    bool corrects = s->op == PLAN_CORRECT;
    if (n < 2 || n > PLAN_MAX_STREAMS || width == 0 || s->first >= n || plan_is_stream(s, s->src) ||
        plan_is_stream(s, s->keys)) {
        return err_set(c->info, ERR_INTERNAL, NULL, "the plan's %s step has no streams that fit", plan_op_name(s->op));
    }
    for (uint32_t i = 1; i < n; i++) {
        TRY(check_width(c, s->dst + (plan_buf_id)i, width));
    }
    TRY(check_width(c, s->src, corrects ? width : n));
    if (corrects) {
        TRY(check_width(c, s->keys, n));
    }
    return check_vector(c, s->w[0], corrects ? n * n : n * n * n, false);
}

/* Floats of recurrent state that a checked step keeps. */
static uint64_t recurrent_floats(const struct plan *p, const struct plan_step *s)
{
    const struct plan_delta *d = &p->delta;
    const struct plan_ssm *m = &p->ssm;
    return s->op == PLAN_SHORT_CONV ? (uint64_t)(s->taps - 1) * p->bufs[s->src].width
           : s->op == PLAN_DELTA    ? (uint64_t)d->n_v_heads * d->key_dim * d->value_dim
           : s->op == PLAN_SSM      ? (uint64_t)m->n_heads * m->state_dim * m->head_dim
                                    : 0;
}

static enum err check_step(const struct check *c)
{
    const struct plan_step *s = c->step;
    switch (s->op) {
    case PLAN_EMBED:
        return check_embed(c);
    case PLAN_NORM:
    case PLAN_HIDDEN:
        return check_norm(c);
    case PLAN_MATMUL:
        return check_matmul(c);
    case PLAN_HEADS:
        return check_stored_heads(c);
    case PLAN_HEAD_MATMUL:
        return check_head_matmul(c);
    case PLAN_ATTENTION:
        return check_attention(c);
    case PLAN_ROUTE:
    case PLAN_EXPERTS:
        return check_moe(c);
    case PLAN_MULTIPLY:
        return check_multiply(c);
    case PLAN_GATE:
        return check_vector(c, s->w[0], buf_width(c, s->src), false);
    case PLAN_SHORT_CONV:
        return check_short_conv(c);
    case PLAN_DELTA:
        return check_delta(c);
    case PLAN_SSM:
        return check_ssm(c);
    case PLAN_SUM:
        return check_sum(c);
    case PLAN_PREDICT:
    case PLAN_CORRECT:
        return check_streams(c);
    case PLAN_GATHER:
        return check_width(c, s->dst, buf_width(c, s->src));
    case PLAN_OP_COUNT:
        break;
    }
    return err_set(c->info, ERR_INTERNAL, NULL, "the plan holds an unknown step");
}

/* Heads of the layers that have their own, and whose cache they share. */
static enum err check_kvs(const struct plan *p, struct err_info *info)
{
    for (int32_t i = 0; p->kvs != NULL && i < (int32_t)p->n_layers; i++) {
        const struct plan_kv *kv = &p->kvs[i];
        if (kv->layer == PLAN_NONE) {
            continue;
        }
        const struct plan_kv *from = kv->layer >= 0 && kv->layer <= i ? &p->kvs[kv->layer] : NULL;
        bool is_shared = from != NULL && from->layer == kv->layer && from->n_kv_heads == kv->n_kv_heads &&
                         from->head_dim == kv->head_dim && from->latent_dim == kv->latent_dim;
        bool fits = kv->n_kv_heads != 0 && p->n_heads % kv->n_kv_heads == 0 && kv->head_dim != 0 &&
                    kv->head_dim <= p->head_dim && plan_kv_value_dim(kv) <= plan_value_dim(p) &&
                    (kv->latent_dim == 0 || (kv->n_kv_heads == 1 && kv->latent_dim <= kv->head_dim));
        if (!is_shared || !fits) {
            return err_set(info, ERR_INTERNAL, NULL, "the plan's layer %d has heads that do not fit", (int)i);
        }
    }
    return ERR_OK;
}

enum err plan_check(struct plan *p, struct err_info *info)
{
    TRY(check_kvs(p, info));
    if (p->latent_dim != 0 && (p->n_kv_heads != 1 || p->latent_dim > p->head_dim)) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan's latent attention has more than one KV head");
    }
    p->recurrent_floats = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct plan_step *s = &p->steps[i];
        struct check c = {.plan = p, .step = s, .info = info};
        TRY(check_step(&c));
        s->recurrent = p->recurrent_floats;
        p->recurrent_floats += recurrent_floats(p, s);
        p->has_hidden |= p->steps[i].op == PLAN_HIDDEN;
        p->has_logits |= p->steps[i].op == PLAN_MATMUL && p->steps[i].epilogue == PLAN_LOGITS;
    }
    return ERR_OK;
}
