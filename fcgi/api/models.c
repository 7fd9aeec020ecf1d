/* GET /v1/models and /v1/models/{id}: the one model, in OpenAI's shape with what llama.cpp's and vLLM's clients read.
 */
#include "fcgi/api/generation.h"

#include "engine/base/json_write.h"

#include <inttypes.h>
#include <string.h>

static void write_model(const struct call *c, struct buf *out)
{
    const struct engine_model_info *m = engine_model(c->engine);
    buf_puts(out, "{\"id\":");
    json_write_cstr(out, c->server->model_id);
    buf_printf(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"infcgi\",\"max_model_len\":%u",
               c->server->started, m->n_ctx);
    buf_printf(out,
               ",\"meta\":{\"architecture\":\"%s\",\"quantization\":\"%s\",\"n_ctx_train\":%u,\"n_embd\":%u,\"n_"
               "params\":%" PRIu64 ",\"size\":%" PRIu64 ",\"n_vocab\":%u}}",
               m->architecture, m->quantization, m->n_ctx_train, m->n_embd, m->n_params, m->file_bytes, m->n_vocab);
}

static void send(struct call *c, struct buf *out)
{
    if (buf_ok(out) != ERR_OK) {
        reply_error(&c->reply, ERR_NOMEM, NULL);
    } else {
        reply_send(&c->reply, 200, "application/json", out);
    }
    buf_fini(out);
}

void api_models(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    write_model(c, &out);
    buf_puts(&out, "]}");
    send(c, &out);
}

void api_model(struct call *c)
{
    struct err_info info = {0};
    enum err err = generation_check_model(c->server, c->path + strlen("/v1/models/"), &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
        return;
    }
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    write_model(c, &out);
    send(c, &out);
}
