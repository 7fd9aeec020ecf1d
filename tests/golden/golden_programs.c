/* golden opens hundreds of models on one device in sequence, and most have the same programs. So all of them share one
 * context and the compiled programs; compiling takes most of the time otherwise. Linked with --wrap of the three
 * functions. Threads: only the tests' thread. */
#include "opencl/program.h"

static struct device device; /* open until the process ends */
static struct backend_config configs[2];
static struct program_set *sets[2]; /* by high_precision */

enum err __real_device_open(const char *which, struct device *out, struct err_info *info);
enum err __wrap_device_open(const char *which, struct device *out, struct err_info *info);
enum err __wrap_device_open(const char *which, struct device *out, struct err_info *info)
{
    cl_int code;
    if (device.context == NULL) {
        TRY(__real_device_open(which, &device, info));
    }
    *out = device;
    TRY(ocl_check(clRetainContext(out->context), "clRetainContext", info));
    out->queue = clCreateCommandQueue(out->context, out->id, 0, &code);
    return ocl_check(code, "clCreateCommandQueue", info);
}

enum err __real_program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                                struct err_info *info);
enum err __wrap_program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                                struct err_info *info);
enum err __wrap_program_set_new(const struct device *d, const struct backend_config *cfg, struct program_set **out,
                                struct err_info *info)
{
    int i = cfg->high_precision;
    if (d->context == NULL) { /* only a measure */
        return __real_program_set_new(d, cfg, out, info);
    }
    if (sets[i] == NULL) {
        configs[i].high_precision = cfg->high_precision;
        TRY(__real_program_set_new(&device, &configs[i], &sets[i], info));
    }
    *out = sets[i];
    return ERR_OK;
}

void __real_program_set_free(struct program_set **s);
void __wrap_program_set_free(struct program_set **s);
void __wrap_program_set_free(struct program_set **s)
{
    if (*s == sets[0] || *s == sets[1]) {
        *s = NULL;
    }
    __real_program_set_free(s);
}
