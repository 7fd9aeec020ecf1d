/* `infcgi --version`: the version, and which kernels this CPU can run; --cpu for the commands that run none. */
#include "fcgi/cmd/cmd.h"

#include "engine/kernels/kern.h"
#include "fcgi/conf.h"

#include <stdio.h>
#include <string.h>

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

int cmd_take_cpu(int *argc, char **argv)
{
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        bool is_apart = strcmp(argv[i], "--cpu") == 0 && i + 1 < *argc;
        if (!is_apart && strncmp(argv[i], "--cpu=", 6) != 0) {
            continue;
        }
        struct kern_table unused;
        struct err_info info = {0};
        if (kern_select(is_apart ? argv[i + 1] : argv[i] + 6, &unused, &info) != ERR_OK) {
            fprintf(stderr, "error: %s: %s\n", argv[0], info.text);
            return CMD_USAGE;
        }
        int taken = is_apart ? 2 : 1;
        memmove(argv + i, argv + i + taken, (size_t)(*argc - i - taken + 1) * sizeof *argv);
        *argc -= taken;
        i--;
    }
    return CMD_OK;
}
