/* Snapshots on disk: pages of keys and values, and recurrent states, that outlive the process (docs/ops/snapshots.md).
 *
 *   scheduler --begin_write, end_write--> [ slots ] --writer--> folder --reader--> [ slots ] --take, give--> scheduler
 *
 * Two threads of this module do everything that can wait for the disk. One reads. The other, of the lowest priority,
 * writes, removes files over the limit and updates files' times of use. Slots are few: a caller that finds none free
 * retries and is woken when one is. No fault of a file is an error: the file counts as absent. Several processes can
 * share a folder: files appear complete, by a rename, and can vanish at any time.
 *
 * Threads: names and probes from any; the rest from one thread (the scheduler's). */
#ifndef INFCGI_KV_DISK_KV_DISK_H
#define INFCGI_KV_DISK_KV_DISK_H

#include "engine/kv/disk/kv_disk_stats.h"
#include "engine/kv/disk/kv_snapshot.h"

struct kv_disk;

struct kv_disk_config {
    const char *path;                /* the folder; borrowed for the call of kv_disk_open */
    uint64_t limit_bytes;            /* of all snapshots in the folder */
    struct kv_name fingerprint;      /* of everything that decides what a page of given tokens holds */
    size_t bytes[KV_SNAPSHOT_KINDS]; /* of a page, can be 0; of a state, 0: none */
    /* OPTIONAL: a thread of this module calls it once each time that writing stops, with the reason, and when it
     * resumes. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
};

/* Makes the folder and its key unless they exist. ERR_CONFIG: it is not a folder of this user only; ERR_FILE, ERR_IO:
 * the key cannot be read or made; ERR_NOMEM, ERR_INTERNAL. */
MUST_CHECK enum err kv_disk_open(const struct kv_disk_config *cfg, struct kv_disk **out, struct err_info *info);

/* Writes the slots handed over, stops the threads and frees everything. */
void kv_disk_close(struct kv_disk **d);

/* Sets fn (OPTIONAL), which a thread of this module calls when a slot has become free or a file is read. The previous
 * fn is not called after this returns. */
void kv_disk_listen(struct kv_disk *d, void (*fn)(void *arg), void *arg);

/* Returns the name before first pages of this salt (OPTIONAL). ERR_INTERNAL. */
MUST_CHECK enum err kv_disk_root(const struct kv_disk *d, const char *salt, struct kv_name *out);

/* Returns how many pages of a prefix could be read: the leading names[0..n) that have files; for a model with states,
 * those up to the last one whose state has a file too. Marks them as used. */
int32_t kv_disk_probe(struct kv_disk *d, const struct kv_name *names, int32_t n);

/* A snapshot being read or written. */
struct kv_disk_slot {
    struct kv_snapshot what;
    /* index of the page in its sequence: among files used at the same time, earlier ones stay longest */
    int32_t depth;
    uint64_t ticket; /* of a read: the caller's */
    enum err err;    /* of a read: ERR_OK, or there is no such snapshot */
    void *payload;   /* size: that of its kind */
};

/* --- writing */

/* Returns whether a file is known to exist. */
bool kv_disk_has(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name);

/* Returns a slot whose payload, `what` and depth the caller fills before it hands the slot over; NULL: none is free. */
struct kv_disk_slot *kv_disk_begin_write(struct kv_disk *d, enum kv_snapshot_kind kind);
void kv_disk_end_write(struct kv_disk *d, struct kv_disk_slot *slot, bool is_filled); /* false: do not write it */

/* Returns whether writing is paused because the disk is full or fails. Slots handed over now are never written. */
bool kv_disk_is_paused(struct kv_disk *d);

/* --- reading */

/* Requests a file; false: no slot is free. */
bool kv_disk_ask(struct kv_disk *d, const struct kv_snapshot *what, int32_t depth, uint64_t ticket);

/* Returns the oldest requested file if it has been read, to be returned with kv_disk_give. NULL: not yet, or none was
 * requested. */
struct kv_disk_slot *kv_disk_take(struct kv_disk *d);
void kv_disk_give(struct kv_disk *d, struct kv_disk_slot *slot);

/* --- counting */

enum kv_disk_count { KV_DISK_LATE, KV_DISK_DROPPED, KV_DISK_RESTORED, KV_DISK_COUNTS };
void kv_disk_count(struct kv_disk *d, enum kv_disk_count what, uint64_t n);

/* Returns the counts; pending: slots handed over. */
void kv_disk_get_stats(struct kv_disk *d, struct kv_disk_stats *out);

#endif
