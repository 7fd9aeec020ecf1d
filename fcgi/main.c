/* The program `infcgi`: selects the subcommand; see fcgi/cmd/. */
#include "fcgi/conf/conf.h"
#include "fcgi/tables.h"
#include "opencl/probe.h"

#include <stdio.h>
#include <string.h>

#define PROBE "probe-devices" /* internal: the process starts itself with it to probe drivers (probe.h) */

enum { PROBE_LIMIT_MS = 20000 }; /* ROCm takes seconds to start; a hung driver never ends */

int main(int argc, char **argv)
{
    const struct program program = tables_all();
    json_number_use_mem();
    conf_default_environment("OCL_ICD_PLATFORM_SORT", "none"); /* sorting would query each driver's devices */
    probe_use_child("/proc/self/exe", PROBE, PROBE_LIMIT_MS);
    if (argc < 2) {
        fputs("error: expected a command; `infcgi --help` lists them\n", stderr);
        return CMD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return cmd_run(&program, CONF_HELP, 1, argv);
    }
    if (strcmp(argv[1], "-t") == 0 || strcmp(argv[1], "--check-config") == 0) {
        static char check[] = "--check-config"; /* -t is the thread count in other commands */
        argv[1] = check;
        return cmd_run(&program, CONF_SERVE, argc, argv);
    }
    if (strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "--version") == 0) {
        return cmd_version();
    }
    if (strcmp(argv[1], PROBE) == 0) {
        return probe_child(argc - 1, argv + 1);
    }
    for (int i = 0; i < program.n_commands; i++) {
        if (strcmp(argv[1], program.commands[i].name) == 0) {
            return cmd_run(&program, program.commands[i].bit, argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "error: unknown command '%s'; `infcgi --help` lists them\n", argv[1]);
    return CMD_USAGE;
}
