/* UTF-8 decode, encode and cut rules against the definition in RFC 3629. */
#include "engine/base/utf8.h"

#include <check.h>
#include <string.h>

Suite *utf8_suite(void);

START_TEST(every_code_point_survives_a_round_trip)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            continue;
        }
        char s[4];
        size_t n = utf8_encode(cp, s);
        uint32_t back;
        bool valid;
        bool ok = utf8_decode(s, n, &back, &valid) == n && valid && back == cp && utf8_incomplete_tail(s, n) == 0;
        for (size_t cut = 1; cut < n; cut++) {
            ok = ok && utf8_incomplete_tail(s, cut) == cut && !utf8_valid(s, cut, NULL);
        }
        if (!ok) { /* one assertion per code point would take minutes */
            ck_abort_msg("U+%04X does not survive", cp);
        }
    }
}
END_TEST

START_TEST(bad_sequences_are_refused_at_their_first_byte)
{
    static const char *const bad[] = {"\x80",         "\xC0\x80",         "\xC1\xBF", "\xE0\x80\x80",
                                      "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF5\x80", "\xF4\x90\x80\x80",
                                      "\xFE",         "\xE2\x28\xA1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char s[16] = "ok";
        strncat(s, bad[i], 8);
        size_t at = 0;
        ck_assert_msg(!utf8_valid(s, strlen(s), &at), "sequence %zu was accepted", i);
        ck_assert_uint_eq(at, 2);
    }
    ck_assert_uint_eq(utf8_incomplete_tail("a\xE0\x80", 3), 0); /* can never become valid */
}
END_TEST

Suite *utf8_suite(void)
{
    Suite *s = suite_create("utf8");
    TCase *c = tcase_create("utf8");
    tcase_add_test(c, every_code_point_survives_a_round_trip);
    tcase_add_test(c, bad_sequences_are_refused_at_their_first_byte);
    suite_add_tcase(s, c);
    return s;
}
