/* Formats by examples. */
#include "engine/schema/schema_text.h"

#include "engine/base/compiler.h"

#include <check.h>
#include <string.h>

Suite *schema_text_suite(void);

static struct regex_set *set;

static void set_up(void) { ck_assert_int_eq(regex_set_new(0, &set), ERR_OK); }
static void tear_down(void) { regex_set_free(&set); }

static bool says(regex_id r, const char *s)
{
    for (; *s != '\0'; s++) {
        r = regex_next(set, r, (unsigned char)*s);
    }
    return regex_is_nullable(set, r);
}

START_TEST(formats)
{
    static const struct {
        const char *name, *right[8], *wrong[10];
    } all[] = {
        {"date",
         {"2024-02-29", "2000-02-29", "1999-12-31", "0400-02-29"},
         {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "2024-1-1", "0000-01-01", "2024-01-01T"}},
        {"time", {"23:59:59Z", "00:00:00.123+05:30"}, {"24:00:00Z", "12:00:00", "12:60:00Z", "12:00Z", "12:00:00z"}},
        {"date-time",
         {"2024-02-29T12:00:00Z", "1985-04-12T23:20:50.52-08:00"},
         {"2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29"}},
        {"email", {"a@b", "first.last+tag@sub.example.com"}, {"a", "@b", "a@", "a..b@c", ".a@b", "a@-b", "a b@c"}},
        {"hostname", {"a", "a-b.example.com", "1.2"}, {"-a", "a-", "a..b", "a_b", "", "xn--a", "a.ab--c"}},
        {"ipv4", {"0.0.0.0", "255.249.10.1"}, {"256.1.1.1", "1.1.1", "01.1.1.1", "1.1.1.1.1"}},
        {"ipv6",
         {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1", "1::", "1:2::7:8"},
         {"1:2:3:4:5:6:7", ":::", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", ":1"}},
        {"uri",
         {"http://example.com/a?b=c#d", "urn:isbn:123", "mailto:a@b.c", "file:///etc", "a:", "http://u:p@h:80/%20"},
         {"example.com", "//a/b", "http://a b", "1http://a", "http://a/%2", "http://[a", "http://a/\\"}},
        {"uri-reference", {"", "a/b", "/a", "//h/p", "#x", "?q", "http://a", "../a"}, {"a b", "%", "\\a", "#a#b"}},
        {"iri",
         {"http://ex\xC3\xA4mple.com/\xC3\xA9?\xEE\x80\x80#b", "urn:isbn:123", "http://a/%20"},
         {"ex\xC3\xA4mple", "http://a b", "http://a/%2", "http://a/\\", "http://a/\xEE\x80\x80"}},
        {"iri-reference", {"", "/\xC3\xA9", "#\xE6\xBC\xA2", "a/b"}, {"a b", "%", "#a#b", "<\xC3\xA9>"}},
        {"json-pointer", {"", "/", "/a/0", "/a~1b/m~0n", "/\xC3\xA9 "}, {"a", "/~", "/~2", "#/a"}},
        {"relative-json-pointer", {"0", "1/a", "10#", "2/a~1"}, {"", "/a", "01", "1a", "0##", "-1"}},
        {"uri-template",
         {"", "/a/{b}", "{?x,y*}", "{+a.b:30}", "a%20{#c}"},
         {"{", "{}", "a}", "{a b}", "%2", "{a:0}", "a b"}},
        {"regex",
         {"", "^(?:a|b)+$", "[^a-f\\d]{2,}?", "(a(b(c(d))))", "\\.\\p{L}\\b", "x{0,3}|[-]", "\\/\\u00e9"},
         {"(", "a)", "[", "*a", "a**", "\\", "[z-a]", "a{2,1}", "^*", "\\k"}},
        {"uuid",
         {"123e4567-e89b-12d3-A456-426614174000"},
         {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
          "g23e4567-e89b-12d3-a456-426614174000"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        regex_id r;
        ck_assert_int_eq(schema_format_of(set, all[i].name, &r), SCHEMA_FORMAT_KNOWN);
        ck_assert_int_eq(regex_ok(set), ERR_OK);
        for (size_t k = 0; k < 8 && all[i].right[k] != NULL; k++) {
            ck_assert_msg(says(r, all[i].right[k]), "%s: %s", all[i].name, all[i].right[k]);
        }
        for (size_t k = 0; k < 10 && all[i].wrong[k] != NULL; k++) {
            ck_assert_msg(!says(r, all[i].wrong[k]), "%s: %s", all[i].name, all[i].wrong[k]);
        }
    }
    regex_id r;
    ck_assert_int_eq(schema_format_of(set, "idn-hostname", &r), SCHEMA_FORMAT_REFUSED);
    ck_assert_int_eq(schema_format_of(set, "color", &r), SCHEMA_FORMAT_UNKNOWN);
}
END_TEST

/* Letters, dashes and dots: as RFC 1123 has it, and without -- at a label's third and fourth place. */
static bool is_host(const char *text, size_t n)
{
    bool is = n > 0 && n <= 253;
    for (size_t i = 0, begin = 0; is && i <= n; i++) {
        if (i == n || text[i] == '.') {
            size_t len = i - begin;
            is = len >= 1 && len <= 63 && text[begin] != '-' && text[i - 1] != '-' &&
                 (len < 4 || text[begin + 2] != '-' || text[begin + 3] != '-');
            begin = i + 1;
        }
    }
    return is;
}

START_TEST(host_names)
{
    regex_id r;
    char text[256] = "";
    ck_assert_int_eq(schema_format_of(set, "hostname", &r), SCHEMA_FORMAT_KNOWN);
    for (int n = 0, all = 1; n <= 8; n++, all *= 3) { /* all texts */
        for (int i = 0; i < all; i++) {
            for (int k = 0, left = i; k < n; k++, left /= 3) {
                text[k] = "a-."[left % 3];
            }
            text[n] = '\0';
            ck_assert_msg(says(r, text) == is_host(text, (size_t)n), "%s", text);
        }
    }
    for (size_t n = 60; n < 256; n++) { /* labels and names of all lengths */
        memset(text, 'a', n);
        text[n] = '\0';
        ck_assert_msg(says(r, text) == (n <= 63), "%zu", n);
        for (size_t k = 50; k + 1 < n; k += 51) {
            text[k] = '.';
        }
        ck_assert_msg(says(r, text) == is_host(text, n), "%s", text);
    }
    /* What is dead is seen so at once, as each mask comes by there. */
    for (const char *at = "co--"; *at != '\0'; at++) {
        r = regex_next(set, r, (unsigned char)*at);
    }
    ck_assert_uint_eq(r, REGEX_NONE);
}
END_TEST

Suite *schema_text_suite(void)
{
    Suite *s = suite_create("schema_text");
    TCase *t = tcase_create("schema_text");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, formats);
    tcase_add_test(t, host_names);
    suite_add_tcase(s, t);
    return s;
}
