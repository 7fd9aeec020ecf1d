/* Timing in checkkern: the best of many short runs, beside the peaks of the machine measured in the same process. */
#include "tests/kernels/checkkern.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { BUDGET_NS = 60 * 1000 * 1000, READ_BYTES = 256 << 20 }; /* per row and side; larger than any cache here */

static struct {
    double int8_peak, f32_peak; /* Gop/s; 0 = could not be measured */
    bool csv;
} bench;

static double best_ns(void (*run)(void *arg), void *arg, int at_least)
{
    double best = 1e18;
    uint64_t start = clock_now_ns(), now = start;
    for (int i = 0; i < at_least || now - start < BUDGET_NS; i++) {
        uint64_t before = clock_now_ns();
        run(arg);
        now = clock_now_ns();
        best = MIN_OF(best, (double)(now - before));
    }
    return best;
}

static unsigned char *read_area;

static void read_all(void *arg)
{
    (void)arg;
    uint64_t sum = 0, v;
    for (size_t i = 0; i < READ_BYTES; i += 64) {
        memcpy(&v, read_area + i, sizeof v);
        sum += v;
    }
    volatile uint64_t keep = sum;
    (void)keep;
}

void check_bench_begin(bool csv)
{
    bench.csv = csv;
#if defined(__x86_64__)
    bool has_avx512 = false;
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        has_avx512 = has_avx512 || (strcmp(kern_isa_name(i), "avx512") == 0 && kern_isa_is_there(i));
    }
    if (has_avx512) {
        bench.int8_peak = check_peak_int8_avx512();
        bench.f32_peak = check_peak_f32_avx512();
    }
#endif
    double read_peak = 0;
    read_area = mem_map(READ_BYTES, MEM_GENERAL);
    if (read_area != NULL) {
        memset(read_area, 1, READ_BYTES);
        read_peak = READ_BYTES / best_ns(read_all, NULL, 5);
        mem_unmap(read_area, READ_BYTES, MEM_GENERAL);
    }
    printf("%sone core: int8 peak %.0f Gop/s, f32 peak %.0f Gflop/s, read from memory %.1f GB/s\n", csv ? "# " : "",
           bench.int8_peak, bench.f32_peak, read_peak);
    if (csv) {
        printf("op,isa,size,ns,gb_per_s,gop_per_s,of_peak,times_ref\n");
    } else {
        printf("%-16s %-7s %-22s %12s %8s %8s %8s %8s\n", "op", "isa", "size", "ns", "GB/s", "Gop/s", "of peak",
               "x ref");
    }
}

void check_bench_row(struct check *c, const struct check_work *work, void (*run)(void *arg), void (*run_ref)(void *arg),
                     void *arg)
{
    double ns = best_ns(run, arg, 3);
    double ref_ns = best_ns(run_ref, arg, 1) * (work->ref_scale != 0 ? work->ref_scale : 1);
    double ops = work->int8_ops + work->f32_ops;
    double peak = work->int8_ops != 0 ? bench.int8_peak : bench.f32_peak;
    double of_peak = ops != 0 && peak != 0 ? ops / ns / peak : 0;
    printf(bench.csv ? "%s,%s,%s,%.0f,%.2f,%.2f,%.3f,%.1f\n" : "%-16s %-7s %-22s %12.0f %8.1f %8.1f %8.3f %8.1f\n",
           c->op, c->isa, work->size, ns, work->bytes / ns, ops / ns, of_peak, ref_ns / ns);
    fflush(stdout);
}
