/* Small vocabularies as GGUF bytes in memory, for the tokenizer's tests. An allocation failure ends the test. */
#ifndef INFCGI_TESTS_VOCAB_FILE_H
#define INFCGI_TESTS_VOCAB_FILE_H

#include "engine/base/buf.h"
#include "engine/format/gguf.h"
#include "engine/tokenizer/tokenizer.h"

enum { VOCAB_NO_ID = -1000 };

/* Contents of the file; start from vocab_bpe or vocab_spm and change the fields that the test needs. */
struct vocab {
    const char *model, *pre, *chat_template;  /* NULL: no such key */
    const char *patterns[8], *normal_form;    /* infcgi.tokenizer.*; NULL: no such key, or after the last */
    struct buf charsmap;                      /* empty: no such key */
    int drops_spaces, lowers;                 /* -1: no such key */
    struct buf tokens, kinds, scores, merges; /* elements as in the file */
    uint64_t n_tokens, n_kinds, n_scores, n_merges;
    enum gguf_type tokens_type, kinds_type, scores_type, merges_type; /* GGUF_ARRAY: no such key */
    int64_t bos, eos, unk, pad;                                       /* VOCAB_NO_ID: no such key */
    int64_t normalized;                     /* infcgi.tokenizer.normalized_ids has this id; 0: no such key */
    int add_bos, add_eos, add_space_prefix; /* -1: no such key */
    uint64_t embedding_rows;                /* 0: no such tensor */

    struct buf file; /* filled by vocab_load */
    struct gguf *g;
    struct tokenizer *t;
};

/* Fills v for byte-level BPE: the 256 bytes as tokens 0 to 255 in the order of their values; no merges. */
void vocab_bpe(struct vocab *v, const char *pre);
/* Fills v without byte tokens: <unk> <s> </s> [tokens 0 to 2], for unigram ("t5") and WordPiece ("bert") models. */
void vocab_plain(struct vocab *v, const char *model);
/* Fills v for SentencePiece: <unk> <s> </s>, the 256 byte tokens as 3 to 258. */
void vocab_spm(struct vocab *v);
/* Writes the id of each byte in a loaded vocab_bpe, whose first 256 tokens are bytes. */
void vocab_byte_ids(const struct vocab *v, int32_t id_of[static 256]);
void vocab_fini(struct vocab *v);

/* Appends a token; returns its id. */
int32_t vocab_add(struct vocab *v, const char *text, size_t n, int kind, float score);
void vocab_add_merge(struct vocab *v, const char *merge, size_t n);

/* Writes the file and loads it; if the result is ERR_OK, v->t is the tokenizer. */
enum err vocab_load(struct vocab *v, struct err_info *info);

/* Returns a pseudo-random number: SplitMix64 [Steele et al. 2014]. */
uint64_t vocab_random(uint64_t *state);

#endif
