/* Every scanner against its published regular expression, run by PCRE2, on random text; and the class table against
 * PCRE2's properties for every code point that both utf8proc's version of Unicode and PCRE2's have. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/pretokenizer.h"

#include "engine/base/compiler.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/unicode_table.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

Suite *pretokenizer_suite(void);

/* As published: tokenizer.json of openai-community/gpt2 (the ByteLevel pre-tokenizer), HuggingFaceTB/SmolLM2-135M
 * (Digits, then ByteLevel), meta-llama/Meta-Llama-3-8B, Qwen/Qwen2-0.5B. */
static const struct published {
    const char *name;
    bool digits_apart; /* each \p{N} is split off first, then the expression runs on what is between */
    const char *regex;
} published[] = {
    {"gpt-2", false, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"smollm", true, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"llama-bpe", false,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"qwen2", false,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

enum { MAX_TEXT = 512, N_TEXTS = 30000, PCRE2_SPACE_ONLY = 0x180E }; /* \s of PCRE2 has U+180E, White_Space has not */

struct expression {
    pcre2_code *code;
    pcre2_match_data *match;
};

static struct expression compile(const char *regex)
{
    int error;
    PCRE2_SIZE at;
    struct expression e;
    e.code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    ck_assert_msg(e.code != NULL, "PCRE2 refuses %s at %zu", regex, (size_t)at);
    pcre2_jit_compile(e.code, PCRE2_JIT_COMPLETE);
    e.match = pcre2_match_data_create_from_pattern(e.code, NULL);
    return e;
}

static void release(struct expression *e)
{
    pcre2_match_data_free(e->match);
    pcre2_code_free(e->code);
}

/* Code points that are characters in both versions of Unicode, or in neither, and have a class. */
static bool is_known[0x110000];

static void find_known(void)
{
    struct expression unassigned = compile("\\p{Cn}");
    unicode_table_init();
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char s[4];
        bool is_text = (cp < 0xD800 || cp > 0xDFFF) && cp != PCRE2_SPACE_ONLY;
        is_known[cp] = is_text && (utf8proc_category((int32_t)cp) == UTF8PROC_CATEGORY_CN) ==
                                      (pcre2_match(unassigned.code, (PCRE2_SPTR)s, utf8_encode(cp, s), 0,
                                                   PCRE2_NO_UTF_CHECK, unassigned.match, NULL) > 0);
    }
    release(&unassigned);
}

/* Ends of the words of s[0..n) by the expression, offset by `base`, appended to ends[]; text between matches is a word.
 */
static void split_by(const struct expression *e, const char *s, size_t n, size_t base, size_t *ends, size_t *n_ends)
{
    size_t at = 0;
    while (at < n) {
        int rc = pcre2_match(e->code, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, e->match, NULL);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(e->match);
        if (rc < 0 || v[0] != at || v[1] <= at) {
            ck_abort_msg("the expression stops at %zu of %zu (%d): every character should match", at, n, rc);
        }
        at = v[1];
        ends[(*n_ends)++] = base + at;
    }
}

/* The same with each number character split off first. */
static void split_apart(const struct expression *e, const char *s, size_t n, size_t *ends, size_t *n_ends)
{
    size_t from = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t len = utf8_decode(s + at, n - at, &cp, NULL);
        if (unicode_class_of(cp) == UNICODE_NUMBER) {
            split_by(e, s + from, at - from, from, ends, n_ends);
            ends[(*n_ends)++] = at + len;
            from = at + len;
        }
        at += len;
    }
    split_by(e, s + from, n - from, from, ends, n_ends);
}

/* Mostly characters at which the expressions decide something, now and then any code point. */
static uint32_t random_char(uint64_t *seed)
{
    static const uint32_t likely[] = {
        ' ',    ' ',    ' ',    '\n',    '\n',    '\r',    '\t',     '\v',   '\'',    '\'',    's',    't',
        'r',    'e',    'v',    'm',     'l',     'l',     'd',      'S',    'R',     'E',     'L',    'D',
        'T',    'M',    'V',    'a',     'Z',     'q',     '0',      '7',    '9',     '.',     ',',    '!',
        '_',    '-',    '(',    0,       0x1B,    0x7F,    0x85,     0xA0,   0x17F,   0x212A,  0xE9,   0xDF,
        0x130,  0x2019, 0x301,  0x5D0,   0x639,   0x939,   0x94D,    0x660,  0xBD,    0xB2,    0x2160, 0x2003,
        0x2028, 0x200D, 0xFE0F, 0x3000,  0x4E00,  0x65E5,  0x3042,   0xAC00, 0x1F600, 0x1F468, 0xFFFD, 0xFEFF,
        0x1680, 0x202F, 0x2581, 0x1D7D8, 0x20000, 0xE0001, 0x10FFFF, 0x378,
    };
    uint64_t r = vocab_random(seed);
    if (r % 16 != 0) {
        return likely[(r >> 8) % ARRAY_LEN(likely)];
    }
    uint32_t cp = (uint32_t)((r >> 8) % 0x110000);
    return is_known[cp] ? cp : ' ';
}

static size_t random_text(uint64_t *seed, char *s)
{
    size_t n_chars = vocab_random(seed) % 40, n = 0;
    while (n_chars-- > 0 && n + 32 < MAX_TEXT) {
        uint32_t cp = random_char(seed);
        size_t repeat = vocab_random(seed) % 8 == 0 ? 1 + vocab_random(seed) % 7 : 1;
        while (repeat-- > 0) {
            n += utf8_encode(cp, s + n);
        }
    }
    return n;
}

static void compare(const struct published *p, const struct expression *e, const char *s, size_t n)
{
    size_t ends[MAX_TEXT], n_ends = 0, at = 0;
    if (p->digits_apart) {
        split_apart(e, s, n, ends, &n_ends);
    } else {
        split_by(e, s, n, 0, ends, &n_ends);
    }
    const struct pretokenizer *row = pretokenizer_find(p->name, strlen(p->name));
    for (size_t i = 0; i < n_ends; i++) {
        at += row->next(s + at, n - at);
        if (at != ends[i]) {
            char hex[3 * MAX_TEXT + 1] = "";
            for (size_t k = 0; k < n; k++) {
                snprintf(hex + 3 * k, 4, "%02X ", (unsigned char)s[k]);
            }
            ck_abort_msg("%s: word %zu ends at %zu, expected %zu, in %s", p->name, i, at, ends[i], hex);
        }
    }
    if (at != n) {
        ck_abort_msg("%s: words end at %zu of %zu", p->name, at, n);
    }
}

START_TEST(scanners_cut_where_the_published_expressions_do)
{
    const struct published *p = &published[_i];
    struct expression e = compile(p->regex);
    uint64_t seed = 20240611 + (uint64_t)_i;
    char s[MAX_TEXT];
    for (int i = 0; i < N_TEXTS; i++) {
        compare(p, &e, s, random_text(&seed, s));
    }
    release(&e);
}
END_TEST

START_TEST(the_table_states_the_same_expression_for_each_name)
{
    for (size_t i = 0; pretokenizer_at(i) != NULL; i++) {
        const struct pretokenizer *row = pretokenizer_at(i);
        ck_assert_ptr_eq(pretokenizer_find(row->name, strlen(row->name)), row);
        size_t k = 0;
        if (row->next == NULL) {
            continue;
        }
        while (k < ARRAY_LEN(published) &&
               row->next != pretokenizer_find(published[k].name, strlen(published[k].name))->next) {
            k++;
        }
        ck_assert_msg(k < ARRAY_LEN(published), "%s has a scanner that no test covers", row->name);
        ck_assert_str_eq(row->patterns[published[k].digits_apart], published[k].regex);
    }
    ck_assert_ptr_null(pretokenizer_find("gpt-3", 5));
    ck_assert_ptr_null(pretokenizer_find("qwen", 4));
}
END_TEST

START_TEST(classes_are_those_of_the_regular_expressions)
{
    static const char *const classes[] = {"[^\\s\\p{L}\\p{N}]", "\\p{L}", "\\p{N}", "\\s"};
    for (int class = 0; class < 4; class ++) {
        struct expression e = compile(classes[class]);
        for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
            if (!is_known[cp]) {
                continue;
            }
            char s[4];
            size_t n = utf8_encode(cp, s);
            bool is = pcre2_match(e.code, (PCRE2_SPTR)s, n, 0, PCRE2_NO_UTF_CHECK, e.match, NULL) > 0;
            if (is != ((int)unicode_class_of(cp) == class)) {
                ck_abort_msg("U+%04X: class %d, %s %s", cp, (int)unicode_class_of(cp), classes[class],
                             is ? "matches" : "does not");
            }
        }
        release(&e);
    }
    ck_assert_int_eq(unicode_class_of(PCRE2_SPACE_ONLY), UNICODE_OTHER);
    ck_assert_int_eq(unicode_class_of(UINT32_MAX), UNICODE_OTHER);
}
END_TEST

START_TEST(bytes_that_are_no_text_still_make_words)
{
    uint64_t seed = 7;
    char s[64];
    for (int i = 0; i < 20000; i++) {
        size_t n = 1 + vocab_random(&seed) % sizeof s;
        for (size_t k = 0; k < n; k++) {
            s[k] = (char)(vocab_random(&seed) >> (vocab_random(&seed) % 2 == 0 ? 24 : 57));
        }
        for (size_t row = 0; row < ARRAY_LEN(published); row++) {
            const struct pretokenizer *p = pretokenizer_find(published[row].name, strlen(published[row].name));
            for (size_t at = 0; at < n;) {
                size_t len = p->next(s + at, n - at);
                if (len == 0 || len > n - at) {
                    ck_abort_msg("%s: a word of %zu bytes at %zu of %zu", p->name, len, at, n);
                }
                at += len;
            }
        }
    }
}
END_TEST

Suite *pretokenizer_suite(void)
{
    Suite *s = suite_create("pretokenizer");
    TCase *c = tcase_create("pretokenizer");
    tcase_add_unchecked_fixture(c, find_known, NULL);
    tcase_add_loop_test(c, scanners_cut_where_the_published_expressions_do, 0, (int)ARRAY_LEN(published));
    tcase_add_test(c, the_table_states_the_same_expression_for_each_name);
    tcase_add_test(c, classes_are_those_of_the_regular_expressions);
    tcase_add_test(c, bytes_that_are_no_text_still_make_words);
    suite_add_tcase(s, c);
    return s;
}
