/* Timing in checkkern: the best of many short runs, with the peaks of the machine measured in the same process. */
#include "tests/kernels/checkkern.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <string.h>

enum { BUDGET_NS = 60 * 1000 * 1000 }; /* per row */

/* Bytes from which a row counts as read from memory: fewer can still be in a cache from the run before. */
#define FROM_MEMORY_BYTES (96e6)

static struct {
    struct check_peaks peaks; /* of one thread */
    bool csv, with_ref;
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

static void print_peaks(const struct check_peaks *p)
{
    printf("%s%d thread%s: int8 peak %.0f Gop/s, f32 peak %.0f Gflop/s, read from memory %.1f GB/s\n",
           bench.csv ? "# " : "", p->n_threads, p->n_threads == 1 ? "" : "s", p->int8_gops, p->f32_gops, p->read_gbs);
}

bool check_bench_begin(bool csv, bool with_ref, int n_threads)
{
    bench.csv = csv;
    bench.with_ref = with_ref;
    struct check_peaks all;
    if (!check_peaks(1, &bench.peaks) || (n_threads > 1 && !check_peaks(n_threads, &all))) {
        return false;
    }
    print_peaks(&bench.peaks);
    if (n_threads > 1) {
        print_peaks(&all);
    }
    const char *ref = !with_ref ? "" : csv ? ",times_ref" : "    x ref";
    if (csv) {
        printf("op,isa,size,ns,gb_per_s,of_read,gop_per_s,of_peak%s\n", ref);
    } else {
        printf("%-16s %-7s %-22s %12s %8s %8s %8s %8s%s\n", "op", "isa", "size", "ns", "GB/s", "of read", "Gop/s",
               "of peak", ref);
    }
    return true;
}

/* Prints a column of `value` as a share of `whole`, or an empty one. */
static void print_share(bool is_there, double value, double whole)
{
    char text[16] = "";
    if (is_there && whole > 0) {
        snprintf(text, sizeof text, bench.csv ? "%.3f" : "%.1f %%", value / whole * (bench.csv ? 1 : 100));
    }
    printf(bench.csv ? ",%s" : " %8s", text);
}

void check_bench_row(struct check *c, const struct check_work *work, void (*run)(void *arg), void (*run_ref)(void *arg),
                     void *arg)
{
    double ns = best_ns(run, arg, 3);
    double ops = work->int8_ops + work->f32_ops;
    printf(bench.csv ? "%s,%s,%s,%.0f,%.2f" : "%-16s %-7s %-22s %12.0f %8.1f", c->op, c->isa, work->size, ns,
           work->bytes / ns);
    print_share(work->bytes >= FROM_MEMORY_BYTES, work->bytes / ns, bench.peaks.read_gbs);
    printf(bench.csv ? ",%.2f" : " %8.1f", ops / ns);
    print_share(ops > 0, ops / ns, work->int8_ops != 0 ? bench.peaks.int8_gops : bench.peaks.f32_gops);
    if (bench.with_ref) {
        double scale = work->ref_scale != 0 ? work->ref_scale : 1;
        printf(bench.csv ? ",%.1f" : " %8.1f", best_ns(run_ref, arg, 1) * scale / ns);
    }
    putchar('\n');
    fflush(stdout);
}
