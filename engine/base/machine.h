/* What the process runs on, as Linux tells it. Threads: safe anywhere. */
#ifndef INFCGI_BASE_MACHINE_H
#define INFCGI_BASE_MACHINE_H

#include <stddef.h>

/* Physical memory, or what the control group may have of it. */
size_t machine_memory_bytes(void);

/* The number that a file of the system begins with; SIZE_MAX when there is none ("max"), or a larger one. */
size_t machine_number_in(const char *path);

/* The CPU's name for itself, "AMD EPYC 9654", cut to cap; "" where the system gives none. */
void machine_cpu_name(char *out, size_t cap);

#endif
