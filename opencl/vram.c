/* Places and allocates memory of a device. */
#include "opencl/vram.h"

#include "engine/base/ck.h"
#include "engine/base/mem.h"

#include <inttypes.h>

#define NO_MEMORY "out of memory for the table of device memory"
enum { CHUNK_BYTES = 1 << 30 }; /* a chunk is closed when the next request would exceed this */

struct chunk {
    uint64_t bytes;
    cl_mem mem;
};

struct place {
    uint32_t chunk;
    uint64_t at, bytes;
    cl_mem mem;
};

struct vram {
    uint64_t most, align; /* bytes of a buffer; alignment of a part */
    uint64_t bytes[VRAM_PURPOSES];
    struct chunk *chunks;
    size_t n_chunks, cap_chunks;
    struct place *places;
    size_t n_places, cap_places;
};

enum err vram_new(const struct device_caps *caps, struct vram **out, struct err_info *info)
{
    struct vram *v = *out = mem_zalloc(sizeof *v, MEM_MODEL);
    TRY_MEM_FOR(v != NULL, info, NO_MEMORY);
    v->most = caps->max_buffer_bytes;
    v->align = MAX_OF(caps->align_bytes, 128U);
    return ERR_OK;
}

void vram_free(struct vram **v)
{
    if (*v == NULL) {
        return;
    }
    for (size_t i = 0; i < (*v)->n_places; i++) {
        if ((*v)->places[i].mem != NULL) {
            clReleaseMemObject((*v)->places[i].mem);
        }
    }
    for (size_t i = 0; i < (*v)->n_chunks; i++) {
        if ((*v)->chunks[i].mem != NULL) {
            clReleaseMemObject((*v)->chunks[i].mem);
        }
    }
    mem_free((*v)->places);
    mem_free((*v)->chunks);
    mem_free(*v);
    *v = NULL;
}

enum err vram_place(struct vram *v, enum vram_purpose purpose, uint64_t bytes, const char *what, int32_t *id,
                    struct err_info *info)
{
    uint64_t padded;
    bool fits = ck_add(MAX_OF(bytes, UINT64_C(1)), v->align - 1, &padded) && padded / v->align * v->align <= v->most;
    if (!fits) {
        return err_set(info, ERR_NOMEM, what,
                       "%s: expected at most %" PRIu64 " bytes, as in the device's largest "
                       "buffer; found %" PRIu64,
                       what, v->most, bytes);
    }
    padded = padded / v->align * v->align;
    struct chunk *last = v->n_chunks != 0 ? &v->chunks[v->n_chunks - 1] : NULL;
    if (last == NULL || last->bytes + padded > MIN_OF(v->most, (uint64_t)CHUNK_BYTES)) {
        enum err err = mem_grow(&v->chunks, v->n_chunks, &v->cap_chunks, sizeof *v->chunks, MEM_MODEL);
        TRY_MEM_FOR(err == ERR_OK, info, NO_MEMORY);
        last = &v->chunks[v->n_chunks++];
        *last = (struct chunk){0};
    }
    enum err err = mem_grow(&v->places, v->n_places, &v->cap_places, sizeof *v->places, MEM_MODEL);
    TRY_MEM_FOR(err == ERR_OK, info, NO_MEMORY);
    v->places[v->n_places] = (struct place){.chunk = (uint32_t)(v->n_chunks - 1), .at = last->bytes, .bytes = padded};
    last->bytes += padded;
    v->bytes[purpose] += padded;
    *id = (int32_t)++v->n_places;
    return ERR_OK;
}

uint64_t vram_bytes(const struct vram *v, enum vram_purpose purpose) { return v->bytes[purpose]; }

static enum err take_chunk(struct chunk *c, const struct device *d, struct err_info *info)
{
    cl_int code;
    const cl_uint zero = 0;
    c->mem = clCreateBuffer(d->context, CL_MEM_READ_WRITE, c->bytes, NULL, &code);
    TRY(ocl_check(code, "clCreateBuffer", info));
    return ocl_check(clEnqueueFillBuffer(d->queue, c->mem, &zero, sizeof zero, 0, c->bytes, 0, NULL, NULL),
                     "clEnqueueFillBuffer", info);
}

enum err vram_take(struct vram *v, const struct device *d, struct err_info *info)
{
    for (size_t i = 0; i < v->n_chunks; i++) {
        TRY(take_chunk(&v->chunks[i], d, info));
    }
    for (size_t i = 0; i < v->n_places; i++) {
        struct place *p = &v->places[i];
        const cl_buffer_region region = {.origin = p->at, .size = p->bytes};
        cl_int code;
        p->mem =
            clCreateSubBuffer(v->chunks[p->chunk].mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
        TRY(ocl_check(code, "clCreateSubBuffer", info));
    }
    return ocl_check(clFinish(d->queue), "clFinish", info);
}

cl_mem vram_at(const struct vram *v, int32_t id) { return id > 0 ? v->places[id - 1].mem : NULL; }
