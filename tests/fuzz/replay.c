/* Runs the files of tests/fuzz/corpus/<target>/, or of another folder, through their targets and ends with the line `N
 * passed, N failed`. Each target runs in a process of its own, so that one that dies takes no other with it; the file
 * it ran is in the last line it wrote.
 *   fuzz-replay [FOLDER] */
#include "tests/fuzz/fuzz.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_SECONDS = 60, /* a file: ends what hangs, judges no speed */
    MAX_RSS_MIB = 2048,
};

/* The bytes of a file, in a block of their size. */
static unsigned char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert(f != NULL && fseek(f, 0, SEEK_END) == 0);
    long size = ftell(f);
    assert(size >= 0);
    *n = (size_t)size;
    rewind(f);
    unsigned char *data = malloc(*n > 0 ? *n : 1);
    assert(data != NULL && fread(data, 1, *n, f) == *n);
    fclose(f);
    return data;
}

static void run_file(const struct fuzz_target *t, const char *path)
{
    size_t n;
    unsigned char *data = read_whole(path, &n);
    struct rusage use;
    fprintf(stderr, "%s: %s\n", t->name, path);
    alarm(MAX_SECONDS);
    fuzz_run(t, data, n);
    alarm(0);
    free(data);
    getrusage(RUSAGE_SELF, &use);
    if (use.ru_maxrss >> 10 > MAX_RSS_MIB) {
        fprintf(stderr, "ERROR: %ld MiB resident\n", use.ru_maxrss >> 10);
        abort();
    }
}

/* How many files passed; *n: how many there are. A byte into the pipe for each that passed. */
static size_t run_target(const char *folder, const char *name, size_t *n)
{
    char pattern[512];
    glob_t files = {0};
    int ends[2];
    snprintf(pattern, sizeof pattern, "%s/%s/*", folder, name);
    glob(pattern, 0, NULL, &files);
    *n = files.gl_pathc;
    int status = pipe(ends);
    assert(status == 0);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        const struct fuzz_target *t = fuzz_start(name);
        for (size_t i = 0; i < files.gl_pathc; i++) {
            run_file(t, files.gl_pathv[i]);
            ssize_t wrote = write(ends[1], "+", 1);
            assert(wrote == 1);
        }
        globfree(&files);
        exit(0);
    }
    close(ends[1]);
    size_t passed = 0;
    for (char c; read(ends[0], &c, 1) == 1;) {
        passed++;
    }
    close(ends[0]);
    globfree(&files);
    waitpid(child, &status, 0);
    if (status != 0) { /* leaks show at the end */
        printf("FAIL %s: ended with %s %d\n", name, WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        return passed < *n ? passed : *n - 1;
    }
    return passed;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "tests/fuzz/corpus";
    size_t passed = 0, failed = 0, n;
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++) {
        size_t good = run_target(folder, t->name, &n);
        if (n == 0) {
            printf("FAIL %s: no file in %s/%s\n", t->name, folder, t->name);
        }
        passed += good;
        failed += n == 0 ? 1 : n - good;
    }
    printf("%zu passed, %zu failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
