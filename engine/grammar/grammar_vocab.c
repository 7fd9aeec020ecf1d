/* A vocabulary as a trie of the tokens' bytes, in one row in depth-first order: a walk goes on to the next node or skips a
 * subtree. */
#include "engine/grammar/grammar_internal.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a token while they are sorted. */
struct entry {
    const char *bytes;
    uint32_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, MIN_OF(x->n, y->n));
    return order != 0 ? order : x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x->id > y->id) - (x->id < y->id);
}

static uint32_t token_length(const struct grammar_vocab *v, int32_t id) { return v->starts[id + 1] - v->starts[id]; }

/* The bytes of all tokens, one behind the other; none of those that are not text. */
static enum err read_tokens(struct grammar_vocab *v, const struct tokenizer *t)
{
    struct buf all;
    buf_init(&all, UINT32_MAX / 2, MEM_MODEL); /* offsets have 32 bits */
    for (int32_t id = 0; id < v->n_vocab && buf_ok(&all) == ERR_OK; id++) {
        enum token_kind kind = tokenizer_kind(t, id);
        v->starts[id] = (uint32_t)all.len;
        bool is_text = kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED;
        v->is_end[id] = tokenizer_is_eog(t, id);
        if (is_text && v->is_end[id] == 0) {
            tokenizer_piece(t, id, true, &all);
        }
        uint32_t n = (uint32_t)all.len - v->starts[id];
        v->is_end[id] = v->is_end[id] != 0 ? 1 : n == 0 || n > GRAMMAR_MAX_TOKEN_BYTES ? 2 : 0;
        v->n_order += v->is_end[id] == 0;
        v->n_ends += v->is_end[id] == 1;
    }
    v->starts[v->n_vocab] = (uint32_t)all.len;
    enum err err = buf_ok(&all);
    size_t n;
    v->bytes = err == ERR_OK && all.len > 0 ? buf_take(&all, &n) : NULL;
    buf_fini(&all);
    return err;
}

/* Adds the nodes of a token whose first `common` bytes are those of the one before it. */
static void add_token(struct grammar_vocab *v, const struct entry *e, uint32_t at, uint32_t common, uint32_t *path)
{
    for (uint32_t d = common; d < e->n; d++) {
        path[d] = v->n_nodes;
        v->nodes[v->n_nodes++] =
            (struct vocab_node){.first = at, .byte = (unsigned char)e->bytes[d], .depth = (unsigned char)(d + 1)};
    }
    if (v->nodes[path[e->n - 1]].n < UINT16_MAX) { /* more tokens of one text are never needed */
        v->nodes[path[e->n - 1]].n++;
    }
}

static void close_nodes(struct grammar_vocab *v, uint32_t from, uint32_t to, const uint32_t *path)
{
    for (uint32_t d = from; d < to; d++) {
        v->nodes[path[d]].end = v->n_nodes;
    }
}

static void make_nodes(struct grammar_vocab *v, const struct entry *entries)
{
    uint32_t path[GRAMMAR_MAX_TOKEN_BYTES], before = 0; /* length of the token before */
    for (uint32_t i = 0; i < v->n_order; i++) {
        const struct entry *e = &entries[i];
        uint32_t common = 0;
        while (i > 0 && common < before && common < e->n && entries[i - 1].bytes[common] == e->bytes[common]) {
            common++;
        }
        close_nodes(v, common, before, path);
        add_token(v, e, i, common, path);
        v->order[i] = e->id;
        before = e->n;
    }
    close_nodes(v, 0, before, path);
}

static enum err make_trie(struct grammar_vocab *v)
{
    struct entry *entries = mem_zalloc_array(v->n_order + 1u, sizeof *entries, MEM_MODEL);
    v->order = mem_zalloc_array(v->n_order + 1u, sizeof *v->order, MEM_MODEL);
    v->ends = mem_zalloc_array((size_t)v->n_ends + 1, sizeof *v->ends, MEM_MODEL);
    v->nodes =
        mem_zalloc_array((size_t)v->starts[v->n_vocab] + 1, sizeof *v->nodes, MEM_MODEL); /* a node a byte at most */
    enum err err = entries != NULL && v->order != NULL && v->ends != NULL && v->nodes != NULL ? ERR_OK : ERR_NOMEM;
    if (err == ERR_OK) {
        uint32_t n = 0, n_ends = 0;
        for (int32_t id = 0; id < v->n_vocab; id++) {
            if (v->is_end[id] == 0) {
                entries[n++] = (struct entry){v->bytes + v->starts[id], token_length(v, id), id};
            } else if (v->is_end[id] == 1) {
                v->ends[n_ends++] = id;
            }
        }
        qsort(entries, n, sizeof *entries, by_bytes);
        make_nodes(v, entries);
        void *less = mem_realloc(v->nodes, (v->n_nodes + 1u) * sizeof *v->nodes, MEM_MODEL);
        v->nodes = less != NULL ? less : v->nodes;
    }
    mem_free(entries);
    return err;
}

enum err grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out)
{
    struct grammar_vocab *v = *out = mem_zalloc(sizeof *v, MEM_MODEL);
    if (v == NULL) {
        return ERR_NOMEM;
    }
    size_t n = (size_t)tokenizer_n_vocab(t);
    pthread_mutex_init(&v->lock, NULL);
    v->n_vocab = (int32_t)n;
    v->starts = mem_zalloc_array(n + 1, sizeof *v->starts, MEM_MODEL);
    v->is_end = mem_zalloc(n, MEM_MODEL);
    v->walks = mem_zalloc_array(VOCAB_MAX_WALKS, sizeof *v->walks, MEM_MODEL);
    enum err err = v->starts != NULL && v->is_end != NULL && v->walks != NULL ? read_tokens(v, t) : ERR_NOMEM;
    err = err == ERR_OK ? make_trie(v) : err;
    if (err != ERR_OK) {
        grammar_vocab_free(out);
    }
    return err;
}

void grammar_vocab_free(struct grammar_vocab **vocab)
{
    struct grammar_vocab *v = *vocab;
    if (v != NULL) {
        for (uint32_t i = 0; v->walks != NULL && i < VOCAB_MAX_WALKS; i++) {
            mem_free(v->walks[i].bits);
            mem_free(v->walks[i].nodes);
        }
        mem_free(v->walks);
        mem_free(v->nodes);
        mem_free(v->order);
        mem_free(v->bytes);
        mem_free(v->starts);
        mem_free(v->is_end);
        mem_free(v->ends);
        pthread_mutex_destroy(&v->lock);
        mem_free(v);
    }
    *vocab = NULL;
}

int32_t grammar_vocab_size(const struct grammar_vocab *v) { return v->n_vocab; }
