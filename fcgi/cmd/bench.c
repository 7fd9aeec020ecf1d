/* `infcgi bench`: how fast a model's back end prefills and decodes, printed as llama-bench prints it, so that rows of
 * both can stand in one table. Runs the back end itself: no scheduler, no sampling. */
#include "fcgi/cmd/cmd.h"

#include "engine/backend/backend.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/tensor/dtype.h"
#include "fcgi/cmd/bench_report.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SEQS = 64, MAX_REPEATS = 100, MAX_BATCH = 2048, MAX_TOKENS = 1 << 20 };

struct options {
    const char *model, *output, *cpu, *backend;
    int n_prompt, n_gen, n_depth, n_seqs, n_batch, n_threads, repeats;
};

/* A model made ready. */
struct bench {
    struct options o;
    struct gguf *gguf;
    struct plan *plan;
    const struct backend *backend;
    struct backend_model *model;
    struct backend_info info;
    struct bench_report report;
    int32_t *pages; /* [n_seqs][pages of a sequence] */
    int32_t seq_pages;
    int32_t *tokens, *pos, *seq; /* [n_batch] */
    int32_t *logit_rows;
    const int32_t *tables[MAX_SEQS];
    float *logits;
    struct backend_row_stats stats[MAX_SEQS];
};

static enum err forward(struct bench *b, int n_rows, int n_seqs, int n_logits, struct err_info *info)
{
    struct backend_batch batch = {.n_rows = n_rows,
                                  .tokens = b->tokens,
                                  .pos = b->pos,
                                  .seq = b->seq,
                                  .n_seqs = n_seqs,
                                  .page_tables = b->tables,
                                  .n_logits = n_logits,
                                  .logit_rows = b->logit_rows,
                                  .logits = b->logits,
                                  .stats = b->stats};
    return b->backend->forward(b->model, &batch, info);
}

/* Computes n tokens of sequence `seq` from position `from` on; logits of the last one when wanted. */
static enum err prefill(struct bench *b, int seq, int from, int n, bool want_logits, struct err_info *info)
{
    const int32_t *table = b->pages + (size_t)seq * (size_t)b->seq_pages, *first = b->tables[0];
    b->tables[0] = table;
    enum err err = ERR_OK;
    for (int done = 0; done < n && err == ERR_OK;) {
        int rows = MIN_OF(n - done, b->o.n_batch);
        for (int i = 0; i < rows; i++) {
            b->tokens[i] = (int32_t)((uint32_t)(from + done + i) * 7919u % b->plan->n_vocab);
            b->pos[i] = from + done + i;
            b->seq[i] = 0;
        }
        done += rows;
        b->logit_rows[0] = rows - 1;
        err = forward(b, rows, 1, want_logits && done == n ? 1 : 0, info);
    }
    b->tables[0] = first;
    return err;
}

/* n steps of all sequences together behind `from` positions. */
static enum err decode(struct bench *b, int from, int n, struct err_info *info)
{
    for (int step = 0; step < n; step++) {
        for (int i = 0; i < b->o.n_seqs; i++) {
            b->tokens[i] = (int32_t)((uint32_t)(step * 31 + i) * 7919u % b->plan->n_vocab);
            b->pos[i] = from + step;
            b->seq[i] = i;
            b->logit_rows[i] = i;
        }
        TRY(forward(b, b->o.n_seqs, b->o.n_seqs, b->o.n_seqs, info));
    }
    return ERR_OK;
}

/* One untimed and `repeats` timed runs of one test. */
static enum err measure(struct bench *b, bool is_prefill, struct err_info *info)
{
    uint64_t samples_ns[MAX_REPEATS];
    int n = is_prefill ? b->o.n_prompt : b->o.n_gen;
    for (int s = 0; s < b->o.n_seqs && b->o.n_depth > 0; s++) {
        TRY(prefill(b, s, 0, b->o.n_depth, false, info));
    }
    for (int i = -1; i < b->o.repeats; i++) {
        uint64_t start = clock_now_ns();
        TRY(is_prefill ? prefill(b, 0, b->o.n_depth, n, true, info) : decode(b, b->o.n_depth, n, info));
        uint64_t elapsed_ns = clock_now_ns() - start;
        if (i >= 0) {
            samples_ns[i] = MAX_OF(elapsed_ns, 1);
        }
    }
    struct bench_row row = {.n_prompt = is_prefill ? n : 0,
                            .n_gen = is_prefill ? 0 : n,
                            .n_depth = b->o.n_depth,
                            .n_seqs = is_prefill ? 1 : b->o.n_seqs,
                            .n_samples = b->o.repeats,
                            .samples_ns = samples_ns};
    bench_report_row(&b->report, &row);
    return ERR_OK;
}

static enum err open_all(struct bench *b, struct err_info *info)
{
    const struct options *o = &b->o;
    b->backend = backend_find(o->backend);
    if (b->backend == NULL) {
        return err_set(info, ERR_CONFIG, NULL, "backend: expected cpu or ref, found '%s'", o->backend);
    }
    TRY(gguf_open(o->model, &b->gguf, info));
    TRY(model_build(b->gguf, &b->plan, info));
    b->seq_pages = (o->n_depth + MAX_OF(o->n_prompt, o->n_gen)) / BACKEND_PAGE_TOKENS + 1;
    int n_rows = MAX_OF(o->n_batch, o->n_seqs);
    struct backend_config cfg = {.cpu = o->cpu,
                                 .n_threads = o->n_threads,
                                 .n_pages = b->seq_pages * o->n_seqs,
                                 .max_rows = n_rows,
                                 .max_logits = o->n_seqs};
    TRY(b->backend->open(b->plan, &cfg, &b->model, info));
    b->backend->info(b->model, &b->info);
    b->pages = mem_zalloc_array((size_t)(b->seq_pages * o->n_seqs), sizeof *b->pages, MEM_GENERAL);
    b->tokens = mem_zalloc_array((size_t)n_rows, sizeof *b->tokens, MEM_GENERAL);
    b->pos = mem_zalloc_array((size_t)n_rows, sizeof *b->pos, MEM_GENERAL);
    b->seq = mem_zalloc_array((size_t)n_rows, sizeof *b->seq, MEM_GENERAL);
    b->logit_rows = mem_zalloc_array((size_t)n_rows, sizeof *b->logit_rows, MEM_GENERAL);
    b->logits = mem_zalloc_array((size_t)o->n_seqs * b->plan->n_vocab, sizeof *b->logits, MEM_GENERAL);
    if (b->pages == NULL || b->tokens == NULL || b->pos == NULL || b->seq == NULL || b->logit_rows == NULL ||
        b->logits == NULL) {
        return ERR_NOMEM;
    }
    for (int32_t i = 0; i < b->seq_pages * o->n_seqs; i++) {
        b->pages[i] = i;
    }
    for (int s = 0; s < o->n_seqs; s++) {
        b->tables[s] = b->pages + (size_t)s * (size_t)b->seq_pages;
    }
    return ERR_OK;
}

/* The model's type as llama-bench words it, its bytes and parameters. */
static void describe(struct bench_report *r, const struct gguf *model)
{
    uint64_t elems_of[DTYPE_COUNT] = {0};
    enum dtype most = DTYPE_F32;
    r->model_bytes = r->n_params = 0;
    for (size_t i = 0; i < gguf_n_tensors(model); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model, i);
        uint64_t elems = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        r->n_params += elems;
        r->model_bytes += t->bytes;
        elems_of[t->type] += elems;
        most = elems_of[t->type] > elems_of[most] ? t->type : most;
    }
    struct gguf_str arch = {"?", 1};
    struct err_info ignored = {0};
    if (gguf_get_str(model, "general.architecture", &arch, &ignored) != ERR_OK) {
        arch = (struct gguf_str){"?", 1};
    }
    bool is_billion = r->n_params >= 1000000000;
    snprintf(r->model_type, sizeof r->model_type, "%.*s %.*f%c %s", (int)(arch.len < 40 ? arch.len : 40), arch.data,
             is_billion ? 2 : 0, (double)r->n_params / (is_billion ? 1e9 : 1e6), is_billion ? 'B' : 'M',
             dtype_info(most)->name);
}

static void open_report(struct bench *b)
{
    const struct options *o = &b->o;
    b->report = (struct bench_report){.out = stdout,
                                      .model_path = o->model,
                                      .kernels = b->info.kernels,
                                      .n_batch = o->n_batch,
                                      .n_threads = o->n_threads,
                                      .has_seqs = o->n_seqs > 1};
    b->report.format = strcmp(o->output, "md") == 0 ? BENCH_MD : strcmp(o->output, "csv") == 0 ? BENCH_CSV : BENCH_JSON;
    describe(&b->report, b->gguf);
    bench_report_cpu(&b->report);
    bench_report_head(&b->report);
}

static void close_all(struct bench *b)
{
    if (b->model != NULL) {
        b->backend->close(&b->model);
    }
    plan_free(&b->plan);
    gguf_close(&b->gguf);
    mem_free(b->pages);
    mem_free(b->tokens);
    mem_free(b->pos);
    mem_free(b->seq);
    mem_free(b->logit_rows);
    mem_free(b->logits);
}

static const struct {
    const char *brief, *name;
    size_t offset;
    int min, max; /* max 0: text */
    const char *help;
} rows[] = {
#define ROW(brief, name, member, min, max, help)                                                                       \
    {                                                                                                                  \
        brief, name, offsetof(struct options, member), min, max, help                                                  \
    }
    ROW("-m", "--model", model, 0, 0, "GGUF file"),
    ROW("-p", "--n-prompt", n_prompt, 0, MAX_TOKENS, "prompt tokens to prefill [512]"),
    ROW("-n", "--n-gen", n_gen, 0, MAX_TOKENS, "tokens to decode [128]"),
    ROW("-d", "--n-depth", n_depth, 0, MAX_TOKENS, "positions already in the KV cache [0]"),
    ROW("-s", "--n-seqs", n_seqs, 1, MAX_SEQS, "sequences decoded together [1]"),
    ROW("-b", "--batch-size", n_batch, 1, MAX_BATCH, "rows of a prefill step [512]"),
    ROW("-t", "--threads", n_threads, 1, POOL_MAX_THREADS, "worker threads [CPUs]"),
    ROW("-r", "--repetitions", repeats, 1, MAX_REPEATS, "timed runs, after one that is not [5]"),
    ROW("-o", "--output", output, 0, 0, "md, csv or json [md]"),
    ROW("-c", "--cpu", cpu, 0, 0, "kernels: auto, ref, avx2, avxvnni, avx512, amx"),
    ROW("-k", "--backend", backend, 0, 0, "cpu or ref [cpu]"),
#undef ROW
};

/* The row an argument names, else ARRAY_LEN(rows); *value is what stands behind `--name=`, or NULL. */
static size_t find_option(const char *arg, const char **value)
{
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    size_t len = equals != NULL ? (size_t)(equals - arg) : strlen(arg), k = 0;
    while (k < ARRAY_LEN(rows) && strcmp(arg, rows[k].brief) != 0 &&
           (strlen(rows[k].name) != len || memcmp(arg, rows[k].name, len) != 0)) {
        k++;
    }
    *value = equals != NULL ? equals + 1 : NULL;
    return k;
}

/* CMD_OK, -1 after --help, or CMD_USAGE. */
static int read_options(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            puts("usage: infcgi bench -m MODEL [OPTIONS]\n");
            for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
                printf("  %s, %-16s %s\n", rows[k].brief, rows[k].name, rows[k].help);
            }
            return -1;
        }
        const char *value;
        size_t k = find_option(argv[i], &value);
        if (k == ARRAY_LEN(rows) || (value == NULL && i + 1 == argc)) {
            fprintf(stderr, "error: bench: %s '%s'; --help lists the options\n",
                    k == ARRAY_LEN(rows) ? "unknown option" : "expected a value behind", argv[i]);
            return CMD_USAGE;
        }
        void *to = (char *)o + rows[k].offset;
        value = value != NULL ? value : argv[++i];
        if (rows[k].max == 0) {
            *(const char **)to = value;
            continue;
        }
        int64_t v;
        if (!conf_parse_integer(value, &v) || v < rows[k].min || v > rows[k].max) {
            fprintf(stderr, "error: bench: %s: expected an integer of %d to %d, found '%s'\n", rows[k].name,
                    rows[k].min, rows[k].max, value);
            return CMD_USAGE;
        }
        *(int *)to = (int)v;
    }
    bool known = strcmp(o->output, "md") == 0 || strcmp(o->output, "csv") == 0 || strcmp(o->output, "json") == 0;
    if (o->model == NULL || !known) {
        fprintf(stderr, "error: bench: expected %s\n", o->model == NULL ? "--model FILE" : "--output md, csv or json");
        return CMD_USAGE;
    }
    return CMD_OK;
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = {.o = {.output = "md",
                            .backend = "cpu",
                            .n_prompt = 512,
                            .n_gen = 128,
                            .n_seqs = 1,
                            .n_batch = 512,
                            .n_threads = pool_cpu_count(),
                            .repeats = 5,
                            .cpu = conf_environment("cpu")}};
    int rc = read_options(&b.o, argc, argv);
    if (rc != CMD_OK) {
        return rc < 0 ? CMD_OK : rc;
    }
    struct err_info info = {0};
    struct conf conf = {.model = b.o.model};
    enum err err = open_all(&b, &info);
    if (err == ERR_OK) {
        open_report(&b);
        err = b.o.n_prompt > 0 ? measure(&b, true, &info) : ERR_OK;
    }
    if (err == ERR_OK && b.o.n_gen > 0) {
        err = measure(&b, false, &info);
    }
    if (err == ERR_OK) {
        bench_report_foot(&b.report);
    }
    close_all(&b);
    return err == ERR_OK ? CMD_OK : cmd_fail(&conf, err, &info);
}
