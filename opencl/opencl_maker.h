/* How steps become launches: declarations for the files that make them (opencl_steps.c has most ops and the table of
 * all). A maker places memory that its step needs in addition to the plan's buffers, and adds launches whose arguments
 * never change. Makers run twice, the first time only to place memory. Threads: as backend.h says. */
#ifndef INFCGI_OPENCL_MAKER_H
#define INFCGI_OPENCL_MAKER_H

#include "opencl/opencl_internal.h"

enum { OPENCL_ANY_ROWS = INT32_MAX, OPENCL_OPTIONS_BYTES = 160 };

/* An argument of a kernel. */
struct opencl_arg {
    size_t bytes;
    union {
        cl_mem mem;
        cl_int i;
        cl_uint u;
        cl_ulong ul;
        cl_float f;
        cl_uint4 u4;
    };
};
#define ARG_MEM(x)   ((struct opencl_arg){.bytes = sizeof(cl_mem), .mem = (x)})
#define ARG_INT(x)   ((struct opencl_arg){.bytes = sizeof(cl_int), .i = (cl_int)(x)})
#define ARG_UINT(x)  ((struct opencl_arg){.bytes = sizeof(cl_uint), .u = (cl_uint)(x)})
#define ARG_ULONG(x) ((struct opencl_arg){.bytes = sizeof(cl_ulong), .ul = (x)})
#define ARG_FLOAT(x) ((struct opencl_arg){.bytes = sizeof(cl_float), .f = (x)})
#define ARG_UINT4(x) ((struct opencl_arg){.bytes = sizeof(cl_uint4), .u4 = (x)})

/* A step during its conversion to launches. */
struct opencl_maker {
    struct backend_model *m;
    const struct plan *plan;
    const struct plan_step *s;
    int32_t i_step;
    struct err_info *info;
};

/* Returns a launch for all rows of the step's kind, with `groups` work-groups of `local` work-items per row. */
struct opencl_launch opencl_launch_of(const struct opencl_maker *k, size_t local, size_t groups);

/* Likewise, with a work-item for each `per` of n components. */
static inline struct opencl_launch opencl_launch_over(const struct opencl_maker *k, size_t local, size_t per, size_t n)
{
    return opencl_launch_of(k, local, (n + local * per - 1) / (local * per));
}

/* Adds a launch of kernel `entry` of `file`; args: the arguments after the batch, which is always first. */
MUST_CHECK enum err opencl_add_launch(const struct opencl_maker *k, struct opencl_launch l, const char *file,
                                      const char *entry, const char *options, const struct opencl_arg *args,
                                      int n_args);

/* Adds the point at which all ranks sum the step's src. */
MUST_CHECK enum err opencl_add_meeting(const struct opencl_maker *k);

#define OPENCL_ADD(k, l, file, entry, options, ...)                                                                    \
    opencl_add_launch((k), (l), (file), (entry), (options), (const struct opencl_arg[]){__VA_ARGS__},                  \
                      (int)ARRAY_LEN(((const struct opencl_arg[]){__VA_ARGS__})))

/* Return as an argument: placed memory, a vector (or NULL, for PLAN_NONE), a buffer's floats, a buffer's codes. */
struct opencl_arg opencl_at(const struct opencl_maker *k, int32_t place);
struct opencl_arg opencl_vector(const struct opencl_maker *k, plan_weight_id id);
struct opencl_arg opencl_floats(const struct opencl_maker *k, plan_buf_id id);
struct opencl_arg opencl_codes(const struct opencl_maker *k, plan_buf_id id);

/* Return the size of a buffer: floats per row, floats between rows, and blocks of codes per row. */
uint32_t opencl_width(const struct opencl_maker *k, plan_buf_id id);
uint32_t opencl_stride(const struct opencl_maker *k, plan_buf_id id);
uint32_t opencl_blocks(const struct opencl_maker *k, plan_buf_id id);

/* Pairs of arguments: a buffer's floats and the floats between its rows; its codes and their blocks per row; a vector
 * and whether it exists. */
#define ARG_ROWS(k, id)     opencl_floats((k), (id)), ARG_UINT(opencl_stride((k), (id)))
#define ARG_CODES(k, id)    opencl_codes((k), (id)), ARG_UINT(opencl_blocks((k), (id)))
#define ARG_OPTIONAL(k, id) opencl_vector((k), (id)), ARG_INT((id) != PLAN_NONE)

/* Raises *wide to n, rounded up: the width of memory that steps use in sequence. */
void opencl_widen(uint32_t *wide, uint32_t n);

/* Use of a step's result in a buffer by the steps after it: they multiply its codes (is_fine: all blocks have second
 * terms, for the output head) or read its floats. */
struct opencl_need {
    bool codes, is_fine, floats;
};
struct opencl_need opencl_need_of(const struct opencl_maker *k, plan_buf_id buf);
/* Returns FLAG_CODES, with FLAG_FINE if high_precision asks for second terms. */
int opencl_code_flags(const struct opencl_maker *k);
/* Returns the use as FLAG_CODES, FLAG_FINE and FLAG_FLOATS. */
int opencl_flags_of(const struct opencl_maker *k, plan_buf_id buf);

/* Ends a step that wrote floats: encodes them if a later step needs codes. */
MUST_CHECK enum err opencl_end_step(const struct opencl_maker *k, plan_buf_id buf);

/* A product: rows of src times w, and w2 for a pair, with the biases (PLAN_NONE: none). */
struct opencl_product {
    struct opencl_arg floats, codes; /* of src: the kind of w decides which form is read */
    uint32_t blocks;                 /* of 32 inputs per row */
    plan_weight_id w, bias;
    plan_weight_id w2, bias2; /* OPTIONAL */
    struct opencl_arg dst;
    uint32_t dst_stride, dst_first;
    float scale, cap;
    int flags, act;
    struct opencl_arg dst_codes; /* for a pair */
    uint32_t dst_blocks;
    /* For experts: rows of dst are picks, per_row of them for each row of src; the lists are m->picks and m->tiles. */
    uint32_t per_row; /* 0: not for experts */
};

/* Returns the product of the step's src and w[which], to its dst if it has one. */
struct opencl_product opencl_product_of(const struct opencl_maker *k, int which);

/* Makes p, the product of w[0], one of the pair of w[0] and w[1] if one launch can compute it: the weights are of one
 * kind, and both or neither has a bias. Else returns false. */
bool opencl_pair(const struct opencl_maker *k, struct opencl_product *p);
MUST_CHECK enum err opencl_add_product(const struct opencl_maker *k, const struct opencl_product *p);

/* --- makers of other files ---------------------------------------------------------------------------------------- */

MUST_CHECK enum err opencl_experts_make_route(const struct opencl_maker *k);
MUST_CHECK enum err opencl_experts_make(const struct opencl_maker *k);
MUST_CHECK enum err opencl_recurrent_make_short_conv(const struct opencl_maker *k);
MUST_CHECK enum err opencl_recurrent_make_delta(const struct opencl_maker *k);
MUST_CHECK enum err opencl_recurrent_make_ssm(const struct opencl_maker *k);
MUST_CHECK enum err opencl_recurrent_make_scan(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_multiply(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_xielu(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_sum(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_predict(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_correct(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_gate(const struct opencl_maker *k);
MUST_CHECK enum err opencl_streams_make_reduce(const struct opencl_maker *k);

#endif
