/* Limits on the memory of requests: one budget for all of MEM_REQUEST and MEM_GRAMMAR, and a share per request. mem.c
 * asks here before it returns a block. After a refusal the caller gets NULL, and the account records which of the two
 * limits refused it, for the error message. A block stays charged to the account it was allocated for, whichever thread
 * frees it.
 *
 * The charge is what a block takes of the heap, including its header. The last eighth of the budget is reserved for
 * requests that hold little, so that few large requests cannot turn all others away. Threads without an account are the
 * engine's: they are counted, not refused. Threads: safe from any; one thread at a time enters an account. */
#ifndef INFCGI_BASE_MEM_ACCOUNT_H
#define INFCGI_BASE_MEM_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum mem_refusal {
    MEM_REFUSED_NOT,
    MEM_REFUSED_SHARE,  /* the request would exceed its share */
    MEM_REFUSED_BUDGET, /* all requests together would exceed the budget */
};

/* Used by one request at a time. Zero-initialise; must outlive every block charged to it. Fields are private. */
struct mem_account {
    atomic_size_t held_bytes, peak_bytes;
    atomic_int refusal;
};

/* A request that holds at most this can use the budget's last eighth. */
enum { MEM_ACCOUNT_SMALL_BYTES = 1 << 20 };

/* Sets the limits in bytes; 0: none (initially). Held blocks stay. */
void mem_account_limit(size_t budget_bytes, size_t share_bytes);
size_t mem_account_budget(void);
size_t mem_account_share(void);

/* Returns the bytes now charged to the budget. */
size_t mem_account_held(void);

/* mem_account_enter charges this thread's blocks of these purposes to `a` until mem_account_leave, and resets the
 * refusal. mem_account_leave returns the peak since then. */
void mem_account_enter(struct mem_account *a);
size_t mem_account_leave(void);

/* mem_account_begin_other charges blocks to `other` (OPTIONAL), an account of something that outlives the request, and
 * returns this thread's account. mem_account_end_other returns to it and copies a refusal of the other one. */
struct mem_account *mem_account_begin_other(struct mem_account *other);
void mem_account_end_other(struct mem_account *before);

/* mem_account_current returns this thread's account, NULL if none is entered; mem_account_refusal its last refusal. */
struct mem_account *mem_account_current(void);
enum mem_refusal mem_account_refusal(void);

/* For mem.c: charge / return a block's bytes. a OPTIONAL. mem_account_take returns false, and charges nothing, if a
 * limit would be exceeded. */
bool mem_account_take(struct mem_account *a, size_t bytes);
void mem_account_give(struct mem_account *a, size_t bytes);

/* Returns the last requested size of a block of mem.h, which is its charge without the header; 0 for NULL. */
size_t mem_account_size(const void *block);

/* Configures the heap to return memory: few arenas, large blocks directly from the system. Call it before threads
 * start. */
void mem_account_tune(int n_arenas);

/* Returns free pages of the heap to the system. Takes milliseconds, so do not call it per request. */
void mem_account_trim(void);

#endif
