/* Error values: one list defines the enum, the code and the text.
 *
 * A function that can fail returns `enum err`; ERR_OK is 0. ERR_AGAIN (not now) and ERR_NONE (nothing to do) are
 * results, not failures. Functions at a boundary also fill a `struct err_info` with what was expected, what was found
 * and where. Threads: all functions are safe from any; an err_info belongs to its caller. */
#ifndef INFCGI_BASE_ERR_H
#define INFCGI_BASE_ERR_H

#include "engine/base/compiler.h"

#include <stdint.h>

/* X(enum, code as clients and users see it, default text). `infcgi inspect --check` prints the codes of model
 * files. docs/ops/errors.md lists every row (lint checks that). */
#define ERR_LIST(X)                                                                                                    \
    X(ERR_OK, "ok", "no error")                                                                                        \
    X(ERR_AGAIN, "again", "not ready yet")                                                                             \
    X(ERR_NONE, "none", "nothing to do")                                                                               \
    /* the process and its surroundings */                                                                             \
    X(ERR_NOMEM, "out_of_memory", "out of memory")                                                                     \
    X(ERR_IO, "io_error", "input/output error")                                                                        \
    X(ERR_INTERNAL, "internal_error", "internal error")                                                                \
    X(ERR_NUMERICAL, "numerical_error", "the model computed values that are not finite")                               \
    X(ERR_LOST, "backend_lost", "the back end was lost; the server stops")                                             \
    X(ERR_CANCELLED, "cancelled", "the request was cancelled")                                                         \
    X(ERR_SLOW_READER, "slow_reader", "the client did not read the answer in time")                                    \
    X(ERR_DEADLINE, "deadline_exceeded", "the request exceeded its deadline")                                          \
    X(ERR_OVERLOADED, "server_overloaded", "the queue is full")                                                        \
    X(ERR_REQUEST_MEMORY, "request_memory_full", "the memory for requests is exhausted")                               \
    X(ERR_DRAINING, "draining", "the server is shutting down")                                                         \
    X(ERR_LOADING, "model_loading", "the model is loading")                                                            \
    X(ERR_NO_MODEL, "model_unavailable", "the model cannot be loaded")                                                 \
    X(ERR_UNSUPPORTED_CPU, "unsupported_cpu", "this CPU lacks the instructions requested")                             \
    X(ERR_UNSUPPORTED_DEVICE, "unsupported_device", "the device cannot run the model")                                 \
    /* requests */                                                                                                     \
    X(ERR_INVALID_JSON, "invalid_json", "the body is not valid JSON")                                                  \
    X(ERR_INVALID_UTF8, "invalid_utf8", "the body is not valid UTF-8")                                                 \
    X(ERR_JSON_TOO_DEEP, "json_too_deep", "the JSON is nested too deeply")                                             \
    X(ERR_JSON_TOO_LARGE, "json_too_large", "the JSON needs too much memory")                                          \
    X(ERR_DUPLICATE_FIELD, "duplicate_key", "duplicate JSON key")                                                      \
    X(ERR_MISSING_PARAMETER, "missing_required_parameter", "missing parameter")                                        \
    X(ERR_INVALID_TYPE, "invalid_type", "a parameter has the wrong type")                                              \
    X(ERR_INVALID_VALUE, "invalid_value", "a parameter is out of range")                                               \
    X(ERR_UNKNOWN_PARAMETER, "unknown_parameter", "unknown parameter")                                                 \
    X(ERR_UNSUPPORTED_PARAMETER, "unsupported_parameter", "unsupported parameter")                                     \
    X(ERR_UNSUPPORTED_ENDPOINT, "unsupported_endpoint", "the model does not support this endpoint")                    \
    X(ERR_NOT_SUPPORTED, "not_supported", "not supported by this server or model")                                     \
    X(ERR_CONTEXT_LENGTH, "context_length_exceeded", "the prompt is too long")                                         \
    X(ERR_PATTERN_LIMIT, "pattern_limit", "the text exceeds the pre-tokenizer's work limit")                           \
    X(ERR_INVALID_GRAMMAR, "invalid_grammar", "the grammar is malformed")                                              \
    X(ERR_INVALID_SCHEMA, "invalid_json_schema", "the JSON Schema cannot be enforced")                                 \
    X(ERR_GRAMMAR_LIMIT, "grammar_too_complex", "the grammar exceeds the work limit")                                  \
    X(ERR_GRAMMAR_DEAD_END, "grammar_dead_end", "no token of the model can follow the grammar")                        \
    X(ERR_TEMPLATE, "template_error", "the chat template failed")                                                      \
    X(ERR_NO_TEMPLATE, "no_chat_template", "the model has no chat template")                                           \
    X(ERR_RATE_LIMIT, "rate_limit_exceeded", "rate limit reached")                                                     \
    X(ERR_API_KEY, "invalid_api_key", "the API key is missing or wrong")                                               \
    X(ERR_ORIGIN, "origin_not_allowed", "the origin is not allowed")                                                   \
    X(ERR_MODEL_NOT_FOUND, "model_not_found", "model not found")                                                       \
    X(ERR_RESPONSE_NOT_FOUND, "response_not_found", "response not found")                                              \
    X(ERR_UNKNOWN_URL, "unknown_url", "unknown URL")                                                                   \
    X(ERR_METHOD, "method_not_allowed", "method not allowed for this URL")                                             \
    X(ERR_TOO_LARGE, "request_too_large", "the request body is too large")                                             \
    X(ERR_MEDIA_TYPE, "unsupported_media_type", "the content type is not JSON")                                        \
    X(ERR_HEAD_TOO_LARGE, "request_head_too_large", "the request header is too large")                                 \
    /* configuration */                                                                                                \
    X(ERR_CONFIG, "bad_config", "invalid configuration")                                                               \
    X(ERR_ADDRESS_IN_USE, "address_in_use", "the address is in use")                                                   \
    /* model files */                                                                                                  \
    X(ERR_FILE, "not_a_regular_file", "not a readable regular file")                                                   \
    X(ERR_TRUNCATED_HEADER, "truncated_header", "the file ends inside its header")                                     \
    X(ERR_BAD_MAGIC, "bad_magic", "not a GGUF file")                                                                   \
    X(ERR_BAD_VERSION, "bad_version", "unknown GGUF version")                                                          \
    X(ERR_WRONG_ENDIANNESS, "wrong_endianness", "the file has the other byte order")                                   \
    X(ERR_COUNT_EXCEEDS_FILE, "count_exceeds_file", "a count exceeds the file")                                        \
    X(ERR_TRUNCATED, "truncated", "the file ends too early")                                                           \
    X(ERR_BAD_KEY, "bad_key", "a metadata key is malformed")                                                           \
    X(ERR_DUPLICATE_KEY, "duplicate_key", "duplicate metadata key")                                                    \
    X(ERR_BAD_VALUE_TYPE, "bad_value_type", "unknown metadata value type")                                             \
    X(ERR_BAD_BOOL, "bad_bool", "a boolean is neither 0 nor 1")                                                        \
    X(ERR_NESTED_ARRAY, "nested_array_unsupported", "arrays of arrays are not supported")                              \
    X(ERR_STRING_EXCEEDS_FILE, "string_exceeds_file", "a string exceeds the file")                                     \
    X(ERR_BAD_STRING, "bad_string", "a string is malformed")                                                           \
    X(ERR_BAD_ALIGNMENT, "bad_alignment", "the alignment is not a power of two in range")                              \
    X(ERR_BAD_TENSOR_NAME, "bad_tensor_name", "a tensor name is malformed or duplicate")                               \
    X(ERR_BAD_DIMS, "bad_dims", "a tensor has an impossible number of dimensions")                                     \
    X(ERR_BAD_SHAPE, "bad_shape", "a tensor has an impossible shape")                                                  \
    X(ERR_UNSUPPORTED_TYPE, "unsupported_type", "a tensor type is not supported")                                      \
    X(ERR_BAD_OFFSET, "bad_offset", "a tensor is outside the file or not aligned")                                     \
    X(ERR_TENSOR_OVERLAP, "tensor_overlap", "tensors overlap or leave a gap")                                          \
    X(ERR_BAD_HPARAM, "bad_hparam", "a hyperparameter is missing or out of range")                                     \
    X(ERR_UNSUPPORTED_ARCH, "unsupported_architecture", "unknown model family")                                        \
    X(ERR_MISSING_TENSOR, "missing_tensor", "a tensor is missing")                                                     \
    X(ERR_BAD_TENSOR_SHAPE, "bad_tensor_shape", "a tensor has the wrong shape")                                        \
    X(ERR_BAD_HEADER_LENGTH, "bad_header_length", "invalid header length")                                             \
    X(ERR_BAD_HEADER, "bad_header", "the header is malformed")                                                         \
    X(ERR_BAD_DTYPE, "bad_dtype", "unknown tensor dtype")                                                              \
    X(ERR_SIZE_MISMATCH, "size_mismatch", "a tensor's range does not match its shape")                                 \
    X(ERR_BAD_SHARD_INDEX, "bad_shard_index", "the shard index is malformed")                                          \
    X(ERR_BAD_CONFIG, "bad_model_config", "config.json is malformed")                                                  \
    X(ERR_NO_SAFETENSORS, "no_safetensors", "no SafeTensors model in the folder")                                      \
    X(ERR_BAD_SPLIT, "bad_split", "the parts of a split model do not match")                                           \
    X(ERR_CHECKSUM, "checksum_mismatch", "a file does not match its checksum")                                         \
    X(ERR_BAD_TYPE, "bad_type", "a metadata value has the wrong type or length")                                       \
    X(ERR_BAD_VOCAB, "bad_vocab", "the vocabulary is malformed")                                                       \
    X(ERR_BAD_SPECIAL_TOKEN, "bad_special_token", "a special token id is out of range")                                \
    X(ERR_BAD_BYTE_TOKEN, "bad_byte_token", "a byte token is malformed or missing")                                    \
    X(ERR_BAD_MERGE, "bad_merge", "a merge rule is malformed")                                                         \
    X(ERR_BAD_CHARSMAP, "bad_charsmap", "the normalizer's map is malformed")                                           \
    X(ERR_UNSUPPORTED_TOKENIZER, "unsupported_tokenizer", "unknown tokenizer model")                                   \
    X(ERR_UNSUPPORTED_PRETOKENIZER, "unsupported_pretokenizer", "unknown pre-tokenizer")                               \
    X(ERR_MEMORY_LIMIT, "memory_limit", "the model exceeds the memory or the limit set")

enum err {
#define ERR_ENUM(name, code, text) name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
        ERR_COUNT
};

enum {
    ERR_TEXT_BYTES = 3072, /* longer messages are cut at a UTF-8 boundary */
    ERR_WHERE_BYTES = 128,
};
#define ERR_NO_OFFSET UINT64_MAX

/* The details of an error, for people. Zero-initialise; err_set and err_set_at fill it. */
struct err_info {
    enum err code;
    uint64_t offset;             /* byte offset in a file, or ERR_NO_OFFSET */
    char where[ERR_WHERE_BYTES]; /* request parameter ("messages[0].role"), tensor or metadata key; "": none */
    char text[ERR_TEXT_BYTES];   /* one sentence without a newline: what was expected and what was found */
};

/* Fills *info (OPTIONAL) and returns `code`, for use as `return err_set(...)`. Replaces control characters and bytes
 * that are not UTF-8, so text and where can be printed whatever they quote.
 *
 *   where   OPTIONAL NUL-terminated name of the parameter, tensor or key; cut to fit
 *   fmt     printf format of the sentence */
enum err err_set(struct err_info *info, enum err code, const char *where, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Like err_set, for a position in a file: offset in bytes from its start. */
enum err err_set_at(struct err_info *info, enum err code, uint64_t offset, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Prefixes the text of *info (OPTIONAL) with the last component of a file's path; keeps the rest. */
void err_name_file(struct err_info *info, const char *path);

/* Return columns of ERR_LIST, as static strings. A value outside the enum reads as ERR_INTERNAL. */
const char *err_code(enum err code); /* "invalid_json" */
const char *err_text(enum err code); /* "the body is not valid JSON" */

/* Returns a failure to the caller. */
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        enum err try_err_ = (expr);                                                                                    \
        if (try_err_ != ERR_OK) {                                                                                      \
            return try_err_;                                                                                           \
        }                                                                                                              \
    } while (0)

/* Returns ERR_NOMEM to the caller if the allocation failed. TRY_MEM_FOR also fills *info, from a printf format. */
#define TRY_MEM(is_there)                TRY((is_there) ? ERR_OK : ERR_NOMEM)
#define TRY_MEM_FOR(is_there, info, ...) TRY((is_there) ? ERR_OK : err_set(info, ERR_NOMEM, NULL, __VA_ARGS__))

#endif
