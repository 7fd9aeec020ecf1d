/* Chains of only the instruction that dominates a kernel: the maximum of a core. peaks.c times them. */
#include "tests/kernels/checkkern.h"

#include <immintrin.h>

enum { CHAINS = 12, ROUNDS = 30000 }; /* 12 chains cover the latency of 4 to 5 cycles at two a cycle */

double check_peak_int8_avx512(void)
{
    __m512i acc[CHAINS];
    const __m512i codes = _mm512_set1_epi8(3), q = _mm512_set1_epi8(5);
    UNROLL_FULLY
    for (int i = 0; i < CHAINS; i++) {
        acc[i] = _mm512_set1_epi32(i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        UNROLL_FULLY
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm512_dpbusd_epi32(acc[i], codes, q);
        }
    }
    for (int i = 0; i < CHAINS; i++) {
        volatile int32_t keep = _mm512_cvtsi512_si32(acc[i]);
        (void)keep;
    }
    return (double)ROUNDS * CHAINS * 16 * 4 * 2; /* lanes, products per lane, multiply and add */
}

double check_peak_f32_avx512(void)
{
    __m512 acc[CHAINS];
    const __m512 w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(0.25f);
    UNROLL_FULLY
    for (int i = 0; i < CHAINS; i++) {
        acc[i] = _mm512_set1_ps((float)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        UNROLL_FULLY
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm512_fmadd_ps(w, x, acc[i]);
        }
    }
    for (int i = 0; i < CHAINS; i++) {
        volatile float keep = _mm512_cvtss_f32(acc[i]);
        (void)keep;
    }
    return (double)ROUNDS * CHAINS * 16 * 2;
}
