/* Names: sentence-transformers 5, SentenceTransformer.py, models/Dense.py and
 * models/Pooling.py; keys of GGUF: llama.cpp b11434,
 * conversion/gemma.py. */
#include "engine/hf/hf_internal.h"

#include "engine/base/buf.h"
#include "engine/base/io.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES = 64 << 10, FILE_DEPTH = 8, NAME_BYTES = 128, KEY_BYTES = 128 };

#define MODULES_FILE "modules.json"

/* Reads a JSON file of the folder. *out is NULL if it does not exist; else the caller calls json_decref. */
static enum err read_file(const struct hf *h, const char *name, json_t **out)
{
    static const char member[] = "{\"v\":";
    char path[SAFETENSORS_PATH_BYTES];
    struct buf text;
    struct err_info failed = {.text = "out of memory"};
    *out = NULL;
    TRY(safetensors_path(h->folder, name, path, h->info));
    json_t *object = NULL;
    buf_init(&text, FILE_BYTES + sizeof member + 1, MEM_GENERAL);
    buf_puts(&text, member); /* the reader only takes objects, but this can be an array */
    enum err err = buf_ok(&text);
    err = err == ERR_OK ? io_read_file(path, FILE_BYTES, &text, &failed) : err;
    bool is_there = err != ERR_FILE;
    buf_putc(&text, '}');
    err = err == ERR_OK ? buf_ok(&text) : err;
    if (err == ERR_OK) {
        err = json_read_file(text.data, text.len, FILE_DEPTH, name, &object, h->info);
        *out = json_incref(json_object_get(object, "v"));
    } else if (is_there) {
        err_set(h->info, err, NULL, "%s", failed.text);
    }
    json_decref(object);
    buf_fini(&text);
    return is_there ? err : ERR_OK;
}

/* Returns the part after the last dot: "torch.nn.modules.activation.Tanh" is a Tanh. */
static const char *last_part(const json_t *name)
{
    const char *s = json_string_value(name), *dot = s != NULL ? strrchr(s, '.') : NULL;
    return dot != NULL ? dot + 1 : s;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

/* A layer being read: `file` is its config.json, `number` that of its tensors. */
struct dense {
    const json_t *config;
    const char *file, *folder;
    int number;
};

static enum err bad(const struct hf *h, const struct dense *d, const char *key, const char *expected)
{
    char shown[JSON_READ_SHOWN];
    return err_set(h->info, ERR_BAD_CONFIG, key, "%s: %s: expected %s, found %s", d->file, key, expected,
                   json_read_show(json_object_get(d->config, key), shown));
}

static enum err add_act(struct hf *h, const struct dense *d)
{
    static const char *const names[PLAN_DENSE_ACT_COUNT] = {
        [PLAN_DENSE_NONE] = "Identity", [PLAN_DENSE_TANH] = "Tanh", [PLAN_DENSE_RELU] = "ReLU",
        [PLAN_DENSE_GELU] = "GELU",     [PLAN_DENSE_SILU] = "SiLU", [PLAN_DENSE_SIGMOID] = "Sigmoid"};
    const json_t *said = json_object_get(d->config, "activation_function");
    const char *name = said == NULL ? "Tanh" : last_part(said); /* the default there */
    for (int act = 0; act < PLAN_DENSE_ACT_COUNT; act++) {
        if (name != NULL && strcmp(name, names[act]) == 0) {
            char key[KEY_BYTES];
            const char *value = plan_dense_act_name(act);
            snprintf(key, sizeof key, "infcgi.dense_%d.activation", d->number);
            if (act != PLAN_DENSE_NONE) {
                gguf_build_str(&h->b, key, value, strlen(value));
            }
            return ERR_OK;
        }
    }
    return bad(h, d, "activation_function", "Identity, Tanh, ReLU, GELU, SiLU or Sigmoid");
}

/* Adds a width and its key. */
static enum err add_width(struct hf *h, const struct dense *d, const char *name, const char *end, uint64_t *out)
{
    char inner[KEY_BYTES];
    const json_t *v = json_read_get(d->config, name);
    json_int_t n = json_integer_value(v); /* 0 if it is not an integer */
    if (n < 1 || n > PLAN_MAX_WIDTH) {
        return bad(h, d, name, "1 to 1048576");
    }
    *out = (uint64_t)n;
    snprintf(inner, sizeof inner, "dense_%d_%s", d->number, end);
    gguf_build_u32(&h->b, hf_key(h, inner), (uint32_t)n);
    return ERR_OK;
}

static enum err add_tensors(struct hf *h, const struct dense *d, const struct safetensors_folder *f, uint64_t n_in,
                            uint64_t n_out)
{
    const struct st_tensor *w = safetensors_folder_find(f, "linear.weight"),
                           *bias = safetensors_folder_find(f, "linear.bias");
    char name[KEY_BYTES];
    if (w == NULL || w->n_dims != 2 || w->dims[0] != n_out || w->dims[1] != n_in) {
        return err_set(h->info, w == NULL ? ERR_MISSING_TENSOR : ERR_BAD_TENSOR_SHAPE, "linear.weight",
                       "%s: linear.weight: expected [%" PRIu64 ", %" PRIu64 "], found %s", d->folder, n_out, n_in,
                       w == NULL ? "none" : "another shape");
    }
    if (bias != NULL && (bias->n_dims != 1 || bias->dims[0] != n_out)) {
        return err_set(h->info, ERR_BAD_TENSOR_SHAPE, "linear.bias",
                       "%s: linear.bias: expected [%" PRIu64 "], found another shape", d->folder, n_out);
    }
    if (bias == NULL && !json_is_false(json_read_get(d->config, "bias"))) {
        return bad(h, d, "bias", "false, as there is no linear.bias");
    }
    snprintf(name, sizeof name, "dense_%d.weight", d->number);
    TRY(hf_add_copy(h, name, w));
    snprintf(name, sizeof name, "dense_%d.bias", d->number);
    return bias != NULL ? hf_add_copy(h, name, bias) : ERR_OK;
}

static enum err read_dense(struct hf *h, const struct dense *d)
{
    uint64_t n_in, n_out;
    TRY(add_width(h, d, "in_features", "feat_in", &n_in));
    TRY(add_width(h, d, "out_features", "feat_out", &n_out));
    TRY(add_act(h, d));
    char path[SAFETENSORS_PATH_BYTES];
    struct safetensors_folder *f;
    TRY(safetensors_path(h->folder, d->folder, path, h->info));
    TRY(safetensors_folder_open(path, &f, h->info));
    enum err err = add_tensors(h, d, f, n_in, n_out);
    safetensors_folder_close(&f);
    return err;
}

static enum err add_dense(struct hf *h, const char *folder, int number)
{
    char file[NAME_BYTES + 16];
    json_t *config;
    snprintf(file, sizeof file, "%s/config.json", folder);
    TRY(read_file(h, file, &config));
    struct dense d = {.config = config, .file = file, .folder = folder, .number = number};
    enum err err =
        config != NULL ? read_dense(h, &d) : err_set(h->info, ERR_BAD_CONFIG, folder, "%s: expected, found none", file);
    json_decref(config);
    return err;
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

/* Old files have one boolean per kind, new ones a name; numbers are GGUF's. */
static const struct {
    const char *flag, *name;
    uint32_t type; /* 0: not supported */
} modes[] = {
    {"pooling_mode_mean_tokens", "mean", 1},
    {"pooling_mode_cls_token", "cls", 2},
    {"pooling_mode_lasttoken", "lasttoken", 3},
    {"pooling_mode_max_tokens", "max", 0},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", 0},
    {"pooling_mode_weightedmean_tokens", "weightedmean", 0},
};

static enum err add_mode(struct hf *h, const json_t *config, const char *file)
{
    const char *name = json_string_value(json_read_get(config, "pooling_mode"));
    const char *found = name != NULL ? name : "none";
    uint32_t type = 0;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (name != NULL ? strcmp(name, modes[i].name) == 0 : json_is_true(json_read_get(config, modes[i].flag))) {
            n++;
            type = modes[i].type;
            found = modes[i].name;
        }
    }
    if (n != 1 || type == 0) { /* several kinds would be concatenated in one vector */
        return err_set(h->info, ERR_BAD_CONFIG, "pooling_mode",
                       "%s: pooling_mode: expected one of mean, cls, lasttoken; found %s%.64s", file,
                       n > 1 ? "several, the last " : "", found);
    }
    gguf_build_u32(&h->b, hf_key(h, "pooling_type"), type);
    h->has_pooling = true;
    return ERR_OK;
}

/* Adds pooling_type from config.json in the folder, which must exist if must_be is set. */
static enum err add_pooling(struct hf *h, const char *folder, bool must_be)
{
    char file[256];
    json_t *config;
    snprintf(file, sizeof file, "%.200s/config.json", folder);
    TRY(read_file(h, file, &config));
    if (config == NULL) {
        return must_be ? err_set(h->info, ERR_BAD_CONFIG, folder, "%s: expected, found none", file) : ERR_OK;
    }
    enum err err = add_mode(h, config, file);
    json_decref(config);
    return err;
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

/* Modules in their required order. */
enum stage { MODEL, POOLING, DENSE, NORMALIZE, N_STAGES };
static const char *const stage_names[N_STAGES] = {"Transformer", "Pooling", "Dense", "Normalize"};

/* Finds the module's folder, which is in the model's. */
static enum err find_folder(const struct hf *h, const json_t *module, size_t i, const char **out)
{
    char shown[JSON_READ_SHOWN];
    const json_t *v = json_read_get(module, "path");
    *out = json_string_value(v);
    return *out != NULL && strlen(*out) < NAME_BYTES && strchr(*out, '/') == NULL && strcmp(*out, "..") != 0
               ? ERR_OK
               : err_set(h->info, ERR_BAD_CONFIG, "path",
                         MODULES_FILE ": [%zu].path: expected a folder's name, found %s", i, json_read_show(v, shown));
}

static enum err add_module(struct hf *h, const json_t *module, size_t i, enum stage *at, int *n_dense)
{
    char shown[JSON_READ_SHOWN];
    const char *folder, *kind = last_part(json_read_get(module, "type"));
    enum stage stage = MODEL;
    while (stage < N_STAGES && (kind == NULL || strcmp(kind, stage_names[stage]) != 0)) {
        stage++;
    }
    bool is_next = stage == DENSE ? *at == POOLING || *at == DENSE : stage > *at || (i == 0 && stage == MODEL);
    if (stage == N_STAGES || !is_next || (stage != MODEL && *at == MODEL && stage != POOLING)) {
        return err_set(h->info, ERR_BAD_CONFIG, "type",
                       MODULES_FILE ": [%zu].type: expected Transformer, Pooling, Dense and Normalize in this order, "
                                    "found %s",
                       i, json_read_show(json_object_get(module, "type"), shown));
    }
    *at = stage;
    TRY(find_folder(h, module, i, &folder));
    if (stage == DENSE && *n_dense == PLAN_MAX_DENSE) {
        return err_set(h->info, ERR_BAD_CONFIG, "type", MODULES_FILE ": expected at most %d modules Dense, found more",
                       PLAN_MAX_DENSE);
    }
    if (stage == POOLING) {
        return add_pooling(h, folder, true);
    }
    return stage == DENSE ? add_dense(h, folder, 2 + (*n_dense)++) : ERR_OK;
}

static enum err add_modules(struct hf *h, const json_t *modules)
{
    enum stage at = MODEL;
    int n_dense = 0;
    if (!json_is_array(modules) || json_array_size(modules) == 0) {
        return err_set(h->info, ERR_BAD_CONFIG, NULL, MODULES_FILE ": expected an array of modules, found %s",
                       json_is_array(modules) ? "none" : json_read_type_name(modules));
    }
    for (size_t i = 0; i < json_array_size(modules); i++) {
        TRY(add_module(h, json_array_get(modules, i), i, &at, &n_dense));
    }
    return ERR_OK;
}

enum err hf_modules_add(struct hf *h)
{
    json_t *modules;
    TRY(read_file(h, MODULES_FILE, &modules));
    if (modules != NULL) {
        enum err err = add_modules(h, modules);
        json_decref(modules);
        return err;
    }
    char path[SAFETENSORS_PATH_BYTES];
    TRY(safetensors_path(h->folder, "2_Dense", path, h->info));
    if (io_is_folder(path)) {
        return err_set(h->info, ERR_BAD_CONFIG, "2_Dense",
                       "2_Dense: expected " MODULES_FILE " beside it, which says what it is, found none");
    }
    return add_pooling(h, "1_Pooling", false);
}
