/* Pages of the KV cache: who holds them, and which prefix each one stands for.
 *
 * A page holds KV_PAGE_TOKENS consecutive positions of a sequence. Pages are counted, so sequences with the same prefix
 * share them; a page nobody holds stays findable until its memory is needed (least recently used first). A page's
 * identity is its parent page and its tokens, compared token by token; hashes only find candidates.
 *
 *   salt -> page [t0..t31] -> page [t32..t63] -> ...      the prefix tree; an edge is "parent page"
 *
 * A page may be named before it is computed: the sequence that computes it owns it until kv_cache_fill, and others with
 * the same prefix wait for it instead of computing it again.
 *
 * Models with recurrent layers need more than pages to go on from a prefix: the state behind its last token. States are
 * held by sequences as pages are, and a page may keep the one that stands behind its last token. Threads: one (the
 * scheduler's). Source of paging: Kwon 2023, "PagedAttention"; of the tree: Zheng 2024, "SGLang"; of states in it: Pan
 * 2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs". */
#ifndef INFCGI_KV_KV_CACHE_H
#define INFCGI_KV_KV_CACHE_H

#include "engine/base/err.h"
#include "engine/kv/kv_type.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_NO_PAGE = -1, KV_NO_OWNER = 0, KV_NO_STATE = -1 };

struct kv_cache;

/* n_pages pages with ids 0 .. n_pages-1 and n_states (0 or more) recurrent states, all free. ERR_NOMEM. */
MUST_CHECK enum err kv_cache_new(int32_t n_pages, int32_t n_states, struct kv_cache **out);
void kv_cache_free(struct kv_cache **kv);

/* Takes a page for the caller alone (held once, without identity); evicts the least recently used page nobody holds
 * when none is free. KV_NO_PAGE when all are held. */
int32_t kv_cache_take(struct kv_cache *kv);

/* Holds a page once more / lets it go. An unheld page with an identity and content stays findable; others become free.
 */
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

/* Pages that kv_cache_take could give now; held by sequences; kept for reuse only; in all. */
int32_t kv_cache_n_available(const struct kv_cache *kv);
int32_t kv_cache_n_held(const struct kv_cache *kv);
int32_t kv_cache_n_kept(const struct kv_cache *kv);
int32_t kv_cache_n_pages(const struct kv_cache *kv);

/* A salt from text (NULL = none), keyed so that clients cannot aim at collisions. */
uint64_t kv_cache_salt(const struct kv_cache *kv, const char *text);

#endif
