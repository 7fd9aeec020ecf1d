/* Writing answers: status line and headers, JSON bodies, errors in OpenAI's shape, server-sent events.
 * Threads: as the request. */
#ifndef INFCGI_FCGI_REPLY_H
#define INFCGI_FCGI_REPLY_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "fcgi/wire/fastcgi.h"
#include "fcgi/wire/gate.h"
#include "fcgi/tenant/tenant.h"
#include "fcgi/wire/dialect.h"

enum { REPLY_ID_MAX = 64 };

/* Where the time of a request went, and its tokens; of several sequences the longest times, and the sums. */
struct reply_stages {
    bool is_known;
    uint64_t queue_ns, prefill_ns, decode_ns;
    uint64_t reader_ns; /* that nobody took what was written */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
};

/* A request being answered. Zero-initialise but for the first three. */
struct reply {
    struct fastcgi_request *request;
    char id[REPLY_ID_MAX + 1]; /* x-request-id: nginx's, which may be the client's; the client's; or our own */
    uint64_t arrived_ns;
    int status;                    /* sent, 0 = none yet; of a stream that broke off, its error's */
    enum err err;                  /* what the answer says is wrong */
    const char *allow;             /* for 405: methods */
    const struct dialect *dialect; /* the API that the client speaks; never NULL */
    /* Of ERR_CONTEXT_LENGTH, told to llama-server's clients: tokens of the prompt and of the context; 0: not known. */
    size_t n_prompt_tokens, n_ctx;
    /* OPTIONAL, before an error is told: names its place as the client knows it, where we read another form of what it
     * sent. place_arg: for it. */
    void (*name_place)(const void *arg, struct err_info *info);
    const void *place_arg;
    int64_t process_started;     /* seconds since 1970, told in a header where it is not 0 */
    struct reply_stages stages;  /* where they are known when the head is written, a header tells them */
    int retry_after_s;           /* for 503; set before reply_error it makes a 503 of any error but ERR_RATE_LIMIT */
    struct gate_ticket gate;     /* left before anything is written, which may wait for the client */
    const struct tenant *tenant; /* OPTIONAL, borrowed: whose limits the headers tell */
    bool is_over;                /* a whole answer went out in place of a stream's head: nothing may follow */
};

/* Fills id from REQUEST_ID, else from the client's header (sane ones only), or draws one; and arrived_ns. */
void reply_init(struct reply *r, struct fastcgi_request *request);

/* Sends a whole body; where it is none, or there is no memory for its head, the error of that. */
void reply_send(struct reply *r, int status, const char *content_type, const struct buf *body);

/* Sends {"error": ...} with the code's status. info OPTIONAL. Out of memory because of a limit (mem_account.h) is said
 * to be that: 413 where the request itself would hold too much, 503 where all together do. */
void reply_error(struct reply *r, enum err code, const struct err_info *info);

/* Notes, for an answer of ERR_CONTEXT_LENGTH, the tokens of a prompt that is too long and those of the context. Of several prompts
 * the longest is told. */
void reply_note_context(struct reply *r, size_t n_prompt_tokens, size_t n_ctx);

/* Appends a whole answer, head and error object, for a request that has no struct reply: its head was refused. */
void reply_write_refusal(struct buf *out, enum err code, const struct err_info *info);

/* Sends the head of a stream; type NULL: text/event-stream. ERR_CANCELLED when the client has gone (as below); ERR_NOMEM,
 * which has then been answered. */
MUST_CHECK enum err reply_start_stream(struct reply *r, const char *type);
/* Sends text as it is, and flushes. ERR_NOMEM, ERR_TOO_LARGE when the text is not whole: then nothing is sent. */
MUST_CHECK enum err reply_push(struct reply *r, const struct buf *text);
/* Ends a stream with an error event, unless the client has gone, in place of what ends it well. info OPTIONAL. */
void reply_break_off(struct reply *r, enum err code, const struct err_info *info);
/* The same with an event that the caller wrote; where there was no memory for it, with the error of that. */
void reply_break_off_with(struct reply *r, enum err code, const struct buf *event);

/* Returns the HTTP status of an answer with this error: the code's, or 503 if a retry is to be offered. */
int reply_status_of(const struct reply *r, enum err code);

/* Reason phrase of a status we use. */
const char *reply_reason(int status);

#endif
