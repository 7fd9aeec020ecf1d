/* A back end with its own memory around another back end: like a device, but in this process. It shares nothing of a
 * batch with the thread that begins it. Inputs are copied to blocks of exactly their size, and wiped after the batch.
 * Memory for results has poison (NaN) until wait returns, and keeps it where no result was requested. It computes in
 * its own thread, accepts two batches at a time, and finds the best tokens of a row, which the inner back ends do
 * not. */
#ifndef INFCGI_TEST_REMOTE_BACKEND_H
#define INFCGI_TEST_REMOTE_BACKEND_H

#include "engine/backend/backend.h"

enum { REMOTE_MAX_BEGUN = 2, REMOTE_MAX_BEST = 24 };

extern const struct backend remote_backend; /* its models come from remote_backend_wrap */

/* Returns a back end that opens models of `inner`; one at a time. */
const struct backend *remote_backend_of(const struct backend *inner);

/* Returns a model of remote_backend around a model of `inner`, which it borrows until remote_backend_unwrap. NULL: out
 * of memory. n_embd: of hidden rows; width: of input and output rows. */
struct backend_model *remote_backend_wrap(const struct backend *inner, struct backend_model *model, uint32_t n_vocab,
                                          uint32_t n_embd, uint32_t width);
void remote_backend_unwrap(struct backend_model **m);

/* Returns the number of batches that are begun and not waited for. */
int remote_backend_n_begun(const struct backend_model *m);

/* Returns the number of batches, of all models so far, that were begun while another was computed. */
long remote_backend_n_beside(void);

#endif
