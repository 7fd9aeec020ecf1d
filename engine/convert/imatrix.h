/* Importance matrices: the mean square of each input of each weight matrix over some text, so how much an error there
 * matters. Reads both forms of llama.cpp's `llama-imatrix`: GGUF and the older .dat. Threads: read-only after
 * imatrix_open. */
#ifndef INFCGI_CONVERT_IMATRIX_H
#define INFCGI_CONVERT_IMATRIX_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct imatrix;

/* Reads an importance matrix. ERR_BAD_HEADER (neither form, or incomplete), errors of gguf_open, ERR_BAD_TENSOR_SHAPE
 * (a value is negative or not finite; info names the entry), ERR_NOMEM. The caller owns *out until imatrix_close. */
MUST_CHECK enum err imatrix_open(const char *path, struct imatrix **out, struct err_info *info);
void imatrix_close(struct imatrix **m);

size_t imatrix_n_entries(const struct imatrix *m);

/* Returns the values for tensor `name`, [n_matrices][n_in], NULL if there are none. Only ratios within a row of n_in
 * are meaningful. Borrowed from m. */
const float *imatrix_find(const struct imatrix *m, const char *name, uint64_t *n);

#endif
