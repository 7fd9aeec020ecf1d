/* One array of page records; free pages and kept pages are linked through it, identities through a chained hash table.
 */
#include "engine/kv/kv_cache.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <string.h>
#include <sys/random.h>

struct page {
    int32_t n_held;
    int32_t n_children; /* named pages whose parent this is */
    int32_t parent;     /* KV_NO_PAGE for a first page */
    int32_t prev, next; /* free list (next only), or list of kept pages, oldest first */
    int32_t chain;      /* next page of the same hash slot */
    bool is_named, is_filled, is_kept;
    bool is_forgotten; /* named, for those that hang from it, but not in its hash slot any more */
    int32_t state;     /* recurrent state behind its last token, or KV_NO_STATE */
    uint64_t salt, hash, owner;
    int32_t tokens[KV_PAGE_TOKENS];
};

struct state {
    int32_t n_held;
    int32_t page;     /* that keeps it, or KV_NO_PAGE */
    uint64_t used_at; /* when it was kept or last held; the clock is kv_cache.now */
};

struct kv_cache {
    struct page *pages;
    int32_t n_pages, n_held, n_kept, n_free;
    int32_t free; /* first free page */
    int32_t oldest, newest;
    int32_t *slots; /* [mask + 1] first page of each hash slot */
    uint32_t mask;
    uint64_t key; /* of the hash, drawn at start */
    struct state *states;
    int32_t n_states, n_states_held, n_states_kept;
    uint64_t now; /* counts uses of states */
};

/* Unknown to clients, so that they cannot aim at a hash slot or at another tenant's salt. */
static uint64_t fresh_key(void)
{
    uint64_t key = 0;
    return getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key ? key : rng_fresh_seed();
}

enum err kv_cache_new(int32_t n_pages, int32_t n_states, struct kv_cache **out)
{
    *out = NULL;
    struct kv_cache *kv = mem_zalloc(sizeof *kv, MEM_KV);
    TRY_MEM(kv != NULL);
    uint32_t n_slots = 16;
    while (n_slots < (uint32_t)n_pages * 2) {
        n_slots *= 2;
    }
    *kv = (struct kv_cache){.n_pages = n_pages,
                            .n_free = n_pages,
                            .n_states = n_states,
                            .oldest = KV_NO_PAGE,
                            .newest = KV_NO_PAGE,
                            .mask = n_slots - 1,
                            .key = fresh_key()};
    kv->pages = mem_zalloc_array((size_t)n_pages, sizeof *kv->pages, MEM_KV);
    kv->slots = mem_alloc(n_slots * sizeof *kv->slots, MEM_KV);
    kv->states = n_states != 0 ? mem_zalloc_array((size_t)n_states, sizeof *kv->states, MEM_KV) : NULL;
    if (kv->pages == NULL || kv->slots == NULL || (n_states != 0 && kv->states == NULL)) {
        kv_cache_free(&kv);
        return ERR_NOMEM;
    }
    memset(kv->slots, 0xFF, n_slots * sizeof *kv->slots);
    for (int32_t i = 0; i < n_pages; i++) {
        kv->pages[i].next = i + 1 < n_pages ? i + 1 : KV_NO_PAGE;
        kv->pages[i].state = KV_NO_STATE;
    }
    for (int32_t i = 0; i < n_states; i++) {
        kv->states[i].page = KV_NO_PAGE;
    }
    *out = kv;
    return ERR_OK;
}

void kv_cache_free(struct kv_cache **kv)
{
    if (*kv != NULL) {
        mem_free((*kv)->pages);
        mem_free((*kv)->slots);
        mem_free((*kv)->states);
        mem_free(*kv);
        *kv = NULL;
    }
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

static uint64_t hash_of(const struct kv_cache *kv, uint64_t salt, int32_t parent, const int32_t *tokens)
{
    uint64_t h = mix(mix(kv->key, salt), (uint64_t)(int64_t)parent);
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        h = mix(h, (uint64_t)(uint32_t)tokens[i]);
    }
    return h;
}

uint64_t kv_cache_salt(const struct kv_cache *kv, const char *text)
{
    uint64_t h = kv->key;
    for (; text != NULL && *text != '\0'; text++) {
        h = mix(h, (unsigned char)*text);
    }
    return h;
}

/* --- kept pages ------------------------------------------------------------------------------------------------- */

static void keep(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    p->is_kept = true;
    p->prev = kv->newest;
    p->next = KV_NO_PAGE;
    *(kv->newest == KV_NO_PAGE ? &kv->oldest : &kv->pages[kv->newest].next) = id;
    kv->newest = id;
    kv->n_kept++;
}

static void unkeep(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    *(p->prev == KV_NO_PAGE ? &kv->oldest : &kv->pages[p->prev].next) = p->next;
    *(p->next == KV_NO_PAGE ? &kv->newest : &kv->pages[p->next].prev) = p->prev;
    p->is_kept = false;
    kv->n_kept--;
}

/* --- recurrent states ------------------------------------------------------------------------------------------- */

/* One that is free, else of those that only a page has the one unused for the longest time. There are about as many as
 * sequences, or fewer than pages where they are small, and one is taken for 32 tokens at most: a walk is cheap. */
int32_t kv_cache_take_state(struct kv_cache *kv)
{
    int32_t best = KV_NO_STATE;
    for (int32_t i = 0; i < kv->n_states; i++) {
        const struct state *s = &kv->states[i];
        if (s->n_held == 0 && s->page == KV_NO_PAGE) {
            best = i;
            break;
        }
        if (s->n_held == 0 && (best == KV_NO_STATE || s->used_at < kv->states[best].used_at)) {
            best = i;
        }
    }
    if (best != KV_NO_STATE) {
        if (kv->states[best].page != KV_NO_PAGE) {
            kv_cache_forget_state(kv, kv->states[best].page);
        }
        kv_cache_hold_state(kv, best);
    }
    return best;
}

void kv_cache_hold_state(struct kv_cache *kv, int32_t state)
{
    kv->states[state].used_at = ++kv->now;
    kv->n_states_held += kv->states[state].n_held++ == 0;
}

void kv_cache_drop_state(struct kv_cache *kv, int32_t state) { kv->n_states_held -= --kv->states[state].n_held == 0; }

void kv_cache_keep_state(struct kv_cache *kv, int32_t page, int32_t state)
{
    kv->pages[page].state = state;
    kv->states[state].page = page;
    kv->states[state].used_at = ++kv->now;
    kv->n_states_kept++;
}

void kv_cache_forget_state(struct kv_cache *kv, int32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->state != KV_NO_STATE) {
        kv->states[p->state].page = KV_NO_PAGE;
        p->state = KV_NO_STATE;
        kv->n_states_kept--;
    }
}

int32_t kv_cache_state(const struct kv_cache *kv, int32_t page) { return kv->pages[page].state; }
int32_t kv_cache_n_states_held(const struct kv_cache *kv) { return kv->n_states_held; }
int32_t kv_cache_n_states_kept(const struct kv_cache *kv) { return kv->n_states_kept; }

/* --- names ------------------------------------------------------------------------------------------------------ */

/* Takes a page out of its hash slot. */
static void unchain(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    int32_t *link = &kv->slots[p->hash & kv->mask];
    while (*link != id) {
        link = &kv->pages[*link].chain;
    }
    *link = p->chain;
}

static void unname(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    if (!p->is_forgotten) {
        unchain(kv, id);
    }
    if (p->parent != KV_NO_PAGE) {
        kv->pages[p->parent].n_children--;
    }
    p->is_named = p->is_filled = false;
    p->owner = KV_NO_OWNER;
    kv_cache_forget_state(kv, id);
}

static void release(struct kv_cache *kv, int32_t id)
{
    kv->pages[id].next = kv->free;
    kv->free = id;
    kv->n_free++;
}

int32_t kv_cache_find(const struct kv_cache *kv, uint64_t salt, int32_t parent, const int32_t *tokens)
{
    uint64_t hash = hash_of(kv, salt, parent, tokens);
    for (int32_t id = kv->slots[hash & kv->mask]; id != KV_NO_PAGE; id = kv->pages[id].chain) {
        const struct page *p = &kv->pages[id];
        if (p->hash == hash && p->parent == parent && p->salt == salt &&
            memcmp(p->tokens, tokens, sizeof p->tokens) == 0) {
            return id;
        }
    }
    return KV_NO_PAGE;
}

bool kv_cache_name(struct kv_cache *kv, int32_t page, uint64_t salt, int32_t parent, const int32_t *tokens,
                   uint64_t owner)
{
    if (kv_cache_find(kv, salt, parent, tokens) != KV_NO_PAGE) {
        return false;
    }
    struct page *p = &kv->pages[page];
    p->salt = salt;
    p->parent = parent;
    p->hash = hash_of(kv, salt, parent, tokens);
    p->owner = owner;
    p->is_named = true;
    p->is_filled = p->is_forgotten = false;
    p->n_children = 0;
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->chain = kv->slots[p->hash & kv->mask];
    kv->slots[p->hash & kv->mask] = page;
    if (parent != KV_NO_PAGE) {
        kv->pages[parent].n_children++;
    }
    return true;
}

void kv_cache_fill(struct kv_cache *kv, int32_t page)
{
    kv->pages[page].is_filled = true;
    kv->pages[page].owner = KV_NO_OWNER;
}

void kv_cache_forget(struct kv_cache *kv, int32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->is_named && p->is_filled && !p->is_forgotten) {
        unchain(kv, page);
        p->is_forgotten = true;
        kv_cache_forget_state(kv, page);
    }
}

bool kv_cache_is_named(const struct kv_cache *kv, int32_t page) { return kv->pages[page].is_named; }
bool kv_cache_is_held(const struct kv_cache *kv, int32_t page) { return kv->pages[page].n_held > 0; }
bool kv_cache_is_filled(const struct kv_cache *kv, int32_t page) { return kv->pages[page].is_filled; }
uint64_t kv_cache_owner(const struct kv_cache *kv, int32_t page) { return kv->pages[page].owner; }
void kv_cache_set_owner(struct kv_cache *kv, int32_t page, uint64_t owner) { kv->pages[page].owner = owner; }

/* --- holding ---------------------------------------------------------------------------------------------------- */

/* Frees the oldest kept page that no other page hangs from. Sequences drop their last pages first, so it is near the
 * front of the list. */
static bool evict_one(struct kv_cache *kv)
{
    for (int32_t id = kv->oldest; id != KV_NO_PAGE; id = kv->pages[id].next) {
        if (kv->pages[id].n_children == 0) {
            unkeep(kv, id);
            unname(kv, id);
            release(kv, id);
            return true;
        }
    }
    return false;
}

int32_t kv_cache_take(struct kv_cache *kv)
{
    if (kv->n_free == 0 && !evict_one(kv)) {
        return KV_NO_PAGE;
    }
    int32_t id = kv->free;
    kv->free = kv->pages[id].next;
    kv->n_free--;
    kv->n_held++;
    kv->pages[id] = (struct page){.n_held = 1, .parent = KV_NO_PAGE, .state = KV_NO_STATE};
    return id;
}

void kv_cache_hold(struct kv_cache *kv, int32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->n_held++ == 0) {
        unkeep(kv, page);
        kv->n_held++;
    }
}

void kv_cache_drop(struct kv_cache *kv, int32_t page)
{
    struct page *p = &kv->pages[page];
    if (--p->n_held > 0) {
        return;
    }
    kv->n_held--;
    if (p->is_named && p->is_filled) {
        keep(kv, page);
        return;
    }
    if (p->is_named) {
        unname(kv, page); /* empty: nobody holds its children either, as they would hold it too */
    }
    release(kv, page);
}

int32_t kv_cache_n_available(const struct kv_cache *kv) { return kv->n_free + kv->n_kept; }
int32_t kv_cache_n_held(const struct kv_cache *kv) { return kv->n_held; }
int32_t kv_cache_n_kept(const struct kv_cache *kv) { return kv->n_kept; }
int32_t kv_cache_n_pages(const struct kv_cache *kv) { return kv->n_pages; }
