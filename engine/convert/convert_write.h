/* Converts a model: a GGUF file or a SafeTensors folder becomes one GGUF file with weights of another type. Rows are
 * made in parallel and written immediately, so memory is a few megabytes per thread whatever the model. The bytes do
 * not depend on the number of threads. Threads: one per conversion. */
#ifndef INFCGI_CONVERT_CONVERT_WRITE_H
#define INFCGI_CONVERT_CONVERT_WRITE_H

#include "engine/base/err.h"
#include "engine/convert/convert_type.h"

struct convert_options {
    const char *source, *target; /* paths */
    const struct convert_type *type;
    const char *imatrix; /* OPTIONAL: path of an importance matrix */
    int n_threads;       /* 1 or more */
    bool may_replace;
    /* OPTIONAL: receives 0..1 as the file grows; returning false stops the conversion with ERR_CANCELLED. */
    bool (*progress)(void *arg, double fraction);
    void *progress_arg;
};

/* The result; after a failure filled as far as the conversion got. */
struct convert_report {
    uint64_t source_bytes, target_bytes; /* of tensors */
    uint64_t n_params;
    size_t n_tensors;
    size_t n_converted;   /* tensors whose type changed */
    size_t n_requantised; /* of these, already quantised before */
    /* weights with another type than requested, because their rows are not a multiple of a block */
    size_t n_other_type;
    size_t n_weighted;       /* tensors quantised with an importance matrix */
    size_t n_entries;        /* of the importance matrix */
    bool left_dynamic_rope;  /* dynamic RoPE is written as plain: wrong beyond the original context */
    bool has_own_pattern;    /* of the pre-tokenizer, under a key that only infcgi reads */
    bool is_target_at_fault; /* writing the target failed, not reading the source */
};

/* Converts the model. ERR_UNSUPPORTED_TYPE (a type that cannot be read), ERR_NUMERICAL (weights that are not finite, or
 * too large for the type), ERR_BAD_TENSOR_SHAPE (the importance matrix is of another model), ERR_CANCELLED; errors of
 * model_open, model_build, imatrix_open and gguf_write. Leaves no new file on failure. */
MUST_CHECK enum err convert_write(const struct convert_options *o, struct convert_report *report,
                                  struct err_info *info);

#endif
