/* The route table and what every request goes through: path, method, key, content type, body. */
#include "fcgi/route.h"

#include "engine/base/clock.h"
#include "fcgi/client_address.h"
#include "fcgi/journal.h"
#include "fcgi/log.h"
#include "fcgi/metrics.h"
#include "fcgi/origin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_PATH_BYTES = 1024, ARENA_CHUNK_BYTES = 4096, MAX_TIMEOUT_MS = 86400000 };

/* clang-format off */
#define IS_OPEN       .needs_key = false
#define NEEDS_KEY     .needs_key = true
#define ASKS          NEEDS_KEY, .needs_model = true
#define PREPARES      ASKS, .prepares = true
#define COUNTS        PREPARES, .is_counted = true
#define COMPUTES      COUNTS, .computes = true
#define IS_PREFIX     .is_prefix = true
#define TAKES_UNTYPED .takes_untyped = true
/* clang-format on */

static const struct route routes[] = {
    {"POST", "/v1/chat/completions", api_chat, "chat-completions", COMPUTES},
    {"POST", "/chat/completions", api_chat, "chat-completions", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/completions", api_completions, "completions", COMPUTES},
    {"POST", "/completions", api_llama_completion, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/responses", api_responses, "responses", COMPUTES},
    {"POST", "/responses", api_responses, "responses", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/responses/input_tokens", api_responses_count, "responses", COUNTS},
    {"GET", "/v1/responses/", api_response_get, "responses", PREPARES, IS_PREFIX},
    {"DELETE", "/v1/responses/", api_response_delete, "responses", ASKS, IS_PREFIX},
    {"POST", "/v1/responses/", api_response_post, "responses", ASKS, IS_PREFIX},
    {"POST", "/v1/embeddings", api_embeddings, "embeddings", COMPUTES},
    {"POST", "/embeddings", api_embeddings, "embeddings", COMPUTES, TAKES_UNTYPED},
    {"POST", "/embedding", api_embeddings, "embeddings", COMPUTES, TAKES_UNTYPED},
    {"POST", "/v1/rerank", api_rerank, "rerank", COMPUTES},
    {"POST", "/v2/rerank", api_rerank, "rerank", COMPUTES},
    {"POST", "/rerank", api_rerank, "rerank", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/chat", api_ollama_chat, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/generate", api_ollama_generate, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/embed", api_ollama_embed, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/embeddings", api_ollama_embeddings, "ollama", COMPUTES, TAKES_UNTYPED},
    {"POST", "/api/show", api_ollama_show, "ollama", COUNTS, TAKES_UNTYPED},
    {"GET", "/api/tags", api_ollama_tags, "ollama", ASKS},
    {"GET", "/api/ps", api_ollama_ps, "ollama", ASKS},
    {"GET", "/api/version", api_ollama_version, "ollama", NEEDS_KEY},
    {"POST", "/v1/score", api_score, "score", COMPUTES},
    {"POST", "/score", api_score, "score", COMPUTES},
    {"POST", "/v1/messages", api_anthropic_messages, "messages", COMPUTES},
    {"POST", "/v1/messages/count_tokens", api_anthropic_count, "count-tokens", COUNTS},
    {"GET", "/v1/models", api_models, "models", ASKS},
    {"GET", "/models", api_models, "models", ASKS},
    {"GET", "/v1/models/", api_model, "models", ASKS, IS_PREFIX},
    {"POST", "/tokenize", api_tokenize, "tokenize", COUNTS, TAKES_UNTYPED},
    {"POST", "/detokenize", api_detokenize, "detokenize", COUNTS, TAKES_UNTYPED},
    {"POST", "/completion", api_llama_completion, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/infill", api_llama_infill, "llama-server", COMPUTES, TAKES_UNTYPED},
    {"POST", "/chat/completions/input_tokens", api_llama_count, "llama-server", COUNTS, TAKES_UNTYPED},
    {"POST", "/v1/chat/completions/input_tokens", api_llama_count, "llama-server", COUNTS},
    {"POST", "/slots/", api_llama_slot_action, "llama-server", COMPUTES, IS_PREFIX, TAKES_UNTYPED},
    {"POST", "/apply-template", api_llama_template, "llama-server", COUNTS, TAKES_UNTYPED},
    {"GET", "/props", api_llama_props, "llama-server", ASKS},
    {"GET", "/slots", api_llama_slots, "llama-server", ASKS},
    {"GET", "/lora-adapters", api_llama_adapters, "llama-server", ASKS},
    {"GET", "/openapi.json", api_openapi, "openapi", IS_OPEN},
    {"GET", "/health", api_health, "health", IS_OPEN},
    {"GET", "/v1/health", api_health, "health", IS_OPEN},
    {"GET", "/metrics", api_metrics, "metrics", IS_OPEN},
    {"GET", "/status", api_status, "status", IS_OPEN},
};

const struct route *route_at(int i) { return i >= 0 && i < (int)ARRAY_LEN(routes) ? &routes[i] : NULL; }

static bool path_matches(const struct route *r, const char *path)
{
    return r->is_prefix ? strncmp(path, r->path, strlen(r->path)) == 0 && path[strlen(r->path)] != '\0'
                        : strcmp(path, r->path) == 0;
}

const struct route *route_find(const char *method, const char *path, const char **allow)
{
    enum { TAKES_GET = 1, TAKES_POST = 2, TAKES_DELETE = 4 };
    static const char *const lists[] = {"",       "GET, HEAD",         "POST",         "GET, HEAD, POST",
                                        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE"};
    unsigned takes = 0;
    *allow = "";
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!path_matches(&routes[i], path)) {
            continue;
        }
        /* HEAD is GET without its body, which nginx drops. */
        bool is_head = strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0;
        if (is_head || strcmp(method, routes[i].method) == 0) {
            return &routes[i];
        }
        takes |= strcmp(routes[i].method, "GET") == 0    ? TAKES_GET
                 : strcmp(routes[i].method, "POST") == 0 ? TAKES_POST
                                                         : TAKES_DELETE;
    }
    *allow = lists[takes];
    return NULL;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool route_decode_path(const char *uri, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = uri; *p != '\0' && *p != '?'; p++) {
        int byte = (unsigned char)*p;
        if (*p == '%') {
            if (hex(p[1]) < 0 || hex(p[2]) < 0) {
                return false;
            }
            byte = hex(p[1]) * 16 + hex(p[2]);
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

/* The media type without its parameters: the n bytes at the start. */
static size_t media_type_length(const char *content_type) { return strcspn(content_type, "; \t"); }

static bool is_type(const char *content_type, const char *type)
{
    size_t n = media_type_length(content_type);
    return n == strlen(type) && strncasecmp(content_type, type, n) == 0;
}

/* Is the body said to be plain JSON? Examples of some APIs post with `curl -d` alone, which calls the body a form. Programs may
 * do that there, and send no type; web pages may not, since a browser sends a form of any page's without asking first. */
static enum err check_type(const struct fastcgi_request *r, const struct route *route, bool is_browser, struct err_info *info)
{
    const char *type = fastcgi_param(r, "CONTENT_TYPE"), *encoding = fastcgi_param(r, "HTTP_CONTENT_ENCODING");
    bool is_plain = encoding == NULL || encoding[0] == '\0' || strcasecmp(encoding, "identity") == 0;
    type = type != NULL ? type : "";
    if (!is_plain) {
        return err_set(info, ERR_MEDIA_TYPE, "Content-Encoding", "Content-Encoding: expected none, found '%.64s'", encoding);
    }
    bool is_untyped = type[0] == '\0' || is_type(type, "application/x-www-form-urlencoded");
    if (is_type(type, "application/json") || (is_untyped && route->takes_untyped && !is_browser)) {
        return ERR_OK;
    }
    return type[0] == '\0' ? err_set(info, ERR_MEDIA_TYPE, "Content-Type", "Content-Type: expected application/json, found no such header")
                           : err_set(info, ERR_MEDIA_TYPE, "Content-Type", "Content-Type: expected application/json, found '%.64s'", type);
}

/* Who asks, from which page if a browser does, and is that a body we read? Requests that only read are judged by browsers
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

/* When the request is given up: what the server allows, or the client asked for, if that is sooner. */
static enum err read_deadline(struct call *c, struct err_info *info)
{
    static const char name[] = "X-Request-Timeout-Ms";
    const char *text = fastcgi_param(c->reply.request, "HTTP_X_REQUEST_TIMEOUT_MS");
    int64_t most = c->server->conf->timeout_s * 1000, ms = 0;
    bool is_given = text != NULL && text[0] != '\0';
    if (is_given && (!conf_parse_integer(text, &ms) || ms < 1 || ms > MAX_TIMEOUT_MS)) {
        return err_set(info, ERR_INVALID_VALUE, name, "%s: expected an integer of 1 to %d, found '%.32s'", name,
                       MAX_TIMEOUT_MS, text);
    }
    ms = is_given && (most == 0 || ms < most) ? ms : most;
    c->deadline_ns = ms != 0 ? c->reply.arrived_ns + (uint64_t)ms * 1000000u : 0;
    return ERR_OK;
}

struct sched_share route_share(const struct call *c)
{
    struct sched_share share = tenant_share(c->tenant, &c->caller);
    if (!c->caller.is_set) {
        share.key = client_address_key(fastcgi_param(c->reply.request, "REMOTE_ADDR"));
        share.is_guest = share.key != 0;
    }
    return share;
}

enum err route_reserve(struct call *c, int64_t n_tokens, struct err_info *info)
{
    return tenant_reserve(c->tenant, &c->counted, n_tokens, clock_now_ns(), &c->reply.retry_after_s, info);
}

void route_set_retry_after(struct call *c)
{
    struct sched_stats s;
    engine_get_stats(c->engine, &s);
    c->reply.retry_after_s = (int)MIN_OF(s.estimated_wait_ms / 1000 + 1, (uint64_t)60);
}

/* Is there a place in the queue? Where there is none the prompt need not be made: its refusal would cost more than others' answers. */
static enum err check_queue(struct call *c, const struct route *route, struct err_info *info)
{
    if (!route->computes) {
        return ERR_OK;
    }
    struct sched_share share = route_share(c);
    if (!engine_is_full(c->engine, &share)) {
        return ERR_OK;
    }
    route_set_retry_after(c);
    return err_set(info, ERR_OVERLOADED, NULL, "%s", err_text(ERR_OVERLOADED));
}

/* Waits for a place among those that are prepared. Meanwhile the queue may have become full. */
static enum err enter_gate(struct call *c, const struct route *route, struct err_info *info)
{
    struct sched_share share = route_share(c);
    TRY(gate_enter(&c->reply.gate, share.key, share.weight, c->reply.request, c->deadline_ns, info));
    return check_queue(c, route, info);
}

/* Everything before the handler; ERR_OK when it may run. */
static enum err admit(struct call *c, const struct route *route, struct err_info *info)
{
    struct fastcgi_request *r = c->reply.request;
    TRY(check_sender(c, route, info));
    TRY(read_deadline(c, info));
    if (route->is_counted) { /* before anything is read or computed */
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
        c->reply.retry_after_s = 1; /* of the next process */
        return ERR_LOST;
    }
    if (c->is_late && route->needs_model) {
        return err_set(info, ERR_DRAINING, NULL, "the server is shutting down");
    }
    if (c->engine == NULL && route->needs_model && atomic_load(&c->server->has_failed)) {
        return err_set(info, ERR_NO_MODEL, NULL, "the model cannot be loaded, of which the server's log says why; it is tried again");
    }
    if (c->engine == NULL && route->needs_model) {
        return err_set(info, ERR_LOADING, NULL, "the model is loading (%d %%)", atomic_load(&c->server->progress) / 10);
    }
    TRY(c->engine != NULL ? check_queue(c, route, info) : ERR_OK);
    return route->prepares ? enter_gate(c, route, info) : ERR_OK;
}

/* Clients of these paths read errors in the form of that API, whatever is wrong. */
static bool is_anthropic(const char *path)
{
    static const char messages[] = "/v1/messages";
    size_t n = sizeof messages - 1;
    return strncmp(path, messages, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* llama-server's own paths have no version in front. */
static bool is_llama(const char *path)
{
    return strncmp(path, "/v1/", 4) != 0 && strncmp(path, "/v2/", 4) != 0 && strncmp(path, "/api/", 5) != 0;
}

static void dispatch(struct call *c, const char *method, const char *uri, int *route_index)
{
    char path[MAX_PATH_BYTES];
    struct err_info info = {0};
    const struct route *route = NULL;
    const char *allow = "";
    if (route_decode_path(uri, path, sizeof path)) {
        c->reply.is_anthropic = is_anthropic(path);
        c->reply.is_ollama = strncmp(path, "/api/", 5) == 0;
        c->reply.is_llama = is_llama(path);
        route = route_find(method, path, &allow);
    }
    if (route == NULL && allow[0] != '\0') {
        c->reply.allow = allow;
        reply_error(&c->reply, err_set(&info, ERR_METHOD, NULL, "expected %s for this URL, found %.16s", allow, method),
                    &info);
        return;
    }
    if (route == NULL) {
        reply_error(&c->reply, err_set(&info, ERR_UNKNOWN_URL, NULL, "no such URL: %.128s", uri), &info);
        return;
    }
    *route_index = (int)(route - routes);
    c->path = path;
    enum err err = admit(c, route, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
        return;
    }
    c->live.task.has_left = route->needs_model ? fastcgi_has_left(c->reply.request) : NULL;
    c->live.task.deadline_ns = c->deadline_ns;
    route->handle(c);
    gate_leave(&c->reply.gate);
}

enum err route_read_json(struct call *c, struct err_info *info)
{
    enum err err = json_in_parse(c->body.data, c->body.len, &c->json, info);
    buf_fini(&c->body);
    return err;
}

void route_drop_json(struct call *c)
{
    json_decref(c->json);
    c->json = NULL;
}

/* Rows of one path are one endpoint in the metrics, where no sample may stand twice. */
static int first_of_path(int i)
{
    int first = i;
    for (int k = i - 1; k >= 0; k--) {
        first = strcmp(routes[k].path, routes[i].path) == 0 ? k : first;
    }
    return first;
}

const char *route_tenant(const struct call *c) { return c->live.owner[0] != '\0' ? c->live.owner : "-"; }

/* Tells of a request that took longer than --slow-log says. */
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
             "slow_request id=%s route=%s tenant=%s status=%d queue_ms=%" PRIu64 " prefill_ms=%" PRIu64 " decode_ms=%" PRIu64
             " reader_ms=%" PRIu64 " prompt_tokens=%" PRId64 " cached_tokens=%" PRId64 " completion_tokens=%" PRId64 " total_ms=%" PRIu64,
             c->reply.id, path, route_tenant(c), c->reply.status, s->queue_ns / 1000000u,
             s->prefill_ns / 1000000u, s->decode_ns / 1000000u, s->reader_ns / 1000000u, s->prompt_tokens, s->cached_tokens,
             s->completion_tokens, took_ns / 1000000u);
    metrics_count_slow();
    if (conf->slow_log_file == NULL || !log_line_to(conf->slow_log_file, "warn", "%s", line)) {
        log_line("warn", "%s", line);
    }
}

void route_request(struct fastcgi_request *r, void *arg)
{
    struct server *server = arg;
    struct call c = {.server = server, .engine = atomic_load_explicit(&server->engine, memory_order_acquire)};
    int route_index = -1;
    /* Counted before it is asked, so that who waits for n_working to be 0 misses none that was let in. */
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
    dispatch(&c, method != NULL ? method : "", uri != NULL ? uri : "", &route_index);
    metrics_count_request(first_of_path(route_index), c.reply.status, c.reply.err);
    if (route_index < 0 || routes[route_index].needs_key) {
        log_line("info", "request id=%s route=%s tenant=%s status=%d code=%s total_ms=%" PRIu64, c.reply.id,
                 route_index >= 0 ? routes[route_index].path : "-", route_tenant(&c), c.reply.status, err_code(c.reply.err),
                 (clock_now_ns() - c.reply.arrived_ns) / 1000000u);
    }
    note_slow(&c, route_index >= 0 ? routes[route_index].path : "-");
    live_end(&c.live);
    if (c.tenant != NULL && routes[route_index].is_counted) {
        tenant_end(c.tenant, &c.counted, &c.usage.tokens, clock_now_ns());
        journal_write(&c, routes[route_index].path);
    }
    tenant_leave(&c.tenant);
    buf_fini(&c.body);
    arena_fini(&c.arena);
    route_drop_json(&c);
    if (!c.is_late) {
        atomic_fetch_sub(&server->n_working, 1);
    }
}
