/* Entries of the ISA `neon`; small operations and attention are the shared bodies over its vector. */
#include "engine/kernels/arm/vec_neon.h"

#include "engine/kernels/isa.h"
#include "engine/kernels/vec/init_vec.h"

void kern_init_neon(struct kern_table *t)
{
    vec_init(t);
    t->quantize_row = kern_quantize_row_neon;
    kern_matmul_init_neon(t);
    kern_matmul_float_init_neon(t);
}
