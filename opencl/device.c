/* The capabilities of an OpenCL device, and opening one. */
#include "opencl/device.h"

#include "engine/base/names.h"
#include "opencl/chip.h"
#include "opencl/inventory.h"

#include <stdio.h>
#include <string.h>

enum {
    TEXT_BYTES = 16 << 10, /* for a list of extensions: the longest known has 2 KiB */
    FEATURES = 128,
    SIZES = 8, /* of sub-groups */
    /* Minimums that the kernels need. */
    MIN_VERSION = 120,
    MIN_LOCAL_BYTES = 32 << 10,
    MIN_GROUP = 256,
};

const char *device_dot_name(int dot)
{
    static const char *const names[] = {"plain", "khr", "amd", "nv"};
    return dot >= 0 && dot < DEVICE_DOT_COUNT ? names[dot] : NULL;
}

const char *device_subgroups_name(int subgroups)
{
    static const char *const names[] = {"none", "feature", "khr"};
    return subgroups >= 0 && subgroups < (int)ARRAY_LEN(names) ? names[subgroups] : NULL;
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

/* Writes a value of n bytes; leaves *out unchanged if the device does not support the query. */
static bool ask(cl_device_id id, cl_device_info what, void *out, size_t n)
{
    char answer[64];
    size_t got = 0;
    if (n > sizeof answer || clGetDeviceInfo(id, what, sizeof answer, answer, &got) != CL_SUCCESS || got != n) {
        return false;
    }
    memcpy(out, answer, n);
    return true;
}

static bool is_yes(cl_device_id id, cl_device_info what)
{
    cl_bool yes = CL_FALSE;
    return ask(id, what, &yes, sizeof yes) && yes != CL_FALSE;
}

/* Copies text; replaces bytes other than printable ASCII by '?', and truncates. */
static void make_text(const char *text, size_t n, char *out, size_t cap)
{
    size_t len = 0;
    for (; len < n && len < cap - 1 && text[len] != '\0'; len++) {
        out[len] = (char)(text[len] >= ' ' && text[len] <= '~' ? text[len] : '?');
    }
    out[len] = '\0';
}

/* Writes "" if the device does not support the query. */
static void ask_text(cl_device_id id, cl_device_info what, char *out, size_t cap)
{
    char text[TEXT_BYTES];
    size_t n = 0;
    cl_int code = clGetDeviceInfo(id, what, sizeof text, text, &n);
    make_text(text, code == CL_SUCCESS ? n : 0, out, cap);
}

void device_platform_name(cl_platform_id platform, char *out, size_t cap)
{
    char text[TEXT_BYTES];
    size_t n = 0;
    cl_int code = clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text, text, &n);
    make_text(text, code == CL_SUCCESS ? n : 0, out, cap);
}

/* Returns whether the word is in the list, which is separated by spaces. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n) {
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool has_feature(cl_device_id id, const char *name)
{
    cl_name_version features[FEATURES];
    size_t bytes = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_OPENCL_C_FEATURES, sizeof features, features, &bytes) != CL_SUCCESS) {
        return false; /* before OpenCL 3.0 */
    }
    for (size_t i = 0; i < bytes / sizeof features[0]; i++) {
        if (strncmp(features[i].name, name, sizeof features[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns 300 for "OpenCL 3.0 PoCL". */
static uint32_t version_of(const char *text)
{
    static const char before[] = "OpenCL ";
    size_t n = sizeof before - 1;
    bool is_one = strncmp(text, before, n) == 0 && text[n] >= '0' && text[n] <= '9' && text[n + 1] == '.' &&
                  text[n + 2] >= '0' && text[n + 2] <= '9';
    return is_one ? (uint32_t)(text[n] - '0') * 100 + (uint32_t)(text[n + 2] - '0') * 10 : 0;
}

/* --- capabilities ------------------------------------------------------------------------------------------------- */

static void find_pci(cl_device_id id, const char *extensions, struct device_caps *c)
{
    cl_device_pci_bus_info_khr info;
    cl_device_topology_amd topology;
    if (has_word(extensions, "cl_khr_pci_bus_info") && ask(id, CL_DEVICE_PCI_BUS_INFO_KHR, &info, sizeof info)) {
        c->pci = (struct pci_address){info.pci_domain, (uint8_t)info.pci_bus, (uint8_t)info.pci_device,
                                      (uint8_t)info.pci_function};
        c->has_pci = true;
    } else if (has_word(extensions, "cl_amd_device_attribute_query") &&
               ask(id, CL_DEVICE_TOPOLOGY_AMD, &topology, sizeof topology) &&
               topology.raw.type == CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD) {
        c->pci = (struct pci_address){0, (uint8_t)topology.pcie.bus, (uint8_t)topology.pcie.device,
                                      (uint8_t)topology.pcie.function};
        c->has_pci = true;
    }
}

/* Devices that emulate the dot product, slowly, list the extension too. */
static bool has_dot_instruction(cl_device_id id, const char *extensions)
{
    cl_device_integer_dot_product_capabilities_khr can = 0;
    cl_device_integer_dot_product_acceleration_properties_khr fast = {0};
    return has_word(extensions, "cl_khr_integer_dot_product") &&
           ask(id, CL_DEVICE_INTEGER_DOT_PRODUCT_CAPABILITIES_KHR, &can, sizeof can) &&
           (can & CL_DEVICE_INTEGER_DOT_PRODUCT_INPUT_4x8BIT_PACKED_KHR) != 0 &&
           ask(id, CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR, &fast, sizeof fast) &&
           fast.signed_accelerated != CL_FALSE;
}

static enum device_dot find_dot(cl_device_id id, const char *extensions, const struct device_caps *c)
{
    const struct chip *chip = chip_of_name(c->gfx);
    if (has_dot_instruction(id, extensions)) {
        return DEVICE_DOT_KHR;
    }
    if (chip != NULL && chip->family == CHIP_RDNA3 && strcmp(c->platform, "AMD Accelerated Parallel Processing") == 0) {
        return DEVICE_DOT_AMD;
    }
    return strcmp(c->platform, "NVIDIA CUDA") == 0 ? DEVICE_DOT_NV : DEVICE_DOT_PLAIN;
}

static void find_subgroups(cl_device_id id, const char *extensions, struct device_caps *c)
{
    size_t sizes[SIZES], bytes = 0;
    cl_uint width = 0;
    c->subgroups = has_word(extensions, "cl_khr_subgroups")  ? DEVICE_SUBGROUPS_KHR
                   : has_feature(id, "__opencl_c_subgroups") ? DEVICE_SUBGROUPS_FEATURE
                                                             : DEVICE_SUBGROUPS_NONE;
    if (has_word(extensions, "cl_intel_required_subgroup_size") &&
        clGetDeviceInfo(id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes) == CL_SUCCESS) {
        for (size_t i = 0; i < bytes / sizeof sizes[0]; i++) {
            c->subgroup_sizes |= (uint32_t)sizes[i];
        }
    } else if ((has_word(extensions, "cl_amd_device_attribute_query") &&
                ask(id, CL_DEVICE_WAVEFRONT_WIDTH_AMD, &width, sizeof width)) ||
               (has_word(extensions, "cl_nv_device_attribute_query") &&
                ask(id, CL_DEVICE_WARP_SIZE_NV, &width, sizeof width))) {
        c->subgroup_sizes = width;
    }
}

/* Writes "gfx1030" of a name that contains any AMD chip; else the gfx name for Mesa's word. */
static void find_gfx(struct device_caps *c)
{
    const char *at = strstr(c->name, "gfx");
    const struct chip *chip = chip_of_name(c->name);
    size_t n = at != NULL ? strspn(at + 3, "0123456789abcdef") : 0;
    if (n >= 3) {
        snprintf(c->gfx, sizeof c->gfx, "%.*s", (int)(3 + n), at);
    } else if (chip != NULL) {
        snprintf(c->gfx, sizeof c->gfx, "%s", chip->gfx);
    }
}

/* Writes the names of a device; only AMD's drivers have two. */
static void find_names(cl_device_id id, cl_platform_id platform, const char *extensions, struct device_caps *c)
{
    char text[TEXT_BYTES];
    device_platform_name(platform, c->platform, sizeof c->platform);
    ask_text(id, CL_DEVICE_NAME, c->name, sizeof c->name);
    ask_text(id, CL_DRIVER_VERSION, c->driver, sizeof c->driver);
    if (has_word(extensions, "cl_amd_device_attribute_query")) {
        ask_text(id, CL_DEVICE_BOARD_NAME_AMD, c->board, sizeof c->board);
    }
    ask_text(id, CL_DEVICE_VERSION, text, sizeof text);
    c->version = version_of(text);
    find_gfx(c);
}

enum err device_read_caps(cl_device_id id, struct device_caps *out, struct err_info *info)
{
    char extensions[TEXT_BYTES];
    cl_device_type type = 0;
    cl_platform_id platform = NULL;
    cl_ulong local = 0;
    cl_uint align_bits = 0;
    size_t group = 0, free_kib[2] = {0};
    *out = (struct device_caps){.dot = DEVICE_DOT_PLAIN};
    const struct {
        cl_device_info what;
        size_t bytes;
        void *at;
    } values[] = {{CL_DEVICE_TYPE, sizeof type, &type},
                  {CL_DEVICE_PLATFORM, sizeof platform, &platform},
                  {CL_DEVICE_GLOBAL_MEM_SIZE, sizeof out->memory_bytes, &out->memory_bytes},
                  {CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof out->max_buffer_bytes, &out->max_buffer_bytes},
                  {CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local},
                  {CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits},
                  {CL_DEVICE_MAX_COMPUTE_UNITS, sizeof out->units, &out->units},
                  {CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group}};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        TRY(ocl_check(clGetDeviceInfo(id, values[i].what, values[i].bytes, values[i].at, NULL), "clGetDeviceInfo",
                      info));
    }
    ask_text(id, CL_DEVICE_EXTENSIONS, extensions, sizeof extensions);
    find_names(id, platform, extensions, out);
    out->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0 && (type & CL_DEVICE_TYPE_CPU) == 0; /* Oclgrind reports both */
    out->is_integrated = is_yes(id, CL_DEVICE_HOST_UNIFIED_MEMORY);
    out->is_available = is_yes(id, CL_DEVICE_AVAILABLE);
    out->has_compiler = is_yes(id, CL_DEVICE_COMPILER_AVAILABLE);
    out->is_little_endian = is_yes(id, CL_DEVICE_ENDIAN_LITTLE);
    out->has_fp16 = has_word(extensions, "cl_khr_fp16");
    out->local_bytes = (uint32_t)MIN_OF(local, (cl_ulong)UINT32_MAX);
    out->align_bytes = align_bits / 8;
    out->max_group = (uint32_t)MIN_OF(group, (size_t)UINT32_MAX);
    if (has_word(extensions, "cl_amd_device_attribute_query") &&
        clGetDeviceInfo(id, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof free_kib, free_kib, NULL) == CL_SUCCESS) {
        out->free_bytes = (uint64_t)free_kib[0] << 10; /* the second is the largest free block */
    }
    find_pci(id, extensions, out);
    find_subgroups(id, extensions, out);
    out->dot = find_dot(id, extensions, out);
    return ERR_OK;
}

const char *device_why_not(const struct device_caps *c, char room[DEVICE_WHY_BYTES])
{
    if (!c->is_available) {
        return "the driver says that it is not available";
    }
    if (!c->has_compiler) {
        return "the driver has no compiler";
    }
    if (!c->is_little_endian) {
        return "its byte order is reversed";
    }
    if (c->version < MIN_VERSION) {
        snprintf(room, DEVICE_WHY_BYTES, "OpenCL %u.%u, 1.2 or later is needed", c->version / 100,
                 c->version / 10 % 10);
    } else if (c->local_bytes < MIN_LOCAL_BYTES) {
        snprintf(room, DEVICE_WHY_BYTES, "work-groups have %u bytes of local memory, %d are needed", c->local_bytes,
                 MIN_LOCAL_BYTES);
    } else if (c->max_group < MIN_GROUP) {
        snprintf(room, DEVICE_WHY_BYTES, "work-groups have %u work-items at most, %d are needed", c->max_group,
                 MIN_GROUP);
    } else {
        return NULL;
    }
    return room;
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

/* Finds the device of the inventory in this process. */
static enum err find_again(struct device *d, struct err_info *info)
{
    const struct device_caps *c = &d->caps;
    struct device_caps now = {.name = ""};
    cl_platform_id platforms[PROBE_MAX_PLATFORMS];
    cl_device_id ids[PROBE_MAX_DEVICES];
    cl_uint n_platforms = 0, n = 0;
    TRY(ocl_check(clGetPlatformIDs(PROBE_MAX_PLATFORMS, platforms, &n_platforms), "clGetPlatformIDs", info));
    if (c->i_platform < n_platforms) {
        TRY(ocl_check(clGetDeviceIDs(platforms[c->i_platform], CL_DEVICE_TYPE_ALL, PROBE_MAX_DEVICES, ids, &n),
                      "clGetDeviceIDs", info));
    }
    if (c->i_device < n) {
        TRY(device_read_caps(ids[c->i_device], &now, info));
    }
    if (c->i_device >= n || strcmp(now.name, c->name) != 0) {
        return err_set(info, ERR_LOST, "device", "device: %s is gone", c->name);
    }
    now.i_platform = c->i_platform;
    now.i_device = c->i_device;
    d->caps = now;
    d->id = ids[c->i_device];
    return ERR_OK;
}

enum err device_find(const char *which, struct device *out, struct err_info *info)
{
    const struct inventory *v = inventory_get();
    int i;
    *out = (struct device){0};
    if (which != NULL && strchr(which, ',') != NULL) {
        return err_set(info, ERR_CONFIG, "device", "device: expected one device, found several: '%.64s'", which);
    }
    TRY(inventory_choose(v, which, 0, &i, out->why, info));
    (void)inventory_device_note(v, i, out->note);
    out->caps = v->probe.devices[i];
    return ERR_OK;
}

enum err device_open(const char *which, struct device *out, struct err_info *info)
{
    cl_int code = CL_SUCCESS;
    TRY(device_find(which, out, info));
    TRY(find_again(out, info));
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
