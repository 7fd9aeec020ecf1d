/* What Linux tells of the machine. */
#include "engine/base/machine.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *machine_suite(void);

START_TEST(the_number_a_file_begins_with)
{
    static const struct {
        const char *text;
        size_t number;
    } cases[] = {{"0\n", 0},          {"4096 512 7\n", 4096}, {"18446744073709551615\n", SIZE_MAX},
                 {"max\n", SIZE_MAX}, {"", SIZE_MAX},         {"99999999999999999999999999999999999999\n", SIZE_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "/tmp/infcgi-machine-XXXXXX";
        int fd = mkstemp(path);
        size_t n = strlen(cases[i].text);
        ck_assert(fd >= 0 && write(fd, cases[i].text, n) == (ssize_t)n && close(fd) == 0);
        ck_assert_uint_eq(machine_number_in(path), cases[i].number);
        unlink(path);
    }
    ck_assert_uint_eq(machine_number_in("/nowhere/at/all"), SIZE_MAX);
}
END_TEST

/* The same as the shell's tools find. */
START_TEST(the_machine_is_as_the_system_says)
{
    char name[128], cut[4], line[256] = "";
    machine_cpu_name(name, sizeof name);
    machine_cpu_name(cut, sizeof cut);
    FILE *f = popen("grep -m1 '^model name' /proc/cpuinfo | sed 's/.*: //'", "r");
    ck_assert_ptr_nonnull(f);
    if (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
    }
    pclose(f);
    ck_assert_str_eq(name, line);
    ck_assert_uint_eq(strlen(cut), strlen(name) < 3 ? strlen(name) : 3);
    size_t bytes = machine_memory_bytes();
    ck_assert(bytes >= (size_t)16 << 20 && bytes <= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
}
END_TEST

Suite *machine_suite(void)
{
    Suite *s = suite_create("machine");
    TCase *c = tcase_create("machine");
    tcase_add_test(c, the_number_a_file_begins_with);
    tcase_add_test(c, the_machine_is_as_the_system_says);
    suite_add_tcase(s, c);
    return s;
}
