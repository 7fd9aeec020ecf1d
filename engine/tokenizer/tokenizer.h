/* Text to token ids and back, from the vocabulary in a GGUF file.
 *
 * Models: byte-level BPE ("gpt2": pre-tokenizer, byte alphabet, ranked merges [Sennrich 2016; GPT-2]),
 * SentencePiece-style BPE ("llama": scores, byte fallback [Kudo 2018]; "gemma4": ranked merges), unigram ("t5") and
 * WordPiece ("bert"). Pre-tokenizers are rows in pretokenizer.c: linear scanners of our own, or expressions that
 * splitter.c runs. Encoding never parses special tokens in text that came from a user.
 *
 * Threads: a tokenizer is read-only after tokenizer_new and may be shared; a detokenizer belongs to one thread. */
#ifndef INFCGI_TOKENIZER_TOKENIZER_H
#define INFCGI_TOKENIZER_TOKENIZER_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "engine/base/span.h"
#include "engine/format/gguf.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum { TOKENIZER_NO_TOKEN = -1 };

/* Kinds of vocabulary entries; values are those of tokenizer.ggml.token_type. */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* <|im_end|> and the like: special, not shown */
    TOKEN_USER_DEFINED = 4, /* matched before the model runs, shown; a mark or text (tokenizer_marks.c) */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Reads tokenizer.ggml.* of g and checks it (T rows of the catalogue of bad inputs). The gguf must outlive the
 * tokenizer. ERR_BAD_VOCAB, ERR_BAD_TYPE, ERR_BAD_SPECIAL_TOKEN, ERR_BAD_BYTE_TOKEN, ERR_BAD_MERGE,
 * ERR_BAD_CHARSMAP, ERR_UNSUPPORTED_TOKENIZER, ERR_UNSUPPORTED_PRETOKENIZER, ERR_BAD_HPARAM, ERR_NOMEM. */
MUST_CHECK enum err tokenizer_new(const struct gguf *g, struct tokenizer **out, struct err_info *info);
void tokenizer_free(struct tokenizer **t);

/* Makes marks of the user-defined tokens that occur in a chat template in place of the file's own, source[0..n), as
 * tokenizer_new does with the file's. Before the tokenizer is shared. ERR_NOMEM, after which it must be freed. */
MUST_CHECK enum err tokenizer_add_marks(struct tokenizer *t, const char *source, size_t n);

/* Growing list of ids; zero-initialise, free with token_list_fini. */
struct token_list {
    int32_t *ids;
    size_t n, cap;
};
void token_list_fini(struct token_list *l);
MUST_CHECK enum err token_list_push(struct token_list *l, int32_t id);

enum {
    TOKENIZE_ADD_SPECIAL = 1,   /* add BOS/EOS as the vocabulary asks for */
    TOKENIZE_PARSE_SPECIAL = 2, /* find marks in text, outside `plain` spans: control tokens and the like */
};

/* Appends the ids of text[0..n) to *out. Invalid UTF-8 bytes are encoded as bytes where the vocabulary can, else as
 * U+FFFD. `plain` (n_plain spans, may be NULL) marks text in which no special token is parsed even with
 * TOKENIZE_PARSE_SPECIAL; it changes nothing else, so merges run across its borders as if it were not there.
 * Time is linear in n (n log n in the longest word). max_tokens bounds the output: ERR_CONTEXT_LENGTH beyond it.
 * ERR_PATTERN_LIMIT: the file's pattern or tokens want more work than the text may take (budget.h). ERR_NOMEM. Errors of
 * task_check(), where the thread's task should end. On failure *out is as before. */
MUST_CHECK enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                                     const struct span *plain, size_t n_plain, size_t max_tokens,
                                     struct token_list *out);

/* Like tokenizer_encode; info (OPTIONAL) has the figures of ERR_PATTERN_LIMIT. */
MUST_CHECK enum err tokenizer_encode_told(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                                          const struct span *plain, size_t n_plain, size_t max_tokens,
                                          struct token_list *out, struct err_info *info);

int32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* or TOKENIZER_NO_TOKEN */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* True for ids that end a generation: EOS, EOT, EOM and the end-of-turn tokens that files name or that are known by
 * text (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, ...). */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
const char *tokenizer_model_name(const struct tokenizer *t); /* "gpt2", "llama", "gemma4", "t5", "bert" */
const char *tokenizer_pre_name(const struct tokenizer *t);   /* "smollm"; "" where there is none */
enum token_kind tokenizer_kind(const struct tokenizer *t, int32_t id);

/* The vocabulary text of an id (as in the file, byte alphabet not undone); borrowed. id must be in range. */
struct gguf_str tokenizer_token_text(const struct tokenizer *t, int32_t id);

/* The id whose vocabulary text is s[0..n), or TOKENIZER_NO_TOKEN. */
int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t n);

/* Appends the bytes that id stands for (maybe part of a UTF-8 sequence). Control tokens give their text only when
 * `show_special`. id must be in range. */
void tokenizer_piece(const struct tokenizer *t, int32_t id, bool show_special, struct buf *out);

/* --- streaming detokenizer -------------------------------------------------------------------------------------- */

/* Bytes not yet given out. Zero-initialise; nothing to free. */
struct detokenizer {
    char held[4]; /* start of a UTF-8 sequence */
    size_t n_held;
    bool started; /* SPM: the first token loses its leading space */
};

/* Appends to out what id adds to the text: only whole UTF-8 sequences; the start of one is held back for the next call.
 * A byte that can never become valid comes out as U+FFFD at once. */
void detokenizer_push(struct detokenizer *d, const struct tokenizer *t, int32_t id, bool show_special, struct buf *out);

/* At the end: a held-back start of a sequence comes out as one U+FFFD. */
void detokenizer_finish(struct detokenizer *d, struct buf *out);

#endif
