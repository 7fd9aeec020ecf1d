#include "fcgi/api/dispatch.h"

#include "engine/base/clock.h"
#include "engine/base/hex.h"
#include "fcgi/ground/log.h"
#include "fcgi/ground/number.h"
#include "fcgi/tenant/journal.h"
#include "fcgi/watch/metrics.h"
#include "fcgi/wire/origin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_PATH_BYTES = 1024, ARENA_CHUNK_BYTES = 4096, MAX_TIMEOUT_MS = 86400000 };

static bool path_matches(const struct route *r, const char *path)
{
    return r->is_prefix ? strncmp(path, r->path, strlen(r->path)) == 0 && path[strlen(r->path)] != '\0'
                        : strcmp(path, r->path) == 0;
}

const struct route *dispatch_find(const struct server *s, const char *method, const char *path,
                                  const struct fastcgi_request *r, const char **allow)
{
    static const char *const methods[] = {"GET", "POST", "DELETE"}; /* bits of an index of: */
    static const char *const lists[] = {"",       "GET, HEAD",         "POST",         "GET, HEAD, POST",
                                        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE"};
    unsigned takes = 0;
    *allow = "";
    for (int i = 0; i < s->n_routes; i++) {
        const struct route *route = &s->routes[i];
        if (!path_matches(route, path) ||
            (route->header != NULL && (r == NULL || fastcgi_param(r, route->header) == NULL))) {
            continue;
        }
        /* HEAD is GET without its body, which nginx drops. */
        bool is_head = strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0;
        if (is_head || strcmp(method, route->method) == 0) {
            return route;
        }
        for (unsigned k = 0; k < ARRAY_LEN(methods); k++) {
            takes |= strcmp(route->method, methods[k]) == 0 ? 1u << k : 0;
        }
    }
    *allow = lists[takes];
    return NULL;
}

bool dispatch_decode_path(const char *uri, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = uri; *p != '\0' && *p != '?'; p++) {
        int byte = (unsigned char)*p;
        if (*p == '%') {
            if (hex_value(p[1]) < 0 || hex_value(p[2]) < 0) {
                return false;
            }
            byte = hex_value(p[1]) * 16 + hex_value(p[2]);
            p += 2;
        }
        if (byte == 0 || n + 1 >= cap) {
            return false;
        }
        out[n++] = (char)byte;
    }
    out[n] = '\0';
    return n > 0;
}

static bool is_type(const char *content_type, const char *type)
{
    size_t n = strcspn(content_type, "; \t"); /* without its parameters */
    return n == strlen(type) && strncasecmp(content_type, type, n) == 0;
}

/* Checks that the body is declared as plain JSON. Examples of some APIs use a bare `curl -d`, which declares a form.
 * There, programs can send that type or none. Web pages cannot, because a browser sends any page's form without a
 * preflight. */
static enum err check_type(const struct fastcgi_request *r, const struct route *route, bool is_browser,
                           struct err_info *info)
{
    const char *type = fastcgi_param(r, "CONTENT_TYPE"), *encoding = fastcgi_param(r, "HTTP_CONTENT_ENCODING");
    bool is_plain = encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0;
    type = type != NULL ? type : "";
    if (!is_plain) {
        return err_set(info, ERR_MEDIA_TYPE, "Content-Encoding", "Content-Encoding: expected none, found '%.64s'",
                       encoding);
    }
    bool is_untyped = type[0] == '\0' || is_type(type, "application/x-www-form-urlencoded");
    if (is_type(type, "application/json") || (is_untyped && route->takes_untyped && !is_browser)) {
        return ERR_OK;
    }
    return type[0] == '\0' ? err_set(info, ERR_MEDIA_TYPE, "Content-Type",
                                     "Content-Type: expected application/json, found no such header")
                           : err_set(info, ERR_MEDIA_TYPE, "Content-Type",
                                     "Content-Type: expected application/json, found '%.64s'", type);
}

/* Checks the sender, the page that a browser sends for, and the body's type. Browsers judge requests that only read
 * themselves, by the headers that nginx adds. */
static enum err check_sender(struct call *c, const struct route *route, struct err_info *info)
{
    const struct fastcgi_request *r = c->reply.request;
    if (route->needs_key && !tenant_enter(fastcgi_param(r, "INFCGI_TENANT"), fastcgi_param(r, "HTTP_AUTHORIZATION"),
                                          fastcgi_param(r, "HTTP_X_API_KEY"), &c->tenant, &c->caller)) {
        return err_set(info, ERR_API_KEY, NULL, "expected a valid API key in the header `Authorization: Bearer KEY`");
    }
    c->reply.tenant = c->tenant;
    live_name(&c->live, route->path, c->tenant != NULL ? tenant_name(c->tenant) : "");
    struct origin_facts page = {.origin = fastcgi_param(r, "HTTP_ORIGIN"),
                                .fetch_site = fastcgi_param(r, "HTTP_SEC_FETCH_SITE"),
                                .host = fastcgi_param(r, "HTTP_HOST"),
                                .allowed = fastcgi_param(r, "INFCGI_ORIGIN"),
                                .server_addr = fastcgi_param(r, "SERVER_ADDR"),
                                .is_keyless = !c->caller.is_set};
    if (strcmp(route->method, "GET") == 0) {
        return ERR_OK;
    }
    if (!origin_is_allowed(&page)) {
        return err_set(info, ERR_ORIGIN, "Origin",
                       "Origin: expected this server's own or one of nginx's $infcgi_cors, found '%.128s'",
                       page.origin != NULL ? page.origin : "");
    }
    return strcmp(route->method, "POST") == 0 ? check_type(r, route, origin_is_browser(&page), info) : ERR_OK;
}

/* Sets the request's deadline: the earlier of the server's and the client's. */
static enum err read_deadline(struct call *c, struct err_info *info)
{
    static const char name[] = "X-Request-Timeout-Ms";
    const char *text = fastcgi_param(c->reply.request, "HTTP_X_REQUEST_TIMEOUT_MS");
    int64_t most = c->server->conf->timeout_s * 1000, ms = 0;
    bool is_given = text != NULL && text[0] != '\0';
    if (is_given && (!number_parse(text, &ms) || ms < 1 || ms > MAX_TIMEOUT_MS)) {
        return err_set(info, ERR_INVALID_VALUE, name, "%s: expected an integer of 1 to %d, found '%.32s'", name,
                       MAX_TIMEOUT_MS, text);
    }
    ms = is_given && (most == 0 || ms < most) ? ms : most;
    c->deadline_ns = ms != 0 ? c->reply.arrived_ns + (uint64_t)ms * 1000000u : 0;
    return ERR_OK;
}

/* Checks that the queue has room. A prompt that would be rejected need not be built: rejecting it later costs more than
 * others' answers. */
static enum err check_queue(struct call *c, const struct route *route, struct err_info *info)
{
    if (!route->computes) {
        return ERR_OK;
    }
    struct sched_share share = call_share(c);
    if (!engine_is_full(c->engine, &share)) {
        return ERR_OK;
    }
    call_set_retry_after(c);
    return err_set(info, ERR_OVERLOADED, NULL, "%s", err_text(ERR_OVERLOADED));
}

/* Waits for one of the preparation slots; the queue can fill during the wait. */
static enum err enter_gate(struct call *c, const struct route *route, struct err_info *info)
{
    struct sched_share share = call_share(c);
    TRY(gate_enter(&c->reply.gate, share.key, share.weight, c->reply.request, c->deadline_ns, info));
    return check_queue(c, route, info);
}

/* Runs all checks before the handler. ERR_OK: the handler can run. */
static enum err admit(struct call *c, const struct route *route, struct err_info *info)
{
    struct fastcgi_request *r = c->reply.request;
    TRY(check_sender(c, route, info));
    TRY(read_deadline(c, info));
    if (route->is_counted) { /* before any reading or computing */
        TRY(tenant_begin(c->tenant, &c->counted, c->reply.arrived_ns, &c->reply.retry_after_s, info));
    }
    size_t limit = (size_t)c->server->conf->body_limit_kib * 1024;
    enum err err = fastcgi_read_body(r, limit, &c->body);
    if (err == ERR_TOO_LARGE) {
        return err_set(info, err, NULL, "expected a body of at most %zu bytes", limit);
    }
    if (err == ERR_INVALID_VALUE) {
        return err_set(info, err, NULL, "expected a body as long as Content-Length says, found %zu bytes", c->body.len);
    }
    if (err != ERR_OK) {
        return err;
    }
    if (c->engine != NULL && route->needs_model && engine_is_lost(c->engine, info)) {
        c->reply.retry_after_s = 1; /* from the next process */
        return ERR_LOST;
    }
    if (c->is_late && route->needs_model) {
        return err_set(info, ERR_DRAINING, NULL, "the server is shutting down");
    }
    if (c->engine == NULL && route->needs_model && atomic_load(&c->server->has_failed)) {
        return err_set(info, ERR_NO_MODEL, NULL,
                       "the model cannot be loaded; the server retries, its log has the reason");
    }
    if (c->engine == NULL && route->needs_model) {
        return err_set(info, ERR_LOADING, NULL, "the model is loading (%d %%)", atomic_load(&c->server->progress) / 10);
    }
    TRY(c->engine != NULL ? check_queue(c, route, info) : ERR_OK);
    return route->prepares ? enter_gate(c, route, info) : ERR_OK;
}

/* Returns the API for an unknown URL: the first that has the path, else the last. */
static const struct dialect *dialect_of(const struct server *s, const char *path)
{
    const struct dialect *const *d = s->dialects;
    while (d[1] != NULL && !dialect_has(*d, path)) {
        d++;
    }
    return *d;
}

static void dispatch(struct call *c, const char *method, const char *uri)
{
    char path[MAX_PATH_BYTES];
    struct err_info info = {0};
    const char *allow = "";
    if (dispatch_decode_path(uri, path, sizeof path)) {
        c->route = dispatch_find(c->server, method, path, c->reply.request, &allow);
        c->reply.dialect = c->route != NULL ? c->route->dialect : dialect_of(c->server, path);
    }
    if (c->route == NULL && allow[0] != '\0') {
        c->reply.allow = allow;
        reply_error(&c->reply, err_set(&info, ERR_METHOD, NULL, "expected %s for this URL, found %.16s", allow, method),
                    &info);
        return;
    }
    if (c->route == NULL) {
        reply_error(&c->reply, err_set(&info, ERR_UNKNOWN_URL, NULL, "unknown URL: %.128s", uri), &info);
        return;
    }
    c->path = path;
    enum err err = admit(c, c->route, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
        return;
    }
    c->live.task.has_left = c->route->needs_model ? fastcgi_has_left(c->reply.request) : NULL;
    c->live.task.deadline_ns = c->deadline_ns;
    c->route->handle(c);
    gate_leave(&c->reply.gate);
}

/* Returns the route's index in the metrics, or -1. Rows with the same path are one endpoint, because metrics need
 * distinct label values. */
static int metrics_index(const struct server *s, const struct route *route)
{
    int i = 0;
    while (route != NULL && strcmp(s->routes[i].path, route->path) != 0) {
        i++;
    }
    return route != NULL ? i : -1;
}

/* Logs a request that took longer than --slow-log. */
static void note_slow(const struct call *c, const char *path)
{
    const struct conf *conf = c->server->conf;
    const struct reply_stages *s = &c->reply.stages;
    uint64_t took_ns = clock_now_ns() - c->reply.arrived_ns;
    if (conf->slow_log_s <= 0 || (double)took_ns / 1e9 < conf->slow_log_s) {
        return;
    }
    char line[LOG_LINE_BYTES];
    snprintf(line, sizeof line,
             "slow_request id=%s route=%s tenant=%s status=%d queue_ms=%" PRIu64 " prefill_ms=%" PRIu64
             " decode_ms=%" PRIu64 " reader_ms=%" PRIu64 " prompt_tokens=%" PRId64 " cached_tokens=%" PRId64
             " completion_tokens=%" PRId64 " total_ms=%" PRIu64,
             c->reply.id, path, call_tenant(c), c->reply.status, s->queue_ns / 1000000u, s->prefill_ns / 1000000u,
             s->decode_ns / 1000000u, s->reader_ns / 1000000u, s->prompt_tokens, s->cached_tokens, s->completion_tokens,
             took_ns / 1000000u);
    metrics_count_slow();
    if (conf->slow_log_file == NULL || !log_line_to(conf->slow_log_file, "warn", "%s", line)) {
        log_line("warn", "%s", line);
    }
}

/* Writes the journal line of a counted request. */
static void write_journal(const struct call *c, const char *path)
{
    struct journal_entry e = {.id = c->reply.id,
                              .tenant = tenant_name(c->tenant),
                              .path = path,
                              .model = c->server->model_id,
                              .status = c->reply.status,
                              .err = c->reply.err,
                              .finish = c->usage.finish,
                              .tokens = c->usage.tokens,
                              .queue_ns = c->usage.queue_ns,
                              .prefill_ns = c->usage.prefill_ns,
                              .decode_ns = c->usage.decode_ns,
                              .total_ns = clock_now_ns() - c->reply.arrived_ns};
    journal_write(&e);
}

void dispatch_request(struct fastcgi_request *r, void *arg)
{
    struct server *server = arg;
    struct call c = {.server = server, .engine = atomic_load_explicit(&server->engine, memory_order_acquire)};
    /* Count before the check: a thread that waits for n_working == 0 then misses no admitted request. */
    atomic_fetch_add(&server->n_working, 1);
    c.is_late = atomic_load(&server->is_refusing);
    if (c.is_late) {
        atomic_fetch_sub(&server->n_working, 1);
    }
    reply_init(&c.reply, r);
    live_begin(&c.live, r, c.reply.id, c.reply.arrived_ns);
    buf_init(&c.body, 0, MEM_REQUEST);
    arena_init(&c.arena, ARENA_CHUNK_BYTES, 0, MEM_REQUEST);
    const char *method = fastcgi_param(r, "REQUEST_METHOD"), *uri = fastcgi_param(r, "REQUEST_URI");
    uri = uri != NULL ? uri : fastcgi_param(r, "DOCUMENT_URI");
    dispatch(&c, method != NULL ? method : "", uri != NULL ? uri : "");
    metrics_count_request(metrics_index(server, c.route), c.reply.status, c.reply.err);
    const char *path = c.route != NULL ? c.route->path : "-";
    if (c.route == NULL || c.route->needs_key) {
        log_line("info", "request id=%s route=%s tenant=%s status=%d code=%s total_ms=%" PRIu64, c.reply.id, path,
                 call_tenant(&c), c.reply.status, err_code(c.reply.err),
                 (clock_now_ns() - c.reply.arrived_ns) / 1000000u);
    }
    note_slow(&c, path);
    live_end(&c.live);
    if (c.tenant != NULL && c.route->is_counted) {
        tenant_end(c.tenant, &c.counted, &c.usage.tokens, clock_now_ns());
        write_journal(&c, path);
    }
    tenant_leave(&c.tenant);
    buf_fini(&c.body);
    arena_fini(&c.arena);
    call_drop_json(&c);
    if (!c.is_late) {
        atomic_fetch_sub(&server->n_working, 1);
    }
}
