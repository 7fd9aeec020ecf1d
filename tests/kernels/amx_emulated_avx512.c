/* The kernels of amx with the emulated tile instructions, for CPUs without AMX, which are the vast majority. */
#include "tests/kernels/amx_emulated.h"

#include "engine/kernels/x86/matmul_amx_vec.h"
#include "tests/kernels/checkkern.h"

void check_init_amx_emulated(struct kern_table *t) { matmul_amx_init(t); }

const char *check_amx_fault(void)
{
    static char fault[sizeof amx_cpu.fault];
    memcpy(fault, amx_cpu.fault, sizeof fault);
    amx_cpu.fault[0] = '\0';
    if (fault[0] != '\0') {
        return fault;
    }
    long n = amx_cpu.n_dots;
    amx_cpu.n_dots = 0;
    return amx_cpu.is_configured ? "tiles were not released" : n == 0 ? "no tile product was made" : NULL;
}
