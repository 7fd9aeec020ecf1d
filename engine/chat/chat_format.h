/* How models write calls of tools, one row a format: the marks, and what stands between them. The reader of answers
 * (chat_parts.h) and the grammar of answers that must be calls (chat_forced.h) both follow the row.
 *
 * A mark is text, of which pieces may be control tokens of the model, as <|tool_call_end|>.
 * Threads: constant data. Source: the models' chat templates. */
#ifndef INFCGI_CHAT_CHAT_FORMAT_H
#define INFCGI_CHAT_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

/* What says calls, between `open` and `close`. (chat_call.c) */
enum chat_body {
    CHAT_BODY_TAGGED,   /* told by how it begins: JSON, <function=NAME> with <parameter=K>, or a name with <arg_key> */
    CHAT_BODY_NAMED,    /* NAME, `separator`, a JSON object; or JSON, one call or an array */
    CHAT_BODY_INVOKE,   /* <invoke name="NAME"> with <parameter name="K"> */
    CHAT_BODY_QUOTED,   /* call:NAME{K:V}, strings between <|"|> */
    CHAT_BODY_PYTHON,   /* [NAME(K=V), ...], or JSON */
    CHAT_BODY_CHANNELS, /* none: messages with a channel, and a recipient where they are calls */
};

/* What an answer begins with. */
enum chat_thinking {
    CHAT_THINKS_NOT,
    CHAT_MAY_THINK,
    CHAT_IS_THINKING, /* the prompt has begun it */
};

/* "" = nothing. */
struct chat_format {
    const char *name;
    const char *signs[2]; /* what chat templates of the format have in them, one of these */

    /* Reading. */
    enum chat_body body;
    const char *open, *close; /* around calls; close "": they go on to the next `open` or the answer's end */
    const char *separator;    /* NAMED: behind the name; what stands behind a ':' in the name counts the calls */
    const char *around[4];    /* marks around all calls, which say nothing; NULL behind the last */
    char bare;                /* an answer that begins so is a call, without marks; 0: none is */
    bool has_tokens;          /* marks are control tokens, whose text answers do not show otherwise */

    /* Writing: begin, then calls with `between` between them, then end; a call is `call` NAME `name_end` and the
     * arguments, an object, `call_end`. */
    const char *begin, *call, *name_end, *call_end, *between, *end;

    const char *think, *think_end; /* around what the model thinks */
    const char *answer;            /* OPTIONAL: stands in front of what it says, also without thinking */
    bool is_told; /* the template knows no tools: a system message says what there is, and how to call */
};

/* The i-th row; NULL beyond the last. The first is that of templates that name tools without any row's sign. */
const struct chat_format *chat_format_at(int i);
const char *chat_format_name_at(int i);

/* The row of the name; NULL: there is none. */
const struct chat_format *chat_format_named(const char *name);

/* The format that a chat template, source[0..n), tells the model. */
const struct chat_format *chat_format_of(const char *source, size_t n);

#endif
