/* `infcgi bench`: measures how fast a model's back end prefills and decodes, and prints llama-bench's format, so that
 * rows of both fit in one table. Options take lists, as llama-bench's do: one row per combination. Runs the back end
 * directly, without scheduler and sampling.
 *
 * With --accept a step also computes drafts, and the draft model or the prediction head makes them, if there is one. What comes true
 * is drawn: this measures the cost of drafts, not how good they are. */
#include "engine/backend/backend_layers.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/names.h"
#include "engine/base/pool.h"
#include "engine/base/rng.h"
#include "engine/format/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan_ops.h"
#include "engine/plan/plan_quantize.h"
#include "engine/quant/panel.h"
#include "engine/quant/quant.h"
#include "engine/tensor/dtype.h"
#include "fcgi/cmd/bar.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/cmd/model/bench_report.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SEQS = CONF_MAX_BENCH_SEQS, DEFAULT_BATCH = 512, DEFAULT_DRAFT = 3 };

/* Minimum cost of a pass over the layers, for the roofline columns of tests/bench. */
struct work {
    double body_bytes, head_bytes; /* packed weights read: by the layers, by the logits */
    double body_ops, head_ops;     /* multiplications and additions per row */
};

/* A loaded model. */
struct bench {
    const struct conf *o;
    struct gguf *gguf;
    struct gguf *draft_file; /* with --accept and --draft-model */
    struct plan *draft_plan;
    struct plan *plan;
    struct backend_parts parts;
    const struct backend *backend; /* of these */
    struct backend_model *model;   /* for n_batch rows and n_threads threads */
    struct backend_measure measure;
    struct backend_device device;
    struct backend_rates rates;
    bool has_rates;
    struct backend_counts counts; /* for a generation */
    struct bar bar;
    struct bench_report report;
    struct work work;
    int n_batch, n_threads, n_gpu_layers;
    int max_seqs;
    struct arena arena; /* of the following arrays */
    int32_t *pages;     /* [max_seqs][pages of a sequence] */
    int32_t seq_pages;
    int filled[MAX_SEQS];        /* positions of the sequence that hold the prompt's tokens */
    int32_t *tokens, *pos, *seq; /* [rows of a step] */
    int32_t *logit_rows;
    const int32_t *tables[MAX_SEQS];
    float *logits;
    struct backend_row_stats *stats; /* [max_seqs * (n_draft + 1)] */
    /* With --accept: drafts of a step; draws so far; of each sequence its next position, and its drafts that came
     * true. */
    int n_draft;
    uint64_t n_draws;
    int at[MAX_SEQS];
    int32_t n_drafts[MAX_SEQS], n_true[MAX_SEQS];
    uint64_t n_drafted; /* of the timed runs: drafts at each position ... */
    uint64_t *accepted; /* [n_draft] ... and those that came true */
    float *edge;        /* [rows][plan.output_width] zeros: input of the head; then its output */
};

static int largest(const struct conf_list *l)
{
    int max = 0;
    for (int i = 0; i < l->n; i++) {
        max = MAX_OF(max, l->at[i]);
    }
    return max;
}

static bool is_drafting(const struct bench *b) { return b->o->accept >= 0; }

/* drafts: the rows end with n_draft drafts per sequence. predicts: the head computes them. */
enum pass { PLAIN, DRAFTS, PREDICTS };

static enum err forward_as(struct bench *b, enum pass pass, int n_rows, int n_seqs, int n_logits, struct err_info *info)
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
                                  .stats = b->stats,
                                  .n_drafts = pass == DRAFTS ? b->n_drafts : NULL,
                                  .n_true = pass == DRAFTS ? b->n_true : NULL,
                                  .predicts = pass == PREDICTS,
                                  .input = b->edge,
                                  .output = pass == PREDICTS ? b->edge : NULL};
    return backend_compute(b->backend, b->model, &batch, info);
}

static enum err forward(struct bench *b, int n_rows, int n_seqs, int n_logits, struct err_info *info)
{
    return forward_as(b, PLAIN, n_rows, n_seqs, n_logits, info);
}

/* Computes positions from .. from+n-1 of sequence `seq`, and the last one's logits if want_logits. */
static enum err prefill(struct bench *b, int seq, int from, int n, bool want_logits, struct err_info *info)
{
    const int32_t *table = b->pages + (size_t)seq * (size_t)b->seq_pages, *first = b->tables[0];
    b->tables[0] = table;
    enum err err = ERR_OK;
    for (int done = 0; done < n && err == ERR_OK;) {
        int rows = MIN_OF(n - done, b->n_batch);
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
    if (b->filled[seq] >= from) {
        b->filled[seq] = MAX_OF(b->filled[seq], from + n);
    }
    return err;
}

/* Adds the counts of the last step. */
static void count(struct bench *b)
{
    struct backend_info of;
    b->backend->info(b->model, &of);
    b->counts.launches += of.counts.launches;
    b->counts.weight_bytes += of.counts.weight_bytes;
    b->counts.cache_bytes += of.counts.cache_bytes;
}

/* Runs n steps of the first n_seqs sequences together, after `from` positions. */
static enum err decode(struct bench *b, int n_seqs, int from, int n, struct err_info *info)
{
    for (int i = 0; i < n_seqs; i++) {
        b->filled[i] = MIN_OF(b->filled[i], from);
    }
    for (int step = 0; step < n; step++) {
        for (int i = 0; i < n_seqs; i++) {
            b->tokens[i] = (int32_t)((uint32_t)(step * 31 + i) * 7919u % b->plan->n_vocab);
            b->pos[i] = from + step;
            b->seq[i] = i;
            b->logit_rows[i] = i;
        }
        TRY(forward(b, n_seqs, n_seqs, n_seqs, info));
        count(b);
    }
    return ERR_OK;
}

/* --- drafts ------------------------------------------------------------------------------------------------------- */

/* Adds n rows of a sequence from position `at` on. */
static int add_rows(struct bench *b, int row, int seq, int at, int n)
{
    for (int i = 0; i < n; i++, row++) {
        b->tokens[row] = (int32_t)((uint32_t)(at + i + seq) * 7919u % b->plan->n_vocab);
        b->pos[row] = at + i;
        b->seq[row] = seq;
    }
    return row;
}

/* Draws how many drafts come true. */
static int draw(struct bench *b)
{
    int n = 0;
    while (n < b->n_draft && rng_uniform(1, 0, b->n_draws++) < b->o->accept) {
        b->accepted[n++]++;
    }
    b->n_drafted++;
    return n;
}

/* Runs the head as after a step: first for what came true, then once per further guess. */
static enum err guess(struct bench *b, int n_seqs, struct err_info *info)
{
    bool in_place = b->plan->guesses_in_place;
    int n_rows = 0;
    for (int i = 0; i < n_seqs; i++) {
        int before = in_place ? 0 : b->n_true[i];
        n_rows = add_rows(b, n_rows, i, b->at[i] - before - in_place, before + 1);
        b->logit_rows[i] = n_rows - 1;
    }
    TRY(forward_as(b, PREDICTS, n_rows, n_seqs, n_seqs, info));
    for (int k = 1; k < b->n_draft; k++) {
        for (int i = 0; i < n_seqs; i++) {
            b->logit_rows[i] = add_rows(b, i, i, in_place ? b->at[i] - 1 : b->at[i] + k, 1) - 1;
        }
        TRY(forward_as(b, PREDICTS, n_seqs, n_seqs, n_seqs, info));
    }
    return ERR_OK;
}

static void forget_drafts(struct bench *b)
{
    b->n_drafted = 0;
    memset(b->accepted, 0, (size_t)b->n_draft * sizeof *b->accepted);
}

/* Like decode, with drafts, until there are n tokens per sequence on average. */
static enum err decode_drafting(struct bench *b, int n_seqs, int from, int n, struct err_info *info)
{
    for (int i = 0; i < n_seqs; i++) {
        b->filled[i] = MIN_OF(b->filled[i], from);
        b->at[i] = from;
        b->n_true[i] = 0;
        b->n_drafts[i] = b->n_draft;
    }
    for (int left = n * n_seqs; left > 0;) {
        int n_rows = 0;
        for (int i = 0; i < n_seqs; i++) {
            n_rows = add_rows(b, n_rows, i, b->at[i], b->n_draft + 1);
        }
        for (int row = 0; row < n_rows; row++) {
            b->logit_rows[row] = row;
        }
        TRY(forward_as(b, DRAFTS, n_rows, n_seqs, n_rows, info));
        count(b);
        for (int i = 0; i < n_seqs; i++) {
            b->n_true[i] = draw(b);
            b->at[i] += b->n_true[i] + 1;
            left -= b->n_true[i] + 1;
        }
        TRY(plan_predicts(b->plan) ? guess(b, n_seqs, info) : ERR_OK);
    }
    return ERR_OK;
}

/* --- what a run has to read and compute ------------------------------------------------------------------------- */

static void count_step(struct bench *b, const struct plan_step *s)
{
    const struct plan_operand *o;
    plan_weight_id id;
    bool is_head = s->rows == PLAN_LOGIT_ROWS;
    for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
        if ((o->flags & PLAN_MULTIPLIES) != 0) {
            const struct plan_weight *w = &b->plan->weights[id];
            double share = plan_weight_share(b->plan, o);
            uint32_t n_panels = (w->n_out + PANEL_ROWS - 1) / PANEL_ROWS;
            double bytes = n_panels * (double)panel_bytes(quant_ops(w->type)->panel, w->n_in);
            *(is_head ? &b->work.head_bytes : &b->work.body_bytes) += share * bytes;
            *(is_head ? &b->work.head_ops : &b->work.body_ops) += share * 2.0 * w->n_in * w->n_out;
        }
    }
}

/* Returns the bytes of keys and values that one row at position `pos` reads. */
static double kv_bytes(const struct bench *b, int pos)
{
    double stored = 0, bytes = 0;
    for (int32_t i = 0; i < (int32_t)b->plan->n_layers; i++) {
        struct plan_kv kv = plan_kv_of(b->plan, i);
        stored += kv.layer == i ? (double)kv.n_kv_heads * kv.head_dim + kv.index_dim : 0;
    }
    double component_bytes = stored != 0 ? (double)backend_bytes_all(&b->measure).page / KV_PAGE_TOKENS / stored : 0;
    for (int32_t i = 0; i < plan_main_steps(b->plan); i++) {
        bytes += component_bytes * plan_cache_read(b->plan, &b->plan->steps[i], pos);
    }
    return bytes;
}

static void count_run(const struct bench *b, struct bench_row *row)
{
    const struct work *w = &b->work;
    row->matmul_ops = row->n_prompt * w->body_ops + (row->n_prompt > 0 ? w->head_ops : 0) +
                      (double)row->n_gen * row->n_seqs * (w->body_ops + w->head_ops);
    row->read_bytes = row->n_gen * (w->body_bytes + w->head_bytes);
    for (int i = 0; i < row->n_gen; i++) {
        row->read_bytes += row->n_seqs * kv_bytes(b, row->n_depth + i);
    }
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

/* Measures one untimed and the timed runs of a test and prints its row. */
static enum err measure(struct bench *b, struct bench_row row, struct err_info *info)
{
    uint64_t samples_ns[CONF_MAX_REPETITIONS];
    bool is_prefill = row.n_prompt > 0;
    enum err (*generate)(struct bench *, int, int, int, struct err_info *) = is_drafting(b) ? decode_drafting : decode;
    row.n_draft = is_prefill ? 0 : b->n_draft;
    row.accept = b->o->accept;
    row.n_samples = (int)b->o->repetitions;
    row.samples_ns = samples_ns;
    row.n_batch = b->n_batch;
    row.n_threads = b->n_threads;
    row.n_gpu_layers = b->n_gpu_layers;
    for (int s = 0; s < row.n_seqs; s++) {
        if (b->filled[s] < row.n_depth) {
            TRY(prefill(b, s, b->filled[s], row.n_depth - b->filled[s], false, info));
        }
    }
    for (int i = -1; i < row.n_samples; i++) {
        b->counts = (struct backend_counts){0};
        if (i == 0) {
            forget_drafts(b);
        }
        uint64_t start = clock_now_ns();
        TRY(is_prefill ? prefill(b, 0, row.n_depth, row.n_prompt, true, info)
                       : generate(b, row.n_seqs, row.n_depth, row.n_gen, info));
        uint64_t elapsed_ns = clock_now_ns() - start;
        if (i >= 0) {
            samples_ns[i] = MAX_OF(elapsed_ns, 1);
        }
    }
    row.counts = b->counts;
    row.n_drafted = b->n_drafted;
    row.accepted = b->accepted;
    count_run(b, &row);
    bench_report_row(&b->report, &row);
    return ERR_OK;
}

/* Measures prompts, then generations, at one depth; 0 tokens: no such test. */
static enum err measure_depth(struct bench *b, int depth, struct err_info *info)
{
    const struct conf *o = b->o;
    for (int i = 0; i < o->n_prompt.n; i++) {
        if (o->n_prompt.at[i] > 0) {
            struct bench_row row = {.n_prompt = o->n_prompt.at[i], .n_depth = depth, .n_seqs = 1};
            TRY(measure(b, row, info));
        }
    }
    for (int i = 0; i < o->n_gen.n; i++) {
        for (int s = 0; s < o->n_seqs.n && o->n_gen.at[i] > 0; s++) {
            struct bench_row row = {.n_gen = o->n_gen.at[i], .n_depth = depth, .n_seqs = o->n_seqs.at[s]};
            TRY(measure(b, row, info));
        }
    }
    return ERR_OK;
}

/* --- opening and closing ---------------------------------------------------------------------------------------- */

static enum err allocate(struct bench *b)
{
    const struct conf *o = b->o;
    b->max_seqs = largest(&o->n_seqs);
    b->n_draft = !is_drafting(b) ? 0 : o->draft_max != 0 ? (int)o->draft_max : DEFAULT_DRAFT;
    int n_gen = largest(&o->n_gen) * (is_drafting(b) ? b->max_seqs : 1) + 2 * b->n_draft; /* one can get all tokens */
    b->seq_pages = (largest(&o->n_depth) + MAX_OF(largest(&o->n_prompt), n_gen)) / KV_PAGE_TOKENS + 1;
    int n_results = b->max_seqs * (b->n_draft + 1);
    int n_rows = MAX_OF(MAX_OF(largest(&o->batch_sizes), DEFAULT_BATCH), n_results);
    b->pages = arena_zalloc_array(&b->arena, (size_t)(b->seq_pages * b->max_seqs), sizeof *b->pages);
    b->tokens = arena_zalloc_array(&b->arena, (size_t)n_rows, sizeof *b->tokens);
    b->pos = arena_zalloc_array(&b->arena, (size_t)n_rows, sizeof *b->pos);
    b->seq = arena_zalloc_array(&b->arena, (size_t)n_rows, sizeof *b->seq);
    b->logit_rows = arena_zalloc_array(&b->arena, (size_t)n_rows, sizeof *b->logit_rows);
    b->logits = arena_zalloc_array(&b->arena, (size_t)n_results * b->plan->n_vocab, sizeof *b->logits);
    b->stats = arena_zalloc_array(&b->arena, (size_t)n_results, sizeof *b->stats);
    b->edge = arena_zalloc_array(&b->arena, (size_t)n_results * MAX_OF(b->plan->output_width, 1u), sizeof *b->edge);
    b->accepted = arena_zalloc_array(&b->arena, (size_t)MAX_OF(b->n_draft, 1), sizeof *b->accepted);
    TRY(arena_ok(&b->arena));
    for (int32_t i = 0; i < b->seq_pages * b->max_seqs; i++) {
        b->pages[i] = i;
    }
    for (int s = 0; s < b->max_seqs; s++) {
        b->tables[s] = b->pages + (size_t)s * (size_t)b->seq_pages;
    }
    return ERR_OK;
}

/* An encoder cannot decode, and can have learned position embeddings. */
static enum err check_encoder(const struct bench *b, struct err_info *info)
{
    if (!b->plan->has_logits && largest(&b->o->n_gen) > 0) {
        return err_set(info, ERR_CONFIG, NULL,
                       "n-gen: expected 0, because the model only computes embeddings, found %d",
                       largest(&b->o->n_gen));
    }
    int longest = largest(&b->o->n_depth) + largest(&b->o->n_prompt);
    if (!b->plan->has_logits && longest > (int)b->plan->n_ctx_train) {
        return err_set(info, ERR_CONFIG, NULL, "n-prompt: expected at most the model's %u tokens, found %d",
                       b->plan->n_ctx_train, longest);
    }
    return ERR_OK;
}

static enum err open_file(struct bench *b, struct err_info *info)
{
    TRY(model_open(b->o->model, &b->gguf, info));
    bool has_draft = is_drafting(b) && b->o->draft_model != NULL;
    if (has_draft) {
        TRY(model_open(b->o->draft_model, &b->draft_file, info));
        TRY(model_build_drafting(b->gguf, b->draft_file, 0, &b->plan, &b->draft_plan, info));
    } else {
        TRY((is_drafting(b) ? model_build_predicting : model_build)(b->gguf, 0, &b->plan, info));
    }
    TRY(check_encoder(b, info));
    TRY(plan_quantize(b->plan, b->o->quantize, info));
    return allocate(b);
}

static bool on_progress(void *arg, float fraction)
{
    bar_set(arg, (double)fraction);
    return true;
}

static void drop_file_pages(void *bench, const void *data, uint64_t n)
{
    const struct bench *b = bench;
    gguf_drop(b->gguf, data, n);
    if (b->draft_file != NULL) {
        gguf_drop(b->draft_file, data, n);
    }
}

/* Measures the device's own rates, if it reports them; a large model can leave too little memory for that. */
static enum err rate(struct bench *b, struct err_info *info)
{
    enum err err = b->backend->rate != NULL ? b->backend->rate(b->model, &b->rates, info) : ERR_NONE;
    b->has_rates = err == ERR_OK;
    if (err == ERR_NOMEM) {
        fprintf(stderr, "note: the device is not measured by itself: %s\n", info->text);
    }
    return err == ERR_NOMEM || err == ERR_NONE ? ERR_OK : err;
}

/* Counts layers in a device's own memory. */
static int count_gpu_layers(const struct backend_parts *parts, const struct backend_config *cfg)
{
    int n = 0;
    for (const struct backend_part *p = parts->at; p < parts->at + parts->n; p++) {
        struct backend_device d;
        struct err_info ignored;
        bool has_memory = backend_part_device(p, cfg, &d, &ignored) == ERR_OK && d.bytes[BACKEND_DEVICE] != 0;
        n += has_memory ? p->last - p->first + 1 : 0;
    }
    return n;
}

/* Opens the back end for steps of n_batch rows on n_threads threads, replacing the previous one. */
static enum err open_model(struct bench *b, int n_batch, int n_threads, struct err_info *info)
{
    if (b->model != NULL) {
        b->backend->close(&b->model);
    }
    struct backend_config cfg = {.device = b->o->device,
                                 .cpu = b->o->cpu,
                                 .parts = &b->parts,
                                 .n_threads = n_threads,
                                 .n_pages = b->seq_pages * b->max_seqs,
                                 .n_states = b->max_seqs,
                                 .max_drafts = b->plan->recurrent_floats != 0 ? b->n_draft : 0,
                                 .max_rows = MAX_OF(n_batch, b->max_seqs * (b->n_draft + 1)),
                                 .max_logits = b->max_seqs * (b->n_draft + 1),
                                 .k_type = b->o->cache_type_k,
                                 .v_type = b->o->cache_type_v,
                                 .pack_cache = strcmp(b->o->pack_cache, "off") != 0 ? b->o->pack_cache : NULL,
                                 .source = {.head = gguf_map(b->gguf)->data,
                                            .head_bytes = (size_t)gguf_data_offset(b->gguf),
                                            .bytes = gguf_file_bytes(b->gguf),
                                            .mtime_ns = gguf_mtime_ns(b->gguf),
                                            .part = plan_predicts(b->plan)},
                                 .progress = on_progress,
                                 .progress_arg = &b->bar,
                                 .tell = cmd_note,
                                 .weight_done = drop_file_pages,
                                 .weight_done_arg = b};
    TRY(backend_parts_parse(b->o->backend, "backend", plan_main_layers(b->plan), &b->parts, info));
    TRY(backend_layers_place(b->o->gpu_layers, b->plan, &cfg, &b->parts, info));
    b->backend = backend_of_parts(&b->parts);
    TRY(b->parts.n > 1 ? plan_drop_prediction(b->plan, info) : ERR_OK);
    TRY(backend_device_of(b->backend, &cfg, &b->device, info));
    TRY(b->backend->measure(b->plan, &cfg, &b->measure, info));
    bar_begin(&b->bar);
    enum err err = b->backend->open(b->plan, &cfg, &b->model, info);
    bar_end(&b->bar);
    TRY(err);
    TRY(rate(b, info));
    memset(b->filled, 0, sizeof b->filled);
    b->n_batch = n_batch;
    b->n_threads = n_threads;
    b->n_gpu_layers = count_gpu_layers(&b->parts, &cfg);
    return ERR_OK;
}

/* Sets the model's type in llama-bench's words, its bytes and parameters. */
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
    const struct conf *o = b->o;
    b->report = (struct bench_report){.out = stdout,
                                      .model_path = o->model,
                                      .kernels = b->measure.kernels,
                                      .cpu_info = b->device.name,
                                      .rates = b->has_rates ? &b->rates : NULL,
                                      .k_type = b->measure.k_type,
                                      .v_type = b->measure.v_type,
                                      .has_types = o->cache_type_k != NULL || o->cache_type_v != NULL,
                                      .has_batches = o->batch_sizes.n > 1,
                                      .has_seqs = b->max_seqs > 1};
    b->report.format = (enum bench_format)names_find(bench_format_name, o->output);
    describe(&b->report, b->gguf);
    bench_report_head(&b->report);
}

static enum err run_all(struct bench *b, struct err_info *info)
{
    const struct conf *o = b->o;
    for (int i = 0; i < o->batch_sizes.n; i++) {
        int n_batch = o->batch_sizes.at[i] != 0 ? o->batch_sizes.at[i] : DEFAULT_BATCH;
        for (int t = 0; t < o->thread_counts.n; t++) {
            int n_threads = o->thread_counts.at[t] != 0 ? o->thread_counts.at[t] : pool_cpu_count();
            TRY(open_model(b, n_batch, n_threads, info));
            if (i == 0 && t == 0) {
                for (int32_t k = 0; k < plan_main_steps(b->plan); k++) {
                    count_step(b, &b->plan->steps[k]);
                }
                open_report(b);
            }
            for (int d = 0; d < o->n_depth.n; d++) {
                TRY(measure_depth(b, o->n_depth.at[d], info));
            }
        }
    }
    bench_report_foot(&b->report);
    return ERR_OK;
}

static void close_all(struct bench *b)
{
    if (b->model != NULL) {
        b->backend->close(&b->model);
    }
    plan_free(&b->plan);
    plan_free(&b->draft_plan);
    gguf_close(&b->draft_file);
    gguf_close(&b->gguf);
    arena_fini(&b->arena);
}

int cmd_bench(const struct program *p, struct conf *conf)
{
    struct bench b = {.o = conf};
    struct err_info info = {0};
    (void)p;
    arena_init(&b.arena, 0, 0, MEM_GENERAL);
    enum err err = open_file(&b, &info);
    err = err != ERR_OK ? err : run_all(&b, &info);
    close_all(&b);
    return cmd_fail(conf, err, &info);
}
