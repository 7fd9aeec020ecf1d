/* Writes answers: status line and headers, JSON bodies, errors in OpenAI's form, server-sent events. Threads: the
 * request's. */
#ifndef INFCGI_FCGI_REPLY_H
#define INFCGI_FCGI_REPLY_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/gate.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/dialect.h"

enum { REPLY_ID_MAX = 64 };

/* The stages of a request in time and tokens. For several sequences: the longest times and the token sums. */
struct reply_stages {
    bool is_known;
    uint64_t queue_ns, prefill_ns, decode_ns;
    uint64_t reader_ns; /* waiting for the client to read */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
};

/* A request being answered. Zero-initialise all but the first three. */
struct reply {
    struct fastcgi_request *request;
    char id[REPLY_ID_MAX +
            1]; /* x-request-id: from nginx, which may pass on the client's; else the client's; else generated */
    uint64_t arrived_ns;
    int status;                    /* sent, 0: none yet; for an aborted stream the error's */
    enum err err;                  /* error in the answer */
    const char *allow;             /* for 405: methods */
    const struct dialect *dialect; /* the API that the client speaks; never NULL */
    /* For ERR_CONTEXT_LENGTH, shown to clients of llama-server: tokens of the prompt and of the context; 0: not
     * known. */
    size_t n_prompt_tokens, n_ctx;
    int64_t process_started;     /* seconds since 1970, sent in a header unless 0 */
    struct reply_stages stages;  /* sent in a header if known when the header is written */
    int retry_after_s;           /* for 503; if set before reply_error, any error except ERR_RATE_LIMIT becomes 503 */
    struct gate_ticket gate;     /* left before writing, because writing can wait for the client */
    const struct tenant *tenant; /* OPTIONAL, borrowed: its limits are sent in headers */
    bool is_over;                /* a complete answer was sent instead of a stream: nothing may follow */
};

/* Sets id from REQUEST_ID, else from the client's header if valid, else draws one. Sets arrived_ns. */
void reply_init(struct reply *r, struct fastcgi_request *request);

/* Sends a complete body. If the body failed or its header does not fit in memory, sends that error. */
void reply_send(struct reply *r, int status, const char *content_type, const struct buf *body);

/* Sends {"error": ...} with the code's status. info OPTIONAL. If a memory limit (mem_account.h) caused an out-of-memory
 * error, the answer names it: 413 if this request alone is too large, 503 if all requests together are. */
void reply_error(struct reply *r, enum err code, const struct err_info *info);

/* Sends a JSON body with status 200 or, after an error, that error (info OPTIONAL, of another code ignored), and frees
 * the body. */
void reply_json(struct reply *r, enum err err, const struct err_info *info, struct buf *body);

/* Records, for ERR_CONTEXT_LENGTH, the tokens of a prompt that is too long and the tokens of the context. If several
 * prompts are too long, the longest is reported. */
void reply_note_context(struct reply *r, size_t n_prompt_tokens, size_t n_ctx);

/* Appends a complete answer, header and error object, for a request that has no struct reply because its header was
 * rejected. */
void reply_write_refusal(struct buf *out, enum err code, const struct err_info *info);

/* Sends the header of a stream; type NULL: text/event-stream. ERR_CANCELLED: the client has left (as below); ERR_NOMEM:
 * the error has already been sent. */
MUST_CHECK enum err reply_start_stream(struct reply *r, const char *type);
/* Sends text unchanged and flushes. ERR_NOMEM, ERR_TOO_LARGE: the text is incomplete and nothing is sent. */
MUST_CHECK enum err reply_push(struct reply *r, const struct buf *text);
/* Finishes a stream with an error event instead of its normal end, unless the client has left. info OPTIONAL. */
void reply_break_off(struct reply *r, enum err code, const struct err_info *info);
/* Like reply_break_off, with an event that the caller wrote. If the event failed for lack of memory, sends that
 * error. */
void reply_break_off_with(struct reply *r, enum err code, const struct buf *event);

/* Returns the HTTP status of an answer with this error: the code's, or 503 if a retry is offered. */
int reply_status_of(const struct reply *r, enum err code);

/* Returns the reason phrase of a status that infcgi uses. */
const char *reply_reason(int status);

#endif
