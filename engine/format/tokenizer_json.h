/* The tokenizer of a SafeTensors folder as keys of GGUF, the only form that engine/tokenizer reads. The source is
 * tokenizer.json [Hugging Face tokenizers 0.23], else tokenizer.model (spm_proto.h), with tokenizer_config.json,
 * chat_template.jinja and generation_config.json. A feature that engine/tokenizer cannot reproduce is rejected by name.
 *
 * Keys for settings that GGUF's own keys lack:
 *   infcgi.tokenizer.pattern        string, or array of strings: expressions that split the text in sequence, if
 *                                   tokenizer.ggml.pre names none
 *   infcgi.tokenizer.ignore_merges  bool: a word that is a token becomes that token without merges
 *   infcgi.tokenizer.merge_ids      u32 [3 n]: left, right and result, first rule first; model llama
 *   infcgi.tokenizer.normal_form    string: NFC, NFD, NFKC or NFKD; model gpt2
 *   infcgi.tokenizer.cuts_spaces    bool: each U+2581 begins a word; model llama
 *   infcgi.tokenizer.space_prefix   string: first (before the text, unless it begins with a space), missing (before
 *                                   each part between special tokens, unless it begins with a space)
 *   infcgi.tokenizer.lstrip_ids, rstrip_ids   u32 arrays: special tokens that include the adjacent white space
 *   infcgi.tokenizer.normalized_ids   u32 array: added tokens that are found in normalized text
 *   infcgi.tokenizer.single_word_ids  u32 array: added tokens that cannot be next to a word character
 *   infcgi.tokenizer.apart_ids        u32 array: added tokens that the model lacks; text is never split into them
 *   infcgi.tokenizer.normalizes_spaces   bool: the normalizer replaces spaces by U+2581 before added tokens are found
 *   infcgi.tokenizer.eog_ids        u32 array: ids that end a generation, in addition to EOS
 *   infcgi.tokenizer.file           string: the source file of these keys, for messages; convert does not write it
 * Threads: pure functions. */
#ifndef INFCGI_FORMAT_TOKENIZER_JSON_H
#define INFCGI_FORMAT_TOKENIZER_JSON_H

#include "engine/base/json_read.h"
#include "engine/format/gguf_build.h"

enum { TOKENIZER_JSON_MAX_BYTES = 128 << 20 };

/* Adds the keys of the folder's tokenizer, chat template and sampling defaults to b; without tokenizer.json and
 * tokenizer.model, no tokenizer keys.
 *   config  config.json
 *   n_rows  rows of the token embedding; 0: unknown. Ids beyond the vocabulary become unused tokens.
 * ERR_BAD_VOCAB, ERR_BAD_MERGE, ERR_BAD_BYTE_TOKEN, ERR_BAD_SPECIAL_TOKEN, ERR_BAD_CONFIG (the small files),
 * ERR_UNSUPPORTED_TOKENIZER, ERR_UNSUPPORTED_PRETOKENIZER (normalizers too), ERR_TOO_LARGE, ERR_FILE, ERR_IO,
 * ERR_NOMEM; info names the file and the member. */
MUST_CHECK enum err tokenizer_json_add(const char *folder, const json_t *config, uint64_t n_rows, struct gguf_build *b,
                                       struct err_info *info);

#endif
