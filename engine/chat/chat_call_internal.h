/* What the readers of the forms share: chat_call.c has JSON and names before it, chat_call_tags.c values between tags,
 * chat_call_words.c values in Python and between Gemma's quotes. Threads: as chat_call.h. */
#ifndef INFCGI_CHAT_CHAT_CALL_INTERNAL_H
#define INFCGI_CHAT_CHAT_CALL_INTERNAL_H

#include "engine/base/json_scan.h"
#include "engine/chat/chat_call.h"
#include "engine/chat/chat_types.h"

#include <string.h>

/* What one look at the bytes in front gave. */
enum step {
    STEP_ON,   /* some were read, or the phase is another: look again */
    STEP_WAIT, /* more must come */
    STEP_FAIL, /* they are no call */
};

enum phase {
    PHASE_BODY,   /* nothing is read */
    PHASE_BEHIND, /* only brackets too many may come */
    PHASE_ITEM,   /* JSON: an object comes next */
    PHASE_OBJECT,
    PHASE_NAME, /* NAMED */
    PHASE_FENCE,
    PHASE_ARGUMENTS,
    PHASE_TAG_NAME,
    PHASE_TAG_KEY,
    PHASE_TAG_VALUE,
    PHASE_TAG_TEXT, /* within a value that is a string */
    PHASE_WORD_NAME,
    PHASE_WORD_KEY,
    PHASE_WORD_VALUE,
    PHASE_WORD_TEXT, /* within a string */
    N_PHASES,
};

struct chat_call {
    const struct chat_format *format;
    const json_t *tools;
    chat_part_sink *sink; /* of what is fed now */
    void *arg;
    struct buf in;      /* what was fed and is still wanted */
    size_t at, from;    /* in it: what is not read yet; what goes back where this is no call */
    struct buf pending; /* parts that are not given yet */
    struct buf name, key, value, piece;
    struct json_scan scan, object; /* of the arguments; JSON: of the object that is the call */
    enum phase phase;
    size_t n_calls; /* that have begun, of this body */
    bool is_last;   /* nothing comes behind `in` */
    bool is_told;   /* parts were given */
    bool is_open;   /* a call has begun, and not ended */
    bool is_kept;   /* its parts are not given before its end */
    bool is_list;   /* within brackets */
    bool is_broken;
    bool has_called;                                                    /* JSON: the object's call has begun */
    enum member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS } member; /* JSON: whose value comes */
    const struct tags *tags;
    size_t n_seen;  /* tags: bytes in front that have no end mark in them */
    unsigned types; /* tags: that the schema allows the value */
    bool is_text;   /* tags: the value is a string whatever the schema says */
    bool is_fresh;  /* tags: no byte of the value is read */
    bool is_quoted; /* words: Gemma's */
    char quote;     /* words: of Python's string */
    unsigned depth; /* words: of the value */
    /* Words, at each depth: the schema of the object, and of the next value. NULL: none is known. */
    const json_t *holders[JSON_SCAN_DEPTH + 1], *slots[JSON_SCAN_DEPTH + 1];
    enum err err;
};

enum { CHAT_CALL_LONGEST = 1024 /* bytes of a name or a key, and what belongs to it */ };

static inline const char *chat_call_front(const struct chat_call *c)
{
    return c->in.data != NULL ? c->in.data + c->at : "";
}

static inline size_t chat_call_left(const struct chat_call *c) { return c->in.len - c->at; }

static inline bool chat_call_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The next phase, or the same once more. */
static inline enum step chat_call_go(struct chat_call *c, enum phase phase)
{
    c->phase = phase;
    return STEP_ON;
}

static inline enum step chat_call_wait(const struct chat_call *c) { return c->is_last ? STEP_FAIL : STEP_WAIT; }

/* Reads white space and any of `others`; false: nothing is left then. */
bool chat_call_skip(struct chat_call *c, const char *others);

/* Empties a buffer of c's; what failed there is c's failure. */
void chat_call_reset(struct chat_call *c, struct buf *b);

/* What is read so far stands whatever comes, if anything was given. */
void chat_call_settle(struct chat_call *c);

/* Reads the mark: STEP_ON; STEP_WAIT: it may come. */
enum step chat_call_mark(struct chat_call *c, const char *mark);

/* Reads up to the mark, and that: what stands before goes to *out. It fails where it is longer than a name. */
enum step chat_call_until(struct chat_call *c, const char *mark, struct buf *out);

/* Takes white space from its ends. */
void chat_call_trim(struct buf *b);

/* A call of c->name begins: not yet its arguments. */
enum step chat_call_open(struct chat_call *c);

/* JSON of the arguments goes on: all of it or nothing. Its last bracket ends the call. */
enum step chat_call_add(struct chat_call *c, const char *json, size_t n);
enum step chat_call_puts(struct chat_call *c, const char *json);

/* A piece of a JSON string, as text. */
enum step chat_call_add_text(struct chat_call *c, const char *text, size_t n);

/* A member begins: a comma where one stands before it, the key and a colon. */
enum step chat_call_add_key(struct chat_call *c, const char *key, size_t n);

/* Reads text of a JSON string as far as it is certain. trims: a newline in front of the mark is not of it. STEP_ON: the
 * mark has come. */
enum step chat_call_text(struct chat_call *c, const char *mark, bool trims);

/* What templates of Python write for true, false and null; NULL: it is none of these. */
const char *chat_call_python_word(const char *s, size_t n);

/* The type of text[0..n) as JSON; 0: it is none. */
unsigned chat_call_type_of_text(const char *text, size_t n);

/* Steps of the other files. */
enum step chat_call_tag_name(struct chat_call *c);
enum step chat_call_tag_key(struct chat_call *c);
enum step chat_call_tag_value(struct chat_call *c);
enum step chat_call_tag_text(struct chat_call *c);
enum step chat_call_word_name(struct chat_call *c);
enum step chat_call_word_key(struct chat_call *c);
enum step chat_call_word_value(struct chat_call *c);
enum step chat_call_word_text(struct chat_call *c);

/* Chooses the tags by what the body begins with. */
enum step chat_call_begin_tags(struct chat_call *c);

#endif
