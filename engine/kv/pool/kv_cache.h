/* The pages of the KV cache: their holders, and the prefix that each page stands for.
 *
 * A page holds KV_PAGE_TOKENS consecutive positions of a sequence. Pages are reference-counted, so sequences with the
 * same prefix share them. A page without holders stays findable until its memory is needed: the least recently used
 * page goes first, and pages that were found again go after all others. A page's identity is its parent page and its
 * tokens, compared token by token; hashes only find candidates.
 *
 *   salt -> page [t0..t31] -> page [t32..t63] -> ...      the prefix tree; an edge is "parent page"
 *
 * A page can be named before it is computed. The sequence that computes it owns it until kv_cache_fill; others with the
 * same prefix wait for it instead of computing it again.
 *
 * Models with recurrent layers need the state after a prefix's last token to continue from it. Sequences hold states as
 * they hold pages, and a page can keep the state after its last token. If only some layers see a window (backend.h,
 * local layers), a page can keep a window page with those layers' keys and values for the same tokens.
 *
 * Threads: one (the scheduler's). Sources: paging, Kwon 2023, "PagedAttention"; the tree, Zheng 2024, "SGLang"; states
 * in it, Pan 2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs". */
#ifndef INFCGI_KV_POOL_KV_CACHE_H
#define INFCGI_KV_POOL_KV_CACHE_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_NO_PAGE = -1, KV_NO_OWNER = 0, KV_NO_STATE = -1, KV_NO_WINDOW = -1 };

struct kv_cache;

/* Makes n_pages pages with ids 0 .. n_pages-1, and likewise n_windows window pages and n_states recurrent states, each
 * 0 or more; all are free. ERR_NOMEM. */
MUST_CHECK enum err kv_cache_new(int32_t n_pages, int32_t n_windows, int32_t n_states, struct kv_cache **out);
void kv_cache_free(struct kv_cache **kv);

/* Allocates an unnamed page with one reference. If none is free, evicts the least recently used unreferenced page,
 * leaves first. Returns KV_NO_PAGE if all are held. */
int32_t kv_cache_take(struct kv_cache *kv);

/* Adds a reference / drops one. An unreferenced page with identity and content stays findable. Other pages become free,
 * and so does a page whose parent was evicted, because it can no longer be found. A sequence that only sees a window
 * can drop pages before it earlier than their children. */
void kv_cache_hold(struct kv_cache *kv, int32_t page);
void kv_cache_drop(struct kv_cache *kv, int32_t page);

/* Returns the page with this identity, or KV_NO_PAGE. parent: KV_NO_PAGE for the first page of a prompt; salt then
 * separates tenants. tokens: KV_PAGE_TOKENS ids. */
int32_t kv_cache_find(const struct kv_cache *kv, uint64_t salt, int32_t parent, const int32_t *tokens);

/* Gives a held page without identity its identity, without an owner. Returns false if another page has that identity.
 * The parent must be held and have an identity. The page counts as empty until kv_cache_fill. */
bool kv_cache_name(struct kv_cache *kv, int32_t page, uint64_t salt, int32_t parent, const int32_t *tokens);

/* Marks the page's content as complete; it no longer has an owner. */
void kv_cache_fill(struct kv_cache *kv, int32_t page);

/* Makes a page unfindable, because its content or state cannot be trusted. Holders keep it, and it is reused in its
 * turn; its descendants become unreachable too. Pages without identity or content are unchanged. */
void kv_cache_forget(struct kv_cache *kv, int32_t page);

/* Returns a number for a findable page with identity and content; no other page, nor this one with another identity,
 * ever has it. Returns 0 for other pages. */
uint64_t kv_cache_serial(const struct kv_cache *kv, int32_t page);

/* Returns the [KV_PAGE_TOKENS] tokens of a page with identity; borrowed. */
const int32_t *kv_cache_tokens(const struct kv_cache *kv, int32_t page);

/* Prefers a held page with content, with the state or window page that it keeps: from now on it is evicted after pages
 * that are not preferred, while at most KV_PREFERRED_PARTS of KV_ALL_PARTS of all pages (or of states) are preferred.
 * So prefixes that are used repeatedly outlive those used once. */
enum { KV_PREFERRED_PARTS = 3, KV_ALL_PARTS = 4 }; /* three quarters */
void kv_cache_prefer(struct kv_cache *kv, int32_t page);

/* Returns whether the page's identity has a parent that was evicted. Then neither it nor its descendants can be
 * found. */
bool kv_cache_has_lost_parent(const struct kv_cache *kv, int32_t page);

bool kv_cache_is_named(const struct kv_cache *kv, int32_t page);
bool kv_cache_is_held(const struct kv_cache *kv, int32_t page);
bool kv_cache_is_filled(const struct kv_cache *kv, int32_t page);
/* Returns the sequence that computes the page; KV_NO_OWNER also for pages without identity. */
uint64_t kv_cache_owner(const struct kv_cache *kv, int32_t page);
/* Sets the sequence that computes a named, empty page; KV_NO_OWNER if it leaves. */
void kv_cache_set_owner(struct kv_cache *kv, int32_t page, uint64_t owner);

/* Allocates a state with one reference, kept by no page. If none is free, takes the least recently used unreferenced
 * state from its page. Returns KV_NO_STATE if all are held. */
int32_t kv_cache_take_state(struct kv_cache *kv);

/* Adds a reference / drops one. An unreferenced state stays with its page or becomes free. */
void kv_cache_hold_state(struct kv_cache *kv, int32_t state);
void kv_cache_drop_state(struct kv_cache *kv, int32_t state);

/* Attaches a held state, kept by no page, to a named and filled page without a state: it stands for the position after
 * the page's last token. It leaves the page no later than the page's identity does. */
void kv_cache_keep_state(struct kv_cache *kv, int32_t page, int32_t state);

/* Removes the page's state, if it has one. */
void kv_cache_forget_state(struct kv_cache *kv, int32_t page);

/* Returns the state after the page, or KV_NO_STATE. */
int32_t kv_cache_state(const struct kv_cache *kv, int32_t page);

/* Return the states held, and those kept by pages, held or not. */
int32_t kv_cache_n_states_held(const struct kv_cache *kv);
int32_t kv_cache_n_states_kept(const struct kv_cache *kv);

/* Window pages: like states, sequences take, hold and drop them, and pages keep them. If none is free, an unreferenced
 * one is taken from its page: first of those that a sequence passed, then of others, then of preferred pages, but first
 * of these if there are too many. Within each group the one dropped, or preferred, the longest time ago goes first. */
int32_t kv_cache_take_window(struct kv_cache *kv); /* KV_NO_WINDOW if all are held */
void kv_cache_hold_window(struct kv_cache *kv, int32_t window);
/* the sequence continues after it, so reuse at the prefix's end is likelier */
void kv_cache_drop_window(struct kv_cache *kv, int32_t window, bool passes);

/* Attaches a held window page, kept by no page, to a named and filled page without one: it holds the local layers'
 * part. It leaves the page no later than the page's identity does. */
void kv_cache_keep_window(struct kv_cache *kv, int32_t page, int32_t window);

/* Returns the page's window page, or KV_NO_WINDOW. */
int32_t kv_cache_window(const struct kv_cache *kv, int32_t page);

/* Return the window pages held by sequences, those kept for reuse only, and all. */
int32_t kv_cache_n_windows_held(const struct kv_cache *kv);
int32_t kv_cache_n_windows_kept(const struct kv_cache *kv);
int32_t kv_cache_n_windows(const struct kv_cache *kv);

/* Return the pages that kv_cache_take could return now, those held by sequences, and those kept for reuse only. */
int32_t kv_cache_n_available(const struct kv_cache *kv);
int32_t kv_cache_n_held(const struct kv_cache *kv);
int32_t kv_cache_n_kept(const struct kv_cache *kv);

/* Returns a salt for text (NULL: none), keyed so that clients cannot aim at collisions. */
uint64_t kv_cache_salt(const struct kv_cache *kv, const char *text);

#endif
