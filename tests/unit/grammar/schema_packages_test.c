/* Schemas that zod and pydantic write (tests/golden/schemas says how they are made), with texts that they allow and texts that
 * they do not. Each must be accepted, unless a row below says why it is refused. */
#include "engine/grammar/schema.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/base/json_read.h"
#include "engine/grammar/grammar_internal.h"
#include "tests/unit/tokenizer/vocab_file.h"

#include <check.h>
#include <string.h>

Suite *schema_packages_suite(void);

static struct vocab file;
static struct grammar_vocab *vocab;
static struct err_info info;
static int32_t id_of[256];

static void set_up(void)
{
    vocab_bpe(&file, "gpt-2");
    ck_assert_msg(vocab_load(&file, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(grammar_vocab_new(file.t, &vocab), ERR_OK);
    vocab_byte_ids(&file, id_of);
}

static void tear_down(void)
{
    grammar_vocab_free(&vocab);
    vocab_fini(&file);
}

static enum err compile(const json_t *schema, struct grammar **out)
{
    struct grammar_builder *b;
    symbol_id start;
    info = (struct err_info){0};
    *out = NULL;
    ck_assert_int_eq(grammar_builder_new(&b), ERR_OK);
    enum err err = schema_add(b, schema, &start, &info);
    if (err == ERR_OK) {
        return grammar_finish(&b, start, out, &info);
    }
    grammar_builder_free(&b);
    return err;
}

static bool says(struct grammar *g, const char *text)
{
    struct grammar_matcher *m;
    bool taken = true;
    ck_assert_int_eq(grammar_matcher_new(g, vocab, &m), ERR_OK);
    for (; *text != '\0' && taken; text++) {
        ck_assert_int_eq(grammar_matcher_accept(m, id_of[(unsigned char)*text], &taken), ERR_OK);
    }
    bool is = taken && grammar_matcher_may_end(m);
    grammar_matcher_free(&m);
    return is;
}

/* Schemas that cannot be held to, and what the refusal says. */
static const struct {
    const char *name, *text;
} refused[] = {
    {"set", "/uniqueItems: expected items of 1000 values at most"}, /* a grammar cannot look back at what was said */
    {"frozenset", "/uniqueItems: expected items of 1000 values at most"},
};

static const char *refusal_of(const char *name)
{
    const char *text = NULL;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        text = strcmp(refused[i].name, name) == 0 ? refused[i].text : text;
    }
    return text;
}

static void check_texts(struct grammar *g, const json_t *row, const char *which, bool wanted)
{
    const json_t *texts = json_object_get(row, which);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        ck_assert_msg(says(g, text) == wanted, "%s: %s is %s", json_string_value(json_object_get(row, "name")), text, which);
    }
}

static void check_file(const char *path)
{
    enum { MAX_BYTES = 1 << 20 };
    struct buf text;
    json_t *root;
    buf_init(&text, MAX_BYTES, MEM_GENERAL);
    ck_assert_msg(io_read_file(path, MAX_BYTES, &text, &info) == ERR_OK, "%s", info.text);
    ck_assert_msg(json_read(text.data, text.len, 64, path, &root, &info) == ERR_OK, "%s", info.text);
    const json_t *rows = json_object_get(root, "schemas");
    ck_assert_uint_gt(json_array_size(rows), 100);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name")), *why = refusal_of(name);
        struct grammar *g;
        enum err err = compile(json_object_get(row, "schema"), &g);
        if (why != NULL) {
            ck_assert_msg(err == ERR_INVALID_SCHEMA && strstr(info.text, why) != NULL, "%s: %s", name, info.text);
            continue;
        }
        ck_assert_msg(err == ERR_OK, "%s: %s", name, info.text);
        check_texts(g, row, "valid", true);
        check_texts(g, row, "invalid", false);
        grammar_unref(&g);
    }
    json_decref(root);
    buf_fini(&text);
}

START_TEST(zod) { check_file("tests/golden/schemas/zod.json"); }
END_TEST
START_TEST(pydantic) { check_file("tests/golden/schemas/pydantic.json"); }
END_TEST

Suite *schema_packages_suite(void)
{
    Suite *s = suite_create("schema_packages");
    TCase *t = tcase_create("schema_packages");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, zod);
    tcase_add_test(t, pydantic);
    suite_add_tcase(s, t);
    return s;
}
