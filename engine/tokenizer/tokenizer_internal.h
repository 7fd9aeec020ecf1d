/* Shared by the files of the tokenizer. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H
#define INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H

#include "engine/base/utf8.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/tokenizer.h"

#include <string.h>

enum {
    TOKENIZER_MAX_VOCAB = 1 << 22,
    TOKENIZER_MAX_TOKEN_BYTES = 64 << 10,
    TOKENIZER_MAX_MERGES = 1 << 23,
    TOKENIZER_MAX_SPECIAL_BYTES = 64 << 20, /* texts of all special tokens */
    TOKENIZER_MAX_BYTES = 1 << 30,          /* texts of all tokens */
};

/* What two neighbouring tokens become. */
struct merge {
    int32_t left, right; /* left < 0: empty slot */
    int32_t rank;        /* lower merges first */
    int32_t result;
};

/* A set of tokens to be found in text; zero-initialise. The root is node 0. */
struct special_node {
    uint32_t parent, fail;
    uint32_t depth;
    int32_t id; /* longest token that a text which leads here starts with, or -1 */
    unsigned char byte;
};
struct special_set {
    struct special_node *nodes; /* [n_nodes] */
    uint32_t *edges;            /* [edge_mask + 1] child node or 0, hashed by parent and byte */
    uint32_t n_nodes;           /* 0: no tokens */
    uint32_t edge_mask;
    uint32_t from_root[256];
};

/* Slot of a table from texts to ids; id < 0: empty. The tag spares most looks at the text. */
struct text_slot {
    uint32_t tag; /* high half of the hash */
    int32_t id;
};

/* What tokenizer_words.c knows of words. */
struct words {
    /* BPE: the bytes that token id stands for are bytes[at[id] .. at[id + 1]). */
    char *bytes;
    uint32_t *at;
    struct text_slot *by_bytes; /* [by_bytes_mask + 1]; tokens of the byte alphabet alone */
    uint32_t by_bytes_mask;
    /* Does the text of token id, as a word, become that token? Found out as words come by; any thread may write what
     * any other would. */
    _Atomic unsigned char *stands; /* [n_vocab] enum word_stands */
    /* Characters that are neighbours inside some token. ascii: exact, bit b of a's row. pairs: bits by a hash of both
     * code points, so some pairs seem to be neighbours that are not. */
    uint32_t ascii[128][4];
    uint64_t *pairs; /* [pairs_bits / 64] */
    int pairs_shift; /* 64 - log2(pairs_bits) */
    uint32_t cut_bytes[256]
                      [8]; /* BPE: last byte of one and first byte of the next, where a token holds part of either */
};
enum word_stands { STANDS_UNKNOWN, STANDS_ALONE, STANDS_NOT };

/* Open-addressing tables; sizes are powers of two, at most half full. */
struct tokenizer {
    bool is_spm;
    const struct pretokenizer *pre; /* BPE only */
    int32_t n_vocab;
    struct gguf_str *text;     /* [n_vocab], in the file's map */
    float *scores;             /* SPM, while loading: [n_vocab] */
    uint32_t *keys;            /* SPM: [n_vocab] order of merges, lower first; NO_KEY for what is not text */
    unsigned char *kinds;      /* [n_vocab] enum token_kind */
    unsigned char *is_eog;     /* [n_vocab] */
    struct text_slot *by_text; /* [text_mask + 1] */
    uint32_t text_mask;
    struct merge *merges; /* BPE: [merge_mask + 1] */
    uint32_t merge_mask;
    int32_t byte_ids[256];      /* token of a single byte, or -1 */
    bool lacks_high_bytes;      /* byte_ids has no token for some byte of 0x80 .. 0xFF */
    struct special_set control; /* control and unknown tokens */
    struct special_set user_defined;
    struct words words;
    int32_t bos, eos, unk;
    bool adds_bos, adds_eos, adds_space_prefix;
};

#define NO_KEY UINT32_MAX /* of a pair that does not merge */

/* May the token come out of plain text? Control, unknown, unused and byte tokens may not. */
static inline bool tokenizer_is_text(const struct tokenizer *t, int32_t id)
{
    return t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_USER_DEFINED;
}

/* The byte that the text of a byte token, <0xNN>, names, or -1. */
int tokenizer_byte_of(struct gguf_str text);

/* The byte alphabet of byte-level BPE [GPT-2]: code point of a byte, and back (-1 for none). */
uint32_t byte_alphabet_cp(unsigned char byte);
int byte_alphabet_byte(uint32_t cp);

/* Builds the set of user-defined tokens, or of control and unknown ones. ERR_BAD_VOCAB (too many bytes), ERR_NOMEM. */
MUST_CHECK enum err special_build(struct special_set *s, const struct tokenizer *t, bool user_defined);
void special_fini(struct special_set *s);

struct special_match {
    size_t from;
    int32_t id;
};
struct special_matches {
    struct special_match *at; /* free with mem_free */
    size_t n, cap;
};

/* Appends, last position first, the longest special token that starts at each position where one does: user-defined
 * ones anywhere, control ones only with parses_control and wholly outside the plain spans. O(n). ERR_NOMEM. */
MUST_CHECK enum err special_find(const struct tokenizer *t, const char *text, size_t n, bool parses_control,
                                 const struct tokenizer_span *plain, size_t n_plain, struct special_matches *out);

/* --- hashing and characters, inline for speed ------------------------------------------------------------------- */

static inline uint64_t tokenizer_load(const char *s, size_t n) /* n bytes, 4 or 8 */
{
    uint64_t v = 0;
    memcpy(&v, s, n);
    return v;
}

/* Of s[0..n). Reads nothing outside; short words take two loads. Not for what strangers could make collide at a cost:
 * tables from files are fixed, and the table of words seen forgets. */
static inline uint64_t tokenizer_hash(const char *s, size_t n)
{
    uint64_t h = (n + 1) * 0x9E3779B97F4A7C15u, a, b = 0;
    for (; n > 16; n -= 8, s += 8) {
        h = (h ^ tokenizer_load(s, 8)) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    if (n >= 8) {
        a = tokenizer_load(s, 8);
        b = tokenizer_load(s + n - 8, 8);
    } else if (n >= 4) {
        a = tokenizer_load(s, 4) << 32 | tokenizer_load(s + n - 4, 4);
    } else {
        a = n == 0 ? 0
                   : (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 |
                         (unsigned char)s[n - 1];
    }
    h = (h ^ a) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32 ^ b) * 0xCA5A826395121157u;
    return h ^ h >> 32;
}

/* Are n bytes the same? */
static inline bool tokenizer_same(const char *a, const char *b, size_t n)
{
    if (n > 16) {
        return memcmp(a, b, n) == 0;
    }
    if (n >= 8) {
        return tokenizer_load(a, 8) == tokenizer_load(b, 8) &&
               tokenizer_load(a + n - 8, 8) == tokenizer_load(b + n - 8, 8);
    }
    if (n >= 4) {
        return tokenizer_load(a, 4) == tokenizer_load(b, 4) &&
               tokenizer_load(a + n - 4, 4) == tokenizer_load(b + n - 4, 4);
    }
    return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

/* As utf8_decode without `valid`. */
static inline size_t tokenizer_chr(const char *str, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)str;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (n >= 2 && s[0] >= 0xC2 && s[0] < 0xE0 && (s[1] & 0xC0) == 0x80) {
        *cp = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
        return 2;
    }
    if (n >= 3 && s[0] > 0xE0 && s[0] < 0xED && (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80) {
        *cp = (s[0] & 0xFu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
        return 3;
    }
    return utf8_decode(str, n, cp, NULL);
}

/* --- words ------------------------------------------------------------------------------------------------------ */

/* Fills t->words from everything else. ERR_BAD_VOCAB (too many bytes), ERR_NOMEM. */
MUST_CHECK enum err words_build(struct tokenizer *t);
void words_fini(struct words *w);

/* The token whose bytes, for SPM whose text, are s[0..n), or TOKENIZER_NO_TOKEN; hash is of these bytes. */
int32_t words_find(const struct tokenizer *t, const char *s, size_t n, uint64_t hash);

/* Can a token of SPM hold code point a with b behind it? */
static inline bool words_may_join(const struct words *w, uint32_t a, uint32_t b)
{
    if ((a | b) < 0x80) {
        return (w->ascii[a][b >> 5] >> (b & 31) & 1) != 0;
    }
    uint64_t h = (((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u) >> w->pairs_shift;
    return (w->pairs[h >> 6] >> (h & 63) & 1) != 0;
}

/* BPE: bytes of s[0..n) up to the first place that no token lies across; n when there is none. */
size_t words_cut(const struct tokenizer *t, const char *s, size_t n);

/* --- merging ---------------------------------------------------------------------------------------------------- */

/* What two neighbours merge into: false when nothing; lower keys merge first (tokenizer_merge.c). */
struct symbol {
    int32_t id;         /* -1: a character without a token (SPM) */
    uint32_t from, len; /* its bytes in the word */
};
struct merger {
    const struct tokenizer *t;
    const char *word;
    struct symbol *symbols; /* [n], compacted by merger_run */
    uint32_t n;
    struct merger_node *nodes; /* scratch for long words */
    uint64_t *heap;
    size_t cap;
};

/* Makes room for n symbols. ERR_NOMEM. */
MUST_CHECK enum err merger_reserve(struct merger *m, size_t n);
/* Merges m->symbols[0..m->n) until nothing merges; cannot fail. */
void merger_run(struct merger *m);
void merger_fini(struct merger *m);

/* The merge of two tokens, or the empty slot where it would be. */
static inline struct merge *tokenizer_find_merge(const struct tokenizer *t, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    uint32_t at = (uint32_t)(h ^ h >> 32) & t->merge_mask;
    while (t->merges[at].left >= 0 && (t->merges[at].left != left || t->merges[at].right != right)) {
        at = (at + 1) & t->merge_mask;
    }
    return &t->merges[at];
}

#endif
