/* The rows that `infcgi bench` prints: llama-bench's Markdown columns, its CSV and JSON fields by the same names in the
 * same order [llama.cpp b11434: tools/llama-bench], so that scripts which read the one read the other.
 *
 * Three things differ, since there is nothing to compare with: a run of many sequences adds a field `n_seqs` behind the
 * last and prints its test as `tg64 x 16`; `backend` names the kernels; and JSON ends with `read_bytes`,
 * `matmul_ops` and, of a device that counts (struct backend_counts), what a step came to. Threads: one at a time. */
#ifndef INFCGI_CMD_BENCH_REPORT_H
#define INFCGI_CMD_BENCH_REPORT_H

#include "engine/backend/backend.h"
#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON };

/* "md", ...; NULL beyond the last. */
const char *bench_format_name(int i);

/* What is the same for all rows. Pointers are borrowed. */
struct bench_report {
    FILE *out;
    enum bench_format format;
    const char *model_path;
    const char *kernels;         /* "avx512" */
    const char *k_type, *v_type; /* of the KV cache */
    bool has_types;              /* they are not the usual ones: columns of their own in BENCH_MD */
    const char *cpu_info;        /* what the device calls itself */
    char model_type[96];         /* "llama 135M Q4_1": architecture, parameters, the type of most weights */
    uint64_t model_bytes, n_params;
    bool has_batches;                  /* a column n_batch in Markdown */
    bool has_seqs;                     /* a field n_seqs */
    int n_rows;                        /* printed so far */
    const struct backend_rates *rates; /* OPTIONAL: of the device */
    char counted[8192];                /* what the foot says of rows, as far as there is room */
};

/* One test. samples_ns [n_samples]: the time of each run, each > 0; n_samples >= 1. One of n_prompt and n_gen is 0. */
struct bench_row {
    int n_prompt, n_gen, n_depth, n_seqs;
    int n_batch, n_threads;
    int n_gpu_layers;             /* that a device with a memory of its own computes */
    double read_bytes;            /* packed weights and KV that a run reads at least; 0 for a prompt, which computes */
    double matmul_ops;            /* multiplications and additions of a run's matrix products */
    struct backend_counts counts; /* of a run's generation; zeros: not counted */
    int n_samples;
    const uint64_t *samples_ns;
};

void bench_report_head(struct bench_report *r);
void bench_report_row(struct bench_report *r, const struct bench_row *row);
void bench_report_foot(struct bench_report *r);

#endif
