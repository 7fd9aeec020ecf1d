/* Vocabularies that must be refused, with the code and the words of the message, and what is tolerated. */
#include "engine/base/compiler.h"
#include "engine/base/mem.h"
#include "engine/tokenizer/tokenizer_internal.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *tokenizer_load_suite(void);

/* --- one change each to a good vocabulary ----------------------------------------------------------------------- */

static void add(struct vocab *v, const char *text, int kind) { vocab_add(v, text, strlen(text), kind, 0); }
static void merge(struct vocab *v, const char *m) { vocab_add_merge(v, m, strlen(m)); }

static void nothing(struct vocab *v) { (void)v; }
static void no_model(struct vocab *v) { v->model = NULL; }
static void other_model(struct vocab *v) { v->model = "rwkv"; }
static void unigram(struct vocab *v) { vocab_fini(v), vocab_plain(v, "t5"); }
static void wordpiece(struct vocab *v) { vocab_fini(v), vocab_plain(v, "bert"); }
static void unigram_no_scores(struct vocab *v) { unigram(v), v->scores_type = GGUF_ARRAY; }
static void spelt_no_merges(struct vocab *v) { v->model = "gemma4"; }

/* A vocabulary without an unknown token, by kind or by id. */
static void no_unknown(struct vocab *v, const char *model)
{
    vocab_fini(v);
    vocab_plain(v, model);
    v->unk = VOCAB_NO_ID;
    v->kinds.data[0] = TOKEN_NORMAL;
}
static void unigram_no_unknown(struct vocab *v) { no_unknown(v, "t5"); }
static void wordpiece_no_unknown(struct vocab *v) { no_unknown(v, "bert"); }

/* n bytes of a map whose trie is to have `trie` bytes, all zero. */
static void charsmap(struct vocab *v, uint32_t trie, size_t n)
{
    unigram(v);
    buf_append(&v->charsmap, &trie, 4);
    for (size_t i = 4; i < n; i++) {
        buf_putc(&v->charsmap, 0);
    }
}
static void charsmap_good(struct vocab *v) { charsmap(v, 1024, 1032); }
static void charsmap_short(struct vocab *v) { unigram(v), buf_puts(&v->charsmap, "abc"); }
static void charsmap_beyond(struct vocab *v) { charsmap(v, 1024, 1028); }
static void charsmap_odd(struct vocab *v) { charsmap(v, 1023, 1032); }
static void charsmap_huge(struct vocab *v) { charsmap(v, 0xFFFFFFFCu, 1032); }
static void charsmap_open(struct vocab *v) { charsmap_good(v), v->charsmap.data[1031] = 'x'; }

/* Units that lead from each byte to itself, and say that a text ends at each: a trie that loops. */
static void charsmap_loop(struct vocab *v)
{
    charsmap(v, 1024, 1032);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t unit = i | 1u << 8;
        memcpy(v->charsmap.data + 4 + 4 * (size_t)i, &unit, 4);
    }
}

static void bad_pattern(struct vocab *v) { v->pre = NULL, v->patterns[0] = "(a"; }
static void odd_pattern(struct vocab *v) { v->pre = NULL, v->patterns[0] = "(?<name>a)"; }
static void good_pattern(struct vocab *v) { v->pre = NULL, v->patterns[0] = "[^\\s&&[^a]]+|\\s+"; }
static void two_patterns(struct vocab *v) { v->pre = NULL, v->patterns[0] = "\\p{N}", v->patterns[1] = "\\S+"; }
static void empty_pattern(struct vocab *v) { v->pre = NULL, v->patterns[0] = ""; }
static void seven_patterns(struct vocab *v)
{
    for (size_t i = 0; i < 7; i++) {
        v->patterns[i] = "a";
    }
}
static void nfkd(struct vocab *v) { v->normal_form = "NFKD"; }
static void other_form(struct vocab *v) { v->normal_form = "NFX"; }
static void spm_form(struct vocab *v) { v->normal_form = "NFC"; }
static void no_tokens(struct vocab *v) { v->tokens_type = GGUF_ARRAY; }
static void more_rows(struct vocab *v) { v->embedding_rows = v->n_tokens + 1; }
static void same_rows(struct vocab *v) { v->embedding_rows = v->n_tokens; }
static void empty_token(struct vocab *v) { add(v, "", TOKEN_NORMAL); }
static void empty_filler(struct vocab *v) { add(v, "", TOKEN_UNUSED); }
static void no_scores(struct vocab *v) { v->scores_type = GGUF_ARRAY; }
static void short_scores(struct vocab *v) { v->scores.len -= 4, v->n_scores--; }
static void bpe_scores(struct vocab *v) { v->scores_type = GGUF_F32; }
static void short_bpe_scores(struct vocab *v) { bpe_scores(v), short_scores(v); }
static void bpe_scores_of_bytes(struct vocab *v) { v->scores_type = GGUF_U8, v->n_scores = v->scores.len; }
static void nan_score(struct vocab *v) { vocab_add(v, "x", 1, TOKEN_NORMAL, nanf("")); }
static void kind_of_nine(struct vocab *v) { add(v, "x", 9); }
static void old_pre(struct vocab *v) { v->pre = NULL; }
static void other_pre(struct vocab *v) { v->pre = "deepseek-v9"; }
static void whitespace_model(struct vocab *v) { v->model = "whitespace"; }
static void bos_beyond(struct vocab *v) { v->bos = (int64_t)v->n_tokens; }
static void eos_negative(struct vocab *v) { v->eos = -1; }
static void unk_beyond(struct vocab *v) { v->unk = 0x7FFFFFFF; }
static void pad_beyond(struct vocab *v) { v->pad = (int64_t)v->n_tokens; }
static void byte_sign(struct vocab *v) { add(v, "<0x-1>", TOKEN_BYTE); }
static void byte_letters(struct vocab *v) { add(v, "<0xGG>", TOKEN_BYTE); }
static void byte_long(struct vocab *v) { add(v, "<0x100>", TOKEN_BYTE); }
static void byte_space(struct vocab *v) { add(v, "<0x 1>", TOKEN_BYTE); }
static void byte_twice(struct vocab *v) { add(v, "<0x41>", TOKEN_BYTE); }
static void no_merges(struct vocab *v) { v->merges_type = GGUF_ARRAY; }
static void merges_of_ints(struct vocab *v) { v->merges_type = GGUF_U64, v->n_merges = v->merges.len / 8; }
static void merge_of_one(struct vocab *v) { merge(v, "ab"); }
static void merge_of_nothing(struct vocab *v) { merge(v, ""); }
static void merge_no_left(struct vocab *v) { merge(v, " b"); }
static void merge_no_right(struct vocab *v) { merge(v, "a "); }
static void merge_of_three(struct vocab *v) { merge(v, "a b b"); }
static void merge_unknown_part(struct vocab *v) { merge(v, "a zz"); }
static void merge_unknown_union(struct vocab *v) { merge(v, "a b"); }
static void merge_with_self(struct vocab *v) { add(v, "aa", TOKEN_NORMAL), merge(v, "a a"); }
static void merge_twice(struct vocab *v) { merge_with_self(v), merge(v, "a a"); }

static void merge_to_control(struct vocab *v)
{
    add(v, "ab", TOKEN_CONTROL);
    merge(v, "a b");
}

static void adds_missing_bos(struct vocab *v)
{
    v->bos = VOCAB_NO_ID;
    v->add_bos = 1;
}

static void bos_by_default_missing(struct vocab *v) { v->bos = VOCAB_NO_ID; }

static void adds_missing_eos(struct vocab *v)
{
    v->eos = VOCAB_NO_ID;
    v->add_eos = 1;
}

static void zero_tokens(struct vocab *v)
{
    v->tokens.len = 0;
    v->n_tokens = 0;
}

static void huge_token(struct vocab *v)
{
    char *s = calloc(1, (64 << 10) + 1);
    memset(s, 'x', (64 << 10) + 1);
    vocab_add(v, s, (64 << 10) + 1, TOKEN_NORMAL, 0);
    free(s);
}

static void longest_token(struct vocab *v)
{
    char *s = calloc(1, 64 << 10);
    memset(s, 'x', 64 << 10);
    vocab_add(v, s, 64 << 10, TOKEN_CONTROL, 0);
    free(s);
}

/* Keeps the bytes of an array but calls them something else: as many elements as fit. */
static void scores_of_bytes(struct vocab *v) { v->scores_type = GGUF_U8, v->n_scores = v->scores.len; }
static void kinds_of_f32(struct vocab *v) { v->kinds_type = GGUF_F32; }

static void scores_of_f64(struct vocab *v)
{
    add(v, "x", TOKEN_NORMAL); /* 260 of 4 bytes are 130 of 8 */
    v->scores_type = GGUF_F64;
    v->n_scores = v->scores.len / 8;
}

static void kinds_of_bytes(struct vocab *v) { v->kinds_type = GGUF_I8, v->n_kinds = v->kinds.len; }

static void long_kinds(struct vocab *v)
{
    buf_append(&v->kinds, "\1\0\0\0", 4);
    v->n_kinds++;
}

static void short_kinds(struct vocab *v) { v->kinds.len -= 4, v->n_kinds--; }

static void long_scores(struct vocab *v)
{
    buf_append(&v->scores, "\0\0\0\0", 4);
    v->n_scores++;
}

static void byte_missing(struct vocab *v) { v->kinds.data[4 * (3 + 255)] = TOKEN_NORMAL; } /* <0xFF> is text */

static void few_byte_tokens(struct vocab *v)
{
    buf_fini(&v->tokens);
    buf_fini(&v->kinds);
    buf_fini(&v->scores);
    v->n_tokens = v->n_kinds = v->n_scores = 0;
    add(v, "<unk>", TOKEN_UNKNOWN);
    add(v, "<s>", TOKEN_CONTROL);
    add(v, "</s>", TOKEN_CONTROL);
    add(v, "<0x0A>", TOKEN_BYTE);
}

/* T rows of the catalogue of bad inputs. `says` must stand in the message. */
static const struct row {
    const char *name;
    bool spm;
    void (*change)(struct vocab *v);
    enum err expected;
    const char *says;
} rows[] = {
    {"a good BPE vocabulary", false, nothing, ERR_OK, ""},
    {"a good SPM vocabulary", true, nothing, ERR_OK, ""},
    {"no model name", false, no_model, ERR_BAD_HPARAM, "tokenizer.json"},
    {"another model", false, other_model, ERR_UNSUPPORTED_TOKENIZER,
     "found 'rwkv', expected one of gpt2, llama, gemma4, t5, bert"},
    {"a good unigram vocabulary", true, unigram, ERR_OK, ""},
    {"a good WordPiece vocabulary", true, wordpiece, ERR_OK, ""},
    {"T01 no tokens key", false, no_tokens, ERR_BAD_HPARAM, "tokenizer.ggml.tokens"},
    {"T01 0 tokens", false, zero_tokens, ERR_BAD_VOCAB, "found 0"},
    {"T01 embedding rows differ", true, more_rows, ERR_BAD_VOCAB, "token_embd.weight"},
    {"T01 embedding rows agree", true, same_rows, ERR_OK, ""},
    {"T02 empty token", false, empty_token, ERR_BAD_VOCAB, "tokens[256]"},
    {"T02 empty filler", true, empty_filler, ERR_OK, ""},
    {"T02 token over 64 KiB", false, huge_token, ERR_BAD_VOCAB, "65537"},
    {"T02 token of 64 KiB", false, longest_token, ERR_OK, ""},
    {"T03 no scores", true, no_scores, ERR_BAD_HPARAM, "tokenizer.ggml.scores"},
    {"T03 short scores", true, short_scores, ERR_BAD_TYPE, "tokenizer.ggml.scores"},
    {"T03 long scores", true, long_scores, ERR_BAD_TYPE, "expected 259"},
    {"T03 scores of u8", true, scores_of_bytes, ERR_BAD_TYPE, "u8"},
    {"T03 scores of f64", true, scores_of_f64, ERR_BAD_TYPE, "f64"},
    {"T03 short scores beside BPE", false, short_bpe_scores, ERR_BAD_TYPE, "expected 256 elements, found 255"},
    {"T03 scores of u8 beside BPE", false, bpe_scores_of_bytes, ERR_BAD_TYPE, "u8"},
    {"T03 scores beside BPE", false, bpe_scores, ERR_OK, ""},
    {"T03 a score that is no number", true, nan_score, ERR_BAD_VOCAB, "scores[259]"},
    {"T03 long token_type", false, long_kinds, ERR_BAD_TYPE, "tokenizer.ggml.token_type"},
    {"T03 short token_type", true, short_kinds, ERR_BAD_TYPE, "tokenizer.ggml.token_type"},
    {"T03 token_type of i8", false, kinds_of_bytes, ERR_BAD_TYPE, "i8"},
    {"T03 token_type of f32", true, kinds_of_f32, ERR_BAD_TYPE, "f32"},
    {"T03 token_type 9", false, kind_of_nine, ERR_BAD_VOCAB, "found 9"},
    {"T04 bos beyond the vocabulary", true, bos_beyond, ERR_BAD_SPECIAL_TOKEN, "bos_token_id"},
    {"T04 eos -1", true, eos_negative, ERR_OK, ""},
    {"T04 unk 2^31-1", false, unk_beyond, ERR_BAD_SPECIAL_TOKEN, "2147483647"},
    {"T04 pad beyond the vocabulary", false, pad_beyond, ERR_BAD_SPECIAL_TOKEN, "padding_token_id"},
    {"T04 add_bos without bos", false, adds_missing_bos, ERR_BAD_SPECIAL_TOKEN, "bos_token_id"},
    {"T04 add_eos without eos", true, adds_missing_eos, ERR_BAD_SPECIAL_TOKEN, "eos_token_id"},
    {"T04 neither bos nor add_bos", true, bos_by_default_missing, ERR_OK, ""},
    {"T05 <0x-1>", true, byte_sign, ERR_BAD_BYTE_TOKEN, "<0x-1>"},
    {"T05 <0xGG>", true, byte_letters, ERR_BAD_BYTE_TOKEN, "<0xGG>"},
    {"T05 <0x100>", true, byte_long, ERR_BAD_BYTE_TOKEN, "<0x100>"},
    {"T05 <0x 1> in BPE", false, byte_space, ERR_BAD_BYTE_TOKEN, "<0x 1>"},
    {"T05 a byte twice", true, byte_twice, ERR_BAD_BYTE_TOKEN, "<0x41>"},
    {"T05 255 byte tokens", true, byte_missing, ERR_BAD_BYTE_TOKEN, "found 255"},
    {"T05 one byte token", true, few_byte_tokens, ERR_BAD_BYTE_TOKEN, "found 1"},
    {"T06 no merges", false, no_merges, ERR_BAD_HPARAM, "tokenizer.ggml.merges"},
    {"T06 merges of u64", false, merges_of_ints, ERR_BAD_TYPE, "u64"},
    {"T06 no space", false, merge_of_one, ERR_BAD_MERGE, "merges[0]"},
    {"T06 empty", false, merge_of_nothing, ERR_BAD_MERGE, "merges[0]"},
    {"T06 no left part", false, merge_no_left, ERR_BAD_MERGE, "' b'"},
    {"T06 no right part", false, merge_no_right, ERR_BAD_MERGE, "'a '"},
    {"T06 three parts", false, merge_of_three, ERR_BAD_MERGE, "'a b b'"},
    {"T06 unknown part", false, merge_unknown_part, ERR_BAD_MERGE, "'a zz'"},
    {"T06 unknown union", false, merge_unknown_union, ERR_BAD_MERGE, "'a b'"},
    {"T06 union is a control token", false, merge_to_control, ERR_BAD_MERGE, "'a b'"},
    {"T06 self-merge", false, merge_with_self, ERR_OK, ""},
    {"T06 a merge twice", false, merge_twice, ERR_OK, ""},
    {"T07 no pre-tokenizer", false, old_pre, ERR_UNSUPPORTED_PRETOKENIZER, "smollm"},
    {"T07 unknown pre-tokenizer", false, other_pre, ERR_UNSUPPORTED_PRETOKENIZER, "'deepseek-v9'"},
    {"T07 unknown pre-tokenizer: all are listed", false, other_pre, ERR_UNSUPPORTED_PRETOKENIZER, "mmbert"},
    {"T07 model whitespace cut otherwise", false, whitespace_model, ERR_UNSUPPORTED_PRETOKENIZER, "found 'gpt-2'"},
    {"T07 a pattern that ends too early", false, bad_pattern, ERR_UNSUPPORTED_PRETOKENIZER, "found '(a'"},
    {"T07 a pattern with what we do not rewrite", false, odd_pattern, ERR_UNSUPPORTED_PRETOKENIZER, "(?<name>a)"},
    {"T07 an empty pattern", false, empty_pattern, ERR_UNSUPPORTED_PRETOKENIZER, "infcgi.tokenizer.pattern"},
    {"T07 seven patterns", false, seven_patterns, ERR_UNSUPPORTED_PRETOKENIZER, "at most 6"},
    {"T07 a pattern", false, good_pattern, ERR_OK, ""},
    {"T07 two patterns", false, two_patterns, ERR_OK, ""},
    {"T07 a normal form", false, nfkd, ERR_OK, ""},
    {"T07 another normal form", false, other_form, ERR_UNSUPPORTED_TOKENIZER, "'NFX'"},
    {"T07 a normal form of SPM", true, spm_form, ERR_UNSUPPORTED_TOKENIZER, "with llama"},
    {"T03 unigram without scores", true, unigram_no_scores, ERR_BAD_HPARAM, "tokenizer.ggml.scores"},
    {"T04 unigram without unk", true, unigram_no_unknown, ERR_BAD_SPECIAL_TOKEN, "unknown_token_id"},
    {"T04 WordPiece without unk", true, wordpiece_no_unknown, ERR_BAD_SPECIAL_TOKEN, "unknown_token_id"},
    {"T06 gemma4 without merges", true, spelt_no_merges, ERR_BAD_HPARAM, "tokenizer.ggml.merges"},
    {"T08 a good charsmap", true, charsmap_good, ERR_OK, ""},
    {"T08 charsmap of 3 bytes", true, charsmap_short, ERR_BAD_CHARSMAP, "precompiled_charsmap"},
    {"T08 charsmap that is all trie", true, charsmap_beyond, ERR_BAD_CHARSMAP, "1024"},
    {"T08 trie of 1023 bytes", true, charsmap_odd, ERR_BAD_CHARSMAP, "1023"},
    {"T08 trie of 4 GB", true, charsmap_huge, ERR_BAD_CHARSMAP, "4294967292"},
    {"T08 texts without a NUL", true, charsmap_open, ERR_BAD_CHARSMAP, "NUL"},
    {"T08 trie that loops", true, charsmap_loop, ERR_BAD_CHARSMAP, "U+00"},
};

static void make(struct vocab *v, const struct row *row)
{
    if (row->spm) {
        vocab_spm(v);
    } else {
        vocab_bpe(v, "gpt-2");
    }
    row->change(v);
}

START_TEST(every_row_gives_its_code)
{
    const struct row *row = &rows[_i];
    struct vocab v;
    struct err_info info = {0};
    size_t live = mem_live_of(MEM_MODEL);
    make(&v, row);
    enum err err = vocab_load(&v, &info);
    ck_assert_msg(err == row->expected, "%s: expected %s, found %s: %s", row->name, err_code(row->expected),
                  err_code(err), info.text);
    ck_assert_int_eq(v.t != NULL, err == ERR_OK);
    ck_assert_msg(err == ERR_OK || (info.code == err && strstr(info.text, "expected") != NULL), "%s: %s", row->name,
                  info.text);
    ck_assert_msg(err == ERR_OK || strstr(info.text, "found") != NULL, "%s: %s", row->name, info.text);
    ck_assert_msg(strstr(info.text, row->says) != NULL, "%s: the message lacks '%s': %s", row->name, row->says,
                  info.text);
    vocab_fini(&v);
    ck_assert_uint_eq(mem_live_of(MEM_MODEL), live);
}
END_TEST

/* Row T04: every role with every id that is none of the vocabulary. */
START_TEST(every_role_refuses_ids_of_no_token)
{
    static const struct {
        const char *key;
        size_t at;
    } roles[] = {{"tokenizer.ggml.bos_token_id", offsetof(struct vocab, bos)},
                 {"tokenizer.ggml.eos_token_id", offsetof(struct vocab, eos)},
                 {"tokenizer.ggml.unknown_token_id", offsetof(struct vocab, unk)},
                 {"tokenizer.ggml.padding_token_id", offsetof(struct vocab, pad)}};
    static const int64_t ids[] = {259, 260, -2, INT32_MAX, INT32_MIN, UINT32_MAX - 1};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        for (size_t k = 0; k < ARRAY_LEN(ids); k++) {
            struct vocab v;
            struct err_info info = {0};
            char says[160];
            vocab_spm(&v);
            memcpy((char *)&v + roles[i].at, &ids[k], sizeof ids[k]);
            enum err err = vocab_load(&v, &info);
            snprintf(says, sizeof says, "%s: expected an id of 0 to 258, found %lld", roles[i].key, (long long)ids[k]);
            ck_assert_msg(err == ERR_BAD_SPECIAL_TOKEN && strcmp(info.text, says) == 0, "%s: %s: %s", says,
                          err_code(err), info.text);
            vocab_fini(&v);
        }
    }
}
END_TEST

/* Files write -1 where there is no such token, also without a sign. */
START_TEST(minus_one_is_no_token)
{
    static const size_t roles[] = {offsetof(struct vocab, bos), offsetof(struct vocab, eos),
                                   offsetof(struct vocab, unk), offsetof(struct vocab, pad)};
    static const int64_t none[] = {VOCAB_NO_ID, -1, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        enum err expected = ERR_OK;
        for (size_t k = 0; k < ARRAY_LEN(none); k++) {
            struct vocab v;
            struct err_info info = {0};
            vocab_spm(&v);
            memcpy((char *)&v + roles[i], &none[k], sizeof none[k]);
            enum err err = vocab_load(&v, &info);
            expected = k == 0 ? err : expected;
            ck_assert_msg(err == expected && (i != ARRAY_LEN(roles) - 1 || err == ERR_OK), "%zu, %lld: %s: %s", i,
                          (long long)none[k], err_code(err), info.text);
            if (err == ERR_OK) {
                ck_assert(roles[i] != offsetof(struct vocab, bos) || tokenizer_bos(v.t) < 0);
                ck_assert(roles[i] != offsetof(struct vocab, eos) || tokenizer_eos(v.t) < 0);
            }
            vocab_fini(&v);
        }
    }
}
END_TEST

START_TEST(the_first_of_duplicate_tokens_is_found)
{
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    add(&v, "xy", TOKEN_NORMAL);
    add(&v, "xy", TOKEN_NORMAL);
    add(&v, "<|x|>", TOKEN_CONTROL);
    add(&v, "<|x|>", TOKEN_CONTROL);
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    ck_assert_int_eq(tokenizer_find(v.t, "xy", 2), 256);
    struct token_list ids = {0};
    ck_assert_int_eq(
        tokenizer_encode(
            v.t, &(struct tokenizer_text){.s = "<|x|>", .n = 5, .flags = TOKENIZE_PARSE_SPECIAL, .max_tokens = 10},
            &ids, NULL),
        ERR_OK);
    ck_assert_uint_eq(ids.n, 1);
    ck_assert_int_eq(ids.ids[0], 258);
    token_list_fini(&ids);
    vocab_fini(&v);
}
END_TEST

START_TEST(too_many_merges_are_refused_before_they_are_read)
{
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    for (v.n_merges = 0; v.n_merges <= TOKENIZER_MAX_MERGES; v.n_merges++) {
        buf_append(&v.merges, "\0\0\0\0\0\0\0", 8); /* empty strings, each bad by itself */
    }
    struct err_info info = {0};
    ck_assert_int_eq(vocab_load(&v, &info), ERR_BAD_MERGE);
    ck_assert_ptr_nonnull(strstr(info.text, "at most"));
    vocab_fini(&v);
}
END_TEST

START_TEST(ends_of_generation_are_known_by_id_and_by_text)
{
    struct vocab v;
    vocab_bpe(&v, "gpt-2");
    add(&v, "<|im_end|>", TOKEN_NORMAL); /* 256: some files forget the kind */
    add(&v, "</s>", TOKEN_USER_DEFINED); /* 257: text in some vocabularies */
    add(&v, "<eos>", TOKEN_CONTROL);
    add(&v, "bye", TOKEN_CONTROL);
    add(&v, "<|im_start|>", TOKEN_CONTROL);
    v.eos = 259;
    ck_assert_int_eq(vocab_load(&v, NULL), ERR_OK);
    static const bool is_eog[] = {true, false, true, true, false};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(tokenizer_is_eog(v.t, 256 + i), is_eog[i]);
    }
    ck_assert(!tokenizer_is_eog(v.t, -1));
    ck_assert(!tokenizer_is_eog(v.t, 261));
    ck_assert_int_eq(tokenizer_kind(v.t, 256), TOKEN_CONTROL);
    ck_assert_int_eq(tokenizer_kind(v.t, 257), TOKEN_USER_DEFINED);
    vocab_fini(&v);
}
END_TEST

START_TEST(loading_survives_every_failed_allocation)
{
    static const char *const kinds[] = {"gpt2", "llama", "pattern", "t5", "bert"};
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
        bool fired = true;
        for (long i = 0; fired && i < 1000; i++) {
            struct vocab v;
            struct tokenizer *t = NULL;
            struct err_info info = {0};
            make(&v, &rows[kind == 1]);
            if (kind == 2) {
                two_patterns(&v);
            } else if (kind > 2) {
                vocab_fini(&v);
                vocab_plain(&v, kinds[kind]);
            }
            add(&v, "<|x|>", TOKEN_CONTROL);
            add(&v, "<tool>", TOKEN_USER_DEFINED);
            ck_assert_int_eq(vocab_load(&v, &info), ERR_OK);
            size_t live = mem_live();
            mem_fail_at(i);
            enum err err = tokenizer_new(v.g, &t, &info);
            fired = mem_fault_fired();
            mem_fail_at(-1);
            bool without_jit = kind == 2 && err == ERR_OK; /* PCRE2 can do without machine code */
            ck_assert_int_eq(err, fired && !without_jit ? ERR_NOMEM : ERR_OK);
            ck_assert_int_eq(t != NULL, err == ERR_OK);
            tokenizer_free(&t);
            ck_assert_uint_eq(mem_live(), live);
            vocab_fini(&v);
        }
        ck_assert(!fired);
    }
}
END_TEST

Suite *tokenizer_load_suite(void)
{
    Suite *s = suite_create("tokenizer_load");
    TCase *c = tcase_create("tokenizer_load");
    tcase_add_loop_test(c, every_row_gives_its_code, 0, (int)ARRAY_LEN(rows));
    tcase_add_test(c, every_role_refuses_ids_of_no_token);
    tcase_add_test(c, minus_one_is_no_token);
    tcase_add_test(c, the_first_of_duplicate_tokens_is_found);
    tcase_add_test(c, too_many_merges_are_refused_before_they_are_read);
    tcase_add_test(c, ends_of_generation_are_known_by_id_and_by_text);
    tcase_add_test(c, loading_survives_every_failed_allocation);
    suite_add_tcase(s, c);
    return s;
}
