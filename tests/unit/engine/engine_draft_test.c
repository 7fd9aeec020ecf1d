/* Which sources of drafts an operator can name, and draft models that open or are rejected with a reason. */
#include "engine/engine_internal.h"

#include "engine/format/gguf.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

Suite *engine_draft_suite(void);

#define MODELS "tests/golden/models/"

/* --- sources ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *words;
    unsigned sources;
} lists[] = {{"auto", ENGINE_LOOKUP | ENGINE_HEAD | ENGINE_DRAFT},
             {"off", 0},
             {"none", 0},
             {"no-head", ENGINE_LOOKUP | ENGINE_DRAFT},
             {"draft-mtp", ENGINE_HEAD},
             {"draft-eagle3", ENGINE_HEAD},
             {"draft-mtp,ngram-mod", ENGINE_HEAD | ENGINE_LOOKUP},
             {"lookup,head,model", ENGINE_LOOKUP | ENGINE_HEAD | ENGINE_DRAFT},
             {"ngram-simple,ngram-cache", ENGINE_LOOKUP}};

START_TEST(lists_of_sources)
{
    unsigned sources = 99;
    struct err_info info = {0};
    ck_assert_int_eq(engine_draft_parse(lists[_i].words, "speculate", &sources, &info), ERR_OK);
    ck_assert_uint_eq(sources, lists[_i].sources);
}
END_TEST

START_TEST(unknown_sources_are_refused)
{
    static const char *const wrong[][2] = {{"", "found ''"},
                                           {"head,", "found ''"},
                                           {"draft-dflash", "found 'draft-dflash'"},
                                           {"lookup,heads", "found 'heads'"},
                                           {"lookup head", "found 'lookup head'"}};
    struct err_info info = {0};
    unsigned sources = 99;
    ck_assert_int_eq(engine_draft_parse(wrong[_i][0], "speculate", &sources, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "speculate: expected one of auto, no-head, off, lookup") == info.text &&
                      strstr(info.text, wrong[_i][1]) != NULL,
                  "%s", info.text);
    ck_assert_uint_eq(sources, 99);
}
END_TEST

/* --- models ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *draft, *speculate, *predictor;
} opened[] = {
    {MODELS "llama-quants.gguf", MODELS "gemma3-local.gguf", NULL, MODELS "gemma3-local.gguf"},
    {MODELS "llama-quants.gguf", MODELS "gemma3-local.gguf", "model", MODELS "gemma3-local.gguf"},
    {MODELS "llama-quants.gguf", MODELS "gemma3-local.gguf", "lookup", NULL},
    {MODELS "llama-quants.gguf", MODELS "gemma3-local.gguf", "off", NULL},
    {MODELS "llama-quants.gguf", NULL, NULL, NULL},
    {MODELS "qwen35-head.gguf", NULL, NULL, "head"},
    {MODELS "qwen35-head.gguf", NULL, "lookup,model", NULL},
    {MODELS "qwen35-head.gguf", MODELS "llama-quants.gguf", NULL, MODELS "llama-quants.gguf"},
    {MODELS "qwen35-head.gguf", MODELS "llama-quants.gguf", "head", "head"},
    {MODELS "qwen35-head.gguf", MODELS "qwen35-head.gguf", "head", MODELS "qwen35-head.gguf"},
    {MODELS "qwen35-head.gguf", MODELS "qwen35-head.gguf", "model", NULL},
    {MODELS "llama-eagle3.gguf", MODELS "llama-eagle3.draft.gguf", NULL, MODELS "llama-eagle3.draft.gguf"},
    {MODELS "llama-eagle3.gguf", MODELS "llama-eagle3.draft.gguf", "draft-eagle3", MODELS "llama-eagle3.draft.gguf"},
    {MODELS "llama-eagle3.gguf", MODELS "llama-eagle3.draft.gguf", "model", NULL},
    {MODELS "gpt-oss-sinks.gguf", MODELS "qwen3-eagle3.draft.gguf", NULL, MODELS "qwen3-eagle3.draft.gguf"},
    {MODELS "gemma4-assistant.gguf", MODELS "gemma4-assistant.draft.gguf", NULL, MODELS "gemma4-assistant.draft.gguf"},
    {MODELS "gemma4-assistant.gguf", MODELS "gemma4-assistant.draft.gguf", "draft-mtp",
     MODELS "gemma4-assistant.draft.gguf"},
    {MODELS "gemma4-assistant.gguf", MODELS "gemma4-assistant.draft.gguf", "model", NULL},
};

START_TEST(what_predicts)
{
    struct engine_config cfg = {.model_path = opened[_i].model,
                                .draft_path = opened[_i].draft,
                                .speculate = opened[_i].speculate,
                                .n_threads = 1};
    struct engine *e;
    struct err_info info = {0};
    ck_assert_msg(engine_open(&cfg, &e, &info) == ERR_OK, "%s", info.text);
    const char *found = engine_model(e)->predictor;
    ck_assert_int_eq(found == NULL, opened[_i].predictor == NULL);
    ck_assert_msg(found == NULL || strcmp(found, opened[_i].predictor) == 0, "%s", found);
    ck_assert_int_eq(engine_check_file(e, &info), ERR_OK);
    engine_close(&e);
}
END_TEST

/* Its weights, pages and buffers count. */
START_TEST(the_draft_needs_memory)
{
    struct engine_config cfg = {.model_path = MODELS "llama-quants.gguf", .n_threads = 1};
    struct engine_memory alone, both;
    struct err_info info = {0};
    ck_assert_int_eq(engine_measure(&cfg, &alone, &info), ERR_OK);
    cfg.draft_path = MODELS "gemma3-local.gguf";
    ck_assert_int_eq(engine_measure(&cfg, &both, &info), ERR_OK);
    ck_assert_uint_gt(both.weight_bytes, alone.weight_bytes);
    ck_assert_uint_gt(both.kv_bytes, alone.kv_bytes);
    cfg.memory_limit_bytes = alone.weight_bytes + alone.kv_bytes + alone.activation_bytes;
    struct engine *e;
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_MEMORY_LIMIT);
}
END_TEST

/* It reads the model's pages, and no output is kept with them. */
START_TEST(an_assistant_needs_no_cache)
{
    struct engine_config cfg = {.model_path = MODELS "gemma4-assistant.gguf", .n_threads = 1};
    struct engine_memory alone, both;
    struct err_info info = {0};
    ck_assert_int_eq(engine_measure(&cfg, &alone, &info), ERR_OK);
    cfg.draft_path = MODELS "gemma4-assistant.draft.gguf";
    ck_assert_int_eq(engine_measure(&cfg, &both, &info), ERR_OK);
    ck_assert_uint_gt(both.weight_bytes, alone.weight_bytes);
    ck_assert_uint_eq(both.kv_bytes, alone.kv_bytes);
}
END_TEST

enum { CHANGED = 65 };

/* Writes a copy of a model in which one token is another, and returns its path. */
static const char *write_other_vocabulary(void)
{
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_int_eq(gguf_open(MODELS "llama-quants.gguf", &g, &info), ERR_OK);
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.tokens");
    const unsigned char *cursor = kv->data;
    struct gguf_str token = gguf_next_str(&cursor);
    for (int i = 0; i < CHANGED; i++) {
        token = gguf_next_str(&cursor);
    }
    const struct io_map *map = gguf_map(g);
    size_t at = (size_t)(token.data - (const char *)map->data);
    FILE *f = fopen(folder_file("other.gguf"), "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(map->data, 1, at, f);
    fputc('#', f);
    fwrite((const char *)map->data + at + 1, 1, map->bytes - at - 1, f);
    fclose(f);
    gguf_close(&g);
    return folder_file("other.gguf");
}

START_TEST(another_vocabulary_is_refused)
{
    struct engine_config cfg = {.model_path = MODELS "llama-quants.gguf", .n_threads = 1};
    struct engine *e;
    struct err_info info = {0};
    cfg.draft_path = write_other_vocabulary();
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "draft-model: expected the model's vocabulary, found another: token 65 is '") ==
                      info.text,
                  "%s", info.text);
    ck_assert_ptr_null(strchr(info.text, '\n'));
    folder_remove();
}
END_TEST

START_TEST(a_bad_file_is_named)
{
    struct engine_config cfg = {
        .model_path = MODELS "llama-quants.gguf", .draft_path = "there-is-no.gguf", .n_threads = 1};
    struct engine *e;
    struct err_info info = {0};
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_FILE);
    ck_assert_msg(strstr(info.text, "draft-model: there-is-no.gguf: ") == info.text, "%s", info.text);
    cfg.draft_path = NULL;
    cfg.speculate = "model";
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_CONFIG);
    ck_assert_str_eq(info.text, "draft-model: expected a file, as speculate names no other source, found none");
    cfg.speculate = NULL;
    cfg.draft_path = MODELS "qwen35-delta.gguf";
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_CONFIG);
    ck_assert_msg(strstr(info.text, "draft-model: expected a draft model without recurrent layers") == info.text, "%s",
                  info.text);
}
END_TEST

Suite *engine_draft_suite(void)
{
    Suite *s = suite_create("engine_draft");
    TCase *t = tcase_create("engine_draft");
    tcase_add_loop_test(t, lists_of_sources, 0, (int)ARRAY_LEN(lists));
    tcase_add_loop_test(t, unknown_sources_are_refused, 0, 5);
    tcase_add_loop_test(t, what_predicts, 0, (int)ARRAY_LEN(opened));
    tcase_add_test(t, the_draft_needs_memory);
    tcase_add_test(t, an_assistant_needs_no_cache);
    tcase_add_test(t, another_vocabulary_is_refused);
    tcase_add_test(t, a_bad_file_is_named);
    suite_add_tcase(s, t);
    return s;
}
