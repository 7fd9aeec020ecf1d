/* What the ISA `amx` fills in: the quantised matrix products; everything else is avx512's. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_amx(struct kern_table *t) { kern_matmul_init_amx(t); }
