/* The table of ISAs, ascending. Selecting one runs the init functions of it and of all below it, so a kernel that an
 * ISA lacks comes from the next lower one. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <string.h>

/* CPU features by gcc's names [GCC manual, __builtin_cpu_supports]: those that ISAs need, and some that they may use.
 */
enum feature {
#if defined(__x86_64__)
#define CPU_FEATURES(X)                                                                                                \
    X(avx2) X(fma) X(f16c) X(avx512f) X(avx512bw) X(avx512vl) X(avx512dq) X(avx512vnni) X(avx512bf16)
#else
#define CPU_FEATURES(X)
#endif
#define FEATURE_ENUM(name) FEATURE_##name,
    CPU_FEATURES(FEATURE_ENUM)
#undef FEATURE_ENUM
        FEATURE_COUNT
};

static bool has_feature(int f)
{
    switch (f) {
#define FEATURE_CASE(name)                                                                                             \
    case FEATURE_##name:                                                                                               \
        return __builtin_cpu_supports(#name) != 0;
        CPU_FEATURES(FEATURE_CASE)
#undef FEATURE_CASE
    default:
        return false;
    }
}

static const char *const feature_names[] = {
#define FEATURE_NAME(name) #name,
    CPU_FEATURES(FEATURE_NAME)
#undef FEATURE_NAME
        ""};

struct isa_row {
    const char *name;
    unsigned needs; /* one bit for each enum feature */
    void (*init)(struct kern_table *t);
};

#if defined(__x86_64__)
enum {
    NEEDS_AVX2 = 1 << FEATURE_avx2 | 1 << FEATURE_fma | 1 << FEATURE_f16c,
    NEEDS_AVX512 = NEEDS_AVX2 | 1 << FEATURE_avx512f | 1 << FEATURE_avx512bw | 1 << FEATURE_avx512vl |
                   1 << FEATURE_avx512dq | 1 << FEATURE_avx512vnni,
};
#endif

static const struct isa_row isa_rows[] = {
    {"ref", 0, kern_init_ref},
#if defined(__x86_64__)
    {"avx2", NEEDS_AVX2, kern_init_avx2},
    {"avx512", NEEDS_AVX512, kern_init_avx512},
#endif
};

enum { N_ISA = ARRAY_LEN(isa_rows) };

const char *kern_isa_name(int i) { return i >= 0 && i < N_ISA ? isa_rows[i].name : NULL; }

/* Names of the features in `mask` that the CPU has or has not. */
static void list_features(unsigned mask, bool has, char *out)
{
    out[0] = '\0';
    for (int f = 0; f < FEATURE_COUNT; f++) {
        if ((mask >> f & 1) != 0 && has_feature(f) == has) {
            strncat(out, out[0] == '\0' ? "" : " ", KERN_CPU_FLAGS_BYTES - strlen(out) - 1);
            strncat(out, feature_names[f], KERN_CPU_FLAGS_BYTES - strlen(out) - 1);
        }
    }
}

void kern_cpu_flags(char out[KERN_CPU_FLAGS_BYTES]) { list_features(~0u, true, out); }

void kern_isa_lacks(int i, char out[KERN_CPU_FLAGS_BYTES])
{
    list_features(i >= 0 && i < N_ISA ? isa_rows[i].needs : 0, false, out);
}

bool kern_isa_is_there(int i)
{
    char lacks[KERN_CPU_FLAGS_BYTES];
    kern_isa_lacks(i, lacks);
    return i >= 0 && i < N_ISA && lacks[0] == '\0';
}

/* Names of the ISAs this CPU has, separated by spaces. */
static void list_isas(char *out, size_t cap)
{
    out[0] = '\0';
    for (int i = 0; i < N_ISA; i++) {
        if (kern_isa_is_there(i)) {
            strncat(out, i == 0 ? "" : " ", cap - strlen(out) - 1);
            strncat(out, isa_rows[i].name, cap - strlen(out) - 1);
        }
    }
}

enum err kern_select(const char *name, struct kern_table *out, struct err_info *info)
{
    bool best = name == NULL || strcmp(name, "auto") == 0;
    int wanted = -1;
    for (int i = 0; i < N_ISA; i++) {
        if (best ? kern_isa_is_there(i) : strcmp(name, isa_rows[i].name) == 0) {
            wanted = i;
        }
    }
    if (wanted < 0 || !kern_isa_is_there(wanted)) {
        char have[128];
        list_isas(have, sizeof have);
        return err_set(info, ERR_UNSUPPORTED_CPU, "cpu", "expected one of: auto %s; found '%s', which %s", have, name,
                       wanted < 0 ? "is not a known name" : "this CPU does not have");
    }
    *out = (struct kern_table){.isa = isa_rows[wanted].name};
    for (int i = 0; i <= wanted; i++) {
        isa_rows[i].init(out);
    }
    return ERR_OK;
}
