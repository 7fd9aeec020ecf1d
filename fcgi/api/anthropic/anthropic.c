/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API, on top of the chat endpoint's code. */
#include "fcgi/api/anthropic/anthropic.h"

#include "fcgi/api/anthropic/anthropic_input.h"
#include "fcgi/api/anthropic/anthropic_output.h"

/* Replaces the body by a chat and renders it. */
static enum err prepare(struct call *c, bool is_answered, struct params *p, bool *shows_tools, int32_t **ids, size_t *n,
                        struct err_info *info)
{
    json_t *chat;
    TRY(call_read_json(c, info));
    TRY(anthropic_to_chat(c->json, &chat, info));
    enum err err = is_answered ? anthropic_add_answer(c->json, chat, info) : ERR_OK;
    call_drop_json(c);
    c->json = chat;
    c->reply.name_place = anthropic_name_place;
    return err != ERR_OK ? err : chat_prepare(c, p, shows_tools, ids, n, info);
}

/* Agents recognize by these words that they must shorten the conversation. */
static enum err check_length(const struct call *c, const struct params *p, const int32_t *ids, size_t n,
                             struct err_info *info)
{
    enum err err = engine_check_submit(c->engine, ids, n, &p->gen, info);
    int n_ctx = engine_model(c->engine)->n_ctx;
    return err == ERR_CONTEXT_LENGTH ? err_set(info, err, NULL, "prompt is too long: %zu tokens > %d maximum", n, n_ctx)
                                     : err;
}

void api_anthropic_messages(struct call *c)
{
    struct anthropic_answer answer = {0};
    struct err_info info = {0};
    struct params p = {0};
    bool shows_tools = false;
    int32_t *ids = NULL;
    size_t n = 0;
    enum err err = prepare(c, true, &p, &shows_tools, &ids, &n, &info);
    err = err != ERR_OK ? err : check_length(c, &p, ids, n, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        chat_answer(c, &p, shows_tools, ids, n, anthropic_shape(), &answer);
    }
}

void api_anthropic_count(struct call *c)
{
    struct err_info info = {0};
    struct params p = {0};
    struct buf out;
    bool shows_tools;
    int32_t *ids;
    size_t n = 0;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = prepare(c, false, &p, &shows_tools, &ids, &n, &info);
    buf_printf(&out, "{\"input_tokens\":%zu}", n);
    err = err != ERR_OK ? err : buf_ok(&out);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        reply_send(&c->reply, 200, "application/json", &out);
    }
    buf_fini(&out);
}
