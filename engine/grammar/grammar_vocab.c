/* A vocabulary as tries of the tokens' bytes. Each trie is one array in depth-first order: a walk continues with the
 * next node or skips a subtree. In addition to the trie of all tokens, there are tries without plain text of up to a
 * few, or more, bytes. */
#include "engine/grammar/grammar_internal.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A token's bytes, for sorting. */
struct entry {
    const char *bytes;
    uint32_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, MIN_OF(x->n, y->n));
    order = order != 0 ? order : (x->n > y->n) - (x->n < y->n);
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* Reads the bytes of all tokens, concatenated; tokens that are not text have none. */
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
        v->n_tokens += v->is_end[id] == 0;
        v->n_ends += v->is_end[id] == 1;
    }
    v->starts[v->n_vocab] = (uint32_t)all.len;
    enum err err = buf_ok(&all);
    size_t n;
    v->bytes = err == ERR_OK && all.len > 0 ? buf_take(&all, &n) : NULL;
    buf_fini(&all);
    return err;
}

/* Adds the nodes of a token that shares its first `common` bytes with the previous one. */
static void add_token(struct vocab_trie *t, const struct entry *e, uint32_t at, uint32_t common, uint32_t *path)
{
    for (uint32_t d = common; d < e->n; d++) {
        path[d] = t->n_nodes;
        t->nodes[t->n_nodes++] =
            (struct vocab_node){.first = at, .byte = (unsigned char)e->bytes[d], .depth = (unsigned char)(d + 1)};
    }
    if (t->nodes[path[e->n - 1]].n < UINT16_MAX) { /* no more tokens of one text are needed */
        t->nodes[path[e->n - 1]].n++;
    }
}

static void close_nodes(struct vocab_trie *t, uint32_t from, uint32_t to, const uint32_t *path)
{
    for (uint32_t d = from; d < to; d++) {
        t->nodes[path[d]].end = t->n_nodes;
    }
}

/* entries: [t->n_order], sorted. */
static void make_nodes(struct vocab_trie *t, const struct entry *entries)
{
    uint32_t path[GRAMMAR_MAX_TOKEN_BYTES], before = 0; /* length of the previous token */
    for (uint32_t i = 0; i < t->n_order; i++) {
        const struct entry *e = &entries[i];
        uint32_t common = 0;
        while (i > 0 && common < before && common < e->n && entries[i - 1].bytes[common] == e->bytes[common]) {
            common++;
        }
        close_nodes(t, common, before, path);
        add_token(t, e, i, common, path);
        t->order[i] = e->id;
        before = e->n;
    }
    close_nodes(t, 0, before, path);
}

static bool is_plain(const struct entry *e, uint32_t depth)
{
    unsigned state = PLAIN_WHOLE;
    for (uint32_t i = 0; i < e->n && e->n <= depth && state != PLAIN_NOT; i++) {
        state = plain_step(state, (unsigned char)e->bytes[i]);
    }
    return e->n <= depth && state == PLAIN_WHOLE;
}

/* Builds a trie of the entries that are not plain text of `depth` bytes, and moves these to the front; *n: their
 * number. */
static enum err make_trie(const struct grammar_vocab *v, uint32_t depth, struct entry *entries, uint32_t *n,
                          struct vocab_trie *t)
{
    size_t n_bytes = 0;
    t->depth = depth;
    t->plain = mem_zalloc_array(((size_t)v->n_vocab + 63) / 64, sizeof *t->plain, MEM_MODEL);
    TRY_MEM(t->plain != NULL);
    if (depth > 0) { /* tokens excluded from tries of shorter text are excluded, too */
        memcpy(t->plain, t[-1].plain, ((size_t)v->n_vocab + 63) / 64 * sizeof *t->plain);
    }
    for (uint32_t i = 0; i < *n; i++) {
        if (is_plain(&entries[i], depth)) {
            t->plain[entries[i].id / 64] |= (uint64_t)1 << entries[i].id % 64;
        } else {
            n_bytes += entries[i].n;
            entries[t->n_order++] = entries[i];
        }
    }
    *n = t->n_order;
    t->order = mem_zalloc_array(t->n_order + 1u, sizeof *t->order, MEM_MODEL);
    t->nodes = mem_zalloc_array(n_bytes + 1, sizeof *t->nodes, MEM_MODEL); /* at most one node per byte */
    TRY_MEM(t->order != NULL && t->nodes != NULL);
    make_nodes(t, entries);
    void *less = mem_realloc(t->nodes, (t->n_nodes + 1u) * sizeof *t->nodes, MEM_MODEL);
    t->nodes = less != NULL ? less : t->nodes;
    return ERR_OK;
}

static enum err make_tries(struct grammar_vocab *v)
{
    static const uint32_t depths[VOCAB_TRIES] = {0, PLAIN_MIN_DEPTH, 8, 16, PLAIN_MAX_DEPTH};
    struct entry *entries = mem_zalloc_array(v->n_tokens + 1u, sizeof *entries, MEM_MODEL);
    v->ends = mem_zalloc_array((size_t)v->n_ends + 1, sizeof *v->ends, MEM_MODEL);
    enum err err = entries != NULL && v->ends != NULL ? ERR_OK : ERR_NOMEM;
    uint32_t n = 0, n_ends = 0;
    for (int32_t id = 0; id < v->n_vocab && err == ERR_OK; id++) {
        if (v->is_end[id] == 0) {
            entries[n++] = (struct entry){v->bytes + v->starts[id], v->starts[id + 1] - v->starts[id], id};
        } else if (v->is_end[id] == 1) {
            v->ends[n_ends++] = id;
        }
    }
    if (err == ERR_OK) {
        qsort(entries, n, sizeof *entries, by_bytes);
    }
    for (size_t i = 0; i < VOCAB_TRIES && err == ERR_OK; i++) {
        err = make_trie(v, depths[i], entries, &n, &v->tries[i]);
    }
    mem_free(entries);
    return err;
}

enum err grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out)
{
    struct grammar_vocab *v = *out = mem_zalloc(sizeof *v, MEM_MODEL);
    TRY_MEM(v != NULL);
    size_t n = (size_t)tokenizer_n_vocab(t);
    pthread_mutex_init(&v->lock, NULL);
    v->tokenizer = t;
    v->n_vocab = (int32_t)n;
    v->starts = mem_zalloc_array(n + 1, sizeof *v->starts, MEM_MODEL);
    v->is_end = mem_zalloc(n, MEM_MODEL);
    v->walks = mem_zalloc_array(VOCAB_MAX_WALKS, sizeof *v->walks, MEM_MODEL);
    enum err err = v->starts != NULL && v->is_end != NULL && v->walks != NULL ? read_tokens(v, t) : ERR_NOMEM;
    err = err == ERR_OK ? make_tries(v) : err;
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
        for (size_t i = 0; i < VOCAB_TRIES; i++) {
            mem_free(v->tries[i].nodes);
            mem_free(v->tries[i].order);
            mem_free(v->tries[i].plain);
        }
        mem_free(v->bytes);
        mem_free(v->starts);
        mem_free(v->is_end);
        mem_free(v->ends);
        pthread_mutex_destroy(&v->lock);
        mem_free(v);
    }
    *vocab = NULL;
}
