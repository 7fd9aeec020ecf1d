/* The program `infcgi`: picks the subcommand. Does nothing else; see fcgi/cmd/. */
#include "fcgi/cmd/cmd.h"

#include "engine/base/compiler.h"
#include "engine/base/json_read.h"

#include <stdio.h>
#include <string.h>

/* Adding a subcommand: its file in fcgi/cmd/, its declaration in cmd.h, a row here. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* one line */
} commands[] = {
    {"serve", cmd_serve, "serve a model over FastCGI"},
    {"generate", cmd_generate, "continue one prompt"},
    {"bench", cmd_bench, "measure prefill and decode speed"},
    {"inspect", cmd_inspect, "show or check what is in a model file"},
    {"convert", cmd_convert, "make a GGUF file, with weights of another type if wanted"},
    {"tokenize", cmd_tokenize, "show the token ids of a text"},
};

static void print_usage(FILE *out)
{
    fputs("usage: infcgi COMMAND [ARGUMENTS]\n\ncommands:\n", out);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    }
    fputs("\n`infcgi COMMAND --help` tells about one command. `infcgi -t OPTIONS` checks the options of serve and the "
          "model file\n"
          "and exits; `infcgi -V` tells the version and the kernels of this CPU.\n",
          out);
}

int main(int argc, char **argv)
{
    json_read_use_mem();
    if (argc < 2) {
        fputs("error: expected a command; `infcgi --help` lists them\n", stderr);
        return CMD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return fflush(stdout) == 0 ? CMD_OK : CMD_BAD_OUTPUT;
    }
    if (strcmp(argv[1], "-t") == 0 || strcmp(argv[1], "--check-config") == 0) {
        static char check[] = "--check-config"; /* -t is the number of threads everywhere else */
        argv[1] = check;
        return cmd_serve(argc, argv);
    }
    if (strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "--version") == 0) {
        return cmd_version();
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "error: unknown command '%s'; `infcgi --help` lists them\n", argv[1]);
    return CMD_USAGE;
}
