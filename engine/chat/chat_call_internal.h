/* Shared by the readers of the forms: chat_call.c reads JSON and names before it, chat_call_tags.c values between tags,
 * chat_call_words.c values in Python and between Gemma's quotes. Threads: as chat_call.h. */
#ifndef INFCGI_CHAT_CHAT_CALL_INTERNAL_H
#define INFCGI_CHAT_CHAT_CALL_INTERNAL_H

#include "engine/base/json_scan.h"
#include "engine/chat/chat_call.h"
#include "engine/chat/chat_types.h"

#include <string.h>

/* The result of one reading step. */
enum step {
    STEP_ON,   /* read some bytes, or changed the phase: continue */
    STEP_WAIT, /* needs more bytes */
    STEP_FAIL, /* not a call */
};

enum phase {
    PHASE_BODY,        /* nothing read yet */
    PHASE_AFTER_CALLS, /* only surplus closing brackets can follow */
    PHASE_ITEM,        /* JSON: an object must follow */
    PHASE_OBJECT,
    PHASE_NAME, /* NAMED */
    PHASE_FENCE,
    PHASE_ARGUMENTS,
    PHASE_TAG_NAME,
    PHASE_TAG_KEY,
    PHASE_TAG_VALUE,
    PHASE_TAG_TEXT, /* in a value that is a string */
    PHASE_WORD_NAME,
    PHASE_WORD_KEY,
    PHASE_WORD_VALUE,
    PHASE_WORD_TEXT, /* in a string */
    N_PHASES,
};

struct chat_call {
    const struct chat_format *format;
    const json_t *tools;
    chat_part_sink *sink; /* for the bytes being fed */
    void *arg;
    union {
        struct {
            struct buf in;      /* bytes fed and still needed */
            struct buf pending; /* parts not yet emitted */
            struct buf name, key, value, piece;
        };
        struct buf bufs[6]; /* all of these */
    };
    size_t at, from;               /* offsets in `in`: of unread bytes; of bytes to return if this is not a call */
    struct json_scan scan, object; /* of the arguments; JSON: of the object that is the call */
    enum phase phase;
    size_t n_calls;   /* calls begun in this body */
    bool is_last;     /* nothing follows `in` */
    bool has_emitted; /* parts were emitted */
    bool is_open;     /* a call has begun and not ended */
    bool is_kept;     /* hold its parts back until its end */
    bool is_list;     /* in brackets */
    bool is_broken;
    bool has_called;                                                    /* JSON: the object's call has begun */
    enum member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS } member; /* JSON: the member whose value follows */
    const struct tags *tags;
    size_t n_seen;  /* tags: leading bytes known to contain no end mark */
    unsigned types; /* tags: types that the schema allows for the value */
    bool is_text;   /* tags: the value is a string whatever the schema says */
    bool is_fresh;  /* tags: no byte of the value has been read */
    bool is_quoted; /* words: Gemma's quotes */
    char quote;     /* words: of the Python string */
    unsigned depth; /* words: of the value */
    /* Words, at each depth: the schema of the object, and of the next value. NULL: unknown. */
    const json_t *holders[JSON_SCAN_DEPTH + 1], *slots[JSON_SCAN_DEPTH + 1];
    enum err err;
};

enum { CHAT_CALL_LONGEST = 1024 /* bytes of a name or a key, and what belongs to it */ };

static inline const char *chat_call_front(const struct chat_call *c)
{
    return c->in.data != NULL ? c->in.data + c->at : "";
}

static inline size_t chat_call_left(const struct chat_call *c) { return c->in.len - c->at; }

/* Enters a phase, or the same one again. */
static inline enum step chat_call_enter(struct chat_call *c, enum phase phase)
{
    c->phase = phase;
    return STEP_ON;
}

static inline enum step chat_call_wait(const struct chat_call *c) { return c->is_last ? STEP_FAIL : STEP_WAIT; }

/* Skips white space and any of `others`; returns false if nothing is left then. */
bool chat_call_skip(struct chat_call *c, const char *others);

/* Empties a buffer of c's; its failure becomes c's. */
void chat_call_reset(struct chat_call *c, struct buf *b);

/* If parts were emitted, makes the text read so far final: chat_call_rest never returns it. */
void chat_call_settle(struct chat_call *c);

/* Reads the mark. STEP_ON: read; STEP_WAIT: it can still come. */
enum step chat_call_mark(struct chat_call *c, const char *mark);

/* Reads up to and including the mark; appends the text before it to *out. Fails if that is longer than a name. */
enum step chat_call_until(struct chat_call *c, const char *mark, struct buf *out);

/* Strips white space from both ends. */
void chat_call_trim(struct buf *b);

/* Begins a call of c->name, without its arguments. */
enum step chat_call_open(struct chat_call *c);

/* Begins a call of c->name unless one is open, and its arguments unless they have begun. */
enum step chat_call_open_object(struct chat_call *c);

/* Appends JSON to the arguments: all of it or nothing. Its last bracket ends the call. */
enum step chat_call_add(struct chat_call *c, const char *json, size_t n);
enum step chat_call_puts(struct chat_call *c, const char *json);

/* Appends text to a JSON string. */
enum step chat_call_add_text(struct chat_call *c, const char *text, size_t n);

/* Begins a member: a comma if one is needed, the key and a colon. */
enum step chat_call_add_key(struct chat_call *c, const char *key, size_t n);

/* Reads text of a JSON string as far as it is certain. trims: a newline before the mark is not part of it. STEP_ON: the
 * mark was read. */
enum step chat_call_text(struct chat_call *c, const char *mark, bool trims);

/* Returns the JSON for Python's True, False and None as templates write them; NULL: it is none of these. */
const char *chat_call_python_word(const char *s, size_t n);

/* Returns the type of text[0..n) as JSON; 0: it is not JSON. */
unsigned chat_call_type_of_text(const char *text, size_t n);

/* Steps in the other files. */
enum step chat_call_tag_name(struct chat_call *c);
enum step chat_call_tag_key(struct chat_call *c);
enum step chat_call_tag_value(struct chat_call *c);
enum step chat_call_tag_text(struct chat_call *c);
enum step chat_call_word_name(struct chat_call *c);
enum step chat_call_word_key(struct chat_call *c);
enum step chat_call_word_value(struct chat_call *c);
enum step chat_call_word_text(struct chat_call *c);

/* Chooses the tags by the beginning of the body. */
enum step chat_call_begin_tags(struct chat_call *c);

#endif
