/* The packed cache: all packed weights of one model file in one file that the next start maps instead of packing.
 *
 *   header     one page: the payload's source, layout and hash, and the header's own hash
 *   payload    the bytes that cpu_weights.c packs, as in memory
 *
 * A file is used only if every field matches this process's own packing and the hash of the whole payload is correct;
 * otherwise the weights are packed and the file is replaced. A changed layout needs no new version number: the header
 * holds a hash of every weight's offset and of sample panels made by this build's panel_pack. The cache detects a
 * changed size, modification time, metadata or tensor directory of the model file. It also detects changed bytes in the
 * first, middle or last row of any weight, head or expert. It does not detect other changes if the file's time was set
 * back. A user who can write to the folder can change the model's answers: hash64 only guards against accidents.
 * docs/internals/cpu.md describes the cost and why the cache is off by default. */
#include "engine/backend/cpu/cpu_internal.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/quant/panel_pack.h"
#include "engine/quant/quant.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    FORMAT_VERSION = 2, /* of the header */
    HEADER_BYTES = 4096,
    CHUNK_BYTES = 1 << 20,  /* of payload per hash: the hash must not depend on the number of threads */
    PROBE_INPUTS = 512,     /* a multiple of every type's block */
    PROBE_MAX_BYTES = 4096, /* largest row of PROBE_INPUTS: F32 has 2048 */
    MAX_PATH_BYTES = 4096,
};

struct header {
    char magic[8];
    uint64_t version;     /* FORMAT_VERSION, in the machine's byte order like all numbers, so it also identifies that */
    uint64_t layout_hash; /* offsets of the weights and layout of panels */
    uint64_t source_bytes;
    int64_t source_mtime_ns;
    uint64_t source_hash; /* of its head and samples of its weights */
    uint64_t payload_bytes;
    uint64_t payload_hash;
    uint64_t header_hash; /* of all fields above */
};
static const char magic[8] = {'I', 'N', 'F', 'C', 'G', 'I', 'P', 'K'};

/* --- expected source -------------------------------------------------------------------------------------------- */

/* Hashes panels of generated weights: one full, one with rows missing. Bytes are below 0x40, so that scales are finite
 * halves. The caller provides rows [16][PROBE_MAX_BYTES] and dst [panel_bytes]. */
static uint64_t probe_type(enum dtype type, unsigned char *rows, unsigned char *dst, uint64_t hash)
{
    uint64_t row_bytes, state = 1;
    size_t bytes = panel_bytes(quant_ops(type)->panel, PROBE_INPUTS);
    if (!dtype_row_bytes(type, PROBE_INPUTS, &row_bytes) || row_bytes > PROBE_MAX_BYTES) {
        return hash;
    }
    for (size_t i = 0; i < row_bytes * PANEL_ROWS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        rows[i] = (unsigned char)(state >> 58);
    }
    for (int n_rows = PANEL_ROWS; n_rows > 0; n_rows -= PANEL_ROWS - 5) {
        panel_pack(type, rows, row_bytes, n_rows, PROBE_INPUTS, dst);
        hash = hash64(dst, bytes, hash);
    }
    return hash;
}

/* Identifies the shard of a model; 0 for a whole plan. */
static uint64_t shard_of(const struct plan *p) { return (uint64_t)p->n_ranks << 32 | p->rank; }

static enum err hash_layout(const struct backend_model *m, uint64_t *out, struct err_info *info)
{
    bool is_probed[DTYPE_COUNT] = {false};
    uint64_t hash = shard_of(m->plan);
    const size_t rows_bytes = (size_t)PANEL_ROWS * PROBE_MAX_BYTES;
    size_t probe_bytes = rows_bytes;
    for (int kind = 0; kind < PANEL_KIND_COUNT; kind++) {
        probe_bytes = MAX_OF(probe_bytes, rows_bytes + panel_bytes((enum panel_kind)kind, PROBE_INPUTS));
    }
    unsigned char *rows = mem_map(probe_bytes, MEM_GENERAL);
    TRY_MEM_FOR(rows != NULL, info, "out of memory for %zu bytes", probe_bytes);
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        const struct plan_weight *w = &m->plan->weights[i];
        const struct cpu_weight *c = &m->weights[i];
        const uint64_t all[] = {w->type,         w->n_out,    w->n_in,        w->row_bytes, c->group_rows,
                                c->group_panels, c->n_panels, c->panel_bytes, c->kind};
        hash = hash64(all, sizeof all, hash64(w->name, strlen(w->name), hash));
        if (!is_probed[w->type]) {
            is_probed[w->type] = true;
            hash = probe_type(w->type, rows, rows + rows_bytes, hash);
        }
    }
    mem_unmap(rows, probe_bytes, MEM_GENERAL);
    *out = hash;
    return ERR_OK;
}

/* Hashes the first, middle and last row of each group, because groups can be separate parts of a file. */
static void hash_rows(const struct backend_model *m, int32_t i, void *room, uint64_t *hash)
{
    const struct plan_weight *w = &m->plan->weights[i];
    uint32_t group = m->weights[i].group_rows;
    for (uint32_t first = 0; first < w->n_out; first += group) {
        const uint32_t at[] = {first, first + group / 2, first + group - 1};
        for (size_t k = 0; k < ARRAY_LEN(at); k++) {
            uint64_t stride;
            *hash = hash64(row_source_rows(w->source, at[k], 1, room, &stride), (size_t)w->row_bytes, *hash);
        }
    }
    if (m->cfg.weight_done != NULL) { /* reading a sample made the pages around it resident */
        w->source->ops->done(w->source, 0, w->n_out, m->cfg.weight_done, m->cfg.weight_done_arg);
    }
}

static enum err hash_source(const struct backend_model *m, uint64_t *out, struct err_info *info)
{
    const struct backend_source *s = &m->cfg.source;
    uint64_t hash = hash64(s->head, s->head_bytes, 0), longest = 1;
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        longest = MAX_OF(longest, m->plan->weights[i].row_bytes);
    }
    void *room = mem_alloc((size_t)longest, MEM_GENERAL);
    TRY_MEM_FOR(room != NULL, info, "out of memory for a row of weights");
    for (int32_t i = 0; i < m->plan->n_weights; i++) {
        hash_rows(m, i, room, &hash);
    }
    mem_free(room);
    *out = hash;
    return ERR_OK;
}

/* Fills all fields except the last two. */
static enum err expect_header(const struct backend_model *m, struct header *h, struct err_info *info)
{
    *h = (struct header){.version = FORMAT_VERSION,
                         .source_bytes = m->cfg.source.bytes,
                         .source_mtime_ns = m->cfg.source.mtime_ns,
                         .payload_bytes = m->bytes.weights};
    memcpy(h->magic, magic, sizeof magic);
    TRY(hash_source(m, &h->source_hash, info));
    return hash_layout(m, &h->layout_hash, info);
}

/* One file per model, part or shard, independent of the build. Its name comes from the metadata. */
static bool make_path(const struct backend_model *m, char *path)
{
    uint64_t seed = (m->cfg.source.bytes + m->cfg.source.part) ^ shard_of(m->plan);
    uint64_t name = hash64(m->cfg.source.head, m->cfg.source.head_bytes, seed);
    return snprintf(path, MAX_PATH_BYTES, "%s/%016" PRIx64 ".infcgi-pack", m->cfg.pack_cache, name) < MAX_PATH_BYTES;
}

/* --- the payload's hash ----------------------------------------------------------------------------------------- */

struct hash_job {
    const struct backend_model *m;
    bool is_all; /* no packing before or after it reports progress */
    atomic_bool is_over;
    const unsigned char *data;
    size_t bytes;
    uint64_t *hashes; /* [chunks] */
};

static int n_chunks(size_t bytes) { return (int)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES); }

static void hash_share(void *arg, int thread, int n_threads)
{
    struct hash_job *j = arg;
    int from, to;
    pool_share(n_chunks(j->bytes), thread, n_threads, &from, &to);
    for (int i = from; i < to && !atomic_load_explicit(&j->is_over, memory_order_relaxed); i++) {
        size_t at = (size_t)i * CHUNK_BYTES;
        if (thread == 0 && !cpu_report_progress(j->m, j->is_all ? (float)(i - from) / (float)(to - from) : 1.0f)) {
            atomic_store_explicit(&j->is_over, true, memory_order_relaxed);
        }
        j->hashes[i] = hash64(j->data + at, MIN_OF(j->bytes - at, (size_t)CHUNK_BYTES), (uint64_t)i);
    }
}

static enum err hash_payload(const struct backend_model *m, const unsigned char *data, bool is_all, uint64_t *out,
                             struct err_info *info)
{
    int n = n_chunks(m->bytes.weights);
    struct hash_job job = {.m = m, .is_all = is_all, .data = data, .bytes = m->bytes.weights};
    job.hashes = mem_zalloc_array((size_t)n, sizeof *job.hashes, MEM_GENERAL);
    TRY_MEM_FOR(job.hashes != NULL, info, "out of memory for the hashes of the packed weights");
    pool_run(m->pool, hash_share, &job);
    *out = hash64(job.hashes, (size_t)n * sizeof *job.hashes, 0);
    mem_free(job.hashes);
    return atomic_load(&job.is_over) ? cpu_cancelled(info) : ERR_OK;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static uint64_t hash_header(const struct header *h) { return hash64(h, offsetof(struct header, header_hash), 0); }

/* Returns the fault of the mapped file, or NULL. Does not read its payload. */
static const char *find_fault(const struct io_map *map, const struct header *want)
{
    struct header h;
    if (map->bytes < HEADER_BYTES) {
        return "it is truncated";
    }
    memcpy(&h, map->data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != FORMAT_VERSION) {
        return "it has another version, or is no packed cache";
    }
    if (h.header_hash != hash_header(&h)) {
        return "its header is damaged";
    }
    if (h.source_bytes != want->source_bytes || h.source_mtime_ns != want->source_mtime_ns ||
        h.source_hash != want->source_hash) {
        return "it belongs to another model file, or that file has changed";
    }
    if (h.layout_hash != want->layout_hash || h.payload_bytes != want->payload_bytes) {
        return "it was packed by another version";
    }
    return map->bytes != HEADER_BYTES + h.payload_bytes ? "it is truncated" : NULL;
}

enum err cpu_pack_cache_open(struct backend_model *m, struct err_info *info)
{
    char path[MAX_PATH_BYTES];
    m->pack_state = BACKEND_PACK_OFF;
    if (m->cfg.pack_cache == NULL) {
        return ERR_OK;
    }
    m->pack_state = BACKEND_PACK_WRITTEN;
    struct err_info why = {0};
    if (!make_path(m, path) || io_map_open(path, &m->pack_map, &why) != ERR_OK) {
        return ERR_OK; /* usually the first start; other errors show when it is written */
    }
    struct header want;
    uint64_t hash = 0;
    enum err err = expect_header(m, &want, info);
    const char *fault = err == ERR_OK ? find_fault(&m->pack_map, &want) : NULL;
    if (err == ERR_OK && fault == NULL) {
        err = hash_payload(m, cpu_pack_cache_payload(m), true, &hash, info);
        memcpy(&want, m->pack_map.data, sizeof want);
        fault = err == ERR_OK && hash != want.payload_hash ? "its contents are damaged" : NULL;
    }
    if (err == ERR_OK && fault == NULL) {
        m->pack_state = BACKEND_PACK_MAPPED;
        return ERR_OK;
    }
    cpu_pack_cache_close(m);
    if (fault != NULL) {
        snprintf(m->pack_note, sizeof m->pack_note, "packed again, because %.200s is unusable: %s", path, fault);
    }
    return err;
}

const unsigned char *cpu_pack_cache_payload(const struct backend_model *m) { return m->pack_map.data + HEADER_BYTES; }

void cpu_pack_cache_close(struct backend_model *m) { io_map_close(&m->pack_map); }

/* --- writing ---------------------------------------------------------------------------------------------------- */

static bool goes_on(void *arg) { return cpu_report_progress(arg, 1.0f); }

enum err cpu_pack_cache_write(struct backend_model *m, struct err_info *info)
{
    if (m->pack_state != BACKEND_PACK_WRITTEN) {
        return ERR_OK;
    }
    char path[MAX_PATH_BYTES];
    unsigned char page[HEADER_BYTES] = {0};
    struct header h;
    TRY(expect_header(m, &h, info));
    TRY(hash_payload(m, m->packed, false, &h.payload_hash, info));
    h.header_hash = hash_header(&h);
    memcpy(page, &h, sizeof h);
    struct err_info why = {0};
    const struct io_part parts[] = {{page, sizeof page}, {m->packed, m->bytes.weights}};
    enum err err = make_path(m, path) ? io_replace_file(path, parts, ARRAY_LEN(parts), goes_on, m, &why)
                                      : err_set(&why, ERR_FILE, NULL, "the path is too long");
    if (err == ERR_CANCELLED) {
        return cpu_cancelled(info);
    }
    if (err != ERR_OK) {
        m->pack_state = BACKEND_PACK_FAILED;
        snprintf(m->pack_note, sizeof m->pack_note, "the packed weights were not kept for the next start: %.400s",
                 why.text);
    }
    return ERR_OK;
}
