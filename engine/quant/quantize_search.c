/* Searches scale and minimum of one block. For given codes, least squares gives the best scale; for a given scale, the
 * nearest codes are best. So several scales are tried, each judged by the error after least squares. From the best one,
 * codes and scale are recomputed alternately until they no longer change. */
#include "engine/quant/quantize_internal.h"

#include <math.h>

enum { LANES = QUANTIZE_LANES, REFINEMENTS = 4 };

/* Scales below this limit become zero. It is far below the smallest half, and products with its inverse stay finite. */
static const float tiny = 1e-30f;

static inline float inverse(float v) { return fabsf(v) >= tiny ? 1 / v : 0; }

/* --- a scale ------------------------------------------------------------------------------------------------------ */

/* Sums w x q and w q q over a block for codes q = x * inv[lane]. */
static void try_scales(const struct quantize_values *v, float low, float high, const float inv[LANES], float xq[LANES],
                       float qq[LANES])
{
    for (int l = 0; l < LANES; l++) {
        xq[l] = qq[l] = 0;
    }
    for (int i = 0; i < v->n; i++) {
        float xi = v->x[i], wi = v->w[i], wx = wi * xi;
        for (int l = 0; l < LANES; l++) {
            float q = quantize_code(xi * inv[l], low, high);
            xq[l] += wx * q;
            qq[l] += wi * q * q;
        }
    }
}

/* Recomputes the scale from codes and codes from the scale. xq * xq / qq is the gain over all-zero codes. */
static float refine_scale(const struct quantize_values *v, float low, float high, float d)
{
    float best = -1, best_d = d;
    for (int round = 0; round < REFINEMENTS && d != 0; round++) {
        float xq = 0, qq = 0, inv = inverse(d);
        for (int i = 0; i < v->n; i++) {
            float q = quantize_code(v->x[i] * inv, low, high);
            xq += v->w[i] * v->x[i] * q;
            qq += v->w[i] * q * q;
        }
        float gain = qq > 0 ? xq * xq / qq : 0;
        if (!(gain > best)) {
            break;
        }
        best = gain;
        best_d = d = xq * inverse(qq);
    }
    return best_d;
}

float quantize_fit_scale(const struct quantize_values *v, int low, int high)
{
    float peak = 0;
    for (int i = 0; i < v->n; i++) {
        peak = fabsf(v->x[i]) > fabsf(peak) ? v->x[i] : peak;
    }
    if (fabsf(peak) < tiny) {
        return 0;
    }
    /* The largest value gets the code at one end of the range, or is up to 1.3 codes inside or 1.2 outside. */
    float inv[LANES], xq[LANES], qq[LANES], best = 0, d = 0;
    for (int end = low == -high ? 1 : 0; end < 2; end++) { /* with low = -high both ends are equal */
        float edge = end == 0 ? (float)low : (float)high, sign = edge < 0 ? -1.0f : 1.0f;
        for (int l = 0; l < LANES; l++) {
            inv[l] = (edge + sign * ((float)l / 6 - 1.3f)) / peak;
        }
        try_scales(v, (float)low, (float)high, inv, xq, qq);
        for (int l = 0; l < LANES; l++) {
            float gain = qq[l] > 0 ? xq[l] * xq[l] / qq[l] : 0;
            if (gain > best) {
                best = gain;
                d = xq[l] / qq[l];
            }
        }
    }
    return refine_scale(v, (float)low, (float)high, d);
}

/* --- a scale and a minimum ---------------------------------------------------------------------------------------- */

/* Sums of a block that do not depend on codes. */
struct sums {
    float w, x, xx;
};

/* Solves least squares for codes with the sums q = sum w q, qq, xq. *err: the remaining error. Returns false if all
 * codes are equal. */
static bool solve(const struct sums *s, float q, float qq, float xq, bool below_zero, struct quantize_line *out,
                  float *err)
{
    float det = s->w * qq - q * q;
    if (!(det > 0)) {
        return false;
    }
    out->scale = (s->w * xq - s->x * q) / det;
    out->min = (qq * s->x - q * xq) / det;
    if (below_zero && out->min > 0) {
        *out = (struct quantize_line){.scale = xq / qq, .min = 0};
    }
    *err = s->xx - out->scale * xq - out->min * s->x;
    return out->scale > 0;
}

/* Computes the sums over a block for codes q = (x - from[lane]) * inv[lane]. */
static void try_ranges(const struct quantize_values *v, float high, const float from[LANES], const float inv[LANES],
                       float q_sum[LANES], float qq[LANES], float xq[LANES])
{
    for (int l = 0; l < LANES; l++) {
        q_sum[l] = qq[l] = xq[l] = 0;
    }
    for (int i = 0; i < v->n; i++) {
        float xi = v->x[i], wi = v->w[i];
        for (int l = 0; l < LANES; l++) {
            float q = quantize_code((xi - from[l]) * inv[l], 0, high), wq = wi * q;
            q_sum[l] += wq;
            qq[l] += wq * q;
            xq[l] += wq * xi;
        }
    }
}

static struct quantize_line refine_line(const struct quantize_values *v, float high, const struct sums *s,
                                        bool below_zero, struct quantize_line line)
{
    float best = INFINITY;
    struct quantize_line best_line = line;
    for (int round = 0; round < REFINEMENTS; round++) {
        float q_sum = 0, qq = 0, xq = 0, err, inv = inverse(line.scale);
        for (int i = 0; i < v->n; i++) {
            float q = quantize_code((v->x[i] - line.min) * inv, 0, high), wq = v->w[i] * q;
            q_sum += wq;
            qq += wq * q;
            xq += wq * v->x[i];
        }
        if (!solve(s, q_sum, qq, xq, below_zero, &line, &err) || !(err < best)) {
            break;
        }
        best = err;
        best_line = line;
    }
    return best_line;
}

struct quantize_line quantize_fit_line(const struct quantize_values *v, int high, bool below_zero)
{
    struct sums s = {0};
    float least = v->x[0], most = v->x[0];
    for (int i = 0; i < v->n; i++) {
        least = v->x[i] < least ? v->x[i] : least;
        most = v->x[i] > most ? v->x[i] : most;
        s.w += v->w[i];
        s.x += v->w[i] * v->x[i];
        s.xx += v->w[i] * v->x[i] * v->x[i];
    }
    least = below_zero && least > 0 ? 0 : least;
    if (!(most - least >= tiny)) { /* all equal, or with below_zero none above zero */
        return (struct quantize_line){.scale = 0, .min = least};
    }
    /* The range of codes can begin and end slightly inside or outside the values, in units of a code. 0 and 0 reproduce
     * values that were already Q4_1 or Q5_1, -1 values with half the number of codes. */
    static const float from_inside[LANES / 2] = {-0.3f, 0, 0.25f, 0.5f, 0.75f, 1, 1.3f, 1.7f};
    static const float to_inside[LANES / 4] = {-1, 0, 0.4f, 1};
    float code = (most - least) / (float)high, best = INFINITY, from[LANES], inv[LANES];
    float q_sum[LANES], qq[LANES], xq[LANES];
    struct quantize_line line = {.scale = code, .min = least};
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < LANES; l++) {
            float to = most - to_inside[2 * half + l / 8] * code;
            from[l] = least + from_inside[l % 8] * code;
            inv[l] = (float)high / (to - from[l]);
        }
        try_ranges(v, (float)high, from, inv, q_sum, qq, xq);
        for (int l = 0; l < LANES; l++) {
            struct quantize_line fitted;
            float err;
            if (solve(&s, q_sum[l], qq[l], xq[l], below_zero, &fitted, &err) && err < best) {
                best = err;
                line = fitted;
            }
        }
    }
    return refine_line(v, (float)high, &s, below_zero, line);
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

void quantize_try_lines(const struct quantize_values *v, int low, int high, const float scale[LANES],
                        const float min[LANES], float err[LANES])
{
    float inv[LANES];
    for (int l = 0; l < LANES; l++) {
        inv[l] = inverse(scale[l]);
        err[l] = 0;
    }
    for (int i = 0; i < v->n; i++) {
        float xi = v->x[i], wi = v->w[i];
        for (int l = 0; l < LANES; l++) {
            float q = quantize_code((xi - min[l]) * inv[l], (float)low, (float)high);
            float off = xi - (scale[l] * q + min[l]);
            err[l] += wi * off * off;
        }
    }
}

float quantize_codes(struct quantize_values v, int low, int high, struct quantize_line line, uint8_t *codes)
{
    float lost = 0, inv = inverse(line.scale);
    for (int i = 0; i < v.n; i++) {
        float q = quantize_code((v.x[i] - line.min) * inv, (float)low, (float)high);
        float off = v.x[i] - (line.scale * q + line.min);
        lost += v.w[i] * off * off;
        codes[i] = (uint8_t)((int)q - low);
    }
    return lost;
}
