/* Reads tokenizer.model if there is no tokenizer.json: a SentencePiece model of kind BPE (llama) or unigram (t5). */
#include "engine/format/tokenizer_json_internal.h"

#include "engine/base/io.h"
#include "engine/format/spm_proto.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */

static enum err refuse(const struct tokenizer_reader *r, enum err code, const char *where, const char *expected,
                       const char *found)
{
    return err_set(r->info, code, where, "%s: %s: expected %s, found %s", r->file, where, expected, found);
}

static enum err check(const struct tokenizer_reader *r, const struct spm_proto *p)
{
    if (p->model != SPM_UNIGRAM && p->model != SPM_BPE) {
        return refuse(r, ERR_UNSUPPORTED_TOKENIZER, "trainer_spec.model_type", "unigram or bpe", "another");
    }
    if (p->whitespace_as_suffix || !p->escape_whitespaces) {
        return refuse(r, ERR_UNSUPPORTED_TOKENIZER, "normalizer_spec", "white space escaped, and before words",
                      "another way");
    }
    if (p->model == SPM_BPE && p->charsmap_bytes != 0) {
        return refuse(r, ERR_UNSUPPORTED_TOKENIZER, "normalizer_spec.precompiled_charsmap", "none with bpe", "one");
    }
    if (p->model == SPM_BPE && p->remove_extra_whitespaces) {
        return refuse(r, ERR_UNSUPPORTED_TOKENIZER, "normalizer_spec.remove_extra_whitespaces", "false with bpe",
                      "true");
    }
    static const char *const ids[SPM_ID_COUNT] = {"trainer_spec.unk_id", "trainer_spec.bos_id", "trainer_spec.eos_id",
                                                  "trainer_spec.pad_id"};
    for (size_t i = 0; i < SPM_ID_COUNT; i++) {
        if (p->ids[i] >= (int32_t)p->vocab.n) {
            char found[16];
            snprintf(found, sizeof found, "%" PRId32, p->ids[i]);
            return refuse(r, ERR_BAD_SPECIAL_TOKEN, ids[i], "an id of the vocabulary", found);
        }
    }
    return ERR_OK;
}

/* SentencePiece finds user-defined symbols after it replaced spaces by U+2581; engine/tokenizer finds them before. */
static enum err spell_user_defined(struct tokenizer_reader *r)
{
    for (uint32_t id = 0; id < r->vocab.n; id++) {
        struct vocab_token *t = &r->vocab.tokens[id];
        if (t->kind != TOKEN_USER_DEFINED) {
            continue;
        }
        char *text = arena_alloc(&r->b->arena, (size_t)t->len + 1);
        TRY_MEM_FOR(text != NULL, r->info, "out of memory for the vocabulary");
        uint32_t n = 0;
        for (uint32_t at = 0; at < t->len;) {
            bool is_mark = t->len - at >= 3 && memcmp(t->text + at, space_mark, 3) == 0;
            text[n++] = is_mark ? ' ' : t->text[at];
            at += is_mark ? 3 : 1;
        }
        text[n] = '\0';
        t->text = text;
        t->len = n;
    }
    return ERR_OK;
}

/* Appends {"id", "content", ...} in tokenizer.json's form. */
static bool append(json_t *list, json_int_t id, const json_t *content, const json_t *switches)
{
    json_t *token = json_object();
    bool ok = token != NULL && (switches == NULL || json_object_update(token, (json_t *)(uintptr_t)switches) == 0) &&
              json_object_set_new(token, "id", json_integer(id)) == 0 &&
              json_object_set(token, "content", content != NULL ? (json_t *)(uintptr_t)content : json_null()) == 0;
    return json_array_append_new(list, token) == 0 && ok;
}

/* Parses "32000"; -1 if it is not a number. */
static json_int_t number_of(const char *s)
{
    json_int_t v = 0;
    for (size_t i = 0; s[i] != '\0'; i++) {
        if (s[i] < '0' || s[i] > '9' || i == 7) {
            return -1;
        }
        v = v * 10 + (s[i] - '0');
    }
    return v;
}

/* Collects the added tokens of both files in tokenizer.json's form, in r->root. */
static enum err gather_added(struct tokenizer_reader *r)
{
    json_t *more = NULL, *v, *list = json_array();
    const char *key;
    r->root = json_object();
    bool ok = r->root != NULL && json_object_set_new(r->root, "added_tokens", list) == 0;
    json_object_foreach((json_t *)(uintptr_t)json_read_get(r->settings, "added_tokens_decoder"), key, v)
    {
        ok = ok && append(list, number_of(key), json_object_get(v, "content"), v);
    }
    enum err err =
        ok ? tokenizer_json_file(r, "added_tokens.json", TOKENIZER_JSON_MAX_BYTES, ERR_BAD_VOCAB, &more) : ERR_OK;
    TRY(err);
    json_object_foreach(more, key, v)
    {
        json_t *content = json_string(key);
        bool is_known = false;
        for (size_t i = 0; i < json_array_size(list) && !is_known; i++) {
            is_known = json_equal(json_object_get(json_array_get(list, i), "content"), content);
        }
        ok = ok && content != NULL &&
             (is_known || append(list, json_is_integer(v) ? json_integer_value(v) : -1, content, NULL));
        json_decref(content);
    }
    json_decref(more);
    return ok ? ERR_OK : err_set(r->info, ERR_NOMEM, NULL, "out of memory for the added tokens");
}

static void write_keys(struct tokenizer_reader *r, const struct spm_proto *p)
{
    struct gguf_build *b = r->b;
    const char *model = p->model == SPM_BPE ? "llama" : "t5";
    gguf_build_str(b, "tokenizer.ggml.model", model, strlen(model));
    gguf_build_str(b, "tokenizer.ggml.pre", "default", 7);
    gguf_build_bool(b, "tokenizer.ggml.add_space_prefix", p->add_dummy_prefix);
    gguf_build_bool(b, "tokenizer.ggml.remove_extra_whitespaces", p->remove_extra_whitespaces);
    if (p->charsmap_bytes != 0) {
        gguf_build_array(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, p->charsmap_bytes, p->charsmap);
    }
    if (p->ids[SPM_UNK] >= 0) {
        gguf_build_u32(b, "tokenizer.ggml.unknown_token_id", (uint32_t)p->ids[SPM_UNK]);
        r->has_unknown_key = true;
    }
    tokenizer_vocab_write(&r->vocab, r->n_rows, true, b);
}

enum err tokenizer_json_spm(struct tokenizer_reader *r, const char *path)
{
    struct spm_proto p;
    TRY(io_read_file(path, TOKENIZER_JSON_MAX_BYTES, &r->proto, r->info));
    enum err err = spm_proto_read(r->proto.data, r->proto.len, &p, r->info);
    r->vocab = p.vocab;
    TRY(err);
    TRY(check(r, &p));
    TRY(gather_added(r));
    TRY(tokenizer_json_added(r));
    TRY(spell_user_defined(r));
    write_keys(r, &p);
    /* Llama's models set it in tokenizer_config.json. Without that file BOS is added, as SentencePiece's users do. */
    bool has_settings = r->settings != NULL && json_object_get(r->settings, "add_bos_token") != NULL;
    if (!has_settings && p.model == SPM_BPE && p.ids[SPM_BOS] >= 0) {
        r->first_id = (uint32_t)p.ids[SPM_BOS];
    }
    TRY(tokenizer_vocab_index(&r->vocab, r->info));
    return tokenizer_json_switches(r);
}
