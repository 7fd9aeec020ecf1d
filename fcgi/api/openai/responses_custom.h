/* The input of a custom tool, a string in the arguments that a model wrote, taken out of them as they come.
 * Errors: the bufs' stick, see responses_custom_ok. Threads: one belongs to one thread at a time. */
#ifndef INFCGI_FCGI_API_RESPONSES_CUSTOM_H
#define INFCGI_FCGI_API_RESPONSES_CUSTOM_H

#include "engine/base/buf.h"
#include "engine/base/json_scan.h"

/* Fields but the first two are private. */
struct responses_custom {
    struct buf input; /* so far */
    bool has_input;   /* a member "input" has begun, and is a string */
    struct json_scan scan;
    struct buf key, raw; /* of the member; bytes of its string as JSON writes them */
    size_t n_sure;       /* bytes of raw that end with a whole character */
    bool is_in, is_over;
};

void responses_custom_init(struct responses_custom *c);
void responses_custom_fini(struct responses_custom *c);
MUST_CHECK enum err responses_custom_ok(const struct responses_custom *c);

/* The next arguments begin. */
void responses_custom_begin(struct responses_custom *c);

/* Takes the next piece of a JSON object and appends to c->input what it says of that. */
void responses_custom_feed(struct responses_custom *c, const char *text, size_t n);

#endif
