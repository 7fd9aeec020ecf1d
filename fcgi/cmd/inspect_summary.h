/* The summary of `infcgi inspect`: what a model is, what it takes and what will run it. Threads: once, from main's. */
#ifndef INFCGI_CMD_INSPECT_SUMMARY_H
#define INFCGI_CMD_INSPECT_SUMMARY_H

#include "engine/format/gguf.h"

/* Prints g, which was opened from `path`, on stdout. cpu: instruction set of the kernels, as --cpu has it.
 * What cannot be told reads "-"; why the model cannot be run is said in a row of its own. */
void inspect_summary(const struct gguf *g, const char *path, const char *cpu);

#endif
