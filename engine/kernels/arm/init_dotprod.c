/* Entries of the ISA `dotprod`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_dotprod(struct kern_table *t) { kern_matmul_init_dotprod(t); }
