/* An explicit state machine: each state takes what it is sure of from the front of `held` and says whether another
 * look may bring more. What is held back is the beginning of a mark and the white space before it, or one call. */
#include "engine/chat/chat_parts.h"

#include "engine/base/mem.h"
#include "engine/chat/chat_call.h"

#include <string.h>

static const char think[] = "<think>", think_end[] = "</think>";
static const char call_mark[] = "<tool_call>", call_end[] = "</tool_call>";

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

/* Thinking begins with its mark, perhaps behind white space. */
static bool at_start(struct chat_split *s)
{
    size_t space = leading_space(s->held.data, s->held.len), n = s->held.len - space;
    const char *text = s->held.data + space;
    if (space > CHAT_SPLIT_SPACE || !s->config.splits_reasoning) {
        return go(s, CHAT_IN_TEXT);
    }
    if (n >= sizeof think - 1 && memcmp(text, think, sizeof think - 1) == 0) {
        drop(s, space + sizeof think - 1);
        s->drops_space = true;
        return go(s, CHAT_IN_REASONING);
    }
    return partial_mark(text, n, think) == n ? false : go(s, CHAT_IN_TEXT);
}

/* Gives what is sure to stand before the mark. True: the mark has come, behind *space bytes of white space in front of
 * what is held. */
static bool give_before(struct chat_split *s, enum chat_part_kind kind, const char *mark, size_t *space,
                        const struct output *o)
{
    if (s->drops_space) {
        drop(s, leading_space(s->held.data, s->held.len));
    }
    const char *found = memmem(s->held.data, s->held.len, mark, strlen(mark));
    size_t before =
        found != NULL ? (size_t)(found - s->held.data) : s->held.len - partial_mark(s->held.data, s->held.len, mark);
    *space = trailing_space(s->held.data, before);
    give(s, kind, before - *space, o);
    return found != NULL;
}

static bool in_reasoning(struct chat_split *s, const struct output *o)
{
    size_t space;
    if (!give_before(s, CHAT_REASONING, think_end, &space, o)) {
        return false;
    }
    drop(s, space + sizeof think_end - 1);
    s->drops_space = true;
    return go(s, CHAT_IN_TEXT);
}

static bool in_text(struct chat_split *s, const struct output *o)
{
    size_t space;
    if (!s->config.reads_calls) {
        if (s->drops_space) {
            drop(s, leading_space(s->held.data, s->held.len));
        }
        give(s, CHAT_TEXT, s->held.len, o);
        return false;
    }
    if (!give_before(s, CHAT_TEXT, call_mark, &space, o)) {
        return false;
    }
    s->body = s->n_scanned = space + sizeof call_mark - 1;
    s->is_in_string = s->is_escaped = s->is_json = s->knows_body = false;
    return go(s, CHAT_IN_CALL);
}

/* Gives the call whose body ends at `end`; false: it is none. */
static bool give_call(struct chat_split *s, size_t end, const struct output *o)
{
    struct buf name, arguments;
    buf_init(&name, 0, MEM_REQUEST);
    buf_init(&arguments, 0, MEM_REQUEST);
    bool is_call = chat_call_read(s->held.data + s->body, end - s->body, s->config.tools, &name, &arguments);
    if (is_call) {
        struct chat_part part = {CHAT_CALL_BEGIN, s->i_call++, name.data, name.len};
        o->sink(o->arg, &part);
        part = (struct chat_part){CHAT_CALL_ARGUMENTS, part.i_call, arguments.data, arguments.len};
        o->sink(o->arg, &part);
        part = (struct chat_part){CHAT_CALL_END, part.i_call, "", 0};
        o->sink(o->arg, &part);
        s->drops_space = true;
    }
    s->err = s->err != ERR_OK ? s->err : name.err != ERR_OK ? name.err : arguments.err;
    buf_fini(&name);
    buf_fini(&arguments);
    return is_call;
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
static bool find_call_end(struct chat_split *s)
{
    const size_t n = sizeof call_end - 1;
    for (; s->n_scanned < s->held.len; s->n_scanned++) {
        const char *at = s->held.data + s->n_scanned;
        if (!s->knows_body && !is_space(*at)) {
            s->is_json = *at == '{';
            s->knows_body = true;
        }
        if (*at == '<' && !s->is_in_string) {
            size_t room = MIN_OF(s->held.len - s->n_scanned, n);
            if (memcmp(at, call_end, room) == 0) {
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
    if (!find_call_end(s)) {
        return false;
    }
    size_t end = s->n_scanned, behind = end + sizeof call_end - 1;
    if (give_call(s, end, o)) {
        drop(s, behind);
    } else {
        give(s, CHAT_TEXT, behind, o);
    }
    return go(s, CHAT_IN_TEXT);
}

static bool step(struct chat_split *s, const struct output *o)
{
    switch (s->state) {
    case CHAT_AT_START:
        return at_start(s);
    case CHAT_IN_REASONING:
        return in_reasoning(s, o);
    case CHAT_IN_TEXT:
        return in_text(s, o);
    case CHAT_IN_CALL:
        return in_call(s, o);
    }
    return false;
}

void chat_split_init(struct chat_split *s, const struct chat_split_config *config)
{
    bool thinks = config->splits_reasoning && config->starts_in_reasoning;
    *s = (struct chat_split){
        .config = *config, .state = thinks ? CHAT_IN_REASONING : CHAT_AT_START, .drops_space = thinks};
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
    bool is_call = s->state == CHAT_IN_CALL && !s->is_in_string && give_call(s, s->held.len, &o);
    bool is_space_only = s->drops_space && leading_space(s->held.data, s->held.len) == s->held.len;
    if (is_call || is_space_only) {
        drop(s, s->held.len);
    } else {
        give(s, s->state == CHAT_IN_REASONING ? CHAT_REASONING : CHAT_TEXT, s->held.len, &o);
    }
}

bool chat_split_is_reasoning(const struct chat_split *s) { return s->state == CHAT_IN_REASONING; }

enum err chat_split_ok(const struct chat_split *s) { return s->err; }
