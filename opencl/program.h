/* Programs for a device: the OpenCL C sources in this binary, built with options, and their kernels. Built programs are
 * kept for the next start if the cache has a folder (program_cache.h). Threads: one thread at a time uses a set. */
#ifndef INFCGI_OPENCL_PROGRAM_H
#define INFCGI_OPENCL_PROGRAM_H

#include "opencl/device.h"
#include "opencl/program_cache.h"

/* A file of opencl/kernels, which the Makefile puts into the binary (opencl_sources.c). */
struct program_source {
    const char *name; /* "matmul.cl"; NULL after the last */
    const char *text;
};
extern const struct program_source program_sources[];

struct program_set; /* opaque */

/* Makes an empty set for a device and a configuration, both borrowed. It uses progress, tell and, until the first batch,
 * pack_cache. ERR_NOMEM. program_set_free does not invalidate the kernels of the set. */
MUST_CHECK enum err program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                                    struct err_info *info);
void program_set_free(struct program_set **s);

/* Registers a program for building: shared.h, common.clh, weights.clh if -DKIND= is among the options, and `file`, with
 * `options` ("-DKIND=1 -DM=8") and those that follow from the device's capabilities. Borrows `file` for the life of the
 * set. ERR_NOMEM. */
MUST_CHECK enum err program_want(struct program_set *s, const char *file, const char *options, struct err_info *info);

/* Builds the registered programs that are not built; tells the operator once that it compiles, and reports progress. If
 * the compiler rejects a program with waves of 64 or with the device's dot products, builds a plainer one and tells the
 * operator. ERR_UNSUPPORTED_DEVICE: the compiler rejects that too; *info has the first line of its log.
 * ERR_CANCELLED. */
MUST_CHECK enum err program_build_all(struct program_set *s, struct err_info *info);

/* Returns the progress of loading after building; 0 if nothing was compiled. */
float program_set_progress(const struct program_set *s);

/* Makes a new kernel, which the caller releases with clReleaseKernel: function `entry` of a program, which is built if
 * necessary. Errors: those of program_build_all. */
MUST_CHECK enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options,
                                   cl_kernel *out, struct err_info *info);

/* Marks the programs whose options contain the word as computing wrongly: drops built ones, and uses plain dot products
 * for them, now and at later starts, and for those registered later. Returns false if all are plain already. Existing
 * kernels do not change. */
bool program_set_plain(struct program_set *s, const char *word);

/* A finding about these sources on this device, which is valid until they or the driver change. Find: its file, by
 * `names` (a list of texts that ends with NULL). Has: whether it was found. Mark: records it. */
void program_set_find(const struct program_set *s, const char *const *names, struct program_file *out);
bool program_set_has(struct program_set *s, const struct program_file *f);
void program_set_mark(struct program_set *s, const struct program_file *f);

/* Tells the operator (backend_config.tell). */
void program_set_tell(const struct program_set *s, const char *text);

/* Returns the state of the cache and its note; owned by the set. */
const struct program_cache *program_set_cache(const struct program_set *s);

#endif
