/* A back end with a memory of its own, around another: as a device's, but here. Nothing of a batch is shared with who
 * begins it: what is read is copied, to blocks of just that size, and wiped when the batch is done; where results go lies
 * poison (NaN) until it is waited for, and stays there where nothing was asked for. A thread of its own computes, two
 * batches are taken at once, and the best tokens of a row are found, which the back ends it goes around leave to others. */
#ifndef INFCGI_TEST_REMOTE_BACKEND_H
#define INFCGI_TEST_REMOTE_BACKEND_H

#include "engine/backend/backend.h"

enum { REMOTE_MAX_BEGUN = 2, REMOTE_MAX_BEST = 24 };

extern const struct backend remote_backend; /* models come from remote_backend_wrap */

/* One that opens models of `inner`; one at a time. */
const struct backend *remote_backend_of(const struct backend *inner);

/* A model of remote_backend around one of `inner`, borrowed until remote_backend_unwrap. NULL: out of memory. n_embd: of hidden rows. */
struct backend_model *remote_backend_wrap(const struct backend *inner, struct backend_model *model, uint32_t n_vocab,
                                          uint32_t n_embd);
void remote_backend_unwrap(struct backend_model **m);

/* Batches that are begun and not waited for. */
int remote_backend_n_begun(const struct backend_model *m);

/* Batches of all models so far that were begun while another was computed. */
long remote_backend_n_beside(void);

#endif
