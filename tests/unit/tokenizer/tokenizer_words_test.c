/* Words that are looked up, cut and remembered against plain merging of every word, with vocabularies in which tokens
 * hold several characters and parts of characters. */
#include "engine/base/utf8.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/tokenizer_internal.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *tokenizer_words_suite(void);

enum { MAX_RULES = 120, MAX_PIECE = 16, MAX_TEXT = 4000, ROUNDS = 30, N_THREADS = 4, NO_BYTE = -1 };

static const char *const chars[] = {
    "a", "b", "\xC3\xA9", "\xC3\xAA", "\xE4\xB8\xAD", "\xE4\xB8\x98", "\xE4\xBB\xAD", "\xF0\x9F\x98\x80"};

static uint64_t seed;
static size_t below(size_t n) { return (size_t)(vocab_random(&seed) % n); }

static size_t random_chars(char *out, size_t n_chars)
{
    size_t n = 0;
    for (size_t i = 0; i < n_chars; i++) {
        const char *c = chars[below(ARRAY_LEN(chars))];
        memcpy(out + n, c, strlen(c));
        n += strlen(c);
    }
    return n;
}

/* Text of words that come again, some of them not UTF-8 when `any_bytes`. */
static size_t random_text(char *out, bool any_bytes)
{
    static char words[24][64];
    size_t len[24], n = 0, wanted = 20 + below(MAX_TEXT - 200);
    for (size_t i = 0; i < 24; i++) {
        len[i] = random_chars(words[i], 1 + below(14));
    }
    while (n < wanted) {
        size_t w = below(24);
        memcpy(out + n, words[w], len[w]);
        n += len[w];
        if (any_bytes && below(6) == 0) {
            out[n++] = (char)(below(2) == 0 ? 0xE4 : 0x80 + below(0x80));
        }
        if (below(3) != 0) {
            out[n++] = " \n,1"[below(4)];
        }
    }
    return n;
}

/* --- byte-level BPE --------------------------------------------------------------------------------------------- */

struct piece {
    char s[MAX_PIECE];
    size_t n;
};
static struct rule {
    struct piece left, right;
} rules[MAX_RULES];
static size_t n_rules;

static bool same_piece(const struct piece *p, const char *s, size_t n) { return p->n == n && memcmp(p->s, s, n) == 0; }

static size_t spell(const char *s, size_t n, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += utf8_encode(byte_alphabet_cp((unsigned char)s[i]), out + len);
    }
    return len;
}

static int32_t id_of(const struct vocab *v, const char *s, size_t n)
{
    char spelt[2 * MAX_TEXT];
    return tokenizer_find(v->t, spelt, spell(s, n, spelt));
}

struct part {
    size_t from, len;
};

/* Symbols of s[0..n) in the order of merging; `without` is dropped. */
static size_t bytes_of(const char *s, size_t n, int without, char *out, struct part *parts)
{
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] != without) {
            out[n_parts] = s[i];
            parts[n_parts] = (struct part){n_parts, 1};
            n_parts++;
        }
    }
    return n_parts;
}

static void unite(struct part *parts, size_t *n_parts, size_t at)
{
    parts[at].len += parts[at + 1].len;
    memmove(&parts[at + 1], &parts[at + 2], (*n_parts - at - 2) * sizeof *parts);
    (*n_parts)--;
}

static size_t rule_of(const char *s, struct part a, struct part b)
{
    for (size_t i = 0; i < n_rules; i++) {
        if (same_piece(&rules[i].left, s + a.from, a.len) && same_piece(&rules[i].right, s + b.from, b.len)) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void add_rule(struct vocab *v, const char *s, struct part a, struct part b)
{
    char merge[8 * MAX_PIECE], joined[8 * MAX_PIECE];
    struct rule *r = &rules[n_rules++];
    memcpy(r->left.s, s + a.from, r->left.n = a.len);
    memcpy(r->right.s, s + b.from, r->right.n = b.len);
    size_t n = spell(s + a.from, a.len, merge);
    merge[n++] = ' ';
    n += spell(s + b.from, b.len, merge + n);
    vocab_add_merge(v, merge, n);
    vocab_add(v, joined, spell(s + a.from, a.len + b.len, joined), TOKEN_NORMAL, 0);
}

/* Merges of neighbours as they come up in random text, so that they nest, and cross the borders of characters. */
static void random_rules(struct vocab *v, int without)
{
    static char text[400], symbols[400];
    static struct part parts[400];
    n_rules = 0;
    for (int tries = 0; n_rules < MAX_RULES && tries < 8; tries++) {
        size_t n_parts = bytes_of(text, random_chars(text, 60), without, symbols, parts);
        for (int i = 0; i < 200 && n_parts > 1 && n_rules < MAX_RULES; i++) {
            size_t at = below(n_parts - 1);
            struct part a = parts[at], b = parts[at + 1];
            if (a.len + b.len > MAX_PIECE || (tries > 0 && below(3) != 0 && rule_of(symbols, a, b) == SIZE_MAX)) {
                continue;
            }
            if (rule_of(symbols, a, b) == SIZE_MAX) {
                add_rule(v, symbols, a, b);
            }
            unite(parts, &n_parts, at);
        }
    }
}

/* Ids of one word, from the definition. */
static void merge_plainly(const struct vocab *v, const char *word, size_t n, int without, struct token_list *out)
{
    static char symbols[MAX_TEXT];
    static struct part parts[MAX_TEXT];
    size_t n_parts = bytes_of(word, n, without, symbols, parts);
    for (;;) {
        size_t best = 0, best_rule = SIZE_MAX;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            size_t rule = rule_of(symbols, parts[i], parts[i + 1]);
            if (rule < best_rule) {
                best = i;
                best_rule = rule;
            }
        }
        if (best_rule == SIZE_MAX) {
            break;
        }
        unite(parts, &n_parts, best);
    }
    for (size_t i = 0; i < n_parts; i++) {
        ck_assert_int_eq(token_list_push(out, id_of(v, symbols + parts[i].from, parts[i].len)), ERR_OK);
    }
}

static void encode_plainly(const struct vocab *v, const char *s, size_t n, int without, struct token_list *out)
{
    const struct pretokenizer *pre = pretokenizer_find(v->pre, strlen(v->pre));
    for (size_t at = 0, len; at < n; at += len) {
        len = pre->next(s + at, n - at);
        int32_t id = (pre->flags & PRE_IGNORES_MERGES) != 0 && len <= 128 ? id_of(v, s + at, len) : TOKENIZER_NO_TOKEN;
        if (id >= 0) {
            ck_assert_int_eq(token_list_push(out, id), ERR_OK);
        } else {
            merge_plainly(v, s + at, len, without, out);
        }
    }
}

static void check_same(const struct vocab *v, const char *s, size_t n, const struct token_list *want)
{
    struct token_list got = {0};
    for (int again = 0; again < 2; again++) { /* the second time more is known of the tokens */
        got.n = 0;
        ck_assert_int_eq(tokenizer_encode(v->t, &(struct tokenizer_text){.s = s, .n = n}, &got, NULL), ERR_OK);
        size_t i = 0;
        while (i < got.n && i < want->n && got.ids[i] == want->ids[i]) {
            i++;
        }
        if (i < got.n || i < want->n) {
            ck_abort_msg("%zu bytes: token %zu of %zu differs (%zu expected)", n, i, got.n, want->n);
        }
    }
    token_list_fini(&got);
}

/* Takes the token of `byte` away. */
static void lose_byte(struct vocab *v, int byte)
{
    char spelt[2], one = (char)byte;
    size_t len = spell(&one, 1, spelt);
    memset((char *)memmem(v->tokens.data, v->tokens.len, spelt, len), '~', len);
}

START_TEST(bpe_gives_what_merging_each_word_gives)
{
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    static const int lost[] = {NO_BYTE, NO_BYTE, 0xB8, 0xAD, 0x9F}; /* bytes without a token: their neighbours meet */
    static char text[MAX_TEXT];
    seed = (uint64_t)_i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct vocab v;
        struct err_info info;
        int without = lost[round % 5];
        vocab_bpe(&v, pres[_i]);
        if (without != NO_BYTE) {
            lose_byte(&v, without);
        }
        random_rules(&v, without);
        ck_assert_msg(vocab_load(&v, &info) == ERR_OK, "%s", info.text);
        for (int i = 0; i < 3; i++) {
            struct token_list want = {0};
            size_t n = random_text(text, without == NO_BYTE && i == 0);
            encode_plainly(&v, text, n, without, &want);
            check_same(&v, text, n, &want);
            token_list_fini(&want);
        }
        vocab_fini(&v);
    }
}
END_TEST

/* --- SPM -------------------------------------------------------------------------------------------------------- */

static float scores[2048];

static size_t parts_of(const char *s, size_t n, struct part *parts)
{
    size_t n_parts = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t len = utf8_decode(s + at, n - at, &cp, NULL);
        parts[n_parts++] = (struct part){at, len};
        at += len;
    }
    return n_parts;
}

static void merge_by_score(const struct vocab *v, const char *s, size_t n, struct token_list *out)
{
    static struct part parts[3 * MAX_TEXT];
    size_t n_parts = parts_of(s, n, parts);
    for (;;) {
        size_t best = SIZE_MAX;
        float best_score = 0;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            int32_t id = tokenizer_find(v->t, s + parts[i].from, parts[i].len + parts[i + 1].len);
            if (id >= 0 && (best == SIZE_MAX || scores[id] > best_score)) {
                best = i;
                best_score = scores[id];
            }
        }
        if (best == SIZE_MAX) {
            break;
        }
        unite(parts, &n_parts, best);
    }
    for (size_t i = 0; i < n_parts; i++) {
        int32_t id = tokenizer_find(v->t, s + parts[i].from, parts[i].len);
        for (size_t k = 0; id < 0 && k < parts[i].len; k++) { /* bytes: tokens 3 to 258 */
            ck_assert_int_eq(token_list_push(out, 3 + (unsigned char)s[parts[i].from + k]), ERR_OK);
        }
        ck_assert_int_eq(id < 0 ? ERR_OK : token_list_push(out, id), ERR_OK);
    }
}

START_TEST(spm_gives_what_merging_the_whole_text_gives)
{
    static char text[MAX_TEXT], spelt[3 * MAX_TEXT], word[64];
    seed = 99;
    for (int round = 0; round < ROUNDS; round++) {
        struct vocab v;
        struct err_info info;
        vocab_spm(&v);
        v.add_space_prefix = 0;
        vocab_add(&v, "\xE2\x96\x81", 3, TOKEN_NORMAL, scores[v.n_tokens] = -50);
        for (size_t i = 0; i < ARRAY_LEN(chars) - 1; i++) { /* the last one falls back to bytes */
            vocab_add(&v, chars[i], strlen(chars[i]), TOKEN_NORMAL, scores[v.n_tokens] = -50);
        }
        for (int i = 0; i < 60; i++) {
            size_t n = below(4) == 0 ? (memcpy(word, "\xE2\x96\x81", 3), 3) : 0;
            n += random_chars(word + n, 1 + below(4));
            vocab_add(&v, word, n, TOKEN_NORMAL, scores[v.n_tokens] = -(float)below(40));
        }
        ck_assert_msg(vocab_load(&v, &info) == ERR_OK, "%s", info.text);
        struct token_list want = {0};
        size_t n = random_text(text, round % 2 == 0) / 4, m = 0;
        for (size_t i = 0; i < n; i++) {
            const char *c = text[i] == ' ' ? "\xE2\x96\x81" : &text[i];
            memcpy(spelt + m, c, text[i] == ' ' ? 3 : 1);
            m += text[i] == ' ' ? 3 : 1;
        }
        merge_by_score(&v, spelt, m, &want);
        check_same(&v, text, n, &want);
        token_list_fini(&want);
        vocab_fini(&v);
    }
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------------------------- */

struct job {
    const struct vocab *v;
    const char *text;
    size_t n;
    struct token_list out;
    enum err err;
};

static void *encode_in_thread(void *arg)
{
    struct job *j = arg;
    j->err = tokenizer_encode(j->v->t, &(struct tokenizer_text){.s = j->text, .n = j->n}, &j->out, NULL);
    return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
    static char text[MAX_TEXT];
    struct vocab v;
    struct err_info info;
    seed = 7;
    vocab_bpe(&v, "gpt-2");
    random_rules(&v, NO_BYTE);
    ck_assert_msg(vocab_load(&v, &info) == ERR_OK, "%s", info.text);
    struct job jobs[N_THREADS] = {0};
    pthread_t threads[N_THREADS];
    size_t n = random_text(text, false);
    for (int i = 0; i < N_THREADS; i++) {
        jobs[i] = (struct job){.v = &v, .text = text, .n = n};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_in_thread, &jobs[i]), 0);
    }
    struct token_list want = {0};
    encode_plainly(&v, text, n, NO_BYTE, &want);
    for (int i = 0; i < N_THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(jobs[i].err, ERR_OK);
        ck_assert_uint_eq(jobs[i].out.n, want.n);
        ck_assert_mem_eq(jobs[i].out.ids, want.ids, want.n * sizeof *want.ids);
        token_list_fini(&jobs[i].out);
    }
    token_list_fini(&want);
    vocab_fini(&v);
}
END_TEST

Suite *tokenizer_words_suite(void)
{
    Suite *s = suite_create("tokenizer_words");
    TCase *c = tcase_create("tokenizer_words");
    tcase_add_loop_test(c, bpe_gives_what_merging_each_word_gives, 0, 4);
    tcase_add_test(c, spm_gives_what_merging_the_whole_text_gives);
    tcase_add_test(c, threads_share_a_tokenizer);
    suite_add_tcase(s, c);
    return s;
}
