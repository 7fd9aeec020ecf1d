/* A model's answer: the parts of it are the same however it is cut, and the arguments of calls are objects. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_parts.h"

#include <assert.h>
#include <string.h>

void chat_parts_fuzz(const unsigned char *data, size_t n);

/* Parts of one kind in a row are joined. */
struct joined {
    struct buf out;
    int last;
};

static void join(void *arg, const struct chat_part *part)
{
    struct joined *j = arg;
    struct err_info info = {0};
    json_t *object = NULL;
    if (part->kind == CHAT_CALL_ARGUMENTS) {
        assert(fuzz_is_ok(json_read(part->text, part->len, CHAT_SPLIT_DEPTH, "arguments", &object, &info), &info));
        json_decref(object);
    }
    if ((int)part->kind != j->last) {
        buf_putc(&j->out, (char)part->kind);
    }
    buf_append(&j->out, part->text, part->len);
    j->last = (int)part->kind;
}

static void split(const unsigned char *data, size_t n, size_t step, const struct chat_format *format, struct joined *j)
{
    const struct chat_split_config config = {.splits_reasoning = true, .reads_calls = true, .format = format};
    struct chat_split s;
    j->last = -1;
    buf_init(&j->out, 0, MEM_GENERAL);
    chat_split_init(&s, &config);
    for (size_t i = 0; i < n; i += step) {
        chat_split_feed(&s, (const char *)data + i, MIN_OF(step, n - i), join, j);
    }
    chat_split_finish(&s, join, j);
    assert(chat_split_ok(&s) == ERR_OK);
    chat_split_fini(&s);
}

void chat_parts_fuzz(const unsigned char *data, size_t n)
{
    struct joined whole, cut;
    const struct chat_format *format = NULL;
    if (n > 0 && data[0] < ' ') { /* a row of the table, else its first */
        format = chat_format_at(data[0]);
        data++;
        n--;
    }
    split(data, n, n + 1, format, &whole);
    split(data, n, 1 + n % 3, format, &cut);
    assert(whole.out.len == cut.out.len);
    assert(whole.out.len == 0 || memcmp(whole.out.data, cut.out.data, whole.out.len) == 0);
    buf_fini(&whole.out);
    buf_fini(&cut.out);
}
