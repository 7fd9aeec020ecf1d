/* Counts of snapshots. Threads: plain types. */
#ifndef INFCGI_KV_DISK_KV_DISK_STATS_H
#define INFCGI_KV_DISK_KV_DISK_STATS_H

#include <stdint.h>

/* All 0 without a folder. */
struct kv_disk_stats {
    uint64_t files, bytes, limit_bytes; /* known to be in the folder; its limit */
    uint64_t restored_tokens;           /* of prompts, read instead of computed */
    uint64_t n_read, bytes_read;        /* files used */
    uint64_t n_written, bytes_written;
    uint64_t n_evicted;                     /* files removed to make room */
    uint64_t n_refused;                     /* files removed because they were cut, changed or foreign */
    uint64_t n_read_errors, n_write_errors; /* system errors: the disk is full or fails */
    uint64_t n_late;                        /* times a prompt stopped waiting */
    uint64_t n_dropped;                     /* pages gone before they were written */
    uint64_t pending;                       /* pages and states still to be written */
};

#endif
