/* Heads of requests judged however they are cut: bounds, roles, padding, other requests between. */
#include "engine/base/compiler.h"
#include "fcgi/wire/records.h"

#include <check.h>
#include <string.h>

Suite *records_suite(void);

enum { BEGIN = 1, ABORT = 2, END = 3, PARAMS = 4, STDIN = 5, STDOUT = 6, GET_VALUES = 9 };

static struct buf text;

static void put(int type, int id, const void *content, size_t n, size_t padding)
{
    static const char zeros[255];
    const unsigned char head[8] = {1,
                                   (unsigned char)type,
                                   (unsigned char)(id >> 8),
                                   (unsigned char)id,
                                   (unsigned char)(n >> 8),
                                   (unsigned char)n,
                                   (unsigned char)padding};
    buf_append(&text, head, sizeof head);
    buf_append(&text, content, n);
    buf_append(&text, zeros, padding);
}

static void put_begin(int id, int role, size_t padding)
{
    const unsigned char body[8] = {(unsigned char)(role >> 8), (unsigned char)role};
    put(BEGIN, id, body, sizeof body, padding);
}

/* A pair with lengths that say so, in four bytes each. */
static void put_pair(struct buf *b, uint32_t name, uint32_t value)
{
    for (int i = 0; i < 2; i++) {
        uint32_t n = (i == 0 ? name : value) | 0x80000000u;
        const unsigned char four[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                       (unsigned char)n};
        buf_append(b, four, sizeof four);
    }
}

static void begin(void)
{
    buf_fini(&text);
    buf_init(&text, 0, MEM_GENERAL);
    put_begin(1, 1, 0);
}

/* Judges the text in parts of `step` bytes; what is left of it, in `kept` (OPTIONAL). */
static struct records judge(size_t step, struct buf *kept)
{
    struct records r = {0};
    char part[4096 + RECORDS_AHEAD];
    for (size_t at = 0; at < text.len; at += step) {
        size_t n = MIN_OF(step, text.len - at);
        memcpy(part + RECORDS_AHEAD, text.data + at, n);
        n = records_judge(&r, part, part + RECORDS_AHEAD, n);
        if (kept != NULL) {
            buf_append(kept, part, n);
        }
    }
    return r;
}

static void expect(enum records_verdict verdict)
{
    static const size_t steps[] = {1, 2, 3, 7, 8, 9, 100, 4096};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct records r = judge(steps[i], NULL);
        ck_assert_msg(r.verdict == verdict, "in parts of %zu: %d, expected %d", steps[i], (int)r.verdict, (int)verdict);
    }
}

/* n pairs of `value` bytes each, in records of `size` bytes. */
static void put_params(size_t n, size_t value, size_t size)
{
    struct buf b;
    buf_init(&b, 0, MEM_GENERAL);
    for (size_t i = 0; i < n; i++) {
        put_pair(&b, 1, (uint32_t)value);
        buf_putc(&b, 'N');
        for (size_t k = 0; k < value; k++) {
            buf_putc(&b, (char)0xFF);
        }
    }
    for (size_t at = 0; at < b.len; at += size) {
        put(PARAMS, 1, b.data + at, MIN_OF(size, b.len - at), at % 3);
    }
    put(PARAMS, 1, "", 0, 0);
    buf_fini(&b);
}

START_TEST(numbers_and_lengths_have_bounds)
{
    static const struct {
        size_t n, value, size;
        enum records_verdict verdict;
    } cases[] = {
        {256, 3, 100, RECORDS_FINE},          {257, 3, 100, RECORDS_TOO_MANY}, {1, 65527, 60000, RECORDS_FINE},
        {1, 65528, 60000, RECORDS_TOO_LONG},  {64, 1015, 999, RECORDS_FINE},   {64, 1016, 65535, RECORDS_TOO_LONG},
        {100000, 0, 60000, RECORDS_TOO_MANY}, {0, 0, 1, RECORDS_FINE},         {20, 9, 1, RECORDS_FINE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        begin();
        put_params(cases[i].n, cases[i].value, cases[i].size);
        put(STDIN, 1, "{}", 2, 6);
        expect(cases[i].verdict);
    }
}
END_TEST

START_TEST(lengths_that_say_more_than_comes_are_refused_at_once)
{
    static const uint32_t lies[][2] = {
        {0x7FFFFFFF, 0x7FFFFFFF}, {0x7FFFFFFF, 0}, {0, 0x7FFFFFFF}, {65537, 0}, {40000, 40000}};
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        struct buf b;
        buf_init(&b, 0, MEM_GENERAL);
        put_pair(&b, lies[i][0], lies[i][1]);
        begin();
        put(PARAMS, 1, b.data, b.len, 0);
        expect(RECORDS_TOO_LONG);
        begin(); /* of the connection, and of another request */
        put(GET_VALUES, 0, b.data, b.len, 0);
        put(PARAMS, 2, b.data, b.len, 0);
        put_params(10, 3, 7);
        expect(RECORDS_FINE);
        buf_fini(&b);
    }
}
END_TEST

/* What others say between two parts of the parameters does not hide what the parts say. */
START_TEST(parts_belong_together_whatever_stands_between)
{
    static const unsigned char first[] = {1, 0xFF, 0xFF}, second[] = {0xFF, 0xFF, 'N'};
    begin();
    put(PARAMS, 1, first, sizeof first, 0);
    put(GET_VALUES, 0, "\2\0ab", 4, 4);
    put(PARAMS, 2, "\x70\x70", 2, 0);
    put_begin(3, 1, 0);
    put(PARAMS, 1, second, sizeof second, 0);
    expect(RECORDS_TOO_LONG);
}
END_TEST

/* Of other requests only what would begin one, which libfcgi refuses; whatever it is cut into, and empty or not. */
START_TEST(what_is_not_of_the_request_does_not_pass)
{
    struct buf kept, wanted;
    for (size_t step = 1; step < 40; step++) {
        buf_fini(&text);
        buf_init(&text, 0, MEM_GENERAL);
        put_begin(5, 1, 0);
        put_begin(6, 2, 0);
        put(PARAMS, 5, "\1\1ab", 4, 0);
        put(PARAMS, 5, "", 0, 0);
        put(STDIN, 5, "body", 4, 0);
        buf_init(&wanted, 0, MEM_GENERAL);
        buf_add(&wanted, &text);
        buf_fini(&text);
        buf_init(&text, 0, MEM_GENERAL);
        put(PARAMS, 5, "early", 5, 0);
        put_begin(0, 1, 0);
        put_begin(5, 1, 0);
        put(STDIN, 9, "", 0, 3);
        put(GET_VALUES, 0, "\2\0ab", 4, 4);
        put_begin(6, 2, 0);
        put(PARAMS, 5, "\1\1ab", 4, 0);
        put(PARAMS, 9, "\1\1ab", 4, 0);
        put(99, 0, "", 0, 0);
        put(PARAMS, 5, "", 0, 0);
        put(END, 6, "", 0, 8);
        put(STDIN, 5, "body", 4, 0);
        put(STDIN, 9, "body", 4, 0);
        buf_init(&kept, 0, MEM_GENERAL);
        struct records r = judge(step, &kept);
        ck_assert(r.verdict == RECORDS_FINE && r.request == 5 && r.n_managed == 3);
        ck_assert(r.managed[0] == BEGIN && r.managed[1] == GET_VALUES && r.managed[2] == 99);
        ck_assert_uint_eq(kept.len, wanted.len);
        ck_assert_mem_eq(kept.data, wanted.data, wanted.len);
        buf_fini(&kept);
        buf_fini(&wanted);
    }
}
END_TEST

START_TEST(questions_about_the_process_are_answered)
{
    static const unsigned char wanted[] = {1, 10, 0, 0, 0, 0, 0, 0, 1, 11, 0, 0, 0, 8, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0};
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    records_write_managed(&out, GET_VALUES);
    records_write_managed(&out, 99);
    ck_assert_uint_eq(out.len, sizeof wanted);
    ck_assert_mem_eq(out.data, wanted, sizeof wanted);
    buf_fini(&out);
    begin();
    for (int i = 0; i < 1000; i++) {
        put(GET_VALUES, 0, "", 0, 0);
    }
    ck_assert_uint_eq(judge(4096, NULL).n_managed, RECORDS_MANAGED);
}
END_TEST

START_TEST(other_roles_are_told)
{
    static const int roles[] = {0, 2, 3, 99, 0x101, 0x100};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        buf_fini(&text);
        buf_init(&text, 0, MEM_GENERAL);
        put_begin(7, roles[i], 0);
        expect(RECORDS_OTHER_ROLE);
        ck_assert_uint_eq(judge(100, NULL).request, 7);
    }
}
END_TEST

START_TEST(an_abort_is_of_its_request_alone)
{
    buf_fini(&text);
    buf_init(&text, 0, MEM_GENERAL);
    put(ABORT, 1, "", 0, 0); /* of none yet */
    put(ABORT, 0, "", 0, 0);
    put_begin(1, 1, 0);
    put(PARAMS, 1, "\1\1ab", 4, 0);
    put(ABORT, 2, "", 0, 3);
    put(PARAMS, 1, "", 0, 0);
    put(STDIN, 1, "\1\2\0\1\0\0\0\0", 8, 0); /* one that is a body */
    expect(RECORDS_FINE);
    put(ABORT, 1, "", 0, 0);
    expect(RECORDS_ABORTED);
    put(PARAMS, 1, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, 0);
    expect(RECORDS_ABORTED);
}
END_TEST

START_TEST(padding_is_cut_out)
{
    struct buf padded, plain;
    for (size_t step = 1; step < 30; step++) {
        buf_init(&padded, 0, MEM_GENERAL);
        buf_init(&plain, 0, MEM_GENERAL);
        for (int with = 0; with < 2; with++) {
            buf_fini(&text);
            buf_init(&text, 0, MEM_GENERAL);
            put_begin(1, 1, with != 0 ? 255 : 0);
            put(PARAMS, 1, "\1\1ab", 4, with != 0 ? 3 : 0);
            put(PARAMS, 1, "", 0, with != 0 ? 8 : 0);
            put(STDIN, 1, "body", 4, with != 0 ? 1 : 0);
            ck_assert(judge(step, with != 0 ? &padded : &plain).verdict == RECORDS_FINE);
        }
        ck_assert_uint_eq(padded.len, plain.len);
        ck_assert_mem_eq(padded.data, plain.data, plain.len);
        buf_fini(&padded);
        buf_fini(&plain);
    }
}
END_TEST

START_TEST(answers_are_records)
{
    static const char said[] = "Status: 431 x\r\n\r\n";
    struct buf out;
    buf_init(&out, 0, MEM_GENERAL);
    records_write_stdout(&out, 0x102, said, sizeof said - 1);
    records_write_end(&out, 0x102, RECORDS_UNKNOWN_ROLE);
    const unsigned char *p = (const unsigned char *)out.data,
                        end[] = {1, END, 1, 2, 0, 8, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0};
    ck_assert_uint_eq(out.len, 8 + sizeof said - 1 + 8 + sizeof end);
    ck_assert(p[0] == 1 && p[1] == STDOUT && p[2] == 1 && p[3] == 2 && p[5] == sizeof said - 1);
    ck_assert_mem_eq(p + out.len - sizeof end, end, sizeof end);
    buf_fini(&out);
}
END_TEST

Suite *records_suite(void)
{
    Suite *s = suite_create("records");
    TCase *c = tcase_create("records");
    tcase_add_test(c, numbers_and_lengths_have_bounds);
    tcase_add_test(c, lengths_that_say_more_than_comes_are_refused_at_once);
    tcase_add_test(c, parts_belong_together_whatever_stands_between);
    tcase_add_test(c, what_is_not_of_the_request_does_not_pass);
    tcase_add_test(c, questions_about_the_process_are_answered);
    tcase_add_test(c, other_roles_are_told);
    tcase_add_test(c, an_abort_is_of_its_request_alone);
    tcase_add_test(c, padding_is_cut_out);
    tcase_add_test(c, answers_are_records);
    suite_add_tcase(s, c);
    return s;
}
