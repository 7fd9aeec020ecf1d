#include "fcgi/wire/http_status.h"

/* Errors without a row are the server's: 500, server_error. docs/ops/errors.md lists the statuses (checked by lint). */
static const struct {
    int status;
    const char *type;
} rows[ERR_COUNT] = {
    [ERR_OK] = {200, ""},
    [ERR_AGAIN] = {503, "server_error"},
    [ERR_NONE] = {404, "invalid_request_error"},
    [ERR_CANCELLED] = {499, "server_error"},
    [ERR_SLOW_READER] = {499, "server_error"},
    [ERR_DEADLINE] = {504, "timeout_error"},
    [ERR_OVERLOADED] = {503, "server_error"},
    [ERR_REQUEST_MEMORY] = {503, "server_error"},
    [ERR_DRAINING] = {503, "server_error"},
    [ERR_LOADING] = {503, "unavailable_error"},
    [ERR_NO_MODEL] = {503, "unavailable_error"},
    [ERR_INVALID_JSON] = {400, "invalid_request_error"},
    [ERR_INVALID_UTF8] = {400, "invalid_request_error"},
    [ERR_JSON_TOO_DEEP] = {400, "invalid_request_error"},
    [ERR_JSON_TOO_LARGE] = {400, "invalid_request_error"},
    [ERR_DUPLICATE_FIELD] = {400, "invalid_request_error"},
    [ERR_MISSING_PARAMETER] = {400, "invalid_request_error"},
    [ERR_INVALID_TYPE] = {400, "invalid_request_error"},
    [ERR_INVALID_VALUE] = {400, "invalid_request_error"},
    [ERR_UNKNOWN_PARAMETER] = {400, "invalid_request_error"},
    [ERR_UNSUPPORTED_PARAMETER] = {400, "invalid_request_error"},
    [ERR_UNSUPPORTED_ENDPOINT] = {400, "invalid_request_error"},
    [ERR_NOT_SUPPORTED] = {501, "not_supported_error"},
    [ERR_CONTEXT_LENGTH] = {400, "invalid_request_error"},
    [ERR_PATTERN_LIMIT] = {400, "invalid_request_error"},
    [ERR_INVALID_GRAMMAR] = {400, "invalid_request_error"},
    [ERR_INVALID_SCHEMA] = {400, "invalid_request_error"},
    [ERR_GRAMMAR_LIMIT] = {400, "invalid_request_error"},
    [ERR_TEMPLATE] = {400, "invalid_request_error"},
    [ERR_NO_TEMPLATE] = {400, "invalid_request_error"},
    [ERR_RATE_LIMIT] = {429, "rate_limit_error"},
    [ERR_API_KEY] = {401, "invalid_request_error"},
    [ERR_ORIGIN] = {403, "permission_error"},
    [ERR_MODEL_NOT_FOUND] = {404, "invalid_request_error"},
    [ERR_RESPONSE_NOT_FOUND] = {404, "invalid_request_error"},
    [ERR_UNKNOWN_URL] = {404, "invalid_request_error"},
    [ERR_METHOD] = {405, "invalid_request_error"},
    [ERR_TOO_LARGE] = {413, "invalid_request_error"},
    [ERR_MEDIA_TYPE] = {415, "invalid_request_error"},
    [ERR_HEAD_TOO_LARGE] = {431, "invalid_request_error"},
};

static bool has_row(enum err code) { return (unsigned)code < ERR_COUNT && rows[code].status != 0; }

int http_status(enum err code) { return has_row(code) ? rows[code].status : 500; }

const char *http_status_type(enum err code) { return has_row(code) ? rows[code].type : "server_error"; }
