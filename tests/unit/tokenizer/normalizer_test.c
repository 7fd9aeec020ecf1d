/* Normal forms: known cases, agreement with utf8proc on random text, bytes that are no UTF-8, and long runs of marks.
 */
#include "engine/tokenizer/normalizer.h"

#include "engine/base/clock.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/unicode_table.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

Suite *normalizer_suite(void);

static const struct {
    enum normalizer_form form;
    const char *text, *want;
} cases[] = {
    {NORMALIZER_NFC, "cafe\xCC\x81", "caf\xC3\xA9"},
    {NORMALIZER_NFC, "caf\xC3\xA9 abcdefghijk", "caf\xC3\xA9 abcdefghijk"},
    {NORMALIZER_NFC, "abcdefghe\xCC\x81", "abcdefgh\xC3\xA9"},
    {NORMALIZER_NFC, "a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81"},            /* the dot below comes first */
    {NORMALIZER_NFC, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"}, /* Hangul L V T */
    {NORMALIZER_NFC, "\xE2\x84\xAB\xE2\x84\xA6", "\xC3\x85\xCE\xA9"},         /* Angstrom, Ohm */
    {NORMALIZER_NFC, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},             /* excluded from composition */
    {NORMALIZER_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81"},
    {NORMALIZER_NFC, "\xCC\x81", "\xCC\x81"},
    {NORMALIZER_NFC, "e\xFF\xCC\x81", "e\xFF\xCC\x81"}, /* a stray byte joins nothing */
    {NORMALIZER_NFC, "", ""},
    {NORMALIZER_NFD, "caf\xC3\xA9", "cafe\xCC\x81"},
    {NORMALIZER_NFKC, "\xEF\xAC\x81 \xEF\xBC\xA1", "fi A"},
    {NORMALIZER_NFKC, "e\xEF\xAC\x81\xFF", "efi\xFF"},
    {NORMALIZER_NFKD, "\xC2\xBD\xC3\xA9",
     "1\xE2\x81\x84"
     "2e\xCC\x81"},
};

START_TEST(known_cases)
{
    struct buf out;
    bool changed;
    size_t n = strlen(cases[_i].text);
    buf_init(&out, 0, MEM_GENERAL);
    ck_assert_int_eq(normalizer_run(cases[_i].form, cases[_i].text, n, &out, &changed), ERR_OK);
    ck_assert_int_eq(changed, strcmp(cases[_i].text, cases[_i].want) != 0);
    ck_assert_str_eq(changed ? out.data : cases[_i].text, cases[_i].want);
    buf_fini(&out);
}
END_TEST

START_TEST(random_text_is_as_utf8proc_has_it)
{
    static const uint32_t likely[] = {'a',    'e',    ' ',    0x301,  0x323,  0x30A,  0x345,  0x3B1,
                                      0x1100, 0x1161, 0x11A8, 0xAC00, 0xE9,   0x915,  0x93C,  0x212B,
                                      0xFB01, 0x5D0,  0x5B7,  0x304B, 0x3099, 0xF900, 0x1F600};
    static const utf8proc_option_t options[] = {
        [NORMALIZER_NFC] = UTF8PROC_COMPOSE | UTF8PROC_STABLE,
        [NORMALIZER_NFD] = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE,
        [NORMALIZER_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE,
        [NORMALIZER_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE,
    };
    uint64_t seed = 99;
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    for (int i = 0; i < 40000; i++) {
        char s[128];
        size_t n = 0;
        for (uint64_t k = vocab_random(&seed) % 20; k > 0; k--) {
            uint64_t r = vocab_random(&seed);
            uint32_t cp = r % 4 == 0 ? (uint32_t)(r >> 8) % 0x3000 + 0x20 : likely[(r >> 8) % ARRAY_LEN(likely)];
            n += utf8_encode(cp, s + n);
        }
        enum normalizer_form form = (enum normalizer_form)(NORMALIZER_NFC + i % 4);
        bool changed;
        utf8proc_uint8_t *want = NULL;
        utf8proc_ssize_t n_want = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &want, options[form]);
        ck_assert_int_eq(normalizer_run(form, s, n, &out, &changed), ERR_OK);
        size_t n_got = changed ? out.len : n;
        if (n_want < 0 || n_got != (size_t)n_want || memcmp(changed ? out.data : s, want, n_got) != 0) {
            ck_abort_msg("text %d, form %d: %zu bytes, expected %zd", i, (int)form, n_got, (ssize_t)n_want);
        }
        free(want);
    }
    buf_fini(&out);
}
END_TEST

/* The table must flag whatever a normal form changes: a character that it does not is its own form. */
START_TEST(characters_that_are_not_flagged_stay)
{
    for (uint32_t cp = 0x80; cp <= 0x10FFFF; cp++) {
        char s[4];
        size_t n = utf8_encode(cp, s);
        if ((cp >= 0xD800 && cp <= 0xDFFF) || unicode_nfc_may_change(cp)) {
            continue;
        }
        utf8proc_uint8_t *nfc = NULL;
        utf8proc_ssize_t len =
            utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &nfc, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (len != (utf8proc_ssize_t)n || memcmp(nfc, s, n) != 0) {
            ck_abort_msg("U+%04X changes under NFC and is not flagged", (unsigned)cp);
        }
        free(nfc);
    }
}
END_TEST

START_TEST(a_megabyte_of_marks_is_sorted_in_time)
{
    enum { N = 1 << 19 };
    char *s = mem_alloc(2 * N, MEM_GENERAL);
    for (size_t i = 0; i < N; i++) {
        memcpy(s + 2 * i, i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3", 2); /* above, below */
    }
    struct buf out;
    bool changed;
    buf_init(&out, 0, MEM_GENERAL);
    uint64_t start = clock_thread_ns();
    ck_assert_int_eq(normalizer_run(NORMALIZER_NFC, s, 2 * N, &out, &changed), ERR_OK);
    ck_assert(clock_thread_ns() - start < 5000000000u);
    ck_assert(changed);
    ck_assert_uint_eq(out.len, 2 * N);
    ck_assert_int_eq(memcmp(out.data, "\xCC\xA3\xCC\xA3", 4), 0);
    ck_assert_int_eq(memcmp(out.data + 2 * N - 4, "\xCC\x81\xCC\x81", 4), 0);
    buf_fini(&out);
    mem_free(s);
}
END_TEST

Suite *normalizer_suite(void)
{
    Suite *s = suite_create("normalizer");
    TCase *c = tcase_create("normalizer");
    tcase_add_loop_test(c, known_cases, 0, (int)ARRAY_LEN(cases));
    tcase_add_unchecked_fixture(c, unicode_table_init, NULL);
    tcase_add_test(c, random_text_is_as_utf8proc_has_it);
    tcase_add_test(c, characters_that_are_not_flagged_stay);
    tcase_add_test(c, a_megabyte_of_marks_is_sorted_in_time);
    suite_add_tcase(s, c);
    return s;
}
