/* Tokens of tokenizer.json: the model's, the added ones, and the options of the added ones. */
#include "engine/format/tokenizer_json_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reads an id, 0 to the vocabulary's maximum. */
static enum err read_id(const struct tokenizer_reader *r, const char *where, const json_t *v, uint32_t *out)
{
    json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;
    if (i < 0 || i >= TOKENIZER_VOCAB_MAX) {
        char expected[48];
        snprintf(expected, sizeof expected, "an id of 0 to %d", TOKENIZER_VOCAB_MAX - 1);
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, where, expected, v);
    }
    *out = (uint32_t)i;
    return ERR_OK;
}

/* Sets an id's text, once. */
static enum err set_token(struct tokenizer_reader *r, uint32_t id, const char *text, size_t len, float score)
{
    TRY(tokenizer_vocab_grow(&r->vocab, id + 1, r->info));
    struct vocab_token *t = &r->vocab.tokens[id];
    if (t->kind != TOKEN_HOLE) {
        return err_set(r->info, ERR_BAD_VOCAB, "model.vocab",
                       "%s: id %" PRIu32 ": expected one token, found '%.64s' and '%.64s'", r->file, id, t->text, text);
    }
    if (len > TOKENIZER_VOCAB_MAX_TOKEN_BYTES) {
        return err_set(r->info, ERR_BAD_VOCAB, "model.vocab",
                       "%s: id %" PRIu32 ": expected a token of at most %d bytes, found %zu", r->file, id,
                       TOKENIZER_VOCAB_MAX_TOKEN_BYTES, len);
    }
    *t = (struct vocab_token){.text = text, .len = (uint32_t)len, .kind = TOKEN_NORMAL, .score = score};
    return ERR_OK;
}

/* Reads {"text": id} of BPE and WordPiece. */
static enum err read_object(struct tokenizer_reader *r, const json_t *vocab)
{
    if (!json_is_object(vocab) || json_object_size(vocab) == 0) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, "model.vocab", "an object of tokens", vocab);
    }
    const char *text;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, v)
    {
        uint32_t id;
        TRY(read_id(r, "model.vocab", v, &id));
        TRY(set_token(r, id, text, strlen(text), 0.0f));
    }
    return ERR_OK;
}

/* Reads [["text", score]] of Unigram; the index is the id. */
static enum err read_list(struct tokenizer_reader *r, const json_t *vocab)
{
    size_t n = json_array_size(vocab);
    if (!json_is_array(vocab) || n == 0 || n > TOKENIZER_VOCAB_MAX) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, "model.vocab", "an array of tokens", vocab);
    }
    TRY(tokenizer_vocab_grow(&r->vocab, (uint32_t)n, r->info));
    for (size_t id = 0; id < n; id++) {
        const json_t *pair = json_array_get(vocab, id), *text = json_array_get(pair, 0);
        const json_t *score = json_array_get(pair, 1);
        if (!json_is_string(text) || !json_is_number(score) || json_array_size(pair) != 2) {
            char where[48];
            snprintf(where, sizeof where, "model.vocab[%zu]", id);
            return tokenizer_json_bad(r, ERR_BAD_VOCAB, where, "a text and a score", pair);
        }
        TRY(set_token(r, (uint32_t)id, json_string_value(text), json_string_length(text),
                      (float)json_number_value(score)));
    }
    return ERR_OK;
}

/* Added tokens are among the model's tokens or after them. */
static enum err add_token(struct tokenizer_reader *r, const json_t *v, size_t i)
{
    char where[48];
    snprintf(where, sizeof where, "added_tokens[%zu]", i);
    const json_t *text = json_object_get(v, "content");
    uint32_t id;
    bool is_special = false, is_whole_word = false;
    if (!json_is_string(text) || json_string_length(text) == 0) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, where, "a content", text);
    }
    TRY(read_id(r, where, json_object_get(v, "id"), &id));
    TRY(tokenizer_json_bool(r, v, where, "special", &is_special));
    TRY(tokenizer_json_bool(r, v, where, "single_word", &is_whole_word));
    if (is_whole_word && r->model == NULL) { /* with tokenizer.model, words have other boundaries */
        return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, where, "single_word to be false", text);
    }
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    uint32_t known = tokenizer_vocab_find(&r->vocab, s, len);
    bool is_same = id < r->vocab.n && r->vocab.tokens[id].kind != TOKEN_HOLE && r->vocab.tokens[id].len == len &&
                   memcmp(r->vocab.tokens[id].text, s, len) == 0;
    if (known != TOKENIZER_VOCAB_NONE && known != id && !is_same) {
        return err_set(r->info, ERR_BAD_VOCAB, where,
                       "%s: %s: '%.64s': expected id %" PRIu32 ", as the model has it; found %" PRIu32, r->file, where,
                       s, known, id);
    }
    if (!is_same) {
        TRY(set_token(r, id, s, len, 0.0f));
    }
    struct vocab_token *t = &r->vocab.tokens[id];
    if (t->kind != TOKEN_UNKNOWN) {
        t->kind = is_special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    }
    return ERR_OK;
}

enum err tokenizer_json_added(struct tokenizer_reader *r)
{
    const json_t *added = json_read_get(r->root, "added_tokens");
    TRY(tokenizer_vocab_index(&r->vocab, r->info));
    if (added != NULL && !json_is_array(added)) {
        return tokenizer_json_bad(r, ERR_BAD_VOCAB, "added_tokens", "an array", added);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        TRY(add_token(r, json_array_get(added, i), i));
    }
    TRY(tokenizer_vocab_index(&r->vocab, r->info));
    if (r->n_rows != 0 && r->vocab.n > r->n_rows) {
        return err_set(r->info, ERR_BAD_VOCAB, "model.vocab",
                       "%s: expected ids below %" PRIu32 ", the rows of the token embedding; found %" PRIu32, r->file,
                       r->n_rows, r->vocab.n - 1);
    }
    return ERR_OK;
}

enum err tokenizer_json_vocab(struct tokenizer_reader *r, bool is_list)
{
    const json_t *vocab = json_read_get(r->model, "vocab");
    TRY((is_list ? read_list : read_object)(r, vocab));
    return tokenizer_json_added(r);
}

/* Returns whether the normalizer replaces spaces by U+2581. Otherwise Metaspace does, after added tokens were found. */
static bool normalizes_spaces(const struct tokenizer_rules *rules)
{
    bool is_metaspace = tokenizer_rules_has(rules, RULE_METASPACE) && strcmp(rules->prepend, "never") != 0;
    return tokenizer_rules_has(rules, RULE_ESCAPE) && !is_metaspace;
}

/* Returns whether the model also has the token. */
static bool is_of_model(const struct tokenizer_reader *r, const json_t *token)
{
    const json_t *vocab = json_read_get(r->model, "vocab"), *id = json_object_get(token, "id");
    return json_is_object(vocab) ? json_object_get(vocab, json_string_value(json_object_get(token, "content"))) != NULL
                                 : json_integer_value(id) < (json_int_t)json_array_size(vocab);
}

/* Writes the ids of the added tokens with the option on. name NULL: of those that the model lacks, except special
 * tokens, which text never yields anyway. */
static enum err write_switch(struct tokenizer_reader *r, const char *name, const char *key, uint32_t *ids)
{
    const json_t *added = json_read_get(r->root, "added_tokens");
    size_t n_ids = 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *v = json_array_get(added, i);
        bool is_on = name == NULL && !json_is_true(json_object_get(v, "special")) && !is_of_model(r, v);
        if (name != NULL) {
            TRY(tokenizer_json_bool(r, v, "added_tokens", name, &is_on));
        }
        if (is_on) {
            ids[n_ids++] = (uint32_t)json_integer_value(json_object_get(v, "id"));
        }
    }
    if (n_ids > 0) {
        gguf_build_array(r->b, key, GGUF_U32, n_ids, ids);
    }
    return ERR_OK;
}

enum err tokenizer_json_switches(struct tokenizer_reader *r)
{
    static const char *const names[][2] = {{"lstrip", "infcgi.tokenizer.lstrip_ids"},
                                           {"rstrip", "infcgi.tokenizer.rstrip_ids"},
                                           {"normalized", "infcgi.tokenizer.normalized_ids"},
                                           {"single_word", "infcgi.tokenizer.single_word_ids"},
                                           {NULL, "infcgi.tokenizer.apart_ids"}};
    bool is_json = r->model != NULL; /* otherwise tokenizer.model, whose users know only the first two */
    uint32_t *ids = mem_alloc((json_array_size(json_read_get(r->root, "added_tokens")) + 1) * sizeof *ids, MEM_GENERAL);
    TRY_MEM_FOR(ids != NULL, r->info, "out of memory for the vocabulary");
    enum err err = ERR_OK;
    for (size_t k = 0; k < (is_json ? ARRAY_LEN(names) : 2) && err == ERR_OK; k++) {
        err = write_switch(r, names[k][0], names[k][1], ids);
    }
    if (err == ERR_OK && is_json && normalizes_spaces(&r->rules)) {
        gguf_build_bool(r->b, "infcgi.tokenizer.normalizes_spaces", true);
    }
    mem_free(ids);
    return err;
}
