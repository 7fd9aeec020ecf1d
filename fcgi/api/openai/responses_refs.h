/* Replaces references of the input (item_reference) with kept items. Reads and parses each referenced response once,
 * whatever the number of references. Threads: any, because the store is locked; `items` must belong to the caller
 * only. */
#ifndef INFCGI_FCGI_API_RESPONSES_REFS_H
#define INFCGI_FCGI_API_RESPONSES_REFS_H

#include "fcgi/tenant/apikey.h"

#include <jansson.h>

/* Replaces references in `items`, an array. Equal references become one shared value. References to unknown items stay
 * and are rejected later with their position. The inserted items can take most_bytes as JSON, counted once per
 * reference: the limit equals that of a request with the text in its body. ERR_TOO_LARGE with info->where input;
 * ERR_NOMEM. */
MUST_CHECK enum err responses_refs_resolve(const struct apikey_id *owner, json_t *items, size_t most_bytes,
                                           struct err_info *info);

#endif
