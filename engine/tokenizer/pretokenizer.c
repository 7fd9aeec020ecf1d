/* The scanners. A pattern's alternatives are tried in its order at each position, as the regular expression would;
 * every alternative here runs forward only, so a scan is linear. */
#include "engine/tokenizer/pretokenizer.h"

#include "engine/base/compiler.h"
#include "engine/tokenizer/tokenizer_internal.h"
#include "engine/tokenizer/unicode_table.h"

#include <stdint.h>
#include <string.h>

/* A character of the text: code point, class, bytes. bytes 0 means the end of the text. */
struct chr {
    uint32_t cp;
    enum unicode_class class;
    size_t bytes;
};

/* unicode_class_of for ASCII, since most text is. */
enum { O = UNICODE_OTHER, L = UNICODE_LETTER, N = UNICODE_NUMBER, S = UNICODE_SPACE };
static const unsigned char ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* 0x00 */
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O, /* 0x20 */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 0x40 */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 0x60 */
};

static inline struct chr chr_at(const char *s, size_t n, size_t at)
{
    struct chr c = {0};
    if (at < n) {
        c.bytes = tokenizer_chr(s + at, n - at, &c.cp);
        c.class = c.cp < 0x80 ? (enum unicode_class)ascii_class[c.cp] : unicode_class_of(c.cp);
    }
    return c;
}

static inline bool is_newline(struct chr c) { return c.cp == '\r' || c.cp == '\n'; }

/* Neither space, letter nor number, and not the end. */
static inline bool is_symbol(struct chr c) { return c.bytes != 0 && c.class == UNICODE_OTHER; }

/* End of the run of characters of `class` that starts at `at`, at most `max` of them. */
static size_t run_end(const char *s, size_t n, size_t at, enum unicode_class class, size_t max)
{
    for (; max > 0 && at < n; max--) {
        unsigned char lead = (unsigned char)s[at];
        if (lead < 0x80) {
            if (ascii_class[lead] != class) {
                return at;
            }
            at++;
            continue;
        }
        struct chr c = chr_at(s, n, at);
        if (c.class != class) {
            return at;
        }
        at += c.bytes;
    }
    return at;
}

static size_t symbol_end(const char *s, size_t n, size_t at) { return run_end(s, n, at, UNICODE_OTHER, SIZE_MAX); }

/* 's 't 're 've 'm 'll 'd at the start of s; 0 when there is none. */
static size_t contraction(const char *s, size_t n, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (s[0] != '\'') {
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t len = strlen(endings[i]), k = 0;
        while (k < len && 1 + k < n) {
            char c = s[1 + k];
            if (any_case && c >= 'A' && c <= 'Z') {
                c = (char)(c - 'A' + 'a');
            }
            if (c != endings[i][k]) {
                break;
            }
            k++;
        }
        if (k == len) {
            return 1 + len;
        }
    }
    /* U+017F, the long s, is an s to a match in any case [Unicode CaseFolding.txt] */
    return any_case && n >= 3 && memcmp(s + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* \s+(?!\S)|\s+ at s, which starts with a space: all spaces, less the last one when something follows them. */
static size_t spaces(const char *s, size_t n)
{
    size_t at = 0, last = 0;
    for (struct chr c; (c = chr_at(s, n, at)).bytes != 0 && c.class == UNICODE_SPACE; at += c.bytes) {
        last = at;
    }
    return at == n || last == 0 ? at : last;
}

static size_t gpt2_next(const char *s, size_t n)
{
    size_t len = contraction(s, n, false);
    if (len != 0) {
        return len;
    }
    size_t from = s[0] == ' ' ? 1 : 0;
    struct chr c = chr_at(s, n, from);
    if (c.bytes != 0 && (c.class == UNICODE_LETTER || c.class == UNICODE_NUMBER)) {
        return run_end(s, n, from, c.class, SIZE_MAX);
    }
    if (is_symbol(c)) {
        return symbol_end(s, n, from);
    }
    return spaces(s, n);
}

/* Each number character is a word of its own; GPT-2's pattern runs on the text between them as if it were alone. */
static size_t smollm_next(const char *s, size_t n)
{
    struct chr c = chr_at(s, n, 0);
    if (c.class == UNICODE_NUMBER) {
        return c.bytes;
    }
    /* The text up to the next number matters only when it is all spaces: then it is one word. Elsewhere a word ends
     * before a number by itself. */
    size_t from = c.cp == ' ' ? c.bytes : 0;
    if (from != 0 && chr_at(s, n, from).class == UNICODE_NUMBER) {
        return from;
    }
    size_t end = run_end(s, n, 0, UNICODE_SPACE, SIZE_MAX);
    if (end != 0 && chr_at(s, n, end).class == UNICODE_NUMBER) {
        return end;
    }
    return gpt2_next(s, n);
}

/* \s*[\r\n]+ at s, which starts with a space: through the last newline of the run of spaces; 0 when it has none. */
static size_t through_newlines(const char *s, size_t n)
{
    size_t at = 0, end = 0;
    for (struct chr c; (c = chr_at(s, n, at)).bytes != 0 && c.class == UNICODE_SPACE;) {
        at += c.bytes;
        end = is_newline(c) ? at : end;
    }
    return end;
}

/* Llama 3's pattern; numbers come in runs of at most max_digits. */
static size_t llama3_like_next(const char *s, size_t n, size_t max_digits)
{
    size_t len = contraction(s, n, true);
    if (len != 0) {
        return len;
    }
    struct chr c = chr_at(s, n, 0);
    bool may_lead = !is_newline(c) && c.class != UNICODE_LETTER && c.class != UNICODE_NUMBER;
    size_t from = may_lead ? c.bytes : 0;
    if (chr_at(s, n, from).class == UNICODE_LETTER) {
        return run_end(s, n, from, UNICODE_LETTER, SIZE_MAX);
    }
    if (c.class == UNICODE_NUMBER) {
        return run_end(s, n, 0, UNICODE_NUMBER, max_digits);
    }
    from = c.cp == ' ' ? 1 : 0;
    if (is_symbol(chr_at(s, n, from))) {
        size_t at = symbol_end(s, n, from);
        while (at < n && (s[at] == '\r' || s[at] == '\n')) {
            at++;
        }
        return at;
    }
    len = through_newlines(s, n);
    return len != 0 ? len : spaces(s, n);
}

static size_t llama3_next(const char *s, size_t n) { return llama3_like_next(s, n, 3); }
static size_t qwen2_next(const char *s, size_t n) { return llama3_like_next(s, n, 1); }

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Digits first, then GPT-2 between them: one pattern with the same words, since a space run before a number is one
 * word. */
#define SMOLLM_PATTERN "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?=\\p{N})|\\s+(?!\\S)|\\s+"
#define LLAMA3_PATTERN(digits)                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                                         \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Names that llama.cpp b11434 (src/llama-vocab.cpp) gives the same expression and flags have rows of their own. */
static const struct pretokenizer rows[] = {
    {"gpt-2", GPT2_PATTERN, false, false, gpt2_next},
    {"phi-2", GPT2_PATTERN, false, false, gpt2_next},
    {"mpt", GPT2_PATTERN, false, false, gpt2_next},
    {"olmo", GPT2_PATTERN, false, false, gpt2_next},
    {"jais", GPT2_PATTERN, false, false, gpt2_next},
    {"gigachat", GPT2_PATTERN, false, false, gpt2_next},
    {"trillion", GPT2_PATTERN, false, false, gpt2_next},
    {"granite-docling", GPT2_PATTERN, false, false, gpt2_next},
    {"exaone4", GPT2_PATTERN, false, false, gpt2_next},
    {"a.x-4.0", GPT2_PATTERN, false, false, gpt2_next},
    {"mellum", GPT2_PATTERN, false, false, gpt2_next},
    {"smollm", SMOLLM_PATTERN, false, false, smollm_next},
    {"starcoder", SMOLLM_PATTERN, false, false, smollm_next},
    {"refact", SMOLLM_PATTERN, false, false, smollm_next},
    {"command-r", SMOLLM_PATTERN, false, false, smollm_next},
    {"codeshell", SMOLLM_PATTERN, false, false, smollm_next},
    {"exaone", SMOLLM_PATTERN, false, false, smollm_next},
    {"minerva-7b", SMOLLM_PATTERN, false, false, smollm_next},
    {"mellum2", SMOLLM_PATTERN, false, false, smollm_next},
    {"llama-bpe", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"llama3", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"llama-v3", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"falcon3", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"falcon-h1", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"pixtral", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"midm-2.0", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"lfm2", LLAMA3_PATTERN("{1,3}"), true, true, llama3_next},
    {"dbrx", LLAMA3_PATTERN("{1,3}"), false, false, llama3_next},
    {"smaug-bpe", LLAMA3_PATTERN("{1,3}"), false, false, llama3_next},
    {"qwen2", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"deepseek-r1-qwen", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"kormo", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"f2llmv2", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"stablelm2", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"megrez", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"hunyuan", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"solar-open", LLAMA3_PATTERN(""), false, false, qwen2_next},
    {"grok-2", LLAMA3_PATTERN(""), false, false, qwen2_next},
};

const struct pretokenizer *pretokenizer_at(size_t i) { return i < ARRAY_LEN(rows) ? &rows[i] : NULL; }

const struct pretokenizer *pretokenizer_find(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}
