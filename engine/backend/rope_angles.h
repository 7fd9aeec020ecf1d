/* Computes cosines and sines of a position for one RoPE table, identically for every back end. Threads: pure function. */
#ifndef INFCGI_BACKEND_ROPE_ANGLES_H
#define INFCGI_BACKEND_ROPE_ANGLES_H

#include "engine/plan/plan.h"

/* Writes cos[n_rot/2] and sin[n_rot/2] of position pos + shift, times mscale. The angle is the f32 product pos * inv_freq, as
 * in the reference implementations [Hugging Face transformers, modeling_llama.py]. */
void rope_angles(const struct plan_rope *r, int32_t pos, float *cos, float *sin);

/* Returns the factor of queries at position pos; 1 for most tables. */
float rope_query_scale(const struct plan_rope *r, int32_t pos);

#endif
