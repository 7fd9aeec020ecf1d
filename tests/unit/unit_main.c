/* Runs the Check suites that the Makefile found (unit_suites), all or the ones named on the command line, and ends with
 * the line `N passed, N failed`. */
#include "engine/base/json_read.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Suite *(*suite_fn)(void);
extern const suite_fn unit_suites[];

/* CK_RUN_SUITE is Check's own way to run one suite. */
int main(int argc, char **argv)
{
    json_read_use_mem();
    setenv("CK_DEFAULT_TIMEOUT", "300", 0); /* seconds: it ends a test that hangs and judges no speed */
    setenv("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 0); /* others leak, and may be there or not */
    if (argc > 1) {
        setenv("CK_RUN_SUITE", argv[1], 1);
    }
    SRunner *runner = srunner_create(NULL);
    for (const suite_fn *s = unit_suites; *s != NULL; s++) {
        srunner_add_suite(runner, (*s)());
    }
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    int run = srunner_ntests_run(runner);
    srunner_free(runner);
    if (run == 0) {
        printf("no such suite: %s\n", argc > 1 ? argv[1] : "(none built)");
    }
    printf("%d passed, %d failed\n", run - failed, failed);
    return failed == 0 && run > 0 ? 0 : 1;
}
