/* Entries of the ISA `ref`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_ref(struct kern_table *t)
{
    t->quantize_row = kern_quantize_row_ref;
    kern_matmul_init_ref(t);
    kern_ops_init_ref(t);
    kern_rows_init_ref(t);
}
