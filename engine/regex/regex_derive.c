/* Derivatives, and properties that are found by walking them. */
#include "engine/regex/regex_internal.h"

#include "engine/base/mem.h"

#include <string.h>

/* The maximum number of cached derivatives. Beyond it the cache is emptied, which is faster than searching more
 * memory. */
enum { FIRST_MEMO = 512, MAX_REMEMBERED = 1 << 16 };

/* --- classes of bytes ---------------------------------------------------------------------------------------------- */

const unsigned char *regex_byte_classes(struct regex_set *s, int *n)
{
    if (!s->has_byte_classes) {
        s->has_byte_classes = true;
        s->n_members++;
        s->n_byte_classes = 1;
        for (size_t i = 0; i < s->n_classes; i++) { /* splits each class into bytes within this one and others */
            const uint64_t *bits = s->classes[i].bits;
            short in[256], out[256]; /* new number of the bytes of a class, by side */
            int count = 0;
            unsigned char fresh[256];
            memset(in, -1, sizeof in);
            memset(out, -1, sizeof out);
            for (int b = 0; b < 256; b++) {
                short *to = (bits[b / 64] >> b % 64 & 1) != 0 ? &in[s->byte_class[b]] : &out[s->byte_class[b]];
                *to = *to < 0 ? (short)count++ : *to;
                fresh[b] = (unsigned char)*to;
            }
            memcpy(s->byte_class, fresh, sizeof fresh);
            s->n_byte_classes = count;
        }
        for (int b = 255; b >= 0; b--) {
            s->byte_of_class[s->byte_class[b]] = (unsigned char)b;
        }
    }
    if (n != NULL) {
        *n = s->n_byte_classes;
    }
    return s->byte_class;
}

static void memo_forget(struct regex_set *s)
{
    s->n_memo = 0;
    table_clear(&s->memo_table);
}

void regex_split_classes(struct regex_set *s, const uint64_t bits[4])
{
    for (int b = 0; b < 256 && s->has_byte_classes; b++) {
        int first = s->byte_of_class[s->byte_class[b]];
        if ((bits[b / 64] >> b % 64 & 1) != (bits[first / 64] >> first % 64 & 1)) {
            s->has_byte_classes = false;
            memset(s->byte_class, 0, sizeof s->byte_class);
            memo_forget(s);
        }
    }
}

/* --- cached derivatives ------------------------------------------------------------------------------------------- */

static uint64_t memo_hash(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 20; }
static uint64_t memo_hash_of(const void *set, uint32_t i)
{
    return memo_hash(((const struct regex_set *)set)->memo[i].key);
}

struct memo_key {
    const struct regex_memo *memo;
    uint64_t key;
};

static ALWAYS_INLINE bool memo_is(const void *key, uint32_t i)
{
    const struct memo_key *k = key;
    return k->memo[i].key == k->key;
}

static bool memo_get(const struct regex_set *s, regex_id r, unsigned class, regex_id *out)
{
    uint64_t key = (uint64_t)r << 8 | class;
    uint32_t i = table_find(&s->memo_table, memo_hash(key), memo_is, &(struct memo_key){s->memo, key});
    *out = i != TABLE_NONE ? s->memo[i].is : REGEX_NONE;
    return i != TABLE_NONE;
}

/* Returns a cached derivative, or one that the node determines without its parts, as for texts. */
static bool find_next(const struct regex_set *s, regex_id r, unsigned class, regex_id *out)
{
    const struct regex_node *n = &s->nodes[r], *first = n->kind == REGEX_K_CONCAT ? &s->nodes[n->a] : n;
    if (first->kind == REGEX_K_CLASS) {
        unsigned byte = s->byte_of_class[class];
        bool is_in = (s->classes[first->a].bits[byte / 64] >> byte % 64 & 1) != 0;
        regex_id after = first == n ? REGEX_EMPTY : n->b;
        *out = is_in ? after : REGEX_NONE;
        return true;
    }
    *out = REGEX_NONE;
    return n->kind <= REGEX_K_EMPTY || memo_get(s, r, class, out);
}

/* Caches a derivative that was not cached. */
static void memo_put(struct regex_set *s, regex_id r, unsigned class, regex_id value)
{
    uint64_t key = (uint64_t)r << 8 | class;
    if (!regex_grow(s, &s->memo, s->n_memo, &s->cap_memo, sizeof *s->memo)) {
        return;
    }
    enum err err = table_reserve(&s->memo_table, MAX_OF(s->cap_memo, (size_t)FIRST_MEMO), memo_hash_of, s, MEM_GRAMMAR);
    err = err == ERR_OK && s->n_memo > 8 * s->max_nodes ? ERR_GRAMMAR_LIMIT : err;
    if (err != ERR_OK) {
        regex_fail(s, err);
        return;
    }
    s->memo[s->n_memo] = (struct regex_memo){key, value};
    table_add(&s->memo_table, memo_hash(key), (uint32_t)s->n_memo++);
    regex_spend(s, 5);
}

/* --- derivatives --------------------------------------------------------------------------------------------------- */

/* Pushes the parts of r whose derivatives are needed and missing; returns whether there are any. */
static bool push_missing(struct regex_set *s, regex_id r, unsigned class)
{
    const struct regex_node n = s->nodes[r];
    size_t before = s->work.n;
    regex_id found;
    switch ((enum regex_kind)n.kind) {
    case REGEX_K_LOOP:
        if (!find_next(s, s->loops[n.a].is, class, &found)) {
            regex_list_push(s, &s->work, s->loops[n.a].is);
        }
        break;
    case REGEX_K_CONCAT:
        if (s->nodes[n.a].is_nullable && !find_next(s, n.b, class, &found)) {
            regex_list_push(s, &s->work, n.b);
        }
        /* fall through */
    case REGEX_K_NOT:
    case REGEX_K_REPEAT:
        if (!find_next(s, n.a, class, &found)) {
            regex_list_push(s, &s->work, n.a);
        }
        break;
    case REGEX_K_OR:
    case REGEX_K_AND:
        while (r != REGEX_NONE && s->err == ERR_OK) {
            regex_id part = regex_take_part(s, (enum regex_kind)n.kind, &r);
            if (!find_next(s, part, class, &found)) {
                regex_list_push(s, &s->work, part);
            }
        }
        break;
    default:
        break;
    }
    return s->work.n > before;
}

/* Returns the union or intersection of the parts' derivatives, which are available. */
static regex_id join_parts(struct regex_set *s, regex_id r, unsigned class)
{
    enum regex_kind kind = (enum regex_kind)s->nodes[r].kind;
    size_t from = s->parts.n;
    regex_id found;
    do {
        find_next(s, regex_take_part(s, kind, &r), class, &found);
    } while (regex_push_parts(s, kind, found) && r != REGEX_NONE);
    return regex_join_parts(s, kind, from);
}

/* Returns the derivative of a node whose parts' derivatives are available. */
static regex_id derive(struct regex_set *s, regex_id r, unsigned class)
{
    struct regex_node n = s->nodes[r];
    unsigned byte = s->byte_of_class[class];
    regex_id a = REGEX_NONE, b = REGEX_NONE;
    switch ((enum regex_kind)n.kind) {
    case REGEX_K_CONCAT:
        find_next(s, n.a, class, &a);
        a = regex_concat(s, a, n.b);
        if (s->nodes[n.a].is_nullable) {
            find_next(s, n.b, class, &b);
            a = regex_or(s, a, b);
        }
        return a;
    case REGEX_K_OR:
    case REGEX_K_AND:
        return join_parts(s, r, class);
    case REGEX_K_NOT:
        find_next(s, n.a, class, &a);
        return regex_not(s, a);
    case REGEX_K_LOOP:
        find_next(s, s->loops[n.a].is, class, &a);
        return a;
    case REGEX_K_MULTIPLE:
        return regex_multiple_next(s, &n, byte);
    case REGEX_K_REPEAT:
        find_next(s, n.a, class, &a);
        b = regex_repeat(s, n.a, n.min > 0 ? n.min - 1 : 0, n.max == REGEX_UNBOUNDED ? n.max : n.max - 1);
        return regex_concat(s, a, b);
    default:
        return REGEX_NONE;
    }
}

static regex_id next_of_class(struct regex_set *s, regex_id r, unsigned class)
{
    regex_id found = REGEX_NONE;
    if (s->err != ERR_OK || find_next(s, r, class, &found)) {
        return found;
    }
    if (s->n_memo > MAX_REMEMBERED) { /* and never while derivatives of parts are pending */
        memo_forget(s);
    }
    size_t from = s->work.n;
    regex_list_push(s, &s->work, r);
    while (s->work.n > from && s->err == ERR_OK) {
        regex_id top = s->work.ids[s->work.n - 1];
        if (find_next(s, top, class, &found)) {
            s->work.n--;
        } else if (!push_missing(s, top, class) && s->err == ERR_OK) {
            found = derive(s, top, class);
            memo_put(s, top, class, found);
            s->work.n--;
        }
    }
    s->work.n = from;
    return s->err == ERR_OK ? found : REGEX_NONE;
}

regex_id regex_next(struct regex_set *s, regex_id r, unsigned char byte)
{
    if (!s->has_byte_classes) {
        regex_byte_classes(s, NULL);
    }
    return next_of_class(s, r, s->byte_class[byte]);
}

/* --- groups of bytes ----------------------------------------------------------------------------------------------- */

/* Groups of byte classes while they are split. */
struct partition {
    unsigned char *groups; /* [s->n_byte_classes] */
    short sizes[256],
        parts[256]; /* of a group; parts: the number of its members in the splitting set; 0 between calls */
    int n;
};

/* Splits by `members`: a group that is only partly among them is split, and the members get a new group. */
static void split_by(struct partition *p, const uint64_t members[4])
{
    short fresh[256];
    for (int word = 0; word < 4; word++) {
        for (uint64_t left = members[word]; left != 0; left &= left - 1) {
            p->parts[p->groups[word * 64 + __builtin_ctzll(left)]]++;
        }
    }
    for (int word = 0; word < 4; word++) {
        for (uint64_t left = members[word]; left != 0; left &= left - 1) {
            unsigned char *group = &p->groups[word * 64 + __builtin_ctzll(left)];
            if (p->parts[*group] > 0) { /* its first member found */
                bool is_whole = p->parts[*group] == p->sizes[*group];
                fresh[*group] = is_whole ? *group : (short)p->n++;
                p->sizes[fresh[*group]] = p->parts[*group];
                p->sizes[*group] = (short)(p->sizes[*group] - (is_whole ? 0 : p->parts[*group]));
                p->parts[*group] = 0;
            }
            *group = (unsigned char)fresh[*group];
        }
    }
}
/* Numbers the groups in the order of their first class; class 0 comes first. */
static void number_groups(struct partition *p, int n_classes)
{
    short numbers[256];
    int n = 0;
    memset(numbers, -1, (size_t)p->n * sizeof *numbers);
    for (int class = 0; class < n_classes; class ++) {
        unsigned char group = p->groups[class];
        if (numbers[group] < 0) {
            numbers[group] = (short)n++;
        }
        p->groups[class] = (unsigned char)numbers[group];
    }
}

/* Returns the byte classes within or outside a class, whichever are fewer: both split alike. */
static const uint64_t *members_of(const struct regex_set *s, struct regex_class *c)
{
    if (c->n_members != s->n_members) {
        uint64_t in[4] = {0};
        int n = 0;
        for (unsigned class = 0; class < (unsigned)s->n_byte_classes; class ++) {
            uint64_t is_in = c->bits[s->byte_of_class[class] / 64] >> s->byte_of_class[class] % 64 & 1;
            in[class / 64] |= is_in << class % 64;
            n += (int)is_in;
        }
        for (unsigned class = 0; class < (unsigned)s->n_byte_classes && 2 * n > s->n_byte_classes; class ++) {
            in[class / 64] ^= (uint64_t)1 << class % 64;
        }
        memcpy(c->members, in, sizeof in);
        c->n_members = s->n_members;
    }
    return c->members;
}

static void begin_split(struct partition *p, unsigned char *groups, int n_groups, int n_classes)
{
    *p = (struct partition){.groups = groups, .n = n_groups};
    p->sizes[0] = (short)(n_groups == 1 ? n_classes : 0);
    for (int class = 0; class < n_classes && n_groups > 1; class ++) {
        p->sizes[groups[class]]++;
    }
}

void regex_split_groups(struct regex_set *s, regex_id r, unsigned char *groups, int *n_groups)
{
    struct partition p;
    size_t from = s->work.n;
    regex_byte_classes(s, NULL);
    begin_split(&p, groups, *n_groups, s->n_byte_classes);
    s->n_splits++;
    regex_list_push(s, &s->work, r);
    while (s->work.n > from && s->err == ERR_OK) { /* down to the classes in which the next byte is looked up */
        struct regex_node *node = &s->nodes[s->work.ids[--s->work.n]];
        const struct regex_node n = *node;
        s->n_work += 2;
        if (n.seen == s->n_splits) { /* many nodes can share it */
            continue;
        }
        node->seen = s->n_splits;
        if (n.kind == REGEX_K_LOOP) {
            regex_list_push(s, &s->work, s->loops[n.a].is);
        } else if (n.kind == REGEX_K_CLASS && s->classes[n.a].seen != s->n_splits) {
            s->classes[n.a].seen = s->n_splits;
            split_by(&p, members_of(s, &s->classes[n.a]));
        } else if (n.kind == REGEX_K_MULTIPLE) {
            for (unsigned c = 0; c < 11;
                 c++) { /* each digit and the point separately, as regex_multiple created them */
                unsigned class = s->byte_class[c < 10 ? '0' + c : '.'];
                uint64_t members[4] = {0};
                members[class / 64] = (uint64_t)1 << class % 64;
                split_by(&p, members);
            }
        } else if (n.kind > REGEX_K_CLASS) {
            bool has_two = n.kind == REGEX_K_OR || n.kind == REGEX_K_AND ||
                           (n.kind == REGEX_K_CONCAT && s->nodes[n.a].is_nullable);
            regex_list_push(s, &s->work, n.a);
            if (has_two) {
                regex_list_push(s, &s->work, n.b);
            }
        }
    }
    s->work.n = from;
    number_groups(&p, s->n_byte_classes);
    *n_groups = p.n;
}

/* --- is there a string? ---------------------------------------------------------------------------------------------- */

/* The expressions found, breadth first, in s->work: two words each, the expression and the index of the one that led to
 * it. */
static void push_found(struct regex_set *s, regex_id r, size_t by)
{
    if (regex_list_push(s, &s->work, r) && regex_list_push(s, &s->work, (regex_id)by)) {
        s->nodes[r].known |= 4; /* visited */
    }
}

/* Records that the expression at `at` and all that led to it match a string. */
static void note_path(struct regex_set *s, size_t from, size_t at)
{
    for (bool more = true; more; at = from + s->work.ids[at + 1]) {
        s->nodes[s->work.ids[at]].known |= 1;
        more = at != from;
    }
}

/* Searches the derivatives of r, breadth first; the visited ones are in s->work from `from` on. */
static enum err search(struct regex_set *s, regex_id r, size_t budget, size_t from, bool *found)
{
    push_found(s, r, 0);
    for (size_t at = from; at < s->work.n && !*found && s->err == ERR_OK; at += 2) {
        unsigned char groups[256] = {0};
        int n_groups = 1, n_seen = 0;
        regex_split_groups(s, s->work.ids[at], groups, &n_groups);
        for (int class = 0; class < s->n_byte_classes && !*found; class ++) {
            if (groups[class] != n_seen) { /* numbered in order of discovery: it is like an earlier class */
                continue;
            }
            n_seen++;
            regex_id next = next_of_class(s, s->work.ids[at], (unsigned)class);
            const struct regex_node *n = &s->nodes[next];
            *found = n->is_nullable || (n->is_plain && next != REGEX_NONE) || (n->known & 3) == 1;
            if (*found) {
                note_path(s, from, at);
            } else if (next != REGEX_NONE && (n->known & 6) == 0) {
                push_found(s, next, at - from);
            }
        }
        if ((s->work.n - from) / 2 > budget && !*found) {
            return ERR_GRAMMAR_LIMIT;
        }
    }
    return s->err;
}

enum err regex_is_none(struct regex_set *s, regex_id r, size_t budget, bool *none)
{
    const struct regex_node *n = &s->nodes[r];
    *none = r == REGEX_NONE || (n->known & 3) == 2;
    if (s->err != ERR_OK || n->is_plain || n->is_nullable || (n->known & 3) != 0) {
        return s->err;
    }
    size_t from = s->work.n;
    bool found = false;
    enum err err = search(s, r, budget, from, &found);
    for (size_t i = from; i + 1 < s->work.n; i += 2) {
        unsigned char *known = &s->nodes[s->work.ids[i]].known;
        *known = err == ERR_OK && !found ? 2 : *known & 3;
    }
    s->work.n = from;
    *none = err == ERR_OK && !found;
    return err;
}

/* --- near ---------------------------------------------------------------------------------------------------------- */

/* Replaces a repeat whose bounds `bytes` bytes cannot distinguish from larger ones. */
static regex_id near_repeat(struct regex_set *s, regex_id r, uint32_t bytes)
{
    const struct regex_node n = s->nodes[r];
    if (n.kind != REGEX_K_REPEAT || s->nodes[n.a].is_nullable) {
        return r;
    }
    uint32_t max = n.max > bytes ? REGEX_UNBOUNDED : n.max; /* each iteration takes at least one byte */
    return regex_repeat(s, n.a, MIN_OF(n.min, bytes + 1), max);
}

regex_id regex_near(struct regex_set *s, regex_id r, uint32_t bytes)
{
    const struct regex_node n = s->nodes[r];
    if (n.kind == REGEX_K_CONCAT) {
        regex_id a = near_repeat(s, n.a, bytes);
        return a == n.a ? r : regex_concat(s, a, n.b);
    }
    return near_repeat(s, r, bytes);
}
