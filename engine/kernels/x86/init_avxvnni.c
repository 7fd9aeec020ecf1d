/* What the ISA `avxvnni` fills in: the quantised matrix products; everything else is avx2's. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_avxvnni(struct kern_table *t) { kern_matmul_init_avxvnni(t); }
