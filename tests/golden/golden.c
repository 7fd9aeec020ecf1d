/* Golden tests: compares every model of tests/golden/models on every back end and ISA with the float32 results of
 * Hugging Face transformers (make_golden.py, make_families.py). Prints a table, then `N passed, N failed`. -v: also the
 * errors of each prompt; -n: only the models that golden_models.h lists and that are missing; --backend NAME: only one
 * back end; --only TEXT: only models whose name contains the text.
 * A model marked WIDE runs on a device, with every ISA, in shards, in parts and behind a remote back end; any other one
 * on ref and with the best ISA: a device compiles for ten seconds for each, and `drivers` runs all its kernels. If a
 * model exists as GGUF too, its SafeTensors folder only shows that the folder is read correctly: one ISA is enough,
 * without threads, ranks or parts. So do models of float weights without high precision, which does not affect them.
 * ISAs between ref and the best one run with one thread; with --all every model runs everything.
 *
 * A model passes on a back end under these conditions for each prompt. The error of the logits after the last token is
 * within the back end's share of the logits' spread, and that of the prompt's log-probabilities within its bound. The
 * greedy continuation is equal. The bits do not depend on how the prompt is cut into batches, on 1 or 3 threads, on
 * another sequence, or on a back end in between with its own memory and thread (tests/support/remote_backend.h). In 2
 * and 4 shards (tests/support/sharded_backend.h) only values and continuation are compared, and all ranks must have the
 * same bits. The first prompt runs again with the layers cut in the middle, the first half on one back end and the rest
 * on another. For models that return embeddings (make_embeddings.py), the pooled states of the prompt and the bits of
 * all states are compared. For models with a prediction head (make_heads.py), the logits of its last row, its guesses,
 * and that its bits do not depend on pieces; a head of its own is NAME.draft.gguf (make_eagle.py), or for a folder
 * NAME.draft.hf, if there is one (make_assistants.py). The file exceeds 600 lines because all checks share one view of a
 * model. */
#include "engine/backend/backend_parts.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "engine/kernels/kern.h"
#include "engine/engine_internal.h"
#include "engine/model/model.h"
#include "engine/plan/plan_cut.h"
#include "tests/golden/golden_models.h"
#include "tests/support/remote_backend.h"
#include "tests/support/sharded_backend.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT = 128, N_GREEDY = 12, N_GUESSES = 4, MAX_MODELS = 512, N_PAGES = 16, MAX_ROWS = 96 };

/* Bounds by back end: the largest error of a logit as a share of the logits' spread (of a component of an embedding as
 * a share of the components' mean size), and that of a log-probability. ref differs from float32 only by its sums in
 * double. With high precision cpu keeps keys and values in 16 bits, opencl in halves, and activations for quantized
 * weights have 16 bits. Without it most activations have 8 bits, for which golden_models.h has separate bounds: then
 * the continuation can differ, but the bits must still not depend on neighbors, threads and pieces. */
static const struct bound {
    const char *backend;
    bool high_precision;
    double logits, logprobs;
    uint32_t n_ranks; /* more than 1: only with the best ISA */
} bounds[] = {
    {"ref", true, 1e-4, 1e-3, 1},    {"cpu", true, 2e-2, 2e-2, 1},    {"cpu", false, 2e-2, 2e-2, 1},
    {"ref", true, 1e-4, 1e-3, 2},    {"cpu", true, 2e-2, 2e-2, 2},    {"ref", true, 1e-4, 1e-3, 4},
    {"cpu", true, 2e-2, 2e-2, 4},    {"opencl", true, 2e-2, 5e-2, 1}, {"opencl", false, 2e-2, 5e-2, 1},
    {"opencl", true, 2e-2, 5e-2, 2},
};

static bool has_isas(const struct bound *b) { return strcmp(b->backend, "cpu") == 0 && b->n_ranks == 1; }

static bool is_device(const struct bound *b) { return strcmp(b->backend, "opencl") == 0; }

enum { N_BOUNDS = ARRAY_LEN(bounds), MAX_PROMPTS = 64, MAX_ISAS = 16 };

/* A row of the table: for each bound and ISA (0 for ref) the largest error of last logits, if tested. */
static struct row {
    const char *name;
    char arch[24];
    double worst[N_BOUNDS][MAX_ISAS];
    bool is_there[N_BOUNDS][MAX_ISAS], failed[N_BOUNDS][MAX_ISAS];
} table[MAX_MODELS];
static int n_rows;
static bool is_verbose;
static bool runs_all;
static const char *only_backend; /* OPTIONAL */

struct prompt {
    int n;
    const int32_t *ids, *greedy;
    const float *logits, *logprobs;
    const float *embedding; /* instead of the three above */
    const float *predict;   /* [plan_n_logits] of the prediction head; NULL: none */
    const int32_t *guesses; /* [N_GUESSES] */
};

/* A model on a back end. */
struct subject {
    const char *name;
    const struct backend *backend;
    const char *cpu;
    const struct bound *bound;
    const struct golden_model *known; /* its row of golden_models.h; NULL: none */
    struct row *row;
    int isa;
    struct plan *plan;
    const struct backend_parts *parts; /* of the composite back end, which runs only the first prompt */
    bool is_mixed;                     /* the parts are of two kinds: the bits differ from those of one */
    struct backend_model *model;
    int32_t n_vocab;
    float *logits; /* [MAX_ROWS][V] */
    float *hidden; /* [MAX_ROWS][D], requested instead of logits if `embeds` */
    bool embeds;
    enum wish { ALL_ROWS, LAST_ROW, NO_ROWS } wish; /* of which rows they are requested */
    bool is_second; /* the model also exists in the other format: a device gets the same rows */
    bool is_twin;   /* the model also exists in the other format, or with weights stored in another way */
    struct backend_row_stats stats[MAX_ROWS];
    int n_threads;
    uint64_t hash[MAX_PROMPTS]; /* of the logits of each prompt with one thread */
};

static int n_passed, n_failed;

static void report(const struct subject *s, bool ok, const char *what, double found, double allowed)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok) {
        s->row->failed[s->bound - bounds][s->isa] = true;
        printf("FAILED %s on %s/%s: %s: found %g, allowed %g\n", s->name, s->backend->name, s->cpu, what, found,
               allowed);
    }
}

static const void *tensor(const struct gguf *g, int i, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "prompt.%d.%s", i, what);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    return t == NULL ? NULL : t->data;
}

/* Begins rows [from, to) of ids as sequence 0 next to `companion` rows of a second sequence; the logits of all rows of
 * sequence 0 go to s->logits from row `at` on, or their states to s->hidden. */
static enum err begin(struct subject *s, const int32_t *ids, int from, int to, int companion, int at)
{
    static const int32_t pages[2][8] = {{3, 1, 4, 7, 5}, {2, 6, 0, 8, 9}}; /* unordered, so that tables matter */
    const int32_t *tables[2] = {pages[0], pages[1]};
    int32_t tokens[MAX_ROWS], pos[MAX_ROWS], seq[MAX_ROWS], rows[MAX_ROWS];
    int n = to - from, first = s->wish == LAST_ROW ? n - 1 : 0, n_wanted = s->wish == NO_ROWS ? 0 : n - first;
    for (int i = 0; i < n; i++) {
        tokens[i] = ids[from + i];
        pos[i] = from + i;
        seq[i] = 0;
        rows[i] = i;
    }
    for (int i = 0; i < companion; i++) {
        tokens[n + i] = (i * 37 + 5) % s->n_vocab;
        pos[n + i] = i;
        seq[n + i] = 1;
    }
    struct backend_batch b = {.n_rows = n + companion,
                              .tokens = tokens,
                              .pos = pos,
                              .seq = seq,
                              .n_seqs = 2,
                              .page_tables = tables,
                              .n_logits = s->embeds ? 0 : n_wanted,
                              .logit_rows = rows + first,
                              .logits = s->logits + (size_t)at * (size_t)s->n_vocab,
                              .stats = s->stats + at,
                              .n_hidden = s->embeds ? n_wanted : 0,
                              .hidden_rows = rows + first,
                              .hidden = s->hidden + (size_t)at * s->plan->n_embd};
    struct err_info info = {0};
    enum err err = s->backend->begin(s->model, &b, &info);
    if (err != ERR_OK) {
        printf("FAILED %s: begin: %s\n", s->name, info.text);
    }
    return err;
}

static enum err wait_for(struct subject *s)
{
    struct err_info info = {0};
    enum err err = s->backend->wait(s->model, &info);
    if (err != ERR_OK) {
        printf("FAILED %s: wait: %s\n", s->name, info.text);
    }
    return err;
}

/* Likewise, and waits. */
static enum err forward(struct subject *s, const int32_t *ids, int from, int to, int companion)
{
    TRY(begin(s, ids, from, to, companion, 0));
    return wait_for(s);
}

/* Records the error in the table, and prints a line with -v. */
static void note_error(struct subject *s, const struct prompt *p, double error, double logprob_error)
{
    double *cell = &s->row->worst[s->bound - bounds][s->isa];
    *cell = fmax(*cell, error);
    s->row->is_there[s->bound - bounds][s->isa] = true;
    if (is_verbose) {
        printf("  %-23s %-4s %-7s %s prompt %3d  %.1e %.1e\n", s->name, s->backend->name, s->cpu,
               s->bound->high_precision ? "high" : "fast", p->n, error, logprob_error);
    }
}

/* Returns whether activations have 8 bits, so that the continuation can differ. */
static bool is_coarse(const struct subject *s)
{
    return !s->bound->high_precision && s->known != NULL && s->known->fast_logits > 0;
}

static bool has_many_kinds(const struct subject *s) { return s->known != NULL && (s->known->formats & KINDS) != 0; }

static void check_values(struct subject *s, const struct prompt *p)
{
    double allowed = is_coarse(s) ? s->known->fast_logits : s->bound->logits;
    double allowed_lp = is_coarse(s) ? s->known->fast_logprobs : s->bound->logprobs;
    const float *last = s->logits + (size_t)(p->n - 1) * (size_t)s->n_vocab;
    double mean = 0, var = 0, worst = 0, worst_lp = 0;
    for (int v = 0; v < s->n_vocab; v++) {
        mean += p->logits[v] / s->n_vocab;
    }
    for (int v = 0; v < s->n_vocab; v++) {
        var += (p->logits[v] - mean) * (p->logits[v] - mean) / s->n_vocab;
        double off = fabs((double)last[v] - p->logits[v]);
        worst = off > worst || isnan(off) ? off : worst;
    }
    for (int t = 1; t < p->n; t++) {
        const float *row = s->logits + (size_t)(t - 1) * (size_t)s->n_vocab;
        double off = fabs((double)row[p->ids[t]] - s->stats[t - 1].logsumexp - p->logprobs[t]);
        worst_lp = off > worst_lp || isnan(off) ? off : worst_lp;
    }
    report(s, worst / sqrt(var) <= allowed, "last logits, share of their spread", worst / sqrt(var), allowed);
    report(s, worst_lp <= allowed_lp, "prompt log-probabilities", worst_lp, allowed_lp);
    note_error(s, p, worst / sqrt(var), worst_lp);
}

/* Returns the output of forward, and the size of a row. */
static const void *given(const struct subject *s, size_t *row_bytes)
{
    *row_bytes = (size_t)(s->embeds ? (int32_t)s->plan->n_embd : s->n_vocab) * sizeof(float);
    return s->embeds ? s->hidden : s->logits;
}

/* Replaces the pooled states by the output of the layers after pooling; returns its width. */
static size_t apply_dense(const struct subject *s, double **pooled)
{
    const struct plan_head *dense = &s->plan->dense;
    size_t d = s->plan->n_embd, width = plan_head_width(dense, s->plan->n_embd);
    struct engine_head *h;
    struct arena a;
    float *states = calloc(d, sizeof *states);
    arena_init(&a, 0, 0, MEM_GENERAL);
    if (dense->n != 0 && engine_head_load(&a, dense, &h, NULL) == ERR_OK) {
        for (size_t k = 0; k < d; k++) {
            states[k] = (float)(*pooled)[k];
        }
        double *room = calloc(engine_head_room(h), sizeof *room);
        const double *out = engine_head_run(h, states, room);
        free(*pooled);
        *pooled = calloc(width, sizeof **pooled);
        memcpy(*pooled, out, width * sizeof **pooled);
        free(room);
    }
    free(states);
    arena_fini(&a);
    return width;
}

static void check_embedding(struct subject *s, const struct prompt *p)
{
    size_t d = s->plan->n_embd;
    double sum = 0, worst = 0, *pooled = calloc(d, sizeof *pooled);
    bool is_mean = s->plan->pooling == PLAN_POOL_MEAN;
    for (int i = 0; i < p->n; i++) {
        bool counts = is_mean || i == (s->plan->pooling == PLAN_POOL_CLS ? 0 : p->n - 1);
        for (size_t k = 0; counts && k < d; k++) {
            pooled[k] += s->hidden[(size_t)i * d + k] / (is_mean ? p->n : 1);
        }
    }
    d = apply_dense(s, &pooled);
    for (size_t k = 0; k < d; k++) {
        sum += pooled[k] * pooled[k];
    }
    for (size_t k = 0; k < d; k++) {
        double off = fabs(pooled[k] / sqrt(sum) - p->embedding[k]) * sqrt((double)d);
        worst = off > worst || isnan(off) ? off : worst;
    }
    free(pooled);
    report(s, s->plan->pooling != PLAN_POOL_NONE && worst <= s->bound->logits, "embedding, share of its components",
           worst, s->bound->logits);
    note_error(s, p, worst, 0);
}

/* Checks that one thread and several give the same bits. */
static void check_threads(struct subject *s, const struct prompt *p, int i)
{
    size_t row_bytes;
    const unsigned char *bytes = given(s, &row_bytes);
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t k = 0; k < (size_t)p->n * row_bytes; k++) {
        h = (h ^ bytes[k]) * 0x100000001B3u;
    }
    if (s->n_threads == 1) {
        s->hash[i] = h;
    } else if (!s->is_mixed) {
        report(s, h == s->hash[i], "results that differ between one thread, or back end, and several", 1, 0);
    }
}

static int best_isa(void)
{
    int best = 0;
    for (int isa = 0; kern_isa_name(isa) != NULL; isa++) {
        best = kern_isa_is_there(isa) ? isa : best;
    }
    return best;
}

/* Checks that the bits do not depend on pieces and neighbors. The caller left the results of the whole prompt in
 * s->logits or s->hidden. A bidirectional model computes it in one piece, next to other sequences. */
static void check_bits(struct subject *s, const struct prompt *p)
{
    enum {
        N_ALONE = 12,
        N_SHORT = 2
    }; /* rows in batches of one, after all others in one batch; every row with --all */
    static const int chunks[] = {16, 1, 5, 31, 48};
    bool is_short = !runs_all && (s->is_twin || (!is_device(s->bound) && s->isa != best_isa()));
    size_t n_chunks = s->n_threads != 1 ? 1 : is_short ? N_SHORT : ARRAY_LEN(chunks); /* check_threads covers threads */
    size_t row_bytes;
    const void *now = given(s, &row_bytes);
    char *whole = malloc((size_t)p->n * row_bytes);
    memcpy(whole, now, (size_t)p->n * row_bytes);
    int differing = 0;
    for (size_t c = 0; c < n_chunks; c++) {
        int chunk = s->plan->is_bidirectional ? p->n : chunks[c];
        int first = chunk == 1 && !runs_all && p->n > N_ALONE ? p->n - N_ALONE : chunk;
        for (int from = 0, to = MIN_OF(first, p->n); from < p->n; from = to, to = MIN_OF(from + chunk, p->n)) {
            if (forward(s, p->ids, from, to, (int)c * 4) != ERR_OK) {
                break;
            }
            differing += memcmp(whole + (size_t)from * row_bytes, now, (size_t)(to - from) * row_bytes) != 0;
        }
    }
    report(s, differing == 0, "batches whose bits differ from the whole prompt's", differing, 0);
    free(whole);
}

/* Computes rows [from, to) with the results of fewer of them, next to `companion` others. */
static enum err compute(struct subject *s, enum wish wish, const int32_t *ids, int from, int to, int companion)
{
    s->wish = wish;
    enum err err = forward(s, ids, from, to, companion);
    s->wish = ALL_ROWS;
    return err;
}

enum { LEAST_FEWER = 40 }; /* tokens of a prompt for check_fewer */

/* Checks that rows of which nothing is requested store the same as others, and that a single row's results are the same.
 * The pages held other rows before. */
static void check_fewer(struct subject *s, const struct prompt *p)
{
    int half = (p->n + 1) / 2;
    int32_t other[MAX_PROMPT];
    size_t row_bytes;
    const void *now = given(s, &row_bytes);
    char *whole = malloc((size_t)p->n * row_bytes);
    const char *last = whole + (size_t)(p->n - 1) * row_bytes;
    for (int i = 0; i < p->n; i++) {
        other[i] = p->ids[p->n - 1 - i];
    }
    enum err err = forward(s, p->ids, 0, p->n, 0);
    memcpy(whole, now, (size_t)p->n * row_bytes);
    err = err == ERR_OK ? compute(s, NO_ROWS, other, 0, p->n, 0) : err;
    err = err == ERR_OK ? compute(s, NO_ROWS, p->ids, 0, half, 0) : err;
    err = err == ERR_OK && half < p->n ? forward(s, p->ids, half, p->n, 0) : err;
    bool is_same = err == ERR_OK && (half == p->n || memcmp(whole + (size_t)half * row_bytes, now,
                                                            (size_t)(p->n - half) * row_bytes) == 0);
    report(s, is_same, "rows after others without results, whose bits differ from the whole prompt's", !is_same, 0);
    err = err == ERR_OK ? compute(s, NO_ROWS, other, 0, p->n, 0) : err;
    err = err == ERR_OK ? compute(s, LAST_ROW, p->ids, 0, p->n, 5) : err;
    is_same = err == ERR_OK && memcmp(last, now, row_bytes) == 0;
    report(s, is_same, "last rows without other results, whose bits differ from the whole prompt's", !is_same, 0);
    free(whole);
}

/* Computes pieces, each begun before the previous one is waited for. */
static void check_begun(struct subject *s, const struct prompt *p)
{
    enum { PIECE = 7 };
    int piece = s->plan->is_bidirectional ? p->n : PIECE, begun = 0, done = 0;
    size_t row_bytes;
    const void *now = given(s, &row_bytes);
    char *whole = malloc((size_t)p->n * row_bytes);
    memcpy(whole, now, (size_t)p->n * row_bytes);
    enum err err = ERR_OK;
    for (int from = 0; from < p->n && err == ERR_OK; from += piece) {
        if (begun - done == REMOTE_MAX_BEGUN) {
            err = wait_for(s);
            done++;
        }
        err = err == ERR_OK ? begin(s, p->ids, from, MIN_OF(from + piece, p->n), 0, from) : err;
        begun += err == ERR_OK;
    }
    for (; done < begun; done++) {
        err = wait_for(s) == ERR_OK ? err : ERR_INTERNAL;
    }
    bool is_same = err == ERR_OK && memcmp(whole, now, (size_t)p->n * row_bytes) == 0;
    report(s, is_same, "batches begun before others were done that differ from the whole prompt", !is_same, 0);
    free(whole);
}

static void check_greedy(struct subject *s, const struct prompt *p)
{
    int32_t ids[MAX_PROMPT];
    memcpy(ids, p->ids, (size_t)p->n * sizeof *ids);
    int32_t next = s->stats[p->n - 1].argmax;
    int wrong = 0;
    for (int i = 0; i < N_GREEDY; i++) {
        wrong += next != p->greedy[i];
        ids[p->n + i] = next;
        if (i + 1 < N_GREEDY && forward(s, ids, p->n + i, p->n + i + 1, 0) != ERR_OK) {
            wrong++;
            break;
        }
        next = s->stats[0].argmax;
    }
    if (!is_coarse(s)) {
        report(s, wrong == 0, "wrong tokens in the greedy continuation", wrong, 0);
    }
}

/* --- prediction heads --------------------------------------------------------------------------------------------- */

static const int32_t head_pages[] = {3, 1, 4, 7, 5};

/* Computes rows [from, to) of ids with the model, or with the head if there is input; the logits go to s->logits. */
static bool run_part(struct subject *s, const int32_t *ids, int from, int to, const float *input, float *output)
{
    const int32_t *tables[] = {head_pages};
    int32_t pos[MAX_PROMPT], seq[MAX_PROMPT] = {0}, rows[MAX_PROMPT];
    size_t d = s->plan->output_width;
    for (int i = 0; i < to - from; i++) {
        pos[i] = from + i;
        rows[i] = i;
    }
    const struct backend_batch b = {.n_rows = to - from,
                                    .tokens = ids + from,
                                    .pos = pos,
                                    .seq = seq,
                                    .n_seqs = 1,
                                    .page_tables = tables,
                                    .n_logits = to - from,
                                    .logit_rows = rows,
                                    .logits = s->logits,
                                    .stats = s->stats,
                                    .predicts = input != NULL,
                                    .input = input != NULL ? input + (size_t)from * d : NULL,
                                    .output = output + (size_t)from * d};
    struct err_info info = {0};
    enum err err = backend_compute(s->backend, s->model, &b, &info);
    report(s, err == ERR_OK, "a batch for the prediction head", 1, 0);
    return err == ERR_OK;
}

/* Checks the head's guesses after rows ids of the prompt, each from its output for the one before. input: rows [MAX_PROMPT]
 * and a spare one. */
static void check_guesses(struct subject *s, const struct prompt *p, const int32_t *rows, float *input, float *output)
{
    int32_t ids[MAX_PROMPT];
    const int32_t *names = s->plan->guess_ids;
    size_t d = s->plan->output_width;
    bool in_place = s->plan->guesses_in_place, ok = true;
    int wrong = 0, at = p->n - 1;
    memcpy(ids, rows, (size_t)p->n * sizeof *ids);
    memcpy(input + MAX_PROMPT * d, input + (size_t)at * d, d * sizeof *input);
    for (int i = 0; i < N_GUESSES && ok; i++) {
        int32_t best = s->stats[i == 0 ? at : 0].argmax;
        int row = in_place ? at : at + i + 1;
        ids[row] = names != NULL ? names[best] : best;
        wrong += ids[row] != p->guesses[i];
        memcpy(input + (size_t)row * d, output + (size_t)(in_place ? row : row - 1) * d, d * sizeof *input);
        ok = run_part(s, ids, row, row + 1, input, output);
    }
    if (ok && !is_coarse(s)) {
        report(s, wrong == 0, "wrong guesses of the prediction head", wrong, 0);
    }
    memcpy(input + (size_t)at * d, input + MAX_PROMPT * d, d * sizeof *input);
}

/* Computes the prompt's rows of the model, then of the head: tokens and, as input, outputs of the rows before them. A head
 * that guesses in place has a row at each position for the token after it, in the end the first one generated. */
static bool run_both(struct subject *s, const struct prompt *p, int32_t ids[MAX_PROMPT], float *input, float *output)
{
    size_t d = s->plan->output_width;
    bool in_place = s->plan->guesses_in_place;
    memcpy(ids, p->ids, (size_t)p->n * sizeof *ids);
    if (!run_part(s, ids, 0, p->n, NULL, output)) {
        return false;
    }
    memcpy(input + (in_place ? 0 : d), output, (size_t)(in_place ? p->n : p->n - 1) * d * sizeof *input);
    if (in_place) {
        memmove(ids, ids + 1, (size_t)(p->n - 1) * sizeof *ids);
        ids[p->n - 1] = p->greedy[0];
    }
    return run_part(s, ids, 0, p->n, input, output);
}

static void check_prediction(struct subject *s, const struct prompt *p)
{
    size_t d = s->plan->output_width, v = (size_t)s->n_vocab, n = (size_t)p->n * v;
    size_t n_logits = plan_n_logits(s->plan, true);
    float *input = calloc(MAX_PROMPT + 1, d * sizeof *input), *output = calloc(MAX_PROMPT, d * sizeof *output);
    float *whole = malloc(n * sizeof *whole);
    double mean = 0, var = 0, worst = 0, allowed = is_coarse(s) ? s->known->fast_logits : s->bound->logits;
    int32_t ids[MAX_PROMPT];
    int differing = 0;
    bool ok = run_both(s, p, ids, input, output);
    memcpy(whole, s->logits, n * sizeof *whole);
    for (size_t k = 0; k < n_logits; k++) {
        mean += p->predict[k] / (double)n_logits;
    }
    for (size_t k = 0; k < n_logits; k++) {
        double off = fabs((double)whole[n - v + k] - p->predict[k]);
        var += (p->predict[k] - mean) * (p->predict[k] - mean) / (double)n_logits;
        worst = off > worst || isnan(off) ? off : worst;
    }
    report(s, ok && worst / sqrt(var) <= allowed, "the head's last logits, share of their spread", worst / sqrt(var),
           allowed);
    if (ok) {
        check_guesses(s, p, ids, input, output);
    }
    for (int from = 0, to; ok && from < p->n; from = to) {
        to = MIN_OF(from + 1 + from % 7, p->n);
        ok = run_part(s, ids, from, to, input, output);
        for (int i = 0; i < to - from; i++) {
            differing +=
                memcmp(whole + (size_t)(from + i) * v, s->logits + (size_t)i * v, n_logits * sizeof *whole) != 0;
        }
    }
    report(s, ok && differing == 0, "rows in pieces whose bits differ from the whole prompt's, of the head", differing,
           0);
    free(input);
    free(output);
    free(whole);
}

static void check_prompt(struct subject *s, const struct gguf *expect, int i)
{
    struct prompt p = {.ids = tensor(expect, i, "ids"),
                       .greedy = tensor(expect, i, "greedy"),
                       .logits = tensor(expect, i, "logits"),
                       .logprobs = tensor(expect, i, "logprobs"),
                       .embedding = tensor(expect, i, "embedding"),
                       .predict = tensor(expect, i, "predict"),
                       .guesses = tensor(expect, i, "guesses")};
    bool has_all = p.embedding != NULL || (p.greedy != NULL && p.logits != NULL && p.logprobs != NULL);
    char name[32];
    snprintf(name, sizeof name, "prompt.%d.ids", i);
    const struct gguf_tensor *ids = gguf_find_tensor(expect, name);
    if (ids == NULL || !has_all || ids->dims[0] + N_GREEDY > MAX_PROMPT) {
        report(s, false, "expected results present", 0, 1);
        return;
    }
    p.n = (int)ids->dims[0];
    s->embeds = p.embedding != NULL;
    if (forward(s, p.ids, 0, p.n, 0) != ERR_OK) {
        report(s, false, "forward", 0, 1);
        return;
    }
    (s->embeds ? check_embedding : check_values)(s, &p);
    if (s->bound->n_ranks == 1) {
        check_threads(s, &p, i);
    }
    if (!s->embeds) {
        check_greedy(s, &p);
    }
    if (s->bound->n_ranks > 1) {
        return; /* the agreement of ranks was checked */
    }
    if (p.predict != NULL && s->parts == NULL) { /* cut plans have no head */
        report(s, plan_predicts(s->plan) && p.guesses != NULL, "a prediction head", 0, 1);
        if (plan_predicts(s->plan) && p.guesses != NULL) {
            check_prediction(s, &p);
        }
    }
    if (forward(s, p.ids, 0, p.n, 0) != ERR_OK) {
        report(s, false, "forward", 0, 1);
        return;
    }
    check_bits(s, &p);
    bool is_repeated =
        p.n < LEAST_FEWER || (s->n_threads == 1 && !is_device(s->bound)); /* check_threads covers threads */
    if (!s->plan->is_bidirectional && s->parts == NULL && (runs_all || !is_repeated)) {
        check_fewer(s, &p);
    }
    if (s->backend == &remote_backend || is_device(s->bound)) {
        (void)forward(s, p.ids, 0, p.n, 0);
        check_begun(s, &p);
    }
}

/* Opens the subject's back end with `n_threads` and runs all prompts. */
static void check_backend(struct subject *s, const struct gguf *expect, int n_threads)
{
    struct backend_config cfg = {.cpu = s->cpu,
                                 .parts = s->parts,
                                 .high_precision = s->bound->high_precision,
                                 .n_threads = n_threads,
                                 .n_pages = N_PAGES,
                                 .n_states = 2,
                                 .max_rows = MAX_ROWS,
                                 .max_logits = MAX_ROWS};
    struct err_info info = {0};
    if (s->backend->open(s->plan, &cfg, &s->model, &info) != ERR_OK) {
        printf("FAILED %s: %s\n", s->name, info.text);
        report(s, false, "opened", 0, 1);
        return;
    }
    uint64_t n_prompts = 0;
    s->n_threads = n_threads;
    if (gguf_get_u64(expect, "golden.n_prompts", &n_prompts, &info) != ERR_OK || n_prompts == 0 ||
        n_prompts > MAX_PROMPTS) {
        n_prompts = 0;
        report(s, false, "prompts in the expected results", 0, 1);
    }
    for (int i = 0; i < (s->parts != NULL ? 1 : (int)n_prompts); i++) {
        check_prompt(s, expect, i);
    }
    s->backend->close(&s->model);
}

/* More threads than a small machine has CPUs: then they sleep at barriers and do not spin, which would slow the tests
 * that run at the same time. */
enum { SEVERAL_THREADS = 3 };

/* Returns the layer before which to cut the model: the middle one, or the last possible one before it; 0: none, because
 * layers share keys and values across all of them. */
static int32_t find_cut(const struct plan *p)
{
    struct err_info info;
    for (int32_t k = (int32_t)plan_main_layers(p) / 2; k > 0; k--) {
        struct plan *parts[2] = {NULL};
        bool fits = plan_cut(p, 0, k - 1, &parts[0], &info) == ERR_OK &&
                    plan_cut(p, k, (int32_t)plan_main_layers(p) - 1, &parts[1], &info) == ERR_OK;
        plan_free(&parts[0]);
        plan_free(&parts[1]);
        if (fits) {
            return k;
        }
    }
    return 0;
}

/* Checks the layers on two back ends: for one kind the bits are equal, else errors are within the bound of cpu. */
static void check_parts(struct subject *s, const struct gguf *expect)
{
    static const struct backend *const pairs[][2] = {
        {&backend_cpu, &backend_cpu}, {&backend_ref, &backend_cpu}, {&backend_cpu, &backend_ref}};
    int32_t k = find_cut(s->plan), n_layers = (int32_t)plan_main_layers(s->plan);
    if (n_layers > 1) {
        report(s, k > 0, "a place to cut the layers at", 0, 1);
    }
    for (size_t i = 0; k > 0 && i < (s->bound->high_precision ? ARRAY_LEN(pairs) : 1); i++) {
        const struct backend_parts parts = {.n = 2,
                                            .at = {{pairs[i][0], 0, k - 1, ""}, {pairs[i][1], k, n_layers - 1, ""}}};
        s->backend = backend_of_parts(&parts);
        s->parts = &parts;
        s->is_mixed = pairs[i][0] != pairs[i][1];
        check_backend(s, expect, SEVERAL_THREADS);
    }
    s->parts = NULL;
    s->is_mixed = false;
}

static bool runs_wide(const struct subject *s)
{
    return runs_all || s->known == NULL || (s->known->formats & WIDE) != 0;
}

/* Checks one back end with every ISA, each with one thread and with several; or as several ranks. */
static void check_bound(struct subject *s, const struct gguf *expect)
{
    bool all = has_isas(s->bound);
    if (is_device(s->bound) && !runs_wide(s)) {
        return;
    }
    /* The weight types are decoded in the same way, and products with second terms run with other models. */
    if (is_device(s->bound) && s->bound->high_precision && has_many_kinds(s) && !runs_all) {
        return;
    }
    /* The bound without high precision could only differ by quantized activations (backend.h), and float weights have
     * none. */
    bool is_as_high = all && !s->bound->high_precision && !is_coarse(s) && !runs_all;
    if (s->is_twin || is_as_high) {
        s->isa = all ? best_isa() : 0;
        s->cpu = all ? kern_isa_name(s->isa) : "-";
        bool is_asked = !is_device(s->bound) || (s->bound->high_precision && !s->is_second);
        if (s->bound->n_ranks == 1 && is_asked) {
            check_backend(s, expect, 1);
        }
        return;
    }
    if (s->bound->n_ranks > 1 && !runs_wide(s)) {
        return;
    }
    if (s->bound->n_ranks > 1) {
        const struct backend *whole = s->backend;
        s->isa = 0; /* its column */
        s->cpu = kern_isa_name(best_isa());
        s->backend = sharded_backend_of(whole, s->bound->n_ranks);
        check_backend(s, expect, 1);
        s->backend = whole;
        return;
    }
    for (int isa = 0; all ? kern_isa_name(isa) != NULL : isa == 0; isa++) {
        bool is_best = !all || isa == best_isa(); /* what threads share does not depend on the ISA */
        if (all && (!kern_isa_is_there(isa) || (!is_best && !runs_wide(s)))) {
            continue;
        }
        s->cpu = all ? kern_isa_name(isa) : "-";
        s->isa = isa;
        check_backend(s, expect, 1);
        if (!is_device(s->bound) && (is_best || runs_all)) {
            check_backend(s, expect, SEVERAL_THREADS);
        }
    }
    if (is_device(s->bound) || !runs_wide(s)) { /* a device has its own memory, and no threads */
        return;
    }
    const struct backend *here = s->backend; /* repeat the last ISA with a separate memory and thread */
    s->backend = remote_backend_of(here);
    check_backend(s, expect, SEVERAL_THREADS);
    if (all) {
        check_parts(s, expect);
    }
    s->backend = here;
}

/* Returns whether `name` is `stem`, then a '.' or, with and_more, a '-', then anything. */
static bool has_stem(const char *name, const char *stem, bool and_more)
{
    size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 && name[n] == (and_more ? '-' : '.');
}

static unsigned format_of(const char *name) { return strcmp(strchr(name, '.'), ".gguf") == 0 ? GGUF : FOLDER; }

static const struct golden_model *find_known(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(golden_models); i++) {
        const struct golden_model *m = &golden_models[i];
        if ((m->formats & format_of(name)) != 0 && has_stem(name, m->name, false)) {
            return m;
        }
    }
    return NULL;
}

static void start_row(struct row *r, const char *name, const struct gguf *g)
{
    struct gguf_str arch = {0};
    r->name = name;
    if (gguf_get_str_or_null(g, "general.architecture", &arch, NULL) == ERR_OK && arch.data != NULL) {
        snprintf(r->arch, sizeof r->arch, "%.*s", (int)MIN_OF(arch.len, sizeof r->arch - 1), arch.data);
    }
}

/* Prints the columns of a model, or (NULL) the headings. */
static void print_columns(const struct row *r)
{
    for (size_t b = 0; b < N_BOUNDS; b++) {
        for (int isa = 0; has_isas(&bounds[b]) ? kern_isa_name(isa) != NULL : isa == 0; isa++) {
            char name[24];
            const char *of = bounds[b].high_precision ? bounds[b].backend : "fast";
            if (!kern_isa_is_there(isa)) {
                continue;
            }
            if (has_isas(&bounds[b])) {
                snprintf(name, sizeof name, "%s/%s", of, kern_isa_name(isa));
            } else {
                snprintf(name, sizeof name, bounds[b].n_ranks > 1 ? "%s/%u" : "%s", of, bounds[b].n_ranks);
            }
            if (r == NULL || r->failed[b][isa] || !r->is_there[b][isa]) {
                printf(" %12s", r == NULL ? name : r->failed[b][isa] ? "FAILED" : "-");
            } else {
                printf(" %12.1e", r->worst[b][isa]);
            }
        }
    }
}

/* Prints family x format x back end x ISA: the largest error of a prompt's last logits, as a share of their spread. */
static void print_table(void)
{
    printf("Table: largest error of last logits or embeddings, share of their spread: ref, cpu with --high-precision, "
           "cpu without (fast); /2, /4: in so many shards\n");
    for (int isa = 0; kern_isa_name(isa) != NULL; isa++) {
        if (!kern_isa_is_there(isa)) {
            printf("this CPU does not have %s\n", kern_isa_name(isa));
        }
    }
    printf("%-13s %-11s %-22s", "family", "format", "model");
    print_columns(NULL);
    for (int i = 0; i < n_rows; i++) {
        const struct row *r = &table[i];
        int stem = (int)strcspn(r->name, ".");
        printf("\n%-13s %-11s %-22.*s", r->arch, format_of(r->name) == GGUF ? "GGUF" : "SafeTensors", stem, r->name);
        print_columns(r);
    }
    printf("\n");
}

/* Writes the path of the model's head, if it has one of its own: a folder's can be a folder. */
static bool find_draft(const char *folder, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%.*s.draft.hf", folder, (int)strcspn(name, "."), name);
    if (format_of(name) == FOLDER && access(path, F_OK) == 0) {
        return true;
    }
    snprintf(path, 512, "%s/%.*s.draft.gguf", folder, (int)strcspn(name, "."), name);
    return access(path, F_OK) == 0;
}

/* Checks a model of the folder: NAME.gguf, or NAME.hf, a SafeTensors folder; NAME.expect.gguf is for both. */
static void check_model(const char *folder, const char *name)
{
    char path[512];
    struct gguf *g = NULL, *expect = NULL, *draft = NULL;
    struct plan *draft_plan = NULL;
    struct subject s = {.name = name, .backend = backend_at(0), .cpu = "-"};
    struct err_info info = {0};
    snprintf(path, sizeof path, "%s/%.*s.gguf", folder, (int)strcspn(name, "."), name);
    s.is_second = !runs_all && format_of(name) == FOLDER && access(path, F_OK) == 0;
    s.is_twin = s.is_second;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum err err = model_open(path, &g, &info);
    snprintf(path, sizeof path, "%s/%.*s.expect.gguf", folder, (int)strcspn(name, "."), name);
    err = err != ERR_OK ? err : gguf_open(path, &expect, &info);
    if (find_draft(folder, name, path)) {
        err = err != ERR_OK ? err : model_open(path, &draft, &info);
        err = err != ERR_OK ? err : model_build_drafting(g, draft, 0, &s.plan, &draft_plan, &info);
    } else {
        err = err != ERR_OK ? err : model_build_predicting(g, 0, &s.plan, &info);
    }
    if (err != ERR_OK) {
        printf("FAILED %s: %s: %s\n", name, err_code(err), info.text);
        n_failed++;
        gguf_close(&g);
        gguf_close(&expect);
        gguf_close(&draft);
        return;
    }
    s.row = &table[n_rows++];
    s.known = find_known(name);
    s.is_twin |= !runs_all && s.known != NULL && (s.known->formats & MORE) != 0;
    start_row(s.row, name, g);
    s.n_vocab = (int32_t)s.plan->n_vocab;
    s.logits = malloc((size_t)MAX_ROWS * (size_t)s.n_vocab * sizeof(float));
    s.hidden = malloc((size_t)MAX_ROWS * s.plan->n_embd * sizeof(float));
    for (int b = 0; (s.backend = backend_at(b)) != NULL; b++) {
        s.bound = NULL;
        if (only_backend != NULL && strcmp(only_backend, s.backend->name) != 0) {
            continue;
        }
        for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
            if (strcmp(bounds[i].backend, s.backend->name) == 0) {
                s.bound = &bounds[i];
                bool runs = s.bound->n_ranks == 1 || !plan_predicts(s.plan); /* a shard has no head */
                if (runs && (!is_device(s.bound) || s.bound->high_precision || is_coarse(&s))) { /* else as with it */
                    check_bound(&s, expect);
                }
            }
        }
        if (s.bound == NULL) {
            printf("FAILED %s: no bound for back end %s\n", name, s.backend->name);
            n_failed++;
        }
    }
    free(s.logits);
    free(s.hidden);
    plan_free(&s.plan);
    plan_free(&draft_plan);
    gguf_close(&g);
    gguf_close(&expect);
    gguf_close(&draft);
}

static void report_lack(bool ok, const char *what, const char *name, const char *ending)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok) {
        printf("FAILED: %s %s%s\n", what, name, ending);
    }
}

/* Checks that every family has its own model in both formats, and that the models and formats are exactly those of
 * golden_models.h. */
static void check_names(char names[][64], int n_names)
{
    static const char *const endings[] = {[GGUF] = ".gguf", [FOLDER] = ".hf"};
    for (int f = 0; model_family_at(f) != NULL; f++) {
        unsigned found = 0;
        for (int i = 0; i < n_names; i++) {
            found |= has_stem(names[i], model_family_at(f)->arch, true) ? format_of(names[i]) : 0;
        }
        report_lack((found & GGUF) != 0, "no GGUF model of the family", model_family_at(f)->arch, "");
        report_lack((found & FOLDER) != 0, "no SafeTensors model of the family", model_family_at(f)->arch, "");
    }
    for (size_t k = 0; k < ARRAY_LEN(golden_models); k++) {
        unsigned found = 0;
        for (int i = 0; i < n_names; i++) {
            found |= has_stem(names[i], golden_models[k].name, false) ? format_of(names[i]) : 0;
        }
        for (unsigned format = GGUF; format <= FOLDER; format *= 2) {
            if ((golden_models[k].formats & format) != 0) {
                report_lack((found & format) != 0, "there is no", golden_models[k].name, endings[format]);
            }
        }
    }
    for (int i = 0; i < n_names; i++) {
        report_lack(find_known(names[i]) != NULL, "golden_models.h has no", names[i], "");
    }
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* Lists the names of the models in the folder; returns their number. */
static int list_models(const char *folder, char names[][64])
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const char *dot = strchr(e->d_name, '.');
        bool is_model = dot != NULL && (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".hf") == 0);
        size_t length = strlen(e->d_name);
        if (is_model && (length >= sizeof names[0] || n == MAX_MODELS)) {
            printf("FAILED: expected at most %d models with names of at most %zu bytes, found %s\n", MAX_MODELS,
                   sizeof names[0] - 1, e->d_name);
            n_failed++;
        } else if (is_model) {
            memcpy(names[n++], e->d_name, length + 1);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(names, (size_t)n, sizeof names[0], by_name);
    return n;
}

int main(int argc, char **argv)
{
    static char names[MAX_MODELS][64];
    const char *folder = "tests/golden/models", *only_name = NULL;
    bool names_only = false;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "-v") == 0) {
            is_verbose = true;
        } else if (strcmp(argv[i], "-n") == 0) {
            names_only = true;
        } else if (strcmp(argv[i], "--all") == 0) {
            runs_all = true;
        } else if (strcmp(argv[i], "--backend") == 0 && has_value) {
            only_backend = argv[++i];
        } else if (strcmp(argv[i], "--only") == 0 && has_value) {
            only_name = argv[++i];
        } else {
            folder = argv[i];
        }
    }
    int n = list_models(folder, names);
    for (int i = 0; i < n && !names_only; i++) {
        if (only_name == NULL || strstr(names[i], only_name) != NULL) {
            check_model(folder, names[i]);
        }
    }
    if (!names_only) {
        print_table();
    }
    if (only_name == NULL) {
        check_names(names, n);
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed == 0 && n_passed > 0 ? 0 : 1;
}
