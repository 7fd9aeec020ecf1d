/* A vocabulary that is being read from the files of a folder, before it is written as keys of GGUF. Texts are borrowed
 * from whoever reads. Threads: belongs to one thread. */
#ifndef INFCGI_FORMAT_TOKENIZER_VOCAB_H
#define INFCGI_FORMAT_TOKENIZER_VOCAB_H

#include "engine/format/gguf_build.h"

enum {
    TOKENIZER_VOCAB_MAX = 1 << 22,              /* ids */
    TOKENIZER_VOCAB_MAX_TOKEN_BYTES = 64 << 10, /* as tokenizer_new has it */
};
#define TOKENIZER_VOCAB_NONE UINT32_MAX

/* Kinds of tokens; values are those of tokenizer.ggml.token_type. */
enum vocab_kind {
    VOCAB_HOLE = 0, /* nothing has this id yet */
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN = 2,
    VOCAB_CONTROL = 3,
    VOCAB_USER_DEFINED = 4,
    VOCAB_UNUSED = 5,
    VOCAB_BYTE = 6,
};

struct vocab_token {
    const char *text;
    uint32_t len; /* bytes */
    enum vocab_kind kind;
    float score;
};

/* Zero-initialise; free with tokenizer_vocab_fini. */
struct tokenizer_vocab {
    struct vocab_token *tokens; /* [cap], [n] in use */
    uint32_t n, cap;
    uint32_t *slots; /* [mask + 1] id + 1 by text; 0: empty */
    uint32_t mask;
};

void tokenizer_vocab_fini(struct tokenizer_vocab *v);

/* Makes room for ids below n, which are holes until they are set. ERR_NOMEM. */
MUST_CHECK enum err tokenizer_vocab_grow(struct tokenizer_vocab *v, uint32_t n, struct err_info *info);

/* Makes texts findable that have been set until now; of equal ones the lowest id. ERR_NOMEM. */
MUST_CHECK enum err tokenizer_vocab_index(struct tokenizer_vocab *v, struct err_info *info);

/* The id of a text, or TOKENIZER_VOCAB_NONE; after tokenizer_vocab_index. */
uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *v, const char *s, size_t n);

/* Makes NORMAL tokens whose text is <0xNN> tokens of bytes. */
void tokenizer_vocab_mark_bytes(struct tokenizer_vocab *v);

/* Writes tokenizer.ggml.tokens, token_type and, where asked, scores: n_rows of them at least, holes as [PADn]. */
void tokenizer_vocab_write(const struct tokenizer_vocab *v, uint32_t n_rows, bool has_scores, struct gguf_build *b);

#endif
