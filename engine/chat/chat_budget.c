#include "engine/chat/chat_budget.h"

#include "engine/base/buf.h"
#include "engine/base/utf8.h"
#include "engine/chat/chat_parts.h"

#include <string.h>

size_t chat_budget_bytes(size_t n_end) { return sizeof(struct chat_budget) + n_end * sizeof(int32_t); }

void chat_budget_init(struct chat_budget *b, const struct chat_format *format, const struct tokenizer *tokenizer, int32_t n_tokens,
                      bool has_begun, const int32_t *end, size_t n_end)
{
    *b = (struct chat_budget){.tokenizer = tokenizer,
                              .format = format,
                              .state = has_begun ? CHAT_BUDGET_IN : CHAT_BUDGET_BEFORE,
                              .left = n_tokens,
                              .n_end = n_end};
    memcpy(b->end, end, n_end * sizeof *end);
}

static bool has_channels(const struct chat_budget *b) { return b->format->body == CHAT_BODY_CHANNELS; }

/* Bytes of the mark that ends the thinking; of channels what ends any message, as what begins the next comes behind it. */
static size_t end_length(const struct chat_budget *b)
{
    const char *mark = b->format->think_end;
    return has_channels(b) ? strcspn(mark, ">") + 1 : strlen(mark);
}

static void enter(struct chat_budget *b, int state)
{
    b->state = state;
    b->n_tail = b->n_mark = b->n_space = 0;
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

/* Thinking begins with its mark, perhaps behind white space; a message of channels may be one of thinking at any time. */
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

static void look_at(struct chat_budget *b, char c)
{
    if (b->state == CHAT_BUDGET_BEFORE) {
        look_for_begin(b, c);
    } else if (b->state == CHAT_BUDGET_IN) {
        push(b, c);
        if (tail_is(b, b->format->think_end, end_length(b))) {
            enter(b, has_channels(b) ? CHAT_BUDGET_BEFORE : CHAT_BUDGET_OVER);
        } else if (b->format->open[0] != '\0' && tail_is(b, b->format->open, strlen(b->format->open))) {
            enter(b, CHAT_BUDGET_OVER); /* marks that must come would break the call */
        }
    }
}

/* Has something begun that is to become whole? */
static bool is_within(const struct chat_budget *b)
{
    bool is = utf8_incomplete_tail(b->tail, b->n_tail) > 0;
    for (size_t n = 1; n < end_length(b) && !is; n++) {
        is = tail_is(b, b->format->think_end, n);
    }
    for (size_t n = 1; n < strlen(b->format->open) && !is; n++) {
        is = tail_is(b, b->format->open, n);
    }
    return is;
}

int32_t chat_budget_next(const struct chat_budget *b)
{
    bool is_spent = b->state == CHAT_BUDGET_IN && b->left <= 0 && (b->n_late == CHAT_BUDGET_LATE || !is_within(b));
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
