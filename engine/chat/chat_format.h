/* How models write tool calls, one row per format: the marks, and the form between them. The reader of answers
 * (chat_parts.h) and the grammar of forced calls (chat_forced.h) both follow the row. A mark is text, parts of which
 * can be control tokens of the model, such as <|tool_call_end|>. Threads: constant data. Source: the models' chat
 * templates. */
#ifndef INFCGI_CHAT_CHAT_FORMAT_H
#define INFCGI_CHAT_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

/* The form of calls between `open` and `close` (chat_call.c). */
enum chat_body {
    /* detected by its beginning: JSON, <function=NAME> with <parameter=K>, or a name with <arg_key> */
    CHAT_BODY_TAGGED,
    CHAT_BODY_NAMED,    /* NAME, `separator`, a JSON object; or JSON, one call or an array */
    CHAT_BODY_KEYED,    /* JSON objects with one member each, NAME: arguments; one call or an array */
    CHAT_BODY_INVOKE,   /* <invoke name="NAME"> with <parameter name="K"> */
    CHAT_BODY_QUOTED,   /* call:NAME{K:V}, strings between <|"|> */
    CHAT_BODY_PYTHON,   /* [NAME(K=V), ...], or JSON */
    CHAT_BODY_CHANNELS, /* none: messages with a channel, and a recipient if they are calls */
};

/* What an answer begins with. */
enum chat_thinking {
    CHAT_THINKS_NOT,
    CHAT_MAY_THINK,
    CHAT_IS_THINKING, /* the prompt has begun it */
};

/* "": none. */
struct chat_format {
    const char *name;
    const char *signs[2]; /* chat templates of the format contain one of these */

    /* Reading. */
    enum chat_body body;
    const char *open, *close; /* around calls; close "": calls extend to the next `open` or the answer's end */
    const char *separator;    /* NAMED: after the name; a ':' in the name begins the call's number */
    const char *around[4];    /* marks around all calls, without meaning; NULL ends the list */
    char bare;                /* an answer that begins with it is a call, without marks; 0: none */
    bool has_tokens;          /* marks are control tokens, whose text answers do not show otherwise */

    /* Writing: begin, then calls separated by `between`, then end. A call is `call` NAME `name_end`, the arguments, an
     * object, and `call_end`. */
    const char *begin, *call, *name_end, *call_end, *between, *end;

    const char *think, *think_end; /* around thinking */
    const char *answer;            /* OPTIONAL: precedes the answer's text, also without thinking */
    bool lists_tools; /* the template does not know tools: a system message lists them and explains calls */
};

/* Returns the i-th row; NULL after the last. The first is for templates that name tools but have no row's sign. */
const struct chat_format *chat_format_at(int i);
const char *chat_format_name_at(int i);

/* Returns the row of that name, or NULL. */
const struct chat_format *chat_format_named(const char *name);

/* Returns the format that a chat template, source[0..n), describes to the model. */
const struct chat_format *chat_format_of(const char *source, size_t n);

#endif
