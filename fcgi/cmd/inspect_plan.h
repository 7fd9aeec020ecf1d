/* `infcgi inspect --plan`: what a model is made into, step by step. Threads: one. */
#ifndef INFCGI_CMD_INSPECT_PLAN_H
#define INFCGI_CMD_INSPECT_PLAN_H

#include "engine/format/gguf.h"

/* Prints the plan of a model to stdout, a line a step: its number, layer and operation; the buffers it reads and writes,
 * with their widths; its weights with types and shapes [columns, rows]; the floats of recurrent state it keeps. Behind
 * them what is read and computed for a token. Fails as model_build. */
MUST_CHECK enum err inspect_plan(const struct gguf *g, struct err_info *info);

#endif
