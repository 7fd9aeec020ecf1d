/* Runs the sequences of one request and writes them, streamed or as a whole; chat.c and completions.c define the shape.
 * Threads: the request's, except for the poller's cancel. */
#ifndef INFCGI_FCGI_API_GENERATION_H
#define INFCGI_FCGI_API_GENERATION_H

#include "fcgi/api/params.h"
#include "fcgi/api/prompts.h"
#include "fcgi/api/slots.h"
#include "fcgi/wire/call.h"

#include <pthread.h>

/* One sequence. */
struct choice {
    int index;
    const int32_t *prompt; /* borrowed ids */
    size_t n_prompt;
    struct engine_stream *stream; /* NULL before its turn and after its end */
    struct buf text;              /* whole answers: text so far */
    struct buf parts[4];          /* whole answers: JSON of log-probabilities, in the shape's form */
    struct buf ids;               /* JSON of the token ids, if requested */
    struct buf made;              /* the ids as int32_t, if a slot needs them (slots.h) */
    const struct choice *echo;    /* holds the prompt's log-probabilities for all n; itself, or NULL */
    size_t n_echo_text;           /* bytes of the prompt's text */
    size_t n_echoed;              /* prompt tokens written so far with log-probabilities */
    size_t echo_lens[4];          /* whole answers: bytes of `parts` that belong to the prompt */
    size_t n_text;                /* bytes written so far, streamed or not */
    struct chat_split split;      /* chat: splits the text */
    struct buf reasoning;         /* chat, whole answers */
    struct buf calls;             /* chat, whole answers: JSON of complete calls */
    struct buf arguments;         /* chat, whole answers: arguments of the current call */
    size_t n_calls;               /* chat: calls written so far */
    uint64_t first_token_ns, last_token_ns;
    uint64_t progress_ns; /* time of the first prompt progress event; 0: none yet */
    int32_t n_processed;  /* prompt tokens in the last progress event */
    bool has_new_line;    /* the generated text has a newline */
    bool is_out_of_time;
    struct engine_event end;
    struct sched_usage usage;
    bool has_ended;
};

struct generation;

/* The output form of an endpoint. All functions append to `out`. */
struct shape {
    const char *id_prefix; /* "chatcmpl-" */
    const char *object;    /* OpenAI's envelope: "chat.completion" */
    const char *chunk_object;
    const char *prompt_field; /* field to blame if the prompt is too long */
    const char *stream_type;  /* Content-Type of a stream; NULL: text/event-stream */
    const char *ping;         /* streamed: keep-alive text; NULL: a comment of event streams, "": none possible */
    void (*tick)(struct generation *g, struct buf *out); /* OPTIONAL, streamed: writes the keep-alive instead of ping */
    void (*begin)(struct generation *g, struct buf *out); /* OPTIONAL, streamed: before the first choice's `open` */
    void (*open)(struct generation *g, struct choice *c, struct buf *out); /* OPTIONAL, streamed: starts a choice */
    void (*token)(struct generation *g, struct choice *c, const struct engine_event *ev,
                  struct buf *out); /* streamed: writes the event */
    void (*finish)(struct generation *g, struct choice *c,
                   struct buf *out); /* streamed: the chunk with finish_reason */
    void (*gather)(struct generation *g, struct choice *c,
                   const struct engine_event *ev); /* whole: keeps data; NULL: `token` does, with out NULL */
    void (*choice)(struct generation *g, struct choice *c, struct buf *out); /* whole: the object in "choices" */
    void (*done)(struct generation *g, struct buf *out);  /* OPTIONAL, streamed: after the last event */
    void (*whole)(struct generation *g, struct buf *out); /* whole: the body */
    void (*progress)(struct generation *g, struct choice *c,
                     struct buf *out);                     /* OPTIONAL, streamed: prompt progress event */
    void (*broken)(struct generation *g, struct buf *out); /* OPTIONAL, streamed: writes g->failure instead of `done` */
};

struct generation {
    struct call *call;
    struct params *params;
    const struct shape *shape;
    void *arg;              /* private to the endpoint */
    struct choice *choices; /* [n_choices] */
    size_t n_choices;
    size_t n_submitted;        /* submitted choices, in the order of generation.c's nth_choice */
    struct sched_group *group; /* groups them as one request for the engine */
    struct engine_params gen;  /* params->gen with deadline and salt */
    char salt[APIKEY_SALT_BYTES], slot_salt[SLOTS_SALT_BYTES];
    char id[48];
    int64_t created;
    bool is_gone;
    pthread_mutex_t lock; /* guards the streams against the poller */
    uint64_t first_token_ns;
    const struct choice *timed; /* OPTIONAL: choice whose timings the current chunk shows, if each has to */
    struct err_info failure;    /* why the answer was cut off; code ERR_OK: it was not */
};

/* Creates params->n choices per prompt (ids are borrowed until the end), submits them, answers and frees them. arg: for
 * the shape's functions. */
void generation_run(struct call *c, struct params *p, const struct shape *shape, void *arg,
                    const struct prompts *prompts);

/* Reads a body of /v1/chat/completions and renders it: call_read_json, params_read, tools_read, chat_prepare. Call
 * params_fini also after an error. */
MUST_CHECK enum err chat_read(struct call *c, struct params *p, struct err_info *info);

/* Checks the parts of a chat and renders it to p->prompt. Fails as messages_check, tools_check and engine_chat. */
MUST_CHECK enum err chat_prepare(struct call *c, struct params *p, struct err_info *info);

/* Answers the prompt of chat_prepare in the given shape: sets up the answer's constraint, looks for calls if tools are
 * shown, and frees c->json before the answer. Errors are also answered. */
void chat_answer(struct call *c, struct params *p, const struct shape *shape, void *arg);

/* The `done` and `whole` functions of OpenAI's completions. generation_whole writes all choices in one object with
 * usage. generation_done writes usage if requested, then [DONE]. */
void generation_done(struct generation *g, struct buf *out);
void generation_whole(struct generation *g, struct buf *out);

/* Tokens of all choices; a prompt counts once for any n. */
struct generation_usage {
    int64_t prompt, cached, completion, reasoning;
};
struct generation_usage generation_usage(const struct generation *g);

/* Counts the token of ev, whose text was fed to the choice's split, if it is a thinking token. */
void generation_count_reasoning(struct choice *c, const struct engine_event *ev);

/* Appends `data: {"id":...,"object":...,"created":...,"model":...,"choices":[` and its counterpart `]}\n\n`. */
void generation_chunk_open(const struct generation *g, struct buf *out);
void generation_chunk_close(const struct generation *g, struct buf *out);

/* Replaces generation_chunk_close in the last chunk of c, which has finish_reason: adds its timings, and `__verbose` if
 * requested. */
void generation_chunk_end(const struct generation *g, const struct choice *c, struct buf *out);

/* The `progress` function of OpenAI's shapes. `empty` is a choice with only its index. */
void generation_progress(struct generation *g, const struct choice *c, const char *empty, struct buf *out);

/* Returns "stop" or "length". */
const char *generation_finish_reason(const struct choice *c);

/* generation_write_token appends a token's text as a JSON string (invalid UTF-8 as U+FFFD); generation_write_bytes
 * appends its bytes as an array of numbers. */
void generation_write_token(const struct generation *g, int32_t id, struct buf *out);
void generation_write_bytes(const struct generation *g, int32_t id, struct buf *out);

/* Returns the request's cache salt: its own (OPTIONAL, borrowed), after the API key's salt unless keys share the
 * cache. */
const char *generation_salt(const struct call *c, const char *own, char text[APIKEY_SALT_BYTES]);

/* Checks that the named model (OPTIONAL) is loaded and that the tenant may use it. ERR_MODEL_NOT_FOUND;
 * ERR_MISSING_PARAMETER if --strict-api requires a name. */
MUST_CHECK enum err generation_check_model(const struct call *c, const char *asked, struct err_info *info);

#endif
