/* Which tokens may come next. Two kinds do:
 *
 * - those within which a lexeme goes on, which depends on the lexer state alone. The vocabulary keeps what a walk of its whole trie
 *   found, for all states that tokens do not tell apart, whatever grammar they are of;
 * - those that go on behind the end of a lexeme: from the nodes where one may end, the rules say what can begin there, and the
 *   subtree of the node is walked with that. Many nodes end the same lexeme; the column is made once. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

/* Nodes: walks that are kept visit so many; so many where lexemes end, as all walks together are to stay below 64 MiB; of one
 * mask. */
enum { LEAST_KEPT = 1000, MAX_KEPT_NODES = 1 << 14, MAX_VISITED = 1 << 23 };

struct walker {
    struct grammar_matcher *m;
    uint64_t *bits;
    uint32_t n_visited;
};

static void allow(uint64_t *bits, const struct grammar_vocab *v, const struct vocab_node *node)
{
    for (uint32_t i = node->first; i < node->first + node->n; i++) {
        bits[v->order[i] / 64] |= (uint64_t)1 << v->order[i] % 64;
    }
}

/* --- lexer states alone ---------------------------------------------------------------------------------------------- */

/* Walks the trie from its root; w->bits is zero. */
static enum err walk_lexer(struct grammar_matcher *m, uint32_t state, struct vocab_walk *w)
{
    const struct grammar_vocab *v = m->v;
    struct lexer *l = &m->g->lexer;
    uint32_t cap = 0;
    m->depths[0].state = state;
    for (uint32_t i = 0; i < v->n_nodes;) {
        const struct vocab_node *node = &v->nodes[i];
        uint32_t next;
        TRY(lexer_step(l, m->depths[node->depth - 1].state, node->byte, &next));
        w->n_visited++;
        if (next == LEXER_DEAD) {
            i = node->end;
            continue;
        }
        m->depths[node->depth].state = next;
        allow(w->bits, v, node);
        if (l->states[next].accepts && node->end > i + 1) {
            if (!grammar_reserve((void **)&w->nodes, w->n_nodes, 1, &cap, sizeof *w->nodes, MEM_REQUEST)) {
                return ERR_NOMEM;
            }
            w->nodes[w->n_nodes++] = i;
        }
        i++;
    }
    return ERR_OK;
}

/* Puts a walk where one was before. */
static void keep_walk(struct grammar_vocab *v, struct vocab_walk *w)
{
    pthread_mutex_lock(&v->lock);
    struct vocab_walk *place = &v->walks[v->n_walks++ % VOCAB_MAX_WALKS];
    struct vocab_walk old = *place;
    *place = *w;
    pthread_mutex_unlock(&v->lock);
    *w = old;
}

/* A copy of a walk that is kept: its bits in `bits`, its nodes the caller's. *found: there is one. */
static enum err find_walk(struct grammar_vocab *v, struct regex_hash key, size_t n_words, uint64_t *bits,
                          struct vocab_walk *out, bool *found)
{
    enum err err = ERR_OK;
    *found = false;
    pthread_mutex_lock(&v->lock);
    for (uint32_t i = 0; i < MIN_OF(v->n_walks, (uint32_t)VOCAB_MAX_WALKS) && !*found; i++) {
        const struct vocab_walk *w = &v->walks[i];
        if (w->key.a == key.a && w->key.b == key.b && w->bits != NULL) {
            *found = true;
            memcpy(bits, w->bits, n_words * sizeof *bits);
            out->n_nodes = w->n_nodes;
            out->nodes = mem_alloc(w->n_nodes * sizeof *out->nodes, MEM_REQUEST);
            if (out->nodes != NULL && w->n_nodes > 0) {
                memcpy(out->nodes, w->nodes, w->n_nodes * sizeof *out->nodes);
            }
            err = out->nodes != NULL ? ERR_OK : ERR_NOMEM;
        }
    }
    pthread_mutex_unlock(&v->lock);
    return err;
}

/* What the lexer state allows by itself, to bits, and the nodes where a lexeme may end, the caller's to free. */
static enum err walk_state(struct grammar_matcher *m, uint32_t state, uint64_t *bits, struct vocab_walk *out)
{
    struct grammar_vocab *v = m->v;
    size_t n_words = ((size_t)v->n_vocab + 63) / 64;
    bool found;
    struct regex_hash key = m->g->lexer.states[state].near;
    *out = (struct vocab_walk){.key = key};
    TRY(find_walk(v, key, n_words, bits, out, &found));
    if (found) {
        return ERR_OK;
    }
    memset(bits, 0, n_words * sizeof *bits);
    out->bits = bits;
    enum err err = walk_lexer(m, state, out);
    out->bits = NULL;
    if (err == ERR_OK && out->n_visited >= LEAST_KEPT && out->n_nodes <= MAX_KEPT_NODES) {
        struct vocab_walk kept = {.key = key, .n_nodes = out->n_nodes};
        kept.bits = mem_alloc(n_words * sizeof *bits, MEM_MODEL);
        kept.nodes = mem_alloc(out->n_nodes * sizeof *kept.nodes, MEM_MODEL);
        if (kept.bits != NULL && kept.nodes != NULL) { /* else it is found again another time */
            memcpy(kept.bits, bits, n_words * sizeof *bits);
            if (out->n_nodes > 0) {
                memcpy(kept.nodes, out->nodes, out->n_nodes * sizeof *kept.nodes);
            }
            keep_walk(v, &kept);
        }
        mem_free(kept.bits);
        mem_free(kept.nodes);
    }
    return err;
}

/* --- behind the end of a lexeme ---------------------------------------------------------------------------------------- */

/* The place of what begins where lexemes end, of which much is asked again. */
static enum err begin(struct walker *w, struct matcher_place at, struct matcher_place *out)
{
    struct grammar_matcher *m = w->m;
    struct matcher_memo *memo = &m->memo[(at.state * 31 + at.base * 17) % MATCHER_MEMO];
    if (memo->round != m->round || memo->from.state != at.state || memo->from.base != at.base) {
        struct matcher_place to;
        TRY(matcher_begin_column(m, at, false, &to));
        *memo = (struct matcher_memo){.from = at, .to = to, .round = m->round};
    }
    *out = memo->to;
    return ERR_OK;
}

/* Walks what is below a node from a place behind it. */
static enum err walk_below(struct walker *w, uint32_t top, struct matcher_place from)
{
    struct grammar_matcher *m = w->m;
    const struct grammar_vocab *v = m->v;
    struct lexer *l = &m->g->lexer;
    struct matcher_place *depths = m->depths;
    depths[v->nodes[top].depth] = from;
    for (uint32_t i = top + 1; i < v->nodes[top].end;) {
        const struct vocab_node *node = &v->nodes[i];
        struct matcher_place at = depths[node->depth - 1];
        uint32_t next;
        TRY(lexer_step(l, at.state, node->byte, &next));
        if (++w->n_visited > MAX_VISITED) {
            return ERR_GRAMMAR_LIMIT;
        }
        if (next == LEXER_DEAD) {
            i = node->end;
            continue;
        }
        at.state = next;
        allow(w->bits, v, node);
        if (l->states[next].accepts && node->end > i + 1) {
            TRY(matcher_begin_column(m, at, true, &at)); /* and what goes on */
        }
        depths[node->depth] = at;
        i++;
    }
    return ERR_OK;
}

/* The lexer state at a node, from the root of the trie. */
static enum err state_at(struct grammar_matcher *m, uint32_t node, uint32_t *state)
{
    const struct grammar_vocab *v = m->v;
    const char *bytes = v->bytes + v->starts[v->order[v->nodes[node].first]];
    for (uint32_t i = 0; i < v->nodes[node].depth; i++) {
        TRY(lexer_step(&m->g->lexer, *state, (unsigned char)bytes[i], state));
    }
    return ERR_OK;
}

static enum err walk(struct walker *w)
{
    struct grammar_matcher *m = w->m;
    struct vocab_walk own;
    enum err err = walk_state(m, m->at.state, w->bits, &own);
    for (uint32_t i = 0; i < own.n_nodes && err == ERR_OK; i++) {
        struct matcher_place at = m->at, from;
        err = state_at(m, own.nodes[i], &at.state);
        err = err == ERR_OK ? begin(w, at, &from) : err;
        struct matcher_mark here = matcher_mark(m);
        err = err == ERR_OK ? walk_below(w, own.nodes[i], from) : err;
        matcher_restore(m, &here); /* what begin made stays */
    }
    mem_free(own.nodes);
    return err;
}

/* --- a mask -------------------------------------------------------------------------------------------------------- */

/* Special tokens that the rules wait for, and the end. */
static void allow_tokens(const struct grammar_matcher *m, uint64_t *bits)
{
    const struct matcher_column *c = &m->columns[m->bases[m->at.base].column];
    for (uint32_t i = c->first; m->has_column && c->has_tokens && i < c->first + c->n; i++) {
        uint32_t symbol = m->g->slots[m->items[i].slot], id = SYMBOL_NUMBER(symbol);
        if (SYMBOL_KIND(symbol) == SYMBOL_TOKEN && matcher_waits(m, &m->items[i]) && id < (uint32_t)m->v->n_vocab) {
            bits[id / 64] |= (uint64_t)1 << id % 64;
        }
    }
    for (int32_t i = 0; grammar_matcher_may_end(m) && i < m->v->n_ends; i++) {
        bits[m->v->ends[i] / 64] |= (uint64_t)1 << m->v->ends[i] % 64;
    }
}

static enum err make_scratch(struct grammar_matcher *m)
{
    if (m->memo == NULL) {
        m->memo = mem_zalloc_array(MATCHER_MEMO, sizeof *m->memo, MEM_REQUEST);
        m->depths = mem_zalloc_array(GRAMMAR_MAX_TOKEN_BYTES + 2, sizeof *m->depths, MEM_REQUEST);
    }
    return m->memo != NULL && m->depths != NULL ? ERR_OK : ERR_NOMEM;
}

enum err grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits)
{
    struct walker w = {.m = m, .bits = bits};
    size_t n_words = ((size_t)m->v->n_vocab + 63) / 64;
    TRY(make_scratch(m));
    struct matcher_mark before = matcher_mark(m);
    pthread_mutex_lock(&m->g->lock);
    m->round++;
    enum err err = walk(&w);
    matcher_restore(m, &before);
    pthread_mutex_unlock(&m->g->lock);
    TRY(err);
    allow_tokens(m, bits);
    uint64_t any = 0;
    for (size_t i = 0; i < n_words; i++) {
        any |= bits[i];
    }
    return any != 0 ? ERR_OK : ERR_GRAMMAR_DEAD_END;
}
