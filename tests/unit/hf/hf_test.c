/* SafeTensors folders as models: values of config.json that cannot be (rows S12 and S14 of the catalogue of bad
 * inputs), tensors that do not fit it, and what a good folder becomes. */
#include "engine/base/mem.h"
#include "engine/hf/hf.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *hf_suite(void);

enum { D = 8, F = 12, V = 16, H = 2, HEAD = 4, L = 2, CTX = 64 };

/* A change of the good folder: a member of config.json (value NULL: it is taken out), or a tensor's shape ("" takes the
 * tensor out), dtype or name. */
struct change {
    const char *key, *value;
    const char *tensor, *shape, *dtype, *as;
    const struct change *also; /* OPTIONAL: of another tensor */
    unsigned char last_byte;   /* of the file, the head's; the others are 0 */
};

/* Appends an entry of the header; bytes of all elements are 0. */
static size_t put_tensor(char *header, size_t room, size_t at, const char *name, size_t rows, size_t columns,
                         const struct change *c)
{
    while (c->also != NULL && (c->tensor == NULL || strcmp(c->tensor, name) != 0)) {
        c = c->also;
    }
    bool is_changed = c->tensor != NULL && strcmp(c->tensor, name) == 0;
    if (is_changed && c->shape != NULL && c->shape[0] == '\0') {
        return at;
    }
    char shape[48];
    snprintf(shape, sizeof shape, rows == 0 ? "[%zu]" : "[%zu,%zu]", rows == 0 ? columns : rows, columns);
    if (is_changed && c->shape != NULL) {
        ck_assert_int_eq(sscanf(c->shape, "[%zu,%zu]", &rows, &columns), 2);
        snprintf(shape, sizeof shape, "%s", c->shape);
    }
    const char *dtype = is_changed && c->dtype != NULL ? c->dtype : "BF16";
    size_t bytes = MAX_OF(rows, 1) * columns * (dtype[0] == 'I' ? 4 : dtype[2] == '_' ? 1 : 2), n = strlen(header);
    snprintf(header + n, room - n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             n == 0 ? "{" : ",", is_changed && c->as != NULL ? c->as : name, dtype, shape, at, at + bytes);
    return at + bytes;
}

static void write_tensors(const struct change *c)
{
    static char header[1 << 14], file[1 << 16];
    size_t at = 0, room = sizeof header;
    header[0] = '\0';
    at = put_tensor(header, room, at, "model.embed_tokens.weight", V, D, c);
    for (int i = 0; i < L; i++) {
        static const struct {
            const char *name;
            size_t rows, columns;
        } of_a_layer[] = {{"input_layernorm", 0, D},     {"post_attention_layernorm", 0, D},
                          {"self_attn.q_proj", D, D},    {"self_attn.k_proj", HEAD, D},
                          {"self_attn.v_proj", HEAD, D}, {"self_attn.o_proj", D, D},
                          {"mlp.gate_proj", F, D},       {"mlp.up_proj", F, D},
                          {"mlp.down_proj", D, F}};
        for (size_t k = 0; k < ARRAY_LEN(of_a_layer); k++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", i, of_a_layer[k].name);
            at = put_tensor(header, room, at, name, of_a_layer[k].rows, of_a_layer[k].columns, c);
        }
    }
    at = put_tensor(header, room, at, "model.norm.weight", 0, D, c);
    at = put_tensor(header, room, at, "lm_head.weight", V, D, c);
    strcat(header, "}");
    uint64_t n = strlen(header);
    ck_assert_uint_lt(8 + n + at, sizeof file);
    memset(file, 0, sizeof file);
    memcpy(file, &n, sizeof n);
    memcpy(file + 8, header, n);
    file[8 + n + at - 1] = c->last_byte;
    folder_write("model.safetensors", file, 8 + n + at);
}

static void write_config(const struct change *c)
{
    json_t *config =
        json_pack("{s[s]si si si si si si si sf}", "architectures", "LlamaForCausalLM", "hidden_size", D,
                  "num_hidden_layers", L, "num_attention_heads", H, "num_key_value_heads", 1, "intermediate_size", F,
                  "max_position_embeddings", CTX, "vocab_size", V, "rms_norm_eps", 1e-6);
    ck_assert_ptr_nonnull(config);
    if (c->key != NULL && c->value == NULL) {
        ck_assert_int_eq(json_object_del(config, c->key), 0);
    } else if (c->key != NULL) {
        json_t *value = json_loads(c->value, JSON_DECODE_ANY, NULL);
        ck_assert_msg(value != NULL, "%s", c->value);
        ck_assert_int_eq(json_object_set_new(config, c->key, value), 0);
    }
    char *text = json_dumps(config, 0);
    folder_write_text("config.json", text);
    mem_free(text); /* jansson's memory is mem.h's */
    json_decref(config);
}

static void make_folder(const struct change *c)
{
    write_config(c);
    write_tensors(c);
}

/* Opens the folder and builds its plan. */
static enum err load(struct gguf **g, struct plan **p, struct err_info *info)
{
    *p = NULL;
    enum err err = model_open(folder_path(), g, info);
    return err != ERR_OK ? err : model_build(*g, 0, p, info);
}

START_TEST(a_good_folder_becomes_a_plan)
{
    make_folder(&(struct change){0});
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(load(&g, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert(p->n_embd == D && p->n_layers == L && p->n_heads == H && p->n_kv_heads == 1 && p->head_dim == HEAD);
    ck_assert(p->n_vocab == V && p->n_ctx_train == CTX);
    ck_assert(p->ropes[0].is_neox && p->ropes[0].n_rot == HEAD); /* nobody has permuted the rows */
    ck_assert(fabs(p->ropes[0].inv_freq[1] - 0.01) < 1e-7);      /* theta 10000 when the file does not say */
    ck_assert_str_eq(p->weights[p->steps[p->n_steps - 1].w[0]].name, "output.weight");
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

START_TEST(a_tied_head_is_the_embedding_though_the_folder_has_a_copy)
{
    make_folder(&(struct change){.key = "tie_word_embeddings", .value = "true"});
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(load(&g, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert_str_eq(p->weights[p->steps[p->n_steps - 1].w[0]].name, "token_embd.weight");
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* The weight of the last step, and the embedding's number of rows. */
static void expect_head(const struct change *c, const char *name)
{
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    make_folder(c);
    ck_assert_msg(load(&g, &p, &info) == ERR_OK, "%s", info.text);
    ck_assert_str_eq(p->weights[p->steps[p->n_steps - 1].w[0]].name, name);
    ck_assert_uint_eq(gguf_find_tensor(g, "token_embd.weight")->dims[1], V);
    plan_free(&p);
    gguf_close(&g);
    folder_remove();
}

/* As transformers and vLLM do: files say more than config.json. */
START_TEST(a_tied_head_of_other_values_is_used)
{
    expect_head(&(struct change){.key = "tie_word_embeddings", .value = "true", .last_byte = 1}, "output.weight");
    expect_head(
        &(struct change){.key = "tie_word_embeddings", .value = "true", .tensor = "lm_head.weight", .dtype = "F16"},
        "output.weight");
    expect_head(&(struct change){.key = "tie_word_embeddings", .value = "false"}, "output.weight");
}
END_TEST

START_TEST(a_tied_head_without_embedding_is_both)
{
    static const char embedding[] = "model.embed_tokens.weight";
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    expect_head(&(struct change){.key = "tie_word_embeddings", .value = "true", .tensor = embedding, .shape = ""},
                "token_embd.weight");
    expect_head(&(struct change){.tensor = embedding, .shape = ""}, "token_embd.weight");
    make_folder(&(struct change){.key = "tie_word_embeddings", .value = "false", .tensor = embedding, .shape = ""});
    ck_assert_int_eq(load(&g, &p, &info), ERR_MISSING_TENSOR);
    ck_assert_msg(strstr(info.text, embedding) != NULL, "%s", info.text);
    gguf_close(&g);
    folder_remove();
}
END_TEST

START_TEST(both_forms_of_rope_say_the_same)
{
    static const struct change forms[] = {
        {.key = "rope_parameters", .value = "{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":500.0}"},
        {.key = "rope_scaling", .value = "{\"type\":\"linear\",\"factor\":4.0,\"rope_theta\":500.0}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        make_folder(&forms[i]);
        struct gguf *g;
        struct plan *p;
        struct err_info info = {0};
        ck_assert_msg(load(&g, &p, &info) == ERR_OK, "%s", info.text);
        ck_assert(fabs(p->ropes[0].inv_freq[0] - 0.25) < 1e-7);
        ck_assert(fabs(p->ropes[0].inv_freq[1] - 0.25 / sqrt(500)) < 1e-7);
        plan_free(&p);
        gguf_close(&g);
        folder_remove();
    }
}
END_TEST

static void check_bad(const struct change *c, size_t i, enum err expected, const char *word)
{
    make_folder(c);
    struct gguf *g = NULL;
    struct plan *p;
    struct err_info info = {0};
    enum err err = load(&g, &p, &info);
    ck_assert_msg(err == expected, "case %zu: %s (%s), expected %s", i, err_code(err), info.text, err_code(expected));
    ck_assert_msg(strstr(info.text, word) != NULL, "case %zu: '%s' does not name '%s'", i, info.text, word);
    ck_assert_msg(err == ERR_NO_SAFETENSORS || strstr(info.text, "found") != NULL, "case %zu: %s", i, info.text);
    ck_assert(info.code == err);
    ck_assert_ptr_null(p);
    gguf_close(&g);
    folder_remove();
}

START_TEST(a_value_that_cannot_be_is_named)
{
    static const struct {
        struct change change;
        enum err err;
    } cases[] = {
        {{.key = "hidden_size", .value = NULL}, ERR_BAD_CONFIG},
        {{.key = "hidden_size", .value = "\"8\""}, ERR_BAD_CONFIG},
        {{.key = "hidden_size", .value = "8.5"}, ERR_BAD_CONFIG},
        {{.key = "hidden_size", .value = "-8"}, ERR_BAD_CONFIG},
        {{.key = "hidden_size", .value = "9223372036854775807"}, ERR_BAD_CONFIG},
        {{.key = "num_hidden_layers", .value = NULL}, ERR_BAD_CONFIG},
        {{.key = "num_attention_heads", .value = "0"}, ERR_BAD_CONFIG},
        {{.key = "max_position_embeddings", .value = "0"}, ERR_BAD_CONFIG},
        {{.key = "max_position_embeddings", .value = "null"}, ERR_BAD_CONFIG},
        {{.key = "max_position_embeddings", .value = "4294967296"}, ERR_BAD_CONFIG},
        {{.key = "num_attention_heads", .value = NULL}, ERR_BAD_CONFIG},
        {{.key = "num_attention_heads", .value = "-2"}, ERR_BAD_CONFIG},
        {{.key = "num_key_value_heads", .value = "0"}, ERR_BAD_CONFIG},
        {{.key = "num_hidden_layers", .value = "4294967296"}, ERR_BAD_CONFIG},
        {{.key = "intermediate_size", .value = "[12]"}, ERR_BAD_CONFIG},
        {{.key = "num_key_value_heads", .value = "true"}, ERR_BAD_CONFIG},
        {{.key = "head_dim", .value = "0"}, ERR_BAD_CONFIG},
        {{.key = "head_dim", .value = "[4]"}, ERR_BAD_CONFIG},
        {{.key = "rms_norm_eps", .value = "\"1e-6\""}, ERR_BAD_CONFIG},
        {{.key = "rope_theta", .value = "0"}, ERR_BAD_CONFIG},
        {{.key = "rope_theta", .value = "\"10000\""}, ERR_BAD_CONFIG},
        {{.key = "rope_parameters", .value = "7"}, ERR_BAD_CONFIG},
        {{.key = "rope_scaling", .value = "\"linear\""}, ERR_BAD_CONFIG},
        {{.key = "partial_rotary_factor", .value = "1.5"}, ERR_BAD_CONFIG},
        {{.key = "quantization_config", .value = "{\"quant_method\":\"hqq\"}"}, ERR_UNSUPPORTED_TYPE},
        {{.key = "architectures", .value = "[\"ToyForCausalLM\"]"}, ERR_UNSUPPORTED_ARCH},
        {{.key = "architectures", .value = "\"LlamaForCausalLM\""}, ERR_UNSUPPORTED_ARCH},
        {{.key = "architectures", .value = "[]"}, ERR_UNSUPPORTED_ARCH},
        {{.key = "architectures", .value = "[7]"}, ERR_UNSUPPORTED_ARCH},
        {{.key = "quantization_config", .value = "5"}, ERR_BAD_CONFIG},
        {{.key = "architectures", .value = NULL}, ERR_UNSUPPORTED_ARCH},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i].change, i, cases[i].err, cases[i].change.key);
    }
}
END_TEST

START_TEST(scaling_that_cannot_be_is_named)
{
    static const struct {
        const char *value, *word;
    } cases[] = {
        {"{\"rope_type\":\"ntk\"}", "rope_parameters.rope_type: expected default, linear"},
        {"{\"rope_type\":3}", "found 3"},
        {"{\"type\":\"ntk\"}", "rope_parameters.type: expected default"},
        {"{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":-2}}",
         "rope_parameters.full_attention.factor: expected 1e-06 to 1e+09, found -2"},
        {"{\"rope_type\":\"linear\"}", "factor"},
        {"{\"rope_type\":\"linear\",\"factor\":0}",
         "config.json: rope_parameters.factor: expected 1e-06 to 1e+09, found 0"},
        {"{\"rope_type\":\"linear\",\"factor\":\"4\"}", "rope_parameters.factor: expected a number, found '4'"},
        {"{\"rope_type\":\"llama3\",\"factor\":8}", "low_freq_factor"},
        {"{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":1}", "high_freq_factor"},
        {"{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":-1}", "beta_fast"},
        {"{\"rope_type\":\"longrope\",\"short_factor\":[1,1]}", "long_factor"},
        {"{\"rope_type\":\"longrope\",\"long_factor\":[1,1,1],\"short_factor\":[1,1]}", "long_factor"},
        {"{\"rope_type\":\"longrope\",\"long_factor\":[1,1],\"short_factor\":[1,-1]}",
         "rope_parameters.short_factor[1]: expected a positive number"},
        {"{\"rope_type\":\"longrope\",\"long_factor\":[1,\"1\"],\"short_factor\":[1,1]}", "long_factor[1]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct change c = {.key = "rope_parameters", .value = cases[i].value};
        check_bad(&c, i, ERR_BAD_CONFIG, cases[i].word);
    }
}
END_TEST

/* Values that are fine alone and contradict each other or the tensors, and tensors that do not fit: told in the words
 * of config.json and by the folder's names of tensors, also where it is the builder that finds them. */
START_TEST(contradictions_are_named)
{
    static const struct {
        struct change change;
        enum err err;
        const char *word;
    } cases[] = {
        {{.key = "num_attention_heads", .value = "3"},
         ERR_BAD_CONFIG,
         "num_attention_heads: expected a divisor of hidden_size 8, as there is no head_dim, found 3"},
        {{.key = "num_attention_heads", .value = "4"},
         ERR_BAD_CONFIG,
         "num_key_value_heads: expected that many heads of 2 to be the 4 rows"},
        {{.key = "num_key_value_heads", .value = "3"},
         ERR_BAD_CONFIG,
         "num_key_value_heads: expected a divisor of num_attention_heads 2, found 3"},
        {{.key = "num_key_value_heads", .value = "4"}, ERR_BAD_CONFIG, "num_attention_heads 2, found 4"},
        {{.key = "head_dim", .value = "8"},
         ERR_BAD_CONFIG,
         "head_dim: expected num_attention_heads 2 times it to be 8"},
        {{.key = "head_dim", .value = "3"}, ERR_BAD_CONFIG, "found 3"},
        {{.key = "hidden_size", .value = "16"},
         ERR_BAD_CONFIG,
         "hidden_size: expected 8, the width of the token embedding, found 16"},
        {{.key = "vocab_size", .value = "17"},
         ERR_BAD_CONFIG,
         "vocab_size: expected 1 to 16, the rows of the token embedding, found 17"},
        {{.key = "layer_types", .value = "[\"full_attention\"]"},
         ERR_BAD_CONFIG,
         "layer_types: expected 2, as num_hidden_layers says, found 1"},
        {{.key = "num_hidden_layers", .value = "3"},
         ERR_MISSING_TENSOR,
         "model.layers.2.input_layernorm.weight: expected a tensor [8], found none"},
        {{.key = "num_hidden_layers", .value = "1"},
         ERR_BAD_CONFIG,
         "num_hidden_layers: expected 2 or more, as there is 'model.layers.1."},
        {{.key = "num_hidden_layers", .value = "2000"},
         ERR_BAD_HPARAM,
         "config.json: num_hidden_layers: expected 1 to 1024, found 2000"},
        {{.key = "rms_norm_eps", .value = "-1"},
         ERR_BAD_HPARAM,
         "config.json: rms_norm_eps: expected 1e-13 to 1, found -1"},
        {{.key = "rms_norm_eps", .value = NULL},
         ERR_BAD_HPARAM,
         "config.json: rms_norm_eps: expected a value, found none"},
        {{.key = "intermediate_size", .value = NULL},
         ERR_BAD_HPARAM,
         "config.json: intermediate_size: expected a value, found none"},
        {{.key = "rope_parameters", .value = "{\"rope_type\":\"yarn\",\"factor\":0.5}"},
         ERR_BAD_HPARAM,
         "config.json: rope_parameters.factor: expected 1 to 1e+06, found 0.5"},
        {{.key = "partial_rotary_factor", .value = "0.1"},
         ERR_BAD_CONFIG,
         "partial_rotary_factor: expected an even number of 2 or more of the 4 components of a head, found 0.1 of"},
        {{.key = "rope_parameters", .value = "{\"partial_rotary_factor\":0.8}"},
         ERR_BAD_CONFIG,
         "rope_parameters.partial_rotary_factor: expected an even number of 2 or more of the 4 components of a head"},
        {{.tensor = "model.layers.0.self_attn.o_proj.weight", .shape = "[8,16]"},
         ERR_BAD_CONFIG,
         "head_dim: expected 8, as the first layer's o_proj takes 16 of num_attention_heads 2, found none"},
        {{.key = "num_key_value_heads", .value = NULL},
         ERR_BAD_CONFIG,
         "num_key_value_heads: expected that many heads of 4 to be the 4 rows of the first layer's k_proj, found none"},
        {{.key = "intermediate_size", .value = "8"},
         ERR_BAD_CONFIG,
         "intermediate_size: expected 12, what the first layer's down_proj takes, found 8"},
        {{.key = "num_key_value_heads", .value = "2"},
         ERR_BAD_CONFIG,
         "num_key_value_heads: expected that many heads of 4 to be the 4 rows of the first layer's k_proj, found 2"},
        {{.tensor = "model.layers.1.mlp.up_proj.weight", .shape = ""},
         ERR_MISSING_TENSOR,
         "model.layers.1.mlp.up_proj.weight"},
        {{.tensor = "model.layers.1.self_attn.v_proj.weight", .shape = "[8,4]"},
         ERR_BAD_TENSOR_SHAPE,
         "model.layers.1.self_attn.v_proj.weight: expected [4, 8], found [8, 4]"},
        {{.tensor = "model.norm.weight", .shape = ""}, ERR_MISSING_TENSOR, "model.norm.weight"},
        {{.tensor = "model.layers.0.mlp.down_proj.weight", .dtype = "I32"},
         ERR_UNSUPPORTED_TYPE,
         "model.layers.0.mlp.down_proj.weight"},
        {{.tensor = "lm_head.weight", .dtype = "F8_E4M3"}, ERR_UNSUPPORTED_TYPE, "F8_E4M3"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        check_bad(&cases[i].change, i, cases[i].err, cases[i].word);
    }
}
END_TEST

/* Every name that could stand in the place of one that is not known. */
START_TEST(an_unknown_family_lists_the_known_ones)
{
    struct change c = {.key = "architectures", .value = "[\"ToyForCausalLM\"]"};
    size_t n = 0;
    check_bad(&c, 0, ERR_UNSUPPORTED_ARCH, "config.json: architectures: found 'ToyForCausalLM'");
    for (int i = 0; model_family_at(i) != NULL; i++) {
        for (int k = 0; k < MODEL_MAX_HF && model_family_at(i)->hf[k] != NULL; k++) {
            for (const char *const *a = model_family_at(i)->hf[k]->architectures; *a != NULL; a++, n++) {
                check_bad(&c, n, ERR_UNSUPPORTED_ARCH, *a);
            }
        }
    }
    ck_assert_uint_gt(n, 20);
}
END_TEST

/* Expects a message that ends so; "": it names no nearest family. */
static void check_unknown(const struct change *c, const char *end)
{
    struct gguf *g = NULL;
    struct plan *p;
    struct err_info info = {0};
    make_folder(c);
    ck_assert_int_eq(load(&g, &p, &info), ERR_UNSUPPORTED_ARCH);
    const char *at = strstr(info.text, ". The nearest is ");
    ck_assert_msg(strcmp(at != NULL ? at : "", end) == 0, "'%s' does not end with '%s'", info.text, end);
    folder_remove();
}

START_TEST(an_unknown_family_is_told_the_nearest)
{
    static const char norm[] = "model.layers.1.input_layernorm.weight";
    static const struct {
        const char *arch, *as, *said;
    } cases[] = {
        {"[\"LlamaTooForCausalLM\"]", norm, ". The nearest is LlamaForCausalLM"},
        {"[\"Qwen2TooForCausalLM\"]", norm, ". The nearest is Qwen2ForCausalLM"},
        {"[\"LlamaTooForCausalLM\"]", "model.layers.1.self_attn.gate.weight",
         ". The nearest is LlamaForCausalLM, which does not read model.layers.*.self_attn.gate.weight"},
        {"[\"LlamaTooForCausalLM\"]", "model.vision.layers.1.gate.weight", ". The nearest is LlamaForCausalLM"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct change c = {.key = "architectures", .value = cases[i].arch, .tensor = norm, .as = cases[i].as};
        check_unknown(&c, cases[i].said);
    }
    /* not a folder of weights: only the list */
    check_unknown(&(struct change){.key = "architectures", .value = cases[0].arch, .tensor = norm, .dtype = "F7"}, "");
}
END_TEST

/* Rows S13: nothing that comes along is run, and a pickle is not even opened. */
START_TEST(code_and_pickles_are_left_alone)
{
    struct change c = {.key = "auto_map", .value = "{\"AutoModelForCausalLM\":\"modeling_x.XForCausalLM\"}"};
    make_folder(&c);
    folder_write("modeling_x.py", "raise SystemExit\n", 17);
    struct gguf *g;
    struct plan *p;
    struct err_info info = {0};
    ck_assert_msg(load(&g, &p, &info) == ERR_OK, "%s", info.text);
    plan_free(&p);
    gguf_close(&g);
    folder_write("pytorch_model.bin", "\x80\x02.", 3);
    ck_assert_int_eq(unlink(folder_file("model.safetensors")), 0);
    ck_assert_int_eq(model_open(folder_path(), &g, &info), ERR_NO_SAFETENSORS);
    ck_assert_msg(strstr(info.text, "found a pickle (pytorch_model.bin)") != NULL, "%s", info.text);
    folder_remove();
}
END_TEST

START_TEST(a_config_that_is_no_json_object_is_refused)
{
    static char brackets[1000001];
    const char *const texts[] = {"",      "{", "[]", "7", "{\"hidden_size\":8,\"hidden_size\":8}", "{\"a\":\"\xff\"}",
                                 brackets};
    memset(brackets, '[', sizeof brackets - 1);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        make_folder(&(struct change){0});
        folder_write_text("config.json", texts[i]);
        struct gguf *g = NULL;
        struct err_info info = {0};
        enum err err = model_open(folder_path(), &g, &info);
        ck_assert_msg(err != ERR_OK && strstr(info.text, "config.json") != NULL, "case %zu: %s", i, info.text);
        ck_assert_msg(err == (i == 2 || i == 3 ? ERR_UNSUPPORTED_ARCH : ERR_BAD_CONFIG) || err == ERR_BAD_CONFIG,
                      "case %zu: %s (%s)", i, err_code(err), info.text);
        ck_assert_ptr_null(g);
        folder_remove();
    }
    make_folder(&(struct change){0});
    ck_assert_int_eq(unlink(folder_file("config.json")), 0);
    struct gguf *g = NULL;
    struct err_info info = {0};
    ck_assert_int_eq(model_open(folder_path(), &g, &info), ERR_BAD_CONFIG);
    ck_assert_msg(strstr(info.text, "config.json") != NULL, "%s", info.text);
    folder_remove();
}
END_TEST

static double number_of(const struct gguf *g, const char *key)
{
    struct err_info info = {0};
    double v = NAN;
    uint64_t u;
    if (gguf_get_u64(g, key, &u, NULL) == ERR_OK) {
        return (double)u;
    }
    ck_assert_msg(gguf_get_f64(g, key, &v, &info) == ERR_OK, "%s", info.text);
    return v;
}

/* As config.json of Gemma 3 4B and larger is: what transformers takes for granted is not in it. */
START_TEST(what_config_json_leaves_out_is_the_familys)
{
    static const char text[] =
        "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{\"hidden_size\":8,"
        "\"intermediate_size\":12,\"num_hidden_layers\":2,\"sliding_window\":1024,"
        "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}";
    static const struct {
        const char *key;
        double value;
    } wanted[] = {{"gemma3.attention.head_count", 8},   {"gemma3.attention.head_count_kv", 4},
                  {"gemma3.attention.key_length", 256}, {"gemma3.context_length", 131072},
                  {"gemma3.attention.scale", 0.0625},   {"gemma3.attention.sliding_window", 1024},
                  {"gemma3.rope.freq_base", 1e6},       {"gemma3.rope.freq_base_swa", 1e4},
                  {"gemma3.rope.scaling.factor", 8}};
    const struct change keys = {.tensor = "model.layers.0.self_attn.k_proj.weight", .shape = "[1024,8]"};
    make_folder(
        &(struct change){.tensor = "model.layers.0.self_attn.o_proj.weight", .shape = "[8,2048]", .also = &keys});
    folder_write("config.json", text, sizeof text - 1);
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_msg(model_open(folder_path(), &g, &info) == ERR_OK, "%s", info.text);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        double found = number_of(g, wanted[i].key);
        ck_assert_msg(found == wanted[i].value, "%s: expected %g, found %g", wanted[i].key, wanted[i].value, found);
    }
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* What Gemma 4's plan does not have is refused. */
START_TEST(a_gemma_4_of_another_kind_is_refused)
{
    static const struct {
        const char *member, *word;
    } rows[] = {{"\"use_bidirectional_attention\":\"all\"", "expected none or vision, found 'all'"},
                {"\"attention_bias\":true", "attention_bias: expected false, found true"}};
    char text[320];
    make_folder(&(struct change){0});
    snprintf(text, sizeof text,
             "{\"architectures\":[\"Gemma4ForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":12,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
             "\"max_position_embeddings\":64,%s}",
             rows[_i].member);
    folder_write("config.json", text, strlen(text));
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_int_eq(model_open(folder_path(), &g, &info), ERR_BAD_CONFIG);
    ck_assert_msg(strstr(info.text, rows[_i].word) != NULL, "%s", info.text);
    ck_assert_ptr_null(g);
    folder_remove();
}
END_TEST

/* Without rope_parameters, a part of the global layers' components turns, as transformers takes for granted. */
START_TEST(gemma_4s_rope_is_not_plain_by_itself)
{
    static const char text[] =
        "{\"architectures\":[\"Gemma4ForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":12,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"global_head_dim\":16,"
        "\"max_position_embeddings\":64}";
    make_folder(&(struct change){0});
    folder_write("config.json", text, sizeof text - 1);
    struct gguf *g;
    struct err_info info = {0};
    ck_assert_msg(model_open(folder_path(), &g, &info) == ERR_OK, "%s", info.text);
    ck_assert(number_of(g, "gemma4.rope.freq_base") == 1e6 && number_of(g, "gemma4.rope.freq_base_swa") == 1e4);
    const struct gguf_tensor *t = gguf_find_tensor(g, "rope_freqs.weight");
    ck_assert(t != NULL && t->dims[0] == 8);
    const float *factors = t->data;
    ck_assert(factors[0] == 1.0f && factors[1] == 1.0f && factors[2] > 1e29f && factors[7] > 1e29f);
    gguf_close(&g);
    folder_remove();
}
END_TEST

/* Every allocation of a load may fail. */
START_TEST(out_of_memory_is_an_error_and_no_leak)
{
    make_folder(&(struct change){.key = "rope_scaling",
                                 .value = "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                                          "\"high_freq_factor\":4,\"original_max_position_embeddings\":16}"});
    bool is_done = false;
    int n = 0;
    for (; !is_done && n < 1000; n++) {
        struct gguf *g = NULL;
        struct plan *p;
        struct err_info info = {0};
        mem_fail_at(n);
        enum err err = load(&g, &p, &info);
        mem_fail_at(-1);
        ck_assert_msg(err == ERR_OK || err == ERR_NOMEM, "allocation %d: %s (%s)", n, err_code(err), info.text);
        is_done = err == ERR_OK;
        plan_free(&p);
        gguf_close(&g);
    }
    ck_assert(is_done && n > 10);
    folder_remove();
}
END_TEST

Suite *hf_suite(void)
{
    Suite *s = suite_create("hf");
    TCase *c = tcase_create("hf");
    tcase_add_test(c, a_good_folder_becomes_a_plan);
    tcase_add_test(c, a_tied_head_is_the_embedding_though_the_folder_has_a_copy);
    tcase_add_test(c, a_tied_head_of_other_values_is_used);
    tcase_add_test(c, a_tied_head_without_embedding_is_both);
    tcase_add_test(c, both_forms_of_rope_say_the_same);
    tcase_add_test(c, a_value_that_cannot_be_is_named);
    tcase_add_test(c, scaling_that_cannot_be_is_named);
    tcase_add_test(c, contradictions_are_named);
    tcase_add_test(c, an_unknown_family_lists_the_known_ones);
    tcase_add_test(c, an_unknown_family_is_told_the_nearest);
    tcase_add_test(c, code_and_pickles_are_left_alone);
    tcase_add_test(c, a_config_that_is_no_json_object_is_refused);
    tcase_add_test(c, what_config_json_leaves_out_is_the_familys);
    tcase_add_loop_test(c, a_gemma_4_of_another_kind_is_refused, 0, 2);
    tcase_add_test(c, gemma_4s_rope_is_not_plain_by_itself);
    tcase_add_test(c, out_of_memory_is_an_error_and_no_leak);
    suite_add_tcase(s, c);
    return s;
}
