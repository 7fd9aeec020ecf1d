/* A vocabulary while it is read from a folder's files, before it is written as GGUF keys. Texts are borrowed from the
 * reader. Threads: belongs to one thread. */
#ifndef INFCGI_FORMAT_TOKENIZER_VOCAB_H
#define INFCGI_FORMAT_TOKENIZER_VOCAB_H

#include "engine/base/table.h"
#include "engine/format/gguf_build.h"

enum {
    TOKENIZER_VOCAB_MAX = 1 << 22,              /* ids */
    TOKENIZER_VOCAB_MAX_TOKEN_BYTES = 64 << 10, /* as in tokenizer_new */
};
#define TOKENIZER_VOCAB_NONE UINT32_MAX

struct vocab_token {
    const char *text;
    uint32_t len; /* bytes */
    enum token_kind kind;
    float score;
};

/* Zero-initialise; free with tokenizer_vocab_fini. */
struct tokenizer_vocab {
    struct vocab_token *tokens; /* [cap], [n] in use */
    uint32_t n, cap;
    struct table table; /* of ids by text */
};

void tokenizer_vocab_fini(struct tokenizer_vocab *v);

/* Makes room for ids below n; they are holes until set. ERR_NOMEM. */
MUST_CHECK enum err tokenizer_vocab_grow(struct tokenizer_vocab *v, uint32_t n, struct err_info *info);

/* Indexes the texts set until now, equal texts with their lowest id. ERR_NOMEM. */
MUST_CHECK enum err tokenizer_vocab_index(struct tokenizer_vocab *v, struct err_info *info);

/* Returns the id of an indexed text, or TOKENIZER_VOCAB_NONE. */
uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *v, const char *s, size_t n);

/* Turns NORMAL tokens whose text is <0xNN> into BYTE tokens. */
void tokenizer_vocab_mark_bytes(struct tokenizer_vocab *v);

/* Writes tokenizer.ggml.tokens, token_type and, if has_scores, scores: at least n_rows entries, holes as [PADn]. */
void tokenizer_vocab_write(const struct tokenizer_vocab *v, uint32_t n_rows, bool has_scores, struct gguf_build *b);

#endif
