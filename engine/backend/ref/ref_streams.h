/* Rows of the reference back end's steps for sums, streams and sparse gates, in double (plan.h: PLAN_SUM, PLAN_PREDICT,
 * PLAN_CORRECT, PLAN_MULTIPLY). Threads: pure functions. */
#ifndef INFCGI_BACKEND_REF_STREAMS_H
#define INFCGI_BACKEND_REF_STREAMS_H

#include "engine/plan/plan.h"

/* What a sparse gate takes off each of x[n]: mean + cutoff * standard deviation. */
double ref_streams_cutoff(const float *x, uint32_t n, float cutoff);

/* dst[n] = what the step makes of src[n]; w[n] and level[n] (keys) may be NULL. dst may be src. */
void ref_streams_sum(const struct plan_step *s, const float *src, const float *w, const float *level, uint32_t n,
                     float *dst);

/* Streams x[n_streams][width], in place: predicted from the router's logits[n_streams], or corrected by what the block
 * made of them, block[width]. coefs: w[0] of the step. */
void ref_streams_predict(const struct plan_step *s, const float *logits, const float *coefs, uint32_t width,
                         float *const *x);
void ref_streams_correct(const struct plan_step *s, const float *logits, const float *coefs, const float *block,
                         uint32_t width, float *const *x);

#endif
