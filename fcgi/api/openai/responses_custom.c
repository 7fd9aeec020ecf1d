/* The scanner reports which bytes belong to the string and where a character ends. */
#include "fcgi/api/openai/responses_custom.h"

#include "engine/base/json_read.h"

#include <string.h>

void responses_custom_init(struct responses_custom *c)
{
    buf_init(&c->input, 0, MEM_REQUEST);
    buf_init(&c->key, 0, MEM_REQUEST);
    buf_init(&c->raw, 0, MEM_REQUEST);
}

void responses_custom_fini(struct responses_custom *c)
{
    buf_fini(&c->input);
    buf_fini(&c->key);
    buf_fini(&c->raw);
}

enum err responses_custom_ok(const struct responses_custom *c)
{
    TRY(buf_ok(&c->input));
    TRY(buf_ok(&c->key));
    return buf_ok(&c->raw);
}

void responses_custom_begin(struct responses_custom *c)
{
    if (responses_custom_ok(c) == ERR_OK) { /* a failed buffer stays failed */
        buf_reset(&c->input);
        buf_reset(&c->key);
        buf_reset(&c->raw);
    }
    c->scan = (struct json_scan){.depth = 0};
    c->n_sure = 0;
    c->has_input = c->is_in = c->is_over = false;
}

/* Moves the complete characters of raw to the input. */
static void decode(struct responses_custom *c)
{
    struct buf object;
    struct err_info ignored = {0};
    json_t *parsed = NULL;
    if (c->n_sure == 0) {
        return;
    }
    buf_init(&object, 0, MEM_REQUEST);
    buf_puts(&object, "{\"v\":\"");
    buf_append(&object, c->raw.data, c->n_sure);
    buf_puts(&object, "\"}");
    enum err err = buf_ok(&object);
    err = err != ERR_OK ? err : json_read(object.data, object.len, 1, "arguments", &parsed, &ignored);
    const json_t *v = json_object_get(parsed, "v");
    buf_append(&c->input, v != NULL ? json_string_value(v) : "", json_string_length(v));
    c->input.err = c->input.err == ERR_OK && err == ERR_NOMEM ? err : c->input.err;
    json_decref(parsed);
    buf_fini(&object);
    memmove(c->raw.data, c->raw.data + c->n_sure, c->raw.len - c->n_sure + 1);
    c->raw.len -= c->n_sure;
    c->n_sure = 0;
}

/* Takes a byte; the scanner's state was `before` and is now the state after the byte. */
static void take(struct responses_custom *c, enum json_scan_state before, char byte)
{
    enum json_scan_state state = c->scan.state;
    bool is_string = before >= JSON_SCAN_STRING && before <= JSON_SCAN_LOW_U;
    if (c->scan.depth != 1 || c->is_over) {
        return;
    }
    if (before == JSON_SCAN_KEY) {
        c->key.len = 0;
    } else if (c->scan.is_key && is_string && state != JSON_SCAN_COLON) {
        buf_putc(&c->key, byte);
    } else if (before == JSON_SCAN_VALUE && state == JSON_SCAN_STRING) {
        c->is_in = c->key.len == 5 && memcmp(c->key.data, "input", 5) == 0;
        c->has_input = c->has_input || c->is_in;
    } else if (c->is_in && state == JSON_SCAN_AFTER) {
        c->is_over = true; /* of two members the first counts */
    } else if (c->is_in) {
        buf_putc(&c->raw, byte);
        c->n_sure = state == JSON_SCAN_STRING && c->scan.n_more == 0 ? c->raw.len : c->n_sure;
    }
}

void responses_custom_feed(struct responses_custom *c, const char *text, size_t n)
{
    for (size_t i = 0; i < n && responses_custom_ok(c) == ERR_OK; i++) {
        enum json_scan_state before = c->scan.state;
        if (json_scan_feed(&c->scan, text + i, 1) == 0) {
            break;
        }
        take(c, before, text[i]);
    }
    if (responses_custom_ok(c) == ERR_OK) {
        decode(c);
    }
}
