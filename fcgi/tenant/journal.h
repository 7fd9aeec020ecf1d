/* The usage journal (--usage-log): one JSON line for each finished request that is subject to tenant limits, with its
 * tenant, usage and times, never with text. A line that cannot be written is counted and lost; the request continues.
 * Threads: all functions can run at the same time, except journal_open and journal_close. */
#ifndef INFCGI_FCGI_JOURNAL_H
#define INFCGI_FCGI_JOURNAL_H

#include "engine/base/err.h"
#include "fcgi/tenant/tenant.h"

#include <stdint.h>

/* The contents of a line. Strings are borrowed during the call. */
struct journal_entry {
    const char *id, *tenant;
    const char *path;  /* path of the route */
    const char *model; /* NULL: "" */
    int status;        /* HTTP status */
    enum err err;
    const char *finish; /* NULL: null */
    struct tenant_use tokens;
    uint64_t queue_ns, prefill_ns, decode_ns, total_ns;
};

/* Opens the journal; call before serving. path is borrowed. Without this call nothing is written. ERR_CONFIG. */
MUST_CHECK enum err journal_open(const char *path, struct err_info *info);
void journal_close(void);

/* Reopens the file by its name, after log rotation. On failure the old file stays open. Logs the outcome. */
void journal_reopen(void);

/* Writes the line of a finished request. */
void journal_write(const struct journal_entry *e);

/* Returns the number of lines lost. */
uint64_t journal_lost(void);

#endif
