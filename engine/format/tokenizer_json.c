#include "engine/format/tokenizer_json_internal.h"

#include "engine/base/io.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { JSON_DEPTH = 16, SMALL_BYTES = 16 << 20 };

enum err tokenizer_json_bad(const struct tokenizer_reader *r, enum err code, const char *where, const char *expected,
                            const json_t *v)
{
    char shown[JSON_READ_SHOWN];
    return err_set(r->info, code, where, "%s: %s: expected %s, found %s", r->file, where, expected,
                   json_read_show(v, shown));
}

enum err tokenizer_json_bool(const struct tokenizer_reader *r, const json_t *object, const char *where,
                             const char *name, bool fallback, bool *out)
{
    const json_t *v = json_read_get(object, name);
    *out = v == NULL ? fallback : json_is_true(v);
    if (v != NULL && !json_is_boolean(v)) {
        char at[TOKENIZER_JSON_WHERE_BYTES + 32];
        snprintf(at, sizeof at, "%s.%s", where, name);
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, at, "a boolean", v);
    }
    return ERR_OK;
}

enum err tokenizer_json_path(const struct tokenizer_reader *r, const char *name, char path[TOKENIZER_JSON_PATH_BYTES],
                             bool *is_there)
{
    if (snprintf(path, TOKENIZER_JSON_PATH_BYTES, "%s/%s", r->folder, name) >= TOKENIZER_JSON_PATH_BYTES) {
        return err_set(r->info, ERR_FILE, NULL, "expected a path below %d bytes", TOKENIZER_JSON_PATH_BYTES);
    }
    *is_there = access(path, F_OK) == 0;
    return ERR_OK;
}

enum err tokenizer_json_file(const struct tokenizer_reader *r, const char *name, size_t limit_bytes, enum err code,
                             json_t **out)
{
    char path[TOKENIZER_JSON_PATH_BYTES];
    bool is_there;
    struct buf text;
    *out = NULL;
    TRY(tokenizer_json_path(r, name, path, &is_there));
    if (!is_there) {
        return ERR_OK;
    }
    buf_init(&text, limit_bytes, MEM_GENERAL);
    enum err err = io_read_file(path, limit_bytes, &text, r->info);
    bool is_read = err == ERR_OK;
    err = is_read ? json_read_file(text.data, text.len, JSON_DEPTH, name, out, r->info) : err;
    buf_fini(&text);
    if (err != ERR_OK && err != ERR_NOMEM) {
        struct err_info said = r->info != NULL ? *r->info : (struct err_info){.code = err};
        bool is_named = strncmp(said.text, name, strlen(name)) == 0;
        return err_set(r->info, is_read ? code : err, said.where, "%s%s%s", is_named ? "" : name, is_named ? "" : ": ",
                       said.text);
    }
    return err;
}

/* Reads tokenizer.json, which is in r->root. Its truncation and padding say how it was last called, not what it is. */
static enum err read_json(struct tokenizer_reader *r)
{
    r->file = "tokenizer.json";
    TRY(tokenizer_json_rules(r));
    TRY(tokenizer_json_model(r));
    return tokenizer_json_post(r);
}

static enum err read_all(struct tokenizer_reader *r)
{
    char path[TOKENIZER_JSON_PATH_BYTES];
    bool has_proto;
    TRY(tokenizer_json_file(r, "tokenizer_config.json", SMALL_BYTES, ERR_BAD_CONFIG, &r->settings));
    TRY(tokenizer_json_file(r, "generation_config.json", SMALL_BYTES, ERR_BAD_CONFIG, &r->generation));
    TRY(tokenizer_json_file(r, "tokenizer.json", TOKENIZER_JSON_MAX_BYTES, ERR_BAD_VOCAB, &r->root));
    TRY(tokenizer_json_path(r, "tokenizer.model", path, &has_proto));
    if (r->root != NULL) {
        TRY(read_json(r));
    } else if (has_proto) {
        r->file = "tokenizer.model";
        TRY(tokenizer_json_spm(r, path));
    }
    if (r->file != NULL) {
        gguf_build_str(r->b, "infcgi.tokenizer.file", r->file, strlen(r->file));
        TRY(tokenizer_json_roles(r));
    }
    TRY(tokenizer_json_chat(r));
    return tokenizer_json_sampling(r);
}

enum err tokenizer_json_add(const char *folder, const json_t *config, uint64_t n_rows, struct gguf_build *b,
                            struct err_info *info)
{
    struct tokenizer_reader r = {.folder = folder,
                                 .b = b,
                                 .info = info,
                                 .config = config,
                                 .n_rows = n_rows <= TOKENIZER_VOCAB_MAX ? (uint32_t)n_rows : 0,
                                 .first_id = TOKENIZER_VOCAB_NONE,
                                 .last_id = TOKENIZER_VOCAB_NONE};
    buf_init(&r.proto, TOKENIZER_JSON_MAX_BYTES, MEM_GENERAL);
    enum err err = read_all(&r);
    buf_fini(&r.proto);
    tokenizer_vocab_fini(&r.vocab);
    json_decref(r.root);
    json_decref(r.settings);
    json_decref(r.generation);
    return err;
}
