/* Encoders as plans: the same from GGUF files and from folders, whoever wrote their config.json; and what is refused.
 */
#include "engine/model/model.h"

#include "engine/base/mem.h"
#include "tests/support/folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *bert_suite(void);

#define MODELS "tests/golden/models/"

enum { PATH_BYTES = 512, LAYERS = 2 };

static struct plan *build(const char *path, struct gguf **g)
{
    struct plan *p;
    struct err_info info = {0};
    enum err err = model_open(path, g, &info);
    err = err != ERR_OK ? err : model_build(*g, 0, &p, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", path, info.text);
    return p;
}

static void check_same_plan(const struct plan *a, const struct plan *b, const char *what)
{
    bool same = a->n_steps == b->n_steps && a->n_embd == b->n_embd && a->n_ctx_train == b->n_ctx_train &&
                a->pooling == b->pooling && a->is_bidirectional && b->is_bidirectional && a->head_dim == b->head_dim;
    ck_assert_msg(same, "%s: another shape", what);
    for (int i = 0; i < a->n_steps; i++) {
        const struct plan_step *s = &a->steps[i], *t = &b->steps[i];
        same = s->op == t->op && s->adds == t->adds && s->src == t->src && s->dst == t->dst && s->act == t->act &&
               s->eps == t->eps && (s->op != PLAN_NORM || s->norm.centers == t->norm.centers);
        for (int k = 0; k < 3 && same; k++) {
            same = (s->w[k] == PLAN_NONE) == (t->w[k] == PLAN_NONE) &&
                   (s->bias[k] == PLAN_NONE) == (t->bias[k] == PLAN_NONE);
            same = same && (s->w[k] == PLAN_NONE || strcmp(a->weights[s->w[k]].name, b->weights[t->w[k]].name) == 0);
        }
        ck_assert_msg(same, "%s: step %d differs", what, i);
    }
    ck_assert(a->n_ropes == b->n_ropes && a->ropes[0].n_rot == b->ropes[0].n_rot);
    ck_assert(a->ropes[0].n_rot == 0 ||
              memcmp(a->ropes[0].inv_freq, b->ropes[0].inv_freq, a->ropes[0].n_rot / 2 * sizeof(float)) == 0);
}

START_TEST(files_and_folders_give_one_plan)
{
    static const char *const names[] = {"bert-cls", "bert-mean", "nomic-bert-mean", "bert-xlmr-mean"};
    char path[PATH_BYTES];
    struct gguf *g, *h;
    snprintf(path, sizeof path, MODELS "%s.gguf", names[_i]);
    struct plan *a = build(path, &g);
    snprintf(path, sizeof path, MODELS "%s.hf", names[_i]);
    struct plan *b = build(path, &h);
    check_same_plan(a, b, names[_i]);
    bool is_nomic = _i == 2;
    ck_assert_int_eq(a->n_steps, 2 + LAYERS * 9 + 1);
    ck_assert(!a->has_logits && a->has_hidden && a->pooling == (_i == 0 ? PLAN_POOL_CLS : PLAN_POOL_MEAN));
    ck_assert(a->steps[0].op == PLAN_EMBED && (a->steps[0].w[1] == PLAN_NONE) == is_nomic);
    ck_assert(a->steps[0].w[2] != PLAN_NONE && a->steps[1].norm.centers && a->steps[1].bias[0] != PLAN_NONE);
    ck_assert((a->ropes[0].n_rot == 0) == !is_nomic);
    ck_assert(a->steps[7].op == PLAN_GLU && (a->steps[7].w[1] != PLAN_NONE) == is_nomic);
    ck_assert(a->steps[7].act == (is_nomic ? PLAN_SILU : PLAN_GELU));
    plan_free(&a);
    plan_free(&b);
    gguf_close(&g);
    gguf_close(&h);
}
END_TEST

/* --- folders of our own ------------------------------------------------------------------------------------------- */

/* A folder with the weights of a golden one, another config.json, and the description of the pooling (NULL: none). */
static const char *folder_of(const char *golden, const char *config, const char *pooling)
{
    char link_to[PATH_BYTES + 64], *root = realpath(MODELS, NULL);
    ck_assert_ptr_nonnull(root);
    snprintf(link_to, sizeof link_to, "%s/%s.hf/model.safetensors", root, golden);
    free(root);
    folder_clear();
    folder_write_text("config.json", config);
    ck_assert_int_eq(symlink(link_to, folder_file("model.safetensors")), 0);
    if (pooling != NULL) {
        ck_assert_int_eq(mkdir(folder_file("1_Pooling"), 0700), 0);
        folder_write_text("1_Pooling/config.json", pooling);
    }
    return folder_path();
}

#define NOMIC_MAKERS                                                                                                   \
    "{\"architectures\":[\"NomicBertModel\"],\"activation_function\":\"swiglu\",\"layer_norm_epsilon\":1e-12,"         \
    "\"max_trained_positions\":128,\"n_embd\":48,\"n_head\":3,\"n_inner\":80,\"n_layer\":2,\"n_positions\":8192,"      \
    "\"prenorm\":false,\"rotary_emb_base\":1000,\"rotary_emb_fraction\":1.0,\"rotary_emb_interleaved\":false,"         \
    "\"rotary_scaling_factor\":null"
#define NOMIC_TRANSFORMERS                                                                                             \
    "{\"architectures\":[\"NomicBertModel\"],\"hidden_act\":\"silu\",\"layer_norm_eps\":1e-12,\"hidden_size\":48,"     \
    "\"max_position_embeddings\":128,\"num_attention_heads\":3,\"intermediate_size\":80,\"num_hidden_layers\":2,"      \
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000}"
#define BERT                                                                                                           \
    "{\"architectures\":[\"BertModel\"],\"layer_norm_eps\":1e-12,\"hidden_size\":48,\"max_position_embeddings\":128,"  \
    "\"num_attention_heads\":4,\"intermediate_size\":80,\"num_hidden_layers\":2"
#define ROBERTA(positions, more)                                                                                       \
    "{\"architectures\":[\"XLMRobertaModel\"],\"layer_norm_eps\":1e-12,\"hidden_size\":48,\"max_position_"             \
    "embeddings\":" positions                                                                                          \
    ",\"num_attention_heads\":4,\"intermediate_size\":80,\"num_hidden_layers\":2,\"hidden_act\":\"gelu\"" more "}"
#define MEAN "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}"

START_TEST(both_kinds_of_nomic_config_are_read)
{
    struct gguf *g, *h;
    struct plan *a = build(MODELS "nomic-bert-mean.gguf", &g);
    static const char *const configs[] = {NOMIC_MAKERS "}", NOMIC_TRANSFORMERS "}"};
    static const char *const poolings[] = {MEAN, "{\"pooling_mode\":\"mean\"}"};
    for (int i = 0; i < 2; i++) {
        struct plan *b = build(folder_of("nomic-bert-mean", configs[i], poolings[i]), &h);
        check_same_plan(a, b, configs[i]);
        plan_free(&b);
        gguf_close(&h);
    }
    plan_free(&a);
    gguf_close(&g);
}
END_TEST

START_TEST(what_is_not_computed_is_refused_by_name)
{
    static const struct {
        const char *golden, *config, *pooling, *word;
        enum err err;
    } cases[] = {
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", MEAN, NULL, ERR_OK},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", NULL, NULL, ERR_OK},
        {"bert-cls", BERT ",\"hidden_act\":\"relu\"}", MEAN, "hidden_act: expected gelu, found 'relu'", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":7}", MEAN, "hidden_act: expected gelu, found 7", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\",\"position_embedding_type\":\"relative_key\"}", MEAN,
         "position_embedding_type: expected absolute", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", "{}", "pooling_mode: expected one of mean", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", "{\"pooling_mode\":\"max\"}", "found max", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", "{\"pooling_mode\":\"odd\"}", "found odd", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}",
         "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":true}", "found several", ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", "{\"pooling_mode_max_tokens\":true}", "found max",
         ERR_BAD_CONFIG},
        {"bert-cls", BERT ",\"hidden_act\":\"gelu\"}", "[", "1_Pooling/config.json", ERR_INVALID_JSON},
        {"bert-xlmr-mean", ROBERTA("130", ""), MEAN, NULL, ERR_OK},
        {"bert-xlmr-mean", ROBERTA("130", ",\"pad_token_id\":2"), MEAN, NULL, ERR_OK},
        {"bert-xlmr-mean", ROBERTA("2", ""), MEAN, "max_position_embeddings: expected 3 to", ERR_BAD_CONFIG},
        {"bert-xlmr-mean", ROBERTA("131", ""), MEAN,
         "embeddings.position_embeddings.weight: expected [129, 48], found [128, 48]", ERR_BAD_TENSOR_SHAPE},
        {"bert-xlmr-mean", ROBERTA("130", ",\"pad_token_id\":129"), MEAN, "max_position_embeddings: expected 131 to",
         ERR_BAD_CONFIG},
        {"bert-xlmr-mean", ROBERTA("130", ",\"pad_token_id\":\"1\""), MEAN, "pad_token_id: expected an integer",
         ERR_BAD_CONFIG},
        {"nomic-bert-mean", NOMIC_MAKERS ",\"moe_every_n_layers\":2}", MEAN, "expected gelu, found 'swiglu'",
         ERR_BAD_CONFIG},
        {"nomic-bert-mean", NOMIC_TRANSFORMERS ",\"prenorm\":true}", MEAN, "prenorm", ERR_BAD_CONFIG},
        {"nomic-bert-mean", BERT ",\"hidden_act\":\"gelu\"}", MEAN, "embeddings.position_embeddings.weight",
         ERR_MISSING_TENSOR},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gguf *g = NULL;
        struct plan *p = NULL;
        struct err_info info = {0};
        enum err err = model_open(folder_of(cases[i].golden, cases[i].config, cases[i].pooling), &g, &info);
        err = err != ERR_OK ? err : model_build(g, 0, &p, &info);
        ck_assert_msg(err == cases[i].err && (err == ERR_OK || strstr(info.text, cases[i].word) != NULL),
                      "case %zu: %s: %s", i, err_code(err), info.text);
        ck_assert(err != ERR_OK || p->pooling == (cases[i].pooling == NULL ? PLAN_POOL_NONE : PLAN_POOL_MEAN));
        plan_free(&p);
        gguf_close(&g);
    }
    folder_of("bert-cls", BERT ",\"hidden_act\":\"gelu\"}", MEAN);
    ck_assert_int_eq(mkdir(folder_file("2_Dense"), 0700), 0);
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_int_eq(model_open(folder_path(), &g, &info), ERR_BAD_CONFIG);
    ck_assert_msg(strstr(info.text, "2_Dense: expected modules.json") != NULL, "%s", info.text);
}
END_TEST

/* --- modules ------------------------------------------------------------------------------------------------------ */

#define MODULE(type, path)   "{\"type\":\"sentence_transformers.models." type "\",\"path\":\"" path "\"}"
#define FRONT                "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") ","
#define MODULES              FRONT MODULE("Dense", "2_Dense") "," MODULE("Normalize", "3_Normalize") "]"
#define DENSE(in, out, more) "{\"in_features\":" in ",\"out_features\":" out more "}"
#define TANH                 ",\"bias\":true,\"activation_function\":\"torch.nn.modules.activation.Tanh\""

/* A folder of bert-mean, of 60 dimensions, with the first layer of bert-dense-mean, of 28 from 60, after it. */
static enum err open_modules(const char *modules, const char *dense, struct gguf **g, struct plan **p,
                             struct err_info *info)
{
    char link_to[PATH_BYTES + 64], *root = realpath(MODELS, NULL);
    ck_assert_ptr_nonnull(root);
    snprintf(link_to, sizeof link_to, "%s/bert-dense-mean.hf/2_Dense/model.safetensors", root);
    free(root);
    folder_of("bert-mean",
              "{\"architectures\":[\"BertModel\"],\"layer_norm_eps\":1e-12,\"hidden_size\":60,"
              "\"max_position_embeddings\":128,\"num_attention_heads\":3,\"intermediate_size\":80,"
              "\"num_hidden_layers\":2,\"hidden_act\":\"gelu\"}",
              MEAN);
    ck_assert_int_eq(mkdir(folder_file("2_Dense"), 0700), 0);
    ck_assert_int_eq(symlink(link_to, folder_file("2_Dense/model.safetensors")), 0);
    if (dense != NULL) {
        folder_write_text("2_Dense/config.json", dense);
    }
    folder_write_text("modules.json", modules);
    *g = NULL;
    *p = NULL;
    enum err err = model_open(folder_path(), g, info);
    return err != ERR_OK ? err : model_build(*g, 0, p, info);
}

START_TEST(modules_become_the_pooling_and_layers_after_it)
{
    static const char *const plain[] = {MODULES, FRONT MODULE("Dense", "2_Dense") "]",
                                        "[{\"type\":\"custom.Transformer\",\"path\":\"\"},"
                                        "{\"type\":\"x.modules.pooling.Pooling\",\"path\":\"1_Pooling\"},"
                                        "{\"type\":\"x.Dense\",\"path\":\"2_Dense\"}]"};
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        ck_assert_msg(open_modules(plain[i], DENSE("60", "28", TANH), &g, &p, &info) == ERR_OK, "%s", info.text);
        ck_assert(p->pooling == PLAN_POOL_MEAN && p->dense.n == 1 && plan_head_width(&p->dense, 60) == 28);
        ck_assert(p->dense.layers[0].act == PLAN_DENSE_TANH && p->dense.layers[0].bias != NULL);
        plan_free(&p);
        gguf_close(&g);
    }
    ck_assert_int_eq(open_modules(FRONT MODULE("Normalize", "2_Normalize") "]", NULL, &g, &p, &info), ERR_OK);
    ck_assert(p->dense.n == 0 && plan_head_width(&p->dense, 60) == 60);
    plan_free(&p);
    gguf_close(&g);
}
END_TEST

START_TEST(modules_that_are_not_computed_are_refused_by_name)
{
    static const struct {
        const char *modules, *dense, *word;
        enum err err;
    } cases[] = {
        {"[]", NULL, "modules.json: expected an array of modules, found none", ERR_BAD_CONFIG},
        {"{}", NULL, "modules.json: expected an array of modules, found an object", ERR_BAD_CONFIG},
        {"[", NULL, "modules.json is not valid JSON", ERR_INVALID_JSON},
        {"[7]", NULL, "[0].type: expected Transformer", ERR_BAD_CONFIG},
        {"[" MODULE("Transformer", "") "," MODULE("Dense", "2_Dense") "]", NULL, "[1].type", ERR_BAD_CONFIG},
        {"[" MODULE("Pooling", "1_Pooling") "," MODULE("Transformer", "") "]", NULL, "[1].type", ERR_BAD_CONFIG},
        {FRONT MODULE("Normalize", "") "," MODULE("Dense", "2_Dense") "]", NULL, "[3].type", ERR_BAD_CONFIG},
        {FRONT MODULE("LSTM", "2_LSTM") "]", NULL, "found 'sentence_transformers.models.LSTM'", ERR_BAD_CONFIG},
        {FRONT MODULE("Dense", "../x") "]", NULL, "[2].path: expected a folder's name, found '../x'", ERR_BAD_CONFIG},
        {FRONT "{\"type\":\"a.Dense\"}]", NULL, "[2].path", ERR_BAD_CONFIG},
        {"[" MODULE("Transformer", "") "," MODULE("Pooling", "9_Pooling") "]", NULL, "9_Pooling/config.json: expected",
         ERR_BAD_CONFIG},
        {MODULES, NULL, "2_Dense/config.json: expected, found none", ERR_BAD_CONFIG},
        {MODULES, DENSE("60", "0", TANH), "2_Dense/config.json: out_features: expected 1 to 1048576, found 0",
         ERR_BAD_CONFIG},
        {MODULES, DENSE("60", "27", TANH), "linear.weight: expected [27, 60]", ERR_BAD_TENSOR_SHAPE},
        {MODULES, DENSE("60", "28", ",\"activation_function\":\"torch.nn.modules.activation.Softsign\""),
         "activation_function: expected Identity", ERR_BAD_CONFIG},
        {MODULES, DENSE("60", "28", ",\"activation_function\":null"), "activation_function", ERR_BAD_CONFIG},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gguf *g;
        struct plan *p;
        struct err_info info = {0};
        enum err err = open_modules(cases[i].modules, cases[i].dense, &g, &p, &info);
        ck_assert_msg(err == cases[i].err && strstr(info.text, cases[i].word) != NULL, "case %zu: %s: %s", i,
                      err_code(err), info.text);
    }
}
END_TEST

/* bert-cls.gguf with the first byte of one value changed: what stands after key and type. */
static enum err build_changed(const char *key, unsigned char value, struct err_info *info)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(MODELS "bert-cls.gguf", "rb");
    size_t n = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0, n_key = strlen(key), at = 0;
    ck_assert(f != NULL && n > 0 && n < sizeof bytes && fclose(f) == 0);
    while (at + n_key + 5 < n && memcmp(bytes + at, key, n_key) != 0) {
        at++;
    }
    ck_assert_msg(at + n_key + 5 < n, "%s is not in the file", key);
    bytes[at + n_key + 4] = value;
    struct gguf *g = NULL;
    struct plan *p = NULL;
    enum err err = gguf_open_memory(bytes, n, &g, info);
    err = err != ERR_OK ? err : model_build(g, 0, &p, info);
    plan_free(&p);
    gguf_close(&g);
    return err;
}

START_TEST(values_of_a_file_that_cannot_be_are_named)
{
    static const struct {
        const char *key, *word;
        unsigned char value;
        enum err err;
    } cases[] = {
        {"bert.pooling_type", "", 0, ERR_OK},
        {"bert.pooling_type", "", 3, ERR_OK},
        {"bert.pooling_type", "cls.output.weight: expected a tensor [48, 1]", 4, ERR_MISSING_TENSOR},
        {"bert.pooling_type", "bert.pooling_type: expected 0 to 4, found 5", 5, ERR_BAD_HPARAM},
        {"bert.attention.causal", "attention.causal", 1, ERR_BAD_HPARAM},
        {"bert.context_length", "position_embd.weight: expected [48, 127]", 127, ERR_BAD_TENSOR_SHAPE},
        {"bert.attention.head_count", "attention.head_count", 0, ERR_BAD_HPARAM},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err_info info = {0};
        enum err err = build_changed(cases[i].key, cases[i].value, &info);
        ck_assert_msg(err == cases[i].err && strstr(info.text, cases[i].word) != NULL, "case %zu: %s: %s", i,
                      err_code(err), info.text);
    }
}
END_TEST

Suite *bert_suite(void)
{
    Suite *s = suite_create("bert");
    TCase *c = tcase_create("bert");
    tcase_add_checked_fixture(c, NULL, folder_remove);
    tcase_add_loop_test(c, files_and_folders_give_one_plan, 0, 4);
    tcase_add_test(c, both_kinds_of_nomic_config_are_read);
    tcase_add_test(c, values_of_a_file_that_cannot_be_are_named);
    tcase_add_test(c, what_is_not_computed_is_refused_by_name);
    tcase_add_test(c, modules_become_the_pooling_and_layers_after_it);
    tcase_add_test(c, modules_that_are_not_computed_are_refused_by_name);
    suite_add_tcase(s, c);
    return s;
}
