/* Entries of the ISA `avx2`; small operations and attention are the shared bodies over its vector. */
#include "engine/kernels/x86/vec_avx2.h"

#include "engine/kernels/isa.h"
#include "engine/kernels/vec/init_vec.h"

void kern_init_avx2(struct kern_table *t)
{
    vec_init(t);
    t->quantize_row = kern_quantize_row_avx2;
    kern_matmul_init_avx2(t);
    kern_matmul_float_init_avx2(t);
}
