/* The operations whose bodies are in this folder, as entries of the kernel table. Include after a vector type:
 * x86/vec_avx2.h, x86/vec_avx512.h or arm/vec_neon.h. */
#ifndef INFCGI_KERNELS_VEC_INIT_VEC_H
#define INFCGI_KERNELS_VEC_INIT_VEC_H

#include "engine/kernels/vec/attention_vec.h"
#include "engine/kernels/vec/kv_store_vec.h"
#include "engine/kernels/vec/linear_vec.h"
#include "engine/kernels/vec/ops_vec.h"
#include "engine/kernels/vec/rows_vec.h"

/* Sets all entries except matrix products and quantization. */
static void vec_init(struct kern_table *t)
{
    t->rmsnorm = vec_rmsnorm;
    t->add = vec_add_into;
    t->glu = vec_glu;
    t->rope = vec_rope;
    t->argmax = vec_argmax;
    t->logsumexp = vec_logsumexp;
    t->block_max = vec_block_max;
    t->block_expsum = vec_block_expsum;
    t->collect = vec_collect;
    t->bin_sums = vec_bin_sums;
    t->attention = vec_attention;
    t->attention_part = vec_attention_part;
    t->attention_join = vec_attention_join;
    t->kv_store = vec_kv_store;
    t->linear_attention = vec_linear_attention;
    t->decay = vec_decay;
    t->selective_scan = vec_selective_scan;
}

#endif
