/* [llama.cpp tools/server/server-common.cpp; vLLM, "Chat API"; Anthropic, "Prefill Claude's response"] */
#include "fcgi/api/continuation.h"

#include <string.h>

static bool is_assistants(const json_t *messages, size_t i)
{
    return json_read_is(json_object_get(json_array_get(messages, i), "role"), "assistant");
}

static bool is_blank(const json_t *text)
{
    const char *s = json_string_value(text);
    return s == NULL || strspn(s, " \n\t\r") == json_string_length(text);
}

static enum err refuse(const char *what, struct err_info *info)
{
    return err_set(info, ERR_INVALID_VALUE, "messages", "messages: expected %s, because the answer continues it", what);
}

/* Checks whether the answer can continue the last of n messages. */
static enum err check_last(const json_t *messages, size_t n, struct err_info *info)
{
    const json_t *last = json_array_get(messages, n - 1);
    bool has_calls =
        json_array_size(json_object_get(last, "tool_calls")) > 0 || json_read_get(last, "function_call") != NULL;
    if (!is_assistants(messages, n - 1)) {
        return refuse("a last message of the assistant", info);
    }
    if (n > 1 && is_assistants(messages, n - 2)) {
        return refuse("one message of the assistant at the end, found two", info);
    }
    if (has_calls) {
        return refuse("a last message of the assistant without tool calls", info);
    }
    return is_blank(json_object_get(last, "content")) && !is_blank(json_read_get(last, "reasoning_content"))
               ? refuse("a last message of the assistant with content, found only thinking", info)
               : ERR_OK;
}

enum err continuation_read(struct call *c, struct params *p, struct err_info *info)
{
    static const char field[] = "continue_final_message";
    json_t *messages = p->messages;
    size_t n = json_array_size(messages);
    if (!p->has_continue) {
        p->continues = !p->has_begin && is_assistants(messages, n - 1) && !c->server->conf->no_prefill_assistant;
    }
    if (!p->continues) {
        return ERR_OK;
    }
    if (p->has_begin && p->add_generation_prompt) {
        return err_set(info, ERR_INVALID_VALUE, field,
                       "%s: expected false with \"add_generation_prompt\": true, found true", field);
    }
    TRY(check_last(messages, n, info));
    p->continues = !is_blank(json_object_get(json_array_get(messages, n - 1), "content"));
    p->add_generation_prompt = !p->continues;
    return !p->continues && n > 1 && json_array_remove(messages, n - 1) != 0 ? ERR_NOMEM : ERR_OK;
}
