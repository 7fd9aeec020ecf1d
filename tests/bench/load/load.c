/* Plays requests to an HTTP server, thousands at once from one thread, and tells when what came: what tests/bench/load/load.py makes
 * its tables from. It costs little, so that the two CPUs are the server's.
 *
 *   load URL [SECONDS] <requests >results
 *
 * A line of the input is a request, a JSON object:
 *   client   whose it is, 0 .. 16383: requests of a client come one after another, in the order of the input, on connections of its own
 *   at_ms    when it may start at the earliest, from the start of all (0); wait_ms: from the end of the client's one before (0)
 *   method path headers body    as sent; headers an object of strings, body a string; POST, and GET without a body
 *   leave_ms leave_events       OPTIONAL: the client leaves so long after the start, or with that event
 *   keeps                       OPTIONAL: not 0 = on a connection that another such request has left open, as pools have them
 * With SECONDS none starts later than that; those that run are waited for.
 *
 * A line of the output is what came of one, as it ends:
 *   i client status (0: no answer) start_ms first_ms (first byte of the body) end_ms bytes
 *   events_ms   when each `data:` of an SSE stream came, [DONE] not counted; is_done: [DONE] came; has_left: the client did
 *   retry_after in seconds, or -1; error: of the connection, as libcurl names it; tail: the last event or the first 2 KiB of the body */
#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CLIENTS = 16384, MAX_TAIL = 2048, MAX_READY = 256 };
#define NEVER    1e18
#define TOO_LATE (-1.0)

struct request {
    long i;
    int client;
    double at, wait, leave_ms;
    long leave_events, keeps;
    char *method, *path, *body;
    struct curl_slist *headers;
    struct request *next; /* of the client */
};

struct result {
    double start, first;
    double *events;
    size_t n_events, cap, n_bytes, n_line, n_tail;
    char line[MAX_TAIL], tail[MAX_TAIL];
    bool is_stream, is_done, has_left;
};

struct client {
    struct request *first, *last;
    struct result result;
    CURL *easy;
    bool is_running;
    char error[CURL_ERROR_SIZE];
};

static struct client *clients;
/* When a client's request may start, or the client leaves; or NEVER, TOO_LATE. Apart, as all are gone through, for each request. */
static double due[MAX_CLIENTS];
static int n_clients, n_running;
static long n_waiting; /* clients with requests that do not run */
static const char *url;
static double began, last_start = NEVER, timer = -1; /* timer: when libcurl wants to be called, or -1 */
static int epoll_fd;
static CURLM *multi;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6 - began;
}

static void *must(void *p)
{
    if (!p) {
        die("memory", strerror(ENOMEM));
    }
    return p;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static char *text_of(const json_t *o, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(o, key));
    s = s ? s : otherwise;
    return s ? must(strdup(s)) : NULL;
}

static double number_of(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* The client waits until then for its next request. */
static void wait_for(const struct client *c, double ready)
{
    due[c - clients] = ready > last_start ? TOO_LATE : ready;
    n_waiting++;
}

static void add(long i, json_t *o)
{
    struct request *r = must(calloc(1, sizeof *r));
    const char *name;
    json_t *value;
    r->i = i;
    r->client = (int)number_of(o, "client", 0);
    if (r->client < 0 || r->client >= MAX_CLIENTS) {
        die("client", "expected 0 to 16383");
    }
    r->at = number_of(o, "at_ms", 0);
    r->wait = number_of(o, "wait_ms", 0);
    r->leave_ms = number_of(o, "leave_ms", 0);
    r->leave_events = (long)number_of(o, "leave_events", 0);
    r->keeps = number_of(o, "keeps", 0) != 0;
    r->body = text_of(o, "body", NULL);
    r->method = text_of(o, "method", r->body ? "POST" : "GET");
    r->path = text_of(o, "path", "/");
    json_object_foreach(json_object_get(o, "headers"), name, value)
    {
        char line[1024];
        snprintf(line, sizeof line, "%s: %s", name, json_string_value(value) ? json_string_value(value) : "");
        r->headers = must(curl_slist_append(r->headers, line));
    }
    r->headers =
        must(curl_slist_append(r->headers, "Expect:")); /* libcurl would wait for 100 Continue with large bodies */
    n_clients = r->client >= n_clients ? r->client + 1 : n_clients;
    struct client *c = &clients[r->client];
    if (c->first) {
        c->last->next = r;
    } else {
        c->first = r;
        wait_for(c, r->at);
    }
    c->last = r;
}

static void read_requests(void)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    for (long i = 0; (n = getline(&line, &size, stdin)) > 0; i++) {
        json_error_t e;
        json_t *o = json_loadb(line, (size_t)n, 0, &e);
        if (!o) {
            die("a line of the input", e.text);
        }
        add(i, o);
        json_decref(o);
    }
    free(line);
}

/* --- what comes ------------------------------------------------------------------------------------------------- */

static void end_line(struct result *r, double now)
{
    if (r->n_line >= 5 && memcmp(r->line, "data:", 5) == 0) {
        r->is_stream = true;
        if (r->n_line >= 12 && memcmp(r->line, "data: [DONE]", 12) == 0) {
            r->is_done = true;
        } else {
            if (r->n_events == r->cap) {
                r->cap = r->cap ? 2 * r->cap : 64;
                r->events = must(realloc(r->events, r->cap * sizeof *r->events));
            }
            r->events[r->n_events++] = now;
            memcpy(r->tail, r->line, r->n_tail = r->n_line);
        }
    }
    r->n_line = 0;
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
    (void)one;
    struct client *c = arg;
    struct result *r = &c->result;
    double now = now_ms();
    if (!r->n_bytes) {
        r->first = now;
    }
    r->n_bytes += n;
    for (size_t i = 0; i < n; i++) {
        if (!r->is_stream && r->n_tail < MAX_TAIL) {
            r->tail[r->n_tail++] = data[i];
        }
        if (data[i] == '\n') {
            end_line(r, now);
            if (c->first->leave_events && (long)r->n_events >= c->first->leave_events) {
                r->has_left = true;
                return 0; /* less than n ends the transfer */
            }
        } else if (r->n_line < MAX_TAIL) {
            r->line[r->n_line++] = data[i];
        }
    }
    return n;
}

static void tell(const struct client *c, CURLcode code)
{
    const struct result *r = &c->result;
    long status = 0;
    curl_off_t retry = -1;
    struct curl_header *h;
    json_t *events = json_array();
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (curl_easy_header(c->easy, "Retry-After", 0, CURLH_HEADER, -1, &h) == CURLHE_OK) {
        retry = (curl_off_t)strtoll(h->value, NULL, 10);
    }
    for (size_t i = 0; i < r->n_events; i++) {
        json_array_append_new(events, json_real(r->events[i]));
    }
    json_t *tail = json_stringn(r->tail, r->n_tail); /* NULL where it ends within a character */
    const char *error = code == CURLE_OK || r->has_left ? "" : c->error[0] ? c->error : curl_easy_strerror(code);
    json_t *o =
        json_pack("{sI si sI sf sf sf sI so sb sb sI ss so*}", "i", (json_int_t)c->first->i, "client", c->first->client,
                  "status", (json_int_t)status, "start_ms", r->start, "first_ms", r->first, "end_ms", now_ms(), "bytes",
                  (json_int_t)r->n_bytes, "events_ms", events, "is_done", r->is_done, "has_left", r->has_left,
                  "retry_after", (json_int_t)retry, "error", error, "tail", tail);
    json_dumpf(must(o), stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(o);
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void start(struct client *c)
{
    struct request *r = c->first;
    char at[4096];
    snprintf(at, sizeof at, "%s%s", url, r->path);
    if (!c->easy) {
        c->easy = must(curl_easy_init());
    } else {
        curl_easy_reset(c->easy);
    }
    c->error[0] = 0;
    memset(&c->result, 0, sizeof c->result);
    curl_easy_setopt(c->easy, CURLOPT_URL, at);
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, r->headers);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_FRESH_CONNECT,
                     !r->keeps); /* one that nginx closes in between would look like an error of ours */
    curl_easy_setopt(c->easy, CURLOPT_FORBID_REUSE, !r->keeps);
    curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
    if (r->body) {
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(r->body));
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, r->body);
    }
    curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, r->method);
    c->result.start = now_ms();
    due[c - clients] = r->leave_ms > 0 ? c->result.start + r->leave_ms : NEVER;
    c->is_running = true;
    n_running++;
    n_waiting--;
    curl_multi_add_handle(multi, c->easy);
}

static void end(struct client *c, CURLcode code)
{
    struct request *r = c->first;
    tell(c, code);
    curl_multi_remove_handle(multi, c->easy);
    free(c->result.events);
    c->is_running = false;
    n_running--;
    c->first = r->next;
    due[c - clients] = NEVER;
    if (c->first) {
        double from = now_ms() + c->first->wait;
        wait_for(c, from > c->first->at ? from : c->first->at);
    }
    curl_slist_free_all(r->headers);
    free(r->method);
    free(r->path);
    free(r->body);
    free(r);
}

/* Starts what is due and lets those leave whose time has come; returns when there is more of it. */
static double look_round(void)
{
    double now = now_ms(), next = NEVER;
    for (int i = 0; i < n_clients; i++) {
        struct client *c = &clients[i];
        if (due[i] <= now && c->is_running) {
            c->result.has_left = true;
            end(c, CURLE_OK);
        } else if (due[i] <= now && (due[i] == TOO_LATE || now > last_start)) {
            c->first = NULL; /* of no more use; the end of the process frees it */
            due[i] = NEVER;
            n_waiting--;
        } else if (due[i] <= now) {
            start(c);
        }
        next = due[i] < next ? due[i] : next;
    }
    return next;
}

static int on_socket(CURL *easy, curl_socket_t s, int what, void *arg, void *known)
{
    (void)easy;
    (void)arg;
    struct epoll_event e = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0),
                            .data.fd = s};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s, NULL);
    } else if (epoll_ctl(epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s, &e)) {
        die("epoll_ctl", strerror(errno));
    } else {
        curl_multi_assign(multi, s, &clients); /* anything that is not NULL */
    }
    return 0;
}

static int on_timer(CURLM *m, long ms, void *arg)
{
    (void)m;
    (void)arg;
    timer = ms < 0 ? -1 : now_ms() + (double)ms;
    return 0;
}

/* Ends what libcurl has done with; returns whether there was any. */
static bool take_ended(void)
{
    int left;
    bool is_any = false;
    for (struct CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
        struct client *c;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
        end(c, code);
        is_any = true;
    }
    return is_any;
}

static void run(void)
{
    struct epoll_event ready[MAX_READY];
    double next = 0; /* when to look round */
    while (n_running || n_waiting) {
        int running;
        if (now_ms() >= next) {
            next = look_round();
        }
        if (timer >= 0 && now_ms() >= timer) {
            timer = -1;
            curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        double wait = (timer >= 0 && timer < next ? timer : next) - now_ms();
        int n = epoll_wait(epoll_fd, ready, MAX_READY, wait < 0 ? 0 : wait > 1000 ? 1000 : (int)wait + 1);
        for (int i = 0; i < n; i++) {
            int what = (ready[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                       (ready[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (ready[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(multi, ready[i].data.fd, what, &running);
        }
        if (take_ended()) {
            next = 0;
        }
    }
}

int main(int argc, char **argv)
{
    struct rlimit files = {0};
    if (argc < 2 || argc > 3) {
        die("usage", "load URL [SECONDS] <requests >results");
    }
    url = argv[1];
    if (argc == 3) {
        last_start = strtod(argv[2], NULL) * 1e3;
    }
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    clients = must(calloc(MAX_CLIENTS, sizeof *clients));
    for (int i = 0; i < MAX_CLIENTS; i++) {
        due[i] = NEVER;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    multi = must(curl_multi_init());
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 256L);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    read_requests();
    began = now_ms();
    run();
    for (int i = 0; i < n_clients; i++) {
        curl_easy_cleanup(clients[i].easy);
    }
    curl_multi_cleanup(multi);
    curl_global_cleanup();
    free(clients);
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
