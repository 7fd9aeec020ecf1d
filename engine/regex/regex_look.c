/* Converts patterns with look-ahead, word boundaries, and ^ and $ within repeats to expressions.
 *
 * Here the strings of a part depend on the text after it and on the character before it. So a part is read together
 * with its continuation, from right to left. From the strings that can follow, it computes the strings from the part's
 * begin to the end of the whole string. A look-ahead is then an intersection with these, or a difference. If the
 * character before matters, there are several such expressions (enum before). A repeat without a maximum whose body is
 * not a plain expression becomes a loop (regex_loop.c). */
#include "engine/regex/regex_parse_internal.h"

#include "engine/base/mem.h"
#include "engine/regex/regex_internal.h"

#include <string.h>

/* The context before a position. STILL: nothing was consumed since the innermost repeat's current iteration began,
 * which prevents endless empty iterations [ECMA-262, RepeatMatcher]. */
enum before { STILL_BEGIN, STILL_WORD, STILL_OTHER, MOVED_WORD, MOVED_OTHER, N_BEFORE };

/* The strings that can follow a position, by its context. */
struct rest {
    regex_id by[N_BEFORE];
};

static struct rest same_rest(regex_id r) { return (struct rest){{r, r, r, r, r}}; }

/* The strings of a plain part by their last character; `some`: all but the empty one. */
struct ends {
    regex_id word, other, some;
};

/* A node that is being read. */
struct frame {
    size_t node;
    size_t child;        /* the node after the next child's; of repeats: the same child again */
    uint32_t times;      /* of a repeat: iterations left */
    struct rest follows; /* the continuation after the node */
    struct rest sum;     /* what was read so far: a sequence's rest, a union, a repeat */
    regex_id loop[2];    /* of a repeat: for MOVED_WORD and MOVED_OTHER */
    bool is_looping, is_new[2];
};

/* A cached result of begin_with. */
enum { N_BEGUN = 16 };
struct begun {
    regex_id of, is;
};

struct looker {
    struct regex_set *s;
    struct regex_tree *tree;
    struct ends *ends;         /* [tree->n] of plain nodes */
    struct regex_hash *hashes; /* [tree->n] of subtrees */
    struct frame *frames;
    size_t n_frames;
    struct rest *choices; /* [tree->n] a stack: the results of alternatives of unions that are not complete */
    size_t n_choices;
    struct rest read; /* result of the node that was read last */
    struct begun begun[N_BEGUN][2];
    regex_id any;  /* any characters */
    regex_id word; /* a word character, then anything */
};

/* --- plain parts ---------------------------------------------------------------------------------------------------- */

static const uint64_t word_bits[4] = {(uint64_t)0x3ff << 48, 0x07fffffe87fffffe, 0, 0};

/* Splits an expression of single characters. Single-byte characters are word characters or not; longer characters are
 * not. */
static struct ends atom_ends(struct regex_set *s, regex_id atom)
{
    uint64_t in[4] = {0}, out[4] = {0};
    size_t from = s->parts.n;
    for (regex_id rest = atom; rest != REGEX_NONE && s->err == ERR_OK;) {
        regex_id part = regex_take_part(s, REGEX_K_OR, &rest);
        if (s->nodes[part].kind != REGEX_K_CLASS) {
            regex_push_parts(s, REGEX_K_OR, part == REGEX_EMPTY ? REGEX_NONE : part);
            continue;
        }
        const uint64_t *bits = s->classes[s->nodes[part].a].bits;
        for (int i = 0; i < 4; i++) {
            in[i] |= bits[i] & word_bits[i];
            out[i] |= bits[i] & ~word_bits[i];
        }
    }
    regex_id wide = regex_join_parts(s, REGEX_K_OR, from);
    return (struct ends){regex_byte_class(s, in), regex_or(s, regex_byte_class(s, out), wide), REGEX_NONE};
}

/* Concatenates from the right. */
static struct ends sequence_ends(const struct looker *l, size_t i, regex_id *all)
{
    struct regex_set *s = l->s;
    struct ends e = {REGEX_NONE, REGEX_NONE, REGEX_NONE};
    size_t child = i;
    *all = REGEX_EMPTY;
    for (uint32_t k = 0; k < l->tree->nodes[i].n; k++) {
        const struct regex_tree_node *c = &l->tree->nodes[child - 1];
        const struct ends *of = &l->ends[child - 1];
        bool may_end = regex_is_nullable(s, *all);
        e.word = regex_or(s, regex_concat(s, c->id, e.word), may_end ? of->word : REGEX_NONE);
        e.other = regex_or(s, regex_concat(s, c->id, e.other), may_end ? of->other : REGEX_NONE);
        *all = regex_concat(s, c->id, *all);
        child = c->first;
    }
    return e;
}

/* Builds the union in one step, because one that grows one by one takes quadratic time. */
static struct ends either_ends(const struct looker *l, size_t i, regex_id *all)
{
    struct regex_set *s = l->s;
    regex_id found[3];
    for (int which = 0; which < 3; which++) {
        size_t child = i, from = s->parts.n;
        for (uint32_t k = 0; k < l->tree->nodes[i].n; k++) {
            const struct ends *of = &l->ends[child - 1];
            const regex_id ids[] = {of->word, of->other, l->tree->nodes[child - 1].id};
            regex_push_parts(s, REGEX_K_OR, ids[which]);
            child = l->tree->nodes[child - 1].first;
        }
        found[which] = regex_join_parts(s, REGEX_K_OR, from);
    }
    *all = found[2];
    return (struct ends){found[0], found[1], REGEX_NONE};
}

/* Computes a plain node's expression and ends from its children's. */
static void find_ends(struct looker *l, size_t i)
{
    struct regex_set *s = l->s;
    struct regex_tree_node *t = &l->tree->nodes[i];
    struct ends *e = &l->ends[i];
    if (t->kind == REGEX_T_SEQUENCE) {
        *e = sequence_ends(l, i, &t->id);
    } else if (t->kind == REGEX_T_EITHER) {
        *e = either_ends(l, i, &t->id);
    } else if (t->kind == REGEX_T_REPEAT) {
        regex_id child = t[-1].id;
        uint32_t max = t->max == REGEX_UNBOUNDED ? t->max : t->max - 1;
        regex_id before = regex_repeat(s, child, t->min > 0 ? t->min - 1 : 0, max);
        e->word = regex_concat(s, before, l->ends[i - 1].word);
        e->other = regex_concat(s, before, l->ends[i - 1].other);
        t->id = regex_repeat(s, child, t->min, t->max);
    } else {
        *e = atom_ends(s, t->id);
    }
    e->some = !regex_is_nullable(s, t->id) ? t->id : regex_or(s, e->word, e->other);
}

/* A subtree's hash covers all that its result depends on, except the continuation. */
static void find_hash(struct looker *l, size_t i)
{
    const struct regex_tree_node *t = &l->tree->nodes[i];
    struct regex_hash h = t->kind == REGEX_T_ATOM ? regex_hash(l->s, t->id) : (struct regex_hash){0, 0};
    const uint64_t own[] = {t->kind, t->n, (uint64_t)t->min << 32 | t->max, h.a, h.b};
    h = regex_hash_words(own, ARRAY_LEN(own));
    size_t child = i;
    for (uint32_t k = 0; k < t->n; k++) {
        const struct regex_hash c = l->hashes[child - 1];
        const uint64_t words[] = {h.a, h.b, c.a, c.b};
        h = regex_hash_words(words, ARRAY_LEN(words));
        child = l->tree->nodes[child - 1].first;
    }
    l->hashes[i] = h;
}

static bool are_same(const regex_id *ids, size_t n)
{
    bool same = true;
    for (size_t i = 1; i < n; i++) {
        same = same && ids[i] == ids[0];
    }
    return same;
}

/* Reads a plain node and its continuation. */
static struct rest read_plain(struct looker *l, size_t i, const struct rest *follows)
{
    struct regex_set *s = l->s;
    struct rest out;
    regex_id id = l->tree->nodes[i].id, word = follows->by[MOVED_WORD], other = follows->by[MOVED_OTHER], moved;
    if (are_same(follows->by, N_BEFORE)) {
        moved = regex_concat(s, word == l->any || word == REGEX_ALL ? regex_cut_end(s, id) : id, word);
        return same_rest(moved);
    }
    const struct ends *e = &l->ends[i];
    moved = word == other ? regex_concat(s, e->some, word)
                          : regex_or(s, regex_concat(s, e->word, word), regex_concat(s, e->other, other));
    for (int b = 0; b < N_BEFORE; b++) {
        out.by[b] = regex_is_nullable(s, id) ? regex_or(s, moved, follows->by[b]) : moved;
    }
    return out;
}

/* --- assertions ----------------------------------------------------------------------------------------------------- */

static bool is_word(int before) { return before == STILL_WORD || before == MOVED_WORD; }

/* Returns the strings of r that begin with a word character, or those that do not. Avoids an intersection if possible,
 * so that the result can be plain. `depth`: maximum depth of the parts to examine. */
static regex_id begin_with(struct looker *l, regex_id r, bool word, int depth)
{
    enum { MAX_PARTS = 64 };
    struct regex_set *s = l->s;
    const struct regex_node n = s->nodes[r];
    regex_id begun, out = REGEX_NONE;
    size_t parts = 1;
    if (r <= REGEX_EMPTY) {
        return word ? REGEX_NONE : r;
    }
    for (regex_id at = r; s->nodes[at].kind == REGEX_K_OR; at = s->nodes[at].b) {
        parts++;
    }
    if (n.kind == REGEX_K_CLASS) {
        struct ends e = atom_ends(s, r);
        return word ? e.word : e.other;
    }
    if (depth > 0 && n.kind == REGEX_K_CONCAT && !s->nodes[n.a].is_nullable) {
        return regex_concat(s, begin_with(l, n.a, word, depth - 1), n.b);
    }
    const struct regex_node first = n.kind == REGEX_K_CONCAT ? s->nodes[n.a] : n;
    if (depth > 0 && first.kind == REGEX_K_REPEAT && !s->nodes[first.a].is_nullable) {
        regex_id rest = n.kind == REGEX_K_CONCAT ? n.b : REGEX_EMPTY;
        uint32_t max = first.max == REGEX_UNBOUNDED ? first.max : first.max - 1;
        begun = regex_repeat(s, first.a, first.min > 0 ? first.min - 1 : 0, max);
        begun = regex_concat(s, begin_with(l, first.a, word, depth - 1), regex_concat(s, begun, rest));
        return first.min > 0 ? begun : regex_or(s, begun, begin_with(l, rest, word, depth - 1));
    }
    if (depth == 0 || n.kind != REGEX_K_OR || parts > MAX_PARTS) {
        return regex_and(s, r, word ? l->word : regex_not(s, l->word));
    }
    while (r != REGEX_NONE) {
        regex_id part = regex_take_part(s, REGEX_K_OR, &r);
        out = regex_or(s, out, begin_with(l, part, word, depth - 1));
    }
    return out;
}

/* Like begin_with(), but cached, because one continuation follows several positions. */
static regex_id begin_once(struct looker *l, regex_id r, bool word)
{
    enum { DEPTH = 6 };
    struct begun *b = &l->begun[r % N_BEGUN][word];
    if (b->of != r || r == REGEX_NONE) {
        *b = (struct begun){r, begin_with(l, r, word, DEPTH)};
    }
    return b->is;
}

/* Reads ^, $, \b, \B. */
static struct rest read_assertion(struct looker *l, const struct regex_tree_node *t, const struct rest *follows)
{
    struct regex_set *s = l->s;
    struct rest out = *follows;
    for (int b = 0; b < N_BEFORE; b++) {
        if (t->kind == REGEX_T_BEGIN) {
            out.by[b] = b == STILL_BEGIN ? out.by[b] : REGEX_NONE;
        } else if (t->kind == REGEX_T_END) {
            out.by[b] = regex_is_nullable(s, out.by[b]) ? REGEX_EMPTY : REGEX_NONE;
        } else {
            bool wants_word = is_word(b) == (t->min == 1);
            out.by[b] = begin_once(l, out.by[b], wants_word);
        }
    }
    return out;
}

/* --- repeats -------------------------------------------------------------------------------------------------------- */

/* Begins the loop of a repeat's body that is followed by f->sum. */
static struct rest begin_loop(struct looker *l, struct frame *f)
{
    struct regex_set *s = l->s;
    const struct regex_hash body = l->hashes[f->node];
    regex_id word = f->sum.by[MOVED_WORD], other = f->sum.by[MOVED_OTHER];
    bool is_one = word == other && !l->tree->nodes[f->node].has_edge;
    for (int i = 0; i < 2 && !(i == 1 && is_one); i++) {
        struct regex_hash a = regex_hash(s, word), b = regex_hash(s, other);
        const uint64_t words[] = {body.a, body.b, a.a, a.b, b.a, b.b, is_one ? 2 : (uint64_t)i};
        f->loop[i] =
            regex_loop(s, regex_hash_words(words, ARRAY_LEN(words)), regex_is_nullable(s, i == 0 ? word : other),
                       regex_is_whole(s, word) && regex_is_whole(s, other), &f->is_new[i]);
    }
    f->loop[1] = is_one ? f->loop[0] : f->loop[1];
    f->is_new[1] = !is_one && f->is_new[1];
    f->is_looping = true;
    return (struct rest){{REGEX_NONE, REGEX_NONE, REGEX_NONE, f->loop[0], f->loop[1]}};
}

/* After the body was read with the loop as continuation: defines the loop, and returns the repeat. */
static void end_loop(struct looker *l, struct frame *f)
{
    static const int still[N_BEFORE] = {STILL_BEGIN, STILL_WORD, STILL_OTHER, STILL_WORD, STILL_OTHER};
    bool is_free = are_same(f->sum.by, N_BEFORE) && are_same(l->read.by, MOVED_WORD); /* independent of the context */
    for (int b = 0; b < N_BEFORE; b++) {
        f->sum.by[b] = regex_or(l->s, f->sum.by[b], l->read.by[still[b]]);
    }
    for (int i = 0; i < 2; i++) {
        if (f->is_new[i]) {
            regex_loop_is(l->s, f->loop[i], f->sum.by[MOVED_WORD + i]);
        }
        f->sum.by[MOVED_WORD + i] = f->loop[i];
    }
    for (int b = 0; b < N_BEFORE && is_free; b++) {
        f->sum.by[b] = f->loop[0];
    }
    f->is_looping = false;
}

/* Adds the body's result, if it was read, and returns the continuation of the next iteration; false: it was the last
 * one. */
static bool next_time(struct looker *l, struct frame *f, bool has_read, struct rest *follows)
{
    const struct regex_tree_node *t = &l->tree->nodes[f->node];
    uint32_t most = t->max == REGEX_UNBOUNDED ? t->min : t->max;
    struct rest old = f->sum;
    if (has_read && f->is_looping) {
        end_loop(l, f);
    } else if (has_read) {
        bool is_optional = f->times-- > t->min; /* the last iterations, which are read first */
        for (int b = 0; b < N_BEFORE; b++) {
            f->sum.by[b] = is_optional ? regex_or(l->s, f->follows.by[b], l->read.by[b]) : l->read.by[b];
        }
        if (memcmp(&old, &f->sum, sizeof old) == 0) { /* more iterations change nothing */
            f->times = is_optional ? t->min : 0;
        }
    } else {
        f->times = most;
        if (t->max == REGEX_UNBOUNDED) {
            *follows = begin_loop(l, f);
            return true;
        }
    }
    *follows = f->sum;
    return f->times > 0 && l->s->err == ERR_OK;
}

/* --- the tree ------------------------------------------------------------------------------------------------------- */

/* Adds the result of a choice; after the last one, f->sum is the union of all. */
static bool next_choice(struct looker *l, struct frame *f, bool has_read)
{
    const struct regex_tree_node *t = &l->tree->nodes[f->node];
    if (has_read) {
        l->choices[l->n_choices++] = l->read;
    }
    if (f->child > t->first) {
        return true;
    }
    l->n_choices -= t->n;
    for (int b = 0; b < N_BEFORE; b++) {
        size_t from = l->s->parts.n;
        for (uint32_t k = 0; k < t->n; k++) {
            regex_push_parts(l->s, REGEX_K_OR, l->choices[l->n_choices + k].by[b]);
        }
        f->sum.by[b] = regex_join_parts(l->s, REGEX_K_OR, from);
    }
    return false;
}

/* Adds the result of a child to f; has_read: there was one. Returns whether another child must be read. */
static bool next_child(struct looker *l, struct frame *f, bool has_read, struct rest *follows)
{
    struct regex_set *s = l->s;
    const struct regex_tree_node *t = &l->tree->nodes[f->node];
    switch ((enum regex_tree_kind)t->kind) {
    case REGEX_T_REPEAT:
        return next_time(l, f, has_read, follows);
    case REGEX_T_SEQUENCE:
        f->sum = has_read ? l->read : f->sum;
        *follows = f->sum;
        return f->child > t->first;
    case REGEX_T_EITHER:
        *follows = f->follows;
        return next_choice(l, f, has_read);
    default: /* AHEAD */
        for (int b = 0; b < N_BEFORE && has_read; b++) {
            regex_id ahead = t->min == 1 ? regex_not(s, l->read.by[b]) : l->read.by[b];
            f->sum.by[b] = regex_and(s, f->follows.by[b], ahead);
        }
        *follows = same_rest(REGEX_ALL);
        return !has_read;
    }
}

/* Reads a leaf immediately; pushes other nodes onto the stack. */
static bool begin_node(struct looker *l, size_t i, const struct rest *follows)
{
    const struct regex_tree_node *t = &l->tree->nodes[i];
    if (t->is_plain) {
        l->read = read_plain(l, i, follows);
    } else if (t->kind == REGEX_T_BEGIN || t->kind == REGEX_T_END || t->kind == REGEX_T_EDGE) {
        l->read = read_assertion(l, t, follows);
    } else {
        l->frames[l->n_frames++] = (struct frame){.node = i, .child = i, .follows = *follows, .sum = *follows};
        return false;
    }
    return true;
}

static enum err read_tree(struct looker *l, const struct rest *follows)
{
    struct regex_set *s = l->s;
    bool has_read = begin_node(l, l->tree->n - 1, follows);
    while (l->n_frames > 0 && regex_spend(s, 1)) {
        struct frame *f = &l->frames[l->n_frames - 1];
        struct rest next;
        if (!next_child(l, f, has_read, &next)) {
            l->read = f->sum;
            l->n_frames--;
            has_read = true;
            continue;
        }
        const struct regex_tree_node *t = &l->tree->nodes[f->node];
        size_t child = f->child - 1;
        if (t->kind == REGEX_T_SEQUENCE || t->kind == REGEX_T_EITHER) {
            f->child = l->tree->nodes[child].first;
        }
        has_read = begin_node(l, child, &next);
    }
    return regex_ok(s);
}

/* Returns the strings around the pattern: the text before it ends with a word character or another one. */
static regex_id place(struct looker *l, unsigned flags)
{
    struct regex_set *s = l->s;
    const regex_id *by = l->read.by;
    regex_id begin = by[STILL_BEGIN], word = by[MOVED_WORD], other = by[MOVED_OTHER];
    if ((flags & REGEX_SEARCH) == 0) {
        return begin;
    }
    if (word == other && word == begin) {
        return regex_after_any(s, l->any, regex_cut_begin(s, begin));
    }
    struct ends e = atom_ends(s, regex_any_character(s));
    if (word == other) {
        return regex_or(s, begin, regex_concat(s, l->any, regex_concat(s, regex_any_character(s), word)));
    }
    regex_id after = regex_or(s, regex_concat(s, e.word, word), regex_concat(s, e.other, other));
    return regex_or(s, begin, regex_concat(s, l->any, after));
}

enum err regex_look(struct regex_set *s, struct regex_tree *tree, unsigned flags, regex_id *out)
{
    enum {
        DEPTH = 4 * (REGEX_PARSE_MAX_DEPTH + 2)
    }; /* a group is a repeat of a look-ahead of alternatives of sequences */
    struct looker l = {.s = s, .tree = tree};
    l.ends = mem_zalloc_array(tree->n, sizeof *l.ends, MEM_REQUEST);
    l.hashes = mem_zalloc_array(tree->n, sizeof *l.hashes, MEM_REQUEST);
    l.frames = mem_zalloc_array(DEPTH, sizeof *l.frames, MEM_REQUEST);
    l.choices = mem_zalloc_array(tree->n, sizeof *l.choices, MEM_REQUEST);
    bool ok = l.ends != NULL && l.hashes != NULL && l.frames != NULL && l.choices != NULL;
    enum err err = ok ? ERR_OK : ERR_NOMEM;
    l.any = regex_repeat(s, regex_any_character(s), 0, REGEX_UNBOUNDED);
    l.word = regex_concat(s, regex_byte_class(s, word_bits), REGEX_ALL);
    for (size_t i = 0; i < tree->n && err == ERR_OK; i++) {
        if (tree->nodes[i].is_plain) {
            find_ends(&l, i);
        }
        find_hash(&l, i);
        err = regex_ok(s);
    }
    const struct rest follows = same_rest(regex_follows(s, flags));
    err = err == ERR_OK ? read_tree(&l, &follows) : err;
    *out = err == ERR_OK ? place(&l, flags) : REGEX_NONE;
    mem_free(l.ends);
    mem_free(l.hashes);
    mem_free(l.frames);
    mem_free(l.choices);
    return err != ERR_OK ? err : regex_ok(s);
}
