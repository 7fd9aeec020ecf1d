#include "tests/golden/same_draft_backend.h"

#include "engine/base/rng.h"
#include "engine/sched/draft.h"
#include "engine/sched/sched.h"

#include <pthread.h>
#include <stdatomic.h>

#define STEP_NS 1000000u
#define HEAD_NS 100000u

enum { MAX_GUESSES = 64, MAX_BATCH_SEQS = 64, MAX_STATES = 256 };

static const struct backend *real;
static struct backend shown;
static _Atomic uint64_t clock_ns = 1, row_ns;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool is_shut, is_reached;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

/* What the head is told, and its guesses in the batch begun: -1: its own. */
static struct {
    const struct same_draft_text *texts;
    int n_texts;
    double share;
    uint64_t seed;
    int32_t guesses[MAX_GUESSES];
    int32_t n_guesses;
    struct backend_row_stats *stats;
    const int32_t *ids; /* [n_ids] the tokens of the head's logits */
    int32_t n_ids;      /* 0: all */
    bool in_place;      /* all its guesses are at the position before the first one's token */
} told;

static struct {
    bool is_there;
    int32_t n_drafts[MAX_STATES]; /* of the last batch with this state */
    int32_t n_true[MAX_BATCH_SEQS];
} fault;

void same_draft_backend_break(void) { fault.is_there = true; }

void same_draft_backend_tell(const struct same_draft_text *texts, int n, double share, uint64_t seed)
{
    told.texts = texts;
    told.n_texts = n;
    told.share = share;
    told.seed = seed;
}

void same_draft_backend_row_ns(uint64_t ns) { atomic_store(&row_ns, ns); }

static void set_gate(bool is_shut)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_shut = is_shut;
    gate.is_reached = false;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
}

void same_draft_backend_hold(void) { set_gate(true); }
void same_draft_backend_go(void) { set_gate(false); }

void same_draft_backend_wait_held(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.is_reached) {
        pthread_cond_wait(&gate.moved, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
}

static void pass_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_reached = gate.is_shut;
    pthread_cond_broadcast(&gate.moved);
    while (gate.is_shut) {
        pthread_cond_wait(&gate.moved, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
}

/* Returns the token after this one in the first text that has it there, or, if guesses are in place, up to DRAFT_GUESSES
 * later; -1: none, or the head is to guess itself. */
static int32_t following(int32_t token, int32_t pos)
{
    if (rng_uniform(told.seed, (uint32_t)token, (uint64_t)pos) >= told.share) {
        return -1;
    }
    int32_t first = pos + told.in_place, last = first + (told.in_place ? (int32_t)DRAFT_GUESSES : 0);
    for (int i = 0; i < told.n_texts; i++) {
        const struct same_draft_text *t = &told.texts[i];
        for (int32_t at = first; at <= last && at + 1 < t->n; at++) {
            if (t->tokens[at] == token) {
                return t->tokens[at + 1];
            }
        }
    }
    return -1;
}

/* Returns the head's logit of a token; -1: none. */
static int32_t logit_of(int32_t token)
{
    for (int32_t i = 0; i < told.n_ids; i++) {
        if (told.ids[i] == token) {
            return i;
        }
    }
    return told.n_ids != 0 ? -1 : token;
}

/* Makes all drafts of sequences that continue their own state true. */
static void break_batch(struct backend_batch *b)
{
    if (!fault.is_there || b->predicts || b->n_seqs > MAX_BATCH_SEQS) {
        return;
    }
    for (int32_t row = 0; row < b->n_rows;) {
        struct backend_seq_rows r = backend_seq_rows_at(b, row);
        int32_t state = b->states[r.seq];
        bool has_one = state >= 0 && state < MAX_STATES;
        bool continues = has_one && b->pos[row] > 0 && b->begin_states[r.seq] == state;
        fault.n_true[r.seq] = continues ? fault.n_drafts[state] : 0;
        if (has_one) {
            fault.n_drafts[state] = backend_n_drafts(b, r.seq);
        }
        row = r.end;
    }
    b->n_true = fault.n_true;
}

static enum err begin(struct backend_model *m, const struct backend_batch *batch, struct err_info *info)
{
    struct backend_batch copy = *batch, *b = &copy;
    pass_gate();
    atomic_fetch_add(&clock_ns, (b->predicts ? HEAD_NS : STEP_NS) + (uint64_t)b->n_rows * atomic_load(&row_ns));
    break_batch(b);
    if (b->predicts) {
        told.stats = b->stats;
        told.n_guesses = MIN_OF(b->n_logits, MAX_GUESSES);
        for (int32_t i = 0; i < told.n_guesses; i++) {
            told.guesses[i] = logit_of(following(b->tokens[b->logit_rows[i]], b->pos[b->logit_rows[i]]));
        }
    }
    return real->begin(m, b, info);
}

/* The head's batches run by themselves, so the guesses are of this one, if there are any. */
static enum err wait_for(struct backend_model *m, struct err_info *info)
{
    TRY(real->wait(m, info));
    for (int32_t i = 0; i < told.n_guesses; i++) {
        told.stats[i].argmax = told.guesses[i] >= 0 ? told.guesses[i] : told.stats[i].argmax;
    }
    told.n_guesses = 0;
    return ERR_OK;
}

static uint64_t now_ns(void) { return atomic_load(&clock_ns); }

enum err __real_sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info);
enum err __wrap_sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info);
enum err __wrap_sched_new(const struct sched_config *cfg, struct sched **out, struct err_info *info)
{
    struct sched_config c = *cfg;
    real = cfg->backend;
    shown = *real;
    shown.begin = begin;
    shown.wait = wait_for;
    c.backend = &shown;
    c.now_ns = now_ns;
    told.ids = cfg->guess_ids;
    told.n_ids = cfg->n_guess_ids;
    told.in_place = cfg->guesses_in_place;
    return __real_sched_new(&c, out, info);
}
