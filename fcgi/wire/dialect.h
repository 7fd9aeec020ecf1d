/* A dialect: how one API differs from others in every request. The row of a route names it (fcgi/routes.c); no other
 * code checks which API a request belongs to. Threads: constant, pure functions. */
#ifndef INFCGI_WIRE_DIALECT_H
#define INFCGI_WIRE_DIALECT_H

#include "engine/base/buf.h"
#include "engine/base/err.h"
#include "fcgi/tenant/tenant.h"

#include <stdbool.h>

struct reply;

struct dialect {
    /* URLs that belong to the API, NULL-terminated: "/api/" and all below it. Requests for unknown URLs among them get
     * the API's errors. */
    const char *const *paths;
    /* Appends the error object. info OPTIONAL; message: its text. */
    void (*write_error)(const struct reply *r, enum err code, const struct err_info *info, const char *message,
                        struct buf *out);
    /* OPTIONAL: appends extra headers to every answer. */
    void (*write_headers)(const struct reply *r, struct buf *out);
    const struct tenant_headers *limits;    /* headers of rate limits */
    const char *out_of_memory;              /* static error object, for when memory is too short to write one */
    const char *before_error, *after_error; /* text around an error object in a stream */
    bool requires_model;                    /* --strict-api: a request must name the model */
    bool checks_as_openai;                  /* --strict-api: rejects tools that OpenAI's API rejects */
    bool
        thinks_if_possible; /* thinks if the chat template has a switch for it, unless the request or --reasoning says otherwise */
};

/* OpenAI's API. Also the form of errors before a request's API is known. */
extern const struct dialect dialect_openai;

/* Appends OpenAI's error object of that type, without its last two braces. */
void dialect_write_openai(const char *type, enum err code, const struct err_info *info, const char *message,
                          struct buf *out);

/* The error object of dialect_openai in dialect.out_of_memory's form. */
#define DIALECT_OUT_OF_MEMORY                                                                                          \
    "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}"

/* Returns whether the URL belongs to the API. */
bool dialect_has(const struct dialect *d, const char *path);

#endif
