/* Importance matrices: for each weight matrix and each of its inputs, how large that input was on average over some
 * text, which is how much an error there matters. Read in both forms of llama.cpp's `llama-imatrix`: GGUF and the older
 * .dat. Threads: read-only after imatrix_open. */
#ifndef INFCGI_CONVERT_IMATRIX_H
#define INFCGI_CONVERT_IMATRIX_H

#include "engine/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct imatrix;

/* ERR_BAD_HEADER (neither form, or not whole), what gguf_open gives, ERR_BAD_TENSOR_SHAPE (a value is negative or not
 * finite: info names the entry), ERR_NOMEM. The caller owns *out until imatrix_close. */
MUST_CHECK enum err imatrix_open(const char *path, struct imatrix **out, struct err_info *info);
void imatrix_close(struct imatrix **m);

size_t imatrix_n_entries(const struct imatrix *m);

/* The values for tensor `name`, [n_matrices][n_in], of which only the relation within a row of n_in means anything;
 * NULL when there are none. Borrowed from m. */
const float *imatrix_find(const struct imatrix *m, const char *name, uint64_t *n);

#endif
