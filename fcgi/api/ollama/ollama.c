/* The part of Ollama's API that editors and chat pages use, for the one model: POST /api/chat, /api/generate,
 * /api/show, /api/embed and /api/embeddings, GET /api/tags, /api/ps and /api/version. */
#include "fcgi/api/ollama/ollama.h"

#include "engine/base/clock.h"
#include "engine/base/json_write.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/ollama/ollama_input.h"
#include "fcgi/api/ollama/ollama_output.h"
#include "fcgi/api/vectors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* An empty request asks to load the model, which is always loaded. */
static void answer_nothing(struct call *c, bool is_generate)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    ollama_write_head(c, &out);
    ollama_write_nothing(is_generate, &out);
    buf_puts(&out, ",\"done\":true,\"done_reason\":\"load\"}\n");
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

static void answer(struct call *c, bool is_generate)
{
    struct ollama_answer a = {.is_generate = is_generate};
    struct err_info info = {0};
    struct params p;
    params_init(&p, c);
    enum err err = call_read_json(c, &info);
    err = err != ERR_OK ? err : ollama_read(c, is_generate, &p, &info);
    bool is_empty = err == ERR_OK && p.messages == NULL;
    err = err != ERR_OK || is_empty ? err : chat_prepare(c, &p, &info);
    if (err != ERR_OK) {
        reply_error(&c->reply, err, &info);
    } else if (is_empty) {
        answer_nothing(c, is_generate);
    } else {
        chat_answer(c, &p, ollama_shape(), &a);
    }
    params_fini(&p);
}

void api_ollama_chat(struct call *c) { answer(c, false); }

void api_ollama_generate(struct call *c) { answer(c, true); }

/* --- the model ---------------------------------------------------------------------------------------------------- */

static void write_details(const struct call *c, struct buf *out)
{
    const struct engine_model_info *m = engine_model(c->engine);
    buf_printf(out,
               "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"%s\",\"families\":[\"%s\"],"
               "\"parameter_size\":\"%.1f%c\",\"quantization_level\":\"%s\"}",
               m->architecture, m->architecture, (double)m->n_params / (m->n_params < 1000000000u ? 1e6 : 1e9),
               m->n_params < 1000000000u ? 'M' : 'B', m->quantization);
}

/* Writes the list's only entry, followed by `more`. */
static void write_entry(const struct call *c, const char *more, struct buf *out)
{
    const struct engine_model_info *m = engine_model(c->engine);
    char date[CLOCK_UTC_BYTES];
    (void)clock_utc(c->server->started, date);
    buf_puts(out, "{\"models\":[{\"name\":");
    json_write_cstr(out, c->server->model_id);
    buf_puts(out, ",\"model\":");
    json_write_cstr(out, c->server->model_id);
    buf_printf(out, ",\"modified_at\":\"%s\",\"size\":%" PRIu64 ",\"digest\":\"%016" PRIx64 "\",", date, m->file_bytes,
               m->fingerprint);
    write_details(c, out);
    buf_puts(out, more);
    buf_puts(out, "}]}");
}

void api_ollama_tags(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    write_entry(c, "", &out);
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

void api_ollama_ps(struct call *c)
{
    struct buf out;
    char more[128];
    buf_init(&out, 0, MEM_REQUEST);
    snprintf(more, sizeof more, ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,\"context_length\":%u",
             engine_model(c->engine)->n_ctx);
    write_entry(c, more, &out);
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

/* The newest version of Ollama whose API infcgi follows; clients select features by it. */
void api_ollama_version(struct call *c)
{
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    buf_puts(&out, "{\"version\":\"0.12.0\"}");
    reply_json(&c->reply, ERR_OK, NULL, &out);
}

struct model_fields {
    const char *model, *name;
};

/* Fields of /api/embed and /api/embeddings. */
struct embed_fields {
    const char *model;
    bool is_cut;        /* truncate texts that are too long */
    int64_t dimensions; /* 0 = all */
};

static const struct field show_fields[] = {
    {"model", FIELD_STRING, offsetof(struct model_fields, model), 0, 4096},
    {"name", FIELD_STRING, offsetof(struct model_fields, name), 0, 4096},
    {"verbose", FIELD_IGNORED, 0, 0, 0},
};
const struct field_table fields_of_ollama_show = {"ollama_show", show_fields, ARRAY_LEN(show_fields)};

/* asked: OPTIONAL. */
static enum err check_model(const struct call *c, const char *asked, struct err_info *info)
{
    char name[4096 + 1] = "";
    if (asked != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)ollama_model_len(asked), asked);
    }
    return generation_check_model(c, asked != NULL ? name : NULL, info);
}

static void write_show(const struct call *c, struct buf *out)
{
    const struct engine_model_info *m = engine_model(c->engine);
    const char *arch = m->architecture;
    buf_puts(out, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
    write_details(c, out);
    buf_printf(out, ",\"model_info\":{\"general.architecture\":\"%s\",\"general.parameter_count\":%" PRIu64, arch,
               m->n_params);
    buf_printf(out, ",\"%s.context_length\":%u,\"%s.embedding_length\":%u,\"%s.block_count\":%u}", arch, m->n_ctx, arch,
               m->n_embd, arch, m->n_layers);
    buf_puts(out, ",\"capabilities\":[");
    buf_puts(out, m->generates ? "\"completion\",\"tools\"" : m->ranks ? "" : "\"embedding\"");
    buf_puts(out, "]}");
}

void api_ollama_show(struct call *c)
{
    struct err_info info = {0};
    struct model_fields f = {0};
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = call_read_json(c, &info);
    if (err == ERR_OK) {
        err = fields_read(c, &fields_of_ollama_show, c->json, &f, &info);
    }
    err = err != ERR_OK ? err : check_model(c, f.model != NULL ? f.model : f.name, &info);
    write_show(c, &out);
    reply_json(&c->reply, err, &info, &out);
}

/* --- embeddings --------------------------------------------------------------------------------------------------- */

static const struct field embed_fields[] = {
    {"model", FIELD_STRING, offsetof(struct embed_fields, model), 0, 4096},
    {"input", FIELD_CUSTOM, 0, 0, 0},
    {"prompt", FIELD_CUSTOM, 0, 0, 0},
    {"truncate", FIELD_BOOL, offsetof(struct embed_fields, is_cut), 0, 0},
    {"options", FIELD_IGNORED, 0, 0, 0},
    {"keep_alive", FIELD_IGNORED, 0, 0, 0},
    {"dimensions", FIELD_INT, offsetof(struct embed_fields, dimensions), 0, 1 << 20},
};
const struct field_table fields_of_ollama_embed = {"ollama_embed", embed_fields, ARRAY_LEN(embed_fields)};

/* State of an embedding request. */
struct embed {
    struct call *call;
    struct prompts prompts;
    struct engine_embed_params params;
    char salt[APIKEY_SALT_BYTES]; /* params.cache_salt can point here */
    size_t width;                 /* components in the answer */
    float *short_one;             /* [width] if the vector is shortened; else NULL */
    struct buf out;
};

static enum err read_embed(struct embed *e, const struct prompts_rule *rule, struct err_info *info)
{
    struct call *c = e->call;
    struct embed_fields f = {.is_cut = true};
    uint32_t n_all = engine_model(c->engine)->n_embd_out;
    TRY(call_read_json(c, info));
    TRY(fields_read(c, &fields_of_ollama_embed, c->json, &f, info));
    TRY(check_model(c, f.model, info));
    TRY(vectors_check_pools(c, info));
    TRY(vectors_params(c, NULL, e->salt, &e->params));
    struct prompts_rule own = *rule;
    own.check = f.is_cut ? NULL : rule->check;
    TRY(prompts_read(&e->prompts, c, c->json, &own, info));
    if (f.is_cut) {
        vectors_truncate(c, &e->prompts, -1);
    }
    e->width = f.dimensions > 0 && f.dimensions < n_all ? (size_t)f.dimensions : n_all;
    e->short_one = e->width < n_all ? arena_alloc(&c->arena, e->width * sizeof *e->short_one) : NULL;
    return arena_ok(&c->arena);
}

static enum err write_vector(void *arg, size_t i, const float *vector)
{
    struct embed *e = arg;
    if (e->short_one != NULL) {
        vectors_scale(vector, e->width, VECTORS_EUCLID, e->short_one);
        vector = e->short_one;
    }
    buf_puts(&e->out, i == 0 ? "" : ",");
    for (size_t k = 0; k < e->width; k++) {
        buf_putc(&e->out, k == 0 ? '[' : ',');
        json_write_float(&e->out, vector[k]);
    }
    buf_putc(&e->out, ']');
    return buf_ok(&e->out);
}

/* is_one: the older endpoint, with one text. */
static void embed(struct call *c, bool is_one)
{
    const struct prompts_rule rule = {.field = is_one ? "prompt" : "input",
                                      .check = vectors_check_length,
                                      .max = is_one ? 1 : VECTORS_MAX_TEXTS,
                                      .refuses_empty = true};
    struct err_info info = {0};
    struct embed e = {.call = c};
    struct vectors v = {.prompts = &e.prompts, .start = engine_embed, .each = write_vector, .arg = &e};
    buf_init(&e.out, 0, MEM_REQUEST);
    enum err err = read_embed(&e, &rule, &info);
    call_drop_json(c);
    if (err == ERR_OK) {
        buf_puts(&e.out, is_one ? "{\"embedding\":" : "{\"embeddings\":[");
        err = vectors_run(&v, c, &e.params, "embed", &info);
    }
    if (!is_one) {
        buf_puts(&e.out, "],\"model\":");
        json_write_cstr(&e.out, c->server->model_id);
        buf_printf(&e.out, ",\"total_duration\":%" PRIu64 ",\"load_duration\":0,\"prompt_eval_count\":%zu",
                   clock_now_ns() - c->reply.arrived_ns, v.n_tokens);
    }
    buf_putc(&e.out, '}');
    reply_json(&c->reply, err, &info, &e.out);
}

void api_ollama_embed(struct call *c) { embed(c, false); }

void api_ollama_embeddings(struct call *c) { embed(c, true); }
