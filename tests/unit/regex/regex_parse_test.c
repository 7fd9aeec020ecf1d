/* Patterns against a matcher that tries every way (none of it the product's), by hand, and hostile ones. */
#include "engine/regex/regex_parse.h"

#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/base/task.h"
#include "engine/base/utf8.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *regex_parse_suite(void);

static struct regex_set *set;

static void set_up(void) { ck_assert_int_eq(regex_set_new(0, &set), ERR_OK); }

static void tear_down(void) { regex_set_free(&set); }

static regex_id parsed(const char *pattern, bool is_search)
{
    regex_id out;
    struct err_info info = {0};
    enum err err =
        regex_parse(set, &(struct regex_pattern){pattern, strlen(pattern), is_search ? REGEX_SEARCH : 0}, &out, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", pattern, info.text);
    return out;
}

static bool says(regex_id r, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        r = regex_next(set, r, (unsigned char)s[i]);
    }
    return regex_is_nullable(set, r);
}

START_TEST(patterns_match_what_they_should)
{
    static const struct {
        const char *pattern;
        bool is_search;
        const char *yes[4], *no[5];
    } rows[] = {
        {"ab|c", false, {"ab", "c"}, {"", "a", "abc", "xc"}},
        {"ab|c", true, {"ab", "xxabyy", "c\n"}, {"", "a", "ba"}},
        {"^ab|c$", true, {"abx", "xc", "ab"}, {"xab", "cx", ""}},
        {"^(a|b)+$", true, {"a", "abba"}, {"", "abc", "xa", "a\n"}},
        {"(^a|b)c", true, {"ac", "xbc", "bcx"}, {"xac", "c"}},
        {"a?^b", true, {"b", "bx"}, {"ab", "xb"}},
        {"a$b?", true, {"a", "xa"}, {"ab", "b"}},
        {"(?:^x)?y", true, {"xy", "ay", "y"}, {"x", ""}},
        {"a^b", true, {0}, {"ab", "a^b", ""}},
        {"^^a$$", false, {"a"}, {"", "aa"}},
        {"", false, {""}, {"a"}},
        {"", true, {"", "a\xC3\xA9"}, {"\xFF"}},
        {"a{2,3}?b{0}c{2}", false, {"aacc", "aaacc"}, {"acc", "aaaacc", "aabcc"}},
        {"a{2,}", false, {"aa", "aaaaa"}, {"a", ""}},
        {"a{x}b{,2}]}", false, {"a{x}b{,2}]}"}, {"a"}},
        {"(?<year>\\d{4})-\\d\\d", false, {"2024-01"}, {"2024-1", "x024-01"}},
        {"[^a-c\\d]", false, {"d", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n"}, {"a", "5", "", "\xC3"}},
        {"[\\w.+\\-]+", false, {"a_Z.9+-"}, {"a b", "\xC3\xA9"}},
        {"[a\\]-]", false, {"a", "]", "-"}, {"\\", "b"}},
        {"[]", true, {0}, {"", "a"}},
        {"[^]", false, {"\n", "a"}, {"", "ab"}},
        {".", false, {"a", "\xE2\x82\xAC"}, {"\n", "\r", "\xE2\x80\xA8", ""}},
        {"\\S\\s", false, {"a ", "a\xC2\xA0", "a\xE3\x80\x80"}, {"  ", "aa"}},
        {"\\D\\W", false, {"a ", "\xC3\xA9\xC3\xA9"}, {"1 ", "aa"}},
        {"\\u00e9\\u{1F600}\\uD83D\\uDE00", false, {"\xC3\xA9\xF0\x9F\x98\x80\xF0\x9F\x98\x80"}, {"e"}},
        {"\\x41\\t\\cJ\\/\\@\\.\\-", false, {"A\t\n/@.-"}, {"A"}},
        {"[\xC3\xA0-\xC3\xBF]", false, {"\xC3\xA9"}, {"\xC3\x9F", "e"}},
        {"[\\b]", false, {"\b"}, {"b"}},
        {"(((a)))*", false, {"", "aaa"}, {"b"}},
        {"a||b", false, {"", "a", "b"}, {"ab"}},
        {"(?P<year>a)(?<x>b)", false, {"ab"}, {"a"}},
        {"\\bfoo\\b", true, {"foo", "a foo.", "foo-foo"}, {"food", "afoo", "foo_", "fo"}},
        {"\\Bfoo\\B", true, {"afoob", "foo foo1foo2"}, {"foo", "afoo", "foob"}},
        {"^\\w+\\b$", true, {"ab"}, {"", "a-"}},
        {"\\b", true, {"a", "-a"}, {"", "-", "\xC3\xA9"}},
        {"\\B", true, {"", "ab", "-"}, {"a"}},
        {"\\b\\xC3\\xA9|a\\b\xC3\xA9", true, {"a\xC3\xA9"}, {"\xC3\xA9"}},
        {"(?:\\bx|y)+", false, {"x", "y", "yy", "xy"}, {"yx", "xx", ""}},
        {"^(?=.*[A-Z])(?=.*\\d).{4,}$", true, {"aB1x", "1..Z"}, {"aB1", "abc1", "ABCD"}},
        {"^(?=.*[A-Z])(?!.*foo).{2,}$", true, {"Ab", "fXoo"}, {"A", "Afoo", "ab"}},
        {"a(?=b)", true, {"ab", "xaabx"}, {"a", "ac"}},
        {"a(?=b)", false, {0}, {"a", "ab"}},
        {"(?=ab)a.", false, {"ab"}, {"ac", "a"}},
        {"^(?:(?!foo).)*$", true, {"", "fo", "afobo"}, {"foo", "xfoox", "a\n"}},
        {"^((?!aa|bb)[ab])+$", true, {"a", "abab"}, {"aa", "abb", ""}},
        {"^(?!(?:.*a){2})[ab]+$", true, {"b", "ab", "bba"}, {"aa", "aba", ""}},
        {"^(?=a(?!b))a.*$", true, {"a", "ac"}, {"ab", "b"}},
        {"^(?:(?=.*x).|(?=.*y).)*$", true, {"", "abx", "y", "xay"}, {"a", "xa"}},
        {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", true, {"1", "-1.5", ".5", "+0."}, {"", "-", "-.", "1-"}},
        {"^(a|b$)*", true, {"", "aab", "ac"}, {0}},
        {"^(a|b$)*$", true, {"", "aab", "b"}, {"ba", "bb"}},
        {"^([^,]+(,|$)){2,}$", true, {"a,b", "a,b,", "a,b,c"}, {"a", "a,", ""}},
        {"(?:^a|b)+c", true, {"ac", "abbc", "xbc"}, {"xac", "aac0", "c"}},
        {"(?=a){0}b(?!)?", false, {"b"}, {"ab"}},
        {"\\p{L}\\P{L}", false, {"a1", "\xC3\xA9-", "\xD0\xB6 "}, {"ab", "1a", "1"}},
        {"\\pL+\\PL", false, {"a1"}, {"ab"}},
        {"[\\p{Lu}\\p{Nd}_-]+", false, {"A1_-", "\xC3\x89", "\xD9\xA3"}, {"a", "\xC3\xA9"}},
        {"[^\\p{L}x1]", false, {"2", "\xF0\x9F\x98\x80"}, {"a", "1", "\xC3\xA9"}},
        {"\\p{Script=Greek}\\p{sc=Grek}\\p{scx=Greek}", false, {"\xCE\xA9\xCE\xA9\xCE\xA9"}, {"aaa"}},
        {"\\p{General_Category=Uppercase_Letter}\\p{gc=Ll}\\p{Letter}", false, {"Aaa"}, {"aaa", "AAa"}},
        {"\\p{Any}\\p{ASCII}\\p{Assigned}",
         false,
         {"\xC3\xA9"
          "aa",
          "aaa"},
         {"a\xC3\xA9"
          "a",
          "aa\xCD\xB8"}},
        {"\\p{^L}\\P{^L}", false, {"1a"}, {"aa", "11"}},
        {"^[\\p{Extended_Pictographic}\\p{Emoji_Component}]+$",
         true,
         {"\xF0\x9F\x98\x80", "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD"},
         {"a", ""}},
        {"[\\p{L}]+", false, {"\xF0\xA0\x80\x80\xEA\xB0\x80"}, {"\xEE\x80\x80", "\xF3\xA0\x84\x80", "\xED\xA0\x80"}},
        {"\\p{Co}", false, {"\xEE\x80\x80", "\xF3\xB0\x81\x81", "\xF4\x8F\xBF\xBD"}, {"\xF4\x8F\xBF\xBF", "a"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        regex_id r = parsed(rows[i].pattern, rows[i].is_search);
        for (size_t k = 0; k < ARRAY_LEN(rows[i].yes) && rows[i].yes[k] != NULL; k++) {
            ck_assert_msg(says(r, rows[i].yes[k], strlen(rows[i].yes[k])), "%s: %s", rows[i].pattern, rows[i].yes[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(rows[i].no) && rows[i].no[k] != NULL; k++) {
            ck_assert_msg(!says(r, rows[i].no[k], strlen(rows[i].no[k])), "%s: %s", rows[i].pattern, rows[i].no[k]);
        }
    }
    ck_assert(says(parsed("\\0", false), "", 1));
}
END_TEST

/* As zod's and pydantic's schemas have them. */
START_TEST(patterns_of_generators_are_taken)
{
    static const struct {
        const char *pattern, *yes[4], *no[5];
    } rows[] = {
        {"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$",
         {"P3Y6M4DT12H30M5S", "P1W", "PT5M", "PT1.5S"},
         {"P", "PT", "P1W2D", "P1DT", "P1.5Y"}},
        {"^[-+]?P(?!$)(?:(?:[-+]?\\d+Y)|(?:[-+]?\\d+[.,]\\d+Y$))?(?:(?:[-+]?\\d+D)|(?:[-+]?\\d+[.,]\\d+D$))?"
         "(?:T(?=[\\d+-])(?:[-+]?\\d+(?:[.,]\\d+)?S)?)??$",
         {"-P1D", "P1.5Y", "+P1Y-2D", "PT1.5S"},
         {"P", "PT", "P1.5Y1D", "P1DT"}},
        {"^[A-Z]{2}(?!00|01|99)\\d{2}[A-Z0-9]{11,30}$",
         {"DE89370400440532013000", "GB29NWBK60161331926819"},
         {"DE00370400440532013000", "DE99370400440532013000", "DE8937040044"}},
        {"^(?=.{1,16}\\.?$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-0-9a-z]{0,61}[0-9a-z])?)*\\.?$",
         {"a", "example.com", "example.com.", "abcdefgh.ijklmno."},
         {"", "-a", "a..b", "abcdefgh.ijklmnop", "abcdefgh.ijklmnop."}},
        {"^(?=[\\s\\S]*[\\p{Extended_Pictographic}\\p{Regional_Indicator}\\u20E3])[\\p{Extended_Pictographic}\\p{Emoji_Component}]+$",
         {"\xF0\x9F\x98\x80", "1\xEF\xB8\x8F\xE2\x83\xA3", "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA"},
         {"", "1", "a\xF0\x9F\x98\x80", "12"}},
        {"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
         {"user@example.com", "a.b+c@x-y.co.uk"},
         {".a@x.com", "a..b@x.com", "a.@x.com", "a@x"}},
        {"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$",
         {"", "aGVsbG8=", "aGVsbG8h"},
         {"a", "aGVsbG8", "="}},
        {"^(?!^[-+.]*$)[+-]?0*(?:\\d{0,6}|(?=[\\d.]{1,9}0*$)\\d{0,6}\\.\\d{0,2}0*$)$",
         {"1", "00012.30", "123456.7800", "+1.5"},
         {"", "-.", "1234567.8", "0.001", "12345678"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        regex_id r = parsed(rows[i].pattern, true);
        for (size_t k = 0; k < ARRAY_LEN(rows[i].yes) && rows[i].yes[k] != NULL; k++) {
            ck_assert_msg(says(r, rows[i].yes[k], strlen(rows[i].yes[k])), "%s: %s", rows[i].pattern, rows[i].yes[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(rows[i].no) && rows[i].no[k] != NULL; k++) {
            ck_assert_msg(!says(r, rows[i].no[k], strlen(rows[i].no[k])), "%s: %s", rows[i].pattern, rows[i].no[k]);
        }
    }
}
END_TEST

/* --- against a matcher that tries every way ----------------------------------------------------------------------- */

/* Trees of few nodes: printed as a pattern, and matched by the set of places where a match that begins at `from` can end. */
enum kind { LETTER, ANY, BEGIN, END_OF, EDGE, NO_EDGE, JOIN, EITHER, MAYBE, MANY, TWICE, AHEAD, NOT_AHEAD, N_KINDS };

struct tree {
    enum kind kind;
    char letter;
    const struct tree *a, *b;
};

static bool is_letter(const char *s, int n, int at) { return at >= 0 && at < n && s[at] == 'a'; }

static unsigned ends(const struct tree *t, const char *s, int n, int from)
{
    unsigned out = 0, mid = 0;
    switch (t->kind) {
    case LETTER:
    case ANY:
        return from < n && (t->kind == ANY || s[from] == t->letter) ? 1u << (from + 1) : 0;
    case BEGIN:
        return from == 0 ? 1u : 0;
    case END_OF:
        return from == n ? 1u << n : 0;
    case EDGE:
    case NO_EDGE:
        return (is_letter(s, n, from - 1) != is_letter(s, n, from)) == (t->kind == EDGE) ? 1u << from : 0;
    case AHEAD:
    case NOT_AHEAD:
        return (ends(t->a, s, n, from) != 0) == (t->kind == AHEAD) ? 1u << from : 0;
    case EITHER:
        return ends(t->a, s, n, from) | ends(t->b, s, n, from);
    case MAYBE:
        return 1u << from | ends(t->a, s, n, from);
    case MANY:
        out = 1u << from;
        for (int i = from; i <= n; i++) {
            out |= (out >> i & 1) != 0 ? ends(t->a, s, n, i) : 0;
        }
        return out;
    default:
        mid = ends(t->a, s, n, from);
        for (int i = from; i <= n; i++) {
            out |= (mid >> i & 1) != 0 ? ends(t->kind == JOIN ? t->b : t->a, s, n, i) : 0;
        }
        return out;
    }
}

static void print(const struct tree *t, char *out, size_t size)
{
    char a[512] = "", b[512] = "";
    if (t->a != NULL) {
        print(t->a, a, sizeof a / 2);
    }
    if (t->b != NULL) {
        print(t->b, b, sizeof b / 2);
    }
    switch (t->kind) {
    case LETTER:
        snprintf(out, size, "%c", t->letter);
        break;
    case JOIN:
        snprintf(out, size, "%s%s", a, b);
        break;
    case EITHER:
        snprintf(out, size, "(?:%s|%s)", a, b);
        break;
    default:
        snprintf(out, size,
                 t->a == NULL       ? "%s%s"
                 : t->kind >= AHEAD ? "(?%2$s%1$s)"
                                    : "(%s)%s",
                 a, (const char *[]){"", ".", "^", "$", "\\b", "\\B", "", "", "?", "*", "{2}", "=", "!"}[t->kind]);
    }
}

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* The last of trees[0..n): the first few are leaves; of two that were made, or of one, the others. */
static void grow(struct tree *trees, int n, uint32_t *state)
{
    for (int i = 0; i < n; i++) {
        enum kind kind = i < 4 ? (enum kind)random_below(state, JOIN) : JOIN + random_below(state, N_KINDS - JOIN);
        const struct tree *a = i < 4 ? NULL : &trees[random_below(state, (uint32_t)i)], *b = NULL;
        if (kind == JOIN || kind == EITHER) {
            b = &trees[random_below(state, (uint32_t)i)];
        }
        trees[i] = (struct tree){.kind = kind, .letter = "a-"[random_below(state, 2)], .a = a, .b = b};
    }
}

START_TEST(random_patterns_match_as_trying_every_way_does)
{
    uint32_t state = 17;
    size_t n_yes = 0, n_no = 0;
    for (int turn = 0; turn < 6000; turn++) {
        struct tree trees[9];
        char pattern[1024];
        grow(trees, (int)ARRAY_LEN(trees), &state);
        const struct tree *top = &trees[ARRAY_LEN(trees) - 1];
        print(top, pattern, sizeof pattern);
        regex_id whole = parsed(pattern, false), anywhere = parsed(pattern, true);
        for (int w = 1; w < 64; w++) { /* words of a and -: the bits after the first */
            char s[8];
            int n = 31 - __builtin_clz((unsigned)w);
            bool is_whole = false, is_found = false;
            for (int i = 0; i < n; i++) {
                s[i] = w >> i & 1 ? '-' : 'a';
            }
            for (int from = 0; from <= n; from++) {
                unsigned to = ends(top, s, n, from);
                is_whole = is_whole || (from == 0 && (to >> n & 1) != 0);
                is_found = is_found || to != 0;
            }
            ck_assert_msg(says(whole, s, (size_t)n) == is_whole, "/%s/ whole: %.*s", pattern, n, s);
            ck_assert_msg(says(anywhere, s, (size_t)n) == is_found, "/%s/ in: %.*s", pattern, n, s);
            n_yes += is_found ? 1 : 0;
            n_no += is_found ? 0 : 1;
        }
        regex_set_free(&set);
        set_up();
    }
    ck_assert_uint_gt(n_yes, 20000);
    ck_assert_uint_gt(n_no, 10000);
}
END_TEST

/* What text before or after says as well is not counted: the states of a pattern of 255 letters would be as many. */
START_TEST(what_may_stand_anywhere_counts_no_more_than_it_must)
{
    static const char *const same[][2] = {
        {"[A-Za-z0-9_.:-]{1,255}", "[A-Za-z0-9_.:-]"},
        {"a{2,9}b+c*", "a{2}b"},
        {"(a{3,5})+", "a{3}"},
        {"a*", ""},
        {"(ab?)*", ""},
        {"x(y|z){0,7}$", "x(y|z){0,7}$"},
        {"^a{1,8}b{1,8}", "^a{1,8}b"},
        {"a{1,8}b{1,8}$", "ab{1,8}$"},
    };
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        ck_assert_msg(parsed(same[i][0], true) == parsed(same[i][1], true), "%s and %s", same[i][0], same[i][1]);
    }
    ck_assert(parsed("a{1,8}", true) != parsed("a{1,8}$", true) && parsed("a{1,8}", false) != parsed("a", false));
}
END_TEST

/* --- within a JSON string --------------------------------------------------------------------------------------------- */

START_TEST(look_ahead_goes_by_characters_and_not_by_how_they_are_written)
{
    static const struct {
        const char *pattern, *yes[4], *no[4];
    } rows[] = {
        {"^(?!.*foo)", {"", "fo", "f\\u006f-", "\\u0066oO"}, {"foo", "f\\u006fo", "x\\u0066oo"}},
        {"^(?:(?!\")[^])*$", {"a", "\\\\", "\\n"}, {"\\\"", "a\\u0022b"}},
        {"\\bfoo\\b", {"foo", "\\nfoo\\t", "\\u002dfoo"}, {"\\u0061foo", "foo\\u005F", "xfoo"}},
        {"^(?=.*\\d)(?=.*[A-Z]).{2,}$", {"A1", "\\u00411", "1\\\\A"}, {"A\\u0042", "\\u0031", "1a"}},
        {"^\\p{L}+$", {"\xC3\xA9\\u0061"}, {"\\u0031", "\\", "a\xC3"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        regex_id r = regex_json_escaped(set, parsed(rows[i].pattern, true));
        for (size_t k = 0; k < ARRAY_LEN(rows[i].yes) && rows[i].yes[k] != NULL; k++) {
            ck_assert_msg(says(r, rows[i].yes[k], strlen(rows[i].yes[k])), "%s: %s", rows[i].pattern, rows[i].yes[k]);
        }
        for (size_t k = 0; k < ARRAY_LEN(rows[i].no) && rows[i].no[k] != NULL; k++) {
            ck_assert_msg(!says(r, rows[i].no[k], strlen(rows[i].no[k])), "%s: %s", rows[i].pattern, rows[i].no[k]);
        }
        ck_assert_msg(!says(r, "\\u00", 5) && !says(r, "\n", 1), "%s", rows[i].pattern);
    }
}
END_TEST

/* A loop whose branches overlap would grow with each character if its states were not put in order. */
START_TEST(loops_have_few_states)
{
    static const char *const patterns[] = {"^(?:(?=.*x).|(?=.*y).|(?=.*z).)*$", "^(?:(?!foo).)*$",
                                           "^(?:\\b\\w+\\b\\W*(?!x)|y)*$", "^((?!aa|bb)[ab]|(?=a|b)[ab][ab])+$"};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        regex_id r = parsed(patterns[i], true), seen[64];
        size_t n = 0;
        for (int turn = 0; turn < 3000; turn++) { /* of random characters */
            size_t k = 0;
            r = regex_next(set, r, (unsigned char)"abxyz fo"[(turn * 7919 + turn / 5 * 31) % 8]);
            while (k < n && seen[k] != r) {
                k++;
            }
            ck_assert_msg(k < ARRAY_LEN(seen), "%s", patterns[i]);
            seen[k] = r;
            n += k == n;
        }
    }
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

START_TEST(what_is_not_known_is_named_with_its_place)
{
    static const struct {
        const char *pattern, *says;
        uint64_t at;
    } rows[] = {
        {"(a)\\1", "back reference", 3},
        {"\\k<x>", "back reference", 0},
        {"(?<=a)b", "lookbehind", 0},
        {"x(?<!a)b", "lookbehind", 1},
        {"(?=(?<=a)b)", "lookbehind", 3},
        {"(?i:a)", "kind of group", 0},
        {"(?<>a)", "kind of group", 0},
        {"(?<a", "kind of group", 0},
        {"(?P<a>b)(?P=a)", "back reference", 8},
        {"a(?>b)", "atomic group", 1},
        {"(?(1)a)", "conditional", 0},
        {"(?", "kind of group", 0},
        {"x\\p", "name of a property", 1},
        {"x\\p{L", "name of a property", 1},
        {"[\\p{Foo}]", "not known", 1},
        {"\\p{}", "not known", 0},
        {"\\p{gc=Greek}", "not known", 0},
        {"\\p{L}a{2,1}", "exceeds its maximum", 6},
        {"[\\p{L}-z]", "range", 1},
        {"\\b*", "repeat of nothing", 2},
        {"(?=a", "without its )", 0},
        {"a(b", "without its )", 1},
        {"ab)", "without its (", 2},
        {"a[b", "without its ]", 1},
        {"*a", "repeat of nothing", 0},
        {"a**", "repeat of nothing", 2},
        {"(|+)", "repeat of nothing", 2},
        {"^*", "repeat of nothing", 1},
        {"a{3,2}", "exceeds its maximum", 1},
        {"[b-a]", "range", 1},
        {"[\\d-z]", "range", 1},
        {"a\\", "backslash at the end", 1},
        {"\\uD83D", "surrogate", 0},
        {"\\uDE00", "surrogate", 0},
        {"\\u12", "four hexadecimal", 0},
        {"\\u{110000}", "number", 0},
        {"\\xg0", "two hexadecimal", 0},
        {"\\c1", "letter", 0},
        {"\\q", "does not exist", 0},
        {"\\01", "back reference", 0},
        {"a\xC3", "UTF-8", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err_info info = {0};
        regex_id out = REGEX_ALL;
        enum err err = regex_parse(set, &(struct regex_pattern){rows[i].pattern, strlen(rows[i].pattern), REGEX_SEARCH},
                                   &out, &info);
        ck_assert_msg(err == ERR_INVALID_GRAMMAR, "%s: %s", rows[i].pattern, err_code(err));
        ck_assert_msg(strstr(info.text, rows[i].says) != NULL, "%s: %s", rows[i].pattern, info.text);
        ck_assert_msg(info.offset == rows[i].at, "%s: %s", rows[i].pattern, info.text);
        ck_assert_uint_eq(out, REGEX_NONE);
    }
    ck_assert_int_eq(regex_ok(set), ERR_OK); /* the set is as good as before */
}
END_TEST

enum { MOST_WORK = 5000000 }; /* of regex_work: 100 ms */
enum { BIG = REGEX_PARSE_MAX_BYTES + 1 };

/* A pattern of `unit` over and over: it works or is too much, soon. */
static enum err hostile(const char *unit, size_t n)
{
    static char pattern[BIG];
    size_t n_unit = strnlen(unit, n);
    regex_id out;
    for (size_t i = 0; i < n; i++) {
        pattern[i] = unit[i % n_unit];
    }
    struct regex_set *own;
    ck_assert_int_eq(regex_set_new(0, &own), ERR_OK);
    enum err err = regex_parse(own, &(struct regex_pattern){pattern, n, REGEX_SEARCH}, &out, NULL);
    ck_assert_msg(regex_work(own) < MOST_WORK, "%s: work %zu", unit, regex_work(own));
    ck_assert_uint_lt(regex_set_bytes(own), (size_t)64 << 20);
    regex_set_free(&own);
    return err;
}

/* A class of n characters beyond ASCII of which no two touch. */
static enum err hostile_class(size_t n)
{
    static char pattern[BIG];
    size_t len = 1;
    pattern[0] = '[';
    for (size_t i = 0; i < n; i++) {
        len += utf8_encode((uint32_t)(0x10000 + 2 * i * 37 % 0x80000), pattern + len);
    }
    pattern[len++] = ']';
    return hostile(pattern, len);
}

START_TEST(hostile_patterns_end_soon)
{
    ck_assert_int_eq(hostile_class(REGEX_PARSE_MAX_WIDE), ERR_OK);
    ck_assert_int_eq(hostile_class(REGEX_PARSE_MAX_WIDE + 1), ERR_GRAMMAR_LIMIT);
    static const char *const units[] = {"(",
                                        "[",
                                        "(a|",
                                        "a|",
                                        "|",
                                        "^",
                                        "$",
                                        "a?",
                                        "ab|",
                                        "[a-z]*",
                                        "\\d+",
                                        "(^|a)b|c$",
                                        "a{9999}",
                                        "(a{999}){9}",
                                        "[^a]|b",
                                        ".*a",
                                        "\\b",
                                        "\\ba|",
                                        "(?=a)",
                                        "(?=",
                                        "(?!a)|",
                                        "(?:\\ba)*",
                                        "(?:(?!a).)*",
                                        "(?:\\b){999}",
                                        "(?:(?=a)a){999}",
                                        "(?:a|(?=b)){0,9}",
                                        "((?=.*a)*|b)*",
                                        "\\p{L}",
                                        "[\\p{L}a]",
                                        "\\p{Script=Greek}|"};
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        for (size_t n = 60000; n < 60004; n++) {
            enum err err = hostile(units[i], n);
            ck_assert_msg(err == ERR_OK || err == ERR_GRAMMAR_LIMIT || err == ERR_INVALID_GRAMMAR, "%s: %s", units[i],
                          err_code(err));
        }
    }
    ck_assert_int_eq(hostile("\\pL", (size_t)3 * REGEX_PARSE_MAX_PROPERTIES), ERR_OK);
    ck_assert_int_eq(hostile("\\pL", (size_t)3 * REGEX_PARSE_MAX_PROPERTIES + 3), ERR_GRAMMAR_LIMIT);
    ck_assert_int_eq(hostile("(", 60000), ERR_GRAMMAR_LIMIT);
    ck_assert_int_eq(hostile("a", BIG), ERR_GRAMMAR_LIMIT);
    ck_assert_int_eq(hostile("(((((((((((((((((((", 19), ERR_INVALID_GRAMMAR);
    regex_id r = parsed("^(a+)+$", true);
    for (int i = 0; i < 5000; i++) {
        r = regex_next(set, r, 'a');
    }
    ck_assert(regex_is_nullable(set, r));
    ck_assert(!regex_is_nullable(set, regex_next(set, r, '!')));
    ck_assert(!says(parsed("^(x{1000000}|[a-c]{1000000,99999999999999999999})$", true), "ab", 2));
}
END_TEST

/* As long as its work is limited, which is while a client waits; afterwards the set may be shared. */
START_TEST(a_client_that_leaves_ends_it)
{
    static char pattern[40000];
    struct task task = {.deadline_ns = 1};
    memset(pattern, 'a', sizeof pattern);
    task_enter(&task, "grammar");
    for (int is_limited = 0; is_limited < 2; is_limited++) {
        struct regex_set *own;
        regex_id out;
        ck_assert_int_eq(regex_set_new(0, &own), ERR_OK);
        regex_limit_work(own, is_limited ? SIZE_MAX - 1 : SIZE_MAX);
        ck_assert_int_eq(regex_parse(own, &(struct regex_pattern){pattern, sizeof pattern, 0}, &out, NULL),
                         is_limited ? ERR_DEADLINE : ERR_OK);
        regex_set_free(&own);
    }
    task_leave();
}
END_TEST

/* needs_all: else it may do without some of its memory, as PCRE2 does, which matches properties, of machine code. */
static void check_without_memory(const char *pattern, bool needs_all)
{
    size_t before = mem_live();
    bool is_through = false;
    for (long at = 0; !is_through; at++) {
        struct regex_set *own;
        regex_id out;
        ck_assert_int_eq(regex_set_new(0, &own), ERR_OK);
        mem_fail_at(at);
        enum err err = regex_parse(own, &(struct regex_pattern){pattern, strlen(pattern), REGEX_SEARCH}, &out, NULL);
        if (err == ERR_OK) {
            regex_json_escaped(own, out);
            err = regex_ok(own);
        }
        is_through = !mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_msg(err == (is_through ? ERR_OK : ERR_NOMEM) || (err == ERR_OK && !needs_all), "%s", pattern);
        regex_set_free(&own);
        ck_assert_uint_eq(mem_live(), before);
    }
}
START_TEST(it_stands_without_memory)
{
    static const char *const patterns[] = {"^(a|[^b-d\\s]+)\\u00e9{2,5}|x$", "^(?=.*\\d)(?:(?!a|b)\\b.)*(?=c$)",
                                           "[\\p{L}]\\p{Sundanese}"};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        check_without_memory(patterns[i], strstr(patterns[i], "\\p") == NULL);
    }
}
END_TEST

Suite *regex_parse_suite(void)
{
    Suite *s = suite_create("regex_parse");
    TCase *c = tcase_create("regex_parse");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, patterns_match_what_they_should);
    tcase_add_test(c, patterns_of_generators_are_taken);
    tcase_add_test(c, random_patterns_match_as_trying_every_way_does);
    tcase_add_test(c, what_may_stand_anywhere_counts_no_more_than_it_must);
    tcase_add_test(c, look_ahead_goes_by_characters_and_not_by_how_they_are_written);
    tcase_add_test(c, loops_have_few_states);
    tcase_add_test(c, what_is_not_known_is_named_with_its_place);
    tcase_add_test(c, hostile_patterns_end_soon);
    tcase_add_test(c, a_client_that_leaves_ends_it);
    tcase_add_test(c, it_stands_without_memory);
    suite_add_tcase(s, c);
    return s;
}
