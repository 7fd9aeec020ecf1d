/* Tenants: who asks, what they may, and what they did. One comes from its API key, from a key of --api-key-file, which is
 * a tenant of its own, or from the name that nginx gives (INFCGI_TENANT); who has neither is the tenant "anonymous". What
 * holds for each is the file's of --tenants (tenant_file.h).
 *
 * A tenant that no section names is made when it first asks. Of these TENANT_MAX_UNNAMED are known at a time: one that is
 * idle and whose buckets are full again makes room, and what it did is counted under "other"; when none is, who comes is
 * "other" too. What belongs to whom (prefix cache, kept responses, turns) goes by the id, never by this.
 *
 * Threads: all may be called at once. */
#ifndef INFCGI_FCGI_TENANT_H
#define INFCGI_FCGI_TENANT_H

#include "engine/engine.h"
#include "fcgi/tenant/tenant_file.h"

enum { TENANT_MAX_UNNAMED = 1024 };

struct tenant;

/* Reads the file and replaces what holds and the tenants' keys. On failure all stays as it was. Errors as
 * tenant_file_read. */
MUST_CHECK enum err tenant_load(const char *path, struct err_info *info);

/* Who asks. named: what nginx says, OPTIONAL; "" = nothing; then no key is asked for. Else as apikey_check. False: the
 * key is missing or wrong. *out and *id say who it is; tenant_leave lets go of *out. */
MUST_CHECK bool tenant_enter(const char *named, const char *authorization, const char *x_api_key, struct tenant **out,
                             struct apikey_id *id);
void tenant_leave(struct tenant **t);

/* Does what holds for the tenant let it name this model? */
bool tenant_may_use(const struct tenant *t, const char *model);

/* Tokens of an answer at most; 0 = no limit. */
int64_t tenant_max_tokens(const struct tenant *t);

/* Its part of the engine's time. */
struct sched_share tenant_share(const struct tenant *t, const struct apikey_id *id);

/* Its name, for logs, as long as it was not let go of. */
const char *tenant_name(const struct tenant *t);

/* --- limits ------------------------------------------------------------------------------------------------------- */

/* A request of a tenant in progress. Zero-initialise; fields are private. */
struct tenant_request {
    bool has_begun;
    int64_t reserved;
    uint64_t begin_ns;
};

/* What a request came to. */
struct tenant_use {
    int64_t prompt, cached, completion,
        reasoning;    /* tokens; of the prompt, found in the cache; said; of these, thinking */
    int64_t computed; /* prompt tokens computed and tokens said, of all its sequences */
};

/* Counts a request in, if the limits of requests, of those in progress and of tokens have room for it. ERR_RATE_LIMIT,
 * *retry_after_s then says when they will have: 1 or more. now_ns: clock_now_ns. */
MUST_CHECK enum err tenant_begin(struct tenant *t, struct tenant_request *r, uint64_t now_ns, int *retry_after_s,
                                 struct err_info *info);

/* Takes n tokens, a prompt's, from the limit of tokens; once for each request, which has begun. ERR_RATE_LIMIT as above;
 * *retry_after_s is 0 when there is never room for so many. */
MUST_CHECK enum err tenant_reserve(struct tenant *t, struct tenant_request *r, int64_t n, uint64_t now_ns,
                                   int *retry_after_s, struct err_info *info);

/* Counts it out: what it came to takes the place of what it reserved. */
void tenant_end(struct tenant *t, struct tenant_request *r, const struct tenant_use *use, uint64_t now_ns);

/* The form of the headers for limits in one API. */
struct tenant_headers {
    const char *
        forms[3]; /* with "%s" for "requests" or "tokens", up to the value: the limit, what is left, when all is back */
    void (*write_reset)(double ns, struct buf *out); /* appends that time and the line's end; ns: from now */
};
extern const struct tenant_headers tenant_headers_openai;

/* Appends the headers for the tenant's limits; nothing without limits. */
void tenant_write_headers(const struct tenant *t, const struct tenant_headers *h, struct buf *out);

/* --- what is known of them ---------------------------------------------------------------------------------------- */

/* Totals count from the start of the process. */
struct tenant_report {
    struct tenant_rules rules; /* a copy; the name of a tenant without section is what it is called */
    bool has_section;
    double requests_left, tokens_left; /* where there is a limit */
    int64_t n_active;                  /* requests in progress */
    uint64_t n_running, n_waiting;     /* sequences in the engine */
    uint64_t requests, refused;        /* that began; that a limit kept out */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
};

/* Writes at most `max` of those that are known to out, the last to ask first, and returns how many. The first is always
 * "other", which is the sum of those that are not known any more. e OPTIONAL. */
size_t tenant_snapshot(const struct engine *e, struct tenant_report *out, size_t max);

#endif
