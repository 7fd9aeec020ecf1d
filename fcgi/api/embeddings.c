/* POST /v1/embeddings, in OpenAI's shape: each text becomes a vector of length 1. */
#include "fcgi/api/fields.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/vectors.h"

#include "engine/base/json_write.h"
#include "engine/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct embeddings_fields {
    const char *model, *encoding_format, *cache_salt;
    int64_t dimensions; /* 0 = all */
};

static const struct field fields[] = {
    {"model", FIELD_STRING, offsetof(struct embeddings_fields, model), 0, 4096},
    {"input", FIELD_CUSTOM, 0, 0, 0},
    {"encoding_format", FIELD_STRING, offsetof(struct embeddings_fields, encoding_format), 0, 64},
    {"dimensions", FIELD_INT, offsetof(struct embeddings_fields, dimensions), 1, 1 << 20},
    {"cache_salt", FIELD_STRING, offsetof(struct embeddings_fields, cache_salt), 0, VECTORS_MAX_SALT_BYTES},
    {"user", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
};
const struct field_table fields_of_embeddings = {"embeddings", fields, ARRAY_LEN(fields)};

/* A request being answered. */
struct job {
    struct call *call;
    struct prompts prompts;
    size_t width;     /* components of an answer */
    float *short_one; /* [width] where that is less than all of them; else NULL */
    bool as_base64;
    struct engine_embed_params params;
    char salt[APIKEY_SALT_BYTES]; /* params.cache_salt may point here */
    struct buf out;
};

/* --- vectors ------------------------------------------------------------------------------------------------------ */

/* The first `width` of the vector's components, again of length 1: models trained for it keep most of the meaning in
 * the first ones [Kusupati 2022, "Matryoshka Representation Learning"]. */
static void shorten(const float *vector, size_t width, float *out)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        sum += (double)vector[i] * vector[i];
    }
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (size_t i = 0; i < width; i++) {
        out[i] = (float)(vector[i] * scale);
    }
}

static void write_numbers(const float *x, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        json_write_float(out, x[i]);
    }
    buf_putc(out, ']');
}

/* Byte `at` of little-endian 32-bit floats. */
static uint32_t byte_of(const float *x, size_t at)
{
    uint32_t bits;
    memcpy(&bits, &x[at / 4], sizeof bits);
    return bits >> at % 4 * 8 & 255;
}

/* [RFC 4648, 4] */
static void write_base64(const float *x, size_t n, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = 4 * n;
    buf_putc(out, '"');
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        uint32_t v = byte_of(x, i) << 16 | (left > 1 ? byte_of(x, i + 1) << 8 : 0) | (left > 2 ? byte_of(x, i + 2) : 0);
        const char four[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                              left > 2 ? digits[v & 63] : '='};
        buf_append(out, four, sizeof four);
    }
    buf_putc(out, '"');
}

static enum err write_vector(void *arg, size_t i, const float *vector)
{
    struct job *j = arg;
    if (j->short_one != NULL) {
        shorten(vector, j->width, j->short_one);
        vector = j->short_one;
    }
    buf_printf(&j->out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i == 0 ? "" : ",", i);
    (j->as_base64 ? write_base64 : write_numbers)(vector, j->width, &j->out);
    buf_putc(&j->out, '}');
    return buf_ok(&j->out);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

static enum err read_fields(struct job *j, const json_t *root, struct err_info *info)
{
    static const struct prompts_rule rule = {
        .field = "input", .check = vectors_check_length, .max = VECTORS_MAX_TEXTS, .takes_mixed = true, .refuses_empty = true};
    const struct server *server = j->call->server;
    const struct engine_model_info *m = engine_model(j->call->engine);
    struct embeddings_fields f = {0};
    TRY(json_in_fields(root, fields, ARRAY_LEN(fields), server->conf->strict_api, &f, info));
    TRY(generation_check_model(j->call, f.model, info));
    TRY(engine_check_embeds(j->call->engine, info));
    j->as_base64 = f.encoding_format != NULL && strcmp(f.encoding_format, "base64") == 0;
    if (f.encoding_format != NULL && !j->as_base64 && strcmp(f.encoding_format, "float") != 0) {
        return err_set(info, ERR_INVALID_VALUE, "encoding_format",
                       "encoding_format: expected float or base64, found '%.64s'", f.encoding_format);
    }
    if (f.dimensions > (int64_t)m->n_embd_out) {
        return err_set(info, ERR_INVALID_VALUE, "dimensions", "dimensions: expected 1 to %u, found %" PRId64, m->n_embd_out,
                       f.dimensions);
    }
    j->width = f.dimensions != 0 ? (size_t)f.dimensions : m->n_embd_out;
    if (j->width < m->n_embd_out) {
        j->short_one = arena_alloc(&j->call->arena, j->width * sizeof *j->short_one);
    }
    TRY(vectors_params(j->call, f.cache_salt, j->salt, &j->params));
    TRY(prompts_read(&j->prompts, j->call, root, &rule, info));
    return arena_ok(&j->call->arena);
}

static enum err run(struct job *j, struct err_info *info)
{
    struct vectors v = {.prompts = &j->prompts, .start = engine_embed, .each = write_vector, .arg = j};
    buf_puts(&j->out, "{\"object\":\"list\",\"data\":[");
    TRY(vectors_run(&v, j->call, &j->params, "embeddings", info));
    buf_puts(&j->out, "],\"model\":");
    json_write_cstr(&j->out, j->call->server->model_id);
    buf_printf(&j->out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", v.n_tokens, v.n_tokens);
    return buf_ok(&j->out);
}

void api_embeddings(struct call *c)
{
    struct err_info info = {0};
    struct job j = {.call = c};
    buf_init(&j.out, 0, MEM_REQUEST);
    enum err err = route_read_json(c, &info);
    err = err != ERR_OK ? err : read_fields(&j, c->json, &info);
    route_drop_json(c);
    err = err != ERR_OK ? err : run(&j, &info);
    if (err == ERR_OK) {
        reply_send(&c->reply, 200, "application/json", &j.out);
    } else {
        reply_error(&c->reply, err, info.code == err ? &info : NULL);
    }
    buf_fini(&j.out);
}
