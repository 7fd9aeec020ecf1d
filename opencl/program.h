/* Programs for a device: the OpenCL C sources that are part of this binary, built with options, and their kernels.
 * Threads: a set is used by one thread at a time. */
#ifndef INFCGI_OPENCL_PROGRAM_H
#define INFCGI_OPENCL_PROGRAM_H

#include "opencl/device.h"

/* A file of opencl/kernels, as the Makefile puts it into the binary (opencl_sources.c). */
struct program_source {
    const char *name; /* "matmul.cl"; NULL behind the last */
    const char *text;
};
extern const struct program_source program_sources[];

struct program_set; /* what was built for a device */

/* An empty set for a device, which is borrowed; fine: ACT_FINE of its programs. ERR_NOMEM. / Its end: kernels made of it
 * hold what they need. */
MUST_CHECK enum err program_set_new(const struct device *d, bool fine, struct program_set **out, struct err_info *info);
void program_set_free(struct program_set **s);

/* A kernel of its own, to be released by clReleaseKernel: function `entry` of `file`, with shared.h, common.clh and,
 * where -DKIND= is among the options, weights.clh in front of it, built with `options` ("-DKIND=1 -DM=8") and those that
 * the device's capabilities make. ERR_INTERNAL: the compiler refuses it, and *info has the first lines of why. */
MUST_CHECK enum err program_kernel(struct program_set *s, const char *file, const char *entry, const char *options,
                                   cl_kernel *out, struct err_info *info);

#endif
