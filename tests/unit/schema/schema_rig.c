#include "tests/unit/schema/schema_rig.h"

#include "engine/grammar/grammar_internal.h"
#include "engine/schema/schema.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>

static struct vocab file;
struct grammar_vocab *schema_rig_vocab;
int32_t schema_rig_ids[256];
struct err_info schema_rig_info;

void schema_rig_set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &schema_rig_info) == ERR_OK, "%s", schema_rig_info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &schema_rig_vocab), ERR_OK);
    vocab_byte_ids(&file, schema_rig_ids);
}

void schema_rig_tear_down(void)
{
    grammar_vocab_free(&schema_rig_vocab);
    vocab_fini(&file);
}

enum err schema_rig_compile(const json_t *schema, bool closes, struct grammar **out)
{
    struct grammar_builder *b;
    symbol_id start;
    schema_rig_info = (struct err_info){0};
    *out = NULL;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    if (closes) {
        grammar_close_objects(b);
    }
    enum err err = schema_add(b, schema, &start, &schema_rig_info);
    if (err == ERR_OK) {
        return grammar_finish(&b, start, out, &schema_rig_info);
    }
    grammar_builder_free(&b);
    return err;
}

bool schema_rig_says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, schema_rig_vocab, &m), ERR_OK);
    for (; *text != '\0' && taken; text++) {
        ck_assert_int_eq(grammar_matcher_accept(m, schema_rig_ids[(unsigned char)*text], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}
