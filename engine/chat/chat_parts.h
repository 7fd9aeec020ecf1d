/* What a model's answer is made of: its text arrives in pieces of any size, and parts come out, thinking and calls of
 * tools apart from what is said to the user. Which marks stand around them, and how calls are written, a row of
 * chat_format.h says.
 *
 * Thinking is at the start of an answer, or in messages of a channel of their own. The begin mark of a call ends it, if a
 * call follows; otherwise the mark is thinking too. The end mark of thinking that comes after such a call is dropped.
 * A call comes out as soon as it is
 * certain, its arguments in pieces that go on with what is JSON so far (chat_call.h); what is no call is text. Where a call
 * that has come out breaks off, at the answer's end or because what the model wrote is no JSON, it ends with
 * CHAT_CALL_CUT, and what the model says then is text. White space around thinking and calls is dropped, up to
 * CHAT_SPLIT_SPACE bytes of it. Parts of one kind in a row, joined, do not depend on how the text was cut.
 *
 * Ownership: init borrows format and tools until fini. Errors: no memory sticks, see chat_split_ok; what was fed afterwards
 * is lost. Threads: one splitter belongs to one thread at a time. Source: the models' chat templates. */
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
    CHAT_CALL_CUT, /* they are the beginning of one, and no more comes */
};

/* text[0..len): borrowed for the call of the sink. */
struct chat_part {
    enum chat_part_kind kind;
    size_t i_call;    /* CALL_*: counted from 0 */
    const char *text; /* TEXT, REASONING; CALL_BEGIN: the name; CALL_ARGUMENTS: a piece of the JSON object */
    size_t len;
};

typedef void chat_part_sink(void *arg, const struct chat_part *part);

/* Marks of calls in thinking that no call followed: after so many, only the end mark of thinking is looked for. */
enum { CHAT_SPLIT_NO_CALLS = 256 };
enum { CHAT_SPLIT_SPACE = 64, CHAT_SPLIT_DEPTH = 64 /* of arguments */ };

struct chat_call;

/* All zero: everything is text. */
struct chat_split_config {
    bool splits_reasoning;
    bool starts_in_reasoning; /* the prompt ended with the mark of thinking */
    bool reads_calls;
    bool is_forced;                   /* a grammar holds the answer to calls: what ends before it is one is nothing */
    const struct chat_format *format; /* NULL: the table's first */
    const json_t *tools; /* OPTIONAL: the request's, by whose schemas values without quotes are strings or JSON */
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
    } state;
    struct buf held;         /* what is not given out yet */
    struct chat_call *calls; /* IN_CALL: reads the body, and holds what of it is not given out; NULL before the first */
    size_t n_scanned;        /* IN_CALL: bytes of held that were looked at */
    size_t n_header;         /* IN_CALL: bytes of the message's header, which are no text */
    size_t n_front;          /* IN_CALL: bytes up to its body, the mark included */
    size_t n_no_calls;       /* marks in thinking that no call followed */
    size_t n_reasoning;      /* tokens of thinking, as chat_split_count_token was told */
    size_t n_undecided;      /* IN_CALL: tokens since its mark in thinking, while it may be none */
    size_t i_call;           /* calls so far */
    size_t i_first;          /* IN_CALL: of the body */
    bool drops_space;        /* the white space that comes next is no part of the answer */
    bool has_text;           /* some was given */
    bool is_bare;            /* IN_CALL: without marks */
    bool is_thought;         /* IN_CALL: the mark stood in thinking */
    bool ends_late;          /* a call has ended the thinking, whose end mark may still come */
    bool is_broken;          /* IN_CALL: the body is none; text, once its end has come */
    bool is_json;            /* IN_CALL: quotes count */
    bool knows_body;         /* IN_CALL: is_json is set */
    bool is_in_string, is_escaped;
    enum err err;
};

void chat_split_init(struct chat_split *s, const struct chat_split_config *config);
void chat_split_fini(struct chat_split *s);

/* Takes the next piece, and gives the parts that are certain. */
void chat_split_feed(struct chat_split *s, const char *text, size_t n, chat_part_sink *sink, void *arg);

/* The answer has ended: gives the rest. A call that lacks only its end mark is one; one that is forced and has not come out, as
 * its name is not complete, leaves nothing. */
void chat_split_finish(struct chat_split *s, chat_part_sink *sink, void *arg);

/* Is what was fed last thinking? True also of what may be a call, until it is certain that it is one. */
bool chat_split_is_reasoning(const struct chat_split *s);

/* In thinking: is something held back that is a mark, or the beginning of one, or of a call? */
bool chat_split_is_undecided(const struct chat_split *s);

/* Counts a token whose text was fed last. Tokens of thinking so far: those of a call that the model made there do not count,
 * those of what turned out to be none do. */
void chat_split_count_token(struct chat_split *s);
size_t chat_split_reasoning_tokens(const struct chat_split *s);

MUST_CHECK enum err chat_split_ok(const struct chat_split *s);

#endif
