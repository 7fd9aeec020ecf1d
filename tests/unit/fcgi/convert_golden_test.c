/* What `infcgi convert` makes of the golden folders, beside the files that llama.cpp b11434's converter made of them:
 * the tensors, and every key. `make peer-loads` runs both in llama.cpp itself. */
#include "engine/base/io.h"
#include "engine/convert/convert_write.h"
#include "engine/format/gguf_write.h"
#include "engine/model/model.h"
#include "tests/support/folder.h"

#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Suite *convert_golden_suite(void);

static struct gguf *open_model(const char *path)
{
    struct gguf *g = NULL;
    struct err_info info = {0};
    enum err err = model_open(path, &g, &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", path, info.text);
    return g;
}

static void remove_folder(void)
{
    folder_clear();
    folder_remove();
}

/* The folder's file, opened. */
static struct gguf *convert(const char *folder)
{
    char target[64];
    struct convert_report report;
    struct err_info info = {0};
    snprintf(target, sizeof target, "%s", folder_file("new.gguf"));
    struct convert_options o = {
        .source = folder, .target = target, .type = convert_type_find("copy"), .n_threads = 1, .may_replace = true};
    ck_assert_msg(convert_write(&o, &report, &info) == ERR_OK, "%s: %s", folder, info.text);
    return open_model(target);
}

enum where { OURS, THEIRS, VALUE }; /* only our file has the key; only theirs; both, with another value */

/* What may differ between a golden folder's file and the one that llama.cpp's converter made of it. A key that begins
 * with a dot stands after any architecture; one that ends with a dot or asterisk is how a key begins. */
static const struct difference {
    const char *key;
    enum where where;
    const char *reason;
} differences[] = {
    {"general.*", THEIRS, "parts of the folder's name, and sizes to show"},
    {"general.name", VALUE, "theirs has capitals"},
    {"general.name", OURS, "not of embedding models"},
    {"general.type", OURS, "not of embedding models"},
    {"general.file_type", VALUE, "one model's weights were rounded behind its converter"},
    {"general.file_type", OURS, "the same"},
    {"general.quantization_version", OURS, "theirs has it when something is quantised"},
    {"tokenizer.ggml.", THEIRS, "the folders have no tokenizer; their converter was given one"},
    {"tokenizer.ggml.token_type_count", OURS, "their converter writes RoBERTa's with the tokenizer"},
    {".vocab_size", OURS, "the rows of the embeddings; theirs counts the tokenizer's tokens"},
    {".rope.dimension_count", OURS, "the width of a head, which is their reader's default"},
    {".rope.freq_base", OURS, "10000, their reader's default; of BERT: not used"},
    {".rope.scaling.yarn_attn_factor", OURS, "computed, for ours; theirs computes it when it reads"},
    {".rope.scaling.yarn_beta_fast", OURS, "their reader's default"},
    {".rope.scaling.yarn_beta_slow", OURS, "their reader's default"},
    {".rope.scaling.yarn_truncate", OURS, "theirs has no such key"},
    {".attention.scale", OURS, "of Gemma: theirs computes it from the number of layers"},
    {"gemma3.final_logit_softcapping", OURS, "0: none"},
    {"llama.attention.sliding_window", OURS, "of Mistral: theirs has no window there"},
    {".attention.sliding_window_pattern", OURS, "theirs knows it by the architecture"},
    {".attention.key_length", OURS, "of Nomic: the width by the number of heads, their reader's default"},
    {".attention.value_length", OURS, "the same"},
    {".expert_gating_func", OURS, "a softmax, their reader's default"},
    {".expert_weights_norm", OURS, "false, or what theirs knows by the architecture"},
    {".expert_weights_scale", OURS, "1, their reader's default"},
    {".moe_every_n_layers", THEIRS, "1; the tensors say which layers have experts"},
    {".full_attention_interval", THEIRS, "attention.recurrent_layers says it layer by layer"},
    {".expert_count", THEIRS, "0 in Granite without experts"},
    {".expert_used_count", THEIRS, "the same"},
    {".expert_shared_feed_forward_length", THEIRS, "of Granite: the only block's, feed_forward_length again"},
    {"granite.ssm.", THEIRS, "sizes of layers that it has none of"},
    {"granitemoe.ssm.", THEIRS, "the same"},
    {"mamba.ssm.dt_b_c_rms_epsilon", OURS, "theirs has no such key"},
    {"granitehybrid.context_length", VALUE, "theirs writes 2^20 whatever config.json says"},
    {"nemotron_h.context_length", VALUE, "the same"},
    {"nemotron_h_moe.context_length", VALUE, "the same"},
    {"nemotron_h.rope.dimension_count", VALUE, "not used, as there is no RoPE"},
    {"nemotron_h_moe.rope.dimension_count", VALUE, "the same"},
    {"nemotron_h.expert_group_*", THEIRS, "1, of no experts"},
    {"kimi-linear.attention.value_length", VALUE, "not used: theirs writes head_dim of config.json"},
    {"kimi-linear.expert_group_used_count", THEIRS, "1, of no groups"},
    {"mistral4.attention.temperature_*", OURS, "theirs drops how queries grow"},
    {"hunyuan-dense.context_length", VALUE, "theirs writes 2^18 for a base with alpha"},
    {"hunyuan-dense.rope.scaling.", THEIRS, "none, their reader's default; the base has alpha in both"},
    {"command-r.rope.scaling.type", THEIRS, "none, their reader's default"},
    {"cohere2.rope.scaling.type", THEIRS, "the same"},
    {"cohere2moe.rope.scaling.type", THEIRS, "the same"},
    {"glm4moe.block_count", VALUE, "theirs counts the layer that predicts a further token, which the folder has not"},
    {"glm4moe.nextn_predict_layers", THEIRS, "the same"},
    {"gpt-oss.feed_forward_length", THEIRS, "all its layers have experts"},
    {"modern-bert.attention.sliding_window_pattern", VALUE, "layer by layer, where theirs has the period"},
    {"modern-bert.attention.layer_norm_rms_epsilon", THEIRS, "layer_norm_epsilon again"},
    {"modern-bert.rope.scaling.type", THEIRS, "none, their reader's default"},
    {"eurobert.rope.scaling.type", THEIRS, "the same"},
    {"eurobert.classifier.pooling_type", THEIRS, "of a head that it has none of"},
    {"neo-bert.rope.scaling.type", THEIRS, "none, their reader's default"},
    {"t5encoder.pooling_type", OURS, "theirs reads no description of the pooling"},
    {"t5encoder.attention.layer_norm_epsilon", THEIRS, "that of RMSNorm again"},
    {"phi3.attention.sliding_window", THEIRS, "0: none"},
    {"phi3.rope.scaling.type", OURS, "longrope, which theirs knows by its factors"},
    {"phi3.rope.scaling.original_context_length", THEIRS, "without scaling it says nothing"},
};

static bool may_differ(const char *key, enum where where)
{
    for (size_t i = 0; i < ARRAY_LEN(differences); i++) {
        const char *row = differences[i].key,
                   *name = row[0] == '.' && strchr(key, '.') != NULL ? strchr(key, '.') : key;
        size_t n = strlen(row);
        bool is_start = row[n - 1] == '.' || row[n - 1] == '*';
        n -= row[n - 1] == '*';
        if (differences[i].where == where && (is_start ? strncmp(name, row, n) == 0 : strcmp(name, row) == 0)) {
            return true;
        }
    }
    return false;
}

/* Element i; -1 of a string. */
static double number_at(const struct gguf_kv *kv, uint64_t i)
{
    enum gguf_type type = kv->elem_type;
    const unsigned char *p = kv->data;
    uint32_t u = 0;
    uint64_t u64;
    float f;
    double d;
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL:
        return p[i];
    case GGUF_I32:
    case GGUF_U32:
        memcpy(&u, p + i * sizeof u, sizeof u);
        return type == GGUF_U32 ? (double)u : (double)(int32_t)u;
    case GGUF_U64:
        memcpy(&u64, p + i * sizeof u64, sizeof u64);
        return (double)u64;
    case GGUF_F32:
        memcpy(&f, p + i * sizeof f, sizeof f);
        return (double)f;
    case GGUF_F64:
        memcpy(&d, p + i * sizeof d, sizeof d);
        return d;
    default:
        ck_abort_msg("a type that no test has met: %d", (int)type);
    }
}

/* Numbers count, not their types: one stands for an array of it. Floats may differ by their last bits. */
static bool is_same_value(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (a->elem_type == GGUF_STRING || b->elem_type == GGUF_STRING) {
        return a->type == b->type && gguf_value_bytes(a) == gguf_value_bytes(b) &&
               memcmp(a->data, b->data, (size_t)gguf_value_bytes(a)) == 0;
    }
    bool is_one[] = {a->type != GGUF_ARRAY, b->type != GGUF_ARRAY};
    if (a->n != b->n && !is_one[0] && !is_one[1]) {
        return false;
    }
    for (uint64_t i = 0; i < MAX_OF(a->n, b->n); i++) {
        double x = number_at(a, is_one[0] ? 0 : i), y = number_at(b, is_one[1] ? 0 : i);
        if (x != y && !(fabs(x - y) <= 1e-6 * fabs(y))) {
            return false;
        }
    }
    return true;
}

/* Keys of a that b has not, or with another value; a is ours first, then theirs. */
static void check_keys(const char *model, const struct gguf *a, const struct gguf *b, enum where where)
{
    for (size_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *kv = gguf_kv_at(a, i);
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)kv->key.len, kv->key.data);
        const struct gguf_kv *other = gguf_find(b, key);
        bool is_same = other != NULL && is_same_value(kv, other);
        ck_assert_msg(is_same || may_differ(key, other == NULL ? where : VALUE), "%s: %s: %s", model, key,
                      other != NULL   ? "another value than llama.cpp's converter writes"
                      : where == OURS ? "llama.cpp's converter writes no such key"
                                      : "missing, and llama.cpp's converter writes it");
    }
}

/* Factors of RoPE and decays, -exp(A_log), are computed, in other precisions. */
static bool has_same_data(const struct gguf_tensor *t, const struct gguf_tensor *u)
{
    if (!gguf_str_is(t->name, "rope_freqs.weight") && !gguf_str_ends(t->name, ".ssm_a")) {
        return memcmp(t->data, u->data, (size_t)t->bytes) == 0;
    }
    for (size_t i = 0; i < t->bytes / sizeof(float); i++) {
        float a, b;
        memcpy(&a, (const char *)t->data + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)u->data + i * sizeof b, sizeof b);
        if (!(fabsf(a - b) <= 1e-6f * fabsf(b))) {
            return false;
        }
    }
    return true;
}

static void check_peers_tensors(const char *model, const struct gguf *ours, const struct gguf *theirs)
{
    for (size_t i = 0; i < gguf_n_tensors(theirs); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(theirs, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        const struct gguf_tensor *u = gguf_find_tensor(ours, name);
        ck_assert_msg(u != NULL && memcmp(t->dims, u->dims, sizeof t->dims) == 0, "%s: %s", model, name);
        ck_assert_msg(t->type != u->type || has_same_data(t, u), "%s: %s: other data", model, name);
    }
}

/* Where the golden models have both forms of a model, ours is the peer's: its tensors and, but for the differences
 * above, its keys. */
START_TEST(golden_folders_become_the_peers_files)
{
    static const char models[] = "tests/golden/models";
    DIR *d = opendir(models);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        char from[300], peer[300];
        snprintf(from, sizeof from, "%s/%s", models, e->d_name);
        snprintf(peer, sizeof peer, "%s/%.*s.gguf", models, n > 3 ? (int)n - 3 : 0, e->d_name);
        const char *dot = strchr(e->d_name, '.');
        if (dot == NULL || strcmp(dot, ".hf") != 0 || !io_exists(peer)) { /* .draft.hf: a head, no model */
            continue;
        }
        struct gguf *ours = convert(from), *theirs = open_model(peer);
        check_peers_tensors(e->d_name, ours, theirs);
        check_keys(e->d_name, ours, theirs, OURS);
        check_keys(e->d_name, theirs, ours, THEIRS);
        gguf_close(&ours);
        gguf_close(&theirs);
    }
    closedir(d);
}
END_TEST

/* What llama.cpp's reader asks for and the comparison above does not see. */
START_TEST(keys_that_the_peer_must_have)
{
    static const struct {
        const char *folder, *key;
        uint64_t value;
    } rows[] = {
        {"tests/golden/models/gemma4-unified.hf", "gemma4.embedding_length_per_layer_input", 0},
        {"tests/golden/models/gemma4-unified.hf", "gemma4.rope.dimension_count", 24},
        {"tests/golden/models/gemma4-unified.hf", "gemma4.rope.dimension_count_swa", 12},
        {"tests/golden/models/bert-mean.hf", "tokenizer.ggml.token_type_count", 2},
        {"tests/golden/models/bert-xlmr-mean.hf", "tokenizer.ggml.token_type_count", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gguf *g = convert(rows[i].folder);
        uint64_t v;
        struct err_info info = {0};
        ck_assert_msg(gguf_get_u64(g, rows[i].key, &v, &info) == ERR_OK, "%s: %s", rows[i].folder, info.text);
        ck_assert_uint_eq(v, rows[i].value);
        gguf_close(&g);
    }
}
END_TEST

Suite *convert_golden_suite(void)
{
    Suite *s = suite_create("convert_golden");
    TCase *c = tcase_create("convert_golden");
    tcase_add_checked_fixture(c, NULL, remove_folder);
    tcase_add_test(c, golden_folders_become_the_peers_files);
    tcase_add_test(c, keys_that_the_peer_must_have);
    suite_add_tcase(s, c);
    return s;
}
