/* The model of tokenizer.json: BPE over bytes (gpt2), BPE over characters with U+2581 for spaces (llama), Unigram (t5)
 * and WordPiece (bert), with their keys. */
#include "engine/format/tokenizer_json_internal.h"

#include "engine/base/utf8.h"
#include "engine/format/byte_alphabet.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_MERGES = 1 << 23 }; /* as in tokenizer_new */

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */

static void put_str(struct tokenizer_reader *r, const char *key, const char *s)
{
    gguf_build_str(r->b, key, s, strlen(s));
}

/* Rejects rules that this kind of model cannot have. */
static enum err allow_rules(const struct tokenizer_reader *r, uint32_t allowed, const char *model)
{
    char expected[64];
    for (int i = 0; i < RULE_COUNT; i++) {
        if (tokenizer_rules_has(&r->rules, i) && (allowed >> i & 1) == 0) {
            snprintf(expected, sizeof expected, "no such step with %s", model);
            return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, r->rules.where[i], expected, NULL);
        }
    }
    return ERR_OK;
}

/* --- merges ------------------------------------------------------------------------------------------------------- */

struct merge_parts {
    const char *a, *b;
    size_t n_a, n_b;
};

/* Reads "a b", or ["a", "b"]. */
static bool merge_of(const json_t *v, struct merge_parts *m)
{
    const char *s = json_string_value(v);
    if (s != NULL) {
        size_t n = json_string_length(v);
        const char *space = memchr(s, ' ', n);
        if (space == NULL || memchr(space + 1, ' ', (size_t)(s + n - space) - 1) != NULL) {
            return false;
        }
        *m = (struct merge_parts){
            .a = s, .n_a = (size_t)(space - s), .b = space + 1, .n_b = n - (size_t)(space - s) - 1};
    } else {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        if (json_array_size(v) != 2 || !json_is_string(a) || !json_is_string(b)) {
            return false;
        }
        *m = (struct merge_parts){.a = json_string_value(a),
                                  .n_a = json_string_length(a),
                                  .b = json_string_value(b),
                                  .n_b = json_string_length(b)};
    }
    return m->n_a > 0 && m->n_b > 0 && m->n_a + m->n_b <= TOKENIZER_VOCAB_MAX_TOKEN_BYTES;
}

/* State while merges are read into ids[3 * n]. */
struct merges {
    uint32_t *ids;
    size_t n;
    char *scratch; /* [TOKENIZER_VOCAB_MAX_TOKEN_BYTES] */
};

static enum err bad_merge(const struct tokenizer_reader *r, size_t i, const char *expected)
{
    char where[48];
    snprintf(where, sizeof where, "model.merges[%zu]", i);
    return tokenizer_json_bad(r, ERR_BAD_MERGE, where, expected,
                              json_array_get(json_object_get(r->model, "merges"), i));
}

static enum err read_merge(const struct tokenizer_reader *r, const json_t *v, size_t i, struct merges *all)
{
    struct merge_parts m;
    uint32_t *id = all->ids + 3 * i;
    bool is_good = merge_of(v, &m);
    if (is_good) {
        memcpy(all->scratch, m.a, m.n_a);
        memcpy(all->scratch + m.n_a, m.b, m.n_b);
        id[0] = tokenizer_vocab_find(&r->vocab, m.a, m.n_a);
        id[1] = tokenizer_vocab_find(&r->vocab, m.b, m.n_b);
        id[2] = tokenizer_vocab_find(&r->vocab, all->scratch, m.n_a + m.n_b);
        is_good = id[0] != TOKENIZER_VOCAB_NONE && id[1] != TOKENIZER_VOCAB_NONE && id[2] != TOKENIZER_VOCAB_NONE;
    }
    return is_good ? ERR_OK : bad_merge(r, i, "two tokens whose union is one");
}

static enum err read_merges(const struct tokenizer_reader *r, struct merges *all)
{
    const json_t *list = json_object_get(r->model, "merges");
    all->n = json_array_size(list);
    if (!json_is_array(list) || all->n > MAX_MERGES) {
        char expected[48];
        snprintf(expected, sizeof expected, "an array of at most %d", MAX_MERGES);
        return tokenizer_json_bad(r, ERR_BAD_MERGE, "model.merges", expected, list);
    }
    all->ids = mem_alloc((3 * all->n + 1) * sizeof *all->ids, MEM_GENERAL);
    all->scratch = mem_alloc(TOKENIZER_VOCAB_MAX_TOKEN_BYTES, MEM_GENERAL);
    TRY_MEM_FOR(all->ids != NULL && all->scratch != NULL, r->info, "out of memory for the vocabulary");
    for (size_t i = 0; i < all->n; i++) {
        TRY(read_merge(r, json_array_get(list, i), i, all));
    }
    return ERR_OK;
}

/* Writes gpt2's form: "a b". Texts of byte-level tokens contain no space. */
static void write_merge_texts(struct tokenizer_reader *r, const struct merges *all)
{
    const struct vocab_token *t = r->vocab.tokens;
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->n; i++) {
        bytes += (uint64_t)t[all->ids[3 * i]].len + 1 + t[all->ids[3 * i + 1]].len;
    }
    unsigned char *cursor = gguf_build_strs(r->b, "tokenizer.ggml.merges", all->n, bytes);
    for (size_t i = 0; i < all->n && cursor != NULL; i++) {
        const struct vocab_token *a = &t[all->ids[3 * i]], *b = &t[all->ids[3 * i + 1]];
        uint64_t n = (uint64_t)a->len + 1 + b->len;
        memcpy(cursor, &n, sizeof n);
        memcpy(cursor + 8, a->text, a->len);
        cursor[8 + a->len] = ' ';
        memcpy(cursor + 8 + a->len + 1, b->text, b->len);
        cursor += 8 + n;
    }
}

/* --- BPE ---------------------------------------------------------------------------------------------------------- */

/* Checks settings that no known vocabulary needs. */
static enum err check_bpe(const struct tokenizer_reader *r)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    char where[48];
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
        const json_t *v = json_read_get(r->model, affixes[i]);
        if (v != NULL && json_string_length(v) != 0) {
            snprintf(where, sizeof where, "model.%s", affixes[i]);
            return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, where, "none", v);
        }
    }
    const json_t *dropout = json_read_get(r->model, "dropout");
    return dropout == NULL || json_number_value(dropout) == 0
               ? ERR_OK
               : tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.dropout", "none", dropout);
}

/* Records the unknown token; TOKENIZER_VOCAB_NONE: there is none. */
static enum err read_unknown(struct tokenizer_reader *r, uint32_t *out)
{
    const json_t *v = json_read_get(r->model, "unk_token");
    *out = TOKENIZER_VOCAB_NONE;
    if (v == NULL) {
        return ERR_OK;
    }
    *out = json_is_string(v) ? tokenizer_vocab_find(&r->vocab, json_string_value(v), json_string_length(v)) : *out;
    return *out != TOKENIZER_VOCAB_NONE ? ERR_OK
                                        : tokenizer_json_bad(r, ERR_BAD_SPECIAL_TOKEN, "model.unk_token", "a token", v);
}

/* Expressions that have a name in engine/tokenizer and other programs [names: llama.cpp b11434,
 * src/llama-vocab.cpp]. */
struct known_pattern {
    const char *name;
    unsigned flags;
    const char *patterns[3]; /* NULL ends the list */
};
enum {
    KNOWN_IGNORES_MERGES = 1, /* settings of the models with this name */
    KNOWN_NFC = 2,
    KNOWN_EXACT = 4, /* infcgi's scanner of this name equals exactly this pattern */
};
#define GPT4_PATTERN(digits)                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                                         \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct known_pattern known_patterns[] = {
    {"gpt-2", KNOWN_EXACT, {TOKENIZER_JSON_GPT2}},
    {"olmo", KNOWN_NFC | KNOWN_EXACT, {TOKENIZER_JSON_GPT2}},
    {"smollm", KNOWN_EXACT, {"\\p{N}", TOKENIZER_JSON_GPT2}},
    {"command-r", KNOWN_NFC | KNOWN_EXACT, {"\\p{N}", TOKENIZER_JSON_GPT2}},
    {"llama-bpe", KNOWN_IGNORES_MERGES | KNOWN_EXACT, {GPT4_PATTERN("{1,3}")}},
    {"dbrx", KNOWN_EXACT, {GPT4_PATTERN("{1,3}")}},
    {"qwen2", KNOWN_NFC | KNOWN_EXACT, {GPT4_PATTERN("")}},
    {"deepseek-r1-qwen", KNOWN_EXACT, {GPT4_PATTERN("")}},
    {"qwen35",
     KNOWN_NFC,
     {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"deepseek-v3",
     0,
     {"\\p{N}{1,3}", "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"gpt-4o",
     0,
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'"
      "ll|'d)?|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
      "ll|'d)?|"
      "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"tekken",
     KNOWN_IGNORES_MERGES,
     {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
      "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};

static const struct known_pattern *find_known(const struct tokenizer_rules *rules, unsigned settings)
{
    const struct known_pattern *best = NULL;
    for (size_t i = 0; i < ARRAY_LEN(known_patterns); i++) {
        const struct known_pattern *k = &known_patterns[i];
        size_t n = 0;
        while (n < rules->n_patterns && n < ARRAY_LEN(k->patterns) && k->patterns[n] != NULL &&
               strcmp(k->patterns[n], rules->patterns[n]) == 0) {
            n++;
        }
        bool is_all = n == rules->n_patterns && (n == ARRAY_LEN(k->patterns) || k->patterns[n] == NULL);
        best = is_all && best == NULL ? k : best; /* for programs that read no other key */
        if (is_all && (k->flags & ~(unsigned)KNOWN_EXACT) == settings) {
            return k;
        }
    }
    return best;
}

/* Writes one pattern as a string, several as an array. Without patterns the text is one word. */
static void write_patterns(struct tokenizer_reader *r)
{
    const struct tokenizer_rules *rules = &r->rules;
    uint64_t bytes = 0;
    for (size_t i = 0; i < rules->n_patterns; i++) {
        bytes += strlen(rules->patterns[i]);
    }
    if (rules->n_patterns == 1) {
        put_str(r, "infcgi.tokenizer.pattern", rules->patterns[0]);
        return;
    }
    unsigned char *cursor = gguf_build_strs(r->b, "infcgi.tokenizer.pattern", rules->n_patterns, bytes);
    for (size_t i = 0; i < rules->n_patterns; i++) {
        gguf_build_put_str(&cursor, rules->patterns[i], strlen(rules->patterns[i]));
    }
}

/* A UTF-8 byte without a token would become the unknown token, which the encoder omits. */
static enum err check_alphabet(const struct tokenizer_reader *r, uint32_t unknown)
{
    for (int b = 0; b < 256 && unknown != TOKENIZER_VOCAB_NONE; b++) {
        char s[4];
        size_t n = utf8_encode(byte_alphabet_cp((unsigned char)b), s);
        bool is_of_text = b != 0xC0 && b != 0xC1 && b < 0xF5;
        if (is_of_text && tokenizer_vocab_find(&r->vocab, s, n) == TOKENIZER_VOCAB_NONE) {
            return err_set(r->info, ERR_BAD_BYTE_TOKEN, "model.vocab",
                           "%s: model.vocab: expected a token for each byte and unk_token, found none for 0x%02X",
                           r->file, (unsigned)b);
        }
    }
    return ERR_OK;
}

static enum err write_byte_bpe(struct tokenizer_reader *r, const struct merges *all)
{
    bool ignores_merges = false;
    uint32_t unknown;
    TRY(allow_rules(r, 1u << RULE_NORMAL_FORM | 1u << RULE_BYTE_LEVEL | 1u << RULE_PATTERN, "byte-level BPE"));
    TRY(tokenizer_json_bool(r, r->model, "model", "ignore_merges", &ignores_merges));
    TRY(read_unknown(r, &unknown));
    TRY(check_alphabet(r, unknown));
    put_str(r, "tokenizer.ggml.model", "gpt2");
    unsigned settings = (ignores_merges ? KNOWN_IGNORES_MERGES : 0u) | (r->rules.normal_form != NULL ? KNOWN_NFC : 0u);
    const struct known_pattern *known = find_known(&r->rules, settings);
    if (known != NULL) {
        put_str(r, "tokenizer.ggml.pre", known->name);
    }
    if (known == NULL || (known->flags & KNOWN_EXACT) == 0) {
        write_patterns(r);
    }
    if (r->rules.normal_form != NULL) {
        put_str(r, "infcgi.tokenizer.normal_form", r->rules.normal_form);
    }
    gguf_build_bool(r->b, "infcgi.tokenizer.ignore_merges", ignores_merges);
    write_merge_texts(r, all);
    tokenizer_vocab_write(&r->vocab, r->n_rows, false, r->b);
    return ERR_OK;
}

static enum err write_space_prefix(struct tokenizer_reader *r)
{
    const struct tokenizer_rules *rules = &r->rules;
    bool is_metaspace = tokenizer_rules_has(rules, RULE_METASPACE), prepends = tokenizer_rules_has(rules, RULE_PREPEND);
    bool is_first = is_metaspace && strcmp(rules->prepend, "first") == 0;
    bool is_always = is_metaspace && strcmp(rules->prepend, "always") == 0;
    if (prepends && (is_first || is_always)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, rules->where[RULE_METASPACE],
                                  "prepend_scheme never with Prepend", NULL);
    }
    gguf_build_bool(r->b, "tokenizer.ggml.add_space_prefix", prepends || is_first || is_always);
    if (is_metaspace && rules->metaspace_splits) {
        gguf_build_bool(r->b, "infcgi.tokenizer.cuts_spaces", true);
    }
    if (is_first || is_always) {
        put_str(r, "infcgi.tokenizer.space_prefix", is_first ? "first" : "missing");
    }
    return ERR_OK;
}

static void write_unknown(struct tokenizer_reader *r, uint32_t unknown)
{
    if (unknown != TOKENIZER_VOCAB_NONE) {
        gguf_build_u32(r->b, "tokenizer.ggml.unknown_token_id", unknown);
        r->has_unknown_key = true;
        r->vocab.tokens[unknown].kind = TOKEN_UNKNOWN;
    }
}

/* Writes scores for programs that merge by them: minus the index of the first rule that yields the token, so both
 * orders are equal. */
static void set_scores(struct tokenizer_reader *r, const struct merges *all)
{
    for (uint32_t id = 0; id < r->vocab.n; id++) {
        r->vocab.tokens[id].score = -(float)all->n;
    }
    for (size_t i = all->n; i-- > 0;) {
        r->vocab.tokens[all->ids[3 * i + 2]].score = -(float)i;
    }
}

/* Byte tokens are for characters without a token; they never merge. */
static enum err check_bytes(const struct tokenizer_reader *r, const struct merges *all)
{
    for (size_t i = 0; i < 3 * all->n; i++) {
        enum token_kind kind = r->vocab.tokens[all->ids[i]].kind;
        if (kind != TOKEN_NORMAL && kind != TOKEN_USER_DEFINED) {
            return bad_merge(r, i / 3, "tokens of text");
        }
    }
    return ERR_OK;
}

static enum err write_character_bpe(struct tokenizer_reader *r, const struct merges *all)
{
    bool has_bytes = false, fuses = false, ignores_merges = false;
    uint32_t unknown;
    TRY(allow_rules(r, 1u << RULE_PREPEND | 1u << RULE_ESCAPE | 1u << RULE_METASPACE, "BPE over characters"));
    if (!tokenizer_rules_has(&r->rules, RULE_ESCAPE) && !tokenizer_rules_has(&r->rules, RULE_METASPACE)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, "pre_tokenizer",
                                  "ByteLevel, Metaspace, or a Replace of ' ' by U+2581",
                                  json_object_get(json_read_get(r->root, "pre_tokenizer"), "type"));
    }
    TRY(tokenizer_json_bool(r, r->model, "model", "byte_fallback", &has_bytes));
    TRY(tokenizer_json_bool(r, r->model, "model", "fuse_unk", &fuses));
    TRY(tokenizer_json_bool(r, r->model, "model", "ignore_merges", &ignores_merges));
    TRY(read_unknown(r, &unknown));
    if (ignores_merges) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.ignore_merges", "false", json_true());
    }
    if (fuses && !has_bytes && unknown != TOKENIZER_VOCAB_NONE) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.fuse_unk", "false, or byte_fallback",
                                  json_true());
    }
    if (has_bytes) {
        tokenizer_vocab_mark_bytes(&r->vocab);
    }
    TRY(check_bytes(r, all));
    put_str(r, "tokenizer.ggml.model", "llama");
    put_str(r, "tokenizer.ggml.pre", "default");
    TRY(write_space_prefix(r));
    write_unknown(r, unknown);
    set_scores(r, all);
    gguf_build_array(r->b, "infcgi.tokenizer.merge_ids", GGUF_U32, 3 * all->n, all->ids);
    tokenizer_vocab_write(&r->vocab, r->n_rows, true, r->b);
    return ERR_OK;
}

static enum err read_bpe(struct tokenizer_reader *r)
{
    struct merges all = {0};
    TRY(check_bpe(r));
    TRY(tokenizer_json_vocab(r, false));
    enum err err = read_merges(r, &all);
    if (err == ERR_OK) {
        err = (tokenizer_rules_has(&r->rules, RULE_BYTE_LEVEL) ? write_byte_bpe : write_character_bpe)(r, &all);
    }
    mem_free(all.ids);
    mem_free(all.scratch);
    return err;
}

/* --- Unigram ------------------------------------------------------------------------------------------------------ */

/* Writes the map of characters, base64 [RFC 4648] in the file. */
static enum err write_charsmap(struct tokenizer_reader *r)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *s = json_string_value(r->rules.charsmap);
    size_t n = json_string_length(r->rules.charsmap), n_out = 0;
    unsigned char *out = mem_alloc(n / 4 * 3 + 3, MEM_GENERAL);
    TRY_MEM_FOR(out != NULL, r->info, "out of memory for the vocabulary");
    while (n > 0 && s[n - 1] == '=') {
        n--;
    }
    uint32_t bits = 0;
    bool is_good = n % 4 != 1;
    for (size_t i = 0; i < n && is_good; i++) {
        const char *digit = memchr(digits, s[i], sizeof digits - 1);
        is_good = digit != NULL;
        bits = bits << 6 | (is_good ? (uint32_t)(digit - digits) : 0u);
        if (i % 4 != 0) {
            out[n_out++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
        }
    }
    if (is_good) {
        gguf_build_array(r->b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n_out, out);
    }
    mem_free(out);
    return is_good ? ERR_OK
                   : tokenizer_json_bad(r, ERR_BAD_VOCAB, r->rules.where[RULE_CHARSMAP],
                                        "precompiled_charsmap to be base64", NULL);
}

static enum err check_unigram_rules(const struct tokenizer_reader *r)
{
    const struct tokenizer_rules *rules = &r->rules;
    TRY(allow_rules(r,
                    1u << RULE_CHARSMAP | 1u << RULE_COLLAPSE | 1u << RULE_STRIP_RIGHT | 1u << RULE_METASPACE |
                        1u << RULE_WHITESPACE_SPLIT,
                    "Unigram"));
    bool splits = tokenizer_rules_has(rules, RULE_WHITESPACE_SPLIT);
    bool trims = tokenizer_rules_has(rules, RULE_COLLAPSE) && tokenizer_rules_has(rules, RULE_STRIP_RIGHT);
    if (!tokenizer_rules_has(rules, RULE_METASPACE)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, "pre_tokenizer", "Metaspace with Unigram",
                                  json_object_get(json_read_get(r->root, "pre_tokenizer"), "type"));
    }
    if (!splits && !trims) { /* SentencePiece does both or neither, and no known vocabulary does neither */
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, "normalizer",
                                  "WhitespaceSplit, or Strip and a Replace of runs of spaces", NULL);
    }
    if (splits && !tokenizer_rules_has(rules, RULE_CHARSMAP)) { /* the map turns all white space into spaces */
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, rules->where[RULE_WHITESPACE_SPLIT],
                                  "Precompiled before WhitespaceSplit", NULL);
    }
    return ERR_OK;
}

static enum err read_unigram(struct tokenizer_reader *r)
{
    bool has_bytes = false;
    TRY(check_unigram_rules(r));
    TRY(tokenizer_json_vocab(r, true));
    TRY(tokenizer_json_bool(r, r->model, "model", "byte_fallback", &has_bytes));
    const json_t *unknown = json_read_get(r->model, "unk_id");
    json_int_t id = json_is_integer(unknown) ? json_integer_value(unknown) : -1;
    if (id < 0 || id >= (json_int_t)r->vocab.n) {
        return tokenizer_json_bad(r, ERR_BAD_SPECIAL_TOKEN, "model.unk_id", "an id of the vocabulary", unknown);
    }
    if (has_bytes) {
        tokenizer_vocab_mark_bytes(&r->vocab);
    }
    put_str(r, "tokenizer.ggml.model", "t5");
    put_str(r, "tokenizer.ggml.pre", "default");
    if (r->rules.charsmap != NULL) {
        TRY(write_charsmap(r));
    }
    gguf_build_bool(r->b, "tokenizer.ggml.remove_extra_whitespaces", true);
    gguf_build_bool(r->b, "tokenizer.ggml.add_space_prefix", strcmp(r->rules.prepend, "never") != 0);
    write_unknown(r, (uint32_t)id);
    tokenizer_vocab_write(&r->vocab, r->n_rows, true, r->b);
    return ERR_OK;
}

/* --- WordPiece ---------------------------------------------------------------------------------------------------- */

/* Converts pieces to GGUF's spelling: removes ## before pieces within a word, and adds U+2581 before pieces that begin
 * one. */
static enum err spell_pieces(struct tokenizer_reader *r)
{
    for (uint32_t id = 0; id < r->vocab.n; id++) {
        struct vocab_token *t = &r->vocab.tokens[id];
        if (t->kind != TOKEN_NORMAL) {
            continue;
        }
        if (t->len > 2 && t->text[0] == '#' && t->text[1] == '#') {
            t->text += 2;
            t->len -= 2;
            continue;
        }
        char *text = arena_alloc(&r->b->arena, (size_t)t->len + sizeof space_mark);
        TRY_MEM_FOR(text != NULL, r->info, "out of memory for the vocabulary");
        memcpy(text, space_mark, 3);
        memcpy(text + 3, t->text, t->len);
        text[t->len + 3] = '\0';
        t->text = text;
        t->len += 3;
    }
    return ERR_OK;
}

static enum err read_word_piece(struct tokenizer_reader *r)
{
    uint32_t unknown;
    const json_t *prefix = json_read_get(r->model, "continuing_subword_prefix");
    const json_t *longest = json_read_get(r->model, "max_input_chars_per_word");
    const uint32_t both = 1u << RULE_BERT_NORMALIZER | 1u << RULE_BERT_PRETOKENIZER;
    TRY(allow_rules(r, both, "WordPiece"));
    if (r->rules.used != both) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_PRETOKENIZER, "pre_tokenizer",
                                  "BertNormalizer and BertPreTokenizer with WordPiece", NULL);
    }
    if (prefix != NULL && (!json_is_string(prefix) || strcmp(json_string_value(prefix), "##") != 0)) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.continuing_subword_prefix", "##", prefix);
    }
    if (longest != NULL && json_integer_value(longest) != 100) {
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.max_input_chars_per_word", "100", longest);
    }
    TRY(tokenizer_json_vocab(r, false));
    TRY(read_unknown(r, &unknown));
    put_str(r, "tokenizer.ggml.model", "bert");
    put_str(r, "tokenizer.ggml.pre", "default");
    gguf_build_bool(r->b, "tokenizer.ggml.normalizer.lowercase", r->rules.lowercase);
    gguf_build_bool(r->b, "tokenizer.ggml.normalizer.strip_accents", r->rules.strips_accents);
    write_unknown(r, unknown);
    TRY(spell_pieces(r));
    tokenizer_vocab_write(&r->vocab, r->n_rows, false, r->b);
    return ERR_OK;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

enum err tokenizer_json_model(struct tokenizer_reader *r)
{
    static const struct {
        const char *type;
        enum err (*read)(struct tokenizer_reader *r);
    } rows[] = {{"BPE", read_bpe}, {"Unigram", read_unigram}, {"WordPiece", read_word_piece}};
    r->model = json_read_get(r->root, "model");
    const json_t *type = json_object_get(r->model, "type");
    /* Old files lack the type: only BPE has merges. */
    const char *name = type == NULL && json_object_get(r->model, "merges") != NULL ? "BPE" : json_string_value(type);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (name != NULL && strcmp(name, rows[i].type) == 0) {
            TRY(rows[i].read(r));
            return tokenizer_json_switches(r);
        }
    }
    return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "model.type", "BPE, Unigram or WordPiece",
                              type != NULL ? type : r->model);
}
