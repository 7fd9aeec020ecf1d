/* Plain text that is allowed without a walk: masks of grammars whose strings end after few and many bytes, against each token
 * tried; and how far states go on. */
#include "engine/grammar/grammar_internal.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *grammar_plain_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;
static struct err_info info;
static uint64_t bits[16];

static void add(const char *text, size_t n) { vocab_add(&file, text, n, TOKEN_USER_DEFINED, 0); }

/* All bytes, and plain text of 1 to 40 bytes by itself, in front of a quote, with characters of 2 to 4 bytes and parts of them. */
static void set_up(void)
{
    static const char letters[] = "nameofathingthatislongerthanalltheothers";
    static const char *const others[] = {"\xc3\xa9",      "\xe6\x97\xa5", "\xf0\x9f\x98\x80",
                                         "a\xc3\xa9\"",   "\xe6\x97",     "abc\xf0\x9f",
                                         "\xa5x",         "\xed\xa0\x80", "\xc0\xaf",
                                         "a\nb",          "\\\"",         "a\\n",
                                         "\x7f",          "names",        "nam",
                                         "n\xc3\xa9name", "name\":",      "thing\",\"",
                                         "x\"y"};
    char quoted[sizeof letters + 1];
    vocab_bpe(&file, "gpt-2");
    for (size_t n = 1; n < sizeof letters; n++) {
        add(letters, n);
        memcpy(quoted, letters, n);
        quoted[n] = '"';
        add(quoted, n + 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        add(others[i], strlen(others[i]));
    }
    file.eos = vocab_add(&file, "</s>", 4, TOKEN_CONTROL, 0);
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    ck_assert_uint_le((size_t)vocab->n_vocab, 64 * ARRAY_LEN(bits));
}

static void tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static void check_mask(struct grammar_matcher *m, const char *what)
{
    enum err err = grammar_matcher_mask(m, bits);
    ck_assert(err == ERR_OK || err == ERR_GRAMMAR_DEAD_END);
    for (int32_t id = 0; id < vocab->n_vocab; id++) {
        bool taken, is_allowed = (bits[id / 64] >> id % 64 & 1) != 0;
        ck_assert_int_eq(grammar_matcher_accept(m, id, &taken), ERR_OK);
        ck_assert_msg(taken == is_allowed, "%s: token %d: allowed %d, taken %d", what, id, is_allowed, taken);
        grammar_matcher_rollback(m, taken);
    }
}

/* A character of a string of JSON. */
static regex_id character(struct regex_set *s)
{
    static const struct regex_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    return regex_code_points(s, plain, ARRAY_LEN(plain));
}

/* Checks the masks of `open` r `close` at each byte of a text. *depth: how far the state after `open` goes on. */
static void check(struct grammar_builder *b, regex_id r, const char *text, uint32_t *depth)
{
    struct grammar *g;
    struct grammar_matcher *m;
    struct regex_set *s = grammar_regexes(b);
    r = regex_concat(s, regex_bytes(s, "\"", 1), regex_concat(s, r, regex_bytes(s, "\"", 1)));
    symbol_id start = grammar_lexeme(b, r);
    ck_assert_int_eq(grammar_finish(&b, start, &g, &info), ERR_OK);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    uint32_t state;
    ck_assert_int_eq(lexer_state_of(&g->lexer, &(struct lexer_part){0, r}, 1, &state), ERR_OK);
    ck_assert_int_eq(lexer_step(&g->lexer, state, '"', &state), ERR_OK);
    ck_assert_int_eq(lexer_plain_depth(&g->lexer, state, depth), ERR_OK);
    bool taken = true;
    check_mask(m, text);
    for (const char *p = text; *p != '\0' && taken; p++) {
        ck_assert_int_eq(grammar_matcher_accept(m, (unsigned char)*p, &taken), ERR_OK);
        if (taken) {
            check_mask(m, text);
        }
    }
    grammar_matcher_free(&m);
    grammar_unref(&g);
}

/* A string of at most n characters goes on for n bytes whatever they are, and no farther; fewer than make a difference are none. */
START_TEST(lengths)
{
    static const uint32_t maxima[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 300, REGEX_UNBOUNDED};
    for (size_t i = 0; i < ARRAY_LEN(maxima); i++) {
        struct grammar_builder *b;
        uint32_t depth;
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        struct regex_set *s = grammar_regexes(b);
        check(b, regex_repeat(s, character(s), MIN_OF(2u, maxima[i]), maxima[i]), "\"na\xc3\xa9nameofathing", &depth);
        uint32_t wanted = maxima[i] >= PLAIN_MIN_DEPTH ? MIN_OF(maxima[i], (uint32_t)PLAIN_MAX_DEPTH) : 0;
        ck_assert_uint_eq(depth, wanted);
    }
}
END_TEST

/* All strings but some go on for ever; those that begin with some do not. */
START_TEST(names)
{
    for (int is_not = 0; is_not < 2; is_not++) {
        struct grammar_builder *b;
        uint32_t depth;
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        struct regex_set *s = grammar_regexes(b);
        regex_id any = regex_repeat(s, character(s), 0, REGEX_UNBOUNDED);
        regex_id some = regex_or(s, regex_bytes(s, "name", 4), regex_bytes(s, "thing", 5));
        check(b, is_not ? regex_and(s, any, regex_not(s, some)) : regex_concat(s, some, any), "\"nameof", &depth);
        ck_assert_uint_eq(depth, is_not ? PLAIN_MAX_DEPTH : 0);
    }
}
END_TEST

/* Of two expressions neither goes on with all plain text, but both together do. */
START_TEST(jointly)
{
    struct grammar_builder *b;
    struct grammar *g;
    struct grammar_matcher *m;
    uint32_t state, depth;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    struct regex_set *s = grammar_regexes(b);
    regex_id any = regex_concat(s, regex_repeat(s, character(s), 0, REGEX_UNBOUNDED), regex_bytes(s, "\"", 1));
    regex_id with_n = regex_concat(s, regex_bytes(s, "n", 1), any), others = regex_and(s, any, regex_not(s, with_n));
    symbol_id both[] = {grammar_lexeme(b, with_n), grammar_lexeme(b, others)};
    ck_assert_int_eq(grammar_finish(&b, grammar_choice(b, both, 2), &g, &info), ERR_OK);
    struct lexer_part parts[] = {{0, with_n}, {1, others}};
    for (uint32_t n = 1; n <= 2; n++) {
        ck_assert_int_eq(lexer_state_of(&g->lexer, parts, n, &state), ERR_OK);
        ck_assert_int_eq(lexer_plain_depth(&g->lexer, state, &depth), ERR_OK);
        ck_assert_uint_eq(depth, n == 2 ? PLAIN_MAX_DEPTH : 0);
    }
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    check_mask(m, "jointly");
    grammar_matcher_free(&m);
    grammar_unref(&g);
}
END_TEST

/* Where an expression may end within plain text, what is after its end counts. */
START_TEST(ends_within)
{
    struct grammar_builder *b;
    struct grammar *g;
    struct grammar_matcher *m;
    bool taken;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    struct regex_set *s = grammar_regexes(b);
    symbol_id any = grammar_lexeme(b, regex_repeat(s, character(s), 0, REGEX_UNBOUNDED));
    symbol_id parts[] = {any, grammar_lexeme(b, regex_bytes(s, "\"", 1)), any};
    ck_assert_int_eq(grammar_finish(&b, grammar_sequence(b, parts, 3), &g, &info), ERR_OK);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    check_mask(m, "none");
    ck_assert_int_eq(grammar_matcher_accept(m, 'n', &taken), ERR_OK);
    check_mask(m, "n");
    ck_assert_int_eq(grammar_matcher_accept(m, '"', &taken), ERR_OK);
    ck_assert(taken);
    check_mask(m, "n\"");
    grammar_matcher_free(&m);
    grammar_unref(&g);
}
END_TEST

/* Bytes that are plain text, one by one. */
START_TEST(steps)
{
    static const struct {
        const char *text;
        bool is_plain;
    } rows[] = {{"", true},
                {"a b", true},
                {"\x7f", true},
                {"\x1f", false},
                {"\"", false},
                {"\\", false},
                {"\xc3\xa9", true},
                {"\xc3", false},
                {"\xc1\xbf", false},
                {"\x80", false},
                {"\xe0\x9f\x80", false},
                {"\xe0\xa0\x80", true},
                {"\xed\x9f\xbf", true},
                {"\xed\xa0\x80", false},
                {"\xf0\x8f\x80\x80", false},
                {"\xf0\x90\x80\x80", true},
                {"\xf4\x8f\xbf\xbf", true},
                {"\xf4\x90\x80\x80", false},
                {"\xf5\x80\x80\x80", false}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        unsigned state = PLAIN_WHOLE;
        for (const char *p = rows[i].text; *p != '\0' && state != PLAIN_NOT; p++) {
            state = plain_step(state, (unsigned char)*p);
        }
        ck_assert_msg((state == PLAIN_WHOLE) == rows[i].is_plain, "row %zu", i);
    }
}
END_TEST

Suite *grammar_plain_suite(void)
{
    Suite *s = suite_create("grammar_plain");
    TCase *c = tcase_create("grammar_plain");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, lengths);
    tcase_add_test(c, names);
    tcase_add_test(c, jointly);
    tcase_add_test(c, ends_within);
    tcase_add_test(c, steps);
    suite_add_tcase(s, c);
    return s;
}
