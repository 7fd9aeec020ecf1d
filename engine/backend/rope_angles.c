/* One libm call per angle; a step computes them once for all layers. */
#include "engine/backend/rope_angles.h"

#include <math.h>

void rope_angles(const struct plan_rope *r, int32_t pos, float *cos_out, float *sin_out)
{
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        float angle = (float)pos * r->inv_freq[i];
        cos_out[i] = cosf(angle) * r->mscale;
        sin_out[i] = sinf(angle) * r->mscale;
    }
}
