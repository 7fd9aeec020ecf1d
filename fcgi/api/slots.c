#include "fcgi/api/slots.h"

#include "engine/base/rng.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The last sequence of a slot. */
struct slot {
    struct apikey_id owner;
    char salt[APIKEY_CLIENT_SALT_BYTES + 1]; /* the request's own; "": none */
    struct buf ids;                          /* int32_t each; none: the slot is empty */
    uint64_t erased; /* random number of the last erase, independent of the slot's later users; 0: never erased */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the slots */
static struct slot slots[SLOTS_MAX];

/* Returns the slot of that number. NULL: no such slot, or slots are not saved. */
static struct slot *find_slot(const struct call *c, int64_t number)
{
    int64_t n = MIN_OF((int64_t)engine_model(c->engine)->max_seqs, (int64_t)SLOTS_MAX);
    return c->server->conf->slot_save_path != NULL && number >= 0 && number < n ? &slots[number] : NULL;
}

/* Empties the slot and assigns it to the caller; the lock is held. */
static void claim(struct slot *s, const struct apikey_id *caller)
{
    s->owner = *caller;
    s->salt[0] = '\0';
    buf_fini(&s->ids);
    buf_init(&s->ids, 0, MEM_GENERAL);
}

void slots_note(const struct call *c, int64_t slot, const char *own_salt, const struct slots_part parts[2])
{
    struct slot *s = find_slot(c, slot);
    size_t n_salt = own_salt != NULL ? strlen(own_salt) : 0;
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    claim(s, &c->caller);
    n_salt = MIN_OF(n_salt, sizeof s->salt - 1);
    memcpy(s->salt, n_salt > 0 ? own_salt : "", n_salt);
    s->salt[n_salt] = '\0';
    for (size_t i = 0; i < 2; i++) {
        buf_append(&s->ids, parts[i].ids, parts[i].n * sizeof *parts[i].ids);
    }
    if (buf_ok(&s->ids) != ERR_OK) {
        claim(s, &c->caller);
    }
    pthread_mutex_unlock(&lock);
}

const char *slots_salt(const struct call *c, int64_t slot, const char *own_salt, char text[SLOTS_SALT_BYTES])
{
    struct slot *s = find_slot(c, slot);
    if (s == NULL) {
        return own_salt;
    }
    pthread_mutex_lock(&lock);
    uint64_t erased = s->erased;
    pthread_mutex_unlock(&lock);
    if (erased == 0) {
        return own_salt;
    }
    snprintf(text, SLOTS_SALT_BYTES, "slot %d erased %016" PRIx64 " %s", (int)slot, erased,
             own_salt != NULL ? own_salt : "");
    return text;
}

bool slots_has(const struct call *c, int64_t slot) { return find_slot(c, slot) != NULL; }

enum err slots_copy(const struct call *c, int64_t slot, struct buf *ids, char salt[APIKEY_CLIENT_SALT_BYTES + 1])
{
    const struct slot *s = find_slot(c, slot);
    pthread_mutex_lock(&lock);
    if (apikey_is_same(&s->owner, &c->caller)) {
        buf_add(ids, &s->ids);
        memcpy(salt, s->salt, sizeof s->salt);
    }
    pthread_mutex_unlock(&lock);
    return buf_ok(ids);
}

size_t slots_erase(const struct call *c, int64_t slot)
{
    struct slot *s = find_slot(c, slot);
    size_t n = 0;
    pthread_mutex_lock(&lock);
    if (s->ids.len == 0 || apikey_is_same(&s->owner, &c->caller)) {
        n = s->ids.len / sizeof(int32_t);
        claim(s, &c->caller);
        s->erased = rng_fresh_seed() | 1u;
    }
    pthread_mutex_unlock(&lock);
    return n;
}
