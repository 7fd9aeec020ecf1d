/* The OpenCL back end: weights, KV cache, states and activations in the memory of a device. A batch is a series of
 * launches in an in-order queue; the host waits only to read its results. The device gets all data of a batch in one
 * write before the launches. */
#include "opencl/opencl_internal.h"
#include "opencl/selftest.h"

#include "engine/backend/rope_angles.h"
#include "engine/base/machine.h"
#include "engine/base/mem.h"
#include "engine/plan/plan_ops.h"
#include "engine/tensor/dtype.h"
#include "opencl/inventory.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- devices ------------------------------------------------------------------------------------------------------ */

static enum err opencl_probe(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    const struct inventory *v = inventory_get();
    int device;
    *out = (struct backend_device){.bytes = {machine_memory_bytes(), 0}};
    TRY(inventory_choose(v, cfg->device, i, &device, out->choice, info));
    const struct device_caps *c = &v->probe.devices[device];
    snprintf(out->name, sizeof out->name, "%s", inventory_name(c));
    (void)inventory_id(v, device, out->id);
    (void)inventory_device_note(v, device, out->note);
    out->is_shared[BACKEND_DEVICE] = inventory_is_integrated(v, device);
    out->bytes[BACKEND_DEVICE] = (size_t)(c->free_bytes != 0 ? c->free_bytes : c->memory_bytes);
    return ERR_OK;
}

static const char *opencl_option_name(int i)
{
    static const char *const names[] = {"high-precision", "device", "gpu-layers", "pack-cache"};
    return i < (int)ARRAY_LEN(names) ? names[i] : NULL;
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Returns the bytes of rows of n floats. */
static uint64_t rows_bytes(const struct backend_model *m, uint32_t n)
{
    return (uint64_t)opencl_rows(m) * n * sizeof(float);
}

/* Returns the bytes of codes of rows of n components. */
static uint64_t codes_bytes(const struct backend_model *m, uint32_t n)
{
    return (uint64_t)opencl_rows(m) * (n / PANEL_BLOCK) * 2 * ACT_WORDS * sizeof(int32_t);
}

static enum err lay_out_bufs(struct backend_model *m, struct err_info *info)
{
    for (int32_t i = 0; i < m->plan->n_bufs; i++) {
        struct opencl_buf *b = &m->bufs[i];
        b->stride = opencl_round_up(m->plan->bufs[i].width, OPENCL_ALIGN);
        TRY(vram_place(m->vram, VRAM_ACTIVATIONS, rows_bytes(m, b->stride), m->plan->bufs[i].name, &b->floats, info));
        TRY(vram_place(m->vram, VRAM_ACTIVATIONS, codes_bytes(m, b->stride), m->plan->bufs[i].name, &b->codes, info));
    }
    return ERR_OK;
}

/* Returns the pieces of a row of the batch's logits. */
static uint32_t pieces_of(const struct backend_model *m, const struct backend_batch *b)
{
    return opencl_n_pieces(plan_n_logits(m->plan, b->predicts));
}

/* Returns the maximum words of the results of a row of logits. */
static size_t result_words(const struct backend_model *m)
{
    return (size_t)m->n_pieces * PIECE_WORDS + 2 * (size_t)MAX_BEST;
}

static enum err lay_out_results(struct backend_model *m, struct err_info *info)
{
    uint64_t n_logits = m->plan->has_logits ? (uint64_t)m->cfg.max_logits : 0, n_vocab = m->plan->n_vocab;
    uint64_t k = m->plan->moe.n_used; /* per row */
    uint64_t hidden = m->plan->has_hidden ? rows_bytes(m, m->plan->n_embd) : 0;
    const struct {
        uint64_t bytes;
        const char *what;
        int32_t *id;
    } places[] = {
        {rows_bytes(m, m->made_stride) * k, "rows inside of experts", &m->made_floats},
        {codes_bytes(m, m->made_stride) * k, "rows inside of experts", &m->made_codes},
        {rows_bytes(m, m->has_up_made ? m->made_stride : 0) * k, "rows inside of experts", &m->up_made},
        {rows_bytes(m, m->results_stride) * k, "what experts make", &m->results},
        {rows_bytes(m, 1) * k, "rows of experts", &m->picks},
        {(rows_bytes(m, 1) * k + 4) * 3, "rows of experts", &m->tiles},
        {rows_bytes(m, m->qkv_stride), "queries, keys and values", &m->qkv},
        {rows_bytes(m, m->up_stride), "a product", &m->up},
        {m->partial_bytes, "parts of the attention", &m->partial},
        {m->score_bytes, "scores of positions", &m->scores},
        {n_logits * n_vocab * sizeof(float), "logits", &m->logits},
        {n_logits * m->n_pieces * MAX_BEST * sizeof(int32_t), "pieces of logits", &m->lists},
        {n_logits * result_words(m) * sizeof(float), "statistics of logits", &m->logit_results},
        {hidden, "hidden rows", &m->hidden},
        {rows_bytes(m, m->plan->input_width), "input rows", &m->input},
        {rows_bytes(m, m->plan->output_width), "output rows", &m->output},
    };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        TRY(vram_place(m->vram, VRAM_ACTIVATIONS, places[i].bytes, places[i].what, places[i].id, info));
    }
    return ERR_OK;
}

/* Lays out everything that does not depend on a weight's values or the device's memory. Opens the device only if
 * `opens`. */
static enum err lay_out(struct backend_model *m, bool opens, struct err_info *info)
{
    const char *k_type, *v_type;
    TRY(backend_check_types(m->plan, info));
    TRY(opencl_kv_types(m, &k_type, &v_type, info)); /* report errors before using a device */
    if (m->of != NULL) {
        m->device = m->of->device;
        m->programs = m->of->programs;
    } else {
        TRY((opens ? device_open : device_find)(m->cfg.device, &m->device, info));
        TRY(program_set_new(&m->device, &m->cfg, &m->programs, info));
    }
    TRY(vram_new(&m->device.caps, &m->vram, info));
    TRY(opencl_weights_lay_out(m, info));
    TRY(opencl_kv_lay_out(m, info));
    backend_set_state_bytes(m->plan, &m->cfg, &m->bytes);
    TRY(vram_place(m->vram, VRAM_STATES, (m->bytes.state + m->bytes.drafts) * (size_t)m->cfg.n_states,
                   "recurrent states", &m->states, info));
    TRY(lay_out_bufs(m, info));
    m->n_pieces = opencl_n_pieces(m->plan->n_vocab);
    m->is_dry = true;
    TRY(opencl_steps_compile(m, info));
    m->is_dry = false;
    return lay_out_results(m, info);
}

static void opencl_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    if (m == NULL) {
        return;
    }
    if (m->device.queue != NULL) {
        clFinish(m->device.queue);
    }
    for (int i = 0; i < OPENCL_MAX_BEGUN; i++) {
        if (m->slots[i].done != NULL) {
            clReleaseEvent(m->slots[i].done);
        }
        mem_free(m->slots[i].words);
        mem_free(m->slots[i].stats);
        mem_free(m->slots[i].input);
    }
    if (m->batch != NULL) {
        clReleaseMemObject(m->batch);
    }
    opencl_steps_free(m);
    vram_free(&m->vram);
    if (m->of == NULL) {
        program_set_free(&m->programs);
        device_close(&m->device);
    }
    mem_free(m->weights);
    mem_free(m->kvs);
    mem_free(m);
    *model = NULL;
}

/* of: OPTIONAL, whose device and programs it shares. opens: false for measuring. So there are six parameters. */
static enum err make_model(const struct plan *plan, const struct backend_config *cfg, const struct backend_model *of,
                           bool opens, struct backend_model **out, struct err_info *info)
{
    struct backend_model *m = *out = mem_zalloc(sizeof *m, MEM_MODEL);
    TRY_MEM_FOR(m != NULL, info, "out of memory for the OpenCL back end");
    m->plan = plan;
    m->cfg = *cfg;
    m->of = of;
    enum err err = lay_out(m, opens, info);
    if (err != ERR_OK) {
        opencl_close(out);
    }
    return err;
}

static enum err opencl_measure(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                               struct err_info *info)
{
    struct backend_model *m;
    TRY(make_model(plan, cfg, NULL, false, &m, info));
    const char *k_type = "", *v_type = "";
    enum err err = opencl_kv_types(m, &k_type, &v_type, info);
    *out = (struct backend_measure){.kernels = "opencl"};
    snprintf(out->k_type, sizeof out->k_type, "%s", k_type);
    snprintf(out->v_type, sizeof out->v_type, "%s", v_type);
    out->bytes[BACKEND_HOST].activations = opencl_weights_staged(m); /* while opening, the maximum */
    out->bytes[BACKEND_DEVICE] = (struct backend_bytes){
        .weights = vram_bytes(m->vram, VRAM_WEIGHTS),
        .page = m->bytes.page,
        .window = m->bytes.window,
        .state = m->bytes.state,
        .drafts = m->bytes.drafts,
        .activations = vram_bytes(m->vram, VRAM_ACTIVATIONS),
    };
    opencl_close(&m);
    return err;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Returns the words of a batch of the largest size, without its page tables. */
static size_t fixed_words(const struct backend_model *m)
{
    size_t rows = (size_t)m->cfg.max_rows, n = BATCH_WORDS + 16 * rows + (size_t)m->cfg.max_rows * SEQ_WORDS;
    for (int32_t i = 0; i < m->plan->n_ropes; i++) {
        n += rows * (m->plan->ropes[i].n_rot + 1);
    }
    return n;
}

/* Makes a buffer on the device for a batch of this many words; discards the old one. */
static enum err make_batch_buffer(struct backend_model *m, size_t words, struct err_info *info)
{
    cl_int code;
    cl_mem mem = clCreateBuffer(m->device.context, CL_MEM_READ_ONLY, words * sizeof(int32_t), NULL, &code);
    TRY(ocl_check(code, "clCreateBuffer", info));
    if (m->batch != NULL) {
        clReleaseMemObject(m->batch);
    }
    m->batch = mem;
    m->cap_batch_words = 0; /* until all kernels refer to it */
    for (size_t i = 0; i < m->n_launches && code == CL_SUCCESS; i++) {
        code = m->launches[i].kernel != NULL ? clSetKernelArg(m->launches[i].kernel, 0, sizeof m->batch, &m->batch)
                                             : CL_SUCCESS;
    }
    TRY(ocl_check(code, "clSetKernelArg", info));
    m->cap_batch_words = words;
    return ERR_OK;
}

static enum err make_slots(struct backend_model *m, struct err_info *info)
{
    for (int i = 0; i < OPENCL_MAX_BEGUN; i++) {
        struct opencl_slot *s = &m->slots[i];
        s->cap_words = fixed_words(m);
        s->words = mem_zalloc_array(s->cap_words, sizeof *s->words, MEM_SCRATCH);
        s->stats = mem_zalloc_array((size_t)m->cfg.max_logits * result_words(m) + 1, sizeof *s->stats, MEM_SCRATCH);
        s->input = mem_zalloc_array((size_t)m->cfg.max_rows * m->plan->input_width + 1, sizeof(float), MEM_SCRATCH);
        TRY_MEM_FOR(s->words != NULL && s->stats != NULL && s->input != NULL, info, "out of memory for batches");
    }
    return make_batch_buffer(m, fixed_words(m) + 1024, info);
}

static enum err open_model(struct backend_model *m, struct err_info *info)
{
    TRY(vram_take(m->vram, &m->device, info));
    TRY(program_build_all(m->programs, info));
    TRY(m->of == NULL ? selftest_run(m, info) : ERR_OK);
    TRY(make_slots(m, info));
    TRY(opencl_steps_compile(m, info));
    return opencl_weights_load(m, info);
}

enum err opencl_open_beside(const struct backend_model *of, const struct plan *plan, const struct backend_config *cfg,
                            struct backend_model **out, struct err_info *info)
{
    *out = NULL;
    TRY(make_model(plan, cfg, of, true, out, info));
    enum err err = open_model(*out, info);
    if (err != ERR_OK) {
        opencl_close(out);
    }
    return err;
}

static enum err opencl_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                            struct err_info *info)
{
    *out = NULL;
    TRY(backend_check_ranks(plan, cfg, info));
    return opencl_open_beside(NULL, plan, cfg, out, info);
}

/* --- a batch ------------------------------------------------------------------------------------------------------ */

/* Words written in sequence. */
struct writer {
    int32_t *words;
    size_t n;
};

static int32_t *take_words(struct writer *w, size_t n)
{
    int32_t *at = w->words + w->n;
    w->n += n;
    return at;
}

/* Takes [n] words, and writes their offset to the header word. */
static int32_t *take_array(struct writer *w, int header, int32_t n)
{
    w->words[header] = (int32_t)w->n;
    return take_words(w, (size_t)n);
}

static void put_array(struct writer *w, int header, const int32_t *from, int32_t n)
{
    int32_t *to = take_array(w, header, n);
    if (n > 0) {
        memcpy(to, from, (size_t)n * sizeof *from);
    }
}

/* Returns the row after the last of the sequence of row i. */
static int32_t end_of_seq(const struct backend_batch *b, int32_t i)
{
    int32_t end = i + 1;
    while (end < b->n_rows && b->seq[end] == b->seq[i]) {
        end++;
    }
    return end;
}

/* Writes what rows of logits request in addition to their statistics. */
static void put_wants(const struct backend_model *m, const struct backend_batch *b, struct writer *w)
{
    int32_t at = b->n_logits * (int32_t)pieces_of(m, b) * PIECE_WORDS;
    int32_t *to = take_array(w, BATCH_AT_WANTS, 2 * b->n_logits);
    for (int32_t i = 0; i < b->n_logits; i++, to += 2) {
        int32_t wants = b->wants != NULL ? b->wants[i] : BACKEND_ALL_LOGITS;
        to[0] = wants != BACKEND_ALL_LOGITS ? wants : 0;
        to[1] = at;
        at += 2 * to[0];
    }
    w->words[BATCH_RESULTS] = at;
}

/* Writes page tables, sequences, and the fields of rows that refer to them. */
static void put_seqs(struct backend_model *m, const struct backend_batch *b, struct writer *w)
{
    int32_t n_seqs = 0, copy = 0, *last = take_array(w, BATCH_AT_LAST, b->n_rows);
    int32_t *tables[2] = {take_array(w, BATCH_AT_TABLE, b->n_rows), take_array(w, BATCH_AT_WINDOW_TABLE, b->n_rows)};
    int32_t *seqs = take_array(w, BATCH_AT_SEQS, b->n_seqs * SEQ_WORDS);
    for (int32_t i = 0, end; i < b->n_rows; i = end, n_seqs++) {
        int32_t seq = b->seq[i], state = b->states != NULL ? b->states[seq] : seq;
        end = end_of_seq(b, i);
        int32_t *s = seqs + (size_t)n_seqs * SEQ_WORDS;
        s[SEQ_FIRST] = i;
        s[SEQ_END] = end;
        s[SEQ_STATE] = state;
        s[SEQ_FROM] = b->pos[i] == 0 ? -1 : b->begin_states != NULL ? b->begin_states[seq] : state;
        s[SEQ_COPY] = copy;
        while (copy < b->n_copies && b->copy_rows[copy] < end) {
            copy++;
        }
        s[SEQ_COPIES_END] = copy;
        s[SEQ_CERTAIN] = end - backend_n_drafts(b, seq);
        s[SEQ_TRUE] = backend_n_true(b, seq);
        size_t n_pages = (size_t)b->pos[end - 1] / KV_PAGE_TOKENS + 1;
        for (int is_local = false; is_local <= true; is_local++) {
            for (int32_t k = i; k < end; k++) {
                tables[is_local][k] = (int32_t)w->n;
            }
            if (*backend_page_bytes(&m->bytes, is_local) != 0) { /* a layer has such pages */
                memcpy(take_words(w, n_pages), backend_table(b, is_local, seq), n_pages * sizeof *last);
            }
        }
        for (int32_t k = i; k < end; k++) {
            last[k] = m->plan->is_bidirectional ? b->pos[end - 1] : b->pos[k];
        }
    }
    w->words[BATCH_SEQS] = n_seqs;
}

/* Chooses the rows that attention computes together: those of a sequence in blocks; a single remaining row
 * separately. */
static void put_blocks(const struct backend_batch *b, struct writer *w)
{
    int32_t *h = w->words, n_singles = 0, n_blocks = 0;
    int32_t *order = take_array(w, BATCH_AT_ORDER, b->n_rows), *end = order + b->n_rows;
    h[BATCH_AT_BLOCKS] = (int32_t)w->n;
    for (int32_t i = 0, n; i < b->n_rows; i += n) {
        n = MIN_OF(end_of_seq(b, i) - i, ATTENTION_BLOCK);
        if (n == 1) {
            order[n_singles++] = i;
            continue;
        }
        int32_t *block = take_words(w, 2);
        block[0] = i;
        block[1] = n;
        n_blocks++;
        for (int32_t k = i; k < i + n; k++) {
            *--end = k;
        }
    }
    h[BATCH_SINGLES] = n_singles;
    h[BATCH_BLOCKS] = n_blocks;
}

static void put_ropes(const struct backend_model *m, const struct backend_batch *b, struct writer *w)
{
    float cosines[PLAN_MAX_HEAD / 2], sines[PLAN_MAX_HEAD / 2];
    for (int32_t r = 0; r < m->plan->n_ropes; r++) {
        const struct plan_rope *rope = &m->plan->ropes[r];
        uint32_t n = rope->n_rot / 2;
        w->n += w->n % 2; /* pairs of floats are loaded together */
        float *out = (float *)(void *)take_array(w, BATCH_AT_ROPES + r, b->n_rows * (int32_t)n * 2);
        for (int32_t i = 0; i < b->n_rows; i++) {
            rope_angles(rope, b->pos[i], cosines, sines);
            for (uint32_t k = 0; k < n; k++, out += 2) {
                out[0] = cosines[k];
                out[1] = sines[k];
            }
        }
        w->words[BATCH_AT_QUERY_SCALES + r] = 0;
        if (rope->query_beta != 0) {
            float *scales = (float *)(void *)take_array(w, BATCH_AT_QUERY_SCALES + r, b->n_rows);
            for (int32_t i = 0; i < b->n_rows; i++) {
                scales[i] = rope_query_scale(rope, b->pos[i]);
            }
        }
    }
}

/* Returns the most parts of the attention that a row has. */
static int32_t count_splits(const struct backend_batch *b)
{
    int32_t most = 0;
    for (int32_t i = 0; i < b->n_rows; i++) {
        most = MAX_OF(most, b->pos[i]);
    }
    return most / ATTENTION_SPLIT + 1;
}

/* Allocates memory for a batch's words in the slot and on the device. */
static enum err reserve(struct backend_model *m, const struct backend_batch *b, struct opencl_slot *s,
                        struct err_info *info)
{
    size_t n = fixed_words(m) + (size_t)b->n_seqs * SEQ_WORDS;
    for (int32_t i = 0; i < b->n_rows; i = end_of_seq(b, i)) {
        n += (size_t)(1 + (m->bytes.window != 0)) * ((size_t)b->pos[end_of_seq(b, i) - 1] / KV_PAGE_TOKENS + 1);
    }
    if (n > s->cap_words) {
        int32_t *more = mem_realloc(s->words, 2 * n * sizeof *more, MEM_SCRATCH);
        TRY_MEM_FOR(more != NULL, info, "out of memory for a batch");
        s->words = more;
        s->cap_words = 2 * n;
    }
    return n > m->cap_batch_words ? make_batch_buffer(m, 2 * n, info) : ERR_OK;
}

/* Writes the batch's data for the kernels to the device. */
static enum err write_batch(struct backend_model *m, const struct backend_batch *b, struct opencl_slot *s,
                            struct err_info *info)
{
    struct writer w = {.words = s->words, .n = BATCH_WORDS};
    int32_t *h = w.words;
    h[BATCH_ROWS] = b->n_rows;
    h[BATCH_LOGIT_ROWS] = b->n_logits;
    h[BATCH_HIDDEN_ROWS] = b->n_hidden;
    h[BATCH_SPLITS] = count_splits(b);
    put_array(&w, BATCH_AT_TOKENS, b->tokens, b->n_rows);
    put_array(&w, BATCH_AT_POS, b->pos, b->n_rows);
    put_array(&w, BATCH_AT_PICKED, b->logit_rows, b->n_logits);
    put_array(&w, BATCH_AT_PICKED_HIDDEN, b->hidden_rows, b->n_hidden);
    int32_t *copies = take_array(&w, BATCH_AT_COPIES, 2 * b->n_copies);
    for (int32_t i = 0; i < b->n_copies; i++) {
        copies[2 * i] = b->copy_rows[i];
        copies[2 * i + 1] = b->copy_states[i];
    }
    put_wants(m, b, &w);
    put_seqs(m, b, &w);
    put_blocks(b, &w);
    put_ropes(m, b, &w);
    cl_command_queue q = m->device.queue;
    TRY(ocl_check(clEnqueueWriteBuffer(q, m->batch, CL_FALSE, 0, w.n * sizeof *w.words, w.words, 0, NULL, NULL),
                  "clEnqueueWriteBuffer", info));
    size_t n_input = (size_t)b->n_rows * m->plan->input_width * sizeof(float);
    if (n_input == 0 || plan_predicts(m->plan) != b->predicts) {
        return ERR_OK;
    }
    memcpy(s->input, b->input, n_input);
    return ocl_check(clEnqueueWriteBuffer(q, vram_at(m->vram, m->input), CL_FALSE, 0, n_input, s->input, 0, NULL, NULL),
                     "clEnqueueWriteBuffer", info);
}

/* Returns the work-groups of a launch in the third dimension, for this many rows of its kind. */
static int32_t count_groups(const struct backend_model *m, const struct opencl_launch *l, const struct opencl_slot *s,
                            int32_t rows)
{
    int32_t picks = rows * (int32_t)m->plan->moe.n_used, tile = (int32_t)l->tile;
    switch (l->by) {
    case OPENCL_BY_SEQS:
        return s->words[BATCH_SEQS];
    case OPENCL_BY_PICKS:
        return picks;
    case OPENCL_BY_TILES: /* an expert's last tile can be short */
        return MIN_OF(picks, picks / tile + (int32_t)m->plan->moe.n_experts);
    case OPENCL_BY_SINGLES:
        return s->words[BATCH_SINGLES];
    case OPENCL_BY_BLOCKS:
        return s->words[BATCH_BLOCKS] * (ATTENTION_BLOCK / tile);
    case OPENCL_ONCE:
        return 1;
    default:
        return (rows + tile - 1) / tile;
    }
}

/* Replaces src by the sums over all ranks. */
static enum err meet_ranks(struct backend_model *m, const struct plan_step *step, int32_t n_rows, struct err_info *info)
{
    const struct opencl_buf *buf = &m->bufs[step->src];
    size_t bytes = (size_t)MAX_OF(n_rows, 1) * buf->stride * sizeof(float); /* other ranks wait for it even then */
    cl_mem mem = vram_at(m->vram, buf->floats);
    float *rows = mem_alloc(bytes, MEM_SCRATCH);
    TRY_MEM_FOR(rows != NULL, info, "out of memory for rows that ranks sum up");
    enum err err = ocl_check(clEnqueueReadBuffer(m->device.queue, mem, CL_TRUE, 0, bytes, rows, 0, NULL, NULL),
                             "clEnqueueReadBuffer", info);
    if (err == ERR_OK) {
        err = m->cfg.reduce(m->cfg.reduce_arg, rows, n_rows, m->plan->bufs[step->src].width, buf->stride);
        err = err == ERR_OK ? ERR_OK : backend_reduce_failed(err, info);
    }
    if (err == ERR_OK) {
        err = ocl_check(clEnqueueWriteBuffer(m->device.queue, mem, CL_TRUE, 0, bytes, rows, 0, NULL, NULL),
                        "clEnqueueWriteBuffer", info);
    }
    mem_free(rows);
    return err;
}

/* Returns the positions that any of n rows sees, which are contiguous. */
static uint64_t count_seen(const struct opencl_launch *l, const int32_t *words, int32_t row, int32_t n)
{
    const int32_t *own = words + words[BATCH_AT_POS] + row, *last = words + words[BATCH_AT_LAST] + row;
    int32_t window = l->step->attention.window, ahead = l->step->attention.ahead, from = INT32_MAX, to = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t skips = MIN_OF(l->step->attention.skips, own[i]);
        from = MIN_OF(from, MAX_OF(plan_first_seen(l->step, own[i]), skips));
        to = MAX_OF(to, (window > 0 ? MIN_OF(own[i] + ahead, last[i]) : last[i]) + 1);
    }
    return (uint64_t)(to - from);
}

/* Returns the positions whose keys and values a launch of attention reads, for each row or block of rows. */
static uint64_t count_positions(const struct opencl_launch *l, const int32_t *words)
{
    const int32_t *order = words + words[BATCH_AT_ORDER], *blocks = words + words[BATCH_AT_BLOCKS];
    int32_t n = words[l->by == OPENCL_BY_SINGLES ? BATCH_SINGLES : BATCH_ROWS], tile = (int32_t)l->tile;
    uint64_t all = 0;
    if (l->by != OPENCL_BY_BLOCKS) {
        for (int32_t i = 0; i < n; i++) {
            all += count_seen(l, words, order[i], 1);
        }
        return all;
    }
    for (int32_t i = 0; i < words[BATCH_BLOCKS]; i++) {
        for (int32_t k = 0; k < blocks[2 * i + 1]; k += tile) {
            all += count_seen(l, words, blocks[2 * i] + k, MIN_OF(tile, blocks[2 * i + 1] - k));
        }
    }
    return all;
}

static enum err launch_all(struct backend_model *m, const struct backend_batch *b, const struct opencl_slot *s,
                           struct err_info *info)
{
    int32_t splits = s->words[BATCH_SPLITS];
    m->counts = (struct backend_counts){0};
    bool has_best = s->words[BATCH_RESULTS] > b->n_logits * (int32_t)pieces_of(m, b) * PIECE_WORDS;
    bool has_drafts = false;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        has_drafts = has_drafts || backend_n_drafts(b, i) > 0;
    }
    bool in_parts = b->n_rows <= OPENCL_PARTS_ROWS && (int64_t)b->n_rows * splits <= OPENCL_MAX_PARTS;
    size_t end = b->predicts ? m->n_launches : m->n_main;
    if (!backend_has_results(m->plan, b)) {
        end = b->predicts ? m->n_storing_predict : m->n_storing;
    }
    for (size_t i = b->predicts ? m->n_main : 0; i < end; i++) {
        const struct opencl_launch *l = &m->launches[i];
        int32_t rows = s->words[l->rows];
        if (l->kernel == NULL) {
            TRY(meet_ranks(m, l->step, rows, info));
            continue;
        }
        size_t groups = rows > 0 ? (size_t)count_groups(m, l, s, rows) : 0;
        bool is_for = groups > 0 && rows >= l->min_rows && rows <= l->max_rows &&
                      l->when != (in_parts ? OPENCL_IF_WHOLE : OPENCL_IF_PARTS) &&
                      (l->when != OPENCL_IF_BEST || has_best) && (l->when != OPENCL_IF_DRAFTS || has_drafts);
        if (!is_for) {
            continue;
        }
        const size_t local[3] = {l->local, 1, 1};
        const size_t global[3] = {l->local * l->groups, l->by_splits ? (size_t)splits : 1, groups};
        m->counts.launches++;
        m->counts.weight_bytes += l->weight_bytes * groups;
        m->counts.cache_bytes += l->slot_bytes != 0 ? l->slot_bytes * count_positions(l, s->words) : 0;
        TRY(ocl_check(clEnqueueNDRangeKernel(m->device.queue, l->kernel, 3, NULL, global, local, 0, NULL, NULL),
                      plan_op_name(l->step->op), info));
    }
    return ERR_OK;
}

/* Enqueues a read of `bytes` of placed memory. */
static enum err read_later(struct backend_model *m, int32_t place_id, size_t at, size_t bytes, void *out,
                           struct err_info *info)
{
    return bytes == 0 ? ERR_OK
                      : ocl_check(clEnqueueReadBuffer(m->device.queue, vram_at(m->vram, place_id), CL_FALSE, at, bytes,
                                                      out, 0, NULL, NULL),
                                  "clEnqueueReadBuffer", info);
}

static enum err read_results(struct backend_model *m, const struct backend_batch *b, struct opencl_slot *s,
                             struct err_info *info)
{
    size_t row = (size_t)plan_n_logits(m->plan, b->predicts) * sizeof(float);
    TRY(read_later(m, m->logit_results, 0, (size_t)s->words[BATCH_RESULTS] * sizeof(float), s->stats, info));
    for (int32_t i = 0; i < b->n_logits; i++) {
        if (b->wants == NULL || b->wants[i] == BACKEND_ALL_LOGITS) {
            TRY(read_later(m, m->logits, (size_t)i * row, row, b->logits + (size_t)i * m->plan->n_vocab, info));
        }
    }
    TRY(read_later(m, m->hidden, 0, (size_t)b->n_hidden * m->plan->n_embd * sizeof(float), b->hidden, info));
    int32_t n_outputs = m->plan->guesses_in_place ? b->n_logits : b->n_rows;
    size_t n_output = b->output != NULL ? (size_t)n_outputs * m->plan->output_width : 0;
    TRY(read_later(m, m->output, 0, n_output * sizeof(float), b->output, info));
    TRY(ocl_check(clEnqueueMarkerWithWaitList(m->device.queue, 0, NULL, &s->done), "clEnqueueMarkerWithWaitList",
                  info));
    return ocl_check(clFlush(m->device.queue), "clFlush", info);
}

/* Waits for what was enqueued of a batch that failed to begin, so that nothing writes to the caller's arrays any
 * longer. */
static enum err give_up(struct backend_model *m, struct opencl_slot *s, enum err err, struct err_info *info)
{
    cl_int code = clFinish(m->device.queue);
    if (s->done != NULL) {
        clReleaseEvent(s->done);
        s->done = NULL;
    }
    if (err != ERR_LOST && code != CL_SUCCESS) {
        char room[OCL_NAME_BYTES];
        err = err_set(info, ERR_LOST, "opencl", "clFinish after a failed batch: %s", ocl_error_name(code, room));
    }
    m->is_lost |= err == ERR_LOST;
    return err;
}

static enum err opencl_begin(struct backend_model *m, const struct backend_batch *b, struct err_info *info)
{
    struct opencl_slot *s = &m->slots[m->next];
    TRY(backend_check_batch(m->plan, &m->cfg, b, info));
    if (m->is_lost) {
        return err_set(info, ERR_LOST, NULL, "the OpenCL device was lost");
    }
    enum err err = reserve(m, b, s, info);
    err = err == ERR_OK ? write_batch(m, b, s, info) : err;
    err = err == ERR_OK ? launch_all(m, b, s, info) : err;
    err = err == ERR_OK ? read_results(m, b, s, info) : err;
    if (err != ERR_OK) {
        return give_up(m, s, err, info);
    }
    s->batch = *b;
    m->next = (m->next + 1) % OPENCL_MAX_BEGUN;
    m->n_begun++;
    return ERR_OK;
}

/* Passes the results of row i of logits to the caller. */
static void take_result(const struct backend_model *m, const struct opencl_slot *s, int32_t i)
{
    const uint32_t n_pieces = pieces_of(m, &s->batch);
    const float *p = s->stats + (size_t)i * n_pieces * PIECE_WORDS; /* in the form of kernels/logits.cl */
    const int32_t *wants = s->words + s->words[BATCH_AT_WANTS] + 2 * (size_t)i;
    struct backend_row_stats *out = &s->batch.stats[i];
    uint32_t best = 0;
    float sum = 0;
    for (uint32_t k = 1; k < n_pieces; k++) {
        best = p[PIECE_WORDS * k] > p[PIECE_WORDS * best] ? k : best;
    }
    out->max = p[PIECE_WORDS * best];
    memcpy(&out->argmax, &p[PIECE_WORDS * best + 1], sizeof out->argmax);
    out->argmax = out->argmax == INT_MAX ? 0 : out->argmax; /* all logits are NaN */
    for (uint32_t k = 0; k < n_pieces; k++) {
        sum += p[PIECE_WORDS * k + 2] * expf(p[PIECE_WORDS * k] - out->max);
    }
    out->logsumexp = logf(sum) + out->max;
    for (int32_t k = 0; k < wants[0]; k++) {
        struct candidate *c = &s->batch.best[(size_t)i * MAX_BEST + (size_t)k];
        memcpy(&c->id, &s->stats[wants[1] + 2 * k], sizeof c->id);
        c->logit = s->stats[wants[1] + 2 * k + 1];
    }
}

static enum err opencl_wait(struct backend_model *m, struct err_info *info)
{
    struct opencl_slot *s = &m->slots[(m->next + OPENCL_MAX_BEGUN - m->n_begun) % OPENCL_MAX_BEGUN];
    m->n_begun--;
    enum err err = ocl_check(clWaitForEvents(1, &s->done), "waiting for a batch", info);
    clReleaseEvent(s->done);
    s->done = NULL;
    m->is_lost |= err == ERR_LOST;
    for (int32_t i = 0; i < s->batch.n_logits && err == ERR_OK; i++) {
        take_result(m, s, i);
    }
    return err;
}

/* --- pages and states --------------------------------------------------------------------------------------------- */

/* Copies bytes [at, at + n) of placed memory to `host` or back. */
static enum err move_bytes(struct backend_model *m, int32_t place_id, size_t at, size_t n, void *host, bool writes,
                           struct err_info *info)
{
    if (n == 0) { /* the values of latents, which are not placed */
        return ERR_OK;
    }
    cl_mem mem = vram_at(m->vram, place_id);
    cl_int code = writes ? clEnqueueWriteBuffer(m->device.queue, mem, CL_TRUE, at, n, host, 0, NULL, NULL)
                         : clEnqueueReadBuffer(m->device.queue, mem, CL_TRUE, at, n, host, 0, NULL, NULL);
    enum err err = ocl_check(code, "moving the cache", info);
    m->is_lost |= err == ERR_LOST;
    return err;
}

/* Copies a layer of a page between the device and `room`. */
static enum err move_layer(struct backend_model *m, const struct opencl_kv *kv, int32_t page, unsigned char *room,
                           bool writes, struct err_info *info)
{
    TRY(move_bytes(m, kv->keys, kv->key_bytes * (size_t)page, kv->key_bytes, room, writes, info));
    return move_bytes(m, kv->values, kv->value_bytes * (size_t)page, kv->value_bytes, room + kv->key_bytes, writes,
                      info);
}

static enum err opencl_page_copy(struct backend_model *m, struct backend_page page, enum backend_form form, void *at,
                                 bool writes, struct err_info *info)
{
    unsigned char *own = at, *room = NULL;
    float *floats = at;
    if (form == BACKEND_FLOATS) {
        room = mem_zalloc(m->layer_bytes, MEM_SCRATCH);
        TRY_MEM_FOR(room != NULL, info, "out of memory for a page");
    }
    enum err err = ERR_OK;
    for (int32_t i = 0; i < (int32_t)m->plan->n_layers && err == ERR_OK; i++) {
        const struct opencl_kv *kv = &m->kvs[i];
        int32_t id = backend_page_id(page, kv->is_local);
        if (kv->heads.layer != i) {
            continue;
        }
        if (id != BACKEND_NO_PAGE && room != NULL && writes) {
            opencl_kv_convert(kv, room, floats, true);
        }
        err = id != BACKEND_NO_PAGE ? move_layer(m, kv, id, room != NULL ? room : own, writes, info) : ERR_OK;
        if (id != BACKEND_NO_PAGE && room != NULL && !writes && err == ERR_OK) {
            opencl_kv_convert(kv, room, floats, false);
        }
        own += kv->key_bytes + kv->value_bytes;
        floats += (size_t)KV_PAGE_TOKENS * plan_kv_floats(&kv->heads);
    }
    mem_free(room);
    return err;
}

static enum err opencl_state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes,
                                  struct err_info *info)
{
    size_t each = m->bytes.state + m->bytes.drafts;
    return move_bytes(m, m->states, each * (size_t)state, m->bytes.state, bytes, writes, info);
}

static void opencl_info(const struct backend_model *m, struct backend_info *out)
{
    const struct program_cache *c = program_set_cache(m->programs);
    *out = (struct backend_info){.pack_state = c->state,
                                 .pack_note = c->note,
                                 .max_begun = OPENCL_MAX_BEGUN,
                                 .max_best = MAX_BEST,
                                 .counts = m->counts};
}

const struct backend backend_opencl = {
    .name = "opencl",
    .description = "an OpenCL device: weights, cache and kernels in its memory",
    .kv_type_name = opencl_kv_type_name,
    .option_name = opencl_option_name,
    .probe = opencl_probe,
    .measure = opencl_measure,
    .open = opencl_open,
    .begin = opencl_begin,
    .wait = opencl_wait,
    .page_copy = opencl_page_copy,
    .state_copy = opencl_state_copy,
    .info = opencl_info,
    .rate = opencl_rate,
    .close = opencl_close,
};
