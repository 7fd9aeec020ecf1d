/* An explicit state machine: each state consumes what is certain from the front of `held` and returns whether to look
 * again. It holds back the beginning of a mark and the white space before it. */
#include "engine/chat/chat_parts.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_call.h"

#include <string.h>

/* Messages with a channel: marks of a header, its end, and the ends of a message. */
static const char channel_mark[] = "<|channel|>", start_mark[] = "<|start|>", message_mark[] = "<|message|>";

static size_t leading_space(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && chat_is_space(s[i])) {
        i++;
    }
    return i;
}

/* Returns the white space at the end of s[0..n) that can belong to the format. */
static size_t trailing_space(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && i < CHAT_SPLIT_SPACE && chat_is_space(s[n - 1 - i])) {
        i++;
    }
    return i;
}

static void drop(struct chat_split *s, size_t n)
{
    if (n > 0) {
        memmove(s->held.data, s->held.data + n, s->held.len - n + 1);
        s->held.len -= n;
    }
}

/* Emits the first n held bytes as a part. */
static void give(struct chat_split *s, enum chat_part_kind kind, size_t n)
{
    if (n > 0) {
        s->sink(s->arg, &(struct chat_part){.kind = kind, .text = s->held.data, .len = n});
        drop(s, n);
        s->drops_space = false;
    }
}

static bool go(struct chat_split *s, enum chat_split_state state)
{
    s->state = state;
    return true;
}

/* Marks that are searched together. */
struct marks {
    const char *at[ARRAY_LEN(((struct chat_format *)NULL)->around) + 2];
    size_t n;
};

static const struct marks message_ends = {{"<|end|>", "<|call|>", "<|return|>", channel_mark, start_mark}, 5};

/* Returns the offset of the first mark in s[0..n), which is number *found. If there is none, *found is the number of
 * marks, and a mark can begin at the offset. */
static size_t find_mark(const char *s, size_t n, const struct marks *marks, size_t *found)
{
    size_t first = n;
    *found = marks->n;
    for (size_t i = 0; i < marks->n; i++) {
        const char *at = memmem(s, n, marks->at[i], strlen(marks->at[i]));
        if (at != NULL && (*found == marks->n || (size_t)(at - s) < first)) {
            first = (size_t)(at - s);
            *found = i;
        }
    }
    for (size_t i = 0; i < marks->n && *found == marks->n; i++) {
        first = MIN_OF(first, n - chat_partial_mark(s, n, marks->at[i]));
    }
    return first;
}

/* Emits what is certain to precede the first mark. *found: the mark found, after *space bytes of white space at the
 * start of what is held; false: none. */
static bool give_before(struct chat_split *s, enum chat_part_kind kind, const struct marks *marks, size_t *found,
                        size_t *space)
{
    if (s->drops_space) {
        drop(s, leading_space(s->held.data, s->held.len));
    }
    size_t before = find_mark(s->held.data, s->held.len, marks, found);
    *space = trailing_space(s->held.data, before);
    if (before > *space) {
        s->has_text |= kind == CHAT_TEXT;
        give(s, kind, before - *space);
    }
    return *found < marks->n;
}

/* Thinking begins with its mark, possibly after white space. */
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
    return chat_partial_mark(text, n, think) == n ? false : go(s, CHAT_IN_TEXT);
}

/* Begins a body after `front` held bytes, which become text if it is not a call. */
static bool begin_call(struct chat_split *s, size_t front, size_t n_header, bool is_bare)
{
    s->is_thought = s->state == CHAT_IN_REASONING;
    s->n_front = front;
    if (s->calls == NULL) {
        s->err = chat_call_new(s->config.format, s->config.tools, &s->calls);
        if (s->err != ERR_OK) {
            return false;
        }
    }
    chat_call_begin(s->calls, s->held.data, front);
    drop(s, front);
    s->n_scanned = 0;
    s->n_header = n_header;
    s->i_first = s->i_call;
    s->is_bare = is_bare;
    s->is_broken = s->is_in_string = s->is_escaped = s->is_json = s->knows_body = false;
    return go(s, CHAT_IN_CALL);
}

/* Adds the marks around all calls. */
static void add_around(struct marks *marks, const struct chat_format *f)
{
    for (size_t i = 0; i < ARRAY_LEN(f->around) && f->around[i] != NULL; i++) {
        marks->at[marks->n++] = f->around[i];
    }
}

/* Does a call begin after held[0..*front), which ends with a mark around calls? STARTS_LATER: the next bytes decide. */
static enum starts { STARTS_NOT, STARTS_LATER, STARTS } starts_call(const struct chat_split *s, size_t *front)
{
    const char *open = s->config.format->open, *text = s->held.data + *front;
    size_t n = s->held.len - *front, space = leading_space(text, n), len = strlen(open), room = MIN_OF(n - space, len);
    if (space > CHAT_SPLIT_SPACE || memcmp(text + space, open, room) != 0) {
        return STARTS_NOT;
    }
    *front += space + len;
    return room == len ? STARTS : STARTS_LATER;
}

/* Thinking ends with its mark, or with a call that the model makes while it thinks. An apparent call remains thinking:
 * see resume. */
static bool in_reasoning(struct chat_split *s)
{
    const struct chat_format *f = s->config.format;
    struct marks marks = {{f->think_end, f->open}, 1};
    size_t found, space;
    if (s->config.reads_calls && f->open[0] != '\0' && s->n_no_calls < CHAT_SPLIT_NO_CALLS) {
        marks.n = 2;
        add_around(&marks, f);
    }
    if (!give_before(s, CHAT_REASONING, &marks, &found, &space)) {
        return false;
    }
    size_t front = space + strlen(marks.at[found]);
    if (found == 0) {
        drop(s, front);
        s->drops_space = true;
        return go(s, CHAT_IN_TEXT);
    }
    size_t n_mark = front;
    enum starts starts = found > 1 ? starts_call(s, &front) : STARTS;
    if (starts == STARTS_NOT) {
        s->n_no_calls++;
        give(s, CHAT_REASONING, n_mark);
        return true;
    }
    return starts == STARTS && begin_call(s, front, 0, false);
}

static bool in_text(struct chat_split *s)
{
    const struct chat_format *f = s->config.format;
    struct marks marks = {{f->open}, 1};
    size_t found, space;
    if (!s->config.reads_calls) {
        if (s->drops_space) {
            drop(s, leading_space(s->held.data, s->held.len));
        }
        give(s, CHAT_TEXT, s->held.len);
        return false;
    }
    size_t front = leading_space(s->held.data, s->held.len);
    if (f->bare != 0 && !s->has_text && s->i_call == 0 && front <= CHAT_SPLIT_SPACE) {
        if (front == s->held.len) {
            return false;
        }
        if (s->held.data[front] == f->bare) {
            return begin_call(s, front, 0, true);
        }
    }
    add_around(&marks, f);
    if (s->ends_late) {
        marks.at[marks.n++] = f->think_end;
    }
    if (!give_before(s, CHAT_TEXT, &marks, &found, &space)) {
        return false;
    }
    if (found > 0) { /* a mark around all calls, or the end of thinking that a call has already ended */
        s->ends_late = s->ends_late && found + 1 < marks.n;
        drop(s, space + strlen(marks.at[found]));
        s->drops_space = true;
        return true;
    }
    return begin_call(s, space + strlen(f->open), 0, false);
}

/* Looks at the next byte of a JSON body: marks do not count inside strings. */
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

/* Continues the search for the end mark. */
static bool find_call_end(struct chat_split *s, const char *mark)
{
    const size_t n = strlen(mark);
    for (; s->n_scanned < s->held.len; s->n_scanned++) {
        const char *at = s->held.data + s->n_scanned;
        if (!s->knows_body && !chat_is_space(*at)) {
            enum chat_body body = s->config.format->body;
            bool is_named = body == CHAT_BODY_NAMED; /* JSON follows the name */
            s->is_json = *at == '{' || (*at == '[' && (body == CHAT_BODY_TAGGED || body == CHAT_BODY_KEYED));
            s->knows_body = !is_named || s->is_json;
        }
        if (n > 0 && *at == mark[0] && !s->is_in_string) {
            size_t room = MIN_OF(s->held.len - s->n_scanned, n);
            if (memcmp(at, mark, room) == 0) {
                return room == n; /* else the rest of it can follow */
            }
        }
        if (s->is_json) {
            note_quote(s, *at);
        }
    }
    return false;
}

/* Emits a part of a body. */
static void count_part(void *arg, const struct chat_part *part)
{
    struct chat_split *s = arg;
    struct chat_part counted = *part;
    counted.i_call += s->i_first;
    s->i_call = counted.i_call + 1;
    s->sink(s->arg, &counted);
}

/* Returns the text that the body's reader did not emit, without the header, to be read again. */
static void take_back(struct chat_split *s)
{
    size_t n;
    const char *rest = chat_call_rest(s->calls, &n);
    struct buf all;
    buf_init(&all, 0, MEM_REQUEST);
    size_t n_skipped = chat_call_has_emitted(s->calls) ? 0 : MIN_OF(s->n_header, n);
    buf_append(&all, rest + n_skipped, n - n_skipped);
    buf_append(&all, s->held.data, s->held.len);
    buf_fini(&s->held);
    s->held = all;
    s->err = s->err != ERR_OK ? s->err : buf_ok(&s->held);
}

/* The call's mark was in thinking, and nothing of the call was emitted. */
static bool is_unsaid(const struct chat_split *s) { return s->is_thought && !chat_call_has_emitted(s->calls); }

/* Continues after a call that was cut off, or with text that was not a call: thinking if its mark was in thinking, else
 * text. */
static bool resume(struct chat_split *s)
{
    if (!is_unsaid(s)) {
        s->ends_late = s->ends_late || s->is_thought;
        s->has_text = true;
        return go(s, CHAT_IN_TEXT);
    }
    s->n_no_calls++;
    s->n_reasoning += s->n_undecided;
    s->n_undecided = 0;
    give(s, CHAT_REASONING, s->n_front); /* the limit is reached: no more calls are searched for */
    return go(s, CHAT_IN_REASONING);
}

/* Feeds the searched bytes; false: the body is broken, and the rest is not a call. */
static bool feed_call(struct chat_split *s)
{
    if (s->n_scanned == 0 || s->is_broken) {
        return true;
    }
    s->is_broken = !chat_call_feed(s->calls, s->held.data, s->n_scanned, count_part, s);
    s->err = s->err != ERR_OK ? s->err : chat_call_ok(s->calls);
    drop(s, s->n_scanned);
    s->n_scanned = 0;
    if (!s->is_broken || (!chat_call_has_emitted(s->calls) && !s->is_bare && !s->is_thought)) {
        return true; /* text with its end mark, which has yet to come */
    }
    take_back(s);
    s->drops_space = false;
    return false;
}

/* Ends the body. Returns false if it is text, which is then at the start of what is held. */
static bool end_call(struct chat_split *s)
{
    size_t n_rest;
    bool is_call = chat_call_finish(s->calls, count_part, s);
    chat_call_rest(s->calls, &n_rest);
    is_call = is_call || (chat_call_has_emitted(s->calls) && n_rest == 0);
    s->err = s->err != ERR_OK ? s->err : chat_call_ok(s->calls);
    if (!is_call) {
        take_back(s);
    }
    s->drops_space = is_call;
    return is_call;
}

static bool in_call(struct chat_split *s)
{
    const struct chat_format *f = s->config.format;
    const char *mark = s->is_bare ? "" : f->close[0] != '\0' ? f->close : f->open;
    bool is_end = find_call_end(s, mark);
    if (!feed_call(s)) {
        return resume(s);
    }
    if (!is_end) {
        return false;
    }
    size_t after = s->held.len - s->n_scanned - strlen(f->close); /* the next `open` stays */
    bool is_call = end_call(s);
    if (!is_call && is_unsaid(s)) {
        return resume(s);
    }
    if (is_call) {
        drop(s, s->held.len - after);
    } else {
        s->has_text = true;
        give(s, CHAT_TEXT, s->held.len - after);
    }
    s->ends_late = s->ends_late || s->is_thought;
    return go(s, CHAT_IN_TEXT);
}

/* --- messages with a channel ---------------------------------------------------------------------------------------- */

static bool begins_with(const char *text, size_t n, const char *mark)
{
    return n >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0;
}

/* Returns the state for a message with this header. */
static enum chat_split_state state_of(const struct chat_split *s, const char *header, size_t n)
{
    static const char recipient[] = "to=functions.", thinking[] = "analysis";
    if (s->config.reads_calls && memmem(header, n, recipient, sizeof recipient - 1) != NULL) {
        return CHAT_IN_CALL;
    }
    bool is_thinking = s->config.splits_reasoning && memmem(header, n, thinking, sizeof thinking - 1) != NULL;
    return is_thinking ? CHAT_IN_REASONING : CHAT_IN_TEXT;
}

/* A header precedes each message; an answer without one is text. */
static bool before_message(struct chat_split *s)
{
    static const char *const begins[] = {channel_mark, start_mark, " to=", "to="};
    bool may_be = false;
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        if (begins_with(s->held.data, s->held.len, begins[i])) {
            return go(s, CHAT_IN_HEADER);
        }
        may_be = may_be || chat_partial_mark(s->held.data, s->held.len, begins[i]) == s->held.len;
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
    if (state == CHAT_IN_CALL) { /* its header contains the name, and marks that end nothing */
        bool goes_on = begin_call(s, 0, body, false);
        s->n_scanned = body;
        return goes_on;
    }
    drop(s, body);
    return go(s, state);
}

/* Ends the message at the mark, which is first in what is held. */
static bool end_message(struct chat_split *s, const char *mark)
{
    /* else the mark belongs to the next header */
    drop(s, mark != channel_mark && mark != start_mark ? strlen(mark) : 0);
    s->drops_space = false;
    return go(s, CHAT_AT_START);
}

static bool in_message_call(struct chat_split *s)
{
    size_t found;
    s->n_scanned += find_mark(s->held.data + s->n_scanned, s->held.len - s->n_scanned, &message_ends, &found);
    const char *mark = found < message_ends.n ? message_ends.at[found] : NULL; /* NULL: not found yet */
    if (!feed_call(s)) {
        return resume(s);
    }
    if (mark == NULL) {
        return false;
    }
    size_t after = s->held.len - s->n_scanned;
    if (!end_call(s)) {
        s->has_text = true;
        give(s, CHAT_TEXT, s->held.len - after);
    }
    return end_message(s, mark);
}

static bool in_message(struct chat_split *s)
{
    size_t found, space;
    enum chat_part_kind kind = s->state == CHAT_IN_REASONING ? CHAT_REASONING : CHAT_TEXT;
    if (!give_before(s, kind, &message_ends, &found, &space)) {
        return false;
    }
    give(s, kind, space);
    return end_message(s, message_ends.at[found]);
}

/* Steps by the state; the second row is for messages with a channel. */
static bool (*const steps[2][CHAT_SPLIT_STATES])(struct chat_split *) = {
    {[CHAT_AT_START] = at_start,
     [CHAT_IN_REASONING] = in_reasoning,
     [CHAT_IN_TEXT] = in_text,
     [CHAT_IN_CALL] = in_call},
    {[CHAT_AT_START] = before_message,
     [CHAT_IN_REASONING] = in_message,
     [CHAT_IN_TEXT] = in_message,
     [CHAT_IN_CALL] = in_message_call,
     [CHAT_IN_HEADER] = in_header},
};

void chat_split_init(struct chat_split *s, const struct chat_split_config *config)
{
    bool thinks = config->splits_reasoning && config->starts_in_reasoning;
    *s = (struct chat_split){
        .config = *config, .state = thinks ? CHAT_IN_REASONING : CHAT_AT_START, .drops_space = thinks};
    s->config.format = config->format != NULL ? config->format : chat_format_at(0);
    buf_init(&s->held, 0, MEM_REQUEST);
}

void chat_split_fini(struct chat_split *s)
{
    chat_call_free(&s->calls);
    buf_fini(&s->held);
}

static void run(struct chat_split *s)
{
    bool has_channels = s->config.format->body == CHAT_BODY_CHANNELS;
    while (s->err == ERR_OK && s->held.len > 0 && steps[has_channels][s->state](s)) {
    }
}

void chat_split_feed(struct chat_split *s, const char *text, size_t n, chat_part_sink *sink, void *arg)
{
    s->sink = sink;
    s->arg = arg;
    buf_append(&s->held, text, n);
    s->err = s->err != ERR_OK ? s->err : s->held.err;
    run(s);
}

void chat_split_finish(struct chat_split *s, chat_part_sink *sink, void *arg)
{
    s->sink = sink;
    s->arg = arg;
    if (s->err != ERR_OK) {
        return;
    }
    bool is_call = s->state == CHAT_IN_CALL && end_call(s);
    while (s->state == CHAT_IN_CALL && !is_call && is_unsaid(s) && s->err == ERR_OK) {
        resume(s);
        run(s); /* the end of thinking can be in the held text */
        is_call = s->state == CHAT_IN_CALL && end_call(s);
    }
    bool is_space_only = s->drops_space && leading_space(s->held.data, s->held.len) == s->held.len;
    bool is_half = s->config.is_forced && s->state != CHAT_IN_REASONING;
    if (is_call || is_space_only || is_half || s->state == CHAT_IN_HEADER) {
        drop(s, s->held.len);
    } else {
        give(s, s->state == CHAT_IN_REASONING ? CHAT_REASONING : CHAT_TEXT, s->held.len);
    }
}

bool chat_split_is_reasoning(const struct chat_split *s)
{
    return s->state == CHAT_IN_REASONING || (s->state == CHAT_IN_CALL && is_unsaid(s));
}

bool chat_split_is_undecided(const struct chat_split *s)
{
    bool is_in = s->state == CHAT_IN_REASONING;
    return is_in ? leading_space(s->held.data, s->held.len) < s->held.len : chat_split_is_reasoning(s);
}

void chat_split_count_token(struct chat_split *s)
{
    bool is_thought = s->state == CHAT_IN_REASONING;
    s->n_reasoning += is_thought;
    s->n_undecided = !is_thought && chat_split_is_reasoning(s) ? s->n_undecided + 1 : 0;
}

size_t chat_split_reasoning_tokens(const struct chat_split *s) { return s->n_reasoning + s->n_undecided; }

enum err chat_split_ok(const struct chat_split *s) { return s->err; }
