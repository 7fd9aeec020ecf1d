/* Slots of llama-server: which tokens the last sequence of a slot had, for POST /slots/N?action=save, restore and erase.
 *
 * Prefixes are kept for all sequences together, so a slot here is a list of tokens and whose they are. A saved slot is a file with that
 * list; restoring it computes the tokens' keys and values again, or reads them from the prefix cache or its snapshots. Only with
 * --slot-save-path: else nothing is noted. A slot belongs to the API key that used it last; to others it is empty.
 * Threads: any. */
#ifndef INFCGI_FCGI_API_SLOTS_H
#define INFCGI_FCGI_API_SLOTS_H

#include "fcgi/route.h"

enum { SLOTS_MAX = 1024, SLOTS_MAX_FILES = 1024 /* in the folder */ };

/* Notes the tokens of a sequence that ended in a slot: of the prompt, and `more` behind them. slot: as the request says, -1 for none;
 * a slot that does not exist is ignored. own_salt OPTIONAL: the request's. Failure leaves the slot empty. */
void slots_note(const struct call *c, int64_t slot, const char *own_salt, const int32_t *prompt, size_t n_prompt, const int32_t *more,
                size_t n_more);

/* The cache salt of a request of this slot: own_salt (OPTIONAL), and behind it how often the slot was erased, so that nothing of before is
 * found. text: where it may lie. */
const char *slots_salt(const struct call *c, int64_t slot, const char *own_salt, char text[APIKEY_OWN_SALT_BYTES]);

/* Is this a name for a file of a slot: 1 to 128 letters, digits, '-', '_' and '.', which is not the first? */
bool slots_is_file_name(const char *name, size_t n);

#endif
