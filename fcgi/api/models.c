/* GET /v1/models and /v1/models/{id}: the one model, in OpenAI's form plus the members that clients of llama.cpp and
 * vLLM read. */
#include "fcgi/api/models.h"

#include "engine/base/json_write.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/model_names.h"

#include <inttypes.h>
#include <string.h>

static void write_model(const struct call *c, const struct models_more *more, struct buf *out)
{
    const struct engine_model_info *m = engine_model(c->engine);
    buf_puts(out, "{\"id\":");
    json_write_cstr(out, c->server->model_id);
    buf_printf(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"infcgi\",\"max_model_len\":%u",
               c->server->started, m->n_ctx);
    buf_puts(out, ",\"aliases\":");
    model_names_write(c->server->conf->alias, out);
    buf_puts(out, ",\"tags\":");
    model_names_write(c->server->conf->tags, out);
    if (more != NULL) {
        more->write_model(c, out);
    }
    buf_printf(out,
               ",\"meta\":{\"architecture\":\"%s\",\"quantization\":\"%s\",\"n_ctx_train\":%u,\"n_embd\":%u,\"n_"
               "params\":%" PRIu64 ",\"size\":%" PRIu64 ",\"n_vocab\":%u}}",
               m->architecture, m->quantization, m->n_ctx_train, m->n_embd, m->n_params, m->file_bytes, m->n_vocab);
}

/* Members that Codex reads of a model [codex-rs/protocol/src/openai_models.rs]. It rejects a list without them and
 * learns the conversation's maximum length only from them. Its own instructions would fill a small model's context. */
static void write_for_codex(const struct call *c, struct buf *out)
{
    static const char instructions[] = "You are a coding agent. You work in the user's project through the tools that "
                                       "you are given. Look at files before "
                                       "you change them, make the smallest change that does what is asked, try it "
                                       "where you can, and say in a few words "
                                       "what you did.";
    enum { OUTPUT_TOKENS = 10000 }; /* of a tool's output, kept in the conversation */
    const struct engine_model_info *m = engine_model(c->engine);
    buf_puts(out, "{\"slug\":");
    json_write_cstr(out, c->server->model_id);
    buf_puts(out, ",\"display_name\":");
    json_write_cstr(out, c->server->model_id);
    buf_puts(out, ",\"description\":null,\"default_reasoning_level\":null,\"supported_reasoning_levels\":[],"
                  "\"shell_type\":\"shell_command\",\"visibility\":\"list\",\"supported_in_api\":true,\"priority\":0,"
                  "\"availability_nux\":null,\"upgrade\":null,\"base_instructions\":");
    json_write_cstr(out, instructions);
    buf_puts(out, ",\"supports_reasoning_summaries\":false,\"support_verbosity\":false,\"default_verbosity\":null,"
                  "\"apply_patch_tool_type\":\"freeform\",\"supports_parallel_tool_calls\":true,"
                  "\"experimental_supported_tools\":[],\"input_modalities\":[\"text\"]");
    buf_printf(out, ",\"truncation_policy\":{\"mode\":\"tokens\",\"limit\":%u},\"context_window\":%u}",
               MIN_OF(m->n_ctx / 4, (uint32_t)OUTPUT_TOKENS), m->n_ctx);
}

void models_list(struct call *c, const struct models_more *more)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    write_model(c, more, &out);
    buf_puts(&out, "],\"models\":[");
    write_for_codex(c, &out);
    buf_putc(&out, ']');
    if (more != NULL) {
        more->write_list(c, &out);
    }
    buf_putc(&out, '}');
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

void models_one(struct call *c, const struct models_more *more)
{
    struct err_info info = {0};
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = generation_check_model(c, c->path + strlen("/v1/models/"), &info);
    write_model(c, more, &out);
    reply_json(&c->reply, err, &info, &out);
}

void api_models(struct call *c) { models_list(c, NULL); }

void api_model(struct call *c) { models_one(c, NULL); }
