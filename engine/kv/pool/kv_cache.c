/* One array of page records. Lists link free pages and kept pages through it; a chained hash table finds identities. */
#include "engine/kv/pool/kv_cache.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <string.h>
#include <sys/random.h>

struct page {
    int32_t n_held;
    int32_t n_children;     /* named pages with this parent */
    int32_t parent;         /* KV_NO_PAGE: a first page */
    uint64_t parent_serial; /* 0 for a first page; if the parent page has another serial now, the parent was evicted */
    int32_t chain;          /* next page in the same hash slot */
    bool is_named, is_filled, is_preferred;
    bool is_forgotten; /* named for its children, but no longer in its hash slot */
    int32_t state;     /* recurrent state after its last token, or KV_NO_STATE */
    int32_t window;    /* window page of its tokens, or KV_NO_WINDOW */
    uint64_t salt, hash, owner, serial;
    int32_t tokens[KV_PAGE_TOKENS];
};

struct state {
    int32_t n_held;
    int32_t page;     /* the page that keeps it, or KV_NO_PAGE */
    uint64_t used_at; /* when it was kept or last held, on the clock kv_cache.now */
};

struct window {
    int32_t n_held;
    int32_t page;   /* the page that keeps it, or KV_NO_PAGE */
    bool is_passed; /* the sequence that dropped it continued after it */
};

/* Unreferenced window pages, in order of eviction. */
enum window_list { PASSED, ENDED, PREFERRED, N_WINDOW_LISTS };

/* The neighbours of a page or window page in the free list (next only), or in the list of those kept; NO_LINK: none. */
struct link {
    int32_t prev, next;
};
enum { NO_LINK = -1 };

/* Pages, or window pages, that are kept without a reference. */
struct kept_list {
    int32_t oldest, newest, n;
};

struct kv_cache {
    struct page *pages;
    struct link *links; /* [n_pages] */
    int32_t n_pages, n_held, n_kept, n_free;
    int32_t free;             /* first free page */
    struct kept_list kept[2]; /* pages that are not preferred, and preferred ones */
    int32_t *slots;           /* [mask + 1] first page of each hash slot */
    uint32_t mask;
    uint64_t key; /* of the hash, drawn at the start */
    struct state *states;
    int32_t n_states, n_states_held, n_states_kept;
    struct window *windows;
    struct link *window_links; /* [n_windows] */
    int32_t n_windows, n_windows_held, free_window;
    struct kept_list kept_windows[N_WINDOW_LISTS];
    uint64_t now;     /* counts uses of states */
    uint64_t n_names; /* names given so far */
};

/* Returns links that chain all n as free. NULL: memory is out. */
static struct link *make_links(int32_t n)
{
    struct link *links = mem_zalloc_array((size_t)n, sizeof *links, MEM_KV);
    for (int32_t i = 0; links != NULL && i < n; i++) {
        links[i].next = i + 1 < n ? i + 1 : NO_LINK;
    }
    return links;
}

enum err kv_cache_new(int32_t n_pages, int32_t n_windows, int32_t n_states, struct kv_cache **out)
{
    *out = NULL;
    struct kv_cache *kv = mem_zalloc(sizeof *kv, MEM_KV);
    TRY_MEM(kv != NULL);
    /* Unknown to clients, so that they cannot aim at a hash slot or at another tenant's salt. */
    uint64_t key = 0;
    bool has_key = getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key;
    uint32_t n_slots = 16;
    while (n_slots < (uint32_t)n_pages * 2) {
        n_slots *= 2;
    }
    *kv = (struct kv_cache){.n_pages = n_pages,
                            .n_free = n_pages,
                            .n_states = n_states,
                            .n_windows = n_windows,
                            .free_window = n_windows != 0 ? 0 : KV_NO_WINDOW,
                            .kept = {{KV_NO_PAGE, KV_NO_PAGE, 0}, {KV_NO_PAGE, KV_NO_PAGE, 0}},
                            .mask = n_slots - 1,
                            .key = has_key ? key : rng_fresh_seed()};
    kv->pages = mem_zalloc_array((size_t)n_pages, sizeof *kv->pages, MEM_KV);
    kv->slots = mem_alloc(n_slots * sizeof *kv->slots, MEM_KV);
    kv->states = n_states != 0 ? mem_zalloc_array((size_t)n_states, sizeof *kv->states, MEM_KV) : NULL;
    kv->windows = n_windows != 0 ? mem_zalloc_array((size_t)n_windows, sizeof *kv->windows, MEM_KV) : NULL;
    kv->links = make_links(n_pages);
    kv->window_links = n_windows != 0 ? make_links(n_windows) : NULL;
    if (kv->pages == NULL || kv->slots == NULL || (n_states != 0 && kv->states == NULL) || kv->links == NULL ||
        (n_windows != 0 && (kv->windows == NULL || kv->window_links == NULL))) {
        kv_cache_free(&kv);
        return ERR_NOMEM;
    }
    memset(kv->slots, 0xFF, n_slots * sizeof *kv->slots);
    for (int32_t i = 0; i < n_pages; i++) {
        kv->pages[i].state = KV_NO_STATE;
        kv->pages[i].window = KV_NO_WINDOW;
    }
    for (int i = 0; i < N_WINDOW_LISTS; i++) {
        kv->kept_windows[i] = (struct kept_list){KV_NO_WINDOW, KV_NO_WINDOW, 0};
    }
    for (int32_t i = 0; i < n_windows; i++) {
        kv->windows[i].page = KV_NO_PAGE;
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
        mem_free((*kv)->links);
        mem_free((*kv)->window_links);
        mem_free((*kv)->slots);
        mem_free((*kv)->states);
        mem_free((*kv)->windows);
        mem_free(*kv);
        *kv = NULL;
    }
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

static uint64_t hash_of(const struct kv_cache *kv, uint64_t salt, uint64_t parent_serial, const int32_t *tokens)
{
    uint64_t h = mix(mix(kv->key, salt), parent_serial);
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

/* --- lists of kept pages and window pages ------------------------------------------------------------------------ */

static void list_append(struct kept_list *list, struct link *links, int32_t id)
{
    links[id] = (struct link){.prev = list->newest, .next = NO_LINK};
    *(list->newest == NO_LINK ? &list->oldest : &links[list->newest].next) = id;
    list->newest = id;
    list->n++;
}

static void list_remove(struct kept_list *list, struct link *links, int32_t id)
{
    const struct link *l = &links[id];
    *(l->prev == NO_LINK ? &list->oldest : &links[l->prev].next) = l->next;
    *(l->next == NO_LINK ? &list->newest : &links[l->next].prev) = l->prev;
    list->n--;
}

static void unkeep(struct kv_cache *kv, int32_t id)
{
    list_remove(&kv->kept[kv->pages[id].is_preferred], kv->links, id);
    kv->n_kept--;
}

/* --- recurrent states ------------------------------------------------------------------------------------------- */

static bool is_too_much(int32_t n_preferred, int32_t n)
{
    return (int64_t)n_preferred * KV_ALL_PARTS > (int64_t)n * KV_PREFERRED_PARTS;
}

static bool is_preferred(const struct kv_cache *kv, const struct state *s)
{
    return s->page != KV_NO_PAGE && kv->pages[s->page].is_preferred;
}

/* Is the state unreferenced, and evicted before the other? */
static bool goes_before(const struct kv_cache *kv, const struct state *s, const struct state *other, bool by_age)
{
    bool differ = !by_age && is_preferred(kv, s) != is_preferred(kv, other);
    return s->n_held == 0 && (differ ? is_preferred(kv, other) : s->used_at < other->used_at);
}

/* Returns a free state, else the least recently used unreferenced one, first of pages that are not preferred. A walk is
 * cheap: there are about as many states as sequences, or fewer than pages if they are small, and at most one is taken
 * per 32 tokens. */
int32_t kv_cache_take_state(struct kv_cache *kv)
{
    int32_t best = KV_NO_STATE, n_preferred = 0;
    for (int32_t i = 0; i < kv->n_states; i++) {
        n_preferred += is_preferred(kv, &kv->states[i]);
    }
    bool by_age = is_too_much(n_preferred, kv->n_states);
    for (int32_t i = 0; i < kv->n_states; i++) {
        const struct state *s = &kv->states[i];
        if (s->n_held == 0 && s->page == KV_NO_PAGE) {
            best = i;
            break;
        }
        if (best == KV_NO_STATE ? s->n_held == 0 : goes_before(kv, s, &kv->states[best], by_age)) {
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

/* --- window pages ------------------------------------------------------------------------------------------------- */

static struct kept_list *list_of(struct kv_cache *kv, const struct window *w)
{
    return &kv->kept_windows[kv->pages[w->page].is_preferred ? PREFERRED : w->is_passed ? PASSED : ENDED];
}

static void free_window(struct kv_cache *kv, int32_t id)
{
    kv->window_links[id].next = kv->free_window;
    kv->free_window = id;
}

/* Appends a window page without references to its list. */
static void keep_window(struct kv_cache *kv, int32_t id)
{
    list_append(list_of(kv, &kv->windows[id]), kv->window_links, id);
}

static void unkeep_window(struct kv_cache *kv, int32_t id)
{
    list_remove(list_of(kv, &kv->windows[id]), kv->window_links, id);
}

static void forget_window(struct kv_cache *kv, int32_t page)
{
    int32_t id = kv->pages[page].window;
    if (id == KV_NO_WINDOW) {
        return;
    }
    if (kv->windows[id].n_held == 0) {
        unkeep_window(kv, id);
        free_window(kv, id);
    }
    kv->windows[id].page = KV_NO_PAGE;
    kv->pages[page].window = KV_NO_WINDOW;
}

int32_t kv_cache_take_window(struct kv_cache *kv)
{
    if (kv->free_window == KV_NO_WINDOW) {
        int first = is_too_much(kv->kept_windows[PREFERRED].n, kv->n_windows) ? PREFERRED : PASSED;
        while (first < N_WINDOW_LISTS && kv->kept_windows[first].n == 0) {
            first++;
        }
        if (first == N_WINDOW_LISTS) {
            return KV_NO_WINDOW;
        }
        int32_t oldest = kv->kept_windows[first].oldest;
        forget_window(kv, kv->windows[oldest].page);
    }
    int32_t id = kv->free_window;
    kv->free_window = kv->window_links[id].next;
    kv->windows[id].n_held = 1;
    kv->n_windows_held++;
    return id;
}

void kv_cache_hold_window(struct kv_cache *kv, int32_t window)
{
    if (kv->windows[window].n_held++ == 0) {
        unkeep_window(kv, window);
        kv->n_windows_held++;
    }
}

void kv_cache_drop_window(struct kv_cache *kv, int32_t window, bool passes)
{
    struct window *w = &kv->windows[window];
    if (--w->n_held > 0) {
        return;
    }
    kv->n_windows_held--;
    w->is_passed = passes;
    if (w->page != KV_NO_PAGE) {
        keep_window(kv, window);
    } else {
        free_window(kv, window);
    }
}

void kv_cache_keep_window(struct kv_cache *kv, int32_t page, int32_t window)
{
    kv->pages[page].window = window;
    kv->windows[window].page = page;
}

int32_t kv_cache_window(const struct kv_cache *kv, int32_t page) { return kv->pages[page].window; }
int32_t kv_cache_n_windows_held(const struct kv_cache *kv) { return kv->n_windows_held; }
int32_t kv_cache_n_windows_kept(const struct kv_cache *kv)
{
    return kv->kept_windows[PASSED].n + kv->kept_windows[ENDED].n + kv->kept_windows[PREFERRED].n;
}
int32_t kv_cache_n_windows(const struct kv_cache *kv) { return kv->n_windows; }

/* --- names ------------------------------------------------------------------------------------------------------ */

/* Removes a page from its hash slot. */
static void unchain(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    int32_t *link = &kv->slots[p->hash & kv->mask];
    while (*link != id) {
        link = &kv->pages[*link].chain;
    }
    *link = p->chain;
}

/* Pages without a name have serial 0, and no two names share a serial. */
static uint64_t serial_of(const struct kv_cache *kv, int32_t id) { return id != KV_NO_PAGE ? kv->pages[id].serial : 0; }
static bool has_lost_parent(const struct kv_cache *kv, const struct page *p)
{
    return serial_of(kv, p->parent) != p->parent_serial;
}

static void unname(struct kv_cache *kv, int32_t id)
{
    struct page *p = &kv->pages[id];
    if (!p->is_forgotten) {
        unchain(kv, id);
    }
    if (p->parent != KV_NO_PAGE && !has_lost_parent(kv, p)) {
        kv->pages[p->parent].n_children--;
    }
    p->is_named = p->is_filled = false;
    p->owner = KV_NO_OWNER;
    p->serial = 0;
    kv_cache_forget_state(kv, id);
    forget_window(kv, id);
}

static void release(struct kv_cache *kv, int32_t id)
{
    kv->links[id].next = kv->free;
    kv->free = id;
    kv->n_free++;
}

int32_t kv_cache_find(const struct kv_cache *kv, uint64_t salt, int32_t parent, const int32_t *tokens)
{
    uint64_t parent_serial = serial_of(kv, parent), hash = hash_of(kv, salt, parent_serial, tokens);
    for (int32_t id = kv->slots[hash & kv->mask]; id != KV_NO_PAGE; id = kv->pages[id].chain) {
        const struct page *p = &kv->pages[id];
        if (p->hash == hash && p->parent_serial == parent_serial && p->salt == salt &&
            memcmp(p->tokens, tokens, sizeof p->tokens) == 0) {
            return id;
        }
    }
    return KV_NO_PAGE;
}

bool kv_cache_name(struct kv_cache *kv, int32_t page, uint64_t salt, int32_t parent, const int32_t *tokens)
{
    if (kv_cache_find(kv, salt, parent, tokens) != KV_NO_PAGE) {
        return false;
    }
    struct page *p = &kv->pages[page];
    p->salt = salt;
    p->parent = parent;
    p->parent_serial = serial_of(kv, parent);
    p->hash = hash_of(kv, salt, p->parent_serial, tokens);
    p->serial = ++kv->n_names;
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
        forget_window(kv, page);
    }
}

uint64_t kv_cache_serial(const struct kv_cache *kv, int32_t page)
{
    const struct page *p = &kv->pages[page];
    return p->is_named && p->is_filled && !p->is_forgotten ? p->serial : 0;
}

const int32_t *kv_cache_tokens(const struct kv_cache *kv, int32_t page) { return kv->pages[page].tokens; }
void kv_cache_prefer(struct kv_cache *kv, int32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->is_preferred || p->n_held == 0 || !p->is_named || !p->is_filled || p->is_forgotten) {
        return;
    }
    bool is_listed = p->window != KV_NO_WINDOW && kv->windows[p->window].n_held == 0;
    if (is_listed) {
        unkeep_window(kv, p->window);
    }
    p->is_preferred = true;
    if (is_listed) {
        keep_window(kv, p->window);
    }
}

bool kv_cache_is_named(const struct kv_cache *kv, int32_t page) { return kv->pages[page].is_named; }
bool kv_cache_has_lost_parent(const struct kv_cache *kv, int32_t page) { return has_lost_parent(kv, &kv->pages[page]); }
bool kv_cache_is_held(const struct kv_cache *kv, int32_t page) { return kv->pages[page].n_held > 0; }
bool kv_cache_is_filled(const struct kv_cache *kv, int32_t page) { return kv->pages[page].is_filled; }
uint64_t kv_cache_owner(const struct kv_cache *kv, int32_t page) { return kv->pages[page].owner; }
void kv_cache_set_owner(struct kv_cache *kv, int32_t page, uint64_t owner) { kv->pages[page].owner = owner; }

/* --- holding ---------------------------------------------------------------------------------------------------- */

static void evict(struct kv_cache *kv, int32_t id)
{
    unkeep(kv, id);
    unname(kv, id);
    release(kv, id);
}

/* Frees the oldest kept page of a list without children. Sequences drop their last pages first, so it is near the
 * front. */
static bool evict_from(struct kv_cache *kv, int list)
{
    for (int32_t id = kv->kept[list].oldest; id != KV_NO_PAGE; id = kv->links[id].next) {
        if (kv->pages[id].n_children == 0) {
            evict(kv, id);
            return true;
        }
    }
    return false;
}

/* Frees the newest kept page of a list. If held pages descend from all kept ones, the kept ones are before windows, and
 * beginnings are the likeliest to be found by other sequences. */
static bool evict_in_front(struct kv_cache *kv, int list)
{
    int32_t id = kv->kept[list].newest;
    if (id != KV_NO_PAGE) {
        evict(kv, id);
    }
    return id != KV_NO_PAGE;
}

static bool evict_one(struct kv_cache *kv)
{
    bool first = is_too_much(kv->kept[true].n, kv->n_pages);
    return evict_from(kv, first) || evict_from(kv, !first) || evict_in_front(kv, false) || evict_in_front(kv, true);
}

int32_t kv_cache_take(struct kv_cache *kv)
{
    if (kv->n_free == 0 && !evict_one(kv)) {
        return KV_NO_PAGE;
    }
    int32_t id = kv->free;
    kv->free = kv->links[id].next;
    kv->n_free--;
    kv->n_held++;
    kv->pages[id] = (struct page){.n_held = 1, .parent = KV_NO_PAGE, .state = KV_NO_STATE, .window = KV_NO_WINDOW};
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
    if (p->is_named && p->is_filled && !has_lost_parent(kv, p)) {
        list_append(&kv->kept[p->is_preferred], kv->links, page);
        kv->n_kept++;
        return;
    }
    if (p->is_named) {
        unname(kv, page); /* empty: its children have no holder either, because a holder would hold it too */
    }
    release(kv, page);
}

int32_t kv_cache_n_available(const struct kv_cache *kv) { return kv->n_free + kv->n_kept; }
int32_t kv_cache_n_held(const struct kv_cache *kv) { return kv->n_held; }
int32_t kv_cache_n_kept(const struct kv_cache *kv) { return kv->n_kept; }
