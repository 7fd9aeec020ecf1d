/* llama-server's endpoints about itself: GET /props, /slots, /lora-adapters, and POST /apply-template. [llama.cpp
 * tools/server/README.md] */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/llama_output.h"

#include <string.h>

/* Returns the number of sequences that are computed simultaneously. */
static unsigned n_slots(const struct call *c) { return (unsigned)engine_model(c->engine)->max_seqs; }

/* infcgi has no slots here: up to --parallel sequences run together, each with the whole context. */
void api_llama_slots(struct call *c)
{
    struct sched_stats s;
    struct buf out;
    unsigned n = n_slots(c);
    if (c->server->conf->no_slots) {
        struct err_info info = {0};
        reply_error(&c->reply, err_set(&info, ERR_NOT_SUPPORTED, NULL, "the server was started with --no-slots"),
                    &info);
        return;
    }
    buf_init(&out, 0, MEM_REQUEST);
    engine_get_stats(c->engine, &s);
    buf_putc(&out, '[');
    for (unsigned i = 0; i < n; i++) {
        buf_printf(&out, "%s{\"id\":%u,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s}", i > 0 ? "," : "", i,
                   engine_model(c->engine)->n_ctx, i < s.n_running ? "true" : "false");
    }
    buf_putc(&out, ']');
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

void api_llama_props(struct call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    struct buf out, text;
    buf_init(&out, 0, MEM_REQUEST);
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = engine_chat_template(c->engine, &text);
    buf_puts(&out, "{\"default_generation_settings\":{\"params\":");
    llama_write_settings(c, NULL, &out);
    buf_printf(&out, ",\"n_ctx\":%u},\"total_slots\":%u,\"model_alias\":", m->n_ctx, n_slots(c));
    json_write_cstr(&out, c->server->model_id);
    buf_puts(&out, ",\"model_path\":");
    json_write_cstr(&out, m->file);
    buf_puts(&out, ",\"modalities\":{\"vision\":false,\"audio\":false},\"chat_template\":");
    json_write_buf(&out, &text);
    buf_puts(&out, ",\"bos_token\":");
    json_write_cstr(&out, m->bos_text);
    buf_puts(&out, ",\"eos_token\":");
    json_write_cstr(&out, m->eos_text);
    buf_puts(&out, ",\"build_info\":\"infcgi " SERVER_VERSION "\",\"endpoint_slots\":");
    buf_puts(&out, c->server->conf->no_slots ? "false" : "true");
    buf_printf(&out, ",\"endpoint_props\":false,\"endpoint_metrics\":%s,\"is_sleeping\":false}",
               c->server->conf->no_metrics ? "false" : "true");
    err = err != ERR_OK ? err : buf_ok(&text);
    buf_fini(&text);
    reply_json(&c->reply, err, NULL, &out);
}

void api_llama_adapters(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "[]");
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

/* Returns the prompt that /v1/chat/completions would build from the body, without BOS and EOS: they are added again
 * when the client sends the prompt. */
void api_llama_template(struct call *c)
{
    const struct engine_model_info *m = engine_model(c->engine);
    struct err_info info = {0};
    struct params p;
    struct buf out, text;
    buf_init(&out, 0, MEM_REQUEST);
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = chat_read(c, &p, &info);
    if (err == ERR_OK) {
        size_t n = p.n_prompt, from = m->adds_bos && n > 0 && p.prompt[0] == m->bos;
        n -= m->adds_eos && n > from && p.prompt[n - 1] == m->eos;
        err = engine_detokenize(c->engine, p.prompt + from, n - from, &text);
    }
    buf_puts(&out, "{\"prompt\":");
    json_write_buf(&out, &text);
    buf_putc(&out, '}');
    err = err != ERR_OK ? err : buf_ok(&text);
    buf_fini(&text);
    params_fini(&p);
    reply_json(&c->reply, err, &info, &out);
}

/* Counts the tokens of the prompt that /v1/chat/completions would build from the body. */
void api_llama_count(struct call *c)
{
    struct err_info info = {0};
    struct params p;
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = chat_read(c, &p, &info);
    buf_printf(&out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", p.n_prompt);
    params_fini(&p);
    reply_json(&c->reply, err, &info, &out);
}
