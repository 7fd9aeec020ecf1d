/* The snapshots of a folder, with names, sizes and last uses, as of the last scan. Threads: the caller's lock. */
#ifndef INFCGI_KV_DISK_KV_INDEX_H
#define INFCGI_KV_DISK_KV_INDEX_H

#include "engine/base/table.h"
#include "engine/kv/disk/kv_snapshot.h"

struct kv_file {
    struct kv_name name;
    enum kv_snapshot_kind kind;
    bool is_touched; /* used since its file's time was last updated */
    uint64_t bytes;  /* not 0 */
    int64_t used_ns;
};

struct kv_index {
    struct kv_file *files; /* [n], in any order */
    size_t n, cap;
    struct table table; /* of files, by name and kind */
    uint64_t bytes;     /* of all files */
};

/* Frees the index. A zeroed struct is an index without files. */
void kv_index_fini(struct kv_index *x);

/* Returns the file, borrowed until the next put or remove, or NULL. The caller must not change name, kind or bytes. */
struct kv_file *kv_index_find(const struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name);

/* Adds the file or replaces its entry. ERR_NOMEM. */
MUST_CHECK enum err kv_index_put(struct kv_index *x, const struct kv_file *f);

void kv_index_remove(struct kv_index *x, enum kv_snapshot_kind kind, const struct kv_name *name);

/* Returns the files, least recently used first, that must be removed so that at most `most` bytes are left: *n of them. The
 * caller frees the block with mem_free. NULL if there are none or memory is out. */
struct kv_file *kv_index_oldest(const struct kv_index *x, uint64_t most, size_t *n);

#endif
