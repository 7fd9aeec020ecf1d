/* Unigram language model: of all splits of a word into tokens, the one with the highest sum of scores, found by dynamic
 * programming over the bytes [Kudo 2018; Viterbi 1967]. A trie has the tokens that begin at a character. Each step down
 * takes a step of the text's budget, because a file can have tokens of many kilobytes.
 *
 * Text is first rewritten by the vocabulary's map, as in tokenizers, not as in SentencePiece. A grapheme cluster of
 * less than 6 bytes is looked up as a whole, and its shortest match replaces all of it. Otherwise each character is
 * looked up. The supported models are used this way. Then words are split at white space and at U+2581. */
#include "engine/tokenizer/tokenizer_internal.h"

#include <math.h>
#include <utf8proc.h>

enum { MARK = 0x2581 /* SPM_SPACE */, CLUSTER_BYTES = 6, MAX_WORD = 1 << 27 };
static const double UNKNOWN_PENALTY = 10.0; /* [sentencepiece, src/unigram_model.cc: kUnkPenalty] */

/* --- trie ------------------------------------------------------------------------------------------------------- */

/* Sorts tokens by their bytes, by merging runs; ids and scratch have room for n. */
static void sort_by_text(const struct tokenizer *t, int32_t *ids, int32_t *scratch, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t a = from, mid = MIN_OF(from + width, n), b = mid, to = MIN_OF(from + 2 * width, n);
            for (size_t i = from; i < to; i++) {
                bool takes_a = b == to;
                if (a < mid && b < to) {
                    struct gguf_str x = tokenizer_text(t, ids[a]), y = tokenizer_text(t, ids[b]);
                    int order = memcmp(x.data, y.data, MIN_OF(x.len, y.len));
                    takes_a = order < 0 || (order == 0 && x.len <= y.len); /* the first id of duplicates comes first */
                }
                scratch[i] = takes_a ? ids[a++] : ids[b++];
            }
        }
        memcpy(ids, scratch, n * sizeof *ids);
    }
}

/* The sorted tokens below a node; all begin with the same `depth` bytes. */
struct range {
    uint32_t from, to, depth;
};

/* Fills the trie breadth first, so that a node's children are consecutive. nodes and ranges have room for all. */
static void fill_trie(const struct tokenizer *t, const int32_t *ids, size_t n, struct trie_node *nodes,
                      struct range *ranges)
{
    uint32_t n_nodes = 1;
    ranges[0] = (struct range){.to = (uint32_t)n};
    nodes[0] = (struct trie_node){.id = TOKENIZER_NO_TOKEN};
    for (uint32_t at = 0; at < n_nodes; at++) {
        struct range r = ranges[at];
        uint32_t i = r.from;
        for (; i < r.to && t->text[ids[i]].len == r.depth; i++) {
            nodes[at].id = nodes[at].id < 0 ? ids[i] : nodes[at].id;
        }
        nodes[at].children = n_nodes;
        while (i < r.to) {
            unsigned char byte = (unsigned char)tokenizer_text(t, ids[i]).data[r.depth];
            uint32_t from = i;
            while (i < r.to && (unsigned char)tokenizer_text(t, ids[i]).data[r.depth] == byte) {
                i++;
            }
            ranges[n_nodes] = (struct range){.from = from, .to = i, .depth = r.depth + 1};
            nodes[n_nodes++] = (struct trie_node){.id = TOKENIZER_NO_TOKEN, .byte = byte};
        }
        nodes[at].n_children = (uint16_t)(n_nodes - nodes[at].children);
    }
}

static bool is_piece(const struct tokenizer *t, int32_t id)
{
    return tokenizer_is_text(t, id) && t->roles[id] != ROLE_MARK && !added_is_apart(t, id);
}

enum err unigram_build(struct tokenizer *t)
{
    size_t n = 0, n_bytes = 0;
    double lowest = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        if (t->kinds[id] == TOKEN_NORMAL) {
            lowest = n == 0 || t->scores[id] < lowest ? t->scores[id] : lowest;
        }
        if (is_piece(t, id)) {
            n_bytes += t->text[id].len;
            n++;
        }
    }
    t->unknown_score = lowest - UNKNOWN_PENALTY;
    int32_t *ids = mem_alloc(2 * (n + 1) * sizeof *ids, MEM_MODEL);
    t->trie = mem_alloc((n_bytes + 1) * sizeof *t->trie, MEM_MODEL);
    struct range *ranges = mem_alloc((n_bytes + 1) * sizeof *ranges, MEM_MODEL);
    bool ok = ids != NULL && t->trie != NULL && ranges != NULL;
    if (ok) {
        n = 0;
        for (int32_t id = 0; id < t->n_vocab; id++) {
            if (is_piece(t, id)) {
                ids[n++] = id;
            }
        }
        sort_by_text(t, ids, ids + n, n);
        fill_trie(t, ids, n, t->trie, ranges);
    }
    mem_free(ids);
    mem_free(ranges);
    return ok ? ERR_OK : ERR_NOMEM;
}

/* Returns the child for `byte`, or NULL. */
static const struct trie_node *child_of(const struct trie_node *trie, const struct trie_node *node, unsigned char byte)
{
    const struct trie_node *children = trie + node->children;
    size_t from = 0, to = node->n_children;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (children[mid].byte == byte) {
            return &children[mid];
        }
        if (children[mid].byte < byte) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return NULL;
}

/* --- the best cut ----------------------------------------------------------------------------------------------- */

/* The best split of the text that ends at a byte. */
struct best {
    double score; /* -inf: no token ends here */
    uint32_t from;
    int32_t id;
};

struct unigram {
    const struct tokenizer *t;
    struct encoding *to;
    struct buf word;
    struct best *best; /* [cap] */
    size_t cap;
    bool is_start; /* of the text */
};

static enum err reserve(struct unigram *u, size_t n)
{
    if (n > MAX_WORD) {
        return ERR_CONTEXT_LENGTH;
    }
    if (n > u->cap) {
        mem_free(u->best);
        u->cap = MAX_OF(2 * n, (size_t)256);
        u->best = mem_alloc(u->cap * sizeof *u->best, MEM_REQUEST);
        u->cap = u->best != NULL ? u->cap : 0;
    }
    return u->best != NULL ? ERR_OK : ERR_NOMEM;
}

static inline void offer(struct best *b, double score, size_t from, int32_t id)
{
    if (score > b->score) { /* of equal scores the first one stays, which begins further left */
        *b = (struct best){.score = score, .from = (uint32_t)from, .id = id};
    }
}

static enum err find_best(struct unigram *u, const char *s, size_t n)
{
    const struct tokenizer *t = u->t;
    struct best *best = u->best;
    for (size_t i = 0; i <= n; i++) {
        best[i].score = -INFINITY;
    }
    best[0].score = 0;
    uint32_t cp;
    for (size_t at = 0, len; at < n; at += len) {
        len = tokenizer_chr(s + at, n - at, &cp);
        bool has_character = false;
        const struct trie_node *node = t->trie;
        size_t to = at;
        while (to < n && (node = child_of(t->trie, node, (unsigned char)s[to])) != NULL) {
            to++;
            if (node->id >= 0) {
                has_character = has_character || to == at + len;
                double score = t->kinds[node->id] == TOKEN_USER_DEFINED ? 0.0 : (double)t->scores[node->id];
                offer(&best[to], best[at].score + score, at, node->id);
            }
        }
        if (!has_character) {
            offer(&best[at + len], best[at].score + t->unknown_score, at, t->unk);
        }
        TRY(budget_take(&u->to->budget, 1 + to - at));
    }
    return ERR_OK;
}

/* Adjacent unknown characters become one unknown token, or their bytes. */
static enum err emit_unknown(struct unigram *u, const char *s, size_t n)
{
    if (u->t->byte_ids[0] < 0) {
        return encoding_emit(u->to, u->t->unk);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(encoding_emit(u->to, u->t->byte_ids[(unsigned char)s[i]]));
    }
    return ERR_OK;
}

static enum err encode_word(struct unigram *u, const char *s, size_t n)
{
    if (n == 0) {
        return ERR_OK;
    }
    TRY(reserve(u, n + 1));
    TRY(find_best(u, s, n));
    struct best *best = u->best;
    size_t first = n + 1; /* the path is written from the end, last token first, never over a part still needed */
    for (size_t at = n; at > 0;) {
        struct best b = best[at];
        best[--first] = b;
        at = b.from;
    }
    for (size_t i = first; i <= n; i++) {
        if (best[i].id != u->t->unk) {
            TRY(encoding_emit(u->to, best[i].id));
            continue;
        }
        size_t from = best[i].from;
        while (i < n && best[i + 1].id == u->t->unk) {
            i++;
        }
        TRY(emit_unknown(u, s + from, (i < n ? best[i + 1].from : n) - from));
    }
    return ERR_OK;
}

/* --- words ------------------------------------------------------------------------------------------------------ */

static enum err end_word(struct unigram *u)
{
    TRY(buf_ok(&u->word));
    TRY(encode_word(u, u->word.data, u->word.len));
    buf_reset(&u->word);
    return ERR_OK;
}

/* Adds a character after the map: white space ends a word (or is one, if it is kept), U+2581 begins one. */
static enum err add_character(struct unigram *u, uint32_t cp)
{
    const struct tokenizer *t = u->t;
    char bytes[4];
    if (t->drops_spaces && cp <= 0x10FFFF && unicode_class_of(cp) == UNICODE_SPACE) {
        return end_word(u);
    }
    bool is_mark = cp == MARK || cp == ' ';
    if (is_mark) {
        TRY(end_word(u));
    } else if (u->word.len == 0 && t->adds_space_prefix && (t->drops_spaces || u->is_start)) {
        buf_append(&u->word, SPM_SPACE, SPM_SPACE_BYTES);
    }
    u->is_start = false;
    if (is_mark) {
        buf_append(&u->word, SPM_SPACE, SPM_SPACE_BYTES);
    } else {
        buf_append(&u->word, bytes, utf8_encode(cp, bytes));
    }
    return ERR_OK;
}

static enum err add_text(struct unigram *u, const char *s, size_t n)
{
    uint32_t cp;
    for (size_t at = 0; at < n;) {
        at += tokenizer_chr(s + at, n - at, &cp);
        TRY(add_character(u, cp));
    }
    return ERR_OK;
}

/* Returns the length of the grapheme cluster at s[0..n), n >= 1. */
static size_t cluster(const char *s, size_t n)
{
    uint32_t cp, next;
    int32_t state = 0;
    size_t at = tokenizer_chr(s, n, &cp);
    if (cp < 0x80 && cp != '\r' && at < n && (unsigned char)s[at] < 0x80) {
        return at;
    }
    for (size_t len; at < n; at += len, cp = next) {
        len = tokenizer_chr(s + at, n - at, &next);
        if (utf8proc_grapheme_break_stateful((int32_t)cp, (int32_t)next, &state)) {
            break;
        }
    }
    return at;
}

/* A text as the map reads it, piece by piece. */
struct mapping {
    const struct charsmap *map;
    const char *s;
    size_t n, at, end; /* the next piece is in the cluster [at, end); equal: a new cluster begins */
};

/* Returns the next piece, *text[0..*len): the map's replacement of a short cluster, otherwise of a character, otherwise
 * the character. False: the text has ended. */
static bool next_mapped(struct mapping *m, const char **text, size_t *len)
{
    const char *found = NULL;
    uint32_t cp;
    if (m->at == m->n) {
        return false;
    }
    if (m->at == m->end) {
        size_t n = cluster(m->s + m->at, m->n - m->at);
        found = n < CLUSTER_BYTES ? charsmap_find(m->map, m->s + m->at, n) : NULL;
        m->end += n;
    }
    *text = m->s + m->at;
    *len = found != NULL ? m->end - m->at : tokenizer_chr(*text, m->end - m->at, &cp);
    found = found != NULL ? found : charsmap_find(m->map, *text, *len);
    m->at += *len;
    if (found != NULL) {
        *text = found;
        *len = strlen(found);
    }
    return true;
}

enum err unigram_encode(const struct tokenizer *t, struct encoding *to, const char *s, size_t n, bool is_normalized)
{
    struct unigram u = {.t = t, .to = to, .is_start = true};
    struct mapping m = {.map = &t->charsmap, .s = s, .n = n};
    enum err err = ERR_OK;
    buf_init(&u.word, 0, MEM_REQUEST);
    if (is_normalized) {
        err = add_text(&u, s, n);
    }
    while (!is_normalized && err == ERR_OK && next_mapped(&m, &s, &n)) {
        err = add_text(&u, s, n);
    }
    err = err != ERR_OK ? err : end_word(&u);
    buf_fini(&u.word);
    mem_free(u.best);
    return err;
}

/* Applies the map; if white space only separates words, replaces runs of it by one space. */
enum err unigram_normalize(const struct tokenizer *t, const char *s, size_t n, struct buf *out)
{
    struct mapping m = {.map = &t->charsmap, .s = s, .n = n};
    while (next_mapped(&m, &s, &n)) {
        bool is_space = n == 1 && s[0] == ' ';
        if (!is_space || !t->drops_spaces || out->len == 0 || out->data[out->len - 1] != ' ') {
            buf_append(out, s, n);
        }
    }
    return buf_ok(out);
}
