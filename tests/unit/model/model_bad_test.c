/* Every family on bad hyper-parameters and tensors: each key and each tensor of the golden models is spoilt in turn
 * (rows G23 and G25 of the catalogue of bad inputs). What is refused must be refused by name, with what was expected
 * and what was found; what is not read may be anything. */
#include "engine/base/mem.h"
#include "engine/format/gguf_internal.h"
#include "engine/model/model.h"

#include <check.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *model_bad_suite(void);

static const char pattern[] = "tests/golden/models/*.gguf";
static const char expectations[] = ".expect.gguf";

/* A golden model in memory that can be changed; `g` is the unchanged one, over `data`. */
static struct {
    const char *path;
    unsigned char *data, *copy;
    size_t bytes;
    struct gguf *g;
    struct gguf *of_file; /* of a head: its model, and the model's plan */
    struct plan *of;
    char prefix[64]; /* "llama." */
    int n_refused, n_by_value;
} model;

static bool is_model(const char *path)
{
    size_t n = strlen(path), n_end = sizeof expectations - 1;
    return n < n_end || strcmp(path + n - n_end, expectations) != 0;
}

/* How many there are; *nth: the path of one. */
static int find_models(glob_t *found, const char **nth, int n)
{
    int n_models = 0;
    *nth = NULL;
    bool is_found = glob(pattern, 0, NULL, found) == 0;
    for (size_t i = 0; is_found && i < found->gl_pathc; i++) {
        if (is_model(found->gl_pathv[i]) && n_models++ == n) {
            *nth = found->gl_pathv[i];
        }
    }
    return n_models;
}

/* Opens the model of a head, NAME.draft.gguf. */
static void load_of(const char *path)
{
    char of[128];
    struct err_info info = {0};
    const char *at = strstr(path, ".draft.gguf");
    if (at == NULL) {
        return;
    }
    snprintf(of, sizeof of, "%.*s.gguf", (int)(at - path), path);
    ck_assert_msg(gguf_open(of, &model.of_file, &info) == ERR_OK, "%s: %s", of, info.text);
    ck_assert_int_eq(model_build(model.of_file, 0, &model.of, &info), ERR_OK);
}

static void load_model(const char *path)
{
    load_of(path);
    struct gguf_str arch;
    struct err_info info = {0};
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    model.path = path;
    model.bytes = (size_t)ftell(f);
    model.data = malloc(model.bytes);
    model.copy = malloc(model.bytes);
    rewind(f);
    ck_assert_uint_eq(fread(model.data, 1, model.bytes, f), model.bytes);
    fclose(f);
    memcpy(model.copy, model.data, model.bytes);
    ck_assert_msg(gguf_open_memory(model.data, model.bytes, &model.g, &info) == ERR_OK, "%s: %s", path, info.text);
    ck_assert_int_eq(gguf_get_str(model.g, "general.architecture", &arch, NULL), ERR_OK);
    snprintf(model.prefix, sizeof model.prefix, "%.*s.", (int)arch.len, arch.data);
}

static void unload_model(void)
{
    gguf_close(&model.g);
    plan_free(&model.of);
    gguf_close(&model.of_file);
    free(model.data);
    free(model.copy);
}

/* --- one change -------------------------------------------------------------------------------------------------- */

static bool is_refusal(enum err err)
{
    return err == ERR_BAD_HPARAM || err == ERR_BAD_TYPE || err == ERR_MISSING_TENSOR || err == ERR_BAD_TENSOR_SHAPE ||
           err == ERR_UNSUPPORTED_TYPE;
}

/* Builds from the copy; what: for messages. The error, ERR_OK, or ERR_NONE when the file itself is refused. */
static enum err build(const char *what, struct err_info *info)
{
    struct gguf *g;
    struct plan *p = NULL;
    size_t live = mem_live();
    *info = (struct err_info){0};
    if (gguf_open_memory(model.copy, model.bytes, &g, info) != ERR_OK) {
        return ERR_NONE;
    }
    enum err err =
        model.of != NULL ? model_build_head(g, model.of_file, model.of, 0, &p, info) : model_build(g, 0, &p, info);
    plan_free(&p);
    gguf_close(&g);
    if (mem_live() != live) {
        ck_abort_msg("%s: %s: memory is lost", model.path, what);
    }
    if (err == ERR_OK) {
        return ERR_OK;
    }
    if (!is_refusal(err) || info->code != err || strstr(info->text, "expected") == NULL ||
        strstr(info->text, "found") == NULL || strchr(info->text, '\n') != NULL) {
        ck_abort_msg("%s: %s: %s: %s", model.path, what, err_code(err), info->text);
    }
    model.n_refused++;
    return err;
}

/* Writes n bytes at an offset of the copy, builds, and takes them back. */
static enum err build_with(uint64_t at, const void *bytes, size_t n, const char *what, struct err_info *info)
{
    memcpy(model.copy + at, bytes, n);
    enum err err = build(what, info);
    memcpy(model.copy + at, model.data + at, n);
    return err;
}

static void must_name(const struct err_info *info, const char *what, const char *name)
{
    if (strstr(info->text, name) == NULL) {
        ck_abort_msg("%s: %s: '%s' is not in: %s", model.path, what, name, info->text);
    }
}

/* --- hyper-parameters -------------------------------------------------------------------------------------------- */

/* The bits of numbers that no hyper-parameter should have. */
static size_t bad_values(enum gguf_type type, uint64_t out[6])
{
    size_t n = 0;
    if (type == GGUF_F32) {
        const float values[] = {NAN, INFINITY, -INFINITY, 0, -1, 1e30f};
        for (; n < ARRAY_LEN(values); n++) {
            memcpy(&out[n], &values[n], sizeof values[n]);
        }
    } else if (type != GGUF_BOOL && type != GGUF_STRING) {
        const uint64_t values[] = {0, 1, 3, 0x7FFFFFFFu, UINT64_MAX, 513};
        for (; n < ARRAY_LEN(values); n++) {
            out[n] = values[n];
        }
    }
    return n;
}

/* Values of a key, or of its first element: refused by that key's name or for what follows from it. Not finite: always
 * by its name. */
static void spoil_value(const struct gguf_kv *kv, const char *key)
{
    uint64_t values[6], at = (uint64_t)(kv->data - model.data);
    size_t bytes = gguf_type_bytes(kv->elem_type);
    struct err_info info;
    for (size_t i = 0, n = bad_values(kv->elem_type, values); i < n; i++) {
        enum err err = build_with(at, &values[i], bytes, key, &info);
        if (err != ERR_OK && kv->elem_type == GGUF_F32 && i < 3) {
            must_name(&info, key, key);
        }
        model.n_by_value += err != ERR_OK && strstr(info.text, key) != NULL;
    }
}

/* A key under another name, and a value of another type of the same size. */
static void spoil_key(const struct gguf_kv *kv, const char *key)
{
    struct err_info info;
    uint64_t type_at = kv->offset + 8 + kv->key.len;
    const char other = '~';
    uint32_t type = kv->type == GGUF_F32 ? GGUF_U32 : GGUF_F32;
    build_with(type_at - 1, &other, 1, key, &info);
    if (gguf_type_bytes(kv->type) == 4 && build_with(type_at, &type, sizeof type, key, &info) != ERR_OK) {
        ck_assert_int_eq(info.code, ERR_BAD_TYPE);
        must_name(&info, key, key);
    }
}

START_TEST(every_hyper_parameter_is_refused_by_name)
{
    glob_t found;
    const char *path = NULL;
    find_models(&found, &path, _i);
    load_model(path);
    struct err_info info;
    enum err err = build("as it is", &info);
    ck_assert_msg(err == ERR_OK, "%s: %s", path, info.text);
    int n_keys = 0;
    for (size_t i = 0; i < gguf_n_kv(model.g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(model.g, i);
        char key[GGUF_MAX_KEY_BYTES + 1];
        snprintf(key, sizeof key, "%.*s", (int)kv->key.len, kv->key.data);
        if (strncmp(key, model.prefix, strlen(model.prefix)) == 0 && kv->n > 0) {
            n_keys++;
            spoil_value(kv, key);
            spoil_key(kv, key);
        }
    }
    ck_assert_msg(n_keys >= 8 && model.n_refused > 3 * n_keys && model.n_by_value > n_keys,
                  "%s: %d keys, %d refused, %d by their value", path, n_keys, model.n_refused, model.n_by_value);
    unload_model();
    globfree(&found);
}
END_TEST

/* --- tensors ----------------------------------------------------------------------------------------------------- */

/* Offsets of the last byte of a tensor's name, and of its first dimension, in its record. */
static uint64_t name_end(const struct gguf_tensor *t)
{
    return (uint64_t)((const unsigned char *)t->name.data - model.data) + t->name.len - 1;
}

/* Not there, when the message may name what could stand in its place: another tensor of the layer, or a key that tells
 * of another form; sides exchanged; integers for floats. */
static void spoil_tensor(const struct gguf_tensor *t, const char *name)
{
    struct err_info info;
    const char other = '~';
    uint64_t dims_at = name_end(t) + 1 + 4;
    int n_layer = strncmp(name, "blk.", 4) == 0 ? (int)strcspn(name + 4, ".") + 5 : (int)strlen(name);
    enum err missing = build_with(name_end(t), &other, 1, name, &info);
    if (missing != ERR_OK && missing != ERR_BAD_HPARAM) {
        char layer[GGUF_MAX_TENSOR_NAME_BYTES + 1];
        snprintf(layer, sizeof layer, "%.*s", n_layer, name);
        must_name(&info, name, layer);
        ck_assert_msg(missing == ERR_MISSING_TENSOR, "%s: %s: %s", model.path, name, info.text);
    }
    const uint64_t dims[2] = {t->dims[1], t->dims[0]};
    if (t->n_dims >= 2 && dims[0] != dims[1]) {
        enum err err = build_with(dims_at, dims, sizeof dims, name, &info);
        ck_assert_msg(err == ERR_OK || err == ERR_NONE || err == ERR_BAD_TENSOR_SHAPE || err == ERR_BAD_HPARAM,
                      "%s: %s: %s", model.path, name, info.text);
        if (err == ERR_BAD_TENSOR_SHAPE) {
            must_name(&info, name, name);
        }
    }
    if (t->type == DTYPE_F32) {
        uint32_t type = DTYPE_I32;
        enum err err = build_with(dims_at + 8 * (uint64_t)t->n_dims, &type, sizeof type, name, &info);
        ck_assert_msg(err == ERR_OK || err == ERR_UNSUPPORTED_TYPE, "%s: %s: %s", model.path, name, info.text);
        if (err != ERR_OK) {
            must_name(&info, name, name);
        }
    }
}

START_TEST(every_tensor_is_refused_by_name)
{
    glob_t found;
    const char *path = NULL;
    find_models(&found, &path, _i);
    load_model(path);
    size_t n = gguf_n_tensors(model.g);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(model.g, i);
        char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        spoil_tensor(t, name);
    }
    ck_assert_msg(model.n_refused > (int)n, "%s: %zu tensors, %d refused", path, n, model.n_refused);
    unload_model();
    globfree(&found);
}
END_TEST

START_TEST(there_are_models)
{
    glob_t found;
    const char *ignored;
    ck_assert_int_gt(find_models(&found, &ignored, -1), 20);
    globfree(&found);
}
END_TEST

Suite *model_bad_suite(void)
{
    glob_t found;
    const char *ignored;
    Suite *s = suite_create("model_bad");
    TCase *c = tcase_create("model_bad");
    int n = find_models(&found, &ignored, -1);
    globfree(&found);
    tcase_add_test(c, there_are_models);
    tcase_add_loop_test(c, every_hyper_parameter_is_refused_by_name, 0, n);
    tcase_add_loop_test(c, every_tensor_is_refused_by_name, 0, n);
    suite_add_tcase(s, c);
    return s;
}
