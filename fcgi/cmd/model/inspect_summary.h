/* The summary of `infcgi inspect`: properties of a model, its memory and its back ends. Threads: once, from main's. */
#ifndef INFCGI_CMD_MODEL_INSPECT_SUMMARY_H
#define INFCGI_CMD_MODEL_INSPECT_SUMMARY_H

#include "engine/format/gguf.h"

/* Prints a summary of g, opened from `path`, on stdout. cpu: instruction set of the kernels, as for --cpu. Unknown
 * values print as "-". If the model cannot run, a separate row shows the reason. */
void inspect_summary(const struct gguf *g, const char *path, const char *cpu);

#endif
