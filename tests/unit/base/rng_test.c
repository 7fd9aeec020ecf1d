/* Philox4x32-10 against the known answers of the Random123 distribution, and the uniform numbers made of it. */
#include "engine/base/rng.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

Suite *rng_suite(void);

START_TEST(philox_gives_the_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, /* digits of pi */
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        rng_philox(known[i].key, known[i].counter, out);
        for (int k = 0; k < 4; k++) {
            ck_assert_msg(out[k] == known[i].out[k], "answer %zu word %d: %08x", i, k, out[k]);
        }
    }
}
END_TEST

START_TEST(uniform_numbers_are_even_and_depend_on_all_three)
{
    enum { N = 200000, BINS = 64 };
    int count[BINS] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = rng_uniform(42, 1, i);
        if (!(u >= 0 && u < 1)) {
            ck_abort_msg("%g is outside [0, 1)", u);
        }
        count[(int)(u * BINS)]++;
        sum += u;
    }
    double chi2 = 0, expected = (double)N / BINS;
    for (int i = 0; i < BINS; i++) {
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    }
    ck_assert_msg(chi2 > 25 && chi2 < 120, "chi2 %g of 63 degrees", chi2); /* p < 1e-5 outside */
    ck_assert(sum / N > 0.497 && sum / N < 0.503);
    double u = rng_uniform(42, 1, 7);
    ck_assert(u == rng_uniform(42, 1, 7));
    ck_assert(u != rng_uniform(43, 1, 7) && u != rng_uniform(42, 2, 7) && u != rng_uniform(42, 1, 8));
    ck_assert(u != rng_uniform(42ull + (1ull << 32), 1, 7) && u != rng_uniform(42, 1, 7 + (1ull << 32)));
}
END_TEST

START_TEST(fresh_seeds_differ)
{
    enum { N = 500 };
    uint64_t seeds[N];
    for (int i = 0; i < N; i++) {
        seeds[i] = rng_fresh_seed();
        for (int k = 0; k < i; k++) {
            if (seeds[k] == seeds[i]) {
                ck_abort_msg("seeds %d and %d are equal", k, i);
            }
        }
    }
    ck_assert(seeds[0] != seeds[N - 1]);
}
END_TEST

Suite *rng_suite(void)
{
    Suite *s = suite_create("rng");
    TCase *c = tcase_create("rng");
    tcase_add_test(c, philox_gives_the_known_answers);
    tcase_add_test(c, uniform_numbers_are_even_and_depend_on_all_three);
    tcase_add_test(c, fresh_seeds_differ);
    suite_add_tcase(s, c);
    return s;
}
