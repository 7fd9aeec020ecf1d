/* Numbers are never printed anew: arguments are the model's own bytes where it wrote JSON. */
#include "engine/chat/chat_call.h"

#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "engine/chat/chat_parts.h"

#include <string.h>

/* A stretch of the body that is still to read. */
struct cursor {
    const char *at, *end;
};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && is_space(*c->at)) {
        c->at++;
    }
}

static bool skip(struct cursor *c, const char *mark)
{
    size_t n = strlen(mark);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, mark, n) != 0) {
        return false;
    }
    c->at += n;
    return true;
}

/* *out: what stands before the mark, which is skipped. */
static bool take_until(struct cursor *c, const char *mark, struct cursor *out)
{
    const char *found = memmem(c->at, (size_t)(c->end - c->at), mark, strlen(mark));
    if (found == NULL) {
        return false;
    }
    *out = (struct cursor){c->at, found};
    c->at = found + strlen(mark);
    return true;
}

static void trim(struct cursor *c)
{
    skip_space(c);
    while (c->end > c->at && is_space(c->end[-1])) {
        c->end--;
    }
}

static bool is_object(const char *text, size_t n)
{
    struct err_info ignored = {0};
    json_t *parsed = NULL;
    bool is = json_read(text, n, CHAT_SPLIT_DEPTH, "a call", &parsed, &ignored) == ERR_OK;
    json_decref(parsed);
    return is;
}

/* --- a JSON object ---------------------------------------------------------------------------------------------- */

/* Behind the string that begins at p; the JSON is known to be valid. */
static const char *end_of_string(const char *p)
{
    for (p++; *p != '"'; p++) {
        p += *p == '\\';
    }
    return p + 1;
}

/* The object's bytes that are the value of its member `key`, an object itself. The whole is valid JSON without
 * escapes in this key, else `out` stays empty. */
static void find_value(const char *body, size_t n, const char *key, struct cursor *out)
{
    int depth = 0;
    const char *end = body + n, *value = NULL;
    for (const char *p = body; p < end;) {
        if (*p == '"') {
            const char *behind = end_of_string(p), *colon = behind;
            while (is_space(*colon)) {
                colon++;
            }
            if (depth == 1 && *colon == ':' && (size_t)(behind - p) == strlen(key) + 2 &&
                memcmp(p + 1, key, strlen(key)) == 0) {
                value = colon + 1;
            }
            p = behind;
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p++;
        if (value != NULL && depth == 1 && p[-1] == '}') {
            *out = (struct cursor){value, p};
            trim(out);
            return;
        }
    }
}

static bool copy_arguments(const json_t *call, const char *body, size_t n, struct buf *out)
{
    const char *key = json_object_get(call, "arguments") != NULL ? "arguments" : "parameters";
    const json_t *v = json_object_get(call, key);
    struct cursor raw = {0};
    if (json_is_object(v)) {
        find_value(body, n, key, &raw);
        buf_append(out, raw.at, (size_t)(raw.end - raw.at));
        return raw.at != NULL;
    }
    if (json_is_string(v)) { /* JSON in a string, as OpenAI's API writes it */
        buf_append(out, json_string_value(v), json_string_length(v));
        return is_object(json_string_value(v), json_string_length(v));
    }
    buf_puts(out, "{}");
    return v == NULL || json_is_null(v);
}

static bool read_json(struct cursor c, struct buf *name, struct buf *arguments)
{
    struct err_info ignored = {0};
    json_t *call = NULL;
    size_t n = (size_t)(c.end - c.at);
    bool is_call = json_read(c.at, n, CHAT_SPLIT_DEPTH, "a call", &call, &ignored) == ERR_OK;
    const json_t *v = json_object_get(call, "name");
    is_call = is_call && json_string_length(v) > 0 && copy_arguments(call, c.at, n, arguments);
    if (is_call) {
        buf_append(name, json_string_value(v), json_string_length(v));
    }
    json_decref(call);
    return is_call;
}

/* --- keyed text ------------------------------------------------------------------------------------------------- */

/* The type that the schema of the tool gives to the member; NULL = none is known. */
static const json_t *type_of(const json_t *tools, const struct buf *name, struct cursor key)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (json_read_is(json_object_get(f, "name"), name->data)) {
            const json_t *properties = json_object_get(json_object_get(f, "parameters"), "properties");
            return json_object_get(json_object_getn(properties, key.at, (size_t)(key.end - key.at)), "type");
        }
    }
    return NULL;
}

static bool may_be_string(const json_t *type)
{
    bool may = json_read_is(type, "string");
    for (size_t i = 0; i < json_array_size(type); i++) {
        may = may || json_read_is(json_array_get(type, i), "string");
    }
    return may;
}

/* Is it JSON of one value? */
static bool is_value(struct cursor v)
{
    struct buf object;
    struct err_info ignored = {0};
    json_t *parsed = NULL;
    buf_init(&object, 0, MEM_REQUEST);
    buf_puts(&object, "{\"v\":");
    buf_append(&object, v.at, (size_t)(v.end - v.at));
    buf_puts(&object, "}");
    bool is = buf_ok(&object) == ERR_OK &&
              json_read(object.data, object.len, CHAT_SPLIT_DEPTH, "a value", &parsed, &ignored) == ERR_OK &&
              json_object_size(parsed) == 1; /* no second member behind a comma */
    json_decref(parsed);
    buf_fini(&object);
    return is;
}

/* A value is JSON where it can be and the schema does not ask for a string; null may stand beside strings. */
static void write_value(const json_t *type, struct cursor v, struct buf *out)
{
    struct cursor t = v;
    trim(&t);
    size_t n = (size_t)(t.end - t.at);
    bool is_null = n == 4 && memcmp(t.at, "null", 4) == 0 && json_is_array(type);
    if (is_null || (!may_be_string(type) && is_value(t))) {
        buf_append(out, t.at, n);
    } else {
        json_write_string(out, v.at, (size_t)(v.end - v.at));
    }
}

static void write_member(const json_t *tools, const struct buf *name, struct cursor key, struct cursor value,
                         struct buf *out)
{
    if (out->len > 1) {
        buf_putc(out, ',');
    }
    json_write_string(out, key.at, (size_t)(key.end - key.at));
    buf_putc(out, ':');
    write_value(type_of(tools, name, key), value, out);
}

/* One newline at each end is the format's. */
static void trim_newlines(struct cursor *v)
{
    v->at += v->at < v->end && *v->at == '\n';
    v->end -= v->end > v->at && v->end[-1] == '\n';
}

static bool take_name(struct cursor n, struct buf *name)
{
    trim(&n);
    buf_append(name, n.at, (size_t)(n.end - n.at));
    return n.end > n.at && memchr(n.at, '<', (size_t)(n.end - n.at)) == NULL && buf_ok(name) == ERR_OK;
}

/* <function=NAME> (<parameter=K> V </parameter>)* </function> */
static bool read_parameters(struct cursor c, const json_t *tools, struct buf *name, struct buf *arguments)
{
    struct cursor word, value;
    if (!skip(&c, "<function=") || !take_until(&c, ">", &word) || !take_name(word, name)) {
        return false;
    }
    buf_putc(arguments, '{');
    for (skip_space(&c); skip(&c, "<parameter="); skip_space(&c)) {
        if (!take_until(&c, ">", &word) || !take_until(&c, "</parameter>", &value)) {
            return false;
        }
        trim_newlines(&value);
        write_member(tools, name, word, value, arguments);
    }
    buf_putc(arguments, '}');
    return skip(&c, "</function>") && c.at == c.end;
}

/* NAME (<arg_key>K</arg_key> <arg_value>V</arg_value>)* */
static bool read_arg_keys(struct cursor c, const json_t *tools, struct buf *name, struct buf *arguments)
{
    struct cursor word, value;
    const char *mark = memchr(c.at, '<', (size_t)(c.end - c.at));
    word = (struct cursor){c.at, mark != NULL ? mark : c.end};
    c.at = word.end;
    if (!take_name(word, name) || strpbrk(name->data, " \n\t{}\"") != NULL) {
        return false;
    }
    buf_putc(arguments, '{');
    for (; skip(&c, "<arg_key>"); skip_space(&c)) {
        if (!take_until(&c, "</arg_key>", &word)) {
            return false;
        }
        skip_space(&c);
        if (!skip(&c, "<arg_value>") || !take_until(&c, "</arg_value>", &value)) {
            return false;
        }
        write_member(tools, name, word, value, arguments);
    }
    buf_putc(arguments, '}');
    return c.at == c.end;
}

bool chat_call_read(const char *body, size_t n, const json_t *tools, struct buf *name, struct buf *arguments)
{
    struct cursor c = {body, body + n};
    trim(&c);
    if (c.at == c.end) {
        return false;
    }
    bool is_call = *c.at == '{'   ? read_json(c, name, arguments)
                   : *c.at == '<' ? read_parameters(c, tools, name, arguments)
                                  : read_arg_keys(c, tools, name, arguments);
    return is_call && buf_ok(name) == ERR_OK && buf_ok(arguments) == ERR_OK &&
           is_object(arguments->data, arguments->len); /* two values of one key, say, are none */
}
