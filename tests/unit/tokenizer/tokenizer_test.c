/* Encoding against slow and plain models of it on random vocabularies; special tokens; hostile text; limits. */
#include "engine/base/clock.h"
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/tokenizer/tokenizer_internal.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *tokenizer_suite(void);

enum { MAX_WORD = 300 };

static int32_t add(struct vocab *v, const char *text, int kind) { return vocab_add(v, text, strlen(text), kind, 0); }

static void load(struct vocab *v)
{
    struct err_info info = {0};
    enum err err = vocab_load(v, &info);
    ck_assert_msg(err == ERR_OK, "refused: %s", info.text);
}

static void encode(const struct vocab *v, const char *s, size_t n, unsigned flags, const struct span *plain,
                   size_t n_plain, struct token_list *out)
{
    out->n = 0;
    enum err err = tokenizer_encode(
        v->t, &(struct tokenizer_text){.s = s, .n = n, .flags = flags, .plain = plain, .n_plain = n_plain}, out, NULL);
    if (err != ERR_OK) {
        ck_abort_msg("%s", err_code(err));
    }
}

/* The ids as their texts, a bar between. */
static const char *spelt(const struct vocab *v, const struct token_list *ids)
{
    static char s[4096];
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        struct gguf_str text = tokenizer_token_text(v->t, ids->ids[i]);
        ck_assert_uint_lt(n + text.len + 2, sizeof s);
        s[n] = '|';
        n += i > 0;
        memcpy(s + n, text.data, text.len);
        n += text.len;
    }
    s[n] = '\0';
    return s;
}

/* --- a plain model of merging: strings, first best pair, start again -------------------------------------------- */

struct part {
    size_t from, len;
};

/* The order of the pair (a, b) of word: lower merges first; false when it does not merge. */
typedef bool (*order_fn)(const struct vocab *v, const char *word, struct part a, struct part b, double *order);

struct rules {
    char left[64][24], right[64][24];
    int n;
};
static struct rules rules;

static bool bpe_order(const struct vocab *v, const char *word, struct part a, struct part b, double *order)
{
    (void)v;
    for (int i = 0; i < rules.n; i++) {
        if (strlen(rules.left[i]) == a.len && memcmp(rules.left[i], word + a.from, a.len) == 0 &&
            strlen(rules.right[i]) == b.len && memcmp(rules.right[i], word + b.from, b.len) == 0) {
            *order = i;
            return true;
        }
    }
    return false;
}

static float scores[1024];

static bool spm_order(const struct vocab *v, const char *word, struct part a, struct part b, double *order)
{
    int32_t id = tokenizer_find(v->t, word + a.from, a.len + b.len);
    *order = id < 0 ? 0 : -scores[id];
    return id >= 0;
}

static size_t merge_plainly(const struct vocab *v, order_fn order_of, const char *word, size_t n, struct part *parts)
{
    size_t n_parts = n;
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct part){i, 1};
    }
    for (;;) {
        size_t best = n_parts;
        double best_order = 0, order;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            if (order_of(v, word, parts[i], parts[i + 1], &order) && (best == n_parts || order < best_order)) {
                best = i;
                best_order = order;
            }
        }
        if (best == n_parts) {
            return n_parts;
        }
        parts[best].len += parts[best + 1].len;
        memmove(&parts[best + 1], &parts[best + 2], (n_parts - best - 2) * sizeof *parts);
        n_parts--;
    }
}

static void compare_merging(const struct vocab *v, order_fn order_of, const char *word, size_t n)
{
    struct part parts[MAX_WORD];
    struct token_list got = {0};
    size_t n_parts = merge_plainly(v, order_of, word, n, parts);
    encode(v, word, n, 0, NULL, 0, &got);
    bool same = got.n == n_parts;
    for (size_t i = 0; same && i < n_parts; i++) {
        same = got.ids[i] == tokenizer_find(v->t, word + parts[i].from, parts[i].len);
    }
    if (!same) {
        ck_abort_msg("'%.*s' gives %zu tokens (%s), expected %zu", (int)n, word, got.n, spelt(v, &got), n_parts);
    }
    token_list_fini(&got);
}

static size_t random_word(uint64_t *seed, char *word, int n_letters)
{
    size_t n = 1 + vocab_random(seed) % (vocab_random(seed) % 4 == 0 ? MAX_WORD - 1 : 40);
    for (size_t i = 0; i < n; i++) {
        word[i] = (char)('a' + vocab_random(seed) % (uint64_t)n_letters);
    }
    return n;
}

/* Random merges over few letters, so that they nest and compete. */
static void random_rules(struct vocab *v, uint64_t *seed, int n_letters)
{
    static char pieces[72][24];
    int n_pieces = n_letters;
    rules.n = 0;
    for (int i = 0; i < n_letters; i++) {
        pieces[i][0] = (char)('a' + i);
        pieces[i][1] = '\0';
    }
    while (rules.n < 40) {
        const char *a = pieces[vocab_random(seed) % (uint64_t)n_pieces];
        const char *b = pieces[vocab_random(seed) % (uint64_t)n_pieces];
        if (strlen(a) + strlen(b) > 20) {
            continue;
        }
        char merge[64];
        snprintf(merge, sizeof merge, "%s %s", a, b);
        vocab_add_merge(v, merge, strlen(merge));
        memcpy(rules.left[rules.n], a, sizeof pieces[0]);
        memcpy(rules.right[rules.n], b, sizeof pieces[0]);
        rules.n++;
        snprintf(pieces[n_pieces], sizeof pieces[0], "%s%s", rules.left[rules.n - 1], rules.right[rules.n - 1]);
        add(v, pieces[n_pieces], TOKEN_NORMAL);
        n_pieces++;
    }
}

START_TEST(bpe_merges_as_the_definition_says)
{
    uint64_t seed = 1;
    char word[MAX_WORD];
    for (int round = 0; round < 60; round++) {
        struct vocab v;
        int n_letters = 1 + round % 4;
        vocab_bpe(&v, "gpt-2");
        random_rules(&v, &seed, n_letters);
        load(&v);
        for (int i = 0; i < 40; i++) {
            compare_merging(&v, bpe_order, word, random_word(&seed, word, n_letters));
        }
        vocab_fini(&v);
    }
}
END_TEST

START_TEST(spm_merges_as_the_definition_says)
{
    uint64_t seed = 2;
    char word[MAX_WORD];
    for (int round = 0; round < 60; round++) {
        struct vocab v;
        int n_letters = 1 + round % 4;
        vocab_spm(&v);
        v.add_space_prefix = 0;
        for (int i = 0; i < 40 || i < n_letters; i++) {
            size_t n = i < n_letters ? 1 : 2 + vocab_random(&seed) % 5;
            for (size_t k = 0; k < n; k++) {
                word[k] = i < n_letters ? (char)('a' + i) : (char)('a' + vocab_random(&seed) % (uint64_t)n_letters);
            }
            float score = (float)(vocab_random(&seed) % 12) * (i % 2 == 0 ? -1 : -0.5f); /* ties are many */
            score = score == 0 && i % 4 == 0 ? 0.0f : score;                             /* 0 and -0 tie as well */
            scores[v.n_tokens] = score;
            vocab_add(&v, word, n, TOKEN_NORMAL, score);
        }
        load(&v);
        for (int i = 0; i < 40; i++) {
            compare_merging(&v, spm_order, word, random_word(&seed, word, n_letters));
        }
        vocab_fini(&v);
    }
}
END_TEST

/* --- the two models by example ---------------------------------------------------------------------------------- */

START_TEST(bpe_splits_words_and_keeps_every_byte)
{
    struct vocab v;
    struct token_list ids = {0};
    vocab_bpe(&v, "gpt-2");
    v.bos = add(&v, "<bos>", TOKEN_CONTROL);
    v.eos = add(&v, "<eos>", TOKEN_CONTROL);
    v.add_bos = v.add_eos = 1;
    add(&v, "ll", TOKEN_NORMAL);
    add(&v, "he", TOKEN_NORMAL);
    add(&v, "hell", TOKEN_NORMAL);
    add(&v, "\xC4\xA0o", TOKEN_NORMAL); /* a space before o */
    vocab_add_merge(&v, "l l", 3);
    vocab_add_merge(&v, "h e", 3);
    vocab_add_merge(&v, "he ll", 5);
    vocab_add_merge(&v, "\xC4\xA0 o", 4);
    load(&v);
    encode(&v, "hello o", 7, TOKENIZE_ADD_SPECIAL, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "<bos>|hell|o|\xC4\xA0o|<eos>");
    encode(&v, "", 0, TOKENIZE_ADD_SPECIAL, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "<bos>|<eos>");
    encode(&v, "", 0, 0, NULL, 0, &ids);
    ck_assert_uint_eq(ids.n, 0);
    encode(&v, "he\0\xFF\xE2\x82", 6, 0, NULL, 0, &ids); /* NUL and broken UTF-8 are bytes like others */
    ck_assert_uint_eq(ids.n, 5);
    const int32_t want[] = {259, 0, 0xFF, 0xE2, 0x82};
    ck_assert_mem_eq(ids.ids, want, sizeof want);
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

START_TEST(a_whole_word_goes_before_merges_only_in_llama3)
{
    static const char *const pres[] = {"llama-bpe", "qwen2"};
    static const char *const want[] = {"hello|!|c|t|l", "he|l|l|o|!|c|t|l"};
    for (int i = 0; i < 2; i++) {
        struct vocab v;
        struct token_list ids = {0};
        vocab_bpe(&v, pres[i]);
        add(&v, "hello", TOKEN_NORMAL);
        add(&v, "he", TOKEN_NORMAL);
        add(&v, "ctl", TOKEN_CONTROL); /* a word of text never gives a control token */
        vocab_add_merge(&v, "h e", 3);
        load(&v);
        encode(&v, "hello!", 6, 0, NULL, 0, &ids);
        struct token_list more = {0};
        encode(&v, "ctl", 3, 0, NULL, 0, &more);
        for (size_t k = 0; k < more.n; k++) {
            ck_assert_int_eq(token_list_push(&ids, more.ids[k]), ERR_OK);
        }
        ck_assert_str_eq(spelt(&v, &ids), want[i]);
        token_list_fini(&ids);
        token_list_fini(&more);
        vocab_fini(&v);
    }
}
END_TEST

START_TEST(bytes_without_a_token_become_replacement_characters)
{
    struct vocab v;
    struct token_list ids = {0};
    vocab_bpe(&v, "gpt-2");
    memset((char *)memmem(v.tokens.data, v.tokens.len, "\xC3\xBF", 2), 'x', 2); /* byte FF loses its token */
    memset((char *)memmem(v.tokens.data, v.tokens.len, "\xC4\x84", 2), 'y', 2); /* and byte 04 */
    load(&v);
    encode(&v, "a\xFF\x04z\xFE", 5, 0, NULL, 0, &ids);
    const int32_t want[] = {'a', 0xEF, 0xBF, 0xBD, 'z', 0xFE}; /* 04 is text: it is dropped, as in other tokenizers */
    ck_assert_uint_eq(ids.n, ARRAY_LEN(want));
    ck_assert_mem_eq(ids.ids, want, sizeof want);
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

START_TEST(spm_spells_spaces_falls_back_to_bytes_and_prefixes)
{
    struct vocab v;
    struct token_list ids = {0};
    vocab_spm(&v);
    static const char *const words[] = {"\xE2\x96\x81",
                                        "a",
                                        "b",
                                        "\xE2\x96\x81"
                                        "a",
                                        "<",
                                        "s",
                                        ">",
                                        "<s",
                                        "\xC3\xA9"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        vocab_add(&v, words[i], strlen(words[i]), TOKEN_NORMAL, -(float)i);
    }
    add(&v, "<x>", TOKEN_CONTROL);
    load(&v);
    encode(&v, "a b\n\xC3\xA9\xC3\xA8", 8, TOKENIZE_ADD_SPECIAL, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "<s>|\xE2\x96\x81"
                                      "a|\xE2\x96\x81|b|<0x0A>|\xC3\xA9|<0xC3>|<0xA8>");
    encode(&v, "<s>", 3, 0, NULL, 0, &ids); /* merging must not end in a control token: <s + > is <s> */
    ck_assert_str_eq(spelt(&v, &ids), "\xE2\x96\x81|<s|>");
    encode(&v, "a<x>a", 5, TOKENIZE_PARSE_SPECIAL, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "\xE2\x96\x81"
                                      "a|<x>|\xE2\x96\x81"
                                      "a");
    encode(&v, "a\xFFz", 3, 0, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "\xE2\x96\x81"
                                      "a|<0xFF>|<0x7A>");
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

/* --- special tokens --------------------------------------------------------------------------------------------- */

/* Row T11 of the catalogue of bad inputs. */
START_TEST(special_tokens_are_found_outside_plain_spans_only)
{
    static const struct {
        const char *text;
        unsigned flags;
        struct span plain[2];
        size_t n_plain;
        const char *want;
    } rows[] = {
        {"x<a>y", 0, {{0, 0}}, 0, "x|<|a|>|y"},
        {"x<a>y", TOKENIZE_PARSE_SPECIAL, {{0, 0}}, 0, "x|<a>|y"},
        {"x<a>y", TOKENIZE_PARSE_SPECIAL, {{0, 5}}, 1, "x|<|a|>|y"},
        {"x<a>y", TOKENIZE_PARSE_SPECIAL, {{3, 4}}, 1, "x|<|a|>|y"},
        {"x<a>y", TOKENIZE_PARSE_SPECIAL, {{0, 1}, {4, 5}}, 2, "x|<a>|y"},
        {"x<a>y", TOKENIZE_PARSE_SPECIAL, {{2, 2}}, 1, "x|<a>|y"},
        {"<a><b>", TOKENIZE_PARSE_SPECIAL, {{0, 0}}, 0, "<a><b>"},
        {"<a><b>", TOKENIZE_PARSE_SPECIAL, {{3, 6}}, 1, "<a>|<|b|>"},
        {"<a><b>", TOKENIZE_PARSE_SPECIAL, {{0, 3}}, 1, "<|a|>|<b>"},
        {"<a><b", TOKENIZE_PARSE_SPECIAL, {{0, 0}}, 0, "<a>|<|b"},
        {"<<a>>", TOKENIZE_PARSE_SPECIAL, {{0, 0}}, 0, "<|<a>|>"},
        {"<a><a><a>", TOKENIZE_PARSE_SPECIAL, {{3, 6}}, 1, "<a>|<|a|>|<a>"},
        {"x<t>y", 0, {{0, 0}}, 0, "x|<|t|>|y"}, /* user-defined, of the form of a mark */
        {"x<t>y", TOKENIZE_PARSE_SPECIAL, {{0, 0}}, 0, "x|<t>|y"},
        {"x<t>y", TOKENIZE_PARSE_SPECIAL, {{3, 5}}, 1, "x|<|t|>|y"},
        {"xtty", 0, {{0, 0}}, 0, "x|tt|y"}, /* user-defined: text with an id of its own */
        {"xtty", TOKENIZE_PARSE_SPECIAL, {{0, 4}}, 1, "x|tt|y"},
        {"<a>tt", 0, {{0, 0}}, 0, "<|a|>|tt"},
        {"hehehe", TOKENIZE_PARSE_SPECIAL, {{1, 3}}, 1, "he|he|he"}, /* merges run across the borders of a span */
    };
    struct vocab v;
    struct token_list ids = {0};
    vocab_bpe(&v, "gpt-2");
    add(&v, "<a>", TOKEN_CONTROL);
    add(&v, "<b>", TOKEN_CONTROL);
    add(&v, "<a><b>", TOKEN_CONTROL);
    add(&v, "<t>", TOKEN_USER_DEFINED);
    add(&v, "tt", TOKEN_USER_DEFINED);
    add(&v, "he", TOKEN_NORMAL);
    vocab_add_merge(&v, "h e", 3);
    load(&v);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        encode(&v, rows[i].text, strlen(rows[i].text), rows[i].flags, rows[i].plain, rows[i].n_plain, &ids);
        ck_assert_msg(strcmp(spelt(&v, &ids), rows[i].want) == 0, "row %zu, '%s': %s, expected %s", i, rows[i].text,
                      spelt(&v, &ids), rows[i].want);
    }
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

static char random_tokens[40][12];

/* Leftmost, longest, by trying every token at every position. Control tokens are the even ones. */
static size_t find_plainly(const char *s, size_t n, const struct span *plain, size_t n_plain, int32_t *ids)
{
    size_t n_ids = 0;
    for (size_t at = 0; at < n;) {
        size_t longest = 0;
        int32_t id = (unsigned char)s[at];
        for (int k = 0; k < 40; k++) {
            size_t len = strlen(random_tokens[k]);
            bool fits = at + len <= n && memcmp(s + at, random_tokens[k], len) == 0;
            for (size_t p = 0; p < n_plain && k % 2 == 0; p++) {
                fits = fits && (plain[p].to <= at || plain[p].from >= at + len || plain[p].from == plain[p].to);
            }
            if (fits && len > longest) {
                longest = len;
                id = 256 + k;
            }
        }
        ids[n_ids++] = id;
        at += longest > 0 ? longest : 1;
    }
    return n_ids;
}

/* Row T10: the same as a plain search; its time is many_special_tokens_and_near_misses_take_linear_time's. */
START_TEST(overlapping_special_tokens_are_taken_leftmost_and_longest)
{
    uint64_t seed = 3;
    for (int round = 0; round < 60; round++) {
        struct vocab v;
        vocab_bpe(&v, "gpt-2");
        for (int k = 0; k < 40; k++) { /* all different */
            bool is_new;
            do {
                size_t n = 1 + vocab_random(&seed) % 8;
                for (size_t i = 0; i < n; i++) {
                    random_tokens[k][i] = (char)('a' + vocab_random(&seed) % (n == 1 ? 3 : 2));
                }
                random_tokens[k][n] = '\0';
                is_new = n > 1; /* single letters are the byte tokens */
                for (int j = 0; j < k; j++) {
                    is_new = is_new && strcmp(random_tokens[j], random_tokens[k]) != 0;
                }
            } while (!is_new);
            add(&v, random_tokens[k], k % 2 == 0 ? TOKEN_CONTROL : TOKEN_USER_DEFINED);
        }
        load(&v);
        for (int i = 0; i < 100; i++) {
            char s[64];
            int32_t want[64];
            struct token_list got = {0};
            size_t n = vocab_random(&seed) % sizeof s, from = vocab_random(&seed) % 64,
                   to = from + vocab_random(&seed) % 9;
            struct span plain[2] = {{from / 2, to / 2}, {to / 2 + 3, to / 2 + 3 + vocab_random(&seed) % 7}};
            for (size_t k = 0; k < n; k++) {
                s[k] = (char)('a' + vocab_random(&seed) % 2);
            }
            size_t n_want = find_plainly(s, n, plain, 2, want);
            encode(&v, s, n, TOKENIZE_PARSE_SPECIAL, plain, 2, &got);
            if (got.n != n_want || (n_want > 0 && memcmp(got.ids, want, n_want * sizeof *want) != 0)) {
                ck_abort_msg("'%.*s' with plain [%zu, %zu) [%zu, %zu): %s", (int)n, s, plain[0].from, plain[0].to,
                             plain[1].from, plain[1].to, spelt(&v, &got));
            }
            token_list_fini(&got);
        }
        vocab_fini(&v);
    }
}
END_TEST

/* --- hostile text ----------------------------------------------------------------------------------------------- */

/* Seconds for n bytes of `unit` repeated. */
static double time_of(const struct vocab *v, const char *unit, size_t unit_bytes, size_t n, unsigned flags,
                      size_t *n_tokens)
{
    struct token_list ids = {0};
    char *s = malloc(n);
    for (size_t i = 0; i < n; i++) {
        s[i] = unit[i % unit_bytes];
    }
    uint64_t start = clock_thread_ns();
    encode(v, s, n, flags, NULL, 0, &ids);
    double seconds = (double)(clock_thread_ns() - start) * 1e-9;
    *n_tokens = ids.n;
    token_list_fini(&ids);
    free(s);
    return seconds;
}

/* Four times the text may take eight times the time, not sixteen; a busy machine gets three tries. */
static void check_linear(const struct vocab *v, const char *name, const char *unit, size_t unit_bytes, unsigned flags)
{
    size_t short_tokens, long_tokens, quarter = (256u << 10) / unit_bytes * unit_bytes;
    double quarter_time = 0, whole_time = 1;
    for (int i = 0; i < 3 && whole_time >= 8 * quarter_time + 0.02; i++) {
        quarter_time = time_of(v, unit, unit_bytes, quarter, flags, &short_tokens);
        whole_time = time_of(v, unit, unit_bytes, quarter * 4, flags, &long_tokens);
    }
    ck_assert_msg(whole_time < 8 * quarter_time + 0.02, "%s: %.1f ms for a quarter, %.1f ms for the whole", name,
                  quarter_time * 1e3, whole_time * 1e3);
    ck_assert_uint_le(long_tokens, 4 * short_tokens + 4);
    ck_assert_uint_ge(long_tokens, 4 * short_tokens - 64);
}

static const struct {
    const char *name, *unit;
    size_t bytes;
} monotonous[] = {
    {"Z", "Z", 1},
    {"spaces", " ", 1},
    {"newlines", "\n", 1},
    {"digits", "7", 1},
    {"combining marks", "\xCC\x81", 2},
    {"emoji", "\xF0\x9F\x98\x80", 4},
    {"ZWJ chain", "\xF0\x9F\x91\xA8\xE2\x80\x8D", 7},
    {"spaces and newlines", " \n", 2},
    {"apostrophes", "'", 1},
    {"invalid bytes", "\xE2\x82", 2},
    {"near misses", "<|im_en", 7},
};

/* Tokens of 2, 4, .. 128 times `unit`, by merges of halves. */
static void add_doublings(struct vocab *v, const char *unit, size_t n, bool spm)
{
    char text[1200], merge[1200];
    for (size_t bytes = n, i = 0; i < 8; bytes *= 2, i++) {
        for (size_t k = 0; k < 2 * bytes; k++) {
            text[k] = unit[k % n];
        }
        if (spm && i == 0) {
            vocab_add(v, text, n, TOKEN_NORMAL, -100);
        }
        vocab_add(v, text, 2 * bytes, TOKEN_NORMAL, -(float)i);
        memcpy(merge, text, bytes);
        merge[bytes] = ' ';
        memcpy(merge + bytes + 1, text + bytes, bytes);
        vocab_add_merge(v, merge, 2 * bytes + 1);
    }
}

/* Row T09. */
START_TEST(monotonous_text_takes_linear_time)
{
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", NULL};
    struct vocab v;
    bool spm = pres[_i] == NULL;
    if (spm) {
        vocab_spm(&v);
    } else {
        vocab_bpe(&v, pres[_i]);
    }
    add(&v, "<|im_end|>", TOKEN_CONTROL);
    add_doublings(&v, "Z", 1, spm);
    add_doublings(&v, spm ? "\xE2\x96\x81" : "\xC4\xA0", spm ? 3 : 2, spm); /* space */
    add_doublings(&v, spm ? "\n" : "\xC4\x8A", spm ? 1 : 2, spm);           /* newline */
    load(&v);
    for (size_t k = 0; k < ARRAY_LEN(monotonous); k++) {
        check_linear(&v, monotonous[k].name, monotonous[k].unit, monotonous[k].bytes, TOKENIZE_PARSE_SPECIAL);
    }
    vocab_fini(&v);
}
END_TEST

/* A word may be as long as the text: merging it counts, and ends when the client has left. */
START_TEST(a_long_word_pays_for_its_merges)
{
    enum { N = 64 };
    static const struct {
        uint64_t left;
        bool is_stopped;
        enum err want;
    } cases[] = {{1000, false, ERR_OK}, {5, false, ERR_PATTERN_LIMIT}, {1000, true, ERR_CANCELLED}};
    char word[N];
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    add_doublings(&v, "Z", 1, false);
    load(&v);
    memset(word, 'Z', N);
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const atomic_bool has_left = cases[k].is_stopped;
        struct task task = {.has_left = &has_left};
        struct budget budget = {.given = cases[k].left + TASK_STEPS - 5,
                                .left = cases[k].left}; /* five steps until a check */
        struct merger m = {.t = v.t, .budget = &budget, .word = word};
        ck_assert_int_eq(merger_reserve(&m, N), ERR_OK);
        for (; m.n < N; m.n++) {
            m.symbols[m.n] = (struct symbol){.id = v.t->byte_ids['Z'], .from = m.n, .len = 1};
        }
        task_enter(&task, "tokens");
        ck_assert_int_eq(merger_run(&m), cases[k].want);
        task_leave();
        ck_assert(cases[k].want != ERR_OK || (m.n < N && budget.left < cases[k].left));
        merger_fini(&m);
    }
    vocab_fini(&v);
}
END_TEST

/* Row T10. */
START_TEST(many_special_tokens_and_near_misses_take_linear_time)
{
    struct vocab v;
    char long_token[2001];
    vocab_bpe(&v, "gpt-2");
    memset(long_token, 'a', 2000);
    long_token[2000] = 'b';
    vocab_add(&v, long_token, 2001, TOKEN_CONTROL, 0); /* every a begins one that fails 2,000 bytes on */
    add(&v, "aa", TOKEN_USER_DEFINED);
    for (int i = 0; i < 50000; i++) {
        char s[32];
        vocab_add(&v, s, (size_t)snprintf(s, sizeof s, "<|extra_%05d|>", i),
                  i % 2 == 0 ? TOKEN_CONTROL : TOKEN_USER_DEFINED, 0);
    }
    load(&v);
    check_linear(&v, "a", "a", 1, TOKENIZE_PARSE_SPECIAL);
    check_linear(&v, "extra", "<|extra_4999", 12, TOKENIZE_PARSE_SPECIAL);
    struct token_list ids = {0};
    encode(&v, "<|extra_49999|><|extra_00000|>", 30, TOKENIZE_PARSE_SPECIAL, NULL, 0, &ids);
    ck_assert_str_eq(spelt(&v, &ids), "<|extra_49999|>|<|extra_00000|>");
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

START_TEST(the_limit_and_failed_allocations_leave_the_list_alone)
{
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    add(&v, "<x>", TOKEN_CONTROL);
    add(&v, "zz", TOKEN_NORMAL);
    vocab_add_merge(&v, "z z", 3);
    load(&v);
    struct token_list ids = {0};
    ck_assert_int_eq(token_list_push(&ids, 42), ERR_OK);
    ck_assert_int_eq(
        tokenizer_encode(
            v.t, &(struct tokenizer_text){.s = "ab<x>", .n = 5, .flags = TOKENIZE_PARSE_SPECIAL, .max_tokens = 2}, &ids,
            NULL),
        ERR_CONTEXT_LENGTH);
    ck_assert_uint_eq(ids.n, 1);
    ck_assert_int_eq(
        tokenizer_encode(
            v.t, &(struct tokenizer_text){.s = "ab<x>", .n = 5, .flags = TOKENIZE_PARSE_SPECIAL, .max_tokens = 3}, &ids,
            NULL),
        ERR_OK);
    ck_assert_uint_eq(ids.n, 4);
    token_list_fini(&ids);

    char text[3000];
    memset(text, 'z', sizeof text);
    memcpy(text + 1000, "<x>", 3);
    bool fired = true;
    for (long i = 0; fired && i < 100; i++) {
        size_t live = mem_live();
        mem_fail_at(i);
        enum err err = tokenizer_encode(
            v.t, &(struct tokenizer_text){.s = text, .n = sizeof text, .flags = TOKENIZE_PARSE_SPECIAL}, &ids, NULL);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        ck_assert_int_eq(err, fired ? ERR_NOMEM : ERR_OK);
        ck_assert_uint_eq(ids.n, fired ? 0 : 500 + 1 + 1997 / 2 + 1);
        token_list_fini(&ids);
        ck_assert_uint_eq(mem_live(), live);
    }
    ck_assert(!fired);
    vocab_fini(&v);
}
END_TEST

Suite *tokenizer_suite(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("tokenizer");
    tcase_add_test(c, bpe_merges_as_the_definition_says);
    tcase_add_test(c, spm_merges_as_the_definition_says);
    tcase_add_test(c, bpe_splits_words_and_keeps_every_byte);
    tcase_add_test(c, a_whole_word_goes_before_merges_only_in_llama3);
    tcase_add_test(c, bytes_without_a_token_become_replacement_characters);
    tcase_add_test(c, spm_spells_spaces_falls_back_to_bytes_and_prefixes);
    tcase_add_test(c, special_tokens_are_found_outside_plain_spans_only);
    tcase_add_test(c, overlapping_special_tokens_are_taken_leftmost_and_longest);
    tcase_add_loop_test(c, monotonous_text_takes_linear_time, 0, 5);
    tcase_add_test(c, a_long_word_pays_for_its_merges);
    tcase_add_test(c, many_special_tokens_and_near_misses_take_linear_time);
    tcase_add_test(c, the_limit_and_failed_allocations_leave_the_list_alone);
    suite_add_tcase(s, c);
    return s;
}
