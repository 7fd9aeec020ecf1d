/* Values between tags. A value that the tool's schema declares a string is emitted as it arrives; the type of others is
 * known only at their end. */
#include "engine/chat/chat_call_internal.h"

#include "engine/base/json_read.h"
#include "engine/base/utf8.h"

#define DSML "｜DSML｜"

/* The marks around names, keys and values. */
struct tags {
    const char *key, *key_end, *value, *value_end;
    const char *end; /* of the call; "": it ends with its body */
    bool is_invoke;  /* the name is an attribute, tags can have other attributes, and calls follow each other */
    bool trims;      /* a newline at each end of a value belongs to the format */
};

static const struct tags function = {"<parameter=", ">", "", "</parameter>", "</function>", .trims = true};
static const struct tags arg_keys = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "", .trims = false};
static const struct tags invoke = {"<parameter name=\"", "\"", "", "</parameter>", "</invoke>", .is_invoke = true};
static const struct tags dsml = {"<" DSML "parameter name=\"", "\"",        "",
                                 "</" DSML "parameter>",       "</invoke>", .is_invoke = true};

enum step chat_call_begin_tags(struct chat_call *c)
{
    bool is_dsml = strstr(c->format->open, DSML) != NULL;
    c->tags = c->format->body == CHAT_BODY_INVOKE ? (is_dsml ? &dsml : &invoke)
              : *chat_call_front(c) == '<'        ? &function
                                                  : &arg_keys;
    return chat_call_enter(c, PHASE_TAG_NAME);
}

/* --- types ------------------------------------------------------------------------------------------------------ */

/* Returns the types that the tool's schema allows for the member c->key. */
static unsigned types_of_key(const struct chat_call *c)
{
    const json_t *parameters = chat_types_parameters(c->tools, c->name.data);
    return chat_types_of(parameters, chat_types_member(parameters, parameters, c->key.data, c->key.len));
}

unsigned chat_call_type_of_text(const char *text, size_t n)
{
    struct err_info ignored = {0};
    json_t *parsed = NULL;
    bool is = json_read_value(text, n, CHAT_SPLIT_DEPTH - 1, "a value", &parsed, &ignored) == ERR_OK;
    unsigned type = is ? chat_types_of_value(parsed) : 0;
    json_decref(parsed);
    return type;
}

const char *chat_call_python_word(const char *s, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(words) && found == NULL; i++) {
        found = strlen(words[i][0]) == n && memcmp(words[i][0], s, n) == 0 ? words[i][1] : NULL;
    }
    return found;
}

/* c->value is JSON if it can be and the schema does not want a string. A schema of strings and other types accepts
 * null, objects and arrays as such, because models do not write these for strings. */
static enum step add_value(struct chat_call *c)
{
    const char *text = c->value.data != NULL ? c->value.data : "";
    size_t n = c->value.len, front = 0;
    while (front < n && chat_is_space(text[front])) {
        front++;
    }
    while (n > front && chat_is_space(text[n - 1])) {
        n--;
    }
    bool is_known = c->types != CHAT_TYPES_ALL, may_be_string = is_known && (c->types & CHAT_TYPE_STRING) != 0;
    const char *word = is_known && !may_be_string ? chat_call_python_word(text + front, n - front) : NULL;
    unsigned type = word == NULL ? chat_call_type_of_text(text + front, n - front) : 0;
    unsigned beside = c->types & (CHAT_TYPE_NULL | CHAT_TYPE_OBJECT | CHAT_TYPE_ARRAY);
    if (word != NULL) {
        return chat_call_puts(c, word);
    }
    if (type != 0 && (!may_be_string || (type & beside) != 0)) {
        return chat_call_add(c, text + front, n - front);
    }
    enum step step = chat_call_puts(c, "\"");
    step = step == STEP_ON ? chat_call_add_text(c, text, c->value.len) : step;
    return step == STEP_ON ? chat_call_puts(c, "\"") : step;
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

/* A step that must wait restarts with the next bytes. */
static enum step unless_waiting(struct chat_call *c, size_t at, enum step step)
{
    c->at = step == STEP_WAIT ? at : c->at;
    return step;
}

/* Reads <function=NAME>. */
static enum step function_name(struct chat_call *c)
{
    enum step step = chat_call_mark(c, "<function=");
    step = step == STEP_ON ? chat_call_until(c, ">", &c->name) : step;
    if (step == STEP_ON) {
        chat_call_trim(&c->name);
    }
    bool is_none = step == STEP_ON && (c->name.len == 0 || memchr(c->name.data, '<', c->name.len) != NULL);
    return is_none ? STEP_FAIL : step;
}

/* Reads NAME, one word, up to the first tag or the end. Fails at the first byte that no such name has. */
static enum step bare_name(struct chat_call *c)
{
    const char *front = chat_call_front(c);
    size_t left = chat_call_left(c), n = 0, n_word = 0;
    while (n < left && n < CHAT_CALL_LONGEST && front[n] != '<') {
        bool is_space = chat_is_space(front[n]);
        if ((n_word < n && !is_space) || strchr("{}\"", front[n]) != NULL) {
            return STEP_FAIL;
        }
        n++;
        n_word = is_space ? n_word : n;
    }
    if (n == CHAT_CALL_LONGEST || (n == left && !c->is_last)) {
        return n == left ? STEP_WAIT : STEP_FAIL;
    }
    chat_call_reset(c, &c->name);
    buf_append(&c->name, front, n_word);
    c->at += n;
    return n_word > 0 && buf_ok(&c->name) == ERR_OK ? STEP_ON : STEP_FAIL;
}

/* Reads <invoke name="NAME">; the format's mark can have consumed its beginning. */
static enum step invoke_name(struct chat_call *c)
{
    enum step step = chat_call_mark(c, "<invoke ");
    step = step == STEP_WAIT ? step : chat_call_mark(c, "name=\"");
    step = step == STEP_ON ? chat_call_until(c, "\"", &c->name) : step;
    return step == STEP_ON ? chat_call_until(c, ">", &c->value) : step;
}

enum step chat_call_tag_name(struct chat_call *c)
{
    bool is_more = chat_call_skip(c, "");
    chat_call_settle(c);
    if (!is_more && c->tags->is_invoke) {
        return STEP_WAIT; /* another call can follow */
    }
    size_t at = c->at;
    enum step step = c->tags->is_invoke ? invoke_name(c) : c->tags == &function ? function_name(c) : bare_name(c);
    return step == STEP_ON ? chat_call_enter(c, PHASE_TAG_KEY) : unless_waiting(c, at, step);
}

static enum step close_call(struct chat_call *c)
{
    enum step step = chat_call_open_object(c);
    step = step == STEP_ON ? chat_call_puts(c, "}") : step;
    return step == STEP_ON ? chat_call_enter(c, c->tags->is_invoke ? PHASE_TAG_NAME : PHASE_AFTER_CALLS) : step;
}

/* Reads the key, and whether its tag says that the value is a string. */
static enum step read_key(struct chat_call *c)
{
    enum step step = chat_call_open_object(c);
    step = step == STEP_ON ? chat_call_until(c, c->tags->key_end, &c->key) : step;
    c->is_text = false;
    c->types = step == STEP_ON ? types_of_key(c) : CHAT_TYPES_ALL;
    if (step == STEP_ON && c->tags->is_invoke) {
        step = chat_call_until(c, ">", &c->value);
        c->is_text = step == STEP_ON && c->value.len > 0 && strstr(c->value.data, "true") != NULL; /* string="true" */
    }
    return step == STEP_ON ? chat_call_enter(c, PHASE_TAG_VALUE) : step;
}

enum step chat_call_tag_key(struct chat_call *c)
{
    size_t at = c->at;
    if (!chat_call_skip(c, "")) {
        return c->is_last && c->tags != &function ? close_call(c) : chat_call_wait(c);
    }
    enum step step = chat_call_mark(c, c->tags->key);
    if (step == STEP_ON) {
        return unless_waiting(c, at, read_key(c));
    }
    enum step end = c->tags->end[0] != '\0' ? chat_call_mark(c, c->tags->end) : STEP_FAIL;
    return end == STEP_ON ? close_call(c) : unless_waiting(c, at, end == STEP_WAIT ? end : step);
}

static enum step read_value(struct chat_call *c, size_t at)
{
    const struct tags *tags = c->tags;
    enum step step;
    if (c->is_text || c->types == CHAT_TYPE_STRING) {
        c->is_fresh = true;
        step = chat_call_add_key(c, c->key.data, c->key.len);
        step = step == STEP_ON ? chat_call_puts(c, "\"") : step;
        return step == STEP_ON ? chat_call_enter(c, PHASE_TAG_TEXT) : step;
    }
    size_t begin = c->at, from = at + c->n_seen > begin ? at + c->n_seen : begin, n = strlen(tags->value_end);
    const char *text = c->in.data + begin;
    const char *found = memmem(c->in.data + from, c->in.len - from, tags->value_end, n);
    if (found == NULL) {
        c->n_seen = c->in.len - at > n ? c->in.len - at - n : 0;
        return chat_call_wait(c);
    }
    size_t len = (size_t)(found - text), front = tags->trims && len > 0 && text[0] == '\n';
    len -= tags->trims && len > front && text[len - 1] == '\n';
    chat_call_reset(c, &c->value);
    buf_append(&c->value, text + front, len - front);
    c->at = (size_t)(found - c->in.data) + n;
    c->n_seen = 0;
    step = buf_ok(&c->value) == ERR_OK ? chat_call_add_key(c, c->key.data, c->key.len) : STEP_FAIL;
    step = step == STEP_ON ? add_value(c) : step;
    return step == STEP_ON ? chat_call_enter(c, PHASE_TAG_KEY) : step;
}

enum step chat_call_tag_value(struct chat_call *c)
{
    size_t at = c->at;
    enum step step = STEP_ON;
    if (c->tags->value[0] != '\0') {
        step = chat_call_skip(c, "") ? chat_call_mark(c, c->tags->value) : chat_call_wait(c);
    }
    return unless_waiting(c, at, step == STEP_ON ? read_value(c, at) : step);
}

enum step chat_call_text(struct chat_call *c, const char *mark, bool trims)
{
    const char *front = chat_call_front(c), *found = memmem(front, chat_call_left(c), mark, strlen(mark));
    size_t n =
        found != NULL ? (size_t)(found - front) : chat_call_left(c) - chat_partial_mark(front, chat_call_left(c), mark);
    size_t read = found != NULL ? n + strlen(mark) : 0;
    n -= trims && n > 0 && front[n - 1] == '\n';
    n -= found == NULL ? utf8_incomplete_tail(front, n) : 0;
    enum step step = chat_call_add_text(c, front, n);
    c->at += step != STEP_ON ? 0 : found != NULL ? read : n;
    return step == STEP_ON && found == NULL ? chat_call_wait(c) : step;
}

enum step chat_call_tag_text(struct chat_call *c)
{
    if (c->is_fresh && c->tags->trims) {
        if (chat_call_left(c) == 0) {
            return chat_call_wait(c);
        }
        c->at += *chat_call_front(c) == '\n';
    }
    c->is_fresh = false;
    enum step step = chat_call_text(c, c->tags->value_end, c->tags->trims);
    step = step == STEP_ON ? chat_call_puts(c, "\"") : step;
    return step == STEP_ON ? chat_call_enter(c, PHASE_TAG_KEY) : step;
}
