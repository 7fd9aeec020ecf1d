/* Looks for OpenCL devices safely: enumerating devices can crash or hang a driver.
 *
 * After probe_use_child, which main of infcgi calls, a child process enumerates them. It starts the same executable,
 * because a fork of a process with threads can do almost nothing. Other executables (unit tests, golden) enumerate in
 * their own process. A driver that crashes or does not answer costs only its own devices, because a new child continues
 * after it. A driver that crashes while it is loaded costs all devices, because the loader loads all drivers together.
 * Threads: one at a time; this covers all work of the child. */
#ifndef INFCGI_OPENCL_PROBE_H
#define INFCGI_OPENCL_PROBE_H

#include "opencl/device.h"

enum { PROBE_MAX_PLATFORMS = 16, PROBE_MAX_DEVICES = 32, PROBE_FAULT_BYTES = 256 };

struct probe_platform {
    char name[64];
    int n_devices;
    char fault[PROBE_FAULT_BYTES]; /* "crashed (Segmentation fault)"; "": none. Devices reported before it count */
};

struct probe_result {
    int n_platforms, n_devices;
    struct probe_platform platforms[PROBE_MAX_PLATFORMS]; /* in the order of clGetPlatformIDs */
    struct device_caps devices[PROBE_MAX_DEVICES];
    char fault[PROBE_FAULT_BYTES]; /* of no platform: while drivers were loaded; "": none */
};

/* Selects probing by a child: `program`, which must call probe_child if its first argument is `command`, with limit_ms
 * for each driver. Borrows the texts for the life of the process. */
void probe_use_child(const char *program, const char *command, int limit_ms);

/* Runs the child: writes its findings to standard output. argv[1]: the first platform. Returns only if it was started
 * wrongly. */
int probe_child(int argc, char **argv);

/* Probes; always writes a result, which contains the faults. */
void probe_run(struct probe_result *out);

#endif
