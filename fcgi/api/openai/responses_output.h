/* Answers of the Responses API: the items of an answer as their parts arrive, the events about them, and the whole
 * response, which is the same in the last event and in a complete body.
 *
 * Ownership: init borrows its inputs until fini. Errors: the bufs' errors persist, see responses_output_ok. Threads:
 * one answer belongs to one thread. Source: OpenAI's reference ("Streaming events", "The response object"),
 * openresponses.org and, for the members each event must have, openai-python and Codex. */
#ifndef INFCGI_FCGI_API_RESPONSES_OUTPUT_H
#define INFCGI_FCGI_API_RESPONSES_OUTPUT_H

#include "fcgi/api/generation.h"
#include "fcgi/api/openai/responses_custom.h"
#include "fcgi/api/openai/responses_input.h"

enum { RESPONSES_HEX = 24, RESPONSES_ID_BYTES = 5 + RESPONSES_HEX + 1 };

/* An answer. Zero-initialise all but the first six fields; the others are private. */
struct responses_output {
    const char *model;
    const struct buf *echo; /* members that repeat the request, as `"store":true` */
    const json_t *names;    /* of struct tools */
    bool seals_thoughts;    /* encrypted_content was requested */
    bool sums_up;           /* a summary of thinking was requested; it is the thinking itself */
    bool tells_logprobs;
    char id[RESPONSES_ID_BYTES]; /* "resp_" and hexadecimal digits, which its items' ids share */
    int64_t created, completed;
    int64_t n_events;
    enum responses_kind {
        RESPONSES_NOTHING,
        RESPONSES_REASONING,
        RESPONSES_SUMMARY, /* thinking, reported as its summary */
        RESPONSES_MESSAGE,
        RESPONSES_CALL,
        RESPONSES_CUSTOM_CALL,
    } open; /* the current item */
    size_t n_items;
    char item[RESPONSES_ITEM_ID_BYTES];
    struct buf name, text;          /* of the current item; for calls the arguments */
    struct responses_custom custom; /* input of the current custom call */
    struct buf logprobs;            /* of the current item */
    struct buf fresh;               /* log-probabilities of tokens whose text is still held back */
    struct buf items;               /* JSON of complete items, comma-separated */
    struct buf *out;                /* receives events; NULL: no stream */
    const struct choice *timed;     /* OPTIONAL: choice whose timings the current deltas show */
};

/* The data for the end of an answer. */
struct responses_end {
    const char *status; /* "completed", "incomplete", "failed", "in_progress" */
    const struct generation_usage *usage;
    const struct err_info *failure;
    const struct choice *timed; /* OPTIONAL: choice whose timings the event shows */
};

void responses_output_init(struct responses_output *o);
void responses_output_fini(struct responses_output *o);
MUST_CHECK enum err responses_output_ok(const struct responses_output *o);

/* Writes the first events. */
void responses_output_begin(struct responses_output *o);

/* Repeats response.in_progress to show that the answer continues. Codex disconnects after five minutes without an event
 * and does not count comments. */
void responses_output_tick(struct responses_output *o);

/* Reports the prompt's progress: response.in_progress with llama-server's prompt_progress. */
void responses_output_progress(struct responses_output *o, const struct generation *g, const struct choice *c);

/* Takes a part of the answer: a chat_part_sink, arg is the answer. */
void responses_output_part(void *arg, const struct chat_part *part);

/* Takes a token's log-probability, before the parts of its text. */
void responses_output_token(struct responses_output *o, const struct generation *g, const struct engine_event *ev);

/* Closes the current item at the end of the text; is_cut marks it incomplete. */
void responses_output_close(struct responses_output *o, bool is_cut);

/* Writes the last event: response.completed, .incomplete or .failed, by end->status. */
void responses_output_end(struct responses_output *o, const struct responses_end *end);

/* Writes the response as JSON. */
void responses_output_write(const struct responses_output *o, const struct responses_end *end, struct buf *out);

#endif
