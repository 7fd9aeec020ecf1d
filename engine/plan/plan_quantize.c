#include "engine/plan/plan_quantize.h"

#include "engine/base/names.h"
#include "engine/quant/quantize.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 }; /* inputs rounded at a time: the largest block */

/* A weight that is rounded as it is read. */
struct rounded {
    struct row_source base;
    struct plan_weight from;
    enum dtype type;
};

static float element(const struct plan_weight *w, const unsigned char *row, uint32_t i)
{
    float f;
    uint16_t h;
    if (w->type == DTYPE_F32) {
        memcpy(&f, row + 4 * (size_t)i, sizeof f);
        return f;
    }
    memcpy(&h, row + 2 * (size_t)i, sizeof h);
    return w->type == DTYPE_F16 ? dtype_f16_to_f32(h) : dtype_bf16_to_f32(h);
}

static void read_row(const struct row_source *source, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct plan_weight *w = &((const struct rounded *)(const void *)source)->from;
    if (w->source != NULL) {
        w->source->ops->read(w->source, w->source_row + row, from, n, out);
        return;
    }
    const unsigned char *data = plan_weight_row(w, row);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = element(w, data, from + i);
    }
}

/* Q8_0 by rounding alone, many times as fast as a search for the best scale, which would take away a hundredth of an
 * error that is small already. False when a value is not finite or too large. */
static bool round_q8_0(const float *x, uint32_t n, unsigned char *to)
{
    enum { BLOCK = 32 };
    for (const float *end = x + n; x < end; x += BLOCK, to += BLOCK + 2) {
        float most = 0, sum = 0; /* a sum times 0 shows NaNs, which no comparison finds */
        for (int i = 0; i < BLOCK; i++) {
            float v = fabsf(x[i]);
            most = v > most ? v : most;
            sum += v * 0;
        }
        uint16_t half = dtype_f32_to_f16(most / 127);
        float d = dtype_f16_to_f32(half), per = d > 0 ? 1 / d : 0;
        if (sum != 0 || !isfinite(d)) {
            return false;
        }
        memcpy(to, &half, sizeof half);
        for (int i = 0; i < BLOCK; i++) {
            float code = x[i] * per;
            code = code > 127 ? 127 : code < -127 ? -127 : code;
            to[2 + i] = (unsigned char)(int8_t)lrintf(code);
        }
    }
    return true;
}

static void encode_rows(const struct row_source *source, uint32_t row, uint32_t n, void *out)
{
    const struct rounded *r = (const struct rounded *)(const void *)source;
    const struct dtype_info *info = dtype_info(r->type);
    unsigned char *to = out;
    float x[CHUNK];
    for (uint32_t end = row + n; row < end; row++) {
        for (uint32_t from = 0, here; from < r->from.n_in; from += here) {
            here = MIN_OF((uint32_t)CHUNK, r->from.n_in - from);
            size_t bytes = here / info->block_elems * info->block_bytes;
            read_row(source, row, from, here, x);
            bool ok = r->type == DTYPE_Q8_0 ? round_q8_0(x, here, to) : quantize_row(r->type, x, here, NULL, to);
            if (!ok) {
                memset(to, 0xFF, bytes); /* scales that are NaN */
            }
            to += bytes;
        }
    }
}

static void rows_done(const struct row_source *source, uint32_t row, uint32_t n,
                      void (*drop)(void *arg, const void *data, uint64_t bytes), void *arg)
{
    const struct plan_weight *w = &((const struct rounded *)(const void *)source)->from;
    if (w->source != NULL) {
        w->source->ops->done(w->source, w->source_row + row, n, drop, arg);
        return;
    }
    for (uint32_t end = row + n, next; row < end; row = next) {
        next = w->pieces != NULL ? MIN_OF(end, (row / w->piece_rows + 1) * w->piece_rows) : end;
        drop(arg, plan_weight_row(w, row), (next - row) * w->row_bytes);
    }
}

static const struct row_source_ops rounded_ops = {.read = read_row, .encode = encode_rows, .done = rows_done};

static const struct {
    const char *name;
    enum dtype type;
} types[] = {{"off", DTYPE_F32},   {"q8_0", DTYPE_Q8_0}, {"q6_k", DTYPE_Q6_K},
             {"q5_k", DTYPE_Q5_K}, {"q5_1", DTYPE_Q5_1}, {"q5_0", DTYPE_Q5_0},
             {"q4_k", DTYPE_Q4_K}, {"q4_1", DTYPE_Q4_1}, {"q4_0", DTYPE_Q4_0}};

const char *plan_quantize_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(types) ? types[i].name : NULL; }

static enum err round_weight(struct plan *p, plan_weight_id id, enum dtype type, struct err_info *info)
{
    if (id == PLAN_NONE) {
        return ERR_OK;
    }
    struct plan_weight *w = &p->weights[id];
    bool is_float = w->type == DTYPE_F32 || w->type == DTYPE_F16 || w->type == DTYPE_BF16;
    type = w->n_in % dtype_info(type)->block_elems == 0 ? type : DTYPE_Q8_0;
    if (!is_float || w->n_out == 1 || w->n_in % dtype_info(type)->block_elems != 0) {
        return ERR_OK;
    }
    struct rounded *r = arena_zalloc(&p->arena, sizeof *r);
    if (r == NULL) {
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the plan");
    }
    *r = (struct rounded){.base = {&rounded_ops}, .from = *w, .type = type};
    if (!dtype_row_bytes(type, w->n_in, &w->row_bytes)) {
        return err_set(info, ERR_INTERNAL, w->name, "%s: a row of %u does not fit", w->name, w->n_in);
    }
    w->type = type;
    w->data = NULL;
    w->pieces = NULL;
    w->source = &r->base;
    w->source_row = 0;
    return ERR_OK;
}

static bool is_router(const struct plan *p, const struct plan_step *s)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *r = &p->steps[i];
        if (((r->op == PLAN_ROUTE || r->op == PLAN_PREDICT) && r->src == s->dst) ||
            (r->op == PLAN_CORRECT && r->keys == s->dst)) {
            return true;
        }
    }
    return false;
}

enum err plan_quantize(struct plan *p, const char *name, struct err_info *info)
{
    int row = names_find(plan_quantize_name, name);
    if (row <= 0) {
        return row == 0 ? ERR_OK : names_refuse(plan_quantize_name, "quantize", name, info);
    }
    enum dtype type = types[row].type;
    for (int32_t i = 0; i < p->n_steps; i++) { /* first those that a step further on may share */
        const struct plan_step *s = &p->steps[i];
        if (s->op == PLAN_EMBED || (s->op == PLAN_MATMUL && s->epilogue == PLAN_LOGITS)) {
            TRY(round_weight(p, s->w[0], DTYPE_Q8_0, info));
        }
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i];
        bool is_matmul = s->op == PLAN_EXPERTS || (s->op == PLAN_MATMUL && s->epilogue != PLAN_LOGITS);
        for (size_t k = 0; k < ARRAY_LEN(s->w) && is_matmul && !is_router(p, s); k++) {
            TRY(round_weight(p, s->w[k], type, info));
        }
    }
    return ERR_OK;
}
