/* Entries of the ISA `neon`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_neon(struct kern_table *t)
{
    t->quantize_row = kern_quantize_row_neon;
    kern_matmul_init_neon(t);
    kern_ops_init_neon(t);
}
