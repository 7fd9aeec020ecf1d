/* The small operations and attention for avx512: the shared bodies over avx512's vector. */
#include "engine/kernels/x86/vec_avx512.h"

#include "engine/kernels/isa.h"
#include "engine/kernels/vec/attention_vec.h"
#include "engine/kernels/vec/kv_store_vec.h"
#include "engine/kernels/vec/linear_vec.h"
#include "engine/kernels/vec/ops_vec.h"
#include "engine/kernels/vec/rows_vec.h"

void kern_ops_init_avx512(struct kern_table *t)
{
    ops_vec_init(t);
    rows_vec_init(t);
    attention_vec_init(t);
    t->kv_store = vec_kv_store;
    t->linear_attention = vec_linear_attention;
}
