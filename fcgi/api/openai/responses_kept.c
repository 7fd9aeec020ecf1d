/* Endpoints for kept responses: GET and DELETE /v1/responses/{id}, /cancel, /input_items. */
#include "engine/base/json_write.h"
#include "fcgi/api/openai/openai.h"
#include "fcgi/api/openai/responses_store.h"
#include "fcgi/wire/call.h"
#include "fcgi/wire/json_in.h"

#include <stdio.h>
#include <string.h>

enum { ID_BYTES = 128, MAX_LIMIT = 100, DEFAULT_LIMIT = 20 };

/* Copies the id and returns the rest of the path. An overlong id matches no response. */
static const char *split_path(const char *path, char id[ID_BYTES])
{
    static const char before[] = "responses/";
    const char *begin = strstr(path, before) + sizeof before - 1, *rest = begin + strcspn(begin, "/");
    snprintf(id, ID_BYTES, "%.*s", (int)MIN_OF((size_t)(rest - begin), (size_t)ID_BYTES), begin);
    return rest;
}

static void no_such_url(struct call *c)
{
    struct err_info info = {0};
    reply_error(&c->reply, err_set(&info, ERR_UNKNOWN_URL, NULL, "unknown URL: %.128s", c->path), &info);
}

/* Sends `out`, or the error. Frees `out`. */
static void send(struct call *c, enum err err, const char *id, struct buf *out)
{
    struct err_info info = {0};
    if (err == ERR_RESPONSE_NOT_FOUND) {
        err_set(&info, err, "id", "no response with the id '%.64s' is kept", id);
    }
    reply_json(&c->reply, err, &info, out);
}

/* --- the query -------------------------------------------------------------------------------------------------- */

/* Copies a parameter's value as it was sent, at most ID_BYTES - 1 bytes; false if it is absent. */
static bool get_parameter(const struct call *c, const char *name, char value[ID_BYTES])
{
    const char *uri = fastcgi_param(c->reply.request, "REQUEST_URI"), *query = uri != NULL ? strchr(uri, '?') : NULL;
    size_t n = strlen(name);
    for (const char *p = query != NULL ? query + 1 : NULL; p != NULL && *p != '\0'; p += strspn(p, "&")) {
        size_t len = strcspn(p, "&");
        if (len > n && strncmp(p, name, n) == 0 && p[n] == '=') {
            snprintf(value, ID_BYTES, "%.*s", (int)MIN_OF(len - n - 1, (size_t)ID_BYTES), p + n + 1);
            return true;
        }
        p += len;
    }
    return false;
}

struct page {
    size_t limit;
    bool is_rising; /* oldest item first */
    char after[ID_BYTES];
};

static enum err read_page(const struct call *c, struct page *page, struct err_info *info)
{
    char value[ID_BYTES];
    *page = (struct page){.limit = DEFAULT_LIMIT};
    get_parameter(c, "after", page->after);
    if (get_parameter(c, "limit", value)) {
        size_t n = 0;
        for (const char *p = value; *p >= '0' && *p <= '9' && n <= MAX_LIMIT; p++) {
            n = n * 10 + (size_t)(*p - '0');
        }
        if (n == 0 || n > MAX_LIMIT || value[strspn(value, "0123456789")] != '\0') {
            return err_set(info, ERR_INVALID_VALUE, "limit", "limit: expected 1 to %d, found %.32s", MAX_LIMIT, value);
        }
        page->limit = n;
    }
    if (get_parameter(c, "order", value)) {
        page->is_rising = strcmp(value, "asc") == 0;
        if (!page->is_rising && strcmp(value, "desc") != 0) {
            return err_set(info, ERR_INVALID_VALUE, "order", "order: expected asc or desc, found %.32s", value);
        }
    }
    return ERR_OK;
}

/* --- endpoints -------------------------------------------------------------------------------------------------- */

static const char *id_of(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id != NULL ? id : "";
}

static void write_page(const json_t *items, const struct page *page, struct buf *out)
{
    size_t n = json_array_size(items), i = 0, n_listed = 0;
    const json_t *first = NULL, *last = NULL;
    for (size_t k = 0; page->after[0] != '\0' && k < n; k++) {
        const json_t *item = json_array_get(items, page->is_rising ? k : n - 1 - k);
        i = strcmp(id_of(item), page->after) == 0 ? k + 1 : i;
    }
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (; i < n && n_listed < page->limit; i++, n_listed++) {
        const json_t *item = json_array_get(items, page->is_rising ? i : n - 1 - i);
        buf_puts(out, n_listed == 0 ? "" : ",");
        json_write_value(out, item, false);
        first = n_listed == 0 ? item : first;
        last = item;
    }
    buf_puts(out, "],\"first_id\":");
    json_write_cstr(out, first != NULL ? id_of(first) : NULL);
    buf_puts(out, ",\"last_id\":");
    json_write_cstr(out, last != NULL ? id_of(last) : NULL);
    buf_printf(out, ",\"has_more\":%s}", i < n ? "true" : "false");
}

static void send_input(struct call *c, const char *id)
{
    struct err_info info = {0};
    struct page page;
    struct buf out;
    json_t *items = NULL;
    if (read_page(c, &page, &info) != ERR_OK) {
        reply_error(&c->reply, info.code, &info);
        return;
    }
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = responses_store_items(&c->caller, id, false, &items);
    if (err == ERR_OK) {
        write_page(items, &page, &out);
    }
    json_decref(items);
    send(c, err, id, &out);
}

void api_response_get(struct call *c)
{
    char id[ID_BYTES], value[ID_BYTES];
    struct err_info info = {0};
    struct buf out;
    const char *rest = split_path(c->path, id);
    if (strcmp(rest, "/input_items") == 0) {
        send_input(c, id);
    } else if (rest[0] != '\0') {
        no_such_url(c);
    } else if (get_parameter(c, "stream", value) && strcmp(value, "true") == 0) {
        err_set(&info, ERR_UNSUPPORTED_PARAMETER, "stream",
                "stream: a response that is kept has ended, and its events are not kept");
        reply_error(&c->reply, info.code, &info);
    } else {
        buf_init(&out, 0, MEM_REQUEST);
        send(c, responses_store_get(&c->caller, id, &out), id, &out);
    }
}

void api_response_delete(struct call *c)
{
    char id[ID_BYTES];
    struct buf out;
    if (split_path(c->path, id)[0] != '\0') {
        no_such_url(c);
        return;
    }
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "{\"id\":");
    json_write_cstr(&out, id);
    buf_puts(&out, ",\"object\":\"response\",\"deleted\":true}");
    send(c, responses_store_drop(&c->caller, id), id, &out);
}

/* infcgi runs no background responses, so a kept response has ended. */
void api_response_post(struct call *c)
{
    char id[ID_BYTES];
    struct err_info info = {0};
    struct buf response;
    if (strcmp(split_path(c->path, id), "/cancel") != 0) {
        no_such_url(c);
        return;
    }
    buf_init(&response, 0, MEM_REQUEST);
    enum err err = responses_store_get(&c->caller, id, &response);
    if (err != ERR_OK) {
        send(c, err, id, &response);
        return;
    }
    buf_fini(&response);
    err_set(&info, ERR_INVALID_VALUE, NULL, "the response '%.64s' has ended; those in the background can be cancelled",
            id);
    reply_error(&c->reply, info.code, &info);
}
