/* Entries of the ISA `avx2`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_avx2(struct kern_table *t)
{
    t->quantize_row = kern_quantize_row_avx2;
    kern_matmul_init_avx2(t);
    kern_ops_init_avx2(t);
}
