/* Texts are joined with an empty line between them. */
#include "fcgi/api/messages_fold.h"

#include "engine/base/buf.h"
#include "engine/base/json_read.h"
#include "fcgi/api/turn.h"

static bool is_role(const json_t *messages, size_t i, const char *role)
{
    return json_read_is(json_object_get(json_array_get(messages, i), "role"), role);
}

/* Appends a content's text; of parts their texts, thinking included. */
static void append_content(struct buf *text, const json_t *content)
{
    buf_append(text, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *own = json_object_get(part, "text");
        own = own != NULL ? own : json_object_get(part, "thinking");
        buf_append(text, json_string_value(own), json_string_length(own));
    }
}

/* Appends one message of `role` with the texts of messages [from, to) and the other members of the first message of
 * that role. */
static enum err append_joined(const json_t *messages, size_t from, size_t to, const char *role, json_t *out)
{
    json_t *first = NULL, *joined;
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    for (size_t i = from; i < to; i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        first = first == NULL && is_role(messages, i, role) ? json_array_get(messages, i) : first;
        buf_puts(&text, i > from ? "\n\n" : "");
        append_content(&text, content);
    }
    joined = first != NULL ? json_copy(first) : json_pack("{s:s}", "role", role);
    enum err err = turn_append(out, joined);
    err = err != ERR_OK ? err : turn_put(joined, "content", turn_text(&text));
    buf_fini(&text);
    return err;
}

/* Returns the end of the run of messages from i that become one: a user's, system messages, and a user's message
 * directly after those. */
static size_t run_end(const json_t *messages, size_t i)
{
    bool was_system = is_role(messages, i, "system");
    if (!was_system && !is_role(messages, i, "user")) {
        return i + 1;
    }
    for (i++; is_role(messages, i, "system") || (was_system && is_role(messages, i, "user")); i++) {
        was_system = is_role(messages, i, "system");
    }
    return i;
}

static enum err fold(const json_t *messages, bool no_system, json_t *out, bool *is_folded)
{
    size_t n_leading = 0;
    while (!no_system && is_role(messages, n_leading, "system")) {
        n_leading++;
    }
    for (size_t i = 0; i < json_array_size(messages);) {
        size_t end = i < n_leading ? n_leading : run_end(messages, i);
        const char *role = i < n_leading ? "system" : "user";
        if (end == i + 1 && (i < n_leading || !is_role(messages, i, "system"))) {
            TRY(json_array_append(out, json_array_get(messages, i)) == 0 ? ERR_OK : ERR_NOMEM);
        } else {
            TRY(append_joined(messages, i, end, role, out));
            *is_folded = true;
        }
        i = end;
    }
    return ERR_OK;
}

enum err messages_fold(const json_t *messages, bool no_system, json_t **out)
{
    bool is_folded = false;
    json_t *made = json_array();
    enum err err = made != NULL ? fold(messages, no_system, made, &is_folded) : ERR_NOMEM;
    *out = err == ERR_OK && is_folded ? json_incref(made) : NULL;
    json_decref(made);
    return err;
}
