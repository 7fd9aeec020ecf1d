/* Sums, streams and factors of rows (kernels/streams.cl). */
#include "opencl/opencl_maker.h"

#include <stdio.h>

enum { WG = 64, ROW_WG = 256 };

/* Returns a launch with a work-item for each component of dst. */
static struct opencl_launch by_components(const struct opencl_maker *k)
{
    return opencl_launch_over(k, WG, 1, opencl_width(k, k->s->dst));
}

enum { MULTIPLY_WG = 128 }; /* four components each */

/* Adds dst *= scale, and times a part of src if given; encodes the result if needed. */
static enum err add_multiply(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    bool has_by = s->src != PLAN_NONE;
    return OPENCL_ADD(k, opencl_launch_over(k, MULTIPLY_WG, 4, opencl_stride(k, s->dst)), "streams.cl", "multiply", "",
                      has_by ? opencl_floats(k, s->src) : ARG_MEM(NULL),
                      ARG_UINT(has_by ? opencl_stride(k, s->src) : 0), ARG_UINT(s->multiply.first),
                      ARG_UINT(MAX_OF(s->multiply.repeats, 1u)), ARG_INT(has_by), ARG_INT(s->multiply.map),
                      ARG_FLOAT(s->scale), ARG_ROWS(k, s->dst), ARG_UINT(opencl_width(k, s->dst)),
                      ARG_INT(opencl_flags_of(k, s->dst)), ARG_CODES(k, s->dst));
}

enum err opencl_streams_make_multiply(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    if (!s->multiply.is_sparse || s->src == PLAN_NONE) {
        return add_multiply(k);
    }
    TRY(OPENCL_ADD(k, opencl_launch_of(k, ROW_WG, 1), "streams.cl", "sparse", "", ARG_ROWS(k, s->src),
                   ARG_UINT(s->multiply.first), ARG_FLOAT(s->multiply.cutoff), ARG_FLOAT(s->scale), ARG_ROWS(k, s->dst),
                   ARG_UINT(opencl_width(k, s->dst))));
    return opencl_end_step(k, s->dst);
}

enum err opencl_streams_make_xielu(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    return OPENCL_ADD(k, opencl_launch_over(k, MULTIPLY_WG, 4, opencl_stride(k, s->dst)), "streams.cl", "xielu", "",
                      ARG_FLOAT(s->xielu.alpha_p), ARG_FLOAT(s->xielu.alpha_n), ARG_FLOAT(s->xielu.beta),
                      ARG_FLOAT(s->xielu.eps), ARG_ROWS(k, s->dst), ARG_UINT(opencl_width(k, s->dst)),
                      ARG_INT(opencl_flags_of(k, s->dst)), ARG_CODES(k, s->dst));
}

static enum err add_sum(const struct opencl_maker *k, plan_weight_id w, float dst_scale)
{
    const struct plan_step *s = k->s;
    int flags = (w != PLAN_NONE ? FLAG_WEIGHT : 0) | (s->adds ? FLAG_ADDS : 0);
    TRY(OPENCL_ADD(k, by_components(k), "streams.cl", "sum", "", ARG_ROWS(k, s->src), opencl_vector(k, w),
                   ARG_INT(flags), ARG_FLOAT(s->scale), ARG_FLOAT(dst_scale), ARG_ROWS(k, s->dst),
                   ARG_UINT(opencl_width(k, s->dst))));
    return opencl_end_step(k, s->dst);
}

enum err opencl_streams_make_sum(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    int flags = (s->w[0] != PLAN_NONE ? FLAG_WEIGHT : 0) | (s->adds ? FLAG_ADDS : 0);
    if (s->sum.level == PLAN_NONE) {
        return add_sum(k, s->w[0], s->scale);
    }
    TRY(OPENCL_ADD(k, opencl_launch_of(k, ROW_WG, 1), "streams.cl", "level", "", ARG_ROWS(k, s->src),
                   opencl_vector(k, s->w[0]), ARG_INT(flags), ARG_FLOAT(s->scale), ARG_FLOAT(s->eps),
                   ARG_ROWS(k, s->sum.level), ARG_ROWS(k, s->dst), ARG_UINT(opencl_width(k, s->dst))));
    return opencl_end_step(k, s->dst);
}

enum err opencl_streams_make_reduce(const struct opencl_maker *k)
{
    TRY(opencl_add_meeting(k));
    return add_sum(k, PLAN_NONE, 1.0f);
}

enum err opencl_streams_make_gate(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    TRY(OPENCL_ADD(k, opencl_launch_of(k, ROW_WG, 1), "streams.cl", "gate", "", ARG_ROWS(k, s->src),
                   ARG_UINT(opencl_width(k, s->src)), opencl_vector(k, s->w[0]), ARG_ROWS(k, s->dst),
                   ARG_UINT(opencl_width(k, s->dst))));
    return opencl_end_step(k, s->dst);
}

/* Returns stream i, or NULL if there are fewer. */
static struct opencl_arg stream(const struct opencl_maker *k, uint32_t i)
{
    return i < k->s->streams.n ? opencl_floats(k, k->s->dst + (plan_buf_id)i) : ARG_MEM(NULL);
}
#define STREAMS_ARGS(k) stream((k), 0), stream((k), 1), stream((k), 2), stream((k), 3), stream((k), 4), stream((k), 5)
_Static_assert(PLAN_MAX_STREAMS == 6, "as many as streams.cl takes");

static enum err end_streams(const struct opencl_maker *k)
{
    for (uint32_t i = 0; i < k->s->streams.n; i++) {
        TRY(opencl_end_step(k, k->s->dst + (plan_buf_id)i));
    }
    return ERR_OK;
}

enum err opencl_streams_make_predict(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    char options[OPENCL_OPTIONS_BYTES];
    snprintf(options, sizeof options, "-DSTREAMS=%u", s->streams.n);
    TRY(OPENCL_ADD(k, by_components(k), "streams.cl", "predict", options, ARG_ROWS(k, s->src),
                   opencl_vector(k, s->w[0]), STREAMS_ARGS(k), ARG_UINT(opencl_stride(k, s->dst)),
                   ARG_UINT(opencl_width(k, s->dst))));
    return end_streams(k);
}

enum err opencl_streams_make_correct(const struct opencl_maker *k)
{
    const struct plan_step *s = k->s;
    char options[OPENCL_OPTIONS_BYTES];
    snprintf(options, sizeof options, "-DSTREAMS=%u", s->streams.n);
    TRY(OPENCL_ADD(k, by_components(k), "streams.cl", "correct", options, ARG_ROWS(k, s->streams.routes),
                   opencl_vector(k, s->w[0]), STREAMS_ARGS(k), ARG_UINT(opencl_stride(k, s->dst)),
                   ARG_UINT(opencl_width(k, s->dst)), ARG_UINT(s->streams.first), ARG_ROWS(k, s->src)));
    return end_streams(k);
}
