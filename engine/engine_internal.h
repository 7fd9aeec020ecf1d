/* What engine.c and the files beside it share. */
#ifndef INFCGI_ENGINE_INTERNAL_H
#define INFCGI_ENGINE_INTERNAL_H

#include "engine/base/mem.h"
#include "engine/chat/chat_template.h"
#include "engine/engine.h"
#include "engine/sched/sched.h"
#include "engine/tokenizer/tokenizer.h"

/* Constant while it is open, but for what lies behind sched. */
struct engine {
    struct gguf *gguf;
    struct plan *plan;
    struct tokenizer *tokenizer;
    struct chat_template *chat;  /* NULL: none, or none that can be used ... */
    struct err_info chat_failed; /* ... and why */
    const struct backend *backend;
    struct backend_model *model;
    struct sched *sched;
    struct engine_model_info info;
    struct arena arena; /* strings of info */
    int32_t *ends;      /* [n_ends] ids that end a generation */
    size_t n_ends;
    uint32_t max_seqs;
};

/* Is the prompt 1 to `room` tokens in range? Errors as engine_submit's (engine_stream.c). */
MUST_CHECK enum err engine_check_prompt(const struct engine *e, const int32_t *ids, size_t n, size_t room,
                                        struct err_info *info);

/* Reads all of a weight whose type can be executed (engine_verify.c). ERR_NUMERICAL, ERR_NOMEM. */
MUST_CHECK enum err engine_verify_weight(const struct plan_weight *w, struct err_info *info);

#endif
