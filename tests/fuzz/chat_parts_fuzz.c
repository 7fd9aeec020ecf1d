/* A model's answer: the parts of it are the same however it is cut, and the arguments of calls are objects, or the
 * beginnings of some where they break off. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/json_scan.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_parts.h"

#include <assert.h>
#include <string.h>

void chat_parts_fuzz(const unsigned char *data, size_t n);

/* Parts of one kind in a row are joined. */
struct joined {
    struct buf out, arguments;
    struct json_scan scan;
    size_t n_begun;
    int last;
};

/* jansson takes what was said to be whole, but for numbers that it has no room for and U+0000 in keys. */
static void check_whole(const struct joined *j)
{
    json_error_t error;
    json_t *object = json_loadb(j->arguments.data, j->arguments.len, JSON_ALLOW_NUL, &error);
    assert(json_is_object(object) || json_error_code(&error) == json_error_numeric_overflow ||
           json_error_code(&error) == json_error_null_byte_in_key);
    json_decref(object);
}

static void check_call(struct joined *j, const struct chat_part *part)
{
    bool is_open = j->last == CHAT_CALL_BEGIN || j->last == CHAT_CALL_ARGUMENTS;
    switch (part->kind) {
    case CHAT_CALL_BEGIN:
        assert(!is_open && part->i_call == j->n_begun++);
        j->scan = (struct json_scan){.depth = 0};
        buf_reset(&j->arguments);
        break;
    case CHAT_CALL_ARGUMENTS:
        assert(is_open && part->i_call + 1 == j->n_begun);
        assert(json_scan_feed(&j->scan, part->text, part->len) == part->len);
        buf_append(&j->arguments, part->text, part->len);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
        assert(is_open && (j->scan.state == JSON_SCAN_WHOLE) == (part->kind == CHAT_CALL_END));
        if (part->kind == CHAT_CALL_END) {
            check_whole(j);
        }
        break;
    default:
        assert(!is_open);
    }
}

static void join(void *arg, const struct chat_part *part)
{
    struct joined *j = arg;
    check_call(j, part);
    if ((int)part->kind != j->last || part->kind == CHAT_CALL_BEGIN) {
        buf_putc(&j->out, (char)part->kind);
    }
    buf_append(&j->out, part->text, part->len);
    j->last = (int)part->kind;
}

static void split(const unsigned char *data, size_t n, size_t step, const struct chat_split_config *config,
                  struct joined *j)
{
    struct chat_split s;
    *j = (struct joined){.last = -1};
    buf_init(&j->out, 0, MEM_GENERAL);
    buf_init(&j->arguments, 0, MEM_GENERAL);
    chat_split_init(&s, config);
    for (size_t i = 0; i < n; i += step) {
        chat_split_feed(&s, (const char *)data + i, MIN_OF(step, n - i), join, j);
    }
    chat_split_finish(&s, join, j);
    assert(chat_split_ok(&s) == ERR_OK);
    assert(j->last != CHAT_CALL_BEGIN && j->last != CHAT_CALL_ARGUMENTS);
    chat_split_fini(&s);
    buf_fini(&j->arguments);
}

void chat_parts_fuzz(const unsigned char *data, size_t n)
{
    enum { HAS_TOOLS = 32 };
    struct chat_split_config config = {.splits_reasoning = true, .reads_calls = true};
    struct joined whole, cut;
    json_t *tools = json_pack("[{s:{s:s,s:{s:{s:{s:s}}}}}]", "function", "name", "f", "parameters", "properties", "s",
                              "type", "string");
    if (n > 0 && data[0] < 2 * HAS_TOOLS) { /* a row of the table, else its first; and whether names are known */
        config.format = chat_format_at(data[0] % HAS_TOOLS);
        config.tools = data[0] >= HAS_TOOLS ? tools : NULL;
        data++;
        n--;
    }
    split(data, n, n + 1, &config, &whole);
    split(data, n, 1 + n % 3, &config, &cut);
    assert(whole.out.len == cut.out.len);
    assert(whole.out.len == 0 || memcmp(whole.out.data, cut.out.data, whole.out.len) == 0);
    buf_fini(&whole.out);
    buf_fini(&cut.out);
    json_decref(tools);
}
