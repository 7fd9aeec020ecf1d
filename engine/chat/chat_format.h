/* How models write calls of tools, one row a format: the marks, and what stands between them. The reader of answers
 * (chat_parts.h) and the grammar of answers that must be calls (chat_forced.h) both follow the row.
 *
 * A mark is text, of which pieces may be control tokens of the model, as <|tool_call_end|>.
 * Threads: constant data. Source: the models' chat templates. */
#ifndef INFCGI_CHAT_CHAT_FORMAT_H
#define INFCGI_CHAT_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

/* What says a call, between `call` and `call_end`. */
enum chat_body {
    CHAT_BODY_JSON, /* {"name": NAME, "arguments": {..}} */
};

/* begin, then calls with `between` between them, then end; "" = nothing. */
struct chat_format {
    const char *name;
    enum chat_body body;
    const char *begin, *call, *call_end, *between, *end;
    const char *arguments;         /* JSON: the key of the arguments */
    const char *think, *think_end; /* around what the model thinks */
    bool is_told; /* the template knows no tools: a system message says what there is, and how to call */
};

/* The i-th row; NULL beyond the last. */
const struct chat_format *chat_format_at(int i);
const char *chat_format_name_at(int i);

/* The format that a chat template, source[0..n), tells the model. */
const struct chat_format *chat_format_of(const char *source, size_t n);

#endif
