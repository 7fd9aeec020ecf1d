/* Costs of prompt rows: what was made up is found again, also where one part of it cannot be told from the other. */
#include "engine/sched/row_costs.h"

#include <check.h>
#include <math.h>

Suite *row_costs_suite(void);

/* A step of n rows from position `from` on, which takes row + pos * position for each. */
static void note(struct row_costs *c, int32_t n, int32_t from, double row, double pos)
{
    double sum = n * (from + (n - 1) / 2.0);
    row_costs_note(c, n, sum, n * row + sum * pos);
}

static void expect(const struct row_costs *c, double pos, double ns, double within)
{
    double got = row_costs_ns(c, pos);
    ck_assert_msg(fabs(got / ns - 1) <= within, "position %.0f: %.0f ns, expected %.0f", pos, got, ns);
}

START_TEST(both_parts_are_found)
{
    struct row_costs c = {0};
    ck_assert(row_costs_ns(&c, 5) == 0);
    for (int32_t i = 0; i < 40; i++) {
        note(&c, 20 + i % 7, i * 30, 1e6, 1000);
    }
    expect(&c, 0, 1e6, 0.001); /* where it has not been for long */
    expect(&c, 1200, 2.2e6, 0.001);
    ck_assert_msg(c.off_ns < 0.5e6, "%.0f", c.off_ns);
    for (int32_t i = 0; i < 60; i++) { /* of a machine that is half as fast */
        note(&c, 20 + i % 7, i % 40 * 30, 2e6, 2000);
    }
    expect(&c, 600, 3.2e6, 0.02);
}
END_TEST

/* All at one position, at the first, and times that fall with positions: no row costs nothing, or less. */
START_TEST(what_cannot_be_told_apart)
{
    struct row_costs c = {0};
    for (int32_t i = 0; i < 20; i++) {
        row_costs_note(&c, 16, 16 * 500.0, 16e6);
    }
    expect(&c, 500, 1e6, 0.001);
    expect(&c, 5000, 1e6, 0.001); /* nothing says that it grows */
    c = (struct row_costs){0};
    row_costs_note(&c, 1, 0, 2e6);
    expect(&c, 0, 2e6, 0.001);
    c = (struct row_costs){0};
    for (int32_t i = 0; i < 20; i++) {
        note(&c, 16, i * 100, 3e6 - i * 1e5, 0);
        ck_assert(row_costs_ns(&c, 0) > 0 && row_costs_ns(&c, 100000) > 0);
    }
    c = (struct row_costs){0};
    for (int32_t i = 1; i < 20; i++) { /* more than proportional */
        note(&c, 16, i * 100, 0, i * 100.0);
        ck_assert(row_costs_ns(&c, 0) > 0 && row_costs_ns(&c, 100000) > 0);
    }
}
END_TEST

/* The mean of what is off: a tenth, this way and that. */
START_TEST(how_far_it_is_off)
{
    struct row_costs c = {0};
    for (int32_t i = 0; i < 200; i++) {
        row_costs_note(&c, 20, 20 * 100.0, 20e6 * (i % 2 ? 1.1 : 0.9));
    }
    ck_assert_msg(c.off_ns > 1.5e6 && c.off_ns < 2.5e6, "%.0f", c.off_ns);
}
END_TEST

Suite *row_costs_suite(void)
{
    Suite *s = suite_create("row_costs");
    TCase *t = tcase_create("row_costs");
    tcase_add_test(t, both_parts_are_found);
    tcase_add_test(t, what_cannot_be_told_apart);
    tcase_add_test(t, how_far_it_is_off);
    suite_add_tcase(s, t);
    return s;
}
