/* checkkern: compares every kernel of every ISA with ref and with the arithmetic it implements; the same binary times
 * them.
 *
 * To add an operation: write tests/kernels/check_<group>.c that defines `const struct check_op check_<group>_ops[]`,
 * one row per operation and a last row with a NULL name, and name that array in CHECK_GROUPS below. A row's functions:
 *   check   for each size and fill: check_case(), check_buffer() for every input and output, fill the inputs with
 *           check_fill_f32 or check_random, run c->t->op (the kernel on trial) and c->ref->op, compare with
 *           check_same_f32 / check_near_f32 / check_same_bytes, and close with check_guards(). The table on trial is
 *           sometimes ref itself: compare also with the arithmetic in double if that is more precise.
 *   plant   makes the entry of *t wrong in the variant-th way and returns true; false after the last way. Each
 *           variant must make `check` fail, which shows that the check is effective. At least one is required.
 *   bench   OPTIONAL; calls check_bench_row for a few sizes.
 * `arg` is passed to all three, for rows that share functions. Threads: one thread. */
#ifndef INFCGI_TESTS_KERNELS_CHECKKERN_H
#define INFCGI_TESTS_KERNELS_CHECKKERN_H

#include "engine/kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check {
    const struct kern_table *t;   /* on trial */
    const struct kern_table *ref; /* the reference */
    const char *op, *isa;
    uint64_t seed;  /* of the whole run */
    uint64_t state; /* of the generator */
    long n_cases, n_failed;
    bool planted;   /* the kernel is wrong on purpose: count failures silently */
    char size[120]; /* of the case, for messages */
};

struct check_op {
    const char *name;
    int arg;
    void (*check)(struct check *c, int arg);
    bool (*plant)(struct kern_table *t, int arg, int variant);
    void (*bench)(struct check *c, int arg);
};

/* The groups of operations. */
#define CHECK_GROUPS(X)                                                                                                \
    X(check_matmul_ops)                                                                                                \
    X(check_quantize_ops)                                                                                              \
    X(check_ops_ops)                                                                                                   \
    X(check_rows_ops)                                                                                                  \
    X(check_attention_ops)                                                                                             \
    X(check_linear_ops)

#define CHECK_DECLARE(group) extern const struct check_op group[];
CHECK_GROUPS(CHECK_DECLARE)
#undef CHECK_DECLARE

/* --- a case ----------------------------------------------------------------------------------------------------- */

/* Begins a case: names its size, discards the buffers of the last one and reseeds from seed, operation and case number,
 * so that a seed gives the same case on every ISA. */
void check_case(struct check *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Fails the case: `what` at `index`. */
void check_fail(struct check *c, const char *what, size_t index, double got, double want);

/* Compare n values; stop at the first difference. same: bits, where any NaN equals any NaN. near: |got - want| <=
 * limit[i]. If the result is false, the failure has been counted and printed. */
bool check_same_f32(struct check *c, const char *what, const float *got, const float *want, size_t n);
bool check_near_f32(struct check *c, const char *what, const float *got, const double *want, const double *limit,
                    size_t n);
bool check_same_bytes(struct check *c, const char *what, const void *got, const void *want, size_t n);

/* --- buffers ---------------------------------------------------------------------------------------------------- */

enum { CHECK_BUFFERS = 16, CHECK_BUFFER_BYTES = 4 << 20 }; /* buffers in a case; size of the largest */

/* Returns `bytes` bytes aligned to `align` (a power of two, at most 4096) that end as close to an unreadable page as
 * the alignment allows. They and the space around them are filled with CHECK_CANARY. Valid until the next check_case.
 * Under AddressSanitizer and valgrind the space around must not be touched. Under valgrind no result may depend on the
 * filling, unless check_use_filling allows it for n bytes. */
void *check_buffer(size_t bytes, size_t align);
void check_use_filling(const void *p, size_t n);
#define CHECK_CANARY 0xA5

/* Fails the case if one of n bytes inside a buffer was written. */
bool check_untouched(struct check *c, const char *what, const void *p, size_t n);

/* Fails the case if a byte around a buffer was written. */
bool check_guards(struct check *c);

/* --- numbers ---------------------------------------------------------------------------------------------------- */

uint64_t check_random(struct check *c);         /* 64 bits */
int check_random_below(struct check *c, int n); /* 0 .. n-1 */
double check_random_between(struct check *c, double low, double high);

enum check_fill {
    CHECK_UNIFORM,     /* -1 .. 1 */
    CHECK_TINY,        /* about 1e-30 */
    CHECK_HUGE,        /* about 1e30 */
    CHECK_CANCELLING,  /* neighbors cancel except for the last bits */
    CHECK_DENORMAL,    /* subnormal numbers */
    CHECK_ZERO_BLOCKS, /* half of all blocks of 32 are zero */
    CHECK_SPREAD,      /* magnitudes from 2^-20 to 2^20 */
    CHECK_FILL_COUNT
};
const char *check_fill_name(enum check_fill fill);
void check_fill_f32(struct check *c, enum check_fill fill, float *x, size_t n);

/* --- ISAs --------------------------------------------------------------------------------------------------------- */

/* Returns the ISAs of kern.h, then those that exist only here (check_isas.c). NULL after the last. */
const char *check_isa_name(int i);
bool check_isa_has(int i, const char *op); /* can `op` run on this CPU? */

/* Fills *out for an ISA by name; ends the program if this CPU lacks it. */
void check_isa_select(const char *name, struct kern_table *out);

/* Returns, once, a fault on an ISA that results do not show; or NULL. */
const char *check_isa_fault(const char *name);

/* Prints the ISAs, and which are only for tests. */
void check_isa_list(void);

/* Kernels that exist only here, and the first misuse of an emulated tile instruction. */
void check_init_avxvnni_evex(struct kern_table *t);
void check_init_amx_emulated(struct kern_table *t);
const char *check_amx_fault(void);

/* --- timing ----------------------------------------------------------------------------------------------------- */

/* The work of one call, for the columns of the report; 0: leave the column empty. */
struct check_work {
    const char *size;
    double bytes;     /* read and written */
    double int8_ops;  /* compared with the vpdpbusd peak */
    double f32_ops;   /* compared with the FMA peak */
    double ref_scale; /* the ref call does 1/ref_scale of this work; 0: 1 */
};

/* Times run(arg) with the table on trial, the best of many short runs, and prints a row; with ref (check_bench_begin)
 * run_ref(arg) too. */
void check_bench_row(struct check *c, const struct check_work *work, void (*run)(void *arg), void (*run_ref)(void *arg),
                     void *arg);

/* Measures the peaks of one thread, to which the rows are compared; prints them, those of n_threads threads together,
 * and the heading. csv: comma-separated columns. with_ref: a column for how much slower ref is, which takes long.
 * False: threads cannot be started. */
bool check_bench_begin(bool csv, bool with_ref, int n_threads);

/* Peaks of n_threads threads together; 0: not measurable (no AVX-512 VNNI, no memory). */
struct check_peaks {
    int n_threads;
    double int8_gops; /* vpdpbusd, multiplications and additions */
    double f32_gops;  /* FMA */
    double read_gbs;  /* from memory, the best of several access patterns */
};
bool check_peaks(int n_threads, struct check_peaks *out);

/* Do a fixed number of int8 or f32 operations (on an AVX-512 VNNI core) and return the number. */
double check_peak_int8_avx512(void);
double check_peak_f32_avx512(void);

#endif
