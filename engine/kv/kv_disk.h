/* Snapshots on disk: pages of keys and values, and recurrent states, that outlive the process (docs/ops/snapshots.md).
 *
 *   scheduler --begin_write, end_write--> [ slots ] --writer--> folder --reader--> [ slots ] --take, give--> scheduler
 *
 * Two threads of this module do all that may wait for the disk: one reads, one, of the lowest priority, writes, removes what is too much
 * and tells files that they were used. Slots are few: who finds none free comes again, and is woken when there is one. Nothing that goes
 * wrong with a file is an error: it counts as absent. Several processes may share a folder: files appear whole, by a rename, and may
 * vanish at any time.
 * Threads: names and probes from anywhere; the rest from one thread (the scheduler's). */
#ifndef INFCGI_KV_KV_DISK_H
#define INFCGI_KV_KV_DISK_H

#include "engine/kv/kv_disk_stats.h"
#include "engine/kv/kv_snapshot.h"

struct kv_disk;

struct kv_disk_config {
    const char *path;                /* the folder; borrowed for the call of kv_disk_open */
    uint64_t limit_bytes;            /* of all snapshots in it */
    struct kv_name fingerprint;      /* of all that decides what a page of given tokens holds */
    size_t bytes[KV_SNAPSHOT_KINDS]; /* of a page; of a state, 0 = there are none */
    /* OPTIONAL: told from a thread of this module, once each time, that writing has stopped, why, and that it goes on again. */
    void (*tell)(void *arg, const char *text);
    void *tell_arg;
};

/* Makes the folder, unless it is there, and its key. ERR_CONFIG: it is no folder of this user alone; ERR_FILE, ERR_IO: the key cannot be
 * read or made; ERR_NOMEM, ERR_INTERNAL. */
MUST_CHECK enum err kv_disk_open(const struct kv_disk_config *cfg, struct kv_disk **out, struct err_info *info);

/* Writes what was handed on, ends the threads, frees. */
void kv_disk_close(struct kv_disk **d);

/* OPTIONAL fn: is called when a slot has become free or a file is read, from a thread of this module; not any more when it returns. */
void kv_disk_listen(struct kv_disk *d, void (*fn)(void *arg), void *arg);

/* In front of first pages of this salt (OPTIONAL). ERR_INTERNAL. */
MUST_CHECK enum err kv_disk_root(const struct kv_disk *d, const char *salt, struct kv_name *out);

/* How many pages of a prefix could be read: of names[0..n) those from the first on that have files; of a model with states those in front
 * of the last that has one's file, too. They count as used. */
int32_t kv_disk_probe(struct kv_disk *d, const struct kv_name *names, int32_t n);

/* A snapshot on its way. */
struct kv_disk_slot {
    struct kv_snapshot what;
    int32_t depth;   /* which page of its sequence: of files used at one time those in front stay longest */
    uint64_t ticket; /* of a reader: the caller's */
    enum err err;    /* of what was read: ERR_OK, or there is none */
    void *payload;   /* of the bytes of its kind */
};

/* --- writing */

/* Is there a file already, as far as is known? */
bool kv_disk_has(struct kv_disk *d, enum kv_snapshot_kind kind, const struct kv_name *name);

/* A slot whose payload the caller fills, and hands on with `what` and depth; NULL: none is free. */
struct kv_disk_slot *kv_disk_begin_write(struct kv_disk *d, enum kv_snapshot_kind kind);
void kv_disk_end_write(struct kv_disk *d, struct kv_disk_slot *slot, bool is_filled); /* false: it is not written */

/* Writing has stopped for a while, as the disk is full or fails: what is to be written now never will be. */
bool kv_disk_is_paused(struct kv_disk *d);

/* --- reading */

/* Asks for a file; false: no slot is free. */
bool kv_disk_ask(struct kv_disk *d, const struct kv_snapshot *what, int32_t depth, uint64_t ticket);

/* The oldest that was asked for, if it is there now, for kv_disk_give; NULL: not yet, or nothing was asked for. */
struct kv_disk_slot *kv_disk_take(struct kv_disk *d);
void kv_disk_give(struct kv_disk *d, struct kv_disk_slot *slot);

/* --- counting */

enum kv_disk_count { KV_DISK_LATE, KV_DISK_DROPPED, KV_DISK_RESTORED, KV_DISK_COUNTS };
void kv_disk_count(struct kv_disk *d, enum kv_disk_count what, uint64_t n);

/* Pending are those that it was handed. */
void kv_disk_get_stats(struct kv_disk *d, struct kv_disk_stats *out);

#endif
