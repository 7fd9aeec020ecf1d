/* A JSON Schema and a text that is followed in its grammar. Parts of the input: the schema, the text. */
#include "tests/fuzz/fuzz_grammar.h"

#include "engine/base/json_read.h"
#include "engine/schema/schema.h"

void schema_fuzz(const unsigned char *data, size_t n);

enum { MAX_DEPTH = 64 };

/* Whatever may end there is JSON. */
static void look_at(const struct buf *text)
{
    json_error_t error;
    json_t *value = json_loadb(text->data, text->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    enum json_error_code code = json_error_code(&error);
    assert(value != NULL || code == json_error_numeric_overflow || code == json_error_out_of_memory);
    json_decref(value);
}

void schema_fuzz(const unsigned char *data, size_t n)
{
    struct err_info info = {0};
    struct grammar_builder *b = NULL;
    struct buf whole;
    json_t *schema = NULL;
    symbol_id value;
    struct gguf_str source = fuzz_part(&data, &n), text = fuzz_part(&data, &n);
    fuzz_grammar_start();
    buf_init(&whole, 0, MEM_GENERAL);
    if (fuzz_is_ok(json_read(source.data, source.len, MAX_DEPTH, "the schema", &schema, &info), &info) &&
        grammar_builder_new(&b) == ERR_OK && fuzz_is_ok(schema_add(b, schema, &value, &info), &info) &&
        fuzz_grammar_walk(&b, value, text, &whole)) {
        look_at(&whole);
    }
    grammar_builder_free(&b);
    json_decref(schema);
    buf_fini(&whole);
}
