/* Two counters and two limits. A charge is added first and subsequently undone if it was too much: this needs no lock,
 * and concurrent charges cannot exceed the limits. */
#include "engine/base/mem_account.h"

#include <stdlib.h> /* defines __GLIBC__ */
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum {
    KEPT_PART = 8,            /* the last eighth is reserved for requests that hold little */
    MAPPED_BYTES = 256 << 10, /* larger blocks are separate mappings, returned when freed */
    TRIM_BYTES = 1 << 20,     /* free memory at the heap's end that can stay */
};

static atomic_size_t budget, share, held; /* relaxed: counters order nothing */
static _Thread_local struct mem_account *current;

void mem_account_limit(size_t budget_bytes, size_t share_bytes)
{
    atomic_store(&budget, budget_bytes);
    atomic_store(&share, share_bytes);
}

size_t mem_account_budget(void) { return atomic_load_explicit(&budget, memory_order_relaxed); }
size_t mem_account_share(void) { return atomic_load_explicit(&share, memory_order_relaxed); }
size_t mem_account_held(void) { return atomic_load_explicit(&held, memory_order_relaxed); }
struct mem_account *mem_account_current(void) { return current; }

void mem_account_enter(struct mem_account *a)
{
    atomic_store(&a->refusal, MEM_REFUSED_NOT);
    atomic_store(&a->peak_bytes, atomic_load(&a->held_bytes));
    current = a;
}

size_t mem_account_leave(void)
{
    struct mem_account *a = current;
    current = NULL;
    return a != NULL ? atomic_load(&a->peak_bytes) : 0;
}

struct mem_account *mem_account_begin_other(struct mem_account *other)
{
    struct mem_account *before = current;
    current = other;
    return before;
}

void mem_account_end_other(struct mem_account *before)
{
    int refusal = current != NULL ? atomic_load(&current->refusal) : MEM_REFUSED_NOT;
    if (before != NULL && refusal != MEM_REFUSED_NOT) {
        atomic_store(&before->refusal, refusal);
    }
    current = before;
}

enum mem_refusal mem_account_refusal(void)
{
    return current != NULL ? (enum mem_refusal)atomic_load(&current->refusal) : MEM_REFUSED_NOT;
}

static size_t add(atomic_size_t *counter, size_t bytes)
{
    return atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed) + bytes;
}

static enum mem_refusal judge(size_t mine, size_t all)
{
    size_t most = mem_account_budget(), one = mem_account_share();
    if (one != 0 && mine > one) {
        return MEM_REFUSED_SHARE;
    }
    size_t kept = mine > MEM_ACCOUNT_SMALL_BYTES ? most / KEPT_PART : 0;
    return most != 0 && all > most - kept ? MEM_REFUSED_BUDGET : MEM_REFUSED_NOT;
}

bool mem_account_take(struct mem_account *a, size_t bytes)
{
    size_t all = add(&held, bytes);
    if (a == NULL) {
        return true;
    }
    size_t mine = add(&a->held_bytes, bytes);
    enum mem_refusal refusal = judge(mine, all);
    if (refusal != MEM_REFUSED_NOT) {
        atomic_store(&a->refusal, refusal);
        mem_account_give(a, bytes);
        return false;
    }
    if (mine > atomic_load_explicit(&a->peak_bytes, memory_order_relaxed)) {
        atomic_store_explicit(&a->peak_bytes, mine, memory_order_relaxed);
    }
    return true;
}

void mem_account_give(struct mem_account *a, size_t bytes)
{
    atomic_fetch_sub_explicit(&held, bytes, memory_order_relaxed);
    if (a != NULL) {
        atomic_fetch_sub_explicit(&a->held_bytes, bytes, memory_order_relaxed);
    }
}

/* glibc makes eight arenas per CPU, whose free memory stays with the process, and keeps freed blocks of up to 32 MiB.
 * It keeps small blocks separate; malloc_trim merges them into an arena's end, which otherwise only a later free would
 * return. */
void mem_account_tune(int n_arenas)
{
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, n_arenas);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    (void)mallopt(M_MXFAST, 0);
#else
    (void)n_arenas;
#endif
}

void mem_account_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
