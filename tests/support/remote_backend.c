/* Memory is the C library's, as tests count that of the engine. */
#include "tests/support/remote_backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF, MAX_BLOCKS = 16 };

/* A batch in this back end's memory. */
struct job {
    struct backend_batch batch;
    struct backend_batch caller; /* where results go */
    void *blocks[MAX_BLOCKS];    /* copies of what is read, to be wiped */
    size_t bytes[MAX_BLOCKS];
    int n_blocks;
    const int32_t **tables, **window_tables;
    int32_t *wants;
    enum err err;
    struct err_info why;
};

struct backend_model {
    const struct backend *inner;
    struct backend_model *model;
    uint32_t n_vocab, n_embd, input_width, output_width;
    bool owns; /* the inner model */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job jobs[REMOTE_MAX_BEGUN]; /* number i in i % REMOTE_MAX_BEGUN */
    unsigned n_begun, n_done, n_waited;
    bool is_ending;
};

static atomic_long n_beside;
static const struct backend *opened;

long remote_backend_n_beside(void) { return atomic_load(&n_beside); }

int remote_backend_n_begun(const struct backend_model *m) { return (int)(m->n_begun - m->n_waited); }

/* --- the memory of a batch ---------------------------------------------------------------------------------------- */

static void *copy(struct job *j, const void *from, size_t n, size_t size)
{
    if (from == NULL || n == 0) {
        return NULL;
    }
    void *to = malloc(n * size);
    memcpy(to, from, n * size);
    j->blocks[j->n_blocks] = to;
    j->bytes[j->n_blocks++] = n * size;
    return to;
}

/* Pages that the rows of sequence i read or write. */
static size_t n_pages_of(const struct backend_batch *b, int32_t i)
{
    int32_t last = 0;
    for (int32_t row = 0; row < b->n_rows; row++) {
        last = b->seq[row] == i && b->pos[row] > last ? b->pos[row] : last;
    }
    return (size_t)last / KV_PAGE_TOKENS + 1;
}

/* OPTIONAL from. */
static const int32_t **copy_tables(const struct backend_batch *b, const int32_t *const *from)
{
    const int32_t **tables = from != NULL ? malloc((size_t)b->n_seqs * sizeof *tables) : NULL;
    for (int32_t i = 0; from != NULL && i < b->n_seqs; i++) {
        size_t bytes = n_pages_of(b, i) * sizeof(int32_t);
        int32_t *table = malloc(bytes);
        memcpy(table, from[i], bytes);
        tables[i] = table;
    }
    return tables;
}

static void take_in(struct backend_model *m, struct job *j, const struct backend_batch *b)
{
    size_t rows = (size_t)b->n_rows, seqs = (size_t)b->n_seqs, logits = (size_t)b->n_logits, size = sizeof(int32_t);
    *j = (struct job){.batch = *b, .caller = *b};
    j->batch.tokens = copy(j, b->tokens, rows, size);
    j->batch.pos = copy(j, b->pos, rows, size);
    j->batch.seq = copy(j, b->seq, rows, size);
    j->batch.states = copy(j, b->states, seqs, size);
    j->batch.begin_states = copy(j, b->begin_states, seqs, size);
    j->batch.n_drafts = copy(j, b->n_drafts, seqs, size);
    j->batch.n_true = copy(j, b->n_true, seqs, size);
    j->batch.copy_rows = copy(j, b->copy_rows, (size_t)b->n_copies, size);
    j->batch.copy_states = copy(j, b->copy_states, (size_t)b->n_copies, size);
    j->batch.logit_rows = copy(j, b->logit_rows, logits, size);
    j->batch.hidden_rows = copy(j, b->hidden_rows, (size_t)b->n_hidden, size);
    j->batch.input = copy(j, b->input, rows * m->input_width, sizeof *b->input);
    j->wants = malloc(logits * size + 1);
    for (int32_t i = 0; i < b->n_logits; i++) {
        j->wants[i] = b->wants != NULL ? b->wants[i] : BACKEND_ALL_LOGITS;
    }
    j->batch.wants = NULL;
    j->batch.page_tables = j->tables = copy_tables(b, b->page_tables);
    j->batch.window_tables = j->window_tables = copy_tables(b, b->window_tables);
    j->batch.logits = malloc(logits * m->n_vocab * sizeof(float) + 1);
    j->batch.stats = malloc(logits * sizeof *b->stats + 1);
    j->batch.hidden = malloc((size_t)b->n_hidden * m->n_embd * sizeof(float) + 1);
    j->batch.output = b->output != NULL ? malloc(rows * m->output_width * sizeof(float) + 1) : NULL;
    if (b->output != NULL) {
        memset(b->output, POISON, rows * m->output_width * sizeof(float));
    }
    if (logits != 0) {
        memset(b->logits, POISON, logits * m->n_vocab * sizeof(float));
        memset(b->stats, POISON, logits * sizeof *b->stats);
    }
    if (b->best != NULL) {
        memset(b->best, POISON, logits * REMOTE_MAX_BEST * sizeof *b->best);
    }
    if (b->n_hidden != 0) {
        memset(b->hidden, POISON, (size_t)b->n_hidden * m->n_embd * sizeof(float));
    }
}

/* Nobody reads it any more. */
static void free_tables(const struct job *j, const int32_t **tables)
{
    for (int32_t i = 0; tables != NULL && i < j->batch.n_seqs; i++) {
        free((void *)(uintptr_t)tables[i]);
    }
    free(tables);
}

static void wipe(struct job *j)
{
    for (int i = 0; i < j->n_blocks; i++) {
        memset(j->blocks[i], POISON, j->bytes[i]);
    }
    free_tables(j, j->tables);
    free_tables(j, j->window_tables);
}

/* The k best of a row, by insertion. */
static void find_best(const float *logits, uint32_t n, int32_t k, struct candidate *out)
{
    int32_t found = 0;
    for (uint32_t id = 0; id < n; id++) {
        int32_t at = found < k ? found++ : k;
        for (; at > 0 && logits[id] > out[at - 1].logit; at--) {
            if (at < k) {
                out[at] = out[at - 1];
            }
        }
        if (at < k) {
            out[at] = (struct candidate){.id = (int32_t)id, .logit = logits[id]};
        }
    }
}

static void give_back(const struct backend_model *m, const struct job *j)
{
    const struct backend_batch *to = &j->caller, *from = &j->batch;
    for (int32_t i = 0; i < to->n_logits; i++) {
        const float *row = from->logits + (size_t)i * m->n_vocab;
        to->stats[i] = from->stats[i];
        if (j->wants[i] == BACKEND_ALL_LOGITS) {
            memcpy(to->logits + (size_t)i * m->n_vocab, row, m->n_vocab * sizeof *row);
        } else if (j->wants[i] > 0) {
            find_best(row, m->n_vocab, j->wants[i], to->best + (size_t)i * REMOTE_MAX_BEST);
        }
    }
    if (to->n_hidden > 0) {
        memcpy(to->hidden, from->hidden, (size_t)to->n_hidden * m->n_embd * sizeof *to->hidden);
    }
    if (to->output != NULL) {
        memcpy(to->output, from->output, (size_t)to->n_rows * m->output_width * sizeof *to->output);
    }
}

static void free_job(struct job *j)
{
    for (int i = 0; i < j->n_blocks; i++) {
        free(j->blocks[i]);
    }
    free(j->wants);
    free(j->batch.logits);
    free(j->batch.stats);
    free(j->batch.hidden);
    free(j->batch.output);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void *compute(void *arg)
{
    struct backend_model *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (m->n_done == m->n_begun && !m->is_ending) {
            pthread_cond_wait(&m->changed, &m->lock);
        }
        if (m->n_done == m->n_begun) {
            break;
        }
        struct job *j = &m->jobs[m->n_done % REMOTE_MAX_BEGUN];
        pthread_mutex_unlock(&m->lock);
        j->err = backend_compute(m->inner, m->model, &j->batch, &j->why);
        wipe(j);
        pthread_mutex_lock(&m->lock);
        m->n_done++;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* --- the seam ----------------------------------------------------------------------------------------------------- */

static enum err remote_begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    if (m->n_begun - m->n_waited >= REMOTE_MAX_BEGUN) {
        return err_set(info, ERR_INTERNAL, NULL, "begun %u batches, waited for %u", m->n_begun + 1, m->n_waited);
    }
    take_in(m, &m->jobs[m->n_begun % REMOTE_MAX_BEGUN], batch);
    pthread_mutex_lock(&m->lock);
    n_beside += m->n_begun != m->n_waited;
    m->n_begun++;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return ERR_OK;
}

static enum err remote_wait(struct backend_model *m, struct err_info *info)
{
    if (m->n_begun == m->n_waited) {
        return err_set(info, ERR_INTERNAL, NULL, "waited for a batch that was not begun");
    }
    pthread_mutex_lock(&m->lock);
    while (m->n_done == m->n_waited) {
        pthread_cond_wait(&m->changed, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    struct job *j = &m->jobs[m->n_waited++ % REMOTE_MAX_BEGUN];
    enum err err = j->err;
    if (err == ERR_OK) {
        give_back(m, j);
    } else {
        *info = j->why;
    }
    free_job(j);
    return err;
}

static bool is_idle(const struct backend_model *m, struct err_info *info)
{
    return m->n_begun == m->n_waited ||
           err_set(info, ERR_INTERNAL, NULL, "a page or state is asked for while a batch is computed") == ERR_OK;
}

static enum err remote_page_copy(struct backend_model *m, struct backend_page page, enum backend_form form, void *bytes,
                                 bool writes, struct err_info *info)
{
    return is_idle(m, info) ? m->inner->page_copy(m->model, page, form, bytes, writes, info) : ERR_INTERNAL;
}

static enum err remote_state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes,
                                  struct err_info *info)
{
    return is_idle(m, info) ? m->inner->state_copy(m->model, state, bytes, writes, info) : ERR_INTERNAL;
}

static void remote_info(const struct backend_model *m, struct backend_info *out)
{
    m->inner->info(m->model, out);
    out->logits = NULL;
    out->max_begun = REMOTE_MAX_BEGUN;
    out->max_best = REMOTE_MAX_BEST;
}

struct backend_model *remote_backend_wrap(const struct backend *inner, struct backend_model *model, uint32_t n_vocab,
                                          uint32_t n_embd, uint32_t width)
{
    struct backend_model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    m->inner = inner;
    m->model = model;
    m->n_vocab = n_vocab;
    m->n_embd = n_embd;
    m->input_width = m->output_width = width;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    if (pthread_create(&m->thread, NULL, compute, m) != 0) {
        free(m);
        return NULL;
    }
    return m;
}

void remote_backend_unwrap(struct backend_model **model)
{
    struct backend_model *m = *model;
    struct err_info ignored;
    if (m == NULL) {
        return;
    }
    while (m->n_begun != m->n_waited) {
        (void)remote_wait(m, &ignored);
    }
    pthread_mutex_lock(&m->lock);
    m->is_ending = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    if (m->owns) {
        m->inner->close(&m->model);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m);
    *model = NULL;
}

static const char *remote_kv_type_name(int i) { return opened->kv_type_name(i); }

static enum err remote_probe(const struct backend_config *cfg, int i, struct backend_device *out, struct err_info *info)
{
    return opened->probe(cfg, i, out, info);
}

static enum err remote_measure(const struct plan *plan, const struct backend_config *cfg, struct backend_measure *out,
                               struct err_info *info)
{
    return opened->measure(plan, cfg, out, info);
}

static enum err remote_open(const struct plan *plan, const struct backend_config *cfg, struct backend_model **out,
                            struct err_info *info)
{
    struct backend_model *model;
    *out = NULL;
    TRY(opened->open(plan, cfg, &model, info));
    *out = remote_backend_wrap(opened, model, plan->n_vocab, plan->n_embd, 0);
    if (*out == NULL) {
        opened->close(&model);
        return err_set(info, ERR_NOMEM, NULL, "out of memory for the remote back end");
    }
    (*out)->owns = true;
    (*out)->input_width = plan->input_width;
    (*out)->output_width = plan->output_width;
    return ERR_OK;
}

const struct backend *remote_backend_of(const struct backend *inner)
{
    opened = inner;
    return &remote_backend;
}

const struct backend remote_backend = {
    .name = "remote",
    .description = "another back end, behind a memory and a thread of its own",
    .kv_type_name = remote_kv_type_name,
    .probe = remote_probe,
    .measure = remote_measure,
    .open = remote_open,
    .begin = remote_begin,
    .wait = remote_wait,
    .page_copy = remote_page_copy,
    .state_copy = remote_state_copy,
    .info = remote_info,
    .close = remote_backend_unwrap,
};
