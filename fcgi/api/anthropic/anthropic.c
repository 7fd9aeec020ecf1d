/* POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API. */
#include "fcgi/api/anthropic/anthropic.h"

#include "fcgi/api/anthropic/anthropic_input.h"
#include "fcgi/api/anthropic/anthropic_output.h"

/* Agents recognize by these words that they must shorten the conversation. */
static enum err check_length(const struct call *c, const struct params *p, struct err_info *info)
{
    enum err err = engine_check_submit(c->engine, p->prompt, p->n_prompt, &p->gen, info);
    int n_ctx = engine_model(c->engine)->n_ctx;
    return err == ERR_CONTEXT_LENGTH
               ? err_set(info, err, NULL, "prompt is too long: %zu tokens > %d maximum", p->n_prompt, n_ctx)
               : err;
}

static enum err prepare(struct call *c, bool is_answered, struct params *p, struct err_info *info)
{
    params_init(p, c);
    TRY(call_read_json(c, info));
    TRY(anthropic_read(c, is_answered, p, info));
    return chat_prepare(c, p, info);
}

void api_anthropic_messages(struct call *c)
{
    struct anthropic_answer answer = {0};
    struct err_info info = {0};
    struct params p;
    enum err err = prepare(c, true, &p, &info);
    err = err != ERR_OK ? err : check_length(c, &p, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else {
        chat_answer(c, &p, anthropic_shape(), &answer);
    }
    params_fini(&p);
}

void api_anthropic_count(struct call *c)
{
    struct err_info info = {0};
    struct params p;
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = prepare(c, false, &p, &info);
    buf_printf(&out, "{\"input_tokens\":%zu}", p.n_prompt);
    reply_json(&c->reply, err, &info, &out);
    params_fini(&p);
}
