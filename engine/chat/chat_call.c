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

/* What templates of Python write for true, false and null; NULL: it is none of these. */
static const char *python_word(const char *s, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(words) && found == NULL; i++) {
        found = strlen(words[i][0]) == n && memcmp(words[i][0], s, n) == 0 ? words[i][1] : NULL;
    }
    return found;
}

/* A value is JSON where it can be and the schema does not ask for a string; null may stand beside strings. */
static void write_value(const json_t *type, struct cursor v, struct buf *out)
{
    struct cursor t = v;
    trim(&t);
    size_t n = (size_t)(t.end - t.at);
    const char *word = type != NULL && !may_be_string(type) ? python_word(t.at, n) : NULL;
    bool is_null = n == 4 && memcmp(t.at, "null", 4) == 0 && json_is_array(type);
    if (word != NULL) {
        buf_puts(out, word);
    } else if (is_null || (!may_be_string(type) && is_value(t))) {
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

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* What is read so far. */
struct reader {
    const json_t *tools;
    struct buf *out, name, arguments; /* of the call that is read */
    size_t n;
};

static void begin_call(struct reader *r)
{
    buf_reset(&r->name);
    buf_reset(&r->arguments);
}

/* Keeps the call, if it is one. */
static bool end_call(struct reader *r, bool is_read)
{
    bool is_call = is_read && buf_ok(&r->name) == ERR_OK && buf_ok(&r->arguments) == ERR_OK && r->name.len > 0 &&
                   memchr(r->name.data, '\0', r->name.len) == NULL && r->arguments.len > 0 &&
                   is_object(r->arguments.data, r->arguments.len); /* two values of one key, say, are none */
    if (is_call) {
        buf_add(r->out, &r->name);
        buf_putc(r->out, '\0');
        buf_add(r->out, &r->arguments);
        buf_putc(r->out, '\0');
        r->n++;
    }
    r->out->err = r->out->err != ERR_OK ? r->out->err : r->name.err != ERR_OK ? r->name.err : r->arguments.err;
    return is_call;
}

/* *out: the object that c begins with, which is skipped. */
static bool take_object(struct cursor *c, struct cursor *out)
{
    int depth = 0;
    bool is_in_string = false;
    for (const char *p = c->at; p < c->end; p++) {
        if (is_in_string && *p == '\\') {
            p += p + 1 < c->end;
            continue;
        }
        is_in_string = is_in_string != (*p == '"');
        if (!is_in_string) {
            depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        }
        if (!is_in_string && depth == 0) {
            *out = (struct cursor){c->at, p + 1};
            c->at = p + 1;
            return out->at[0] == '{';
        }
    }
    return false;
}

/* Objects, one or several, perhaps within brackets, with commas, semicolons or nothing between. */
static bool read_objects(struct reader *r, struct cursor c)
{
    struct cursor one;
    bool is_list = skip(&c, "[");
    for (skip_space(&c); c.at < c.end && *c.at == '{'; skip_space(&c)) {
        begin_call(r);
        if (!take_object(&c, &one) || !end_call(r, read_json(one, &r->name, &r->arguments))) {
            return false;
        }
        skip_space(&c);
        if (!skip(&c, ",")) {
            skip(&c, ";");
        }
    }
    bool is_closed = !is_list || skip(&c, "]");
    skip_space(&c);
    return is_closed && c.at == c.end && r->n > 0;
}

static bool read_tagged(struct reader *r, struct cursor c)
{
    if (*c.at == '{' || *c.at == '[') {
        return read_objects(r, c);
    }
    begin_call(r);
    return end_call(r, *c.at == '<' ? read_parameters(c, r->tools, &r->name, &r->arguments)
                                    : read_arg_keys(c, r->tools, &r->name, &r->arguments));
}

/* A name without what some formats put around it: functions.NAME:0, NAME[CALL_ID]id. */
static void strip_name(struct cursor *name)
{
    static const char prefix[] = "functions.", id[] = "[CALL_ID]";
    const char *front = memmem(name->at, (size_t)(name->end - name->at), prefix, sizeof prefix - 1);
    name->at = front != NULL ? front + sizeof prefix - 1 : name->at;
    trim(name);
    const char *found = memmem(name->at, (size_t)(name->end - name->at), id, sizeof id - 1);
    found = found != NULL ? found : memchr(name->at, ':', (size_t)(name->end - name->at));
    name->end = found != NULL ? found : name->end;
    for (const char *p = name->at; p < name->end; p++) { /* a header goes on behind it */
        if (is_space(*p) || *p == '<') {
            name->end = p;
        }
    }
}

/* NAME separator {..}; DeepSeek R1: function separator NAME, and the object as a block of Markdown. */
static bool read_named(struct reader *r, struct cursor c, const char *separator)
{
    struct cursor name, rest;
    if (*c.at == '{' || *c.at == '[') {
        return read_objects(r, c);
    }
    if (separator[0] == '\0' || !take_until(&c, separator, &name)) {
        return false;
    }
    begin_call(r);
    trim(&name);
    if (name.end - name.at == 8 && memcmp(name.at, "function", 8) == 0 && take_until(&c, "```json", &rest)) {
        name = rest;
        if (!take_until(&c, "```", &rest)) {
            return false;
        }
        c = rest;
    }
    strip_name(&name);
    trim(&c);
    buf_append(&r->name, name.at, (size_t)(name.end - name.at));
    buf_append(&r->arguments, c.at, (size_t)(c.end - c.at));
    return end_call(r, true);
}

/* <invoke name="NAME"> (<parameter name="K" string="true|false"?> V </parameter>)* </invoke>, with a word of the model's before
 * the names of tags; of the first and the last tag some may be marks that are gone already. */
static bool read_invoke(struct reader *r, struct cursor c)
{
    static const char attribute[] = "name=\"", dsml[] = "\xef\xbd\x9c"
                                                        "DSML"
                                                        "\xef\xbd\x9c";
    if (*c.at == '{') {
        return read_objects(r, c);
    }
    bool is_dsml = memmem(c.at, (size_t)(c.end - c.at), dsml, sizeof dsml - 1) != NULL;
    const char *begin = is_dsml ? "<\xef\xbd\x9c"
                                  "DSML"
                                  "\xef\xbd\x9cparameter name=\""
                                : "<parameter name=\"";
    const char *end = is_dsml ? "</\xef\xbd\x9c"
                                "DSML"
                                "\xef\xbd\x9cparameter>"
                              : "</parameter>";
    while (c.at < c.end) {
        struct cursor word, rest, value;
        begin_call(r);
        skip_space(&c);
        skip(&c, "<invoke ");
        if (!skip(&c, attribute) || !take_until(&c, "\"", &word) || !take_until(&c, ">", &rest)) {
            return false;
        }
        buf_append(&r->name, word.at, (size_t)(word.end - word.at));
        buf_putc(&r->arguments, '{');
        for (skip_space(&c); skip(&c, begin); skip_space(&c)) {
            if (!take_until(&c, "\"", &word) || !take_until(&c, ">", &rest) || !take_until(&c, end, &value)) {
                return false;
            }
            if (memmem(rest.at, (size_t)(rest.end - rest.at), "true", 4) != NULL) { /* string="true" */
                buf_puts(&r->arguments, r->arguments.len > 1 ? "," : "");
                json_write_string(&r->arguments, word.at, (size_t)(word.end - word.at));
                buf_putc(&r->arguments, ':');
                json_write_string(&r->arguments, value.at, (size_t)(value.end - value.at));
            } else {
                write_member(r->tools, &r->name, word, value, &r->arguments);
            }
        }
        buf_putc(&r->arguments, '}');
        if (!end_call(r, true)) {
            return false;
        }
        skip(&c, "</invoke>");
        skip_space(&c);
    }
    return r->n > 0;
}

/* --- values in other languages ------------------------------------------------------------------------------------ */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

/* Does the quote end its string? Templates do not escape those within: it's one of them unless a value may end there. */
static bool ends_string(const struct cursor *c)
{
    struct cursor behind = {c->at + 1, c->end};
    skip_space(&behind);
    return behind.at == behind.end || strchr(",)]}:", *behind.at) != NULL;
}

/* A string of Python behind its quote. */
static bool take_python_string(struct cursor *c, char quote, struct buf *out)
{
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    for (; c->at < c->end && (*c->at != quote || !ends_string(c)); c->at++) {
        char ch = *c->at;
        if (ch == '\\' && c->at + 1 < c->end) {
            static const char from[] = "ntr", to[] = "\n\t\r";
            const char *found = strchr(from, *++c->at);
            ch = found != NULL ? to[found - from] : *c->at;
        }
        buf_putc(&text, ch);
    }
    json_write_buf(out, &text);
    out->err = out->err != ERR_OK ? out->err : text.err;
    buf_fini(&text);
    bool is_closed = c->at < c->end;
    c->at += is_closed;
    return is_closed;
}

/* A word: a key where a colon follows and the language has no quotes there, True, False, None, or a number. */
static void write_word(struct cursor *c, bool is_quoted, struct buf *out)
{
    const char *from = c->at;
    while (c->at < c->end && is_word(*c->at)) {
        c->at++;
    }
    size_t n = (size_t)(c->at - from);
    if (is_quoted && c->at < c->end && *c->at == ':') {
        json_write_string(out, from, n);
        return;
    }
    const char *word = python_word(from, n);
    if (word != NULL) {
        buf_puts(out, word);
        return;
    }
    buf_append(out, from, n);
}

/* A value as JSON, up to what ends it at its own depth: one of `ends`. is_quoted: Gemma's, whose strings stand between
 * <|"|> and whose keys are bare; else Python's. */
static bool take_value(struct cursor *c, bool is_quoted, const char *ends, struct buf *out)
{
    static const char quote[] = "<|\"|>";
    int depth = 0;
    while (c->at < c->end && (depth > 0 || strchr(ends, *c->at) == NULL)) {
        struct cursor text;
        if (is_quoted && skip(c, quote)) {
            if (!take_until(c, quote, &text)) {
                return false;
            }
            json_write_string(out, text.at, (size_t)(text.end - text.at));
        } else if (!is_quoted && (*c->at == '"' || *c->at == '\'')) {
            char mark = *c->at++;
            if (!take_python_string(c, mark, out)) {
                return false;
            }
        } else if (is_word(*c->at)) {
            write_word(c, is_quoted, out);
        } else {
            depth += (*c->at == '{' || *c->at == '[') - (*c->at == '}' || *c->at == ']');
            buf_putc(out, *c->at++);
        }
    }
    return c->at < c->end && depth == 0;
}

/* call:NAME{K:V,..}, one or several. */
static bool read_quoted(struct reader *r, struct cursor c)
{
    struct cursor name;
    if (*c.at == '{' || *c.at == '[') {
        return read_objects(r, c);
    }
    for (; skip(&c, "call:"); skip_space(&c)) {
        begin_call(r);
        if (!take_until(&c, "{", &name)) {
            return false;
        }
        buf_append(&r->name, name.at, (size_t)(name.end - name.at));
        buf_putc(&r->arguments, '{');
        bool is_whole = take_value(&c, true, "}", &r->arguments);
        buf_putc(&r->arguments, '}');
        c.at += is_whole;
        if (!end_call(r, is_whole)) {
            return false;
        }
    }
    return c.at == c.end && r->n > 0;
}

/* NAME(K=V, ..) */
static bool read_python_call(struct reader *r, struct cursor *c)
{
    struct cursor word;
    begin_call(r);
    if (!take_until(c, "(", &word)) {
        return false;
    }
    trim(&word);
    buf_append(&r->name, word.at, (size_t)(word.end - word.at));
    buf_putc(&r->arguments, '{');
    for (skip_space(c); c->at < c->end && *c->at != ')'; skip_space(c)) {
        if (!take_until(c, "=", &word)) {
            return false;
        }
        trim(&word);
        buf_puts(&r->arguments, r->arguments.len > 1 ? "," : "");
        json_write_string(&r->arguments, word.at, (size_t)(word.end - word.at));
        buf_putc(&r->arguments, ':');
        skip_space(c);
        if (!take_value(c, false, ",)", &r->arguments)) {
            return false;
        }
        skip(c, ",");
    }
    buf_putc(&r->arguments, '}');
    return skip(c, ")") && end_call(r, true);
}

/* [call, call]; or JSON. */
static bool read_python(struct reader *r, struct cursor c)
{
    struct cursor first = c;
    skip(&first, "[");
    skip_space(&first);
    if (first.at < first.end && *first.at == '{') {
        return read_objects(r, c);
    }
    bool is_list = skip(&c, "[");
    for (skip_space(&c); c.at < c.end && *c.at != ']'; skip_space(&c)) {
        if (!read_python_call(r, &c)) {
            return false;
        }
        skip_space(&c);
        skip(&c, ",");
    }
    return (!is_list || skip(&c, "]")) && c.at == c.end && r->n > 0;
}

size_t chat_calls_read(const struct chat_format *format, const char *body, size_t n, const json_t *tools,
                       struct buf *out)
{
    struct cursor c = {body, body + n};
    struct reader r = {.tools = tools, .out = out};
    size_t before = out->len;
    trim(&c);
    if (c.at == c.end) {
        return 0;
    }
    buf_init(&r.name, 0, MEM_REQUEST);
    buf_init(&r.arguments, 0, MEM_REQUEST);
    bool is_whole = false;
    switch (format->body) {
    case CHAT_BODY_TAGGED:
        is_whole = read_tagged(&r, c);
        break;
    case CHAT_BODY_CHANNELS: /* the splitter's: NAME separator {..} */
    case CHAT_BODY_NAMED:
        is_whole = read_named(&r, c, format->separator);
        break;
    case CHAT_BODY_INVOKE:
        is_whole = read_invoke(&r, c);
        break;
    case CHAT_BODY_QUOTED:
        is_whole = read_quoted(&r, c);
        break;
    case CHAT_BODY_PYTHON:
        is_whole = read_python(&r, c);
        break;
    }
    buf_fini(&r.name);
    buf_fini(&r.arguments);
    if (!is_whole && out->data != NULL) {
        out->len = before;
        out->data[before] = '\0';
    }
    return is_whole && buf_ok(out) == ERR_OK ? r.n : 0;
}
