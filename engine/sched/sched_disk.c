/* Snapshots (docs/ops/snapshots.md): the pages and states that a sequence reads from the disk instead of computing
 * them, and those it leaves there. Back ends move pages while no batch is begun, so both happen between steps. Pages
 * that were read are installed immediately, because a client waits for them. Pages to write are copied out in a small
 * share of the time, or in all of it if there is nothing to compute. */
#include "engine/sched/sched_internal.h"

#include <string.h>
#include <time.h>

enum {
    WRITE_PART = 50,      /* copying pages for the writer gets a 50th of the time */
    LEAST_PENDING = 1024, /* pages that can wait to be copied; the pool's size if that is more */
};
#define CREDIT_NS     5000000.0   /* limit of saved-up copying time */
#define TAKE_NS       20000000u   /* limit per turn for installing pages while others compute */
#define WAIT_NS       2000000000u /* longest wait for the next file */
#define FINISH_NS     2000000000u /* time limit at the end, for pending copies */
#define FINISH_TRY_NS 1000000

enum err sched_disk_init(struct sched *s)
{
    if (s->cfg.disk == NULL) {
        return ERR_OK;
    }
    s->disk.n_room = MAX_OF(s->cfg.n_pages, (int32_t)LEAST_PENDING);
    s->disk.pending = mem_zalloc_array((size_t)s->disk.n_room, sizeof *s->disk.pending, MEM_KV);
    return s->disk.pending != NULL ? ERR_OK : ERR_NOMEM;
}

void sched_disk_fini(struct sched *s) { mem_free(s->disk.pending); }

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Computes the names of the first n pages, whose tokens exist. If a name fails, q does not use the disk. */
static bool name_pages(struct sched_seq *q, int32_t n)
{
    while (q->files.names != NULL && q->files.n_named < n) {
        const int32_t *tokens = q->tokens + q->files.n_named * KV_PAGE_TOKENS;
        if (kv_name_child(&q->files.names[q->files.n_named], tokens, &q->files.names[q->files.n_named + 1]) != ERR_OK) {
            q->files.names = NULL;
            return false;
        }
        q->files.n_named++;
    }
    return q->files.names != NULL;
}

void sched_disk_submit(struct sched *s, struct sched_seq *q, const char *salt)
{
    if (q->files.names == NULL || kv_disk_root(s->cfg.disk, salt, &q->files.names[0]) != ERR_OK) {
        q->files.names = NULL;
        return;
    }
    int32_t n = sched_whole_pages(q);
    if (name_pages(q, n) && !q->terms.is_private) {
        q->files.n_found = kv_disk_probe(s->cfg.disk, q->files.names + 1, n);
    }
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

void sched_disk_drop(struct sched *s, struct sched_seq *q)
{
    if (q->restore.ticket != 0) {
        q->restore.ticket = 0;
        s->disk.n_restoring--;
        if (q->restore.state != KV_NO_STATE) {
            kv_cache_drop_state(s->kv, q->restore.state);
        }
    }
}

/* Returns which parts of q's i-th page must be read: window pages only if q will hold them. */
static struct backend_page missing(const struct sched *s, const struct sched_seq *q, int32_t i)
{
    return s->cfg.n_windows != 0 ? sched_local_missing(s, q, i) : (struct backend_page){.page = q->pages.table[i]};
}

static bool is_missing(const struct sched *s, const struct sched_seq *q, int32_t i)
{
    struct backend_page part = missing(s, q, i);
    return part.page != BACKEND_NO_PAGE || part.window != BACKEND_NO_PAGE;
}

/* Is there a file that was not requested yet? */
static bool has_more(const struct sched *s, struct sched_seq *q)
{
    struct sched_restore *r = &q->restore;
    while (r->next < r->end && !is_missing(s, q, r->next)) {
        r->next++;
    }
    return r->next < r->end + (s->cfg.n_states != 0);
}

/* Requests files while slots last. */
static void ask(struct sched *s, struct sched_seq *q)
{
    struct sched_restore *r = &q->restore;
    for (bool ok = true; ok && has_more(s, q); r->next += ok, r->n_asked += ok) {
        int32_t i = MIN_OF(r->next, r->end - 1);
        struct kv_snapshot what = {.kind = r->next < r->end ? KV_SNAPSHOT_PAGE : KV_SNAPSHOT_STATE,
                                   .name = q->files.names[i + 1]};
        memcpy(what.tokens, q->tokens + i * KV_PAGE_TOKENS, sizeof what.tokens);
        ok = kv_disk_ask(s->cfg.disk, &what, i, r->ticket);
    }
}

/* Returns the first page that q would compute or, with window pages, read. */
static int32_t first_missing(struct sched *s, struct sched_seq *q, int32_t end)
{
    if (s->cfg.n_windows != 0) {
        int32_t i = sched_local_begin_restore(s, q, end) ? 0 : end;
        while (i < end && !is_missing(s, q, i)) {
            i++;
        }
        return i;
    }
    return s->cfg.n_states != 0 ? q->states.n_begin / KV_PAGE_TOKENS
                                : sched_filled_end(s, q, q->pages.n_gone, q->pages.n);
}

void sched_disk_begin(struct sched *s, struct sched_seq *q)
{
    /* More pages follow when its window moves. */
    int32_t end = MIN_OF(MIN_OF(q->files.n_found, sched_whole_pages(q)), q->pages.n);
    if (q->files.names == NULL || end <= 0 || q->restore.ticket != 0) {
        return;
    }
    int32_t from = first_missing(s, q, end);
    if (from >= end) {
        return;
    }
    if (s->cfg.n_states == 0 && s->cfg.n_windows == 0 &&
        kv_cache_owner(s->kv, q->pages.table[from]) != q->number) { /* wait for a page that another computes */
        return;
    }
    q->restore = (struct sched_restore){.ticket = ++s->disk.n_tickets,
                                        .from = from,
                                        .end = end,
                                        .next = from,
                                        .state = KV_NO_STATE,
                                        .last_ns = clock_now_ns()};
    s->disk.n_restoring++;
    ask(s, q);
}

bool sched_disk_waits(struct sched *s, struct sched_seq *q)
{
    if (q->restore.ticket == 0) {
        return false;
    }
    uint64_t limit = s->cfg.disk_wait_ns != 0 ? s->cfg.disk_wait_ns : WAIT_NS;
    if (clock_now_ns() - q->restore.last_ns > limit) {
        kv_disk_count(s->cfg.disk, KV_DISK_LATE, 1);
        q->files.n_found = 0; /* also if it is preempted */
        sched_disk_drop(s, q);
        sched_local_drop(s, q);
        return false;
    }
    q->wait = SCHED_WAIT_DISK;
    return true;
}

/* All pages and the state have been read: makes them findable, and q continues from them. */
static void adopt_all(struct sched *s, struct sched_seq *q)
{
    struct sched_restore *r = &q->restore;
    for (int32_t i = r->from; i < r->end; i++) {
        if (sched_name_page(s, q, i)) {
            kv_cache_fill(s->kv, q->pages.table[i]);
        } else {
            sched_adopt_page(s, q, i);
        }
        kv_cache_prefer(s->kv, q->pages.table[i]);
    }
    int32_t last = q->pages.table[r->end - 1];
    if (kv_cache_state(s->kv, last) == KV_NO_STATE) {
        kv_cache_keep_state(s->kv, last, r->state);
    }
    sched_begin_state(s, q);
}

/* Passes a page or state that was read to the back end. */
static bool put(struct sched *s, struct sched_seq *q, const struct kv_disk_slot *slot)
{
    struct err_info ignored;
    if (slot->err != ERR_OK) {
        return false;
    }
    if (slot->what.kind == KV_SNAPSHOT_PAGE) {
        struct backend_page to = missing(s, q, slot->depth);
        return s->cfg.backend->page_copy(s->cfg.model, to, BACKEND_OWN,
                                         sched_copy_output(s, to.page, slot->payload, true), true, &ignored) == ERR_OK;
    }
    q->restore.state = kv_cache_take_state(s->kv);
    return q->restore.state != KV_NO_STATE &&
           s->cfg.backend->state_copy(s->cfg.model, q->restore.state, slot->payload, true, &ignored) == ERR_OK;
}

/* A file for q was read or is missing. If it is missing, q computes from here on; with states, from where it would have
 * begun. */
static void restore_one(struct sched *s, struct sched_seq *q, const struct kv_disk_slot *slot)
{
    struct sched_restore *r = &q->restore;
    bool has_states = s->cfg.n_states != 0, ok = put(s, q, slot);
    r->n_got++;
    r->last_ns = clock_now_ns();
    if (ok && !has_states) {
        kv_cache_fill(s->kv, q->pages.table[slot->depth]);
        if (slot->depth >= q->windows.n_gone) {
            sched_local_filled(s, q, slot->depth);
        }
        kv_cache_prefer(s->kv, q->pages.table[slot->depth]);
        kv_disk_count(s->cfg.disk, KV_DISK_RESTORED, KV_PAGE_TOKENS);
    }
    bool is_done = !has_more(s, q) && r->n_got == r->n_asked;
    if (ok && is_done && has_states) {
        adopt_all(s, q);
        kv_disk_count(s->cfg.disk, KV_DISK_RESTORED, (uint64_t)(r->end - r->from) * KV_PAGE_TOKENS);
    }
    q->files.n_found = ok ? q->files.n_found : has_states ? 0 : slot->depth;
    if (!ok || is_done) {
        sched_disk_drop(s, q);
    }
    if (!ok) {
        sched_local_drop(s, q); /* some window pages are missing: readmit it with those it has by then */
    }
}

static void take_read(struct sched *s)
{
    uint64_t until = clock_now_ns() + TAKE_NS;
    struct kv_disk_slot *slot;
    while (clock_now_ns() < until && (slot = kv_disk_take(s->cfg.disk)) != NULL) {
        struct sched_seq *q = s->running;
        while (q != NULL && q->restore.ticket != slot->ticket) {
            q = q->next;
        }
        if (q != NULL) { /* else it has left since */
            restore_one(s, q, slot);
        }
        kv_disk_give(s->cfg.disk, slot);
        for (q = s->running; q != NULL; q = q->next) {
            if (q->restore.ticket != 0) {
                ask(s, q);
            }
        }
    }
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void push(struct sched *s, struct sched_seq *q, int32_t i, enum kv_snapshot_kind kind)
{
    struct sched_disk *d = &s->disk;
    if (q->files.names == NULL || q->files.writes_none || !name_pages(q, i + 1)) {
        return;
    }
    if (d->n_pending == d->n_room) {
        kv_disk_count(s->cfg.disk, KV_DISK_DROPPED, 1);
        return;
    }
    d->pending[(d->first + d->n_pending++) % d->n_room] =
        (struct sched_pending){.page = q->pages.table[i],
                               .serial = kv_cache_serial(s->kv, q->pages.table[i]),
                               .depth = i,
                               .kind = kind,
                               .name = q->files.names[i + 1]};
    pthread_mutex_lock(&s->lock); /* before a reader that waits for q sees its end */
    s->stats.disk.pending = (uint64_t)d->n_pending;
    pthread_mutex_unlock(&s->lock);
}

void sched_disk_filled(struct sched *s, struct sched_seq *q, int32_t i) { push(s, q, i, KV_SNAPSHOT_PAGE); }
void sched_disk_kept(struct sched *s, struct sched_seq *q, int32_t i) { push(s, q, i, KV_SNAPSHOT_STATE); }

/* Copies the oldest pending page for the writer; returns false if no slot is free. */
static bool copy_one(struct sched *s)
{
    struct sched_disk *d = &s->disk;
    const struct sched_pending p = d->pending[d->first];
    struct err_info ignored;
    bool is_there = p.serial != 0 && kv_cache_serial(s->kv, p.page) == p.serial;
    int32_t state = is_there && p.kind == KV_SNAPSHOT_STATE ? kv_cache_state(s->kv, p.page) : KV_NO_STATE;
    const struct backend_page both = {p.page, s->cfg.n_windows != 0 && is_there ? kv_cache_window(s->kv, p.page)
                                                                                : BACKEND_NO_PAGE};
    is_there = is_there && (p.kind == KV_SNAPSHOT_PAGE || state != KV_NO_STATE);
    is_there = is_there && (s->cfg.n_windows == 0 || both.window != BACKEND_NO_PAGE);
    bool is_wanted = is_there && !kv_disk_has(s->cfg.disk, p.kind, &p.name) && !kv_disk_is_paused(s->cfg.disk);
    if (is_wanted) {
        struct kv_disk_slot *slot = kv_disk_begin_write(s->cfg.disk, p.kind);
        if (slot == NULL) {
            return false;
        }
        slot->what = (struct kv_snapshot){.kind = p.kind, .name = p.name};
        memcpy(slot->what.tokens, kv_cache_tokens(s->kv, p.page), sizeof slot->what.tokens);
        slot->depth = p.depth;
        enum err err =
            p.kind == KV_SNAPSHOT_PAGE
                ? s->cfg.backend->page_copy(s->cfg.model, both, BACKEND_OWN,
                                            sched_copy_output(s, p.page, slot->payload, false), false, &ignored)
                : s->cfg.backend->state_copy(s->cfg.model, state, slot->payload, false, &ignored);
        kv_disk_end_write(s->cfg.disk, slot, err == ERR_OK);
    } else if (!is_there && p.kind == KV_SNAPSHOT_PAGE) {
        kv_disk_count(s->cfg.disk, KV_DISK_DROPPED, 1);
    }
    d->first = (d->first + 1) % d->n_room;
    d->n_pending--;
    return true;
}

static void copy_pending(struct sched *s)
{
    struct sched_disk *d = &s->disk;
    uint64_t now = clock_now_ns();
    bool is_idle = s->running == NULL && s->waiting == NULL;
    d->credit_ns = MIN_OF(d->credit_ns + (double)(now - d->counted_ns) / WRITE_PART, CREDIT_NS);
    d->counted_ns = now;
    while (d->n_pending > 0 && (is_idle ? !atomic_load(&s->has_news) : d->credit_ns > 0) && copy_one(s)) {
        uint64_t then = now;
        now = clock_now_ns();
        d->credit_ns -= is_idle ? 0 : (double)(now - then);
    }
}

void sched_disk_turn(struct sched *s)
{
    if (s->cfg.disk != NULL && s->batches.n_begun == 0 && s->lost.code == ERR_OK) {
        take_read(s);
        copy_pending(s);
    }
}

void sched_disk_finish(struct sched *s)
{
    uint64_t until = clock_now_ns() + FINISH_NS;
    while (s->disk.n_pending > 0 && s->lost.code == ERR_OK && clock_now_ns() < until) {
        if (!copy_one(s)) {
            nanosleep(&(struct timespec){.tv_nsec = FINISH_TRY_NS}, NULL);
        }
    }
}
