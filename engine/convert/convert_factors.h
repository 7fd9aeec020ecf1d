/* NVFP4 weights with factors, as GGUF files keep them: the weight without them, and a tensor with one per matrix. Threads:
 * pure functions. */
#ifndef INFCGI_CONVERT_CONVERT_FACTORS_H
#define INFCGI_CONVERT_CONVERT_FACTORS_H

#include "engine/format/gguf.h"

/* Makes a copy of g with each weight X.weight of type NVFP4_SCALED split into one of type NVFP4 and X.scale, F32
 * [matrices]. *out is NULL if g has none. Data stay in g, which must outlive *out. ERR_UNSUPPORTED_TYPE: rows of a matrix
 * have different factors; ERR_NOMEM, errors of gguf_build_finish. The caller owns *out until gguf_close. */
MUST_CHECK enum err convert_factors_split(const struct gguf *g, struct gguf **out, struct err_info *info);

#endif
