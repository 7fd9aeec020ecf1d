/* Declarations shared by the files that read a folder's tokenizer. */
#ifndef INFCGI_FORMAT_TOKENIZER_JSON_INTERNAL_H
#define INFCGI_FORMAT_TOKENIZER_JSON_INTERNAL_H

#include "engine/format/safetensors_folder.h"
#include "engine/format/tokenizer_json.h"
#include "engine/format/tokenizer_vocab.h"

enum {
    TOKENIZER_JSON_WHERE_BYTES = 80,
    TOKENIZER_JSON_MAX_PATTERNS = 6, /* as in pretokenizer.h */
    TOKENIZER_JSON_MAX_STEPS = 32,   /* of normalizers and pre-tokenizers */
};

/* Settings of the normalizer's and the pre-tokenizer's steps. */
enum tokenizer_rule {
    RULE_NORMAL_FORM,
    RULE_PREPEND,  /* U+2581 before each part */
    RULE_ESCAPE,   /* spaces become U+2581 */
    RULE_COLLAPSE, /* runs of spaces become one space */
    RULE_STRIP_RIGHT,
    RULE_CHARSMAP,
    RULE_BERT_NORMALIZER,
    RULE_BYTE_LEVEL,
    RULE_PATTERN,
    RULE_METASPACE,
    RULE_WHITESPACE_SPLIT,
    RULE_BERT_PRETOKENIZER,
    RULE_COUNT
};

struct tokenizer_rules {
    uint32_t used;                                      /* bits by enum tokenizer_rule */
    char where[RULE_COUNT][TOKENIZER_JSON_WHERE_BYTES]; /* the member with the setting */
    const char *patterns[TOKENIZER_JSON_MAX_PATTERNS];  /* of the JSON, or static */
    size_t n_patterns;
    const char *normal_form; /* OPTIONAL: NFC etc. */
    const json_t *charsmap;  /* a string, base64 */
    const char *prepend;     /* metaspace: always, first or never */
    bool metaspace_splits;
    bool lowercase, strips_accents; /* bert */
};

static inline bool tokenizer_rules_has(const struct tokenizer_rules *r, enum tokenizer_rule rule)
{
    return (r->used >> rule & 1) != 0;
}

/* GPT-2's expression, as ByteLevel runs it without a Split [tokenizers 0.23, pre_tokenizers/byte_level.rs]. */
#define TOKENIZER_JSON_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* State while a folder is read. */
struct tokenizer_reader {
    const char *folder;
    struct gguf_build *b;
    struct err_info *info;
    const json_t *config;                 /* config.json */
    json_t *root, *settings, *generation; /* OPTIONAL: tokenizer.json, tokenizer_config.json, generation_config.json */
    const json_t *model;                  /* of root */
    const char *file;                     /* source of the vocabulary, for messages */
    struct tokenizer_rules rules;
    struct tokenizer_vocab vocab;
    struct buf proto; /* tokenizer.model, from which the vocabulary then borrows */
    uint32_t n_rows;
    /* Tokens added before and after a text; TOKENIZER_VOCAB_NONE: none. */
    uint32_t first_id, last_id;
    bool has_template;    /* the post-processor sets them */
    bool has_unknown_key; /* tokenizer.ggml.unknown_token_id is written */
};

/* --- tokenizer_json_read.c ---------------------------------------------------------------------------------------- */

/* Reports "tokenizer.json: <where>: expected <what>, found <v>"; v can be NULL. */
enum err tokenizer_json_bad(const struct tokenizer_reader *r, enum err code, const char *where, const char *expected,
                            const json_t *v);

/* Reads a boolean member; *out stays if it is absent. */
MUST_CHECK enum err tokenizer_json_bool(const struct tokenizer_reader *r, const json_t *object, const char *where,
                                        const char *name, bool *out);

/* Writes "<folder>/<name>" to path; *is_there: the file exists. ERR_FILE (the path is too long). */
MUST_CHECK enum err tokenizer_json_path(const struct tokenizer_reader *r, const char *name,
                                        char path[SAFETENSORS_PATH_BYTES], bool *is_there);

/* Reads folder/name as a JSON object; *out is NULL if the file does not exist. Malformed: `code`. */
MUST_CHECK enum err tokenizer_json_file(const struct tokenizer_reader *r, const char *name, size_t limit_bytes,
                                        enum err code, json_t **out);

/* --- parts of a folder ------------------------------------------------------------------------------------------ */

/* tokenizer_json_rules.c: reads normalizer and pre_tokenizer into r->rules. */
MUST_CHECK enum err tokenizer_json_rules(struct tokenizer_reader *r);

/* tokenizer_json_post.c: reads post_processor into r->first_id and last_id. */
MUST_CHECK enum err tokenizer_json_post(struct tokenizer_reader *r);

/* tokenizer_json_model.c: reads model and added_tokens into r->vocab, and writes all keys that depend on the model. */
MUST_CHECK enum err tokenizer_json_model(struct tokenizer_reader *r);

/* tokenizer_json_vocab.c: reads model.vocab, an object or a list, and added_tokens into r->vocab. Writes the keys for
 * finding added tokens: adjacent white space, normalized text, whole words. */
MUST_CHECK enum err tokenizer_json_vocab(struct tokenizer_reader *r, bool is_list);
MUST_CHECK enum err tokenizer_json_switches(struct tokenizer_reader *r);

/* The second half of tokenizer_json_vocab: r->root's added_tokens. */
MUST_CHECK enum err tokenizer_json_added(struct tokenizer_reader *r);

/* tokenizer_json_spm.c: reads tokenizer.model at `path`, with added_tokens.json and tokenizer_config.json's added
 * tokens. */
MUST_CHECK enum err tokenizer_json_spm(struct tokenizer_reader *r, const char *path);

/* tokenizer_json_files.c: write the keys of tokens' roles (if there is a vocabulary), the chat template, and
 * sampling. */
MUST_CHECK enum err tokenizer_json_roles(struct tokenizer_reader *r);
MUST_CHECK enum err tokenizer_json_chat(struct tokenizer_reader *r);
MUST_CHECK enum err tokenizer_json_sampling(struct tokenizer_reader *r);

#endif
