/* The machine the process runs on, as Linux reports it. Threads: safe from any. */
#ifndef INFCGI_BASE_MACHINE_H
#define INFCGI_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Returns the physical memory, or the control group's limit if that is less. */
size_t machine_memory_bytes(void);

/* Returns the number at the start of a system file; SIZE_MAX if there is none ("max") or it is larger. */
size_t machine_number_in(const char *path);

/* Writes the CPU's name, "AMD EPYC 9654", cut to cap; "" if the system has none. */
void machine_cpu_name(char *out, size_t cap);

/* Returns the bytes that the calling thread has read from disks, also by touching mapped memory; 0 if Linux does not
 * count them. Major faults are no measure: Linux also counts retries for pages that are in memory. */
uint64_t machine_disk_bytes(void);

#endif
