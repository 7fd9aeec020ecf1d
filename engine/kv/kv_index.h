/* Which snapshots a folder has: their names, sizes and last uses, as they were when somebody looked. Threads: the caller's lock. */
#ifndef INFCGI_KV_KV_INDEX_H
#define INFCGI_KV_KV_INDEX_H

#include "engine/base/table.h"
#include "engine/kv/kv_snapshot.h"

struct kv_file {
    struct kv_name name;
    enum kv_snapshot_kind kind;
    bool is_touched; /* it was used since its file was told so */
    uint64_t bytes;  /* not 0 */
    int64_t used_ns;
};

struct kv_index {
    struct kv_file *files; /* [n], in any order */
    size_t n, cap;
    struct table table; /* of files by name and kind */
    uint64_t bytes;     /* of all files */
};

/* The zeroed struct is an index without files. */
void kv_index_fini(struct kv_index *x);

/* The file, borrowed until the next put or remove; NULL: there is none. Its name, kind and bytes are the index's. */
struct kv_file *kv_index_find(const struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name);

/* Adds the file or replaces what is known of it. ERR_NOMEM. */
MUST_CHECK enum err kv_index_put(struct kv_index *x, const struct kv_file *f);

void kv_index_remove(struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name);

/* The files, used the longest time ago first, those that may go so that `most` bytes are left in front: *n of them. In a block for
 * mem_free; NULL without any, or when memory is out. */
struct kv_file *kv_index_oldest(const struct kv_index *x, uint64_t most, size_t *n);

#endif
