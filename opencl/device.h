/* An OpenCL device: what it can do, and the context and the queue that all work on it goes through.
 *
 * The host decides what kernels use from what is read here, and tells them by -D: macros that compilers define for
 * extensions are wrong on several drivers. Threads: a device is used by one thread at a time. */
#ifndef INFCGI_OPENCL_DEVICE_H
#define INFCGI_OPENCL_DEVICE_H

#include "engine/backend/backend.h"
#include "opencl/ocl.h"
#include "opencl/pci.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How four products of bytes are summed: how DOT in kernels/common.clh is spelled. */
enum device_dot {
    DEVICE_DOT_PLAIN, /* C: any device */
    DEVICE_DOT_KHR,   /* cl_khr_integer_dot_product, where the device has an instruction for it */
    DEVICE_DOT_AMD,   /* __builtin_amdgcn_sudot4: gfx11 under AMD's compiler */
    DEVICE_DOT_NV,    /* dp4a of PTX */
    DEVICE_DOT_COUNT
};
const char *device_dot_name(int dot); /* "khr"; NULL beyond the last */

enum device_subgroups {
    DEVICE_SUBGROUPS_NONE,
    DEVICE_SUBGROUPS_FEATURE, /* __opencl_c_subgroups alone: one may not wait for another (rusticl) */
    DEVICE_SUBGROUPS_KHR      /* cl_khr_subgroups */
};
const char *device_subgroups_name(int subgroups); /* "feature"; NULL beyond the last */

/* Texts are ASCII, whatever the driver says. What is not known is 0, "" or false. */
struct device_caps {
    uint32_t i_platform, i_device; /* where it stands: of clGetPlatformIDs, and of that one's clGetDeviceIDs */
    char name[128];                /* "gfx1100", or what people say */
    char board[128];               /* what people say, where the driver tells both: "AMD Radeon RX 7900 XTX" */
    char platform[64], driver[64];
    char gfx[16]; /* "gfx1100", where the name tells it */
    bool is_gpu;  /* a CPU is none, whatever computes on it (PoCL, llvmpipe) */
    bool is_integrated;
    bool is_available, has_compiler, is_little_endian;
    bool has_fp16; /* arithmetic */
    bool has_pci;
    struct pci_address pci;
    uint32_t version;          /* of OpenCL: 300 for 3.0 */
    uint64_t memory_bytes;     /* of the device */
    uint64_t free_bytes;       /* of it now, where the driver tells */
    uint64_t max_buffer_bytes; /* of one buffer */
    uint32_t local_bytes;      /* of a work-group's own memory */
    uint32_t align_bytes;      /* of a sub-buffer's origin */
    uint32_t max_group;        /* work-items of a work-group */
    uint32_t units;            /* compute units */
    enum device_subgroups subgroups;
    uint32_t subgroup_sizes; /* the sizes that they may have, which are powers of two, added: 96 for 32 and 64 */
    enum device_dot dot;
};

enum { DEVICE_WHY_BYTES = 128, DEVICE_TEXT_BYTES = BACKEND_TEXT_BYTES };

struct device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue; /* in order */
    struct device_caps caps;
    char why[DEVICE_TEXT_BYTES];  /* what it is: "device 0 (gfx1100 at 0000:03:00.0): a discrete RDNA3 GPU" */
    char note[DEVICE_TEXT_BYTES]; /* what an operator should know: "resizable BAR is off: .."; "": nothing */
};

/* The name of a platform, as texts of device_caps are; "" where it does not say. */
void device_platform_name(cl_platform_id platform, char *out, size_t cap);

/* Reads what a device can do; where it stands (i_platform, i_device) is the caller's. Errors: ocl_check's. */
MUST_CHECK enum err device_read_caps(cl_device_id id, struct device_caps *out, struct err_info *info);

/* Why nothing can be computed on it, in room, which it returns; NULL: it can be used. */
const char *device_why_not(const struct device_caps *c, char room[DEVICE_WHY_BYTES]);

/* The device that `which` names: OPTIONAL, "auto" (a discrete RDNA3 GPU, else any GPU, else any device), its number or its
 * card's PCI address (inventory.h). It is not open: what it can do is what drivers said when they were asked in a child
 * process (probe.h). ERR_CONFIG names what there is, or why it cannot be used. */
MUST_CHECK enum err device_find(const char *which, struct device *out, struct err_info *info);

/* Finds a device and opens it; only the driver that has it is used here. Errors: device_find's, ERR_LOST when it is gone, else
 * ocl_check's. */
MUST_CHECK enum err device_open(const char *which, struct device *out, struct err_info *info);

/* Ends what is begun and gives all back; of one that is zeroed, nothing. */
void device_close(struct device *d);

#endif
