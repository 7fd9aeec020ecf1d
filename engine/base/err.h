/* Error values: one list defines the enum, the wire code, the HTTP status and the OpenAI error type.
 *
 * A function that can fail returns `enum err`; ERR_OK is 0. ERR_AGAIN (not now) and ERR_NONE (nothing to do) are
 * results, not failures. Functions at a boundary also fill a `struct err_info` with what was expected, what was found
 * and where. Threads: all functions are safe from any; an err_info belongs to its caller. */
#ifndef INFCGI_BASE_ERR_H
#define INFCGI_BASE_ERR_H

#include "engine/base/compiler.h"

#include <stdint.h>

/* X(enum, wire code, HTTP status, OpenAI error type, default text). `infcgi inspect --check` prints the codes of model
 * files. docs/ops/errors.md lists every row (lint checks that). */
#define ERR_LIST(X)                                                                                                    \
    X(ERR_OK, "ok", 200, "", "no error")                                                                               \
    X(ERR_AGAIN, "again", 503, "server_error", "not ready yet")                                                        \
    X(ERR_NONE, "none", 404, "invalid_request_error", "nothing to do")                                                 \
    /* the process and its surroundings */                                                                             \
    X(ERR_NOMEM, "out_of_memory", 500, "server_error", "out of memory")                                                \
    X(ERR_IO, "io_error", 500, "server_error", "input/output error")                                                   \
    X(ERR_INTERNAL, "internal_error", 500, "server_error", "internal error")                                           \
    X(ERR_NUMERICAL, "numerical_error", 500, "server_error", "the model produced values that are not finite")          \
    X(ERR_LOST, "backend_lost", 500, "server_error", "the back end is lost; the server ends")                          \
    X(ERR_CANCELLED, "cancelled", 499, "server_error", "the request was cancelled")                                    \
    X(ERR_SLOW_READER, "slow_reader", 499, "server_error", "nobody took the answer for too long")                      \
    X(ERR_DEADLINE, "deadline_exceeded", 504, "timeout_error", "the request ran past its deadline")                    \
    X(ERR_OVERLOADED, "server_overloaded", 503, "server_error", "the queue is full")                                   \
    X(ERR_REQUEST_MEMORY, "request_memory_full", 503, "server_error", "the memory for requests is used up")            \
    X(ERR_DRAINING, "draining", 503, "server_error", "the server is shutting down")                                    \
    X(ERR_LOADING, "model_loading", 503, "unavailable_error", "the model is loading")                                  \
    X(ERR_NO_MODEL, "model_unavailable", 503, "unavailable_error", "the model cannot be loaded")                       \
    X(ERR_UNSUPPORTED_CPU, "unsupported_cpu", 500, "server_error", "this CPU lacks the instructions asked for")        \
    X(ERR_UNSUPPORTED_DEVICE, "unsupported_device", 500, "server_error", "the device cannot compute what is needed")   \
    /* requests */                                                                                                     \
    X(ERR_INVALID_JSON, "invalid_json", 400, "invalid_request_error", "the body is not valid JSON")                    \
    X(ERR_INVALID_UTF8, "invalid_utf8", 400, "invalid_request_error", "the body is not valid UTF-8")                   \
    X(ERR_JSON_TOO_DEEP, "json_too_deep", 400, "invalid_request_error", "the JSON is nested too deeply")               \
    X(ERR_JSON_TOO_LARGE, "json_too_large", 400, "invalid_request_error", "the JSON would take too much memory")       \
    X(ERR_DUPLICATE_FIELD, "duplicate_key", 400, "invalid_request_error", "a JSON key stands twice")                   \
    X(ERR_MISSING_PARAMETER, "missing_required_parameter", 400, "invalid_request_error", "a parameter is missing")     \
    X(ERR_INVALID_TYPE, "invalid_type", 400, "invalid_request_error", "a parameter has the wrong type")                \
    X(ERR_INVALID_VALUE, "invalid_value", 400, "invalid_request_error", "a parameter is out of range")                 \
    X(ERR_UNKNOWN_PARAMETER, "unknown_parameter", 400, "invalid_request_error", "a parameter is not known")            \
    X(ERR_UNSUPPORTED_PARAMETER, "unsupported_parameter", 400, "invalid_request_error",                                \
      "a parameter is not supported")                                                                                  \
    X(ERR_UNSUPPORTED_ENDPOINT, "unsupported_endpoint", 400, "invalid_request_error",                                  \
      "the model cannot do what this URL is for")                                                                      \
    X(ERR_NOT_SUPPORTED, "not_supported", 501, "not_supported_error", "the server or the model has no such thing")     \
    X(ERR_CONTEXT_LENGTH, "context_length_exceeded", 400, "invalid_request_error", "the prompt is too long")           \
    X(ERR_PATTERN_LIMIT, "pattern_limit", 400, "invalid_request_error",                                                \
      "the text takes the model's pre-tokenizer too much work")                                                        \
    X(ERR_INVALID_GRAMMAR, "invalid_grammar", 400, "invalid_request_error", "the grammar is malformed")                \
    X(ERR_INVALID_SCHEMA, "invalid_json_schema", 400, "invalid_request_error", "the JSON Schema cannot be enforced")   \
    X(ERR_GRAMMAR_LIMIT, "grammar_too_complex", 400, "invalid_request_error", "the grammar takes too much work")       \
    X(ERR_GRAMMAR_DEAD_END, "grammar_dead_end", 500, "server_error", "no token of the model can follow the grammar")   \
    X(ERR_TEMPLATE, "template_error", 400, "invalid_request_error", "the chat template failed")                        \
    X(ERR_NO_TEMPLATE, "no_chat_template", 400, "invalid_request_error", "the model has no chat template")             \
    X(ERR_RATE_LIMIT, "rate_limit_exceeded", 429, "rate_limit_error", "the tenant's limit is reached")                 \
    X(ERR_API_KEY, "invalid_api_key", 401, "invalid_request_error", "the API key is missing or wrong")                 \
    X(ERR_ORIGIN, "origin_not_allowed", 403, "permission_error", "pages of this origin may not use the server")        \
    X(ERR_MODEL_NOT_FOUND, "model_not_found", 404, "invalid_request_error", "no such model")                           \
    X(ERR_RESPONSE_NOT_FOUND, "response_not_found", 404, "invalid_request_error", "no such response is kept")          \
    X(ERR_UNKNOWN_URL, "unknown_url", 404, "invalid_request_error", "no such URL")                                     \
    X(ERR_METHOD, "method_not_allowed", 405, "invalid_request_error", "this URL does not take that method")            \
    X(ERR_TOO_LARGE, "request_too_large", 413, "invalid_request_error", "the request body is too large")               \
    X(ERR_MEDIA_TYPE, "unsupported_media_type", 415, "invalid_request_error", "the content type is not JSON")          \
    X(ERR_HEAD_TOO_LARGE, "request_head_too_large", 431, "invalid_request_error", "the request's head is too large")   \
    /* configuration */                                                                                                \
    X(ERR_CONFIG, "bad_config", 500, "server_error", "the configuration is wrong")                                     \
    X(ERR_ADDRESS_IN_USE, "address_in_use", 500, "server_error", "the address is in use")                              \
    /* model files */                                                                                                  \
    X(ERR_FILE, "not_a_regular_file", 500, "server_error", "not a readable regular file")                              \
    X(ERR_TRUNCATED_HEADER, "truncated_header", 500, "server_error", "the file ends inside its header")                \
    X(ERR_BAD_MAGIC, "bad_magic", 500, "server_error", "not a GGUF file")                                              \
    X(ERR_BAD_VERSION, "bad_version", 500, "server_error", "unknown GGUF version")                                     \
    X(ERR_WRONG_ENDIANNESS, "wrong_endianness", 500, "server_error", "the file has the other byte order")              \
    X(ERR_COUNT_EXCEEDS_FILE, "count_exceeds_file", 500, "server_error", "a count cannot fit in the file")             \
    X(ERR_TRUNCATED, "truncated", 500, "server_error", "the file ends too early")                                      \
    X(ERR_BAD_KEY, "bad_key", 500, "server_error", "a metadata key is malformed")                                      \
    X(ERR_DUPLICATE_KEY, "duplicate_key", 500, "server_error", "a metadata key stands twice")                          \
    X(ERR_BAD_VALUE_TYPE, "bad_value_type", 500, "server_error", "unknown metadata value type")                        \
    X(ERR_BAD_BOOL, "bad_bool", 500, "server_error", "a bool is neither 0 nor 1")                                      \
    X(ERR_NESTED_ARRAY, "nested_array_unsupported", 500, "server_error", "arrays of arrays are not supported")         \
    X(ERR_STRING_EXCEEDS_FILE, "string_exceeds_file", 500, "server_error", "a string cannot fit in the file")          \
    X(ERR_BAD_STRING, "bad_string", 500, "server_error", "a string is malformed")                                      \
    X(ERR_BAD_ALIGNMENT, "bad_alignment", 500, "server_error", "the alignment is not a power of two in range")         \
    X(ERR_BAD_TENSOR_NAME, "bad_tensor_name", 500, "server_error", "a tensor name is malformed or stands twice")       \
    X(ERR_BAD_DIMS, "bad_dims", 500, "server_error", "a tensor has an impossible number of dimensions")                \
    X(ERR_BAD_SHAPE, "bad_shape", 500, "server_error", "a tensor has an impossible shape")                             \
    X(ERR_UNSUPPORTED_TYPE, "unsupported_type", 500, "server_error", "a tensor type is not supported")                 \
    X(ERR_BAD_OFFSET, "bad_offset", 500, "server_error", "a tensor lies outside the file or is not aligned")           \
    X(ERR_TENSOR_OVERLAP, "tensor_overlap", 500, "server_error", "tensors overlap or leave a hole")                    \
    X(ERR_BAD_HPARAM, "bad_hparam", 500, "server_error", "a hyper-parameter is missing or out of range")               \
    X(ERR_UNSUPPORTED_ARCH, "unsupported_architecture", 500, "server_error", "this model family is not known")         \
    X(ERR_MISSING_TENSOR, "missing_tensor", 500, "server_error", "a tensor is missing")                                \
    X(ERR_BAD_TENSOR_SHAPE, "bad_tensor_shape", 500, "server_error", "a tensor has the wrong shape")                   \
    X(ERR_BAD_HEADER_LENGTH, "bad_header_length", 500, "server_error", "a header length cannot be")                    \
    X(ERR_BAD_HEADER, "bad_header", 500, "server_error", "the header is malformed")                                    \
    X(ERR_BAD_DTYPE, "bad_dtype", 500, "server_error", "a tensor's dtype is not known")                                \
    X(ERR_SIZE_MISMATCH, "size_mismatch", 500, "server_error", "a tensor's range does not fit its shape")              \
    X(ERR_BAD_SHARD_INDEX, "bad_shard_index", 500, "server_error", "the index of the shards is malformed")             \
    X(ERR_BAD_CONFIG, "bad_model_config", 500, "server_error", "the model's config.json is malformed")                 \
    X(ERR_NO_SAFETENSORS, "no_safetensors", 500, "server_error", "the folder holds no SafeTensors model")              \
    X(ERR_BAD_SPLIT, "bad_split", 500, "server_error", "the parts of a split model do not fit together")               \
    X(ERR_CHECKSUM, "checksum_mismatch", 500, "server_error", "a file is not the one of the list of sums")             \
    X(ERR_BAD_TYPE, "bad_type", 500, "server_error", "a metadata value has the wrong type or length")                  \
    X(ERR_BAD_VOCAB, "bad_vocab", 500, "server_error", "the vocabulary is malformed")                                  \
    X(ERR_BAD_SPECIAL_TOKEN, "bad_special_token", 500, "server_error", "a special token id is out of range")           \
    X(ERR_BAD_BYTE_TOKEN, "bad_byte_token", 500, "server_error", "a byte token is malformed or missing")               \
    X(ERR_BAD_MERGE, "bad_merge", 500, "server_error", "a merge rule is malformed")                                    \
    X(ERR_BAD_CHARSMAP, "bad_charsmap", 500, "server_error", "the map of a normalizer is malformed")                   \
    X(ERR_UNSUPPORTED_TOKENIZER, "unsupported_tokenizer", 500, "server_error", "this tokenizer model is not known")    \
    X(ERR_UNSUPPORTED_PRETOKENIZER, "unsupported_pretokenizer", 500, "server_error",                                   \
      "this pre-tokenizer is not known")                                                                               \
    X(ERR_MEMORY_LIMIT, "memory_limit", 500, "server_error", "the model does not fit in memory, or in the limit set")

enum err {
#define ERR_ENUM(name, code, status, type, text) name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
        ERR_COUNT
};

enum {
    ERR_TEXT_BYTES = 1536, /* longer messages are cut at a UTF-8 boundary */
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

/* Return columns of ERR_LIST, as static strings. A value outside the enum reads as ERR_INTERNAL. */
const char *err_code(enum err code); /* "invalid_json" */
const char *err_text(enum err code); /* "the body is not valid JSON" */
const char *err_type(enum err code); /* "invalid_request_error" */
int err_http_status(enum err code);  /* 400 */

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
