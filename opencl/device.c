/* Finding and opening OpenCL devices. */
#include "opencl/device.h"

#include "engine/base/names.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PLATFORMS = 16, MAX_DEVICES = 64 };

static cl_uint list_devices(cl_device_id *ids)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0, n = 0;
    if (clGetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms) != CL_SUCCESS) {
        return 0;
    }
    for (cl_uint i = 0; i < n_platforms && i < MAX_PLATFORMS; i++) {
        cl_uint found = 0; /* a platform without devices fails, and so says 0 */
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MAX_DEVICES - n, ids + n, &found) == CL_SUCCESS) {
            n += found < MAX_DEVICES - n ? found : MAX_DEVICES - n;
        }
    }
    return n;
}

static cl_int read_text(cl_device_id id, cl_device_info what, char *out, size_t n)
{
    char text[1024] = "";
    cl_int code = clGetDeviceInfo(id, what, sizeof text - 1, text, NULL);
    snprintf(out, n, "%.*s", (int)(n - 1), text);
    return code;
}

enum err device_read_caps(cl_device_id id, struct device_caps *out, struct err_info *info)
{
    cl_device_type type = 0;
    cl_platform_id platform = NULL;
    cl_ulong memory = 0, buffer = 0, local = 0;
    cl_uint align_bits = 0;
    size_t group = 0;
    *out = (struct device_caps){.dot = DEVICE_DOT_PLAIN};
    const struct {
        cl_device_info what;
        size_t bytes;
        void *at;
    } values[] = {{CL_DEVICE_TYPE, sizeof type, &type},
                  {CL_DEVICE_PLATFORM, sizeof platform, &platform},
                  {CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory},
                  {CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof buffer, &buffer},
                  {CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local},
                  {CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits},
                  {CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group}};
    cl_int code = read_text(id, CL_DEVICE_NAME, out->name, sizeof out->name);
    code = code != CL_SUCCESS ? code : read_text(id, CL_DRIVER_VERSION, out->driver, sizeof out->driver);
    for (size_t i = 0; i < ARRAY_LEN(values) && code == CL_SUCCESS; i++) {
        code = clGetDeviceInfo(id, values[i].what, values[i].bytes, values[i].at, NULL);
    }
    if (code == CL_SUCCESS) {
        code = clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof out->platform - 1, out->platform, NULL);
    }
    out->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    out->memory_bytes = memory;
    out->max_buffer_bytes = buffer;
    out->local_bytes = (uint32_t)local;
    out->align_bytes = align_bits / 8;
    out->max_group = (uint32_t)group;
    return ocl_check(code, "clGetDeviceInfo", info);
}

enum err device_open(const char *which, struct device *out, struct err_info *info)
{
    cl_device_id ids[MAX_DEVICES];
    cl_uint n = list_devices(ids);
    cl_int code = CL_SUCCESS;
    (void)which;
    *out = (struct device){0};
    if (n == 0) {
        return err_set(info, ERR_CONFIG, "device", "device: expected an OpenCL device; found none");
    }
    out->id = ids[0];
    TRY(device_read_caps(out->id, &out->caps, info));
    out->context = clCreateContext(NULL, 1, &out->id, NULL, NULL, &code);
    TRY(ocl_check(code, "clCreateContext", info));
    out->queue = clCreateCommandQueue(out->context, out->id, 0, &code);
    if (code != CL_SUCCESS) {
        device_close(out);
    }
    return ocl_check(code, "clCreateCommandQueue", info);
}

void device_close(struct device *d)
{
    if (d->queue != NULL) {
        clFinish(d->queue);
        clReleaseCommandQueue(d->queue);
    }
    if (d->context != NULL) {
        clReleaseContext(d->context);
    }
    *d = (struct device){0};
}
