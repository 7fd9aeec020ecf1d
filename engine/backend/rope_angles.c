/* Each angle costs a libm call, so a step computes the angles once for all layers. */
#include "engine/backend/rope_angles.h"

#include <math.h>

void rope_angles(const struct plan_rope *r, int32_t pos, float *cos_out, float *sin_out)
{
    for (uint32_t i = 0; i < r->n_rot / 2; i++) {
        float angle = (float)(pos + r->shift) * r->inv_freq[i];
        cos_out[i] = cosf(angle) * r->mscale;
        sin_out[i] = sinf(angle) * r->mscale;
    }
}

float rope_query_scale(const struct plan_rope *r, int32_t pos)
{
    if (r->query_beta == 0) {
        return 1.0f;
    }
    return 1.0f + r->query_beta * logf(1.0f + (float)(((uint32_t)pos + r->query_lead) / r->query_period));
}
