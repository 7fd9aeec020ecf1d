/* Splits a model's answer into parts: text arrives in pieces of any size; thinking and tool calls come out separately
 * from the text for the user. A row of chat_format.h has the marks around them and the form of calls.
 *
 * Thinking is at the start of an answer, or in messages with their own channel. The begin mark of a call ends it, if a
 * call follows; otherwise the mark is thinking too. The end mark of thinking after such a call is dropped.
 *
 * A call is emitted as soon as it is certain, its arguments in pieces that continue the JSON so far (chat_call.h).
 * Anything that is not a call is text. If an emitted call is cut off, because the answer ends or is no longer JSON, it
 * ends with CHAT_CALL_CUT, and the rest is text. White space around thinking and calls is dropped, up to
 * CHAT_SPLIT_SPACE bytes of it. Consecutive parts of one kind, joined, do not depend on how the text was cut.
 *
 * Ownership: init borrows format and tools until fini. Errors: lack of memory sticks, see chat_split_ok; text fed after
 * that is lost. Threads: one splitter belongs to one thread at a time. Source: the models' chat templates. */
#ifndef INFCGI_ENGINE_CHAT_PARTS_H
#define INFCGI_ENGINE_CHAT_PARTS_H

#include "engine/base/buf.h"
#include "engine/chat/chat_format.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum chat_part_kind {
    CHAT_TEXT,
    CHAT_REASONING,
    CHAT_CALL_BEGIN,
    CHAT_CALL_ARGUMENTS,
    CHAT_CALL_END, /* the arguments are a JSON object */
    CHAT_CALL_CUT, /* the arguments are the beginning of a JSON object and end here */
};

/* text[0..len) is borrowed for the call of the sink. */
struct chat_part {
    enum chat_part_kind kind;
    size_t i_call;    /* CALL_*: counted from 0 */
    const char *text; /* TEXT, REASONING; CALL_BEGIN: the name; CALL_ARGUMENTS: a piece of the JSON object */
    size_t len;
};

typedef void chat_part_sink(void *arg, const struct chat_part *part);

/* After this number of call marks in thinking without a call, only the end mark of thinking is searched for. */
enum { CHAT_SPLIT_NO_CALLS = 256 };
enum { CHAT_SPLIT_SPACE = 64, CHAT_SPLIT_DEPTH = 64 /* of arguments */ };

/* White space of formats. */
static inline bool chat_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

struct chat_call;

/* All zero: everything is text. */
struct chat_split_config {
    bool splits_reasoning;
    bool starts_in_reasoning; /* the prompt ended with the begin mark of thinking */
    bool reads_calls;
    bool is_forced;                   /* a grammar forces calls: an answer cut before its call leaves nothing */
    const struct chat_format *format; /* NULL: the first of the table */
    /* OPTIONAL: the request's; their schemas decide whether values without quotes are strings or JSON */
    const json_t *tools;
};

/* Fields are private. */
struct chat_split {
    struct chat_split_config config;
    enum chat_split_state {
        CHAT_AT_START,
        CHAT_IN_REASONING,
        CHAT_IN_TEXT,
        CHAT_IN_CALL,
        CHAT_IN_HEADER, /* of a message with a channel */
        CHAT_SPLIT_STATES,
    } state;
    chat_part_sink *sink; /* for the text being fed */
    void *arg;
    struct buf held; /* not yet emitted */
    /* IN_CALL: reads the body and holds the part not yet emitted; NULL before the first call */
    struct chat_call *calls;
    size_t n_scanned;   /* IN_CALL: bytes of held that were searched */
    size_t n_header;    /* IN_CALL: bytes of the message's header, which are not text */
    size_t n_front;     /* IN_CALL: bytes before its body, including the mark */
    size_t n_no_calls;  /* marks in thinking that no call followed */
    size_t n_reasoning; /* tokens of thinking, from chat_split_count_token */
    size_t n_undecided; /* IN_CALL: tokens since its mark in thinking, while it is uncertain */
    size_t i_call;      /* calls so far */
    size_t i_first;     /* IN_CALL: the body's first call */
    bool drops_space;   /* drop the white space that follows */
    bool has_text;      /* some text was emitted */
    bool is_bare;       /* IN_CALL: without marks */
    bool is_thought;    /* IN_CALL: the mark was in thinking */
    bool ends_late;     /* a call has ended the thinking, whose end mark can still come */
    bool is_broken;     /* IN_CALL: the body is not a call; it becomes text at its end */
    bool is_json;       /* IN_CALL: quotes count */
    bool knows_body;    /* IN_CALL: is_json is set */
    bool is_in_string, is_escaped;
    enum err err;
};

void chat_split_init(struct chat_split *s, const struct chat_split_config *config);
void chat_split_fini(struct chat_split *s);

/* Consumes the next piece and emits the parts that are certain. */
void chat_split_feed(struct chat_split *s, const char *text, size_t n, chat_part_sink *sink, void *arg);

/* Ends the answer and emits the rest. A call that lacks only its end mark counts. A forced call that was not emitted,
 * because its name is incomplete, leaves nothing. */
void chat_split_finish(struct chat_split *s, chat_part_sink *sink, void *arg);

/* Returns whether the text fed last is thinking. True also for a possible call until it is certain. */
bool chat_split_is_reasoning(const struct chat_split *s);

/* In thinking: returns whether a mark, the beginning of one, or of a call is held back. */
bool chat_split_is_undecided(const struct chat_split *s);

/* chat_split_count_token counts the token whose text was fed last. chat_split_reasoning_tokens returns the tokens of
 * thinking so far. Tokens of a call made in thinking do not count; those of a mark that no call followed do. */
void chat_split_count_token(struct chat_split *s);
size_t chat_split_reasoning_tokens(const struct chat_split *s);

MUST_CHECK enum err chat_split_ok(const struct chat_split *s);

#endif
