/* The streaming detokenizer: whole UTF-8 at every step, whatever the borders of the tokens. */
#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *tokenizer_decode_suite(void);

static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 z"; /* sequences of 1, 2, 3 and 4 bytes */
enum { N = sizeof text - 1 };

/* Token ids of every part [from, to) of the text. */
static int32_t part_ids[N + 1][N + 1];

static void load_parts(struct vocab *v)
{
    vocab_bpe(v, "gpt-2");
    for (size_t from = 0; from < N; from++) {
        for (size_t to = from + 1; to <= N; to++) {
            char spelling[2 * N];
            size_t n = 0;
            for (size_t i = from; i < to; i++) {
                unsigned char b = (unsigned char)text[i];
                bool shown = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
                uint32_t hidden = b <= 0x20 ? 256u + b : 256u + 33 + (b - 127u); /* 00-20, then 7F-A0 */
                n += utf8_encode(shown ? b : hidden, spelling + n);
            }
            part_ids[from][to] = vocab_add(v, spelling, n, TOKEN_NORMAL, 0);
        }
    }
    ck_assert_int_eq(vocab_load(v, NULL), ERR_OK);
}

static void check_whole(const struct buf *out)
{
    if (!utf8_valid(out->data, out->len, NULL)) {
        ck_abort_msg("half a sequence was given out");
    }
}

START_TEST(every_split_gives_the_text_back)
{
    struct vocab v;
    struct buf out;
    load_parts(&v);
    buf_init(&out, 0, MEM_GENERAL);
    for (uint32_t cuts = 0; cuts < 1u << (N - 1); cuts++) { /* bit i: cut after byte i */
        struct detokenizer d = {0};
        buf_reset(&out);
        for (size_t from = 0, to = 1; from < N; to++) {
            if (to == N || (cuts >> (to - 1) & 1) != 0) {
                detokenizer_push(&d, v.t, part_ids[from][to], false, &out);
                check_whole(&out);
                from = to;
            }
        }
        detokenizer_finish(&d, &out);
        if (out.len != N || memcmp(out.data, text, N) != 0) {
            ck_abort_msg("cuts %x: '%.*s'", cuts, (int)out.len, out.data);
        }
    }
    buf_fini(&out);
    vocab_fini(&v);
}
END_TEST

/* Row T13 of the catalogue of bad inputs. */
START_TEST(a_text_cut_anywhere_ends_with_one_replacement)
{
    struct vocab v;
    struct buf out;
    load_parts(&v);
    buf_init(&out, 0, MEM_GENERAL);
    for (size_t end = 1; end < N; end++) {
        for (size_t step = 1; step <= end; step++) {
            struct detokenizer d = {0};
            buf_reset(&out);
            for (size_t from = 0; from < end; from += step) {
                size_t to = from + step < end ? from + step : end;
                detokenizer_push(&d, v.t, part_ids[from][to], false, &out);
            }
            size_t tail = utf8_incomplete_tail(text, end);
            ck_assert_uint_eq(out.len, end - tail);
            detokenizer_finish(&d, &out);
            detokenizer_finish(&d, &out); /* once only */
            ck_assert_uint_eq(out.len, end - tail + (tail > 0 ? 3 : 0));
            ck_assert_mem_eq(out.data, text, end - tail);
            check_whole(&out);
        }
    }
    buf_fini(&out);
    vocab_fini(&v);
}
END_TEST

static void check_text(const struct vocab *v, const int32_t *ids, size_t n, bool show_special, const char *want)
{
    struct detokenizer d = {0};
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    for (size_t i = 0; i < n; i++) {
        detokenizer_push(&d, v->t, ids[i], show_special, &out);
    }
    detokenizer_finish(&d, &out);
    ck_assert_uint_eq(out.len, strlen(want));
    ck_assert_mem_eq(out.len > 0 ? out.data : "", want, out.len);
    buf_fini(&out);
}

START_TEST(bytes_that_can_never_become_text_come_out_at_once)
{
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    int32_t control = vocab_add(&v, "<c>", 3, TOKEN_CONTROL, 0);
    int32_t user = vocab_add(&v, "<\xC4\xA0>", 4, TOKEN_USER_DEFINED, 0); /* its text is not in the byte alphabet */
    int32_t filler = vocab_add(&v, "[PAD1]", 6, TOKEN_UNUSED, 0);
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    check_text(&v, (int32_t[]){0xFF, 'a'}, 2, false,
               "\xEF\xBF\xBD"
               "a");
    check_text(&v, (int32_t[]){0x80, 0xC3, 'a'}, 3, false,
               "\xEF\xBF\xBD\xEF\xBF\xBD"
               "a");
    check_text(&v, (int32_t[]){0xC3, 0xC3, 0xA9}, 3, false, "\xEF\xBF\xBD\xC3\xA9");
    check_text(&v, (int32_t[]){0xED, 0xA0}, 2, false, "\xEF\xBF\xBD\xEF\xBF\xBD"); /* a surrogate is not UTF-8 */
    check_text(&v, (int32_t[]){'a', control, user, filler}, 4, false, "a<\xC4\xA0>");
    check_text(&v, (int32_t[]){'a', control, user, filler}, 4, true, "a<c><\xC4\xA0>[PAD1]");
    check_text(&v, (int32_t[]){0xC3, control, 0xA9}, 3, false,
               "\xC3\xA9"); /* a hidden token does not break a sequence */
    struct detokenizer d = {0};
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    detokenizer_push(&d, v.t, 0xE2, false, &out);
    ck_assert_uint_eq(out.len, 0);
    detokenizer_push(&d, v.t, 'x', false, &out); /* at once, not at the end */
    ck_assert_uint_eq(out.len, 4);
    buf_fini(&out);
    vocab_fini(&v);
}
END_TEST

START_TEST(spm_loses_the_space_in_front_and_no_other)
{
    for (int prefix = 0; prefix < 2; prefix++) {
        struct vocab v;
        vocab_spm(&v);
        int32_t a = vocab_add(&v,
                              "\xE2\x96\x81"
                              "a\xE2\x96\x81",
                              7, TOKEN_NORMAL, 0);
        v.add_space_prefix = prefix;
        ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
        check_text(&v, (int32_t[]){a, a}, 2, false, prefix ? "a  a " : " a  a ");
        check_text(&v, (int32_t[]){1, a}, 2, false, prefix ? "a " : " a "); /* a hidden BOS is not the first text */
        check_text(&v, (int32_t[]){3 + 0xC3, 3 + 0xA9}, 2, false, "\xC3\xA9");
        vocab_fini(&v);
    }
}
END_TEST

Suite *tokenizer_decode_suite(void)
{
    Suite *s = suite_create("tokenizer_decode");
    TCase *c = tcase_create("tokenizer_decode");
    tcase_add_test(c, every_split_gives_the_text_back);
    tcase_add_test(c, a_text_cut_anywhere_ends_with_one_replacement);
    tcase_add_test(c, bytes_that_can_never_become_text_come_out_at_once);
    tcase_add_test(c, spm_loses_the_space_in_front_and_no_other);
    suite_add_tcase(s, c);
    return s;
}
