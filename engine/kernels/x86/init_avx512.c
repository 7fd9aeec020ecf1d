/* Entries of the ISA `avx512`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_avx512(struct kern_table *t)
{
    t->quantize_row = kern_quantize_row_avx512;
    kern_matmul_init_avx512(t);
    kern_ops_init_avx512(t);
}
