/* An OpenCL device: its capabilities, and the context and queue that all its work uses.
 *
 * The host decides from these capabilities which features kernels use, and passes them by -D: the macros that compilers
 * define for extensions are wrong on several drivers. Threads: one thread at a time uses a device. */
#ifndef INFCGI_OPENCL_DEVICE_H
#define INFCGI_OPENCL_DEVICE_H

#include "engine/backend/backend.h"
#include "opencl/ocl.h"
#include "opencl/pci.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How to sum four products of bytes: the form of dot4 in kernels/common.clh. */
enum device_dot {
    DEVICE_DOT_PLAIN, /* C: any device */
    DEVICE_DOT_KHR,   /* cl_khr_integer_dot_product, if the device has an instruction for it */
    DEVICE_DOT_AMD,   /* __builtin_amdgcn_sudot4: gfx11 with AMD's compiler */
    DEVICE_DOT_NV,    /* dp4a of PTX */
    DEVICE_DOT_COUNT
};
const char *device_dot_name(int dot); /* "khr"; NULL after the last */

enum device_subgroups {
    DEVICE_SUBGROUPS_NONE,
    DEVICE_SUBGROUPS_FEATURE, /* only __opencl_c_subgroups: subgroups must not wait for each other (rusticl) */
    DEVICE_SUBGROUPS_KHR      /* cl_khr_subgroups */
};
const char *device_subgroups_name(int subgroups); /* "feature"; NULL after the last */

/* Texts are ASCII, whatever the driver returns. Unknown values are 0, "" or false. */
struct device_caps {
    uint32_t i_platform, i_device; /* index: of the platform in clGetPlatformIDs, of the device in its clGetDeviceIDs */
    char name[128];                /* "gfx1100", or the product name */
    char board[128];               /* product name, if the driver has both: "AMD Radeon RX 7900 XTX" */
    char platform[64], driver[64];
    char gfx[16]; /* "gfx1100", if the name contains it */
    bool is_gpu;  /* false for CPUs, whatever computes on them (PoCL, llvmpipe) */
    bool is_integrated;
    bool is_available, has_compiler, is_little_endian;
    bool has_fp16; /* arithmetic */
    bool has_pci;
    struct pci_address pci;
    uint32_t version;          /* of OpenCL: 300 for 3.0 */
    uint64_t memory_bytes;     /* of the device */
    uint64_t free_bytes;       /* of those now free, if the driver reports them */
    uint64_t max_buffer_bytes; /* of one buffer */
    uint32_t local_bytes;      /* of a work-group's local memory */
    uint32_t align_bytes;      /* of a sub-buffer's origin */
    uint32_t max_group;        /* work-items per work-group */
    uint32_t units;            /* compute units */
    enum device_subgroups subgroups;
    uint32_t subgroup_sizes; /* possible sizes, which are powers of two, added: 96 for 32 and 64 */
    enum device_dot dot;
};

enum { DEVICE_WHY_BYTES = 128, DEVICE_TEXT_BYTES = BACKEND_TEXT_BYTES };

struct device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue; /* in order */
    struct device_caps caps;
    char why[DEVICE_TEXT_BYTES];  /* description: "device 0 (gfx1100 at 0000:03:00.0): a discrete RDNA3 GPU" */
    char note[DEVICE_TEXT_BYTES]; /* advice for the operator: "resizable BAR is off: .."; "": none */
};

/* Writes the name of a platform to out[cap], as ASCII like the texts of device_caps; "" if the driver does not report
 * it. */
void device_platform_name(cl_platform_id platform, char *out, size_t cap);

/* Reads the capabilities of a device; the caller sets i_platform and i_device. Errors: those of ocl_check. */
MUST_CHECK enum err device_read_caps(cl_device_id id, struct device_caps *out, struct err_info *info);

/* Returns the reason why the device cannot compute, written to room or constant; NULL: the device is usable. */
const char *device_why_not(const struct device_caps *c, char room[DEVICE_WHY_BYTES]);

/* Finds the device that `which` names: OPTIONAL, "auto" (a discrete RDNA3 GPU, else any GPU, else any device), its
 * number or its card's PCI address (inventory.h). Does not open it: the capabilities are the drivers' answers to a
 * child process (probe.h). ERR_CONFIG lists the devices, or says why this one is unusable. */
MUST_CHECK enum err device_find(const char *which, struct device *out, struct err_info *info);

/* Finds a device and opens it; calls only its driver in this process. Errors: those of device_find, ERR_LOST if the
 * device is gone, else those of ocl_check. */
MUST_CHECK enum err device_open(const char *which, struct device *out, struct err_info *info);

/* Waits for pending work and releases everything; does nothing for a zeroed device. */
void device_close(struct device *d);

#endif
