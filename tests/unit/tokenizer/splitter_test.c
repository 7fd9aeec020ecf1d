/* Splitting by expressions: against a plain model that runs PCRE2 over the whole rest of a piece, in linear time, and
 * with expressions that want more than that. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/splitter.h"

#include "engine/base/buf.h"
#include "engine/base/clock.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/oniguruma.h"
#include "engine/tokenizer/pretokenizer.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

Suite *splitter_suite(void);

enum { MAX_TEXT = 4096, N_TEXTS = 300, LONG_TEXT = 1 << 17 };

/* --- a plain model ---------------------------------------------------------------------------------------------------
 */

static pcre2_code *compile(const char *pattern)
{
    struct buf text;
    int error;
    PCRE2_SIZE at;
    buf_init(&text, 0, MEM_GENERAL);
    ck_assert_int_eq(oniguruma_to_pcre2(pattern, strlen(pattern), &text, NULL), ERR_OK);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)text.data, text.len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, NULL);
    ck_assert_msg(code != NULL, "PCRE2 refuses %s", text.data);
    buf_fini(&text);
    return code;
}

static size_t step(const char *s, size_t n)
{
    uint32_t cp;
    return utf8_decode(s, n, &cp, NULL);
}

/* Marks in is_end[] where pieces of s[from..to) end. */
static void mark_ends(const pcre2_code *code, const char *s, size_t from, size_t to, bool *is_end)
{
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    const char *piece = s + from;
    size_t n = to - from;
    for (size_t at = 0; at <= n;) {
        if (pcre2_match(code, (PCRE2_SPTR)piece, n, at, PCRE2_NO_UTF_CHECK, match, NULL) < 0) {
            break;
        }
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(match);
        is_end[from + v[0]] = true;
        is_end[from + v[1]] = true;
        at = v[1] > v[0] ? v[1] : v[1] < n ? v[1] + step(piece + v[1], n - v[1]) : n + 1;
    }
    is_end[to] = true;
    pcre2_match_data_free(match);
}

static void split_plainly(pcre2_code *const *codes, size_t n_codes, const char *s, size_t n, bool *is_end)
{
    memset(is_end, 0, n + 1);
    is_end[0] = is_end[n] = true;
    for (size_t i = 0; i < n_codes; i++) {
        bool before[MAX_TEXT + 1];
        memcpy(before, is_end, n + 1);
        for (size_t from = 0, to = 1; to <= n; to++) {
            if (before[to]) {
                mark_ends(codes[i], s, from, to, is_end);
                from = to;
            }
        }
    }
}

/* --- texts -----------------------------------------------------------------------------------------------------------
 */

static const char *const bits[] = {" ",
                                   " ",
                                   "  ",
                                   "\n",
                                   "\r\n",
                                   "\t",
                                   "\v",
                                   "'s",
                                   "'LL",
                                   "a",
                                   "bc",
                                   "Zq",
                                   "HTTP",
                                   "1",
                                   "23",
                                   "4567",
                                   "12345678901",
                                   ".",
                                   ",",
                                   "!",
                                   "$",
                                   "^",
                                   "`",
                                   "\xC2\xBD",
                                   "\xC3\xA9",
                                   "e\xCC\x81",
                                   "\xCC\x80",
                                   "\xC2\xA0",
                                   "\xE3\x80\x80",
                                   "\xE4\xB8\xAD",
                                   "\xE6\x96\x87",
                                   "\xE3\x81\x82",
                                   "\xEA\xB0\x80",
                                   "\xD9\xA1",
                                   "\xE0\xA5\xA7",
                                   "\xF0\x9F\x98\x80",
                                   "\xE2\x80\x8D",
                                   "\xE2\x85\xA0",
                                   "<sentinel:12>",
                                   "IMGIMGABZ",
                                   "/",
                                   "_",
                                   "\xD0\xBF",
                                   "\xE0\xB8\x81",
                                   "\xC7\x85",
                                   "\xE2\x93\xB6"};

static size_t random_text(uint64_t *seed, char *s)
{
    size_t n = 0, n_bits = vocab_random(seed) % 60;
    for (size_t i = 0; i < n_bits; i++) {
        const char *bit = bits[vocab_random(seed) % ARRAY_LEN(bits)];
        size_t len = strlen(bit);
        for (uint64_t k = vocab_random(seed) % 12 == 0 ? 1 + vocab_random(seed) % 300 : 1; k > 0; k--) {
            if (n + len <= MAX_TEXT) {
                memcpy(s + n, bit, len);
                n += len;
            }
        }
    }
    return n;
}

static size_t count(const struct pretokenizer *p)
{
    size_t n = 0;
    while (p->patterns[n] != NULL) {
        n++;
    }
    return n;
}

/* Does a row before the i-th have the same expressions, or has it none? */
static bool is_repeated(size_t i)
{
    const struct pretokenizer *row = pretokenizer_at(i);
    bool is = count(row) == 0;
    for (size_t k = 0; k < i && !is; k++) {
        const struct pretokenizer *other = pretokenizer_at(k);
        size_t n = 0;
        while (row->patterns[n] != NULL && other->patterns[n] != NULL &&
               strcmp(row->patterns[n], other->patterns[n]) == 0) {
            n++;
        }
        is = row->patterns[n] == NULL && other->patterns[n] == NULL;
    }
    return is;
}

START_TEST(rows_are_cut_as_by_a_plain_model)
{
    const struct pretokenizer *row = pretokenizer_at((size_t)_i);
    size_t n_codes = count(row);
    if (is_repeated((size_t)_i)) {
        return;
    }
    struct splitter *p;
    pcre2_code *codes[PRETOKENIZER_MAX_PATTERNS];
    ck_assert_int_eq(splitter_new(row->patterns, n_codes, row->name, &p, NULL), ERR_OK);
    for (size_t i = 0; i < n_codes; i++) {
        codes[i] = compile(row->patterns[i]);
    }
    uint64_t seed = 42 + (uint64_t)_i;
    for (int i = 0; i < N_TEXTS; i++) {
        char s[MAX_TEXT];
        bool is_end[MAX_TEXT + 1];
        size_t n = random_text(&seed, s), from = 0;
        struct splitting c;
        struct budget budget = budget_of(n);
        split_plainly(codes, n_codes, s, n, is_end);
        ck_assert_int_eq(splitting_begin(&c, p, s, n, &budget), ERR_OK);
        for (size_t to; from < n; from = to) {
            ck_assert_int_eq(splitting_next(&c, &to), ERR_OK);
            size_t want = from + 1;
            while (!is_end[want]) {
                want++;
            }
            if (to != want) {
                ck_abort_msg("%s, text %d: a word from %zu to %zu, expected %zu", row->name, i, from, to, want);
            }
        }
        ck_assert_uint_eq(from, n);
        splitting_end(&c);
    }
    for (size_t i = 0; i < n_codes; i++) {
        pcre2_code_free(codes[i]);
    }
    splitter_free(&p);
}
END_TEST

static int n_rows(void)
{
    int n = 0;
    while (pretokenizer_at((size_t)n) != NULL) {
        n++;
    }
    return n;
}

/* --- linear time
 * ------------------------------------------------------------------------------------------------------ */

static enum err split_all(const struct splitter *p, const char *s, size_t n, struct budget *budget, size_t *n_words)
{
    struct splitting c;
    enum err err = splitting_begin(&c, p, s, n, budget);
    *n_words = 0;
    for (size_t at = 0; at < n && err == ERR_OK; *n_words += 1) {
        err = splitting_next(&c, &at);
    }
    splitting_end(&c);
    return err;
}

/* Row T09 of the catalogue of bad inputs. */
START_TEST(monotonous_texts_take_linear_time)
{
    static const char *const units[] = {"Z",
                                        " ",
                                        "\n",
                                        "7",
                                        "\xCC\x81",
                                        "\xF0\x9F\x98\x80",
                                        "\xE2\x80\x83",
                                        "\t",
                                        "\xE4\xB8\xAD",
                                        "a ",
                                        " \n",
                                        "!",
                                        "7a",
                                        "\xF0\x9F\x91\xA8\xE2\x80\x8D"};
    const struct pretokenizer *row = pretokenizer_at((size_t)_i);
    struct splitter *p;
    if (row->next != NULL || is_repeated((size_t)_i)) {
        return;
    }
    ck_assert_int_eq(splitter_new(row->patterns, count(row), row->name, &p, NULL), ERR_OK);
    char *s = mem_alloc(LONG_TEXT, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t len = strlen(units[i]), n = 0, n_words;
        for (; n + len < LONG_TEXT; n += len) {
            memcpy(s + n, units[i], len);
        }
        s[n++] = '9'; /* so that a run of spaces is not at the end */
        uint64_t start = clock_thread_ns();
        struct budget budget = budget_of(n);
        enum err err = split_all(p, s, n, &budget, &n_words);
        uint64_t took = clock_thread_ns() - start;
        ck_assert_uint_lt(20 * (budget.given - budget.left), budget.given);
        ck_assert_msg(err == ERR_OK, "%s, unit %zu: %s", row->name, i, err_code(err));
        ck_assert_uint_ge(n_words, 1);
        ck_assert_msg(took < 3000000000u, "%s, unit %zu: %zu bytes took %.1f s", row->name, i, n, (double)took * 1e-9);
    }
    mem_free(s);
    splitter_free(&p);
}
END_TEST

/* before, n times `unit`, after; freed with mem_free. */
static char *repeat(const char *before, const char *unit, size_t n, const char *after)
{
    struct buf s;
    buf_init(&s, 0, MEM_GENERAL);
    buf_puts(&s, before);
    for (size_t i = 0; i < n; i++) {
        buf_puts(&s, unit);
    }
    buf_puts(&s, after);
    buf_putc(&s, '\0');
    ck_assert_int_eq(buf_ok(&s), ERR_OK);
    return s.data;
}

/* PCRE2's limit on backtracks does not see some of these: they are slow at each character, or while they are read. */
START_TEST(expressions_that_want_more_are_stopped)
{
    static const struct {
        const char *before, *unit, *after;
        size_t n;
    } rows[] = {{"a*b", "", "", 0},
                {"(?:a+)+b", "", "", 0},
                {"(a|aa)+b", "", "", 0},
                {"a+$x", "", "", 0},
                {"(?:a*)*b", "", "", 0},
                {"(?=a*b)", "", "", 0},
                {"", "a*", "[01]", 8},
                {"(a*)(?:\\1|b)*\\1*[01]", "", "", 0},
                {"(?:(?=[a-z]*[01])[a-z])+", "", "", 0},
                {"(?:", "(?=[^x]*y)|", "[01])", 100},
                {"(?:", "(?=[^x]*y)|", "[01])", 500},
                {"(?:a|", "(?=[^x]*y)|", "[01])*[01]", 200},
                {"(?:a|", "b|", "z)*[01]", 1500},
                {"", "a?", "[01]", 300},
                {"(?:a?){2000}[01]", "", "", 0}};
    char *s = mem_alloc(LONG_TEXT, MEM_GENERAL), *pattern = NULL;
    memset(s, 'a', LONG_TEXT);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct splitter *p;
        size_t n_words;
        struct budget budget = budget_of(LONG_TEXT);
        pattern = repeat(rows[i].before, rows[i].unit, rows[i].n, rows[i].after);
        uint64_t start = clock_thread_ns();
        ck_assert_int_eq(splitter_new((const char *const *)&pattern, 1, "test", &p, NULL), ERR_OK);
        ck_assert_msg(clock_thread_ns() - start < 2000000000u, "row %zu is read late", i);
        start = clock_thread_ns();
        ck_assert_msg(split_all(p, s, LONG_TEXT, &budget, &n_words) == ERR_PATTERN_LIMIT, "row %zu is not stopped", i);
        ck_assert_msg(clock_thread_ns() - start < 20000000000u, "row %zu is stopped late", i);
        splitter_free(&p);
        mem_free(pattern);
    }
    mem_free(s);
}
END_TEST

START_TEST(who_leaves_stops_the_work)
{
    char *s = repeat("", "a", LONG_TEXT, "");
    struct splitter *p;
    size_t n_words;
    const atomic_bool has_left = true;
    struct task task = {.has_left = &has_left};
    struct budget budget = budget_of(LONG_TEXT);
    ck_assert_int_eq(splitter_new((const char *const[]){"(?:a|a)*[01]"}, 1, "test", &p, NULL), ERR_OK);
    task_enter(&task, "tokens");
    ck_assert_int_eq(split_all(p, s, LONG_TEXT, &budget, &n_words), ERR_CANCELLED);
    task_leave();
    ck_assert_uint_eq(n_words, 1);
    splitter_free(&p);
    mem_free(s);
}
END_TEST

/* --- details
 * ---------------------------------------------------------------------------------------------------------- */

/* The words of s with | between them. */
static void check_words(const char *const *patterns, size_t n_patterns, const char *s, const char *want)
{
    struct splitter *p;
    struct splitting c;
    struct buf got;
    size_t n = strlen(s);
    struct budget budget = budget_of(n);
    buf_init(&got, 0, MEM_GENERAL);
    ck_assert_int_eq(splitter_new(patterns, n_patterns, "test", &p, NULL), ERR_OK);
    ck_assert_int_eq(splitting_begin(&c, p, s, n, &budget), ERR_OK);
    for (size_t from = 0, to; from < n; from = to) {
        ck_assert_int_eq(splitting_next(&c, &to), ERR_OK);
        buf_puts(&got, from > 0 ? "|" : "");
        buf_append(&got, s + from, to - from);
    }
    ck_assert_str_eq(got.len > 0 ? got.data : "", want);
    splitting_end(&c);
    splitter_free(&p);
    buf_fini(&got);
}

START_TEST(matches_gaps_and_empty_matches_are_words)
{
    const char *digits[] = {"\\d+", "[a-c]+"}, *before[] = {"(?=b)"}, *none[] = {NULL};
    check_words(digits, 2, "xab12cz", "x|ab|12|c|z");
    check_words(digits, 1, "xab12cz", "xab|12|cz");
    check_words(before, 1, "abcb", "a|bc|b");
    check_words(before, 1, "bb", "b|b");
    check_words(none, 0, "ab 12", "ab 12");
    const char *threes[] = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, *words[] = {"\\d{1,3}(?=(?:\\d{3})*\\b)"};
    check_words(threes, 2, "a1234567b", "a|1|234|567|b");
    check_words(threes, 2, "123456 12", "123|456| |12");
    check_words(words, 1, "1234567 1234x 12", "1|234|567| 1234x |12");
}
END_TEST

START_TEST(oniguruma_is_rewritten)
{
    static const struct {
        const char *pattern, *pcre2; /* NULL: refused */
    } cases[] = {
        {"a{,3}", "a{0,3}"},
        {"a{b", "a\\{b"},
        {"\\u4E00-\\u9FA5", "\\x{4E00}-\\x{9FA5}"},
        {"[a[bc]d]", "[abcd]"},
        {"[\\p{L}&&[^\\p{Han}]]", "(?:(?=[^\\p{sc:Han}])[\\p{L}])"},
        {"[^a&&b]", "(?:(?!(?=[b])[a])[\\x{0}-\\x{10FFFF}])"},
        {"[]a]", "[\\]a]"},
        {"[[:alpha:]x]", "[[:alpha:]x]"},
        {"\\v\\h", "\\x0B[0-9A-Fa-f]"},
        {"(?m:.)", "(?s:.)"},
        {"(?i:'s|'t)", "(?i:'s|'t)"},
        {"\\p{L}{2}", "\\p{L}{2}"},
        {"a{2}+", NULL},
        {"(?<x>a)", NULL},
        {"(*ACCEPT)", NULL},
        {"(?C1)", NULL},
        {"\\K", NULL},
        {"\\C", NULL},
        {"\\Qa\\E", NULL},
        {"[a[^b]]", NULL},
        {"[a[b[c]]]", NULL},
        {"[a", NULL},
        {"[a&&", NULL},
        {"\\", NULL},
        {"\\u12", NULL},
        {"\\xZZ", NULL},
        {"\\p", NULL},
        {"\\p{L", NULL},
        {"[\\S]", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf out;
        struct err_info info = {0};
        buf_init(&out, 0, MEM_GENERAL);
        enum err err = oniguruma_to_pcre2(cases[i].pattern, strlen(cases[i].pattern), &out, &info);
        if (cases[i].pcre2 == NULL) {
            ck_assert_msg(err == ERR_UNSUPPORTED_PRETOKENIZER, "%s is not refused", cases[i].pattern);
            ck_assert_ptr_nonnull(strstr(info.text, cases[i].pattern));
        } else {
            ck_assert_msg(err == ERR_OK, "%s: %s", cases[i].pattern, info.text);
            ck_assert_str_eq(out.data, cases[i].pcre2);
        }
        buf_fini(&out);
    }
}
END_TEST

/* Any bytes as a pattern: an error or a pattern that works, never a crash. */
START_TEST(random_patterns_are_refused_or_work)
{
    static const char text[] = "ab 12 \xC3\xA9\xE4\xB8\xAD [a]'s";
    static const char alphabet[] = "ab\\[]()^&?*+{},|-:!=<>pLsSwu0 1$.'\xC3\xA9";
    uint64_t seed = 3;
    int n_good = 0;
    for (int i = 0; i < 20000; i++) {
        char pattern[32] = "";
        size_t n = 1 + vocab_random(&seed) % 12, n_words;
        for (size_t k = 0; k < n; k++) {
            pattern[k] = alphabet[vocab_random(&seed) % (sizeof alphabet - 1)];
        }
        const char *patterns[] = {pattern};
        struct splitter *p;
        struct err_info info = {0};
        enum err err = splitter_new(patterns, 1, "test", &p, &info);
        if (err == ERR_OK) {
            n_good++;
            struct budget budget = budget_of(sizeof text - 1);
            err = split_all(p, text, sizeof text - 1, &budget, &n_words);
        }
        if (err != ERR_OK && err != ERR_UNSUPPORTED_PRETOKENIZER && err != ERR_PATTERN_LIMIT) {
            ck_abort_msg("%s: %s", pattern, err_code(err));
        }
        splitter_free(&p);
    }
    ck_assert_int_gt(n_good, 500);
}
END_TEST

Suite *splitter_suite(void)
{
    Suite *s = suite_create("splitter");
    TCase *c = tcase_create("splitter");
    tcase_add_loop_test(c, rows_are_cut_as_by_a_plain_model, 0, n_rows());
    tcase_add_loop_test(c, monotonous_texts_take_linear_time, 0, n_rows());
    tcase_add_test(c, who_leaves_stops_the_work);
    tcase_add_test(c, matches_gaps_and_empty_matches_are_words);
    tcase_add_test(c, oniguruma_is_rewritten);
    tcase_add_test(c, random_patterns_are_refused_or_work);
    suite_add_tcase(s, c);
    TCase *budget = tcase_create("budget");
    tcase_set_tags(budget, "long"); /* tests/run.sh; PCRE2 does the work, which no sanitizer watches */
    tcase_add_test(budget, expressions_that_want_more_are_stopped);
    suite_add_tcase(s, budget);
    return s;
}
