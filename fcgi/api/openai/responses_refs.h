/* Puts kept items in the place of the input's references to them (item_reference). Each response that is referred to is read
 * and parsed once, whatever the number of references. Threads: any, as the store is locked; `items` are the caller's alone. */
#ifndef INFCGI_FCGI_API_RESPONSES_REFS_H
#define INFCGI_FCGI_API_RESPONSES_REFS_H

#include "fcgi/tenant/apikey.h"

#include <jansson.h>

/* Replaces references in `items`, an array. Equal references become one shared value. References to what is not kept stay,
 * to be rejected where they stand. The items put in may take most_bytes as JSON, each counted as often as it is referred to:
 * a request whose text is in its body may not hold more either. ERR_TOO_LARGE with info->where input; ERR_NOMEM. */
MUST_CHECK enum err responses_refs_resolve(const struct apikey_id *owner, json_t *items, size_t most_bytes,
                                           struct err_info *info);

#endif
