/* The journal of use (--usage-log): a line of JSON for each request that the limits of tenants hold for, at its end: who,
 * what it came to and how long it took; never any text. A line that cannot be written is counted and lost, the request
 * goes on. Threads: all may be called at once, but for journal_open and journal_close. */
#ifndef INFCGI_FCGI_JOURNAL_H
#define INFCGI_FCGI_JOURNAL_H

#include "engine/base/err.h"
#include "fcgi/tenant/tenant.h"

#include <stdint.h>

/* What a line says. Strings are borrowed during the call. */
struct journal_entry {
    const char *id, *tenant;
    const char *path;  /* the route's */
    const char *model; /* NULL: "" */
    int status;        /* of HTTP */
    enum err err;
    const char *finish; /* NULL: null */
    struct tenant_use tokens;
    uint64_t queue_ns, prefill_ns, decode_ns, total_ns;
};

/* Opens it, before anything is served; path is borrowed. Without, nothing is written. ERR_CONFIG. */
MUST_CHECK enum err journal_open(const char *path, struct err_info *info);
void journal_close(void);

/* Opens the file of that name anew, which another may have been given; on failure the old one stays. The log says which. */
void journal_reopen(void);

/* Writes the line of a request that has ended. */
void journal_write(const struct journal_entry *e);

/* Lines lost. */
uint64_t journal_lost(void);

#endif
