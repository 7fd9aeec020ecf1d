/* Checks every rule of struct backend_batch on the way; a broken one is counted, not fatal, as begin runs in the
 * scheduler's thread. */
#include "tests/support/fake_backend.h"

#include "engine/base/mem.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { BATCH_NS = 10000, ROW_NS = 100 };

static void sleep_us(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

struct backend_model *fake_backend_new(int32_t n_pages, int32_t max_rows, int32_t max_logits)
{
    struct backend_model *m = mem_zalloc(sizeof *m, MEM_GENERAL);
    size_t n = (size_t)n_pages * KV_PAGE_TOKENS;
    if (m == NULL || (m->slots = mem_zalloc_array(n, sizeof *m->slots, MEM_GENERAL)) == NULL) {
        mem_free(m);
        return NULL;
    }
    m->n_pages = n_pages;
    m->max_rows = max_rows;
    m->max_logits = max_logits;
    atomic_init(&m->fail_token, -1);
    atomic_init(&m->fail_code, ERR_INTERNAL);
    atomic_init(&m->nan_token, -1);
    return m;
}

bool fake_backend_add_windows(struct backend_model *m, int32_t n_windows, int32_t local_window)
{
    m->windows = mem_zalloc_array((size_t)n_windows * KV_PAGE_TOKENS, sizeof *m->windows, MEM_GENERAL);
    m->n_windows = n_windows;
    m->local_window = local_window;
    return m->windows != NULL;
}

void fake_backend_free(struct backend_model **m)
{
    if (*m != NULL) {
        mem_free((*m)->slots);
        mem_free((*m)->windows);
        mem_free(*m);
        *m = NULL;
    }
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ (v + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    return h ^ h >> 29;
}

static uint64_t fold(uint64_t h, int32_t token, int32_t at)
{
    return mix(mix(h, (uint64_t)at), (uint64_t)(uint32_t)token);
}

static atomic_int remembered;

void fake_backend_remember(int32_t n) { atomic_store(&remembered, n); }

/* h: of all tokens; recent: of the remembered ones. */
static void logits_of(uint64_t h, uint64_t recent, float *logits)
{
    bool is_short = atomic_load(&remembered) != 0;
    for (int i = 0; i < FAKE_VOCAB; i++) {
        float all = (float)(mix(h, (uint64_t)i) >> 40) / (float)(1 << 21); /* 0 to 8 */
        float last = (float)(mix(recent, (uint64_t)i) >> 40) / (float)(1 << 21);
        logits[i] = is_short ? last + all / 1024 : all;
    }
}

static uint64_t fold_recent(uint64_t recent, int32_t token, int32_t at, int32_t n)
{
    return at >= n - atomic_load(&remembered) ? mix(recent, (uint64_t)(uint32_t)token) : recent;
}

void fake_backend_logits(const int32_t *tokens, int32_t n, float *logits)
{
    uint64_t h = 1, recent = 1;
    for (int32_t i = 0; i < n; i++) {
        h = fold(h, tokens[i], i);
        recent = fold_recent(recent, tokens[i], i, n);
    }
    logits_of(h, recent, logits);
}

static void state_of(uint64_t h, float *state)
{
    for (int i = 0; i < FAKE_EMBD; i++) {
        state[i] = (float)(mix(h, 1000 + (uint64_t)i) >> 40) / (float)(1 << 23) - 1; /* -1 to 1 */
    }
}

void fake_backend_state(const int32_t *tokens, int32_t n, float state[FAKE_EMBD])
{
    uint64_t h = 1;
    for (int32_t i = 0; i < n; i++) {
        h = fold(h, tokens[i], i);
    }
    state_of(h, state);
}

static struct fake_slot *slot(struct backend_model *m, const int32_t *table, int32_t pos)
{
    int32_t page = table[pos / KV_PAGE_TOKENS];
    if (page < 0 || page >= m->n_pages) {
        m->n_faults++;
        page = 0;
    }
    return &m->slots[page * KV_PAGE_TOKENS + pos % KV_PAGE_TOKENS];
}

static struct fake_slot *window_slot(struct backend_model *m, const int32_t *table, int32_t pos)
{
    int32_t page = table[pos / KV_PAGE_TOKENS];
    if (page < 0 || page >= m->n_windows) {
        m->n_faults++;
        page = 0;
    }
    return &m->windows[page * KV_PAGE_TOKENS + pos % KV_PAGE_TOKENS];
}

/* Writes a row's part of its window page; each position that it sees there must be what the pages have. */
static void use_windows(struct backend_model *m, const struct backend_batch *b, int32_t row)
{
    int32_t pos = b->pos[row], first = MAX_OF(pos - m->local_window + 1, 0);
    const int32_t *table = b->page_tables[b->seq[row]], *windows = b->window_tables[b->seq[row]];
    *window_slot(m, windows, pos) = *slot(m, table, pos);
    for (int32_t p = first; p < pos; p++) {
        m->n_faults += window_slot(m, windows, p)->hash != slot(m, table, p)->hash;
    }
}

static void check_rules(struct backend_model *m, const struct backend_batch *b)
{
    bool ok = b->n_rows >= 1 && b->n_rows <= m->max_rows && b->n_logits >= 0 && b->n_logits <= m->max_logits;
    for (int32_t i = 0; ok && i < b->n_rows; i++) {
        ok = b->tokens[i] >= 0 && b->tokens[i] < FAKE_VOCAB && b->seq[i] >= 0 && b->seq[i] < b->n_seqs;
        if (ok && i > 0) {
            ok = b->seq[i] == b->seq[i - 1] ? b->pos[i] == b->pos[i - 1] + 1 : b->seq[i] == b->seq[i - 1] + 1;
        }
    }
    for (int32_t i = 0; ok && i < b->n_logits; i++) {
        ok = b->logit_rows[i] >= 0 && b->logit_rows[i] < b->n_rows &&
             (i == 0 || b->logit_rows[i] > b->logit_rows[i - 1]);
    }
    for (int32_t i = 0; ok && i < b->n_hidden; i++) {
        ok = b->hidden_rows[i] >= 0 && b->hidden_rows[i] < b->n_rows &&
             (i == 0 || b->hidden_rows[i] > b->hidden_rows[i - 1]);
    }
    m->n_faults += !ok;
}

/* A prompt's rows beside a draft, when no prompt's log-probabilities are asked for. */
static bool is_mixed(const struct backend_batch *b)
{
    bool has_draft = false;
    for (int32_t i = 1; i < b->n_logits; i++) {
        has_draft = has_draft || b->seq[b->logit_rows[i]] == b->seq[b->logit_rows[i - 1]];
    }
    return has_draft && b->n_logits < b->n_rows;
}

static struct backend_row_stats stats_of(const float *logits)
{
    struct backend_row_stats st = {.max = logits[0]};
    double sum = 0;
    for (int i = 1; i < FAKE_VOCAB; i++) {
        if (logits[i] > logits[st.argmax]) {
            st.argmax = i;
        }
    }
    st.max = logits[st.argmax];
    for (int i = 0; i < FAKE_VOCAB; i++) {
        sum += exp((double)logits[i] - st.max);
    }
    st.logsumexp = (float)(st.max + log(sum));
    return st;
}

/* The hash of everything up to a row, read back through its pages. */
static uint64_t hash_at(struct backend_model *m, const struct backend_batch *b, int32_t row, uint64_t *of_recent)
{
    int32_t first = m->window != 0 ? MAX_OF(b->pos[row] - m->window + 1, 0) : 0;
    uint64_t h = 1, recent = 1;
    for (int32_t pos = first; pos <= b->pos[row]; pos++) {
        const struct fake_slot *s = slot(m, b->page_tables[b->seq[row]], pos);
        h = pos == first && pos > 0 ? s->hash : fold(h, s->token, pos);
        recent = fold_recent(recent, s->token, pos, b->pos[row] + 1);
        if (h != s->hash) {
            m->n_faults++; /* not written, or written by another sequence */
            h = ~h;
        }
    }
    *of_recent = recent;
    return h;
}

static void compute_state(struct backend_model *m, const struct backend_batch *b, int32_t i)
{
    int32_t row = b->hidden_rows[i];
    uint64_t recent;
    float *state = b->hidden + (size_t)i * FAKE_EMBD;
    state_of(hash_at(m, b, row, &recent), state);
    if (b->tokens[row] == m->nan_token) {
        state[2] = NAN;
    }
}

static void compute_row(struct backend_model *m, const struct backend_batch *b, int32_t i_logits)
{
    int32_t row = b->logit_rows[i_logits];
    uint64_t recent, h = hash_at(m, b, row, &recent);
    float *logits = b->logits + (size_t)i_logits * FAKE_VOCAB;
    logits_of(h, recent, logits);
    if (b->tokens[row] == m->nan_token) {
        logits[3] = NAN;
    }
    b->stats[i_logits] = stats_of(logits);
}

/* How often a batch names a state to write to, or, of a sequence that begins with another's, to read. */
static int n_uses(const struct backend_batch *b, int32_t state, bool reads)
{
    int n = 0;
    for (int32_t k = 0; k < b->n_seqs; k++) {
        n += reads ? b->begin_states[k] == state && b->states[k] != state : b->states[k] == state;
    }
    for (int32_t k = 0; k < b->n_copies && !reads; k++) {
        n += b->copy_states[k] == state;
    }
    return n;
}

/* Advances the state by the drafts of the last batch that came true. */
static void advance(struct backend_model *m, const struct backend_batch *b, int32_t seq, int32_t state)
{
    struct fake_drafts *d = &m->drafts[state];
    int32_t n = b->n_true != NULL ? b->n_true[seq] : 0;
    m->n_faults += n < 0 || n > d->n;
    for (int32_t i = 0; i < MIN_OF(n, d->n); i++) {
        m->recurrent[state] = fold(m->recurrent[state], d->tokens[i], d->pos + i);
        m->n_advanced++;
    }
    d->n = 0;
}

/* Does row i continue a draft? Then its state only keeps the row. */
static bool keep_draft(struct backend_model *m, const struct backend_batch *b, int32_t i, int32_t state)
{
    struct fake_drafts *d = &m->drafts[state];
    int32_t seq = b->seq[i], left = 0;
    while (i + left < b->n_rows && b->seq[i + left] == seq) {
        left++;
    }
    bool is_draft = b->n_drafts != NULL && left <= b->n_drafts[seq];
    if (is_draft) {
        m->n_faults += d->n >= DRAFT_MAX || i == 0 || b->seq[i - 1] != seq;
        d->pos = d->n == 0 ? b->pos[i] : d->pos;
        d->tokens[d->n++ % DRAFT_MAX] = b->tokens[i];
    }
    return is_draft;
}

/* A batch writes each state once and none that it reads; each holds what stands before its sequence's first row, then
 * what its last row before drafts left, or, copied, what the row left that was asked for. */
static void check_states(struct backend_model *m, const struct backend_batch *b)
{
    int32_t copy = 0;
    for (int32_t i = 0; m->n_states != 0 && i < b->n_rows; i++) {
        int32_t at = b->states[b->seq[i]], begin = b->begin_states[b->seq[i]];
        bool is_first = i == 0 || b->seq[i] != b->seq[i - 1];
        bool ok = at >= 0 && at < m->n_states && begin >= 0 && begin < m->n_states;
        ok = ok && n_uses(b, at, false) == 1 && n_uses(b, at, true) == 0;
        at = ok ? at : 0;
        if (is_first && begin == at) {
            advance(m, b, b->seq[i], at);
        } else if (is_first) {
            m->drafts[at].n = 0;
        }
        if (keep_draft(m, b, i, at)) {
            m->n_faults += copy < b->n_copies && b->copy_rows[copy] == i;
            continue;
        }
        uint64_t before = b->pos[i] == 0 ? 1 : m->recurrent[ok && is_first ? begin : at];
        m->recurrent[at] = fold(before, b->tokens[i], b->pos[i]);
        m->n_faults += !ok || m->recurrent[at] != slot(m, b->page_tables[b->seq[i]], b->pos[i])->hash;
        if (copy < b->n_copies && b->copy_rows[copy] == i) {
            int32_t to = b->copy_states[copy++];
            ok = to >= 0 && to < m->n_states && n_uses(b, to, false) == 1 && n_uses(b, to, true) == 0;
            m->recurrent[ok ? to : 0] = m->recurrent[at];
            m->n_faults += !ok;
        }
    }
    m->n_faults += copy != b->n_copies;
    m->n_copies += b->n_copies;
}

static _Atomic uint64_t now_ns = 1;

uint64_t fake_backend_now_ns(void) { return atomic_load(&now_ns); }

/* Here the batch is left for others, if they ask. */
static void let_overtake(struct backend_model *m, const struct backend_batch *b)
{
    if (m->overtaking_rows != 0 && b->asks != NULL && atomic_load(b->asks)) {
        m->left = b;
        b->between(b->between_arg);
        m->left = NULL;
    }
}

/* The rules of a batch that overtakes: small, and with a memory of its own for logits. */
static void check_overtaking(struct backend_model *m, const struct backend_batch *b)
{
    m->n_faults += b->n_rows > m->overtaking_rows || b->asks != NULL || b->logits == m->left->logits;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        for (int32_t k = 0; k < m->left->n_seqs; k++) {
            m->n_faults += b->page_tables[i] == m->left->page_tables[k];
        }
    }
    atomic_fetch_add(&m->n_overtook, 1);
}

static bool stands_still(struct backend_model *m)
{
    int asked = FAKE_TO_HOLD;
    if (atomic_load(&m->hold) == FAKE_TO_HOLD && atomic_load(&m->n_to_go) > 0) {
        atomic_fetch_sub(&m->n_to_go, 1);
        return false;
    }
    return atomic_compare_exchange_strong(&m->hold, &asked, FAKE_HELD) || asked == FAKE_HELD;
}

/* Computes a row of the head. Its input is the hash before it: the model's, or its own. A draft model reads its own. */
static uint64_t predict_row(struct backend_model *m, const struct backend_batch *b, int32_t row)
{
    const int32_t *table = b->page_tables[b->seq[row]];
    int32_t at = b->pos[row];
    uint64_t input, h = 1;
    const struct fake_slot *before = at > 0 ? slot(m, table, at - 1) : NULL;
    if (m->is_draft) {
        input = before != NULL ? before->head : 0;
    } else {
        memcpy(&input, b->input + (size_t)row * FAKE_OUTPUT, sizeof input);
        m->n_faults += before == NULL ? input != 0 : input != before->hash && input != before->head;
    }
    struct fake_slot *own = slot(m, table, at);
    own->head_token = b->tokens[row];
    own->head = fold(before == NULL ? 1 : input, b->tokens[row], at);
    bool is_whole = true;
    for (int32_t pos = 0; pos < at; pos++) {
        const struct fake_slot *s = slot(m, table, pos);
        h = fold(h, s->head_token, pos);
        is_whole = is_whole && h == s->head;
    }
    m->n_holes += !is_whole;
    return own->head;
}

/* Computes a row of a head that guesses in place. Its input is the hash of its position, or what the head gave for a guess
 * after it, which says where the row would be. */
static uint64_t predict_in_place(struct backend_model *m, const struct backend_batch *b, int32_t row)
{
    int32_t at = b->pos[row];
    uint64_t input;
    memcpy(&input, b->input + (size_t)row * FAKE_OUTPUT, sizeof input);
    if (input != slot(m, b->page_tables[b->seq[row]], at)->hash) {
        int i = 0;
        while (i < FAKE_GUESSES && m->guesses[i].hash != input) {
            i++;
        }
        m->n_faults += i == FAKE_GUESSES;
        at = m->guesses[i % FAKE_GUESSES].pos;
    }
    struct fake_guess *own = &m->guesses[m->n_guesses++ % FAKE_GUESSES];
    *own = (struct fake_guess){.hash = fold(input, b->tokens[row], at + 1), .pos = at + 1};
    return own->hash;
}

static enum err predict(struct backend_model *m, const struct backend_batch *b, struct err_info *info)
{
    long delay = atomic_load(&m->head_us);
    if (delay != 0) {
        sleep_us(delay);
    }
    atomic_fetch_add(&now_ns, (uint64_t)delay * 1000 + BATCH_NS / 10);
    check_rules(m, b);
    m->n_faults += !m->has_head || (b->output == NULL && b->n_logits != 0 && !m->is_draft);
    m->n_faults += m->in_place && b->n_logits != b->n_rows; /* others would be for nothing */
    for (int32_t row = 0, i = 0; row < b->n_rows; row++) {
        uint64_t h = (m->in_place ? predict_in_place : predict_row)(m, b, row);
        if (b->output != NULL) {
            memcpy(b->output + (size_t)row * FAKE_OUTPUT, &h, sizeof h);
        }
        if (i < b->n_logits && b->logit_rows[i] == row) {
            float *logits = b->logits + (size_t)i * FAKE_VOCAB;
            logits_of(h, mix(1, (uint64_t)(uint32_t)b->tokens[row]), logits);
            logits[0] += mix(h, 77) % 4 == 0 ? 16 : 0; /* then the guess is 0 */
            b->stats[i++] = stats_of(logits);
        }
    }
    m->n_head++;
    return atomic_load(&m->head_fails) ? err_set(info, ERR_INTERNAL, NULL, "told to fail") : ERR_OK;
}

static enum err begin(struct backend_model *m, const struct backend_batch *b, struct err_info *info)
{
    if (b->predicts) {
        return predict(m, b, info);
    }
    bool overtakes = m->left != NULL;
    atomic_store(&m->n_last, b->n_rows);
    atomic_store(&m->is_inside, true);
    if (overtakes) {
        check_overtaking(m, b);
    }
    while (!overtakes && stands_still(m)) {
        sleep_us(200);
        let_overtake(m, b);
    }
    long delay = atomic_load(&m->delay_us) + (long)atomic_load(&m->row_us) * b->n_rows;
    if (delay != 0) {
        sleep_us(delay);
    }
    atomic_fetch_add(&now_ns, (uint64_t)delay * 1000 + BATCH_NS + ROW_NS * (uint64_t)MAX_OF(b->n_rows, 0));
    check_rules(m, b);
    atomic_fetch_add(&m->n_alone, b->n_seqs == 1 && b->n_rows > 1 && b->n_logits == 1 && b->pos[0] == 0);
    enum err err = ERR_OK;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const int32_t *table = b->page_tables[b->seq[i]];
        if (b->pos[i] != 0 && (i == 0 || b->seq[i] != b->seq[i - 1])) {
            atomic_store(&m->in_pieces, true);
        }
        uint64_t before = b->pos[i] == 0 ? 1 : slot(m, table, b->pos[i] - 1)->hash;
        struct fake_slot *own = slot(m, table, b->pos[i]);
        own->token = b->tokens[i];
        own->hash = fold(before, b->tokens[i], b->pos[i]);
        m->n_faults += (m->has_head && !m->is_draft) != (b->output != NULL);
        if (b->output != NULL && !m->in_place) {
            memcpy(b->output + (size_t)i * FAKE_OUTPUT, &own->hash, sizeof own->hash);
        }
        if (m->n_windows != 0) {
            use_windows(m, b, i);
        }
        if (b->tokens[i] == m->fail_token) {
            err = err_set(info, (enum err)atomic_load(&m->fail_code), NULL, "told to fail");
        }
    }
    check_states(m, b);
    let_overtake(m, b);
    for (int32_t i = 0; err == ERR_OK && i < b->n_logits; i++) {
        compute_row(m, b, i);
        if (m->in_place) {
            int32_t row = b->logit_rows[i];
            const struct fake_slot *own = slot(m, b->page_tables[b->seq[row]], b->pos[row]);
            memcpy(b->output + (size_t)i * FAKE_OUTPUT, &own->hash, sizeof own->hash);
        }
    }
    for (int32_t i = 0; err == ERR_OK && i < b->n_hidden; i++) {
        compute_state(m, b, i);
    }
    m->n_rows += b->n_rows;
    m->n_steps++;
    m->n_mixed += is_mixed(b);
    bool is_beside = b->n_seqs > 1 && b->n_logits > 0 && b->n_logits < b->n_seqs;
    m->n_beside += is_beside;
    m->n_uneven += is_beside && m->even_rows != 0 && b->n_rows % m->even_rows != 0;
    if (b->n_seqs > m->n_wide) {
        m->n_wide = b->n_seqs;
    }
    atomic_store(&m->is_inside, overtakes);
    return err;
}

static enum err wait_done(struct backend_model *m, struct err_info *info)
{
    (void)m;
    (void)info;
    return ERR_OK;
}

static struct fake_slot *page_at(struct backend_model *m, int32_t page)
{
    m->n_faults += page < 0 || page >= m->n_pages || atomic_load(&m->is_inside);
    return &m->slots[(size_t)(page >= 0 && page < m->n_pages ? page : 0) * KV_PAGE_TOKENS];
}

static void move_page(struct backend_model *m, struct backend_page page, char *bytes, bool writes)
{
    for (int i = 0; i < 1 + (m->n_windows != 0); i++, bytes += FAKE_PAGE_BYTES) {
        int32_t id = i == 0 ? page.page : page.window;
        bool is_bad = i == 1 && (id < BACKEND_NO_PAGE || id >= m->n_windows);
        m->n_faults += is_bad;
        if (id != BACKEND_NO_PAGE && !is_bad) {
            void *at = i == 0 ? page_at(m, id) : &m->windows[(size_t)id * KV_PAGE_TOKENS];
            memcpy(writes ? at : bytes, writes ? bytes : at, FAKE_PAGE_BYTES);
        }
    }
}

static enum err page_copy(struct backend_model *m, struct backend_page page, enum backend_form form, void *bytes,
                          bool writes, struct err_info *info)
{
    (void)info;
    m->n_faults += form != BACKEND_OWN;
    sleep_us(writes ? 0 : atomic_load(&m->read_us));
    move_page(m, page, bytes, writes);
    return ERR_OK;
}

static uint64_t *state_at(struct backend_model *m, int32_t state)
{
    m->n_faults += state < 0 || state >= m->n_states;
    return &m->recurrent[state >= 0 && state < m->n_states ? state : 0];
}

static enum err state_copy(struct backend_model *m, int32_t state, void *bytes, bool writes, struct err_info *info)
{
    (void)info;
    uint64_t *own = state_at(m, state);
    memcpy(writes ? own : bytes, writes ? bytes : own, FAKE_STATE_BYTES);
    return ERR_OK;
}

const struct backend fake_backend = {.name = "fake",
                                     .description = "a hash instead of a model",
                                     .begin = begin,
                                     .wait = wait_done,
                                     .page_copy = page_copy,
                                     .state_copy = state_copy};
