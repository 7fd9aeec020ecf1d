/* Status lines always have a reason phrase, because nginx passes a bare status on as a malformed line. Bodies have a
 * length only if they are complete in memory. */
#include "fcgi/wire/reply.h"
#include "fcgi/wire/http_status.h"

#include "engine/base/clock.h"
#include "engine/base/mem_account.h"
#include "engine/base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {431, "Request Header Fields Too Large"},
    {429, "Too Many Requests"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

const char *reply_reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Error";
}

/* Allows only letters, digits, '-', '_', '.', ':' up to the buffer's size, which cannot break a header or a log. The
 * map in nginx/infcgi-http.conf has the same rule. */
static bool is_sane_id(const char *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    size_t n = id != NULL ? strspn(id, allowed) : 0;
    return n > 0 && n < sizeof((struct reply *)0)->id && id[n] == '\0';
}

void reply_init(struct reply *r, struct fastcgi_request *request)
{
    *r = (struct reply){.request = request, .dialect = &dialect_openai, .arrived_ns = clock_now_ns()};
    const char *id =
        fastcgi_param(request, "REQUEST_ID"); /* nginx logs and answers this id, so both logs show the same one */
    id = is_sane_id(id) ? id : fastcgi_param(request, "HTTP_X_REQUEST_ID");
    if (is_sane_id(id)) {
        snprintf(r->id, sizeof r->id, "%s", id);
    } else {
        snprintf(r->id, sizeof r->id, "%016" PRIx64, rng_fresh_seed());
    }
}

/* [W3C Server Timing] */
static void write_timing(const struct reply *r, struct buf *head)
{
    const struct reply_stages *s = &r->stages;
    if (s->is_known) {
        buf_printf(head, "Server-Timing: queue;dur=%.3f, prefill;dur=%.3f, decode;dur=%.3f, total;dur=%.3f\r\n",
                   (double)s->queue_ns / 1e6, (double)s->prefill_ns / 1e6, (double)s->decode_ns / 1e6,
                   (double)(clock_now_ns() - r->arrived_ns) / 1e6);
    }
}

static void write_head(struct reply *r, struct buf *head, int status, const char *content_type)
{
    r->status = status;
    buf_printf(head, "Status: %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nX-Request-Id: %s\r\n", status,
               reply_reason(status), content_type, r->id);
    buf_printf(head, "OpenAI-Version: 2020-10-01\r\nOpenAI-Processing-Ms: %" PRIu64 "\r\n",
               (clock_now_ns() - r->arrived_ns) / 1000000u);
    write_timing(r, head);
    if (r->dialect->write_headers != NULL) {
        r->dialect->write_headers(r, head);
    }
    if (r->allow != NULL) {
        buf_printf(head, "Allow: %s\r\n", r->allow);
    }
    if (r->process_started != 0) {
        buf_printf(head, "Process-Start-Time-Unix: %" PRId64 "\r\n", r->process_started);
    }
    if (r->tenant != NULL) {
        tenant_write_headers(r->tenant, r->dialect->limits, head);
    }
    if (r->retry_after_s > 0) {
        buf_printf(head, "Retry-After: %d\r\n", r->retry_after_s);
    }
    if (status == 401) {
        buf_puts(head, "WWW-Authenticate: Bearer\r\n");
    }
    if ((status >= 500 && status != 503) || (status == 429 && r->retry_after_s == 0)) {
        buf_puts(head, "X-Should-Retry: false\r\n"); /* else clients repeat a deterministic failure three times */
    }
}

static bool write_text(struct reply *r, const char *text) { return fastcgi_write(r->request, text, strlen(text)); }

/* Sends a complete static answer if another's header does not fit in memory. nginx adds the request's id. */
static void send_out_of_memory(struct reply *r)
{
    char head[128];
    snprintf(head, sizeof head, "Status: 500 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             reply_reason(500), strlen(r->dialect->out_of_memory));
    r->err = ERR_NOMEM;
    r->status = 500;
    r->is_over = write_text(r, head) && write_text(r, r->dialect->out_of_memory);
}

void reply_send(struct reply *r, int status, const char *content_type, const struct buf *body)
{
    struct buf head;
    gate_leave(&r->gate);
    buf_init(&head, 0, MEM_GENERAL);
    write_head(r, &head, status, content_type);
    buf_printf(&head, "Content-Length: %zu\r\n\r\n", body->len);
    if (buf_ok(&head) != ERR_OK || buf_ok(body) != ERR_OK) {
        send_out_of_memory(r);
    } else if (fastcgi_write(r->request, head.data, head.len) && body->len > 0) {
        fastcgi_write(r->request, body->data, body->len);
    }
    buf_fini(&head);
}

/* Names the cause of an out-of-memory error: the request's own share, the common budget, or the machine. */
static enum err name_memory(enum err code, struct err_info *info)
{
    switch (code == ERR_NOMEM ? mem_account_refusal() : MEM_REFUSED_NOT) {
    case MEM_REFUSED_SHARE:
        return err_set(info, ERR_TOO_LARGE, NULL,
                       "expected a request that takes at most %zu MiB of memory to answer, found one that takes more",
                       mem_account_share() >> 20);
    case MEM_REFUSED_BUDGET:
        return err_set(info, ERR_REQUEST_MEMORY, NULL, "requests hold all of the %zu MiB they may; try again later",
                       mem_account_budget() >> 20);
    case MEM_REFUSED_NOT:
        break;
    }
    return code;
}

int reply_status_of(const struct reply *r, enum err code)
{
    return r->retry_after_s != 0 && code != ERR_RATE_LIMIT ? 503 : http_status(code);
}

/* Writes the error object of name_memory's code for `code` and returns that code. */
static enum err write_error(const struct reply *r, struct buf *out, enum err code, const struct err_info *info)
{
    struct err_info memory = {0};
    if (name_memory(code, &memory) != code) {
        code = memory.code;
        info = &memory;
    }
    const char *message = info != NULL && info->text[0] != '\0' ? info->text : err_text(code);
    r->dialect->write_error(r, code, info, message, out);
    return code;
}

/* Returns the info to report for `code`: names who ended the request, if not the client. */
static const struct err_info *name_end(const struct reply *r, enum err code, const struct err_info *info,
                                       struct err_info *named)
{
    if (code != ERR_CANCELLED || !fastcgi_is_abandoned(r->request)) {
        return info;
    }
    *named = (struct err_info){0};
    (void)err_set(named, code, NULL, "the request was cancelled by the operator");
    return named;
}

void reply_note_context(struct reply *r, size_t n_prompt_tokens, size_t n_ctx)
{
    r->n_prompt_tokens = MAX_OF(r->n_prompt_tokens, n_prompt_tokens);
    r->n_ctx = n_ctx;
}

void reply_error(struct reply *r, enum err code, const struct err_info *info)
{
    struct buf body;
    struct err_info ended;
    info = name_end(r, code, info, &ended);
    buf_init(&body, 0, MEM_GENERAL); /* small, and required when requests can take no more memory */
    r->err = write_error(r, &body, code, info);
    int status = reply_status_of(r, r->err);
    if (status == 503 && r->retry_after_s == 0) {
        r->retry_after_s = 1;
    }
    reply_send(r, status, "application/json", &body);
    buf_fini(&body);
}

void reply_json(struct reply *r, enum err err, const struct err_info *info, struct buf *body)
{
    if (err != ERR_OK) {
        reply_error(r, err, info != NULL && info->code == err ? info : NULL);
    } else {
        reply_send(r, 200, "application/json", body);
    }
    buf_fini(body);
}

void reply_write_refusal(struct buf *out, enum err code, const struct err_info *info)
{
    struct reply r = {.dialect = &dialect_openai, .arrived_ns = clock_now_ns()};
    struct buf body;
    buf_init(&body, 0, MEM_GENERAL);
    snprintf(r.id, sizeof r.id, "%016" PRIx64, rng_fresh_seed());
    code = write_error(&r, &body, code, info);
    write_head(&r, out, http_status(code), "application/json");
    buf_printf(out, "Content-Length: %zu\r\n\r\n", body.len);
    buf_append(out, body.data, body.len);
    out->err = out->err != ERR_OK ? out->err : buf_ok(&body);
    buf_fini(&body);
}

/* Flushes. ERR_CANCELLED: the client has left. */
static enum err flush(struct reply *r, bool is_written)
{
    return is_written && fastcgi_flush(r->request) ? ERR_OK : ERR_CANCELLED;
}

enum err reply_start_stream(struct reply *r, const char *type)
{
    struct buf head;
    gate_leave(&r->gate);
    buf_init(&head, 0, MEM_GENERAL);
    write_head(r, &head, 200, type != NULL ? type : "text/event-stream; charset=utf-8");
    buf_puts(&head, "X-Accel-Buffering: no\r\n\r\n");
    enum err err = buf_ok(&head);
    if (err != ERR_OK) {
        send_out_of_memory(r);
    } else {
        err = flush(r, fastcgi_write(r->request, head.data, head.len));
    }
    buf_fini(&head);
    return err;
}

enum err reply_push(struct reply *r, const struct buf *text)
{
    TRY(r->is_over ? ERR_CANCELLED : buf_ok(text));
    return flush(r, fastcgi_write(r->request, text->data, text->len));
}

void reply_break_off(struct reply *r, enum err code, const struct err_info *info)
{
    struct buf event;
    struct err_info ended;
    info = name_end(r, code, info, &ended);
    buf_init(&event, 0, MEM_GENERAL);
    buf_puts(&event, r->dialect->before_error);
    code = write_error(r, &event, code, info);
    buf_puts(&event, r->dialect->after_error);
    reply_break_off_with(r, code, &event);
    buf_fini(&event);
}

void reply_break_off_with(struct reply *r, enum err code, const struct buf *event)
{
    if (r->is_over) {
        return;
    }
    enum err err = reply_push(r, event);
    if (err == ERR_NOMEM) {
        const struct dialect *d = r->dialect;
        err = flush(r,
                    write_text(r, d->before_error) && write_text(r, d->out_of_memory) && write_text(r, d->after_error));
        code = ERR_NOMEM;
    }
    r->err = err == ERR_CANCELLED ? ERR_CANCELLED : code;
    r->status = http_status(r->err);
}
