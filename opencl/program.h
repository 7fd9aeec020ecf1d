/* Programs for a device: the OpenCL C sources that are part of this binary, built with options, and their kernels. What
 * was built is kept for the next start, where there is a folder for that (program_cache.h).
 * Threads: a set is used by one thread at a time. */
#ifndef INFCGI_OPENCL_PROGRAM_H
#define INFCGI_OPENCL_PROGRAM_H

#include "opencl/device.h"
#include "opencl/program_cache.h"

/* A file of opencl/kernels, as the Makefile puts it into the binary (opencl_sources.c). */
struct program_source {
    const char *name; /* "matmul.cl"; NULL behind the last */
    const char *text;
};
extern const struct program_source program_sources[];

struct program_set; /* what is built for a device */

/* An empty set for a device and a configuration, which are borrowed; of that high_precision (ACT_FINE of the programs),
 * progress, tell, and, until the first batch, pack_cache count. ERR_NOMEM. / Its end: kernels made of it hold what they
 * need. */
MUST_CHECK enum err program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                                    struct err_info *info);
void program_set_free(struct program_set **s);

/* A program that kernels will be asked of: `file` with shared.h, common.clh and, where -DKIND= is among the options,
 * weights.clh in front of it, with `options` ("-DKIND=1 -DM=8") and those that the device's capabilities make. `file` is
 * borrowed for good. ERR_NOMEM. */
MUST_CHECK enum err program_want(struct program_set *s, const char *file, const char *options, struct err_info *info);

/* Builds what is wanted and is not built; what is compiled is told, once, and is progress. Where the compiler refuses a
 * program in waves of 64 or with the device's way to take dot products, a plainer one takes its place, which is told.
 * ERR_UNSUPPORTED_DEVICE: it refuses that too, and *info has the first line of why. ERR_CANCELLED. */
MUST_CHECK enum err program_build_all(struct program_set *s, struct err_info *info);

/* How far progress has come by it: 0 where nothing was compiled. */
float program_set_progress(const struct program_set *s);

/* A kernel of its own, to be released by clReleaseKernel: function `entry` of a program, which is built if it is not.
 * Errors: those of program_build_all. */
MUST_CHECK enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options,
                                   cl_kernel *out, struct err_info *info);

/* The programs whose options hold the word compute wrongly: those that are built are built anew with plain dot products,
 * now and at later starts, and those that are wanted later have plain ones, too. False: all have them already. Kernels
 * that were made before stay as they are. */
bool program_set_plain(struct program_set *s, const char *word);

/* Something that was found of these sources on this device, and holds for all starts until they or the driver change: its
 * file (names: which; a list of texts that ends with NULL); was it found; it is found now. */
void program_set_find(const struct program_set *s, const char *const *names, struct program_file *out);
bool program_set_has(struct program_set *s, const struct program_file *f);
void program_set_mark(struct program_set *s, const struct program_file *f);

/* Tells the operator (backend_config.tell). */
void program_set_tell(const struct program_set *s, const char *text);

/* How what was built came from files, and what is to be said of that; the set's. */
const struct program_cache *program_set_cache(const struct program_set *s);

#endif
