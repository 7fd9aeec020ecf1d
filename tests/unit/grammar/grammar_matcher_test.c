/* Columns that are wider than the first size of every table of a matcher: at the start of a text and after its first byte. */
#include "engine/grammar/grammar_matcher.h"

#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *grammar_matcher_suite(void);

enum { MAX_WIDTH = 25000, N_BYTES = 256, COLUMN_LIMIT = 20000 /* MAX_COLUMN_ITEMS */ };

static struct vocab file;
static struct grammar_vocab *vocab;
static struct grammar_builder *b;
static struct grammar *g;
static struct grammar_matcher *m;
static struct err_info info;
static uint64_t bits[8];

static void set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    ck_assert_int_le(vocab->n_vocab, (int32_t)(8 * sizeof bits));
}

static void drop(void)
{
    grammar_matcher_free(&m);
    grammar_unref(&g);
    grammar_builder_free(&b);
}

static void tear_down(void)
{
    drop();
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

/* The text of alternative i: two letters that name the kind and its group, and a number in letters. */
static void write_text(char out[8], size_t i)
{
    for (size_t k = 0; k < 6; k++, i /= 16) {
        out[k] = (char)('a' + i % 16);
    }
    out[6] = ';';
    out[7] = '\0';
}

/* n alternatives, each of which is a lexeme; or a rule of two lexemes, with rules. */
static symbol_id wide(size_t n, bool rules)
{
    static symbol_id ids[MAX_WIDTH];
    struct regex_set *set = grammar_regexes(b);
    for (size_t i = 0; i < n; i++) {
        char text[8];
        write_text(text, i);
        symbol_id first = grammar_lexeme(b, regex_bytes(set, text, 6)),
                  last = grammar_lexeme(b, regex_bytes(set, ";", 1));
        ids[i] =
            rules ? grammar_sequence(b, (symbol_id[]){first, last}, 2) : grammar_lexeme(b, regex_bytes(set, text, 7));
    }
    return grammar_choice(b, ids, n);
}

/* The grammar of `k` and one of n alternatives, or without the k. Returns what a matcher of it ends with. */
static enum err make(size_t n, bool rules, bool at_start)
{
    drop();
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    symbol_id all = wide(n, rules), k = grammar_lexeme(b, regex_bytes(grammar_regexes(b), "k", 1));
    symbol_id start = at_start ? all : grammar_sequence(b, (symbol_id[]){k, all}, 2);
    ck_assert_msg(grammar_finish(&b, start, &g, &info) == ERR_OK, "%zu: %s", n, info.text);
    return grammar_matcher_new(g, vocab, &m);
}

static bool takes(const char *text)
{
    int n = 0;
    bool taken = true, is_whole;
    for (; text[n] != '\0' && taken; n += taken) {
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)text[n], &taken), ERR_OK);
    }
    is_whole = taken && grammar_matcher_may_end(m);
    grammar_matcher_rollback(m, n);
    return is_whole;
}

/* Every letter that an alternative begins with is in the mask, and nothing else. */
static void check_mask(size_t n)
{
    ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_OK);
    for (size_t byte = 0; byte < N_BYTES; byte++) {
        bool may = byte >= 'a' && byte < 'a' + MIN_OF(n, 16u);
        ck_assert_msg((bits[byte / 64] >> byte % 64 & 1) == may, "%zu alternatives: byte %zu", n, byte);
    }
}

static void check(size_t n, bool rules, bool at_start)
{
    bool taken = true;
    ck_assert_msg(make(n, rules, at_start) == ERR_OK, "%zu alternatives", n);
    if (!at_start) {
        ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_OK);
        ck_assert_int_eq(grammar_matcher_accept(m, 'k', &taken), ERR_OK);
    }
    ck_assert(taken);
    check_mask(n);
    const size_t some[] = {0, n / 2, n - 1, n};
    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        char text[8];
        write_text(text, some[i]);
        ck_assert_msg(takes(text) == (some[i] < n), "%zu of %zu alternatives", some[i], n);
    }
}

START_TEST(columns_of_every_width)
{
    for (size_t power = 16; power <= 8192; power *= 2) {
        for (size_t n = power - 3; n <= power + 2; n++) {
            bool rules = n % 2 != 0;
            check(n, rules, true);
            check(n, rules, false);
        }
    }
}
END_TEST

/* A column that begins wide is looked through in a table that was made for a narrower one. */
START_TEST(a_table_grows_by_any_factor)
{
    static const size_t widths[] = {20, 300, 30, 9000, 40, 5000};
    symbol_id parts[ARRAY_LEN(widths)];
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        parts[i] = wide(widths[i], false);
    }
    ck_assert_int_eq(grammar_finish(&b, grammar_sequence(b, parts, ARRAY_LEN(widths)), &g, &info), ERR_OK);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    char text[8 * ARRAY_LEN(widths)] = "", next[8];
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        write_text(next, widths[i] - 1);
        memcpy(text + 7 * i, next, sizeof next);
    }
    ck_assert(takes(text));
    text[7] = 'z';
    ck_assert(!takes(text));
}
END_TEST

/* More lexer states, sets of members, and what plain text reaches, than their tables have room for at first. */
START_TEST(tables_grow_while_a_text_is_taken)
{
    enum { N_BYTES_LONG = 3000, N_MEMBERS = 12, N_ORDERS = 3000 };
    static char text[N_BYTES_LONG + 1];
    for (size_t i = 0; i < N_BYTES_LONG; i++) {
        text[i] = (char)('a' + i * i / 7 % 26);
    }
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    struct regex_set *set = grammar_regexes(b);
    struct grammar_member members[N_MEMBERS];
    for (size_t i = 0; i < N_MEMBERS; i++) {
        members[i] =
            (struct grammar_member){grammar_lexeme(b, regex_byte(set, (unsigned char)('A' + i))), .must_be = false};
    }
    symbol_id whole = grammar_set(b, members, N_MEMBERS, grammar_lexeme(b, regex_byte(set, ',')), 0, REGEX_UNBOUNDED);
    whole = grammar_choice(b, (symbol_id[]){whole, grammar_lexeme(b, regex_bytes(set, text, N_BYTES_LONG))}, 2);
    ck_assert_int_eq(grammar_finish(&b, whole, &g, &info), ERR_OK);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    uint64_t random = 7;
    for (int k = 0; k < N_ORDERS; k++) { /* some members in some order; then one of them again */
        char order[2 * N_MEMBERS + 2];
        int n = 1 + (int)(vocab_random(&random) % N_MEMBERS);
        for (int i = 0; i < N_MEMBERS; i++) {
            int at = (int)(vocab_random(&random) % (unsigned)(i + 1));
            order[2 * i] = i > at ? order[2 * at] : (char)('A' + i);
            order[2 * at] = (char)('A' + i);
            order[2 * i + 1] = ',';
        }
        order[2 * n - 1] = '\0';
        ck_assert_msg(takes(order), "%s", order);
        order[2 * n - 1] = ',';
        order[2 * n] = order[0];
        order[2 * n + 1] = '\0';
        ck_assert_msg(!takes(order), "%s", order);
    }
    ck_assert_uint_gt(m->sets.n_sets, 1000);
    bool taken = true;
    for (size_t i = 0; i < N_BYTES_LONG && taken; i++) {
        ck_assert(i % 64 != 0 || grammar_matcher_mask(m, bits) == ERR_OK);
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)text[i], &taken), ERR_OK);
    }
    ck_assert(taken && grammar_matcher_may_end(m));
    ck_assert_uint_gt(g->lexer.n_states, N_BYTES_LONG);
}
END_TEST

/* A column has a limit, which is told; and without memory for a table nothing hangs. */
START_TEST(too_wide_is_told)
{
    ck_assert_int_eq(make(COLUMN_LIMIT - 1, false, true), ERR_OK);
    ck_assert_int_eq(make(COLUMN_LIMIT + 1, false, true), ERR_GRAMMAR_LIMIT);
    ck_assert_int_eq(make(COLUMN_LIMIT / 2 + 1, true, true), ERR_GRAMMAR_LIMIT);
    bool taken;
    ck_assert_int_eq(make(COLUMN_LIMIT + 1, false, false), ERR_OK);
    ck_assert_int_eq(grammar_matcher_accept(m, 'k', &taken), ERR_GRAMMAR_LIMIT);
    for (long at = 0, fired = 1; fired; at++) {
        ck_assert_int_eq(make(1000, true, false), ERR_OK);
        mem_fail_at(at);
        enum err err = grammar_matcher_accept(m, 'k', &taken);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || (err == ERR_NOMEM && fired));
    }
}
END_TEST

Suite *grammar_matcher_suite(void)
{
    Suite *s = suite_create("grammar_matcher");
    TCase *t = tcase_create("grammar_matcher");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, columns_of_every_width);
    tcase_add_test(t, a_table_grows_by_any_factor);
    tcase_add_test(t, tables_grow_while_a_text_is_taken);
    tcase_add_test(t, too_wide_is_told);
    suite_add_tcase(s, t);
    return s;
}
