/* Stop strings over pieces of text: every way to cut a text gives what a search over the whole text gives, nothing is
 * held longer than it must be, and nothing after a stop string gets out. */
#include "engine/sample/stop.h"

#include "engine/base/mem.h"
#include "engine/base/rng.h"

#include <check.h>
#include <string.h>

Suite *stop_suite(void);

enum { MAX_TEXT = 256 };

static void start(struct stop *s, const char *const *strings, size_t n)
{
    *s = (struct stop){.n = n};
    buf_init(&s->held, 1 << 20, MEM_GENERAL);
    for (size_t i = 0; i < n; i++) {
        s->strings[i] = strings[i];
        s->lens[i] = strlen(strings[i]);
    }
}

/* Where the text must be cut by a search over all of it: the stop string that is complete first ends it; of those
 * complete at the same byte the one that begins first, then the first in the list. */
static bool find_in_all(const struct stop *s, const char *text, size_t n, size_t *cut, size_t *which)
{
    for (size_t end = 1; end <= n; end++) {
        bool found = false;
        for (size_t i = 0; i < s->n; i++) {
            size_t len = s->lens[i];
            bool is_here = len <= end && memcmp(text + end - len, s->strings[i], len) == 0;
            if (is_here && (!found || end - len < *cut)) {
                *cut = end - len;
                *which = i;
                found = true;
            }
        }
        if (found) {
            return true;
        }
    }
    return false;
}

/* The longest end of text[0..n) that a stop string begins with: what must be held back, and no more. */
static size_t must_hold(const struct stop *s, const char *text, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < s->n; i++) {
            if (n - at < s->lens[i] && memcmp(text + at, s->strings[i], n - at) == 0) {
                return n - at;
            }
        }
    }
    return 0;
}

/* Feeds text[0..n) in pieces that end where `ends` has a bit; checks each answer. */
static void feed(const char *const *strings, size_t n_strings, const char *text, size_t n, uint64_t ends)
{
    struct stop s;
    char shown[MAX_TEXT];
    size_t n_shown = 0, cut = 0, which = 0, releasable, got;
    start(&s, strings, n_strings);
    bool found = false;
    for (size_t from = 0, to = 1; to <= n && !found; to++) {
        if (to < n && to < 64 && (ends >> to & 1) == 0) {
            continue;
        }
        found = stop_push(&s, text + from, to - from, &releasable, &got);
        bool expected = find_in_all(&s, text, to, &cut, &which);
        if (found != expected || releasable > s.held.len) {
            ck_abort_msg("'%.*s' cut as %lx: found %d, expected %d", (int)to, text, (unsigned long)ends, found,
                         expected);
        }
        memcpy(shown + n_shown, s.held.data, releasable);
        n_shown += releasable;
        size_t right = found ? cut : to - must_hold(&s, text, to);
        if (n_shown != right || memcmp(shown, text, n_shown) != 0 || (found && got != which)) {
            ck_abort_msg("'%.*s' cut as %lx: %zu bytes shown (stop %zu), expected %zu (stop %zu)", (int)to, text,
                         (unsigned long)ends, n_shown, got, right, which);
        }
        stop_release(&s, releasable);
        if (found) { /* asked again, it says the same */
            ck_assert(stop_push(&s, "", 0, &releasable, &got) && releasable == 0 && got == which);
        }
        from = to;
    }
    buf_fini(&s.held);
}

static void feed_every_way(const char *const *strings, size_t n_strings, const char *text)
{
    size_t n = strlen(text);
    ck_assert_uint_le(n, 14);
    for (uint64_t ends = 0; ends < 1ull << (n == 0 ? 0 : n - 1); ends++) {
        feed(strings, n_strings, text, n, ends << 1);
    }
}

START_TEST(every_way_to_cut_a_text_gives_the_same)
{
    static const struct {
        const char *strings[4];
        const char *text;
    } cases[] = {
        {{"stop"}, "one stop two"},
        {{"stop"}, "stopped"},
        {{"stop"}, "no sto here"},
        {{"stop"}, "stststostop"},
        {{"aab"}, "aaaaaab"},
        {{"aaa", "ab"}, "aabaaaa"},
        {{"abcdef", "cd"}, "xabcdxx"}, /* the short one is complete first */
        {{"abcd", "bc"}, "xabcd"},
        {{"abc", "bc", "c"}, "xxabcx"}, /* complete together: the one that begins first */
        {{"c", "bc", "abc"}, "xxabcx"},
        {{"a", "ab"}, "xab"},
        {{"ab", "ab"}, "xabx"},
        {{"x"}, "x"},
        {{"\n\n"}, "a\nb\n\nc"},
        {{"\n\nQ:", "\n\n\n"}, "a\n\n\nQ:"},
        {{"User:", "</s>"}, "hi</User:"},
        {{"\xC3\xA4"}, "a\xC3\xA5\xC3\xA4z"},                    /* shares its first byte with what is there */
        {{"\xE2\x82\xAC", "\xE2\x82"}, "1\xE2\x82\xAD\xE2\x82"}, /* a stop string that ends inside a character */
        {{"\xF0\x9F\x98\x80"}, "\xF0\x9F\x98\x81\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0;
        while (n < 4 && cases[i].strings[n] != NULL) {
            n++;
        }
        feed_every_way(cases[i].strings, n, cases[i].text);
    }
}
END_TEST

START_TEST(texts_and_strings_at_random)
{
    uint64_t at = 0;
    int n_found = 0;
    for (int round = 0; round < 4000; round++) {
        char strings[3][8], text[64];
        const char *list[3];
        size_t n_strings = 1 + (size_t)(rng_uniform(1, 1, at++) * 3), n = (size_t)(rng_uniform(1, 1, at++) * 60);
        for (size_t i = 0; i < n_strings; i++) {
            size_t len = 1 + (size_t)(rng_uniform(1, 1, at++) * 6);
            for (size_t k = 0; k < len; k++) {
                strings[i][k] = "aab"[(int)(rng_uniform(1, 1, at++) * 3)];
            }
            strings[i][len] = '\0';
            list[i] = strings[i];
        }
        for (size_t k = 0; k < n; k++) {
            text[k] = "aaabbc"[(int)(rng_uniform(1, 1, at++) * 6)];
        }
        struct stop s;
        size_t cut = 0, which;
        start(&s, list, n_strings);
        n_found += find_in_all(&s, text, n, &cut, &which);
        feed(list, n_strings, text, n, (uint64_t)(rng_uniform(1, 1, at++) * 0x1p53) << 8 | (uint64_t)round);
    }
    ck_assert(n_found > 1000 && n_found < 3900);
}
END_TEST

START_TEST(held_text_comes_out_when_the_match_fails)
{
    static const char *const strings[] = {"<|end|>"};
    struct stop s;
    size_t releasable, which;
    start(&s, strings, 1);
    ck_assert(!stop_push(&s, "abc<|en", 7, &releasable, &which));
    ck_assert_uint_eq(releasable, 3);
    stop_release(&s, releasable);
    ck_assert(!stop_push(&s, "", 0, &releasable, &which));
    ck_assert_uint_eq(releasable, 0);
    ck_assert(!stop_push(&s, "g", 1, &releasable, &which));
    ck_assert_uint_eq(releasable, 5);
    ck_assert_int_eq(memcmp(s.held.data, "<|eng", 5), 0);
    stop_release(&s, 5);
    ck_assert_uint_eq(s.held.len, 0);
    buf_fini(&s.held);
}
END_TEST

START_TEST(nul_is_text_and_no_strings_hold_nothing)
{
    struct stop s;
    size_t releasable, which = 9;
    start(&s, NULL, 0);
    ck_assert(!stop_push(&s, "any", 3, &releasable, &which));
    ck_assert_uint_eq(releasable, 3);
    buf_fini(&s.held);
    s = (struct stop){.strings = {"a\0b"}, .lens = {3}, .n = 1};
    buf_init(&s.held, 1 << 20, MEM_GENERAL);
    ck_assert(!stop_push(&s, "xa\0", 3, &releasable, &which));
    ck_assert_uint_eq(releasable, 1);
    ck_assert(stop_push(&s, "bc", 2, &releasable, &which));
    ck_assert_uint_eq(releasable, 1);
    ck_assert_uint_eq(which, 0);
    buf_fini(&s.held);
}
END_TEST

START_TEST(a_failed_allocation_sticks)
{
    static const char *const strings[] = {"stop"};
    struct stop s;
    size_t releasable, which;
    start(&s, strings, 1);
    mem_fail_at(0);
    ck_assert(!stop_push(&s, "text", 4, &releasable, &which));
    mem_fail_at(-1);
    ck_assert_int_eq(buf_ok(&s.held), ERR_NOMEM);
    ck_assert_uint_eq(releasable, 0);
    buf_fini(&s.held);
}
END_TEST

Suite *stop_suite(void)
{
    Suite *s = suite_create("stop");
    TCase *c = tcase_create("stop");
    tcase_add_test(c, every_way_to_cut_a_text_gives_the_same);
    tcase_add_test(c, texts_and_strings_at_random);
    tcase_add_test(c, held_text_comes_out_when_the_match_fails);
    tcase_add_test(c, nul_is_text_and_no_strings_hold_nothing);
    tcase_add_test(c, a_failed_allocation_sticks);
    suite_add_tcase(s, c);
    return s;
}
