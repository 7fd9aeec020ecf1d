/* out = rows * panels^T with AVX-VNNI, quantized kinds: for CPUs without AVX-512 that have vpdpbusd in its VEX encoding
 * (Intel Alder Lake and later). */
#include "engine/kernels/isa.h"
#include "engine/kernels/x86/matmul_vnni_vec.h"

static ALWAYS_INLINE __m256i dot_bytes(__m256i acc, __m256i codes, __m256i bytes)
{
    return _mm256_dpbusd_avx_epi32(acc, codes, bytes);
}

void kern_init_avxvnni(struct kern_table *t) { matmul_vec_init(t); }
