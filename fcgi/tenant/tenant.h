/* Tenants: clients with common permissions, limits and usage. A request's tenant comes from its API key, from a key of
 * --api-key-file (which is its own tenant), or from the name that nginx passes (INFCGI_TENANT). Clients without either
 * are the tenant "anonymous". The --tenants file (tenant_file.h) sets each tenant's rules.
 *
 * A tenant without a section is created on its first request. At most TENANT_MAX_UNNAMED such tenants are known. For a
 * new one, an idle tenant with full buckets is evicted and its usage is added to "other". If no tenant can be evicted,
 * the new client counts as "other". Prefix cache, kept responses and turns go by id, not by this tenant.
 *
 * Threads: all functions can run at the same time. */
#ifndef INFCGI_FCGI_TENANT_H
#define INFCGI_FCGI_TENANT_H

#include "engine/engine.h"
#include "fcgi/tenant/tenant_file.h"

enum { TENANT_MAX_UNNAMED = 1024 };

struct tenant;

/* Loads the file and replaces rules and tenants' keys. On failure the old ones stay active. Errors as
 * tenant_file_read. */
MUST_CHECK enum err tenant_load(const char *path, struct err_info *info);

/* Identifies the client. named: the tenant name from nginx (OPTIONAL, "" = none); if set, no key is required. Otherwise
 * checks the key as apikey_check does. Returns false if the key is missing or wrong. Sets *out and *id; tenant_leave
 * releases *out. */
MUST_CHECK bool tenant_enter(const char *named, const char *authorization, const char *x_api_key, struct tenant **out,
                             struct apikey_id *id);
void tenant_leave(struct tenant **t);

/* Returns whether the tenant's rules allow this model. */
bool tenant_may_use(const struct tenant *t, const char *model);

/* Returns the maximum tokens of an answer; 0: no limit. */
int64_t tenant_max_tokens(const struct tenant *t);

/* Returns the tenant's share of the engine's time. */
struct sched_share tenant_share(const struct tenant *t, const struct apikey_id *id);

/* Returns the tenant's name for logs, valid until tenant_leave. */
const char *tenant_name(const struct tenant *t);

/* --- limits ------------------------------------------------------------------------------------------------------- */

/* A request of a tenant in progress. Zero-initialise; fields are private. */
struct tenant_request {
    bool has_begun;
    int64_t reserved;
    uint64_t begin_ns;
};

/* The usage of a request. */
struct tenant_use {
    int64_t prompt, cached, completion,
        reasoning;    /* tokens: of the prompt; of these, found in the cache; generated; of these, thinking */
    int64_t computed; /* computed prompt tokens and generated tokens, over all sequences */
};

/* Counts a request as begun if the limits of requests, concurrency and tokens permit it. Otherwise returns
 * ERR_RATE_LIMIT and sets *retry_after_s (1 or more) to the time until they do. now_ns: clock_now_ns. */
MUST_CHECK enum err tenant_begin(struct tenant *t, struct tenant_request *r, uint64_t now_ns, int *retry_after_s,
                                 struct err_info *info);

/* Takes the n tokens of a prompt from the token limit. Call once for each request that has begun. ERR_RATE_LIMIT as
 * above; *retry_after_s is 0 if n exceeds the limit itself. */
MUST_CHECK enum err tenant_reserve(struct tenant *t, struct tenant_request *r, int64_t n, uint64_t now_ns,
                                   int *retry_after_s, struct err_info *info);

/* Counts the request as ended and replaces its reservation with its actual usage. */
void tenant_end(struct tenant *t, struct tenant_request *r, const struct tenant_use *use, uint64_t now_ns);

/* The form of one API's rate limit headers. */
struct tenant_headers {
    const char *forms
        [3]; /* text before the value, with "%s" for "requests" or "tokens": the limit, the remainder, the reset time */
    void (*write_reset)(double ns, struct buf *out); /* appends the time from now and the line end */
};
extern const struct tenant_headers tenant_headers_openai;

/* Appends the headers for the tenant's limits, or nothing if it has no limits. */
void tenant_write_headers(const struct tenant *t, const struct tenant_headers *h, struct buf *out);

/* --- what is known of them ---------------------------------------------------------------------------------------- */

/* Totals of a tenant from the start of the process. */
struct tenant_counts {
    uint64_t requests, refused; /* begun; rejected by a limit */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
};

/* The usage of a tenant. */
struct tenant_report {
    struct tenant_rules rules; /* a copy; without a section the name is the tenant's display name */
    bool has_section;
    double requests_left, tokens_left; /* if limited */
    int64_t n_active;                  /* requests in progress */
    uint64_t n_running, n_waiting;     /* sequences in the engine */
    struct tenant_counts counts;
};

/* Writes up to `max` known tenants to out, most recent request first, and returns their number. The first is always
 * "other", the sum of evicted tenants. e OPTIONAL. */
size_t tenant_snapshot(const struct engine *e, struct tenant_report *out, size_t max);

#endif
