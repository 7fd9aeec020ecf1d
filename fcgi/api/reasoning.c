#include "fcgi/api/reasoning.h"

#include "engine/base/buf.h"
#include "fcgi/api/turn.h"

#include <string.h>

static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

const char *reasoning_effort_name(int i) { return i >= 0 && i < (int)ARRAY_LEN(efforts) ? efforts[i] : NULL; }

enum err reasoning_read_effort(const json_t *v, const char *where, const char **effort, struct err_info *info)
{
    bool is_known = v == NULL;
    for (size_t i = 0; i < ARRAY_LEN(efforts) && !is_known; i++) {
        is_known = json_read_is(v, efforts[i]);
        *effort = is_known ? efforts[i] : *effort;
    }
    return is_known ? ERR_OK
                    : turn_refuse(v, JSON_STRING, where, "one of none, minimal, low, medium, high, xhigh, max", info);
}

/* Adds the value unless the context has one; takes ownership of it. */
static enum err add_absent(json_t *context, const char *name, json_t *value)
{
    if (json_object_get(context, name) != NULL) {
        json_decref(value);
        return ERR_OK;
    }
    return json_object_set_new(context, name, value) == 0 ? ERR_OK : ERR_NOMEM;
}

enum err reasoning_add_effort(const char *effort, json_t *context)
{
    if (effort == NULL) {
        return ERR_OK;
    }
    TRY(add_absent(context, "reasoning_effort", json_string(effort)));
    return strcmp(effort, "none") == 0 ? add_absent(context, "enable_thinking", json_false()) : ERR_OK;
}

static bool has_switch(const json_t *context)
{
    return json_object_get(context, "enable_thinking") != NULL || json_object_get(context, "thinking") != NULL;
}

/* Sets the templates' switch as --reasoning says. On llama-server's own paths auto means on if the template has the
 * switch, as in llama-server. */
static enum err add_switch(const struct call *c, json_t *context)
{
    const char *reasoning = c->server->conf->reasoning;
    if (reasoning == NULL || strcmp(reasoning, "auto") == 0) {
        bool is_on = c->reply.dialect->thinks_if_possible && engine_chat_mentions(c->engine, "enable_thinking");
        return is_on ? add_absent(context, "enable_thinking", json_true()) : ERR_OK;
    }
    bool is_on = strcmp(reasoning, "on") == 0; /* sets both names, because templates use either */
    TRY(add_absent(context, "enable_thinking", json_boolean(is_on)));
    return add_absent(context, "thinking", json_boolean(is_on));
}

enum err reasoning_add_defaults(const struct call *c, json_t *context, struct err_info *info)
{
    const struct conf *conf = c->server->conf;
    const char *kwargs = conf->chat_template_kwargs, *effort = conf->reasoning_effort, *name;
    json_t *all = NULL, *value;
    enum err err = kwargs != NULL
                       ? json_read(kwargs, strlen(kwargs), JSON_IN_MAX_DEPTH, "chat-template-kwargs", &all, info)
                       : ERR_OK;
    json_object_foreach(all, name, value) { err = err != ERR_OK ? err : add_absent(context, name, json_incref(value)); }
    json_decref(all);
    if (err == ERR_OK && effort != NULL && strcmp(effort, "default") != 0) {
        bool is_none =
            strcmp(effort, "none") == 0 && json_object_get(context, "reasoning_effort") == NULL && !has_switch(context);
        err = add_absent(context, "reasoning_effort", json_string(effort));
        err = err == ERR_OK && is_none ? add_absent(context, "enable_thinking", json_false()) : err;
    }
    if (err == ERR_OK && !has_switch(context)) {
        err = add_switch(c, context);
    }
    return err;
}

enum err reasoning_check_kwargs(const char *text, const char *what, struct err_info *info)
{
    json_t *all = NULL;
    struct err_info why = {0};
    enum err err = json_read(text, strlen(text), JSON_IN_MAX_DEPTH, what, &all, &why);
    json_decref(all);
    return err == ERR_OK ? ERR_OK
                         : err_set(info, ERR_CONFIG, "chat-template-kwargs", "%s: expected an object in JSON: %.200s",
                                   what, why.text);
}

static size_t without_space(const char *text, size_t n)
{
    while (n > 0 && strchr(" \n\t", text[n - 1]) != NULL) {
        n--;
    }
    return n;
}

/* Compares the end of text with mark; ignores white space after both. */
static bool ends_with(const struct buf *text, const char *mark)
{
    size_t end = without_space(text->data, text->len), len = without_space(mark, strlen(mark));
    return end >= len && memcmp(text->data + end - len, mark, len) == 0;
}

enum err reasoning_look(const struct call *c, const json_t *context, struct params *p)
{
    enum { LAST = 16 };
    const struct engine *e = c->engine;
    const struct chat_format *format = engine_tool_format(e);
    struct buf text;
    size_t k = MIN_OF(p->n_prompt, (size_t)LAST);
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = engine_detokenize(e, p->prompt + (p->n_prompt - k), k, &text);
    if (err == ERR_OK && !p->continues) { /* otherwise the thinking is over, and the text there is the client's */
        /* the switches of Qwen's, GLM's, DeepSeek's and Granite's templates */
        bool is_set = json_is_false(json_object_get(context, "enable_thinking")) ||
                      json_is_false(json_object_get(context, "thinking"));
        /* In formats with channels the end mark ends any message. */
        bool is_over = format->body != CHAT_BODY_CHANNELS && ends_with(&text, format->think_end);
        bool is_known = engine_chat_mentions(e, format->think) || engine_chat_mentions(e, format->think_end);
        p->split.starts_in_reasoning = ends_with(&text, format->think);
        p->thinking = CHAT_THINKS_NOT;
        if (!is_set && !is_over && p->split.splits_reasoning && (p->split.starts_in_reasoning || is_known)) {
            p->thinking = p->split.starts_in_reasoning ? CHAT_IS_THINKING : CHAT_MAY_THINK;
        }
    }
    buf_fini(&text);
    return err;
}

/* Tokenizes the end of the thinking: the operator's or the request's words, without special tokens, and the format's
 * mark. */
static enum err tokenize_end(struct call *c, struct params *p, const char *words, struct err_info *info)
{
    int32_t *ids;
    struct buf text;
    struct span plain = {0, strlen(words)};
    buf_init(&text, 0, MEM_REQUEST);
    buf_puts(&text, words);
    buf_puts(&text, engine_tool_format(c->engine)->think_end);
    enum err err = buf_ok(&text);
    if (err == ERR_OK) {
        err = engine_tokenize(c->engine, text.data, text.len, false, true, &plain, plain.to > 0 ? 1 : 0, &c->arena,
                              &ids, &p->gen.n_think_end, info);
        p->gen.think_end = err == ERR_OK ? ids : NULL;
    }
    buf_fini(&text);
    return err;
}

enum err reasoning_set_budget(struct call *c, struct params *p, struct err_info *info)
{
    static const char in_kwargs[] = "chat_template_kwargs.thinking_budget";
    const struct conf *conf = c->server->conf;
    const json_t *own = json_read_get(p->kwargs, "thinking_budget");
    int64_t n = p->think_budget, own_n;
    if ((json_in_integer(own, &own_n) || json_number_is_beyond(own)) && n < 0) {
        n = json_number_is_beyond(own) ? INT64_MAX : own_n;
        if (n < -1 || n > INT32_MAX) {
            return json_in_refuse(ERR_INVALID_VALUE, in_kwargs, "-1 to 2147483647", own, info);
        }
    }
    n = n < 0 ? conf->reasoning_budget : n;
    if (n < 0) {
        return ERR_OK;
    }
    p->gen.think_tokens = (int32_t)n;
    p->gen.is_thinking = p->split.starts_in_reasoning;
    const char *words = p->think_words != NULL ? p->think_words : conf->reasoning_budget_message;
    return tokenize_end(c, p, words != NULL ? words : "", info);
}
