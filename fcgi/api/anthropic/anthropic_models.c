/* GET /v1/models and /v1/models/{id} for clients that send anthropic-version: OpenAI's members and Anthropic's. */
#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "fcgi/api/anthropic/anthropic.h"
#include "fcgi/api/models.h"

static void write_model(const struct call *c, struct buf *out)
{
    char date[CLOCK_UTC_BYTES];
    uint32_t n_ctx = engine_model(c->engine)->n_ctx;
    (void)clock_utc(c->server->started, date);
    buf_printf(out, ",\"type\":\"model\",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"max_input_tokens\":%u", date,
               n_ctx);
    buf_printf(out, ",\"max_tokens\":%u,\"display_name\":", n_ctx);
    json_write_cstr(out, c->server->model_id);
}

/* Writes the list as the last page. */
static void write_list(const struct call *c, struct buf *out)
{
    buf_puts(out, ",\"has_more\":false,\"first_id\":");
    json_write_cstr(out, c->server->model_id);
    buf_puts(out, ",\"last_id\":");
    json_write_cstr(out, c->server->model_id);
}

static const struct models_more more = {.write_model = write_model, .write_list = write_list};

void api_anthropic_models(struct call *c) { models_list(c, &more); }

void api_anthropic_model(struct call *c) { models_one(c, &more); }
