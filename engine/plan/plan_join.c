#include "engine/plan/plan_join.h"

#include "engine/plan/plan_ops.h"
#include "engine/tensor/row_order.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160 };

struct join {
    struct plan *p;
    const struct plan *draft;
    int32_t n_of; /* first layers of the draft's plan, which are p's */
    /* What p had before. */
    int32_t n_layers, n_weights, n_ropes;
    plan_buf_id bufs[PLAN_MAX_BUFS]; /* the draft's buffers in p */
    plan_weight_id *weights;         /* its weights in p */
};

static enum err refuse(struct err_info *info, const char *expected, const char *found)
{
    return err_set(info, ERR_CONFIG, "draft-model", "draft-model: expected %s, found %s", expected, found);
}

static enum err check_fit(const struct plan *p, const struct plan *d, int32_t n_of, struct err_info *info)
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
    if ((int64_t)p->n_layers + d->n_layers - n_of > PLAN_MAX_LAYERS || p->n_bufs + d->n_bufs > PLAN_MAX_BUFS ||
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
    uint32_t n_layers = (uint32_t)(j->n_layers - j->n_of) + j->draft->n_layers;
    int32_t shift = j->n_layers - j->n_of;
    struct plan_kv *kvs = arena_alloc(&p->arena, n_layers * sizeof *kvs);
    TRY_MEM(kvs != NULL);
    for (int32_t i = 0; i < (int32_t)n_layers; i++) {
        bool is_draft = i >= j->n_layers;
        kvs[i] = plan_kv_of(is_draft ? j->draft : p, is_draft ? i - shift : i);
        kvs[i].layer += is_draft && kvs[i].layer != PLAN_NONE ? shift : 0;
    }
    p->kvs = kvs;
    p->n_layers = n_layers;
    p->n_heads = MAX_OF(p->n_heads, j->draft->n_heads);
    p->n_kv_heads = MAX_OF(p->n_kv_heads, j->draft->n_kv_heads);
    p->value_dim = MAX_OF(plan_value_dim(p), plan_value_dim(j->draft));
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
        if ((s->op == PLAN_EMBED || (s->op == PLAN_LOGITS && !s->logits.is_reduced)) && s->w[0] == id) {
            return true;
        }
    }
    return false;
}

/* Returns the weight of p that a head shares; PLAN_NONE: none. */
static plan_weight_id find_shared(const struct join *j, const struct row_source *source)
{
    for (plan_weight_id i = 0; i < j->n_weights; i++) {
        if (j->p->weights[i].source == source) {
            return i;
        }
    }
    return PLAN_NONE;
}

static enum err join_weights(struct join *j)
{
    j->weights = arena_alloc(&j->p->arena, (size_t)j->draft->n_weights * sizeof *j->weights);
    TRY_MEM(j->weights != NULL);
    for (int32_t i = 0; i < j->draft->n_weights; i++) {
        const struct plan_weight *w = &j->draft->weights[i];
        const struct row_source *source = is_by_token(j->draft, i) ? fit_vocab(j, w->source) : w->source;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "draft.%s", w->name);
        j->weights[i] = find_shared(j, source);
        if (j->weights[i] == PLAN_NONE) {
            TRY(plan_add_weight(j->p, name, source, &j->weights[i]));
        }
    }
    return ERR_OK;
}

/* Does a step of a head's model write the buffer from rows of the caller? */
static bool is_fed(const struct plan *d, plan_buf_id buf)
{
    for (int32_t i = 0; i < d->i_predict; i++) {
        if (d->steps[i].op == PLAN_INPUT && d->steps[i].dst == buf) {
            return true;
        }
    }
    return false;
}

static enum err join_bufs(struct join *j)
{
    for (plan_buf_id i = 0; i < j->draft->n_bufs; i++) {
        char name[NAME_BYTES];
        if (is_fed(j->draft, i)) {
            continue; /* a buffer of p instead */
        }
        snprintf(name, sizeof name, "draft.%s", j->draft->bufs[i].name);
        TRY(plan_add_buf(j->p, name, j->draft->bufs[i].width, &j->bufs[i]));
    }
    for (int32_t i = 0, id; i < j->draft->n_ropes; i++) {
        TRY(plan_add_rope(j->p, &j->draft->ropes[i], &id));
    }
    return ERR_OK;
}

/* Renames what a step of the draft reads and writes. */
static void rename_step(const struct join *j, struct plan_step *s)
{
    const struct plan_operand *o;
    int32_t id;
    for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
        *plan_operand_id(s, o) = plan_is_buf(o) ? id : j->weights[id];
    }
    plan_rename(s, j->bufs);
    if (plan_ops[s->op].rope != 0 && s->heads.rope != PLAN_NONE) {
        s->heads.rope += j->n_ropes;
    }
}

/* --- steps of the model for a head -------------------------------------------------------------------------------- */

enum { MAX_FED = 8 };

/* Steps of a head's plan that p gets before its steps `at`, ascending. */
struct fed {
    struct plan_step steps[MAX_FED];
    int32_t at[MAX_FED], n;
};

/* Finds the buffer that holds the input of a layer of p (PLAN_NONE: the output of the last one), and the step before
 * which to read it: late in the layer, so that its first steps stay together. */
static enum err find_input(const struct plan *p, int32_t layer, plan_buf_id *out, int32_t *at, struct err_info *info)
{
    int32_t first = 0, n = 0;
    if (layer == PLAN_NONE) {
        for (int32_t i = 0; i < p->n_steps; i++) {
            first = p->steps[i].layer != PLAN_NONE ? i + 1 : first;
        }
    } else {
        while (first < p->n_steps && p->steps[first].layer != layer) {
            first++;
        }
    }
    for (plan_buf_id buf = 0; buf < p->n_bufs; buf++) {
        if (p->bufs[buf].width == p->n_embd && plan_is_read(p, first, buf)) {
            *out = buf;
            n++;
        }
    }
    if (n != 1) {
        return refuse(info, "this head with a model that has one row between its layers", "several");
    }
    for (*at = first; layer != PLAN_NONE && *at < p->n_steps && p->steps[*at].layer == layer; ++*at) {
        if ((plan_uses(&p->steps[*at], *out) & PLAN_WRITES) != 0) {
            break;
        }
    }
    return ERR_OK;
}

/* Finds the buffer that p's logits are made of, and the step before which to read it. */
static void find_last(const struct plan *p, plan_buf_id *out, int32_t *at)
{
    for (*at = p->n_steps - 1; p->steps[*at].op != PLAN_LOGITS;) { /* it has_logits */
        --*at;
    }
    *out = p->steps[*at].src;
}

/* Lists the steps of the head's model; those that read rows of the caller read p's buffers instead. */
static enum err list_fed(struct join *j, struct fed *f, struct err_info *info)
{
    for (int32_t i = 0, at = 0; i < j->draft->i_predict; i++) {
        struct plan_step s = j->draft->steps[i];
        if (s.op == PLAN_INPUT && s.edge.is_last) {
            find_last(j->p, &j->bufs[s.dst], &at);
            continue;
        }
        if (s.op == PLAN_INPUT) {
            TRY(find_input(j->p, s.layer, &j->bufs[s.dst], &at, info));
            continue;
        }
        rename_step(j, &s);
        s.feeds_head = true;
        f->steps[f->n] = s;
        f->at[f->n++] = at;
    }
    return ERR_OK;
}

static enum err insert_fed(struct plan *p, const struct fed *f)
{
    int32_t from = p->n_steps;
    for (int32_t i = 0; i < f->n; i++) {
        TRY(plan_add_step(p, &f->steps[i]));
    }
    for (int32_t i = f->n - 1, to = p->n_steps; i >= 0; i--) {
        while (from > f->at[i]) {
            p->steps[--to] = p->steps[--from];
        }
        p->steps[--to] = f->steps[i];
    }
    return ERR_OK;
}

/* Joins what a head has and a draft model lacks: steps of the model, whose output the head reads, and its tokens. */
static enum err join_fed(struct join *j, struct err_info *info)
{
    struct plan *p = j->p;
    struct fed fed = {.n = 0};
    p->input_width = p->output_width = j->draft->output_width;
    p->n_guess_ids = j->draft->n_guess_ids;
    p->guess_ids = j->draft->guess_ids; /* the draft outlives p */
    TRY(list_fed(j, &fed, info));
    return insert_fed(p, &fed);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* Steps before the draft's first layer count as its. */
static enum err join_steps(const struct join *j)
{
    struct plan *p = j->p;
    bool begins = true;
    p->i_predict = p->n_steps;
    p->layer = PLAN_NONE;
    for (int32_t i = j->draft->i_predict; i < j->draft->n_steps; i++) {
        struct plan_step s = j->draft->steps[i];
        if (s.op == PLAN_HIDDEN) {
            continue;
        }
        begins = begins && s.layer == PLAN_NONE;
        s.layer = begins ? j->n_layers : s.layer != PLAN_NONE ? s.layer + j->n_layers - j->n_of : PLAN_NONE;
        rename_step(j, &s);
        TRY(plan_add_step(p, &s));
    }
    return ERR_OK;
}

enum err plan_join(struct plan *p, const struct plan *draft, struct err_info *info)
{
    struct join j = {.p = p,
                     .draft = draft,
                     .n_of = plan_predicts(draft) ? (int32_t)plan_main_layers(draft) : 0,
                     .n_layers = (int32_t)p->n_layers,
                     .n_weights = p->n_weights,
                     .n_ropes = p->n_ropes};
    TRY(check_fit(p, draft, j.n_of, info));
    enum err err = join_heads(&j);
    err = err == ERR_OK ? join_weights(&j) : err;
    err = err == ERR_OK ? join_bufs(&j) : err;
    err = err == ERR_OK && plan_predicts(draft) ? join_fed(&j, info) : err;
    if (err == ERR_CONFIG) {
        return err;
    }
    err = err == ERR_OK ? join_steps(&j) : err;
    return err == ERR_OK ? plan_check(p, info) : err_set(info, err, NULL, "out of memory for the draft model's plan");
}
