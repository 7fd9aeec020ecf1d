#include "engine/chat/chat_budget.h"

#include "engine/base/buf.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/chat/chat_parts.h"

#include <string.h>

size_t chat_budget_bytes(size_t n_end) { return sizeof(struct chat_budget) + n_end * sizeof(int32_t); }

void chat_budget_init(struct chat_budget *b, const struct chat_budget_config *config)
{
    *b = (struct chat_budget){.tokenizer = config->tokenizer,
                              .format = config->format,
                              .state = config->has_begun ? CHAT_BUDGET_IN : CHAT_BUDGET_BEFORE,
                              .left = config->n_tokens,
                              .reads_calls = config->reads_calls,
                              .n_end = config->n_end};
    memcpy(b->end, config->end, config->n_end * sizeof *b->end);
}

void chat_budget_fini(struct chat_budget *b)
{
    if (b->calls != NULL) {
        chat_split_fini(b->calls);
        mem_free(b->calls);
        b->calls = NULL;
    }
}

static bool has_channels(const struct chat_budget *b) { return b->format->body == CHAT_BODY_CHANNELS; }

/* Returns the bytes of the mark that ends the thinking; with channels the mark that ends any message, because the next
 * message's marks follow it. */
static size_t end_length(const struct chat_budget *b)
{
    const char *mark = b->format->think_end;
    return has_channels(b) ? strcspn(mark, ">") + 1 : strlen(mark);
}

static void enter(struct chat_budget *b, int state)
{
    b->state = state;
    b->n_tail = b->n_mark = b->n_space = 0;
    chat_budget_fini(b);
}

static bool tail_is(const struct chat_budget *b, const char *mark, size_t n)
{
    return b->n_tail >= n && memcmp(b->tail + b->n_tail - n, mark, n) == 0;
}

static void push(struct chat_budget *b, char c)
{
    if (b->n_tail == CHAT_BUDGET_TAIL) {
        memmove(b->tail, b->tail + 1, --b->n_tail);
    }
    b->tail[b->n_tail++] = c;
}

/* Thinking begins with its mark, possibly after white space; a channel message of thinking can come at any time. */
static void look_for_begin(struct chat_budget *b, char c)
{
    const char *mark = b->format->think;
    if (has_channels(b)) {
        push(b, c);
        if (tail_is(b, mark, strlen(mark))) {
            enter(b, CHAT_BUDGET_IN);
        }
    } else if (b->n_mark == 0 && b->n_space < CHAT_SPLIT_SPACE && c != '\0' && strchr(" \n\t\r", c) != NULL) {
        b->n_space++;
    } else if (c != mark[b->n_mark]) {
        enter(b, CHAT_BUDGET_OVER);
    } else if (mark[++b->n_mark] == '\0') {
        enter(b, CHAT_BUDGET_IN);
    }
}

static void ignore_part(void *arg, const struct chat_part *part)
{
    (void)arg;
    (void)part;
}

/* Continues the thinking with text[0..n). If memory is out, calls no longer end it. */
static void read_calls(struct chat_budget *b, const char *text, size_t n)
{
    if (b->calls == NULL && (b->calls = mem_zalloc(sizeof *b->calls, MEM_REQUEST)) != NULL) {
        chat_split_init(b->calls, &(struct chat_split_config){.splits_reasoning = true,
                                                              .starts_in_reasoning = true,
                                                              .reads_calls = true,
                                                              .format = b->format});
    }
    if (b->calls != NULL) {
        chat_split_feed(b->calls, text, n, ignore_part, NULL);
    }
    if (b->calls == NULL || chat_split_ok(b->calls) != ERR_OK) {
        b->reads_calls = false;
        chat_budget_fini(b);
    } else if (!chat_split_is_reasoning(b->calls)) {
        enter(b, CHAT_BUDGET_OVER); /* forced tokens would break the call */
    }
}

/* Returns the i-th mark that can begin a call; NULL after the last. */
static const char *call_mark(const struct chat_budget *b, size_t i)
{
    const struct chat_format *f = b->format;
    if (!b->reads_calls || f->open[0] == '\0' || i > ARRAY_LEN(f->around)) {
        return NULL;
    }
    return i == 0 ? f->open : f->around[i - 1];
}

static void look_at(struct chat_budget *b, char c)
{
    if (b->state == CHAT_BUDGET_BEFORE) {
        look_for_begin(b, c);
    } else if (b->state == CHAT_BUDGET_IN) {
        push(b, c);
        if (b->calls != NULL) {
            read_calls(b, &c, 1);
            return;
        }
        if (tail_is(b, b->format->think_end, end_length(b))) {
            enter(b, has_channels(b) ? CHAT_BUDGET_BEFORE : CHAT_BUDGET_OVER);
            return;
        }
        const char *mark;
        for (size_t i = 0; (mark = call_mark(b, i)) != NULL; i++) {
            if (tail_is(b, mark, strlen(mark))) {
                read_calls(b, mark, strlen(mark));
                return;
            }
        }
    }
}

static bool is_call(const struct chat_budget *b) { return b->calls != NULL && chat_split_is_undecided(b->calls); }

/* Has something begun that must be completed? */
static bool is_within(const struct chat_budget *b)
{
    bool is = utf8_incomplete_tail(b->tail, b->n_tail) > 0 || is_call(b);
    for (size_t n = 1; n < end_length(b) && !is; n++) {
        is = tail_is(b, b->format->think_end, n);
    }
    const char *mark;
    for (size_t i = 0; (mark = call_mark(b, i)) != NULL; i++) {
        for (size_t n = 1; n < strlen(mark) && !is; n++) {
            is = tail_is(b, mark, n);
        }
    }
    return is;
}

int32_t chat_budget_next(const struct chat_budget *b)
{
    int32_t most = is_call(b) ? CHAT_BUDGET_LATE_CALL : CHAT_BUDGET_LATE;
    bool is_spent = b->state == CHAT_BUDGET_IN && b->left <= 0 && (b->n_late >= most || !is_within(b));
    return b->i_end > 0 || is_spent ? b->end[b->i_end] : TOKENIZER_NO_TOKEN;
}

void chat_budget_take(struct chat_budget *b, int32_t id)
{
    struct buf text;
    int32_t must = chat_budget_next(b);
    bool was_in = b->state == CHAT_BUDGET_IN;
    if (b->state == CHAT_BUDGET_OVER) {
        return;
    }
    if (must != TOKENIZER_NO_TOKEN) {
        if (id == must && ++b->i_end < b->n_end) {
            return;
        }
        b->i_end = 0;
        enter(b, id == must && has_channels(b) ? CHAT_BUDGET_BEFORE : CHAT_BUDGET_OVER);
        return;
    }
    buf_init(&text, 0, MEM_REQUEST);
    tokenizer_piece(b->tokenizer, id, true, &text);
    for (size_t i = 0; i < text.len; i++) {
        look_at(b, text.data[i]);
    }
    buf_fini(&text);
    if (was_in) {
        b->n_late += b->left <= 0;
        b->left -= b->left > 0;
    }
}
