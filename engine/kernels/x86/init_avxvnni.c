/* Entries of the ISA `avxvnni`: the quantized matrix products. avx2 sets all others. */
#include "engine/kernels/isa.h"

#include "engine/kernels/kern.h"

void kern_init_avxvnni(struct kern_table *t) { kern_matmul_init_avxvnni(t); }
