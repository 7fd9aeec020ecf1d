/* Computes exp of a vector: 2^n * e^r with r in +-ln2/2 and a polynomial of degree 7 [coefficients: Cephes expf,
 * Moshier 1989]. exp(0) is exactly 1. Below -87.3 the result is 0, above 88.3 infinity (exact limit 88.7: the last bit
 * of range is dropped, so that 2^n is a normal number). NaN returns NaN. Error: 2 ulp or less (tested through glu in
 * tests/kernels/check_ops.c). Include after a vec_<isa>.h. */
#ifndef INFCGI_KERNELS_VEC_EXP_VEC_H
#define INFCGI_KERNELS_VEC_EXP_VEC_H

#include <math.h>

static inline vec vec_exp(vec x)
{
    vec in = vec_min(vec_set1(88.3f), vec_max(vec_set1(-87.3f), x));
    vec n = vec_round(vec_mul(in, vec_set1(1.44269504088896341f)));
    vec r = vec_fma(n, vec_set1(-0.693359375f), in); /* ln 2 in two parts, the first exact in 10 bits */
    r = vec_fma(n, vec_set1(2.12194440e-4f), r);
    vec p = vec_set1(1.9875691500e-4f);
    p = vec_fma(p, r, vec_set1(1.3981999507e-3f));
    p = vec_fma(p, r, vec_set1(8.3334519073e-3f));
    p = vec_fma(p, r, vec_set1(4.1665795894e-2f));
    p = vec_fma(p, r, vec_set1(1.6666665459e-1f));
    p = vec_fma(p, r, vec_set1(5.0000001201e-1f));
    p = vec_fma(p, vec_mul(r, r), r);
    vec e = vec_scale2(vec_add(p, vec_set1(1.0f)), n);
    e = vec_if_less(vec_set1(88.3f), x, vec_set1(INFINITY), e);
    return vec_if_less(x, vec_set1(-87.3f), vec_set1(0.0f), e);
}

/* Computes 2^t for t <= 0, as softmax needs it: 2^floor(t) times a polynomial of degree 5 of the fraction [our fit,
 * least relative error by Lawson's iteration]. 2^0 is exactly 1; below -126 the result can be 0; NaN returns NaN.
 * Relative error at most 1.5e-7. */
static inline vec vec_exp2(vec t)
{
#if VEC_TILE == 8
    vec in = t;
#else
    vec in = vec_max(vec_set1(-126.0f), t);
#endif
    vec r = vec_fraction(in), p = vec_set1(1.86713005e-3f);
    p = vec_fma(p, r, vec_set1(9.01703071e-3f));
    p = vec_fma(p, r, vec_set1(5.57999127e-2f));
    p = vec_fma(p, r, vec_set1(2.40164444e-1f));
    p = vec_fma(p, r, vec_set1(6.93151295e-1f));
    p = vec_fma(p, r, vec_set1(1.0f));
    p = vec_scale_floor(p, in);
#if VEC_TILE == 8
    return p;
#else
    return vec_if_less(t, vec_set1(-126.0f), vec_set1(0.0f), p);
#endif
}

#endif
