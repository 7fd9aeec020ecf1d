/* Keeps responses for later requests, by id and owner. They are in memory as JSON, limited in bytes and to
 * RESPONSES_STORE_MAX responses. Beyond the limit, the owner that holds the most relative to its weight loses its least
 * recently used response. An owner within its share therefore keeps its responses, whatever others store. A single
 * owner can use all the memory. Responses that continue a conversation share its contents, so that a long one does not
 * count several times; an earlier response's part stays as long as a later one needs it.
 *
 * Ownership: texts are copied in and out. Errors: ERR_RESPONSE_NOT_FOUND (never kept, evicted, or another key's),
 * ERR_NOMEM; a failed put leaves the store unchanged. Threads: all functions can run at the same time. */
#ifndef INFCGI_FCGI_API_RESPONSES_STORE_H
#define INFCGI_FCGI_API_RESPONSES_STORE_H

#include "engine/base/buf.h"
#include "fcgi/tenant/apikey.h"

#include <jansson.h>

enum { RESPONSES_STORE_MAX = 4096 };

/* Sets the limit in bytes for all responses; 0 (initial): keep none. Evicts responses beyond the limit. */
void responses_store_limit(size_t bytes);
bool responses_store_is_on(void);
size_t responses_store_bytes(void);

/* The owner of a response. id decides who may read it; share decides whose memory it uses. Clients without a key have
 * the same id, but shares by their addresses. */
struct responses_owner {
    struct apikey_id id;
    uint64_t share;
    int32_t weight; /* below 1: 1; the latest value applies to the share */
};

/* Keeps a response: its JSON; the items of its input, one per line without white space; the items of its output, an
 * array without its brackets. previous: the response that it continues (OPTIONAL). */
MUST_CHECK enum err responses_store_put(const struct responses_owner *owner, const char *id, const char *previous,
                                        const struct buf *response, const struct buf *input, const struct buf *output);

/* Appends the JSON of a response. */
MUST_CHECK enum err responses_store_get(const struct apikey_id *owner, const char *id, struct buf *out);

/* Sets *items, a new reference, to the items before the response's output, or with_output to the whole conversation. */
MUST_CHECK enum err responses_store_items(const struct apikey_id *owner, const char *id, bool with_output,
                                          json_t **items);

/* Sets *items, a new reference, to the response's own input and output, without earlier items. */
MUST_CHECK enum err responses_store_own(const struct apikey_id *owner, const char *id, json_t **items);

MUST_CHECK enum err responses_store_drop(const struct apikey_id *owner, const char *id);

#endif
