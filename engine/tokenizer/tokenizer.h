/* Text to token ids and back, from the vocabulary in a GGUF file.
 *
 * Models: byte-level BPE ("gpt2": pre-tokenizer, byte alphabet, ranked merges [Sennrich 2016; GPT-2]),
 * SentencePiece-style BPE ("llama": scores, byte fallback [Kudo 2018]; "gemma4": ranked merges), unigram ("t5") and
 * WordPiece ("bert"). Pre-tokenizers are rows in pretokenizer.c: linear scanners of infcgi, or expressions that
 * splitter.c runs. Special tokens are never parsed in text from users.
 *
 * Threads: a tokenizer is read-only after tokenizer_new and can be shared; a detokenizer belongs to one thread. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_H
#define INFCGI_TOKENIZER_TOKENIZER_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/span.h"
#include "engine/format/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum { TOKENIZER_NO_TOKEN = -1 };

/* Reads tokenizer.ggml.* of g and checks it (T rows of the catalogue of bad inputs). The gguf must outlive the
 * tokenizer. ERR_BAD_VOCAB, ERR_BAD_TYPE, ERR_BAD_SPECIAL_TOKEN, ERR_BAD_BYTE_TOKEN, ERR_BAD_MERGE, ERR_BAD_CHARSMAP,
 * ERR_UNSUPPORTED_TOKENIZER, ERR_UNSUPPORTED_PRETOKENIZER, ERR_BAD_HPARAM, ERR_NOMEM. */
MUST_CHECK enum err tokenizer_new(const struct gguf *g, struct tokenizer **out, struct err_info *info);
void tokenizer_free(struct tokenizer **t);

/* Turns user-defined tokens that occur in source[0..n), a chat template that replaces the file's, into marks, as
 * tokenizer_new does with the file's. Call it before the tokenizer is shared. ERR_NOMEM: free the tokenizer. */
MUST_CHECK enum err tokenizer_add_marks(struct tokenizer *t, const char *source, size_t n);

/* Growing list of ids. Zero-initialize it; free it with token_list_fini. */
struct token_list {
    int32_t *ids;
    size_t n, cap;
};
void token_list_fini(struct token_list *l);
MUST_CHECK enum err token_list_push(struct token_list *l, int32_t id);

enum {
    TOKENIZE_ADD_SPECIAL = 1,   /* add BOS/EOS as the vocabulary requires */
    TOKENIZE_PARSE_SPECIAL = 2, /* parse marks, such as control tokens, outside `plain` spans */
};

/* A text to encode. */
struct tokenizer_text {
    const char *s;
    size_t n;
    unsigned flags;           /* TOKENIZE_* */
    const struct span *plain; /* [n_plain] text in which special tokens are never parsed; OPTIONAL */
    size_t n_plain;
    size_t max_tokens; /* of the output; 0: no limit */
};

/* Appends the ids of the text to *out. Encodes invalid UTF-8 bytes as bytes if the vocabulary can, otherwise as U+FFFD.
 * Plain spans have no other effect: merges cross their boundaries.
 *
 * Time is linear in n (n log n in the longest word). ERR_CONTEXT_LENGTH beyond max_tokens. ERR_PATTERN_LIMIT: the file's
 * pattern or tokens need more work than the text's budget (budget.h); info (OPTIONAL) has the numbers. ERR_NOMEM. Errors
 * of task_check() if the thread's task must stop. On failure *out is unchanged. */
MUST_CHECK enum err tokenizer_encode(const struct tokenizer *t, const struct tokenizer_text *text,
                                     struct token_list *out, struct err_info *info);

int32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* or TOKENIZER_NO_TOKEN */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* Returns true for ids that end a generation: EOS, EOT, EOM and the end-of-turn tokens that files name or whose text is
 * known (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, ...). */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
const char *tokenizer_model_name(const struct tokenizer *t); /* "gpt2", "llama", "gemma4", "t5", "bert" */
const char *tokenizer_pre_name(const struct tokenizer *t);   /* "smollm"; "" if there is none */
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);

/* Returns the vocabulary text of an id, borrowed, as in the file: the byte alphabet is not decoded. id must be in
 * range. */
struct gguf_str tokenizer_token_text(const struct tokenizer *t, int32_t id);

/* Returns the id whose vocabulary text is s[0..n), or TOKENIZER_NO_TOKEN. */
int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t n);

/* Appends the bytes that id represents, possibly a part of a UTF-8 sequence. Control tokens have text only with
 * `show_special`. id must be in range. */
void tokenizer_piece(const struct tokenizer *t, int32_t id, bool show_special, struct buf *out);

/* --- streaming detokenizer -------------------------------------------------------------------------------------- */

/* Bytes that were not returned yet. Zero-initialize it; nothing to free. */
struct detokenizer {
    char held[4]; /* start of a UTF-8 sequence */
    size_t n_held;
    bool started; /* SPM: the first token loses its leading space */
};

/* Appends to out the text that id adds, as complete UTF-8 sequences. The start of a sequence is held back for the next
 * call. A byte that cannot become valid becomes U+FFFD immediately. */
void detokenizer_push(struct detokenizer *d, const struct tokenizer *t, int32_t id, bool show_special, struct buf *out);

/* Ends the text: a held-back start of a sequence becomes one U+FFFD. */
void detokenizer_finish(struct detokenizer *d, struct buf *out);

#endif
