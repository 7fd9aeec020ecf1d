/* API keys from a file: one a line, `#` begins a comment. Comparison time depends on the lengths alone.
 * Threads: apikey_check and apikey_load may run at once. */
#ifndef INFCGI_FCGI_APIKEY_H
#define INFCGI_FCGI_APIKEY_H

#include "engine/base/err.h"

#include <stdbool.h>

/* Reads the file and replaces the keys. On failure the old ones stay. ERR_FILE, ERR_IO, ERR_CONFIG (no key in
 * it, or a line that can be none), ERR_NOMEM. */
MUST_CHECK enum err apikey_load(const char *path, struct err_info *info);

/* True when no keys were loaded, or `authorization` ("Bearer KEY") or `x_api_key` (both OPTIONAL) holds one of them. */
bool apikey_check(const char *authorization, const char *x_api_key);

#endif
