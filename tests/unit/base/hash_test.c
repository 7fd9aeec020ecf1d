/* hash64: every bit counts, and so do length, order and seed. */
#include "engine/base/hash.h"

#include <check.h>
#include <string.h>

Suite *hash_suite(void);

enum { LONGEST = 200 };

static void fill(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (unsigned char)(i * 37 + 11);
    }
}

START_TEST(every_bit_counts)
{
    unsigned char p[LONGEST];
    fill(p, sizeof p);
    for (size_t n = 1; n <= sizeof p; n++) {
        uint64_t whole = hash64(p, n, 0);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            p[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (hash64(p, n, 0) == whole) {
                ck_abort_msg("%zu bytes: bit %zu makes no difference", n, bit);
            }
            p[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        ck_assert_uint_eq(hash64(p, n, 0), whole);
    }
}
END_TEST

/* Two flips could cancel where a step does not mix: any bit of any word with any bit of another. */
START_TEST(two_bits_count)
{
    unsigned char p[3 * 64];
    fill(p, sizeof p);
    uint64_t whole = hash64(p, sizeof p, 0);
    for (size_t a = 0; a < 8 * sizeof p; a++) {
        for (size_t b = a + 1; b < 8 * sizeof p; b++) {
            p[a / 8] ^= (unsigned char)(1u << a % 8);
            p[b / 8] ^= (unsigned char)(1u << b % 8);
            if (hash64(p, sizeof p, 0) == whole) {
                ck_abort_msg("bits %zu and %zu together make no difference", a, b);
            }
            p[a / 8] ^= (unsigned char)(1u << a % 8);
            p[b / 8] ^= (unsigned char)(1u << b % 8);
        }
    }
}
END_TEST

START_TEST(length_order_and_seed_count)
{
    unsigned char zeros[LONGEST] = {0}, p[128];
    for (size_t n = 0; n < sizeof zeros; n++) {
        for (size_t k = n + 1; k <= sizeof zeros; k++) {
            if (hash64(zeros, n, 0) == hash64(zeros, k, 0)) {
                ck_abort_msg("%zu and %zu zeros look alike", n, k);
            }
        }
    }
    fill(p, sizeof p);
    uint64_t whole = hash64(p, sizeof p, 0);
    ck_assert_uint_ne(hash64(p, sizeof p, 1), whole);
    unsigned char swapped[128];
    memcpy(swapped, p + 64, 64);
    memcpy(swapped + 64, p, 64);
    ck_assert_uint_ne(hash64(swapped, sizeof swapped, 0), whole);
    ck_assert_uint_eq(hash64_u64(0x0706050403020100, 9), hash64((const uint64_t[]){0x0706050403020100}, 8, 9));
}
END_TEST

START_TEST(alignment_does_not_count)
{
    unsigned char p[LONGEST + 8];
    fill(p, LONGEST);
    uint64_t whole = hash64(p, LONGEST, 5);
    for (size_t shift = 1; shift < 8; shift++) {
        memmove(p + shift, p + shift - 1, LONGEST);
        ck_assert_uint_eq(hash64(p + shift, LONGEST, 5), whole);
    }
}
END_TEST

Suite *hash_suite(void)
{
    Suite *s = suite_create("hash");
    TCase *c = tcase_create("hash");
    tcase_add_test(c, every_bit_counts);
    tcase_add_test(c, two_bits_count);
    tcase_add_test(c, length_order_and_seed_count);
    tcase_add_test(c, alignment_does_not_count);
    suite_add_tcase(s, c);
    return s;
}
