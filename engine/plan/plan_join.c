#include "engine/plan/plan_join.h"

#include "engine/plan/plan_ops.h"
#include "engine/tensor/row_order.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160 };

struct join {
    struct plan *p;
    const struct plan *draft;
    /* What p had before. */
    int32_t n_layers, n_weights, n_ropes;
    plan_buf_id bufs[PLAN_MAX_BUFS]; /* the draft's buffers in p */
};

static enum err refuse(struct err_info *info, const char *expected, const char *found)
{
    return err_set(info, ERR_CONFIG, "draft-model", "draft-model: expected %s, found %s", expected, found);
}

static enum err check_fit(const struct plan *p, const struct plan *d, struct err_info *info)
{
    if (!p->has_logits || p->is_bidirectional) {
        return refuse(info, "none with a model that generates no text", "one");
    }
    if (!d->has_logits || d->is_bidirectional) {
        return refuse(info, "a model that generates text", "one for embeddings");
    }
    if (d->recurrent_floats != 0) {
        return refuse(info, "a draft model without recurrent layers", "one with them");
    }
    if (d->latent_dim != 0 || p->latent_dim != 0) {
        return refuse(info, "no latent attention in the model or its draft",
                      d->latent_dim != 0 ? "it in the draft" : "it in the model");
    }
    bool has_experts = d->moe.n_experts != 0 && p->moe.n_experts != 0;
    if (has_experts && memcmp(&d->moe, &p->moe, sizeof p->moe) != 0) {
        return refuse(info, "a draft model without experts, or with as many as the model", "another");
    }
    if ((int64_t)p->n_layers + d->n_layers > PLAN_MAX_LAYERS || p->n_bufs + d->n_bufs > PLAN_MAX_BUFS ||
        p->n_ropes + d->n_ropes > PLAN_MAX_ROPES) {
        return err_set(info, ERR_CONFIG, "draft-model",
                       "draft-model: expected at most %d layers and %d buffers together with the model's, found more",
                       PLAN_MAX_LAYERS, PLAN_MAX_BUFS);
    }
    return ERR_OK;
}

/* Gives each layer its own heads, and the plan those of the widest. */
static enum err join_heads(const struct join *j)
{
    struct plan *p = j->p;
    uint32_t n_layers = (uint32_t)j->n_layers + j->draft->n_layers;
    struct plan_kv *kvs = arena_alloc(&p->arena, n_layers * sizeof *kvs);
    TRY_MEM(kvs != NULL);
    for (int32_t i = 0; i < (int32_t)n_layers; i++) {
        bool is_draft = i >= j->n_layers;
        kvs[i] = plan_kv_of(is_draft ? j->draft : p, is_draft ? i - j->n_layers : i);
        kvs[i].layer += is_draft && kvs[i].layer != PLAN_NONE ? j->n_layers : 0;
    }
    p->kvs = kvs;
    p->n_layers = n_layers;
    p->n_heads = MAX_OF(p->n_heads, j->draft->n_heads);
    p->n_kv_heads = MAX_OF(p->n_kv_heads, j->draft->n_kv_heads);
    p->head_dim = MAX_OF(p->head_dim, j->draft->head_dim);
    p->moe = p->moe.n_experts != 0 ? p->moe : j->draft->moe;
    return ERR_OK;
}

/* Returns the source with one row per token of p; NULL if memory is out. */
static const struct row_source *fit_vocab(const struct join *j, const struct row_source *of)
{
    uint32_t n = j->p->n_vocab, n_draft = j->draft->n_vocab;
    if (n <= n_draft) {
        return n == n_draft ? of : row_order_row_range(&j->p->arena, of, 0, n);
    }
    uint32_t run = row_order_run(n_draft, n);
    uint32_t *first = arena_alloc(&j->p->arena, n / run * sizeof *first);
    for (uint32_t i = 0; first != NULL && i < n / run; i++) {
        first[i] = MIN_OF(i * run, n_draft - run);
    }
    return row_order_rows(&j->p->arena, of, first, first != NULL ? n / run : 0, run);
}

/* Is the weight's row a token's? */
static bool is_by_token(const struct plan *d, plan_weight_id id)
{
    for (int32_t i = 0; i < d->n_steps; i++) {
        const struct plan_step *s = &d->steps[i];
        if ((s->op == PLAN_EMBED || s->op == PLAN_LOGITS) && s->w[0] == id) {
            return true;
        }
    }
    return false;
}

static enum err join_weights(const struct join *j)
{
    for (int32_t i = 0; i < j->draft->n_weights; i++) {
        const struct plan_weight *w = &j->draft->weights[i];
        char name[NAME_BYTES];
        plan_weight_id id;
        snprintf(name, sizeof name, "draft.%s", w->name);
        TRY(plan_add_weight(j->p, name, is_by_token(j->draft, i) ? fit_vocab(j, w->source) : w->source, &id));
    }
    return ERR_OK;
}

static enum err join_bufs(struct join *j)
{
    for (plan_buf_id i = 0; i < j->draft->n_bufs; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "draft.%s", j->draft->bufs[i].name);
        TRY(plan_add_buf(j->p, name, j->draft->bufs[i].width, &j->bufs[i]));
    }
    for (int32_t i = 0, id; i < j->draft->n_ropes; i++) {
        TRY(plan_add_rope(j->p, &j->draft->ropes[i], &id));
    }
    return ERR_OK;
}

/* Steps before the draft's first layer count as its. */
static enum err join_steps(const struct join *j)
{
    struct plan *p = j->p;
    const struct plan_operand *o;
    bool begins = true;
    p->i_predict = p->n_steps;
    p->layer = PLAN_NONE;
    for (int32_t i = 0, id; i < j->draft->n_steps; i++) {
        struct plan_step s = j->draft->steps[i];
        if (s.op == PLAN_HIDDEN) {
            continue;
        }
        begins = begins && s.layer == PLAN_NONE;
        s.layer = begins ? j->n_layers : s.layer != PLAN_NONE ? s.layer + j->n_layers : PLAN_NONE;
        for (int k = 0; (o = plan_next_operand(&s, &k, &id)) != NULL;) {
            *plan_operand_id(&s, o) = plan_is_buf(o) ? id : id + j->n_weights;
        }
        plan_rename(&s, j->bufs);
        if (plan_ops[s.op].rope != 0 && s.heads.rope != PLAN_NONE) {
            s.heads.rope += j->n_ropes;
        }
        TRY(plan_add_step(p, &s));
    }
    return ERR_OK;
}

enum err plan_join(struct plan *p, const struct plan *draft, struct err_info *info)
{
    struct join j = {
        .p = p, .draft = draft, .n_layers = (int32_t)p->n_layers, .n_weights = p->n_weights, .n_ropes = p->n_ropes};
    TRY(check_fit(p, draft, info));
    enum err err = join_heads(&j);
    err = err == ERR_OK ? join_weights(&j) : err;
    err = err == ERR_OK ? join_bufs(&j) : err;
    err = err == ERR_OK ? join_steps(&j) : err;
    return err == ERR_OK ? plan_check(p, info) : err_set(info, err, NULL, "out of memory for the draft model's plan");
}
