/* Runs the Check suites that the Makefile found (unit_suites), all or the ones named on the command line, and ends with
 * the line `N passed, N failed`. */
#include "engine/base/compiler.h"
#include "engine/base/json_read.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef Suite *(*suite_fn)(void);
extern const suite_fn unit_suites[];

/* ck_assert calls it (-Wl,--wrap) for each assertion that holds. Check notes the place for its line about a test that
 * crashes, which takes up to three quarters of the time of tests that assert in loops. A sanitizer's report has the place. */
void __wrap__mark_point(const char *file, int line);
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)file;
    (void)line;
#else
    __real__mark_point(file, line);
#endif
}

struct counts {
    int run, failed;
};

/* Runs the suite, or all (NULL). */
static struct counts run(suite_fn suite)
{
    SRunner *runner = srunner_create(suite != NULL ? suite() : NULL);
    for (const suite_fn *s = unit_suites; suite == NULL && *s != NULL; s++) {
        srunner_add_suite(runner, (*s)());
    }
    srunner_run_all(runner, CK_ENV);
    struct counts n = {srunner_ntests_run(runner), srunner_ntests_failed(runner)};
    srunner_free(runner);
    return n;
}

/* Runs the suite in a process of its own, for its tests have none (CK_FORK=no). One that ends otherwise, as where memory
 * leaked, is a failure. */
static struct counts run_apart(suite_fn suite)
{
    struct counts n = {0, 0};
    int ends[2], status = -1;
    pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) {
        alarm(600); /* seconds: it ends a suite that hangs */
        n = run(suite);
        exit(write(ends[1], &n, sizeof n) != sizeof n);
    }
    close(ends[1]);
    bool is_told = child > 0 && read(ends[0], &n, sizeof n) == sizeof n;
    close(ends[0]);
    struct rusage used = {0};
    bool has_ended = child > 0 && wait4(child, &status, 0, &used) == child;
    long ms =
        (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    printf("%ld.%ld CPU s\n", ms / 1000, ms / 100 % 10); /* of the suite named above */
    if (!has_ended || status != 0 || !is_told) {
        printf("a suite ended with status %d, as the log says above\n", status);
        n = (struct counts){MAX_OF(n.run, 1), MAX_OF(n.failed, 1)};
    }
    return n;
}

/* CK_RUN_SUITE is Check's own way to run one suite. */
int main(int argc, char **argv)
{
    const char *forks = getenv("CK_FORK");
    struct counts all = {0, 0};
    json_number_use_mem();
    setenv("CK_DEFAULT_TIMEOUT", "300", 0); /* seconds: it ends a test that hangs and judges no speed */
    setenv("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 0); /* others leak, and may be there or not */
    setvbuf(stdout, NULL, _IONBF, 0);                             /* once, whichever process says it */
    if (argc > 1) {
        setenv("CK_RUN_SUITE", argv[1], 1);
    }
    if (forks == NULL || strcmp(forks, "no") != 0) {
        all = run(NULL);
    } else {
        for (const suite_fn *s = unit_suites; *s != NULL; s++) {
            struct counts n = run_apart(*s);
            all = (struct counts){all.run + n.run, all.failed + n.failed};
        }
    }
    if (all.run == 0) {
        printf("no such suite: %s\n", argc > 1 ? argv[1] : "(none built)");
    }
    printf("%d passed, %d failed\n", all.run - all.failed, all.failed);
    return all.failed == 0 && all.run > 0 ? 0 : 1;
}
