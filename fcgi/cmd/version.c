/* `infcgi --version`: the version, and which kernels this CPU can run. */
#include "fcgi/cmd/cmd.h"

#include "engine/kernels/kern.h"
#include "fcgi/conf.h"

#include <stdio.h>

int cmd_version(void)
{
    char flags[KERN_CPU_FLAGS_BYTES];
    const char *asked = conf_environment("cpu"), *best = "ref";
    printf("infcgi %s\nkernels:", CMD_VERSION);
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        kern_isa_lacks(i, flags);
        printf(flags[0] == '\0' ? " %s" : " %s (this CPU lacks %s)", kern_isa_name(i), flags);
        best = flags[0] == '\0' ? kern_isa_name(i) : best;
    }
    kern_cpu_flags(flags);
    printf("\nchosen: %s, %s; --cpu or INFCGI_CPU names another\nCPU flags found: %s\n", asked != NULL ? asked : best,
           asked != NULL ? "as INFCGI_CPU says" : "the best this CPU can run",
           flags[0] != '\0' ? flags : "none that matter");
    return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
}
