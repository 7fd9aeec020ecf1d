/* Expressions as a graph of nodes that are each stored once. The constructors unify equal expressions: order, grouping
 * and duplicates of unions and intersections, grouping of concatenations, and neutral elements. This keeps the number
 * of derivatives small. */
#include "engine/regex/regex_internal.h"

#include "engine/base/mem.h"
#include "engine/base/task.h"
#include "engine/base/utf8.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_NODES = 128, FIRST_CLASSES = 64 };

static regex_id fail(struct regex_set *s, enum err err)
{
    s->err = s->err == ERR_OK ? err : s->err;
    return REGEX_NONE;
}

enum err regex_ok(const struct regex_set *s) { return s->err; }
void regex_fail(struct regex_set *s, enum err err) { fail(s, err); }

size_t regex_work(const struct regex_set *s) { return s->n_work; }
void regex_limit_work(struct regex_set *s, size_t most) { s->max_work = most; }

/* While work is limited, a client waits for the expressions. Later the set can be shared, so no task may stop it. */
bool regex_spend(struct regex_set *s, size_t work)
{
    bool is_due = s->max_work != SIZE_MAX && task_is_due(s->n_work, work);
    s->n_work += work;
    if (s->n_work > s->max_work) {
        fail(s, ERR_GRAMMAR_LIMIT);
    }
    enum err stop = is_due ? task_check() : ERR_OK;
    if (stop != ERR_OK) {
        fail(s, stop);
    }
    return s->err == ERR_OK;
}

bool regex_grow(struct regex_set *s, void *array, size_t n, size_t *cap, size_t size)
{
    enum err err = mem_grow(array, n, cap, size, MEM_GRAMMAR);
    fail(s, err); /* does nothing after ERR_OK */
    return err == ERR_OK;
}

bool regex_list_push(struct regex_set *s, struct regex_list *l, regex_id id)
{
    if (!regex_grow(s, &l->ids, l->n, &l->cap, sizeof *l->ids)) {
        return false;
    }
    l->ids[l->n++] = id;
    return true;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* Hashes are keys of vocabularies' caches for all grammars, so no client must find two expressions with one hash. Both
 * lanes therefore begin with random numbers of the process. */
static struct regex_hash lanes;

static void draw_lanes(void)
{
    if (getentropy(&lanes, sizeof lanes) != 0) {
        lanes = (struct regex_hash){0x9e3779b97f4a7c15u, 0x8ebc6af09c88c6e3u};
    }
}

/* Adds a word to the hash. */
static void fold(struct regex_hash *h, uint64_t word)
{
    h->a = (h->a ^ word) * 0x9e3779b97f4a7c15u;
    h->a ^= h->a >> 32;
    h->b = (h->b ^ word) * 0xbf58476d1ce4e5b9u;
    h->b ^= h->b >> 31;
}

static struct regex_hash begin_hash(uint64_t word)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_lanes);
    struct regex_hash h = lanes;
    fold(&h, word);
    return h;
}

static struct regex_hash end_hash(struct regex_hash h)
{
    h.a = (h.a ^ h.a >> 30 ^ h.b << 17) * 0xbf58476d1ce4e5b9u;
    h.b = (h.b ^ h.b >> 27 ^ h.a << 13) * 0x94d049bb133111ebu; /* splitmix64's [Steele 2014] */
    return (struct regex_hash){h.a ^ h.a >> 31, h.b ^ h.b >> 31};
}

static struct regex_hash mix(struct regex_hash of, uint64_t seed)
{
    struct regex_hash h = begin_hash(seed);
    fold(&h, of.a);
    fold(&h, of.b);
    return end_hash(h);
}

/* Hashes the form only, independent of ids. */
static struct regex_hash hash_of(const struct regex_set *s, const struct regex_node *n)
{
    struct regex_hash h = begin_hash(n->kind);
    fold(&h, (uint64_t)n->min << 32 | n->max);
    switch ((enum regex_kind)n->kind) {
    case REGEX_K_CLASS:
        for (size_t i = 0; i < 4; i++) {
            fold(&h, s->classes[n->a].bits[i]);
        }
        break;
    case REGEX_K_MULTIPLE:
        fold(&h, (uint64_t)n->a << 32 | n->b);
        break;
    case REGEX_K_LOOP:
        fold(&h, s->loops[n->a].name.a);
        fold(&h, s->loops[n->a].name.b);
        break;
    case REGEX_K_OR:
    case REGEX_K_AND:
        fold(&h, n->sum.a);
        fold(&h, n->sum.b);
        break;
    default:
        fold(&h, s->nodes[n->a].hash.a);
        fold(&h, s->nodes[n->a].hash.b);
        fold(&h, s->nodes[n->b].hash.a);
        fold(&h, s->nodes[n->b].hash.b);
        break;
    }
    return end_hash(h);
}

struct regex_hash regex_hash_words(const uint64_t *words, size_t n)
{
    struct regex_hash h = begin_hash(n);
    for (size_t i = 0; i < n; i++) {
        fold(&h, words[i]);
    }
    return end_hash(h);
}

static uint64_t place_of(const struct regex_node *n)
{
    uint64_t h = ((uint64_t)n->a << 32 | n->b) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32 ^ ((uint64_t)n->min << 32 | n->max)) * 0xbf58476d1ce4e5b9u + n->kind;
    return h ^ h >> 32;
}

static uint64_t place_of_id(const void *set, uint32_t id)
{
    return place_of(&((const struct regex_set *)set)->nodes[id]);
}

/* Hashes the parts of a union or an intersection, independent of their order. */
static struct regex_hash sum_of(const struct regex_set *s, const struct regex_node *n)
{
    const struct regex_node *tail = &s->nodes[n->b];
    struct regex_hash sum = tail->kind == n->kind ? tail->sum : mix(tail->hash, 7), head = mix(s->nodes[n->a].hash, 7);
    return (struct regex_hash){sum.a + head.a, sum.b + head.b};
}

struct node_key {
    const struct regex_node *nodes, *node;
};

static ALWAYS_INLINE bool is_node(const void *key, uint32_t id)
{
    const struct node_key *k = key;
    const struct regex_node *a = &k->nodes[id], *b = k->node;
    return a->kind == b->kind && a->a == b->a && a->b == b->b && a->min == b->min && a->max == b->max;
}

static bool is_whole(const struct regex_set *s, const struct regex_node *n)
{
    switch ((enum regex_kind)n->kind) {
    case REGEX_K_CONCAT:
    case REGEX_K_OR:
        return s->nodes[n->a].is_whole && s->nodes[n->b].is_whole;
    case REGEX_K_AND:
        return s->nodes[n->a].is_whole || s->nodes[n->b].is_whole;
    case REGEX_K_REPEAT:
        return s->nodes[n->a].is_whole;
    case REGEX_K_NOT:
        return false;
    case REGEX_K_LOOP:
        return n->is_whole;
    default:
        return true;
    }
}

regex_id regex_node(struct regex_set *s, struct regex_node node)
{
    if (s->err != ERR_OK || !regex_spend(s, 1)) {
        return REGEX_NONE;
    }
    uint64_t place = place_of(&node);
    regex_id id = table_find(&s->table, place, is_node, &(struct node_key){s->nodes, &node});
    if (id != TABLE_NONE) {
        return id;
    }
    if (s->n_nodes >= s->max_nodes) {
        return fail(s, ERR_GRAMMAR_LIMIT);
    }
    if (!regex_grow(s, &s->nodes, s->n_nodes, &s->cap_nodes, sizeof *s->nodes)) {
        return REGEX_NONE;
    }
    if (table_reserve(&s->table, s->n_nodes, place_of_id, s, MEM_GRAMMAR) != ERR_OK) {
        return fail(s, ERR_NOMEM);
    }
    if (node.kind == REGEX_K_OR || node.kind == REGEX_K_AND) {
        node.sum = sum_of(s, &node);
        node.has_loop = s->nodes[node.a].has_loop || s->nodes[node.b].has_loop;
    }
    regex_spend(s, 3);
    node.is_whole = is_whole(s, &node);
    node.hash = hash_of(s, &node);
    id = (regex_id)s->n_nodes++;
    s->nodes[id] = node;
    table_add(&s->table, place, id);
    return id;
}

enum err regex_set_new(size_t max_nodes, struct regex_set **out)
{
    struct regex_set *s = *out = mem_zalloc(sizeof *s, MEM_GRAMMAR);
    TRY_MEM(s != NULL);
    s->max_nodes = max_nodes != 0 ? max_nodes : REGEX_MAX_NODES;
    s->max_work = SIZE_MAX;
    bool ok = table_reserve(&s->table, FIRST_NODES, place_of_id, s, MEM_GRAMMAR) == ERR_OK &&
              regex_grow(s, &s->nodes, 0, &s->cap_nodes, sizeof *s->nodes);
    if (ok) { /* REGEX_NONE is not in a table, so no constructor creates it again */
        s->nodes[0] = (struct regex_node){.kind = REGEX_K_NONE, .is_plain = true, .is_whole = true};
        s->n_nodes = 1;
        ok =
            regex_node(s, (struct regex_node){.kind = REGEX_K_EMPTY, .is_nullable = true, .is_plain = true}) ==
                REGEX_EMPTY &&
            regex_node(s, (struct regex_node){.kind = REGEX_K_NOT, .a = REGEX_NONE, .is_nullable = true, .known = 1}) ==
                REGEX_ALL;
    }
    if (!ok) {
        regex_set_free(out);
    }
    return ok ? ERR_OK : ERR_NOMEM;
}

void regex_set_free(struct regex_set **set)
{
    struct regex_set *s = *set;
    if (s != NULL) {
        mem_free(s->nodes);
        mem_free(s->classes);
        mem_free(s->loops);
        mem_free(s->memo);
        table_fini(&s->table);
        table_fini(&s->class_table);
        table_fini(&s->memo_table);
        mem_free(s->work.ids);
        mem_free(s->parts.ids);
        mem_free(s->escaped);
        mem_free(s);
    }
    *set = NULL;
}

size_t regex_set_bytes(const struct regex_set *s)
{
    return sizeof *s + s->cap_nodes * sizeof *s->nodes + s->cap_classes * sizeof *s->classes +
           s->cap_loops * sizeof *s->loops + s->cap_memo * sizeof *s->memo + table_bytes(&s->table) +
           table_bytes(&s->class_table) + table_bytes(&s->memo_table) +
           (s->work.cap + s->parts.cap + s->n_escaped) * sizeof(regex_id);
}

bool regex_is_nullable(const struct regex_set *s, regex_id r) { return s->nodes[r].is_nullable; }
bool regex_is_whole(const struct regex_set *s, regex_id r) { return s->nodes[r].is_whole; }
struct regex_hash regex_hash(const struct regex_set *s, regex_id r) { return s->nodes[r].hash; }

/* --- bytes and characters ----------------------------------------------------------------------------------------- */

static uint64_t place_of_bits(const uint64_t bits[4])
{
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) { /* most classes have one bit, which must affect the hash wherever it is */
        hash = (hash ^ bits[i] ^ bits[i] >> 31) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static uint64_t place_of_class(const void *set, uint32_t i)
{
    return place_of_bits(((const struct regex_set *)set)->classes[i].bits);
}

struct class_key {
    const struct regex_class *classes;
    const uint64_t *bits;
};

static ALWAYS_INLINE bool is_class(const void *key, uint32_t i)
{
    const struct class_key *k = key;
    return memcmp(k->classes[i].bits, k->bits, sizeof k->classes[i].bits) == 0;
}

regex_id regex_byte_class(struct regex_set *s, const uint64_t bits[4])
{
    if ((bits[0] | bits[1] | bits[2] | bits[3]) == 0) {
        return REGEX_NONE;
    }
    size_t n = MAX_OF(s->n_classes + 1, (size_t)FIRST_CLASSES);
    if (table_reserve(&s->class_table, n, place_of_class, s, MEM_GRAMMAR) != ERR_OK) {
        return fail(s, ERR_NOMEM);
    }
    uint64_t place = place_of_bits(bits);
    uint32_t i = table_find(&s->class_table, place, is_class, &(struct class_key){s->classes, bits});
    if (i == TABLE_NONE) {
        regex_split_classes(s, bits);
        if (!regex_grow(s, &s->classes, s->n_classes, &s->cap_classes, sizeof *s->classes)) {
            return REGEX_NONE;
        }
        i = (uint32_t)s->n_classes++;
        s->classes[i] = (struct regex_class){.bits = {bits[0], bits[1], bits[2], bits[3]}};
        table_add(&s->class_table, place, i);
    }
    return regex_node(s, (struct regex_node){.kind = REGEX_K_CLASS, .a = i, .is_plain = true});
}

regex_id regex_byte_range(struct regex_set *s, unsigned first, unsigned last)
{
    uint64_t bits[4] = {0};
    for (unsigned b = first; b <= last && b < 256; b++) {
        bits[b / 64] |= (uint64_t)1 << b % 64;
    }
    return regex_byte_class(s, bits);
}

regex_id regex_byte(struct regex_set *s, unsigned char byte)
{
    if (s->singles[byte] == REGEX_NONE) {
        s->singles[byte] = regex_byte_range(s, byte, byte);
    }
    return s->err == ERR_OK ? s->singles[byte] : REGEX_NONE;
}

regex_id regex_bytes(struct regex_set *s, const char *bytes, size_t n)
{
    return regex_bytes_before(s, bytes, n, REGEX_EMPTY);
}

regex_id regex_bytes_before(struct regex_set *s, const char *bytes, size_t n, regex_id after)
{
    for (size_t i = n; i > 0; i--) {
        after = regex_concat(s, regex_byte(s, (unsigned char)bytes[i - 1]), after);
    }
    return after;
}

/* Returns characters first .. last of equal length, whose encodings are sorted by bytes: those of the lowest and the
 * highest first byte separately, then all between, byte by byte. [Thompson's UTF-8 ranges, as in RE2] */
static regex_id utf8_range(struct regex_set *s, uint32_t first, uint32_t last)
{
    unsigned char from[4], to[4];
    int n = (int)utf8_encode(first, (char *)from);
    utf8_encode(last, (char *)to);
    regex_id rest = REGEX_EMPTY;                    /* any continuation bytes, as many as follow byte i */
    regex_id low = REGEX_EMPTY, high = REGEX_EMPTY; /* bytes from i on: minimum from[i..], maximum to[i..] */
    int common = 0;
    while (common < n && from[common] == to[common]) {
        common++;
    }
    for (int i = n - 1; i > common; i--) {
        low = regex_or(s, regex_concat(s, regex_byte_range(s, from[i], from[i]), low),
                       regex_concat(s, regex_byte_range(s, from[i] + 1u, 0xbf), rest));
        regex_id below = to[i] > 0x80 ? regex_byte_range(s, 0x80, to[i] - 1u) : REGEX_NONE;
        high = regex_or(s, regex_concat(s, regex_byte_range(s, to[i], to[i]), high), regex_concat(s, below, rest));
        rest = regex_concat(s, regex_byte_range(s, 0x80, 0xbf), rest);
    }
    regex_id r = REGEX_EMPTY;
    if (common < n) {
        regex_id between =
            from[common] + 1 < to[common] ? regex_byte_range(s, from[common] + 1u, to[common] - 1u) : REGEX_NONE;
        const regex_id parts[] = {regex_concat(s, regex_byte_range(s, from[common], from[common]), low),
                                  regex_concat(s, between, rest),
                                  regex_concat(s, regex_byte_range(s, to[common], to[common]), high)};
        r = regex_or_all(s, parts, ARRAY_LEN(parts));
    }
    for (int i = common; i > 0; i--) {
        r = regex_concat(s, regex_byte_range(s, from[i - 1], from[i - 1]), r);
    }
    return r;
}

regex_id regex_code_points(struct regex_set *s, const struct regex_range *ranges, size_t n)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, FIRST_SURROGATE - 1, LAST_SURROGATE, 0xffff, LAST_CODE_POINT};
    regex_id r = REGEX_NONE;
    for (size_t i = 0; i < n; i++) {
        uint32_t first = ranges[i].first;
        for (size_t k = 0; k < ARRAY_LEN(ends) && first <= ranges[i].last; k++) {
            uint32_t last = MIN_OF(ranges[i].last, ends[k]);
            if (first <= last) {
                bool is_surrogate = ends[k] == LAST_SURROGATE;
                r = is_surrogate ? r : regex_or(s, r, utf8_range(s, first, last));
                first = last + 1;
            }
        }
    }
    return r;
}

regex_id regex_any_character(struct regex_set *s)
{
    static const struct regex_range all = {0, LAST_CODE_POINT};
    if (s->any_character == REGEX_NONE) {
        s->any_character = regex_code_points(s, &all, 1);
    }
    return s->err == ERR_OK ? s->any_character : REGEX_NONE;
}

/* --- composed ------------------------------------------------------------------------------------------------------ */

regex_id regex_concat(struct regex_set *s, regex_id a, regex_id b)
{
    if (a == REGEX_NONE || b == REGEX_NONE || a == REGEX_EMPTY) {
        return a == REGEX_EMPTY ? b : REGEX_NONE;
    }
    if (b == REGEX_EMPTY) {
        return a;
    }
    size_t from = s->parts.n; /* concatenate the parts of a and b again from the right */
    while (s->nodes[a].kind == REGEX_K_CONCAT) {
        if (!regex_list_push(s, &s->parts, s->nodes[a].a)) {
            s->parts.n = from;
            return REGEX_NONE;
        }
        a = s->nodes[a].b;
    }
    for (bool is_last = true; is_last || s->parts.n > from; is_last = false) {
        a = is_last ? a : s->parts.ids[--s->parts.n];
        b = regex_node(s, (struct regex_node){.kind = REGEX_K_CONCAT,
                                              .a = a,
                                              .b = b,
                                              .is_nullable = s->nodes[a].is_nullable && s->nodes[b].is_nullable,
                                              .is_plain = s->nodes[a].is_plain && s->nodes[b].is_plain});
    }
    return b;
}

static int by_id(const void *a, const void *b)
{
    regex_id x = *(const regex_id *)a, y = *(const regex_id *)b;
    return (x > y) - (x < y);
}

bool regex_push_parts(struct regex_set *s, enum regex_kind kind, regex_id r)
{
    while (s->nodes[r].kind == kind && regex_list_push(s, &s->parts, s->nodes[r].a)) {
        r = s->nodes[r].b;
    }
    return s->err == ERR_OK && regex_list_push(s, &s->parts, r);
}

regex_id regex_join_parts(struct regex_set *s, enum regex_kind kind, size_t from)
{
    regex_id r = s->err == ERR_OK ? regex_join(s, kind, s->parts.ids + from, s->parts.n - from) : REGEX_NONE;
    s->parts.n = from;
    return s->nodes[r].has_loop && s->nodes[r].kind == kind ? regex_loop_order(s, r) : r;
}

/* Most lists are short and nearly sorted. */
static void sort_ids(regex_id *ids, size_t n)
{
    enum { FEW = 24 };
    if (n > FEW) {
        qsort(ids, n, sizeof *ids, by_id);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        regex_id id = ids[i];
        size_t k = i;
        for (; k > 0 && ids[k - 1] > id; k--) {
            ids[k] = ids[k - 1];
        }
        ids[k] = id;
    }
}

/* Merges the classes among the parts; returns the number of remaining parts. */
static size_t join_classes(struct regex_set *s, enum regex_kind kind, regex_id *ids, size_t n)
{
    uint64_t start = kind == REGEX_K_OR ? 0 : UINT64_MAX, bits[4] = {start, start, start, start};
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->nodes[ids[i]].kind != REGEX_K_CLASS) {
            ids[kept++] = ids[i];
            continue;
        }
        const uint64_t *more = s->classes[s->nodes[ids[i]].a].bits;
        for (int k = 0; k < 4; k++) {
            bits[k] = kind == REGEX_K_OR ? bits[k] | more[k] : bits[k] & more[k];
        }
    }
    if (kept < n) {
        ids[kept++] = regex_byte_class(s, bits);
    }
    return kept;
}

regex_id regex_join(struct regex_set *s, enum regex_kind kind, regex_id *ids, size_t n)
{
    bool is_or = kind == REGEX_K_OR, is_nullable = !is_or, is_plain = is_or, has_empty = false;
    regex_id neutral = is_or ? REGEX_NONE : REGEX_ALL, all = is_or ? REGEX_ALL : REGEX_NONE;
    if (!regex_spend(s, n)) {
        return REGEX_NONE;
    }
    n = join_classes(s, kind, ids, n);
    sort_ids(ids, n);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == all) {
            return all;
        }
        if (ids[i] != neutral && (kept == 0 || ids[i] != ids[kept - 1])) {
            ids[kept++] = ids[i];
            bool can = s->nodes[ids[i]].is_nullable;
            is_nullable = is_or ? is_nullable || (can && ids[i] != REGEX_EMPTY) : is_nullable && can;
            has_empty = has_empty || ids[i] == REGEX_EMPTY;
        }
    }
    if (has_empty && !is_or) {
        return is_nullable ? REGEX_EMPTY : REGEX_NONE;
    }
    if (has_empty && is_nullable &&
        is_or) { /* another part also matches it; EMPTY has the lowest id of the remaining parts */
        memmove(ids, ids + 1, --kept * sizeof *ids);
    }
    if (kept == 0) {
        return neutral;
    }
    regex_id r = ids[kept - 1];
    for (size_t i = kept - 1; i > 0; i--) {
        const struct regex_node *a = &s->nodes[ids[i - 1]], *b = &s->nodes[r];
        bool can = is_or ? a->is_nullable || b->is_nullable : a->is_nullable && b->is_nullable;
        r = regex_node(s, (struct regex_node){.kind = (unsigned char)kind,
                                              .a = ids[i - 1],
                                              .b = r,
                                              .is_nullable = can,
                                              .is_plain = is_plain && a->is_plain && b->is_plain});
    }
    return r;
}

static regex_id join(struct regex_set *s, enum regex_kind kind, const regex_id *ids, size_t n)
{
    size_t from = s->parts.n;
    for (size_t i = 0; i < n && regex_push_parts(s, kind, ids[i]); i++) {
    }
    return regex_join_parts(s, kind, from);
}

regex_id regex_or_all(struct regex_set *s, const regex_id *ids, size_t n)
{
    return n == 0 ? REGEX_NONE : join(s, REGEX_K_OR, ids, n);
}
regex_id regex_or(struct regex_set *s, regex_id a, regex_id b) { return join(s, REGEX_K_OR, (regex_id[]){a, b}, 2); }
regex_id regex_and(struct regex_set *s, regex_id a, regex_id b) { return join(s, REGEX_K_AND, (regex_id[]){a, b}, 2); }

regex_id regex_not(struct regex_set *s, regex_id a)
{
    if (s->nodes[a].kind == REGEX_K_NOT) {
        return s->nodes[a].a;
    }
    return regex_node(s, (struct regex_node){.kind = REGEX_K_NOT, .a = a, .is_nullable = !s->nodes[a].is_nullable});
}

regex_id regex_repeat(struct regex_set *s, regex_id a, uint32_t min, uint32_t max)
{
    if (s->err != ERR_OK || min > max) {
        return REGEX_NONE;
    }
    if (max == 0 || a == REGEX_EMPTY || a == REGEX_NONE) {
        return a == REGEX_NONE && min > 0 && max != 0 ? REGEX_NONE : REGEX_EMPTY;
    }
    if (a == REGEX_ALL) {
        return REGEX_ALL;
    }
    if (min == 1 && max == 1) {
        return a;
    }
    const struct regex_node *n = &s->nodes[a];
    if (n->kind == REGEX_K_REPEAT && n->min == 0 && n->max == REGEX_UNBOUNDED) {
        return a;
    }
    min = n->is_nullable ? 0 : min;
    return regex_node(
        s,
        (struct regex_node){
            .kind = REGEX_K_REPEAT, .a = a, .min = min, .max = max, .is_nullable = min == 0, .is_plain = n->is_plain});
}
