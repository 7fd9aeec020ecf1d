/* An OpenCL device: what it can do, and the context and the queue that all work on it goes through.
 *
 * The host decides what kernels use from what is read here, and tells them by -D: macros that compilers define for
 * extensions are wrong on several drivers. Threads: a device is used by one thread at a time. */
#ifndef INFCGI_OPENCL_DEVICE_H
#define INFCGI_OPENCL_DEVICE_H

#include "opencl/ocl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How four products of bytes are summed: how DOT in kernels/common.clh is spelled. */
enum device_dot {
    DEVICE_DOT_PLAIN, /* C: any device */
    DEVICE_DOT_KHR,   /* cl_khr_integer_dot_product */
    DEVICE_DOT_AMD,   /* __builtin_amdgcn_sudot4: gfx11 under AMD's compiler */
    DEVICE_DOT_NV,    /* dp4a of PTX */
    DEVICE_DOT_COUNT
};

struct device_caps {
    char name[128], platform[64], driver[64];
    bool is_gpu;
    uint64_t memory_bytes;     /* of the device */
    uint64_t max_buffer_bytes; /* of one buffer */
    uint32_t local_bytes;      /* of a work-group's own memory */
    uint32_t align_bytes;      /* of a sub-buffer's origin */
    uint32_t max_group;        /* work-items of a work-group */
    enum device_dot dot;
};

struct device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue; /* in order */
    struct device_caps caps;
};

/* Reads what a device can do. Errors: ocl_check's. */
MUST_CHECK enum err device_read_caps(cl_device_id id, struct device_caps *out, struct err_info *info);

/* Opens the device that `which` names: OPTIONAL, "auto" (the first GPU, else the first of any kind) or its number.
 * ERR_CONFIG names what there is. */
MUST_CHECK enum err device_open(const char *which, struct device *out, struct err_info *info);

/* Ends what is begun and gives all back; of one that is zeroed, nothing. */
void device_close(struct device *d);

#endif
