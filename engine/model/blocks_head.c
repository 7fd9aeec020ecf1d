/* Layers after the states: the layers of embeddings (2_Dense and 3_Dense of sentence-transformers), and the head of a
 * reranker, which computes a score. Tensors: llama.cpp b11434, src/models/bert.cpp, qwen3.cpp, modern-bert.cpp and
 * gemma-embedding.cpp. Computation: its llama-graph.cpp, build_pooling and build_dense_out, and transformers 5,
 * modeling_bert.py, modeling_xlm_roberta.py, modeling_modernbert.py. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 64 };

/* --- embeddings --------------------------------------------------------------------------------------------------- */

/* infcgi's own key: GGUF has none, because its layers have no activation. */
static enum err read_act(const struct blocks *b, int number, enum plan_dense_act *out)
{
    char key[KEY_BYTES], known[KEY_BYTES] = "";
    struct gguf_str name;
    *out = PLAN_DENSE_NONE;
    snprintf(key, sizeof key, "infcgi.dense_%d.activation", number);
    TRY(gguf_get_str_or_null(b->g, key, &name, b->info));
    if (name.data == NULL) {
        return ERR_OK;
    }
    for (int act = 0; act < PLAN_DENSE_ACT_COUNT; act++) {
        const char *one = plan_dense_act_name(act);
        if (gguf_str_is(name, one)) {
            *out = (enum plan_dense_act)act;
            return ERR_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n == 0 ? "" : ", ", one);
    }
    return err_set(b->info, ERR_BAD_HPARAM, key, "%s: expected one of %s, found '%.*s'", key, known,
                   (int)MIN_OF(name.len, (size_t)32), name.data);
}

enum err blocks_read_dense(struct blocks *b)
{
    struct plan_head *h = &b->plan->dense;
    for (uint64_t n_in = b->h.n_embd; h->n < PLAN_MAX_DENSE; h->n++) {
        char name[KEY_BYTES], bias[KEY_BYTES];
        int number = h->n + 2; /* the first is module 2, after the model and its pooling */
        snprintf(name, sizeof name, "dense_%d.weight", number);
        snprintf(bias, sizeof bias, "dense_%d.bias", number);
        struct plan_dense *d = &h->layers[h->n];
        uint64_t n_out = blocks_rows_of(b, name);
        if (n_out == 0) {
            return ERR_OK;
        }
        if (n_out > PLAN_MAX_WIDTH) {
            return err_set(b->info, ERR_BAD_TENSOR_SHAPE, name, "%s: expected at most %d rows, found %" PRIu64, name,
                           PLAN_MAX_WIDTH, n_out);
        }
        TRY(blocks_find(b, name, n_in, n_out, &d->weight));
        TRY(blocks_find(b, bias, n_out, 1, &d->bias));
        TRY(read_act(b, number, &d->act));
        n_in = n_out;
    }
    return ERR_OK;
}

/* --- ranking ------------------------------------------------------------------------------------------------------ */

/* Families with such a head: the default of the states that it reads, and the operation after its inner layer. */
static const struct kind {
    const char *arch;
    enum plan_pooling states;
    enum plan_dense_act act;
    bool has_one_separator;
} kinds[] = {
    {"bert", PLAN_POOL_CLS, PLAN_DENSE_TANH, false},
    {"modern-bert", PLAN_POOL_MEAN, PLAN_DENSE_GELU, true},
    {"neo-bert", PLAN_POOL_CLS, PLAN_DENSE_TANH, false},
    {"qwen3", PLAN_POOL_LAST, PLAN_DENSE_TANH, false},
};

static const struct kind *find_kind(const char *arch)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i].arch, arch) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

/* Reads the head for the plan's pooling: one score, or, for a decoder, the scores of "yes" and "no". */
static enum err read_head(const struct blocks *b, const struct kind *kind, struct plan_ranker *r, uint64_t n_out)
{
    uint64_t d = b->h.n_embd;
    bool is_causal = !b->plan->is_bidirectional;
    uint32_t states;
    if (n_out != 1 && !(is_causal && n_out == 2)) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, "cls.output.weight",
                       "cls.output.weight: expected one row of %" PRIu64 "%s, found %" PRIu64, d,
                       is_causal ? ", or two, for yes and no" : ", a score", n_out);
    }
    TRY(blocks_get_u32(b, "classifier.pooling_type", PLAN_POOL_MEAN, PLAN_POOL_LAST, kind->states, &states));
    r->states = (enum plan_pooling)states;
    r->has_one_separator = kind->has_one_separator;
    struct plan_dense *inner = &r->head.layers[0];
    TRY(blocks_find(b, "cls.weight", d, d, &inner->weight));
    if (inner->weight != NULL) {
        inner->act = kind->act;
        inner->eps = b->h.eps;
        TRY(blocks_find(b, "cls.bias", d, 1, &inner->bias));
        TRY(blocks_find(b, "cls.norm.weight", d, 1, &inner->norm));
        r->head.n++;
    }
    struct plan_dense *out = &r->head.layers[r->head.n++];
    TRY(blocks_find(b, "cls.output.bias", n_out, 1, &out->bias));
    return blocks_find(b, "cls.output.weight", d, n_out, &out->weight);
}

enum err blocks_read_rank(struct blocks *b)
{
    static const char name[] = "cls.output.weight";
    struct plan *p = b->plan;
    uint64_t n_out = blocks_rows_of(b, name);
    bool says_so = p->pooling == PLAN_POOL_RANK;
    const struct kind *kind = find_kind(b->arch);
    TRY(blocks_expect(
        b, !says_so || kind != NULL, "pooling_type",
        "expected 1 (mean), 2 (cls) or 3 (last), found 4 (rank), which only bert, modern-bert, neo-bert and qwen3 have"));
    if (says_so && n_out == 0) {
        return err_set(b->info, ERR_MISSING_TENSOR, name,
                       "%s: expected a tensor [%u, 1], as pooling_type says rank, found none", name, b->h.n_embd);
    }
    if (kind == NULL || n_out == 0) {
        return ERR_OK;
    }
    p->pooling = PLAN_POOL_RANK; /* many files have the head without the key */
    return read_head(b, kind, &p->ranker, n_out);
}
