/* Finds the allowed tokens, of which there are two kinds:
 *
 * - Tokens within which a lexeme continues. They depend on the lexer state only. The vocabulary caches the result of
 *   walking its whole trie for all states that tokens do not distinguish, across grammars.
 * - Tokens that continue after the end of a lexeme. From each node where a lexeme can end, the rules determine which
 *   lexemes can begin, and the node's subtree is walked with these. Many nodes end the same lexeme; its column is built
 *   once. */
#include "engine/grammar/grammar_matcher.h"

#include <string.h>

/* Numbers of nodes: the minimum that a cached walk visited, and the maximum where lexemes end; the latter keeps all
 * cached walks below 64 MiB. */
enum { LEAST_KEPT = 500, MAX_KEPT_NODES = 1 << 13 };

static void allow(uint64_t *bits, const struct vocab_trie *t, const struct vocab_node *node)
{
    for (uint32_t i = node->first; i < node->first + node->n; i++) {
        bits[t->order[i] / 64] |= (uint64_t)1 << t->order[i] % 64;
    }
}

/* --- tokens within a lexeme --------------------------------------------------------------------------------------- */

/* Like lexer_step(), but with the state's row, which is looked up once for all children of a node. */
static enum err step_from(struct lexer *l, struct matcher_row *from, unsigned char byte, uint32_t *out)
{
    if (from->row != 0) {
        uint32_t next = l->next[(size_t)(from->row - 1) * (size_t)l->n_classes + l->byte_class[byte]];
        *out = next - 1;
        if (next != 0) {
            return ERR_OK;
        }
    }
    TRY(lexer_step_anew(l, from->state, byte, out));
    from->row = l->states[from->state].next;
    return ERR_OK;
}

/* Walks the trie of w from its root, for tokens that w->bits lacks. */
static enum err walk_trie(struct grammar_matcher *m, uint32_t state, struct vocab_walk *w)
{
    const struct vocab_trie *t = &m->v->tries[w->trie];
    struct lexer *l = &m->g->lexer;
    struct matcher_row *depths = m->rows;
    uint32_t cap = 0, n_visited = 0;
    depths[0] = (struct matcher_row){state, l->states[state].next};
    for (uint32_t i = 0; i < t->n_nodes; n_visited++) {
        const struct vocab_node *node = &t->nodes[i];
        uint32_t next;
        TRY(step_from(l, &depths[node->depth - 1], node->byte, &next));
        if (next == LEXER_DEAD) {
            i = node->end;
            continue;
        }
        const struct lexer_state *s = &l->states[next];
        depths[node->depth] = (struct matcher_row){next, s->next};
        allow(w->bits, t, node);
        if (s->accepts && node->end > i + 1) {
            TRY_MEM(grammar_reserve((void **)&w->nodes, w->n_nodes, 1, &cap, sizeof *w->nodes, MEM_REQUEST));
            w->nodes[w->n_nodes++] = i;
        }
        i++;
    }
    w->n_visited = n_visited;
    return ERR_OK;
}

/* Allows the plain text that the state continues with, and walks the trie of the rest. */
static enum err walk_lexer(struct grammar_matcher *m, uint32_t state, size_t n_words, struct vocab_walk *w)
{
    uint32_t depth;
    TRY(lexer_plain_depth(&m->g->lexer, state, &depth));
    while (w->trie + 1 < VOCAB_TRIES && m->v->tries[w->trie + 1].depth <= depth) {
        w->trie++;
    }
    memcpy(w->bits, m->v->tries[w->trie].plain, n_words * sizeof *w->bits);
    return walk_trie(m, state, w);
}

/* A walk is worth its visited nodes plus the worth of the walks evicted before its last use [GreedyDual: Young 1994,
 * "The k-server dual and loose competitiveness for paging"]. A walk of the whole trie thus outlives many short ones,
 * but not forever. */

/* Returns the cache slots for a walk of the key. */
static struct vocab_walk *group_of(const struct grammar_vocab *v, struct regex_hash key)
{
    return &v->walks[key.a % (VOCAB_MAX_WALKS / VOCAB_WAYS) * VOCAB_WAYS];
}

/* Caches a walk; w receives the evicted one. */
static void keep_walk(struct grammar_vocab *v, struct vocab_walk *w)
{
    pthread_mutex_lock(&v->lock);
    struct vocab_walk *group = group_of(v, w->key), *place = group; /* a free slot is worth 0 */
    for (uint32_t i = 1; i < VOCAB_WAYS; i++) {
        place = group[i].worth < place->worth ? &group[i] : place;
    }
    struct vocab_walk old = *place;
    v->clock = MAX_OF(v->clock, old.worth);
    w->worth = v->clock + w->n_visited;
    *place = *w;
    pthread_mutex_unlock(&v->lock);
    *w = old;
}

/* Copies the cached walk of out->key: its bits to `bits`, its nodes for the caller to free. *found: it was cached. */
static enum err find_walk(struct grammar_vocab *v, size_t n_words, uint64_t *bits, struct vocab_walk *out, bool *found)
{
    const struct regex_hash key = out->key;
    enum err err = ERR_OK;
    *found = false;
    pthread_mutex_lock(&v->lock);
    struct vocab_walk *group = group_of(v, key);
    for (uint32_t i = 0; i < VOCAB_WAYS && !*found; i++) {
        struct vocab_walk *w = &group[i];
        if (w->key.a == key.a && w->key.b == key.b && w->bits != NULL) {
            *found = true;
            w->worth = v->clock + w->n_visited;
            memcpy(bits, w->bits, n_words * sizeof *bits);
            *out = *w;
            out->bits = NULL;
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

/* Finds the tokens that the lexer state alone allows, to bits, and the nodes where a lexeme can end, which the caller
 * frees. */
static enum err walk_state(struct grammar_matcher *m, uint32_t state, uint64_t *bits, struct vocab_walk *out)
{
    struct grammar_vocab *v = m->v;
    size_t n_words = ((size_t)v->n_vocab + 63) / 64;
    bool found;
    *out = (struct vocab_walk){.key = m->g->lexer.states[state].near};
    TRY(find_walk(v, n_words, bits, out, &found));
    if (found) {
        return ERR_OK;
    }
    out->bits = bits;
    enum err err = walk_lexer(m, state, n_words, out);
    out->bits = NULL;
    if (err == ERR_OK && out->n_visited >= LEAST_KEPT && out->n_nodes <= MAX_KEPT_NODES) {
        struct vocab_walk kept = *out;
        kept.bits = mem_alloc(n_words * sizeof *bits, MEM_MODEL);
        kept.nodes = mem_alloc(out->n_nodes * sizeof *kept.nodes, MEM_MODEL);
        if (kept.bits != NULL && kept.nodes != NULL) { /* otherwise it is not cached */
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

/* --- tokens across the end of a lexeme ---------------------------------------------------------------------------- */

/* Returns the position of the lexemes that begin where lexemes end; with keeps also of those that continue. Without
 * keeps it depends only on the ended lexemes. It is often needed again, so it is kept until the mask is complete. */
static enum err begin(struct grammar_matcher *m, struct matcher_place at, bool keeps, struct matcher_place *out)
{
    const struct lexer_state *state = &m->g->lexer.states[at.state];
    bool by_ends = !keeps && state->has_ends;
    uint64_t of = by_ends ? state->ends : at.state;
    size_t i = (of * 0x9e3779b97f4a7c15u >> 40) + at.base * 34u + 2u * keeps + by_ends;
    struct matcher_memo *memo = &m->memo[i % MATCHER_MEMO];
    if (memo->round != m->round || memo->of != of || memo->base != at.base || memo->keeps != keeps ||
        memo->by_ends != by_ends) {
        struct matcher_place to;
        TRY(matcher_begin_column(m, at, keeps, &to));
        *memo = (struct matcher_memo){
            .of = of, .base = at.base, .to = to, .keeps = keeps, .by_ends = by_ends, .round = m->round};
    }
    *out = memo->to;
    return ERR_OK;
}

/* Walks the subtree of a node from the position after the node. */
static enum err walk_below(struct grammar_matcher *m, const struct vocab_trie *t, uint32_t top,
                           struct matcher_place from, uint64_t *bits)
{
    struct lexer *l = &m->g->lexer;
    struct matcher_place *depths = m->depths;
    uint32_t n_visited = 0;
    depths[t->nodes[top].depth] = from;
    for (uint32_t i = top + 1; i < t->nodes[top].end; n_visited++) {
        const struct vocab_node *node = &t->nodes[i];
        struct matcher_place at = depths[node->depth - 1];
        uint32_t next;
        TRY(lexer_step(l, at.state, node->byte, &next));
        if (next == LEXER_DEAD) {
            i = node->end;
            continue;
        }
        at.state = next;
        allow(bits, t, node);
        if (l->states[next].accepts && node->end > i + 1) {
            TRY(begin(m, at, true, &at));
        }
        depths[node->depth] = at;
        i++;
    }
    return matcher_spend(m, n_visited);
}

/* Finds the lexer state at a node; m->path[0..*n) leads to the previous node in depth-first order. */
static enum err state_at(struct grammar_matcher *m, const struct vocab_trie *t, uint32_t node, uint32_t *n,
                         uint32_t *state)
{
    const char *bytes = m->v->bytes + m->v->starts[t->order[t->nodes[node].first]];
    while (*n > 0 && t->nodes[m->path[*n - 1].node].end <= node) {
        --*n;
    }
    uint32_t depth = *n > 0 ? t->nodes[m->path[*n - 1].node].depth : 0;
    *state = *n > 0 ? m->path[*n - 1].state : m->now.at.state;
    for (; depth < t->nodes[node].depth; depth++) {
        TRY(lexer_step(&m->g->lexer, *state, (unsigned char)bytes[depth], state));
    }
    m->path[(*n)++] = (struct matcher_step){node, *state};
    return ERR_OK;
}

static enum err walk(struct grammar_matcher *m, uint64_t *bits)
{
    struct vocab_walk own;
    uint32_t n_path = 0;
    enum err err = walk_state(m, m->now.at.state, bits, &own);
    const struct vocab_trie *t = &m->v->tries[own.trie];
    err = err == ERR_OK ? matcher_spend(m, own.n_visited) : err; /* counted whether cached or not */
    for (uint32_t i = 0; i < own.n_nodes && err == ERR_OK; i++) {
        struct matcher_place at = m->now.at, from;
        err = state_at(m, t, own.nodes[i], &n_path, &at.state);
        err = err == ERR_OK ? begin(m, at, false, &from) : err;
        err = err == ERR_OK ? walk_below(m, t, own.nodes[i], from, bits) : err;
    }
    mem_free(own.nodes);
    return err;
}

/* --- a mask -------------------------------------------------------------------------------------------------------- */

/* Allows the special tokens that the rules wait for, and the end. */
static void allow_tokens(const struct grammar_matcher *m, uint64_t *bits)
{
    const struct matcher_column *c = &m->columns[m->bases[m->now.at.base].column];
    for (uint32_t i = c->first; m->now.has_column && c->has_tokens && i < c->first + c->n; i++) {
        uint32_t symbol = m->g->slots[m->items[i].slot], id = SYMBOL_NUMBER(symbol);
        if (SYMBOL_KIND(symbol) == SYMBOL_TOKEN && matcher_waits(m, &m->items[i]) && id < (uint32_t)m->v->n_vocab) {
            bits[id / 64] |= (uint64_t)1 << id % 64;
        }
    }
    for (int32_t i = 0; grammar_matcher_may_end(m) && i < m->v->n_ends; i++) {
        bits[m->v->ends[i] / 64] |= (uint64_t)1 << m->v->ends[i] % 64;
    }
}

/* If memory is out, the next mask tries again. */
static void *scratch(void *old, size_t n, size_t size)
{
    return old != NULL ? old : mem_zalloc_array(n, size, MEM_REQUEST);
}

static enum err make_scratch(struct grammar_matcher *m)
{
    m->memo = scratch(m->memo, MATCHER_MEMO, sizeof *m->memo);
    m->depths = scratch(m->depths, GRAMMAR_MAX_TOKEN_BYTES + 2, sizeof *m->depths);
    m->rows = scratch(m->rows, GRAMMAR_MAX_TOKEN_BYTES + 2, sizeof *m->rows);
    m->path = scratch(m->path, GRAMMAR_MAX_TOKEN_BYTES + 2, sizeof *m->path);
    return m->memo != NULL && m->depths != NULL && m->rows != NULL && m->path != NULL ? ERR_OK : ERR_NOMEM;
}

enum err grammar_matcher_mask(struct grammar_matcher *m, uint64_t *bits)
{
    size_t n_words = ((size_t)m->v->n_vocab + 63) / 64;
    TRY(make_scratch(m));
    const struct matcher_state before = m->now;
    pthread_mutex_lock(&m->g->lock);
    m->round++;
    m->work = 0;
    enum err err = walk(m, bits);
    m->now = before;
    pthread_mutex_unlock(&m->g->lock);
    TRY(err);
    allow_tokens(m, bits);
    uint64_t any = 0;
    for (size_t i = 0; i < n_words; i++) {
        any |= bits[i];
    }
    return any != 0 ? ERR_OK : ERR_GRAMMAR_DEAD_END;
}
