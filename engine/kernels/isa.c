/* The table of ISAs, ascending. Selecting an ISA runs its init function and those of all lower ISAs that the CPU has.
 * So a kernel that an ISA lacks comes from the next lower one. An ISA need not include the lower ones: CPUs with
 * AVX-512 can lack AVX-VNNI. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* CPU features that ISAs need, and some that they can use: on x86 by gcc's names [GCC manual, __builtin_cpu_supports],
 * on ARM by the names of Linux [arm64 elf_hwcaps]. */
#if defined(__x86_64__)
#define CPU_FEATURES(X)   X(avx2) X(fma) X(avx512f) X(avx512bw) X(avx512vl) X(avx512dq) X(avx512vnni) X(avx512bf16)
#define OTHER_FEATURES(X) X(f16c) X(avxvnni) X(amx_tile) X(amx_int8) X(tile_state) /* not all compilers know these */
#define CPU_HAS(name)     (__builtin_cpu_supports(#name) != 0)
#elif defined(__aarch64__)
#define CPU_FEATURES(X) X(asimd) X(asimddp) X(i8mm)
#define OTHER_FEATURES(X)
#define CPU_HAS(name) cpu_has_##name()
static bool cpu_has_asimd(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0; }
static bool cpu_has_asimddp(void) { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
static bool cpu_has_i8mm(void) { return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#else
#define CPU_FEATURES(X)
#define OTHER_FEATURES(X)
#endif

enum feature {
#define FEATURE_ENUM(name) FEATURE_##name,
    CPU_FEATURES(FEATURE_ENUM) OTHER_FEATURES(FEATURE_ENUM)
#undef FEATURE_ENUM
        FEATURE_COUNT
};

#if defined(__x86_64__)
/* Returns bit `bit` of register 0 (eax) .. 3 (edx) of a leaf of CPUID [Intel SDM vol. 2A, CPUID]. */
static bool has_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 && (r[reg] >> bit & 1) != 0;
}

/* The kernels need eight tiles of 16 rows of 64 bytes: palette 1 of all CPUs so far [Intel SDM vol. 2A, CPUID leaf
 * 1DH]. */
static bool has_amx_tile(void)
{
    unsigned a, b, c, d;
    return has_bit(7, 0, 3, 24) && __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) != 0 && (b & 0xFFFF) == 64 &&
           b >> 16 >= 8 && (c & 0xFFFF) == 16;
}

/* Linux grants the 8 KiB of tile state per process, on request, for all its threads. A repeated request is harmless.
 * The request fails if the kernel does not know tiles or denies them to the process [Linux
 * Documentation/arch/x86/xstate.rst]. */
static bool has_tile_state(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return has_amx_tile() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

static bool has_feature(int f)
{
    switch (f) {
#define FEATURE_CASE(name)                                                                                             \
    case FEATURE_##name:                                                                                               \
        return CPU_HAS(name);
        CPU_FEATURES(FEATURE_CASE)
#undef FEATURE_CASE
#if defined(__x86_64__)
    case FEATURE_f16c:
        return has_bit(1, 0, 2, 29) && __builtin_cpu_supports("avx2") != 0;
    case FEATURE_avxvnni:
        return has_bit(7, 1, 0, 4) && __builtin_cpu_supports("avx2") != 0;
    case FEATURE_amx_tile:
        return has_amx_tile();
    case FEATURE_amx_int8:
        return has_bit(7, 0, 3, 25);
    case FEATURE_tile_state:
        return has_tile_state();
#endif
    default:
        return false;
    }
}

static const char *const feature_names[] = {
#define FEATURE_NAME(name) #name,
    CPU_FEATURES(FEATURE_NAME) OTHER_FEATURES(FEATURE_NAME)
#undef FEATURE_NAME
        ""};

struct isa_row {
    const char *name;
    unsigned needs;                     /* one bit per enum feature */
    void (*init)(struct kern_table *t); /* NULL: not in this build */
};

/* Builds with sanitizers can leave out these ISAs, which compile for minutes (ISAS=few in the Makefile). */
#if defined(__x86_64__) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#pragma weak kern_init_avxvnni
#pragma weak kern_init_avx512
#pragma weak kern_init_amx
#endif

#if defined(__x86_64__)
enum {
    NEEDS_AVX2 = 1 << FEATURE_avx2 | 1 << FEATURE_fma | 1 << FEATURE_f16c,
    NEEDS_AVX512 = NEEDS_AVX2 | 1 << FEATURE_avx512f | 1 << FEATURE_avx512bw | 1 << FEATURE_avx512vl |
                   1 << FEATURE_avx512dq | 1 << FEATURE_avx512vnni,
    NEEDS_AMX = NEEDS_AVX512 | 1 << FEATURE_amx_tile | 1 << FEATURE_amx_int8 | 1 << FEATURE_tile_state,
};
#endif

#if defined(__aarch64__)
enum {
    NEEDS_NEON = 1 << FEATURE_asimd,
    NEEDS_DOTPROD = NEEDS_NEON | 1 << FEATURE_asimddp,
    NEEDS_I8MM = NEEDS_DOTPROD | 1 << FEATURE_i8mm,
};
#endif

static const struct isa_row isa_rows[] = {
    {"ref", 0, kern_init_ref},
#if defined(__x86_64__)
    {"avx2", NEEDS_AVX2, kern_init_avx2},
    {"avxvnni", NEEDS_AVX2 | 1 << FEATURE_avxvnni, kern_init_avxvnni},
    {"avx512", NEEDS_AVX512, kern_init_avx512},
    {"amx", NEEDS_AMX, kern_init_amx},
#elif defined(__aarch64__)
    {"neon", NEEDS_NEON, kern_init_neon},
    {"dotprod", NEEDS_DOTPROD, kern_init_dotprod},
    {"i8mm", NEEDS_I8MM, kern_init_i8mm},
#endif
};

enum { N_ISA = ARRAY_LEN(isa_rows) };

const char *kern_isa_name(int i) { return i >= 0 && i < N_ISA ? isa_rows[i].name : NULL; }

/* Lists the features in `mask` that the CPU has, or lacks. */
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
    if (i >= 0 && i < N_ISA && isa_rows[i].init == NULL) {
        snprintf(out, KERN_CPU_FLAGS_BYTES, "kernels");
    }
}

bool kern_isa_is_there(int i)
{
    char lacks[KERN_CPU_FLAGS_BYTES];
    kern_isa_lacks(i, lacks);
    return i >= 0 && i < N_ISA && lacks[0] == '\0';
}

/* Lists the ISAs of this CPU, separated by spaces. */
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
        if (kern_isa_is_there(i)) {
            isa_rows[i].init(out);
        }
    }
    return ERR_OK;
}
