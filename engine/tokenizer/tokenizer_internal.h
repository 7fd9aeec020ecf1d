/* Declarations shared by the files of the tokenizer. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H
#define INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H

#include "engine/base/table.h"
#include "engine/base/utf8.h"
#include "engine/format/byte_alphabet.h"
#include "engine/tokenizer/budget.h"
#include "engine/tokenizer/charsmap.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/splitter.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/unicode_table.h"

#include <string.h>

enum {
    TOKENIZER_MAX_VOCAB = 1 << 22,
    TOKENIZER_MAX_TOKEN_BYTES = 64 << 10,
    TOKENIZER_MAX_MERGES = 1 << 23,
    TOKENIZER_MAX_SPECIAL_BYTES = 64 << 20, /* texts of all special tokens */
    TOKENIZER_MAX_BYTES = 1 << 30,          /* texts of all tokens */
};

#define SPM_SPACE "\xE2\x96\x81" /* U+2581, which represents a space in SentencePiece vocabularies */
enum { SPM_SPACE_BYTES = sizeof SPM_SPACE - 1 };

/* The merge of two adjacent tokens. */
struct merge {
    int32_t left, right; /* left < 0: empty slot */
    uint32_t key;        /* lower merges first; NO_KEY: never */
    int32_t result;
};

/* A set of tokens to find in text; zero-initialize it. The root is node 0. */
struct special_node {
    uint32_t parent, fail;
    uint32_t depth;
    int32_t id; /* longest token that a text leading here starts with, or -1 */
    unsigned char byte;
};
struct special_set {
    struct special_node *nodes; /* [n_nodes] */
    uint32_t n_nodes;           /* 0: no tokens */
    struct table edges;         /* of nodes by parent and byte */
    uint32_t from_root[256];
};

/* Rule for SPM's leading space. */
enum space_prefix {
    SPACE_PREFIX_ALWAYS,  /* before each part between special tokens */
    SPACE_PREFIX_MISSING, /* likewise, unless the part begins with one */
    SPACE_PREFIX_FIRST,   /* before the text, unless it begins with one */
};

enum { BYTE_ALPHABET_END = 256 + 68 }; /* code points of the byte alphabet are below */

/* A token as words are compared with it, stored contiguously because a vocabulary is larger than the caches. */
struct word {
    int32_t id;
    uint32_t key; /* SPM: order of merges, lower first. NO_KEY: plain text never yields it, as with control tokens */
    uint32_t len;
    /* Whether the token's text, as a word, becomes that token. Found out on use; all threads would write the same
     * value. */
    _Atomic uint32_t stands; /* enum word_stands */
    char bytes[];            /* [len] the bytes that it represents; SPM: its text, with U+2581 for spaces */
};
enum word_stands { STANDS_UNKNOWN, STANDS_ALONE, STANDS_NOT };

/* The tables of tokenizer_words.c. */
struct words {
    struct word_slot *slots; /* [mask + 1] */
    uint32_t mask;
    struct table odd;                   /* BPE: ids by text, for texts outside the byte alphabet or very long ones */
    int16_t byte_of[BYTE_ALPHABET_END]; /* byte that a code point of the byte alphabet represents, or -1 */
    unsigned char *pool;                /* words at multiples of WORD_ALIGN, by id; the first is not used */
    bool has_twins;                     /* tokens share bytes: lookups do not find all words of the pool */
    /* Characters that are adjacent inside a token. ascii: exact, bit b of a's row. pairs: bits by a hash of both code
     * points, with false positives. */
    uint32_t ascii[128][4];
    uint64_t *pairs; /* [2^(64 - pairs_shift) / 64] */
    int pairs_shift;
    /* BPE: the last byte of a character and the first byte of the next, bits as in ascii, if a token contains only part
     * of one of them. */
    uint32_t cut_bytes[256][8];
};
struct word_slot {
    uint32_t tag;
    uint32_t at; /* in pool, in units of WORD_ALIGN; 0: empty */
};
enum { WORD_ALIGN = 8 };

/* A token's text as an offset, not a pointer, because there are up to a quarter of a million. */
struct token_text {
    uint32_t at, len;
};

/* The algorithm of a vocabulary. */
enum tokenizer_method {
    METHOD_MERGES,    /* merges: of bytes, or of characters (is_spm) by rank or by score */
    METHOD_UNIGRAM,   /* the most likely split of a word, tokenizer_unigram.c */
    METHOD_WORDPIECE, /* the longest pieces from the left, tokenizer_wordpiece.c */
};

/* Tokens of a unigram model as a trie: a node's children are consecutive, sorted by byte. */
struct trie_node {
    uint32_t children;
    int32_t id; /* of the token that ends here, or TOKENIZER_NO_TOKEN */
    uint16_t n_children;
    unsigned char byte;
};

/* How a token is found before the model runs (tokenizer_marks.c). */
enum token_role {
    ROLE_NONE,
    ROLE_MARK, /* only outside plain spans, and if the caller requests it */
    ROLE_TEXT, /* everywhere */
    ROLE_WORD, /* likewise; a chat template that contains it turns it into a mark */
};

/* Open-addressing tables; sizes are powers of two. Tables are at most half full, that of merges at most two thirds. */
struct tokenizer {
    enum tokenizer_method method;
    bool is_spm;                    /* tokens are text, spaces U+2581 or dropped; else in the byte alphabet */
    bool merges_by_rank;            /* SPM: only the file's merges, not all whose union is a token */
    const struct pretokenizer *pre; /* BPE only */
    bool ignores_merges;            /* a word that is a token becomes that token without merges */
    int32_t n_vocab;
    const char *texts;       /* of all tokens, in the file's mapping */
    struct token_text *text; /* [n_vocab] */
    float *scores;           /* SPM, while loading, and unigram: [n_vocab] */
    unsigned char *kinds;    /* [n_vocab] enum token_kind */
    unsigned char *is_eog;   /* [n_vocab] */
    struct merge *merges;    /* BPE and merges_by_rank: [merge_mask + 1] */
    uint32_t merge_mask;
    /* BPE: a bit per hash of a merge. Most pairs do not merge, and this table stays in the caches. */
    uint64_t *merge_bits; /* [2^(64 - merge_bits_shift) / 64] */
    int merge_bits_shift;
    int32_t byte_ids[256]; /* token of a single byte, or -1 */
    bool lacks_high_bytes; /* a byte of 0x80 .. 0xFF has no token in byte_ids */
    unsigned char *roles;  /* [n_vocab] enum token_role */
    struct special_set marks;
    struct special_set user_defined; /* tokens that are not marks */
    struct words words;
    int32_t bos, eos, unk;
    bool adds_bos, adds_eos, adds_space_prefix;
    struct charsmap charsmap;    /* unigram */
    struct trie_node *trie;      /* unigram: [..] the first is the root */
    double unknown_score;        /* unigram: score of a character without a token */
    bool drops_spaces;           /* white space only separates words; unigram, or merges with a splitter */
    bool lowers;                 /* WordPiece, and merges with drops_spaces: text is lower-cased */
    bool strips_marks;           /* WordPiece: accents are removed */
    size_t longest;              /* bytes of the longest token */
    const char *model;           /* tokenizer.ggml.model */
    struct pretokenizer own_pre; /* *pre if the file has its own pattern */
    char *own_pattern;
    struct splitter *splitter; /* if the pre-tokenizer has no scanner */
    bool cuts_spaces;          /* merges_by_rank: each U+2581 begins a word */
    enum normalizer_form form; /* BPE: the form to which text is normalized first */
    /* Settings of tokenizer.json that GGUF lacks (tokenizer_rules.c). */
    enum space_prefix space_prefix;
    unsigned char *rules; /* OPTIONAL [n_vocab] TOKEN_* bits of added tokens */
    /* Added tokens that are found in normalized text (tokenizer_added.c); they are not in marks and user_defined. */
    size_t n_normalized;
    bool normalizes_spaces;    /* SPM: the normalizer replaces spaces by U+2581 before these tokens are searched */
    struct token_text *normal; /* OPTIONAL [n_vocab] their normalized texts in normal_texts; len 0: not such a token */
    char *normal_texts;
    struct special_set normal_marks, normal_user;
};

enum {
    TOKEN_STRIPS_LEFT = 1, /* includes the white space on that side */
    TOKEN_STRIPS_RIGHT = 2,
    TOKEN_NORMALIZED = 4,  /* found in normalized text */
    TOKEN_SINGLE_WORD = 8, /* not a token next to a word character */
    TOKEN_APART = 16,      /* not in the model, so text is never split into it */
};

#define NO_KEY UINT32_MAX /* of a pair that does not merge */

/* Returns the token in the vocabulary's spelling; borrowed from the file. */
static inline struct gguf_str tokenizer_text(const struct tokenizer *t, int32_t id)
{
    return (struct gguf_str){t->texts + t->text[id].at, t->text[id].len};
}

/* Returns whether plain text can yield the token. Control, unknown, unused and byte tokens are excluded. */
static inline bool tokenizer_is_text(const struct tokenizer *t, int32_t id)
{
    return t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_USER_DEFINED;
}

/* Sets model, method, pre-tokenizer and normalizers. ERR_UNSUPPORTED_TOKENIZER, ERR_UNSUPPORTED_PRETOKENIZER,
 * ERR_BAD_CHARSMAP, ERR_BAD_TYPE, ERR_BAD_HPARAM, ERR_NOMEM. */
MUST_CHECK enum err tokenizer_read_model(const struct gguf *g, struct tokenizer *t, struct err_info *info);

/* Returns the byte that a byte token's text, <0xNN>, names, or -1. */
int tokenizer_byte_of(struct gguf_str s);

/* Reads the keys infcgi.tokenizer.* (tokenizer_json.h), after all other keys. ERR_BAD_TYPE, ERR_BAD_MERGE,
 * ERR_BAD_SPECIAL_TOKEN, ERR_BAD_VOCAB, ERR_NOMEM. */
MUST_CHECK enum err tokenizer_rules_read(struct tokenizer *t, const struct gguf *g, struct err_info *info);

/* Returns s[0..*n) without the white space that the adjacent special tokens include; both are OPTIONAL
 * (TOKENIZER_NO_TOKEN). Moves the start and shortens *n. */
const char *tokenizer_rules_strip(const struct tokenizer *t, const char *s, size_t *n, int32_t before, int32_t after);

/* Returns whether SPM adds a space before s[0..n). is_first: s starts the whole text. */
bool tokenizer_rules_wants_space(const struct tokenizer *t, const char *s, size_t n, bool is_first);

/* Makes room for n merges. ERR_NOMEM. */
MUST_CHECK enum err tokenizer_reserve_merges(struct tokenizer *t, uint64_t n);

/* Sets roles, and then the sets and the trie; removes marks from words and merges. ERR_BAD_VOCAB (too many bytes),
 * ERR_NOMEM. */
MUST_CHECK enum err marks_build(struct tokenizer *t);

/* Builds the set of marks, or of text to find; of tokens found in normalized text, or of the others. ERR_BAD_VOCAB (too
 * many bytes), ERR_NOMEM. */
MUST_CHECK enum err special_build(struct special_set *s, const struct tokenizer *t, bool of_marks, bool is_normalized);
void special_fini(struct special_set *s);

struct special_match {
    size_t from;
    int32_t id;
};
struct special_matches {
    struct special_match *at; /* free with mem_free */
    size_t n, cap;
};

/* A text to search. */
struct special_search {
    const char *text;
    size_t n;
    bool is_normalized; /* finds only tokens for normalized text; otherwise only the others */
    bool parses_marks;
    const struct span *plain; /* [n_plain] */
    size_t n_plain;
};

/* Appends, last position first, the longest special token that starts at each position. Text tokens are found anywhere,
 * marks only with parses_marks and entirely outside the plain spans. O(n). ERR_NOMEM. */
MUST_CHECK enum err special_find(const struct tokenizer *t, const struct special_search *in,
                                 struct special_matches *out);

/* --- added tokens (tokenizer_added.c) ---------------------------------------------------------------------------- */

/* Writes SentencePiece's spelling of s[0..n) to out[ADDED_SPELT_BYTES * (n + 1)]: U+2581 for spaces, an additional one
 * first if adds_space, and U+FFFD for invalid bytes that have no token. Returns its length. */
enum { ADDED_SPELT_BYTES = 3 };
size_t added_spell(const struct tokenizer *t, const char *s, size_t n, bool adds_space, char *out);

/* Normalizes s with the tokenizer's normalizer. begins: the text begins here, so a space can be added before it. If
 * *changed, *out, which is emptied first, has the result. ERR_NOMEM. */
MUST_CHECK enum err added_normalize(const struct tokenizer *t, struct gguf_str s, bool begins, struct buf *out,
                                    bool *changed);

/* Sets t->normal. ERR_BAD_VOCAB (too many bytes), ERR_NOMEM. */
MUST_CHECK enum err added_build(struct tokenizer *t);
void added_fini(struct tokenizer *t); /* also frees t->rules */

/* Plain spans of a text, to map to their positions after normalization. */
struct added_map {
    struct gguf_str s;    /* the part at `offset` of the original text */
    struct gguf_str text; /* the part, normalized */
    size_t offset;
    const struct span *plain; /* [n_plain] of the original text; spans that do not overlap the part are ignored */
    size_t n_plain;
    struct span *out; /* [n_out] of the normalized part; free it with mem_free, also after an error */
    size_t n_out;
    bool is_exact; /* false: `out` is unknown, because a span's character was joined to one outside */
};
/* Sets out, n_out and is_exact. ERR_NOMEM. */
MUST_CHECK enum err added_map_spans(const struct tokenizer *t, struct added_map *m);

static inline bool added_is_apart(const struct tokenizer *t, int32_t id)
{
    return t->rules != NULL && (t->rules[id] & TOKEN_APART) != 0;
}

/* Returns whether the token can be at s[at.from..at.to). A single word cannot be next to word characters. */
bool added_may_stand(const struct tokenizer *t, int32_t id, struct gguf_str s, struct span at);

/* --- hashing and characters, inline for speed ------------------------------------------------------------------- */

static inline uint64_t tokenizer_load(const char *s, size_t n) /* n is 4 or 8 bytes */
{
    uint64_t v = 0;
    memcpy(&v, s, n);
    return v;
}

/* Packs up to 16 bytes into two numbers that, with n, are unique. Reads nothing outside. */
static inline void tokenizer_short(const char *s, size_t n, uint64_t *a, uint64_t *b)
{
    *b = 0;
    if (n >= 8) {
        *a = tokenizer_load(s, 8);
        *b = tokenizer_load(s + n - 8, 8);
    } else if (n >= 4) {
        *a = tokenizer_load(s, 4) << 32 | tokenizer_load(s + n - 4, 4);
    } else if (n > 0) {
        *a = (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 | (unsigned char)s[n - 1];
    } else {
        *a = 0;
    }
}

static inline uint64_t tokenizer_mix(uint64_t a, uint64_t b, uint64_t h)
{
    h = (h ^ a) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32 ^ b) * 0xCA5A826395121157u;
    return h ^ h >> 32;
}

/* Hashes s[0..n). Unsuitable for tables that clients can fill with long chains. The vocabulary's tables are fixed, and
 * the table of seen words has no chains. */
static inline uint64_t tokenizer_hash(const char *s, size_t n)
{
    uint64_t h = (n + 1) * 0x9E3779B97F4A7C15u, a, b;
    for (; n > 16; n -= 8, s += 8) {
        h = (h ^ tokenizer_load(s, 8)) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    tokenizer_short(s, n, &a, &b);
    return tokenizer_mix(a, b, h);
}

/* Returns whether n bytes are equal. */
static inline bool tokenizer_same(const char *x, const char *y, size_t n)
{
    uint64_t xa, xb, ya, yb;
    if (n > 16) {
        return memcmp(x, y, n) == 0;
    }
    tokenizer_short(x, n, &xa, &xb);
    tokenizer_short(y, n, &ya, &yb);
    return xa == ya && xb == yb;
}

/* Like utf8_decode(), but an invalid byte is U+FFFD of one byte. */
static ALWAYS_INLINE size_t tokenizer_chr(const char *str, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)str;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (n >= 4 && s[0] == 0xF0) { /* decodes emoji and all other characters of planes 1 to 3 in one step */
        uint32_t v = (uint32_t)tokenizer_load(str, 4);
        if ((v & 0xC0C0C000u) == 0x80808000u && (v & 0x3000u) != 0) {
            *cp = (v & 0x3F00u) << 4 | (v >> 10 & 0xFC0u) | (v >> 24 & 0x3Fu);
            return 4;
        }
    }
    if (s[0] < 0xE0) {
        if (n >= 2 && s[0] >= 0xC2 && (s[1] & 0xC0) == 0x80) {
            *cp = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
            return 2;
        }
    } else if (s[0] < 0xF0) {
        if (n >= 3 && (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80) {
            *cp = (s[0] & 0xFu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
            if (*cp >= 0x800 && (*cp < 0xD800 || *cp > 0xDFFF)) {
                return 3;
            }
        }
    } else if (n >= 4 && (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80 && (s[3] & 0xC0) == 0x80) {
        *cp = (s[0] & 0xFu) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
        if (*cp >= 0x10000 && *cp <= 0x10FFFF) {
            return 4;
        }
    }
    *cp = UTF8_REPLACEMENT;
    return 1;
}

/* Returns where the character that ends at s[end - 1] starts; for an invalid one, at most 4 bytes before `end`. */
static inline size_t tokenizer_chr_start(const char *s, size_t end)
{
    size_t from = end - 1;
    while (from > 0 && end - from < 4 && ((unsigned char)s[from] & 0xC0) == 0x80) {
        from--;
    }
    return from;
}

/* --- words ------------------------------------------------------------------------------------------------------ */

/* Builds t->words from all other fields. ERR_BAD_VOCAB (too many bytes), ERR_NOMEM. */
MUST_CHECK enum err words_build(struct tokenizer *t);
void words_fini(struct words *w);

/* Removes token id: text no longer yields it. */
void words_ban(struct tokenizer *t, int32_t id);

/* State of words_find_merge. */
struct words_merge {
    char *scratch;           /* [2 * longest] */
    const struct word *last; /* OPTIONAL last result; private */
    int32_t left, right;     /* the ids of a and b */
};

/* BPE: returns the id of a and b (in the vocabulary's spelling) joined, and sets their own ids; TOKENIZER_NO_TOKEN for
 * each that is not a token. */
int32_t words_find_merge(const struct tokenizer *t, struct gguf_str a, struct gguf_str b, struct words_merge *m);

struct words_key {
    const struct words *w;
    const char *s;
    size_t n;
    uint64_t hash;
};

static inline struct word *words_at(const struct words *w, uint32_t at)
{
    return (struct word *)(void *)(w->pool + (size_t)at * WORD_ALIGN);
}

static ALWAYS_INLINE bool words_stops(const void *key, size_t at)
{
    const struct words_key *k = key;
    struct word_slot slot = k->w->slots[at];
    if (slot.at == 0 || slot.tag != k->hash >> 32) {
        return slot.at == 0;
    }
    const struct word *word = words_at(k->w, slot.at);
    return word->len == k->n && tokenizer_same(word->bytes, k->s, k->n);
}

/* Returns the token whose bytes (SPM: whose text) are s[0..n), or NULL; hash: of these bytes. */
static inline struct word *words_find(const struct words *w, const char *s, size_t n, uint64_t hash)
{
    struct words_key key = {w, s, n, hash};
    uint32_t at = w->slots[table_probe(w->mask, hash, words_stops, &key)].at;
    return at != 0 ? words_at(w, at) : NULL;
}

/* Returns the token that text of these bytes can become, or NULL. */
static inline const struct word *words_find_text(const struct tokenizer *t, const char *s, size_t n)
{
    const struct word *word = words_find(&t->words, s, n, tokenizer_hash(s, n));
    return word == NULL || word->key == NO_KEY ? NULL : word;
}

/* Returns whether a token of SPM can contain code point a followed by b. */
static inline bool words_may_join(const struct words *w, uint32_t a, uint32_t b)
{
    if ((a | b) < 0x80) {
        return (w->ascii[a][b >> 5] >> (b & 31) & 1) != 0;
    }
    uint64_t h = (((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u) >> w->pairs_shift;
    return (w->pairs[h >> 6] >> (h & 63) & 1) != 0;
}

/* BPE: returns the length of s[0..n) up to the first position that no token crosses; n if there is none. */
size_t words_cut(const struct tokenizer *t, const char *s, size_t n);

/* --- encoding ----------------------------------------------------------------------------------------------------- */

/* The output for a text's ids, and its limits. */
struct encoding {
    struct token_list *out; /* borrowed */
    size_t max_tokens;      /* of out, including its previous ids */
    struct budget budget;   /* of the text */
};

/* Appends an id. ERR_CONTEXT_LENGTH (max_tokens reached), ERR_NOMEM. */
MUST_CHECK static inline enum err encoding_emit(struct encoding *e, int32_t id)
{
    struct token_list *out = e->out;
    if (out->n >= e->max_tokens) {
        return ERR_CONTEXT_LENGTH;
    }
    if (out->n == out->cap) {
        return token_list_push(out, id);
    }
    out->ids[out->n++] = id;
    return ERR_OK;
}

/* --- unigram and WordPiece ---------------------------------------------------------------------------------------- */

/* Builds t->trie and t->unknown_score. ERR_NOMEM. */
MUST_CHECK enum err unigram_build(struct tokenizer *t);
/* Encodes text between special tokens, UTF-8 or not; is_normalized: the normalizer has already run. ERR_NOMEM,
 * ERR_CONTEXT_LENGTH, ERR_PATTERN_LIMIT, ERR_CANCELLED. */
MUST_CHECK enum err unigram_encode(const struct tokenizer *t, struct encoding *to, const char *s, size_t n,
                                   bool is_normalized);
MUST_CHECK enum err wordpiece_encode(const struct tokenizer *t, struct encoding *to, const char *s, size_t n,
                                     bool is_normalized);

/* Appends the text as normalized for such vocabularies to *out. ERR_NOMEM. */
MUST_CHECK enum err unigram_normalize(const struct tokenizer *t, const char *s, size_t n, struct buf *out);
MUST_CHECK enum err wordpiece_normalize(const struct tokenizer *t, const char *s, size_t n, struct buf *out);

/* --- merging ---------------------------------------------------------------------------------------------------- */

/* Merging of adjacent symbols; lower keys merge first (tokenizer_merge.c). */
struct symbol {
    int32_t id;         /* -1: a character without a token (SPM) */
    uint32_t from, len; /* its bytes in the word */
};
enum { MERGER_KNOWN = 512 };
struct merger {
    const struct tokenizer *t;
    struct budget *budget;            /* borrowed, of the text; long words take a step per repeated lookup */
    struct merge known[MERGER_KNOWN]; /* SPM: cached pairs, by hash; zero: none */
    const char *word;
    struct symbol *symbols; /* [n], compacted by merger_run */
    uint32_t n;
    struct merger_node *nodes; /* scratch for long words */
    uint64_t *heap;
    size_t cap;
};

/* Makes room for n symbols. ERR_NOMEM. */
MUST_CHECK enum err merger_reserve(struct merger *m, size_t n);
/* Merges m->symbols[0..m->n) until no pair merges. ERR_PATTERN_LIMIT, ERR_CANCELLED: incomplete. */
MUST_CHECK enum err merger_run(struct merger *m);
void merger_fini(struct merger *m);

static inline uint64_t tokenizer_pair_hash(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 32;
}

/* Returns the word and the bit of a hash. */
static inline uint64_t *tokenizer_merge_bit(const struct tokenizer *t, uint64_t hash, uint64_t *bit)
{
    uint64_t at = (hash * 0xD6E8FEB86659FD93u) >> t->merge_bits_shift;
    *bit = (uint64_t)1 << (at & 63);
    return &t->merge_bits[at >> 6];
}

struct tokenizer_merge_key {
    const struct merge *merges;
    int32_t left, right;
};

static ALWAYS_INLINE bool tokenizer_merge_stops(const void *key, size_t at)
{
    const struct tokenizer_merge_key *k = key;
    const struct merge *m = &k->merges[at];
    return m->left < 0 || (m->left == k->left && m->right == k->right);
}

/* Returns the merge of two tokens, or the empty slot for it. */
static inline struct merge *tokenizer_merge_slot(const struct tokenizer *t, int32_t left, int32_t right, uint64_t hash)
{
    struct tokenizer_merge_key key = {t->merges, left, right};
    return &t->merges[table_probe(t->merge_mask, hash, tokenizer_merge_stops, &key)];
}

/* Adds a merge, unless the pair has one: the first rank of duplicates counts. */
static inline void tokenizer_enter_merge(struct tokenizer *t, const struct merge *m)
{
    struct merge *slot = tokenizer_merge_slot(t, m->left, m->right, tokenizer_pair_hash(m->left, m->right));
    if (slot->left < 0) {
        *slot = *m;
    }
}

#endif
