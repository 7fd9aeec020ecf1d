/* POST /v1/embeddings in OpenAI's form: one vector of length 1 per text. Also llama-server's /embedding and
 * /embeddings: an array of {"index", "embedding": [vector ..]}. */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/openai/openai.h"
#include "fcgi/api/vectors.h"

#include <inttypes.h>
#include <string.h>

struct embeddings_fields {
    const char *model, *encoding_format, *cache_salt;
    int64_t dimensions; /* 0 = all */
    int64_t norm;       /* of vectors_scale */
    int64_t limit;      /* tokens of a text; 0: the text must fit, -1: the context's */
    bool is_normalized;
};

static const struct field fields[] = {
    {"model", FIELD_STRING, offsetof(struct embeddings_fields, model), 0, 4096},
    {"input", FIELD_CUSTOM, 0, 0, 0},
    {"content", FIELD_CUSTOM, 0, 0, 0}, /* llama-server's */
    {"encoding_format", FIELD_STRING, offsetof(struct embeddings_fields, encoding_format), 0, 64},
    {"dimensions", FIELD_INT, offsetof(struct embeddings_fields, dimensions), 1, 1 << 20},
    {"cache_salt", FIELD_STRING, offsetof(struct embeddings_fields, cache_salt), 0, APIKEY_CLIENT_SALT_BYTES},
    {"normalize", FIELD_BOOL, offsetof(struct embeddings_fields, is_normalized), 0, 0}, /* vLLM's */
    {"embd_normalize", FIELD_INT, offsetof(struct embeddings_fields, norm), VECTORS_AS_IS,
     VECTORS_MAX_NORM}, /* llama-server's */
    {"truncate_prompt_tokens", FIELD_INT, offsetof(struct embeddings_fields, limit), -1, 2147483647.0}, /* vLLM's */
    {"user", FIELD_LABEL, 0, 0, JSON_IN_LABEL_CHARS},
};
const struct field_table fields_of_embeddings = {"embeddings", fields, ARRAY_LEN(fields)};

/* State of a request. */
/* OpenAI's, llama-server's, or OpenAI's if it can hold the answer. */
enum embeddings_shape { SHAPE_OPENAI, SHAPE_LLAMA, SHAPE_EITHER };

struct job {
    struct call *call;
    struct prompts prompts;
    size_t width;  /* components in the answer */
    float *scaled; /* [width] a rescaled or shortened vector; NULL: none needed */
    int norm;      /* of vectors_scale, for `scaled` */
    bool as_base64;
    enum embeddings_shape shape; /* that the path selects .. */
    bool is_llama;               /* .. and whether the answer uses llama-server's */
    const char *field;           /* the field with the texts */
    struct engine_embed_params params;
    char salt[APIKEY_SALT_BYTES]; /* params.cache_salt can point here */
    struct buf out;
};

/* --- vectors ------------------------------------------------------------------------------------------------------ */

static void write_numbers(const float *x, size_t n, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        json_write_float(out, x[i]);
    }
    buf_putc(out, ']');
}

/* Returns byte `at` of little-endian 32-bit floats. */
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

static void write_one(struct job *j, const float *vector)
{
    if (j->scaled != NULL) {
        vectors_scale(vector, j->width, j->norm, j->scaled);
        vector = j->scaled;
    }
    (j->as_base64 ? write_base64 : write_numbers)(vector, j->width, &j->out);
}

/* Writes a text's vector, or one vector per token if the model embeds tokens; only llama-server's form can hold
 * those. */
static enum err write_vector(void *arg, size_t i, const float *vector)
{
    struct job *j = arg;
    size_t n = engine_model(j->call->engine)->embeds_tokens ? j->prompts.n_ids[i] : 1;
    buf_puts(&j->out, i == 0 ? "" : ",");
    buf_printf(&j->out, "{%s\"index\":%zu,\"embedding\":%s", j->is_llama ? "" : "\"object\":\"embedding\",", i,
               j->is_llama ? "[" : "");
    for (size_t k = 0; k < n; k++) {
        buf_puts(&j->out, k == 0 ? "" : ",");
        write_one(j, vector + k * j->width);
    }
    buf_puts(&j->out, j->is_llama ? "]}" : "}");
    return buf_ok(&j->out);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

/* Chooses the answer's form: OpenAI's cannot hold a vector per token. */
static enum err choose_shape(struct job *j, const json_t *root, struct err_info *info)
{
    const struct engine_model_info *m = engine_model(j->call->engine);
    bool has_content = json_read_get(root, "input") == NULL && json_read_get(root, "content") != NULL;
    j->field = has_content ? "content" : "input";
    j->is_llama = j->shape == SHAPE_LLAMA || (j->shape == SHAPE_EITHER && (has_content || m->embeds_tokens));
    return j->shape == SHAPE_OPENAI ? vectors_check_pools(j->call, info) : ERR_OK;
}

/* Sets how vectors are scaled; f->dimensions is in range. */
static enum err choose_scale(struct job *j, const struct embeddings_fields *f, struct err_info *info)
{
    const struct engine_model_info *m = engine_model(j->call->engine);
    if (m->embeds_tokens && f->dimensions != 0) {
        return err_set(info, ERR_INVALID_VALUE, "dimensions",
                       "dimensions: expected none with --pooling none, found %" PRId64, f->dimensions);
    }
    j->width = f->dimensions != 0 ? (size_t)f->dimensions : m->n_embd_out;
    j->norm = f->is_normalized ? (int)f->norm : VECTORS_AS_IS;
    j->params.keeps_length = j->norm != VECTORS_EUCLID;
    if (!m->embeds_tokens && (j->width < m->n_embd_out || (j->norm != VECTORS_EUCLID && j->norm != VECTORS_AS_IS))) {
        j->scaled = arena_alloc(&j->call->arena, j->width * sizeof *j->scaled);
    }
    return arena_ok(&j->call->arena);
}

static enum err read_fields(struct job *j, const json_t *root, struct err_info *info)
{
    const struct engine_model_info *m = engine_model(j->call->engine);
    struct embeddings_fields f = {.norm = VECTORS_EUCLID, .is_normalized = true};
    TRY(fields_read(j->call, &fields_of_embeddings, root, &f, info));
    TRY(generation_check_model(j->call, f.model, info));
    TRY(engine_check_embeds(j->call->engine, info));
    TRY(choose_shape(j, root, info));
    j->as_base64 = f.encoding_format != NULL && strcmp(f.encoding_format, "base64") == 0;
    if (f.encoding_format != NULL && !j->as_base64 && strcmp(f.encoding_format, "float") != 0) {
        return err_set(info, ERR_INVALID_VALUE, "encoding_format",
                       "encoding_format: expected float or base64, found '%.64s'", f.encoding_format);
    }
    if (f.dimensions > (int64_t)m->n_embd_out) {
        return err_set(info, ERR_INVALID_VALUE, "dimensions", "dimensions: expected 1 to %u, found %" PRId64,
                       m->n_embd_out, f.dimensions);
    }
    const struct prompts_rule rule = {.field = j->field,
                                      .check = f.limit == 0 ? vectors_check_length : NULL, /* a truncated text fits */
                                      .max = VECTORS_MAX_TEXTS,
                                      .takes_mixed = true,
                                      .refuses_empty = true};
    TRY(vectors_params(j->call, f.cache_salt, j->salt, &j->params));
    TRY(choose_scale(j, &f, info));
    TRY(prompts_read(&j->prompts, j->call, root, &rule, info));
    if (f.limit != 0) {
        vectors_truncate(j->call, &j->prompts, f.limit);
    }
    return arena_ok(&j->call->arena);
}

static enum err run(struct job *j, struct err_info *info)
{
    struct vectors v = {.prompts = &j->prompts, .start = engine_embed, .each = write_vector, .arg = j};
    buf_puts(&j->out, j->is_llama ? "[" : "{\"object\":\"list\",\"data\":[");
    TRY(vectors_run(&v, j->call, &j->params, "embeddings", info));
    if (j->is_llama) {
        buf_putc(&j->out, ']');
        return buf_ok(&j->out);
    }
    buf_puts(&j->out, "],\"model\":");
    json_write_cstr(&j->out, j->call->server->model_id);
    buf_printf(&j->out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", v.n_tokens, v.n_tokens);
    return buf_ok(&j->out);
}

static void answer(struct call *c, enum embeddings_shape shape)
{
    struct err_info info = {0};
    struct job j = {.call = c, .shape = shape};
    buf_init(&j.out, 0, MEM_REQUEST);
    enum err err = call_read_json(c, &info);
    err = err != ERR_OK ? err : read_fields(&j, c->json, &info);
    call_drop_json(c);
    err = err != ERR_OK ? err : run(&j, &info);
    reply_json(&c->reply, err, &info, &j.out);
}

void api_embeddings(struct call *c) { answer(c, SHAPE_OPENAI); }

void api_embedding_llama(struct call *c) { answer(c, SHAPE_LLAMA); }

void api_embeddings_llama(struct call *c) { answer(c, SHAPE_EITHER); }
