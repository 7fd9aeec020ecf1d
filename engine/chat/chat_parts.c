/* An explicit state machine: each state takes what it is sure of from the front of `held` and says whether another
 * look may bring more. What is held back is the beginning of a mark and the white space before it, or one call. */
#include "engine/chat/chat_parts.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_call.h"

#include <string.h>

/* Messages with a channel: marks of a header, what ends it, and what ends a message. */
static const char channel_mark[] = "<|channel|>", start_mark[] = "<|start|>", message_mark[] = "<|message|>";
static const char *const message_ends[] = {"<|end|>", "<|call|>", "<|return|>", channel_mark, start_mark};

struct output {
    chat_part_sink *sink;
    void *arg;
};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static size_t leading_space(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(s[i])) {
        i++;
    }
    return i;
}

/* White space at the end of s[0..n), of which so much can be the format's. */
static size_t trailing_space(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && i < CHAT_SPLIT_SPACE && is_space(s[n - 1 - i])) {
        i++;
    }
    return i;
}

/* Bytes at the end of s[0..n) that may be the beginning of the mark. */
static size_t partial_mark(const char *s, size_t n, const char *mark)
{
    for (size_t k = MIN_OF(n, strlen(mark) - 1); k > 0; k--) {
        if (memcmp(s + n - k, mark, k) == 0) {
            return k;
        }
    }
    return 0;
}

static void drop(struct chat_split *s, size_t n)
{
    if (n > 0) {
        memmove(s->held.data, s->held.data + n, s->held.len - n + 1);
        s->held.len -= n;
    }
}

/* Gives the first n bytes held as a part. */
static void give(struct chat_split *s, enum chat_part_kind kind, size_t n, const struct output *o)
{
    if (n > 0) {
        o->sink(o->arg, &(struct chat_part){.kind = kind, .text = s->held.data, .len = n});
        drop(s, n);
        s->drops_space = false;
    }
}

static bool go(struct chat_split *s, enum chat_split_state state)
{
    s->state = state;
    return true;
}

/* Marks that are looked for together. */
struct marks {
    const char *at[ARRAY_LEN(((struct chat_format *)NULL)->around) + 2];
    size_t n;
};

/* Gives what is sure to stand before the first of the marks. *found: which has come, behind *space bytes of white space in
 * front of what is held; false: none has. */
static bool give_before(struct chat_split *s, enum chat_part_kind kind, const struct marks *marks, size_t *found,
                        size_t *space, const struct output *o)
{
    if (s->drops_space) {
        drop(s, leading_space(s->held.data, s->held.len));
    }
    size_t before = s->held.len;
    bool is_there = false;
    for (size_t i = 0; i < marks->n; i++) {
        const char *at = memmem(s->held.data, s->held.len, marks->at[i], strlen(marks->at[i]));
        if (at != NULL && (!is_there || (size_t)(at - s->held.data) < before)) {
            before = (size_t)(at - s->held.data);
            *found = i;
            is_there = true;
        }
    }
    for (size_t i = 0; i < marks->n && !is_there; i++) {
        before = MIN_OF(before, s->held.len - partial_mark(s->held.data, s->held.len, marks->at[i]));
    }
    *space = trailing_space(s->held.data, before);
    if (before > *space) {
        s->has_text |= kind == CHAT_TEXT;
        give(s, kind, before - *space, o);
    }
    return is_there;
}

/* Thinking begins with its mark, perhaps behind white space. */
static bool at_start(struct chat_split *s)
{
    const char *think = s->config.format->think;
    size_t space = leading_space(s->held.data, s->held.len), n = s->held.len - space, len = strlen(think);
    const char *text = s->held.data + space;
    if (space > CHAT_SPLIT_SPACE || !s->config.splits_reasoning) {
        return go(s, CHAT_IN_TEXT);
    }
    if (n >= len && memcmp(text, think, len) == 0) {
        drop(s, space + len);
        s->drops_space = true;
        return go(s, CHAT_IN_REASONING);
    }
    return partial_mark(text, n, think) == n ? false : go(s, CHAT_IN_TEXT);
}

static bool in_reasoning(struct chat_split *s, const struct output *o)
{
    const struct marks end = {{s->config.format->think_end}, 1};
    size_t found, space;
    if (!give_before(s, CHAT_REASONING, &end, &found, &space, o)) {
        return false;
    }
    drop(s, space + strlen(end.at[0]));
    s->drops_space = true;
    return go(s, CHAT_IN_TEXT);
}

static bool begin_call(struct chat_split *s, size_t body, bool is_bare)
{
    s->body = s->n_scanned = body;
    s->is_bare = is_bare;
    s->is_in_string = s->is_escaped = s->is_json = s->knows_body = false;
    return go(s, CHAT_IN_CALL);
}

static bool in_text(struct chat_split *s, const struct output *o)
{
    const struct chat_format *f = s->config.format;
    struct marks marks = {{f->open}, 1};
    size_t found, space;
    if (!s->config.reads_calls) {
        if (s->drops_space) {
            drop(s, leading_space(s->held.data, s->held.len));
        }
        give(s, CHAT_TEXT, s->held.len, o);
        return false;
    }
    size_t front = leading_space(s->held.data, s->held.len);
    if (f->bare != 0 && !s->has_text && s->i_call == 0 && front <= CHAT_SPLIT_SPACE) {
        if (front == s->held.len) {
            return false;
        }
        if (s->held.data[front] == f->bare) {
            return begin_call(s, front, true);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(f->around) && f->around[i] != NULL; i++) {
        marks.at[marks.n++] = f->around[i];
    }
    if (!give_before(s, CHAT_TEXT, &marks, &found, &space, o)) {
        return false;
    }
    if (found > 0) { /* around all calls */
        drop(s, space + strlen(marks.at[found]));
        s->drops_space = true;
        return true;
    }
    return begin_call(s, space + strlen(f->open), false);
}

/* Gives the calls whose body ends at `end`; false: there are none. */
static bool give_calls(struct chat_split *s, size_t end, const struct output *o)
{
    struct buf calls;
    buf_init(&calls, 0, MEM_REQUEST);
    size_t n = chat_calls_read(s->config.format, s->held.data + s->body, end - s->body, s->config.tools, &calls);
    const char *name = calls.data;
    for (size_t i = 0; i < n; i++) {
        const char *arguments = name + strlen(name) + 1;
        struct chat_part part = {CHAT_CALL_BEGIN, s->i_call++, name, strlen(name)};
        o->sink(o->arg, &part);
        part = (struct chat_part){CHAT_CALL_ARGUMENTS, part.i_call, arguments, strlen(arguments)};
        o->sink(o->arg, &part);
        part = (struct chat_part){CHAT_CALL_END, part.i_call, "", 0};
        o->sink(o->arg, &part);
        s->drops_space = true;
        name = arguments + strlen(arguments) + 1;
    }
    s->err = s->err != ERR_OK ? s->err : buf_ok(&calls);
    buf_fini(&calls);
    return n > 0;
}

/* Looks at the next byte of a JSON body: inside a string no mark counts. */
static void note_quote(struct chat_split *s, char c)
{
    if (s->is_escaped) {
        s->is_escaped = false;
    } else if (s->is_in_string && c == '\\') {
        s->is_escaped = true;
    } else if (c == '"') {
        s->is_in_string = !s->is_in_string;
    }
}

/* Looks for the end mark from where the last look ended. */
static bool find_call_end(struct chat_split *s, const char *mark)
{
    const size_t n = strlen(mark);
    for (; s->n_scanned < s->held.len; s->n_scanned++) {
        const char *at = s->held.data + s->n_scanned;
        if (!s->knows_body && !is_space(*at)) {
            bool is_named = s->config.format->body == CHAT_BODY_NAMED; /* JSON comes behind the name */
            s->is_json = *at == '{' || (*at == '[' && s->config.format->body == CHAT_BODY_TAGGED);
            s->knows_body = !is_named || s->is_json;
        }
        if (n > 0 && *at == mark[0] && !s->is_in_string) {
            size_t room = MIN_OF(s->held.len - s->n_scanned, n);
            if (memcmp(at, mark, room) == 0) {
                return room == n; /* else: the rest of it may come */
            }
        }
        if (s->is_json) {
            note_quote(s, *at);
        }
    }
    return false;
}

static bool in_call(struct chat_split *s, const struct output *o)
{
    const struct chat_format *f = s->config.format;
    const char *mark = s->is_bare ? "" : f->close[0] != '\0' ? f->close : f->open;
    if (!find_call_end(s, mark)) {
        return false;
    }
    size_t end = s->n_scanned, behind = end + strlen(f->close); /* the next `open` stays */
    if (give_calls(s, end, o)) {
        drop(s, behind);
    } else {
        s->has_text = true;
        give(s, CHAT_TEXT, behind, o);
    }
    return go(s, CHAT_IN_TEXT);
}

/* --- messages with a channel ---------------------------------------------------------------------------------------- */

static bool begins_with(const char *text, size_t n, const char *mark)
{
    return n >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0;
}

/* What a header says of its message. */
static enum chat_split_state state_of(const struct chat_split *s, const char *header, size_t n)
{
    static const char recipient[] = "to=functions.", thinking[] = "analysis";
    if (s->config.reads_calls && memmem(header, n, recipient, sizeof recipient - 1) != NULL) {
        return CHAT_IN_CALL;
    }
    bool is_thinking = s->config.splits_reasoning && memmem(header, n, thinking, sizeof thinking - 1) != NULL;
    return is_thinking ? CHAT_IN_REASONING : CHAT_IN_TEXT;
}

/* A header stands in front of each message; an answer without one is text. */
static bool before_message(struct chat_split *s)
{
    static const char *const begins[] = {channel_mark, start_mark, " to=", "to="};
    bool may_be = false;
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        if (begins_with(s->held.data, s->held.len, begins[i])) {
            return go(s, CHAT_IN_HEADER);
        }
        may_be = may_be || partial_mark(s->held.data, s->held.len, begins[i]) == s->held.len;
    }
    return may_be ? false : go(s, CHAT_IN_TEXT);
}

static bool in_header(struct chat_split *s)
{
    enum { LONGEST = 512 };
    const char *found = memmem(s->held.data, s->held.len, message_mark, sizeof message_mark - 1);
    if (found == NULL) {
        return s->held.len > LONGEST ? go(s, CHAT_IN_TEXT) : false;
    }
    size_t n = (size_t)(found - s->held.data), body = n + sizeof message_mark - 1;
    enum chat_split_state state = state_of(s, s->held.data, n);
    if (state == CHAT_IN_CALL) { /* its header has the name */
        s->body = 0;
        s->n_scanned = body;
    } else {
        drop(s, body);
    }
    return go(s, state);
}

static bool in_message(struct chat_split *s, const struct output *o)
{
    struct marks marks = {{NULL}, 0};
    size_t found, space, skipped = s->state == CHAT_IN_CALL ? s->n_scanned : 0;
    for (size_t i = 0; i < ARRAY_LEN(message_ends); i++) {
        marks.at[marks.n++] = message_ends[i];
    }
    if (s->state == CHAT_IN_CALL) {
        size_t end = SIZE_MAX;
        for (size_t i = 0; i < marks.n; i++) {
            const char *at = memmem(s->held.data + skipped, s->held.len - skipped, marks.at[i], strlen(marks.at[i]));
            if (at != NULL && (size_t)(at - s->held.data) < end) {
                end = (size_t)(at - s->held.data);
                found = i;
            }
        }
        if (end == SIZE_MAX) {
            return false;
        }
        if (!give_calls(s, end, o)) {
            drop(s, skipped);
            give(s, CHAT_TEXT, end - skipped, o);
        } else {
            drop(s, end);
        }
    } else {
        enum chat_part_kind kind = s->state == CHAT_IN_REASONING ? CHAT_REASONING : CHAT_TEXT;
        if (!give_before(s, kind, &marks, &found, &space, o)) {
            return false;
        }
        give(s, kind, space, o);
    }
    bool is_end = marks.at[found] != channel_mark && marks.at[found] != start_mark; /* else: of the next header */
    drop(s, is_end ? strlen(marks.at[found]) : 0);
    s->drops_space = false;
    return go(s, CHAT_AT_START);
}

static bool step_channels(struct chat_split *s, const struct output *o)
{
    return s->state == CHAT_AT_START ? before_message(s) : s->state == CHAT_IN_HEADER ? in_header(s) : in_message(s, o);
}

static bool step(struct chat_split *s, const struct output *o)
{
    if (s->config.format->body == CHAT_BODY_CHANNELS) {
        return step_channels(s, o);
    }
    switch (s->state) {
    case CHAT_AT_START:
        return at_start(s);
    case CHAT_IN_REASONING:
        return in_reasoning(s, o);
    case CHAT_IN_TEXT:
        return in_text(s, o);
    case CHAT_IN_CALL:
        return in_call(s, o);
    case CHAT_IN_HEADER:
        break;
    }
    return false;
}

void chat_split_init(struct chat_split *s, const struct chat_split_config *config)
{
    bool thinks = config->splits_reasoning && config->starts_in_reasoning;
    *s = (struct chat_split){
        .config = *config, .state = thinks ? CHAT_IN_REASONING : CHAT_AT_START, .drops_space = thinks};
    s->config.format = config->format != NULL ? config->format : chat_format_at(0);
    buf_init(&s->held, 0, MEM_REQUEST);
}

void chat_split_fini(struct chat_split *s) { buf_fini(&s->held); }

void chat_split_feed(struct chat_split *s, const char *text, size_t n, chat_part_sink *sink, void *arg)
{
    const struct output o = {sink, arg};
    buf_append(&s->held, text, n);
    s->err = s->err != ERR_OK ? s->err : s->held.err;
    while (s->err == ERR_OK && s->held.len > 0 && step(s, &o)) {
    }
}

void chat_split_finish(struct chat_split *s, chat_part_sink *sink, void *arg)
{
    const struct output o = {sink, arg};
    if (s->err != ERR_OK) {
        return;
    }
    bool has_channels = s->config.format->body == CHAT_BODY_CHANNELS;
    bool is_call = s->state == CHAT_IN_CALL && !s->is_in_string && give_calls(s, s->held.len, &o);
    bool is_space_only = s->drops_space && leading_space(s->held.data, s->held.len) == s->held.len;
    if (has_channels && s->state == CHAT_IN_CALL && !is_call) {
        drop(s, s->n_scanned); /* the header is no text */
    }
    if (is_call || is_space_only || s->state == CHAT_IN_HEADER) {
        drop(s, s->held.len);
    } else {
        give(s, s->state == CHAT_IN_REASONING ? CHAT_REASONING : CHAT_TEXT, s->held.len, &o);
    }
}

bool chat_split_is_reasoning(const struct chat_split *s) { return s->state == CHAT_IN_REASONING; }

enum err chat_split_ok(const struct chat_split *s) { return s->err; }
