/* Init functions of the ISAs: each overwrites the entries of the kernel table that it has a version of.
 * Only isa.c calls them. Threads: pure functions. */
#ifndef INFCGI_KERNELS_ISA_H
#define INFCGI_KERNELS_ISA_H

struct kern_table;

void kern_init_ref(struct kern_table *t); /* fills every entry */
void kern_init_avx2(struct kern_table *t);
void kern_init_avx512(struct kern_table *t);

#endif
