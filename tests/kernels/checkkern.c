/* The kernel checker's main program: runs the tables of operations and ISAs, the planted faults, or the timings. */
#include "tests/kernels/checkkern.h"

#include "engine/base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_GROUP_ROW(group) group,
static const struct check_op *const groups[] = {CHECK_GROUPS(CHECK_GROUP_ROW)};
#undef CHECK_GROUP_ROW

struct options {
    uint64_t seed;
    const char *isa, *op; /* only these; NULL: all. op: a prefix */
    bool bench, csv, peaks, with_ref;
    int n_threads; /* for the peaks; 0: as many as CPUs */
};

static struct kern_table select_table(const char *isa)
{
    struct kern_table t;
    check_isa_select(isa, &t);
    return t;
}

static bool is_wanted_op(const struct options *o, const struct check_op *op)
{
    return o->op == NULL || strncmp(op->name, o->op, strlen(o->op)) == 0;
}

/* Times stand-ins (not ISAs of kern.h) only on request: their times mean little. */
static bool is_wanted_isa(const struct options *o, const struct check_op *op, int i)
{
    bool is_wanted = o->isa != NULL ? strcmp(o->isa, check_isa_name(i)) == 0 : !o->bench || kern_isa_name(i) != NULL;
    return is_wanted && check_isa_has(i, op->name);
}

/* Runs the operation on one ISA. Returns whether it passed. */
static bool run_op(const struct check_op *op, const char *isa, const struct options *o)
{
    struct kern_table ref = select_table("ref"), t = select_table(isa);
    struct check c = {.t = &t, .ref = &ref, .op = op->name, .isa = isa, .seed = o->seed};
    if (o->bench) {
        if (op->bench != NULL) {
            op->bench(&c, op->arg);
        }
        return true;
    }
    op->check(&c, op->arg);
    const char *fault = check_isa_fault(isa);
    if (fault != NULL) {
        printf("FAIL %s %s: %s\n", op->name, isa, fault);
        c.n_failed++;
    }
    printf("%-6s %-16s %-13s %6ld cases, %ld failed\n", c.n_failed == 0 ? "ok" : "FAILED", op->name, isa, c.n_cases,
           c.n_failed);
    return c.n_failed == 0 && c.n_cases > 0;
}

/* Plants faults in ref's kernels: each variant must be noticed. */
static void run_planted(const struct check_op *op, const struct options *o, int *n_passed, int *n_failed)
{
    for (int variant = 0;; variant++) {
        struct kern_table ref = select_table("ref"), t = ref;
        if (!op->plant(&t, op->arg, variant)) {
            if (variant == 0) {
                printf("FAILED %-16s has no planted fault\n", op->name);
                ++*n_failed;
            }
            return;
        }
        struct check c = {.t = &t, .ref = &ref, .op = op->name, .isa = "planted", .seed = o->seed, .planted = true};
        op->check(&c, op->arg);
        printf("%-6s %-16s planted fault %d: noticed in %ld of %ld cases\n", c.n_failed > 0 ? "ok" : "FAILED", op->name,
               variant, c.n_failed, c.n_cases);
        *(c.n_failed > 0 ? n_passed : n_failed) += 1;
    }
}

static const char *best_isa(void)
{
    const char *best = "ref";
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        best = kern_isa_is_there(i) ? kern_isa_name(i) : best;
    }
    return best;
}

static int usage(void)
{
    fprintf(stderr, "usage: checkkern [--seed N] [--isa NAME] [--op PREFIX]\n"
                    "       checkkern --bench [--isa NAME|all] [--op PREFIX] [--csv] [--ref] [--threads N]\n"
                    "       checkkern --peaks [--threads N]\n");
    return 2;
}

static int parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--bench") == 0) {
            o->bench = true;
        } else if (strcmp(argv[i], "--csv") == 0) {
            o->csv = true;
        } else if (strcmp(argv[i], "--peaks") == 0) {
            o->peaks = true;
        } else if (strcmp(argv[i], "--ref") == 0) {
            o->with_ref = true;
        } else if (strcmp(argv[i], "--threads") == 0 && has_value) {
            o->n_threads = (int)strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && has_value) {
            o->seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--isa") == 0 && has_value) {
            o->isa = argv[++i];
        } else if (strcmp(argv[i], "--op") == 0 && has_value) {
            o->op = argv[++i];
        } else {
            return usage();
        }
    }
    if (o->n_threads < 0 || o->n_threads > POOL_MAX_THREADS) {
        return usage();
    }
    o->n_threads = o->n_threads == 0 ? pool_cpu_count() : o->n_threads;
    if (o->bench) { /* one ISA, by default the best one */
        o->isa = o->isa == NULL ? best_isa() : strcmp(o->isa, "all") == 0 ? NULL : o->isa;
    }
    return 0;
}

/* Prints the peaks as JSON, for tests/bench. */
static int print_peaks(int n_threads)
{
    struct check_peaks p;
    if (!check_peaks(n_threads, &p)) {
        return 2;
    }
    printf("{\"threads\": %d, \"int8_gops\": %.1f, \"f32_gops\": %.1f, \"read_gbs\": %.2f}\n", p.n_threads, p.int8_gops,
           p.f32_gops, p.read_gbs);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.seed = 20260101};
    if (parse(argc, argv, &o) != 0) {
        return 2;
    }
    if (o.peaks) {
        return print_peaks(o.n_threads);
    }
    if (o.bench) {
        if (!check_bench_begin(o.csv, o.with_ref, o.n_threads)) {
            return 2;
        }
    } else {
        printf("seed %llu\n", (unsigned long long)o.seed);
        check_isa_list();
    }
    int n_passed = 0, n_failed = 0;
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        for (const struct check_op *op = groups[g]; op->name != NULL; op++) {
            if (!is_wanted_op(&o, op)) {
                continue;
            }
            for (int i = 0; check_isa_name(i) != NULL; i++) {
                if (is_wanted_isa(&o, op, i)) {
                    *(run_op(op, check_isa_name(i), &o) ? &n_passed : &n_failed) += 1;
                }
            }
            if (!o.bench && (o.isa == NULL || strcmp(o.isa, "ref") == 0)) {
                run_planted(op, &o, &n_passed, &n_failed);
            }
        }
    }
    if (!o.bench) {
        printf("%d passed, %d failed\n", n_passed, n_failed);
    }
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
