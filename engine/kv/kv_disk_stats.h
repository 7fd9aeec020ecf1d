/* What is counted of snapshots. Threads: plain types. */
#ifndef INFCGI_KV_KV_DISK_STATS_H
#define INFCGI_KV_KV_DISK_STATS_H

#include <stdint.h>

/* All 0 without a folder. */
struct kv_disk_stats {
    uint64_t files, bytes, limit_bytes; /* that are known to be in the folder; what it may hold */
    uint64_t restored_tokens;           /* of prompts, read instead of computed */
    uint64_t n_read, bytes_read;        /* files that were used */
    uint64_t n_written, bytes_written;
    uint64_t n_evicted;                     /* files removed to make room */
    uint64_t n_refused;                     /* files that were cut, changed or of something else, and so removed */
    uint64_t n_read_errors, n_write_errors; /* of the system: a disk that is full or fails */
    uint64_t n_late;                        /* times a prompt did not wait any longer */
    uint64_t n_dropped;                     /* pages that were gone before they were written */
    uint64_t pending;                       /* pages and states that are still to be written */
};

#endif
