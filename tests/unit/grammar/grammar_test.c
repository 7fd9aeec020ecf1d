/* Grammars against languages that are computed as sets of words; masks against each token tried; JSON; special tokens, taking
 * back, ends, limits. */
#include "engine/grammar/grammar.h"

#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/grammar/grammar_build.h"
#include "engine/grammar/grammar_internal.h"
#include "tests/unit/regex/words.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

Suite *grammar_suite(void);

enum { MAX_VOCAB = 512, N_BYTES = 256 };

static struct vocab file;
static struct grammar_vocab *vocab;
static struct grammar_builder *b;
static struct regex_set *set;
static struct grammar *g;
static struct grammar_matcher *m;
static struct err_info info;
static int32_t mark_id, end_id;
static uint64_t bits[MAX_VOCAB / 64];

/* Bytes, pieces of JSON and of words, a special token and an end. */
static void set_up(void)
{
    static const char *const pieces[] = {"ab",    "aab",  "ba",     "bbb",    "\":",   "\",",   "{\"",  "\"}",
                                         "\"]",   "]]",   "}}",     "[[",     "true",  "null,", "fa",   "lse",
                                         "123",   "4,5",  "\", \"", "a\":",   ": {",   "xyz\"", "\\\"", "\\n",
                                         "\"a\"", "\":[", "x\"}",   "hello ", "true]", "1]}",   ",\"",  "a\":1}"};
    vocab_bpe(&file, "gpt-2");
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        bool has_space = strchr(pieces[i], ' ') != NULL; /* which has another letter in that alphabet */
        vocab_add(&file, pieces[i], strlen(pieces[i]), has_space ? TOKEN_USER_DEFINED : TOKEN_NORMAL, 0);
    }
    mark_id = vocab_add(&file, "<call>", 6, TOKEN_CONTROL, 0);
    end_id = vocab_add(&file, "</s>", 4, TOKEN_CONTROL, 0);
    file.eos = end_id;
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    ck_assert_int_le(vocab->n_vocab, MAX_VOCAB);
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    set = grammar_regexes(b);
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

static symbol_id text(const char *s) { return grammar_lexeme(b, regex_bytes(set, s, strlen(s))); }

static void finish(symbol_id start)
{
    ck_assert_msg(grammar_finish(&b, start, &g, &info) == ERR_OK, "%s", info.text);
    ck_assert_ptr_null(b);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
}

static bool accepts(int32_t id)
{
    bool taken;
    ck_assert_int_eq(grammar_matcher_accept(m, id, &taken), ERR_OK);
    return taken;
}

/* Takes the bytes one by one; how many were taken. */
static int take(const char *s)
{
    int n = 0;
    while (s[n] != '\0' && accepts((unsigned char)s[n])) {
        n++;
    }
    return n;
}

/* Is it a text of the grammar? The matcher is where it was. */
static bool says(const char *s)
{
    int n = take(s);
    bool is = s[n] == '\0' && grammar_matcher_may_end(m);
    grammar_matcher_rollback(m, n);
    return is;
}

/* The mask allows what can be taken, and nothing else. *n: how many. */
static void check_mask(int *n)
{
    enum err err = grammar_matcher_mask(m, bits);
    *n = 0;
    ck_assert(err == ERR_OK || err == ERR_GRAMMAR_DEAD_END);
    for (int32_t id = 0; id < vocab->n_vocab; id++) {
        bool taken = accepts(id), is_allowed = (bits[id / 64] >> id % 64 & 1) != 0;
        ck_assert_msg(taken == is_allowed, "token %d: allowed %d, taken %d", id, is_allowed, taken);
        grammar_matcher_rollback(m, taken);
        *n += taken;
    }
    ck_assert(err == (*n > 0 ? ERR_OK : ERR_GRAMMAR_DEAD_END));
}

/* Does what the token says begin as what the n tokens say, as far as both go? */
static bool goes_with(int32_t id, const int32_t *ids, int32_t n)
{
    struct buf a, all;
    buf_init(&a, 0, MEM_GENERAL);
    buf_init(&all, 0, MEM_GENERAL);
    tokenizer_piece(file.t, id, true, &a);
    for (int32_t i = 0; i < n; i++) {
        tokenizer_piece(file.t, ids[i], true, &all);
    }
    bool does = memcmp(a.data, all.data, MIN_OF(a.len, all.len)) == 0;
    buf_fini(&a);
    buf_fini(&all);
    return does;
}

enum { MAX_FORCED = 16 };

/* Where tokens are forced nothing may come that says something else; the matcher is where it was. Returns how many. */
static int check_forced(void)
{
    int32_t ids[MAX_FORCED], n;
    uint64_t before[MAX_VOCAB / 64] = {0};
    ck_assert_int_eq(grammar_matcher_forced(m, ids, MAX_FORCED, &n), ERR_OK);
    ck_assert_int_le(n, MAX_FORCED);
    if (n == 0) {
        return 0;
    }
    ck_assert_int_eq(grammar_matcher_mask(m, before), ERR_OK);
    for (int32_t i = 0; i < n; i++) {
        ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_OK);
        for (int32_t id = 0; id < vocab->n_vocab; id++) {
            bool is_allowed = (bits[id / 64] >> id % 64 & 1) != 0;
            ck_assert_msg(!is_allowed || goes_with(id, ids + i, n - i), "%d of %d: %d, not %d", i, n, id, ids[i]);
        }
        ck_assert(accepts(ids[i]));
    }
    grammar_matcher_rollback(m, n);
    ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_OK);
    ck_assert_mem_eq(bits, before, sizeof bits);
    return n;
}

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* --- random grammars ----------------------------------------------------------------------------------------------- */

enum { N_RULES = 4, MAX_ALTERNATIVES = 3, MAX_PARTS = 3, N_REPEATS = 2, N_SYMBOLS = 3 + N_RULES + N_REPEATS };

/* Symbols: a, b, (a|bb)?, rules, repeats of earlier ones. */
struct made {
    int n[N_RULES], n_parts[N_RULES][MAX_ALTERNATIVES], parts[N_RULES][MAX_ALTERNATIVES][MAX_PARTS];
    int of[N_REPEATS];
    uint32_t min[N_REPEATS], max[N_REPEATS];
    uint64_t words[N_SYMBOLS];
};

static void make_rules(struct made *x, uint32_t *state)
{
    for (int r = 0; r < N_RULES; r++) {
        x->n[r] = 1 + (int)random_below(state, MAX_ALTERNATIVES);
        for (int i = 0; i < x->n[r]; i++) {
            x->n_parts[r][i] = (int)random_below(state, MAX_PARTS + 1);
            for (int k = 0; k < x->n_parts[r][i]; k++) {
                x->parts[r][i][k] = (int)random_below(state, N_SYMBOLS);
            }
        }
    }
    for (int i = 0; i < N_REPEATS; i++) {
        x->of[i] = (int)random_below(state, 3 + N_RULES);
        x->min[i] = random_below(state, 3);
        x->max[i] = random_below(state, 2) == 0 ? REGEX_UNBOUNDED : x->min[i] + random_below(state, 3);
    }
}

/* The least languages that the rules allow. */
static void find_words(struct made *x)
{
    memset(x->words, 0, sizeof x->words);
    x->words[0] = words_a;
    x->words[1] = words_b;
    x->words[2] = words_empty | words_a | words_concat(words_b, words_b);
    for (bool changes = true; changes;) {
        changes = false;
        for (int r = 0; r < N_RULES + N_REPEATS; r++) {
            uint64_t words = 0;
            for (int i = 0; r < N_RULES && i < x->n[r]; i++) {
                uint64_t one = words_empty;
                for (int k = 0; k < x->n_parts[r][i]; k++) {
                    one = words_concat(one, x->words[x->parts[r][i][k]]);
                }
                words |= one;
            }
            if (r >= N_RULES) {
                words = words_repeat(x->words[x->of[r - N_RULES]], x->min[r - N_RULES], x->max[r - N_RULES]);
            }
            changes |= words != x->words[3 + r];
            x->words[3 + r] = words;
        }
    }
}

static symbol_id build(const struct made *x)
{
    symbol_id symbols[N_SYMBOLS] = {text("a"), text("b")};
    symbols[2] =
        grammar_lexeme(b, regex_repeat(set, regex_or(set, regex_bytes(set, "a", 1), regex_bytes(set, "bb", 2)), 0, 1));
    for (int r = 0; r < N_RULES; r++) {
        symbols[3 + r] = grammar_rule(b);
    }
    for (int i = 0; i < N_REPEATS; i++) {
        symbols[3 + N_RULES + i] = grammar_repeat(b, symbols[x->of[i]], x->min[i], x->max[i]);
    }
    for (int r = 0; r < N_RULES; r++) {
        for (int i = 0; i < x->n[r]; i++) {
            symbol_id parts[MAX_PARTS];
            for (int k = 0; k < x->n_parts[r][i]; k++) {
                parts[k] = symbols[x->parts[r][i][k]];
            }
            grammar_alternative(b, symbols[3 + r], parts, (size_t)x->n_parts[r][i]);
        }
    }
    return symbols[3];
}

static void check_words(const struct made *x, int seed)
{
    char word[WORDS_LONGEST + 1];
    for (int w = 0; w < N_WORDS; w++) {
        int n = word_at(w, word);
        bool wanted = (x->words[3] >> w & 1) != 0;
        ck_assert_msg(says(word) == wanted, "grammar %d and '%s': wanted %d", seed, word, wanted);
        if (wanted) { /* then its beginnings can be taken */
            ck_assert_int_eq(take(word), n);
            grammar_matcher_rollback(m, n);
        }
    }
}

START_TEST(random_grammars)
{
    int n_whole = 0, n_forced = 0;
    for (int seed = 0; seed < 3000; seed++) {
        struct made x;
        uint32_t state = (uint32_t)seed * 7919u + 1;
        make_rules(&x, &state);
        find_words(&x);
        symbol_id start = build(&x);
        enum err err = grammar_finish(&b, start, &g, &info);
        if (err == ERR_OK) {
            int n;
            ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
            check_words(&x, seed);
            check_mask(&n);
            ck_assert_msg(n > 0, "grammar %d begins with nothing", seed);
            n_forced += check_forced();
            n_whole++;
        } else {
            ck_assert_int_eq(err, ERR_INVALID_GRAMMAR);
            ck_assert_uint_eq(x.words[3], 0);
        }
        drop();
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        set = grammar_regexes(b);
    }
    ck_assert_int_gt(n_whole, 1500);
    ck_assert_int_gt(n_forced, 100);
}
END_TEST

/* --- JSON ---------------------------------------------------------------------------------------------------------- */

static symbol_id json_value(void)
{
    const struct regex_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    regex_id character = regex_or(set, regex_code_points(set, plain, ARRAY_LEN(plain)),
                                  regex_concat(set, regex_bytes(set, "\\", 1),
                                               regex_or(set, regex_bytes(set, "n", 1), regex_bytes(set, "\"", 1))));
    regex_id quote = regex_bytes(set, "\"", 1);
    symbol_id string = grammar_lexeme(
        b, regex_concat(set, quote, regex_concat(set, regex_repeat(set, character, 0, REGEX_UNBOUNDED), quote)));
    symbol_id number = grammar_lexeme(b, regex_concat(set, regex_byte_range(set, '1', '9'),
                                                      regex_repeat(set, regex_byte_range(set, '0', '9'), 0, 3)));
    symbol_id value = grammar_rule(b),
              colon = grammar_lexeme(b, regex_or(set, regex_bytes(set, ":", 1), regex_bytes(set, ": ", 2)));
    symbol_id comma = grammar_lexeme(b, regex_or(set, regex_bytes(set, ",", 1), regex_bytes(set, ", ", 2)));
    symbol_id member = grammar_sequence(b, (symbol_id[]){string, colon, value}, 3);
    symbol_id members =
        grammar_sequence(b,
                         (symbol_id[]){member, grammar_repeat(b, grammar_sequence(b, (symbol_id[]){comma, member}, 2),
                                                              0, REGEX_UNBOUNDED)},
                         2);
    symbol_id items =
        grammar_sequence(b,
                         (symbol_id[]){value, grammar_repeat(b, grammar_sequence(b, (symbol_id[]){comma, value}, 2), 0,
                                                             REGEX_UNBOUNDED)},
                         2);
    const symbol_id kinds[] = {
        string,
        number,
        text("true"),
        text("false"),
        text("null"),
        grammar_sequence(b, (symbol_id[]){text("{"), grammar_repeat(b, members, 0, 1), text("}")}, 3),
        grammar_sequence(b, (symbol_id[]){text("["), grammar_repeat(b, items, 0, 1), text("]")}, 3)};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        grammar_alternative(b, value, &kinds[i], 1);
    }
    return value;
}

/* --- sets ---------------------------------------------------------------------------------------------------------- */

enum { MAX_MEMBERS = 4 };

/* Members are words, with a word between two. */
struct made_set {
    int n, word[MAX_MEMBERS], between;
    bool must_be[MAX_MEMBERS], may_repeat[MAX_MEMBERS];
    uint32_t min, max;
    uint64_t words;
};

/* Adds all that can follow `so_far`, of count members, those of `seen` among them. */
static void find_sets(struct made_set *x, int so_far, uint32_t count, unsigned seen)
{
    bool has_all = true;
    for (int i = 0; i < x->n; i++) {
        has_all = has_all && (!x->must_be[i] || (seen >> i & 1) != 0);
    }
    if (has_all && count >= x->min && count <= x->max) {
        x->words |= (uint64_t)1 << so_far;
    }
    int front = count > 0 ? word_join(so_far, x->between) : so_far;
    for (int i = 0; i < x->n && count < x->max && count < WORDS_LONGEST && front >= 0; i++) {
        int next = word_join(front, x->word[i]);
        if (next >= 0 && (x->may_repeat[i] || (seen >> i & 1) == 0)) {
            find_sets(x, next, count + 1, seen | 1u << i);
        }
    }
}

static symbol_id word_symbol(int i)
{
    char word[WORDS_LONGEST + 1];
    word_at(i, word);
    return text(word);
}

START_TEST(random_sets)
{
    int n_whole = 0;
    for (int seed = 0; seed < 2000; seed++) {
        uint32_t state = (uint32_t)seed * 7919u + 3;
        struct made_set x = {.n = (int)random_below(&state, MAX_MEMBERS + 1),
                             .between = 1 + (int)random_below(&state, 2)};
        struct grammar_member members[MAX_MEMBERS];
        for (int i = 0; i < x.n; i++) {
            x.word[i] = 1 + (int)random_below(&state, 6); /* of one letter or two */
            x.must_be[i] = random_below(&state, 3) == 0;
            x.may_repeat[i] = random_below(&state, 4) == 0;
            members[i] = (struct grammar_member){word_symbol(x.word[i]), x.must_be[i], x.may_repeat[i]};
        }
        x.min = random_below(&state, 3);
        x.max = random_below(&state, 2) == 0 ? REGEX_UNBOUNDED : random_below(&state, 4);
        find_sets(&x, 0, 0, 0);
        symbol_id start = grammar_set(b, members, (size_t)x.n, word_symbol(x.between), x.min, x.max);
        enum err err = grammar_finish(&b, start, &g, &info);
        char word[WORDS_LONGEST + 1];
        if (err == ERR_OK) {
            int n;
            ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
            for (int w = 0; w < N_WORDS; w++) {
                word_at(w, word);
                bool wanted = (x.words >> w & 1) != 0;
                ck_assert_msg(says(word) == wanted, "set %d and '%s': wanted %d", seed, word, wanted);
            }
            check_mask(&n);
            ck_assert_msg(n > 0, "set %d begins with nothing", seed);
            n_whole++;
        } else {
            ck_assert_int_eq(err, ERR_INVALID_GRAMMAR);
            ck_assert_uint_eq(x.words, 0);
        }
        drop();
        ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
        set = grammar_regexes(b);
    }
    ck_assert_int_gt(n_whole, 1000);
}
END_TEST

/* Walks at random through what the masks allow: it is JSON, whichever tokens it was made of. */
START_TEST(json_by_masks)
{
    uint32_t state = 5;
    int n_ended = 0;
    finish(json_value());
    for (int round = 0; round < 60; round++) {
        struct buf said;
        buf_init(&said, 0, MEM_GENERAL);
        grammar_matcher_free(&m);
        ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
        for (int step = 0; step < 40; step++) {
            int n;
            check_mask(&n);
            check_forced();
            if (grammar_matcher_may_end(m) && (n == 1 || random_below(&state, 3) == 0)) {
                json_t *value = json_loadb(said.data, said.len, JSON_DECODE_ANY, NULL);
                ck_assert_msg(value != NULL, "%.*s", (int)said.len, said.data);
                json_decref(value);
                n_ended++;
                break;
            }
            int32_t id = 0;
            for (uint32_t k = random_below(&state, (uint32_t)n) + 1; k > 0; id++) {
                k -= (uint32_t)(bits[id / 64] >> id % 64 & 1);
            }
            if (--id == end_id) {
                continue;
            }
            ck_assert(accepts(id));
            tokenizer_piece(file.t, id, true, &said);
        }
        buf_fini(&said);
    }
    ck_assert_int_gt(n_ended, 10);
}
END_TEST

START_TEST(json_texts)
{
    finish(json_value());
    ck_assert(says("{\"a\":1, \"b\": [true,null,\"x\\\"y\"]}"));
    ck_assert(says("[[[[]]]]") && says("\"\"") && says("1234"));
    ck_assert(!says("{\"a\":1,}") && !says("[1 2]") && !says("12345") && !says("[") && !says("") && !says("[]]"));
    ck_assert(!says("\"\xff\""));
}
END_TEST

/* --- tokens and ends ------------------------------------------------------------------------------------------------- */

START_TEST(special_tokens)
{
    symbol_id call =
        grammar_sequence(b, (symbol_id[]){grammar_token(b, mark_id), text("ab"), grammar_token(b, mark_id)}, 3);
    finish(grammar_repeat(b, call, 1, 2));
    int n;
    check_mask(&n);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(take("<"), 0); /* its text is not the token */
    ck_assert(accepts(mark_id) && !accepts(mark_id));
    check_mask(&n);
    ck_assert_int_eq(n, 2); /* "a" and "ab" */
    ck_assert(accepts('a') && !accepts(mark_id) && accepts('b') && !grammar_matcher_may_end(m));
    ck_assert(accepts(mark_id) && grammar_matcher_may_end(m) && !grammar_matcher_must_end(m));
    check_mask(&n);
    ck_assert_int_eq(n, 2); /* once more, or the end */
    ck_assert(accepts(mark_id) && accepts('a') && accepts('b') && accepts(mark_id));
    ck_assert(grammar_matcher_may_end(m) && grammar_matcher_must_end(m));
    check_mask(&n);
    ck_assert(n == 1 && accepts(end_id));
    ck_assert(!accepts(-1) && !accepts(vocab->n_vocab));
}
END_TEST

static void expect_forced(const int32_t *expected, int32_t n_expected)
{
    int32_t ids[MAX_FORCED], n;
    ck_assert_int_eq(grammar_matcher_forced(m, ids, MAX_FORCED, &n), ERR_OK);
    ck_assert_int_eq(n, n_expected);
    ck_assert_mem_eq(ids, expected, (size_t)n * sizeof *ids);
    ck_assert_int_eq(check_forced(), n);
    for (int32_t i = 0; i < n; i++) {
        ck_assert(accepts(ids[i]));
    }
}

/* The tokenizer's tokens of what must come (it has no merges), special ones, and the last one where nothing follows; not one
 * that could go on. */
START_TEST(forced_tokens)
{
    const symbol_id whole[] = {text("aab"), grammar_token(b, mark_id), text("true,"), text("x")};
    const int32_t all[] = {'a', 'a', 'b', mark_id, 't', 'r', 'u', 'e', ',', 'x'};
    finish(grammar_sequence(b, whole, ARRAY_LEN(whole)));
    expect_forced(all, ARRAY_LEN(all));
    expect_forced(all, 0); /* but the end */
    drop();
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    set = grammar_regexes(b);
    const symbol_id choice[] = {text("\"1"), text("x")};
    const symbol_id open[] = {text("aab"), grammar_token(b, mark_id), text("true,"), grammar_choice(b, choice, 2)};
    finish(grammar_sequence(b, open, ARRAY_LEN(open)));
    expect_forced(all, 8); /* `,"` is a token, too */
    expect_forced(all, 0);
    ck_assert(accepts(',') && accepts('"'));
    expect_forced((const int32_t[]){'1'}, 1);
}
END_TEST

START_TEST(taking_back)
{
    finish(json_value());
    int n, before;
    ck_assert_int_eq(take("{\"a\":["), 6);
    check_mask(&before);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(take("12,{\"b\":\"c"), 10);
        ck_assert(!accepts('\n'));
        grammar_matcher_rollback(m, 10);
        check_mask(&n);
        ck_assert_int_eq(n, before);
    }
    ck_assert_int_eq(take("1]}"), 3);
    ck_assert(grammar_matcher_must_end(m) && accepts(end_id));
    grammar_matcher_rollback(m, 2);
    ck_assert(!grammar_matcher_may_end(m) && accepts('}') && grammar_matcher_may_end(m));
}
END_TEST

/* Long repeats and deep rules keep what was said; what is said once more costs no more. */
START_TEST(long_texts)
{
    symbol_id value = json_value();
    finish(value);
    ck_assert_int_eq(take("["), 1);
    for (int i = 0; i < 3000; i++) {
        ck_assert_int_eq(take("[1,{\"a\":\"xyz\"}],"), 16);
    }
    ck_assert_int_eq(take("2]"), 2);
    ck_assert(grammar_matcher_must_end(m));
    grammar_matcher_free(&m);
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (int i = 0; i < 2000; i++) {
        ck_assert_int_eq(take("[["), 2);
    }
    for (int i = 0; i < 2000; i++) {
        ck_assert_int_eq(take("]]"), 2);
    }
    ck_assert(grammar_matcher_must_end(m));
}
END_TEST

START_TEST(no_token_can_follow)
{
    finish(grammar_lexeme(b, regex_bytes(set, "ab\xff", 3)));
    struct grammar_vocab *other;
    struct vocab few = {.model = NULL};
    grammar_matcher_free(&m);
    vocab_plain(&few, "t5");
    int32_t ab = vocab_add(&few, "ab", 2, TOKEN_NORMAL, 0);
    ck_assert_msg(vocab_load(&few, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(few.t, &other), ERR_OK);
    ck_assert_int_eq(grammar_matcher_new(g, other, &m), ERR_OK);
    ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_OK);
    ck_assert(accepts(ab));
    ck_assert_int_eq(grammar_matcher_mask(m, bits), ERR_GRAMMAR_DEAD_END);
    grammar_matcher_free(&m);
    grammar_vocab_free(&other);
    vocab_fini(&few);
}
END_TEST

/* --- limits -------------------------------------------------------------------------------------------------------- */

START_TEST(what_is_no_grammar)
{
    symbol_id rule = grammar_rule(b);
    grammar_alternative(b, rule, (symbol_id[]){text("a"), rule}, 2);
    ck_assert_int_eq(grammar_finish(&b, rule, &g, &info), ERR_INVALID_GRAMMAR);
    ck_assert(g == NULL && b == NULL && strcmp(info.text, "the grammar matches no text at all") == 0);

    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    set = grammar_regexes(b);
    symbol_id both = grammar_lexeme(b, regex_and(set, regex_bytes(set, "a", 1), regex_bytes(set, "b", 1)));
    ck_assert_int_eq(grammar_finish(&b, both, &g, &info), ERR_INVALID_GRAMMAR);

    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    for (int i = 0; i <= GRAMMAR_MAX_RULES; i++) {
        rule = grammar_rule(b);
    }
    ck_assert_int_eq(grammar_finish(&b, rule, &g, &info), ERR_GRAMMAR_LIMIT);
}
END_TEST

START_TEST(memory_runs_out)
{
    for (long n = 0;; n += 1 + n / 16) {
        drop();
        mem_fail_at(n);
        enum err err = grammar_builder_new(&b);
        if (err == ERR_OK) {
            set = grammar_regexes(b);
            err = grammar_finish(&b, json_value(), &g, &info);
        }
        err = err == ERR_OK ? grammar_matcher_new(g, vocab, &m) : err;
        bool taken = true;
        for (const char *s = "{\"a\":[1,2"; *s != '\0' && err == ERR_OK; s++) {
            err = grammar_matcher_mask(m, bits);
            err = err == ERR_OK ? grammar_matcher_accept(m, *s, &taken) : err;
            ck_assert(taken || err != ERR_OK);
        }
        bool fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert(err == ERR_OK || (fired && err == ERR_NOMEM));
        if (!fired) {
            break;
        }
    }
}
END_TEST

Suite *grammar_suite(void)
{
    Suite *s = suite_create("grammar");
    TCase *t = tcase_create("grammar");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, random_grammars);
    tcase_add_test(t, random_sets);
    tcase_add_test(t, json_by_masks);
    tcase_add_test(t, json_texts);
    tcase_add_test(t, special_tokens);
    tcase_add_test(t, forced_tokens);
    tcase_add_test(t, taking_back);
    tcase_add_test(t, long_texts);
    tcase_add_test(t, no_token_can_follow);
    tcase_add_test(t, what_is_no_grammar);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
