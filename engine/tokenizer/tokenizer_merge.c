/* Merges neighbors in rank order: by a plain scan for short words, the usual case, and by a heap for long ones. A word
 * of n symbols thus costs n log n. The leftmost of equal ranks merges first. */
#include "engine/tokenizer/tokenizer_internal.h"

enum {
    SHORT_WORD = 32,
    MERGE_BITS = 8, /* per merge; 1 of 9 pairs that do not merge is still looked up */
};

static uint32_t power_of_two_above(uint32_t n)
{
    uint32_t p = 16;
    while (p < n) {
        p *= 2;
    }
    return p;
}

enum err tokenizer_reserve_merges(struct tokenizer *t, uint64_t n)
{
    t->merge_mask = power_of_two_above((uint32_t)n / 2 * 3 + 1) - 1; /* most pairs that do not merge never get here */
    t->merges = mem_alloc(((size_t)t->merge_mask + 1) * sizeof *t->merges, MEM_MODEL);
    int log2_bits = 6;
    while ((uint64_t)1 << log2_bits < n * MERGE_BITS) {
        log2_bits++;
    }
    t->merge_bits_shift = 64 - log2_bits;
    t->merge_bits = mem_zalloc_array((size_t)1 << (log2_bits - 6), sizeof *t->merge_bits, MEM_MODEL);
    TRY_MEM(t->merges != NULL && t->merge_bits != NULL);
    memset(t->merges, 0xFF, ((size_t)t->merge_mask + 1) * sizeof *t->merges);
    return ERR_OK;
}

/* Looks up the merge of two neighbors by their texts. */
static struct merge look_up_text(const struct merger *m, const struct symbol *a, const struct symbol *b)
{
    const char *s = m->word + a->from;
    size_t n = a->len + b->len;
    const struct word *word = words_find(&m->t->words, s, n, tokenizer_hash(s, n));
    /* NO_KEY also for control tokens: plain text never yields them */
    return (struct merge){.left = a->id,
                          .right = b->id,
                          .key = word == NULL ? NO_KEY : word->key,
                          .result = word == NULL ? TOKENIZER_NO_TOKEN : word->id};
}

/* Returns the id that two neighbors merge into, or TOKENIZER_NO_TOKEN; *key orders merges. */
static inline int32_t pair_of(struct merger *m, const struct symbol *a, const struct symbol *b, uint32_t *key)
{
    const struct tokenizer *t = m->t;
    uint64_t hash = tokenizer_pair_hash(a->id, b->id), bit;
    if (t->is_spm && !t->merges_by_rank) { /* the same pairs recur, and their tokens determine the text */
        struct merge *known = &m->known[hash % ARRAY_LEN(m->known)];
        if (a->id < 0 || b->id < 0 || known->left != a->id || known->right != b->id || known->result == 0) {
            struct merge found = look_up_text(m, a, b);
            *key = found.key;
            if (a->id >= 0 && b->id >= 0) {
                *known = found;
            }
            return found.result;
        }
        *key = known->key;
        return known->result;
    }
    /* a character without a token (SPM) has no merges: no rule has its id */
    if ((*tokenizer_merge_bit(t, hash, &bit) & bit) == 0) {
        *key = NO_KEY;
        return TOKENIZER_NO_TOKEN;
    }
    const struct merge *merge = tokenizer_merge_slot(t, a->id, b->id, hash);
    *key = merge->left < 0 ? NO_KEY : merge->key;
    return merge->result;
}

struct merger_node {
    int32_t prev, next;
    uint32_t key;    /* of the pair (this, next), or NO_KEY */
    uint32_t queued; /* key of its heap entry, or NO_KEY */
    int32_t result;  /* of that pair */
};

enum err merger_reserve(struct merger *m, size_t n)
{
    if (n <= m->cap) {
        return ERR_OK;
    }
    if (n > INT32_MAX / 4) {
        return ERR_NOMEM;
    }
    size_t cap = MAX_OF(n, (size_t)256);
    merger_fini(m);
    m->symbols = mem_alloc(cap * sizeof *m->symbols, MEM_REQUEST);
    m->nodes = mem_alloc(cap * sizeof *m->nodes, MEM_REQUEST);
    m->heap = mem_alloc(3 * cap * sizeof *m->heap, MEM_REQUEST); /* one entry per pair: n, and two more per merge */
    m->cap = m->symbols != NULL && m->nodes != NULL && m->heap != NULL ? cap : 0;
    return m->cap != 0 ? ERR_OK : ERR_NOMEM;
}

void merger_fini(struct merger *m)
{
    mem_free(m->symbols);
    mem_free(m->nodes);
    mem_free(m->heap);
    m->symbols = NULL;
    m->nodes = NULL;
    m->heap = NULL;
    m->cap = 0;
}

static void run_short(struct merger *m)
{
    uint32_t keys[SHORT_WORD];
    int32_t results[SHORT_WORD];
    struct symbol *s = m->symbols;
    for (uint32_t i = 0; i + 1 < m->n; i++) {
        results[i] = pair_of(m, &s[i], &s[i + 1], &keys[i]);
    }
    while (m->n > 1) {
        uint32_t best = 0, pairs = m->n - 1;
        for (uint32_t i = 1; i < pairs; i++) {
            best = keys[i] < keys[best] ? i : best;
        }
        if (keys[best] == NO_KEY) {
            return;
        }
        s[best].id = results[best];
        s[best].len += s[best + 1].len;
        memmove(&s[best + 1], &s[best + 2], (m->n - best - 2) * sizeof *s);
        memmove(&keys[best], &keys[best + 1], (pairs - best - 1) * sizeof *keys);
        memmove(&results[best], &results[best + 1], (pairs - best - 1) * sizeof *results);
        m->n--;
        if (best + 1 < m->n) {
            results[best] = pair_of(m, &s[best], &s[best + 1], &keys[best]);
        }
        if (best > 0) {
            results[best - 1] = pair_of(m, &s[best - 1], &s[best], &keys[best - 1]);
        }
    }
}

/* --- long words: linked list and binary heap of key << 32 | position -------------------------------------------- */

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t at = (*n)++;
    while (at > 0 && heap[(at - 1) / 2] > entry) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        child += child + 1 < *n && heap[child + 1] < heap[child];
        if (heap[child] >= last) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* Looks up the pair that starts at symbol i again. */
static void look_up(struct merger *m, int32_t i)
{
    struct merger_node *node = &m->nodes[i];
    node->key = NO_KEY;
    if (node->next >= 0) {
        node->result = pair_of(m, &m->symbols[i], &m->symbols[node->next], &node->key);
    }
}

/* Queues the pair at i if it precedes both overlapping pairs. No other pair can merge next, so the heap stays small:
 * for a megabyte of one character it has one entry. */
static void queue_if_first(struct merger *m, int32_t i, size_t *n_heap)
{
    if (i < 0) {
        return;
    }
    struct merger_node *node = &m->nodes[i];
    bool is_first = node->key != NO_KEY && (node->prev < 0 || m->nodes[node->prev].key > node->key) &&
                    m->nodes[node->next].key >= node->key;
    if (is_first && node->queued != node->key) {
        node->queued = node->key;
        heap_push(m->heap, n_heap, (uint64_t)node->key << 32 | (uint32_t)i);
    }
}

/* Merges symbol i with the next one and updates the adjacent pairs. */
static void merge_at(struct merger *m, int32_t i, size_t *n_heap)
{
    struct merger_node *node = &m->nodes[i];
    struct merger_node *gone = &m->nodes[node->next];
    m->symbols[i].id = node->result;
    m->symbols[i].len += m->symbols[node->next].len;
    gone->key = NO_KEY;
    node->next = gone->next;
    if (node->next >= 0) {
        m->nodes[node->next].prev = i;
    }
    look_up(m, i);
    if (node->prev >= 0) {
        look_up(m, node->prev);
        queue_if_first(m, m->nodes[node->prev].prev, n_heap);
        queue_if_first(m, node->prev, n_heap);
    }
    queue_if_first(m, i, n_heap);
    queue_if_first(m, node->next, n_heap);
}

static enum err run_long(struct merger *m)
{
    size_t n_heap = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        m->nodes[i] = (struct merger_node){
            .prev = (int32_t)i - 1, .next = i + 1 < m->n ? (int32_t)i + 1 : -1, .key = NO_KEY, .queued = NO_KEY};
    }
    for (uint32_t i = 0; i < m->n; i++) {
        look_up(m, (int32_t)i);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        queue_if_first(m, (int32_t)i, &n_heap);
    }
    while (n_heap > 0) {
        TRY(budget_take(m->budget, 1));
        uint64_t entry = heap_pop(m->heap, &n_heap);
        int32_t i = (int32_t)(uint32_t)entry;
        struct merger_node *node = &m->nodes[i];
        if (node->queued == entry >> 32) {
            node->queued = NO_KEY;
        }
        if (node->key != NO_KEY && node->key == entry >> 32) { /* otherwise the pair has changed since */
            merge_at(m, i, &n_heap);
        }
    }
    uint32_t n = 0;
    for (int32_t i = 0; i >= 0 && m->n > 0; i = m->nodes[i].next) {
        m->symbols[n++] = m->symbols[i];
    }
    m->n = n;
    return ERR_OK;
}

enum err merger_run(struct merger *m)
{
    if (m->n > SHORT_WORD) {
        return run_long(m);
    }
    run_short(m);
    return ERR_OK;
}
