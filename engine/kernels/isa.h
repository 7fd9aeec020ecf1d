/* Init functions of the ISAs: each overwrites the entries of the kernel table that it has a version of.
 * Only isa.c calls them. Threads: pure functions. */
#ifndef INFCGI_KERNELS_ISA_H
#define INFCGI_KERNELS_ISA_H

#include <stddef.h>

struct kern_table;

void kern_init_ref(struct kern_table *t); /* fills every entry */
void kern_init_avx2(struct kern_table *t);
void kern_init_avx512(struct kern_table *t);

/* The entries that are not matrix products or quantisation; each kern_init_* calls its own. */
void kern_ops_init_ref(struct kern_table *t);
void kern_ops_init_avx2(struct kern_table *t);
void kern_ops_init_avx512(struct kern_table *t);

/* ref: attention in one and in two stages; kv_store. */
struct kv_layout;
void kern_attention_init_ref(struct kern_table *t);
void kern_kv_store_ref(const struct kv_layout *l, const float *k, const float *v, int slot, unsigned char *k_page,
                       unsigned char *v_page);

/* ref: matmul for every panel kind; quantize_row. */
void kern_matmul_init_ref(struct kern_table *t);
void kern_quantize_row_ref(const float *x, size_t k, void *row);

void kern_matmul_init_avx2(struct kern_table *t);
void kern_matmul_float_init_avx2(struct kern_table *t); /* called by the line above */
void kern_quantize_row_avx2(const float *x, size_t k, void *row);

void kern_matmul_init_avx512(struct kern_table *t);
void kern_matmul_float_init_avx512(struct kern_table *t); /* called by the line above */
void kern_quantize_row_avx512(const float *x, size_t k, void *row);

#endif
