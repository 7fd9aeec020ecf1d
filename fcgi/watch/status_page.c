/* GET /status: the counterpart of php-fpm's status page, with its names for equal values, as text, JSON or HTML. */
#include "fcgi/ground/words.h"
#include "fcgi/watch/status.h"
#include "fcgi/watch/watch.h"

#include <string.h>
#include <time.h>

#define I(v) ((json_int_t)(v))

enum { WIDTH = 27 };

static bool has_word(const char *query, const char *word)
{
    return query != NULL && words_have(query, '&', word, strlen(word));
}

static json_t *make_page(struct call *c)
{
    struct status s;
    status_get(c->server, c->engine, &s);
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:i, s:i}", "pool",
                          c->server->model_id != NULL && c->engine != NULL ? c->server->model_id : "", "state", s.state,
                          "start time", I(c->server->started), "start since", I(s.up_s), "accepted conn",
                          I(s.conn.accepted), "open connections", s.conn.n_open, "max open connections",
                          s.conn.most_open, "connection limit", s.conn.max_open, "connection limit reached",
                          I(s.conn.full), "threads", s.conn.n_threads, "idle threads", s.conn.n_idle);
    json_t *more = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running sequences", I(s.sched.n_running),
        "running limit", I(s.max_running), "queued sequences", I(s.sched.n_waiting), "queue limit", I(s.max_waiting),
        "estimated wait ms", I(s.sched.estimated_wait_ms), "prompt tokens", I(s.sched.prompt_tokens), "cached tokens",
        I(s.sched.cached_tokens), "generated tokens", I(s.sched.generated_tokens), "kv pages used",
        I(s.sched.pages_held), "kv pages", I(s.sched.pages_total), "errors", I(s.errors), "slow requests", I(s.slow));
    (void)json_object_update(o, more);
    json_decref(more);
    return o;
}

/* Writes "25/Nov/2026:13:00:00 +0000" for start time, as php-fpm's text does; else the value, an object as JSON. */
static void put_value(const char *name, const json_t *v, struct buf *out)
{
    if (strcmp(name, "start time") == 0) {
        char text[40];
        struct tm tm;
        time_t at = (time_t)json_integer_value(v);
        gmtime_r(&at, &tm);
        strftime(text, sizeof text, "%d/%b/%Y:%H:%M:%S +0000", &tm);
        buf_puts(out, text);
    } else if (json_is_string(v)) {
        buf_puts(out, json_string_value(v));
    } else if (json_is_object(v)) {
        status_put_json(v, out);
    } else {
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    }
}

static void put_lines(json_t *o, struct buf *out)
{
    const char *name;
    json_t *v;
    json_object_foreach(o, name, v)
    {
        buf_printf(out, "%s:%*s", name, (int)MAX_OF(WIDTH - (int)strlen(name), 1), "");
        put_value(name, v, out);
        buf_putc(out, '\n');
    }
}

static void put_text(json_t *page, json_t *requests, struct buf *out)
{
    put_lines(page, out);
    for (size_t i = 0; i < json_array_size(requests); i++) {
        buf_puts(out, "\n************************\n");
        put_lines(json_array_get(requests, i), out);
    }
}

static void put_escaped(const struct buf *text, struct buf *out)
{
    static const char special[] = {'&', '<', '>', '"'};
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (size_t i = 0; i < text->len; i++) {
        const char *at = memchr(special, text->data[i], sizeof special);
        if (at != NULL) {
            buf_puts(out, entities[at - special]);
        } else {
            buf_putc(out, text->data[i]);
        }
    }
}

static void put_cell(const char *name, const json_t *v, struct buf *out)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    put_value(name, v, &text);
    buf_puts(out, "<td>");
    put_escaped(&text, out);
    buf_puts(out, "</td>");
    buf_fini(&text);
}

static void put_html(json_t *page, json_t *requests, struct buf *out)
{
    const char *name;
    json_t *v;
    buf_puts(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>infcgi status</title></head><body>\n<table>\n");
    json_object_foreach(page, name, v)
    {
        buf_printf(out, "<tr><th>%s</th>", name);
        put_cell(name, v, out);
        buf_puts(out, "</tr>\n");
    }
    buf_puts(out, "</table>\n<table>\n");
    for (size_t i = 0; i < json_array_size(requests); i++) {
        json_t *row = json_array_get(requests, i);
        buf_puts(out, i == 0 ? "<tr>" : "");
        json_object_foreach(i == 0 ? row : NULL, name, v) { buf_printf(out, "<th>%s</th>", name); }
        buf_puts(out, i == 0 ? "</tr>\n<tr>" : "<tr>");
        json_object_foreach(row, name, v) { put_cell(name, v, out); }
        buf_puts(out, "</tr>\n");
    }
    buf_puts(out, "</table>\n</body></html>\n");
}

void api_status(struct call *c)
{
    const char *query = fastcgi_param(c->reply.request, "QUERY_STRING"), *type = "text/plain; charset=utf-8";
    json_t *page = make_page(c), *requests = has_word(query, "full") ? status_requests() : json_array();
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    if (has_word(query, "json")) {
        type = "application/json";
        (void)json_object_set(page, "requests", has_word(query, "full") ? requests : NULL);
        status_write_json(page, &out);
    } else if (has_word(query, "html")) {
        type = "text/html; charset=utf-8";
        put_html(page, requests, &out);
    } else {
        put_text(page, requests, &out);
    }
    if (page == NULL || requests == NULL || buf_ok(&out) != ERR_OK) {
        reply_error(&c->reply, ERR_NOMEM, NULL);
    } else {
        reply_send(&c->reply, 200, type, &out);
    }
    json_decref(page);
    json_decref(requests);
    buf_fini(&out);
}
