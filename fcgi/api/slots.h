/* Slots of llama-server: which tokens the last sequence of a slot had, for POST /slots/N?action=save, restore and erase.
 *
 * Prefixes are kept for all sequences together, so a slot here is a list of tokens and whose they are. A saved slot is a file with that
 * list; restoring it computes the tokens' keys and values again, or reads them from the prefix cache or its snapshots. Only with
 * --slot-save-path: else nothing is noted. A slot belongs to the API key that used it last; to others it is empty. A file belongs to
 * the key that saved it: the file's name begins with the key's id, so two keys never mean the same file.
 * Threads: any. */
#ifndef INFCGI_FCGI_API_SLOTS_H
#define INFCGI_FCGI_API_SLOTS_H

#include "fcgi/wire/call.h"

enum {
    SLOTS_MAX = 1024,
    SLOTS_MAX_FILES = 1024,                      /* of an API key, in the folder */
    SLOTS_SALT_BYTES = APIKEY_OWN_SALT_BYTES + 1 /* of the text of slots_salt, with a NUL */
};

/* Notes the tokens of a sequence that ended in a slot: of the prompt, and `more` behind them. slot: as the request says, -1 for none;
 * a slot that does not exist is ignored. own_salt OPTIONAL: the request's, at most APIKEY_CLIENT_SALT_BYTES. Failure leaves the slot
 * empty. */
void slots_note(const struct call *c, int64_t slot, const char *own_salt, const int32_t *prompt, size_t n_prompt,
                const int32_t *more, size_t n_more);

/* The cache salt of a request of this slot: own_salt (OPTIONAL, at most APIKEY_CLIENT_SALT_BYTES). If the slot was erased, a number
 * that was drawn at the last erase comes before it, so that the request finds nothing from before. The number holds for all keys.
 * Returns own_salt or `text`. */
const char *slots_salt(const struct call *c, int64_t slot, const char *own_salt, char text[SLOTS_SALT_BYTES]);

/* Does the slot exist? Never without --slot-save-path. */
bool slots_has(const struct call *c, int64_t slot);

/* Appends the ids of an existing slot, int32_t each, and copies the salt of its last request; both only if they are the caller's:
 * else *ids and salt stay as they are. ERR_NOMEM, ERR_TOO_LARGE: *ids is not whole. */
MUST_CHECK enum err slots_copy(const struct call *c, int64_t slot, struct buf *ids,
                               char salt[APIKEY_CLIENT_SALT_BYTES + 1]);

/* Empties an existing slot, and returns the number of tokens that it had. A slot with tokens of another key stays as it is: 0. */
size_t slots_erase(const struct call *c, int64_t slot);

#endif
