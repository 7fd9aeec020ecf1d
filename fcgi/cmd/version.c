/* `infcgi --version`: the version, and which kernels this CPU can run. */
#include "fcgi/cmd/cmd.h"

#include "engine/kernels/kern.h"

#include <stdio.h>

int cmd_version(void)
{
    printf("infcgi %s\nkernels:", CMD_VERSION);
    for (int i = 0; kern_isa_name(i) != NULL; i++) {
        printf(" %s%s", kern_isa_name(i), kern_isa_is_there(i) ? "" : " (not on this CPU)");
    }
    puts("\nThe last one this CPU has is used; --cpu or INFCGI_CPU names another.");
    return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
}
