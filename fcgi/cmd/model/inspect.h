/* Parts of `infcgi inspect`. Threads: one. */
#ifndef INFCGI_CMD_MODEL_INSPECT_H
#define INFCGI_CMD_MODEL_INSPECT_H

#include "engine/format/gguf.h"

/* Prints a summary of g, opened from `path`, on stdout: properties of the model, its memory and its back ends. cpu:
 * instruction set of the kernels, as for --cpu. Unknown values print as "-". If the model cannot run, a separate row
 * shows the reason. */
void inspect_summary(const struct gguf *g, const char *path, const char *cpu);

/* Prints the plan of a model to stdout, one line per step: number, layer, operation; buffers read and written, with
 * widths; weights with types and shapes [columns, rows]; floats of recurrent state. Then prints bytes read and
 * operations per token. Fails as model_build. */
MUST_CHECK enum err inspect_plan(const struct gguf *g, struct err_info *info);

#endif
