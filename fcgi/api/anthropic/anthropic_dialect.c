/* Errors and headers in the form of Anthropic's API. */
#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "fcgi/api/anthropic/anthropic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* [Anthropic's API reference, "Errors"] */
static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* Clients act on these details: a client that asked to keep the conversation continues without that. */
static const char *details_of(enum err code, const char *where)
{
    bool is_thread = code == ERR_UNSUPPORTED_PARAMETER && strcmp(where, "thread") == 0;
    return is_thread ? ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[]}" : "";
}

/* The form has no member for the location, so the message begins with it. */
static void write_error(const struct reply *r, enum err code, const struct err_info *info, const char *message,
                        struct buf *out)
{
    const char *where = info != NULL ? info->where : "";
    char text[ERR_WHERE_BYTES + ERR_TEXT_BYTES + 2];
    bool has_place = strncmp(message, where, strlen(where)) == 0;
    int status = reply_status_of(r, code);
    snprintf(text, sizeof text, "%s%s%s", has_place ? "" : where, has_place ? "" : ": ", message);
    buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(status));
    json_write_cstr(out, text);
    buf_puts(out, details_of(code, where));
    buf_printf(out, "},\"request_id\":\"%s\"}", r->id);
}

static void write_headers(const struct reply *r, struct buf *out) { buf_printf(out, "Request-Id: %s\r\n", r->id); }

/* Writes that point in time in RFC 3339's form. */
static void write_reset(double ns, struct buf *out)
{
    char text[CLOCK_UTC_BYTES];
    buf_printf(out, "%s\r\n", clock_utc(clock_unix_seconds() + (int64_t)ceil(ns / 1e9), text));
}

static const struct tenant_headers limits = {
    .forms = {"anthropic-ratelimit-%s-limit: ", "anthropic-ratelimit-%s-remaining: ", "anthropic-ratelimit-%s-reset: "},
    .write_reset = write_reset};

static const char *const paths[] = {"/v1/messages", NULL};

const struct dialect dialect_anthropic = {
    .paths = paths,
    .write_error = write_error,
    .write_headers = write_headers,
    .limits = &limits,
    .out_of_memory = "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"out of memory\"}}",
    .before_error = "event: error\ndata: ",
    .after_error = "\n\n",
    .requires_model = true};
