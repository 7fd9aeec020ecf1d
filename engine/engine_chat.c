/* Converts a conversation to token ids: renders the template and tokenizes its text so that user text never yields a
 * special token. */
#include "engine/engine_internal.h"

#include "engine/base/clock.h"
#include "engine/base/task.h"

#include <string.h>

json_t *engine_chat_context(const struct engine *e, json_t *messages, bool adds_generation_prompt)
{
    const struct engine_model_info *m = engine_model(e);
    return json_pack("{s:O,s:b,s:s,s:s}", "messages", messages, "add_generation_prompt", (int)adds_generation_prompt,
                     "bos_token", m->bos_text, "eos_token", m->eos_text);
}

const struct chat_format *engine_tool_format(const struct engine *e) { return e->tool_format; }

bool engine_chat_mentions(const struct engine *e, const char *word)
{
    size_t n = 0;
    const char *source = e->chat != NULL ? chat_template_source(e->chat, &n) : NULL;
    return source != NULL && memmem(source, n, word, strlen(word)) != NULL;
}

enum err engine_chat_template(const struct engine *e, struct buf *out)
{
    size_t n = 0;
    const char *source = e->chat != NULL ? chat_template_source(e->chat, &n) : NULL;
    if (source != NULL) {
        buf_append(out, source, n);
    }
    return buf_ok(out);
}

/* Gives messages without content an empty one, and appends these messages to `filled`. */
static enum err fill_contents(json_t *messages, json_t *filled)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        if (json_is_null(json_object_get(message, "content")) &&
            (json_array_append(filled, message) != 0 ||
             json_object_set_new(message, "content", json_string("")) != 0)) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}

/* Undoes fill_contents, so that another attempt begins with the conversation as it was sent. */
static enum err empty_contents(const json_t *filled)
{
    for (size_t i = 0; i < json_array_size(filled); i++) {
        if (json_object_set_new(json_array_get(filled, i), "content", json_null()) != 0) {
            return ERR_NOMEM;
        }
    }
    return ERR_OK;
}

static size_t count_none(const struct chat_output *o)
{
    static const char none[] = "None";
    size_t n = 0, len = sizeof none - 1;
    for (const char *p = o->text; (p = memmem(p, o->len - (size_t)(p - o->text), none, len)) != NULL; p += len) {
        n++;
    }
    return n;
}

/* Renders with empty contents, and uses that text if it has fewer than n_none words None. ERR_TEMPLATE: the first
 * attempt counts; info has the error to report of both. Other errors, and info, are this attempt's. */
static enum err render_filled(const struct chat_template *t, const json_t *context, int64_t now, size_t n_none,
                              struct chat_output *out, struct err_info *info)
{
    struct chat_output other = {0};
    struct err_info second = {0};
    enum err err = chat_template_render(t, context, now, &other, &second);
    if (err == ERR_OK && count_none(&other) < n_none) {
        struct chat_output first = *out;
        *out = other;
        other = first;
    } else if (err == ERR_OK) {
        err = ERR_TEMPLATE;
    } else if (err != ERR_TEMPLATE) {
        *info = second;
    } else if (n_none == SIZE_MAX) {
        chat_template_keep_error(info, &second);
    }
    chat_output_fini(&other);
    return err;
}

/* An assistant's message with only calls has null for its content. Some templates expect that; others fail because they
 * add strings to it, or print Python's None: for these it becomes empty. Only a template's own failure justifies
 * another attempt. On failure out can be partly filled. */
static enum err render(const struct chat_template *t, const json_t *context, struct chat_output *out,
                       struct err_info *info)
{
    int64_t now = clock_unix_seconds();
    enum err err = chat_template_render(t, context, now, out, info);
    size_t n_none = err == ERR_OK ? count_none(out) : SIZE_MAX;
    if (n_none == 0 || (err != ERR_OK && err != ERR_TEMPLATE)) {
        return err;
    }
    json_t *filled = json_array();
    enum err other = filled != NULL ? fill_contents(json_object_get(context, "messages"), filled) : ERR_NOMEM;
    bool any = json_array_size(filled) > 0;
    other = other == ERR_OK && any ? render_filled(t, context, now, n_none, out, info) : other;
    if (any && other != ERR_OK && empty_contents(filled) != ERR_OK) {
        other = ERR_NOMEM;
    }
    json_decref(filled);
    bool counts = other == ERR_OK ? any : other != ERR_TEMPLATE; /* use the other attempt, not the first */
    return counts ? other : err;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* Is all of o->text[from..to) user text? */
static bool is_users(const struct chat_output *o, size_t from, size_t to)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_user; i++) {
        size_t begin = MAX_OF(o->user[i].from, from), end = MIN_OF(o->user[i].to, to);
        n += end > begin ? end - begin : 0;
    }
    return n == to - from;
}

/* Finds the last occurrence of s[0..n), n >= 1, in user text. Returns false if there is none, or the search takes too
 * long. */
static bool find_last(const struct chat_output *o, const char *s, size_t n, size_t *at)
{
    size_t work = 0, most = (size_t)1 << 26;
    for (size_t i = o->len >= n ? o->len - n + 1 : 0; i-- > 0 && work < most;) {
        bool may_be = o->text[i] == s[0] && o->text[i + n - 1] == s[n - 1];
        work += may_be ? n : 1;
        if (may_be && memcmp(o->text + i, s, n) == 0) {
            work += o->n_user;
            if (is_users(o, i, i + n)) {
                *at = i;
                return true;
            }
        }
    }
    return false;
}

/* Cuts the template's text after the last message's content; the template can have dropped white space around that. */
static enum err cut_after_last(const json_t *messages, struct chat_output *o, struct err_info *info)
{
    const json_t *content = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    const char *s = json_is_string(content) ? json_string_value(content) : "";
    size_t n = json_string_length(content), n_after = 0, at;
    for (; n > 0 && is_space(s[0]); n--) {
        s++;
    }
    for (; n > 0 && is_space(s[n - 1]); n--) {
        n_after++;
    }
    if (n == 0 || !find_last(o, s, n, &at)) {
        return err_set(
            info, ERR_INVALID_VALUE, "messages",
            "messages: expected a last message whose content the chat template prints unchanged, so that the answer can continue it");
    }
    size_t end = at + n, whole = end + n_after;
    o->len = whole <= o->len && memcmp(o->text + at, s, n + n_after) == 0 && is_users(o, at, whole) ? whole : end;
    o->text[o->len] = '\0';
    while (o->n_user > 0 && o->user[o->n_user - 1].from >= o->len) {
        o->n_user--;
    }
    if (o->n_user > 0) {
        o->user[o->n_user - 1].to = MIN_OF(o->user[o->n_user - 1].to, o->len);
    }
    return ERR_OK;
}

enum err engine_chat(const struct engine *e, json_t *context, struct arena *arena, int32_t **ids, size_t *n_ids,
                     struct err_info *info)
{
    struct chat_output text = {0};
    *ids = NULL;
    *n_ids = 0;
    if (e->chat == NULL) {
        *info = e->chat_failed;
        return info->code;
    }
    task_note("template");
    *info = (struct err_info){0};
    enum err err = render(e->chat, context, &text, info);
    if (err == ERR_OK && json_is_true(json_object_get(context, "continue_final_message"))) {
        err = cut_after_last(json_object_get(context, "messages"), &text, info);
    }
    if (err == ERR_OK) {
        bool has_bos = chat_output_has_bos(&text, engine_model(e)->bos_text);
        err = engine_tokenize(e, text.text, text.len, !has_bos, true, text.user, text.n_user, arena, ids, n_ids, info);
    }
    if (err == ERR_NOMEM && info->code != err) {
        err_set(info, err, NULL, "out of memory to render and tokenize the conversation");
    }
    chat_output_fini(&text);
    return err;
}
