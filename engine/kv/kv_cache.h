/* Pages of the KV cache: who holds them, and which prefix each one stands for.
 *
 * A page holds KV_PAGE_TOKENS consecutive positions of a sequence. Pages are counted, so sequences with the same prefix
 * share them; a page nobody holds stays findable until its memory is needed (least recently used first, and of those that
 * were found again after all others). A page's
 * identity is its parent page and its tokens, compared token by token; hashes only find candidates.
 *
 *   salt -> page [t0..t31] -> page [t32..t63] -> ...      the prefix tree; an edge is "parent page"
 *
 * A page may be named before it is computed: the sequence that computes it owns it until kv_cache_fill, and others with
 * the same prefix wait for it instead of computing it again.
 *
 * Models with recurrent layers need more than pages to go on from a prefix: the state behind its last token. States are
 * held by sequences as pages are, and a page may keep the one that stands behind its last token. Where only some layers see a window
 * (backend.h, local layers) a page may keep its window page, with the keys and values of these for the same tokens. Threads: one (the
 * scheduler's). Source of paging: Kwon 2023, "PagedAttention"; of the tree: Zheng 2024, "SGLang"; of states in it: Pan
 * 2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs". */
#ifndef INFCGI_KV_KV_CACHE_H
#define INFCGI_KV_KV_CACHE_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_NO_PAGE = -1, KV_NO_OWNER = 0, KV_NO_STATE = -1, KV_NO_WINDOW = -1 };

struct kv_cache;

/* n_pages pages with ids 0 .. n_pages-1 and, so counted too and 0 or more, n_windows window pages and n_states recurrent states, all
 * free. ERR_NOMEM. */
MUST_CHECK enum err kv_cache_new(int32_t n_pages, int32_t n_windows, int32_t n_states, struct kv_cache **out);
void kv_cache_free(struct kv_cache **kv);

/* Takes a page for the caller alone (held once, without identity); evicts the least recently used page nobody holds
 * when none is free, one that others hang from last. KV_NO_PAGE when all are held. */
int32_t kv_cache_take(struct kv_cache *kv);

/* Holds a page once more / lets it go. An unheld page with an identity and content stays findable; others become free, and
 * so does one whose parent was evicted, which nobody finds any more. A sequence that sees a window alone may let pages in
 * front of it go before those that hang from them. */
void kv_cache_hold(struct kv_cache *kv, int32_t page);
void kv_cache_drop(struct kv_cache *kv, int32_t page);

/* The page with this identity, or KV_NO_PAGE. parent: KV_NO_PAGE for the first page of a prompt; salt then tells
 * tenants apart. tokens: KV_PAGE_TOKENS ids. */
int32_t kv_cache_find(const struct kv_cache *kv, uint64_t salt, int32_t parent, const int32_t *tokens);

/* Gives a held page without identity its identity, unless another page has it (then false). The parent must be held and
 * have an identity. owner: who computes it (not KV_NO_OWNER); the page counts as empty until kv_cache_fill. */
bool kv_cache_name(struct kv_cache *kv, int32_t page, uint64_t salt, int32_t parent, const int32_t *tokens,
                   uint64_t owner);

/* Tells that the page's content is complete: it has no owner any more. */
void kv_cache_fill(struct kv_cache *kv, int32_t page);

/* Makes a page unfindable, as its content is not to be trusted, nor its state. Who holds it keeps it, and it is reused
 * when its turn comes; whatever hangs from it cannot be reached any more either. Pages without identity or content are
 * left alone. */
void kv_cache_forget(struct kv_cache *kv, int32_t page);

/* Of a page with identity and content that can be found, a number that no other page, nor the same one with another identity, ever has;
 * 0 of others. */
uint64_t kv_cache_serial(const struct kv_cache *kv, int32_t page);

/* [KV_PAGE_TOKENS] of a page with identity; borrowed. */
const int32_t *kv_cache_tokens(const struct kv_cache *kv, int32_t page);

/* From now on a held page with content, and a state or window page that it keeps, goes after those that are not preferred, as long as such
 * pages, or their states, are not more than KV_PREFERRED_PARTS of all: so what is used again and again outlives what was asked for once. */
enum { KV_PREFERRED_PARTS = 3, KV_ALL_PARTS = 4 }; /* three quarters */
void kv_cache_prefer(struct kv_cache *kv, int32_t page);

/* Was the page, which has a parent in its identity, left without it? Then it and what hangs from it are found no more. */
bool kv_cache_has_lost_parent(const struct kv_cache *kv, int32_t page);

bool kv_cache_is_named(const struct kv_cache *kv, int32_t page);
bool kv_cache_is_held(const struct kv_cache *kv, int32_t page);
bool kv_cache_is_filled(const struct kv_cache *kv, int32_t page);
uint64_t kv_cache_owner(const struct kv_cache *kv, int32_t page);
/* Sets who computes a named, empty page: a waiter that takes over, or KV_NO_OWNER when the owner leaves. */
void kv_cache_set_owner(struct kv_cache *kv, int32_t page, uint64_t owner);

/* Takes a state for the caller (held once, kept by no page); from the page whose state nobody holds and was not used
 * for the longest time when none is free. KV_NO_STATE when all are held. */
int32_t kv_cache_take_state(struct kv_cache *kv);

/* Holds a state once more / lets it go: then it stays with its page, or becomes free. */
void kv_cache_hold_state(struct kv_cache *kv, int32_t state);
void kv_cache_drop_state(struct kv_cache *kv, int32_t state);

/* From now on a held state, kept by no page, stands behind the last token of a named and filled page that has none. It
 * goes with the page's identity at the latest. */
void kv_cache_keep_state(struct kv_cache *kv, int32_t page, int32_t state);

/* Takes the page's state away from it, if it has one. */
void kv_cache_forget_state(struct kv_cache *kv, int32_t page);

/* The state behind the page, or KV_NO_STATE. */
int32_t kv_cache_state(const struct kv_cache *kv, int32_t page);

/* States held; kept by pages, held or not. */
int32_t kv_cache_n_states_held(const struct kv_cache *kv);
int32_t kv_cache_n_states_kept(const struct kv_cache *kv);

/* The same of window pages: taken, held and let go by sequences, kept by pages. One that nobody holds is taken from its page when none is
 * free: of those that a sequence passed, then of others, then of preferred pages, but first of these when they are too many; of each that
 * which was let go, or became preferred, the longest time ago. */
int32_t kv_cache_take_window(struct kv_cache *kv); /* KV_NO_WINDOW when all are held */
void kv_cache_hold_window(struct kv_cache *kv, int32_t window);
void kv_cache_drop_window(struct kv_cache *kv, int32_t window,
                          bool passes); /* it goes on behind it: its end is likelier wanted */

/* From now on a held window page, kept by no page, has the local layers' part of a named and filled page that has none. It goes with
 * the page's identity at the latest. */
void kv_cache_keep_window(struct kv_cache *kv, int32_t page, int32_t window);

/* The page's window page, or KV_NO_WINDOW. */
int32_t kv_cache_window(const struct kv_cache *kv, int32_t page);

/* Window pages held by sequences; kept for reuse only; in all. */
int32_t kv_cache_n_windows_held(const struct kv_cache *kv);
int32_t kv_cache_n_windows_kept(const struct kv_cache *kv);
int32_t kv_cache_n_windows(const struct kv_cache *kv);

/* Pages that kv_cache_take could give now; held by sequences; kept for reuse only; in all. */
int32_t kv_cache_n_available(const struct kv_cache *kv);
int32_t kv_cache_n_held(const struct kv_cache *kv);
int32_t kv_cache_n_kept(const struct kv_cache *kv);
int32_t kv_cache_n_pages(const struct kv_cache *kv);

/* A salt from text (NULL = none), keyed so that clients cannot aim at collisions. */
uint64_t kv_cache_salt(const struct kv_cache *kv, const char *text);

#endif
