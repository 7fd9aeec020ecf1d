/* Shared by the files of the tokenizer. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H
#define INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H

#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/tokenizer.h"

enum {
    TOKENIZER_MAX_VOCAB = 1 << 22,
    TOKENIZER_MAX_TOKEN_BYTES = 64 << 10,
    TOKENIZER_MAX_MERGES = 1 << 23,
    TOKENIZER_MAX_SPECIAL_BYTES = 64 << 20, /* texts of all special tokens */
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

/* SPM: two characters may be neighbours inside a token, by the last byte of the first and the first byte of the second;
 * SPM_ESCAPE instead of the byte stands for U+2581. */
enum { SPM_ESCAPE = 256, SPM_SIDES = 257 };

/* Open-addressing tables; sizes are powers of two, at most half full. */
struct tokenizer {
    bool is_spm;
    const struct pretokenizer *pre; /* BPE only */
    int32_t n_vocab;
    struct gguf_str *text; /* [n_vocab], in the file's map */
    float *scores;         /* SPM: [n_vocab] */
    unsigned char *kinds;  /* [n_vocab] enum token_kind */
    unsigned char *is_eog; /* [n_vocab] */
    int32_t *by_text;      /* [text_mask + 1] id or -1 */
    uint32_t text_mask;
    struct merge *merges; /* BPE: [merge_mask + 1] */
    uint32_t merge_mask;
    int32_t byte_ids[256];             /* token of a single byte, or -1 */
    bool lacks_high_bytes;             /* byte_ids has no token for some byte of 0x80 .. 0xFF */
    unsigned char (*joins)[SPM_SIDES]; /* SPM: [SPM_SIDES] 1 where two characters may be neighbours inside a token */
    struct special_set control;        /* control and unknown tokens */
    struct special_set user_defined;
    int32_t bos, eos, unk;
    bool adds_bos, adds_eos, adds_space_prefix;
};

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

/* SPM: which side of `joins` the character s[0..len) is: as the first of two, and as the second. */
int spm_side_before(const char *s, size_t len);
int spm_side_after(const char *s, size_t len);

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

/* Id of the merged pair, or -1; *key orders merges. */
int32_t tokenizer_pair(const struct tokenizer *t, const char *word, const struct symbol *a, const struct symbol *b,
                       uint32_t *key);

#endif
