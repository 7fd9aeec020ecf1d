/* Presents the SafeTensors files of a model's folder as one: model.safetensors, or the shards that
 * model.safetensors.index.json lists. A shard must be a file in the folder, and every tensor must be in exactly one.
 * Threads: after opening the object is read-only and can be shared. */
#ifndef INFCGI_FORMAT_SAFETENSORS_FOLDER_H
#define INFCGI_FORMAT_SAFETENSORS_FOLDER_H

#include "engine/format/safetensors.h"

enum { SAFETENSORS_MAX_SHARDS = 4096, SAFETENSORS_MAX_INDEX_BYTES = 64 << 20 };

enum { SAFETENSORS_PATH_BYTES = 4096 };

/* Writes "<folder>/<name>" to path. ERR_FILE: it is too long. */
MUST_CHECK enum err safetensors_path(const char *folder, const char *name, char path[SAFETENSORS_PATH_BYTES],
                                     struct err_info *info);

struct safetensors_folder;

/* Opens the folder. ERR_NO_SAFETENSORS (neither file exists; the message names what the folder has instead),
 * ERR_BAD_SHARD_INDEX, and errors of safetensors_open; the message then begins with the shard's name. The caller owns
 * *out until safetensors_folder_close. */
MUST_CHECK enum err safetensors_folder_open(const char *folder, struct safetensors_folder **out, struct err_info *info);
void safetensors_folder_close(struct safetensors_folder **f);

size_t safetensors_folder_n_tensors(const struct safetensors_folder *f);
const struct st_tensor *safetensors_folder_at(const struct safetensors_folder *f, size_t i); /* by name, ascending */
const struct st_tensor *safetensors_folder_find(const struct safetensors_folder *f, const char *name); /* or NULL */

/* Returns the [n] maps of the shards; owned by the object. */
const struct io_map *const *safetensors_folder_maps(const struct safetensors_folder *f, size_t *n);

/* Returns the name of the file that holds a tensor of f; borrowed. */
const char *safetensors_folder_file_of(const struct safetensors_folder *f, const struct st_tensor *t);

#endif
