/* Entries of the ISA `i8mm`. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_i8mm(struct kern_table *t) { kern_matmul_init_i8mm(t); }
