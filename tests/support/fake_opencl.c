/* The calls that opencl/ makes, between it and the loader. */
#include "tests/support/fake_opencl.h"

#include "opencl/ocl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 16, MAX_CALLS = 64, TEXT_BYTES = 64 << 10, MIN_CODE = -1100, CRASH = 1, SKIP = 2 };

struct rule {
    char call[48], word[64];
    long at, n; /* counted down to; counted */
    char mark;  /* '+', '!' or 0 */
    cl_int code;
};

static struct rule rules[MAX_RULES];
static int n_rules;
static struct {
    const char *name;
    long n;
} calls[MAX_CALLS];
static long n_live;
static cl_int gone;          /* with this, when it is not CL_SUCCESS */
static const char *in_front; /* of sources */
static void (*on_launch)(const char *about);
static bool is_told, has_dot, was_used;

/* Asked by the leak sanitizer: is there nothing to look for? In a process that has computed with PoCL its tracer crashed now
 * and then ("has encountered a fatal error"), and what PoCL and its compiler do not give back is no leak of ours. What is
 * ours is counted: fake_opencl_live, mem_live. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return was_used; }

/* --- rules ---------------------------------------------------------------------------------------------------------- */

static cl_int code_of(const char *name)
{
    char room[OCL_NAME_BYTES];
    if (strcmp(name, "crash") == 0) {
        return CRASH;
    }
    if (strcmp(name, "skip") == 0) {
        return SKIP;
    }
    for (cl_int code = 0; code > MIN_CODE; code--) {
        if (strcmp(ocl_error_name(code, room), name) == 0) {
            return code;
        }
    }
    fprintf(stderr, "FAKE_OPENCL: no code is called %s\n", name);
    abort();
}

static void read_rule(const char *text)
{
    struct rule r = {.mark = 0};
    char code[64], at[32], how[16];
    if (strcmp(text, "barrier:none") == 0) {
        in_front = "#define barrier(x)\n";
        return;
    }
    if (sscanf(text, "dot:%15s", how) == 1) {
        has_dot = strcmp(how, "broken") != 0;
        in_front = !has_dot ? "#undef as_char4\n#define as_char4(x) __builtin_astype((x) & 0x7f7f7f7f, char4)\n"
                   : strcmp(how, "right") == 0 ? "inline int dot_4x8packed_ss_int(uint a, uint b)\n"
                                                 "{ int4 p = convert_int4(as_char4(a)) * convert_int4(as_char4(b));\n"
                                                 "  return p.x + p.y + p.z + p.w; }\n"
                   : strcmp(how, "wrong") == 0 ? "inline int dot_4x8packed_ss_int(uint a, uint b)\n"
                                                 "{ int4 p = convert_int4(as_uchar4(a)) * convert_int4(as_char4(b));\n"
                                                 "  return p.x + p.y + p.z + p.w; }\n"
                                               : NULL;
        return;
    }
    if (sscanf(text, "%47[^:@]@%63[^:]:%31[^:]:%63s", r.call, r.word, at, code) != 4) {
        r.word[0] = '\0';
        if (sscanf(text, "%47[^:@]:%31[^:]:%63s", r.call, at, code) != 3) {
            fprintf(stderr, "FAKE_OPENCL: no rule: %s\n", text);
            abort();
        }
    }
    char *end;
    r.at = strtol(at, &end, 10);
    r.mark = *end;
    r.code = code_of(code);
    rules[n_rules++] = r;
}

void fake_opencl_arm(const char *text)
{
    char all[2048], *rest = all, *one;
    snprintf(all, sizeof all, "%s", text);
    is_told = true;
    n_rules = 0;
    has_dot = false;
    in_front = NULL;
    gone = CL_SUCCESS;
    memset(calls, 0, sizeof calls);
    while ((one = strsep(&rest, ",")) != NULL && n_rules < MAX_RULES) {
        if (one[0] != '\0') {
            read_rule(one);
        }
    }
}

long fake_opencl_calls(const char *name)
{
    for (int i = 0; i < MAX_CALLS && calls[i].name != NULL; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return calls[i].n;
        }
    }
    return 0;
}

void fake_opencl_watch(void (*seen)(const char *about)) { on_launch = seen; }

long fake_opencl_live(void) { return n_live; }

static void count(const char *name)
{
    int i = 0;
    while (i < MAX_CALLS - 1 && calls[i].name != NULL && strcmp(calls[i].name, name) != 0) {
        i++;
    }
    calls[i].name = name;
    calls[i].n++;
}

/* What this call is to fail with. about: the text that rules may ask for a word of. */
static cl_int fault(const char *name, const char *about)
{
    if (!is_told) {
        const char *told = getenv("FAKE_OPENCL");
        fake_opencl_arm(told != NULL ? told : "");
    }
    count(name);
    for (int i = 0; i < n_rules && gone == CL_SUCCESS; i++) {
        struct rule *r = &rules[i];
        if (strcmp(r->call, name) != 0 || (r->word[0] != '\0' && strstr(about, r->word) == NULL)) {
            continue;
        }
        r->n++;
        if (r->n == r->at || (r->mark == '+' && r->n > r->at)) {
            if (r->code == CRASH) {
                abort();
            }
            gone = r->mark == '!' ? r->code : CL_SUCCESS;
            return r->code;
        }
    }
    return gone;
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

/* The loader's function of the same name, as a pointer of its type. ISO C has no cast from void * to that. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&(name)) next_##name;                                                                            \
    if (next_##name == NULL) {                                                                                         \
        void *found_ = dlsym(RTLD_NEXT, #name);                                                                        \
        memcpy(&next_##name, &found_, sizeof found_);                                                                  \
    }

/* A call that returns a code. */
#define CODE(name, params, args)                                                                                       \
    cl_int name params                                                                                                 \
    {                                                                                                                  \
        NEXT(name)                                                                                                     \
        cl_int fails = fault(#name, "");                                                                               \
        return fails != CL_SUCCESS ? fails : next_##name args;                                                         \
    }

/* One that waits: what was begun has ended when it comes back, also where it fails, as nothing goes on on a device that
 * is gone. */
#define WAIT(name, params, args)                                                                                       \
    cl_int name params                                                                                                 \
    {                                                                                                                  \
        NEXT(name)                                                                                                     \
        cl_int fails = fault(#name, ""), code = next_##name args;                                                      \
        return fails != CL_SUCCESS ? fails : code;                                                                     \
    }

/* A call that makes an object, and gives the code through `code`. */
#define MAKE(type, name, params, args)                                                                                 \
    type name params                                                                                                   \
    {                                                                                                                  \
        NEXT(name)                                                                                                     \
        *code = fault(#name, "");                                                                                      \
        type made = *code != CL_SUCCESS ? NULL : next_##name args;                                                     \
        n_live += made != NULL;                                                                                        \
        was_used = true;                                                                                               \
        return made;                                                                                                   \
    }

/* One that gives an object back, which never fails. */
#define RELEASE(type, name)                                                                                            \
    cl_int name(type object)                                                                                           \
    {                                                                                                                  \
        NEXT(name)                                                                                                     \
        count(#name);                                                                                                  \
        n_live--;                                                                                                      \
        return next_##name(object);                                                                                    \
    }

CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *got), (n, out, got))
CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *out, cl_uint *got),
     (p, t, n, out, got))

MAKE(cl_context, clCreateContext,
     (const cl_context_properties *p, cl_uint n, const cl_device_id *ids,
      void(CL_CALLBACK *told)(const char *, const void *, size_t, void *), void *arg, cl_int *code),
     (p, n, ids, told, arg, code))
MAKE(cl_command_queue, clCreateCommandQueue,
     (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *code), (c, d, p, code))
MAKE(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void *host, cl_int *code), (c, f, n, host, code))
MAKE(cl_mem, clCreateSubBuffer, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *region, cl_int *code),
     (m, f, t, region, code))
MAKE(cl_program, clCreateProgramWithBinary,
     (cl_context c, cl_uint n, const cl_device_id *ids, const size_t *sizes, const unsigned char **binaries,
      cl_int *each, cl_int *code),
     (c, n, ids, sizes, binaries, each, code))
MAKE(cl_kernel, clCreateKernel, (cl_program p, const char *entry, cl_int *code), (p, entry, code))

RELEASE(cl_context, clReleaseContext)
RELEASE(cl_command_queue, clReleaseCommandQueue)
RELEASE(cl_mem, clReleaseMemObject)
RELEASE(cl_program, clReleaseProgram)
RELEASE(cl_kernel, clReleaseKernel)
RELEASE(cl_event, clReleaseEvent)

CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *value), (k, i, n, value))
CODE(clGetProgramInfo, (cl_program p, cl_program_info what, size_t n, void *out, size_t *got), (p, what, n, out, got))
CODE(clEnqueueReadBuffer,
     (cl_command_queue q, cl_mem m, cl_bool waits, size_t at, size_t n, void *to, cl_uint n_events,
      const cl_event *events, cl_event *done),
     (q, m, waits, at, n, to, n_events, events, done))
CODE(clEnqueueFillBuffer,
     (cl_command_queue q, cl_mem m, const void *x, size_t size, size_t at, size_t n, cl_uint n_events,
      const cl_event *events, cl_event *done),
     (q, m, x, size, at, n, n_events, events, done))
CODE(clFlush, (cl_command_queue q), (q))
WAIT(clFinish, (cl_command_queue q), (q))
WAIT(clWaitForEvents, (cl_uint n, const cl_event *events), (n, events))

CODE(clEnqueueUnmapMemObject,
     (cl_command_queue q, cl_mem m, void *at, cl_uint n_events, const cl_event *events, cl_event *done),
     (q, m, at, n_events, events, done))

void *clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool waits, cl_map_flags f, size_t at, size_t n,
                         cl_uint n_events, const cl_event *events, cl_event *done, cl_int *code)
{
    NEXT(clEnqueueMapBuffer)
    *code = fault("clEnqueueMapBuffer", "");
    return *code != CL_SUCCESS ? NULL : next_clEnqueueMapBuffer(q, m, waits, f, at, n, n_events, events, done, code);
}

cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool waits, size_t at, size_t n, const void *from,
                            cl_uint n_events, const cl_event *events, cl_event *done)
{
    NEXT(clEnqueueWriteBuffer)
    cl_int code = fault("clEnqueueWriteBuffer", "");
    code = code != CL_SUCCESS ? code : next_clEnqueueWriteBuffer(q, m, waits, at, n, from, n_events, events, done);
    n_live += code == CL_SUCCESS && done != NULL;
    return code;
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n, const cl_event *events, cl_event *done)
{
    NEXT(clEnqueueMarkerWithWaitList)
    cl_int code = fault("clEnqueueMarkerWithWaitList", "");
    code = code != CL_SUCCESS ? code : next_clEnqueueMarkerWithWaitList(q, n, events, done);
    n_live += code == CL_SUCCESS && done != NULL;
    return code;
}

/* --- programs and kernels --------------------------------------------------------------------------------------------- */

cl_program clCreateProgramWithSource(cl_context c, cl_uint n, const char **texts, const size_t *sizes, cl_int *code)
{
    NEXT(clCreateProgramWithSource)
    const char *all[32];
    cl_uint n_all = 0;
    *code = fault("clCreateProgramWithSource", "");
    if (in_front != NULL) {
        all[n_all++] = in_front;
    }
    for (cl_uint i = 0; i < n && n_all < 32; i++) {
        all[n_all++] = texts[i];
    }
    cl_program made = *code != CL_SUCCESS ? NULL : next_clCreateProgramWithSource(c, n_all, all, sizes, code);
    n_live += made != NULL;
    return made;
}

cl_int clBuildProgram(cl_program p, cl_uint n, const cl_device_id *ids, const char *options,
                      void(CL_CALLBACK *told)(cl_program, void *), void *arg)
{
    NEXT(clBuildProgram)
    NEXT(clGetProgramInfo)
    static char about[TEXT_BYTES];
    size_t used = (size_t)snprintf(about, sizeof about, "%s ", options);
    next_clGetProgramInfo(p, CL_PROGRAM_SOURCE, sizeof about - used, about + used, NULL);
    cl_int fails = fault("clBuildProgram", about);
    return fails != CL_SUCCESS ? fails : next_clBuildProgram(p, n, ids, options, told, arg);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint n_dims, const size_t *at, const size_t *global,
                              const size_t *local, cl_uint n_events, const cl_event *events, cl_event *done)
{
    NEXT(clEnqueueNDRangeKernel)
    char about[1024] = "";
    size_t used = 0;
    cl_program program;
    cl_device_id id;
    if (clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof about / 2, about, NULL) == CL_SUCCESS &&
        clGetKernelInfo(k, CL_KERNEL_PROGRAM, sizeof program, &program, NULL) == CL_SUCCESS &&
        clGetCommandQueueInfo(q, CL_QUEUE_DEVICE, sizeof id, &id, NULL) == CL_SUCCESS) {
        used = strlen(about);
        about[used++] = ' ';
        clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_OPTIONS, sizeof about - used, about + used, NULL);
    }
    cl_int fails = fault("clEnqueueNDRangeKernel", about);
    if (on_launch != NULL) {
        on_launch(about);
    }
    if (fails == SKIP) {
        return CL_SUCCESS;
    }
    return fails != CL_SUCCESS ? fails
                               : next_clEnqueueNDRangeKernel(q, k, n_dims, at, global, local, n_events, events, done);
}

/* --- what the device says --------------------------------------------------------------------------------------------- */

cl_int clGetDeviceInfo(cl_device_id id, cl_device_info what, size_t n, void *out, size_t *got)
{
    static const char word[] = " cl_khr_integer_dot_product";
    NEXT(clGetDeviceInfo)
    cl_int code = fault("clGetDeviceInfo", "");
    if (code != CL_SUCCESS) {
        return code;
    }
    if (has_dot && (what == CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR ||
                    what == CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR)) {
        size_t bytes = what == CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR
                           ? sizeof(cl_device_integer_dot_product_capabilities_khr)
                           : sizeof(cl_device_integer_dot_product_acceleration_properties_khr);
        memset(out, 0xff, bytes <= n ? bytes : n);
        *got = bytes;
        return CL_SUCCESS;
    }
    code = next_clGetDeviceInfo(id, what, n, out, got);
    if (has_dot && what == CL_DEVICE_EXTENSIONS && code == CL_SUCCESS && *got + sizeof word <= n) {
        memcpy((char *)out + *got - 1, word, sizeof word);
        *got += sizeof word - 1;
    }
    return code;
}
