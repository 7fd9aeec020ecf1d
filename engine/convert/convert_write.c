#include "engine/convert/convert_write.h"

#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/format/gguf_build.h"
#include "engine/format/gguf_write.h"
#include "engine/quant/quant.h"
#include "engine/model/model.h"
#include "engine/quant/quantize.h"
#include "engine/convert/convert_factors.h"
#include "engine/convert/convert_latent.h"
#include "engine/convert/imatrix.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    GROUP_ROWS = 16,          /* rows made by one thread at a time, as suits sources that keep columns together */
    CHUNK_BYTES = 8 << 20,    /* of new data, made and then written */
    QUANTIZATION_VERSION = 2, /* general.quantization_version: of the block layouts [GGUF specification] */
    NAME_BYTES = GGUF_MAX_TENSOR_NAME_BYTES + 1,
};

/* Reorders heads of Q and K from half-split pairs, as Hugging Face keeps them, to interleaved ones, as readers of some
 * families' GGUF files expect: component p of pair i moves from p * n_rot/2 + i to 2 i + p. */
struct permutation {
    uint32_t n_rot;        /* rotated components of a head; 0: nothing to do */
    bool is_at_end;        /* they are the head's last ones, not its first */
    uint32_t q_dim, k_dim; /* rows per head of Q, of K */
    uint64_t n_qk;         /* rows of Q and K in a tensor that also holds V */
};

/* The source of one of the new file's tensors. */
struct origin {
    const struct gguf_tensor *t;
    const float *importance; /* [matrices][dims[0]], or NULL */
    uint64_t n_permuted;     /* leading rows, or elements of a vector, to reorder */
    uint32_t head_dim;       /* of these rows */
};

struct converter {
    const struct convert_options *o;
    struct convert_report *report;
    struct gguf *opened;       /* holds the data */
    struct gguf *split;        /* OPTIONAL: the same model with other tensors (convert_latent.h) */
    struct gguf *unfactored;   /* OPTIONAL: likewise (convert_factors.h) */
    const struct gguf *source; /* opened, split or unfactored */
    struct gguf *target;
    struct imatrix *imatrix;
    struct permutation permutation;
    struct origin *origins; /* [tensors of target] */
    struct pool *pool;
    unsigned char *chunk; /* [chunk_bytes] */
    size_t chunk_bytes;
    float *rows; /* [n_threads][widest] */
    uint64_t widest;
    uint64_t done_bytes;
};

static uint64_t n_rows_of(const struct gguf_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Returns where row i of the new tensor is in the old one. */
static uint64_t turned(const struct permutation *p, const struct origin *from, uint64_t i)
{
    uint64_t first = p->is_at_end ? from->head_dim - p->n_rot : 0, in = i % from->head_dim;
    if (in < first || in - first >= p->n_rot) {
        return i;
    }
    in -= first;
    return i - in + in % 2 * (p->n_rot / 2) + in / 2;
}

/* Rows [first, first + n) of one tensor. */
struct job {
    const struct converter *c;
    const struct origin *from;
    enum dtype type;
    uint64_t first, n, new_bytes;
    atomic_ullong next;
    atomic_ullong bad; /* first row that failed; UINT64_MAX: none */
};

/* Reorders the values of a vector in place; `room` holds equally many. */
static void turn_vector(const struct permutation *p, const struct origin *from, float *x, float *room)
{
    memcpy(room, x, (size_t)from->n_permuted * sizeof *x);
    for (uint64_t i = 0; i < from->n_permuted; i++) {
        x[i] = room[turned(p, from, i)];
    }
}

static bool make_row(const struct job *j, uint64_t row, float *x, unsigned char *to)
{
    const struct gguf_tensor *t = j->from->t;
    bool is_vector = convert_is_vector(t);
    uint64_t source = !is_vector && row < j->from->n_permuted ? turned(&j->c->permutation, j->from, row) : row;
    if (t->type == j->type && !(is_vector && j->from->n_permuted != 0)) {
        row_source_encode(t->source, (uint32_t)source, 1, to);
        return true;
    }
    t->source->ops->read(t->source, (uint32_t)source, 0, (uint32_t)t->dims[0], x);
    if (is_vector && j->from->n_permuted != 0) {
        turn_vector(&j->c->permutation, j->from, x, x + t->dims[0]);
    }
    const float *importance = j->from->importance;
    return quantize_row(j->type, x, (size_t)t->dims[0],
                        importance != NULL ? importance + row / t->dims[1] * t->dims[0] : NULL, to);
}

/* Makes rows [at, end) of the job. */
static void make_group(struct job *j, uint64_t at, uint64_t end, float *x)
{
    const struct gguf_tensor *t = j->from->t;
    if (t->type == j->type && j->from->n_permuted == 0) {
        row_source_encode(t->source, (uint32_t)(j->first + at), (uint32_t)(end - at), j->c->chunk + at * j->new_bytes);
        return;
    }
    for (; at < end; at++) {
        if (!make_row(j, j->first + at, x, j->c->chunk + at * j->new_bytes)) {
            unsigned long long seen = atomic_load(&j->bad);
            while (j->first + at < seen && !atomic_compare_exchange_weak(&j->bad, &seen, j->first + at)) {
            }
        }
    }
}

static void make_rows(void *arg, int thread, int n_threads)
{
    struct job *j = arg;
    float *x = j->c->rows + (size_t)thread * j->c->widest;
    uint64_t at;
    (void)n_threads;
    while ((at = GROUP_ROWS * atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n) {
        make_group(j, at, MIN_OF(at + GROUP_ROWS, j->n), x);
    }
}

/* --- a tensor ----------------------------------------------------------------------------------------------------- */

static enum err go_on(struct converter *c, uint64_t bytes, struct err_info *info)
{
    c->done_bytes += bytes;
    double fraction = (double)c->done_bytes / (double)(c->report->target_bytes + 1);
    if (c->o->progress != NULL && !c->o->progress(c->o->progress_arg, fraction)) {
        return err_set(info, ERR_CANCELLED, NULL, "stopped; no file was written");
    }
    return ERR_OK;
}

static void drop_file_pages(void *gguf, const void *data, uint64_t n) { gguf_drop(gguf, data, n); }

static enum err fill(void *arg, const struct gguf_tensor *t, size_t i, struct gguf_sink *to, struct err_info *info)
{
    struct converter *c = arg;
    const struct origin *from = &c->origins[i];
    struct job j = {.c = c, .from = from, .type = t->type};
    if (!dtype_row_bytes(t->type, t->dims[0], &j.new_bytes)) {
        return err_set(info, ERR_INTERNAL, NULL, "a row of no size");
    }
    uint64_t n_rows = n_rows_of(t), at_once = MAX_OF(c->chunk_bytes / j.new_bytes, (uint64_t)1);
    for (; j.first < n_rows; j.first += j.n) {
        j.n = MIN_OF(n_rows - j.first, at_once);
        atomic_store(&j.next, 0);
        atomic_store(&j.bad, UINT64_MAX);
        pool_run(c->pool, make_rows, &j);
        if (atomic_load(&j.bad) != UINT64_MAX) {
            return err_set(info, ERR_NUMERICAL, NULL,
                           "tensor '%.*s', row %llu: expected finite values that %s can hold, found others",
                           (int)t->name.len, t->name.data, atomic_load(&j.bad), dtype_info(t->type)->name);
        }
        TRY(gguf_sink_put(to, c->chunk, (size_t)(j.n * j.new_bytes), info));
        if (from->n_permuted == 0) { /* otherwise later rows can be among these */
            from->t->source->ops->done(from->t->source, (uint32_t)j.first, (uint32_t)j.n, drop_file_pages, c->opened);
        }
        TRY(go_on(c, j.n * j.new_bytes, info));
    }
    return ERR_OK;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Omits keys that describe the source's form, that other readers reject, or that are written again. */
static bool is_left_out(const struct converter *c, struct gguf_str key)
{
    static const struct {
        const char *key;
        bool is_written; /* again, unless types are copied */
    } rows[] = {{"split.no", false},
                {"split.count", false},
                {"split.tensors.count", false},
                {"infcgi.rope_is_neox", false},
                {"infcgi.tokenizer.file", false},
                {"general.file_type", true},
                {"general.quantization_version", true},
                {"quantize.imatrix.file", true},
                {"quantize.imatrix.entries_count", true},
                {"quantize.imatrix.dataset", true},
                {"quantize.imatrix.chunks_count", true}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (gguf_str_is(key, rows[i].key)) {
            return !(rows[i].is_written && c->o->type->copies);
        }
    }
    /* No other reader knows RoPE of type dynamic, and llama.cpp aborts on it [b11434, src/llama-model.cpp]. Its
     * converter omits the type: then RoPE is plain, as dynamic RoPE is up to the original context. */
    bool is_of_rope = gguf_str_ends(key, ".rope.scaling.type") || gguf_str_ends(key, ".rope.scaling.factor");
    return c->report->left_dynamic_rope && is_of_rope;
}

/* Returns the model's key after its architecture's name. */
static enum err key_of(const struct converter *c, const char *key, char room[128], struct err_info *info)
{
    struct gguf_str arch;
    TRY(gguf_get_str_or_null(c->source, "general.architecture", &arch, info));
    snprintf(room, 128, "%.*s.%s", (int)MIN_OF(arch.len, (size_t)64), arch.data != NULL ? arch.data : "", key);
    return ERR_OK;
}

/* Finds properties that other readers will not find in the file. */
static enum err look_for_losses(struct converter *c, struct err_info *info)
{
    char key[128];
    struct gguf_str type;
    TRY(key_of(c, "rope.scaling.type", key, info));
    TRY(gguf_get_str_or_null(c->source, key, &type, info));
    c->report->left_dynamic_rope = gguf_str_is(type, "dynamic");
    c->report->has_own_pattern =
        gguf_find(c->source, "infcgi.tokenizer.pattern") != NULL && gguf_find(c->source, "tokenizer.ggml.pre") == NULL;
    return ERR_OK;
}

/* Returns general.file_type of a folder whose types stay: the type of most bytes. */
static uint32_t type_of_most(const struct gguf *g)
{
    uint64_t bytes[DTYPE_COUNT] = {0};
    int most = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bytes[t->type] += t->bytes;
        most = bytes[t->type] > bytes[most] ? (int)t->type : most;
    }
    const struct convert_type *row;
    for (int i = 0; (row = convert_type_at(i)) != NULL; i++) {
        if (!row->copies && (int)row->type == most && row->more == row->type) {
            return row->file_type;
        }
    }
    return 0;
}

/* Adds keys that GGUF files have and folders lack. */
static void put_folder_keys(const struct converter *c, struct gguf_build *b)
{
    const struct gguf_tensor *embd = gguf_find_tensor(c->source, "token_embd.weight");
    char key[128];
    size_t n;
    const char *name = io_base_name(c->o->source, &n);
    if (gguf_find(c->source, "general.name") == NULL) {
        gguf_build_str(b, "general.name", name, n);
    }
    if (gguf_find(c->source, "general.type") == NULL) {
        gguf_build_str(b, "general.type", "model", 5);
    }
    if (embd != NULL && key_of(c, "vocab_size", key, NULL) == ERR_OK && gguf_find(c->source, key) == NULL) {
        gguf_build_u32(b, key, (uint32_t)embd->dims[1]);
    }
}

static void put_keys(const struct converter *c, bool is_folder, struct gguf_build *b)
{
    const struct convert_type *type = c->o->type;
    for (size_t i = 0; i < gguf_n_kv(c->source); i++) {
        const struct gguf_kv *kv = gguf_kv_at(c->source, i);
        if (!is_left_out(c, kv->key)) {
            gguf_build_copy(b, kv);
        }
    }
    if (is_folder) {
        put_folder_keys(c, b);
    }
    if (!type->copies || is_folder) {
        gguf_build_u32(b, "general.file_type", type->copies ? type_of_most(c->source) : type->file_type);
        gguf_build_u32(b, "general.quantization_version", QUANTIZATION_VERSION);
    }
    if (c->imatrix != NULL && !type->copies) {
        gguf_build_str(b, "quantize.imatrix.file", c->o->imatrix, strlen(c->o->imatrix));
        gguf_build_u32(b, "quantize.imatrix.entries_count", (uint32_t)imatrix_n_entries(c->imatrix));
    }
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* Finds the rows of a tensor, or elements of a vector, to reorder. */
static void find_turn(const struct permutation *p, const struct gguf_tensor *t, struct origin *from)
{
    static const struct {
        const char *suffix;
        bool is_k, has_v;
    } rows[] = {
        {".attn_q.weight", false, false},       {".attn_k.weight", true, false},
        {".attn_q.bias", false, false},         {".attn_k.bias", true, false},
        {".attn_q_norm.weight", false, false},  {".attn_k_norm.weight", true, false},
        {".attn_qkv.weight", false, true},      {".attn_qkv.bias", false, true},
        {".attn_q_b.weight", false, false}, /* latent attention: Q, and the part of K that all heads share */
        {".attn_kv_a_mqa.weight", true, false}, {".attn_kv_a_mqa.bias", true, false},
    };
    uint64_t n = convert_is_vector(t) ? t->dims[0] : n_rows_of(t);
    for (size_t i = 0; i < ARRAY_LEN(rows) && p->n_rot != 0; i++) {
        uint32_t head_dim = rows[i].is_k ? p->k_dim : p->q_dim;
        if (gguf_str_ends(t->name, rows[i].suffix) && head_dim != 0 && n % head_dim == 0) {
            from->n_permuted = rows[i].has_v ? MIN_OF(n, p->n_qk) : n;
            from->head_dim = head_dim;
            return;
        }
    }
}

static enum err find_importance(struct converter *c, const struct gguf_tensor *t, struct origin *from,
                                struct err_info *info)
{
    char name[NAME_BYTES];
    uint64_t n = 0, wanted = t->dims[0] * t->dims[2] * t->dims[3];
    snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
    const float *values = imatrix_find(c->imatrix, name, &n);
    if (values != NULL && n != wanted) {
        return err_set(info, ERR_BAD_TENSOR_SHAPE, name,
                       "importance of '%s': expected %" PRIu64 " values, one an input, found %" PRIu64, name, wanted,
                       n);
    }
    from->importance = values;
    c->report->n_weighted += values != NULL;
    return ERR_OK;
}

static enum err put_tensor(struct converter *c, const struct convert_type_model *m, struct gguf_build *b, size_t i,
                           struct err_info *info)
{
    const struct gguf_tensor *t = gguf_tensor_at(c->source, i);
    const struct convert_type *wanted = c->o->type;
    struct convert_report *r = c->report;
    struct origin *from = &c->origins[i];
    struct gguf_tensor out = *t;
    if (t->dims[0] > UINT32_MAX || n_rows_of(t) > UINT32_MAX) {
        return err_set(info, ERR_BAD_TENSOR_SHAPE, NULL, "tensor '%.*s': expected below 2^32 rows and columns",
                       (int)t->name.len, t->name.data);
    }
    out.type = convert_type_of(wanted, m, t);
    *from = (struct origin){.t = t};
    find_turn(&c->permutation, t, from);
    /* made from values, not copied as bytes */
    bool is_made = out.type != t->type || (from->n_permuted != 0 && convert_is_vector(t));
    bool is_read = quant_ops(t->type) != NULL;
    if (!dtype_tensor_bytes(out.type, t->dims[0], n_rows_of(t), &out.bytes) ||
        (is_made && (!is_read || !quantize_can(out.type)))) {
        return err_set(info, ERR_UNSUPPORTED_TYPE, NULL, "tensor '%.*s': %s cannot be made from %s", (int)t->name.len,
                       t->name.data, dtype_info(out.type)->name, dtype_info(t->type)->name);
    }
    bool is_block = dtype_info(out.type)->block_elems > 1;
    if (c->imatrix != NULL && is_made && is_block) {
        TRY(find_importance(c, t, from, info));
    }
    r->n_converted += out.type != t->type;
    r->n_requantised += out.type != t->type && dtype_info(t->type)->block_elems > 1;
    r->n_other_type += !wanted->copies && t->dims[0] % dtype_info(wanted->type)->block_elems != 0 &&
                       out.type != t->type && !convert_is_vector(t);
    r->n_params += t->dims[0] * n_rows_of(t);
    r->source_bytes += t->bytes;
    r->target_bytes += out.bytes;
    c->widest = MAX_OF(c->widest, is_made ? 2 * t->dims[0] : 0); /* a vector is reordered through the second half */
    c->chunk_bytes = MAX_OF(c->chunk_bytes, out.bytes / n_rows_of(t));
    gguf_build_tensor(b, NULL, &out);
    return ERR_OK;
}

/* Makes the directory of the new file, whose tensors still have the old data. */
static enum err make_target(struct converter *c, struct err_info *info)
{
    struct gguf_build b;
    char key[128];
    struct convert_type_model m = {.is_folder = io_is_folder(c->o->source),
                                   .is_tied = gguf_find_tensor(c->source, "output.weight") == NULL};
    TRY(key_of(c, "block_count", key, info));
    TRY(gguf_get_u64_or(c->source, key, 0, &m.n_layers, info));
    m.n_layers = MIN_OF(m.n_layers, (uint64_t)1 << 16);
    size_t n = gguf_n_tensors(c->source);
    c->report->n_tensors = n;
    c->origins = mem_zalloc_array(n + 1, sizeof *c->origins, MEM_GENERAL);
    TRY_MEM_FOR(c->origins != NULL, info, "out of memory");
    gguf_build_init(&b);
    put_keys(c, m.is_folder, &b);
    enum err err = ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        err = put_tensor(c, &m, &b, i, info);
    }
    err = err != ERR_OK ? err : gguf_build_finish(&b, NULL, &c->target, info);
    gguf_build_fini(&b);
    return err;
}

/* --- RoPE --------------------------------------------------------------------------------------------------------- */

/* Opens the model without the key for the order of pairs, as other readers of GGUF files see it. */
static enum err open_as_read(const struct converter *c, struct gguf **out, struct err_info *info)
{
    struct gguf_build b;
    gguf_build_init(&b);
    put_keys(c, true, &b);
    for (size_t i = 0; i < gguf_n_tensors(c->source); i++) {
        gguf_build_tensor(&b, NULL, gguf_tensor_at(c->source, i));
    }
    return gguf_build_finish(&b, NULL, out, info);
}

static void set_permutation(struct converter *c, const struct plan *p, const struct plan_rope *r, uint32_t latent_q_dim)
{
    bool is_latent = r->first != 0; /* a head of Q then has its width before the latents are absorbed */
    c->permutation = (struct permutation){.n_rot = r->n_rot,
                                          .is_at_end = is_latent,
                                          .q_dim = is_latent ? latent_q_dim : p->head_dim,
                                          .k_dim = p->head_dim,
                                          .n_qk = (uint64_t)(p->n_heads + p->n_kv_heads) * p->head_dim};
}

/* Do readers expect another order of pairs? Builds and compares both plans. */
static enum err find_permutation(struct converter *c, struct err_info *info)
{
    struct gguf *read = NULL;
    struct plan *ours = NULL, *theirs = NULL;
    char key[128];
    uint64_t q_dim;
    if (gguf_find(c->source, "infcgi.rope_is_neox") == NULL) {
        return ERR_OK;
    }
    TRY(key_of(c, "attention.key_length_mla", key, info));
    TRY(gguf_get_u64_or(c->source, key, 0, &q_dim, info));
    enum err err = model_build(c->source, 0, &ours, info);
    err = err != ERR_OK ? err : open_as_read(c, &read, info);
    err = err != ERR_OK ? err : model_build(read, 0, &theirs, info);
    for (int32_t i = 0; err == ERR_OK && i < ours->n_ropes && i < theirs->n_ropes; i++) {
        if (ours->ropes[i].is_neox && !theirs->ropes[i].is_neox && ours->ropes[i].n_rot != 0) {
            set_permutation(c, ours, &ours->ropes[i], (uint32_t)q_dim);
        }
    }
    plan_free(&theirs);
    plan_free(&ours);
    gguf_close(&read);
    return err;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static enum err prepare(struct converter *c, struct err_info *info)
{
    const struct convert_options *o = c->o;
    TRY(model_open(o->source, &c->opened, info));
    TRY(convert_latent_split(c->opened, &c->split, info));
    c->source = c->split != NULL ? c->split : c->opened;
    if (c->o->type->copies) {
        TRY(convert_factors_split(c->source, &c->unfactored, info));
        c->source = c->unfactored != NULL ? c->unfactored : c->source;
    }
    if (o->imatrix != NULL) {
        TRY(imatrix_open(o->imatrix, &c->imatrix, info));
        c->report->n_entries = imatrix_n_entries(c->imatrix);
    }
    TRY(look_for_losses(c, info));
    TRY(find_permutation(c, info));
    TRY(make_target(c, info));
    if (c->imatrix != NULL && c->report->n_weighted == 0 && c->report->n_converted != 0) {
        return err_set(info, ERR_BAD_TENSOR_SHAPE, "imatrix",
                       "expected an importance matrix of this model and a type that uses it, found no common tensor");
    }
    c->chunk_bytes = MAX_OF(c->chunk_bytes, (size_t)CHUNK_BYTES);
    TRY(pool_new(o->n_threads, &c->pool, info));
    c->chunk = mem_alloc(c->chunk_bytes, MEM_GENERAL);
    c->rows = mem_zalloc_array((size_t)o->n_threads, (size_t)c->widest * sizeof(float) + 1, MEM_GENERAL);
    TRY_MEM_FOR(c->chunk != NULL && c->rows != NULL, info, "out of memory");
    return ERR_OK;
}

enum err convert_write(const struct convert_options *o, struct convert_report *report, struct err_info *info)
{
    *report = (struct convert_report){0};
    struct converter c = {.o = o, .report = report};
    enum err err = prepare(&c, info);
    if (err == ERR_OK) {
        struct gguf_write_options w = {.may_replace = o->may_replace, .fill = fill, .arg = &c};
        err = gguf_write(o->target, c.target, &w, info);
        report->is_target_at_fault = err == ERR_IO || err == ERR_FILE || err == ERR_AGAIN;
    }
    pool_free(&c.pool);
    gguf_close(&c.target);
    imatrix_close(&c.imatrix);
    gguf_close(&c.unfactored);
    gguf_close(&c.split);
    gguf_close(&c.opened);
    mem_free(c.origins);
    mem_free(c.chunk);
    mem_free(c.rows);
    return err;
}
