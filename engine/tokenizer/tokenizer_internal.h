/* Shared by the files of the tokenizer. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H
#define INFCGI_TOKENIZER_TOKENIZER_INTERNAL_H

#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/tokenizer.h"

enum {
    TOKENIZER_MAX_VOCAB = 1 << 22,
    TOKENIZER_MAX_TOKEN_BYTES = 64 << 10,
    TOKENIZER_MAX_MERGES = 1 << 23,
};

/* What two neighbouring tokens become. */
struct merge {
    int32_t left, right; /* left < 0: empty slot */
    int32_t rank;        /* lower merges first */
    int32_t result;
};

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
    int32_t byte_ids[256]; /* token of a single byte, or -1 */
    struct trie_edge {
        uint64_t key; /* node << 8 | byte, plus 1; 0: empty */
        uint32_t node;
    } *edges; /* special and user-defined tokens, [edge_mask + 1] */
    uint32_t edge_mask;
    int32_t *node_ids; /* [n_nodes] token that ends at the node, or -1 */
    uint32_t n_nodes;
    int32_t bos, eos, unk;
    bool adds_bos, adds_eos, adds_space_prefix;
};

/* The byte alphabet of byte-level BPE [GPT-2]: code point of a byte, and back (-1 for none). */
uint32_t byte_alphabet_cp(unsigned char byte);
int byte_alphabet_byte(uint32_t cp);

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
