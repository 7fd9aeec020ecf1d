/* All names of thinking get the same text, so any name that a template reads works. */
#include "fcgi/api/thoughts.h"

#include "engine/base/buf.h"
#include "engine/base/compiler.h"
#include "engine/base/json_read.h"
#include "fcgi/api/turn.h"

#include <string.h>

static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};

/* Returns the first nonempty thinking text of a message, or NULL. */
static json_t *thought_of(const json_t *message)
{
    json_t *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names) && found == NULL; i++) {
        json_t *v = json_object_get(message, names[i]);
        found = json_string_length(v) > 0 ? v : NULL;
    }
    return found;
}

enum err thoughts_fill(json_t *message)
{
    json_t *thought = json_incref(thought_of(message));
    bool ok = true;
    for (size_t i = 0; i < ARRAY_LEN(names) && thought != NULL; i++) {
        const json_t *v = json_read_get(message, names[i]);
        bool lacks = v == NULL || (json_is_string(v) && json_string_length(v) == 0);
        ok = ok && (!lacks || json_object_set(message, names[i], thought) == 0);
    }
    json_decref(thought);
    return ok ? ERR_OK : ERR_NOMEM;
}

/* Returns [thinking, text]; the text can be missing. */
static json_t *parts_of(const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    json_t *parts = json_pack("[{s:s,s:O}]", "type", "thinking", "thinking", thought_of(message));
    bool ok = parts != NULL;
    if (ok && json_string_length(content) > 0) {
        ok = json_array_append_new(parts, json_pack("{s:s,s:O}", "type", "text", "text", content)) == 0;
    }
    if (!ok) {
        json_decref(parts);
        parts = NULL;
    }
    return parts;
}

static enum err place_one(json_t *message, bool as_parts)
{
    json_t *parts = json_incref(json_object_get(message, THOUGHTS_PARTS));
    bool is_answer = json_read_is(json_object_get(message, "role"), "assistant"), ok = true;
    (void)json_object_del(message, THOUGHTS_PARTS);
    if (as_parts && parts == NULL && is_answer && thought_of(message) != NULL) {
        parts = parts_of(message);
        ok = parts != NULL;
    }
    ok = ok && (!as_parts || parts == NULL || json_object_set(message, "content", parts) == 0);
    json_decref(parts);
    return ok ? ERR_OK : ERR_NOMEM;
}

enum err thoughts_place(json_t *messages, bool as_parts, bool keeps_last)
{
    size_t n = json_array_size(messages);
    for (size_t i = 0; i < n; i++) {
        TRY(place_one(json_array_get(messages, i), as_parts && !(keeps_last && i + 1 == n)));
    }
    return ERR_OK;
}

/* --- templates that read parts -------------------------------------------------------------------------------------- */

/* The source without white space and with one kind of quotation mark, so that words are recognized by their
 * neighbors. */
struct packed {
    const char *text;
    size_t n;
};

static bool ends_with(struct packed p, const char *end)
{
    size_t n = strlen(end);
    return p.n >= n && memcmp(p.text + p.n - n, end, n) == 0;
}

/* Checks for a letter, digit, '_' or one of the others. */
static bool is_of(char c, const char *others)
{
    bool is_of_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    return is_of_word || (c != '\0' && strchr(others, c) != NULL);
}

/* Checks whether it ends with x.type, x['type'] or x.get('type'). */
static bool ends_in_type(struct packed p)
{
    return ends_with(p, ".type") || ends_with(p, "['type']") || ends_with(p, "get('type')");
}

/* Checks whether the text at `at`, 'thinking', is compared with a type. The other operand must end in a type: the text
 * before ==, before the list with this text, or after ==. An attribute of selectattr counts too. */
static bool is_compared(struct packed all, size_t at, size_t n_word)
{
    struct packed before = {all.text, at}, list = before, after = {all.text + at + n_word, 0};
    if (ends_with(before, "==")) {
        return ends_in_type((struct packed){before.text, before.n - 2});
    }
    if (at + n_word + 2 <= all.n && memcmp(after.text, "==", 2) == 0) {
        for (after.text += 2; after.text + after.n < all.text + all.n && is_of(after.text[after.n], ".'[]()");) {
            after.n++;
        }
        return ends_in_type(after);
    }
    while (list.n > 0 && is_of(list.text[list.n - 1], "',")) {
        list.n--;
    }
    bool is_list = ends_with(list, "in[") || ends_with(list, "in(");
    return (is_list && ends_in_type((struct packed){list.text, list.n - 3})) ||
           ends_with(before, "'type','equalto',") || ends_with(before, "'type','==',");
}

enum err thoughts_are_parts(const char *source, size_t n, bool *out)
{
    static const char word[] = "'thinking'";
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    for (size_t i = 0; i < n; i++) {
        if (strchr(" \t\r\n", source[i]) == NULL) {
            buf_putc(&text, source[i] == '"' ? '\'' : source[i]);
        }
    }
    enum err err = buf_ok(&text);
    struct packed all = {text.data, text.len};
    *out = false;
    for (size_t i = 0; err == ERR_OK && !*out && i + sizeof word - 1 <= all.n; i++) {
        *out = memcmp(all.text + i, word, sizeof word - 1) == 0 && is_compared(all, i, sizeof word - 1);
    }
    buf_fini(&text);
    return err;
}

/* --- templates that take one of them -------------------------------------------------------------------------------- */

static bool has_all(const json_t *message)
{
    return json_read_is(json_object_get(message, "role"), "assistant") &&
           json_string_length(json_object_get(message, "content")) > 0 && thought_of(message) != NULL &&
           json_array_size(json_object_get(message, "tool_calls")) > 0;
}

/* Returns a copy whose thinking ends with its content. */
static json_t *joined(json_t *message)
{
    struct buf text;
    const json_t *thought = thought_of(message), *content = json_object_get(message, "content");
    json_t *copy = json_copy(message);
    buf_init(&text, 0, MEM_REQUEST);
    buf_append(&text, json_string_value(thought), json_string_length(thought));
    buf_puts(&text, "\n\n");
    buf_append(&text, json_string_value(content), json_string_length(content));
    json_t *all = turn_text(&text);
    buf_fini(&text);
    bool ok = copy != NULL && all != NULL && json_object_set_new(copy, "content", json_string("")) == 0;
    for (size_t i = 0; i < ARRAY_LEN(names) && ok; i++) {
        ok = json_object_set(copy, names[i], all) == 0;
    }
    json_decref(all);
    if (!ok) {
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

enum err thoughts_join(const json_t *messages, json_t **out)
{
    bool is_any = false, ok = true;
    json_t *made = json_array();
    for (size_t i = 0; i < json_array_size(messages) && made != NULL && ok; i++) {
        json_t *message = json_array_get(messages, i);
        bool is_one = has_all(message);
        is_any = is_any || is_one;
        ok = json_array_append_new(made, is_one ? joined(message) : json_incref(message)) == 0;
    }
    ok = ok && made != NULL;
    *out = ok && is_any ? json_incref(made) : NULL;
    json_decref(made);
    return ok ? ERR_OK : ERR_NOMEM;
}
