/* `infcgi --version`: the version, the kernels that this CPU can run, and the devices of each back end. */
#include "engine/backend/backend.h"
#include "engine/kernels/kern.h"
#include "fcgi/cmd/cmd.h"
#include "fcgi/conf/conf.h"

#include <stdio.h>

/* Prints each back end with its devices and the memory that models can use on them. */
static void print_devices(void)
{
    const struct backend *b;
    for (int i = 0; (b = backend_at(i)) != NULL; i++) {
        struct backend_device d;
        struct err_info info = {0};
        enum err err;
        printf("back end %s: %s\n", b->name, b->description);
        for (int k = 0; (err = b->probe(&(struct backend_config){0}, k, &d, &info)) != ERR_NONE; k++) {
            printf("  on %s", d.name[0] != '\0' ? d.name : "a device without a name");
            printf(d.bytes[BACKEND_DEVICE] != 0 ? " with %zu MiB%s" : "", d.bytes[BACKEND_DEVICE] >> 20,
                   d.is_shared[BACKEND_DEVICE] ? " that are the host's" : " of its own");
            printf(", %zu MiB of the host%s%s\n", d.bytes[BACKEND_HOST] >> 20, err != ERR_OK ? ", not usable: " : "",
                   err != ERR_OK ? info.text : "");
        }
    }
}

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
    print_devices();
    return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
}
