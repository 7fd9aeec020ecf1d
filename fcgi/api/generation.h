/* Running the sequences of one request and writing them out, streamed or whole; chat.c and completions.c say in which
 * shape. Threads: the request's, but for the poller's cancel. */
#ifndef INFCGI_FCGI_API_GENERATION_H
#define INFCGI_FCGI_API_GENERATION_H

#include "fcgi/api/params.h"
#include "fcgi/api/slots.h"
#include "fcgi/wire/call.h"

#include <pthread.h>

/* One sequence. */
struct choice {
    int index;
    const int32_t *prompt; /* borrowed ids */
    size_t n_prompt;
    struct engine_stream *stream; /* NULL before its turn, and once it has ended */
    struct buf text;              /* whole answers: what was said so far */
    struct buf parts[4];          /* whole answers: JSON of log-probabilities, as the shape needs it */
    struct buf ids;               /* JSON of the token ids, when asked for */
    struct buf made;              /* the ids as int32_t, where a slot is to have them (slots.h) */
    const struct choice *echo; /* has the log-probabilities of the prompt, computed once for all n; itself, or NULL */
    size_t n_echo_text;        /* bytes of text that are the prompt's */
    size_t n_echoed;           /* tokens of the prompt told so far with theirs */
    size_t echo_lens[4];       /* whole answers: bytes of `parts` that are the prompt's */
    size_t n_text;             /* bytes said so far, streamed or not */
    struct chat_split split;   /* chat: takes the text apart */
    struct buf reasoning;      /* chat, whole answers */
    struct buf calls;          /* chat, whole answers: JSON of the calls that are complete */
    struct buf arguments;      /* chat, whole answers: of the call that is being told */
    size_t n_calls;            /* chat: told so far */
    uint64_t first_token_ns, last_token_ns;
    uint64_t progress_ns; /* when the first was told of how far the prompt is; 0 = nothing yet */
    int32_t n_processed;  /* of the prompt, as told last */
    bool has_new_line;    /* .. in what was generated */
    bool is_out_of_time;
    struct engine_event end;
    struct sched_usage usage;
    bool has_ended;
};

struct generation;

/* What an endpoint writes. All append to `out`. */
struct shape {
    const char *id_prefix; /* "chatcmpl-" */
    const char *object;    /* OpenAI's envelope: "chat.completion" */
    const char *chunk_object;
    const char *prompt_field; /* whose fault it is when the prompt is too long */
    const char *stream_type;  /* Content-Type of a stream; NULL: text/event-stream */
    const char *ping;         /* streamed: what tells that we live; NULL: a comment of event streams, "": nothing can */
    void (*tick)(struct generation *g, struct buf *out);  /* OPTIONAL, streamed: writes it, in place of ping */
    void (*begin)(struct generation *g, struct buf *out); /* OPTIONAL, streamed: before the first choice's `open` */
    void (*open)(struct generation *g, struct choice *c,
                 struct buf *out); /* streamed: what comes first, may append nothing */
    void (*token)(struct generation *g, struct choice *c, const struct engine_event *ev,
                  struct buf *out); /* streamed event */
    void (*finish)(struct generation *g, struct choice *c,
                   struct buf *out); /* streamed: the chunk with finish_reason */
    void (*gather)(struct generation *g, struct choice *c,
                   const struct engine_event *ev);                           /* whole: keep what choice needs */
    void (*choice)(struct generation *g, struct choice *c, struct buf *out); /* whole: the object in "choices" */
    void (*done)(struct generation *g, struct buf *out);  /* streamed: what comes behind the last event */
    void (*whole)(struct generation *g, struct buf *out); /* whole: the body */
    void (*progress)(struct generation *g, struct choice *c,
                     struct buf *out); /* OPTIONAL, streamed: the event that tells how far the prompt is */
    void (*broken)(struct generation *g, struct buf *out); /* OPTIONAL, streamed: in place of `done`, tells g->failure;
                                                            * else an error in the form of the reply */
};

struct generation {
    struct call *call;
    struct params *params;
    const struct shape *shape;
    void *arg;              /* the endpoint's own */
    struct choice *choices; /* [n_choices] */
    size_t n_choices;
    size_t n_submitted;        /* of them, in the order of generation.c's nth_choice */
    struct sched_group *group; /* what makes them one request to the engine */
    struct engine_params gen;  /* params' with deadline and salt */
    char salt[APIKEY_SALT_BYTES], slot_salt[SLOTS_SALT_BYTES];
    char id[48];
    int64_t created;
    bool is_gone;
    bool has_lock;
    pthread_mutex_t lock; /* guards the streams against the poller */
    uint64_t first_token_ns;
    const struct choice *timed; /* whose timings the chunk at hand tells, where each is to have them; OPTIONAL */
    struct err_info failure;    /* what broke the answer off; code ERR_OK = nothing yet */
};

/* Makes n_prompts * params->n choices over the prompts (ids borrowed until the end), submits, answers. Frees what it
 * made. arg: for the functions of the shape. */
void generation_run(struct call *c, struct params *p, const struct shape *shape, void *arg,
                    const int32_t *const *prompts, const size_t *n_ids, size_t n_prompts);

/* Checks c->json, a body of /v1/chat/completions, and renders it: *ids lie in the arena, and p->root is c->json. Fails
 * as params_read, messages_check, tools_check and engine_chat. */
MUST_CHECK enum err chat_prepare(struct call *c, struct params *p, bool *shows_tools, int32_t **ids, size_t *n,
                                 struct err_info *info);

/* Answers what chat_prepare made, in the shape given: sets up what the answer must follow, looks for calls where tools
 * are shown, and lets c->json go before the answer. Errors are answered, too. */
void chat_answer(struct call *c, struct params *p, bool shows_tools, const int32_t *ids, size_t n,
                 const struct shape *shape, void *arg);

/* The `done` and `whole` of OpenAI's completions: all choices in one object with usage; usage where it was asked for,
 * and [DONE]. */
void generation_done(struct generation *g, struct buf *out);
void generation_whole(struct generation *g, struct buf *out);

/* Tokens of all choices; a prompt counts once, whatever n is. */
struct generation_usage {
    int64_t prompt, cached, completion, reasoning;
};
struct generation_usage generation_usage(const struct generation *g);

/* Counts the token of ev, whose text was fed to the choice's split, if it is one of thinking. */
void generation_count_reasoning(struct choice *c, const struct engine_event *ev);

/* Appends `data: {"id":...,"object":...,"created":...,"model":...,"choices":[` and its counterpart `]}\n\n`. */
void generation_chunk_open(const struct generation *g, struct buf *out);
void generation_chunk_close(const struct generation *g, struct buf *out);

/* In place of generation_chunk_close in the chunk with finish_reason, the last of c: with its timings, and `__verbose` where it was
 * asked for. */
void generation_chunk_end(const struct generation *g, const struct choice *c, struct buf *out);

/* The `progress` of OpenAI's: `empty` is a choice that says nothing but its index. */
void generation_progress(struct generation *g, const struct choice *c, const char *empty, struct buf *out);

/* "stop" or "length". */
const char *generation_finish_reason(const struct choice *c);

/* Appends a token's text as a JSON string (invalid UTF-8 as U+FFFD), or its bytes as an array of numbers. */
void generation_write_token(const struct generation *g, int32_t id, struct buf *out);
void generation_write_bytes(const struct generation *g, int32_t id, struct buf *out);

/* The request's cache salt: its own (OPTIONAL, borrowed), put behind that of the API key unless keys share the cache.
 */
const char *generation_salt(const struct call *c, const char *own, char text[APIKEY_SALT_BYTES]);

/* Checks the model a request names (OPTIONAL): it is here, and the tenant may use it. ERR_MODEL_NOT_FOUND; ERR_MISSING_PARAMETER where
 * --strict-api asks for it. */
MUST_CHECK enum err generation_check_model(const struct call *c, const char *asked, struct err_info *info);

#endif
