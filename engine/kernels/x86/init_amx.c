/* Entries of the ISA `amx`: the quantized matrix products. avx512 sets all others. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_amx(struct kern_table *t) { kern_matmul_init_amx(t); }
