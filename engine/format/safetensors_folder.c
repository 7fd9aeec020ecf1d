/* Collects the tensors of all shards of a folder. The index: {"weight_map": {"TENSOR":
 * "model-00001-of-00002.safetensors", ...}, ...} [huggingface_hub, serialization]. */
#include "engine/format/safetensors_folder.h"

#include "engine/base/buf.h"
#include "engine/base/json_read.h"
#include "engine/base/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_DEPTH = 8 };

struct safetensors_folder {
    struct safetensors **shards;
    char **names; /* of the shards' files */
    const struct io_map **maps;
    size_t n_shards, cap_shards;
    const struct st_tensor **tensors; /* sorted by name */
    size_t n_tensors;
};

enum err safetensors_path(const char *folder, const char *name, char path[SAFETENSORS_PATH_BYTES],
                          struct err_info *info)
{
    int n = snprintf(path, SAFETENSORS_PATH_BYTES, "%s/%s", folder, name);
    return n < SAFETENSORS_PATH_BYTES
               ? ERR_OK
               : err_set(info, ERR_FILE, NULL, "expected a path below %d bytes", SAFETENSORS_PATH_BYTES);
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* A file directly in the folder: not a path, not hidden. */
static bool is_shard_name(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name), n_end = sizeof end - 1;
    return n > n_end && n < 256 && name[0] != '.' && strchr(name, '/') == NULL && strcmp(name + n - n_end, end) == 0;
}

static enum err add_shard(struct safetensors_folder *f, const char *folder, const char *name, struct err_info *info)
{
    char path[SAFETENSORS_PATH_BYTES];
    TRY(safetensors_path(folder, name, path, info));
    char *copy = mem_dup(name, strlen(name), MEM_MODEL);
    TRY_MEM_FOR(copy != NULL, info, "out of memory for the model");
    struct safetensors *s;
    enum err err = safetensors_open(path, &s, info);
    if (err != ERR_OK) {
        err_name_file(info, name);
        mem_free(copy);
        return err;
    }
    f->names[f->n_shards] = copy;
    f->shards[f->n_shards] = s;
    f->maps[f->n_shards++] = safetensors_map(s);
    f->n_tensors += safetensors_n_tensors(s);
    return ERR_OK;
}

static enum err allocate_shards(struct safetensors_folder *f, size_t n, struct err_info *info)
{
    f->shards = mem_zalloc_array(n, sizeof *f->shards, MEM_MODEL);
    f->names = mem_zalloc_array(n, sizeof *f->names, MEM_MODEL);
    f->maps = mem_zalloc_array(n, sizeof *f->maps, MEM_MODEL);
    TRY_MEM_FOR(f->shards != NULL && f->names != NULL && f->maps != NULL, info, "out of memory for the model");
    return ERR_OK;
}

static int order_strings(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int order_tensors(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static bool holds(const struct safetensors *s, const struct st_tensor *t)
{
    size_t n = safetensors_n_tensors(s);
    return n > 0 && t >= safetensors_at(s, 0) && t <= safetensors_at(s, n - 1);
}

const char *safetensors_folder_file_of(const struct safetensors_folder *f, const struct st_tensor *t)
{
    for (size_t i = 0; i < f->n_shards; i++) {
        if (holds(f->shards[i], t)) {
            return f->names[i];
        }
    }
    return "";
}

/* Lists all tensors, sorted; none can be in two shards. */
static enum err list_tensors(struct safetensors_folder *f, struct err_info *info)
{
    f->tensors = mem_zalloc_array(f->n_tensors + 1, sizeof *f->tensors, MEM_MODEL);
    TRY_MEM_FOR(f->tensors != NULL, info, "out of memory for the model");
    size_t n = 0;
    for (size_t i = 0; i < f->n_shards; i++) {
        for (size_t k = 0; k < safetensors_n_tensors(f->shards[i]); k++) {
            f->tensors[n++] = safetensors_at(f->shards[i], k);
        }
    }
    qsort(f->tensors, n, sizeof *f->tensors, order_tensors);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(f->tensors[i]->name, f->tensors[i - 1]->name) == 0) {
            return err_set(info, ERR_BAD_SHARD_INDEX, f->tensors[i]->name,
                           "tensor '%.255s': expected in one shard, found in %.128s and %.128s", f->tensors[i]->name,
                           safetensors_folder_file_of(f, f->tensors[i - 1]),
                           safetensors_folder_file_of(f, f->tensors[i]));
        }
    }
    return ERR_OK;
}

/* --- the index ---------------------------------------------------------------------------------------------------- */

/* Writes the distinct shards that `map` names, sorted, into names[]; borrowed from the JSON. */
static enum err list_shards(const json_t *map, const char **names, size_t *n, struct err_info *info)
{
    const char *tensor;
    json_t *v;
    *n = 0;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, v)
    {
        const char *shard = json_string_value(v);
        if (shard == NULL || strlen(shard) != json_string_length(v) || !is_shard_name(shard)) { /* it contains \u0000 */
            return err_set(
                info, ERR_BAD_SHARD_INDEX, tensor,
                "weight_map: expected the name of a .safetensors file in the index's folder for '%.128s', found '%.128s'",
                tensor, shard != NULL ? shard : json_read_type_name(v));
        }
        names[(*n)++] = shard;
    }
    qsort(names, *n, sizeof *names, order_strings);
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        if (kept == 0 || strcmp(names[i], names[kept - 1]) != 0) {
            names[kept++] = names[i];
        }
    }
    *n = kept;
    return ERR_OK;
}

/* Checks that every tensor is in the shard of the index. Shards are open, in order of their names, and tensors listed. */
static enum err check_index(const struct safetensors_folder *f, const json_t *map, struct err_info *info)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, v)
    {
        const struct st_tensor *t = safetensors_folder_find(f, tensor);
        const char *shard = json_string_value(v);
        char **name = bsearch(&shard, f->names, f->n_shards, sizeof *f->names, order_strings);
        if (t == NULL || name == NULL || !holds(f->shards[name - f->names], t)) {
            return err_set(info, ERR_BAD_SHARD_INDEX, tensor, "weight_map: expected '%.128s' in %.128s, found %s%.128s",
                           tensor, json_string_value(v), t == NULL ? "no such tensor" : "it in ",
                           t == NULL ? "" : safetensors_folder_file_of(f, t));
        }
    }
    return ERR_OK;
}

static enum err open_shards(struct safetensors_folder *f, const char *folder, const json_t *map, struct err_info *info)
{
    size_t n = json_object_size(map);
    const char **names = mem_zalloc_array(n + 1, sizeof *names, MEM_GENERAL);
    TRY_MEM_FOR(names != NULL, info, "out of memory for the model");
    enum err err = list_shards(map, names, &n, info);
    if (err == ERR_OK && (n == 0 || n > SAFETENSORS_MAX_SHARDS)) {
        err = err_set(info, ERR_BAD_SHARD_INDEX, "weight_map", "weight_map: expected 1 to %d shards, found %zu",
                      SAFETENSORS_MAX_SHARDS, n);
    }
    err = err != ERR_OK ? err : allocate_shards(f, n, info);
    for (size_t i = 0; err == ERR_OK && i < n; i++) {
        err = add_shard(f, folder, names[i], info);
    }
    if (err == ERR_FILE) { /* the index names a missing file; the message has its name */
        err = ERR_BAD_SHARD_INDEX;
        if (info != NULL) {
            info->code = err;
        }
    }
    mem_free(names);
    TRY(err);
    TRY(list_tensors(f, info));
    return check_index(f, map, info);
}

static enum err read_index(struct safetensors_folder *f, const char *folder, const char *path, struct err_info *info)
{
    struct buf text;
    json_t *index = NULL;
    buf_init(&text, SAFETENSORS_MAX_INDEX_BYTES, MEM_GENERAL);
    enum err err = io_read_file(path, SAFETENSORS_MAX_INDEX_BYTES, &text, info);
    err = err != ERR_OK
              ? err
              : json_read_file(text.data, text.len, INDEX_DEPTH, "model.safetensors.index.json", &index, info);
    buf_fini(&text);
    if (err != ERR_OK && err != ERR_NOMEM) {
        err = ERR_BAD_SHARD_INDEX;
        if (info != NULL) {
            info->code = err;
        }
    }
    TRY(err);
    const json_t *map = json_object_get(index, "weight_map");
    err = json_is_object(map)
              ? open_shards(f, folder, map, info)
              : err_set(info, ERR_BAD_SHARD_INDEX, "weight_map", "weight_map: expected an object, found %s",
                        map == NULL ? "none" : json_read_type_name(map));
    json_decref(index);
    if (err != ERR_OK && info != NULL && strncmp(info->text, "weight_map", sizeof "weight_map" - 1) == 0) {
        err_name_file(info, "model.safetensors.index.json");
    }
    return err;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static enum err none_there(const char *folder, struct err_info *info)
{
    char path[SAFETENSORS_PATH_BYTES];
    TRY(safetensors_path(folder, "pytorch_model.bin", path, info));
    bool has_pickle = access(path, F_OK) == 0;
    TRY(safetensors_path(folder, "pytorch_model.bin.index.json", path, info));
    has_pickle |= access(path, F_OK) == 0;
    return err_set(info, ERR_NO_SAFETENSORS, NULL,
                   "expected model.safetensors or model.safetensors.index.json in the folder, found %s",
                   has_pickle ? "a pickle (pytorch_model.bin), which can run code and is never opened" : "neither");
}

static enum err open_folder(struct safetensors_folder *f, const char *folder, struct err_info *info)
{
    char path[SAFETENSORS_PATH_BYTES];
    TRY(safetensors_path(folder, "model.safetensors.index.json", path, info));
    if (access(path, F_OK) == 0) {
        return read_index(f, folder, path, info);
    }
    TRY(safetensors_path(folder, "model.safetensors", path, info));
    if (access(path, F_OK) != 0) {
        return none_there(folder, info);
    }
    TRY(allocate_shards(f, 1, info));
    TRY(add_shard(f, folder, "model.safetensors", info));
    return list_tensors(f, info);
}

enum err safetensors_folder_open(const char *folder, struct safetensors_folder **out, struct err_info *info)
{
    *out = mem_zalloc(sizeof **out, MEM_MODEL);
    TRY_MEM_FOR(*out != NULL, info, "out of memory for the model");
    enum err err = open_folder(*out, folder, info);
    if (err != ERR_OK) {
        safetensors_folder_close(out);
    }
    return err;
}

void safetensors_folder_close(struct safetensors_folder **folder)
{
    struct safetensors_folder *f = *folder;
    if (f == NULL) {
        return;
    }
    for (size_t i = 0; i < f->n_shards; i++) {
        safetensors_close(&f->shards[i]);
        mem_free(f->names[i]);
    }
    mem_free(f->shards);
    mem_free(f->names);
    mem_free(f->maps);
    mem_free(f->tensors);
    mem_free(f);
    *folder = NULL;
}

size_t safetensors_folder_n_tensors(const struct safetensors_folder *f) { return f->n_tensors; }
const struct st_tensor *safetensors_folder_at(const struct safetensors_folder *f, size_t i) { return f->tensors[i]; }

const struct st_tensor *safetensors_folder_find(const struct safetensors_folder *f, const char *name)
{
    const struct st_tensor named = {.name = name}, *key = &named;
    const struct st_tensor **found = bsearch(&key, f->tensors, f->n_tensors, sizeof *f->tensors, order_tensors);
    return found != NULL ? *found : NULL;
}

const struct io_map *const *safetensors_folder_maps(const struct safetensors_folder *f, size_t *n)
{
    *n = f->n_shards;
    return f->maps;
}
