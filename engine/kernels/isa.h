/* Init functions of the ISAs. Each overwrites the entries of the kernel table that it implements. Only isa.c calls
 * them. Threads: pure functions. */
#ifndef INFCGI_KERNELS_ISA_H
#define INFCGI_KERNELS_ISA_H

#include "engine/quant/panel.h"

#include <stddef.h>

struct kern_table;
struct kern_matmul_args;
struct kern_qblock;

void kern_init_ref(struct kern_table *t); /* fills every entry */
void kern_init_avx2(struct kern_table *t);
void kern_init_avxvnni(struct kern_table *t); /* quantized kinds */
void kern_init_avx512(struct kern_table *t);
void kern_init_neon(struct kern_table *t);
void kern_init_dotprod(struct kern_table *t); /* quantized kinds */
void kern_init_i8mm(struct kern_table *t);    /* 8-bit codes */
void kern_init_amx(struct kern_table *t);     /* quantized kinds */

/* Set ref's entries other than matrix products and quantization: operations of the plan, of the sampler on a row. */
void kern_ops_init_ref(struct kern_table *t);
void kern_rows_init_ref(struct kern_table *t);

/* Sets ref's attention in one and two stages, and kv_store. */
struct kv_layout;
void kern_attention_init_ref(struct kern_table *t);
void kern_kv_store_ref(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                       unsigned char *v_page);

/* Sets ref's matmul for every panel kind, and quantize_row. */
void kern_matmul_init_ref(struct kern_table *t);
void kern_quantize_row_ref(const float *x, size_t k, float fine, struct kern_qblock *row);
/* Blocks whose largest magnitude is below this have no scale: 256 * 127 / KERN_AMAX_LEAST does not overflow. */
#define KERN_AMAX_LEAST 0x1p-110f
/* Returns the d^2 above which a block of the row is fine (kern.h); the d of all blocks must be set. */
float kern_fine_limit(const struct kern_qblock *row, size_t n_blocks, float fine);

/* Set the matrix products of quantized and of float kinds. */
void kern_matmul_init_avx2(struct kern_table *t);
void kern_matmul_float_init_avx2(struct kern_table *t);
void kern_quantize_row_avx2(const float *x, size_t k, float fine, struct kern_qblock *row);

void kern_matmul_init_avx512(struct kern_table *t);
void kern_matmul_float_init_avx512(struct kern_table *t);
/* Computes quantized kinds; amx calls it for few rows. */
void kern_matmul_avx512(enum panel_kind kind, const struct kern_matmul_args *a);
void kern_quantize_row_avx512(const float *x, size_t k, float fine, struct kern_qblock *row);

void kern_matmul_init_neon(struct kern_table *t);
void kern_matmul_float_init_neon(struct kern_table *t);
void kern_quantize_row_neon(const float *x, size_t k, float fine, struct kern_qblock *row);

#endif
