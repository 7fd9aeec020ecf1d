/* Numbers are never reprinted: arguments are the model's bytes if it wrote JSON. Each phase consumes what is certain
 * from the front, so a body is scanned once, however it is cut. */
#include "engine/chat/chat_call.h"

#include "engine/base/json_read.h"
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_call_internal.h"

/* --- parts ------------------------------------------------------------------------------------------------------ */

static void give(struct chat_call *c, enum chat_part_kind kind, size_t i_call, const char *text, size_t n)
{
    c->sink(c->arg, &(struct chat_part){.kind = kind, .i_call = i_call, .text = text, .len = n});
}

/* A held part: this record, followed by its text. */
struct record {
    enum chat_part_kind kind;
    size_t i_call, len;
};

static void emit(struct chat_call *c, enum chat_part_kind kind, const char *text, size_t n)
{
    const struct record r = {kind, c->n_calls - 1, n};
    if (c->has_emitted && !c->is_kept) {
        give(c, kind, r.i_call, text, n);
        return;
    }
    buf_append(&c->pending, &r, sizeof r);
    buf_append(&c->pending, text, n);
}

static void give_pending(struct chat_call *c)
{
    for (size_t at = 0; buf_ok(&c->pending) == ERR_OK && at < c->pending.len;) {
        struct record r;
        memcpy(&r, c->pending.data + at, sizeof r);
        at += sizeof r;
        give(c, r.kind, r.i_call, c->pending.data + at, r.len);
        at += r.len;
    }
    c->pending.len = 0; /* a failure sticks */
    c->has_emitted = true;
    c->is_kept = false;
}

static bool is_known(const struct chat_call *c)
{
    return c->tools == NULL || chat_types_function(c->tools, c->name.data) != NULL;
}

void chat_call_settle(struct chat_call *c)
{
    if (c->has_emitted) {
        c->from = c->at;
    }
}

enum step chat_call_open(struct chat_call *c)
{
    if (buf_ok(&c->name) != ERR_OK || c->name.len == 0 || memchr(c->name.data, '\0', c->name.len) != NULL) {
        return STEP_FAIL;
    }
    bool may_tell = is_known(c);
    c->is_kept = c->has_emitted && !may_tell;
    c->is_open = c->has_called = true;
    c->scan = (struct json_scan){.depth = 0};
    c->n_calls++;
    emit(c, CHAT_CALL_BEGIN, c->name.data, c->name.len);
    if (may_tell) {
        give_pending(c);
    }
    return STEP_ON;
}

enum step chat_call_add(struct chat_call *c, const char *json, size_t n)
{
    struct json_scan scan = c->scan;
    if (json_scan_feed(&scan, json, n) < n) {
        return STEP_FAIL;
    }
    c->scan = scan;
    emit(c, CHAT_CALL_ARGUMENTS, json, n);
    if (scan.state == JSON_SCAN_WHOLE) {
        emit(c, CHAT_CALL_END, "", 0);
        if (c->is_kept) {
            give_pending(c);
        }
        c->is_open = false;
        chat_call_settle(c);
    }
    return STEP_ON;
}

enum step chat_call_puts(struct chat_call *c, const char *json) { return chat_call_add(c, json, strlen(json)); }

enum step chat_call_open_object(struct chat_call *c)
{
    enum step step = c->is_open ? STEP_ON : chat_call_open(c);
    return step == STEP_ON && c->scan.state == JSON_SCAN_NOTHING ? chat_call_puts(c, "{") : step;
}

static enum step add_piece(struct chat_call *c)
{
    enum step step = buf_ok(&c->piece) == ERR_OK ? chat_call_add(c, c->piece.data, c->piece.len) : STEP_FAIL;
    chat_call_reset(c, &c->piece);
    return step;
}

enum step chat_call_add_text(struct chat_call *c, const char *text, size_t n)
{
    if (n == 0) {
        return STEP_ON;
    }
    json_write_string(&c->piece, text, n);
    if (buf_ok(&c->piece) == ERR_OK) { /* without its quotes */
        memmove(c->piece.data, c->piece.data + 1, c->piece.len - 2);
        c->piece.len -= 2;
    }
    return add_piece(c);
}

enum step chat_call_add_key(struct chat_call *c, const char *key, size_t n)
{
    buf_puts(&c->piece, c->scan.state == JSON_SCAN_KEY ? "" : ",");
    json_write_string(&c->piece, n > 0 ? key : "", n);
    buf_putc(&c->piece, ':');
    return add_piece(c);
}

void chat_call_reset(struct chat_call *c, struct buf *b)
{
    c->err = c->err != ERR_OK ? c->err : buf_ok(b);
    buf_reset(b);
}

/* --- bytes ------------------------------------------------------------------------------------------------------ */

bool chat_call_skip(struct chat_call *c, const char *others)
{
    while (c->at < c->in.len && (chat_is_space(c->in.data[c->at]) ||
                                 (c->in.data[c->at] != '\0' && strchr(others, c->in.data[c->at]) != NULL))) {
        c->at++;
    }
    return c->at < c->in.len;
}

enum step chat_call_mark(struct chat_call *c, const char *mark)
{
    size_t n = strlen(mark), room = chat_call_left(c) < n ? chat_call_left(c) : n;
    if (memcmp(chat_call_front(c), mark, room) != 0) {
        return STEP_FAIL;
    }
    if (room < n) {
        return chat_call_wait(c);
    }
    c->at += n;
    return STEP_ON;
}

enum step chat_call_until(struct chat_call *c, const char *mark, struct buf *out)
{
    size_t n = chat_call_left(c) < CHAT_CALL_LONGEST ? chat_call_left(c) : CHAT_CALL_LONGEST;
    const char *front = chat_call_front(c), *found = memmem(front, n, mark, strlen(mark));
    if (found == NULL) {
        return n == CHAT_CALL_LONGEST ? STEP_FAIL : chat_call_wait(c);
    }
    chat_call_reset(c, out);
    buf_append(out, front, (size_t)(found - front));
    c->at += (size_t)(found - front) + strlen(mark);
    return buf_ok(out) == ERR_OK ? STEP_ON : STEP_FAIL;
}

size_t chat_partial_mark(const char *s, size_t n, const char *mark)
{
    for (size_t k = MIN_OF(n, strlen(mark) - 1); k > 0; k--) {
        if (memcmp(s + n - k, mark, k) == 0) {
            return k;
        }
    }
    return 0;
}

void chat_call_trim(struct buf *b)
{
    size_t front = 0;
    while (b->len > 0 && chat_is_space(b->data[b->len - 1])) {
        b->data[--b->len] = '\0';
    }
    while (front < b->len && chat_is_space(b->data[front])) {
        front++;
    }
    if (front > 0) {
        memmove(b->data, b->data + front, b->len - front + 1);
        b->len -= front;
    }
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

/* Reads what is between and after objects. */
static enum step before_object(struct chat_call *c)
{
    bool is_more = chat_call_skip(c, ",;");
    chat_call_settle(c);
    if (!is_more) {
        return STEP_WAIT;
    }
    if (*chat_call_front(c) == '{') {
        c->object = (struct json_scan){.depth = 0};
        c->has_called = false;
        chat_call_reset(c, &c->name);
        chat_call_reset(c, &c->value);
        chat_call_reset(c, &c->piece);
        return chat_call_enter(c, PHASE_OBJECT);
    }
    return c->n_calls > 0 ? chat_call_enter(c, PHASE_AFTER_CALLS) : STEP_FAIL;
}

/* Decodes a JSON string in place; returns false if it is not a string. */
static bool decode(struct chat_call *c, struct buf *b)
{
    struct err_info ignored = {0};
    json_t *v = NULL;
    enum err err = buf_ok(b);
    err = err != ERR_OK ? err : json_read_value(b->data != NULL ? b->data : "", b->len, 1, "a string", &v, &ignored);
    bool is_string = err == ERR_OK && json_is_string(v);
    if (is_string) {
        chat_call_reset(c, b);
        buf_append(b, json_string_value(v), json_string_length(v));
    }
    b->err = b->err != ERR_OK ? b->err : err == ERR_NOMEM ? err : ERR_OK;
    json_decref(v);
    return is_string;
}

static bool begins(const struct buf *b, const char *word)
{
    return b->len >= strlen(word) && memcmp(b->data, word, strlen(word)) == 0;
}

/* The object is complete and its call has not begun: arguments are missing, or came before the name, or are in a
 * string, as OpenAI's API writes them. */
static enum step whole_object(struct chat_call *c)
{
    bool has_none = c->value.len == 0 || begins(&c->value, "null");
    if (begins(&c->value, "\"") && !decode(c, &c->value)) {
        return STEP_FAIL;
    }
    struct json_scan scan = {.depth = 0};
    bool is_object = has_none || (json_scan_feed(&scan, c->value.data, c->value.len) == c->value.len &&
                                  scan.state == JSON_SCAN_WHOLE);
    if (!is_object || !decode(c, &c->name) || chat_call_open(c) != STEP_ON) {
        return STEP_FAIL;
    }
    return has_none ? chat_call_puts(c, "{}") : chat_call_add(c, c->value.data, c->value.len);
}

static bool is_in_string(enum json_scan_state state) { return state >= JSON_SCAN_STRING && state <= JSON_SCAN_LOW_U; }

/* Consumes a byte of a member's value. */
static enum step take_value(struct chat_call *c, char byte)
{
    if (c->member == MEMBER_NAME && !c->has_called) {
        buf_putc(&c->name, byte);
    } else if (c->member == MEMBER_ARGUMENTS) {
        if (!c->has_called && byte == '{' && c->value.len == 0 && c->name.len > 0 &&
            (!decode(c, &c->name) || chat_call_open(c) != STEP_ON)) {
            return STEP_FAIL;
        }
        if (!c->has_called || c->is_open) {
            buf_putc(c->is_open ? &c->piece : &c->value, byte);
        }
    }
    return STEP_ON;
}

/* Ends the key of an object with one member: the name. */
static void end_name(struct chat_call *c)
{
    bool is_first = c->name.len == 0 && !c->has_called;
    c->member = is_first ? MEMBER_ARGUMENTS : MEMBER_OTHER;
    if (is_first) {
        buf_append(&c->name, c->key.data, c->key.len);
    }
}

static void end_key(struct chat_call *c)
{
    if (c->format->body == CHAT_BODY_KEYED) {
        end_name(c);
        return;
    }
    bool is_name = strcmp(c->key.data, "\"name\"") == 0 || strcmp(c->key.data, "\"tool_name\"") == 0;
    bool is_arguments = strcmp(c->key.data, "\"arguments\"") == 0 || strcmp(c->key.data, "\"parameters\"") == 0;
    c->member = is_arguments ? MEMBER_ARGUMENTS : MEMBER_OTHER;
    c->member = is_name ? MEMBER_NAME : c->member;
    if (!c->has_called && c->member != MEMBER_OTHER) { /* of duplicates the last counts */
        chat_call_reset(c, is_name ? &c->name : &c->value);
    }
}

static enum step take_byte(struct chat_call *c, char byte)
{
    enum json_scan_state before = c->object.state;
    unsigned depth = c->object.depth;
    if (json_scan_feed(&c->object, &byte, 1) == 0) {
        return STEP_FAIL;
    }
    enum json_scan_state state = c->object.state;
    if (c->object.depth != 1) {
        return c->object.depth > 1 ? take_value(c, byte) : STEP_ON;
    }
    bool is_key = c->object.is_key && (is_in_string(state) || (is_in_string(before) && state == JSON_SCAN_COLON));
    if (is_key) {
        if (before == JSON_SCAN_KEY) {
            chat_call_reset(c, &c->key);
        }
        buf_putc(&c->key, byte);
        if (state == JSON_SCAN_COLON && buf_ok(&c->key) == ERR_OK) {
            end_key(c);
        }
        return STEP_ON;
    }
    bool is_value = is_in_string(state) || state >= JSON_SCAN_MINUS ||
                    (state == JSON_SCAN_AFTER && (before != JSON_SCAN_AFTER || depth > 1) && !chat_is_space(byte));
    enum step step = is_value ? take_value(c, byte) : STEP_ON;
    return step == STEP_ON && c->is_open && state == JSON_SCAN_AFTER ? add_piece(c) : step;
}

static enum step in_object(struct chat_call *c)
{
    enum step step = STEP_ON;
    while (c->at < c->in.len && step == STEP_ON && c->object.state != JSON_SCAN_WHOLE) {
        step = take_byte(c, c->in.data[c->at]);
        c->at += step == STEP_ON;
    }
    if (c->is_open && c->piece.len > 0) {
        step = add_piece(c) == STEP_ON ? step : STEP_FAIL;
    }
    if (c->has_called && !c->is_open) { /* other members are ignored */
        chat_call_settle(c);
    }
    if (step != STEP_ON || c->object.state != JSON_SCAN_WHOLE) {
        return step == STEP_ON ? STEP_WAIT : step;
    }
    return c->has_called || whole_object(c) == STEP_ON ? chat_call_enter(c, PHASE_ITEM) : STEP_FAIL;
}

/* Calls are complete: ignores surplus brackets, and the end of a list or a Markdown block. */
static enum step after_calls(struct chat_call *c)
{
    bool is_more = chat_call_skip(c, "]}`");
    chat_call_settle(c);
    return is_more ? STEP_FAIL : STEP_WAIT;
}

/* --- a name, and JSON -------------------------------------------------------------------------------------------- */

static void cut(struct buf *b, size_t from, size_t to)
{
    memmove(b->data, b->data + from, to - from);
    b->len = to - from;
    b->data[b->len] = '\0';
}

/* Does "functions." at `at` begin a name? It does in "to=functions.f" and "functions.f", but not in a tool's
 * "my.functions.f". */
static bool begins_name(const struct buf *name, const char *at)
{
    return at == name->data || strchr("= \n\t\r>", at[-1]) != NULL;
}

/* Strips what some formats add to a name: functions.NAME:0, NAME[CALL_ID]id. A tool's exact name stays. */
static void strip_name(const struct chat_call *c, struct buf *name)
{
    static const char prefix[] = "functions.", id[] = "[CALL_ID]";
    const char *found = memmem(name->data, name->len, id, sizeof id - 1);
    cut(name, 0, found != NULL ? (size_t)(found - name->data) : name->len);
    chat_call_trim(name);
    const char *front = memmem(name->data, name->len, prefix, sizeof prefix - 1);
    bool is_tool = c->tools != NULL && is_known(c);
    if (front != NULL && begins_name(name, front) && !is_tool) {
        cut(name, (size_t)(front - name->data) + sizeof prefix - 1, name->len);
        chat_call_trim(name);
    }
    cut(name, 0, strcspn(name->data, ": \n\t\r<")); /* a header continues after it */
}

/* Reads NAME separator {..}; DeepSeek R1: function separator NAME, and the object as a Markdown block. */
static enum step in_name(struct chat_call *c)
{
    bool is_fenced = c->phase == PHASE_FENCE;
    enum step step = chat_call_until(c, is_fenced ? "```json" : c->format->separator, &c->name);
    if (step != STEP_ON) {
        return step;
    }
    chat_call_trim(&c->name);
    if (!is_fenced && c->name.len == 8 && memcmp(c->name.data, "function", 8) == 0 &&
        c->format->body == CHAT_BODY_NAMED) {
        return chat_call_enter(c, PHASE_FENCE);
    }
    if (c->name.len > 0) {
        strip_name(c, &c->name);
    }
    return chat_call_enter(c, PHASE_ARGUMENTS);
}

static enum step in_arguments(struct chat_call *c)
{
    if (!c->is_open) {
        if (!chat_call_skip(c, "")) {
            return STEP_WAIT;
        }
        if (*chat_call_front(c) != '{' || chat_call_open(c) != STEP_ON) {
            return STEP_FAIL;
        }
    }
    struct json_scan scan = c->scan;
    size_t left = chat_call_left(c), n = json_scan_feed(&scan, chat_call_front(c), left);
    enum step step = n > 0 ? chat_call_add(c, chat_call_front(c), n) : STEP_ON;
    c->at += n;
    if (step == STEP_ON && !c->is_open) {
        chat_call_settle(c);
        return chat_call_enter(c, PHASE_AFTER_CALLS);
    }
    return n < left ? STEP_FAIL : STEP_WAIT;
}

/* --- bodies ------------------------------------------------------------------------------------------------------ */

static enum step begin_body(struct chat_call *c)
{
    static const enum phase phases[] = {
        [CHAT_BODY_NAMED] = PHASE_NAME,
        [CHAT_BODY_QUOTED] = PHASE_WORD_NAME,
        [CHAT_BODY_PYTHON] = PHASE_WORD_NAME,
        [CHAT_BODY_CHANNELS] = PHASE_NAME,
    };
    enum chat_body body = c->format->body;
    if (!chat_call_skip(c, "")) {
        return STEP_WAIT;
    }
    char first = *chat_call_front(c);
    if (first == '[' && body != CHAT_BODY_CHANNELS && body != CHAT_BODY_INVOKE) {
        c->is_list = true;
        c->at++;
        return chat_call_enter(c, body == CHAT_BODY_PYTHON ? PHASE_WORD_NAME : PHASE_ITEM);
    }
    if (first == '{' && body != CHAT_BODY_CHANNELS) {
        return chat_call_enter(c, PHASE_ITEM);
    }
    if (body == CHAT_BODY_TAGGED || body == CHAT_BODY_INVOKE) {
        return chat_call_begin_tags(c);
    }
    c->is_quoted = body == CHAT_BODY_QUOTED;
    return body == CHAT_BODY_KEYED || (phases[body] == PHASE_NAME && c->format->separator[0] == '\0')
               ? STEP_FAIL
               : chat_call_enter(c, phases[body]);
}

static enum step look(struct chat_call *c)
{
    static enum step (*const steps[N_PHASES])(struct chat_call *) = {
        [PHASE_BODY] = begin_body,
        [PHASE_AFTER_CALLS] = after_calls,
        [PHASE_ITEM] = before_object,
        [PHASE_OBJECT] = in_object,
        [PHASE_NAME] = in_name,
        [PHASE_FENCE] = in_name,
        [PHASE_ARGUMENTS] = in_arguments,
        [PHASE_TAG_NAME] = chat_call_tag_name,
        [PHASE_TAG_KEY] = chat_call_tag_key,
        [PHASE_TAG_VALUE] = chat_call_tag_value,
        [PHASE_TAG_TEXT] = chat_call_tag_text,
        [PHASE_WORD_NAME] = chat_call_word_name,
        [PHASE_WORD_KEY] = chat_call_word_key,
        [PHASE_WORD_VALUE] = chat_call_word_value,
        [PHASE_WORD_TEXT] = chat_call_word_text,
    };
    enum step step = STEP_ON;
    while (step == STEP_ON && chat_call_ok(c) == ERR_OK) {
        step = steps[c->phase](c);
    }
    return step;
}

/* Emitted parts of a call cannot be undone, so it ends with CHAT_CALL_CUT. */
static void break_off(struct chat_call *c)
{
    if (c->is_open && c->has_emitted && !c->is_kept) {
        emit(c, CHAT_CALL_CUT, "", 0);
        c->from = c->is_last ? c->in.len : c->at; /* the end of the body is not text */
    }
    c->is_open = false;
    c->is_broken = true;
}

bool chat_call_feed(struct chat_call *c, const char *text, size_t n, chat_part_sink *sink, void *arg)
{
    bool gives = c->has_emitted && c->is_open && !c->is_kept;
    size_t unwanted = gives ? c->at : c->from;
    if (unwanted > 0) {
        memmove(c->in.data, c->in.data + unwanted, c->in.len - unwanted + 1);
        c->in.len -= unwanted;
        c->at -= unwanted;
        c->from = 0;
    }
    c->sink = sink;
    c->arg = arg;
    buf_append(&c->in, text, n);
    if (look(c) == STEP_FAIL) {
        break_off(c);
    }
    return !c->is_broken;
}

bool chat_call_finish(struct chat_call *c, chat_part_sink *sink, void *arg)
{
    c->sink = sink;
    c->arg = arg;
    c->is_last = true;
    bool is_read = !c->is_broken && look(c) != STEP_FAIL && chat_call_left(c) == 0;
    bool may_end = c->phase == PHASE_AFTER_CALLS ||
                   ((c->phase == PHASE_ITEM || c->phase == PHASE_TAG_NAME || c->phase == PHASE_WORD_NAME) &&
                    !c->is_list && c->n_calls > 0);
    bool is_whole = is_read && may_end && !c->is_open && chat_call_ok(c) == ERR_OK;
    if (!is_whole) {
        break_off(c);
    } else if (!c->has_emitted) {
        give_pending(c);
    }
    return is_whole;
}

enum err chat_call_new(const struct chat_format *format, const json_t *tools, struct chat_call **out)
{
    struct chat_call *c = mem_zalloc(sizeof *c, MEM_REQUEST);
    *out = c;
    if (c == NULL) {
        return ERR_NOMEM;
    }
    c->format = format;
    c->tools = tools;
    for (size_t i = 0; i < ARRAY_LEN(c->bufs); i++) {
        buf_init(&c->bufs[i], 0, MEM_REQUEST);
    }
    return ERR_OK;
}

void chat_call_free(struct chat_call **c)
{
    for (size_t i = 0; *c != NULL && i < ARRAY_LEN((*c)->bufs); i++) {
        buf_fini(&(*c)->bufs[i]);
    }
    mem_free(*c);
    *c = NULL;
}

void chat_call_begin(struct chat_call *c, const char *front, size_t n)
{
    for (size_t i = 0; chat_call_ok(c) == ERR_OK && i < ARRAY_LEN(c->bufs); i++) { /* a failure sticks */
        buf_reset(&c->bufs[i]);
    }
    buf_append(&c->in, front, n);
    c->at = c->in.len;
    c->from = c->n_calls = 0;
    c->phase = PHASE_BODY;
    c->n_seen = 0;
    c->is_last = c->has_emitted = c->is_open = c->is_kept = c->is_list = c->is_broken = c->is_quoted = false;
}

bool chat_call_has_emitted(const struct chat_call *c) { return c->has_emitted; }

const char *chat_call_rest(const struct chat_call *c, size_t *n)
{
    *n = c->in.len - c->from;
    return c->in.data != NULL ? c->in.data + c->from : "";
}

enum err chat_call_ok(const struct chat_call *c)
{
    enum err err = c->err;
    for (size_t i = 0; i < ARRAY_LEN(c->bufs) && err == ERR_OK; i++) {
        err = buf_ok(&c->bufs[i]);
    }
    return err;
}
