/* Unigram, WordPiece and spelt BPE vocabularies: small ones whose ids can be worked out by hand, the best cut against
 * trying all cuts, normal forms, file patterns, and texts that must not take longer than linear time. */
#include "engine/base/clock.h"
#include "engine/base/task.h"
#include "engine/base/utf8.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

Suite *tokenizer_kinds_suite(void);

#define MARK "\xE2\x96\x81"

static int32_t add(struct vocab *v, const char *text, int kind, float score)
{
    return vocab_add(v, text, strlen(text), kind, score);
}

/* The tokens of s with | between them. */
static void check_tokens(const struct vocab *v, const char *s, unsigned flags, const char *want)
{
    struct token_list ids = {0};
    struct buf got;
    buf_init(&got, 0, MEM_GENERAL);
    ck_assert_int_eq(
        tokenizer_encode(v->t, &(struct tokenizer_text){.s = s, .n = strlen(s), .flags = flags}, &ids, NULL), ERR_OK);
    for (size_t i = 0; i < ids.n; i++) {
        struct gguf_str text = tokenizer_token_text(v->t, ids.ids[i]);
        buf_puts(&got, i > 0 ? "|" : "");
        buf_append(&got, text.data, text.len);
    }
    ck_assert_msg(strcmp(got.len > 0 ? got.data : "", want) == 0, "'%s': expected %s, found %s", s, want,
                  got.len > 0 ? got.data : "");
    buf_fini(&got);
    token_list_fini(&ids);
}

/* --- WordPiece ------------------------------------------------------------------------------------------------------
 */

static void wordpiece(struct vocab *v)
{
    static const char *const tokens[] = {MARK "un",           MARK "u", "aff",      "able",  "a", MARK "cafe", MARK "!",
                                         MARK "\xE4\xB8\xAD", MARK "i", "\xCC\x87", MARK "x"};
    vocab_plain(v, "bert");
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        add(v, tokens[i], TOKEN_NORMAL, 0);
    }
    ck_assert_int_eq(vocab_load(v, NULL), ERR_OK);
}

START_TEST(wordpiece_takes_the_longest_pieces)
{
    struct vocab v;
    char longest[101 + 1], s[110];
    wordpiece(&v);
    check_tokens(&v, "unaffable", 0, MARK "un|aff|able");
    check_tokens(&v, " UNAFFABLE\t!", 0, MARK "un|aff|able|" MARK "!");
    check_tokens(&v, "unaffx", 0, "<unk>");
    check_tokens(&v, "Caf\xC3\xA9!caf\x65\xCC\x81", 0, MARK "cafe|" MARK "!|" MARK "cafe");
    check_tokens(&v,
                 "un\xE4\xB8\xAD"
                 "a",
                 0, MARK "un|" MARK "\xE4\xB8\xAD|<unk>");
    check_tokens(&v, "\xC4\xB0", 0, MARK "i"); /* the dot is an accent */
    check_tokens(&v,
                 "u\vn\xE2\x80\x8B"
                 "a\x7F",
                 0, MARK "un|a"); /* control and format characters vanish */
    check_tokens(&v, "u\xC2\xA0x\xFF", 0, MARK "u|" MARK "x");
    check_tokens(&v, "", 0, "");
    check_tokens(&v, "x", TOKENIZE_ADD_SPECIAL, "<s>|" MARK "x|</s>");
    check_tokens(&v, "<s>", 0, "<unk>|<unk>|<unk>");
    memset(longest, 'a', sizeof longest);
    longest[100] = longest[101] = '\0';
    snprintf(s, sizeof s, "u%.99s", longest);
    struct token_list ids = {0};
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = strlen(s)}, &ids, NULL), ERR_OK);
    ck_assert_uint_eq(ids.n, 100);
    snprintf(s, sizeof s, "u%.100s", longest);
    check_tokens(&v, s, 0, "<unk>"); /* over 100 characters */
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

/* --- unigram ---------------------------------------------------------------------------------------------------------
 */

START_TEST(unigram_cuts_words_and_marks_them)
{
    struct vocab v;
    vocab_plain(&v, "t5");
    v.drops_spaces = 1;
    add(&v, MARK, TOKEN_NORMAL, -2);
    add(&v, MARK "ab", TOKEN_NORMAL, -3);
    add(&v, "a", TOKEN_NORMAL, -2);
    add(&v, "b", TOKEN_NORMAL, -2);
    add(&v, "ab", TOKEN_NORMAL, -4.5f);
    add(&v, "<x>", TOKEN_USER_DEFINED, -1);
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    check_tokens(&v, "ab", 0, MARK "ab");
    check_tokens(&v, "  ab\n\tab ", 0, MARK "ab|" MARK "ab");
    check_tokens(&v, "aab", 0, MARK "|a|a|b");
    check_tokens(&v, "a" MARK "ab", 0, MARK "|a|" MARK "ab");
    check_tokens(&v, "azzzb", 0, MARK "|a|<unk>|b");
    check_tokens(&v, "\xF0\x9F\x98\x80 \xFF", 0, MARK "|<unk>|" MARK "|<unk>");
    check_tokens(&v, "ab<x>ab", TOKENIZE_PARSE_SPECIAL, MARK "ab|<x>|" MARK "ab");
    check_tokens(&v, "ab", TOKENIZE_ADD_SPECIAL, MARK "ab|</s>");
    check_tokens(&v, " \n", 0, "");
    vocab_fini(&v);
}
END_TEST

static double best_score(const float *score, const char *const *tokens, size_t n_tokens, const char *s)
{
    double best[64] = {0};
    size_t n = strlen(s);
    for (size_t to = 1; to <= n; to++) {
        best[to] = -DBL_MAX;
        for (size_t i = 0; i < n_tokens; i++) {
            size_t len = strlen(tokens[i]);
            if (len <= to && memcmp(s + to - len, tokens[i], len) == 0 &&
                best[to - len] + (double)score[i] > best[to]) {
                best[to] = best[to - len] + (double)score[i];
            }
        }
    }
    return best[n];
}

START_TEST(unigram_finds_the_best_cut)
{
    static const char *const tokens[] = {MARK, "a",   "b",  "c",   "ab",  "bc", "abc",
                                         "ca", "cab", "aa", "aaa", "bab", "ccc"};
    uint64_t seed = 11;
    for (int round = 0; round < 200; round++) {
        struct vocab v;
        float score[ARRAY_LEN(tokens)];
        vocab_plain(&v, "t5");
        for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
            score[i] = -(float)(1 + vocab_random(&seed) % 1000) / 100;
            add(&v, tokens[i], TOKEN_NORMAL, score[i]);
        }
        ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
        for (int k = 0; k < 20; k++) {
            char s[40] = MARK;
            struct token_list ids = {0};
            double sum = 0;
            for (size_t n = 3, to = 3 + 1 + vocab_random(&seed) % 30; n < to; n++) {
                s[n] = (char)('a' + vocab_random(&seed) % 3);
            }
            ck_assert_int_eq(
                tokenizer_encode(v.t, &(struct tokenizer_text){.s = s + 3, .n = strlen(s) - 3, .max_tokens = 100}, &ids,
                                 NULL),
                ERR_OK);
            for (size_t i = 0; i < ids.n; i++) {
                sum += (double)score[ids.ids[i] - 3];
            }
            double want = best_score(score, tokens, ARRAY_LEN(tokens), s);
            if (sum < want - 1e-6 || sum > want + 1e-6) {
                ck_abort_msg("%s: a cut of %g, the best has %g", s, sum, want);
            }
            token_list_fini(&ids);
        }
        vocab_fini(&v);
    }
}
END_TEST

/* A map from A to "b c", from B to A and from U+3000 to a space. */
static void put_map(struct vocab *v)
{
    static const char texts[] = "b c\0 \0A";
    static const char key[] = "\xE3\x80\x80";
    uint32_t units[1024] = {0}, size = sizeof units;
    /* children of the root at 256 ^ byte; a leaf's value at the place that its offset leads to; each block has its
     * place */
    units[0] = 256u << 10;
    uint32_t at = 256u ^ 'A';
    units[at] = 'A' | 1u << 8 | (512u ^ at) << 10;
    units[512] = 0 | 1u << 31;
    at = 256u ^ 'B';
    units[at] = 'B' | 1u << 8 | (514u ^ at) << 10;
    units[514] = 6 | 1u << 31;
    at = 256u ^ (unsigned char)key[0];
    units[at] = (unsigned char)key[0] | (768u ^ at) << 10;
    at = 768u ^ (unsigned char)key[1];
    units[at] = (unsigned char)key[1] | ((768u ^ 0x100u) ^ at) << 10;
    at = (768u ^ 0x100u) ^ (unsigned char)key[2];
    units[at] = (unsigned char)key[2] | 1u << 8 | (513u ^ at) << 10;
    units[513] = 4 | 1u << 31;
    buf_append(&v->charsmap, &size, 4);
    buf_append(&v->charsmap, units, sizeof units);
    buf_append(&v->charsmap, texts, sizeof texts);
}

START_TEST(unigram_text_is_mapped_first)
{
    struct vocab v;
    vocab_plain(&v, "t5");
    v.drops_spaces = 1;
    put_map(&v);
    static const char *const tokens[] = {MARK, MARK "b", MARK "c", "a", "b", "c", "A", "\xCC\x81"};
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        add(&v, tokens[i], TOKEN_NORMAL, -1);
    }
    struct err_info info = {0};
    enum err err = vocab_load(&v, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    check_tokens(&v, "A", 0, MARK "b|" MARK "c");
    check_tokens(&v, "aA", 0, MARK "|a|b|" MARK "c");
    check_tokens(&v,
                 "c\xE3\x80\x80"
                 "b",
                 0, MARK "c|" MARK "b");
    check_tokens(&v, "A\xCC\x81", 0, MARK "b|" MARK "c"); /* a short cluster becomes what its start does */
    check_tokens(&v, "a\xCC\x81", 0, MARK "|a|\xCC\x81");
    vocab_fini(&v);
}
END_TEST

/* Text that was normalized for added tokens is not normalized again. */
START_TEST(text_is_mapped_once)
{
    struct vocab v;
    vocab_plain(&v, "t5");
    v.drops_spaces = 1;
    put_map(&v);
    static const char *const tokens[] = {MARK "A", MARK "b", MARK "c", "b", "c", "A"};
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        add(&v, tokens[i], TOKEN_NORMAL, -1);
    }
    v.normalized = vocab_add(&v, "<x>", 3, TOKEN_USER_DEFINED, 0);
    struct err_info info = {0};
    enum err err = vocab_load(&v, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    check_tokens(&v, "B", 0, MARK "A");
    check_tokens(&v, "A<x>B", TOKENIZE_PARSE_SPECIAL, MARK "b|" MARK "c|<x>|" MARK "A");
    vocab_fini(&v);
}
END_TEST

/* --- BPE -------------------------------------------------------------------------------------------------------------
 */

/* Far more tokens, classes and alternatives than any table begins with. */
START_TEST(texts_and_patterns_can_be_wide)
{
    enum { MANY = 5000, CLASSES = 300, FIRST = 0x4E00 };
    struct vocab v;
    struct buf pattern, text;
    struct token_list ids = {0};
    buf_init(&pattern, 0, MEM_GENERAL);
    buf_init(&text, 0, MEM_GENERAL);
    for (int i = 0; i < CLASSES; i++) { /* a[x-y]+ with another class of two characters each time */
        char from[4], to[4];
        size_t n = utf8_encode((uint32_t)(FIRST + 3 * i), from), n_to = utf8_encode((uint32_t)(FIRST + 3 * i + 1), to);
        buf_printf(&pattern, "%s[%.*s-%.*s]+", i == 0 ? "" : "|", (int)n, from, (int)n_to, to);
    }
    buf_puts(&pattern, "|[");
    for (int i = 0; i < CLASSES; i++) { /* and one class of as many ranges */
        char one[4];
        size_t n = utf8_encode((uint32_t)(FIRST + 3 * i + 2), one);
        buf_append(&pattern, one, n);
    }
    buf_puts(&pattern, "]+");
    vocab_bpe(&v, NULL);
    v.patterns[0] = pattern.data;
    int32_t special = vocab_add(&v, "<x>", 3, TOKEN_USER_DEFINED, 0);
    struct err_info info = {0};
    enum err err = vocab_load(&v, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    for (int i = 0; i < MANY; i++) {
        char one[4];
        size_t n = utf8_encode((uint32_t)(FIRST + i % (3 * CLASSES)), one);
        buf_append(&text, one, n);
        buf_puts(&text, "<x>");
    }
    ck_assert_int_eq(
        tokenizer_encode(v.t, &(struct tokenizer_text){.s = text.data, .n = text.len, .flags = TOKENIZE_PARSE_SPECIAL},
                         &ids, NULL),
        ERR_OK);
    ck_assert_uint_eq(ids.n, 4 * (size_t)MANY); /* three bytes, and the token */
    for (size_t i = 3; i < ids.n; i += 4) {
        ck_assert_int_eq(ids.ids[i], special);
    }
    token_list_fini(&ids);
    buf_fini(&text);
    vocab_fini(&v);
    buf_fini(&pattern);
}
END_TEST

START_TEST(spelt_bpe_merges_by_rank)
{
    struct vocab v;
    vocab_spm(&v);
    v.model = "gemma4";
    v.scores_type = GGUF_ARRAY;
    v.merges_type = GGUF_STRING;
    v.add_space_prefix = 0;
    static const char *const tokens[] = {"a", "b", "c", MARK, "ab", "bc", "abc", MARK "a", "\n", "\n\n"};
    static const char *const merges[] = {"b c", "a b", MARK " a", "\n \n"};
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        add(&v, tokens[i], TOKEN_NORMAL, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
        vocab_add_merge(&v, merges[i], strlen(merges[i]));
    }
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    check_tokens(&v, "abc", 0, "a|bc"); /* abc is a token that no merge makes */
    check_tokens(&v, "ab a\n\n\n", 0, "ab|" MARK "a|\n\n|\n");
    check_tokens(&v, "z", 0, "<0x7A>");
    ck_assert_str_eq(tokenizer_model_name(v.t), "gemma4");
    vocab_fini(&v);
}
END_TEST

/* Vocabulary of characters as they are: a and b merge, and so do a and !, which no word holds. */
static void whitespace(struct vocab *v, int lowers)
{
    static const char *const tokens[] = {"a", "b", "ab", "!", "a!", "\xC3\xA9", "i", "\xCC\x87", "A"};
    vocab_plain(v, "whitespace");
    v->pre = "whitespace";
    v->scores_type = GGUF_ARRAY;
    v->merges_type = GGUF_STRING;
    v->lowers = lowers;
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        add(v, tokens[i], TOKEN_NORMAL, 0);
    }
    vocab_add_merge(v, "a b", 3);
    vocab_add_merge(v, "a !", 3);
    ck_assert_int_eq(vocab_load(v, NULL), ERR_OK);
}

START_TEST(white_space_divides_words)
{
    struct vocab v;
    whitespace(&v, 1);
    check_tokens(&v,
                 " ab \n\xE3\x80\x80"
                 "ba\tAB ",
                 0, "ab|b|a|ab");
    check_tokens(&v, "aba!", 0, "ab|a|!"); /* a word of letters, then one of others */
    check_tokens(&v, "a b", 0, "a|b");
    check_tokens(&v, "\xC3\x89\xC4\xB0", 0, "\xC3\xA9|i|\xCC\x87");
    check_tokens(&v, "axyb", 0, "a|<unk>|<unk>|b");
    check_tokens(&v,
                 "a\xFF"
                 "b \xC3",
                 0, "a|<unk>|b|<unk>");
    check_tokens(&v, " \n ", 0, "");
    check_tokens(&v, "", 0, "");
    check_tokens(&v, "a</s>b", TOKENIZE_PARSE_SPECIAL, "a|</s>|b");
    vocab_fini(&v);
    whitespace(&v, -1);
    check_tokens(&v, "Aab", 0, "A|ab");
    check_tokens(&v,
                 "a\xFF"
                 "b",
                 0, "a|<unk>|b");
    ck_assert_str_eq(tokenizer_pre_name(v.t), "whitespace");
    vocab_fini(&v);
}
END_TEST

START_TEST(text_is_brought_to_a_normal_form)
{
    struct vocab v;
    static const struct {
        const char *pre, *form, *want;
    } rows[] = {{"gpt-2", NULL, "e|\xC3\x8C|\xC4\xA3"},
                {"gpt-2", "NFC", "\xC3\x83|\xC2\xA9"},
                {"qwen2", NULL, "\xC3\x83|\xC2\xA9"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        vocab_bpe(&v, rows[i].pre);
        v.normal_form = rows[i].form;
        ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
        check_tokens(&v, "e\xCC\x81", 0, rows[i].want);
        vocab_fini(&v);
    }
}
END_TEST

START_TEST(patterns_of_the_file_cut_words)
{
    struct vocab v;
    vocab_bpe(&v, NULL);
    v.patterns[0] = "[a-c]+"; /* never d with them */
    vocab_add(&v, "cd", 2, TOKEN_NORMAL, 0);
    vocab_add(&v, "dd", 2, TOKEN_NORMAL, 0);
    vocab_add_merge(&v, "c d", 3);
    vocab_add_merge(&v, "d d", 3);
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    check_tokens(&v, "acdd", 0, "a|c|dd");
    check_tokens(&v,
                 "ac\xFF"
                 "dd",
                 0, "a|c|\xC3\xBF|dd");
    ck_assert_str_eq(tokenizer_pre_name(v.t), "pattern");
    vocab_fini(&v);
    vocab_bpe(&v, NULL);
    v.patterns[0] = "a*b";
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    char *s = mem_alloc(1 << 18, MEM_GENERAL);
    memset(s, 'a', 1 << 18);
    struct token_list ids = {0};
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = 1 << 18}, &ids, NULL),
                     ERR_PATTERN_LIMIT);
    ck_assert_uint_eq(ids.n, 0);
    mem_free(s);
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

/* --- linear time -----------------------------------------------------------------------------------------------------
 */

/* Row T09 of the catalogue of bad inputs. */
START_TEST(monotonous_texts_take_linear_time)
{
    static const char *const units[] = {
        "Z", " ", "\n", "7", "\xCC\x81", "\xF0\x9F\x98\x80", "\xF0\x9F\x91\xA8\xE2\x80\x8D", "a", "\xFF"};
    enum { N = 1 << 20 };
    struct vocab v;
    if (_i == 0) {
        wordpiece(&v);
    } else {
        vocab_plain(&v, "t5");
        v.drops_spaces = _i == 1;
        for (char token[17] = "aaaaaaaaaaaaaaaa", *end = token + 16; end > token; *--end = '\0') {
            add(&v, token, TOKEN_NORMAL, -3);
        }
        add(&v, MARK, TOKEN_NORMAL, -1);
        ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    }
    char *s = mem_alloc(N, MEM_GENERAL);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t len = strlen(units[i]), n = 0;
        struct token_list ids = {0};
        for (; n + len <= N; n += len) {
            memcpy(s + n, units[i], len);
        }
        uint64_t start = clock_thread_ns();
        ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = n}, &ids, NULL), ERR_OK);
        ck_assert_msg(clock_thread_ns() - start < 5000000000u, "unit %zu takes %.1f s a MiB", i,
                      (double)(clock_thread_ns() - start) * 1e-9);
        token_list_fini(&ids);
    }
    mem_free(s);
    vocab_fini(&v);
}
END_TEST

/* From each character the trie leads to the end of the token, 60,000 bytes away. */
START_TEST(very_long_tokens_end_at_the_budget)
{
    enum { LONG = 60000, N = 1 << 18 };
    struct vocab v;
    struct token_list ids = {0};
    struct err_info info = {0};
    atomic_bool has_left = true;
    struct task task = {.has_left = &has_left};
    char *s = mem_alloc(N + 1, MEM_GENERAL);
    memset(s, 'a', N + 1);
    vocab_plain(&v, "t5");
    vocab_add(&v, s, LONG, TOKEN_NORMAL, -1);
    add(&v, "a", TOKEN_NORMAL, -1);
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    uint64_t start = clock_thread_ns();
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = N}, &ids, &info), ERR_PATTERN_LIMIT);
    ck_assert_msg(clock_thread_ns() - start < 20000000000u, "stopped late");
    ck_assert_str_eq(info.text, "a text of 262144 bytes: expected at most 285212672 steps of the model's tokenizer "
                                "(16777216, and 1024 a byte), found that it wants more; it had given 0 tokens");
    task_enter(&task, "tokens");
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = N}, &ids, NULL), ERR_CANCELLED);
    ck_assert_uint_eq(ids.n, 0);
    has_left = false;
    task.deadline_ns = 1;
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = N}, &ids, NULL), ERR_DEADLINE);
    ck_assert_uint_eq(ids.n, 0);
    task.deadline_ns = 0;
    ck_assert_int_eq(tokenizer_encode(v.t, &(struct tokenizer_text){.s = s, .n = 100}, &ids, NULL), ERR_OK);
    task_leave();
    ck_assert_uint_eq(ids.n, 101); /* with one for the space in front */
    token_list_fini(&ids);
    mem_free(s);
    vocab_fini(&v);
}
END_TEST

Suite *tokenizer_kinds_suite(void)
{
    Suite *s = suite_create("tokenizer_kinds");
    TCase *c = tcase_create("tokenizer_kinds");
    tcase_add_test(c, wordpiece_takes_the_longest_pieces);
    tcase_add_test(c, very_long_tokens_end_at_the_budget);
    tcase_add_test(c, unigram_cuts_words_and_marks_them);
    tcase_add_test(c, unigram_finds_the_best_cut);
    tcase_add_test(c, unigram_text_is_mapped_first);
    tcase_add_test(c, text_is_mapped_once);
    tcase_add_test(c, spelt_bpe_merges_by_rank);
    tcase_add_test(c, white_space_divides_words);
    tcase_add_test(c, text_is_brought_to_a_normal_form);
    tcase_add_test(c, patterns_of_the_file_cut_words);
    tcase_add_test(c, texts_and_patterns_can_be_wide);
    tcase_add_loop_test(c, monotonous_texts_take_linear_time, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
