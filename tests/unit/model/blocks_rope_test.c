/* RoPE whose frequencies hang on how long sequences may become. Expected ones: Hugging Face transformers 5.23,
 * modeling_rope_utils.py, with head_dim 16, 40 positions and theta 10000. */
#include "engine/model/model.h"

#include "engine/engine.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

Suite *blocks_rope_suite(void);

enum { N = 8, TRAINED = 40 };

/* A folder with the weights of llama-yarn and another RoPE. */
static const char *folder_of(const char *rope)
{
    char config[1024], link_to[4096 + 32], *root = realpath("tests/golden/models/llama-yarn.hf", NULL);
    ck_assert_ptr_nonnull(root);
    snprintf(link_to, sizeof link_to, "%s/model.safetensors", root);
    free(root);
    folder_clear();
    snprintf(config, sizeof config,
             "{\"architectures\":[\"LlamaForCausalLM\"],\"head_dim\":16,\"hidden_size\":48,\"intermediate_size\":80,"
             "\"max_position_embeddings\":%d,\"num_attention_heads\":4,\"num_hidden_layers\":2,"
             "\"num_key_value_heads\":2,\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"vocab_size\":288,"
             "\"hidden_act\":\"silu\",%s}",
             TRAINED, rope);
    folder_write_text("config.json", config);
    ck_assert_int_eq(symlink(link_to, folder_file("model.safetensors")), 0);
    return folder_path();
}

static const char dynamic[] = "\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2.0,\"rope_theta\":10000}";

START_TEST(dynamic_grows_with_the_context_that_is_asked_for)
{
    static const float plain[N] = {1, 0.31622776f, 0.1f, 0.031622777f, 0.01f, 0.0031622776f, 0.001f, 0.00031622776f};
    static const float at_70[N] = {
        1, 0.2774287164f, 0.0769667029f, 0.0213527735f, 0.0059238728f, 0.0016434524f, 0.00045594093f, 0.00012649111f};
    static const float at_80[N] = {
        1, 0.2702961266f, 0.0730599985f, 0.0197478328f, 0.0053377626f, 0.0014427766f, 0.00038997692f, 0.00010540926f};
    static const struct {
        uint32_t n_ctx;
        const float *expected;
    } cases[] = {{0, plain}, {7, plain}, {TRAINED, plain}, {70, at_70}, {80, at_80}, {1000, at_80}};
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(model_open(folder_of(dynamic), &g, &info) == ERR_OK, "%s", info.text);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ck_assert_msg(model_build(g, cases[i].n_ctx, &p, &info) == ERR_OK, "%s", info.text);
        ck_assert(p->n_ctx_train == TRAINED && p->n_ctx_max == 2 * TRAINED);
        ck_assert(p->ropes[0].n_rot == 2 * N);
        for (int k = 0; k < N; k++) {
            ck_assert_float_eq_tol(p->ropes[0].inv_freq[k], cases[i].expected[k], 2e-6f * cases[i].expected[k]);
        }
        plan_free(&p);
    }
    gguf_close(&g);
}
END_TEST

/* The engine serves the context of the training, or what it is asked for, up to the factor. */
START_TEST(the_context_can_be_stretched_so_far)
{
    static const struct {
        const char *rope;
        uint32_t asked, served; /* served 0: refused */
    } cases[] = {{dynamic, 0, TRAINED},
                 {dynamic, 80, 80},
                 {dynamic, 81, 0},
                 {"\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000}", 40, 40},
                 {"\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000}", 41, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine_memory m;
        struct err_info info = {0};
        struct engine_config cfg = {
            .model_path = folder_of(cases[i].rope), .n_ctx = cases[i].asked, .backend = "ref", .n_threads = 1};
        enum err err = engine_measure(&cfg, &m, &info);
        ck_assert_msg(err == (cases[i].served != 0 ? ERR_OK : ERR_CONFIG), "case %zu: %s", i, info.text);
        ck_assert(err != ERR_OK || m.n_ctx == cases[i].served);
    }
}
END_TEST

Suite *blocks_rope_suite(void)
{
    Suite *s = suite_create("blocks_rope");
    TCase *c = tcase_create("dynamic");
    tcase_add_checked_fixture(c, NULL, folder_remove);
    tcase_add_test(c, dynamic_grows_with_the_context_that_is_asked_for);
    tcase_add_test(c, the_context_can_be_stretched_so_far);
    suite_add_tcase(s, c);
    return s;
}
