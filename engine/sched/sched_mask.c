/* Masks made during the batch: the tokens that a grammar allows after the last token and after each draft are known
 * before the rows are computed, so they are worked out during the computation. If a device computes, that runs on the
 * scheduler's thread, between begin and wait. If the back end computes in begin, it runs on a separate thread, provided
 * a CPU is spare. A mask not made in time is made when it is needed, so none of this changes the output. */
#include "engine/sched/sched_internal.h"

static size_t n_words(const struct sched *s) { return ((size_t)s->cfg.n_vocab + 63) / 64; }
static size_t mask_bytes(const struct sched *s) { return (size_t)s->cfg.max_logits * n_words(s) * sizeof(uint64_t); }
static uint64_t *mask_at(const struct sched *s, const struct sched_batch *b, int32_t i)
{
    return b->masks + (size_t)i * n_words(s);
}

/* Builds masks after the last token and each draft, until one fails; the error surfaces when that mask is used. */
static void make_masks(const struct sched *s, const struct sched_batch *b, struct sched_seq *q)
{
    int32_t n_accepted = 0;
    bool goes_on = true;
    while (goes_on && grammar_matcher_mask(q->matcher, mask_at(s, b, q->rows.i_sample + q->rows.n_masks)) == ERR_OK) {
        goes_on = q->rows.n_masks++ < q->rows.n_draft &&
                  grammar_matcher_accept(q->matcher, q->tokens[q->n_tokens + n_accepted], &goes_on) == ERR_OK &&
                  goes_on;
        n_accepted += goes_on;
    }
    grammar_matcher_rollback(q->matcher, n_accepted);
}

static bool wants_masks(const struct sched_seq *q) { return q->matcher != NULL && q->rows.i_sample >= 0; }

static void *masker_main(void *arg)
{
    struct sched *s = arg;
    struct sched_masker *m = &s->masker;
    pthread_mutex_lock(&m->lock);
    while (!m->is_stopping) {
        const struct sched_batch *b = m->batch;
        if (b == NULL || m->i_next >= b->n_seqs) {
            pthread_cond_wait(&m->wake, &m->lock);
            continue;
        }
        struct sched_seq *q = b->seqs[m->i_next++];
        if (wants_masks(q)) {
            m->making = q;
            pthread_mutex_unlock(&m->lock);
            make_masks(s, b, q);
            pthread_mutex_lock(&m->lock);
            m->making = NULL;
            pthread_cond_signal(&m->done);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

enum err sched_masks_init(struct sched *s)
{
    bool is_device = s->cfg.max_begun > 1;
    struct sched_masker *m = &s->masker;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    pthread_cond_init(&m->done, NULL);
    for (int32_t i = 0; i < s->cfg.max_begun && (is_device || s->cfg.has_spare_cpu); i++) {
        s->batches.all[i].masks = mem_map(mask_bytes(s), MEM_SCRATCH);
        TRY_MEM(s->batches.all[i].masks != NULL);
    }
    if (!is_device && s->cfg.has_spare_cpu) {
        m->is_started = thread_start(&m->thread, "masks", masker_main, s) == 0;
        return m->is_started ? ERR_OK : ERR_INTERNAL;
    }
    return ERR_OK;
}

void sched_masks_fini(struct sched *s)
{
    struct sched_masker *m = &s->masker;
    if (m->is_started) {
        pthread_mutex_lock(&m->lock);
        m->is_stopping = true;
        pthread_cond_signal(&m->wake);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
    }
    for (int32_t i = 0; i < s->cfg.max_begun; i++) {
        mem_unmap(s->batches.all[i].masks, mask_bytes(s), MEM_SCRATCH);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->done);
}

void sched_masks_begin(struct sched *s, const struct sched_batch *b)
{
    struct sched_masker *m = &s->masker;
    bool are_wanted = false;
    for (int32_t i = 0; i < b->n_seqs && b->masks != NULL; i++) {
        b->seqs[i]->rows.n_masks = 0;
        are_wanted = are_wanted || wants_masks(b->seqs[i]);
    }
    if (are_wanted && m->is_started) {
        pthread_mutex_lock(&m->lock);
        m->batch = b;
        m->i_next = 0;
        pthread_cond_signal(&m->wake);
        pthread_mutex_unlock(&m->lock);
    }
}

void sched_masks_make(struct sched *s, const struct sched_batch *b)
{
    for (int32_t i = 0; i < b->n_seqs && b->masks != NULL && !s->masker.is_started; i++) {
        if (wants_masks(b->seqs[i])) {
            make_masks(s, b, b->seqs[i]);
        }
    }
}

struct sched_seq *sched_masks_stop(struct sched *s)
{
    struct sched_masker *m = &s->masker;
    struct sched_seq *making = NULL;
    if (m->is_started) {
        pthread_mutex_lock(&m->lock);
        m->batch = NULL;
        making = m->making;
        pthread_mutex_unlock(&m->lock);
    }
    return making;
}

void sched_masks_wait(struct sched *s)
{
    struct sched_masker *m = &s->masker;
    pthread_mutex_lock(&m->lock);
    while (m->making != NULL) {
        pthread_cond_wait(&m->done, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
}

const uint64_t *sched_mask(const struct sched *s, const struct sched_batch *b, const struct sched_seq *q, int32_t i)
{
    return b->masks != NULL && i - q->rows.i_sample < q->rows.n_masks ? mask_at(s, b, i) : NULL;
}
