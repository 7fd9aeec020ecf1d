/* Cosines and sines of a position for one RoPE table, the same for every back end. Threads: pure function. */
#ifndef INFCGI_BACKEND_ROPE_ANGLES_H
#define INFCGI_BACKEND_ROPE_ANGLES_H

#include "engine/plan/plan.h"

/* cos[n_rot/2], sin[n_rot/2] of position pos, times mscale. The angle is the f32 product pos * inv_freq, as the
 * reference implementations have it [Hugging Face transformers, modeling_llama.py]. */
void rope_angles(const struct plan_rope *r, int32_t pos, float *cos, float *sin);

/* What queries at position pos are multiplied by; 1 for most tables. */
float rope_query_scale(const struct plan_rope *r, int32_t pos);

#endif
