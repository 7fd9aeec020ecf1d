/* `infcgi inspect --plan`: the steps that compute a model. Threads: one. */
#ifndef INFCGI_CMD_MODEL_INSPECT_PLAN_H
#define INFCGI_CMD_MODEL_INSPECT_PLAN_H

#include "engine/format/gguf.h"

/* Prints the plan of a model to stdout, one line per step: number, layer, operation; buffers read and written, with
 * widths; weights with types and shapes [columns, rows]; floats of recurrent state. Then prints bytes read and
 * operations per token. Fails as model_build. */
MUST_CHECK enum err inspect_plan(const struct gguf *g, struct err_info *info);

#endif
