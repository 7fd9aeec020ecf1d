/* Measures the device without a model: the duration of a launch, and the speed of copying in its memory, to which
 * decoding can be compared. Takes the best of several tries, because other work only slows the device. */
#include "opencl/opencl_internal.h"

#include "engine/base/clock.h"

enum { COPY_ARGS = 10 /* of the kernel, which copies no components: rows.cl */ };
enum { TRIES = 5, N_LAUNCHES = 200, ALONE = 20, COPY_BYTES = 256 << 20 /* exceeds caches */ };

/* Returns the seconds since start_ns; at least a nanosecond. */
static double since(uint64_t start_ns) { return (double)MAX_OF(clock_now_ns() - start_ns, 1) / 1e9; }

/* Launches the kernel n times; waits at the end, or after each launch. */
static enum err launch(cl_command_queue q, cl_kernel kernel, int n, bool waits, struct err_info *info)
{
    const size_t size = 64; /* WG of rows.cl */
    for (int i = 0; i < n; i++) {
        TRY(ocl_check(clEnqueueNDRangeKernel(q, kernel, 1, NULL, &size, &size, 0, NULL, NULL), "copy", info));
        TRY(waits ? ocl_check(clFinish(q), "clFinish", info) : ERR_OK);
    }
    return ocl_check(clFinish(q), "clFinish", info);
}

static enum err rate_launches(struct backend_model *m, cl_kernel kernel, struct backend_rates *out,
                              struct err_info *info)
{
    const cl_uint nothing = 0;
    for (cl_uint i = 0; i < COPY_ARGS; i++) {
        bool is_mem = i == 0 || i == 2 || i == 5;
        TRY(ocl_check(clSetKernelArg(kernel, i, is_mem ? sizeof m->batch : sizeof nothing,
                                     is_mem ? (const void *)&m->batch : (const void *)&nothing),
                      "copy", info));
    }
    for (int i = 0; i <= TRIES; i++) { /* discard the first try, in which drivers initialize */
        uint64_t start = clock_now_ns();
        TRY(launch(m->device.queue, kernel, ALONE, true, info));
        double alone = since(start) / ALONE;
        start = clock_now_ns();
        TRY(launch(m->device.queue, kernel, N_LAUNCHES, false, info));
        double queued = since(start) / N_LAUNCHES;
        out->launch_s = i <= 1 || alone < out->launch_s ? alone : out->launch_s;
        out->queued_launch_s = i <= 1 || queued < out->queued_launch_s ? queued : out->queued_launch_s;
    }
    return ERR_OK;
}

static enum err rate_copy(struct backend_model *m, cl_mem from, cl_mem to, size_t bytes, struct backend_rates *out,
                          struct err_info *info)
{
    cl_command_queue q = m->device.queue;
    for (int i = 0; i <= TRIES; i++) {
        uint64_t start = clock_now_ns();
        TRY(ocl_check(clEnqueueCopyBuffer(q, from, to, 0, 0, bytes, 0, NULL, NULL), "clEnqueueCopyBuffer", info));
        TRY(ocl_check(clFinish(q), "clFinish", info));
        double rate = 2.0 * (double)bytes / since(start);
        out->copy_bytes_s = i <= 1 || rate > out->copy_bytes_s ? rate : out->copy_bytes_s;
    }
    return ERR_OK;
}

enum err opencl_rate(struct backend_model *m, struct backend_rates *out, struct err_info *info)
{
    cl_kernel kernel = NULL;
    cl_mem from, to = NULL;
    cl_int code;
    size_t bytes = MIN_OF((size_t)COPY_BYTES, (size_t)m->device.caps.max_buffer_bytes);
    *out = (struct backend_rates){0};
    from = clCreateBuffer(m->device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code == CL_SUCCESS) {
        to = clCreateBuffer(m->device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    }
    enum err err = ocl_check(code, "clCreateBuffer", info);
    err = err == ERR_OK ? rate_copy(m, from, to, bytes, out, info) : err;
    err = err == ERR_OK ? program_kernel(m->programs, "rows.cl", "copy", "", &kernel, info) : err;
    err = err == ERR_OK ? rate_launches(m, kernel, out, info) : err;
    if (kernel != NULL) {
        clReleaseKernel(kernel);
    }
    if (to != NULL) {
        clReleaseMemObject(to);
    }
    if (from != NULL) {
        clReleaseMemObject(from);
    }
    return err;
}
