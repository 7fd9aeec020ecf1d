/* Responses that are kept for later requests: by id, for whoever made them. They lie in memory as JSON, up to a bound in
 * bytes and RESPONSES_STORE_MAX of them. Past it the owner that holds the most for its weight loses the response that was not
 * asked for the longest, so an owner within its part keeps what it has, whatever others store. One alone may have all. What is kept of a
 * conversation is shared by the responses that go on from it, so a long one does not count many times; an earlier
 * response's part of it stays as long as a later one needs it.
 *
 * Ownership: texts are copied in and out. Errors: ERR_RESPONSE_NOT_FOUND (never kept, gone, or another key's), ERR_NOMEM;
 * those of a put leave the store as it was. Threads: all may be called at once. */
#ifndef INFCGI_FCGI_API_RESPONSES_STORE_H
#define INFCGI_FCGI_API_RESPONSES_STORE_H

#include "engine/base/buf.h"
#include "fcgi/tenant/apikey.h"

#include <jansson.h>

enum { RESPONSES_STORE_MAX = 4096 };

/* What all may take, 0 (as at the start): nothing is kept. What is too much goes. */
void responses_store_limit(size_t bytes);
bool responses_store_is_on(void);
size_t responses_store_bytes(void);

/* Whose a response is. Who may read it is the id's to say; who shares the room, the share's: clients without a key have the same
 * id, and shares by their addresses. */
struct responses_owner {
    struct apikey_id id;
    uint64_t share;
    int32_t weight; /* below 1: 1. The last one given holds for the share */
};

/* Keeps a response: its JSON; the items of its input, a line each without white space; and those of its output, an array
 * without its brackets. previous: the response it
 * goes on from (OPTIONAL). */
MUST_CHECK enum err responses_store_put(const struct responses_owner *owner, const char *id, const char *previous,
                                        const struct buf *response, const struct buf *input, const struct buf *output);

/* Appends its JSON. */
MUST_CHECK enum err responses_store_get(const struct apikey_id *owner, const char *id, struct buf *out);

/* *items, a new reference: what came before its output, or with_output all of the conversation. */
MUST_CHECK enum err responses_store_items(const struct apikey_id *owner, const char *id, bool with_output,
                                          json_t **items);

/* *items, a new reference: its own input and output, without what came before. */
MUST_CHECK enum err responses_store_own(const struct apikey_id *owner, const char *id, json_t **items);

MUST_CHECK enum err responses_store_drop(const struct apikey_id *owner, const char *id);

#endif
