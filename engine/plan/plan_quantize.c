#include "engine/plan/plan_quantize.h"

#include "engine/base/names.h"
#include "engine/plan/plan_ops.h"
#include "engine/quant/quantize.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 }; /* inputs rounded at a time: the largest block */

/* A weight that is rounded as it is encoded. */
struct rounded {
    struct row_source base;
    const struct row_source *from;
};

static void read_row(const struct row_source *s, uint32_t row, uint32_t from, uint32_t n, float *out)
{
    const struct row_source *f = ((const struct rounded *)(const void *)s)->from;
    f->ops->read(f, row, from, n, out);
}

/* Rounds to Q8_0 without a search for the best scale, which would reduce the RMS error by 7 % and take many times as
 * long (docs/internals/quantize.md). Returns false if a value is not finite or too large. */
static bool round_q8_0(const float *x, uint32_t n, unsigned char *to)
{
    enum { BLOCK = 32 };
    for (const float *end = x + n; x < end; x += BLOCK, to += BLOCK + 2) {
        float most = 0, sum = 0; /* a sum times 0 detects NaNs, which comparisons miss */
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
            float code = MAX_OF(-127.0f, MIN_OF(x[i] * per, 127.0f));
            to[2 + i] = (unsigned char)(int8_t)lrintf(code);
        }
    }
    return true;
}

static void encode_part(const struct row_source *s, const struct row_part *part, void *out, uint64_t stride)
{
    float x[CHUNK];
    for (uint32_t row = 0; row < part->n_rows; row++) {
        unsigned char *to = (unsigned char *)out + row * stride;
        for (uint32_t at = 0, here; at < part->n_in; at += here) {
            here = MIN_OF((uint32_t)CHUNK, part->n_in - at);
            size_t bytes = (size_t)row_source_bytes(s, here);
            read_row(s, part->row + row, part->from + at, here, x);
            bool ok = s->type == DTYPE_Q8_0 ? round_q8_0(x, here, to) : quantize_row(s->type, x, here, NULL, to);
            if (!ok) {
                memset(to, 0xFF, bytes); /* makes the scales NaN */
            }
            to += bytes;
        }
    }
}

static void rows_done(const struct row_source *s, uint32_t row, uint32_t n, row_drop_fn *drop, void *arg)
{
    const struct row_source *from = ((const struct rounded *)(const void *)s)->from;
    from->ops->done(from, row, n, drop, arg);
}

static const struct row_source_ops rounded_ops = {.read = read_row, .encode = encode_part, .done = rows_done};

static const struct {
    const char *name;
    enum dtype type;
} types[] = {{"off", DTYPE_F32},   {"q8_0", DTYPE_Q8_0}, {"q6_k", DTYPE_Q6_K},
             {"q5_k", DTYPE_Q5_K}, {"q5_1", DTYPE_Q5_1}, {"q5_0", DTYPE_Q5_0},
             {"q4_k", DTYPE_Q4_K}, {"q4_1", DTYPE_Q4_1}, {"q4_0", DTYPE_Q4_0}};

const char *plan_quantize_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(types) ? types[i].name : NULL; }

static enum err round_weight(struct plan *p, plan_weight_id id, enum dtype type, struct err_info *info)
{
    const struct plan_weight *w = &p->weights[id];
    bool is_float = w->type == DTYPE_F32 || w->type == DTYPE_F16 || w->type == DTYPE_BF16;
    type = w->n_in % dtype_info(type)->block_elems == 0 ? type : DTYPE_Q8_0;
    if (!is_float || w->n_out == 1 || w->n_in % dtype_info(type)->block_elems != 0) {
        return ERR_OK;
    }
    struct rounded *r = arena_zalloc(&p->arena, sizeof *r);
    TRY_MEM_FOR(r != NULL, info, "out of memory for the plan");
    *r = (struct rounded){row_source_of(&rounded_ops, type, w->n_out, w->n_in, w->source->grain), w->source};
    return plan_set_source(p, id, &r->base);
}

/* Does another step use the output of this one to pick experts? */
static bool is_router(const struct plan *p, const struct plan_step *s)
{
    for (int32_t i = 0; i < p->n_steps; i++) {
        if ((plan_uses(&p->steps[i], s->dst) & PLAN_DECIDES) != 0) {
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
    for (int pass = 0; pass < 2; pass++) { /* first weights that a later step can share */
        for (int32_t i = 0; i < p->n_steps; i++) {
            const struct plan_step *s = &p->steps[i];
            const struct plan_operand *o;
            plan_weight_id id;
            for (int k = 0; (o = plan_next_operand(s, &k, &id)) != NULL;) {
                if (pass == 0 && (o->flags & PLAN_ROUNDS_Q8) != 0) {
                    TRY(round_weight(p, id, DTYPE_Q8_0, info));
                } else if (pass == 1 && (o->flags & PLAN_ROUNDS) != 0 && !is_router(p, s)) {
                    TRY(round_weight(p, id, type, info));
                }
            }
        }
    }
    return ERR_OK;
}
