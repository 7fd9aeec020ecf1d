/* The scanners. At each position they try a pattern's alternatives in its order, as the regular expression would. Every
 * alternative here only moves forward, so a scan is linear. */
#include "engine/tokenizer/pretokenizer.h"

#include "engine/base/compiler.h"
#include "engine/tokenizer/tokenizer_internal.h"

/* A character of the text: code point, class, bytes. bytes 0: the end of the text. */
struct chr {
    uint32_t cp;
    enum unicode_class class;
    size_t bytes;
};

static inline struct chr chr_at(const char *s, size_t n, size_t at)
{
    struct chr c = {0};
    if (at < n) {
        c.bytes = tokenizer_chr(s + at, n - at, &c.cp);
        c.class = unicode_class_of(c.cp);
    }
    return c;
}

static inline bool is_newline(struct chr c) { return c.cp == '\r' || c.cp == '\n'; }

/* Returns whether the character is neither space, letter nor number, and not the end. */
static inline bool is_symbol(struct chr c) { return c.bytes != 0 && c.class == UNICODE_OTHER; }

/* Returns the end of the run of characters of `class` that starts at `at`, at most `max` of them. */
static size_t run_end(const char *s, size_t n, size_t at, enum unicode_class class, size_t max)
{
    for (; max > 0 && at < n; max--) {
        unsigned char lead = (unsigned char)s[at];
        if (lead < 0x80) {
            if (unicode_class_of(lead) != class) {
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

/* Returns the length of 's 't 're 've 'm 'll 'd at the start of s, or 0. */
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
    /* U+017F, the long s, matches s if case is ignored [Unicode CaseFolding.txt] */
    return any_case && n >= 3 && memcmp(s + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* Matches \s+(?!\S)|\s+ at s, which starts with a space: all spaces, without the last one if text follows. */
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

/* Each number character is a separate word. GPT-2's pattern applies to the text between them as to a whole text. */
static size_t smollm_next(const char *s, size_t n)
{
    struct chr c = chr_at(s, n, 0);
    if (c.class == UNICODE_NUMBER) {
        return c.bytes;
    }
    /* The text up to the next number matters only if it is all spaces: then it is one word. Other words end before a
     * number anyway. */
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

/* Matches \s*[\r\n]+ at s, which starts with a space: up to the last newline of the run of spaces; 0 if there is
 * none. */
static size_t through_newlines(const char *s, size_t n)
{
    size_t at = 0, end = 0;
    for (struct chr c; (c = chr_at(s, n, at)).bytes != 0 && c.class == UNICODE_SPACE;) {
        at += c.bytes;
        end = is_newline(c) ? at : end;
    }
    return end;
}

/* Scans Llama 3's pattern; runs of digits are split after max_digits. */
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

/* --- the expressions, as the original tokenizers hold them -------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define QWEN2_TAIL   "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_SPACES
#define LLAMA3_PATTERN(digits)                                                                                         \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_SPACES
#define QWEN35_PATTERN                                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_SPACES
/* Runs of newlines, then spaces in powers of two. The look-behind is infcgi's: after a space that began no such run, no
 * other run can begin. Without it each word of a long run of spaces would look to the end of the run. */
#define JAIS2_PATTERN                                                                                                  \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"                          \
                 "(?<![\\t\\v\\f \\u0085\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000])"            \
                 "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"                                      \
                 "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

/* Words are split between a lower-case and an upper-case letter. `no` is excluded from the classes. */
#define CASED(no, suffix)                                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" no "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" no "]+" suffix     \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" no "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" no "]*" suffix
#define CASED_TAIL     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_SPACES
#define TEKKEN_PATTERN CASED("", "") "|\\p{N}" CASED_TAIL
#define GPT4O_PATTERN  CASED("", CONTRACTIONS "?") "|\\p{N}{1,3}" CASED_TAIL
#define YOUTU_PATTERN  CASED("", CONTRACTIONS "?") "|\\p{N}" CASED_TAIL
#define KIMI_PATTERN                                                                                                   \
    "[\\p{Han}]+|" CASED("&&[^\\p{Han}]", CONTRACTIONS "?") "|\\p{N}{1,3}| "                                           \
                                                            "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_SPACES

#define ASCII_SYMBOLS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK_LETTERS                                                                                               \
    "\\s?[A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293\\u0295-"            \
    "\\u02AF\\u0370-\\u0373\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1"           \
    "\\u03A3-\\u03F5\\u03F7-\\u0481\\u048A-\\u052F\\u0531-\\u0556\\u10A0-\\u10C5\\u13A0-\\u13F5\\u13F8-"               \
    "\\u13FD\\u1C90-\\u1CBA\\u1CBD-\\u1CBF\\u1D00-\\u1D2B\\u1D6B-\\u1D77\\u1D79-\\u1D9A\\u1E00-\\u1F15\\u1F18"         \
    "-\\u1F1D\\u1F20-\\u1F45\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B\\u1F5D\\u1F5F-\\u1F7D\\u1F80-\\u1FB4"         \
    "\\u1FB6-\\u1FBC\\u1FBE\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3\\u1FD6-\\u1FDB\\u1FE0-\\u1FEC\\u1FF2"         \
    "-\\u1FF4\\u1FF6-\\u1FFC\\u2102\\u2107\\u210A-\\u2113\\u2115\\u2119-\\u211D\\u2124\\u2126\\u2128\\u212A-"          \
    "\\u212D\\u212F-\\u2134\\u2139\\u213C-\\u213F\\u2145-\\u2149\\u214E\\u2183\\u2184\\u2C00-\\u2C7B\\u2C7E-"          \
    "\\u2CE4\\u2CEB-\\u2CEE\\u2CF2\\u2CF3\\uA640-\\uA66D\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787\\uA78B-"         \
    "\\uA78E\\uAB70-\\uABBF\\uFB00-\\uFB06\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A\\x{10400}-\\x{1044F}"          \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-"                  \
    "\\x{118DF}\\x{1E900}-\\x{1E943}]+"
/* \s+$ of a piece without newlines. The look-behind is infcgi's and limits it to one attempt per run of spaces. */
#define DEEPSEEK_END_SPACES "(?<!\\s)\\s+$"
#define DEEPSEEK_SYMBOLS    "\\s?[!-/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+"
#define DEEPSEEK_CJK        "[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]+"
#define DEEPSEEK3_CJK       "[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+"
#define DEEPSEEK3_PATTERN                                                                                              \
    ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_SPACES
#define SPARK_PATTERN                                                                                                  \
    ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"
#define AFMOE_CJK                                                                                                      \
    "[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u8C48-\\uFAFF\\u3040-\\u309F\\u30A0-\\u30FF\\uFF65-\\uFF9F\\u2F00-"              \
    "\\u2FDF\\u0E40-\\u0E7F\\u0E80-\\u0EFF\\u1780-\\u17FF\\u1000-\\u109F\\uAA60-\\uAA7F\\uA9E0-\\uA9FF\\uAC00"         \
    "-\\uD7AF\\u1100-\\u11FF]+"
#define YOUTU_SCRIPTS                                                                                                  \
    "[\\uAC00-\\uD7A3\\u3131-\\u318E]+|[\\uFF01\\u2026\\u201C\\u201D\\u2018\\u2019\\u2014\\uFF1A\\uFF1B"               \
    "\\uFF0C\\u3001-\\u303F\\uFE30-\\uFE4F]+|[\\u3105-\\u312F]+|[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-"               \
    "\\u30FF]+"
#define BLOOM_PATTERN  " ?[^(\\s|[.,!?\\u2026\\u3002\\uFF0C\\u3001\\u0964\\u06D4\\u060C])]+"
#define FALCON_SYMBOLS "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define BAILING_PATTERN                                                                                                \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"        \
    "\\s+(?!\\S)|\\s+"
#define SEED_PATTERN CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES_SPACES
/* The original repeats its groups without ++ and *+; nothing after them could need a letter back. */
#define EXAONE_MOE_PATTERN                                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"       \
                 "[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define THREES_BEFORE_WORD_END "\\d{1,3}(?=(?:\\d{3})*\\b)"

#define GPT2      {GPT2_PATTERN}, gpt2_next
#define SMOLLM    {"\\p{N}", GPT2_PATTERN}, smollm_next
#define LLAMA3    {LLAMA3_PATTERN("{1,3}")}, llama3_next
#define QWEN2     {LLAMA3_PATTERN("")}, qwen2_next
#define QWEN35    {QWEN35_PATTERN}, NULL
#define GPT4O     {GPT4O_PATTERN}, NULL
#define TINY_AYA  {THREES_BEFORE_WORD_END, GPT4O_PATTERN}, NULL
#define DEEPSEEK3 {"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3_PATTERN}, NULL
#define BLOOM     {BLOOM_PATTERN}, NULL
#define BAILING   {BAILING_PATTERN}, NULL
#define SPELT     {NULL}, NULL
/* Pre-tokenizer Whitespace, \w+|[^\w\s]+, with \w as Rust has it [Unicode Technical Standard 18, Annex C]. */
#define RUST_WORD          "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"
#define WHITESPACE_PATTERN "[" RUST_WORD "]+|[^\\s" RUST_WORD "]+"

/* The names are those of llama.cpp b11434 (src/llama-vocab.cpp). The expressions are those of the models to which its
 * converter (convert_hf_to_gguf_update.py) assigns the names. */
static const struct pretokenizer rows[] = {
    {"gpt-2", GPT2, 0},
    {"phi-2", GPT2, 0},
    {"mpt", GPT2, PRE_NFC},
    {"olmo", GPT2, PRE_NFC},
    {"jais", GPT2, 0},
    {"gigachat", GPT2, 0},
    {"trillion", GPT2, 0},
    {"granite-docling", GPT2, 0},
    {"exaone4", GPT2, 0},
    {"a.x-4.0", GPT2, 0},
    {"mellum", GPT2, 0},
    {"modern-bert", GPT2, 0},
    {"jina-es", GPT2, 0},
    {"jina-de", GPT2, 0},
    {"jina-v2-es", GPT2, 0},
    {"jina-v2-de", GPT2, 0},
    {"jina-v1-en", GPT2, 0},
    {"jina-v2-code", GPT2, 0},
    {"roberta-bpe", GPT2, 0},
    {"smollm", SMOLLM, 0},
    {"starcoder", SMOLLM, 0},
    {"refact", SMOLLM, 0},
    {"codeshell", SMOLLM, 0},
    {"exaone", SMOLLM, 0},
    {"minerva-7b", SMOLLM, 0},
    {"mellum2", SMOLLM, 0},
    {"command-r", SMOLLM, PRE_NFC},
    {"llama-bpe", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"llama3", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"llama-v3", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"falcon3", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"falcon-h1", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"pixtral", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"midm-2.0", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"lfm2", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"jina-v5-nano", LLAMA3, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"dbrx", LLAMA3, 0},
    {"smaug-bpe", LLAMA3, 0},
    {"chatglm-bpe", LLAMA3, 0},
    {"glm4", LLAMA3, PRE_IGNORES_MERGES},
    {"glm5", LLAMA3, PRE_IGNORES_MERGES},
    {"qwen2", QWEN2, PRE_NFC},
    {"f2llmv2", QWEN2, PRE_NFC},
    {"stablelm2", QWEN2, PRE_NFC},
    {"hunyuan", QWEN2, PRE_NFC},
    {"deepseek-r1-qwen", QWEN2, 0},
    {"kormo", QWEN2, 0},
    {"megrez", QWEN2, 0},
    {"solar-open", QWEN2, 0},
    {"grok-2", QWEN2, 0},
    {"qwen35", QWEN35, 0},
    {"ufakzeka", {QWEN2_TAIL}, NULL, 0},
    {"laguna", {"[^\\n]+|[\\n]+", LLAMA3_PATTERN("")}, NULL, 0},
    {"minicpm5", {"\\p{N}{1,3}", LLAMA3_PATTERN("+")}, NULL, PRE_IGNORES_MERGES},
    {"jais-2", {JAIS2_PATTERN}, NULL, 0},
    {"gpt-4o", GPT4O, 0},
    {"llama4", GPT4O, 0},
    {"kanana2", GPT4O, 0},
    {"talkie", GPT4O, 0},
    {"minimax-m2", GPT4O, 0},
    {"granite-embed-multi-97m", GPT4O, PRE_IGNORES_MERGES},
    {"tekken", {TEKKEN_PATTERN}, NULL, PRE_IGNORES_MERGES | PRE_ADDS_BOS},
    {"kimi-k2", {KIMI_PATTERN}, NULL, 0},
    {"tiny_aya", TINY_AYA, 0},
    {"cohere2moe", TINY_AYA, 0},
    {"youtu", {YOUTU_SCRIPTS, YOUTU_PATTERN}, NULL, PRE_IGNORES_MERGES},
    {"deepseek-v3", DEEPSEEK3, 0},
    {"hunyuan-dense", DEEPSEEK3, 0},
    {"joyai-llm", DEEPSEEK3, 0},
    {"hy_v4", DEEPSEEK3, 0},
    {"spark2_5", {"\\p{N}{1,3}", DEEPSEEK3_CJK, SPARK_PATTERN, "\\p{N}"}, NULL, 0},
    {"deepseek-llm",
     {"[\\r\\n]", DEEPSEEK_LETTERS, DEEPSEEK_SYMBOLS, DEEPSEEK_END_SPACES, DEEPSEEK_CJK, "\\p{N}"},
     NULL,
     0},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}, NULL, 0},
    {"afmoe", {"\\p{N}+", "(?=(\\p{N}{3})+(?!\\p{N}))", AFMOE_CJK, DEEPSEEK3_PATTERN}, NULL, 0},
    {"superbpe", {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, NULL, 0},
    {"bloom", BLOOM, 0},
    {"poro-chat", BLOOM, 0},
    {"gpt3-finnish", BLOOM, 0},
    {"viking", {BLOOM_PATTERN, "\\p{N}"}, NULL, 0},
    {"falcon", {FALCON_SYMBOLS, GPT2_PATTERN, "[0-9][0-9][0-9]"}, NULL, 0},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_PATTERN, "\\p{N}+", "[0-9][0-9][0-9]"}, NULL, 0},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2_PATTERN},
     NULL,
     PRE_ADDS_BOS},
    {"bailingmoe", BAILING, 0},
    {"bailingmoe2", BAILING, 0},
    {"llada-moe", BAILING, 0},
    {"seed-coder", {SEED_PATTERN}, NULL, 0},
    {"exaone-moe", {EXAONE_MOE_PATTERN}, NULL, 0},
    {"gemma4", SPELT, PRE_SPELT},
    {"granite-embed-multi-311m", SPELT, PRE_SPELT},
    {"sarvam-moe", SPELT, PRE_SPELT},
    {"mmbert", SPELT, PRE_SPELT | PRE_CUTS_SPACES},
    {"whitespace", {WHITESPACE_PATTERN}, NULL, PRE_SPELT | PRE_DROPS_SPACES},
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

const struct pretokenizer *pretokenizer_of_patterns(const char *const *patterns)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct pretokenizer *p = &rows[i];
        size_t n = 0;
        while (p->patterns[n] != NULL && patterns[n] != NULL && strcmp(p->patterns[n], patterns[n]) == 0) {
            n++;
        }
        if (p->next != NULL && p->patterns[n] == NULL && patterns[n] == NULL) {
            return p;
        }
    }
    return NULL;
}
