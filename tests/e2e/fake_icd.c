/* An OpenCL driver that is made up: what FAKE_ICD names it shows as a device, or does wrong. It tells of devices, and computes
 * nothing. Built and loaded by fake_machine.py.
 *
 *   rusticl, rocm, nvidia, emulating, narrow   a device of the table below
 *   crash-load, crash-devices, crash-device    it dies while it is loaded, lists its devices, or is asked about one
 *   loud                                       it prints while it is loaded
 * FAKE_BUS is the number of the device's PCI bus, 3 without. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB    ((cl_ulong)1 << 20)
#define LEN(a) (sizeof(a) / sizeof((a)[0]))

struct fake {
    const char *what, *platform, *name, *board, *version, *extensions, *feature;
    cl_ulong local_bytes;
    size_t group;
    cl_bool is_fast; /* has it an instruction for dot products? */
    cl_uint wave;
};

static const struct fake fakes[] = {
    {"rusticl", "rusticl", "AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 19.1.7, DRM 3.61, 6.12)", "", "OpenCL 3.0 ",
     "cl_khr_fp16 cl_khr_integer_dot_product cl_khr_pci_bus_info cl_khr_subgroup_shuffle", "__opencl_c_subgroups",
     65536, 1024, CL_TRUE, 0},
    {"rocm", "AMD Accelerated Parallel Processing", "gfx1100", "AMD Radeon RX 7900 XTX", "OpenCL 2.0 ",
     "cl_khr_fp16 cl_khr_subgroups cl_amd_device_attribute_query", "", 65536, 256, CL_FALSE, 32},
    {"nvidia", "NVIDIA CUDA", "NVIDIA H100", "", "OpenCL 3.0 CUDA",
     "cl_khr_fp64 cl_nv_device_attribute_query cl_khr_pci_bus_info", "", 49152, 1024, CL_FALSE, 32},
    {"emulating", "Emulator", "\tDevice \xff", "", "OpenCL 3.0 ",
     "cl_khr_integer_dot_product_2 cl_khr_integer_dot_product xcl_khr_fp16", "", 65536, 1024, CL_FALSE, 0},
    {"narrow", "Narrow", "Device", "", "OpenCL 1.2 ", "cl_khr_icd", "", 16384, 64, CL_FALSE, 0},
};

struct _cl_platform_id {
    struct _cl_icd_dispatch *dispatch;
};
struct _cl_device_id {
    struct _cl_icd_dispatch *dispatch;
};
static struct _cl_icd_dispatch calls;
static struct _cl_platform_id platform = {&calls};
static struct _cl_device_id device = {&calls};

static int does(const char *what)
{
    const char *asked = getenv("FAKE_ICD");
    return asked != NULL && strcmp(asked, what) == 0;
}

static const struct fake *fake(void)
{
    for (size_t i = 0; i < LEN(fakes); i++) {
        if (does(fakes[i].what)) {
            return &fakes[i];
        }
    }
    return &fakes[0];
}

static cl_int give(const void *value, size_t n, size_t room, void *out, size_t *got)
{
    if (got != NULL) {
        *got = n;
    }
    if (out != NULL && room < n) {
        return CL_INVALID_VALUE;
    }
    if (out != NULL) {
        memcpy(out, value, n);
    }
    return CL_SUCCESS;
}

static cl_int give_text(const char *text, size_t room, void *out, size_t *got)
{
    return give(text, strlen(text) + 1, room, out, got);
}

static cl_int platform_info(cl_platform_id p, cl_platform_info what, size_t room, void *out, size_t *got)
{
    (void)p;
    switch (what) {
    case CL_PLATFORM_NAME:
        return give_text(fake()->platform, room, out, got);
    case CL_PLATFORM_EXTENSIONS:
        return give_text("cl_khr_icd", room, out, got);
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        return give_text("FAKE", room, out, got);
    case CL_PLATFORM_VERSION:
        return give_text("OpenCL 3.0 ", room, out, got);
    case CL_PLATFORM_PROFILE:
        return give_text("FULL_PROFILE", room, out, got);
    case CL_PLATFORM_VENDOR:
        return give_text("nobody", room, out, got);
    default:
        return CL_INVALID_VALUE;
    }
}

static unsigned bus(void)
{
    const char *text = getenv("FAKE_BUS");
    return text != NULL ? (unsigned)atoi(text) : 3;
}

static cl_int device_text(cl_device_info what, size_t room, void *out, size_t *got)
{
    const struct fake *f = fake();
    const char *text = what == CL_DEVICE_NAME             ? f->name
                       : what == CL_DRIVER_VERSION        ? "1.0 fake"
                       : what == CL_DEVICE_VERSION        ? f->version
                       : what == CL_DEVICE_EXTENSIONS     ? f->extensions
                       : what == CL_DEVICE_BOARD_NAME_AMD ? f->board
                                                          : NULL;
    return text != NULL ? give_text(text, room, out, got) : CL_INVALID_VALUE;
}

static cl_int device_special(cl_device_info what, size_t room, void *out, size_t *got)
{
    const struct fake *f = fake();
    cl_device_pci_bus_info_khr at = {0, bus(), 0, 0};
    cl_device_topology_amd topology = {.pcie = {.type = CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD, .bus = (cl_char)bus()}};
    cl_device_integer_dot_product_acceleration_properties_khr fast = {.signed_accelerated = f->is_fast};
    cl_name_version feature = {0};
    size_t free_kib[2] = {24000 << 10, 20000 << 10};
    switch (what) {
    case CL_DEVICE_PCI_BUS_INFO_KHR:
        return give(&at, sizeof at, room, out, got);
    case CL_DEVICE_TOPOLOGY_AMD:
        return give(&topology, sizeof topology, room, out, got);
    case CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR:
        return give(&fast, sizeof fast, room, out, got);
    case CL_DEVICE_GLOBAL_FREE_MEMORY_AMD:
        return give(free_kib, sizeof free_kib, room, out, got);
    case CL_DEVICE_OPENCL_C_FEATURES:
        snprintf(feature.name, sizeof feature.name, "%s", f->feature);
        return give(&feature, sizeof feature, room, out, got);
    default:
        return device_text(what, room, out, got);
    }
}

static cl_int device_info(cl_device_id d, cl_device_info what, size_t room, void *out, size_t *got)
{
    (void)d;
    const struct fake *f = fake();
    const cl_platform_id p = &platform;
    if (does("crash-device")) {
        abort();
    }
    const struct {
        cl_device_info what;
        cl_ulong value;
        size_t bytes;
    } numbers[] = {
        {CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU, sizeof(cl_device_type)},
        {CL_DEVICE_GLOBAL_MEM_SIZE, 24560 * MIB, sizeof(cl_ulong)},
        {CL_DEVICE_MAX_MEM_ALLOC_SIZE, 2048 * MIB - 1, sizeof(cl_ulong)},
        {CL_DEVICE_LOCAL_MEM_SIZE, f->local_bytes, sizeof(cl_ulong)},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024, sizeof(cl_uint)},
        {CL_DEVICE_MAX_COMPUTE_UNITS, 96, sizeof(cl_uint)},
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, f->group, sizeof(size_t)},
        {CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE, sizeof(cl_bool)},
        {CL_DEVICE_AVAILABLE, CL_TRUE, sizeof(cl_bool)},
        {CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE, sizeof(cl_bool)},
        {CL_DEVICE_ENDIAN_LITTLE, CL_TRUE, sizeof(cl_bool)},
        {CL_DEVICE_WAVEFRONT_WIDTH_AMD, f->wave, sizeof(cl_uint)},
        {CL_DEVICE_WARP_SIZE_NV, f->wave, sizeof(cl_uint)},
        {CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR, CL_DEVICE_INTEGER_DOT_PRODUCT_INPUT_4x8BIT_PACKED_KHR,
         sizeof(cl_bitfield)},
    };
    for (size_t i = 0; i < LEN(numbers); i++) {
        if (numbers[i].what == what) {
            return give(&numbers[i].value, numbers[i].bytes, room, out, got); /* the low bytes stand first */
        }
    }
    return what == CL_DEVICE_PLATFORM ? give(&p, sizeof p, room, out, got) : device_special(what, room, out, got);
}

static cl_int device_ids(cl_platform_id p, cl_device_type type, cl_uint room, cl_device_id *out, cl_uint *n)
{
    (void)p;
    (void)type;
    if (does("crash-devices")) {
        abort();
    }
    if (n != NULL) {
        *n = 1;
    }
    if (out != NULL && room > 0) {
        out[0] = &device;
    }
    return CL_SUCCESS;
}

static cl_int platform_ids(cl_uint room, cl_platform_id *out, cl_uint *n)
{
    if (does("crash-load")) {
        abort();
    }
    if (does("loud")) {
        puts("{\"end\":true}");
        fflush(stdout);
    }
    calls.clGetPlatformInfo = platform_info;
    calls.clGetDeviceIDs = device_ids;
    calls.clGetDeviceInfo = device_info;
    if (n != NULL) {
        *n = 1;
    }
    if (out != NULL && room > 0) {
        out[0] = &platform;
    }
    return CL_SUCCESS;
}

void *clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)platform_ids
           : strcmp(name, "clGetPlatformInfo") == 0    ? (void *)platform_info
                                                       : NULL;
}
