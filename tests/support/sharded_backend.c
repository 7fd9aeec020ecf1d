/* Memory is the C library's, as tests count that of the engine. */
#include "tests/support/sharded_backend.h"

#include "engine/plan/plan_shard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank {
    struct backend_model *all;
    uint32_t id;
    struct plan *plan;
    struct backend_model *model;
    struct backend_batch batch;
    float *rows; /* that it brings to a meeting */
    enum err err;
    struct err_info why;
};

struct backend_model {
    const struct backend *inner;
    const struct plan *plan;
    uint32_t n;
    struct rank ranks[SHARDED_MAX_RANKS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_come;
    unsigned n_meetings;
    float *logits, *hidden; /* of ranks but the first, to compare */
    struct backend_row_stats *stats;
};

static const struct backend *opened;
static uint32_t n_opened;

/* backend_config.reduce of a rank. */
static enum err meet(void *arg, float *rows, int32_t n_rows, uint32_t width, size_t stride)
{
    struct rank *r = arg;
    struct backend_model *m = r->all;
    r->rows = rows;
    pthread_mutex_lock(&m->lock);
    unsigned meeting = m->n_meetings;
    if (++m->n_come == m->n) {
        for (size_t i = 0; i < (size_t)n_rows * width; i++) {
            size_t at = i / width * stride + i % width;
            float sum = m->ranks[0].rows[at];
            for (uint32_t k = 1; k < m->n; k++) {
                sum += m->ranks[k].rows[at];
            }
            for (uint32_t k = 0; k < m->n; k++) {
                m->ranks[k].rows[at] = sum;
            }
        }
        m->n_come = 0;
        m->n_meetings++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->n_meetings == meeting) {
        pthread_cond_wait(&m->changed, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return ERR_OK;
}

static void *compute(void *arg)
{
    struct rank *r = arg;
    r->err = backend_compute(r->all->inner, r->model, &r->batch, &r->why);
    return NULL;
}

/* Runs the batch on all ranks; the first has the caller's, the others, one after the other of them, the same memory. */
static enum err sharded_begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    pthread_t threads[SHARDED_MAX_RANKS];
    size_t n_logits = (size_t)batch->n_logits * m->plan->n_vocab, n_hidden = (size_t)batch->n_hidden * m->plan->n_embd;
    m->logits = realloc(m->logits, m->n * n_logits * sizeof(float) + 1);
    m->hidden = realloc(m->hidden, m->n * n_hidden * sizeof(float) + 1);
    m->stats = realloc(m->stats, m->n * (size_t)batch->n_logits * sizeof *m->stats + 1);
    for (uint32_t i = 0; i < m->n; i++) {
        m->ranks[i].batch = *batch;
        m->ranks[i].batch.logits = m->logits + i * n_logits;
        m->ranks[i].batch.hidden = m->hidden + i * n_hidden;
        m->ranks[i].batch.stats = m->stats + i * (size_t)batch->n_logits;
    }
    for (uint32_t i = 1; i < m->n; i++) {
        if (pthread_create(&threads[i], NULL, compute, &m->ranks[i]) != 0) {
            abort(); /* the others would wait for it */
        }
    }
    compute(&m->ranks[0]);
    bool same = true;
    for (uint32_t i = 1; i < m->n; i++) {
        pthread_join(threads[i], NULL);
        same &= memcmp(m->logits, m->ranks[i].batch.logits, n_logits * sizeof(float)) == 0 &&
                memcmp(m->hidden, m->ranks[i].batch.hidden, n_hidden * sizeof(float)) == 0;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->ranks[i].err != ERR_OK) {
            *info = m->ranks[i].why;
            return m->ranks[i].err;
        }
    }
    if (!same) {
        return err_set(info, ERR_INTERNAL, NULL, "the ranks' results differ");
    }
    memcpy(batch->logits, m->logits, n_logits * sizeof(float));
    memcpy(batch->hidden, m->hidden, n_hidden * sizeof(float));
    memcpy(batch->stats, m->stats, (size_t)batch->n_logits * sizeof *m->stats);
    return ERR_OK;
}

static enum err sharded_wait(struct backend_model *m, struct err_info *info)
{
    (void)m;
    (void)info;
    return ERR_OK;
}

static void sharded_close(struct backend_model **model)
{
    struct backend_model *m = *model;
    for (uint32_t i = 0; m != NULL && i < m->n; i++) {
        if (m->ranks[i].model != NULL) {
            m->inner->close(&m->ranks[i].model);
        }
        plan_free(&m->ranks[i].plan);
    }
    if (m != NULL) {
        pthread_mutex_destroy(&m->lock);
        pthread_cond_destroy(&m->changed);
        free(m->logits);
        free(m->hidden);
        free(m->stats);
        free(m);
    }
    *model = NULL;
}

static enum err sharded_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                             struct err_info *info)
{
    struct backend_model *m = calloc(1, sizeof *m);
    enum err err = m != NULL ? ERR_OK : ERR_NOMEM;
    for (uint32_t i = 0; i < n_opened && err == ERR_OK; i++) {
        struct backend_config own = *cfg;
        own.reduce = meet;
        own.reduce_arg = &m->ranks[i];
        m->ranks[i] = (struct rank){.all = m, .id = i};
        err = plan_shard(plan, i, n_opened, &m->ranks[i].plan, info);
        err = err == ERR_OK ? opened->open(m->ranks[i].plan, &own, &m->ranks[i].model, info) : err;
    }
    *out = m;
    if (m != NULL) {
        m->inner = opened;
        m->plan = plan;
        m->n = n_opened;
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->changed, NULL);
    }
    if (err != ERR_OK) {
        sharded_close(out);
    }
    return err;
}

static void sharded_info(const struct backend_model *m, struct backend_info *out)
{
    m->inner->info(m->ranks[0].model, out);
    out->logits = NULL;
}

static struct backend sharded_backend = {
    .description = "another back end, as several ranks",
    .open = sharded_open,
    .begin = sharded_begin,
    .wait = sharded_wait,
    .info = sharded_info,
    .close = sharded_close,
};

const struct backend *sharded_backend_of(const struct backend *inner, uint32_t n)
{
    static char name[32];
    opened = inner;
    n_opened = n;
    snprintf(name, sizeof name, "%s in %u", inner->name, n);
    sharded_backend.name = name;
    return &sharded_backend;
}
