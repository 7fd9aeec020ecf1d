/* The kernels of avxvnni with AVX-512VL's encoding of vpdpbusd: the same source, for CPUs without AVX-VNNI. */
#include "engine/kernels/x86/matmul_vnni_vec.h"
#include "tests/kernels/checkkern.h"

static ALWAYS_INLINE __m256i dot_bytes(__m256i acc, __m256i codes, __m256i bytes)
{
    return _mm256_dpbusd_epi32(acc, codes, bytes);
}

void check_init_avxvnni_evex(struct kern_table *t) { matmul_vec_init(t); }
