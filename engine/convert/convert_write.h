/* Writing a model anew: a GGUF file, or a SafeTensors folder, becomes one GGUF file whose weights have another type.
 * Rows are made in parallel and written as they come, so memory is a few megabytes a thread whatever the model; the
 * bytes do not depend on the number of threads. Threads: one conversion, one thread. */
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
    /* OPTIONAL: told 0..1 as the file grows; false stops the conversion, which then fails with ERR_CANCELLED. */
    bool (*progress)(void *arg, double fraction);
    void *progress_arg;
};

/* What was done; filled also when it fails, as far as it got. */
struct convert_report {
    uint64_t source_bytes, target_bytes; /* of tensors */
    uint64_t n_params;
    size_t n_tensors;
    size_t n_converted;      /* tensors whose type changed */
    size_t n_requantised;    /* of these, were quantised before */
    size_t n_other_type;     /* weights that got another type than asked for, as rows are no multiple of a block */
    size_t n_weighted;       /* tensors quantised with an importance matrix */
    size_t n_entries;        /* of the importance matrix */
    bool left_dynamic_rope;  /* RoPE is written as plain, though it is dynamic: wrong beyond the original context */
    bool has_own_pattern;    /* of the pre-tokenizer, under a key that infcgi alone reads */
    bool is_target_at_fault; /* the target could not be written, rather than the source not be read */
};

/* ERR_UNSUPPORTED_TYPE (a type that cannot be read), ERR_NUMERICAL (weights that are not finite, or too large for the
 * type), ERR_BAD_TENSOR_SHAPE (the importance matrix is of another model), ERR_CANCELLED; what model_open, model_build,
 * imatrix_open and gguf_write give. On failure there is no new file. */
MUST_CHECK enum err convert_write(const struct convert_options *o, struct convert_report *report,
                                  struct err_info *info);

#endif
