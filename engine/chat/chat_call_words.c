/* Values in Python syntax, and Gemma's, with strings between <|"|> and bare keys. */
#include "engine/chat/chat_call_internal.h"

#include "engine/base/json_write.h"
#include "engine/base/utf8.h"

static const char gemma_quote[] = "<|\"|>";

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

/* Returns the length of the leading word. It is complete if other bytes follow. */
static size_t word_length(const struct chat_call *c)
{
    size_t n = 0, left = chat_call_left(c);
    while (n < left && n < CHAT_CALL_LONGEST && is_word(chat_call_front(c)[n])) {
        n++;
    }
    return n;
}

/* Reads a word, optional white space, and the mark. */
static enum step word_before(struct chat_call *c, char mark, struct buf *out)
{
    size_t n = word_length(c), k = n, left = chat_call_left(c);
    while (k < left && chat_is_space(chat_call_front(c)[k])) {
        k++;
    }
    if (n == CHAT_CALL_LONGEST || (n == 0 && left > 0)) {
        return STEP_FAIL;
    }
    if (k == left) {
        return chat_call_wait(c);
    }
    if (chat_call_front(c)[k] != mark) {
        return STEP_FAIL;
    }
    chat_call_reset(c, out);
    buf_append(out, chat_call_front(c), n);
    c->at += k + 1;
    return buf_ok(out) == ERR_OK ? STEP_ON : STEP_FAIL;
}

static const json_t *parameters_of(const struct chat_call *c)
{
    return c->name.len > 0 ? chat_types_parameters(c->tools, c->name.data) : NULL;
}

/* Begins the arguments, or one of them. */
static void begin_values(struct chat_call *c)
{
    c->depth = 0;
    c->holders[0] = parameters_of(c);
    c->slots[0] = NULL;
}

/* The next value belongs to the member key[0..n). */
static void begin_member(struct chat_call *c, const char *key, size_t n)
{
    if (c->depth <= JSON_SCAN_DEPTH) {
        c->slots[c->depth] = chat_types_member(parameters_of(c), c->holders[c->depth], key, n);
    }
}

/* After a bracket or comma: finds the schema of the next value. */
static void note_mark(struct chat_call *c, char mark)
{
    bool is_array = c->depth < JSON_SCAN_DEPTH && ((c->scan.is_array >> c->depth) & 1) != 0;
    if (mark == '{' || mark == '[') {
        const json_t *slot = c->depth < JSON_SCAN_DEPTH ? c->slots[c->depth] : NULL;
        c->depth++;
        if (c->depth <= JSON_SCAN_DEPTH) {
            c->holders[c->depth] = mark == '{' ? slot : NULL;
            c->slots[c->depth] = mark == '[' ? chat_types_items(parameters_of(c), slot) : NULL;
        }
    } else if (mark == '}' || mark == ']') {
        c->depth -= c->depth > 0;
    } else if (mark == ',' && !is_array && c->depth <= JSON_SCAN_DEPTH) {
        c->slots[c->depth] = NULL;
    }
}

/* Reads call:NAME{. */
static enum step quoted_name(struct chat_call *c)
{
    size_t at = c->at;
    enum step step = chat_call_mark(c, "call:");
    step = step == STEP_ON ? chat_call_until(c, "{", &c->name) : step;
    c->at = step == STEP_WAIT ? at : c->at;
    step = step == STEP_ON ? chat_call_open_object(c) : step;
    begin_values(c);
    return step == STEP_ON ? chat_call_enter(c, PHASE_WORD_VALUE) : step;
}

enum step chat_call_word_name(struct chat_call *c)
{
    bool is_more = chat_call_skip(c, c->n_calls > 0 && !c->is_quoted ? "," : "");
    chat_call_settle(c);
    if (!is_more) {
        return STEP_WAIT; /* another call can follow */
    }
    if (c->is_quoted) {
        return quoted_name(c);
    }
    char first = *chat_call_front(c);
    if (first == '{' && c->n_calls == 0) {
        return chat_call_enter(c, PHASE_ITEM);
    }
    if (first == ']' && c->is_list && c->n_calls > 0) {
        return chat_call_enter(c, PHASE_AFTER_CALLS);
    }
    enum step step = word_before(c, '(', &c->name);
    return step == STEP_ON ? chat_call_enter(c, PHASE_WORD_KEY) : step;
}

/* Reads K=, or the end of the call. */
enum step chat_call_word_key(struct chat_call *c)
{
    if (!chat_call_skip(c, c->is_open ? "," : "")) {
        return chat_call_wait(c);
    }
    bool is_end = *chat_call_front(c) == ')';
    c->at += is_end;
    enum step step = is_end ? STEP_ON : word_before(c, '=', &c->key);
    step = step == STEP_ON ? chat_call_open_object(c) : step;
    if (step != STEP_ON) {
        return step;
    }
    begin_values(c);
    begin_member(c, is_end ? NULL : c->key.data, is_end ? 0 : c->key.len);
    step = is_end ? chat_call_puts(c, "}") : chat_call_add_key(c, c->key.data, c->key.len);
    return step == STEP_ON ? chat_call_enter(c, is_end ? PHASE_WORD_NAME : PHASE_WORD_VALUE) : step;
}

/* Adds a value without quotes: a string if the schema allows strings and not the word's type. */
static enum step add_word(struct chat_call *c, const char *text, size_t n)
{
    const json_t *slot = c->depth <= JSON_SCAN_DEPTH ? c->slots[c->depth] : NULL;
    const char *word = chat_call_python_word(text, n), *json = word != NULL ? word : text;
    size_t n_json = word != NULL ? strlen(word) : n;
    unsigned types = chat_types_of(parameters_of(c), slot);
    if (types == CHAT_TYPES_ALL || (types & CHAT_TYPE_STRING) == 0 ||
        (types & chat_call_type_of_text(json, n_json)) != 0) { /* the text is parsed only if strings are allowed */
        return chat_call_add(c, json, n_json);
    }
    enum step step = chat_call_puts(c, "\"");
    step = step == STEP_ON ? chat_call_add_text(c, text, n) : step;
    return step == STEP_ON ? chat_call_puts(c, "\"") : step;
}

/* Reads a word: a key if a colon follows and the language has unquoted keys, True, False, None, or a number. */
static enum step read_word(struct chat_call *c)
{
    const char *front = chat_call_front(c);
    size_t n = word_length(c);
    if (n == chat_call_left(c) || n == CHAT_CALL_LONGEST) {
        return n == CHAT_CALL_LONGEST ? STEP_FAIL : chat_call_wait(c);
    }
    enum step step;
    if (c->is_quoted && front[n] == ':') {
        begin_member(c, front, n);
        chat_call_reset(c, &c->key);
        json_write_string(&c->key, front, n);
        step = buf_ok(&c->key) == ERR_OK ? chat_call_add(c, c->key.data, c->key.len) : STEP_FAIL;
    } else {
        step = add_word(c, front, n);
    }
    c->at += step == STEP_ON ? n : 0;
    return step;
}

static enum step begin_text(struct chat_call *c, size_t n_read)
{
    enum step step = chat_call_puts(c, "\"");
    c->at += step == STEP_ON ? n_read : 0;
    return step == STEP_ON ? chat_call_enter(c, PHASE_WORD_TEXT) : step;
}

enum step chat_call_word_value(struct chat_call *c)
{
    if (chat_call_left(c) == 0) {
        return chat_call_wait(c);
    }
    char first = *chat_call_front(c);
    if (c->depth == 0 && c->is_quoted && first == '}') {
        c->at++;
        enum step step = chat_call_puts(c, "}");
        return step == STEP_ON ? chat_call_enter(c, PHASE_WORD_NAME) : step;
    }
    if (c->depth == 0 && !c->is_quoted && (first == ',' || first == ')')) {
        return chat_call_enter(c, PHASE_WORD_KEY);
    }
    if (c->is_quoted && first == gemma_quote[0]) {
        size_t at = c->at;
        enum step step = chat_call_mark(c, gemma_quote);
        size_t n = c->at - at;
        c->at = at;
        return step == STEP_ON ? begin_text(c, n) : step;
    }
    if (!c->is_quoted && (first == '"' || first == '\'')) {
        c->quote = first;
        return begin_text(c, 1);
    }
    if (is_word(first)) {
        return read_word(c);
    }
    enum step step = chat_call_add(c, &first, 1);
    c->at += step == STEP_ON;
    note_mark(c, first);
    return step;
}

/* Does the quote at front[i] end its string? Templates do not escape inner quotes, so it is one unless a value can end
 * there. STEP_WAIT: the next bytes decide. */
static enum step ends_string(const struct chat_call *c, size_t i)
{
    size_t left = chat_call_left(c);
    for (i++; i < left && chat_is_space(chat_call_front(c)[i]); i++) {
    }
    if (i == left) {
        return c->is_last ? STEP_ON : STEP_WAIT;
    }
    char after = chat_call_front(c)[i];
    return after != '\0' && strchr(",)]}:", after) != NULL ? STEP_ON : STEP_FAIL;
}

/* Reads text of a Python string. */
static enum step python_text(struct chat_call *c)
{
    static const char from[] = "ntr", to[] = "\n\t\r";
    const char *front = chat_call_front(c);
    size_t i = 0, n = chat_call_left(c) - utf8_incomplete_tail(front, chat_call_left(c));
    enum step end = STEP_FAIL;
    chat_call_reset(c, &c->value);
    while (i < n) {
        char ch = front[i];
        end = ch == c->quote ? ends_string(c, i) : STEP_FAIL;
        bool is_escape = ch == '\\';
        if (end != STEP_FAIL || (is_escape && i + 1 == n)) {
            break;
        }
        const char *found = is_escape && front[i + 1] != '\0' ? strchr(from, front[i + 1]) : NULL;
        buf_putc(&c->value, found != NULL ? to[found - from] : front[i + is_escape]);
        i += 1 + is_escape;
    }
    enum step step = buf_ok(&c->value) == ERR_OK ? STEP_ON : STEP_FAIL;
    step = step == STEP_ON ? chat_call_add_text(c, c->value.data, c->value.len) : step;
    c->at += i;
    if (step != STEP_ON || end != STEP_ON) {
        return step == STEP_ON ? chat_call_wait(c) : step;
    }
    c->at++;
    return STEP_ON;
}

enum step chat_call_word_text(struct chat_call *c)
{
    enum step step = c->is_quoted ? chat_call_text(c, gemma_quote, false) : python_text(c);
    step = step == STEP_ON ? chat_call_puts(c, "\"") : step;
    return step == STEP_ON ? chat_call_enter(c, PHASE_WORD_VALUE) : step;
}
