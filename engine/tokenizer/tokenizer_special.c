/* Finds special tokens in text in linear time, however they overlap: an Aho-Corasick automaton [Aho 1975] over the
 * reversed tokens. It reads the text from its end to its start; its state at a byte gives the longest token that starts
 * there. A forward pass then takes the leftmost, longest tokens. */
#include "engine/tokenizer/tokenizer_internal.h"

static uint64_t edge_hash(uint32_t node, unsigned char byte)
{
    return (((uint64_t)node << 8 | byte) * 0x9E3779B97F4A7C15u) >> 32;
}

struct edge_key {
    const struct special_node *nodes;
    uint32_t parent;
    unsigned char byte;
};

static ALWAYS_INLINE bool is_edge(const void *key, uint32_t child)
{
    const struct edge_key *k = key;
    return k->nodes[child].parent == k->parent && k->nodes[child].byte == k->byte;
}

/* Returns the node's child by this byte, or TABLE_NONE. Node 0, the root, is never a child. */
static uint32_t child_of(const struct special_set *s, uint32_t node, unsigned char byte)
{
    struct edge_key key = {s->nodes, node, byte};
    return table_find(&s->edges, edge_hash(node, byte), is_edge, &key);
}

/* Returns the state after `byte` in `state`. Amortized constant: each step back was preceded by a step forward. */
static uint32_t step(const struct special_set *s, uint32_t state, unsigned char byte)
{
    for (; state != 0; state = s->nodes[state].fail) {
        uint32_t child = child_of(s, state, byte);
        if (child != TABLE_NONE) {
            return child;
        }
    }
    return s->from_root[byte];
}

static void add_token(struct special_set *s, struct gguf_str text, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = text.len; i > 0; i--) {
        unsigned char byte = (unsigned char)text.data[i - 1];
        uint32_t child = child_of(s, node, byte);
        if (child == TABLE_NONE) {
            child = s->n_nodes++;
            s->nodes[child] = (struct special_node){.parent = node, .byte = byte, .id = TOKENIZER_NO_TOKEN};
            s->nodes[child].depth = s->nodes[node].depth + 1;
            if (node == 0) {
                s->from_root[byte] = child;
            }
            table_add(&s->edges, edge_hash(node, byte), child);
        }
        node = child;
    }
    if (s->nodes[node].id < 0) { /* the first id of duplicates counts */
        s->nodes[node].id = id;
    }
}

/* Sets `fail` (the longest other suffix that is a state) and inherits ids: a state without its own token ends with the
 * longest one of its suffixes. `order` has the nodes by depth, so suffixes come first. */
static void link_suffixes(struct special_set *s, const uint32_t *order)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct special_node *n = &s->nodes[order[i]];
        if (n->depth > 1) {
            n->fail = step(s, s->nodes[n->parent].fail, n->byte);
        }
        if (n->depth > 0 && n->id < 0) {
            n->id = s->nodes[n->fail].id;
        }
    }
}

/* Sorts the nodes by depth into order[n_nodes], by counting; first[max_depth + 2] is zeroed scratch. */
static void sort_by_depth(const struct special_set *s, uint32_t *order, uint32_t *first, uint32_t max_depth)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        first[s->nodes[i].depth + 1]++;
    }
    for (uint32_t d = 0; d <= max_depth; d++) {
        first[d + 1] += first[d];
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        order[first[s->nodes[i].depth]++] = i;
    }
}

/* Returns the text to find for a token that is a member; len 0: not a member. */
static struct gguf_str member(const struct tokenizer *t, int32_t id, bool of_marks, bool is_normalized)
{
    unsigned char role = t->roles[id];
    bool is_for_normalized = t->normal != NULL && (t->rules[id] & TOKEN_NORMALIZED) != 0;
    bool is_member = of_marks ? role == ROLE_MARK : role == ROLE_TEXT || role == ROLE_WORD;
    if (!is_member || is_for_normalized != is_normalized) {
        return (struct gguf_str){NULL, 0};
    }
    return is_normalized ? (struct gguf_str){t->normal_texts + t->normal[id].at, t->normal[id].len}
                         : tokenizer_text(t, id);
}

enum err special_build(struct special_set *s, const struct tokenizer *t, bool of_marks, bool is_normalized)
{
    size_t bytes = 0, longest = 0;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t len = member(t, id, of_marks, is_normalized).len;
        bytes += len;
        longest = MAX_OF(longest, len);
    }
    if (bytes == 0) {
        return ERR_OK;
    }
    if (bytes > TOKENIZER_MAX_SPECIAL_BYTES) {
        return ERR_BAD_VOCAB;
    }
    s->nodes = mem_alloc((bytes + 1) * sizeof *s->nodes, MEM_MODEL);
    uint32_t *order = mem_alloc((bytes + 1) * sizeof *order, MEM_MODEL);
    uint32_t *first = mem_zalloc_array(longest + 2, sizeof *first, MEM_MODEL);
    bool ok = table_reserve(&s->edges, bytes, NULL, NULL, MEM_MODEL) == ERR_OK && s->nodes != NULL && order != NULL &&
              first != NULL;
    if (ok) {
        s->nodes[0] = (struct special_node){.id = TOKENIZER_NO_TOKEN};
        s->n_nodes = 1;
        for (int32_t id = 0; id < t->n_vocab; id++) {
            struct gguf_str text = member(t, id, of_marks, is_normalized);
            if (text.len > 0) {
                add_token(s, text, id);
            }
        }
        sort_by_depth(s, order, first, (uint32_t)longest);
        link_suffixes(s, order);
    }
    mem_free(order);
    mem_free(first);
    return ok ? ERR_OK : ERR_NOMEM;
}

void special_fini(struct special_set *s)
{
    table_fini(&s->edges);
    mem_free(s->nodes);
    *s = (struct special_set){0};
}

static enum err add_match(struct special_matches *m, size_t from, int32_t id)
{
    TRY(mem_grow(&m->at, m->n, &m->cap, sizeof *m->at, MEM_REQUEST));
    m->at[m->n++] = (struct special_match){.from = from, .id = id};
    return ERR_OK;
}

/* Moves down from i to a position after the last byte of some token, or slightly above it; a and b mark the ends of
 * tokens. This skips most text. */
static size_t skip(const uint32_t *a, const uint32_t *b, const char *text, size_t i)
{
    for (; i >= 4; i -= 4) {
        const unsigned char *s = (const unsigned char *)text + i - 4;
        if ((a[s[0]] | a[s[1]] | a[s[2]] | a[s[3]] | b[s[0]] | b[s[1]] | b[s[2]] | b[s[3]]) != 0) {
            break;
        }
    }
    return i;
}

enum err special_find(const struct tokenizer *t, const struct special_search *in, struct special_matches *out)
{
    const struct special_set *marks = in->is_normalized ? &t->normal_marks : &t->marks;
    const struct special_set *user = in->is_normalized ? &t->normal_user : &t->user_defined;
    const struct token_text *texts = in->is_normalized ? t->normal : t->text;
    if (!(in->parses_marks && marks->n_nodes > 0) && user->n_nodes == 0) {
        return ERR_OK;
    }
    uint32_t in_marks = 0, in_user = 0;
    size_t n_plain = in->n_plain;
    const uint32_t *other = in->parses_marks ? marks->from_root : user->from_root;
    for (size_t i = skip(user->from_root, other, in->text, in->n); i-- > 0;) {
        unsigned char byte = (unsigned char)in->text[i];
        while (n_plain > 0 && i < in->plain[n_plain - 1].from) {
            n_plain--;
        }
        bool is_plain = n_plain > 0 && i < in->plain[n_plain - 1].to;
        in_marks = in->parses_marks && !is_plain ? step(marks, in_marks, byte) : 0;
        in_user = step(user, in_user, byte);
        if ((in_marks | in_user) == 0) {
            i = skip(user->from_root, other, in->text, i);
            continue;
        }
        int32_t id = in_marks != 0 ? marks->nodes[in_marks].id : TOKENIZER_NO_TOKEN;
        int32_t text_id = in_user != 0 ? user->nodes[in_user].id : TOKENIZER_NO_TOKEN;
        if (text_id >= 0 && (id < 0 || texts[text_id].len > texts[id].len)) {
            id = text_id;
        }
        if (id >= 0) {
            TRY(add_match(out, i, id));
        }
    }
    return ERR_OK;
}
