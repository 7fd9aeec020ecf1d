/* The post-processor of tokenizer.json: at most one token before a text and one after it. */
#include "engine/format/tokenizer_json_internal.h"

#include <string.h>

static enum err refuse(const struct tokenizer_reader *r, const char *expected, const json_t *v)
{
    return tokenizer_json_bad(r, ERR_UNSUPPORTED_TOKENIZER, "post_processor", expected, v);
}

/* Returns the id that special_tokens assigns to a name. */
static enum err id_of(const struct tokenizer_reader *r, const json_t *processor, const json_t *name, uint32_t *out)
{
    const char *s = json_string_value(name);
    const json_t *ids =
        s == NULL ? NULL : json_object_get(json_object_get(json_object_get(processor, "special_tokens"), s), "ids");
    const json_t *id = json_array_get(ids, 0);
    if (json_array_size(ids) != 1 || !json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= (json_int_t)r->vocab.n) {
        return tokenizer_json_bad(r, ERR_BAD_SPECIAL_TOKEN, "post_processor.special_tokens",
                                  "one id of the vocabulary for each token of the template", s != NULL ? name : ids);
    }
    *out = (uint32_t)json_integer_value(id);
    return ERR_OK;
}

static enum err read_template(struct tokenizer_reader *r, const json_t *processor)
{
    static const char expected[] = "a template of at most one token before $A and one after it";
    const json_t *single = json_object_get(processor, "single");
    uint32_t *to = &r->first_id;
    bool has_text = false;
    if (!json_is_array(single)) {
        return refuse(r, expected, single);
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *token = json_object_get(piece, "SpecialToken"), *text = json_object_get(piece, "Sequence");
        if (text != NULL && !has_text) {
            has_text = true;
            to = &r->last_id;
        } else if (token != NULL && *to == TOKENIZER_VOCAB_NONE) {
            TRY(id_of(r, processor, json_object_get(token, "id"), to));
        } else {
            return refuse(r, expected, json_object_get(token != NULL ? token : piece, "id"));
        }
    }
    r->has_template = true;
    return has_text ? ERR_OK : refuse(r, expected, NULL);
}

/* Reads ["[CLS]", 101]. */
static enum err id_of_pair(const struct tokenizer_reader *r, const json_t *processor, const char *name, uint32_t *out)
{
    const json_t *pair = json_object_get(processor, name), *id = json_array_get(pair, 1);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)r->vocab.n) {
        return tokenizer_json_bad(r, ERR_BAD_SPECIAL_TOKEN, "post_processor", "a token and its id for cls and sep",
                                  pair);
    }
    *out = (uint32_t)json_integer_value(id);
    return ERR_OK;
}

static enum err read_one(struct tokenizer_reader *r, const json_t *processor)
{
    const json_t *type = json_object_get(processor, "type");
    const char *name = json_string_value(type) != NULL ? json_string_value(type) : "";
    if (strcmp(name, "ByteLevel") == 0) {
        return ERR_OK; /* only changes offsets */
    }
    if (r->has_template) {
        return refuse(r, "one template", type);
    }
    if (strcmp(name, "TemplateProcessing") == 0) {
        return read_template(r, processor);
    }
    if (strcmp(name, "BertProcessing") == 0 || strcmp(name, "RobertaProcessing") == 0) {
        r->has_template = true;
        TRY(id_of_pair(r, processor, "cls", &r->first_id));
        return id_of_pair(r, processor, "sep", &r->last_id);
    }
    return refuse(r, "ByteLevel, TemplateProcessing, BertProcessing or RobertaProcessing", type);
}

enum err tokenizer_json_post(struct tokenizer_reader *r)
{
    const json_t *root = json_read_get(r->root, "post_processor");
    const char *type = json_string_value(json_object_get(root, "type"));
    if (root == NULL) {
        return ERR_OK;
    }
    if (type == NULL || strcmp(type, "Sequence") != 0) {
        return read_one(r, root);
    }
    const json_t *list = json_object_get(root, "processors");
    for (size_t i = 0; i < json_array_size(list); i++) {
        TRY(read_one(r, json_array_get(list, i)));
    }
    return ERR_OK;
}
