/* Counted allocation. A 16-byte header before each heap block holds its size, its purpose and the account it is charged
 * to, so the counts are exact without a second table. */
#include "engine/base/mem.h"

#include "engine/base/ck.h"
#include "engine/base/mem_account.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 16,
    ARENA_ALIGN = 16,
    MALLOC_BYTES = 16, /* overhead of malloc per block: its size, and rounding */
};
#define MAX_BYTES ((size_t)1 << 55) /* a header holds sizes below 2^56 */

struct header {
    uint64_t bytes : 56, purpose : 8;
    struct mem_account *account; /* NULL: none; of charged blocks */
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the header must keep blocks 16-byte aligned");

static atomic_size_t live_bytes[MEM_PURPOSE_COUNT]; /* relaxed: counters order nothing */
static atomic_long fail_countdown = -1;
static atomic_bool fault_fired, fault_lasts;
static _Thread_local bool is_spared;

static void plan_fault(long n, bool is_lasting)
{
    atomic_store(&fail_countdown, -1);
    atomic_store(&fault_fired, false);
    atomic_store(&fault_lasts, is_lasting);
    atomic_store(&fail_countdown, n);
}

void mem_fail_at(long n)
{
    is_spared = false;
    plan_fault(n, false);
}

void mem_fail_elsewhere(long n, bool is_lasting)
{
    is_spared = true;
    plan_fault(n, is_lasting);
}

bool mem_fault_fired(void) { return atomic_load(&fault_fired); }

/* Counts this allocation against the planned fault. */
static bool must_fail(void)
{
    long left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    if (left < 0 || is_spared) {
        return false;
    }
    long end = atomic_load(&fault_lasts) ? 0 : -1;
    while (!atomic_compare_exchange_weak(&fail_countdown, &left, left > 0 ? left - 1 : end)) {
        if (left < 0) {
            return false;
        }
    }
    if (left == 0) {
        atomic_store(&fault_fired, true);
    }
    return left == 0;
}

static void count(enum mem_purpose purpose, size_t add, size_t sub)
{
    atomic_fetch_add_explicit(&live_bytes[purpose], add - sub, memory_order_relaxed);
}

/* Does memory for this purpose count against the budget of requests? */
static bool is_charged(enum mem_purpose purpose) { return purpose == MEM_REQUEST || purpose == MEM_GRAMMAR; }

/* Charges a block of this size; returns false if the thread cannot have it. */
static bool charge(struct mem_account *account, enum mem_purpose purpose, size_t bytes)
{
    return !is_charged(purpose) || mem_account_take(account, bytes + HEADER_BYTES + MALLOC_BYTES);
}

static void uncharge(struct mem_account *account, enum mem_purpose purpose, size_t bytes)
{
    if (is_charged(purpose)) {
        mem_account_give(account, bytes + HEADER_BYTES + MALLOC_BYTES);
    }
}

static void *take(size_t bytes, enum mem_purpose purpose, bool is_zeroed)
{
    if (bytes > MAX_BYTES || must_fail()) {
        return NULL;
    }
    struct mem_account *account = is_charged(purpose) ? mem_account_current() : NULL;
    if (!charge(account, purpose, bytes)) {
        return NULL;
    }
    struct header *h = is_zeroed ? calloc(1, bytes + HEADER_BYTES) : malloc(bytes + HEADER_BYTES);
    if (h == NULL) {
        uncharge(account, purpose, bytes);
        return NULL;
    }
    h->bytes = bytes;
    h->purpose = purpose;
    h->account = account;
    count(purpose, bytes, 0);
    return (char *)h + HEADER_BYTES;
}

void *mem_alloc(size_t bytes, enum mem_purpose purpose) { return take(bytes, purpose, false); }
void *mem_zalloc(size_t bytes, enum mem_purpose purpose) { return take(bytes, purpose, true); }

void *mem_zalloc_array(size_t n, size_t size, enum mem_purpose purpose)
{
    size_t bytes;
    return ck_mul_size(n, size, &bytes) ? mem_zalloc(bytes, purpose) : NULL;
}

void *mem_realloc(void *p, size_t bytes, enum mem_purpose purpose)
{
    if (p == NULL) {
        return mem_alloc(bytes, purpose);
    }
    if (bytes > MAX_BYTES || must_fail()) {
        return NULL;
    }
    struct header *old = (struct header *)((char *)p - HEADER_BYTES);
    struct header before = *old;
    enum mem_purpose kept = (enum mem_purpose)before.purpose;
    if (!charge(before.account, kept, bytes)) { /* in addition to the old block: both can exist for a moment */
        return NULL;
    }
    struct header *h = realloc(old, bytes + HEADER_BYTES);
    uncharge(before.account, kept, h == NULL ? bytes : before.bytes);
    if (h == NULL) {
        return NULL;
    }
    h->bytes = bytes;
    count(kept, bytes, before.bytes);
    return (char *)h + HEADER_BYTES;
}

enum err mem_grow(void *array, size_t n, size_t *cap, size_t size, enum mem_purpose purpose)
{
    size_t more = *cap != 0 ? 2 * *cap : 64, bytes;
    void *p;
    if (n < *cap) {
        return ERR_OK;
    }
    memcpy(&p, array, sizeof p);
    p = ck_mul_size(more, size, &bytes) ? mem_realloc(p, bytes, purpose) : NULL;
    TRY_MEM(p != NULL);
    memcpy(array, &p, sizeof p);
    *cap = more;
    return ERR_OK;
}

size_t mem_account_size(const void *block)
{
    return block == NULL ? 0 : (size_t)((const struct header *)((const char *)block - HEADER_BYTES))->bytes;
}

void mem_free(void *p)
{
    if (p == NULL) {
        return;
    }
    struct header *h = (struct header *)((char *)p - HEADER_BYTES);
    enum mem_purpose purpose = (enum mem_purpose)h->purpose;
    count(purpose, 0, h->bytes);
    uncharge(h->account, purpose, h->bytes);
    free(h);
}

/* Copies s[0..n) and a NUL to `to`, of n + 1 bytes; returns it. NULL stays NULL. */
static char *copy_text(char *to, const char *s, size_t n)
{
    if (to != NULL) {
        if (n != 0) {
            memcpy(to, s, n);
        }
        to[n] = '\0';
    }
    return to;
}

char *mem_dup(const char *s, size_t n, enum mem_purpose purpose)
{
    return n == SIZE_MAX ? NULL : copy_text(mem_alloc(n + 1, purpose), s, n);
}

void *mem_map(size_t bytes, enum mem_purpose purpose)
{
    if (bytes == 0 || must_fail()) {
        return NULL;
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* failure only makes it slower */
#endif
    count(purpose, bytes, 0);
    return p;
}

void mem_populate(void *p, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (page - (uintptr_t)p % page) % page;
    if (bytes > skip) {
        (void)madvise((unsigned char *)p + skip, bytes - skip,
                      MADV_POPULATE_WRITE); /* failure is harmless: the memory comes on first use */
    }
#else
    (void)p;
    (void)bytes;
#endif
}

void mem_unmap(void *p, size_t bytes, enum mem_purpose purpose)
{
    if (p != NULL) {
        munmap(p, bytes);
        count(purpose, 0, bytes);
    }
}

size_t mem_live_of(enum mem_purpose purpose)
{
    return atomic_load_explicit(&live_bytes[purpose], memory_order_relaxed);
}

size_t mem_live(void)
{
    size_t sum = 0;
    for (int i = 0; i < MEM_PURPOSE_COUNT; i++) {
        sum += mem_live_of((enum mem_purpose)i);
    }
    return sum;
}

const char *mem_purpose_name(enum mem_purpose purpose)
{
    static const char *const names[MEM_PURPOSE_COUNT] = {"general", "model",   "weights", "kv",
                                                         "scratch", "request", "grammar"};
    return names[purpose];
}

/* --- arena ------------------------------------------------------------------------------------------------------ */

struct arena_chunk {
    struct arena_chunk *next;
    size_t capacity; /* bytes after this struct */
    size_t used;
    size_t pad; /* keeps data[] 16-byte aligned */
};
_Static_assert(sizeof(struct arena_chunk) % ARENA_ALIGN == 0, "chunk data must be aligned");

void arena_init(struct arena *a, size_t chunk_bytes, size_t limit_bytes, enum mem_purpose purpose)
{
    *a = (struct arena){.chunk_bytes = chunk_bytes, .limit_bytes = limit_bytes, .purpose = purpose};
}

static void *take_from(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (a->limit_bytes != 0 && bytes > a->limit_bytes - MIN_OF(a->used_bytes, a->limit_bytes)) {
        a->is_full = true;
        return NULL;
    }
    struct arena_chunk *c = a->head;
    if (c == NULL || c->capacity - c->used < bytes) {
        size_t capacity = MAX_OF(bytes, a->chunk_bytes);
        c = mem_alloc(sizeof *c + capacity, a->purpose);
        if (c == NULL) {
            return NULL;
        }
        *c = (struct arena_chunk){.next = a->head, .capacity = capacity};
        a->head = c;
    }
    void *p = (char *)(c + 1) + c->used;
    c->used += bytes;
    a->used_bytes += bytes;
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    void *p = take_from(a, bytes);
    a->has_failed = a->has_failed || p == NULL;
    return p;
}

enum err arena_ok(const struct arena *a) { return a->has_failed ? ERR_NOMEM : ERR_OK; }
bool arena_is_full(const struct arena *a) { return a->is_full; }

void *arena_zalloc_array(struct arena *a, size_t n, size_t size)
{
    return arena_zalloc(a, size != 0 && n > SIZE_MAX / size ? SIZE_MAX : n * size);
}

void *arena_zalloc(struct arena *a, size_t bytes)
{
    void *p = arena_alloc(a, bytes);
    if (p != NULL) {
        memset(p, 0, bytes);
    }
    return p;
}

char *arena_dup(struct arena *a, const char *s, size_t n)
{
    return copy_text(arena_alloc(a, n == SIZE_MAX ? n : n + 1), s, n);
}

void arena_reset(struct arena *a)
{
    while (a->head != NULL && a->head->next != NULL) {
        struct arena_chunk *next = a->head->next;
        mem_free(a->head);
        a->head = next;
    }
    if (a->head != NULL) {
        a->head->used = 0;
    }
    a->used_bytes = 0;
    a->has_failed = false;
    a->is_full = false;
}

void arena_fini(struct arena *a)
{
    arena_reset(a);
    mem_free(a->head);
    a->head = NULL;
}
