/* Finds forced text. Bytes are forced as long as only one can follow at each position. The tokens are not, because a
 * token can end anywhere. A model that can choose nearly always uses its tokenizer's tokens, so these are the
 * prediction. A token that could continue past the forced bytes is not predicted. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

enum { MAX_BYTES = 256 };

/* The bytes that must follow from a position on. */
struct forced_run {
    unsigned char bytes[MAX_BYTES];
    uint32_t n;
    bool is_whole; /* no byte can follow them */
};

/* Finds the only possible byte; *n: 0 or 1, or 2 for more. */
static enum err only_byte(struct grammar_matcher *m, unsigned char *byte, int *n)
{
    struct lexer *l = &m->g->lexer;
    int only = -1;
    *n = 0;
    for (int c = 0; c < l->n_classes && *n < 2; c++) {
        uint32_t next;
        TRY(lexer_step(l, m->now.at.state, l->byte_of[c], &next));
        if (next != LEXER_DEAD) {
            ++*n;
            only = c;
        }
    }
    for (int b = 0, found = 0; *n == 1 && b < 256; b++) { /* one class can be several bytes */
        if (l->byte_class[b] == only) {
            *byte = (unsigned char)b;
            *n = ++found;
        }
    }
    return ERR_OK;
}

/* Counts the allowed special tokens and the end: *n of them, 2 for more or for an end; *id: the only one. */
static void only_token(const struct grammar_matcher *m, int32_t *id, int *n)
{
    const struct matcher_column *c = &m->columns[m->bases[m->now.at.base].column];
    *n = grammar_matcher_may_end(m) ? 2 : 0;
    for (uint32_t i = c->first; m->now.has_column && c->has_tokens && i < c->first + c->n && *n < 2; i++) {
        uint32_t symbol = m->g->slots[m->items[i].slot];
        int32_t found = (int32_t)SYMBOL_NUMBER(symbol);
        if (SYMBOL_KIND(symbol) == SYMBOL_TOKEN && matcher_waits(m, &m->items[i]) && (*n == 0 || found != *id)) {
            *id = found;
            ++*n;
        }
    }
}

/* Walks over the forced bytes. */
static enum err run_on(struct grammar_matcher *m, struct forced_run *r)
{
    r->n = 0;
    for (;;) {
        unsigned char byte = 0;
        bool taken;
        int n_bytes, n_tokens;
        int32_t id;
        TRY(only_byte(m, &byte, &n_bytes));
        only_token(m, &id, &n_tokens);
        r->is_whole = n_bytes == 0;
        if (n_bytes != 1 || n_tokens > 0 || r->n == MAX_BYTES) {
            return ERR_OK;
        }
        TRY(matcher_take_byte(m, byte, &taken));
        r->bytes[r->n++] = byte;
    }
}

/* Returns the longest token that begins the rest of a run, and its length in *length; -1: a token could continue past
 * the run. */
static int32_t longest(const struct grammar_vocab *v, const struct forced_run *r, uint32_t from, uint32_t *length)
{
    const struct vocab_trie *t = &v->tries[0];
    uint32_t node = 0, end = t->n_nodes, at = from;
    int32_t id = -1;
    while (at < r->n && node < end) {
        const struct vocab_node *here = &t->nodes[node];
        if (here->byte != r->bytes[at]) {
            node = here->end;
            continue;
        }
        at++;
        end = here->end;
        node++;
        if (here->n > 0) {
            id = t->order[here->first];
            *length = at - from;
        }
    }
    bool may_go_on = at == r->n && node < end && !r->is_whole;
    return may_go_on ? -1 : id;
}

/* Checks whether the token's bytes are those of the run from there on. */
static bool says(const struct grammar_vocab *v, const struct forced_run *r, uint32_t from, int32_t id, uint32_t *length)
{
    *length = v->starts[id + 1] - v->starts[id];
    return *length > 0 && *length <= r->n - from && memcmp(v->bytes + v->starts[id], r->bytes + from, *length) == 0;
}

/* Adds the tokens of a run: the tokenizer's, or the longest ones if the tokenizer's text begins differently (with a
 * space). r->is_whole: stays true if all bytes are in tokens. */
static enum err add_run(const struct grammar_vocab *v, struct forced_run *r, int32_t *ids, int32_t max, int32_t *n)
{
    struct token_list list = {0};
    uint32_t at = 0, length;
    int32_t id = r->n > 0 ? longest(v, r, 0, &length) : -1;
    enum err err = id >= 0 ? tokenizer_encode(v->tokenizer,
                                              &(struct tokenizer_text){
                                                  .s = (const char *)r->bytes, .n = r->n, .max_tokens = MAX_BYTES},
                                              &list, NULL)
                           : ERR_OK;
    for (size_t i = 0; id >= 0 && *n < max && err == ERR_OK; i++) {
        if (i < list.n && says(v, r, at, list.ids[i], &length)) {
            id = list.ids[i];
        } else {
            list.n = 0; /* their bytes differ from here on */
            id = longest(v, r, at, &length);
        }
        ids[(*n)++] = id;
        at += length;
        id = at < r->n ? longest(v, r, at, &length) : -1;
    }
    token_list_fini(&list);
    r->is_whole = r->is_whole && at == r->n;
    return err;
}

static enum err guess(struct grammar_matcher *m, int32_t *ids, int32_t max, int32_t *n)
{
    struct forced_run run;
    while (*n < max) {
        bool taken;
        int n_tokens;
        int32_t id;
        TRY(run_on(m, &run));
        TRY(add_run(m->v, &run, ids, max, n));
        only_token(m, &id, &n_tokens);
        if (!run.is_whole || *n == max || n_tokens != 1) {
            return ERR_OK;
        }
        TRY(matcher_take_token(m, id, &taken));
        ids[(*n)++] = id;
    }
    return ERR_OK;
}

enum err grammar_matcher_forced(struct grammar_matcher *m, int32_t *ids, int32_t max, int32_t *n)
{
    const struct matcher_state before = m->now;
    *n = 0;
    pthread_mutex_lock(&m->g->lock);
    m->work = 0;
    enum err err = guess(m, ids, max, n);
    pthread_mutex_unlock(&m->g->lock);
    m->now = before;
    *n = err == ERR_OK ? *n : 0;
    return err;
}
