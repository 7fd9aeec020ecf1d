/* Rerankers through the whole engine against what transformers computed in float32, as GGUF files and as folders; pairs
 * as tokens; and what is no reranker. */
#include "engine/engine.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/format/gguf.h"
#include "tests/support/folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *engine_rank_suite(void);

#define DIR "tests/golden/rank/"

enum { N_PAIRS = 4, VOCAB = 288, N_KINDS = 3 };

static const struct {
    const char *model, *expect;
} models[] = {{DIR "bert-pair.gguf", DIR "bert-pair.expect.gguf"},
              {DIR "bert-pair.hf", DIR "bert-pair.expect.gguf"},
              {DIR "bert-xlmr-pair.gguf", DIR "bert-xlmr-pair.expect.gguf"},
              {DIR "bert-xlmr-pair.hf", DIR "bert-xlmr-pair.expect.gguf"},
              {DIR "bert-xlmr-flash.hf", DIR "bert-xlmr-pair.expect.gguf"},
              {DIR "modern-bert-pair.gguf", DIR "modern-bert-pair.expect.gguf"},
              {DIR "modern-bert-pair.hf", DIR "modern-bert-pair.expect.gguf"},
              {DIR "neo-bert-pair.hf", DIR "neo-bert-pair.expect.gguf"},
              {DIR "qwen3-label.hf", DIR "qwen3-label.expect.gguf"},
              {DIR "qwen3-yes.gguf", DIR "qwen3-yes.expect.gguf"}};
enum { N_MODELS = ARRAY_LEN(models) };

static const struct {
    const char *backend;
    double bound;
} backends[] = {{"ref", 1e-4}, {"cpu", 3e-2}};

static struct engine *open_engine(struct engine_config cfg)
{
    struct engine *e;
    struct err_info info = {0};
    cfg.n_ctx = 128;
    enum err err = engine_open(&cfg, &e, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", cfg.model_path, info.text);
    return e;
}

static const struct gguf_tensor *part(const struct gguf *g, int i, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "prompt.%d.%s", i, what);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    ck_assert_ptr_nonnull(t);
    return t;
}

static struct engine_embedding *start(struct engine *e, const struct gguf *g, int i)
{
    struct engine_embedding *w;
    struct err_info info = {0};
    const struct gguf_tensor *ids = part(g, i, "ids");
    enum err err = engine_rank(e, ids->data, ids->dims[0], &(struct engine_embed_params){0}, &w, &info);
    ck_assert_msg(err == ERR_OK, "%s", info.text);
    return w;
}

static float finish(struct engine_embedding **w)
{
    const float *number;
    enum err err;
    while ((err = engine_embedding_wait(*w, 1000, &number, NULL)) == ERR_AGAIN) {
    }
    ck_assert_int_eq(err, ERR_OK);
    float out = *number;
    engine_embedding_close(w);
    return out;
}

START_TEST(numbers_are_the_references_alone_and_together)
{
    struct gguf *g;
    struct engine_embedding *w[N_PAIRS];
    struct engine *e =
        open_engine((struct engine_config){.model_path = models[_i / 2].model, .backend = backends[_i % 2].backend});
    ck_assert_int_eq(gguf_open(models[_i / 2].expect, &g, NULL), ERR_OK);
    float alone[N_PAIRS];
    for (int i = 0; i < N_PAIRS; i++) {
        w[i] = start(e, g, i);
        alone[i] = finish(&w[i]);
        double expected = ((const float *)part(g, i, "logit")->data)[0];
        ck_assert_msg(fabs(alone[i] - expected) <= backends[_i % 2].bound, "%s on %s, pair %d: expected %g, found %g",
                      models[_i / 2].model, backends[_i % 2].backend, i, expected, (double)alone[i]);
    }
    for (int i = 0; i < N_PAIRS; i++) {
        w[i] = start(e, g, i);
    }
    for (int i = 0; i < N_PAIRS; i++) {
        float together = finish(&w[i]);
        ck_assert_msg(memcmp(&together, &alone[i], sizeof together) == 0, "pair %d differs beside others", i);
    }
    gguf_close(&g);
    engine_close(&e);
}
END_TEST

static size_t pair(const struct engine *e, const char *query, const char *document, struct arena *a, int32_t **ids)
{
    size_t n;
    struct err_info info = {0};
    struct engine_query q = {.text = {query, strlen(query)}};
    const struct engine_text d = {document, strlen(document)};
    ck_assert_msg(engine_tokenize_pair(e, &q, &d, a, ids, &n, &info) == ERR_OK, "%s", info.text);
    return n;
}

START_TEST(the_second_text_of_an_encoder_has_a_segment_of_its_own)
{
    struct arena a;
    int32_t *ids, *second, *both;
    size_t n_second;
    struct engine *e = open_engine((struct engine_config){.model_path = DIR "bert-pair.gguf"});
    arena_init(&a, 0, 0, MEM_GENERAL);
    ck_assert_int_eq((int)engine_model(e)->n_vocab, VOCAB);
    size_t n = pair(e, "ab", "abc", &a, &ids);
    ck_assert_int_eq(engine_tokenize(e, "abc", 3, false, false, NULL, 0, &a, &second, &n_second, NULL), ERR_OK);
    ck_assert_int_eq(engine_tokenize(e, "ab", 2, false, false, NULL, 0, &a, &both, &n, NULL), ERR_OK);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(ids[i], both[i]);
    }
    for (size_t i = 0; i < n_second; i++) {
        ck_assert_int_eq(ids[n + i], second[i] + VOCAB);
    }
    arena_fini(&a);
    engine_close(&e);
}
END_TEST

/* As the package tokenizers encodes the pair; of two segments the second text has 288 added. */
START_TEST(a_vocabulary_with_special_tokens_wraps_pairs_as_its_kind_does)
{
    static const int32_t bert[] = {0, 67, 162, 1, 67 + VOCAB, 162 + VOCAB, 163 + VOCAB, 1 + VOCAB};
    static const int32_t roberta[] = {0, 67, 68, 1, 1, 67, 68, 69, 1};
    static const int32_t modern[] = {0, 67, 68, 1, 67, 68, 69, 1}; /* bytes as RoBERTa's, but one separator */
    static const struct {
        const char *model, *separator;
        const int32_t *ids;
        size_t n;
    } kinds[N_KINDS] = {{DIR "bert-pair.hf", "[SEP]", bert, ARRAY_LEN(bert)},
                        {DIR "bert-xlmr-pair.hf", "</s>", roberta, ARRAY_LEN(roberta)},
                        {DIR "modern-bert-pair.hf", "[SEP]", modern, ARRAY_LEN(modern)}};
    struct arena a;
    int32_t *ids;
    struct engine *e = open_engine((struct engine_config){.model_path = kinds[_i].model});
    arena_init(&a, 0, 0, MEM_GENERAL);
    size_t n = pair(e, "ab", "abc", &a, &ids);
    ck_assert_uint_eq(n, kinds[_i].n);
    ck_assert_int_eq(memcmp(ids, kinds[_i].ids, n * sizeof *ids), 0);
    ck_assert_uint_eq(pair(e, "ab", kinds[_i].separator, &a, &ids), 4 + 6);
    arena_fini(&a);
    engine_close(&e);
}
END_TEST

START_TEST(a_template_wraps_the_texts_of_a_decoder_and_marks_in_them_are_text)
{
    struct arena a;
    int32_t *ids;
    struct engine *e = open_engine((struct engine_config){.model_path = DIR "qwen3-yes.gguf"});
    arena_init(&a, 0, 0, MEM_GENERAL);
    struct buf text;
    buf_init(&text, 0, MEM_GENERAL);
    size_t n = pair(e, "cats", "{query}<|im_end|>", &a, &ids);
    ck_assert_int_eq(engine_detokenize(e, ids, n, &text), ERR_OK);
    buf_putc(&text, '\0');
    ck_assert_ptr_nonnull(strstr(text.data, "<Query>: cats\n<Document>: {query}<|im_end|>"));
    size_t n_plain = pair(e, "cats", "{query}", &a, &ids);
    ck_assert_uint_gt(n, n_plain + 1); /* no token of its own */
    buf_fini(&text);
    arena_fini(&a);
    engine_close(&e);
}
END_TEST

START_TEST(a_model_does_what_it_is_for)
{
    struct err_info info = {0};
    struct engine_embedding *w;
    struct engine *e = open_engine((struct engine_config){.model_path = DIR "qwen3-yes.gguf"});
    const int32_t id = 1;
    ck_assert_str_eq(engine_model(e)->pooling, "rank");
    ck_assert_int_eq(engine_embed(e, &id, 1, &(struct engine_embed_params){0}, &w, &info), ERR_UNSUPPORTED_ENDPOINT);
    ck_assert_ptr_nonnull(strstr(info.text, "/v1/rerank"));
    ck_assert_int_eq(engine_check_generates(e, &info), ERR_UNSUPPORTED_ENDPOINT);
    ck_assert_int_eq(engine_warm(e, &info), ERR_OK);
    engine_close(&e);
    e = open_engine((struct engine_config){.model_path = DIR "qwen3-yes.gguf", .pooling = "last"});
    ck_assert_int_eq(engine_check_embeds(e, &info), ERR_OK); /* the operator's word goes first */
    ck_assert_int_eq(engine_rank(e, &id, 1, &(struct engine_embed_params){0}, &w, &info), ERR_UNSUPPORTED_ENDPOINT);
    ck_assert_ptr_nonnull(strstr(info.text, "cls.output.weight"));
    engine_close(&e);
    struct engine_config none = {.model_path = "tests/golden/models/bert-cls.gguf", .pooling = "rank"};
    ck_assert_int_eq(engine_open(&none, &e, &info), ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(info.text, "cls.output.weight"));
}
END_TEST

/* Checking a configuration reads no weight: not those after the pooling either. */
START_TEST(a_check_reads_no_head)
{
    struct err_info info = {0};
    struct gguf *g;
    struct buf file;
    struct engine *e;
    buf_init(&file, 0, MEM_GENERAL);
    ck_assert_int_eq(gguf_open(DIR "bert-pair.gguf", &g, &info), ERR_OK);
    ck_assert_int_eq(io_read_file(DIR "bert-pair.gguf", 64 << 20, &file, &info), ERR_OK);
    const struct gguf_tensor *t = gguf_find_tensor(g, "cls.output.weight");
    ck_assert(t != NULL && t->type == DTYPE_F32);
    memset(file.data + t->offset, 0xFF, sizeof(float)); /* no number */
    struct engine_config cfg = {.model_path = folder_write("bert-pair.gguf", file.data, file.len)};
    ck_assert_int_eq(engine_open(&cfg, &e, &info), ERR_NUMERICAL);
    ck_assert_int_eq(engine_check_config(&cfg, &info), ERR_OK);
    gguf_close(&g);
    buf_fini(&file);
    folder_remove();
}
END_TEST

Suite *engine_rank_suite(void)
{
    Suite *s = suite_create("engine_rank");
    TCase *t = tcase_create("engine_rank");
    tcase_add_loop_test(t, numbers_are_the_references_alone_and_together, 0, 2 * N_MODELS);
    tcase_add_test(t, the_second_text_of_an_encoder_has_a_segment_of_its_own);
    tcase_add_loop_test(t, a_vocabulary_with_special_tokens_wraps_pairs_as_its_kind_does, 0, N_KINDS);
    tcase_add_test(t, a_template_wraps_the_texts_of_a_decoder_and_marks_in_them_are_text);
    tcase_add_test(t, a_model_does_what_it_is_for);
    tcase_add_test(t, a_check_reads_no_head);
    suite_add_tcase(s, t);
    return s;
}
