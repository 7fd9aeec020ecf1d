/* Answers of the Responses API: the items of an answer as its parts come, the events that tell of them, and the whole
 * response, which is the same in the last event and in a body of its own.
 *
 * Ownership: init borrows what it is given until fini. Errors: the bufs' stick, see responses_output_ok. Threads: one
 * answer belongs to one thread. Source: OpenAI's reference ("Streaming events", "The response object"), openresponses.org
 * and, for what must stand in which event, openai-python and Codex. */
#ifndef INFCGI_FCGI_API_RESPONSES_OUTPUT_H
#define INFCGI_FCGI_API_RESPONSES_OUTPUT_H

#include "fcgi/api/generation.h"
#include "fcgi/api/openai/responses_custom.h"
#include "fcgi/api/openai/responses_input.h"

enum { RESPONSES_HEX = 24, RESPONSES_ID_BYTES = 5 + RESPONSES_HEX + 1 };

/* An answer. Zero-initialise but for the first six; the others are private. */
struct responses_output {
    const char *model;
    const struct buf *echo; /* members of the response that repeat the request, as `"store":true` */
    const json_t *names;    /* of responses_chat */
    bool seals_thoughts;    /* encrypted_content is asked for */
    bool sums_up;           /* a summary of thoughts is asked for, which they are themselves */
    bool tells_logprobs;
    char id[RESPONSES_ID_BYTES]; /* "resp_" and hexadecimal digits, which its items' ids have, too */
    int64_t created, completed;
    int64_t n_events;
    enum responses_kind {
        RESPONSES_NOTHING,
        RESPONSES_REASONING,
        RESPONSES_SUMMARY, /* thinking, told as its summary */
        RESPONSES_MESSAGE,
        RESPONSES_CALL,
        RESPONSES_CUSTOM_CALL,
    } open; /* the item that is being told */
    size_t n_items;
    char item[RESPONSES_ITEM_ID_BYTES];
    struct buf name, text;          /* of the item that is open; of calls their arguments */
    struct responses_custom custom; /* the input of a custom call that is open */
    struct buf logprobs;            /* of it */
    struct buf fresh;               /* log-probabilities of tokens whose text has not come out */
    struct buf items;               /* JSON of those that are complete, comma-separated */
    struct buf *out;                /* where events go, NULL: nobody wants them */
    const struct choice *timed;     /* OPTIONAL: whose timings the deltas at hand tell */
};

/* What can be told of the end. */
struct responses_end {
    const char *status; /* "completed", "incomplete", "failed", "in_progress" */
    const struct generation_usage *usage;
    const struct err_info *failure;
    const struct choice *timed; /* OPTIONAL: whose timings the event tells */
};

void responses_output_init(struct responses_output *o);
void responses_output_fini(struct responses_output *o);
MUST_CHECK enum err responses_output_ok(const struct responses_output *o);

/* The events of the begin. */
void responses_output_begin(struct responses_output *o);

/* Tells that the answer goes on: response.in_progress once more. Codex leaves when no event has come for five minutes,
 * and does not count comments. */
void responses_output_tick(struct responses_output *o);

/* Tells how far the prompt is: response.in_progress with llama-server's prompt_progress. */
void responses_output_progress(struct responses_output *o, const struct generation *g, const struct choice *c);

/* Takes a part: a chat_part_sink, arg the answer. */
void responses_output_part(void *arg, const struct chat_part *part);

/* Takes a token's log-probability, before the parts of its text. */
void responses_output_token(struct responses_output *o, const struct generation *g, const struct engine_event *ev);

/* Nothing comes any more: closes the open item, which is_cut leaves incomplete. */
void responses_output_close(struct responses_output *o, bool is_cut);

/* The last event: response.completed, .incomplete or .failed, by end->status. */
void responses_output_end(struct responses_output *o, const struct responses_end *end);

/* The response as JSON. */
void responses_output_write(const struct responses_output *o, const struct responses_end *end, struct buf *out);

#endif
