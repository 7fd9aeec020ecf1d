/* POST /v1/messages/count_tokens: what a conversation in Anthropic's form takes of the context. */
#include "fcgi/api/anthropic_input.h"
#include "fcgi/api/generation.h"

static enum err count(struct call *c, size_t *n, struct err_info *info)
{
    struct params p = {0};
    bool shows_tools;
    int32_t *ids;
    json_t *chat;
    TRY(route_read_json(c, info));
    TRY(anthropic_to_chat(c->json, &chat, info));
    route_drop_json(c);
    c->json = chat;
    return chat_prepare(c, &p, &shows_tools, &ids, n, info);
}

void api_anthropic_count(struct call *c)
{
    struct err_info info = {0};
    struct buf out;
    size_t n = 0;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = count(c, &n, &info);
    buf_printf(&out, "{\"input_tokens\":%zu}", n);
    err = err != ERR_OK ? err : buf_ok(&out);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        reply_send(&c->reply, 200, "application/json", &out);
    }
    buf_fini(&out);
}
