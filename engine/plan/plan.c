/* Builds a plan and checks that its steps fit together. Knows nothing of families or of how steps are run. */
#include "engine/plan/plan.h"

#include "engine/plan/plan_ops.h"

#include <string.h>

enum { ARENA_CHUNK_BYTES = 64 << 10 };

enum err plan_new(struct plan **out)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM(*out != NULL);
    arena_init(&(*out)->arena, ARENA_CHUNK_BYTES, 0, MEM_MODEL);
    (*out)->layer = PLAN_NONE;
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

enum err plan_set_source(struct plan *p, plan_weight_id id, const struct row_source *source)
{
    TRY_MEM(source != NULL);
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
    TRY(mem_grow(&p->weights, (size_t)p->n_weights, &p->cap_weights, sizeof *p->weights, MEM_MODEL));
    p->weights[p->n_weights].name = arena_dup(&p->arena, name, strlen(name));
    TRY_MEM(p->weights[p->n_weights].name != NULL);
    *id = p->n_weights;
    TRY(plan_set_source(p, *id, source));
    p->n_weights++;
    return ERR_OK;
}

enum err plan_add_buf(struct plan *p, const char *name, uint32_t width, plan_buf_id *id)
{
    if (p->n_bufs == PLAN_MAX_BUFS) {
        return ERR_INTERNAL; /* a builder's mistake: files do not decide the number of buffers */
    }
    char *copy = arena_dup(&p->arena, name, strlen(name));
    TRY_MEM(copy != NULL);
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
    TRY_MEM(inv_freq != NULL);
    if (bytes != 0) {
        memcpy(inv_freq, r->inv_freq, bytes);
    }
    to->inv_freq = inv_freq;
    *id = p->n_ropes++;
    return ERR_OK;
}

enum err plan_add_step(struct plan *p, const struct plan_step *s)
{
    TRY(mem_grow(&p->steps, (size_t)p->n_steps, &p->cap_steps, sizeof *p->steps, MEM_MODEL));
    p->steps[p->n_steps] = *s;
    p->steps[p->n_steps++].layer = s->layer != PLAN_NONE ? s->layer : p->layer;
    return ERR_OK;
}

const char *plan_pooling_name(int i)
{
    static const char *const names[] = {"mean", "cls", "last", "rank", "none"};
    return i >= 0 && i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

const char *plan_dense_act_name(int act)
{
    static const char *const names[PLAN_DENSE_ACT_COUNT] = {
        [PLAN_DENSE_NONE] = "none", [PLAN_DENSE_TANH] = "tanh", [PLAN_DENSE_RELU] = "relu",
        [PLAN_DENSE_GELU] = "gelu", [PLAN_DENSE_SILU] = "silu", [PLAN_DENSE_SIGMOID] = "sigmoid"};
    return act >= 0 && act < PLAN_DENSE_ACT_COUNT ? names[act] : NULL;
}

uint32_t plan_head_width(const struct plan_head *h, uint32_t n_embd)
{
    return h->n != 0 ? h->layers[h->n - 1].weight->n_rows : n_embd;
}

/* Checks the heads of layers that have their own, and whose cache they share. */
static enum err check_kvs(const struct plan *p, struct err_info *info)
{
    for (int32_t i = 0; p->kvs != NULL && i < (int32_t)p->n_layers; i++) {
        const struct plan_kv *kv = &p->kvs[i];
        if (kv->layer == PLAN_NONE) {
            continue;
        }
        const struct plan_kv *from = kv->layer >= 0 && kv->layer <= i ? &p->kvs[kv->layer] : NULL;
        bool is_shared = from != NULL && from->layer == kv->layer && from->n_kv_heads == kv->n_kv_heads &&
                         from->head_dim == kv->head_dim && from->latent_dim == kv->latent_dim &&
                         from->index_dim == kv->index_dim && plan_kv_value_dim(from) == plan_kv_value_dim(kv);
        uint32_t n_heads = plan_kv_of(p, i).n_heads;
        bool fits = kv->n_kv_heads != 0 && n_heads <= p->n_heads && n_heads % kv->n_kv_heads == 0 &&
                    kv->head_dim != 0 && kv->head_dim <= p->head_dim && plan_kv_value_dim(kv) <= plan_value_dim(p) &&
                    kv->value_dim <= (kv->latent_dim != 0 ? 0 : kv->head_dim) &&
                    (kv->latent_dim == 0 || (kv->n_kv_heads == 1 && kv->latent_dim <= kv->head_dim)) &&
                    (kv->index_dim == 0 || (kv->latent_dim != 0 && kv->index_dim == p->index_dim));
        if (!is_shared || !fits) {
            return err_set(info, ERR_INTERNAL, NULL, "the plan's layer %d has heads that do not fit", (int)i);
        }
    }
    return ERR_OK;
}

/* Returns the step after the last of [first, end) that stores something; `first`: none does. */
static int32_t end_of_storing(const struct plan *p, int32_t first, int32_t end)
{
    int32_t n = end;
    while (n > first && !plan_stores(p, &p->steps[n - 1])) {
        n--;
    }
    return n;
}

/* Notes which steps store something; all, if none does. */
static void note_storing(struct plan *p)
{
    int32_t end = plan_main_steps(p), n = end_of_storing(p, 0, end);
    p->n_storing = n > 0 ? n : end;
    n = plan_predicts(p) ? end_of_storing(p, p->i_predict, p->n_steps) : 0;
    p->guesses_in_place = plan_predicts(p) && n == p->i_predict;
    p->n_storing_predict = p->guesses_in_place ? p->n_steps : n;
}

enum err plan_check(struct plan *p, struct err_info *info)
{
    TRY(check_kvs(p, info));
    if (p->latent_dim != 0 && (p->n_kv_heads != 1 || p->latent_dim > p->head_dim)) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan's latent attention has more than one KV head");
    }
    if (p->index_dim > (p->latent_dim != 0 ? PLAN_MAX_HEAD : 0) || p->index_dim % 8 != 0) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan's index keys do not fit latents");
    }
    if (p->value_dim > (p->latent_dim != 0 ? 0 : p->head_dim)) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan's values are wider than its keys");
    }
    if (p->kvs == NULL && p->n_kv_heads != 0 && p->n_heads % p->n_kv_heads != 0) {
        return err_set(info, ERR_INTERNAL, NULL, "the plan's %u heads do not divide evenly among %u KV heads",
                       p->n_heads, p->n_kv_heads);
    }
    p->recurrent_floats = p->drafted_floats = 0;
    enum plan_rows rows = PLAN_ALL_ROWS;
    for (int32_t i = 0; i < p->n_steps; i++) {
        struct plan_step *s = &p->steps[i];
        rows = i == p->i_predict ? PLAN_ALL_ROWS : rows;
        TRY(plan_ops_check(p, s, info));
        s->recurrent = p->recurrent_floats;
        p->recurrent_floats += plan_state_floats(p, s);
        s->drafted = p->drafted_floats;
        p->drafted_floats += plan_state_floats(p, s) != 0 ? plan_n_items(p, s) * plan_drafted_floats(p, s) : 0;
        s->rows = plan_ops[s->op].rows != PLAN_ALL_ROWS ? plan_ops[s->op].rows : rows;
        rows = s->rows != PLAN_HIDDEN_ROWS ? s->rows : rows;
        p->is_shard |= plan_ops[s->op].over_ranks && !plan_is_idle(s);
        p->has_hidden |= s->rows == PLAN_HIDDEN_ROWS;
        p->has_logits |= s->rows == PLAN_LOGIT_ROWS && s->dst == PLAN_NONE;
    }
    note_storing(p);
    return ERR_OK;
}

enum err plan_drop_prediction(struct plan *p, struct err_info *info)
{
    if (!plan_predicts(p)) {
        return ERR_OK;
    }
    int32_t n = 0, n_weights = 0, id;
    const struct plan_operand *o;
    p->n_layers = plan_main_layers(p);
    for (int32_t i = 0; i < p->i_predict; i++) {
        const struct plan_step *s = &p->steps[i];
        for (int k = 0; !s->feeds_head && (o = plan_next_operand(s, &k, &id)) != NULL;) {
            n_weights = plan_is_buf(o) ? n_weights : MAX_OF(n_weights, id + 1);
        }
        if (!s->feeds_head) {
            p->steps[n++] = *s;
        }
    }
    p->n_steps = n;
    p->i_predict = 0;
    p->n_weights = n_weights; /* the head's are the last ones */
    p->input_width = p->output_width = 0;
    p->guess_ids = NULL;
    p->n_guess_ids = 0;
    return plan_check(p, info);
}

int32_t plan_layer_window(const struct plan *p, int32_t layer)
{
    int32_t most = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        if (s->op != PLAN_ATTENTION || plan_kv_of(p, s->layer).layer != layer) {
            continue;
        }
        if (s->attention.window == 0) {
            return 0;
        }
        most = MAX_OF(most, s->attention.window);
    }
    return p->is_bidirectional ? 0 : most;
}

/* Returns the longest window of the layers that store keys and values; *has_whole: one of them has none. 0 if a state
 * passes from row to row. */
static int32_t longest_window(const struct plan *p, bool *has_whole)
{
    int32_t most = 0;
    *has_whole = false;
    for (int32_t i = 0; i < (int32_t)p->n_layers; i++) {
        if (plan_kv_of(p, i).layer == i) {
            int32_t window = plan_layer_window(p, i);
            *has_whole |= window == 0;
            most = MAX_OF(most, window);
        }
    }
    return p->recurrent_floats == 0 ? most : 0;
}

int32_t plan_window(const struct plan *p)
{
    bool has_whole;
    int32_t most = longest_window(p, &has_whole);
    return has_whole ? 0 : most;
}

int32_t plan_local_window(const struct plan *p)
{
    bool has_whole;
    int32_t most = longest_window(p, &has_whole);
    return has_whole ? most : 0;
}
