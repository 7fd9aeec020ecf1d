/* The tokenizer of a SafeTensors folder as keys of GGUF, so that engine/tokenizer reads one thing: tokenizer.json
 * [Hugging Face tokenizers 0.23], else tokenizer.model (spm_proto.h), with tokenizer_config.json, chat_template.jinja
 * and generation_config.json. What engine/tokenizer could not reproduce is refused by name.
 *
 * Keys beyond those of GGUF, for what GGUF cannot say:
 *   infcgi.tokenizer.pattern        string, or array of strings: expressions that cut the text one after the other,
 * where tokenizer.ggml.pre names none infcgi.tokenizer.ignore_merges  bool: a word that is a token is taken whole
 *   infcgi.tokenizer.merge_ids      u32 [3 n]: left, right and what they become, first rule first; model llama
 *   infcgi.tokenizer.normal_form    string: NFC, NFD, NFKC or NFKD; model gpt2
 *   infcgi.tokenizer.cuts_spaces    bool: each U+2581 begins a word; model llama
 *   infcgi.tokenizer.space_prefix   string: first (of the text, unless there is a space), missing (of each part between
 *                                   special tokens, unless there is one)
 *   infcgi.tokenizer.lstrip_ids, rstrip_ids   u32 arrays: special tokens that take in the white space beside them
 *   infcgi.tokenizer.normalized_ids   u32 array: added tokens that are found in normalized text
 *   infcgi.tokenizer.single_word_ids  u32 array: added tokens that are none next to a character of a word
 *   infcgi.tokenizer.apart_ids        u32 array: added tokens that the model does not have, and text is never cut into
 *   infcgi.tokenizer.normalizes_spaces   bool: the normalizer spells spaces as U+2581, before the former are found
 *   infcgi.tokenizer.eog_ids        u32 array: what ends a generation, besides EOS
 *   infcgi.tokenizer.file           string: the file that all this is of, for messages; not written by convert
 * Threads: pure functions. */
#ifndef INFCGI_FORMAT_TOKENIZER_JSON_H
#define INFCGI_FORMAT_TOKENIZER_JSON_H

#include "engine/base/json_read.h"
#include "engine/format/gguf_build.h"

enum { TOKENIZER_JSON_MAX_BYTES = 128 << 20 };

/* Adds the keys of the folder's tokenizer, chat template and sampling defaults to b; none of a tokenizer where the
 * folder has neither tokenizer.json nor tokenizer.model.
 *   config  config.json
 *   n_rows  of the token embedding; 0: not known. Ids beyond the vocabulary become unused tokens.
 * ERR_BAD_VOCAB, ERR_BAD_MERGE, ERR_BAD_BYTE_TOKEN, ERR_BAD_SPECIAL_TOKEN, ERR_BAD_CONFIG (the small files),
 * ERR_UNSUPPORTED_TOKENIZER, ERR_UNSUPPORTED_PRETOKENIZER (normalizers too), ERR_TOO_LARGE, ERR_FILE, ERR_IO,
 * ERR_NOMEM; info names the file and the member. */
MUST_CHECK enum err tokenizer_json_add(const char *folder, const json_t *config, uint64_t n_rows, struct gguf_build *b,
                                       struct err_info *info);

#endif
