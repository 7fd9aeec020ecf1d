/* The table of ISAs, ascending. Selecting one runs the init functions of it and of all below it that the CPU has, so a
 * kernel that an ISA lacks comes from the next lower one. An ISA need not contain those below it: CPUs with AVX-512 may
 * lack AVX-VNNI. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

struct isa_row {
    const char *name;
    bool (*is_there)(void);
    void (*init)(struct kern_table *t);
};

static bool always(void) { return true; }

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

/* Bit `bit` of register 0 (eax) .. 3 (edx) of CPUID leaf 7, for what compilers we support do not all know by name
 * [Intel SDM vol. 2A, CPUID]. */
static bool has_leaf_7(unsigned subleaf, int reg, int bit)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(7, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 && (r[reg] >> bit & 1) != 0;
}

static bool has_avxvnni(void) { return has_avx2() && has_leaf_7(1, 0, 4); }

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Tiles of 16 rows of 64 bytes, eight of them: palette 1 as it has always been [Intel SDM vol. 2A, CPUID leaf 1DH]. */
static bool has_palette_1(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) != 0 && (b & 0xFFFF) == 64 && b >> 16 >= 8 && (c & 0xFFFF) == 16;
}

/* Linux hands out the 8 KiB of tile state to processes that ask for it, once for all their threads; asking again does
 * no harm. A kernel that does not know tiles, or a process that may not have them, fails [Linux
 * Documentation/arch/x86/xstate.rst]. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_amx(void)
{
    enum { AMX_TILE = 24, AMX_INT8 = 25 };
    return has_avx512() && has_leaf_7(0, 3, AMX_TILE) && has_leaf_7(0, 3, AMX_INT8) && has_palette_1() &&
           may_use_tiles();
}
#endif

static const struct isa_row isa_rows[] = {
    {"ref", always, kern_init_ref},
#if defined(__x86_64__)
    {"avx2", has_avx2, kern_init_avx2},       {"avxvnni", has_avxvnni, kern_init_avxvnni},
    {"avx512", has_avx512, kern_init_avx512}, {"amx", has_amx, kern_init_amx},
#endif
};

enum { N_ISA = ARRAY_LEN(isa_rows) };

const char *kern_isa_name(int i) { return i >= 0 && i < N_ISA ? isa_rows[i].name : NULL; }

bool kern_isa_is_there(int i) { return i >= 0 && i < N_ISA && isa_rows[i].is_there(); }

/* Names of the ISAs this CPU has, separated by spaces. */
static void list_isas(char *out, size_t cap)
{
    out[0] = '\0';
    for (int i = 0; i < N_ISA; i++) {
        if (isa_rows[i].is_there()) {
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
        if (best ? isa_rows[i].is_there() : strcmp(name, isa_rows[i].name) == 0) {
            wanted = i;
        }
    }
    if (wanted < 0 || !isa_rows[wanted].is_there()) {
        char have[128];
        list_isas(have, sizeof have);
        return err_set(info, ERR_UNSUPPORTED_CPU, "cpu", "expected one of: auto %s; found '%s', which %s", have, name,
                       wanted < 0 ? "is not a known name" : "this CPU does not have");
    }
    *out = (struct kern_table){.isa = isa_rows[wanted].name};
    for (int i = 0; i <= wanted; i++) {
        if (isa_rows[i].is_there()) {
            isa_rows[i].init(out);
        }
    }
    return ERR_OK;
}
