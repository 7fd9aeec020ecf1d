/* Reads the JSON files of a folder and their members, with messages that name the file. */
#include "engine/format/tokenizer_json_internal.h"

#include "engine/base/io.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { JSON_DEPTH = 16 };

enum err tokenizer_json_bad(const struct tokenizer_reader *r, enum err code, const char *where, const char *expected,
                            const json_t *v)
{
    char shown[JSON_READ_SHOWN];
    return err_set(r->info, code, where, "%s: %s: expected %s, found %s", r->file, where, expected,
                   json_read_show(v, shown));
}

enum err tokenizer_json_bool(const struct tokenizer_reader *r, const json_t *object, const char *where,
                             const char *name, bool *out)
{
    const json_t *v = json_read_get(object, name);
    *out = v == NULL ? *out : json_is_true(v);
    if (v != NULL && !json_is_boolean(v)) {
        char at[TOKENIZER_JSON_WHERE_BYTES + 32];
        snprintf(at, sizeof at, "%s.%s", where, name);
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, at, "a boolean", v);
    }
    return ERR_OK;
}

enum err tokenizer_json_path(const struct tokenizer_reader *r, const char *name, char path[SAFETENSORS_PATH_BYTES],
                             bool *is_there)
{
    TRY(safetensors_path(r->folder, name, path, r->info));
    *is_there = access(path, F_OK) == 0;
    return ERR_OK;
}

enum err tokenizer_json_file(const struct tokenizer_reader *r, const char *name, size_t limit_bytes, enum err code,
                             json_t **out)
{
    char path[SAFETENSORS_PATH_BYTES];
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
        code = is_read ? code : err;
        return is_named ? err_set(r->info, code, said.where, "%s", said.text)
                        : err_set(r->info, code, said.where, "%s: %s", name, said.text);
    }
    return err;
}
