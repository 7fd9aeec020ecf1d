/* The head of a reranker: what makes a number of the state of one row. Tensors: llama.cpp b11434, src/models/bert.cpp and
 * qwen3.cpp; how they are computed: its llama-graph.cpp, build_pooling, and transformers 5, modeling_bert.py,
 * modeling_xlm_roberta.py. */
#include "engine/model/blocks.h"

#include <inttypes.h>
#include <string.h>

/* [n_rows][n_in]; *out NULL when there is none. */
static enum err find(const struct blocks *b, const char *name, uint64_t n_in, uint64_t n_rows,
                     const struct row_source **out)
{
    const struct gguf_tensor *t = gguf_find_tensor(b->g, name);
    *out = t != NULL ? t->source : NULL;
    if (t != NULL && (t->dims[0] != n_in || t->dims[1] != n_rows || t->dims[2] != 1 || t->dims[3] != 1)) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, name,
                       "%s: expected [%" PRIu64 ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                       "]",
                       name, n_in, n_rows, t->dims[0], t->dims[1], t->dims[2], t->dims[3]);
    }
    return ERR_OK;
}

/* Which the plan's pooling needs: one score, or, of a decoder, those of "yes" and "no". */
static enum err read_head(const struct blocks *b, struct plan_ranker *r, uint64_t n_out)
{
    uint64_t d = b->h.n_embd;
    bool is_causal = !b->plan->is_bidirectional;
    if (n_out != 1 && !(is_causal && n_out == 2)) {
        return err_set(b->info, ERR_BAD_TENSOR_SHAPE, "cls.output.weight",
                       "cls.output.weight: expected one row of %" PRIu64 "%s, found %" PRIu64, d,
                       is_causal ? ", or two, for yes and no" : ", a score", n_out);
    }
    r->row = is_causal ? PLAN_POOL_LAST : PLAN_POOL_CLS;
    TRY(find(b, "cls.output.weight", d, n_out, &r->out));
    TRY(find(b, "cls.output.bias", n_out, 1, &r->out_bias));
    TRY(find(b, "cls.weight", d, d, &r->dense));
    return r->dense != NULL ? find(b, "cls.bias", d, 1, &r->dense_bias) : ERR_OK;
}

enum err blocks_read_rank(struct blocks *b)
{
    static const char name[] = "cls.output.weight";
    static const char *const known[] = {"bert", "qwen3"};
    struct plan *p = b->plan;
    uint64_t n_out = blocks_rows_of(b, name, -1);
    bool says_so = p->pooling == PLAN_POOL_RANK, is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        is_known |= strcmp(b->arch, known[i]) == 0;
    }
    if (says_so && !is_known) {
        return err_set(
            b->info, ERR_BAD_HPARAM, "pooling_type",
            "%s.pooling_type: expected 1 (mean), 2 (cls) or 3 (last), found 4 (rank), which is known of bert "
            "and qwen3",
            b->arch);
    }
    if (says_so && n_out == 0) {
        return err_set(b->info, ERR_MISSING_TENSOR, name,
                       "%s: expected a tensor [%u, 1], as pooling_type says rank, found none", name, b->h.n_embd);
    }
    if (!is_known || n_out == 0) {
        return ERR_OK;
    }
    p->pooling = PLAN_POOL_RANK; /* many files say nothing of it, and have the head */
    return read_head(b, &p->ranker, n_out);
}
