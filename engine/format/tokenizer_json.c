#include "engine/format/tokenizer_json_internal.h"

#include <string.h>

enum { SMALL_BYTES = 16 << 20 };

static enum err read_all(struct tokenizer_reader *r)
{
    char path[SAFETENSORS_PATH_BYTES];
    bool has_proto;
    TRY(tokenizer_json_file(r, "tokenizer_config.json", SMALL_BYTES, ERR_BAD_CONFIG, &r->settings));
    TRY(tokenizer_json_file(r, "generation_config.json", SMALL_BYTES, ERR_BAD_CONFIG, &r->generation));
    TRY(tokenizer_json_file(r, "tokenizer.json", TOKENIZER_JSON_MAX_BYTES, ERR_BAD_VOCAB, &r->root));
    TRY(tokenizer_json_path(r, "tokenizer.model", path, &has_proto));
    if (r->root != NULL) {
        r->file = "tokenizer.json"; /* truncation and padding, settings of its last call, are ignored */
        TRY(tokenizer_json_rules(r));
        TRY(tokenizer_json_model(r));
        TRY(tokenizer_json_post(r));
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
