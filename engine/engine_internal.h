/* What engine.c and the files beside it share. */
#ifndef INFCGI_ENGINE_INTERNAL_H
#define INFCGI_ENGINE_INTERNAL_H

#include "engine/backend/backend_parts.h"
#include "engine/base/mem.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/chat_template.h"
#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "engine/sched/sched.h"
#include "engine/tokenizer/tokenizer.h"

#include <pthread.h>

/* Constant while it is open, but for what lies behind sched. */
struct engine {
    struct gguf *gguf;
    struct plan *plan;
    struct tokenizer *tokenizer;
    struct chat_template *chat;  /* NULL: none, or none that can be used ... */
    struct err_info chat_failed; /* ... and why */
    const struct chat_format *tool_format;
    struct backend_parts parts;
    const struct backend *backend; /* of these */
    struct backend_model *model;
    struct kv_disk *disk; /* snapshots; NULL = there are none */
    struct sched *sched;
    struct engine_head *head; /* of the arena: what embeddings or scores are made by; NULL = states are embeddings */
    struct engine_model_info info;
    struct arena arena; /* strings of info */
    int32_t *ends;      /* [n_ends] ids that end a generation */
    size_t n_ends;
    uint32_t max_seqs;
    pthread_mutex_t grammar_lock;
    struct grammar_vocab *vocab;    /* (grammar_lock) made when it is first needed; constant from then on */
    struct grammar_cache *grammars; /* of requests so far */
    bool closes_objects;            /* engine_config's */
    bool *unfit; /* [L] layers that the device chosen for them computes wrongly; NULL = none is known */
};

/* What the back end is opened with, and what that takes. */
struct engine_backend {
    struct backend_config cfg;
    struct backend_device device;
    struct backend_measure measure;
    struct backend_bytes takes; /* of all memories */
    size_t pool_bytes;          /* pages and states */
};

/* Fills e->backend, e->info.n_ctx, *sc but for what an open back end says, and *out, of the plan and what the operator
 * asked for (engine_plan.c). Fails as engine_open does, but with ERR_MEMORY_LIMIT, .. */
MUST_CHECK enum err engine_plan(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                                struct engine_backend *out, struct err_info *info);
/* .. which says that the device or the operator's limit has no room for it. */
MUST_CHECK enum err engine_check_memory(const struct engine *e, const struct engine_config *cfg,
                                        const struct engine_backend *b, struct err_info *info);

/* Opens e->disk where the operator asked for it and the model keeps anything (engine_snapshots.c), once the back end is open. ERR_CONFIG,
 * ERR_NOMEM; what else goes wrong leaves the engine without snapshots, as cfg->snapshots is told. */
MUST_CHECK enum err engine_open_snapshots(struct engine *e, const struct engine_config *cfg,
                                          const struct engine_backend *b, struct err_info *info);

/* Is the prompt 1 to `room` tokens in range? Errors as engine_submit's (engine_stream.c). */
MUST_CHECK enum err engine_check_prompt(const struct engine *e, const int32_t *ids, size_t n, size_t room,
                                        struct err_info *info);

/* Layers behind the pooling (engine_head.c). load: those of a plan, one at least, whose file is read, in the arena;
 * ERR_NOMEM, ERR_NUMERICAL. run: what becomes of pooled states [n_embd], within room[engine_head_room]. Threads: any. */
MUST_CHECK enum err engine_head_load(struct arena *arena, const struct plan_head *p, struct engine_head **out,
                                     struct err_info *info);
size_t engine_head_room(const struct engine_head *h); /* doubles; 0 of NULL */
const double *engine_head_run(const struct engine_head *h, const float *states, double *room);

/* The number that pooled states [n_embd] become, by e->head (engine_rank.c). */
float engine_rank_number(const struct engine *e, const float *states, double *room);

/* Reads all of a weight whose type can be executed (engine_verify.c). ERR_NUMERICAL, ERR_NOMEM. */
MUST_CHECK enum err engine_verify_weight(const struct plan_weight *w, struct err_info *info);

#endif
