/* libFuzzer's program of all targets: fuzz --target=NAME [libFuzzer's arguments]. [LLVM 14, docs/LibFuzzer] */
#include "tests/fuzz/fuzz.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct fuzz_target *target;

/* libFuzzer passes over what begins with two dashes. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char option[] = "--target=";
    for (int i = 1; i < *argc; i++) {
        if (strncmp((*argv)[i], option, sizeof option - 1) == 0) {
            target = fuzz_start((*argv)[i] + sizeof option - 1);
        }
    }
    if (target == NULL) {
        fputs("expected --target=NAME, one of", stderr);
        for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
            fprintf(stderr, " %s", t->name);
        }
        fputs("\n", stderr);
        exit(64);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_run(target, data, n);
    return 0;
}
