/* Added tokens that are found in normalized text or must be whole words: ids as Hugging Face's tokenizers gives them
 * (tests/golden/added_tokens.py), and text of clients, which never becomes a mark. */
#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/format/tokenizer_json.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *tokenizer_added_suite(void);

struct loaded {
    struct gguf *g;
    struct tokenizer *t;
};

/* text: of tokenizer.json. */
static struct loaded load(const char *text, size_t n)
{
    struct loaded l = {0};
    struct err_info info = {0};
    struct gguf_build b;
    json_t *config = json_object();
    folder_clear();
    folder_write("tokenizer.json", text, n);
    gguf_build_init(&b);
    ck_assert_msg(tokenizer_json_add(folder_path(), config, 0, &b, &info) == ERR_OK, "%s", info.text);
    ck_assert_int_eq(gguf_build_finish(&b, NULL, &l.g, &info), ERR_OK);
    ck_assert_msg(tokenizer_new(l.g, &l.t, &info) == ERR_OK, "%s", info.text);
    gguf_build_fini(&b);
    json_decref(config);
    return l;
}

static void unload(struct loaded *l)
{
    tokenizer_free(&l->t);
    gguf_close(&l->g);
}

/* The ids of a text, [3, 4] as JSON writes them. */
static char *ids_of(const struct loaded *l, const char *text, size_t n, const struct span *plain, size_t n_plain)
{
    struct token_list ids = {0};
    json_t *array = json_array();
    ck_assert_int_eq(tokenizer_encode(l->t,
                                      &(struct tokenizer_text){.s = text,
                                                               .n = n,
                                                               .flags = TOKENIZE_PARSE_SPECIAL,
                                                               .plain = plain,
                                                               .n_plain = n_plain,
                                                               .max_tokens = 4096},
                                      &ids, NULL),
                     ERR_OK);
    for (size_t i = 0; i < ids.n; i++) {
        json_array_append_new(array, json_integer(ids.ids[i]));
    }
    char *out = json_dumps(array, JSON_COMPACT);
    token_list_fini(&ids);
    json_decref(array);
    return out;
}

static void check_case(const struct loaded *l, const char *kind, const json_t *one)
{
    const json_t *text = json_array_get(one, 0);
    char *expected = json_dumps(json_array_get(one, 1), JSON_COMPACT);
    char *found = ids_of(l, json_string_value(text), json_string_length(text), NULL, 0);
    ck_assert_msg(strcmp(found, expected) == 0, "%s: '%s': expected %s, found %s", kind, json_string_value(text),
                  expected, found);
    mem_free(expected);
    mem_free(found);
}

START_TEST(ids_are_those_of_hugging_face)
{
    struct buf file;
    struct err_info info = {0};
    buf_init(&file, 0, MEM_GENERAL);
    ck_assert_msg(io_read_file("tests/golden/added_tokens.json", 1 << 20, &file, &info) == ERR_OK, "%s", info.text);
    json_t *kinds = json_loadb(file.data, file.len, 0, NULL);
    ck_assert_uint_gt(json_array_size(kinds), 8);
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *row = json_array_get(kinds, i), *cases = json_object_get(row, "cases");
        char *text = json_dumps(json_object_get(row, "tokenizer"), 0);
        struct loaded l = load(text, strlen(text));
        ck_assert_uint_gt(json_array_size(cases), 0);
        for (size_t k = 0; k < json_array_size(cases); k++) {
            check_case(&l, json_string_value(json_object_get(row, "kind")), json_array_get(cases, k));
        }
        unload(&l);
        mem_free(text);
    }
    json_decref(kinds);
    buf_fini(&file);
    folder_remove();
}
END_TEST

#define TOKENIZER(normalizer, added)                                                                                   \
    "{\"added_tokens\":[" added "],\"normalizer\":" normalizer ",\"pre_tokenizer\":{\"type\":\"ByteLevel\","           \
    "\"add_prefix_space\":false,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"<\":0,"     \
    "\"x\":1,\">\":2,\"A\":3,\"\xC3\x8C\":4}}}"
#define SPECIAL "{\"id\":9,\"content\":\"<x>\",\"special\":true,\"normalized\":true}"

/* Spans are those of the text before normalization. */
START_TEST(text_of_clients_is_no_mark)
{
    static const struct {
        const char *text;
        struct span plain[2];
        size_t n_plain;
        const char *ids;
    } rows[] = {
        {"<x>", {{0, 0}}, 0, "[9]"},
        {"<x>", {{0, 3}}, 1, "[0,1,2]"},
        {"<x>", {{2, 3}}, 1, "[0,1,2]"},
        {"<x><x><x>", {{3, 6}}, 1, "[9,0,1,2,9]"},
        {"\xE2\x84\xAB<x><x>", {{6, 9}}, 1, "[9,0,1,2]"}, /* the Angstrom sign becomes shorter in NFC */
        {"\xE2\x84\xAB<x>", {{0, 3}}, 1, "[9]"},
        {"<x>\xE2\x84\xAB<x>", {{0, 6}, {7, 8}}, 2, "[0,1,2,0,1,2]"},
    };
    static const char source[] = TOKENIZER("{\"type\":\"NFC\"}", SPECIAL);
    struct loaded l = load(source, sizeof source - 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *found = ids_of(&l, rows[i].text, strlen(rows[i].text), rows[i].plain, rows[i].n_plain);
        ck_assert_msg(strcmp(found, rows[i].ids) == 0, "%zu: expected %s, found %s", i, rows[i].ids, found);
        mem_free(found);
    }
    unload(&l);
    folder_remove();
}
END_TEST

/* A letter of a client's that joins one of the template's leaves no way to tell whose the result is. */
START_TEST(where_texts_join_there_are_no_marks)
{
    static const char source[] = TOKENIZER("{\"type\":\"NFC\"}", SPECIAL), text[] = "A\xCC\x8A<x>";
    struct loaded l = load(source, sizeof source - 1);
    char *found = ids_of(&l, text, sizeof text - 1, (struct span[]){{1, 3}}, 1);
    ck_assert_str_eq(found, "[0,1,2]"); /* the joined letter has no token */
    mem_free(found);
    found = ids_of(&l, text, sizeof text - 1, NULL, 0);
    ck_assert_str_eq(found, "[9]");
    mem_free(found);
    unload(&l);
    folder_remove();
}
END_TEST

/* Many parts, between tokens that are found in the text as it is, with many spans: each part has its own. */
START_TEST(many_parts_have_many_spans)
{
    enum { MANY = 3000 };
    static const char part[] = "<y>\xE2\x84\xAB<x><x>";
    static const char source[] =
        TOKENIZER("{\"type\":\"NFC\"}", SPECIAL ",{\"id\":8,\"content\":\"<y>\",\"special\":true}");
    struct loaded l = load(source, sizeof source - 1);
    struct span *plain = mem_zalloc_array(MANY, sizeof *plain, MEM_GENERAL);
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    for (size_t i = 0; i < MANY; i++) {
        buf_append(&text, part, sizeof part - 1);
        plain[i] = (struct span){text.len - 3, text.len}; /* the second <x> */
    }
    struct token_list found = {0};
    ck_assert_int_eq(
        tokenizer_encode(
            l.t,
            &(struct tokenizer_text){
                .s = text.data, .n = text.len, .flags = TOKENIZE_PARSE_SPECIAL, .plain = plain, .n_plain = MANY},
            &found, NULL),
        ERR_OK);
    ck_assert_uint_eq(found.n, 5 * (size_t)MANY);
    static const int32_t ids[] = {8, 9, 0, 1, 2};
    for (size_t i = 0; i < found.n; i++) {
        ck_assert_int_eq(found.ids[i], ids[i % 5]);
    }
    token_list_fini(&found);
    buf_fini(&text);
    mem_free(plain);
    unload(&l);
    folder_remove();
}
END_TEST

START_TEST(single_words_stand_alone)
{
    static const char source[] =
        TOKENIZER("null", "{\"id\":9,\"content\":\"xA\",\"special\":false,\"single_word\":true,\"normalized\":false}");
    struct loaded l = load(source, sizeof source - 1);
    static const char *const rows[][2] = {{"xA", "[9]"},        {"<xA>", "[0,9,2]"},  {"xAx", "[1,3,1]"},
                                          {"AxA", "[3,1,3]"},   {"xA<xA", "[9,0,9]"}, {"xA\xCC\x8A", "[1,3,4]"},
                                          {"xAxA", "[1,3,1,3]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *found = ids_of(&l, rows[i][0], strlen(rows[i][0]), NULL, 0);
        ck_assert_msg(strcmp(found, rows[i][1]) == 0, "%s: expected %s, found %s", rows[i][0], rows[i][1], found);
        mem_free(found);
    }
    unload(&l);
    folder_remove();
}
END_TEST

Suite *tokenizer_added_suite(void)
{
    Suite *s = suite_create("tokenizer_added");
    TCase *t = tcase_create("tokenizer_added");
    tcase_add_test(t, ids_are_those_of_hugging_face);
    tcase_add_test(t, text_of_clients_is_no_mark);
    tcase_add_test(t, where_texts_join_there_are_no_marks);
    tcase_add_test(t, many_parts_have_many_spans);
    tcase_add_test(t, single_words_stand_alone);
    suite_add_tcase(s, t);
    return s;
}
