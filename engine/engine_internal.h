/* Declarations shared by engine.c and the files next to it. */
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

/* Constant while the engine is open, except what sched points to. */
struct engine {
    struct gguf *gguf;
    struct plan *plan;
    unsigned sources;        /* of drafts: ENGINE_LOOKUP .. */
    struct gguf *draft_file; /* of the draft model; NULL: none ... */
    struct plan *draft_plan; /* ... whose sources `plan` borrows */
    bool opens_behind;       /* open put off some of the weights (backend_config.eager_bytes) */
    struct tokenizer *tokenizer;
    struct chat_template *chat;  /* NULL: none, or an unusable one ... */
    struct err_info chat_failed; /* ... and why */
    const struct chat_format *tool_format;
    struct backend_parts parts;
    const struct backend *backend; /* of these parts */
    struct backend_model *model;
    struct kv_disk *disk; /* snapshots; NULL: none */
    struct sched *sched;
    struct engine_head *head; /* in the arena: turns states into embeddings or scores; NULL: states are embeddings */
    struct engine_model_info info;
    struct arena arena; /* holds the strings of info */
    int32_t *ends;      /* [n_ends] ids that end a generation */
    size_t n_ends;
    uint32_t max_seqs;
    pthread_mutex_t grammar_lock;
    struct grammar_vocab *vocab;    /* (grammar_lock) made on first use, then constant */
    struct grammar_cache *grammars; /* of earlier requests */
    bool closes_objects;            /* engine_config's */
    bool *unfit;                    /* [L] layers that their chosen device computes incorrectly; NULL: none known */
};

/* The back end's configuration, and the memory it takes. */
struct engine_backend {
    struct backend_config cfg;
    struct backend_device device;
    struct backend_measure measure;
    struct backend_bytes takes; /* in all memories */
    size_t pool_bytes;          /* pages and states */
};

/* Fills e->backend, e->info.n_ctx, *sc except what an open back end reports, and *out, from the plan and the operator's
 * configuration (engine_plan.c). Fails as engine_open does, except with ERR_MEMORY_LIMIT. */
MUST_CHECK enum err engine_plan(struct engine *e, const struct engine_config *cfg, struct sched_config *sc,
                                struct engine_backend *out, struct err_info *info);
/* Returns ERR_MEMORY_LIMIT if the device or the operator's limit has no room. */
MUST_CHECK enum err engine_check_memory(const struct engine *e, const struct engine_config *cfg,
                                        const struct engine_backend *b, struct err_info *info);

/* The draft model (engine_draft.c). engine_draft_open opens cfg->draft_path and builds e->plan with it, or closes
 * it again if e->sources lack what it has; fails as
 * model_open, model_build and plan_join do. engine_draft_check compares the vocabulary of this draft, if there is one,
 * with that of e->tokenizer: ERR_CONFIG. */
MUST_CHECK enum err engine_draft_open(struct engine *e, const struct engine_config *cfg, struct err_info *info);
MUST_CHECK enum err engine_draft_check(const struct engine *e, const char *path, struct err_info *info);
void engine_draft_close(struct engine *e); /* after e->plan */

/* Tells the system that n bytes of a weight at `data`, in one of the model's files, are no longer needed. Any thread. */
void engine_drop_pages(void *engine, const void *data, uint64_t n);

/* Opens e->disk if the operator configured it and the model keeps anything (engine_snapshots.c), after the back end is
 * open. ERR_CONFIG, ERR_NOMEM. After other errors the engine runs without snapshots, and cfg->snapshots gets the
 * reason. */
MUST_CHECK enum err engine_open_snapshots(struct engine *e, const struct engine_config *cfg,
                                          const struct engine_backend *b, struct err_info *info);

/* Checks that the prompt has 1 to `room` tokens in range. Errors: engine_submit's (engine_stream.c). */
MUST_CHECK enum err engine_check_prompt(const struct engine *e, const int32_t *ids, size_t n, size_t room,
                                        struct err_info *info);

/* The layers after the pooling (engine_head.c). engine_head_load loads the layers of a plan, one or more, whose file is
 * read, into the arena; ERR_NOMEM, ERR_NUMERICAL. engine_head_run computes them on pooled states [n_embd], within
 * room[engine_head_room]. Threads: any. */
MUST_CHECK enum err engine_head_load(struct arena *arena, const struct plan_head *p, struct engine_head **out,
                                     struct err_info *info);
size_t engine_head_room(const struct engine_head *h); /* in doubles; 0 if h is NULL */
const double *engine_head_run(const struct engine_head *h, const float *states, double *room);

/* Returns the score of pooled states [n_embd], by e->head (engine_rank.c). */
float engine_rank_number(const struct engine *e, const float *states, double *room);

/* Reads all of a weight whose type can be executed (engine_verify.c). ERR_NUMERICAL, ERR_NOMEM. */
MUST_CHECK enum err engine_verify_weight(const struct plan_weight *w, struct err_info *info);

#endif
