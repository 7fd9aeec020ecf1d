/* What requests may hold: one budget for all of MEM_REQUEST and MEM_GRAMMAR together, and a share of it for each request. mem.c asks
 * here before it hands out a block; a refusal is NULL to the caller, and the account knows which of the two it was, so
 * that the answer can say. A block stays charged to the account it was taken for, whoever frees it.
 *
 * What is charged is what a block takes of the heap, its header included. The last eighth of the budget is kept for
 * requests that hold little, so that few large ones cannot turn all others away. Threads without an account are the
 * engine's own: they are counted, not refused. Threads: safe anywhere; an account is entered by one thread at a time. */
#ifndef INFCGI_BASE_MEM_ACCOUNT_H
#define INFCGI_BASE_MEM_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum mem_refusal {
    MEM_REFUSED_NOT,
    MEM_REFUSED_SHARE,  /* the request would hold more than one may */
    MEM_REFUSED_BUDGET, /* all requests together hold too much */
};

/* Of one request after the other. Zero-initialise; outlives every block charged to it. Fields are private. */
struct mem_account {
    atomic_size_t held_bytes, peak_bytes;
    atomic_int refusal;
};

/* A request that holds at most this much may take of the budget's last eighth. */
enum { MEM_ACCOUNT_SMALL_BYTES = 1 << 20 };

/* Sets the limits in bytes, 0 = none (as at the start). Blocks that are held stay. */
void mem_account_limit(size_t budget_bytes, size_t share_bytes);
size_t mem_account_budget(void);
size_t mem_account_share(void);

/* Bytes now charged to the budget. */
size_t mem_account_held(void);

/* Until mem_account_leave, blocks of these that this thread takes are charged to `a`, whose refusal is forgotten.
 * mem_account_leave returns the most the account held meanwhile. */
void mem_account_enter(struct mem_account *a);
size_t mem_account_leave(void);

/* Blocks are charged to `other` (OPTIONAL) from now on, which what outlives a request has for itself; returns this thread's account, for
 * mem_account_end_other, which goes back to it and tells it of a refusal of the other one. */
struct mem_account *mem_account_begin_other(struct mem_account *other);
void mem_account_end_other(struct mem_account *before);

/* This thread's account, NULL when none is entered; and why it was last refused a block. */
struct mem_account *mem_account_current(void);
enum mem_refusal mem_account_refusal(void);

/* For mem.c: charges / gives back a block's bytes. a OPTIONAL. False when a limit is in the way; then nothing is
 * charged. */
bool mem_account_take(struct mem_account *a, size_t bytes);
void mem_account_give(struct mem_account *a, size_t bytes);

/* The bytes that a block of mem.h was last sized to, which is what it is charged with beside its header; 0 for NULL. */
size_t mem_account_size(const void *block);

/* Makes the heap one that gives back: few arenas, large blocks straight from the system. Call before threads start. */
void mem_account_tune(int n_arenas);

/* Returns free pages of the heap to the system. Takes milliseconds: not for every request. */
void mem_account_trim(void);

#endif
