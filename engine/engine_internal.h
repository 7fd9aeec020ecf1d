/* What engine.c and engine_stream.c share. */
#ifndef INFCGI_ENGINE_INTERNAL_H
#define INFCGI_ENGINE_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/engine.h"
#include "engine/sched/sched.h"
#include "engine/tokenizer/tokenizer.h"

/* Constant while it is open, but for what lies behind sched. */
struct engine {
    struct gguf *gguf;
    struct plan *plan;
    struct tokenizer *tokenizer;
    const struct backend *backend;
    struct backend_model *model;
    struct sched *sched;
    struct engine_model_info info;
    struct arena arena;   /* strings of info */
    int32_t *ends;        /* [n_ends] ids that end a generation */
    size_t n_ends;
    uint32_t max_seqs;
};

#endif
