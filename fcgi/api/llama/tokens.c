/* POST /tokenize and /detokenize, in llama.cpp's shapes ("content" / "tokens") and vLLM's ("prompt" / "tokens",
 * "prompt"). */
#include "engine/base/json_write.h"
#include "engine/base/mem.h"
#include "fcgi/api/fields.h"
#include "fcgi/api/generation.h"
#include "fcgi/api/llama/llama.h"
#include "fcgi/api/prompts.h"

#include <string.h>

struct tokenize_fields {
    bool add_special, parse_special, with_pieces, add_special_tokens;
    const char *model;
};

static const struct field fields[] = {
    {"model", FIELD_STRING, offsetof(struct tokenize_fields, model), 0, 4096},
    {"add_special", FIELD_BOOL, offsetof(struct tokenize_fields, add_special), 0, 0},
    {"add_special_tokens", FIELD_BOOL, offsetof(struct tokenize_fields, add_special_tokens), 0, 0},
    {"parse_special", FIELD_BOOL, offsetof(struct tokenize_fields, parse_special), 0, 0},
    {"with_pieces", FIELD_BOOL, offsetof(struct tokenize_fields, with_pieces), 0, 0},
    {"content", FIELD_CUSTOM, 0, 0, 0},
    {"prompt", FIELD_CUSTOM, 0, 0, 0},
    {"tokens", FIELD_CUSTOM, 0, 0, 0},
};
const struct field_table fields_of_tokenize = {"tokenize", fields, ARRAY_LEN(fields)};

static void write_tokens(const struct call *c, const int32_t *ids, size_t n, bool with_pieces, struct buf *out)
{
    const struct generation g = {.call = (struct call *)c};
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ",");
        if (with_pieces) {
            buf_printf(out, "{\"id\":%d,\"piece\":", ids[i]);
            generation_write_token(&g, ids[i], out);
            buf_putc(out, '}');
        } else {
            json_write_int(out, ids[i]);
        }
    }
    buf_printf(out, "],\"count\":%zu,\"max_model_len\":%u}", n, engine_model(c->engine)->n_ctx);
}

static enum err tokenize(struct call *c, const json_t *root, struct buf *out, struct err_info *info)
{
    struct tokenize_fields f = {.parse_special = true, .add_special_tokens = true};
    TRY(fields_read(c, &fields_of_tokenize, root, &f, info));
    TRY(generation_check_model(c, f.model, info));
    const json_t *content = json_read_get(root, "content"), *prompt = json_read_get(root, "prompt");
    const json_t *text = content != NULL ? content : prompt;
    const json_t *wrong = content != NULL && !json_is_string(content) ? content : prompt;
    if (text == NULL || (wrong != NULL && !json_is_string(wrong))) {
        return err_set(info, text == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE,
                       wrong == prompt && wrong != NULL ? "prompt" : "content",
                       "content (or prompt): expected a string, found %s",
                       text == NULL ? "none" : json_read_type_name(wrong));
    }
    int32_t *ids;
    size_t n;
    /* llama.cpp's default adds no special tokens, vLLM's does. */
    bool add_special = content != NULL ? f.add_special : f.add_special_tokens;
    TRY(engine_tokenize(c->engine, json_string_value(text), json_string_length(text), add_special, f.parse_special,
                        NULL, 0, &c->arena, &ids, &n, info));
    write_tokens(c, ids, n, f.with_pieces, out);
    return buf_ok(out);
}

static enum err detokenize(struct call *c, const json_t *root, struct buf *out, struct err_info *info)
{
    struct tokenize_fields f = {0};
    TRY(fields_read(c, &fields_of_tokenize, root, &f, info));
    TRY(generation_check_model(c, f.model, info));
    const json_t *tokens = json_read_get(root, "tokens");
    if (tokens == NULL || !json_is_array(tokens)) {
        return err_set(info, tokens == NULL ? ERR_MISSING_PARAMETER : ERR_INVALID_TYPE, "tokens",
                       "tokens: expected an array of token ids, found %s",
                       tokens == NULL ? "none" : json_read_type_name(tokens));
    }
    size_t n = json_array_size(tokens);
    int32_t *ids = arena_zalloc_array(&c->arena, n + 1, sizeof *ids);
    struct buf text;
    buf_init(&text, 0, MEM_REQUEST);
    enum err err = ids == NULL ? ERR_NOMEM : ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        const json_t *v = json_array_get(tokens, i);
        int64_t id;
        bool ok = json_in_integer(v, &id) && id >= 0 && id < engine_model(c->engine)->n_vocab;
        ids[i] = ok ? (int32_t)id : 0;
        err = ok ? ERR_OK : prompts_bad_id("tokens", i, v, engine_model(c->engine)->n_vocab, info);
    }
    err = err != ERR_OK ? err : engine_detokenize(c->engine, ids, n, &text);
    if (err == ERR_OK) {
        const char *data = text.data != NULL ? text.data : "";
        buf_puts(out, "{\"content\":");
        json_write_string(out, data, text.len);
        buf_puts(out, ",\"prompt\":");
        json_write_string(out, data, text.len);
        buf_putc(out, '}');
        err = buf_ok(out);
    }
    buf_fini(&text);
    return err;
}

static void run(struct call *c, enum err (*work)(struct call *, const json_t *, struct buf *, struct err_info *))
{
    struct err_info info = {0};
    struct buf out;
    buf_init(&out, 0, MEM_REQUEST);
    enum err err = call_read_json(c, &info);
    err = err != ERR_OK ? err : work(c, c->json, &out, &info);
    reply_json(&c->reply, err, &info, &out);
}

void api_tokenize(struct call *c) { run(c, tokenize); }
void api_detokenize(struct call *c) { run(c, detokenize); }
