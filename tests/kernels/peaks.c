/* Measures the machine's maximum, on one thread or on several together: int8 and f32 operations, and reading memory.
 * Rooflines divide by these figures. */
#include "tests/kernels/checkkern.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"

#include <stdio.h>
#include <string.h>

/* READ_BYTES: a thread's share, far larger than the L3 of any CPU measured so far, so that little of one pass remains
 * for the next. */
enum { TRIALS = 200, READ_TRIALS = 6, READ_BYTES = 256 << 20, LINE = 64 };

/* --- reading ---------------------------------------------------------------------------------------------------- */

/* Reads one word of every line, from `streams` positions alternately, fetching `ahead` bytes ahead (0: not) into all
 * caches or past them (nta). Inlined with constants, so that each way of reading is a separate loop. */
static ALWAYS_INLINE uint64_t read_lines(const unsigned char *from, size_t streams, size_t ahead, bool is_nta)
{
    uint64_t sum = 0;
    size_t part = READ_BYTES / streams;
    for (size_t i = 0; i < part; i += LINE) {
        UNROLL_FULLY
        for (size_t s = 0; s < streams; s++) {
            const unsigned char *at = from + s * part + i;
            uint64_t v;
            memcpy(&v, at, sizeof v);
            sum += v;
            if (ahead > 0 && is_nta) {
                __builtin_prefetch(at + ahead, 0, 0);
            } else if (ahead > 0) {
                __builtin_prefetch(at + ahead, 0, 3);
            }
        }
    }
    return sum;
}

enum { READ_WAYS = 14 };

static uint64_t read_in_way(int way, const unsigned char *from)
{
    switch (way) {
    case 0:
        return read_lines(from, 1, 0, false);
    case 1:
        return read_lines(from, 1, 1024, false);
    case 2:
        return read_lines(from, 1, 2048, false);
    case 3:
        return read_lines(from, 1, 4096, false);
    case 4:
        return read_lines(from, 1, 2048, true);
    case 5:
        return read_lines(from, 2, 0, false);
    case 6:
        return read_lines(from, 2, 1024, false);
    case 7:
        return read_lines(from, 2, 2048, false);
    case 8:
        return read_lines(from, 2, 1024, true);
    case 9:
        return read_lines(from, 4, 0, false);
    case 10:
        return read_lines(from, 4, 512, false);
    case 11:
        return read_lines(from, 4, 1024, false);
    case 12:
        return read_lines(from, 4, 512, true);
    default:
        return read_lines(from, 8, 0, false);
    }
}

/* --- on all threads together ------------------------------------------------------------------------------------ */

struct reading {
    int way;
    const unsigned char *memory;
};

static void read_share(void *arg, int thread, int n_threads)
{
    const struct reading *r = arg;
    volatile uint64_t keep = read_in_way(r->way, r->memory + (size_t)thread * READ_BYTES);
    (void)keep;
    (void)n_threads;
}

static void touch_share(void *arg, int thread, int n_threads)
{
    const struct reading *r = arg;
    memset((unsigned char *)(uintptr_t)r->memory + (size_t)thread * READ_BYTES, 1, READ_BYTES);
    (void)n_threads;
}

static double best_run_ns(struct pool *pool, pool_fn fn, void *arg, int n_trials)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < n_trials; i++) {
        uint64_t start = clock_now_ns();
        pool_run(pool, fn, arg);
        best = MIN_OF(best, clock_now_ns() - start);
    }
    return (double)best;
}

static double peak_read(struct pool *pool, int n_threads)
{
    size_t bytes = (size_t)n_threads * READ_BYTES;
    unsigned char *memory = mem_map(bytes, MEM_GENERAL);
    double best = 0;
    if (memory == NULL) {
        return best;
    }
    struct reading r = {.memory = memory};
    pool_run(pool, touch_share, &r); /* by its reader, for NUMA */
    for (r.way = 0; r.way < READ_WAYS; r.way++) {
        best = MAX_OF(best, (double)bytes / best_run_ns(pool, read_share, &r, READ_TRIALS));
    }
    mem_unmap(memory, bytes, MEM_GENERAL);
    return best;
}

/* Measures the instructions of kernels; 0 if this CPU has no kernels that are compared with it. */
#if defined(__x86_64__)
static void run_int8(void *arg, int thread, int n_threads)
{
    double *ops = arg;
    ops[thread] = check_peak_int8_avx512();
    (void)n_threads;
}

static void run_f32(void *arg, int thread, int n_threads)
{
    double *ops = arg;
    ops[thread] = check_peak_f32_avx512();
    (void)n_threads;
}

static bool has_avx512(void)
{
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        if (strcmp(kern_isa_name(i), "avx512") == 0) {
            return kern_isa_is_there(i);
        }
    }
    return false;
}

static void peak_ops(struct pool *pool, struct check_peaks *out)
{
    if (has_avx512()) {
        double ops[POOL_MAX_THREADS] = {0}; /* of each thread; all do the same */
        double ns = best_run_ns(pool, run_int8, ops, TRIALS);
        out->int8_gops = ops[0] * out->n_threads / ns;
        ns = best_run_ns(pool, run_f32, ops, TRIALS);
        out->f32_gops = ops[0] * out->n_threads / ns;
    }
}
#else
static void peak_ops(struct pool *pool, struct check_peaks *out)
{
    (void)pool;
    (void)out;
}
#endif

bool check_peaks(int n_threads, struct check_peaks *out)
{
    *out = (struct check_peaks){.n_threads = n_threads};
    struct pool *pool = NULL;
    struct err_info info = {0};
    if (pool_new(n_threads, &pool, &info) != ERR_OK) {
        fprintf(stderr, "checkkern: %s\n", info.text);
        return false;
    }
    peak_ops(pool, out);
    out->read_gbs = peak_read(pool, n_threads);
    pool_free(&pool);
    return true;
}
