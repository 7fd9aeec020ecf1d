/* Slots of llama-server: the tokens of each slot's last sequence, for POST /slots/N?action=save, restore and erase.
 *
 * The prefix cache is common to all sequences, so a slot here is a list of tokens and its owner. A saved slot is a file
 * with that list. Restoring it recomputes keys and values of the tokens, or reads them from the prefix cache or its
 * snapshots. Without --slot-save-path nothing is recorded. A slot belongs to the API key that used it last; for other
 * keys it is empty. A file belongs to the key that saved it: its name begins with the key's id, so two keys never share
 * a file.
 * Threads: any. */
#ifndef INFCGI_FCGI_API_SLOTS_H
#define INFCGI_FCGI_API_SLOTS_H

#include "fcgi/wire/call.h"

enum {
    SLOTS_MAX = 1024,
    SLOTS_MAX_FILES = 1024,                      /* per API key, in the folder */
    SLOTS_SALT_BYTES = APIKEY_OWN_SALT_BYTES + 1 /* length of slots_salt's text, with a NUL */
};

struct slots_part {
    const int32_t *ids; /* [n] */
    size_t n;
};

/* Records the tokens of a sequence that ended in a slot: prompt and answer. slot: from the request, -1 for none;
 * slots that do not exist are ignored. own_salt OPTIONAL: the request's, at most APIKEY_CLIENT_SALT_BYTES. A failure
 * leaves the slot empty. */
void slots_note(const struct call *c, int64_t slot, const char *own_salt, const struct slots_part parts[2]);

/* Returns the cache salt of a request of this slot: own_salt (OPTIONAL, at most APIKEY_CLIENT_SALT_BYTES). After an
 * erase, a number drawn at the last erase precedes it, so that the request finds no earlier prefixes. The number holds
 * for all keys. Returns own_salt or `text`. */
const char *slots_salt(const struct call *c, int64_t slot, const char *own_salt, char text[SLOTS_SALT_BYTES]);

/* Returns whether the slot exists; false without --slot-save-path. */
bool slots_has(const struct call *c, int64_t slot);

/* Appends the ids of an existing slot, int32_t each, and copies the salt of its last request, if the slot belongs to
 * the caller; else leaves *ids and salt unchanged. ERR_NOMEM, ERR_TOO_LARGE: *ids is incomplete. */
MUST_CHECK enum err slots_copy(const struct call *c, int64_t slot, struct buf *ids,
                               char salt[APIKEY_CLIENT_SALT_BYTES + 1]);

/* Empties an existing slot and returns the number of its tokens. A slot of another key is left unchanged; returns 0. */
size_t slots_erase(const struct call *c, int64_t slot);

#endif
