/* Extracts the input of a custom tool, a string in the arguments that a model generates, as they arrive. Errors: the
 * bufs' errors persist, see responses_custom_ok. Threads: one thread at a time per struct. */
#ifndef INFCGI_FCGI_API_RESPONSES_CUSTOM_H
#define INFCGI_FCGI_API_RESPONSES_CUSTOM_H

#include "engine/base/buf.h"
#include "engine/base/json_scan.h"

/* All fields except the first two are private. */
struct responses_custom {
    struct buf input; /* so far */
    bool has_input;   /* a string member "input" has begun */
    struct json_scan scan;
    struct buf key, raw; /* key of the member; bytes of its string in JSON form */
    size_t n_sure;       /* bytes of raw up to the last complete character */
    bool is_in, is_over;
};

void responses_custom_init(struct responses_custom *c);
void responses_custom_fini(struct responses_custom *c);
MUST_CHECK enum err responses_custom_ok(const struct responses_custom *c);

/* Starts the next arguments. */
void responses_custom_begin(struct responses_custom *c);

/* Takes the next piece of a JSON object and appends its part of the input to c->input. */
void responses_custom_feed(struct responses_custom *c, const char *text, size_t n);

#endif
