/* The rows that `infcgi bench` prints: llama-bench's Markdown columns, CSV and JSON fields, with the same names and
 * order [llama.cpp b11434: tools/llama-bench], so that scripts can read either.
 *
 * Some fields differ because llama-bench has no counterpart. A run of several sequences adds a last field `n_seqs` and
 * prints its test as `tg64 x 16`. One with drafts adds `n_draft` and `accept`, and prints `tg64 3 drafts, accept 0.75
 * drawn`; JSON adds `accepted_by_position`, the share of drafts that came true, and Markdown prints it below the table.
 * `backend` names the kernels. JSON ends with `read_bytes`, `matmul_ops` and, for a device that counts (struct
 * backend_counts), the counts per step. Threads: one at a time. */
#ifndef INFCGI_CMD_MODEL_BENCH_REPORT_H
#define INFCGI_CMD_MODEL_BENCH_REPORT_H

#include "engine/backend/backend.h"
#include "engine/base/compiler.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON };

/* Returns the i-th format name, "md"; NULL beyond the last. */
const char *bench_format_name(int i);

/* Values common to all rows. Pointers are borrowed. */
struct bench_report {
    FILE *out;
    enum bench_format format;
    const char *model_path;
    const char *kernels;         /* "avx512" */
    const char *k_type, *v_type; /* types of the KV cache */
    bool has_types;              /* not the default types: columns in BENCH_MD */
    const char *cpu_info;        /* name of the device */
    char model_type[96];         /* "llama 135M Q4_1": architecture, parameters, type of most weights */
    uint64_t model_bytes, n_params;
    bool has_batches;                  /* column n_batch in Markdown */
    bool has_seqs;                     /* field n_seqs */
    int n_rows;                        /* printed so far */
    const struct backend_rates *rates; /* OPTIONAL: rates of the device */
    char counted[8192];                /* text for the footer, truncated to fit */
};

/* One test. samples_ns [n_samples]: time of each run in ns, each > 0; n_samples >= 1. One of n_prompt and n_gen is
 * 0. */
struct bench_row {
    int n_prompt, n_gen, n_depth, n_seqs;
    int n_draft;              /* drafts of a step of a generation; 0: none ... */
    double accept;            /* ... and the probability that a draft comes true */
    uint64_t n_drafted;       /* drafts computed at each position, in all runs ... */
    const uint64_t *accepted; /* [n_draft] ... and drafts that came true */
    int n_batch, n_threads;
    int n_gpu_layers; /* layers computed by a device with its own memory */
    double
        read_bytes; /* minimum bytes of packed weights and KV that a run reads; 0 for a prompt, which is compute-bound */
    double matmul_ops;            /* multiplications and additions in a run's matrix products */
    struct backend_counts counts; /* for a run's generation; zeros: not counted */
    int n_samples;
    const uint64_t *samples_ns;
};

void bench_report_head(struct bench_report *r);
void bench_report_row(struct bench_report *r, const struct bench_row *row);
void bench_report_foot(struct bench_report *r);

#endif
