/* Which family is nearest to a file of an unknown one, for messages. Each family's builder reads the file under the
 * file's own prefix of keys; a probe does not fail: it notes what the file lacks, and what the family never reads.
 * Threads: a probe belongs to one thread. */
#ifndef INFCGI_MODEL_MODEL_NEAREST_H
#define INFCGI_MODEL_MODEL_NEAREST_H

#include "engine/model/model.h"

struct model_probe;

/* Note that the family asks for a key or has found a tensor, of probe's file. */
void model_probe_key(struct model_probe *probe, const char *key);
void model_probe_tensor(struct model_probe *probe, const struct gguf_tensor *t);

/* Notes that the file lacks a tensor, or has it in another shape, and returns zeros [n_rows][n_in] in its place, in the
 * plan's memory. NULL: out of memory. */
const struct row_source *model_probe_lack(struct model_probe *probe, const char *name, uint64_t n_in, uint64_t n_rows);

/* Like model_nearest (model.h), with another table of families, which NULL ends. */
void model_nearest_from(const struct model_family *const *table, const struct gguf *g, char out[MODEL_NEAREST_BYTES]);

#endif
