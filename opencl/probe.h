/* Looking for OpenCL devices where nothing can be lost by it: drivers crash and hang when they are asked what there is.
 *
 * Once probe_use_child was called, as main of infcgi does, a process of its own asks: the same executable, started anew, as
 * a fork of one that has threads may do next to nothing. Elsewhere (unit tests, golden: other executables) the process
 * asks itself. A driver that crashes or gives no answer costs its own devices alone, as the child is started again
 * behind it; one that crashes while it is loaded costs all, as the loader loads all at once.
 * Threads: one at a time; of the child, all that it does. */
#ifndef INFCGI_OPENCL_PROBE_H
#define INFCGI_OPENCL_PROBE_H

#include "opencl/device.h"

enum { PROBE_MAX_PLATFORMS = 16, PROBE_MAX_DEVICES = 32, PROBE_FAULT_BYTES = 256 };

struct probe_platform {
    char name[64];
    int n_devices;
    char fault[PROBE_FAULT_BYTES]; /* "crashed (Segmentation fault)"; "": none. Devices told before that count */
};

struct probe_result {
    int n_platforms, n_devices;
    struct probe_platform platforms[PROBE_MAX_PLATFORMS]; /* as clGetPlatformIDs has them */
    struct device_caps devices[PROBE_MAX_DEVICES];
    char fault[PROBE_FAULT_BYTES]; /* of no platform: while drivers were loaded; "": none */
};

/* From now on a child probes: `program`, which calls probe_child when its first argument is `command`, and which then
 * has `limit_ms` for each driver. Texts are borrowed for good. */
void probe_use_child(const char *program, const char *command, int limit_ms);

/* What the child does: writes to standard output what it finds. argv[1]: the platform to begin with. Does not come
 * back, unless it is called in another way. */
int probe_child(int argc, char **argv);

/* Always gives a result, with faults in it. */
void probe_run(struct probe_result *out);

#endif
